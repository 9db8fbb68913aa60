package cluster

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/predict"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/admission"
	"github.com/blis-train/blis-train/sim/gateway"
	"github.com/blis-train/blis-train/sim/simtest"
	"github.com/blis-train/blis-train/stat"
	"github.com/blis-train/blis-train/trace"
)

// estimatorOf is the rollout with the step times of an engine.
func estimatorOf(cfg *sim.Config) *predict.Engine {
	e := predict.NewWith(cfg.Latency, cfg.Deployment)
	e.SetOverhead(cfg.Overhead)
	return e
}

// judged runs requests, all of which are let in and predicted, and compares.
func judged(t *testing.T, c *Config, reqs []sim.Request) (medianAPE, bias, coverage float64) {
	t.Helper()
	res, err := Run(c, reqs)
	if err != nil {
		t.Fatal(err)
	}
	var ape []float64
	predicted, took, covered, n := 0.0, 0.0, 0.0, 0.0
	for i := range res.Records {
		r := &res.Records[i]
		us, ok := r.TookUs()
		if !ok || i < len(res.Records)/10 {
			continue
		}
		ape = append(ape, math.Abs(r.Decision.PredictedUs/float64(us)-1))
		predicted, took, n = predicted+r.Decision.PredictedUs, took+float64(us), n+1
		if float64(us) <= r.Decision.P90Us {
			covered++
		}
	}
	return stat.Median(ape), predicted/took - 1, covered / n
}

func critical(reqs []sim.Request) []sim.Request {
	for i := range reqs {
		reqs[i].SLOClass = "critical"
	}
	return reqs
}

// What a gateway sees is enough to predict: on one engine, first come first served,
// without noise, and with the start of its step exported, at most 5 % median error
// and 3 % bias up to half load. Nearer to capacity (about 58/s) what comes while a
// request waits decides: both errors are printed.
func TestPredictionOnOneEngine(t *testing.T) {
	for _, rate := range []float64{5, 15, 25, 45, 60} {
		cfg := physical(t)
		c := plain([]sim.Config{cfg})
		c.ShowStep = true
		c.Policy = &admission.Predictive{Estimate: &admission.Rollout{Engines: []*predict.Engine{estimatorOf(&cfg)}}}
		ape, bias, coverage := judged(t, c, critical(mixture(9, 3000, rate)))
		t.Logf("%2.0f/s: median APE %.3f, bias %+.3f, P90 coverage %.3f", rate, ape, bias, coverage)
		if rate < 30 && (ape > 0.05 || math.Abs(bias) > 0.03) {
			t.Errorf("%.0f/s: got median APE %.3f and bias %+.3f, want at most 0.05 and 0.03", rate, ape, bias)
		}
	}
}

// Eight engines by priority, scraped every 50 ms, with noise: at most 15 % median
// error up to half load, more above, where requests follow each other to the engine
// that looked free at the last scrape; the calibrated 90 % bound holds for 87 to 93 %
// at every load.
func TestPredictionOnEightEngines(t *testing.T) {
	for _, rate := range []float64{100, 240, 360, 440} {
		cfg := physical(t, func(e *deploy.Engine) { e.SchedulingPolicy = "priority" })
		cfg.Noise = noisy()
		c := plain(several(8, cfg))
		c.RefreshUs, c.Scheduler = 50_000, PriorityFCFS
		list, err := gateway.ParseScorers("pa:4,qd:3")
		if err != nil {
			t.Fatal(err)
		}
		c.Routing = gateway.Routing{Policy: gateway.Weighted, Scorers: list}
		rollout := &admission.Rollout{ByPriority: true}
		for range 8 {
			rollout.Engines = append(rollout.Engines, estimatorOf(&cfg))
		}
		c.Policy = &admission.Predictive{Estimate: rollout, Floor: &admission.Floor{Share: 0.2, BudgetShare: 0.05}}
		ape, bias, coverage := judged(t, c, mixture(10, 12_000, rate))
		t.Logf("%3.0f/s: median APE %.3f, bias %+.3f, P90 coverage %.3f", rate, ape, bias, coverage)
		if rate < 300 && ape > 0.15 || coverage < 0.87 || coverage > 0.93 {
			t.Errorf("%.0f/s: got median APE %.3f and coverage %.3f, want at most 0.15 and 0.87 to 0.93", rate, ape, coverage)
		}
	}
}

// noisy multiplies step times by 0.9 to 1.15.
func noisy() *sim.Noise {
	q := []sim.Quantile{{Q: 0.05, Ratio: 0.9}, {Q: 0.5, Ratio: 1}, {Q: 0.95, Ratio: 1.15}}
	return &sim.Noise{Decode: q, Prefill: q, Mixed: q}
}

