package logged

import (
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// TestContextsFromUsage: the blocks in use after a pass give the contexts of the next, less half a block
// for each sequence. An estimated number of blocks gives none, nor does a usage that is known of
// fewer than half of the passes or that is too coarse.
func TestContextsFromUsage(t *testing.T) {
	const blocks, size = 1000, 16
	for _, c := range []struct {
		name   string
		usage  []float64 // after each of four passes; below 0: unknown
		change func(*deploy.Deployment)
		want   []float64 // context of the decodes of each pass; nil: none
	}{
		// Pass 1 runs 4 decodes: 0.5 * 1000 * 16 tokens in use, less 7.5 tokens for each of 4, and one
		// token more for each of 4. Pass 3 has a prompt with 100 tokens computed before it.
		{"stated", []float64{0.5, 0.25, 0.75, 0.1}, nil, []float64{0, 8000 - 30 + 4, 4000 - 30 + 4, 12000 - 30 - 100 + 4}},
		{"estimated", []float64{0.5, 0.25, 0.75, 0.1}, func(d *deploy.Deployment) { d.Engine.KVBlocksGPU = trace.Opt[int64]{} }, nil},
		{"half known", []float64{0.5, 0.25, -1, 0.1}, nil, []float64{0, 8000 - 30 + 4, 4000 - 30 + 4, 0}},
		{"fewer than half known", []float64{0.5, -1, -1, 0.1}, nil, nil},
		{"just fine enough", []float64{0.01, 0.01, 0.01, 0}, nil, []float64{0, 160 - 30 + 4, 160 - 30 + 4, 160 - 30 - 100 + 4}},
		{"too coarse", []float64{0.0099, 0.0099, 0.0099, 0}, nil, nil},
		{"never below one token a decode", []float64{0.5, 0.001, 0.5, 0}, nil, []float64{0, 8000 - 30 + 4, 4, 8000 - 30 - 100 + 4}},
	} {
		dep := deployment(t, c.change)
		if c.change == nil {
			dep.Engine.KVBlocksGPU = trace.Some(int64(blocks))
		} else {
			dep.Hardware.MemoryGB = 80
		}
		dep.Engine.BlockSize = size
		f := &filler{dep: dep, passes: make([]pass, len(c.usage))}
		for i, v := range c.usage {
			f.passes[i] = pass{it: &trace.Iteration{}, follows: i > 0, decodes: 4}
			if v >= 0 {
				f.passes[i].it.KVUsage = trace.Some(v)
			}
		}
		f.passes[3].prefillContext = 100
		got := f.contextsFromUsage()
		if got != (c.want != nil) {
			t.Errorf("%s: got contexts: %v, want %v", c.name, got, c.want != nil)
			continue
		}
		contexts := make([]float64, len(f.passes))
		for i := range f.passes {
			contexts[i] = f.passes[i].decodeContext
		}
		if c.want != nil && !slices.Equal(contexts, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, contexts, c.want)
		}
	}
}
