package sim

import (
	"math"
	"testing"
)

// TestLevelsOfTheObjective: medians, 90th and 99th percentiles are compared. Of 101 measured times of 100 us and simulated ones of
// 100 to 200 us those of the simulation are 150, 190 and 199 us.
func TestLevelsOfTheObjective(t *testing.T) {
	e := &evaluation{}
	for k := range 101 {
		e.measured[1] = append(e.measured[1], 100)
		e.simulated[1] = append(e.simulated[1], float64(200-k))
	}
	if got, want := e.quantiles(), 0.5*(math.Log(1.5)+math.Log(1.9)+math.Log(1.99)); !close9(got, want) {
		t.Errorf("got %g, want %g", got, want)
	}
}

// TestShiftsOfTwins: every whole shift up to the largest one occurs about as often, and none beyond it.
func TestShiftsOfTwins(t *testing.T) {
	for _, most := range []int64{0, 1, 2} {
		counts := map[int64]int{}
		const n = 3000
		for i := range uint64(n) {
			counts[jitter(7, 1, i, most)]++
		}
		each := n / float64(2*most+1)
		for shift := -most; shift <= most; shift++ {
			if off := float64(counts[shift]) - each; math.Abs(off) > 5*math.Sqrt(each) {
				t.Errorf("up to %d us: got %d shifts by %d, want about %g", most, counts[shift], shift, each)
			}
		}
		if len(counts) != int(2*most+1) {
			t.Errorf("up to %d us: got shifts %v", most, counts)
		}
	}
}

// TestRanksOfChunks: the chunks of a request rank next to each other, the last one lowest, and those of a request that used the
// tier later above all of them.
func TestRanksOfChunks(t *testing.T) {
	c := &offloading{}
	var first, second offloadState
	const request = 1 << 32 // ranks apart, so that no request has as many chunks
	for _, step := range []struct {
		of   *offloadState
		i    int64
		want int64
	}{{&first, 0, request - 1}, {&first, 3, request - 4}, {&second, 1, 2*request - 2}, {&first, 1, request - 2}, {&second, 0, 2*request - 1}} {
		if got := c.rankOf(step.of, step.i); got != step.want {
			t.Errorf("chunk %d: got %d, want %d", step.i, got, step.want)
		}
	}
}
