package sim

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// Model says how long a step executes.
type Model interface {
	// StepUs is the execution time of a non-empty step in us, before noise and
	// rounding (half up, at least 1 us; what was below is counted as clipped).
	// It must not keep b.
	StepUs(b *Batch) (float64, error)
}

// linear is a Model whose last prediction is the dot product of features and
// coefficients, so that its derivatives are the features.
type linear interface {
	Model
	// Features is the vector behind the last StepUs; valid until the next call.
	Features() []float64
}

// timeline is a Model that also knows when steps started and ended: a
// recorded run, teacher-forced. Zero results mean unknown: the engine then
// goes by StepUs.
type timeline interface {
	Model
	// StartUs is when schedule(step) begins, given that the engine is ready at readyUs.
	StartUs(step, readyUs int64) int64
	// EndUs is when the execution of a step that began at startUs ends; ok is false when unknown.
	EndUs(step, startUs int64) (endUs int64, ok bool)
}

// Delay is time spent outside the engine: overhead before its input queue, or
// egress after the last token. Results below 0 count as 0 and as clipped.
type Delay interface {
	DelayUs(q *Queue) (float64, error)
}

// linearDelay is a Delay whose last result is the dot product of features and
// coefficients.
type linearDelay interface {
	Delay
	// Features is the vector behind the last DelayUs; valid until the next call.
	Features() []float64
}

// Const is the same delay for every request, in us.
type Const float64

// DelayUs returns c.
func (c Const) DelayUs(*Queue) (float64, error) { return float64(c), nil }

// Features is the constant 1: the coefficient is the delay itself.
func (c Const) Features() []float64 { return one }

var one = []float64{1}

// Parts are a step-time model and the delays that belong to it.
type Parts struct {
	Step             Model
	Overhead, Egress Delay
	TokenUs          float64 // on the first token and on every gap, outside the engine
}

// linear3 is the iteration of the three-parameter queueing models: alpha + beta
// * tokens computed + gamma * KV tokens read, the context of every sequence
// including its new tokens.
type linear3 struct {
	AlphaUs, BetaUs, GammaUs float64 // us, us/token, us/token
	x                        [3]float64
}

// NewLinear3 checks the three numbers, in the order of the fields.
func NewLinear3(beta []float64) (*linear3, error) {
	if err := checkThree("linear3", beta); err != nil {
		return nil, err
	}
	return &linear3{AlphaUs: beta[0], BetaUs: beta[1], GammaUs: beta[2]}, nil
}

// StepUs is the dot product.
func (m *linear3) StepUs(b *Batch) (float64, error) {
	m.x = [3]float64{1, float64(b.Tokens()), float64(b.KVRead)}
	return m.AlphaUs + m.BetaUs*m.x[1] + m.GammaUs*m.x[2], nil
}

// Features is the vector of the last StepUs.
func (m *linear3) Features() []float64 { return m.x[:] }

// tables is the step time as the sum of a GPU's measured kernels and the corrections that no table knows. It is linear in the
// corrections. It is not safe for concurrent use; make one per run.
type tables struct {
	price *library.Pricer
	theta [library.NumStep]float64
	x     [library.NumStep]float64
}

// NewTables makes the model of a bound step with corrections.
func NewTables(s *library.Step, theta [library.NumStep]float64) *tables {
	return &tables{price: s.NewPricer(), theta: theta}
}

// StepUs is the predicted cadence of the step.
func (t *tables) StepUs(b *Batch) (float64, error) {
	in := b.Kernels()
	t.price.Features(&in, &t.theta, &t.x)
	sum := 0.0
	for i, x := range t.x {
		sum += t.theta[i] * x
	}
	return sum, nil
}

// Kernels is a step as kernels see it.
func (b *Batch) Kernels() library.Batch {
	out := library.Batch{Tokens: float64(b.Tokens()), Sequences: float64(b.PrefillReqs + b.DecodeReqs), Decodes: float64(b.DecodeReqs),
		DecodeContext: float64(b.DecodeContext - b.DecodeReqs), Prefills: float64(b.PrefillReqs), PrefillTokens: float64(b.PrefillTokens),
		PrefillPairs: float64(b.CausalWork)}
	if b.Among != nil {
		out.Run = b.Among.Padded
		out.All = b.Among.Tokens
		out.Imbalance = b.Among.Imbalance
	}
	return out
}

// Features is the vector of the last StepUs.
func (t *tables) Features() []float64 { return t.x[:] }

