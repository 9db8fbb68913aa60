package library

// This file has the time of one batch by a plan.

import (
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Step is the plan of a deployment's step: a GPU's tables bound to the deployment. It is immutable
// and safe to share.
type Step struct {
	GPU       *GPU
	Family    string // what is validated together, see family
	DType     string // of the weights of experts, else of dense layers
	Operators []Operator
	Layers    float64  // half the number of mixers and FFNs
	TP        int64    // tensor-parallel ranks of one engine
	Ranks     int64    // engines in lockstep, over which experts are spread
	Unjudged  []string // why the deployment is not validated, whatever its family
	// Doubt is the largest share of a batch's time that rows took which others contradict, and which were
	// replaced; the stated error grows by it.
	Doubt float64

	graphs        vllm.GraphSizes // tokens of the captured CUDA graphs, ascending; nil: none
	decodesOnly   bool            // steps with prompts run without graphs
	expertLayers  float64         // layers with routed experts
	latentLayers  float64         // layers with multi-head latent attention
	spreadExperts bool            // expert parallelism: each routed expert is whole, on one rank
	chosenFP8     float64         // fp8 products of a step whose kernel FlashInfer chooses at each call
	sync          bool            // the engine schedules synchronously
	small         float64         // kernels of a step without a table
}

// Bound returns the plan of a deployment's step (its operators with their times) from the kernel
// tables of its GPU: those in o.GPU if given, otherwise the embedded ones. Rows that break an
// order of times are replaced (replaceSlower). Codes: no_kernel_tables,
// kernel_rows_missing.
func Bound(d *deploy.Deployment, o Options) (*Step, error) {
	g := o.GPU
	if g == nil {
		var err error
		if g, err = For(&d.Hardware); err != nil {
			return nil, err
		}
	}
	if g.Hardware != d.Hardware.Name {
		return nil, trace.Errorf(NoTables, "--library: got tables of %s, want those of %s", g.Hardware, d.Hardware.Name)
	}
	r := orderedStep{d: d, o: o, plans: new([]rawPlan)}
	s, err := r.bind(g)
	if err != nil {
		return s, err
	}
	if o.GPU != nil {
		s.Unjudged = append(s.Unjudged, "tables of one's own")
	}
	s.Doubt = s.doubt(&d.Engine)
	return s, nil
}

// Batch describes one step as sums over its sequences, in tokens and requests.
type Batch struct {
	Tokens        float64 // scheduled
	Sequences     float64 // that sample
	Decodes       float64
	DecodeContext float64 // sum over decodes of the tokens cached before the step
	LongestDecode float64 // the most tokens that a decode has cached before the step; 0: all alike
	Prefills      float64 // chunks
	PrefillTokens float64
	PrefillPairs  float64 // query-key pairs: sum over chunks of n c + n (n+1)/2, n new tokens behind c cached ones
	// Run is the number of tokens that the rank computes among ranks in lockstep, padding included, All that of all
	// ranks. 0: all ranks compute as many as this one, Tokens padded to a captured size.
	Run, All float64
	// Imbalance is the busiest rank's tokens for its experts over the mean, in addition to the
	// imbalance of the tables' routing; 0: 1.
	Imbalance float64
}

// BatchOf returns the sums over the chunks of a batch.
func BatchOf(chunks []trace.Chunk) (b Batch) {
	for _, c := range chunks {
		n, cached := float64(c.New), float64(c.Computed)
		if n == 0 {
			continue
		}
		b.Tokens += n
		b.Sequences += 1
		if c.IsDecode() {
			b.Decodes += 1
			b.DecodeContext += cached
			b.LongestDecode = max(b.LongestDecode, cached)
			continue
		}
		b.Prefills += 1
		b.PrefillTokens += n
		b.PrefillPairs += n*cached + n*(n+1)/2
	}
	return b
}

// state is the part of a batch that operators' times depend on.
type state struct {
	run       float64 // tokens, padded to the captured size
	all       float64 // tokens of all ranks in lockstep
	routed    float64 // tokens with which the time of experts is looked up: all, more where one rank's experts get more
	captured  bool    // a CUDA graph runs the step
	sequences float64
	decodes   float64
	context   float64 // cached tokens of the mean decode
	longest   float64 // cached tokens of the longest decode
	prefills  float64
	chunk     float64 // tokens of the mean prefill chunk
	cached    float64 // cached tokens before it
}

// stateOf returns the state of a batch.
func (s *Step) stateOf(b *Batch) state {
	in := state{sequences: b.Sequences, decodes: b.Decodes, prefills: b.Prefills}
	in.run = max(b.Tokens, b.Run)
	if b.Prefills == 0 || !s.decodesOnly {
		in.run, in.captured = s.graphs.Tokens(in.run)
	}
	in.all = in.run * float64(s.Ranks)
	if b.Run > 0 {
		// Ranks in lockstep run a graph together, all padded alike, or none does.
		in.captured = in.captured && b.All == in.all
		in.run = b.Run
		in.all = b.All
	}
	in.routed = in.all * max(1, b.Imbalance)
	if b.Decodes > 0 {
		in.context = b.DecodeContext / b.Decodes
		in.longest = max(in.context, b.LongestDecode)
	}
	// The mean chunk: the pairs of a chunk of n tokens are n*cached + n(n+1)/2, which gives the cached
	// tokens.
	if b.Prefills > 0 {
		in.chunk = b.PrefillTokens / b.Prefills
		in.cached = math.Max(0, (b.PrefillPairs/b.Prefills-in.chunk*(in.chunk+1)/2)/in.chunk)
	}
	return in
}

// runs reports whether an operator runs in a batch at all.
func (op *Operator) runs(in *state) bool {
	switch op.depends {
	case onDecodes:
		return in.decodes > 0
	case onPrefills:
		return in.prefills > 0
	}
	return true
}

// Us returns the times in us of all operators in a batch, in the plan's order; 0 for operators that
// do not run.
func (s *Step) Us(b *Batch) []float64 {
	in := s.stateOf(b)
	out := make([]float64, len(s.Operators))
	for i := range s.Operators {
		if op := &s.Operators[i]; op.runs(&in) {
			out[i] = op.Count * op.us(&in)
		}
	}
	return out
}

// StepTime is the predicted time of one batch, ms.
type StepTime struct {
	OperatorsMs []float64 // of each operator, in the plan's order; 0 for those that the batch does not run
	KernelsMs   float64   // their sum
	StepMs      float64   // the whole step, with the corrections learned from servers
}

// Time returns the predicted time of a batch, ms: of each operator from the kernel tables, and of
// the step with the corrections of its GPU and of the host's work.
func (s *Step) Time(b *Batch) StepTime {
	t := StepTime{OperatorsMs: s.Us(b)}
	for i, us := range t.OperatorsMs {
		t.OperatorsMs[i] = us / 1e3
		t.KernelsMs += us / 1e3
	}
	var x [NumStep]float64
	theta := Learned().On(s.GPU.Hardware)
	s.NewPricer().Features(b, &theta, &x)
	for k, v := range theta {
		t.StepMs += v * x[k] / 1e3
	}
	return t
}

// Captured reports whether a CUDA graph runs the step.
func (s *Step) Captured(b *Batch) bool { return s.stateOf(b).captured }

// Versions returns the releases of vLLM whose measured kernels the plan uses, sorted.
func (s *Step) Versions() []string {
	var versions []string
	for i := range s.Operators {
		op := &s.Operators[i]
		if op.Version != "" && !strings.HasPrefix(op.Table, "nccl") {
			versions = append(versions, op.Version)
		}
	}
	return distinct(versions)
}

// Inputs returns the tables that the plan uses, with the digests of their sources.
func (s *Step) Inputs() []coeff.Input {
	return slices.DeleteFunc(s.GPU.Inputs(), func(in coeff.Input) bool {
		return !slices.ContainsFunc(s.Operators, func(op Operator) bool {
			t, err := s.GPU.Table(op.Table)
			return err == nil && t != nil && t.Path == in.Name
		})
	})
}
