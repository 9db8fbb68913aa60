package fit

// This file proposes further experiments: it makes the rows that candidate runs would give and ranks
// them by how much they would shrink the intervals of a fit (D-optimality, ridge.Gram.Propose).

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// maxExperiments bounds the list of experiments.
const maxExperiments = 12

// experiments returns candidate experiments ranked by D-optimality: by how much their rows increase
// the log determinant of the training rows' information matrix. Each names the term whose interval it
// shrinks most; further experiments follow for terms that none of these names.
func experiments(st *StepTime, terms []result.IdentifyTerm) []result.Experiment {
	s := st.Model
	list := candidates(st)
	if len(list) == 0 {
		return []result.Experiment{}
	}
	// Weights are not balanced over regimes and configurations: a balance would differ between the
	// training rows and each candidate, and their sums could not be added.
	grams := make([]*ridge.Gram, len(list))
	for i, c := range list {
		grams[i] = ridge.OfRows(c.data, c.data.Unbalanced(s.Opt), nil, 1)
	}
	ranked := ridge.OfRows(s.Train, s.Train.Unbalanced(s.Opt), nil, st.Options.Workers).Propose(grams)
	named := make([]bool, len(terms)) // terms that an experiment of the answer names
	out := []result.Experiment{}
	add := func(p ridge.Proposal, j int) {
		if len(out) == maxExperiments {
			return
		}
		named[j] = true
		e := result.Experiment{
			Description: list[p.Index].what,
			Term:        terms[j].Name,
			HalfWidth:   terms[j].HalfWidth,
			GainLogDet:  p.LogDet,
		}
		if e.HalfWidth != nil {
			e.After = result.OrNull(*e.HalfWidth * p.Shrink[j])
		}
		out = append(out, e)
	}
	for _, p := range ranked {
		if best := mostShrunk(p.Shrink); best >= 0 && !named[best] {
			add(p, best)
		}
	}
	// Terms that are the best of no experiment get the one that is best for them.
	for j := range terms {
		if !named[j] {
			if p := bestFor(ranked, j); p != nil {
				add(*p, j)
			}
		}
	}
	return out
}

// worthwhile is the largest ratio of a term's standard error after an experiment to that before,
// for the experiment to count.
const worthwhile = 0.9

// mostShrunk returns the position of the term whose standard error falls most, by the ratios
// after/before; -1 if none falls below worthwhile.
func mostShrunk(shrink []float64) int {
	best := -1
	for j, v := range shrink {
		if v < worthwhile && (best < 0 || v < shrink[best]) {
			best = j
		}
	}
	return best
}

// bestFor returns the proposal that shrinks the interval of term j most; nil if none shrinks it enough.
func bestFor(ranked []ridge.Proposal, j int) *ridge.Proposal {
	var best *ridge.Proposal
	for k := range ranked {
		if p := &ranked[k]; p.Shrink[j] < worthwhile && (best == nil || p.Shrink[j] < best.Shrink[j]) {
			best = p
		}
	}
	return best
}

// candidate is an experiment in words, and the rows that it would give.
type candidate struct {
	what string
	data *ridge.Data
}

// candidates returns experiments near the configuration with most training rows: each load on that
// deployment, and one varied load on each deployment that differs from it in one respect.
func candidates(st *StepTime) []candidate {
	s := st.Model
	key := s.Pool.Configs[largestConfig(s)]
	k := slices.IndexFunc(st.Runs, func(p *Run) bool { return p.Config == key })
	base := st.Runs[k].Src.Deployment
	var out []candidate
	add := func(d deploy.Deployment, what string, l load) {
		space, err := features.New(st.Options.Spec, &d)
		if err != nil {
			return // not a deployment this version describes
		}
		var steps []features.StepInput
		for i := range experimentSteps {
			batch := l.batches[i%len(l.batches)]
			steps = append(steps, space.Sum(batch))
			steps[i].RunningDepth = float64(len(batch)) // every running request is in the batch
		}
		if data := rowsOf(s, space, steps); len(data.Y) > 0 {
			out = append(out, candidate{what, data})
		}
	}
	loads := loadsOf(&base)
	for _, l := range loads {
		add(base, l.what+" on "+base.Label(), l)
	}
	for _, v := range variants(base) {
		add(v.dep, "a run on "+v.what+" (batches, contexts and prompts varied)", joinedLoad(loadsOf(&v.dep)))
	}
	return out
}

// Sizes of a synthetic experiment.
const (
	experimentSteps = 400
	shortContext    = 256  // tokens
	fewDecodes      = 8    // requests
	longestContext  = 8192 // tokens; less where the model or the cache ends earlier
)

// load is a list of batches, one for each step. Experiments repeat it up to experimentSteps.
type load struct {
	what    string
	batches [][]trace.Chunk
}

