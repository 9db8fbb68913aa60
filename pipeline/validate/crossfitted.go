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
	c.results = map[string][]*sim.Result{}
	c.findings = slices.Clone(c.findings)
	c.newEngines = nil
	for _, set := range j.cross.sets {
		e := p.engine
		if set.Gamma > 0 {
			e.GammaEMA = set.Gamma
		}
		c.newEngines = append(c.newEngines, j.engineMaker(e, set, dep))
	}
	return &c
}

// runBlocks replays the phase once for every block (the engine of block b has the coefficients that were
// fitted without block b), from the first request of the phase until the last one of the block is done, so that the block's
// requests meet the queue and the cache that the requests before them make. The result has each request from
// the replay of its own block.
func (p *replayedPhase) runBlocks(prepare func(sim.Config) sim.Config) (*sim.Result, error) {
	block := make([]int, len(p.recorded))       // of each request
	remaining := make([]int, len(p.newEngines)) // requests of each block that are not done
	for i := range p.recorded {
		block[i] = p.blocks.Block(p.recorded[i].ArrivalNs)
		remaining[block[i]]++
	}
	out := &sim.Result{Requests: make([]sim.RequestResult, len(p.recorded))}
	for b, newEngine := range p.newEngines {
		if remaining[b] == 0 {
			continue
		}
		e, err := newEngine()
		if err != nil {
			return nil, err
		}
		res, err := sim.Stream(prepare(e.Config), p.requests, nil, func(i int, r *sim.RequestResult) bool {
			if block[i] == b {
				out.Requests[i] = *r
				remaining[b]--
			}
			return remaining[b] > 0
		})
		if err != nil {
			return nil, err
		}
		out.Steps += res.Steps
		out.ClippedSteps += res.ClippedSteps
		out.ClippedDelays += res.ClippedDelays
		for _, f := range res.Findings {
			if !slices.Contains(out.Findings, f) {
				out.Findings = append(out.Findings, f)
			}
		}
	}
	return out, nil
}

// timesOver returns, by metric, the ratio of each request's time in this replay to its time in another replay
// of the phase, both without noise; nil for the same replay. Where one of them has no time, the ratio is 1.
// withNoise multiplies the noisy times of the other replay by it, to get those of this one without more replays.
func (p *replayedPhase) timesOver(other *replayedPhase) map[string][]float64 {
	if p == other {
		return nil
	}
	own := p.sample(result.VariantPlain, p.originNs)
	base := other.sample(result.VariantPlain, p.originNs)
	if own == nil || base == nil {
		return nil
	}
	out := map[string][]float64{}
	for _, metric := range metricNames {
		ratio := slices.Repeat([]float64{1}, len(p.recorded))
		baseMs := make([]float64, len(p.recorded))
		for k, i := range base.request[metric] {
			baseMs[i] = base.sim[metric][k]
		}
		for k, i := range own.request[metric] {
			if baseMs[i] > 0 && own.sim[metric][k] > 0 {
				ratio[i] = own.sim[metric][k] / baseMs[i]
			}
		}
		out[metric] = ratio
	}
	return out
}
