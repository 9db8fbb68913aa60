package cluster

// This file chooses an instance for a request: round-robin, least-loaded and weighted scores.

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
)

// router chooses the instance for a request. Route has no effect on the router's state, because
// admission asks it too; Routed is called when a request is really sent to the chosen instance.
type router interface {
	Route(r *Request, v *View) int
	Routed(r *Request, instance int)
}

// Policies of routing.
const (
	RoundRobin  = "round-robin"
	LeastLoaded = "least-loaded"
	Weighted    = "weighted"
)

// streamTies is the key of the random draws that decide ties.
const streamTies = 1

// newRouter returns the router that cfg.Routing names. list are the scorers of a weighted one, t
// breaks ties.
func newRouter(cfg *Config, list []Scorer, t tie, instances int) (router, error) {
	switch cfg.Routing.Policy {
	case RoundRobin:
		return &roundRobin{n: instances}, nil
	case LeastLoaded:
		return &leastLoaded{tie: t}, nil
	case Weighted:
		return newWeighted(list, t, instances), nil
	case LLMD:
		return newLLMD(cfg), nil
	}
	return nil, specErrorf(at("routing", "policy"),
		"routing policy: got %q, want round-robin, least-loaded, weighted or llmd", cfg.Routing.Policy)
}

// newWeighted returns a router that adds scores, with weights normalised to a sum of 1.
func newWeighted(list []Scorer, t tie, instances int) *weighted {
	w := &weighted{tie: t, total: make([]float64, instances), one: make([]float64, instances)}
	sum := 0.0
	for _, s := range list {
		sum += s.Weight
	}
	for _, s := range list {
		w.scores = append(w.scores, scorers[s.Name])
		w.weights = append(w.weights, s.Weight/sum)
	}
	return w
}

// Weigh returns the weighted score of every instance for a request.
func Weigh(list []Scorer, r *Request, v *View) []float64 {
	w := newWeighted(list, tie{}, len(v.Snapshots))
	w.weigh(r, v)
	return w.total
}

// readsEvents reports whether the scorers need the engines' own KV events.
func readsEvents(list []Scorer) bool {
	return slices.ContainsFunc(list, func(s Scorer) bool { return s.Name == "precise-prefix-cache" })
}

// roundRobin uses the instances in turn.
type roundRobin struct{ n, next int }

// Route returns the next instance.
func (r *roundRobin) Route(*Request, *View) int { return r.next }

// Routed moves on to the instance after it.
func (r *roundRobin) Routed(*Request, int) { r.next = (r.next + 1) % r.n }

// tie chooses among instances of equal score.
type tie struct {
	seed   uint64
	choose func(n int) int // among n equal instances; nil: by the seed and the request
	equal  []int           // memory for the instances with the largest value
}

// bestInstance returns the one of n instances with the largest value; ties are broken by t.
func (t *tie) bestInstance(r *Request, n int, value func(i int) float64) int {
	t.equal = append(t.equal[:0], 0)
	for i := 1; i < n; i++ {
		switch top := value(t.equal[0]); {
		case value(i) > top:
			t.equal = append(t.equal[:0], i)
		case value(i) == top:
			t.equal = append(t.equal, i)
		}
	}
	switch {
	case len(t.equal) == 1:
		return t.equal[0]
	case t.choose != nil:
		return t.equal[t.choose(len(t.equal))]
	}
	return t.equal[stat.DrawN(uint64(len(t.equal)), t.seed, streamTies, uint64(r.Index))]
}

// leastLoaded chooses the instance with the smallest View.Load.
type leastLoaded struct{ tie }

// Route returns the least loaded instance.
func (l *leastLoaded) Route(r *Request, v *View) int {
	return l.bestInstance(r, len(v.Snapshots), func(i int) float64 { return -float64(v.Load(i)) })
}

// Routed does nothing: the load is read from the view.
func (l *leastLoaded) Routed(*Request, int) {}

// weighted chooses the instance with the largest weighted sum of scores, each limited to [0, 1].
type weighted struct {
	tie
	scores  []score
	weights []float64 // of each scorer; their sum is 1
	total   []float64 // memory for the sum of each instance
	one     []float64 // memory for one scorer's score of each instance
}

