package kernels

import (
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Batch is one step as sums over its sequences, in tokens and requests.
type Batch struct {
	Tokens        float64 // scheduled
	Sequences     float64 // that sample
	Decodes       float64
	DecodeContext float64 // sum over decodes of the tokens cached before the step
	Prefills      float64 // chunks
	PrefillTokens float64
	PrefillPairs  float64 // sum over chunks of n c + n (n+1)/2
	// Run is what the rank computes beside others in lockstep, All what all of them do; 0: a captured size, all ranks alike.
	Run, All float64
	// Imbalance is the busiest rank's tokens for its experts over the mean, beside what the tables' routing has; 0: 1.
	Imbalance float64
}

// BatchOf adds up a batch.
func BatchOf(chunks []trace.Chunk) (b Batch) {
	for _, c := range chunks {
		n, cached := float64(c.New), float64(c.Computed)
		if n == 0 {
			continue
		}
		b.Tokens, b.Sequences = b.Tokens+n, b.Sequences+1
		if c.IsDecode() {
			b.Decodes, b.DecodeContext = b.Decodes+1, b.DecodeContext+cached
			continue
		}
		b.Prefills, b.PrefillTokens = b.Prefills+1, b.PrefillTokens+n
		b.PrefillPairs += float64(n*cached) + float64(n*(n+1)/2)
	}
	return b
}

// state is what operators see of a batch.
type state struct {
	run              float64 // tokens, padded to the captured size
	all, routed      float64 // of all ranks in lockstep; as the busiest rank's experts see them
	captured         bool
	sequences        float64
	decodes, context float64 // context: the mean
	prefills         float64
	chunk, cached    float64 // of the mean prefill chunk
}

// Parts are the times of a step's kernels in us, by kind.
type Parts [numKinds]float64

// Total is the whole step.
func (p *Parts) Total() float64 { return p[Compute] + p[Experts] + p[Collective] }

// stateOf is the batch as operators see it.
func (s *Step) stateOf(b *Batch) state {
	in := state{sequences: b.Sequences, decodes: b.Decodes, prefills: b.Prefills}
	in.run, in.captured = s.graphs.Tokens(max(b.Tokens, b.Run))
	in.all = in.run * float64(s.Ranks)
	if b.Run > 0 { // ranks run a graph together, all padded alike, or none does
		in.run, in.all, in.captured = b.Run, b.All, in.captured && b.All == in.all
	}
	in.routed = in.all * max(1, b.Imbalance)
	if b.Decodes > 0 {
		in.context = b.DecodeContext / b.Decodes
	}
	if b.Prefills > 0 {
		in.chunk = b.PrefillTokens / b.Prefills
		in.cached = math.Max(0, (b.PrefillPairs/b.Prefills-float64(in.chunk*(in.chunk+1)/2))/in.chunk)
	}
	return in
}

// runs reports whether an operator runs in a batch at all.
func (op *Operator) runs(in *state) bool {
	return op.depends != onDecodes && op.depends != onPrefills || op.depends == onDecodes && in.decodes > 0 ||
		op.depends == onPrefills && in.prefills > 0
}

// Us are the times of all operators in a batch, in the plan's order.
func (s *Step) Us(b *Batch) []float64 {
	in, out := s.stateOf(b), make([]float64, len(s.Operators))
	for i := range s.Operators {
		if op := &s.Operators[i]; op.runs(&in) {
			out[i] = op.Count * op.us(&in)
		}
	}
	return out
}

// Captured reports whether a CUDA graph runs the step.
func (s *Step) Captured(b *Batch) bool { return s.stateOf(b).captured }

// Pricer prices many steps: what depends on tokens or on sequences alone is added up once per number. It is not for several
// goroutines at once.
type Pricer struct {
	*Step
	byTokens    map[tokens]Parts
	bySequences map[float64]Parts
	others      []int // operators that depend on contexts
}

// tokens are what operators that depend on nothing else see.
type tokens struct {
	run, all float64
	captured bool
}

// NewPricer prices a step.
func (s *Step) NewPricer() *Pricer {
	p := &Pricer{Step: s, byTokens: map[tokens]Parts{}, bySequences: map[float64]Parts{}}
	for i := range s.Operators {
		if d := s.Operators[i].depends; d == onDecodes || d == onPrefills {
			p.others = append(p.others, i)
		}
	}
	return p
}

// Parts prices a batch.
func (p *Pricer) Parts(b *Batch) Parts {
	in := p.stateOf(b)
	key := tokens{in.run, in.all, in.captured}
	out, ok := p.byTokens[key]
	if !ok {
		out = p.sum(onTokens, &in)
		p.byTokens[key] = out
	}
	more, ok := p.bySequences[in.sequences]
	if !ok {
		more = p.sum(onSequences, &in)
		p.bySequences[in.sequences] = more
	}
	for k, us := range more {
		out[k] += us
	}
	for _, i := range p.others {
		if op := &p.Operators[i]; op.runs(&in) {
			out[op.Kind] += float64(op.Count * op.us(&in))
		}
	}
	return out
}

// sum is what depends on one number of the batch.
func (p *Pricer) sum(d driver, in *state) Parts {
	var out Parts
	for i := range p.Operators {
		if op := &p.Operators[i]; op.depends == d {
			out[op.Kind] += float64(op.Count * op.us(in))
		}
	}
	return out
}

// Versions are the releases of vLLM whose kernels the step is priced by, sorted.
func (s *Step) Versions() []string {
	own := stat.Filter(s.Operators, func(op Operator) bool { return op.Version != "" && !strings.HasPrefix(op.Table, "nccl") })
	return distinct(stat.Map(own, func(op Operator) string { return op.Version }))
}

// Versions are the releases of vLLM whose kernels the tables hold, sorted.
func (g *GPU) Versions() []string {
	own := stat.Filter(g.Tables, func(t *Table) bool { return strings.Contains(t.Path, "/vllm/") })
	return distinct(stat.Map(own, func(t *Table) string { return t.Version }))
}

// Inputs are the tables it is priced by, with the digests of their sources.
func (s *Step) Inputs() []coeff.Input {
	return slices.DeleteFunc(s.GPU.Inputs(), func(in coeff.Input) bool {
		return !slices.ContainsFunc(s.Operators, func(op Operator) bool {
			t, err := s.GPU.Table(op.Table)
			return err == nil && t != nil && t.Path == in.Name
		})
	})
}

// Inputs are the sources of a GPU's tables, each once.
func (g *GPU) Inputs() []coeff.Input {
	var out []coeff.Input
	for _, t := range g.Tables {
		if !slices.ContainsFunc(out, func(in coeff.Input) bool { return in.Name == t.Path }) {
			out = append(out, coeff.Input{Name: t.Path, Bytes: t.SourceBytes, SHA256: t.SHA256})
		}
	}
	return out
}

// backendOf is what kernels of experts an engine is told to use; "": its own choice.
func backendOf(d *deploy.Deployment) string {
	name, _ := d.Engine.Extra["moe_backend"].(string)
	return strings.TrimPrefix(name, "auto")
}

// family names what decides how well a step is known: the kind of ffn and its dtype, the kinds of attention, whole experts per
// GPU, and the GPU.
func family(d *deploy.Deployment, m *deploy.Decoder) (name, dtype string) {
	kind := "dense"
	var attention []string
	for i := range m.Layers {
		if x := m.Layers[i].Mixer; x != nil {
			name := string(x.Kind)
			if x.Index != nil {
				name += " sparse"
			}
			if x.Window > 0 {
				name += " window"
			}
			attention = append(attention, name)
		}
		f := m.Layers[i].FFN
		if f == nil {
			continue
		}
		for j := range f.Linears {
			l := &f.Linears[j]
			if routed := l.Placement == deploy.ByExpert; routed || kind == "dense" && l.Placement == deploy.ShardedIn {
				dtype = dtypesOf(&l.Quant)[0]
				if routed {
					kind = "experts"
				}
			}
		}
	}
	out := kind + " " + dtype + ", " + strings.Join(distinct(attention), " and ")
	if d.Engine.ExpertParallel {
		out += ", EP"
	}
	if backend := backendOf(d); backend != "" && kind == "experts" { // other kernels
		out += ", " + backend
	}
	return out + ", " + d.Hardware.Name, dtype
}
