package library

// This file finds the rows of a plan that are slower than they can be, for people who check tables.

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/vllm"
)

// leastSlower is the ratio by which repeats of one kernel differ. A row counts as slower than
// another only beyond it.
const leastSlower = 1.03

// leastShare is the share of a step's kernel time that a slower row must cost to be named.
const leastShare = 0.005

// Contradictions returns the rows of a step that are slower than they can be: slower than at half
// the tensor parallelism, than with bfloat16 weights or, on H200, than on H100. Each comes with the
// tokens of the batch in which it costs most of the step.
func Contradictions(d *deploy.Deployment, s *Step, o Options) (out []string) {
	compare := func(what string, d deploy.Deployment, o Options) {
		g := o.GPU
		if g == nil {
			var err error
			if g, err = For(&d.Hardware); err != nil {
				return
			}
		}
		other, _ := g.Bind(&d, o) // on an error the operators that were bound are compared
		if other == nil {
			return
		}
		if rows := s.slowerThan(other, &d.Engine); len(rows) > 0 {
			out = append(out, fmt.Sprintf("rows slower than %s: %s", what, strings.Join(rows, ", ")))
		}
	}
	if half := *d; d.TP > 1 {
		half.TP /= 2
		compare(fmt.Sprintf("at tensor-parallel size %d", half.TP), half, o)
	}
	if plain := o; s.DType != bf16 {
		plain.BF16 = true
		compare("those of bfloat16", *d, plain)
	}
	if on := *d; strings.HasPrefix(d.Hardware.Name, "H200") && o.GPU == nil {
		on.Hardware, _ = deploy.Datasheet("H100")
		compare("those of H100", on, o)
	}
	return out
}

// slowerThan returns the operators that take longer than those of the same name in another step, in
// the order of the plan: each as "NAME (by how much at the tokens of a batch)". Collectives are left
// out: over more ranks they rightly take longer.
func (s *Step) slowerThan(than *Step, e *vllm.Engine) (out []string) {
	type kind struct {
		name  string
		count float64
	}
	// Pair the operators of the two plans by name and count, in order. Unlike samePlace this also pairs those
	// of which the plans have different numbers, as far as they go: than may be the part of a plan before an error.
	unpaired := map[kind][]int{} // operators of than
	for k, op := range than.Operators {
		key := kind{op.Name, op.Count}
		unpaired[key] = append(unpaired[key], k)
	}
	pairOf := map[int]int{} // operator of s -> operator of than
	for i, op := range s.Operators {
		key := kind{op.Name, op.Count}
		if rest := unpaired[key]; len(rest) > 0 && op.Kind != Collective {
			pairOf[i] = rest[0]
			unpaired[key] = rest[1:]
		}
	}
	// For each operator, the batch in which the excess is the largest share of the step.
	share := make([]float64, len(s.Operators))  // of the other step's kernel time
	excess := make([]float64, len(s.Operators)) // own time over the other's, less 1
	tokens := make([]float64, len(s.Operators)) // of the batch
	for _, b := range sampleBatches(e) {
		own := s.Us(&b)
		other := than.Us(&b)
		whole := 0.0
		for _, us := range other {
			whole += us
		}
		for i, us := range own {
			if k, ok := pairOf[i]; ok && other[k] > 0 && us > leastSlower*other[k] && us-other[k] > share[i]*whole {
				share[i] = (us - other[k]) / whole
				excess[i] = us/other[k] - 1
				tokens[i] = b.Tokens
			}
		}
	}
	for i, more := range share {
		if more > leastShare {
			out = append(out, fmt.Sprintf("%s (%.0f %% at %.0f tokens)", s.Operators[i].Name, 100*excess[i], tokens[i]))
		}
	}
	return out
}

// sampleBatches returns batches of n decodes, with short and long contexts, and of one prompt chunk of n
// tokens, first or behind 3500 cached tokens, within the engine's limits.
func sampleBatches(e *vllm.Engine) (out []Batch) {
	for _, n := range []float64{1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
		8192} {
		for _, context := range []float64{500, 4000} {
			if n <= float64(e.MaxNumSeqs) {
				out = append(out, Batch{Tokens: n, Sequences: n, Decodes: n, DecodeContext: n * context})
			}
			if n <= float64(e.MaxNumBatchedTokens) {
				pairs := n*(n+1)/2 + (context-500)*n
				out = append(out, Batch{Tokens: n, Sequences: 1, Prefills: 1, PrefillTokens: n, PrefillPairs: pairs})
			}
		}
	}
	return out
}
