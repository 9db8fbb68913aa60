package result

import "testing"

// TestCrossBlocks: every moment is in one block, teaches the fits without other blocks, and nothing within the
// embargo of a block teaches the fit without it.
func TestCrossBlocks(t *testing.T) {
	b := NewCrossBlocks("r", "p", 1000, 2000, 30)
	if b.EmbargoNs != 30 || len(b.CutsNs) != CrossFolds-1 || b.CutsNs[0] != 1200 {
		t.Fatalf("got %+v", b)
	}
	for _, c := range []struct {
		ns    int64
		block int
		none  []int // fits that it does not teach
	}{
		{900, 0, []int{0}},
		{1169, 0, []int{0}},
		{1170, 0, []int{0, 1}},
		{1199, 0, []int{0, 1}},
		{1200, 1, []int{0, 1}},
		{1229, 1, []int{0, 1}},
		{1230, 1, []int{1}},
		{1900, 4, []int{4}},
		{2500, 4, []int{4}},
	} {
		if got := b.Block(c.ns); got != c.block {
			t.Errorf("%d: got block %d, want %d", c.ns, got, c.block)
		}
		for block := range CrossFolds {
			excluded := false
			for _, k := range c.none {
				excluded = excluded || k == block
			}
			if got := b.Teaches(block, c.ns); got == excluded {
				t.Errorf("%d: teaches the fit without block %d: got %t, want %t", c.ns, block, got, !excluded)
			}
		}
	}
	if b := NewCrossBlocks("r", "", 0, 1000, 5000); b.EmbargoNs != 100 {
		t.Errorf("got an embargo of %d of blocks of 200, want half a block", b.EmbargoNs)
	}
}
