package sim

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

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
			reqs[i].Group, reqs[i].GroupTokens = 1, min(48, reqs[i].PromptTokens)
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
			c.Noise, c.Drift = &Noise{Decode: q, Prefill: q, Mixed: q}, []DriftPoint{{0, 1.25}}
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
	ts, by, us = make([][3]float64, len(reqs)), make([][3][]float64, len(reqs)), make([][3]float64, len(reqs))
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
	workloads := 200
	if repo.Eval() {
		workloads = 1000
	}
	unchanged, skipped, derivatives, worst := 0, 0, 0, 0.0
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
					got, want := by[i][k][j], (plus[i][k]-minus[i][k])/(2*h)
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
