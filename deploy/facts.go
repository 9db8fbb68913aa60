package deploy

// This file derives values that run.yaml does not state. Fit, replay and simulation all use these
// methods, so that they agree about one run.yaml.

import (
	"math"
	"strings"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// MaxModelLen returns the longest sequence in tokens, prompt and output together: as stated, else
// the model's position limit, as in vLLM; unknown if the model has none.
func (d *Deployment) MaxModelLen() trace.Opt[int64] {
	if positions := d.Model.MaxPositionEmbeddings; !d.Engine.MaxModelLen.OK && positions > 0 {
		return trace.Some(positions)
	}
	return d.Engine.MaxModelLen
}

// LongestSequence returns the longest sequence in tokens that the engine can run:
// [Deployment.MaxModelLen], and no more than fits into the KV cache. Unknown where neither is
// known.
func (d *Deployment) LongestSequence() trace.Opt[int64] {
	longest := d.MaxModelLen()
	blocks, _, err := d.KVBlocks()
	if err != nil {
		return longest
	}
	// A unit is u.Blocks blocks of the pool, which hold u.Block tokens of a sequence. u.Side is the number of units that
	// it takes besides for sliding windows, attention chunks and recurrent states.
	u := d.KVUnits()
	units := blocks/u.Blocks - u.Side(longest.Or(vllm.MaxTokens))
	return trace.Some(min(longest.Or(math.MaxInt64), max(1, units)*u.Block))
}

// Seats returns how many sequences of the given length can run at a time: max_num_seqs, limited by the
// KV cache; at least 1.
func (d *Deployment) Seats(tokens float64) int64 {
	n := d.Engine.MaxNumSeqs
	if blocks, _, err := d.KVBlocks(); err == nil {
		u := d.KVUnits()
		unitsOfOne := math.Ceil(tokens/float64(u.Block)) + float64(u.Side(int64(tokens)))
		n = min(n, int64(float64(blocks/u.Blocks)/unitsOfOne))
	}
	return max(1, n)
}

// IsComposed reports whether the recording was composed from measured kernel times instead of recorded
// from a server, as `provenance` of run.yaml states. The noise of such a recording is synthetic.
func (d *Deployment) IsComposed() bool {
	return strings.Contains(strings.ToLower(d.Provenance), "composed")
}

// GraphSizes returns the CUDA graph sizes of the stated release in tokens: 1, 2, 4, multiples of 8
// below 256 and of 16 from there, up to the least of 2 x max_num_seqs x the tokens of a verify, 512
// (1024 on Blackwell) and max_num_batched_tokens; from 0.29 on also those of uniform decode batches.
func (d *Deployment) GraphSizes() vllm.GraphSizes {
	name := aliasKey(d.Hardware.Name)
	return d.Engine.GraphSizes(strings.Contains(name, "b200") || strings.Contains(name, "b300"))
}

// mostReads bounds the time of a token, in multiples of the time to read all weights. A longer time
// points to a wrong unit.
const mostReads = 1000

// TokenTimes is what the hardware says of the time of an output token, in us.
type TokenTimes struct {
	ReadUs  float64 // to read all weights once
	LeastUs float64 // below it no token can take: half of ReadUs, because precisions are not always stated
	MostUs  float64 // above it the time is of another unit: mostReads times ReadUs
}

// TokenTimes returns the range that the time of an output token must lie in. ok is false where the
// weights read depend on the batch, or the bandwidth is not known.
func (d *Deployment) TokenTimes() (t TokenTimes, ok bool) {
	bandwidth := d.Hardware.BwPeakTBs * 1e6 * float64(d.TP) // B/us
	if !(bandwidth > 0) || d.Model.IsMoE() {
		return TokenTimes{}, false
	}
	readUs := d.Model.WeightBytes() / bandwidth
	return TokenTimes{ReadUs: readUs, LeastUs: readUs / 2, MostUs: mostReads * readUs}, true
}
