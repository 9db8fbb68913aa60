package cluster

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/forecast"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// estimatorOf is the rollout with the step times of an engine.
func estimatorOf(cfg *sim.Config) *forecast.Engine {
	e := forecast.NewWith(cfg.Latency, cfg.Deployment)
	e.SetOverhead(cfg.Overhead)
	return e
}

// errorsOf are the median absolute error of estimates, their sum against the observed
// one, and the share of times within a bound.
type errorsOf struct {
	ape, bias, coverage float64
	n                   int
}

// errorsIn compares estimates with times, those of requests that have both.
func errorsIn(res *Result, of func(i int, r *record) (estimate, boundUs float64, tookUs int64, ok bool)) (e errorsOf) {
	var ape []float64
	predicted := 0.0
	took := 0.0
	covered := 0.0
	for i := len(res.Records) / 10; i < len(res.Records); i++ {
		x, bound, us, ok := of(i, &res.Records[i])
		if !ok {
			continue
		}
		ape = append(ape, math.Abs(x/float64(us)-1))
		if predicted, took = predicted+x, took+float64(us); float64(us) <= bound {
			covered++
		}
	}
	if e.n = len(ape); e.n > 0 {
		e.ape = stat.Median(ape)
		e.bias = predicted/took - 1
		e.coverage = covered / float64(e.n)
	}
	return e
}

func admitted(_ int, r *record) (estimate, boundUs float64, tookUs int64, ok bool) {
	tookUs, ok = r.TookUs()
	return r.Decision.PredictedUs, r.Decision.P90Us, tookUs, ok
}

func shadows(_ int, r *record) (estimate, boundUs float64, tookUs int64, ok bool) {
	return r.Decision.PredictedUs, r.Decision.P90Us, r.Shadow.V, r.Shadow.OK
}

func (e errorsOf) String() string {
	return fmt.Sprintf("%d requests: median APE %.3f, bias %+.3f, P90 coverage %.3f", e.n, e.ape, e.bias, e.coverage)
}

func critical(reqs []sim.Request) []sim.Request {
	for i := range reqs {
		reqs[i].SLOClass = "critical"
	}
	return reqs
}

// What a gateway sees is enough to predict: on one engine, first come first served,
// without noise, and with the start of its step exported, at most 5 % median error and
// 3 % bias, up to and beyond capacity (about 58/s).
func TestPredictionOnOneEngine(t *testing.T) {
	for _, rate := range []float64{5, 15, 25, 45, 60} {
		cfg := physical(t)
		c := plain([]sim.Config{cfg})
		c.ExportStep = true
		c.Policy = &predictive{Estimate: &Rollout{Engines: []*forecast.Engine{estimatorOf(&cfg)}}}
		res, err := Run(c, critical(mixture(9, 3000, rate)))
		if err != nil {
			t.Fatal(err)
		}
		e := errorsIn(res, admitted)
		if t.Logf("%2.0f/s: %s", rate, e); e.ape > 0.05 || math.Abs(e.bias) > 0.03 {
			t.Errorf("%.0f/s: got median APE %.3f and bias %+.3f, want at most 0.05 and 0.03", rate, e.ape, e.bias)
		}
	}
}

// Eight engines by priority, scraped every 50 ms, with noise, up to capacity (about
// 460/s) and beyond: at most 15 % median error, and the calibrated 90 % bound holds for
// 87 to 93 % of admitted requests. The published estimate stands beside it, with this
// engine's own prefill times. Shadows are printed: a bound that was learned from admitted
// requests promises nothing about those whose estimates were too long.
func TestPredictionOnEightEngines(t *testing.T) { predictionOnEightEngines(t, 100, 520) }

// TestEvalPredictionOnEightEngines: the same at rates between them too.
func TestEvalPredictionOnEightEngines(t *testing.T) {
	repo.NeedEval(t)
	predictionOnEightEngines(t, 100, 240, 360, 440, 520)
}

