package validate

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/sim"
)

// physics drives the clock with the set's beta.
type physics struct {
	space *features.Space
	beta  *coeff.Predictor
	in    features.StepInput
	x     []float64
}

func newPhysics(set *coeff.Set, dep *deploy.Deployment) (*physics, error) {
	sp, err := features.New(set.SpecVersion, dep)
	if err != nil {
		return nil, err
	}
	return &physics{space: sp, beta: set.BetaPredictor(), x: make([]float64, len(sp.BetaFeatures()))}, nil
}

// StepUs is the predicted execution time of the batch.
func (p *physics) StepUs(b *sim.Batch) (float64, error) {
	p.in = features.StepInput{
		PrefillTokens: float64(b.PrefillTokens), DecodeTokens: float64(b.DecodeTokens), ScheduledTokens: float64(b.Tokens()),
		NumPrefillReqs: float64(b.PrefillReqs), NumDecodeReqs: float64(b.DecodeReqs), NumSampledSeqs: float64(b.PrefillReqs + b.DecodeReqs),
		PrefillCausalWork: float64(b.CausalWork), SumPrefillAttnWork: float64(b.PrefillAttnWork),
		DecodeContextTokens: float64(b.DecodeContext), KVReadTokens: float64(b.KVRead), SumDecodeKVBlocks: float64(b.DecodeBlocks),
		RunningDepth: float64(b.Running), PreemptionEMA: b.PreemptionEMA,
		TransferBlocks: float64(b.StoreBlocks), CPUResidentReadBlocks: float64(b.LoadBlocks),
	}
	hits, err := p.space.Beta(&p.in, p.x)
	if err != nil {
		return 0, err
	}
	return p.beta.Predict(p.x, hits)
}

// alphaDelay adds a replayable alpha.
type alphaDelay struct {
	space *features.Space
	alpha *coeff.Predictor
	dep   *deploy.Deployment
	x     []float64
}

func newDelay(set *coeff.Set, target string, dep *deploy.Deployment) (*alphaDelay, error) {
	sp, err := features.New(set.SpecVersion, dep)
	if err != nil {
		return nil, err
	}
	p, err := set.DelayPredictor(target)
	if err != nil {
		return nil, err
	}
	return &alphaDelay{space: sp, alpha: p, dep: dep, x: make([]float64, len(sp.AlphaFeatures()))}, nil
}

// DelayUs is the predicted delay for the queue the request meets.
func (a *alphaDelay) DelayUs(q *sim.Queue) (float64, error) {
	total := max(1, q.TotalBlocks)
	usage := 1 - float64(q.FreeBlocks)/float64(total)
	hit := min(1, float64(q.CachedBlocks*a.dep.Engine.BlockSize)/float64(max(1, q.PromptTokens)))
	in := features.QueueInput{
		RunningDepth: float64(q.Running), WaitingDepth: float64(q.Waiting), KVUsageRatio: usage,
		PromptTokens: float64(q.PromptTokens), PrefixHitRatio: hit, KVFreeBlocks: float64(q.FreeBlocks),
		PreemptionEMA: q.PreemptionEMA,
	}
	hits, err := a.space.Alpha(&in, a.x)
	if err != nil {
		return 0, err
	}
	return a.alpha.Predict(a.x, hits)
}
