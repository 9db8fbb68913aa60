package rows

// This file makes the rows on which the lag of a run is measured: how many steps execution is behind
// scheduling.

import (
	"context"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
)

// LagEvidence has the rows on which the lag of one run is measured (spec#lag): for lags 0, 1 and 2
// the training rows of the first 80 % of the run, and one common set of hold-out intervals whose
// measured times are the same for all three.
type LagEvidence struct {
	n     int           // hold-out intervals
	cut   int64         // ns: training rows start before it, hold-out intervals at or after it
	marks map[int64]int // by the interval's start: 1 + the number of lags that have a row there
	table func(lag int) (*Table, error)
	kept  [reconstruct.Lags]*Table // tables of a short run by lag, until At returns their rows
}

// mostKeptSteps is the number of steps up to which the rows of all lags are in memory together: that of
// a slice with its margins. Of a longer run, which is not read in slices, they are made twice.
const mostKeptSteps = 2*SliceSteps + SliceMargin

// N returns the number of hold-out intervals.
func (e *LagEvidence) N() int { return e.n }

// KeepsRows reports whether the rows of all lags are in memory together.
func (e *LagEvidence) KeepsRows() bool { return !slices.Contains(e.kept[:], nil) }

// At returns the rows from which one lag is judged: those to fit step times on, and those to compare
// the fit with. Row k of test is the same interval of the run for every lag, so that errors of
// different lags are comparable. Different lags can be asked for at the same time.
func (e *LagEvidence) At(lag int) (train, test *Table, err error) {
	t := e.kept[lag]
	e.kept[lag] = nil // its rows are filtered below
	if t == nil {
		if t, err = e.table(lag); err != nil {
			return nil, nil, err
		}
	}
	// To compare: the intervals in which every lag has a row. To fit: the rows before the evidence begins.
	test = t.Select(func(i int) bool { return e.marks[t.TimeNs[i]] == 1+reconstruct.Lags })
	before, _ := slices.BinarySearch(t.TimeNs, e.cut)
	t.Truncate(before)
	return t, test, nil
}

// LagEvidence returns the hold-out intervals; At makes the rows of a lag, so that of a long run one
// table is in memory at a time. Of a short run the tables are made by several workers.
//
// A hold-out interval [i, i+1] has i-2..i+1 recorded, i-2..i busy and known, and more than 64
// prefill tokens in one of i-2..i. Saturated rows are used, because the lag shows best in a loaded
// server. o.Lag, o.Split and o.Saturated are ignored: training ends after 80 % of the recorded
// steps of the run, not of each phase.
func (s *Steps) LagEvidence(ctx context.Context, sp *features.Space, o Options, workers int) (*LagEvidence, error) {
	o.Target, o.Saturated = coeff.Cadence, nil
	e := &LagEvidence{marks: s.evidenceMarks(), cut: s.evidenceCut()}
	e.table = func(lag int) (*Table, error) {
		o := o
		o.Lag = lag
		t, err := s.Beta(sp, o)
		if err != nil {
			return nil, err
		}
		// What a lag is judged without is not kept: three such tables may be in memory.
		t.ForgetDetails()
		t.LastStep = nil
		t.Batch = nil
		return t, nil
	}
	if len(s.Run.Steps) <= mostKeptSteps {
		err := par.Try(ctx, workers, len(e.kept), func(lag int) (err error) {
			e.kept[lag], err = e.table(lag)
			return err
		}, nil)
		if err != nil {
			return nil, err
		}
	}
	for lag, t := range e.kept {
		if t == nil {
			var err error
			if t, err = e.table(lag); err != nil {
				return nil, err
			}
		}
		// A mark reaches 1+reconstruct.Lags in the pass of the last lag, so that n counts only there.
		e.n = 0
		for i := range t.Kept {
			if t.TimeNs[i] >= e.cut && t.Steps[i] == 1 && e.marks[t.TimeNs[i]] > 0 {
				e.marks[t.TimeNs[i]]++
			}
			if e.marks[t.TimeNs[i]] == 1+reconstruct.Lags {
				e.n++
			}
		}
	}
	return e, nil
}

// evidenceCut returns the start of the first step after 80 % of the recorded ones.
func (s *Steps) evidenceCut() int64 {
	n := len(s.Run.Steps)
	if n == 0 {
		return 0
	}
	return s.Run.Steps[min(n-1, int(math.Ceil(DefaultSplit*float64(n))))].TsStartNs
}

// evidenceMarks returns a map from the start of every interval that may be evidence to 1; the
// caller adds one for each lag that has a row there.
func (s *Steps) evidenceMarks() map[int64]int {
	marks := make(map[int64]int)
	steps := s.Run.Steps
	for k := reconstruct.Lags - 1; k+1 < len(steps); k++ {
		if steps[k+1].ID-steps[k-2].ID == reconstruct.Lags && s.hasPrefill(k) {
			marks[steps[k].TsStartNs] = 1
		}
	}
	return marks
}

// hasPrefill reports whether recorded steps k-2..k are busy and known and one of them has enough
// prefill tokens to show the lag.
func (s *Steps) hasPrefill(k int) bool {
	most := 0.0
	for j := k - reconstruct.Lags + 1; j <= k; j++ {
		id := s.Run.Steps[j].ID
		if !s.compact(id).known() || !isBusy(&s.Run.Steps[j]) {
			return false
		}
		most = max(most, s.prefillTokens(id))
	}
	return most > evidenceTokens
}
