package workload

import "testing"

// TestLengthsOfAPoint lie within the range ratio around their mean and reach both of its ends, and a point out of range
// is refused.
func TestLengthsOfAPoint(t *testing.T) {
	p := Point{InputTokens: 100, OutputTokens: 10, Requests: 2000, RangeRatio: 0.2}
	w, err := p.Workload(1)
	if err != nil {
		t.Fatal(err)
	}
	least, most := w.Requests[0].PromptTokens, w.Requests[0].PromptTokens
	for i := range w.Requests {
		least = min(least, w.Requests[i].PromptTokens)
		most = max(most, w.Requests[i].PromptTokens)
		if n := w.Requests[i].OutputTokens; n < 8 || n > 12 {
			t.Fatalf("got an output of %d tokens, want 8 to 12", n)
		}
	}
	if least != 80 || most != 120 {
		t.Errorf("got prompts of %d to %d tokens, want 80 to 120", least, most)
	}
	p.RangeRatio = 0.02 // 9.8 to 10.2
	if g, err := p.Generator(); err != nil || g.Output.Min != 9 || g.Output.Max != 11 {
		t.Errorf("got outputs of %+v, %v, want 9 to 11", g.Output, err)
	}
	for _, bad := range []Point{{RangeRatio: 1}, {RangeRatio: -0.1}, {RateRPS: -1}, {Concurrency: -1}} {
		bad.InputTokens, bad.OutputTokens, bad.Requests = 1, 1, 1
		if _, err := bad.Workload(1); err == nil {
			t.Errorf("%+v: got no error", bad)
		}
	}
}