// random is one cluster of many.
func random(t *testing.T, rng *rand.Rand) (*Config, []sim.Request) {
	cfg := physical(t, func(e *deploy.Engine) {
		e.MaxNumSeqs = 2 + rng.Int64N(20)
		e.MaxNumBatchedTokens = 64 + rng.Int64N(1000)
	})
	cfg.KVBlocks = 80 + rng.Int64N(400)
	if rng.IntN(2) == 0 {
		cfg.Noise = noisy()
	}
	cfg.Async = rng.IntN(3) == 0
	n := 1 + rng.IntN(5)
	c := plain(several(n, cfg))
	c.Seed = rng.Int64N(1000)
	c.Routing = gateway.Routing{Policy: []string{gateway.RoundRobin, gateway.LeastLoaded, gateway.Weighted}[rng.IntN(3)], Seed: c.Seed}
	c.Routing.Scorers, _ = gateway.ParseScorers([]string{"pa:3,qd:2,kv:2", "ppc:2,qde:1,kv:1", "lb:1"}[rng.IntN(3)])
	c.Update = []string{OnRoute, OnFirstToken, KVEvents}[rng.IntN(3)]
	c.RefreshUs, c.Aligned, c.ShowStep = []int64{0, 10_000, 50_000}[rng.IntN(3)], rng.IntN(2) == 0, rng.IntN(2) == 0
	c.AdmissionUs, c.RoutingUs, c.EventDelayUs = rng.Int64N(3)*500, rng.Int64N(3)*500, rng.Int64N(30_000)
	c.Scheduler = []string{"", FCFS, PriorityFCFS}[rng.IntN(3)]
	if rng.IntN(3) == 0 {
		c.Retry = Retry{Tries: 2 + rng.IntN(3), BaseUs: 20_000, Factor: 2}
	}
	c.ShadowShare = 0.3
	if rng.IntN(4) == 0 {
		c.AgeWeight = 1e-5
	}
	rollout := &admission.Rollout{ByPriority: c.Scheduler == PriorityFCFS}
	for range n {
		rollout.Engines = append(rollout.Engines, estimatorOf(&cfg))
	}
	c.Policy = []func() admission.Policy{
		func() admission.Policy { return admission.Always{} },
		func() admission.Policy { return &admission.TokenBucket{Capacity: 3000, RefillPerS: 20_000} },
		func() admission.Policy {
			return &admission.SLOGated{Signal: admission.MaxQueueDepth, Thresholds: map[string]float64{"sheddable": 1, "standard": 4}}
		},
		func() admission.Policy { return &admission.GAIELegacy{Queue: 5, KV: 0.8} },
		func() admission.Policy {
			return &admission.Probabilistic{Queue: 5, KV: 0.8, K: 300, Power: 5, Seed: c.Seed}
		},
		func() admission.Policy { return &admission.LatencySLO{Estimate: rollout} },
		func() admission.Policy {
			return &admission.Seed{Variant: "b", Headroom: 1, StepUs: 7000, Beta0: 7000, Beta1: 17, BudgetUs: map[string]float64{"standard": 60_000,
				"sheddable": 30_000}}
		},
		func() admission.Policy {
			return &admission.Predictive{Estimate: rollout, Floor: &admission.Floor{Share: 0.2, BudgetShare: 0.05}, StandardUs: 300_000}
		},
	}[rng.IntN(8)]()
	reqs := mixture(rng.Uint64(), 30+rng.IntN(60), []float64{20, 100, 400}[rng.IntN(3)])
	for i := range reqs {
		reqs[i].SLOTTFTUs, reqs[i].MaxTokens = 20_000+rng.Int64N(200_000), 300
	}
	return c, reqs
}

// seeded gives the same cluster twice: policies keep state.
func seeded(t *testing.T, seed uint64) (*Config, []sim.Request) {
	return random(t, rand.New(rand.NewPCG(seed, 99)))
}