func predictionOnEightEngines(t *testing.T, rates ...float64) {
	t.Helper()
	for _, rate := range rates {
		cfg := physical(t, func(e *vllm.Engine) { e.SchedulingPolicy = "priority" })
		cfg.Noise = noisy()
		c := plain(several(8, cfg))
		c.RefreshUs = 50_000
		c.Scheduler = priorityFCFS
		c.ShadowShare = 0.1
		c.Routing.Policy = Weighted
		c.Routing.Scorers = "pa:4,qd:3"
		reqs := mixture(10, 12_000, rate)
		both := &beside{
			Rollout: &Rollout{ByPriority: true},
			seed:    seedOf(t, &cfg),
			us:      make([]float64, len(reqs)),
		}
		for range 8 {
			both.Engines = append(both.Engines, estimatorOf(&cfg))
		}
		c.Policy = &predictive{Estimate: both, Floor: &Floor{Share: 0.2, BudgetShare: 0.05}}
		res, err := Run(c, reqs)
		if err != nil {
			t.Fatal(err)
		}
		e := errorsIn(res, admitted)
		seed := errorsIn(res, func(i int, r *record) (float64, float64, int64, bool) {
			us, ok := r.TookUs()
			return both.us[i], both.us[i], us, ok
		})
		t.Logf("%3.0f/s: %s; predictive-seed median APE %.3f, bias %+.3f; shadow %s", rate, e, seed.ape, seed.bias, errorsIn(res, shadows))
		if e.ape > 0.15 || e.coverage < 0.87 || e.coverage > 0.93 {
			t.Errorf("%.0f/s: got median APE %.3f and coverage %.3f, want at most 0.15 and 0.87 to 0.93", rate, e.ape, e.coverage)
		}
	}
}

// turnsAway admits everybody but one.
type turnsAway struct {
	Always
	request int
}

func (p turnsAway) Decide(r *Request, v *View, target int) (Decision, error) {
	d, err := p.Always.Decide(r, v, target)
	d.Admit = r.Index != p.request
	return d, err
}

// byTurns routes by the number of the request, whatever became of those before.
type byTurns int

func (n byTurns) Route(r *Request, _ *View) int { return r.Index % int(n) }

func (byTurns) Routed(*Request, int) {}

