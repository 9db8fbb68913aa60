package library

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/learn"
)

// family is one coefficient file of the library: a GPU, a kind of weights, and
// dense models or mixtures of experts, whose experts take terms of their own.
type family struct {
	GPU     string // the tables' name: h100_sxm
	Weights string // BF16 | FP8
	MoE     bool
}

// regimeNames are the regimes in words.
var regimeNames = [learn.NumRegimes]string{"decode", "mixed", "prefill"}

// memoryShare of a group's memory may hold weights in a design point.
const memoryShare = 0.85

// deployments are the design's deployments of a family that fit the memory.
func (f family) deployments(h deploy.Hardware, without *deploy.Model) []*deploy.Deployment {
	var out []*deploy.Deployment
	for i := range shapes {
		s := &shapes[i]
		if (s.experts > 0) != f.MoE || without != nil && s.same(without) {
			continue
		}
		caches := []float64{2}
		if f.Weights == libraryFp8 {
			caches = append(caches, 1)
		}
		for _, kvBytes := range caches {
			for _, tp := range []int64{1, 2, 4, 8} {
				d := &deploy.Deployment{Model: s.model(f.Weights, kvBytes), Hardware: h, TP: tp, PP: 1, DP: 1, Engine: designEngine}
				if d.CheckSupported() != nil || d.Model.WeightBytes() > memoryShare*h.MemoryGB*1e9*float64(tp) {
					continue
				}
				out = append(out, d)
			}
		}
	}
	return out
}

// designEngine has vLLM's defaults for servers.
var designEngine = deploy.Engine{MaxNumSeqs: 1024, MaxNumBatchedTokens: 8192, ChunkedPrefill: true, BlockSize: deploy.DefaultBlockSize,
	GPUMemoryUtilization: deploy.DefaultGPUMemoryUtilization, SchedulingPolicy: deploy.DefaultSchedulingPolicy}