// roofline is the analytic model: nothing is fitted. With the features of 1.1, or 1.3, at
// peak rate (s):
//
//	max(linear compute, weights) + max(prefill attention, its KV reads) +
//	max(decode attention, its KV reads) + collectives + 10 us per layer
type roofline struct {
	space *features.Space
	in    features.StepInput
	x     []float64
	f     [7]int
}

// NewRoofline makes the model for a deployment.
func NewRoofline(d *deploy.Deployment) (*roofline, error) {
	v := features.DefaultVersion(d.Plain(false))
	sp, err := features.New(v, d.Plain(features.Layered(v)))
	if err != nil {
		return nil, err
	}
	r := &roofline{space: sp, x: make([]float64, len(sp.BetaFeatures()))}
	names := []string{"prefill_linear_compute", "decode_weight_load", "prefill_attention", "decode_attention", "kv_cache_read",
		"tp_communication", "fixed_step_overhead"}
	for i, name := range names {
		r.f[i] = slices.IndexFunc(sp.BetaFeatures(), func(f features.Feature) bool { return f.Name == name })
	}
	return r, nil
}

// StepUs is the roofline time.
func (r *roofline) StepUs(b *Batch) (float64, error) {
	FillStepInput(r.space.Version(), b, &r.in)
	if _, err := betaOf(r.space, b, &r.in, r.x); err != nil {
		return 0, err
	}
	x := func(i int) float64 { return r.x[r.f[i]] }
	decodeShare := 0.0
	if b.KVRead > 0 {
		decodeShare = min(1, float64(b.DecodeContext)/float64(b.KVRead))
	}
	s := x(0) + x(1) + math.Max(x(2), x(4)*(1-decodeShare)) + math.Max(x(3), x(4)*decodeShare) + x(5) + x(6)
	return s * 1e6, nil
}

// trainedPhysics is the model of today's BLIS: 3 alpha and 7 to 11 beta, the
// step time cut to whole us.
type trainedPhysics struct {
	Alpha []float64
	Beta  []float64
	basis *features.TrainedPhysics
	x     []float64
	terms []float64
}

// NewTrainedPhysics makes the model for a deployment.
func NewTrainedPhysics(alpha, beta []float64, d *deploy.Deployment) (*trainedPhysics, error) {
	if err := features.CheckBetas(beta); err != nil {
		return nil, err
	}
	if err := checkThree("alpha", alpha); err != nil {
		return nil, err
	}
	b, err := features.NewTrainedPhysics(d)
	if err != nil {
		return nil, err
	}
	return &trainedPhysics{Alpha: alpha, Beta: beta, basis: b, x: make([]float64, len(features.TrainedPhysicsBeta())),
		terms: make([]float64, len(beta))}, nil
}

func checkThree(what string, v []float64) error {
	if len(v) != 3 {
		return trace.Errorf(coeff.BadFile, "%s coefficients: got %d values, want 3", what, len(v)).WithHint("see --" + what + "-coeffs")
	}
	for i, us := range v {
		if !(us >= 0) || math.IsInf(us, 0) {
			return trace.Errorf(coeff.BadFile, "%s coefficient %d: got %g us, want finite and >= 0", what, i, us)
		}
	}
	return nil
}

// StepUs is the predicted step time, truncated as BLIS does.
func (m *trainedPhysics) StepUs(b *Batch) (float64, error) {
	s := b.BasisStep()
	return math.Max(1, math.Trunc(m.basis.StepUs(&s, m.Beta, m.x))), nil
}

// Features is the vector of the last StepUs as its betas see it.
func (m *trainedPhysics) Features() []float64 {
	return features.Terms(m.x, m.terms)
}

// Parts are the model and its alphas: a0 before the queue, a1 at completion, a2
// on the first token and every gap, all cut to whole us.
func (m *trainedPhysics) Parts() Parts {
	return Parts{Step: m, Overhead: Const(math.Trunc(m.Alpha[0])), Egress: Const(math.Trunc(m.Alpha[1])), TokenUs: math.Trunc(m.Alpha[2])}
}

// Blackbox is b0 + b1 * prefill tokens + b2 * decode tokens, with a0 + a1*M for a
// prompt of M tokens before the queue and a2 per output token after the engine.
type Blackbox struct {
	Alpha, Beta []float64
	x           [3]float64
}

// NewBlackbox checks three alpha and three beta values.
func NewBlackbox(alpha, beta []float64) (*Blackbox, error) {
	if err := checkThree("alpha", alpha); err != nil {
		return nil, err
	}
	if len(beta) != len(features.BlackboxBeta) {
		return nil, trace.Errorf(coeff.BadFile, "blackbox beta coefficients: got %d values, want %d", len(beta), len(features.BlackboxBeta))
	}
	return &Blackbox{Alpha: alpha, Beta: beta}, nil
}

