package fit

import (
	"testing"

	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
)

// The covered region is the most that was recorded, outside what the fit left out; without
// requests of the engine, that of its clients.
func TestCovered(t *testing.T) {
	some := trace.Some[int64]
	run := &trace.Run{Steps: []trace.Step{{TsStartNs: 10, RunningDepth: 7}, {TsStartNs: 20, RunningDepth: 90}}}
	for i := range int64(60) {
		r := trace.Request{ArrivedNs: some(i * 1e9), Success: trace.Some(true), PromptTokens: some(100 + i), OutputTokens: some(5)}
		if i >= 50 { // a burst: the last 51 gaps are a tenth as long
			r.ArrivedNs = some(50e9 + (i-50)*1e8)
		}
		run.Requests = append(run.Requests, r)
	}
	run.Requests[59].Success = trace.Some(false)
	got := coveredBy(run, []rows.Span{{StartNs: 15, EndNs: 30}}, false)
	if got.Running != 7 || got.PromptTokens != 158 || got.OutputTokens != 5 {
		t.Errorf("got %+v, want 7 running outside the span, a finished prompt of 158, outputs of 5", got)
	}
	if want := 50 / 41.9; got.RequestsPerS == nil || *got.RequestsPerS < want*0.999 || *got.RequestsPerS > want*1.001 {
		t.Errorf("rate: got %v, want %g/s over the 50 gaps that took the least time", *got.RequestsPerS, want)
	}
	if got := coveredBy(run, nil, true); got.RequestsPerS != nil || got.Running != 90 {
		t.Errorf("sampled: got %+v, want no rate", got)
	}
	run.Requests = nil
	run.Observed = []trace.ObservedRequest{{SendNs: some(1), Success: trace.Some(true), PromptTokens: some(9), OutputTokens: some(3)}}
	got = coveredBy(run, nil, false)
	if got.PromptTokens != 9 || got.OutputTokens != 3 || got.RequestsPerS != nil {
		t.Errorf("clients: got %+v", got)
	}
	rate := 2.0
	sum := Cover(got, &result.Covered{Running: 3, RequestsPerS: &rate, PromptTokens: 1, OutputTokens: 40})
	if sum.Running != 90 || sum.PromptTokens != 9 || sum.OutputTokens != 40 || *sum.RequestsPerS != 2 {
		t.Errorf("union: got %+v", sum)
	}
}
