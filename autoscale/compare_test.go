package autoscale

import (
	"context"
	"encoding/json"
	"math"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
)

// grid is what queueing models and simulator are compared on: shapes x laws of the output
// lengths x loads, with the same three numbers and the same draws everywhere.
type grid struct {
	params   params
	server   Limits
	shapes   []shape // means; the laws give the spread
	outputs  []workload.Law
	loads    []float64 // of the corrected model's capacity
	requests int       // per cell; ten times as many above load 0.7, where one burst among 100,000 moves the mean wait by a fifth
}

// exampleGrid is an 8 B model on one H100 as the published sweep has it.
func exampleGrid() grid {
	return grid{
		params: params{AlphaMs: 6.6, BetaMs: 0.02, GammaMs: 5e-5},
		server: Limits{MaxBatch: 64, Queue: 640, MaxBatchedTokens: 2048},
		shapes: []shape{{Prompt: 256, Output: 128}, {Prompt: 1024, Output: 256}, {Prompt: 128, Output: 512},
			{Prompt: 2048, Output: 64}},
		outputs:  []workload.Law{workload.ConstantLaw, workload.ExponentialLaw, workload.LogNormalLaw},
		loads:    []float64{0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95},
		requests: 100_000,
	}
}

// outputCV2 is the spread of the output lengths of each law; log-normal ones have a standard deviation of
// 0.8 of the logarithm, about that of chat recordings.
var outputCV2 = map[workload.Law]float64{workload.ExponentialLaw: 1, workload.LogNormalLaw: math.Expm1(0.8 * 0.8)}

// cell is one load of one shape: the signed relative errors of mean TTFT and ITL by flavour.
type cell struct {
	shape  shape
	law    workload.Law
	load   float64
	errors map[Flavour][2]float64
}

// hit says that a flavour is within 10 % of the simulator's TTFT and 5 % of its ITL.
func (c *cell) hit(f Flavour) bool {
	return math.Abs(c.errors[f][0]) <= 0.10 && math.Abs(c.errors[f][1]) <= 0.05
}

