package build

// This file reads recorded runs: step cycles of runs with step traces, and loads of runs with stock
// spans.

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// servedOf returns the load of a recorded run of stock spans (the request spans of unmodified vLLM); nil
// without spans. Spans count cached tokens as prompt and do not identify contents; what all prompts share
// is stated of the run.
func servedOf(name string, run *trace.Run, d *deploy.Deployment) (*load, error) {
	var list []*trace.Request
	for i := range run.Requests {
		r := &run.Requests[i]
		hasTimes := r.StartWallNs.OK && r.StockDecodeUs.OK && r.StockTTFTUs.OK
		if hasTimes && r.PromptTokens.OK && r.OutputTokens.Or(0) > 1 {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	slices.SortFunc(list, func(a, b *trace.Request) int { return cmp.Compare(a.StartWallNs.V, b.StartWallNs.V) })
	shared := d.Client.SharedPrefixTokens.V
	l := &load{
		name:       name,
		group:      name,
		family:     name,
		dep:        d,
		tpotWeight: servedCount,
		ttftWeight: 1,
	}
	n := float64(len(list))
	for _, r := range list {
		l.reqs = append(l.reqs, sim.Request{
			ArrivalUs:    (r.StartWallNs.V - list[0].StartWallNs.V) / 1e3,
			PromptTokens: r.PromptTokens.V,
			OutputTokens: r.OutputTokens.V,
			Group:        1,
			GroupTokens:  min(shared, r.PromptTokens.V),
		})
		l.ttftMs += r.StockTTFTUs.V / 1e3 / n
		l.tpotMs += r.StockDecodeUs.V / float64(r.OutputTokens.V-1) / 1e3 / n
	}
	var err error
	l.step, err = library.Bound(d, library.Options{})
	return l, err
}

// observedOf returns the load of a recorded run whose client had the engine's stamps of each request (llmservingsim);
// nil without such requests. All requests are simulated. Those before the queue grows count: the wait in a growing queue
// multiplies every error of a step. Arrivals and stamps are on two clocks; the shortest time from an arrival to its
// pick-up is taken as 0.
func observedOf(name string, run *trace.Run, d *deploy.Deployment) (*load, error) {
	var list []*trace.ObservedRequest
	offsetNs := int64(math.MinInt64) // of the arrivals' clock, from the engine's
	for i := range run.Observed {
		r := &run.Observed[i]
		hasTimes := r.SendWallNs.OK && r.QueuedNs.OK && r.ScheduledNs.OK && r.EngineFirstNs.OK && r.EngineLastNs.OK
		if hasTimes && r.PromptTokens.OK && r.OutputTokens.Or(0) > 1 {
			list = append(list, r)
			offsetNs = max(offsetNs, r.SendWallNs.V-r.QueuedNs.V)
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	slices.SortFunc(list, func(a, b *trace.ObservedRequest) int { return cmp.Compare(a.SendWallNs.V, b.SendWallNs.V) })
	l := &load{
		name:       name,
		group:      name,
		family:     name,
		dep:        d,
		tpotWeight: servedCount,
		ttftWeight: servedCount, // the engine's own stamps: no load generator is part of them
		inProcess:  true,
	}
	queueGrew := false
	counted := 0
	for _, r := range list {
		queueGrew = queueGrew || r.ScheduledNs.V-r.QueuedNs.V > longWait*(r.EngineFirstNs.V-r.ScheduledNs.V)
		l.reqs = append(l.reqs, sim.Request{
			ArrivalUs:    (r.SendWallNs.V - list[0].SendWallNs.V) / 1e3,
			PromptTokens: r.PromptTokens.V,
			OutputTokens: r.OutputTokens.V,
			Unmeasured:   queueGrew,
		})
		l.ttfts = append(l.ttfts, float64(r.EngineFirstNs.V+offsetNs-r.SendWallNs.V)/1e6)
		l.tpots = append(l.tpots, float64(r.EngineLastNs.V-r.EngineFirstNs.V)/float64(r.OutputTokens.V-1)/1e6)
		if !queueGrew {
			counted++
		}
	}
	l.ttftMs = stat.Mean(l.ttfts[:counted])
	l.tpotMs = stat.Mean(l.tpots[:counted])
	var err error
	if l.kvBlocks, err = d.EstimateKVBlocks(); err != nil {
		return nil, err
	}
	l.step, err = library.Bound(d, library.Options{})
	return l, err
}

// longWait is by how many times its prompt's steps a request waits for a place once the queue has grown.
const longWait = 2

// cycles has the measured step cycles of one real run: their times in us, and the features they are
// linear in.
type cycles struct {
	name, gpu string
	us        []float64
	x         [][library.NumStep]float64 // library.Pricer.Columns of each step
}

// readRuns returns the runs in run folders, which it extracts. Runs with recorded steps become
// cycles, runs of stock spans (those of unmodified vLLM) become loads.
func readRuns(ctx context.Context, dirs []string) (ys []*cycles, ls []*load, inputs []result.Input, err error) {
	if len(dirs) == 0 {
		return nil, nil, nil, nil
	}
	found, err := extract.Discover(dirs)
	if err != nil {
		return nil, nil, nil, err
	}
	tmp, remove, err := files.Temporary("", "blis-train-library-")
	if err != nil {
		return nil, nil, nil, err
	}
	defer remove()
	o := extract.DefaultOptions()
	o.Out = tmp
	doc, err := extract.Run(ctx, found, o)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, r := range doc.Runs {
		run, err := table.Read(table.RunDir(tmp, r.ID))
		if err != nil {
			return nil, nil, nil, err
		}
		l, err := servedOf(r.ID, run, r.Deployment)
		if l == nil && err == nil {
			l, err = observedOf(r.ID, run, r.Deployment)
		}
		if l != nil {
			ls = append(ls, l)
		} else if err == nil {
			var y *cycles
			y, err = cyclesOf(r.ID, run, r.Deployment)
			ys = append(ys, y)
		}
		if err != nil {
			return nil, nil, nil, err
		}
	}
	return ys, ls, doc.Inputs, nil
}

// cyclesOf returns the rows of one run with step traces, cleaned as a fit cleans them, as cycles. Its vectorizer puts
// library's features in the place of a fit's.
func cyclesOf(name string, run *trace.Run, d *deploy.Deployment) (*cycles, error) {
	steps, err := rows.Rebuild(run, d, features.V12)
	if err != nil {
		return nil, err
	}
	space, err := features.New(features.V12, d)
	if err != nil {
		return nil, err
	}
	bound, err := library.Bound(d, library.Options{})
	if err != nil {
		return nil, err
	}
	price := bound.NewPricer()
	vec := rows.Vectorizer{P: library.NumStep, Step: func(in *features.StepInput, _ []trace.Member, x []float64) (features.Hits, error) {
		var to [library.NumStep]float64
		price.Columns(&library.Batch{
			Tokens:        in.ScheduledTokens,
			Sequences:     in.NumSampledSeqs,
			Decodes:       in.NumDecodeReqs,
			DecodeContext: in.DecodeContextTokens - in.NumDecodeReqs, // without the tokens that the step computes
			Prefills:      in.NumPrefillReqs,
			PrefillTokens: in.PrefillTokens,
			PrefillPairs:  in.PrefillCausalWork,
		}, &to)
		copy(x, to[:])
		return 0, nil
	}}
	tab, err := steps.BetaBasis(space, vec, rows.Options{Lag: rows.AssumedLag(steps.Run, d)})
	if err != nil {
		return nil, err
	}
	rows.Clean([]*rows.Table{tab}, rows.Relative)
	y := &cycles{name: name, gpu: d.Hardware.Name}
	for i := range tab.Kept {
		y.us = append(y.us, tab.Y[i])
		y.x = append(y.x, [library.NumStep]float64(tab.Row(i)))
	}
	return y, nil
}
