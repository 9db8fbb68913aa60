package rows

// This file counts the kinds of steps that a run has, to find those that are missing for a fit.

import (
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Coverage counts the kinds of steps that a run has.
type Coverage struct {
	PrefillTokens result.Histogram // tokens per step, steps with prefill
	DecodeBatch   result.Histogram // decodes per step, steps with decodes
	Context       result.Histogram // tokens in KV per decode
	KVUsage       result.Histogram // share of GPU blocks, recorded steps
	// Heavy counts steps with more than 64 prefill tokens: without enough of
	// them the prefill cost is not identifiable.
	Heavy    int
	Findings []trace.Finding
}

// minStepsOfKind is how many steps of a kind a run needs to cover it.
const minStepsOfKind = 20

// powersOfTwo returns an empty histogram with the edges 0, 1, 2, 4 ... up to largest.
func powersOfTwo(name, unit string, largest float64) result.Histogram {
	edges := []float64{0}
	for lo := 1.0; lo < largest; lo *= 2 {
		edges = append(edges, lo)
	}
	return result.Histogram{Name: name, Unit: unit, Edges: edges, Counts: make([]int, len(edges))}
}

// tenthsHistogram returns an empty histogram of shares with the edges 0, 0.1 ... 0.9.
func tenthsHistogram(name string) result.Histogram {
	h := result.Histogram{Name: name, Unit: "1", Counts: make([]int, 10)}
	for i := range 10 {
		h.Edges = append(h.Edges, float64(i)/10)
	}
	return h
}

// countValue adds one value to a histogram, in the last bin whose lower edge is at most the value.
func countValue(h *result.Histogram, v float64) {
	for i := len(h.Edges) - 1; i >= 0; i-- {
		if v >= h.Edges[i] {
			h.Counts[i]++
			h.Rows++
			return
		}
	}
}

// Coverage returns the numbers of the run's busy steps, and the regimes that it lacks.
func (s *Steps) Coverage() Coverage {
	c := Coverage{
		PrefillTokens: powersOfTwo("prefill_tokens", "tokens", 32768),
		DecodeBatch:   powersOfTwo("decode_batch", "requests", 1024),
		Context:       powersOfTwo("context_tokens", "tokens", 131072),
		KVUsage:       tenthsHistogram("kv_usage"),
	}
	var decode, mixed, prefill int
	for k := range s.all.steps {
		st := &s.all.steps[k]
		if st.recorded >= 0 && isBusy(&s.Run.Steps[st.recorded]) {
			countValue(&c.KVUsage, s.Run.Steps[st.recorded].KVUsage)
		}
		in := s.all.input(k)
		if !st.known() || in.ScheduledTokens == 0 {
			continue
		}
		hasPrefill := in.PrefillTokens > 0
		hasDecode := in.DecodeTokens > 0
		switch {
		case hasPrefill && hasDecode:
			mixed++
		case hasPrefill:
			prefill++
		default:
			decode++
		}
		if hasPrefill {
			countValue(&c.PrefillTokens, in.PrefillTokens)
		}
		if hasDecode {
			countValue(&c.DecodeBatch, in.NumDecodeReqs)
			countValue(&c.Context, in.DecodeContextTokens/in.NumDecodeReqs)
		}
		if in.PrefillTokens > evidenceTokens {
			c.Heavy++
		}
	}
	c.reportScarceKinds(s.Run.ID, decode, mixed, prefill)
	return c
}

// reportScarceKinds adds a finding for each kind of step of which there are too few.
func (c *Coverage) reportScarceKinds(run string, decode, mixed, prefill int) {
	for _, k := range []struct {
		n    int
		what string
	}{
		{decode, "pure-decode steps"},
		{mixed, "steps that mix prefill and decode"},
		{prefill, "pure-prefill steps"},
		{c.Heavy, "steps with more than 64 prefill tokens (prefill cost is not identifiable)"},
	} {
		if k.n < minStepsOfKind {
			c.Findings = append(c.Findings, trace.Findingf(codeRegimeAbsent, "%s: %d %s, want at least %d", run, k.n, k.what, minStepsOfKind))
		}
	}
}
