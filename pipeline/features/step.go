package features

import "github.com/blis-train/blis-train/trace"

// Step is what the bases need of one step, as sums over its sequences.
// A chunk is prefill while its computed tokens are below the prompt.
type Step struct {
	PrefillTokens float64 // tokens scheduled in prefill chunks
	DecodeTokens  float64 // decodes, one token each
	Requests      float64 // sequences in the batch
	PrefillAttn   float64 // sum over prefill chunks of t*(S + t/2), t new tokens, S the full prompt
	DecodeContext float64 // sum over decodes of the tokens already in KV
}

// Add puts one chunk into the sums.
func (s *Step) Add(c trace.Chunk) {
	if c.New == 0 {
		return
	}
	s.Requests++
	if c.Computed < c.Prompt {
		t := float64(c.New)
		s.PrefillTokens += t
		s.PrefillAttn += float64(t * (float64(c.Prompt) + float64(t/2)))
		return
	}
	s.DecodeTokens += float64(c.New)
	s.DecodeContext += float64(c.Computed)
}

// Sum is Add over a batch.
func BasisSum(batch []trace.Chunk) Step {
	var s Step
	for _, c := range batch {
		s.Add(c)
	}
	return s
}

// Term describes one basis function.
type Term struct {
	Name string // stable name; the registry's name where it has one
	Unit string // unit of the coefficient
	Doc  string
}
