package pipeline

import (
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/trace"
)

// TestReferenceRanges: each figure of the reference workload at both ends of its range, and just beyond.
func TestReferenceRanges(t *testing.T) {
	for _, c := range []struct {
		change func(r *Reference)
		want   string // "": it is accepted
	}{
		{func(r *Reference) {}, ""}, {func(r *Reference) { r.Requests = 0 }, ""}, {func(r *Reference) { r.Requests = 1_000_000 }, ""}, {func(r *Reference) { r.Requests = 1_000_001 }, "--requests: got 1000001"},
		{func(r *Reference) { r.Requests = -1 }, "--requests: got -1"}, {func(r *Reference) { r.Load = 0 }, "--load: got 0"}, {func(r *Reference) { r.Load = 1 }, "--load: got 1"}, {func(r *Reference) { r.Load = 0.999 }, ""},
		{func(r *Reference) { r.Prompt = 2 }, ""}, {func(r *Reference) { r.Prompt = 1.9 }, "--prompt-tokens: got 1.9"}, {func(r *Reference) { r.Prompt = 1_000_000 }, ""}, {func(r *Reference) { r.Prompt = 1_000_001 }, "--prompt-tokens"},
		{func(r *Reference) { r.Output = 2 }, ""}, {func(r *Reference) { r.Output = 1.9 }, "--output-tokens: got 1.9"}, {func(r *Reference) { r.Output = 1_000_000 }, ""}, {func(r *Reference) { r.Output = 1_000_001 }, "--output-tokens"},
	} {
		r := DefaultReference()
		c.change(&r)
		err := r.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", r, err, c.want)
		}
	}
	if r := DefaultReference(); r != (Reference{Requests: 300, Load: 0.5, Prompt: 512, Output: 128, Seed: 1}) {
		t.Errorf("got %+v", r)
	}
}

// flat returns coefficients of a step that takes us whatever runs, for a deployment of 4 sequences and 64 tokens a step.
func flat(us float64) *coeff.Set {
	d := testkit.Llama8B()
	d.Engine.MaxNumSeqs, d.Engine.MaxNumBatchedTokens, d.Engine.KVBlocksGPU = 4, 64, trace.Some(int64(1000))
	set := testkit.PlantedOn(d)
	for i := range set.Beta {
		set.Beta[i].Value = 0
	}
	set.Beta[15].Value = us
	set.Alpha = nil
	return set
}

// TestReferencePredictions: steps of 10 ms, and of 15 ms in the other set. A request of 32 + 8 tokens takes 8 steps of four
// requests and its prefill, 8 x 10/4 + 10 = 30 ms, so half of the capacity is 16.7 a second. One that finds an idle engine has
// a TTFT of one step and a gap of one step.
func TestReferencePredictions(t *testing.T) {
	a, b := flat(10_000), flat(15_000)
	d := a.Configs[0].Deployment
	r := Reference{Requests: 400, Load: 0.5, Prompt: 32, Output: 8, Seed: 1}
	rate, err := r.rate(&d, a)
	if err != nil || math.Abs(rate-0.5/0.030) > 1e-9 {
		t.Errorf("got %g a second and %v", rate, err)
	}
	reqs := r.workload(rate)
	prompts, outputs := 0.0, 0.0
	for i := range reqs {
		if reqs[i].PromptTokens < 16 || reqs[i].PromptTokens > 48 || reqs[i].OutputTokens < 4 || reqs[i].OutputTokens > 12 {
			t.Fatalf("request %d: got %+v", i, reqs[i])
		}
		prompts += float64(reqs[i].PromptTokens) / 400
		outputs += float64(reqs[i].OutputTokens) / 400
	}
	if lastS := float64(reqs[399].ArrivalUs) / 1e6; math.Abs(lastS-24) > 3.6 || math.Abs(prompts-32) > 1.4 || math.Abs(outputs-8) > 0.5 {
		t.Errorf("got the last arrival at %g s, %g + %g tokens", lastS, prompts, outputs)
	}
	got, err := r.Predictions(a, b)
	if err != nil || len(got) != 6 {
		t.Fatalf("got %+v and %v", got, err)
	}
	for _, p := range got {
		switch p.Metric {
		case "itl_p50":
			if p.AMs != 10 || p.BMs != 15 || p.Change != 0.5 {
				t.Errorf("got %+v", p)
			}
		case "ttft_p50":
			if p.AMs < 10 || p.AMs > 25 || p.BMs <= p.AMs || math.Abs(p.Change-(p.BMs/p.AMs-1)) > 1e-12 {
				t.Errorf("got %+v", p)
			}
		case "e2e_p50":
			if p.AMs < 70 || p.AMs > 110 {
				t.Errorf("got %+v", p)
			}
		}
		if p.Workload != "400 requests, 16.7/s, 32 + 8 tokens" || p.Scope != d.Label() {
			t.Errorf("got %q on %q", p.Workload, p.Scope)
		}
	}
	if none, err := (Reference{}).Predictions(a, b); none != nil || err != nil {
		t.Errorf("no requests: got %v and %v", none, err)
	}
	// Lengths that do not fit 8,192 tokens at 1.5 times their means are shortened in proportion: 6,000 + 3,000 to 3,640 + 1,820.
	if f := (Reference{Prompt: 6000, Output: 3000}).fitting(&d); f.Prompt != 3640 || f.Output != 1820 {
		t.Errorf("got %g + %g", f.Prompt, f.Output)
	}
	d.Engine.ChunkedPrefill = false
	if f := (Reference{Prompt: 60, Output: 8}).fitting(&d); f.Prompt != 42 || f.Output != 8 {
		t.Errorf("without chunks: got %g + %g, want 64/1.5", f.Prompt, f.Output)
	}
}
