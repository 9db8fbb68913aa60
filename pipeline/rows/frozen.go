package rows

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// This file has the inputs of features as spec 1.0 takes them from recordings (spec#frozen-sourcing), to
// the letter: counts and labels as recorded, output tokens added to the context a second time, allocated
// blocks as read blocks. Known errors stay.

// totals10 returns the inputs that come from the summary of a step, whatever else was recorded.
func totals10(s *trace.Step) features.StepInput {
	return features.StepInput{
		PrefillTokens:   float64(s.PrefillTokens),
		DecodeTokens:    float64(s.DecodeTokens),
		ScheduledTokens: float64(s.ScheduledTokens),
		NumPrefillReqs:  float64(s.NumPrefillReqs),
		NumDecodeReqs:   float64(s.NumDecodeReqs),
		RunningDepth:    float64(s.RunningDepth),
	}
}

// rich10 returns the inputs with the sums over snapshots, divided into prefill and decode by the
// recorded label.
func rich10(s *trace.Step, snaps []trace.Snapshot) features.StepInput {
	in := totals10(s)
	for i := range snaps {
		q := &snaps[i]
		switch {
		case q.ScheduledTokens == 0:
		case q.Phase == "PREFILL":
			in.SumPrefillAttnWork += float64((q.ComputedTokens + q.ScheduledTokens) * q.ScheduledTokens)
		default:
			in.DecodeContextTokens += float64(q.ComputedTokens + q.OutputTokens)
			in.SumDecodeKVBlocks += float64(q.BlocksAllocated)
		}
	}
	return in
}

// summary10 returns the inputs with the sums approximated from totals. Chunked prefill must be off;
// cv2 is the squared variation of prompt lengths.
func summary10(s *trace.Step, d *deploy.Deployment, cv2 float64) features.StepInput {
	in := totals10(s)
	in.SumPrefillAttnWork = nonRichPrefillWork10(int64(s.PrefillTokens), int64(s.NumPrefillReqs), cv2)
	in.DecodeContextTokens = nonRichDecodeContext10(s.KVUsage, s.BlocksTotal, d.Engine.BlockSize, int64(s.NumDecodeReqs), int64(s.RunningDepth))
	in.SumDecodeKVBlocks = float64(s.BlocksTotal - s.BlocksFree)
	return in
}

// nonRichPrefillWork10 returns P^2/np*(1+cv2) (spec#frozen-sourcing), 0 without prefill requests.
func nonRichPrefillWork10(prefillTokens, prefillReqs int64, cv2 float64) float64 {
	if prefillReqs == 0 {
		return 0
	}
	p := float64(prefillTokens)
	return p * p / float64(prefillReqs) * (1 + cv2)
}

// nonRichDecodeContext10 returns usage*total*block_size*nd/max(1,running) tokens
// (spec#frozen-sourcing).
func nonRichDecodeContext10(usage float64, totalBlocks, blockSize, decodeReqs, running int64) float64 {
	return usage * float64(totalBlocks) * float64(blockSize) * float64(decodeReqs) / float64(max(1, running))
}

// prefixHit10 returns cached_blocks/max(1, allocated+cached). It keeps a known error of spec 1.0:
// cached blocks are among the allocated ones (spec#err-cached-blocks).
func prefixHit10(cachedBlocks, allocatedBlocks int64) float64 {
	return float64(cachedBlocks) / float64(max(1, allocatedBlocks+cachedBlocks))
}
