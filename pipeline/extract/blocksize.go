package extract

import "github.com/blis-train/blis-train/trace"

// blockSizes are those that vLLM's back ends take, tokens.
var blockSizes = [...]int64{8, 16, 32, 64, 128, 256}

// blockFits counts snapshots whose blocks are those that their tokens take, by size of a block.
type blockFits struct {
	seen, stated int64 // with more than one block; those that fit run.yaml's size
	of           [len(blockSizes)]int64
}

func (f *blockFits) see(s *trace.Snapshot, stated int64) {
	if s.BlocksAllocated < 2 {
		return
	}
	fits := func(size int64) int64 {
		if d := (s.ComputedTokens+s.ScheduledTokens+size-1)/size - s.BlocksAllocated; d >= -1 && d <= 0 {
			return 1
		}
		return 0
	}
	f.seen++
	f.stated += fits(stated)
	for k, size := range blockSizes {
		f.of[k] += fits(size)
	}
}

// contradicts is the size that the snapshots show where it is not the stated one; 0 else.
func (f *blockFits) contradicts() int64 {
	for k, size := range blockSizes {
		if f.seen > 0 && 2*f.stated < f.seen && float64(f.of[k]) > 0.9*float64(f.seen) {
			return size
		}
	}
	return 0
}
