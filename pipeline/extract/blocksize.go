package extract

// This file finds a block_size in run.yaml that contradicts the recording, from the KV blocks that
// snapshots show of requests.

import "github.com/blis-train/blis-train/trace"

// blockSizes are the sizes of a KV block that vLLM's back ends accept, tokens, ascending.
var blockSizes = [...]int64{8, 16, 32, 64, 128, 256}

// blockFits counts in how many snapshots the number of KV blocks of a request agrees with its
// number of tokens, for the block size that run.yaml states and for every size that vLLM accepts.
// contradiction uses it to find a wrong block_size in run.yaml.
type blockFits struct {
	seen       int64                  // snapshots of requests with more than one block
	fitsStated int64                  // of these, the ones that agree with the size in run.yaml
	fits       [len(blockSizes)]int64 // of these, the ones that agree with each of blockSizes
}

// addSnapshot counts a snapshot. stated is the block size in run.yaml, tokens.
func (f *blockFits) addSnapshot(s *trace.Snapshot, stated int64) {
	if s.BlocksAllocated < 2 { // one block holds a short request, whatever its size
		return
	}
	f.seen++
	if needsBlocks(s, stated) {
		f.fitsStated++
	}
	for k, size := range blockSizes {
		if needsBlocks(s, size) {
			f.fits[k]++
		}
	}
}

// needsBlocks reports whether the tokens of a snapshot, with those that the step adds, fill as many
// blocks of size tokens as the request has, or one less, because a block may be reserved ahead.
func needsBlocks(s *trace.Snapshot, size int64) bool {
	needed := (s.ComputedTokens + s.ScheduledTokens + size - 1) / size
	return needed == s.BlocksAllocated || needed == s.BlocksAllocated-1
}

// contradiction returns the block size that over 90 % of the snapshots agree with, if less than half
// of them agree with the size in run.yaml, and otherwise 0. Not all need to agree, because a request
// may have blocks that were reserved further ahead.
func (f *blockFits) contradiction() int64 {
	if 2*f.fitsStated >= f.seen {
		return 0
	}
	for k, size := range blockSizes {
		if float64(f.fits[k]) > 0.9*float64(f.seen) {
			return size
		}
	}
	return 0
}
