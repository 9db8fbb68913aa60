package validate

// This file finds runs that are copies of one another, such as an export that was stored twice or appended to itself under new
// ids. Coefficients that were fitted to one of them have seen what is held out of the other.

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"slices"

	"github.com/blis-train/blis-train/pipeline/validate/identity"
	"github.com/blis-train/blis-train/result"
)

// Limits of the search for copies.
const (
	fewestStretches = 50      // of a run, from which it is compared
	mostStretches   = 500_000 // of all runs that are kept in memory
	leastSingle     = 0.99    // share of the stretches that a run has once, where times are fine enough to tell runs apart
)

// compareRuns looks for stretches of step times in each run that a run before it has too.
func (j *job) compareRuns() {
	rows := 0
	for _, t := range j.runs {
		if t.beta != nil {
			rows += len(t.beta.Y)
		}
	}
	every := uint64(1 + rows/mostStretches)
	owners := map[uint64]int{} // position in j.runs of the first run with a stretch, by the hash of its times
	known := 0                 // runs in owners
	for i, t := range j.runs {
		if t.beta == nil {
			continue
		}
		own := stretchesOf(t.beta.Y, every)
		if len(own) < fewestStretches {
			continue
		}
		copies := make([]int, i) // stretches by the run before that has them
		for stretch := range own {
			if owner, isKnown := owners[stretch]; isKnown {
				copies[owner]++
			} else {
				owners[stretch] = i
			}
		}
		most := 0
		for k := range copies {
			if copies[k] > copies[most] {
				most = k
			}
		}
		if known > 0 {
			t.Identities = slices.Clone(t.Identities) // an inspection, which knows no other runs, has them too
			identity.WithCopies(t.Identities, j.runs[most].id, len(own), copies[most])
			copied := slices.DeleteFunc(slices.Clone(t.Identities), func(id result.Identity) bool { return id.Name != identity.RunsDiffer })
			t.Findings = append(t.Findings, identityFindings(t.id, copied)...)
		}
		known++
	}
}

// stretchesOf returns hashes of the step times in every stretch of identity.CopiedSteps rows, of which one of so many (every) is
// kept; nil if the run has too many of them twice, as times that were rounded have.
func stretchesOf(us []float64, every uint64) map[uint64]bool {
	out := map[uint64]bool{}
	n := 0
	var bytes [8 * identity.CopiedSteps]byte
	h := fnv.New64a()
	for i := 0; i+identity.CopiedSteps <= len(us); i++ {
		for k := range identity.CopiedSteps {
			binary.LittleEndian.PutUint64(bytes[8*k:], math.Float64bits(us[i+k]))
		}
		h.Reset()
		h.Write(bytes[:])
		if stretch := h.Sum64(); stretch%every == 0 {
			n++
			out[stretch] = true
		}
	}
	if float64(len(out)) < leastSingle*float64(n) {
		return nil
	}
	return out
}
