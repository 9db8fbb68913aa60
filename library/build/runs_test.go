package build

import (
	"math"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// TestObservedLoad: of requests with the engine's stamps those before the queue grows count, and the rest are simulated with them. TTFT is
// from the arrival, on a clock that the shortest pick-up sets; the front end is no part of it.
func TestObservedLoad(t *testing.T) {
	d, err := deploy.LoadSettings("model.id=meta-llama/Llama-3.1-8B-Instruct", "hardware.name=RTX-PRO-6000", "vllm.version=0.19.0",
		"tensor_parallel_size=1", "vllm.max_num_seqs=128", "vllm.max_num_batched_tokens=2048")
	if err != nil {
		t.Fatal(err)
	}
	const wall, ms = int64(1_777_142_838e9), int64(1e6) // the two clocks' difference, and a millisecond
	run := &trace.Run{}
	// arrival, pick-up, start and first token of a request, ms of the engine's clock
	for _, at := range [][4]int64{{100, 110, 300, 350}, {0, 2, 2, 62}, {50, 50, 50, 150}, {60, 60, 61, 141}} {
		run.Observed = append(run.Observed, trace.ObservedRequest{
			SendWallNs:    trace.Some(wall + at[0]*ms),
			QueuedNs:      trace.Some(at[1] * ms),
			ScheduledNs:   trace.Some(at[2] * ms),
			EngineFirstNs: trace.Some(at[3] * ms),
			EngineLastNs:  trace.Some((at[3] + 300) * ms),
			PromptTokens:  trace.Some(int64(500)),
			OutputTokens:  trace.Some(int64(11)),
		})
	}
	l, err := observedOf("run", run, d)
	if err != nil {
		t.Fatal(err)
	}
	if want := (62.0 + 100 + 81) / 3; math.Abs(l.ttftMs-want) > 1e-9 || math.Abs(l.tpotMs-30) > 1e-9 {
		t.Errorf("got TTFT %g and TPOT %g ms, want %g and 30", l.ttftMs, l.tpotMs, want)
	}
	for i, want := range []struct {
		arrivalUs  int64
		unmeasured bool
	}{{0, false}, {50_000, false}, {60_000, false}, {100_000, true}} {
		if r := l.reqs[i]; r.ArrivalUs != want.arrivalUs || r.Unmeasured != want.unmeasured {
			t.Errorf("request %d: got arrival %d us, unmeasured %v, want %+v", i, r.ArrivalUs, r.Unmeasured, want)
		}
	}
	c := newCorrection([]string{d.Hardware.Name})
	with, err := c.simulated(l, true)
	if err != nil {
		t.Fatal(err)
	}
	c.Theta[numCommon-1] *= 2
	without, err := c.simulated(l, false)
	if err != nil || with.Requests != 3 || with.TTFTMs != without.TTFTMs {
		t.Errorf("got %g requests and TTFT %g and %g ms with another front end (%v), want 3 and the same", with.Requests, with.TTFTMs, without.TTFTMs, err)
	}
	if e := c.evidenceOf([]*load{l}, map[*load]means{l: {Means: with, at: c.Theta}}, nil); e[1].by[numCommon-1] != 0 {
		t.Errorf("got a TTFT that changes with the front end by %g, want 0", e[1].by[numCommon-1])
	}
	var nothing trace.Opt[int64]
	for name, drop := range map[string]func(r *trace.ObservedRequest){
		"arrival":           func(r *trace.ObservedRequest) { r.SendWallNs = nothing },
		"pick-up":           func(r *trace.ObservedRequest) { r.QueuedNs = nothing },
		"start":             func(r *trace.ObservedRequest) { r.ScheduledNs = nothing },
		"first token":       func(r *trace.ObservedRequest) { r.EngineFirstNs = nothing },
		"end":               func(r *trace.ObservedRequest) { r.EngineLastNs = nothing },
		"prompt":            func(r *trace.ObservedRequest) { r.PromptTokens = nothing },
		"answer":            func(r *trace.ObservedRequest) { r.OutputTokens = nothing },
		"answer of a token": func(r *trace.ObservedRequest) { r.OutputTokens.V = 1 },
	} {
		one := run.Observed[0]
		drop(&one)
		if l, err := observedOf("run", &trace.Run{Observed: []trace.ObservedRequest{one}}, d); l != nil || err != nil {
			t.Errorf("without the %s: got %v, %v, want none", name, l, err)
		}
	}
	shortest := run.Observed[0]
	shortest.OutputTokens.V = 2
	if l, err := observedOf("run", &trace.Run{Observed: []trace.ObservedRequest{shortest}}, d); err != nil || len(l.reqs) != 1 || l.tpots[0] != 300 {
		t.Errorf("an answer of two tokens: got %+v, %v, want a TPOT of 300 ms", l, err)
	}
	if l, err := observedOf("run", &trace.Run{}, d); l != nil || err != nil {
		t.Errorf("a run without such requests: got %v, %v, want none", l, err)
	}
}
