package queue

import (
	"context"
	"fmt"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/portable"
	"github.com/blis-train/blis-train/queueing"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Grid is what queueing models and simulator are compared on: shapes x laws of the output
// lengths x loads, with the same three numbers and the same draws everywhere.
type Grid struct {
	Params   queueing.Params
	Server   queueing.Server
	Shapes   []queueing.Shape // means; the laws give the spread
	Outputs  []Law
	Loads    []float64 // of the corrected model's capacity
	Requests int       // per cell
	Seed     uint64
	Workers  int
}

// DefaultGrid is the table in docs: an 8 B model on one H100 as the published sweep has it.
func DefaultGrid() Grid {
	return Grid{
		Params: queueing.Params{AlphaMs: 6.6, BetaMs: 0.02, GammaMs: 5e-5},
		Server: queueing.Server{MaxBatch: 64, Queue: 640, MaxBatchedTokens: 2048},
		Shapes: []queueing.Shape{{Prompt: 256, Output: 128}, {Prompt: 1024, Output: 256}, {Prompt: 128, Output: 512},
			{Prompt: 2048, Output: 64}},
		Outputs: laws, Loads: []float64{0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95}, Requests: 100_000, Seed: 1,
	}
}

// logNormalCV2 is the spread of log-normal outputs: a standard deviation of 0.8 of the
// logarithm, about that of chat recordings.
var logNormalCV2 = portable.Expm1(0.8 * 0.8)

// cv2Of is the squared coefficient of variation of a law.
func cv2Of(l Law) float64 {
	switch l {
	case exponentialLaw:
		return 1
	case logNormalLaw:
		return logNormalCV2
	}
	return 0
}

// Command is the command line that gives this grid.
func (g *Grid) Command() string {
	text := fmt.Sprintf("queue compare --max-num-batched-tokens %d --requests %d --seed %d", g.Server.MaxBatchedTokens, g.Requests, g.Seed)
	for _, l := range g.Loads {
		text += fmt.Sprintf(" --load %g", l)
	}
	return text
}

// Check names the first impossible value.
func (g *Grid) Check() error {
	if g.Requests < 100 || len(g.Loads) == 0 {
		return trace.Errorf(badOption, "comparison: got %d requests and %d loads, want >= 100 and >= 1", g.Requests, len(g.Loads))
	}
	for _, l := range g.Loads {
		if !(l > 0 && l < 1) {
			return trace.Errorf(badOption, "load: got %g, want between 0 and 1 of the capacity", l)
		}
	}
	_, err := queueing.New(queueing.Corrected, g.Params, g.Shapes[0], g.Server)
	return err
}

// Compare simulates every cell and solves every flavour at the rate and the lengths that
// were really drawn. Cells come shape by shape, law by law, load by load.
func (g *Grid) Compare(ctx context.Context, progress trace.Progress) ([]result.QueueComparison, error) {
	if err := g.Check(); err != nil {
		return nil, err
	}
	n := len(g.Shapes) * len(g.Outputs) * len(g.Loads)
	out := make([]result.QueueComparison, n)
	err := par.Try(ctx, g.Workers, n, func(i int) (err error) {
		shape := g.Shapes[i/(len(g.Outputs)*len(g.Loads))]
		law := g.Outputs[i/len(g.Loads)%len(g.Outputs)]
		out[i], err = g.cell(ctx, shape, law, g.Loads[i%len(g.Loads)])
		return err
	}, func(done int) { progress.Report("compare", int64(done), int64(n), "cells") })
	return out, err
}

func (g *Grid) cell(ctx context.Context, shape queueing.Shape, law Law, load float64) (result.QueueComparison, error) {
	shape.OutputCV2 = cv2Of(law)
	c := result.QueueComparison{PromptTokens: shape.Prompt, OutputTokens: shape.Output, Outputs: string(law), Load: load}
	m, err := queueing.New(queueing.Corrected, g.Params, shape, g.Server)
	if err != nil {
		return c, err
	}
	t := Traffic{Shape: shape, Prompts: constantLaw, Output: law, RateRPS: load * m.MaxRateRPS(), Requests: g.Requests, Seed: g.Seed}
	got, drawn, err := simulate(g.Params, g.Server, t, ctx.Done())
	if err != nil {
		return c, err
	}
	c.RateRPS, c.TTFTMs, c.ITLMs, c.Simulated = t.drawnRate(), got.TTFTMs, got.ITLMs, got
	c.Errors, err = errorsIn(&c, g.Params, drawn, g.Server)
	return c, err
}

// drawnRate is the rate of the arrivals that were drawn.
func (t *Traffic) drawnRate() float64 {
	reqs, _ := t.requests()
	return float64(len(reqs)) / float64(reqs[len(reqs)-1].ArrivalUs) * 1e6
}

// errorsIn are the signed relative errors of every flavour in a cell.
func errorsIn(c *result.QueueComparison, p queueing.Params, s queueing.Shape, v queueing.Server) ([]result.QueueError, error) {
	var out []result.QueueError
	physical := Physical{Params: p, Prompt: s.Prompt, Output: s.Output}
	noise := [2]float64{2 * c.Simulated.TTFTSeMs / c.TTFTMs, 2 * c.Simulated.ITLSeMs / c.ITLMs}
	for _, f := range queueing.Flavours {
		m, err := queueing.New(f, queueing.FromVector(physical.vector(f)), s, v)
		if err != nil {
			return nil, err
		}
		at := m.Solve(c.RateRPS)
		if !(at.TTFTMs > 0 && at.ITLMs > 0) {
			return nil, trace.Errorf(queueing.BadModel, "%s: no latency at %g requests/s of %g/%g tokens", f, c.RateRPS, s.Prompt, s.Output)
		}
		ttft, itl := at.TTFTMs/c.TTFTMs-1, at.ITLMs/c.ITLMs-1
		e := result.QueueError{Flavour: string(f), TTFT: &ttft, ITL: &itl}
		e.Cause = (&miss{f: f, at: at, s: s, v: v, p: p, ttft: *e.TTFT, itl: *e.ITL, noise: noise}).cause()
		out = append(out, e)
	}
	return out, nil
}

// CompareWindows holds simulator and queueing models, with the physical parameters of a
// recording, against its windows. n requests are simulated for each.
func CompareWindows(ctx context.Context, s *Server, n int, seed uint64) ([]result.QueueComparison, error) {
	if s.Physical == nil || s.Reason != "" {
		return nil, nil
	}
	out := make([]result.QueueComparison, len(s.Windows))
	for i := range s.Windows {
		w := &s.Windows[i]
		t := Traffic{Shape: w.Shape, Prompts: logNormalLaw, Output: logNormalLaw, RateRPS: w.RateRPS, Requests: n, Seed: seed}
		got, _, err := simulate(s.Physical.Params, w.Server, t, ctx.Done())
		if err != nil {
			return nil, err
		}
		c := result.QueueComparison{
			Server: s.ID, PromptTokens: w.Shape.Prompt, OutputTokens: w.Shape.Output, RateRPS: w.RateRPS, TTFTMs: w.TTFTMs, ITLMs: w.ITLMs,
			Simulated: got,
		}
		if m, err := queueing.New(queueing.Corrected, s.Physical.Params, w.Shape, w.Server); err == nil {
			c.Load = w.RateRPS / m.MaxRateRPS()
		}
		if c.Errors, err = errorsIn(&c, s.Physical.Params, w.Shape, w.Server); err != nil {
			return nil, err
		}
		c.Errors = append(c.Errors, result.QueueError{Flavour: simulator, TTFT: result.OrNull(got.TTFTMs/w.TTFTMs - 1),
			ITL: result.OrNull(got.ITLMs/w.ITLMs - 1)})
		out[i] = c
	}
	return out, nil
}

// simulator stands for a flavour in comparisons with real windows.
const simulator = "simulator"