// Route returns the instance with the largest sum for r.
func (w *weighted) Route(r *Request, v *View) int {
	w.weigh(r, v)
	return w.bestInstance(r, len(w.total), func(i int) float64 { return w.total[i] })
}

// weigh sets w.total to the weighted sum of every instance for r.
func (w *weighted) weigh(r *Request, v *View) {
	clear(w.total)
	for k, s := range w.scores {
		s(r, v, w.one)
		for i := range w.total {
			w.total[i] += min(1, max(0, w.one[i])) * w.weights[k]
		}
	}
}

// Routed does nothing: the scores are read from the view.
func (w *weighted) Routed(*Request, int) {}

// Scorer is one term of a weighted score: the name of a scorer and its weight.
type Scorer struct {
	Name   string
	Weight float64
}

// score computes the score of every instance for a request and writes it to the slice `to`.
type score func(r *Request, v *View, to []float64)

// scorers are the scores by name. They follow BLIS (inference-sim) and llm-d's scheduler.
// queue-depth-effective is what BLIS called queue-depth before that came to mean the waiting queue
// alone.
var scorers = map[string]score{
	"prefix-affinity": func(r *Request, v *View, to []float64) {
		for i := range to {
			to[i] = 0
			if r.Blocks > 0 {
				to[i] = float64(v.Match[i]) / float64(r.Blocks)
			}
		}
	},
	"queue-depth": func(_ *Request, v *View, to []float64) {
		scoreFewest(to, func(i int) int64 { return v.Snapshots[i].QueueDepth })
	},
	"queue-depth-effective": func(_ *Request, v *View, to []float64) { scoreFewest(to, v.Load) },
	"kv-utilization": func(_ *Request, v *View, to []float64) {
		for i := range to {
			to[i] = 1 - v.Snapshots[i].KVUsage()
		}
	},
	"load-balance": func(_ *Request, v *View, to []float64) {
		for i := range to {
			to[i] = 1 / (1 + float64(v.Load(i)))
		}
	},
	"precise-prefix-cache": func(_ *Request, v *View, to []float64) {
		scoreFewest(to, func(i int) int64 { return -v.Exact[i] })
	},
}

// short maps the abbreviations that cluster.yaml may use to the names of scorers.
var short = map[string]string{"pa": "prefix-affinity", "qd": "queue-depth", "kv": "kv-utilization",
	"qde": "queue-depth-effective", "ppc": "precise-prefix-cache", "lb": "load-balance"}

// scoreFewest sets `to` from a count of each instance: 1 for the smallest, 0 for the largest,
// linear between; 1 for all if all are equal.
func scoreFewest(to []float64, count func(i int) int64) {
	lo := int64(math.MaxInt64)
	hi := int64(math.MinInt64)
	for i := range to {
		lo = min(lo, count(i))
		hi = max(hi, count(i))
	}
	for i := range to {
		to[i] = 1
		if hi > lo {
			to[i] = float64(hi-count(i)) / float64(hi-lo)
		}
	}
}

// ParseScorers reads weighted scorers such as "pa:4,qd:3", with full or abbreviated names.
func ParseScorers(text string) ([]Scorer, error) {
	var out []Scorer
	for _, part := range strings.Split(text, ",") {
		name, weight, ok := strings.Cut(strings.TrimSpace(part), ":")
		name = cmp.Or(short[name], name)
		w, err := strconv.ParseFloat(weight, 64)
		if scorers[name] == nil || !ok || err != nil || !(w > 0) || math.IsInf(w, 0) {
			return nil, specErrorf(at("routing", "scorers"), "scorers: got %q, want NAME:WEIGHT with weight > 0 and one of %s",
				strings.TrimSpace(part), strings.Join(slices.Sorted(maps.Keys(scorers)), ", "))
		}
		if slices.ContainsFunc(out, func(s Scorer) bool { return s.Name == name }) {
			return nil, specErrorf(at("routing", "scorers"), "scorers: got %s twice, want each once", name)
		}
		out = append(out, Scorer{name, w})
	}
	return out, nil
}
