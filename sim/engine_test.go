package sim

import (
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// linear is a latency model for tests: a + b*prefill + c*decode tokens.
type linear struct{ a, b, c float64 }

func (l linear) StepUs(b *Batch) (float64, error) {
	return l.a + l.b*float64(b.PrefillTokens) + l.c*float64(b.DecodeTokens), nil
}

func small(blocks int64, mutate ...func(*deploy.Engine)) *deploy.Deployment {
	d := &deploy.Deployment{TP: 1, PP: 1, DP: 1, Engine: deploy.Engine{MaxNumSeqs: 4, MaxNumBatchedTokens: 64, ChunkedPrefill: true, BlockSize: 4,
		KVBlocksGPU: trace.Some(blocks), MaxModelLen: trace.Some(int64(1000)), AsyncScheduling: trace.Some(false), SchedulingPolicy: "fcfs"}}
	for _, m := range mutate {
		m(&d.Engine)
	}
	return d
}

func TestOneRequest(t *testing.T) {
	cfg := DefaultConfig(small(100), linear{1000, 10, 100})
	cfg.Overhead, cfg.Egress = Const(300), Const(50)
	res, err := Run(cfg, []Request{{ID: "a", ArrivalUs: 10, PromptTokens: 20, OutputTokens: 3}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := res.Requests[0]
	if r.QueuedUs.V != 310 || r.ScheduledUs.V != 310 || r.FirstTokenUs.V != 310+1200 || r.FinishedUs.V != 310+1200+2*1100 || r.DepartedUs.V != r.FinishedUs.V+50 {
		t.Errorf("%+v", r)
	}
	if res.Steps != 4 || res.EmptySteps != 1 {
		t.Errorf("steps %d, empty %d, want 4 and 1: the empty step after the last finish", res.Steps, res.EmptySteps)
	}
}
