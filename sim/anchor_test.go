package sim

import (
	"math"
	"testing"

	"github.com/blis-train/blis-train/sim/simtest"
	"github.com/blis-train/blis-train/trace"
)

// TestAnchorsKeepAnOverloadOnCourse: replayed with step times 5 % too short, the
// queue of an overloaded server stays shorter and shorter behind the real one;
// set right every ten seconds the replay stays as near as ten seconds of error.
// With the right step times anchors change nothing.
func TestAnchorsKeepAnOverloadOnCourse(t *testing.T) {
	reqs := make([]Request, 600)
	for i := range reqs {
		reqs[i] = Request{ArrivalUs: int64(i) * 110_000, PromptTokens: 50 + int64(i*37%200), OutputTokens: 5 + int64(i*13%30)}
	}
	replay := func(scale float64, anchor *Anchor) []float64 {
		cfg := DefaultConfig(simtest.Small(4000), simtest.Step(20_000*scale, 100*scale, 2000*scale))
		cfg.Anchor = anchor
		res, err := Run(cfg, reqs, nil)
		if err != nil {
			t.Fatal(err)
		}
		ttft := make([]float64, len(reqs))
		for i := range res.Requests {
			if ttft[i], _ = res.Requests[i].TTFTUs(); res.Requests[i].ArrivalUs != reqs[i].ArrivalUs {
				t.Fatalf("request %d arrives at %d us, want %d: the time of the workload", i, res.Requests[i].ArrivalUs, reqs[i].ArrivalUs)
			}
		}
		return ttft
	}
	real := replay(1, nil)
	anchor := &Anchor{EveryUs: 10_000_000, FirstUs: make([]trace.Opt[int64], len(reqs))}
	for i := range anchor.FirstUs {
		anchor.FirstUs[i] = trace.Some(reqs[i].ArrivalUs + int64(real[i]))
	}
	off := func(ttft []float64) (worst float64) {
		for i := len(reqs) / 2; i < len(reqs); i++ {
			worst = math.Max(worst, math.Abs(ttft[i]-real[i])/1e6)
		}
		return worst
	}
	if real[len(real)-1] < 20e6 {
		t.Fatalf("the last TTFT is %g us: want an overload", real[len(real)-1])
	}
	plain, anchored, right := off(replay(0.95, nil)), off(replay(0.95, anchor)), off(replay(1, anchor))
	t.Logf("TTFT off by at most %.2f s plain, %.2f s anchored, %.2f s with the right step times", plain, anchored, right)
	if anchored > 0.7 || plain < 4*anchored || right != 0 {
		t.Errorf("off by %.2f s plain, %.2f s anchored, %.2f s with the right step times: want >= 4x, <= 0.7 s, 0", plain, anchored, right)
	}
	for _, bad := range []*Anchor{{EveryUs: 0, FirstUs: anchor.FirstUs}, {EveryUs: 1}} {
		cfg := DefaultConfig(simtest.Small(4000), simtest.Step(1, 1, 1))
		cfg.Anchor = bad
		if _, err := Run(cfg, reqs, nil); err == nil {
			t.Errorf("%+v: got no error", bad)
		}
	}
}
