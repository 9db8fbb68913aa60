package main

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/sim"
)

// clocked drives the simulator's clock with a coefficient set.
type clocked struct{ *physics }

// StepUs is the predicted execution time of the batch.
func (c clocked) StepUs(b *sim.Batch) (float64, error) {
	in := features.StepInput{
		PrefillTokens: float64(b.PrefillTokens), DecodeTokens: float64(b.DecodeTokens), ScheduledTokens: float64(b.Tokens()),
		NumPrefillReqs: float64(b.PrefillReqs), NumDecodeReqs: float64(b.DecodeReqs), NumSampledSeqs: float64(b.PrefillReqs + b.DecodeReqs),
		PrefillCausalWork: float64(b.CausalWork), SumPrefillAttnWork: float64(b.PrefillAttnWork),
		DecodeContextTokens: float64(b.DecodeContext), KVReadTokens: float64(b.KVRead), SumDecodeKVBlocks: float64(b.DecodeBlocks),
		RunningDepth: float64(b.Running), PreemptionEMA: b.PreemptionEMA,
		TransferBlocks: float64(b.StoreBlocks), CPUResidentReadBlocks: float64(b.LoadBlocks),
	}
	if _, err := c.space.Beta(&in, c.x); err != nil {
		return 0, err
	}
	return c.set.Predict(c.x), nil
}

// delayed adds a replayable alpha target of the set.
type delayed struct {
	space *features.Space
	alpha *coeff.Predictor
	x     []float64
}

// DelayUs is the delay for the queue the request meets.
func (d delayed) DelayUs(q *sim.Queue) (float64, error) {
	block := d.space.Deployment().Engine.BlockSize
	in := features.QueueInput{
		RunningDepth: float64(q.Running), WaitingDepth: float64(q.Waiting), KVUsageRatio: 1 - float64(q.FreeBlocks)/float64(max(1, q.TotalBlocks)),
		PromptTokens: float64(q.PromptTokens), PrefixHitRatio: min(1, float64(q.CachedBlocks*block)/float64(max(1, q.PromptTokens))),
		KVFreeBlocks: float64(q.FreeBlocks), PreemptionEMA: q.PreemptionEMA,
	}
	hits, err := d.space.Alpha(&in, d.x)
	if err != nil {
		return 0, err
	}
	return d.alpha.Predict(d.x, hits)
}

// simConfig is the simulator driven by a set: its step time, and its overhead
// and egress where it has them.
func simConfig(d *deploy.Deployment, set *coeff.Set) (sim.Config, error) {
	p, err := newPhysics(set, *d)
	if err != nil {
		return sim.Config{}, err
	}
	cfg := sim.DefaultConfig(d, clocked{p})
	cfg.GammaEMA = set.Gamma
	if cfg.Overhead, err = delayOf(set, coeff.Overhead, p.space); err != nil {
		return cfg, err
	}
	cfg.Egress, err = delayOf(set, coeff.Egress, p.space)
	return cfg, err
}

// delayOf is no delay where the set has no such target.
func delayOf(set *coeff.Set, target string, space *features.Space) (sim.Delay, error) {
	if set.AlphaModel(target) == nil {
		return sim.Const(0), nil
	}
	alpha, err := set.DelayPredictor(target)
	if err != nil {
		return nil, err
	}
	return delayed{space: space, alpha: alpha, x: make([]float64, len(space.AlphaFeatures()))}, nil
}
