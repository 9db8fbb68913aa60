package library

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/vllm"
)

// leastSlower is what repeats of one kernel differ by: a row is slower than another beyond it.
const leastSlower = 1.03

// leastShare of a step's kernels is what a slower row costs at least to be named.
const leastShare = 0.005

// Contradictions name the rows of a bound step that are slower than they can be: than those of half the ranks, of bfloat16 weights or,
// on H200, of H100; each with the tokens of the batch in which that costs most of the step.
func Contradictions(d *deploy.Deployment, s *Step, o Options) (out []string) {
	than := func(what string, d deploy.Deployment, o Options) {
		other, _ := Bound(&d, o) // operators that the other has no rows of are compared with nothing
		if other == nil {
			return
		}
		if rows := s.slower(other, &d.Engine); len(rows) > 0 {
			out = append(out, fmt.Sprintf("rows slower than %s: %s", what, strings.Join(rows, ", ")))
		}
	}
	if half := *d; d.TP > 1 {
		half.TP /= 2
		than(fmt.Sprintf("at tensor parallelism %d", half.TP), half, o)
	}
	if plain := o; s.DType != bf16 {
		plain.BF16 = true
		than("those of bfloat16", *d, plain)
	}
	if on := *d; strings.HasPrefix(d.Hardware.Name, "H200") && o.GPU == nil {
		on.Hardware, _ = deploy.Datasheet("H100")
		than("those of H100", on, o)
	}
	return out
}

// slower are the operators that take longer than another step's of the same name, in their order.
func (s *Step) slower(than *Step, e *vllm.Engine) (out []string) {
	type kind struct {
		name  string
		count float64
	}
	left := map[kind][]int{}
	for k, op := range than.Operators {
		left[kind{op.Name, op.Count}] = append(left[kind{op.Name, op.Count}], k)
	}
	place := map[int]int{}
	for i, op := range s.Operators {
		if of := left[kind{op.Name, op.Count}]; len(of) > 0 && op.Kind != Collective {
			place[i], left[kind{op.Name, op.Count}] = of[0], of[1:]
		}
	}
	share := make([]float64, len(s.Operators))
	most := make([]float64, len(s.Operators))
	at := make([]float64, len(s.Operators))
	for _, b := range ladder(e) {
		own, other := s.Us(&b), than.Us(&b)
		whole := stat.Sum(other, func(us float64) float64 { return us })
		for i, us := range own {
			if k, ok := place[i]; ok && us > leastSlower*other[k] && us-other[k] > share[i]*whole {
				share[i], most[i], at[i] = (us-other[k])/whole, us/other[k]-1, b.Tokens
			}
		}
	}
	for i, more := range share {
		if more > leastShare {
			out = append(out, fmt.Sprintf("%s (%.0f %% at %.0f tokens)", s.Operators[i].Name, 100*most[i], at[i]))
		}
	}
	return out
}

// ladder are batches of decodes and of prompts, first chunks and later ones, that an engine may run.
func ladder(e *vllm.Engine) (out []Batch) {
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
