package validate

// This file predicts each block of a run with coefficients that were fitted without that block
// (spec#cross-fitting), so that training rows are not judged by coefficients that have seen them.

import (
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
)

// crossSets are the coefficients that were each fitted without one block of time (spec#cross-fitting).
type crossSets struct {
	fits *result.CrossFits // of fit.json: which times belong to which block
	sets []*coeff.Set      // by block: fitted without it; nil: there are none
}

// crossSetsOf returns the cross-fitted sets of the fit that made the set. There are none for a set
// of another origin, such as an edited file, and for replays whose step times are not the set's.
func crossSetsOf(set *coeff.Set, fit *result.Fit, o *Options) crossSets {
	isOther := fit == nil || len(changedTerms(set, fit)) > 0
	if isOther || fit.Cross == nil || o.Latency != latencyPhysics {
		return crossSets{}
	}
	c := crossSets{fits: fit.Cross}
	for i := range fit.Cross.Fits {
		c.sets = append(c.sets, crossSetOf(set, &fit.Cross.Fits[i]))
	}
	return c
}

// crossSetOf returns the set with the values that were fitted without one block.
func crossSetOf(set *coeff.Set, f *result.CrossFit) *coeff.Set {
	out := *set
	out.Beta = withValues(set.Beta, f.Beta)
	if f.GammaEMA != nil {
		out.Gamma = *f.GammaEMA
	}
	out.DeploymentFactors = map[string]float64{}
	out.PromptFactors = map[string]float64{}
	for _, d := range f.DeploymentFactors {
		out.DeploymentFactors[d.Name()] = d.Factor
		out.PromptFactors[d.Name()] = d.Prompt
	}
	out.HardwareFactors = map[string]float64{}
	for _, h := range f.HardwareFactors {
		out.HardwareFactors[h.Hardware] = h.Factor
	}
	out.Alpha = slices.Clone(set.Alpha)
	for i := range f.Alpha {
		a := &f.Alpha[i]
		m := out.AlphaModel(a.Target)
		if m == nil {
			continue
		}
		m.Coefficients = withValues(m.Coefficients, a.Values)
		m.Deployments = map[string][]float64{}
		for _, d := range a.Deployments {
			m.Deployments[d.Deployment] = d.Values
		}
	}
	return &out
}

// withValues returns the coefficients with other values.
func withValues(cs []coeff.Coefficient, values []float64) []coeff.Coefficient {
	out := slices.Clone(cs)
	for i, v := range values {
		out[i].Value = v
	}
	return out
}

// crossFitted returns a phase of a training run to be replayed again, as p is, but block by block, each
// with the coefficients that were fitted without it. It returns nil if the fit has no such coefficients
// for the phase.
func (j *job) crossFitted(t *judgedRun, p *replayedPhase, phase *deploy.Phase, dep *deploy.Deployment) *replayedPhase {
	blocks := j.cross.fits.BlocksOf(t.id, phase.Name)
	if !t.training || blocks == nil {
		return nil
	}
	c := *p
	c.blocks = blocks
	c.results = map[string][]*simulatedRun{}
	c.blockOf = make([]int, len(p.recorded))
	for i := range p.recorded {
		c.blockOf[i] = blocks.Block(p.recorded[i].ArrivalNs)
	}
	c.findings = slices.Clone(c.findings)
	c.newEngines = nil
	c.gaps = nil // its steps are those of several replays
	for _, set := range j.cross.sets {
		e := p.engine
		if set.Gamma > 0 {
			e.GammaEMA = set.Gamma
		}
		c.newEngines = append(c.newEngines, j.engineMaker(e, set, dep))
	}
	return &c
}

// blocksWithRequests returns the blocks in which requests arrive, in order.
func (p *replayedPhase) blocksWithRequests() (blocks []int) {
	for b := range p.newEngines {
		if slices.Contains(p.blockOf, b) {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// runBlock replays the phase with the coefficients that were fitted without a block, from the first request of the
// phase until the last one of the block is done, so that the block's requests meet the queue and the cache that the
// requests before them make. It sets what the replay gave of the requests of the block.
func (p *replayedPhase) runBlock(block int, c sim.Config, requests []simulatedRequest) (*sim.Result, error) {
	remaining := 0 // requests of the block that are not done
	for _, b := range p.blockOf {
		if b == block {
			remaining++
		}
	}
	return sim.Stream(c, p.requests, nil, func(i int, r *sim.RequestResult) bool {
		if p.blockOf[i] == block {
			requests[i] = timesOf(r)
			remaining--
		}
		return remaining > 0
	})
}

// timesOver returns the ratio of each request's time in this replay to its time in another replay of the phase, both
// without noise; empty for the same replay. Where one of them has no time, the ratio is 1. withNoise multiplies the
// noisy times of the other replay by it, to get those of this one without more replays.
func (p *replayedPhase) timesOver(other *replayedPhase) (ratios byKind[[]float64]) {
	if p == other {
		return ratios
	}
	own := p.sample(result.VariantPlain, p.originNs)
	base := other.sample(result.VariantPlain, p.originNs)
	if own == nil || base == nil {
		return ratios
	}
	for kind := range numKinds {
		ratio := slices.Repeat([]float64{1}, len(p.recorded))
		baseMs := make([]float64, len(p.recorded))
		for k, i := range base.request[kind] {
			baseMs[i] = base.sim[kind][k]
		}
		for k, i := range own.request[kind] {
			if baseMs[i] > 0 && own.sim[kind][k] > 0 {
				ratio[i] = own.sim[kind][k] / baseMs[i]
			}
		}
		ratios[kind] = ratio
	}
	return ratios
}