// loadsOf returns four loads within the limits of a deployment: decode batches of growing size,
// decodes at growing context, single prompts of growing length, and such prompts together with
// decodes.
func loadsOf(d *deploy.Deployment) []load {
	e := &d.Engine
	top := min(d.LongestSequence().Or(longestContext), longestContext)
	batches := load{what: fmt.Sprintf("decode batches from 1 to %d at short contexts", e.MaxNumSeqs)}
	contexts := load{what: fmt.Sprintf("decodes at contexts from 64 to %d tokens", top)}
	prompts := load{what: "single prompts of very different length"}
	mixed := load{what: "prompts beside decodes"}
	for n := int64(1); n <= e.MaxNumSeqs; n *= 2 {
		batches.batches = append(batches.batches, decodes(n, shortContext))
	}
	for c := int64(64); c < top; c *= 2 {
		contexts.batches = append(contexts.batches, decodes(min(fewDecodes, e.MaxNumSeqs), c))
	}
	for n := int64(32); n <= e.MaxNumBatchedTokens && n < top; n *= 2 {
		prompts.batches = append(prompts.batches, []trace.Chunk{{Prompt: n, New: n}})
		if beside := min(fewDecodes, e.MaxNumSeqs-1); beside > 0 && n+beside <= e.MaxNumBatchedTokens {
			mixed.batches = append(mixed.batches, append(decodes(beside, shortContext), trace.Chunk{Prompt: n, New: n}))
		}
	}
	return slices.DeleteFunc([]load{batches, contexts, prompts, mixed}, func(l load) bool { return len(l.batches) == 0 })
}

// joinedLoad returns the batches of all loads as one load.
func joinedLoad(loads []load) load {
	var all load
	for _, l := range loads {
		all.batches = append(all.batches, l.batches...)
	}
	return all
}

// decodes returns a batch of n requests with c tokens in the KV cache, each of which decodes one more
// (a chunk is a decode if its prompt is computed).
func decodes(n, c int64) []trace.Chunk {
	out := make([]trace.Chunk, n)
	for i := range out {
		out[i] = trace.Chunk{Computed: c, Prompt: c, New: 1}
	}
	return out
}

// variant is a deployment that differs from the base in one respect.
type variant struct {
	what string
	dep  deploy.Deployment
}

// variants returns deployments that differ from base in tensor parallelism, in the model's size or
// shape, or in the device (H100 and A100, the common ones).
func variants(base deploy.Deployment) []variant {
	var out []variant
	add := func(what string, change func(*deploy.Deployment)) {
		d := base
		change(&d)
		out = append(out, variant{what, d})
	}
	for _, tp := range []int64{base.TP * 2, base.TP / 2} {
		if tp >= 1 && base.Model.NumKVHeads%tp == 0 {
			add(fmt.Sprintf("tensor_parallel_size %d", tp), func(d *deploy.Deployment) { d.TP = tp })
		}
	}
	m := base.Model
	withDevices := func() []variant {
		for _, h := range deploy.Datasheets() {
			if h.Name != base.Hardware.Name && (h.Name == "H100-SXM-80GB" || h.Name == "A100-SXM-80GB") {
				add("another device ("+h.Name+")", func(d *deploy.Deployment) { d.Hardware = h })
			}
		}
		return out
	}
	// A model with unlike layers can only be cut, because each layer has sizes of its own.
	if m.Layered != nil {
		half := *m.Layered
		half.Layers = half.Layers[:max(1, m.NumLayers/2)]
		add(fmt.Sprintf("the model's first %d layers", len(half.Layers)), func(d *deploy.Deployment) { d.Model.Layered = &half })
		return withDevices()
	}
	add(fmt.Sprintf("a model of half the depth (%d layers)", m.NumLayers/2), func(d *deploy.Deployment) {
		d.Model.NumLayers = m.NumLayers / 2
		d.Model.NumMoELayers = m.NumMoELayers / 2
	})
	add(fmt.Sprintf("a model of half the width (hidden size %d)", m.HiddenSize/2), func(d *deploy.Deployment) {
		d.Model.HiddenSize = m.HiddenSize / 2
		d.Model.IntermediateSize = m.IntermediateSize / 2
		d.Model.NumHeads = m.NumHeads / 2
		d.Model.NumKVHeads = max(1, m.NumKVHeads/2)
	})
	if m.NumKVHeads < m.NumHeads {
		add(fmt.Sprintf("a model with as many KV heads as heads (%d)", m.NumHeads),
			func(d *deploy.Deployment) { d.Model.NumKVHeads = m.NumHeads })
	} else {
		add("a model with an eighth of the KV heads", func(d *deploy.Deployment) { d.Model.NumKVHeads = max(1, m.NumHeads/8) })
	}
	if m.NumExperts < 2 {
		add("a mixture-of-experts model (8 experts, 2 of them per token)", func(d *deploy.Deployment) {
			d.Model.NumExperts = 8
			d.Model.TopK = 2
			d.Model.MoEIntermediateSize = m.IntermediateSize
			d.Model.NumMoELayers = m.NumLayers
		})
	}
	return withDevices()
}

// largestConfig returns the label of the configuration with most training rows.
func largestConfig(s *Solved) int32 {
	counts := make([]int, len(s.Pool.Configs))
	for _, c := range s.Train.Config {
		counts[c]++
	}
	return int32(slices.Index(counts, slices.Max(counts)))
}

// rowsOf returns the rows of an experiment's steps, with the times that the fit predicts as
// targets, because weights are relative to them. Steps that the features reject or that exceed the
// bound of one are omitted.
func rowsOf(s *Solved, space *features.Space, steps []features.StepInput) *ridge.Data {
	d := &ridge.Data{P: len(s.Terms)}
	x := make([]float64, d.P)
	for i := range steps {
		if hits, err := space.Beta(&steps[i], x); err != nil || hits != 0 {
			continue
		}
		d.X = append(d.X, x...)
		d.Y = append(d.Y, math.Max(ridge.Dot(x, s.Fit.Beta), 1)) // us; a step takes some time
	}
	// Labels do not matter for unbalanced weights, but every row has one.
	d.Config = make([]int32, len(d.Y))
	d.Regime = make([]int32, len(d.Y))
	return d
}
