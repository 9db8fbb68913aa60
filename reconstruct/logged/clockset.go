package logged

// This file finds where the clock of a log was set while the engine ran, and takes the jump out of the stamps.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

const (
	leastJumpNs = 500_000_000 // of a clock that was set, beyond what the resolution of stamps and an elapsed time leave open
	mostJumps   = 5           // in one log; more are no clock that was set
)

// clockJump is a jump of the log's clock.
type clockJump struct {
	pass int   // the first one after it
	ns   int64 // by which the clock was set forward
}

// undoClockJumps takes jumps of the log's clock (daylight saving, a clock set by NTP) out of the stamps, and marks the
// passes before which they happened (spec#clock-set).
func (f *filler) undoClockJumps() {
	jumps := f.clockJumps()
	if len(jumps) == 0 || len(jumps) > mostJumps {
		return
	}
	// The stamps of the run that was read are not changed.
	f.run.Iterations = slices.Clone(f.run.Iterations)
	for i := range f.passes {
		f.passes[i].it = &f.run.Iterations[i]
	}
	var places []string
	aheadNs := int64(0)
	for k, j := range jumps {
		first := &f.passes[j.pass]
		first.afterClockSet = true
		aheadNs += j.ns
		places = append(places, fmt.Sprintf("by %+.4g s before %s:%d", float64(j.ns)/1e9, first.it.File, first.it.Line))
		to := len(f.passes)
		if k+1 < len(jumps) {
			to = jumps[k+1].pass
		}
		for i := j.pass; i < to; i++ {
			f.passes[i].it.StampNs.V -= aheadNs
		}
	}
	f.addFinding(codeFilledIn, "the clock of the log was set while requests ran, %s: the time of the pass there is left out, and later stamps are taken as "+
		"if it had not been set", strings.Join(places, ", "))
}

// clockJumps returns the jumps of the log's clock. Between two passes with a common request the engine was not idle:
// their stamps differ by the elapsed time of the later one, and never decrease. A jump forward that a client
// saw too is a pause of the server.
func (f *filler) clockJumps() (jumps []clockJump) {
	for i := 1; i < len(f.passes); i++ {
		before, it := f.passes[i-1].it, f.passes[i].it
		if !f.passes[i].follows || !before.StampNs.OK || !it.StampNs.OK || before.StampWall != it.StampWall {
			continue
		}
		stepNs := max(before.StampStepNs.V, it.StampStepNs.V)
		gapNs := it.StampNs.V - before.StampNs.V
		jumpNs := gapNs - trace.Ns(it.ElapsedUs)
		isBack := gapNs < -leastJumpNs
		if !isBack && (jumpNs <= stepNs+leastJumpNs || f.sawPause(jumpNs-stepNs)) {
			continue
		}
		if stepNs >= secondNs {
			jumpNs = gapNs / secondNs * secondNs // what is left is found when passes are laid end to end
		}
		jumps = append(jumps, clockJump{pass: i, ns: jumpNs})
	}
	return jumps
}

// sawPause reports whether a client waited for at least three quarters of the time for a chunk, or for an answer whose
// chunks have no times, as clients do while the server pauses.
func (f *filler) sawPause(ns int64) bool {
	longUs := 0.75 * float64(ns) / 1e3
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		if o.TTFTUs.Or(0) >= longUs || len(o.ChunkGapsUs) == 0 && o.E2EUs.Or(0) >= longUs {
			return true
		}
		for _, us := range o.ChunkGapsUs {
			if us >= longUs {
				return true
			}
		}
	}
	return false
}
