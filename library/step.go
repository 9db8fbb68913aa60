package library

import "github.com/blis-train/blis-train/trace"

// part is one kind of kernel of a step.
type part uint8

// The parts of a step, in the order of a layer.
const (
	norm part = iota
	qkv
	rope
	kvWrite
	prefillAttention
	decodeAttention
	oProj
	AllReduce
	gateUp
	activation
	down
	router
	experts
	sharedExpert
	embedding
	lmHead
	logitsGather
	sampling
	NumParts
)

var partNames = [NumParts]string{"norm", "qkv", "rope", "kv_write", "prefill_attention", "decode_attention", "o_proj", "all_reduce",
	"gate_up", "activation", "down", "router", "experts", "shared_expert", "embedding", "lm_head", "logits_gather", "sampling"}

// String is the part's name in tables.
func (p part) String() string { return partNames[p] }

// Measured reports whether the part's time comes from a table; the others are
// charged by their bytes.
func (p part) Measured() bool {
	switch p {
	case norm, rope, kvWrite, activation, embedding, sampling:
		return false
	}
	return true
}

// parts are the milliseconds of each part, all layers together.
type parts [NumParts]float64

// TotalMs is the whole step.
func (p *parts) TotalMs() float64 {
	sum := 0.0
	for _, v := range p {
		sum += v
	}
	return sum
}

// StepMs is what the batch's kernels take, by part. It allocates nothing. An
// empty batch takes no time.
func (s *Stepper) StepMs(batch []trace.Chunk) parts {
	var p parts
	var tokens, seqs, decodes, context float64
	for _, c := range batch {
		if c.New == 0 {
			continue
		}
		tokens += float64(c.New)
		seqs++
		if c.IsDecode() {
			decodes++
			context += float64(c.Computed)
			continue
		}
		p[prefillAttention] += s.prefillMs(float64(c.New), float64(c.Computed), p[prefillAttention] == 0)
	}
	if seqs == 0 {
		return p
	}
	run, captured := tokens, true
	if s.rules == Engine {
		run, captured = s.engine.GraphTokens(tokens)
	}
	layers := float64(s.layers)
	p[prefillAttention] *= layers
	if decodes > 0 {
		p[decodeAttention] = layers * s.generation.at(decodes*s.generationRatio, context/decodes)
	}
	for i := range s.linear {
		l := &s.linear[i]
		p[l.part] += float64(l.times * l.ms.at(run, 1))
	}
	for i := range s.moved {
		m := &s.moved[i]
		p[m.part] += float64(m.times * (float64(m.bytesPerToken*run*s.msPerByte) + launchMs))
	}
	p[lmHead] = s.head.at(seqs, 1)
	s.collectives(&p, run, seqs, captured)
	if s.rules == Engine {
		p[sampling] = float64(s.vocabBytes*seqs*s.msPerByte) + launchMs
	}
	return p
}
