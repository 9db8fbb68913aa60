package fit

// This file has what a fit of steps starts from: one run, its recording and how much of it is fitted.

import (
	"errors"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
)

// Source is one run to fit.
type Source struct {
	ID         string
	Deployment deploy.Deployment
	Load       func() (*trace.Run, error)
	// Slices visits, slice by slice, a recording that is too long for Load, and numbers the slices from 0.
	// A slice is valid only during its visit. Up to atOnce of them are visited at the same time, which
	// begin in order. nil: Load returns the whole recording.
	Slices func(atOnce int, visit func(k int, slice *trace.Run) error) error
	// Most is an upper bound of the run's rows of a target; 0: unknown, and Options.MaxRows ignores the run.
	Most int64
	// Stride: every Stride-th row is fitted, because of Options.MaxRows; up to 1: all rows.
	Stride int
	// Judge returns why a run counts as saturated, empty if it does not, and its saturated spans.
	// nil: nothing is saturated.
	Judge func(*trace.Run) (reason string, spans []rows.Span)
	// Rows is a folder with the rows of the run, which StoreRows wrote under the same options;
	// "": the rows are made from the recording.
	Rows string
}

// reserveRows makes room for the rows of the whole run in the table of its first slice, which those
// of the other slices are joined to. Growing slice by slice would copy the rows several times.
func (s *Source) reserveRows(t *rows.Table) {
	if s.Slices != nil && t != nil {
		t.Reserve(rows.Expected(int(s.Most), s.Stride))
	}
}

// Without returns the sources except the named runs. A name that no run has is an error.
func Without(sources []Source, names []string) ([]Source, error) {
	for _, name := range names {
		k := slices.IndexFunc(sources, func(s Source) bool { return s.ID == name })
		if k < 0 {
			return nil, trace.Errorf(rows.BadOption, "--without: no run %q", name).WithHint("blis-train inspect OUT names the runs")
		}
		sources = slices.Delete(sources, k, k+1)
	}
	return sources, nil
}

// RowsLearned sets how many rows of each source are fitted, and returns a warning if those are not
// all.
func RowsLearned(sources []Source, maxRows int) []trace.Finding {
	var most []int64
	var configs []string
	for i := range sources {
		most = append(most, sources[i].Most)
		configs = append(configs, sources[i].Deployment.Config())
	}
	strides, found := rows.Strides(most, configs, maxRows)
	for i := range sources {
		sources[i].Stride = strides[i]
	}
	return found
}

// visitParts visits a source slice by slice, or once if it has no slices or its rows are stored. k is
// the number of the slice, from 0. Several may be visited at the same time (Options.slicesAtOnce).
func visitParts(src Source, o Options, visit func(k int, part Source) error) error {
	if src.Slices == nil || src.Rows != "" || o.BetaOnly {
		return visit(0, src)
	}
	return src.Slices(o.slicesAtOnce, func(k int, run *trace.Run) error {
		part := src
		part.Load = func() (*trace.Run, error) { return run, nil }
		part.Slices = nil
		return visit(k, part)
	})
}

// errEnough is what MeasureLag returns from its visit to stop it after the first slice.
var errEnough = errors.New("enough")
