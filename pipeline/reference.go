package pipeline

// This file predicts a reference workload with two coefficient files, for diff.

import (
	"fmt"
	"math"
	"math/rand"
	"sort"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Reference is the workload on which diff compares two coefficient files: Poisson arrivals at a share
// of what the engine can serve, prompt and output lengths uniform in 0.5 to 1.5 times their means.
// Both files get the same requests.
type Reference struct {
	Requests       int
	Load           float64 // share of capacity under A, (0, 1)
	Prompt, Output float64 // mean tokens
	Seed           int64
	Done           <-chan struct{} // see sim.Config
}

// DefaultReference returns the reference workload of the command line.
func DefaultReference() Reference {
	return Reference{Requests: 300, Load: 0.5, Prompt: 512, Output: 128, Seed: 1}
}

// Check returns an error for the first figure out of range.
func (r Reference) Check() error {
	switch {
	case r.Requests < 0 || r.Requests > 1e6:
		return option.Misusef("--requests: got %d, want 0 to 1e6", r.Requests)
	case !(r.Load > 0 && r.Load < 1):
		return option.Misusef("--load: got %g, want a share in (0, 1)", r.Load)
	case !(r.Prompt >= 2 && r.Prompt <= 1e6):
		return option.Misusef("--prompt-tokens: got %g, want 2 to 1e6", r.Prompt)
	case !(r.Output >= 2 && r.Output <= 1e6):
		return option.Misusef("--output-tokens: got %g, want 2 to 1e6", r.Output)
	}
	return nil
}

// Predictions returns the latencies of the workload on every configuration of a, simulated once
// with each coefficient set.
func (r Reference) Predictions(a, b *coeff.Set) ([]export.Prediction, error) {
	var out []export.Prediction
	if r.Requests == 0 {
		return out, nil
	}
	for i := range a.Configs {
		d := a.Configs[i].Deployment
		p, err := r.onConfig(&d, a, b)
		if err != nil {
			return nil, fmt.Errorf("reference workload on %s: %w", d.Label(), err)
		}
		out = append(out, p...)
	}
	return out, nil
}

// onConfig returns the predictions of both files for one configuration: the requests are the same,
// at a rate that the engine can serve with the coefficients a.
func (r Reference) onConfig(d *deploy.Deployment, a, b *coeff.Set) ([]export.Prediction, error) {
	fit := r.fitting(d)
	rate, err := fit.rate(d, a)
	if err != nil {
		return nil, err
	}
	reqs := fit.workload(rate)
	figuresA, err := r.replayOf(d, a, reqs)
	if err != nil {
		return nil, err
	}
	figuresB, err := r.replayOf(d, b, reqs)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d requests, %.3g/s, %.0f + %.0f tokens", fit.Requests, rate, fit.Prompt, fit.Output)
	var out []export.Prediction
	for k, m := range figuresA {
		p := export.Prediction{Scope: d.Label(), Workload: name, Metric: m.name, AMs: m.ms, BMs: figuresB[k].ms}
		if m.ms > 0 {
			p.Change = figuresB[k].ms/m.ms - 1
		}
		out = append(out, p)
	}
	return out, nil
}

// fitting returns the workload with mean lengths short enough for the longest request, 1.5 times the
// means, to fit max_model_len, and without chunked prefill its prompt to fit one step.
func (r Reference) fitting(d *deploy.Deployment) Reference {
	longest := float64(d.LongestSequence().Or(math.MaxInt32))
	if !d.Engine.ChunkedPrefill {
		r.Prompt = math.Min(r.Prompt, float64(d.Engine.MaxNumBatchedTokens)/1.5)
	}
	if need := 1.5 * (r.Prompt + r.Output); need > longest {
		r.Prompt = r.Prompt * longest / need
		r.Output = r.Output * longest / need
	}
	r.Prompt = math.Max(2, math.Floor(r.Prompt))
	r.Output = math.Max(2, math.Floor(r.Output))
	return r
}

// rate returns the arrival rate, requests/s: Load times what a full engine serves, which is estimated
// from a batch of decodes at mean context, with the prompt of each request prefilled once.
func (r Reference) rate(d *deploy.Deployment, set *coeff.Set) (float64, error) {
	p, err := NewStepTimes(set, d)
	if err != nil {
		return 0, err
	}
	seats := float64(d.Seats(r.Prompt + r.Output)) // requests that run at once
	context := trace.Int(math.Trunc(r.Prompt + r.Output/2))
	full := make([]trace.Chunk, int(seats))
	for i := range full {
		full[i] = trace.Chunk{Computed: context, Prompt: trace.Int(math.Trunc(r.Prompt)), New: 1}
	}
	stepUs, err := p.StepUs(full)
	if err != nil {
		return 0, err
	}
	prefillUs, err := p.StepUs([]trace.Chunk{{Prompt: trace.Int(math.Trunc(r.Prompt)), New: trace.Int(math.Trunc(r.Prompt))}})
	if err != nil {
		return 0, err
	}
	// A request takes its share of one step per output token, and its prefill.
	perRequestUs := r.Output*stepUs/seats + prefillUs
	return r.Load * 1e6 / perRequestUs, nil
}

// workload returns the requests, which arrive at rate requests/s. The same seed gives the same
// ones.
func (r Reference) workload(rate float64) []sim.Request {
	rng := rand.New(rand.NewSource(r.Seed))
	at := 0.0
	reqs := make([]sim.Request, r.Requests)
	around := func(mean float64) int64 { return max(1, trace.Int(mean*(0.5+float64(rng.Float64())))) }
	for i := range reqs {
		at += rng.ExpFloat64() / rate * 1e6
		reqs[i] = sim.Request{ID: fmt.Sprintf("r%06d", i), ArrivalUs: sim.ToUs(math.Floor(at)), PromptTokens: around(r.Prompt),
			OutputTokens: around(r.Output)}
	}
	return reqs
}

// figure is one summary statistic of a simulated workload.
type figure struct {
	name string
	ms   float64
}

// replayOf runs the requests under a set and returns p50 and p99 of TTFT, ITL
// and E2E in a fixed order.
func (r Reference) replayOf(d *deploy.Deployment, set *coeff.Set, reqs []sim.Request) ([]figure, error) {
	cfg, err := sim.EngineOf(d, set)
	if err != nil {
		return nil, err
	}
	cfg.Done = r.Done
	res, err := sim.Run(cfg, reqs, nil)
	if err != nil {
		return nil, err
	}
	var ttft, itl, e2e []float64
	for i := range res.Requests {
		q := &res.Requests[i]
		if v, ok := q.TTFTUs(); ok {
			ttft = append(ttft, v/1000)
		}
		if v, ok := q.ITLUs(); ok {
			itl = append(itl, v/1000)
		}
		if v, ok := q.E2EUs(); ok {
			e2e = append(e2e, v/1000)
		}
	}
	var out []figure
	for _, m := range []struct {
		name string
		ms   []float64
	}{
		{"ttft", ttft},
		{"itl", itl},
		{"e2e", e2e},
	} {
		if len(m.ms) == 0 {
			return nil, fmt.Errorf("no request of the reference workload finished")
		}
		sort.Float64s(m.ms)
		out = append(out,
			figure{name: m.name + "_p50", ms: stat.NearestRank(m.ms, 0.5)},
			figure{name: m.name + "_p99", ms: stat.NearestRank(m.ms, 0.99)})
	}
	return out, nil
}
