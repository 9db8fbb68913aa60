package sim

// This file makes latency models from a coefficient set: its version's features (package features),
// computed from the simulator's batches and queue states, times its coefficients.

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// physics is the step-time model of a coefficient set: the trainer's features of the set's
// version times its coefficients. It is not safe for concurrent use; make one per run.
type physics struct {
	space   *features.Space     // the features of the deployment
	predict *features.Predictor // the coefficients, with the ranges in which they were trained
	in      features.StepInput  // memory for the input of a step's features
	x       []float64           // features of the last step
}

// NewPhysics returns the step-time model of a coefficient set for a deployment.
func NewPhysics(set *coeff.Set, d *deploy.Deployment) (*physics, error) {
	plain := d.Plain(features.Layered(set.SpecVersion))
	sp, err := features.New(set.SpecVersion, plain)
	if err != nil {
		return nil, err
	}
	return &physics{space: sp, predict: features.BetaPredictor(features.On(set, plain)),
		x: make([]float64, len(sp.BetaFeatures()))}, nil
}

// another returns a model of the same coefficients with memory of its own.
func (p *physics) another() *physics {
	return &physics{space: p.space, predict: p.predict.Copy(), x: make([]float64, len(p.x))}
}

// StepUs returns the predicted time of a step, us: from its schedule() to the next one's, as it was
// measured.
func (p *physics) StepUs(b *Batch) (float64, error) {
	FillStepInput(p.space.Version(), b, &p.in)
	hits, err := betaOf(p.space, b, &p.in, p.x)
	if err != nil {
		return 0, err
	}
	return p.predict.Predict(p.x, hits)
}

// betaOf computes the step features of a batch into x, for an engine alone or for ranks in
// lockstep. The result is the features that left the range in which they are defined.
func betaOf(sp *features.Space, b *Batch, in *features.StepInput, x []float64) (features.Hits, error) {
	if b.Among != nil {
		return sp.BetaAmong(in, b.Among, x)
	}
	return sp.Beta(in, x)
}

// Features returns the features of the last StepUs.
func (p *physics) Features() []float64 { return p.x }

// Warnings returns warnings about predictions outside the range of the training data
// (spec#training-range).
func (p *physics) Warnings() []trace.Finding { return p.predict.Warnings() }

// FillStepInput sets *in to the input of the step features of version v for a batch
// (spec#simulator-batches).
func FillStepInput(v features.Version, b *Batch, in *features.StepInput) {
	*in = features.StepInput{
		PrefillTokens:         float64(b.PrefillTokens),
		DecodeTokens:          float64(b.DecodeTokens),
		ScheduledTokens:       float64(b.Tokens()),
		NumPrefillReqs:        float64(b.PrefillReqs),
		NumDecodeReqs:         float64(b.DecodeReqs),
		DecodeContextTokens:   float64(b.DecodeContext),
		RunningDepth:          float64(b.Running),
		PreemptionEMA:         b.PreemptionEMA,
		TransferBlocks:        float64(b.StoreBlocks),
		CPUResidentReadBlocks: float64(b.LoadBlocks),
	}
	if v == features.V10 { // has its own measures of attention and of KV reads
		in.SumPrefillAttnWork = float64(b.PrefillAttnWork)
		in.SumDecodeKVBlocks = float64(b.DecodeBlocks)
		return
	}
	in.NumSampledSeqs = float64(b.PrefillReqs + b.DecodeReqs + b.DraftTokens) // each draft token needs logits too
	in.PrefillCausalWork = float64(b.CausalWork)
	in.KVReadTokens = float64(b.KVRead)
	in.PrefillContext = float64(b.PrefillContext)
	in.Reached = b.reached
}

// alphaDelay is a delay of requests outside the engine, overhead or egress, by a coefficient set.
type alphaDelay struct {
	space     *features.Space
	predict   *features.Predictor
	in        features.QueueInput // memory for the input of a request's features
	x         []float64           // features of the last request
	blockSize int64               // tokens
}

