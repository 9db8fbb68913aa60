package sim

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/ridge"
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
		seen[i] = Of(&res.Requests[i])
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
	seen, twins := measure(t, reqs), Twins(reqs, 4, 3000, 1)
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
		theta, at, gram = next, objective, equations
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
	if cut := assess(truth, 0, func(c *Config) { c.StopUs = 1 }); math.Abs(cut.Paired-huber(missing)) > 1e-9 || cut.Quantiles < 3 {
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
		a, b := twins[0][i].ArrivalUs-reqs[i].ArrivalUs, twins[1][i].ArrivalUs-reqs[i].ArrivalUs
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
