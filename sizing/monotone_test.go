package sizing

import (
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/library/predict"
)

// looserNeedsNoMore asks n random questions twice, the second time with limits twice as high, and checks that
// a looser target never needs more GPUs and that a load of half never does.
func looserNeedsNoMore(t *testing.T, n int) {
	rng := rand.New(rand.NewPCG(57, 1))
	for k := range n {
		load := predict.Load{RateRPS: 1 + 3*rng.Float64(), InputTokens: 200 + rng.Int64N(800), OutputTokens: 10 + rng.Int64N(30)}
		tp := []int64{2, 4}[rng.IntN(2)]
		q := question(load, "ttft.p90=400ms,tpot.mean=30ms", tp)
		tight := answered(t, q)
		q.Targets = question(load, "ttft.p90=800ms,tpot.mean=60ms", tp).Targets
		loose := answered(t, q)
		q.Load.RateRPS /= 2
		half := answered(t, q)
		gpus := func(a *Answer) int64 {
			if r := a.Best(); r != nil {
				return r.GPUs
			}
			return 1 << 30
		}
		if gpus(loose) > gpus(tight) || gpus(half) > gpus(loose) {
			t.Errorf("question %d (%+v, tp %d): %d GPUs, %d with looser targets, %d for half the load", k, load, tp,
				gpus(tight), gpus(loose), gpus(half))
		}
	}
}

// TestMonotone asks a few questions, TestEvalMonotone forty.
func TestMonotone(t *testing.T) { looserNeedsNoMore(t, 10) }

func TestEvalMonotone(t *testing.T) {
	repo.NeedEval(t)
	looserNeedsNoMore(t, 40)
}

// TestClosedLoopIsPoisson: clients, and Poisson arrivals at the rate they reach, have about the same mean ITL. A
// request of a closed loop meets the other clients, one that arrives by Poisson meets as many as are in the
// system on average: one more, so that its gaps are somewhat longer.
func TestClosedLoopIsPoisson(t *testing.T) {
	for _, clients := range []int{2, 8} {
		q := question(predict.Load{Clients: clients, InputTokens: 1000, OutputTokens: 100}, "e2e.p99=1h", 2)
		closed := answered(t, q).Best()
		q.Load = predict.Load{RateRPS: closed.RequestsPerS.Value, InputTokens: 1000, OutputTokens: 100}
		open := answered(t, q).Best()
		itl := func(r *Row) float64 {
			for _, f := range r.Figures {
				if f.Metric == predict.ITL && f.Statistic == "mean" {
					return f.Ms.Value
				}
			}
			return 0
		}
		if ratio := itl(open) / itl(closed); ratio < 0.98 || ratio > 1.08 {
			t.Errorf("%d clients at %.3g requests/s: mean ITL %.4g ms, of Poisson arrivals %.4g ms, want 2 %% less to 8 %% more", clients,
				closed.RequestsPerS.Value, itl(closed), itl(open))
		}
	}
}
