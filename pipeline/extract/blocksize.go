package extract

import "github.com/blis-train/blis-train/trace"

// blockSizes are the sizes of a KV block that vLLM's back ends accept, tokens.
var blockSizes = [...]int64{8, 16, 32, 64, 128, 256}

// blockFits compares the block size of run.yaml with the blocks of requests in snapshots. It counts, for
// each size, the snapshots whose number of blocks is the one that their tokens need.
type blockFits struct {
	seen       int64 // snapshots with more than one block
	fitsStated int64 // of them, those that fit the size of run.yaml
	fits       [len(blockSizes)]int64
}

func (f *blockFits) addSnapshot(s *trace.Snapshot, stated int64) {
	if s.BlocksAllocated < 2 {
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

// needsBlocks reports whether with blocks of a size the tokens of a snapshot need as many blocks as the
// request has, or one less.
func needsBlocks(s *trace.Snapshot, size int64) bool {
	needed := (s.ComputedTokens + s.ScheduledTokens + size - 1) / size
	return needed == s.BlocksAllocated || needed == s.BlocksAllocated-1
}

// contradiction is the block size that 90 % of the snapshots fit, if less than half of them fit the size
// of run.yaml; 0 otherwise.
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
