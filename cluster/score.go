package cluster

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

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
				strings.TrimSpace(part), strings.Join(scorerNames(), ", "))
		}
		if slices.ContainsFunc(out, func(s Scorer) bool { return s.Name == name }) {
			return nil, trace.Errorf(codeBadSpec, "scorers: got %s twice, want each once", name)
		}
		out = append(out, Scorer{name, w})
	}
	return out, nil
}

// scorerNames are the scorers, sorted.
func scorerNames() []string {
	var out []string
	for name := range scorers {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func decay(us int64) float64 { return stat.Exp(-float64(us) / rateWindowUs) }
