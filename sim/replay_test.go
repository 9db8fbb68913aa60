package sim

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/trace"
)

// truth are the planted coefficients of linear3, the overhead and the time per token.
var truth = []float64{6000, 18, 0.4, 900, 350}

func engine(t *testing.T, theta []float64) Config {
	t.Helper()
	m, err := NewLinear3(theta[:3])
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig(testkit.Llama8B(), nil)
	cfg.Apply(Parts{Step: m, Overhead: Const(theta[3]), TokenUs: theta[4]})
	return cfg
}

func poisson(n int, perSecond float64) []Request {
	rng := rand.New(rand.NewPCG(8, 8))
	reqs := make([]Request, n)
	at := 0.0
	for i := range reqs {
		at += rng.ExpFloat64() / perSecond * 1e6
		reqs[i] = Request{ArrivalUs: int64(at), PromptTokens: 20 + rng.Int64N(1500), OutputTokens: 1 + rng.Int64N(120)}
	}
	return reqs
}

// measure simulates the requests with the planted coefficients.
func measure(t *testing.T, reqs []Request) []Measured {
	t.Helper()
	res, err := Run(engine(t, truth), reqs, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := make([]Measured, len(reqs))
	for i := range seen {
		seen[i] = res.Requests[i].Measured()
	}
	return seen
}

func scaled(theta []float64, by ...float64) []float64 {
	out := append([]float64(nil), theta...)
	for j := range out {
		out[j] *= by[j%len(by)]
	}
	return out
}

// TestGaussNewtonFindsThePlantedCoefficients: from 20 to 30 % off, the normal
// equations of a few replays of four twins lead to within 4 % of the planted cost
// of steps; a step that does not lower the objective is halved. The time per token
// stays planted: it delays a token as the constant of a step does.
func TestGaussNewtonFindsThePlantedCoefficients(t *testing.T) {
	reqs := poisson(600, 6)
	seen := measure(t, reqs)
	twins := Twins(reqs, 4, 3000, 1)
	assess := func(theta []float64) (float64, *ridge.Gram) {
		mean, scores, err := AssessTwins(engine(t, theta), twins, seen, Options{BlockUs: 10_000_000, Theta: theta})
		if err != nil {
			t.Fatal(err)
		}
		sum := ridge.New(len(theta))
		for _, s := range scores {
			for _, b := range s.Blocks {
				if b != nil {
					sum.Add(b)
				}
			}
		}
		return mean, sum
	}
	theta := scaled(truth, 1.3, 0.8, 1.2, 1, 1)
	at, gram := assess(theta)
	first := at
	for step := 1.0; step > 0.1; {
		next := append([]float64(nil), theta...)
		for j, v := range solve(gram, theta, 3) {
			next[j] += step * (v - theta[j])
		}
		objective, equations := assess(next)
		if objective >= at {
			step /= 2
			continue
		}
		theta = next
		at = objective
		gram = equations
		t.Logf("objective %.4f at %.4g", at, theta)
	}
	for _, b := range []Batch{
		{PrefillTokens: 700, KVRead: 700}, {DecodeTokens: 8, KVRead: 8 * 900}, {PrefillTokens: 700, DecodeTokens: 8, KVRead: 700 + 8*900},
	} {
		cost := func(theta []float64) float64 {
			us, err := engine(t, theta).Latency.StepUs(&b)
			if err != nil {
				t.Fatal(err)
			}
			return us
		}
		if got, want := cost(theta), cost(truth); math.Abs(got/want-1) > 0.04 {
			t.Errorf("%d + %d tokens: got %g us, want %g within 4 %%", b.PrefillTokens, b.DecodeTokens, got, want)
		}
	}
	if floor, _ := assess(truth); at > first/10 || at > 3*floor {
		t.Errorf("objective %g, from %g, with %g at the truth", at, first, floor)
	}
}

// solve is the least-squares solution for the first n coefficients, the others
// as they are, with a unit diagonal.
func solve(g *ridge.Gram, theta []float64, n int) []float64 {
	s, _ := g.Scale()
	a, b := make([]float64, n*n), make([]float64, n)
	for j := range n {
		b[j] = (g.B[j] - ridge.Dot(g.G[j*g.P+n:(j+1)*g.P], theta[n:])) / s[j]
		for k := range n {
			a[j*n+k] = g.G[j*g.P+k] / (s[j] * s[k])
		}
	}
	stat.Cholesky(a, n)
	stat.CholeskySolve(a, n, b)
	for j := range b {
		b[j] /= s[j]
	}
	return b
}

// TestLosingCandidatesStopEarly: at its own objective a candidate runs to the
// end and scores the same; below it a bad one stops after a part of the steps;
// what a replay does not finish counts as wrong by a hundred.
func TestLosingCandidatesStopEarly(t *testing.T) {
	reqs := poisson(400, 6)
	seen := measure(t, reqs)
	assess := func(theta []float64, bound float64, mutate func(*Config)) *Score {
		t.Helper()
		cfg := engine(t, theta)
		if mutate != nil {
			mutate(&cfg)
		}
		s, err := assess(cfg, reqs, seen, Options{Bound: bound})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := assess(truth, 0, nil); s.Objective != 0 || s.Pairs < 1100 {
		t.Errorf("at the truth: %+v", s)
	}
	bad := scaled(truth, 1.5)
	full := assess(bad, 0, nil)
	if same := assess(bad, full.Objective, nil); same.Stopped || same.Objective != full.Objective {
		t.Errorf("at its own objective: %+v, want %+v", same, full)
	}
	lost := assess(bad, full.Paired/10, nil)
	if !lost.Stopped || lost.Objective < full.Paired/10 || lost.Steps > full.Steps/4 {
		t.Errorf("stopped %t at objective %g after %d of %d steps, want a stop after a tenth",
			lost.Stopped, lost.Objective, lost.Steps, full.Steps)
	}
	if cut := assess(truth, 0, func(c *Config) { c.StopUs = 1 }); math.Abs(cut.Paired-huber(4.605170185988)) > 1e-9 || cut.Quantiles < 3 {
		t.Errorf("nothing finished: %+v, want every pair wrong by a hundred", cut)
	}
	for blocks := int64(20); blocks < 100; blocks++ { // some prompts do not fit
		if few := assess(truth, 0, func(c *Config) { c.KVBlocks = blocks }); !(few.Objective > 1) || math.IsInf(few.Objective, 0) {
			t.Errorf("%d KV blocks: objective %g, want a number that counts what is rejected", blocks, few.Objective)
		}
	}
}

// TestTwins: the draws of a twin depend on seed, twin and request alone, pairs
// are antithetic, and a candidate that loses on its first twins is not replayed
// on the others.
func TestTwins(t *testing.T) {
	reqs := poisson(200, 6)
	seen := measure(t, reqs)
	twins := Twins(reqs, 4, 1000, 7)
	if !reflect.DeepEqual(twins, Twins(reqs, 4, 1000, 7)) || reflect.DeepEqual(twins, Twins(reqs, 4, 1000, 8)) {
		t.Error("twins of one seed differ, or of two agree")
	}
	if !reflect.DeepEqual(twins[0][:50], Twins(reqs[:50], 1, 1000, 7)[0]) {
		t.Error("a request's jitter depends on the others")
	}
	for i := 1; i < len(reqs); i++ {
		a := twins[0][i].ArrivalUs - reqs[i].ArrivalUs
		b := twins[1][i].ArrivalUs - reqs[i].ArrivalUs
		if a+b != 0 || a > 1000 || a < -1000 {
			t.Errorf("request %d: moved by %d and %d us, want opposite and at most 1000", i, a, b)
		}
	}
	mean, scores, err := AssessTwins(engine(t, scaled(truth, 1.1)), twins, seen, Options{})
	if err != nil || len(scores) != 4 {
		t.Fatal(err, len(scores))
	}
	sum := 0.0
	for _, s := range scores {
		sum += s.Objective / 4
	}
	if math.Abs(mean-sum) > 1e-12 {
		t.Errorf("mean %g, want %g", mean, sum)
	}
	if whole, all, err := AssessTwins(engine(t, scaled(truth, 1.1)), twins, seen, Options{Bound: 1e6}); err != nil || whole != mean || len(all) != 4 {
		t.Errorf("a bound far above: got %g after %d twins, %v, want %g after all", whole, len(all), err, mean)
	}
	bound := mean / 2
	least, few, err := AssessTwins(engine(t, scaled(truth, 1.1)), twins, seen, Options{Bound: bound})
	if err != nil || len(few) > 3 || least <= bound {
		t.Errorf("bound %g: got %g after %d twins, %v, want a stop", bound, least, len(few), err)
	}
}

func TestRoundHalfUp(t *testing.T) {
	for us, want := range map[float64]int64{0.4: 0, 0.5: 1, 1.5: 2, 2.5: 3, 1e9 + 0.49: 1e9} {
		if got := roundUs(us); got != want {
			t.Errorf("roundUs(%g): got %d, want %d", us, got, want)
		}
	}
}

// stepScale is about how long a step lasts in these tests, us: so long that the
// engine's rounding to whole us is nothing beside a small change of a coefficient.
const stepScale = 1e14

// tuned is an engine as a function of its coefficients, in the order of Columns.
type tuned struct {
	name  string
	theta []float64
	size  []float64 // about the feature of each coefficient
	build func(t *testing.T, theta []float64) Config
}

// tunedEngines are the models at random coefficients.
func tunedEngines(t *testing.T, rng *rand.Rand, d *deploy.Deployment) []tuned {
	t.Helper()
	use := func(p Parts, err error) Config {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		cfg := DefaultConfig(d, nil)
		cfg.Apply(p)
		return cfg
	}
	trained := func(betas int) tuned {
		return tuned{name: fmt.Sprintf("trained-physics with %d betas", betas), theta: make([]float64, betas+3),
			build: func(_ *testing.T, x []float64) Config {
				m, err := NewTrainedPhysics(x[betas:], x[:betas], d)
				if err != nil {
					return use(Parts{}, err)
				}
				return use(m.Parts(), nil)
			}}
	}
	all := []tuned{
		{name: "physics", theta: make([]float64, 16+11+11+1), build: func(t *testing.T, x []float64) Config { return physicsOf(t, d, x) }},
		trained(7), trained(9), trained(10), trained(11),
		{name: "blackbox", theta: make([]float64, 3+2+1+1), build: func(_ *testing.T, x []float64) Config {
			m, err := NewBlackbox([]float64{x[3], x[4], x[6]}, x[:3])
			p := m.Parts()
			p.Egress = Const(x[5])
			return use(p, err)
		}},
		{name: "linear3", theta: make([]float64, 3+1), build: func(_ *testing.T, x []float64) Config {
			m, err := NewLinear3(x[:3])
			return use(Parts{Step: m, TokenUs: x[3]}, err)
		}},
	}
	for k := range all {
		all[k].scale(t, rng)
	}
	return all
}

// scale gives every coefficient a value that makes its part of a step about
// stepScale, and remembers how large its feature is.
func (m *tuned) scale(t *testing.T, rng *rand.Rand) {
	t.Helper()
	for j := range m.theta {
		m.theta[j] = 1
	}
	cfg := m.build(t, m.theta)
	step := cfg.Latency.(linear)
	b := Batch{Running: 3}
	b.Add(16, 40, 12, 2, 1)
	b.Add(60, 40, 1, 5, 1)
	if _, err := step.StepUs(&b); err != nil {
		t.Fatal(err)
	}
	x := append([]float64(nil), step.Features()...)
	for _, delay := range []Delay{cfg.Overhead, cfg.Egress} {
		if delay == nil {
			continue
		}
		q := Queue{Running: 2, Waiting: 1, FreeBlocks: 100, TotalBlocks: 200, PromptTokens: 30, OutputTokens: 5}
		if _, err := delay.DelayUs(&q); err != nil {
			t.Fatal(err)
		}
		x = append(x, delay.(linearDelay).Features()...)
	}
	m.size = append(x, 1)
	if len(m.size) != len(m.theta) {
		t.Fatalf("%s: %d features, %d coefficients", m.name, len(m.size), len(m.theta))
	}
	for j := range m.theta {
		if m.size[j] = math.Abs(m.size[j]); m.size[j] == 0 {
			m.size[j] = 1e12 // as good as absent
		}
		m.theta[j] = stepScale * (0.1 + rng.Float64()) / m.size[j]
	}
}

// physicsOf is the physics model with 16 betas, two delays of 11 and a time per token.
func physicsOf(t *testing.T, d *deploy.Deployment, x []float64) Config {
	t.Helper()
	s := testkit.Planted()
	for j := range s.Beta {
		s.Beta[j].Value = x[j]
	}
	for k, target := range []string{coeff.Overhead, coeff.Egress} {
		m := coeff.AlphaModel{Target: target, Replay: true, Coefficients: features.NewCoefficients(features.AlphaFeatures(features.V11))}
		for j := range m.Coefficients {
			m.Coefficients[j].Value = x[16+11*k+j]
		}
		s.Alpha = append(s.Alpha, m)
	}
	p, err := NewPhysics(s, d)
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig(d, p)
	if cfg.Overhead, err = NewAlphaDelay(s, coeff.Overhead, d); err != nil {
		t.Fatal(err)
	}
	if cfg.Egress, err = NewAlphaDelay(s, coeff.Egress, d); err != nil {
		t.Fatal(err)
	}
	cfg.TokenUs = x[38]
	return cfg
}

// gradientCase is a small random engine and workload, closed loops included.
func gradientCase(seed uint64) (*deploy.Deployment, *rand.Rand, []Request, func(*Config)) {
	rng := rand.New(rand.NewPCG(seed, 11))
	d := testkit.Llama8B()
	e := &d.Engine
	e.MaxNumSeqs, e.MaxNumBatchedTokens, e.BlockSize = 1+rng.Int64N(4), 16+rng.Int64N(100), 16
	e.KVBlocksGPU, e.PrefixCaching = trace.Some(10+rng.Int64N(60)), rng.IntN(2) == 0
	e.SchedulingPolicy = []string{"fcfs", "priority"}[rng.IntN(2)]
	e.AsyncScheduling = trace.Some(rng.IntN(2) == 0)
	reqs := make([]Request, 2+rng.IntN(6))
	at := 0.0
	for i := range reqs {
		at += rng.ExpFloat64() * 3 * stepScale
		reqs[i] = Request{
			ID: fmt.Sprint(i), ArrivalUs: int64(at), PromptTokens: 1 + rng.Int64N(90), OutputTokens: 1 + rng.Int64N(8), Priority: rng.Int64N(2),
		}
		if rng.IntN(3) == 0 {
			reqs[i].Group = 1
			reqs[i].GroupTokens = min(48, reqs[i].PromptTokens)
		}
		switch {
		case i > 0 && rng.IntN(4) == 0:
			reqs[i].After, reqs[i].ThinkUs, reqs[i].ArrivalUs = 1+rng.IntN(i), rng.Int64N(stepScale), 0
		case i > 0 && rng.IntN(6) == 0 && reqs[i-1].With == 0:
			reqs[i].With = i
		}
	}
	noise := rng.IntN(4) == 0
	return d, rng, reqs, func(c *Config) {
		c.Gradient = true
		if noise {
			q := []Quantile{{0.1, 0.8}, {0.9, 1.3}}
			c.Noise = &Noise{Decode: q, Prefill: q, Mixed: q}
			c.Drift = []DriftPoint{{0, 1.25}}
		}
	}
}

// order hashes what happened in which order, without the times.
type order struct{ sum uint64 }

func (o *order) note(v ...any) {
	h := fnv.New64a()
	fmt.Fprint(h, o.sum, v)
	o.sum = h.Sum64()
}

func (o *order) Event(e *Event) { o.note(e.Kind, e.Request) }
func (o *order) Step(v *StepView) {
	for _, m := range v.Members {
		o.note(m.Request, m.Computed, m.New)
	}
	o.note(v.StepID)
}

// times are what a request experienced: TTFT, span and E2E, in us.
func times(r *RequestResult) [3]float64 {
	ttft, _ := r.TTFTUs()
	e2e, _ := r.E2EUs()
	return [3]float64{ttft, float64(r.FinishedUs.V-r.FirstTokenUs.V) + float64(r.OutputTokens-1)*r.TokenUs, e2e}
}

// runOrdered runs the workload and returns each request's times and derivatives.
func runOrdered(t *testing.T, cfg Config, reqs []Request, obs Observer) (ts [][3]float64, by [][3][]float64, us [][3]float64) {
	t.Helper()
	ts = make([][3]float64, len(reqs))
	by = make([][3][]float64, len(reqs))
	us = make([][3]float64, len(reqs))
	if _, err := Stream(cfg, reqs, obs, func(i int, r *RequestResult) bool {
		ts[i] = times(r)
		if g := r.Gradient; g != nil {
			for k, d := range []*Derivative{&g.TTFT, &g.Span, &g.E2E} {
				by[i][k], us[i][k] = append([]float64(nil), d.By...), d.Us
			}
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return ts, by, us
}

// TestGradientIsTheCentralDifference: with an unchanged schedule the derivative
// of every request's TTFT, span and E2E by every coefficient is the central
// difference of the simulated times, to 1e-9; and the unrounded times are the
// simulated ones but for the rounding of the steps.
func TestGradientIsTheCentralDifference(t *testing.T) {
	workloads := 60
	if repo.Eval() {
		workloads = 1000
	}
	unchanged := 0
	skipped := 0
	derivatives := 0
	worst := 0.0
	for seed := uint64(0); unchanged < workloads; seed++ {
		d, rng, reqs, tune := gradientCase(seed)
		models := tunedEngines(t, rng, d)
		m := models[seed%uint64(len(models))]
		build := func(theta []float64) Config {
			cfg := m.build(t, theta)
			tune(&cfg)
			return cfg
		}
		var base order
		at, by, us := runOrdered(t, build(m.theta), reqs, &base)
		if _, alone, _ := runOrdered(t, build(m.theta), reqs, nil); !reflect.DeepEqual(by, alone) {
			t.Fatalf("seed %d, %s: the steady path has other derivatives", seed, m.name)
		}
		for i := range reqs {
			for k := range us[i] {
				if by[i][k] != nil && math.Abs(us[i][k]-at[i][k]) > 1e-9*stepScale {
					t.Fatalf("seed %d, %s, request %d: %g us unrounded, %g rounded", seed, m.name, i, us[i][k], at[i][k])
				}
			}
		}
		moved := false
		for j := range m.theta {
			h := 1e-3 * stepScale / m.size[j]
			var up, down order
			theta := append([]float64(nil), m.theta...)
			theta[j] = m.theta[j] + h
			plus, _, _ := runOrdered(t, build(theta), reqs, &up)
			theta[j] = m.theta[j] - h
			minus, _, _ := runOrdered(t, build(theta), reqs, &down)
			if up.sum != base.sum || down.sum != base.sum {
				moved = true
				continue
			}
			for i := range reqs {
				for k := range plus[i] {
					if by[i][k] == nil {
						continue
					}
					got := by[i][k][j]
					want := (plus[i][k] - minus[i][k]) / (2 * h)
					off := math.Abs(got-want) / math.Max(math.Abs(want), m.size[j])
					worst = math.Max(worst, off)
					derivatives++
					if off > 1e-9 {
						t.Fatalf("seed %d, %s, request %d, time %d, coefficient %d: derivative %.15g, central difference %.15g",
							seed, m.name, i, k, j, got, want)
					}
				}
			}
		}
		if moved {
			skipped++
		} else {
			unchanged++
		}
	}
	t.Logf("%d workloads with an unchanged schedule (%d where some coefficient moved it): %d derivatives, worst relative difference %.2g",
		unchanged, skipped, derivatives, worst)
}

// The simulator's sums are those of the feature code on the same chunks,
// for both versions and for the other models' basis.
func TestSumsEqualTheFeatureCode(t *testing.T) {
	forAll(t, func(t *testing.T, seed uint64, cfg Config, reqs []Request) {
		runChecked(t, cfg, reqs, stepFunc(func(v *StepView) {
			var chunks []trace.Chunk
			for _, m := range v.Members {
				chunks = append(chunks, trace.Chunk{Computed: m.Computed, Prompt: m.Prompt, New: m.New})
			}
			for _, version := range features.Versions() {
				want := features.Sum(version, chunks)
				want.RunningDepth = float64(v.Running)
				want.PreemptionEMA = v.PreemptionEMA
				want.TransferBlocks = float64(v.StoreBlocks)
				want.CPUResidentReadBlocks = float64(v.LoadBlocks)
				var got features.StepInput
				FillStepInput(version, &v.Batch, &got)
				got.SumDecodeKVBlocks = 0 // allocated blocks, which chunks do not show
				if got != want {
					t.Errorf("step %d, %s: got %+v, want %+v", v.StepID, version, got, want)
				}
			}
			if got, want := v.BasisStep(), features.BasisSum(chunks); got != want {
				t.Errorf("step %d: basis %+v, want %+v", v.StepID, got, want)
			}
		}), nil)
	})
}

// The preemption average is updated once per step, empty ones included.
func TestPreemptionEMA(t *testing.T) {
	forAll(t, func(t *testing.T, seed uint64, cfg Config, reqs []Request) {
		ema := 0.0
		runChecked(t, cfg, reqs, stepFunc(func(v *StepView) {
			ema = features.EMA(ema, cfg.GammaEMA, float64(v.Preempted), float64(v.Running))
			if math.Abs(ema-v.PreemptionEMA) > 1e-12 {
				t.Errorf("step %d: %g, want %g", v.StepID, v.PreemptionEMA, ema)
			}
		}), nil)
	})
}

// TestNoiseIsWhatWasValidated: the ends of a residual distribution are single
// rows; validation leaves them out, and simulate --noise draws from the same.
func TestNoiseIsWhatWasValidated(t *testing.T) {
	set := &coeff.Set{Residuals: map[string][][2]float64{
		coeff.RegimeDecode: {{0, 0.1}, {0.1, 0.9}, {0.5, 1}, {0.9, 1.1}, {1, 40}},
		coeff.RegimeMixed:  {{0, 0.8}, {1, 1.2}}, // nothing else is known
		"waiting":          {{0.5, 3}},
	}}
	n := NoiseOf(set)
	if len(n.Decode) != 3 || len(n.Mixed) != 2 || n.Prefill != nil {
		t.Fatalf("got %+v", n)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10000 {
		if r := n.draw(rng, coeff.RegimeDecode); r < 0.9 || r > 1.1 {
			t.Fatalf("drew %v, want 0.9 to 1.1", r)
		}
	}
	if NoiseOf(&coeff.Set{}) != nil || NoiseOf(&coeff.Set{Residuals: map[string][][2]float64{"waiting": {{0.5, 3}}}}) != nil {
		t.Error("no residuals of a step's regime: want no noise")
	}
}

// Noise draws follow the quantiles; drift multiplies by simulated time.
func TestNoiseAndDrift(t *testing.T) {
	n := &Noise{Decode: []Quantile{{0.05, 0.8}, {0.5, 1}, {0.95, 1.6}}}
	rng := rand.New(rand.NewPCG(1, 1))
	below := 0
	for range 20000 {
		r := n.draw(rng, coeff.RegimeDecode)
		if r < 0.8 || r > 1.6 {
			t.Fatalf("ratio %g", r)
		}
		if r <= 1 {
			below++
		}
	}
	if share := float64(below) / 20000; math.Abs(share-0.5) > 0.02 {
		t.Errorf("%.3f of the ratios at or below the median", share)
	}
	if n.draw(rng, coeff.RegimePrefill) != 1 {
		t.Error("a regime without quantiles has ratio 1")
	}
	c := newDriftCursor([]DriftPoint{{100, 2}, {200, 0.5}})
	for us, want := range map[int64]float64{0: 1} {
		if got := c.factorAt(us); got != want {
			t.Errorf("at %d: %g, want %g", us, got, want)
		}
	}
	if c.factorAt(150) != 2 || c.factorAt(199) != 2 || c.factorAt(200) != 0.5 {
		t.Error("drift factors")
	}
}

// Clipped predictions are counted and said; NaN is an error.
func TestClippingAndNaN(t *testing.T) {
	cfg := DefaultConfig(testkit.Small(100), &Blackbox{Beta: []float64{-5, 0, 0}})
	cfg.Overhead = Const(-1)
	res, err := Run(cfg, []Request{{PromptTokens: 3, OutputTokens: 2}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.ClippedSteps != 2 || res.ClippedDelays != 1 || len(res.Findings) != 1 || res.Requests[0].FinishedUs.V != 2 {
		t.Errorf("%+v", res)
	}
	cfg.Latency = &Blackbox{Beta: []float64{math.NaN(), 0, 0}}
	if _, err := Run(cfg, []Request{{PromptTokens: 3, OutputTokens: 2}}, nil); err == nil {
		t.Error("NaN was accepted")
	}
	cfg.Latency, cfg.Egress = &Blackbox{Beta: []float64{1, 0, 0}}, Const(math.Inf(1))
	if _, err := Run(cfg, []Request{{PromptTokens: 3, OutputTokens: 2}}, nil); err == nil {
		t.Error("an infinite egress was accepted")
	}
}

func ExampleRun() {
	d := testkit.Llama8B()
	m, err := NewRoofline(d)
	if err != nil {
		panic(err)
	}
	cfg := DefaultConfig(d, m)
	cfg.Overhead = Const(1000)
	cfg.Egress = Const(200)
	res, err := Run(cfg, []Request{{ID: "hello", PromptTokens: 512, OutputTokens: 100}}, nil)
	if err != nil {
		panic(err)
	}
	ttft, _ := res.Requests[0].TTFTUs()
	e2e, _ := res.Requests[0].E2EUs()
	fmt.Printf("%d steps, TTFT %.1f ms, E2E %.0f ms\n", res.Steps, ttft/1e3, e2e/1e3)
	// Output: 101 steps, TTFT 8.6 ms, E2E 486 ms
}

// BenchmarkSimLayers: 100,000 requests on models of unlike layers, in turns with the same requests on a model of equal layers. All steps
// take 10 ms and no cache is full, so that both play the same steps: ratio is the median over pairs of runs of 10,000 requests.
func BenchmarkSimLayers(b *testing.B) {
	reqs := mixed(10_000, 25)
	once := func(spec features.Version, model string) (time.Duration, int64) {
		d := testkit.Llama8B()
		if model != "" {
			of, err := deploy.LoadSettings("model.id="+model, "hardware.name=H100", "tensor_parallel_size=1", "vllm.version=0.15.1",
				"vllm.max_num_seqs=256", "vllm.max_num_batched_tokens=8192")
			if err != nil {
				b.Fatal(err)
			}
			d.Model = of.Model
		}
		d.Engine.KVBlocksGPU, d.Engine.MaxModelLen = trace.Some(int64(200_000)), trace.Some(int64(8192))
		set := &coeff.Set{SpecVersion: spec, Beta: features.NewCoefficients(features.BetaFeatures(spec))}
		for i := range set.Beta {
			if set.Beta[i].Name == "bias" {
				set.Beta[i].Value = 1e4
			}
		}
		m, err := NewPhysics(set, d)
		if err != nil {
			b.Fatal(err)
		}
		at := time.Now()
		res, err := Run(DefaultConfig(d, m), reqs, nil)
		if err != nil {
			b.Fatal(err)
		}
		return time.Since(at), res.Steps
	}
	for _, c := range []struct {
		name, model string
		spec        features.Version
	}{{"equal/1.2", "", features.V12}, {"equal/1.3", "", features.V13}, {"hybrid60", "Qwen/Qwen3.5-397B-A17B", features.V13},
		{"window36", "openai/gpt-oss-120b", features.V13}, {"sparse61", "deepseek-ai/DeepSeek-V3.2", features.V13}} {
		b.Run(c.name, func(b *testing.B) {
			var ratios []float64
			for b.Loop() {
				for range 10 {
					own, steps := once(c.spec, c.model)
					today, same := once(features.V11, "")
					if ratios = append(ratios, own.Seconds()/today.Seconds()); steps != same {
						b.Fatalf("%d steps, want %d", steps, same)
					}
				}
			}
			slices.Sort(ratios)
			b.ReportMetric(stat.Quantile(ratios, 0.5), "ratio")
		})
	}
}

// BenchmarkTables: 100,000 mixed requests with the sums of kernels beside the linear model; bind is what a deployment costs once.
func BenchmarkTables(b *testing.B) {
	d := testkit.Llama8B()
	d.Hardware, _ = deploy.Datasheet("H100")
	b.Run("bind", func(b *testing.B) {
		for b.Loop() {
			if _, err := library.Bound(d, library.Options{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	step, err := library.Bound(d, library.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for _, rate := range []struct {
		name string
		rps  float64
	}{{"low", 5}, {"medium", 25}, {"high", 40}} {
		b.Run("linear/"+rate.name, func(b *testing.B) { benchSteps(b, rate.rps, nil) })
		b.Run("tables/"+rate.name, func(b *testing.B) {
			benchSteps(b, rate.rps, func(c *Config) {
				c.Latency = NewTables(step, library.Learned().On(d.Hardware.Name))
			})
		})
	}
}
