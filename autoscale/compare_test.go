package autoscale

import (
	"context"
	"math"
	"testing"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
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
	requests int       // per cell
}

// exampleGrid is an 8 B model on one H100 as the published sweep has it.
func exampleGrid() grid {
	return grid{
		params: params{AlphaMs: 6.6, BetaMs: 0.02, GammaMs: 5e-5},
		server: Limits{MaxBatch: 64, Queue: 640, MaxBatchedTokens: 2048},
		shapes: []shape{{Prompt: 256, Output: 128}, {Prompt: 1024, Output: 256}, {Prompt: 128, Output: 512},
			{Prompt: 2048, Output: 64}},
		outputs: []workload.Law{workload.ConstantLaw, workload.ExponentialLaw, workload.LogNormalLaw},
		loads:   []float64{0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95}, requests: 100_000,
	}
}

// outputCV2 is the spread of the output lengths of each law; log-normal ones have a standard deviation of
// 0.8 of the logarithm, about that of chat recordings.
var outputCV2 = map[workload.Law]float64{workload.ExponentialLaw: 1, workload.LogNormalLaw: stat.Expm1(0.8 * 0.8)}

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
		out[i] = cell{shape: g.shapes[i/(len(g.outputs)*len(g.loads))], law: g.outputs[i/len(g.loads)%len(g.outputs)],
			load: g.loads[i%len(g.loads)]}
		return g.solve(&out[i])
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (g *grid) solve(c *cell) error {
	c.shape.OutputCV2 = outputCV2[c.law]
	m, err := New(corrected, g.params, c.shape, g.server)
	if err != nil {
		return err
	}
	t := workload.Traffic{Shape: workload.Lengths(c.shape), Prompts: workload.ConstantLaw, Output: c.law,
		RateRPS: c.load * m.MaxRateRPS(), Requests: g.requests, Seed: 1}
	got, drawn, err := simulate(g.params, g.server, t, nil)
	if err != nil {
		return err
	}
	physical := Physical{Params: g.params, Prompt: drawn.Prompt, Output: drawn.Output}
	c.errors = map[Flavour][2]float64{}
	for _, f := range flavours {
		m, err := New(f, fromVector(physical.vector(f)), drawn, g.server)
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

// TestCorrectedFollowsTheSimulator: at load 0.7 and below nine of ten cells agree, also
// where a prompt of 2,048 tokens fills a step of 2,048.
func TestCorrectedFollowsTheSimulator(t *testing.T) {
	for _, budget := range []int{8192, 2048} {
		g := exampleGrid()
		g.requests, g.loads, g.server.MaxBatchedTokens = 2500, []float64{0.2, 0.5, 0.7}, budget
		good, all := hits(t, g.compare(t), corrected, 0.7)
		t.Logf("%d tokens a step: %d of %d cells", budget, good, all)
		if least := 0.9; float64(good) < least*float64(all) {
			t.Errorf("%d tokens a step: %d of %d cells agree, want %.0f %%", budget, good, all, 100*least)
		}
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