// StepUs is the dot product.
func (m *Blackbox) StepUs(b *Batch) (float64, error) {
	s := features.Step{PrefillTokens: float64(b.PrefillTokens), DecodeTokens: float64(b.DecodeTokens)}
	features.Blackbox(&s, m.x[:])
	return m.Beta[0]*m.x[0] + m.Beta[1]*m.x[1] + m.Beta[2]*m.x[2], nil
}

// Features is the vector of the last StepUs.
func (m *Blackbox) Features() []float64 { return m.x[:] }

// Parts are the model and its alphas.
func (m *Blackbox) Parts() Parts {
	return Parts{Step: m, Overhead: &perPrompt{us: m.Alpha[0], perTokenUs: m.Alpha[1]}, Egress: Const(0), TokenUs: m.Alpha[2]}
}

// perPrompt is a delay of a0 + a1 * prompt tokens.
type perPrompt struct {
	us, perTokenUs float64
	x              [2]float64
}

// DelayUs is the delay of a prompt.
func (p *perPrompt) DelayUs(q *Queue) (float64, error) {
	p.x = [2]float64{1, float64(q.PromptTokens)}
	return p.us + p.perTokenUs*p.x[1], nil
}

// Features is the vector of the last DelayUs.
func (p *perPrompt) Features() []float64 { return p.x[:] }

// physics is the physics-normalised step-time model, versions 1.0 and 1.1: the
// trainer's features, the artifact's coefficients, coeff's one Predict. It is
// not safe for concurrent use; make one per run.
type physics struct {
	space   *features.Space
	predict *features.Predictor
	in      features.StepInput
	x       []float64
}

// NewPhysics makes the model of a coefficient set for a deployment.
func NewPhysics(set *coeff.Set, d *deploy.Deployment) (*physics, error) {
	plain := d.Plain(features.Layered(set.SpecVersion))
	sp, err := features.New(set.SpecVersion, plain)
	if err != nil {
		return nil, err
	}
	return &physics{space: sp, predict: features.BetaPredictor(features.On(set, plain)), x: make([]float64, len(sp.BetaFeatures()))}, nil
}

// StepUs is the predicted cadence of the step.
func (p *physics) StepUs(b *Batch) (float64, error) {
	FillStepInput(p.space.Version(), b, &p.in)
	hits, err := betaOf(p.space, b, &p.in, p.x)
	if err != nil {
		return 0, err
	}
	return p.predict.Predict(p.x, hits)
}

// betaOf are the step features of a batch, alone or among ranks in lockstep.
func betaOf(sp *features.Space, b *Batch, in *features.StepInput, x []float64) (features.Hits, error) {
	if b.Among != nil {
		return sp.BetaAmong(in, b.Among, x)
	}
	return sp.Beta(in, x)
}

// Features is the vector of the last StepUs.
func (p *physics) Features() []float64 { return p.x }

// Warnings says where predictions left what the training data covered (spec#training-range).
func (p *physics) Warnings() []trace.Finding { return p.predict.Warnings() }

// FillStepInput turns a batch into the features' input (spec#simulator-batches).
func FillStepInput(v features.Version, b *Batch, in *features.StepInput) {
	*in = features.StepInput{
		PrefillTokens: float64(b.PrefillTokens), DecodeTokens: float64(b.DecodeTokens), ScheduledTokens: float64(b.Tokens()),
		NumPrefillReqs: float64(b.PrefillReqs), NumDecodeReqs: float64(b.DecodeReqs), DecodeContextTokens: float64(b.DecodeContext),
		RunningDepth: float64(b.Running), PreemptionEMA: b.PreemptionEMA,
		TransferBlocks: float64(b.StoreBlocks), CPUResidentReadBlocks: float64(b.LoadBlocks),
	}
	if v == features.V10 {
		in.SumPrefillAttnWork = float64(b.PrefillAttnWork)
		in.SumDecodeKVBlocks = float64(b.DecodeBlocks)
		return
	}
	in.NumSampledSeqs = float64(b.PrefillReqs + b.DecodeReqs + b.DraftTokens) // logits of every draft too
	in.PrefillCausalWork = float64(b.CausalWork)
	in.KVReadTokens = float64(b.KVRead)
	in.PrefillContext = float64(b.PrefillContext)
	in.Reached = b.reached
}

