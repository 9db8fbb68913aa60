package identity

import (
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// TestFirstPasses: first tokens come some time after the start of a pass of their prompt, whatever that time is; passes whose times were
// shortened or stretched, also those with prompts alone, are found.
func TestFirstPasses(t *testing.T) {
	recorded := func(n int, decodes int64, scale, leastMs float64) *facts {
		f := emptyFacts()
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range int64(n) {
			tokens := 100 + rng.Int64N(3000)
			us := leastMs*1e3 + 20*float64(tokens)
			f.run.Iterations = append(f.run.Iterations, trace.Iteration{
				Form: trace.IterationLog, Index: i, ContextReqs: 1, ContextTokens: tokens, GenerationReqs: decodes, ElapsedUs: scale * us,
			})
			f.run.Observed = append(f.run.Observed, trace.ObservedRequest{
				Iteration: trace.Some(i), PromptTokens: trace.Some(tokens), OutputTokens: trace.Some(int64(9)), TTFTUs: trace.Some(7000 + us + 2000*rng.Float64()),
			})
		}
		return f
	}
	for _, c := range []struct {
		name      string
		n         int
		decodes   int64
		scale, ms float64
		broken    bool
		why       string
	}{
		{"honest", 30, 0, 1, 5, false, ""},
		{"beside two decodes", 30, 2, 1, 5, false, ""},
		{"0.9 of them", 30, 0, 0.9, 5, false, ""},
		{"0.8 of them", 30, 0, 0.8, 5, true, ""},
		{"half of them", 30, 2, 0.5, 5, true, ""},
		{"1.3 of them", 30, 0, 1.3, 5, true, ""},
		{"19 requests", 19, 0, 0.5, 5, false, "fewer than 20"},
		{"beside three decodes", 30, 3, 0.5, 5, false, "fewer than 20"},
		{"passes of about one time", 30, 0, 0.5, 200, false, "no different passes"},
	} {
		r := firstPasses(recorded(c.n, c.decodes, c.scale, c.ms))
		if c.why != "" {
			wanted{text: c.why}.compare(t, c.name, r)
			continue
		}
		if r.broken != c.broken || r.checked != c.n || r.largest*c.scale < 0.94 || r.largest*c.scale > 1.02 {
			t.Errorf("%s: got %+v", c.name, r)
		}
	}
	f := recorded(30, 0, 0.5, 5)
	f.async = true
	wanted{text: "an asynchronous engine"}.compare(t, "asynchronous", firstPasses(f))
	f = recorded(30, 0, 0.5, 5)
	for i := range f.run.Iterations {
		f.run.Iterations[i].ContextTokens /= 2 // the others were computed in the pass before
	}
	wanted{text: "fewer than 20"}.compare(t, "parts of prompts", firstPasses(f))
}
