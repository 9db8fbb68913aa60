package cluster

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// router chooses an instance. Route changes nothing; Routed is told of the requests
// that really go where it said.
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

// streamTies keys the draws that decide ties.
const streamTies = 1

// newRouter makes a router for some instances.
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
	return nil, trace.Errorf(codeBadSpec, "routing policy: got %q, want round-robin, least-loaded, weighted or llmd", cfg.Routing.Policy)
}

func newWeighted(list []Scorer, t tie, instances int) *weighted {
	w := &weighted{tie: t, total: make([]float64, instances), one: make([]float64, instances)}
	sum := stat.Sum(list, func(s Scorer) float64 { return s.Weight })
	for _, s := range list {
		w.scores, w.weights = append(w.scores, scorers[s.Name]), append(w.weights, s.Weight/sum)
	}
	return w
}

// Weigh is the weighted score of every instance for a request.
func Weigh(list []Scorer, r *Request, v *View) []float64 {
	w := newWeighted(list, tie{}, len(v.Snapshots))
	w.weigh(r, v)
	return w.total
}

// readsEvents reports whether the scorers need the engines' own KV events.
func readsEvents(list []Scorer) bool {
	return slices.ContainsFunc(list, func(s Scorer) bool { return s.Name == "precise-prefix-cache" })
}

type roundRobin struct{ n, next int }

func (r *roundRobin) Route(*Request, *View) int { return r.next }

func (r *roundRobin) Routed(*Request, int) { r.next = (r.next + 1) % r.n }

// tie chooses among equals.
type tie struct {
	seed   uint64
	choose func(n int) int // among n equal instances; nil: by the seed and the request
	equal  []int
}

// best is the instance with the largest value.
func (t *tie) best(r *Request, n int, value func(i int) float64) int {
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

type leastLoaded struct{ tie }

func (l *leastLoaded) Route(r *Request, v *View) int {
	return l.best(r, len(v.Snapshots), func(i int) float64 { return -float64(v.Load(i)) })
}

func (l *leastLoaded) Routed(*Request, int) {}

// weighted is the argmax of the weighted sum of scores, each held within [0, 1].
type weighted struct {
	tie
	scores              []score
	weights, total, one []float64
}

func (w *weighted) Route(r *Request, v *View) int {
	w.weigh(r, v)
	return w.best(r, len(w.total), func(i int) float64 { return w.total[i] })
}

func (w *weighted) weigh(r *Request, v *View) {
	clear(w.total)
	for k, s := range w.scores {
		s(r, v, w.one)
		for i := range w.total {
			w.total[i] += float64(min(1, max(0, w.one[i])) * w.weights[k])
		}
	}
}

func (w *weighted) Routed(*Request, int) {}

// Scorer is one part of a weighted score.
type Scorer struct {
	Name   string
	Weight float64
}

// score writes the score of every instance.
type score func(r *Request, v *View, to []float64)

// scorers by name. Scores and their names follow BLIS (inference-sim) and llm-d's
// scheduler; queue-depth-effective is what BLIS's queue-depth read before it was
// changed to the waiting queue alone.
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
		fewer(to, func(i int) int64 { return v.Snapshots[i].QueueDepth })
	},
	"queue-depth-effective": func(_ *Request, v *View, to []float64) { fewer(to, v.Load) },
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
		fewer(to, func(i int) int64 { return -v.Exact[i] })
	},
}

// short are the names of the texts.
var short = map[string]string{"pa": "prefix-affinity", "qd": "queue-depth", "kv": "kv-utilization",
	"qde": "queue-depth-effective", "ppc": "precise-prefix-cache", "lb": "load-balance"}

// fewer scores 1 for the smallest count and 0 for the largest; all equal: 1.
func fewer(to []float64, count func(i int) int64) {
	lo, hi := int64(math.MaxInt64), int64(math.MinInt64)
	for i := range to {
		lo, hi = min(lo, count(i)), max(hi, count(i))
	}
	for i := range to {
		to[i] = 1
		if hi > lo {
			to[i] = float64(hi-count(i)) / float64(hi-lo)
		}
	}
}

// ParseScorers reads "pa:4,qd:3": names of scorers, long or short, and weights.
func ParseScorers(text string) ([]Scorer, error) {
	var out []Scorer
	for _, part := range strings.Split(text, ",") {
		name, weight, ok := strings.Cut(strings.TrimSpace(part), ":")
		name = cmp.Or(short[name], name)
		w, err := strconv.ParseFloat(weight, 64)
		if scorers[name] == nil || !ok || err != nil || !(w > 0) || math.IsInf(w, 0) {
			return nil, trace.Errorf(codeBadSpec, "scorers: got %q, want NAME:WEIGHT with weight > 0 and one of %s",
				strings.TrimSpace(part), strings.Join(slices.Sorted(maps.Keys(scorers)), ", "))
		}
		if slices.ContainsFunc(out, func(s Scorer) bool { return s.Name == name }) {
			return nil, trace.Errorf(codeBadSpec, "scorers: got %s twice, want each once", name)
		}
		out = append(out, Scorer{name, w})
	}
	return out, nil
}

func decay(us int64) float64 { return stat.Exp(-float64(us) / rateWindowUs) }
