package rows

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// Bin counts steps with Lo <= value < Hi; Hi is +Inf in the last one.
type Bin struct {
	Lo, Hi float64
	N      int
}

// Histogram counts busy known steps by one quantity.
type Histogram struct {
	Name, Unit string
	Bins       []Bin
}

// Coverage says which kinds of steps a run holds.
type Coverage struct {
	PrefillTokens Histogram // tokens per step, steps with prefill
	DecodeBatch   Histogram // decodes per step, steps with decodes
	Context       Histogram // tokens in KV per decode
	KVUsage       Histogram // share of GPU blocks, recorded steps
	// Heavy counts steps with more than 64 prefill tokens: without enough of
	// them the prefill cost is not identifiable.
	Heavy    int
	Findings []trace.Finding
}

// scarce is how many steps of a kind make it present.
const scarce = 20

// powers are bin edges 1, 2, 4 .. max; the first bin starts at 0.
func powers(name, unit string, largest float64) Histogram {
	h := Histogram{Name: name, Unit: unit, Bins: []Bin{{Hi: 1}}}
	for lo := 1.0; lo < largest; lo *= 2 {
		h.Bins = append(h.Bins, Bin{Lo: lo, Hi: lo * 2})
	}
	h.Bins[len(h.Bins)-1].Hi = math.Inf(1)
	return h
}

func tenths(name string) Histogram {
	h := Histogram{Name: name, Unit: "1"}
	for i := range 10 {
		h.Bins = append(h.Bins, Bin{Lo: float64(i) / 10, Hi: float64(i+1) / 10})
	}
	h.Bins[9].Hi = math.Inf(1)
	return h
}

func (h *Histogram) add(v float64) {
	for i := len(h.Bins) - 1; i >= 0; i-- {
		if v >= h.Bins[i].Lo {
			h.Bins[i].N++
			return
		}
	}
}

// Coverage counts the run's busy steps and names the regimes it lacks.
func (s *Steps) Coverage() Coverage {
	c := Coverage{
		PrefillTokens: powers("prefill tokens per step", "tokens", 32768),
		DecodeBatch:   powers("decodes per step", "requests", 1024),
		Context:       powers("context per decode", "tokens", 131072),
		KVUsage:       tenths("KV usage"),
	}
	var decode, mixed, prefill int
	for k := range s.all {
		st := &s.all[k]
		if st.Recorded >= 0 && isBusy(&s.Run.Steps[st.Recorded]) {
			c.KVUsage.add(s.Run.Steps[st.Recorded].KVUsage)
		}
		if !st.Known() || st.In.ScheduledTokens == 0 {
			continue
		}
		hasPrefill, hasDecode := st.In.PrefillTokens > 0, st.In.DecodeTokens > 0
		switch {
		case hasPrefill && hasDecode:
			mixed++
		case hasPrefill:
			prefill++
		default:
			decode++
		}
		if hasPrefill {
			c.PrefillTokens.add(st.In.PrefillTokens)
		}
		if hasDecode {
			c.DecodeBatch.add(st.In.NumDecodeReqs)
			c.Context.add(st.In.DecodeContextTokens / st.In.NumDecodeReqs)
		}
		if st.In.PrefillTokens > evidenceTokens {
			c.Heavy++
		}
	}
	c.absent(s.Run.ID, decode, mixed, prefill)
	return c
}

func (c *Coverage) absent(run string, decode, mixed, prefill int) {
	for _, k := range []struct {
		n    int
		what string
	}{
		{decode, "pure-decode steps"},
		{mixed, "steps that mix prefill and decode"},
		{prefill, "pure-prefill steps"},
		{c.Heavy, "steps with more than 64 prefill tokens (prefill cost is not identifiable)"},
	} {
		if k.n < scarce {
			c.Findings = append(c.Findings, trace.Findingf(codeRegimeAbsent, "%s: %d %s, want at least %d", run, k.n, k.what, scarce))
		}
	}
}

// Ranges are the smallest and largest per-step values of every feature over
// the training rows of the tables (spec#training-range); 0, 0 for a slot without any.
func Ranges(tables []*Table) (lo, hi []float64) {
	if len(tables) == 0 {
		return nil, nil
	}
	p := tables[0].P
	lo, hi = filled(p, math.Inf(1)), filled(p, math.Inf(-1))
	for _, t := range tables {
		for j := range p {
			lo[j], hi[j] = math.Min(lo[j], t.Min[j]), math.Max(hi[j], t.Max[j])
		}
	}
	for j := range p {
		if lo[j] > hi[j] {
			lo[j], hi[j] = 0, 0
		}
	}
	return lo, hi
}
