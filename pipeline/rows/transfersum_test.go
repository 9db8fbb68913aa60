package rows

import (
	"slices"
	"testing"
)

// TestSumByStep: blocks from the GPU to the CPU leave, those from the CPU to the GPU come in, others do
// neither; transfers that failed count nowhere, and steps are in their order.
func TestSumByStep(t *testing.T) {
	keys := []transferKey{
		{step: 7, src: "GPU", dst: "CPU", blocks: 1},
		{step: 3, src: "CPU", dst: "GPU", blocks: 2},
		{step: 7, src: "CPU", dst: "GPU", blocks: 4},
		{step: 7, src: "GPU", dst: "CPU", blocks: 8},
		{step: 7, src: "GPU", dst: "DISK", blocks: 16},
		{step: 7, src: "DISK", dst: "CPU", blocks: 32},
		{step: 7, src: "CPU", dst: "DISK", blocks: 64},
		{step: 7, src: "DISK", dst: "GPU", blocks: 128},
		{step: 7, src: "GPU", dst: "CPU", blocks: 256},
		{step: 9, src: "GPU", dst: "CPU", blocks: 512},
	}
	ok := make([]bool, len(keys))
	for i := range 8 {
		ok[i] = true
	}
	want := []stepTransfers{{step: 3, in: 2}, {step: 7, out: 9, in: 4}}
	if got := sumByStep(keys, ok); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
