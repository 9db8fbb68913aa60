package rows

// This file sums the KV blocks that moved between GPU and CPU in each step.

import (
	"cmp"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// stepTransfers are the KV blocks that moved in one step (spec#transfers).
type stepTransfers struct {
	step int64
	out  int64 // GPU -> CPU blocks
	in   int64 // CPU -> GPU blocks
}

// transferKey identifies a transfer, of which several workers may report copies.
type transferKey struct {
	id, blocks, step int64
	request          string
	src, dst         string
}

// sumTransfers returns the sums of successful TransferCompleted events by step, in step order.
// Events with equal keys are copies of one transfer, which is successful only if all copies are.
func sumTransfers(events []trace.KVEvent) []stepTransfers {
	first := make(map[transferKey]int) // position in keys
	var keys []transferKey
	var ok []bool // by key: every copy so far was successful
	for i := range events {
		event := &events[i]
		if event.Kind != "TransferCompleted" || !event.Step.OK {
			continue
		}
		key := transferKey{
			id:      event.TransferID.Or(-1),
			blocks:  event.BlockCount.Or(0),
			step:    event.Step.V,
			request: event.RequestID.V,
			src:     event.SrcMedium.V,
			dst:     event.DstMedium.V,
		}
		at, seen := first[key]
		if !seen {
			at = len(keys)
			first[key] = at
			keys = append(keys, key)
			ok = append(ok, true)
		}
		ok[at] = ok[at] && event.Success.Or(false)
	}
	return sumByStep(keys, ok)
}

// sumByStep returns, for each step, the sums of the blocks of its transfers for which ok is true; keys
// and ok have one entry a transfer. Steps are in the order of their first transfer.
func sumByStep(keys []transferKey, ok []bool) []stepTransfers {
	at := make(map[int64]int)
	var sums []stepTransfers
	for i, k := range keys {
		if !ok[i] {
			continue
		}
		j, seen := at[k.step]
		if !seen {
			j = len(sums)
			at[k.step] = j
			sums = append(sums, stepTransfers{step: k.step})
		}
		switch {
		case k.src == "GPU" && k.dst == "CPU":
			sums[j].out += k.blocks
		case k.src == "CPU" && k.dst == "GPU":
			sums[j].in += k.blocks
		}
	}
	stat.SortStable(sums, func(a, b stepTransfers) int { return cmp.Compare(a.step, b.step) })
	return sums
}
