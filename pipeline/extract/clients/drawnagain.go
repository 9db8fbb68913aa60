package clients

// This file finds loads whose prompts a benchmark drew a second time. `vllm bench serve` and SGLang's
// bench_serving draw random prompts with a seed that is the same in every run unless --seed changes it
// (vllm/benchmarks/datasets.py: RandomDataset). Prompts of one load then share nothing with each other,
// but all of their tokens with those of an earlier load, which the prefix cache may still have.

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// drawnLoad is a load of prompts that a benchmark drew, of which its file states what they share.
type drawnLoad struct {
	name     string
	startNs  int64
	seed     string // as the file states it; "": not stated
	from, to int    // of Reader.Requests
}

const (
	// leastDrawn is the number of equal lengths from which two loads can be the same draw: fewer may be
	// equal by chance.
	leastDrawn = 5
	// quickest is the quantile of TTFT per prompt token at which requests are compared: of the quickest
	// ones, which did not queue.
	quickest = 0.1
	// cachedTTFT is the ratio of this quantile in the later load to that in the earlier one below which
	// the later prompts may have been cached.
	cachedTTFT = 0.7
)

// doubtDrawnAgain makes what prompts share unknown in each load that can be a second draw of an earlier one and whose
// quickest first tokens came earlier than those of the first draw. Without prefix caching it changes nothing.
func (c *Reader) doubtDrawnAgain(dep *deploy.Deployment) {
	if dep == nil || !dep.Engine.PrefixCaching {
		return
	}
	inTime := slices.Clone(c.drawn)
	stat.SortStable(inTime, func(a, b drawnLoad) int { return cmp.Compare(a.startNs, b.startNs) })
	for k, later := range inTime {
		for _, earlier := range inTime[:k] {
			before, after, ok := c.quickestTTFTs(earlier, later)
			if !ok {
				continue
			}
			if after >= cachedTTFT*before { // as slow as the first draw, of which nothing was cached
				break
			}
			for i := later.from; i < later.to; i++ {
				c.Requests[i].PrefixTokens = trace.Opt[int64]{}
				c.Requests[i].PrefixGroup = trace.Opt[string]{}
			}
			c.addFinding(CodeClientFile, "%s has prompts of the same lengths as %s, whose quickest first tokens took %.3g us a prompt token and now %.3g: "+
				"one seed draws the same prompts again, and the prefix cache may have had them; record with another --seed, "+
				"or reset the cache between loads and state shared_prefix_tokens: 0 under client in run.yaml",
				later.name, earlier.name, before, after)
			break
		}
	}
}

// quickestTTFTs returns the quickest TTFT a prompt token, us, of the requests that two loads have in common: before in
// the earlier load, after in the later one. ok is false if they cannot be the same draw: their lengths differ or are in
// another order, or they state two seeds. Each quantile is of the longer half of the prompts, whose TTFT is mostly prefill.
func (c *Reader) quickestTTFTs(earlier, later drawnLoad) (before, after float64, ok bool) {
	n := min(earlier.to-earlier.from, later.to-later.from)
	if n < leastDrawn || earlier.seed != "" && later.seed != "" && earlier.seed != later.seed {
		return 0, 0, false
	}
	var prompts, first, again []float64
	for i := range n {
		a, b := &c.Requests[earlier.from+i], &c.Requests[later.from+i]
		if a.PromptTokens != b.PromptTokens {
			return 0, 0, false
		}
		prompts = append(prompts, float64(a.PromptTokens.V))
	}
	median := stat.Median(prompts)
	for i, tokens := range prompts {
		a, b := &c.Requests[earlier.from+i], &c.Requests[later.from+i]
		if tokens >= median && tokens > 0 && a.TTFTUs.OK && b.TTFTUs.OK {
			first = append(first, a.TTFTUs.V/tokens)
			again = append(again, b.TTFTUs.V/tokens)
		}
	}
	if len(first) == 0 {
		return 0, 0, false
	}
	return stat.Quantile(stat.Sorted(first), quickest), stat.Quantile(stat.Sorted(again), quickest), true
}
