package library

// This file computes the times of many batches fast, and the features of a batch: the numbers that the
// corrections (fitted factors and times, see corrections.go) are multiplied with to give its step time.

// Parts are the times of a step's kernels in us, by kind.
type Parts [numKinds]float64

// Total returns the time of the whole step.
func (p *Parts) Total() float64 { return p[Compute] + p[Experts] + p[Collective] }

// Pricer prices many batches: operators that depend on tokens or on sequences alone are added up
// once for each number of them. It is not safe for concurrent use.
type Pricer struct {
	*Step
	byTokens    map[tokens]Parts  // the sum of the operators that depend on tokens
	bySequences map[float64]Parts // of those that depend on the number of sequences
	others      []int             // the indices of the operators that depend on contexts, priced for each batch
}

// tokens is the part of a state that operators which depend on tokens alone read.
type tokens struct {
	run, all, routed float64
	captured         bool
}

// NewPricer returns a pricer of the step, which computes the times of many batches.
func (s *Step) NewPricer() *Pricer {
	p := &Pricer{Step: s, byTokens: map[tokens]Parts{}, bySequences: map[float64]Parts{}}
	for i := range s.Operators {
		if d := s.Operators[i].depends; d == onDecodes || d == onPrefills {
			p.others = append(p.others, i)
		}
	}
	return p
}

// Parts returns the times of a batch.
func (p *Pricer) Parts(b *Batch) Parts {
	in := p.stateOf(b)
	key := tokens{run: in.run, all: in.all, routed: in.routed, captured: in.captured}
	out, ok := p.byTokens[key]
	if !ok {
		out = p.sumOf(onTokens, &in)
		p.byTokens[key] = out
	}
	more, ok := p.bySequences[in.sequences]
	if !ok {
		more = p.sumOf(onSequences, &in)
		p.bySequences[in.sequences] = more
	}
	for k, us := range more {
		out[k] += us
	}
	for _, i := range p.others {
		if op := &p.Operators[i]; op.runs(&in) {
			out[op.Kind] += op.Count * op.us(&in)
		}
	}
	return out
}

// sumOf returns the time of the operators that depend on one quantity of the batch.
func (p *Pricer) sumOf(d driver, in *state) Parts {
	var out Parts
	for i := range p.Operators {
		if op := &p.Operators[i]; op.depends == d {
			out[op.Kind] += op.Count * op.us(in)
		}
	}
	return out
}

// Features sets x to the features of a batch: its step time is their dot product with the
// corrections theta (spec#library-step). Outside CUDA graphs the GPU and the host that launches the
// kernels work at the same time, so only the slower of the two counts.
func (p *Pricer) Features(b *Batch, theta, x *[NumStep]float64) {
	p.Columns(b, x)
	Slower(theta, x)
}

// Columns sets x to the features with both the kernels and the host's launches counted. Which of the
// two is longer outside CUDA graphs depends on theta, which a fit does not know yet; see Slower.
func (p *Pricer) Columns(b *Batch, x *[NumStep]float64) {
	parts := p.Parts(b)
	*x = [NumStep]float64{
		ScaleGPU:     parts.Total(),
		ScaleExpert:  parts[Experts],
		ScaleReduce:  parts[Collective],
		HostStep:     1,
		HostRank:     float64(p.TP - 1),
		HostSequence: b.Sequences,
		SmallKernel:  p.small,
	}
	if p.sync {
		x[SyncStep] = 1
		x[SyncSequence] = b.Sequences
	}
	if b.Prefills > 0 {
		x[ScalePrompt] = parts.Total()
	}
	if !p.Captured(b) {
		share := p.launchShare(b)
		x[EagerLayer] = share * p.Layers
		x[EagerExperts] = share * p.expertLayers
		x[EagerLatent] = share * p.latentLayers
		x[EagerFP8] = share * p.chosenFP8
		if p.decodesOnly {
			x[EagerWhole] = share * p.Layers
		}
	}
}

// launchesFrom is the number of tokens, relative to the largest graph, at which launches were measured. From the
// largest graph to there their time grows in proportion.
const launchesFrom = 1.6

// launchShare returns the share of the time of launches that counts in a step outside CUDA graphs: 0 at the largest
// graph, so that times do not jump where graphs end, 1 at launchesFrom times its tokens.
func (s *Step) launchShare(b *Batch) float64 {
	if len(s.graphs) == 0 || b.Prefills > 0 && s.decodesOnly {
		return 1
	}
	largest := float64(s.graphs[len(s.graphs)-1])
	return min(1, max(0, (max(b.Tokens, b.Run)-largest)/((launchesFrom-1)*largest)))
}

// kernelTimes are the features that are time on the GPU.
var kernelTimes = []int{ScaleGPU, ScaleExpert, ScaleReduce, ScalePrompt, SmallKernel}

// launches are the features that are time in which the host launches kernels one by one.
var launches = []int{EagerLayer, EagerExperts, EagerLatent, EagerWhole, EagerFP8}

// Slower drops from the features of a step outside CUDA graphs those of the shorter part: its
// kernels, or the host that launches them one by one.
func Slower(theta, x *[NumStep]float64) {
	sum := func(of []int) (us float64) {
		for _, k := range of {
			us += theta[k] * x[k]
		}
		return us
	}
	shorter := launches
	if sum(kernelTimes) < sum(launches) {
		shorter = kernelTimes
	}
	for _, k := range shorter {
		x[k] = 0
	}
}