// checkRandom runs one random cluster: everybody is accounted for, the same input
// gives the same records, arrivals do not depend on the policy, and no decision
// changes when lengths that nobody can know by then are others.
func checkRandom(t *testing.T, seed uint64) (rejected, retried, moved int) {
	t.Helper()
	c, reqs := seeded(t, seed)
	res, err := Run(c, reqs)
	if err != nil {
		t.Fatal(err)
	}
	inEngines, tries := 0, 0
	for i := range res.Records {
		r := &res.Records[i]
		tries += r.Tries
		switch {
		case r.Tries < 1 || r.ArrivalUs != reqs[i].ArrivalUs || r.PromptTokens != reqs[i].PromptTokens:
			t.Fatalf("seed %d: request %d: %+v", seed, i, r)
		case r.Admitted() && r.Outcome != sim.OutcomeFinished && r.Outcome != sim.OutcomeRejected:
			t.Fatalf("seed %d: request %d was let in and is %s", seed, i, r.Outcome)
		case r.Admitted():
			inEngines++
		case r.Outcome != sim.OutcomeRejected || r.Reason == "" || c.Retry.Tries > 1 && r.Tries != c.Retry.Tries:
			t.Fatalf("seed %d: request %d was turned away: %+v", seed, i, r)
		default:
			rejected++
		}
	}
	if inEngines+rejected != len(reqs) || tries != len(reqs)+res.Retries {
		t.Fatalf("seed %d: %d let in, %d turned away, %d tries of %d requests, %d retries", seed, inEngines, rejected, tries, len(reqs),
			res.Retries)
	}
	// Decisions up to the cut stand when answers that end after it become longer; so do
	// targets chosen by then.
	cut := res.Records[len(reqs)/2].DecidedUs
	other, again := seeded(t, seed)
	for i := range again {
		if r := &res.Records[i]; !r.FinishedUs.OK || r.FinishedUs.V > cut {
			again[i].OutputTokens += int64(seed%7) * 10
		}
	}
	alt, err := Run(other, again)
	if err != nil {
		t.Fatal(err)
	}
	for i := range res.Records {
		a, b := &res.Records[i], &alt.Records[i]
		if a.DecidedUs <= cut && b.DecidedUs <= cut && (a.Admitted() != b.Admitted() ||
			a.Instance != b.Instance && a.DecidedUs+c.RoutingUs <= cut ||
			a.Decision.Reason != b.Decision.Reason || math.Float64bits(a.Decision.PredictedUs) != math.Float64bits(b.Decision.PredictedUs)) {
			t.Fatalf("seed %d: request %d, decided at %d: got %+v and %+v, lengths unknown by %d differ", seed, i, a.DecidedUs, a.Decision,
				b.Decision, cut)
		}
		if a.FinishedUs != b.FinishedUs {
			moved++
		}
	}
	return rejected, res.Retries, moved
}

func manyRandom(t *testing.T, n int) {
	rejected, retried, moved := 0, 0, 0
	for seed := range uint64(n) {
		a, b, c := checkRandom(t, seed)
		rejected, retried, moved = rejected+a, retried+b, moved+c
	}
	t.Logf("%d clusters: %d requests turned away, %d retries, %d finishes moved by scrambled lengths", n, rejected, retried, moved)
	if rejected == 0 || retried == 0 || moved == 0 {
		t.Error("nothing was tried")
	}
}

func TestRandomClusters(t *testing.T) { manyRandom(t, 150) }

func TestEvalRandomClusters(t *testing.T) {
	if os.Getenv("BLIS_TRAIN_EVAL") == "" {
		t.Skip("skipped: BLIS_TRAIN_EVAL is not set")
	}
	manyRandom(t, 10_000)
}

// A run of 80,000 requests on eight engines at 2,000 a second, 512 of 768 tokens
// shared, step times of the published blackbox.
func BenchmarkCluster(b *testing.B) {
	for _, policy := range []string{"always-admit", "predictive"} {
		b.Run(policy, func(b *testing.B) {
			d := simtest.Llama8B()
			d.Engine.PrefixCaching, d.Engine.MaxNumBatchedTokens, d.Engine.SchedulingPolicy = true, 2048, "priority"
			d.Engine.KVBlocksGPU = trace.Some(int64(132_139))
			step := simtest.Step(6910.42, 17.67, 2.84)
			rng := rand.New(rand.NewPCG(1, 1))
			reqs := make([]sim.Request, 80_000)
			at := 0.0
			for i := range reqs {
				at += rng.ExpFloat64() / 2000 * 1e6
				reqs[i] = sim.Request{ArrivalUs: int64(at), PromptTokens: 512 + 128 + rng.Int64N(256), OutputTokens: 64 + rng.Int64N(128), Group: 1,
					GroupTokens: 512, SLOClass: []string{"critical", "standard", "sheddable"}[rng.IntN(3)], SLOTTFTUs: 300_000}
			}
			b.ReportAllocs()
			for b.Loop() {
				cfg := sim.DefaultConfig(d, step)
				c := plain(several(8, cfg))
				c.RefreshUs, c.Scheduler = 50_000, PriorityFCFS
				c.Routing = gateway.Routing{Policy: gateway.Weighted}
				c.Routing.Scorers, _ = gateway.ParseScorers("pa:4,qd:3")
				if policy == "predictive" {
					rollout := &admission.Rollout{ByPriority: true}
					for range 8 {
						rollout.Engines = append(rollout.Engines, predict.NewWith(step, d))
					}
					c.Policy = &admission.Predictive{Estimate: rollout, Floor: &admission.Floor{Share: 0.2, BudgetShare: 0.05}}
				}
				if _, err := Run(c, reqs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
