package autoscale

// This file checks whether a question is one that the parameters of a server can answer: requests that the
// server accepts, and lengths and loads like those that were fitted.

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/trace"
)

// checkLength returns an error for mean lengths of requests that an engine rejects, because they are longer
// than max_model_len or than the whole KV cache.
func (v *Limits) checkLength(s shape) error {
	tokens := s.Prompt + s.Output
	for _, x := range []struct {
		most float64
		what string
	}{
		{float64(v.MaxModelLen), "max_model_len"},
		{kvTokens(v), "tokens of the KV cache"},
	} {
		if x.most > 0 && tokens > x.most {
			return trace.Errorf(badModel, "prompt_tokens and output_tokens: got %.6g + %.6g, want together at most %.0f, the %s: "+
				"the server rejects longer requests", s.Prompt, s.Output, x.most, x.what).
				WithHint("give shorter requests, or calibrate a server that takes such")
		}
	}
	return nil
}

// kvTokens returns the size of the KV cache, tokens; 0 if it is not known.
func kvTokens(v *Limits) float64 {
	if v.KVTokens == nil {
		return 0
	}
	return *v.KVTokens
}

// atOnce returns the mean number of requests that wait or are in service, by Little's law.
func atOnce(rateRPS, ttftMs, itlMs, output float64) float64 {
	return rateRPS / 1000 * (ttftMs + (output-1)*itlMs)
}

// rangeOf returns what the windows reach; nil if there are none.
func rangeOf(windows []window) *queueRange {
	if len(windows) == 0 {
		return nil
	}
	none := [2]float64{math.Inf(1), math.Inf(-1)}
	r := &queueRange{RateRPS: none, PromptTokens: none, OutputTokens: none, AtOnce: none}
	for i := range windows {
		w := &windows[i]
		for _, x := range []struct {
			ends  *[2]float64
			value float64
		}{
			{&r.RateRPS, w.RateRPS},
			{&r.PromptTokens, w.Shape.Prompt},
			{&r.OutputTokens, w.Shape.Output},
			{&r.AtOnce, atOnce(w.RateRPS, w.TTFTMs, w.ITLMs, w.Shape.Output)},
		} {
			x.ends[0] = math.Min(x.ends[0], x.value)
			x.ends[1] = math.Max(x.ends[1], x.value)
		}
	}
	return r
}

// rangeSlack is by how much a value may lie outside of the fitted range, as a share of its end, before it counts
// as outside: windows of one load differ by about as much.
const rangeSlack = 0.05

// outsideFitted returns a finding for each axis on which the lengths of m, or its load at rate s, lie outside of the
// windows that were fitted. fitted is nil where they are not known.
func outsideFitted(fitted *queueRange, m *model, s *sizing) (out []trace.Finding) {
	if fitted == nil {
		return nil
	}
	load := atOnce(s.RateRPS, s.TTFTMs, s.ITLMs, m.shape.Output)
	for _, x := range []struct {
		axis  string
		value float64
		ends  [2]float64
	}{
		{"prompt_tokens", m.shape.Prompt, fitted.PromptTokens},
		{"output_tokens", m.shape.Output, fitted.OutputTokens},
		{fmt.Sprintf("load at %.3g requests/s, requests at once", s.RateRPS), load, fitted.AtOnce},
	} {
		if x.value < x.ends[0]*(1-rangeSlack) || x.value > x.ends[1]*(1+rangeSlack) {
			out = append(out, trace.Findingf(outsideTraining, "%s: got %.4g, the windows of the fit have %.4g to %.4g",
				x.axis, x.value, x.ends[0], x.ends[1]))
		}
	}
	return out
}

// The domain in which the flavour corrected was compared with the simulator and is within 13 % of TTFT and ITL at up to
// 0.7 of the capacity (docs/queueing.md): answers of judgedOutput tokens and more; shorter ones only where prompts take
// at most judgedPrompts of the time.
const (
	judgedOutput  = 20
	judgedPrompts = 0.1
)

// outsideJudged returns a finding if m, at the rate of s, was found to be off by more.
func outsideJudged(m *model, s *sizing) []trace.Finding {
	prompts := s.RateRPS / 1000 * m.prefillWork(m.chunksAt(s.InService))
	if m.flavour != corrected || m.shape.Output >= judgedOutput || prompts <= judgedPrompts {
		return nil
	}
	return []trace.Finding{trace.Findingf(beyondJudged, "output_tokens: got %.4g where prompts take %.0f %% of the time, want at least %d: "+
		"TTFT and ITL can be off by 20 to 60 %% there; --simulate 20000 shows by how much", m.shape.Output, 100*prompts, judgedOutput)}
}