// A shadow has its first token when its request would have had it, had that alone been
// let in: the copy is sent what its engine is sent later.
func TestShadowIsWhatWouldHaveBeen(t *testing.T) {
	cfg := physical(t, func(e *vllm.Engine) { e.SchedulingPolicy = "priority" })
	cfg.Noise = noisy()
	reqs := mixture(21, 400, 150)
	for i := range reqs {
		reqs[i].SLOTTFTUs = 0
	}
	run := func(p Policy) *Result {
		c := plain(several(3, cfg))
		c.RefreshUs = 50_000
		c.Scheduler = priorityFCFS
		c.ShadowShare = 1
		c.Policy = p
		c.Router = byTurns(3)
		res, err := Run(c, reqs)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	all, met := run(Always{}), 0
	for k := 20; k < len(reqs); k += 40 {
		got := run(turnsAway{request: k}).Records[k]
		want := all.Records[k]
		us, ok := want.TookUs()
		if !got.Shadowed || !ok || got.Shadow != trace.Some(us) {
			t.Errorf("request %d: got a shadow of %v us, want %d", k, got.Shadow, us)
		}
		if want.FirstTokenUs.V > all.Records[k+3].ArrivalUs { // somebody came to its engine meanwhile
			met++
		}
	}
	if met == 0 {
		t.Error("nobody came while a shadow waited")
	}
}

// beside notes what predictive-seed says of every request.
type beside struct {
	*Rollout
	seed *Seed
	us   []float64
}

func (b *beside) TTFT(r *Request, v *View, i int) (estimate, error) {
	b.us[r.Index] = b.seed.EstimateUs(r, v)
	return b.Rollout.TTFT(r, v, i)
}

// seedOf is predictive-seed with the prefill times of an engine.
func seedOf(t *testing.T, cfg *sim.Config) *Seed {
	t.Helper()
	e := estimatorOf(cfg)
	one, err := e.StepUs(0, 0, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	many, err := e.StepUs(0, 0, 1, 1001)
	if err != nil {
		t.Fatal(err)
	}
	return &Seed{StepUs: 7000, Beta0: one, Beta1: (many - one) / 1000}
}

// noisy multiplies step times by 0.9 to 1.15.
func noisy() *sim.Noise {
	q := []sim.Quantile{{Q: 0.05, Ratio: 0.9}, {Q: 0.5, Ratio: 1}, {Q: 0.95, Ratio: 1.15}}
	return &sim.Noise{Decode: q, Prefill: q, Mixed: q}
}

// random is one cluster of many.
func random(t *testing.T, rng *rand.Rand) (*Config, []sim.Request) {
	cfg := physical(t, func(e *vllm.Engine) {
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
	if c.Routing.Policy = []string{RoundRobin, LeastLoaded, Weighted}[rng.IntN(3)]; c.Routing.Policy == Weighted {
		c.Routing.Scorers = []string{"pa:3,qd:2,kv:2", "ppc:2,qde:1,kv:1", "lb:1"}[rng.IntN(3)]
	}
	c.Routing.IndexUpdate = []string{OnRoute, onFirstToken, kvEvents}[rng.IntN(3)]
	c.RefreshUs, c.Scrape, c.ExportStep = []int64{0, 10_000, 50_000}[rng.IntN(3)], []string{"aligned", ""}[rng.IntN(2)], rng.IntN(2) == 0
	c.AdmissionUs, c.RoutingUs, c.Routing.EventDelayUs = rng.Int64N(3)*500, rng.Int64N(3)*500, rng.Int64N(30_000)
	c.Scheduler = []string{"", fcfs, priorityFCFS}[rng.IntN(3)]
	if rng.IntN(3) == 0 {
		c.Retry = retrySpec{Kind: "backoff", Tries: 2 + rng.IntN(3), BaseMs: 20, Factor: 2}
	}
	c.ShadowShare = 0.3
	if rng.IntN(4) == 0 {
		c.AgeWeight = 1e-5
	}
	rollout := &Rollout{ByPriority: c.Scheduler == priorityFCFS}
	for range n {
		rollout.Engines = append(rollout.Engines, estimatorOf(&cfg))
	}
	c.Policy = []func() Policy{
		func() Policy { return Always{} },
		func() Policy { return &tokenBucket{Capacity: 3000, RefillPerS: 20_000} },
		func() Policy {
			return &sloGated{Signal: maxQueueDepth, Thresholds: map[string]float64{"sheddable": 1, "standard": 4}}
		},
		func() Policy { return &gaieLegacy{Queue: 5, KV: 0.8} },
		func() Policy {
			return &probabilistic{
				Queue: 5,
				KV:    0.8,
				K:     300,
				Power: 5,
				Seed:  c.Seed,
			}
		},
		func() Policy { return &latencySLO{Estimate: rollout} },
		func() Policy {
			return &Seed{
				Variant:  "b",
				Headroom: 1,
				StepUs:   7000,
				Beta0:    7000,
				Beta1:    17,
				BudgetUs: map[string]float64{"standard": 60_000,
					"sheddable": 30_000},
			}
		},
		func() Policy {
			return &predictive{
				Estimate:   rollout,
				Floor:      &Floor{Share: 0.2, BudgetShare: 0.05},
				StandardUs: 300_000,
			}
		},
	}[rng.IntN(8)]()
	reqs := mixture(rng.Uint64(), 30+rng.IntN(60), []float64{20, 100, 400}[rng.IntN(3)])
	for i := range reqs {
		reqs[i].SLOTTFTUs = 20_000 + rng.Int64N(200_000)
		reqs[i].MaxTokens = 300
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
	rejected := 0
	retried := 0
	moved := 0
	for seed := range uint64(n) {
		a, b, c := checkRandom(t, seed)
		rejected += a
		retried += b
		moved += c
	}
	t.Logf("%d clusters: %d requests turned away, %d retries, %d finishes moved by scrambled lengths", n, rejected, retried, moved)
	if rejected == 0 || retried == 0 || moved == 0 {
		t.Error("nothing was tried")
	}
}

func TestRandomClusters(t *testing.T) { manyRandom(t, 60) }

func TestEvalRandomClusters(t *testing.T) {
	repo.NeedEval(t)
	manyRandom(t, 10_000)
}

// A run of 80,000 requests on eight engines at 2,000 a second, 512 of 768 tokens
// shared, step times of the published blackbox.
func BenchmarkCluster(b *testing.B) {
	for _, policy := range []string{"always-admit", "predictive"} {
		b.Run(policy, func(b *testing.B) {
			d := testkit.Llama8B()
			d.Engine.PrefixCaching = true
			d.Engine.MaxNumBatchedTokens = 2048
			d.Engine.SchedulingPolicy = "priority"
			d.Engine.KVBlocksGPU = trace.Some(int64(132_139))
			step := &sim.Blackbox{Beta: []float64{6910.42, 17.67, 2.84}}
			rng := rand.New(rand.NewPCG(1, 1))
			reqs := make([]sim.Request, 80_000)
			at := 0.0
			for i := range reqs {
				at += rng.ExpFloat64() / 2000 * 1e6
				reqs[i] = sim.Request{
					ArrivalUs:    int64(at),
					PromptTokens: 512 + 128 + rng.Int64N(256),
					OutputTokens: 64 + rng.Int64N(128),
					Group:        1,
					GroupTokens:  512,
					SLOClass:     []string{"critical", "standard", "sheddable"}[rng.IntN(3)],
					SLOTTFTUs:    300_000,
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				cfg := sim.DefaultConfig(d, step)
				c := plain(several(8, cfg))
				c.RefreshUs, c.Scheduler = 50_000, priorityFCFS
				c.Routing.Policy = Weighted
				c.Routing.Scorers = "pa:4,qd:3"
				if policy == "predictive" {
					rollout := &Rollout{ByPriority: true}
					for range 8 {
						rollout.Engines = append(rollout.Engines, forecast.NewWith(step, d))
					}
					c.Policy = &predictive{Estimate: rollout, Floor: &Floor{Share: 0.2, BudgetShare: 0.05}}
				}
				if _, err := Run(c, reqs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// constant is a predictor file whose forest of the given columns answers exp(base) ms
// always.
func constant(columns ...string) string {
	var list []string
	for _, c := range columns {
		list = append(list, `{"name": "`+c+`", "min": 0, "max": 10}`)
	}
	return `{"schema_version": "1", "targets": [{"name": "ttft_ms", "columns": [` + strings.Join(list, ",") +
		`], "trees": {"base": 5, "trees": []}}]}`
}

// A predictor file decides through latency-slo: its forest reads the columns that a
// gateway knows, and counts rows outside what it was trained on.
func TestTreesEstimate(t *testing.T) {
	p, err := forest.Load(strings.NewReader(constant("num_request_waiting", "input_token_length", "prefix_cache_score", "since_step_us")))
	if err != nil {
		t.Fatal(err)
	}
	trees, err := newTrees(p)
	if err != nil {
		t.Fatal(err)
	}
	v, r := eight(3), requestOfClass("sheddable")
	x, err := trees.TTFT(r, v, 0)
	if err != nil || !x.Queued || math.Abs(x.LikelyUs-1000*math.Exp(5)) > 0.01 || x.Us != x.LikelyUs {
		t.Errorf("got %+v, %v, want %g us", x, err, 1000*math.Exp(5))
	}
	for k, want := range []float64{3, 768, 512.0 / 768, math.NaN()} {
		if got := trees.x[k]; got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("column %d: got %g, want %g", k, got, want)
		}
	}
	if trees.Outside != 1 { // 768 tokens, trained up to 10
		t.Errorf("got %d rows outside the training range, want 1", trees.Outside)
	}
	gate := &latencySLO{Estimate: trees}
	for target, want := range map[int64]bool{100_000: false, 200_000: true} {
		r.SLOTTFTUs = target
		if d, err := gate.Decide(r, v, 0); err != nil || d.Admit != want {
			t.Errorf("target %d us: got %+v, %v, want %v", target, d, err, want)
		}
	}
	// Beside columns that llm-d does not have, running is the batch and not what is in flight.
	p, _ = forest.Load(strings.NewReader(constant("num_request_running", "own_uncached_tokens", "decode_batch")))
	if trees, err = newTrees(p); err != nil {
		t.Fatal(err)
	}
	if _, err := trees.TTFT(r, v, 0); err != nil || trees.x[0] != 100 || trees.x[1] != 256 {
		t.Errorf("got %v, %v, want a batch of 100 and 256 tokens", trees.x, err)
	}
	tpot, _ := forest.Load(strings.NewReader(strings.Replace(constant("is_queued"), "ttft_ms", "tpot_ms", 1)))
	if _, err := newTrees(tpot); err == nil {
		t.Error("a file without TTFT was taken")
	}
}

// Every column that a gateway claims to know is one of a router's view.
func TestColumnsAreKnown(t *testing.T) {
	v, r := eight(3), requestOfClass("standard")
	for name, read := range columns {
		if x := read(r, v, 0); math.IsNaN(x) != (name == "mean_output_tokens") { // nobody has finished
			t.Errorf("%s: got %g", name, x)
		}
	}
	v.Ledger.Class("standard", 3)
	v.Ledger.Sent(&Request{Index: 1, PromptTokens: 10}, 0, 1, 0)
	v.Ledger.FirstToken(1, 0, 2)
	v.Ledger.Left(1, 0, 3, 40, true)
	if x := columns["mean_output_tokens"](r, v, 0); x != 40 {
		t.Errorf("mean output: got %g, want 40", x)
	}
}