// compare simulates every cell and solves every flavour at the rate and the lengths that
// were really drawn.
func (g *grid) compare(t *testing.T) []cell {
	t.Helper()
	out := make([]cell, len(g.shapes)*len(g.outputs)*len(g.loads))
	err := par.Try(context.Background(), 0, len(out), func(i int) (err error) {
		out[i] = cell{
			shape: g.shapes[i/(len(g.outputs)*len(g.loads))],
			law:   g.outputs[i/len(g.loads)%len(g.outputs)],
			load:  g.loads[i%len(g.loads)],
		}
		return g.solve(&out[i])
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (g *grid) solve(c *cell) error {
	c.shape.OutputCV2 = outputCV2[c.law]
	m, err := newModel(corrected, g.params, c.shape, g.server)
	if err != nil {
		return err
	}
	t := workload.Traffic{
		Shape:     workload.Lengths(c.shape),
		PromptLaw: workload.ConstantLaw,
		OutputLaw: c.law,
		RateRPS:   c.load * m.MaxRateRPS(),
		Requests:  g.requests,
		Seed:      1,
	}
	if c.load > 0.7 {
		t.Requests *= 10
	}
	_, drawn := t.Draw()
	got, err := simulate(g.params, g.server, t, nil)
	if err != nil {
		return err
	}
	physical := Physical{Params: g.params, Prompt: drawn.Prompt, Output: drawn.Output}
	c.errors = map[Flavour][2]float64{}
	for _, f := range flavours {
		m, err := newModel(f, fromVector(physical.vector(f)), drawn, g.server)
		if err != nil {
			return err
		}
		at := m.Solve(t.DrawnRate())
		c.errors[f] = [2]float64{at.TTFTMs/got.TTFTMs - 1, at.ITLMs/got.ITLMs - 1}
	}
	return nil
}

// hits counts the cells up to a load that a flavour hits, and logs the others.
func hits(t *testing.T, cells []cell, f Flavour, upTo float64) (good, all int) {
	t.Helper()
	for i := range cells {
		c := &cells[i]
		if c.load > upTo {
			continue
		}
		all++
		if c.hit(f) {
			good++
		} else {
			t.Logf("%s: %g/%g %s at %g: TTFT %+.1f %% ITL %+.1f %%", f, c.shape.Prompt, c.shape.Output, c.law, c.load, 100*c.errors[f][0],
				100*c.errors[f][1])
		}
	}
	return good, all
}

// TestCorrectedFollowsTheSimulator: at load 0.7 and below nine of ten cells agree, where a prompt of
// 2,048 tokens fills a step of 2,048.
func TestCorrectedFollowsTheSimulator(t *testing.T) { correctedFollowsTheSimulator(t, 2048) }

// TestEvalCorrectedFollowsTheSimulator: the same where it fills a quarter of a step.
func TestEvalCorrectedFollowsTheSimulator(t *testing.T) {
	repo.NeedEval(t)
	correctedFollowsTheSimulator(t, 8192)
}

func correctedFollowsTheSimulator(t *testing.T, budget int) {
	t.Helper()
	g := exampleGrid()
	g.requests = 2500
	g.loads = []float64{0.2, 0.5, 0.7}
	g.server.MaxBatchedTokens = budget
	good, all := hits(t, g.compare(t), corrected, 0.7)
	t.Logf("%d tokens a step: %d of %d cells", budget, good, all)
	if least := 0.9; float64(good) < least*float64(all) {
		t.Errorf("%d tokens a step: %d of %d cells agree, want %.0f %%", budget, good, all, 100*least)
	}
}

// TestEvalQueueModels: the corrected model hits every cell at load 0.7 and below and nine of ten over all
// loads; every flavour of the autoscalers misses most of them.
func TestEvalQueueModels(t *testing.T) {
	repo.NeedEval(t)
	g := exampleGrid()
	cells := g.compare(t)
	for _, f := range flavours {
		low, lows := hits(t, cells, f, 0.7)
		good, all := hits(t, cells, f, 1)
		t.Logf("%-10s hits %d of %d at load 0.7 and below, %d of %d at all loads", f, low, lows, good, all)
		if f == corrected && (low < lows || float64(good) < 0.9*float64(all)) {
			t.Errorf("%s: want %d of %d, and nine of ten of %d", f, lows, lows, all)
		}
		if f != corrected && 2*good > all {
			t.Errorf("%s: got %d of %d, want the corrected model alone to follow the simulator", f, good, all)
		}
	}
}

type goldenFile struct {
	Problem struct {
		N     int     `json:"maxBatchSize"`
		Q     int     `json:"maxQueueSize"`
		In    float64 `json:"avgInputTokens"`
		Out   float64 `json:"avgOutputTokens"`
		Alpha float64 `json:"alpha"`
		Beta  float64 `json:"beta"`
		Gamma float64 `json:"gamma"`
	} `json:"problem"`
	Solve, Target, Optimize goldenSolution
	Primitives              []struct {
		B                  int
		Alpha, Beta, Gamma float64
		In, Out, Nc        float64
		Iter               float64 `json:"iter_time"`
		Prefill            float64 `json:"prefill"`
		ITL                float64 `json:"itl"`
		Tau                float64 `json:"tau"`
	} `json:"primitives"`
}

type goldenSolution struct {
	Flavour    Flavour `json:"flavour"`
	Rate       float64 `json:"rate_rps"`
	TargetTTFT float64 `json:"targetTTFT"`
	TargetITL  float64 `json:"targetITL"`
	Throughput float64 `json:"throughput"`
	RespTime   float64 `json:"avgRespTime"`
	WaitTime   float64 `json:"avgWaitTime"`
	InServ     float64 `json:"avgNumInServ"`
	TTFT       float64 `json:"avgTTFT"`
	ITL        float64 `json:"avgITL"`
	MaxRPS     float64 `json:"maxRPS"`
	RateTTFT   float64 `json:"RPSTargetTTFT"`
	RateITL    float64 `json:"RPSTargetITL"`
}

// The source computes in float32: relative 2e-4, waits (differences of large
// times) absolute 2e-3 ms.
const (
	goldenRel    = 2e-4
	goldenWaitMs = 2e-3
)

// TestGolden: the published vectors of llm-inferno/queue-analysis.
func TestGolden(t *testing.T) {
	data := repo.Read(t, "testdata/golden.json")
	var g goldenFile
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	values, worst := 0, 0.0
	same := func(name string, got, want float64) {
		t.Helper()
		values++
		worst = math.Max(worst, math.Abs(got/want-1))
		if !closeTo(got, want, goldenRel) {
			t.Errorf("%s: got %.8g, want %.8g (%.2g)", name, got, want, got/want-1)
		}
	}
	wait := func(name string, got, want float64) {
		t.Helper()
		values++
		if math.Abs(got-want) > goldenWaitMs {
			t.Errorf("%s: got %.6f ms, want %.6f ms", name, got, want)
		}
	}
	build := func(f Flavour) model {
		m, err := newModel(f, params{
			AlphaMs: g.Problem.Alpha,
			BetaMs:  g.Problem.Beta,
			GammaMs: g.Problem.Gamma,
		},
			shape{Prompt: g.Problem.In, Output: g.Problem.Out}, Limits{MaxBatch: g.Problem.N, Queue: g.Problem.Q})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	check := func(name string, p point, maxRPS float64, w goldenSolution) {
		t.Helper()
		same(name+" throughput", p.ThroughputRPS, w.Throughput)
		same(name+" response", p.WaitMs+p.ServiceMs, w.RespTime)
		same(name+" in service", p.InService, w.InServ)
		same(name+" ttft", p.TTFTMs, w.TTFT)
		same(name+" itl", p.ITLMs, w.ITL)
		same(name+" max rate", maxRPS, w.MaxRPS)
	}

	m := build(g.Solve.Flavour)
	p := m.Solve(g.Solve.Rate)
	check("solve", p, 0.999*m.MaxRateRPS(), g.Solve)
	wait("solve wait", p.WaitMs, g.Solve.WaitTime)
	for name, w := range map[string]goldenSolution{"target": g.Target, "optimize": g.Optimize} {
		m := build(w.Flavour)
		s, err := m.Size(Targets{TTFTMs: w.TargetTTFT, ITLMs: w.TargetITL})
		if err != nil {
			t.Fatal(err)
		}
		check(name, s.At, s.MaxRPS, w)
		if w.RateTTFT > 0 {
			same(name+" rate for ttft", s.TTFTRPS, w.RateTTFT)
			same(name+" rate for itl", s.ITLRPS, w.RateITL)
		}
		at := m.Solve(w.Throughput) // at their rate: their search stops within 1e-6 of the target
		wait(name+" wait", at.WaitMs, w.WaitTime)
	}
	for i := range g.Primitives {
		x := &g.Primitives[i]
		m, err := newModel(inferno3P, params{
			AlphaMs: x.Alpha,
			BetaMs:  x.Beta,
			GammaMs: x.Gamma,
		}, shape{Prompt: x.In, Output: x.Out},
			Limits{MaxBatch: x.B})
		if err != nil {
			t.Fatal(err)
		}
		c, tau := m.chunksAt(float64(x.B)), m.tauMs(x.B)
		same("chunks", c, x.Nc)
		same("iteration", tau/(c+x.Out), x.Iter)
		same("prefill", m.prefillMs(float64(x.B)), x.Prefill)
		same("itl", (tau-m.prefillMs(float64(x.B)))/x.Out, x.ITL)
		same("tau", tau, x.Tau)
	}
	t.Logf("golden: %d values of 3 solutions and %d primitives, largest relative difference %.1e", values, len(g.Primitives), worst)
}

// TestEvalWVASteadyState: with the four parameters that the export writes, the autoscaler's own
// formula gives the simulator's TTFT and ITL of the composed configurations at 20, 50 and 80 % load.
func TestEvalWVASteadyState(t *testing.T) {
	repo.NeedEval(t)
	eo := pipeline.DefaultExtractOptions()
	eo.Out, eo.Batches = t.TempDir(), nil
	ext, err := pipeline.Extract(context.Background(), []string{repo.Shared(t, "data", "composed")}, eo)
	if err != nil {
		t.Fatal(err)
	}
	sources := pipeline.FitSources(eo.Out, ext)
	o := fit.DefaultOptions()
	o.Bootstraps = fit.MinBootstraps
	o.Models = []string{}
	o.AlphaTargets = []string{coeff.Overhead}
	o.Workers = 2
	f, err := fit.Fit(context.Background(), sources, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	set, err := fit.Native(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	at := map[float64][2][]float64{}
	for _, c := range f.Configs {
		step, err := sim.NewPhysics(set, &c.Deployment)
		if err != nil {
			t.Fatal(err)
		}
		s, err := SteadyState(&c.Deployment, step, 1, *c.MeanPromptTokens, *c.MeanOutputTokens)
		if err != nil {
			t.Errorf("%s: %v", c.Label, err)
			continue
		}
		for _, p := range s.Points {
			ttft, itl := *p.TTFTErr, *p.ITLErr
			t.Logf("%-46s load %.2f: TTFT %7.1f ms %+6.1f %%, ITL %6.2f ms %+6.1f %%", c.Label, p.LoadFrac, p.TTFTMs, 100*ttft, p.ITLMs, 100*itl)
			e := at[p.LoadFrac]
			at[p.LoadFrac] = [2][]float64{append(e[0], math.Abs(ttft)), append(e[1], math.Abs(itl))}
		}
	}
	for _, load := range []float64{0.2, 0.5, 0.8} {
		ttft := stat.Median(at[load][0])
		itl := stat.Median(at[load][1])
		t.Logf("load %.1f: median of %d configurations: TTFT %.1f %%, ITL %.1f %%", load, len(at[load][0]), 100*ttft, 100*itl)
		if !(ttft <= 0.15 && itl <= 0.10) {
			t.Errorf("load %.1f: TTFT %.1f %%, ITL %.1f %%, want at most 15 and 10 %%", load, 100*ttft, 100*itl)
		}
	}
}
