package fit

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
	// Slices visits a recording too long for Load in slices that are valid during the visit; nil: Load has all of it.
	Slices func(visit func(*trace.Run) error) error
	// Most is how many rows of a target the run can have at most; 0: unknown, it counts for none.
	Most int64
	// Stride: one row in so many is learned from (Options.MaxRows); up to 1: all.
	Stride int
	// Judge returns why a run counts as saturated (empty when it does not) and which
	// spans of it do; nil: nothing is saturated.
	Judge func(*trace.Run) (reason string, spans []rows.Span)
	// Rows is a folder with the rows of the run, made of the same recording under the
	// same options; "": they are made.
	Rows string
}

// Without leaves out the named runs; a name without a run is an error.
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

// RowsLearned decides how many rows of each source are learned from, and warns where not all are.
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

// visitParts visits a source slice by slice, or as a whole if it has no slices.
func visitParts(src Source, o Options, visit func(Source) error) error {
	if src.Slices == nil || o.BetaOnly {
		return visit(src)
	}
	return src.Slices(func(run *trace.Run) error {
		part := src
		part.Load = func() (*trace.Run, error) { return run, nil }
		part.Slices = nil
		return visit(part)
	})
}

// errEnough ends a visit of slices after the first.
var errEnough = errors.New("enough")
