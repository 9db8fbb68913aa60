package sim

import (
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
)

func TestOneRequest(t *testing.T) {
	cfg := DefaultConfig(testkit.Small(100), &Blackbox{Beta: []float64{1000, 10, 100}})
	cfg.Overhead, cfg.Egress = Const(300), Const(50)
	res, err := Run(cfg, []Request{{ID: "a", ArrivalUs: 10, PromptTokens: 20, OutputTokens: 3}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := res.Requests[0]
	first, last := int64(310+1200), int64(310+1200+2*1100)
	if r.QueuedUs.V != 310 || r.ScheduledUs.V != 310 || r.FirstTokenUs.V != first || r.FinishedUs.V != last || r.DepartedUs.V != last+50 {
		t.Errorf("%+v", r)
	}
	if res.Steps != 4 || res.EmptySteps != 1 {
		t.Errorf("steps %d, empty %d, want 4 and 1: the empty step after the last finish", res.Steps, res.EmptySteps)
	}
}
