package logged

import (
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// TestClockSet: 200 passes of 200 ms, of which 190 are elapsed, whose clock is set before pass 100. All passes keep their
// time but that one, and later stamps go on. A pause that a client saw, one of an idle engine, and more jumps than a clock is set stay.
func TestClockSet(t *testing.T) {
	const ms, second = int64(1_000_000), int64(1_000_000_000)
	ahead := func(by int64, from ...int) func(*filler) {
		return func(f *filler) {
			for _, first := range from {
				for i := first; i < len(f.run.Iterations); i++ {
					f.run.Iterations[i].StampNs.V += by
				}
			}
		}
	}
	both := func(changes ...func(*filler)) func(*filler) {
		return func(f *filler) {
			for _, change := range changes {
				change(f)
			}
		}
	}
	gap := func(us float64) func(*filler) {
		return func(f *filler) { f.run.Observed = []trace.ObservedRequest{{ChunkGapsUs: []float64{200e3, us}}} }
	}
	for _, c := range []struct {
		name   string
		stepNs int64
		change func(*filler)
		found  string // part of the finding; empty: none
		at     []int  // passes after a jump
	}{
		{"an hour forward", second, ahead(3600*second, 100), "by +3600 s before server.log:101", []int{100}},
		{"an hour back", second, ahead(-3600*second, 100), "by -3600 s before", []int{100}},
		{"2 s back", second, ahead(-2*second, 101), "by -2 s before", []int{101}},
		{"2 s forward", second, ahead(2*second, 101), "by +2 s before", []int{101}},
		{"twice", second, ahead(3600*second, 70, 140), "by +3600 s before server.log:71, by +3600 s before server.log:141", []int{70, 140}},
		{"1 s is the resolution", second, ahead(second, 101), "", nil},
		{"precise stamps", ms, ahead(-800*ms, 100), "by -0.79 s before", []int{100}},
		{"precise stamps, forward", ms, ahead(3600*second, 100), "by +3600 s before", []int{100}},
		{"a pause of less than half a second", ms, ahead(480*ms, 100), "", nil},
		{"six times", second, ahead(3600*second, 20, 40, 60, 80, 100, 120), "", nil},
		{"a client saw the pause", second, both(ahead(10*second, 100), gap(7e6)), "", nil},
		{"no client saw a pause", second, both(ahead(10*second, 100), gap(6e6)), "by +10 s before", []int{100}},
		{"nothing ran", second, both(ahead(10*second, 100), func(f *filler) { f.passes[100].follows = false }), "", nil},
	} {
		f := decoding(t, 200, 190_000, 200_000, 0, c.stepNs, asynchronous(false))
		for i := range f.run.Iterations {
			f.run.Iterations[i].File, f.run.Iterations[i].Line = "server.log", int64(i+1)
		}
		c.change(f)
		recorded := slices.Clone(f.run.Iterations)
		read := f.run.Iterations
		f.undoClockJumps()
		if c.found == "" {
			if len(f.out.Findings) > 0 {
				t.Errorf("%s: got %v", c.name, f.out.Findings)
			}
			continue
		}
		if len(f.out.Findings) != 1 || !strings.Contains(f.out.Findings[0].Message, c.found) {
			t.Errorf("%s: got %v, want %s", c.name, f.out.Findings, c.found)
		}
		for i := range read {
			if read[i].StampNs != recorded[i].StampNs {
				t.Fatalf("%s: the stamp of pass %d of the recording was changed", c.name, i)
			}
		}
		a := f.auditTimes()
		f.setEnds(&a)
		for i := 1; i < len(f.passes); i++ {
			p, tookNs := &f.passes[i], f.passes[i].endNs-f.passes[i-1].endNs
			if isAt := slices.Contains(c.at, i); p.hasStart == isAt || tookNs < 185*ms || tookNs > 206*ms {
				t.Errorf("%s: pass %d has a start: %t, and takes %d ms", c.name, i, p.hasStart, tookNs/ms)
			}
		}
	}
}