// NewAlphaDelay returns the delay model of a target, coeff.Overhead or coeff.Egress. A target that
// includes queueing is an error, because the simulator computes queueing itself
// (spec#waits-are-no-delays).
func NewAlphaDelay(set *coeff.Set, target string, d *deploy.Deployment) (*alphaDelay, error) {
	plain := d.Plain(features.Layered(set.SpecVersion))
	sp, err := features.New(set.SpecVersion, plain)
	if err != nil {
		return nil, err
	}
	pr, err := features.DelayPredictor(features.On(set, plain), target)
	if err != nil {
		return nil, err
	}
	return &alphaDelay{space: sp, predict: pr, x: make([]float64, len(sp.AlphaFeatures())),
		blockSize: d.Engine.BlockSize}, nil
}

// another returns a model of the same coefficients with memory of its own.
func (a *alphaDelay) another() *alphaDelay {
	return &alphaDelay{space: a.space, predict: a.predict.Copy(), x: make([]float64, len(a.x)), blockSize: a.blockSize}
}

// WithOwnModels returns a copy of the configuration whose models are those of coefficients, as in c, with memory of their
// own, so that both can run at the same time. ok is false if c has other models.
func (c Config) WithOwnModels() (own Config, ok bool) {
	latency, ok := c.Latency.(*physics)
	if !ok {
		return c, false
	}
	c.Latency = latency.another()
	for _, d := range []*Delay{&c.Overhead, &c.Egress} {
		switch of := (*d).(type) {
		case nil, Const:
		case *alphaDelay:
			*d = of.another()
		default:
			return c, false
		}
	}
	return c, true
}

// DelayUs returns the predicted delay, us.
func (a *alphaDelay) DelayUs(q *Queue) (float64, error) {
	usage := 0.0
	if q.TotalBlocks > 0 {
		usage = 1 - float64(q.FreeBlocks)/float64(q.TotalBlocks)
	}
	a.in = features.QueueInput{
		RunningDepth:   float64(q.Running),
		WaitingDepth:   float64(q.Waiting),
		KVUsageRatio:   usage,
		PromptTokens:   float64(q.PromptTokens),
		PreemptionEMA:  q.PreemptionEMA,
		PrefixHitRatio: min(1, float64(q.CachedBlocks*a.blockSize)/float64(max(1, q.PromptTokens))),
	}
	if a.space.Version() == features.V10 {
		a.in.KVFreeBytes = a.space.KVFreeBytes(float64(q.TotalBlocks), usage)
	} else {
		a.in.KVFreeBlocks = float64(q.FreeBlocks)
	}
	hits, err := a.space.Alpha(&a.in, a.x)
	if err != nil {
		return 0, err
	}
	return a.predict.Predict(a.x, hits)
}

// Features returns the features of the last DelayUs.
func (a *alphaDelay) Features() []float64 { return a.x }

// Warnings returns warnings about predictions outside the range of the training data.
func (a *alphaDelay) Warnings() []trace.Finding { return a.predict.Warnings() }

// EngineOf returns the configuration of an engine whose step time, overhead and egress come from a
// coefficient set.
func EngineOf(d *deploy.Deployment, set *coeff.Set) (Config, error) {
	latency, err := NewPhysics(set, d)
	if err != nil {
		return Config{}, err
	}
	cfg := DefaultConfig(d, latency)
	cfg.GammaEMA = set.Gamma
	if cfg.Overhead, err = delayOf(set, coeff.Overhead, d); err != nil {
		return cfg, err
	}
	cfg.Egress, err = delayOf(set, coeff.Egress, d)
	return cfg, err
}

// delayOf returns the delay model of a target; no delay if the set does not have the target.
func delayOf(set *coeff.Set, target string, d *deploy.Deployment) (Delay, error) {
	if set.AlphaModel(target) == nil {
		return Const(0), nil
	}
	return NewAlphaDelay(set, target, d)
}