// alphaDelay is the overhead or the egress of a coefficient set.
type alphaDelay struct {
	space     *features.Space
	predict   *features.Predictor
	in        features.QueueInput
	x         []float64
	blockSize int64
}

// NewAlphaDelay makes the delay of a target that a replay may add; a target
// that contains a wait is refused (spec#waits-are-no-delays).
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
	return &alphaDelay{space: sp, predict: pr, x: make([]float64, len(sp.AlphaFeatures())), blockSize: d.Engine.BlockSize}, nil
}

// DelayUs is the predicted delay.
func (a *alphaDelay) DelayUs(q *Queue) (float64, error) {
	usage := 0.0
	if q.TotalBlocks > 0 {
		usage = 1 - float64(q.FreeBlocks)/float64(q.TotalBlocks)
	}
	a.in = features.QueueInput{RunningDepth: float64(q.Running), WaitingDepth: float64(q.Waiting), KVUsageRatio: usage,
		PromptTokens: float64(q.PromptTokens), PreemptionEMA: q.PreemptionEMA,
		PrefixHitRatio: min(1, float64(q.CachedBlocks*a.blockSize)/float64(max(1, q.PromptTokens)))}
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

// Features is the vector of the last DelayUs.
func (a *alphaDelay) Features() []float64 { return a.x }

// Warnings says where predictions left what the training data covered.
func (a *alphaDelay) Warnings() []trace.Finding { return a.predict.Warnings() }

// EngineOf is an engine driven by a set: its step time, and its overhead
// and egress where it has them.
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

// delayOf is no delay where the set has no such target.
func delayOf(set *coeff.Set, target string, d *deploy.Deployment) (Delay, error) {
	if set.AlphaModel(target) == nil {
		return Const(0), nil
	}
	return NewAlphaDelay(set, target, d)
}

// drafting adds the drafter's passes to each step's time.
type drafting struct {
	Model
	us float64
}

// WithDrafter is the model with the time that the deployment's drafter adds to a step in
// which somebody's last known token is computed; m itself where it has none on the GPU.
func WithDrafter(m Model, d *deploy.Deployment) Model {
	us, passes := d.DrafterUs()
	if us == 0 {
		return m
	}
	return &drafting{Model: m, us: us * float64(passes)}
}

// StepUs is the step and, behind it, the proposals of the next one.
func (m *drafting) StepUs(b *Batch) (float64, error) {
	us, err := m.Model.StepUs(b)
	if b.DecodeReqs+b.PrefillReqs > 0 {
		us += m.us
	}
	return us, err
}

// Warnings are those of the model.
func (m *drafting) Warnings() []trace.Finding {
	if w, ok := m.Model.(interface{ Warnings() []trace.Finding }); ok {
		return w.Warnings()
	}
	return nil
}

// exchanging adds the exchange of tokens between ranks to each step's time.
type exchanging struct {
	drafting
	d *deploy.Deployment
}

// WithExchange is the model with what the deployment's data-parallel ranks send each other
// in a step, where the model has experts; m itself otherwise.
func WithExchange(m Model, d *deploy.Deployment) Model {
	if d.ExchangeUs(1) == 0 {
		return m
	}
	return &exchanging{drafting{Model: m}, d}
}

// StepUs is the step and the exchange of all ranks' tokens.
func (m *exchanging) StepUs(b *Batch) (float64, error) {
	us, err := m.Model.StepUs(b)
	if b.Among != nil {
		us += m.d.ExchangeUs(b.Among.Tokens)
	}
	return us, err
}

// Recorded is a Timeline from a list of steps: the times of a trace,
// teacher-forced. Step First+i began at Start[i] and its execution ended at
// End[i]; Unknown marks what was not recorded. Steps beyond the list, and
// unknown ends, take FallbackUs.
type Recorded struct {
	First      int64
	Start, End []int64
	FallbackUs float64
}

// Unknown marks a time that was not recorded.
const Unknown = int64(-1)

// StepUs is used where the end is unknown.
func (r *Recorded) StepUs(*Batch) (float64, error) { return max(1, r.FallbackUs), nil }

// StartUs is the recorded start, or readyUs.
func (r *Recorded) StartUs(step, readyUs int64) int64 {
	if i := step - r.First; i >= 0 && i < int64(len(r.Start)) && r.Start[i] != Unknown {
		return r.Start[i]
	}
	return readyUs
}

// EndUs is the recorded end of execution.
func (r *Recorded) EndUs(step, _ int64) (int64, bool) {
	if i := step - r.First; i >= 0 && i < int64(len(r.End)) && r.End[i] != Unknown {
		return r.End[i], true
	}
	return 0, false
}
