package pipeline

import (
	"context"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
)

// ValidateSet judges any coefficient set on the runs of an output folder. f is
// the report of the fit that made it; nil when there is none: then every run is
// a test run, and what only the fit knows is not judged.
func ValidateSet(ctx context.Context, out string, ext *result.Extract, set *coeff.Set, f *result.Fit, o validate.Options, h result.Header) (*result.Validation, error) {
	doc, err := validate.Run(ctx, set, f, ValidateSources(out, ext, f), o)
	if err != nil {
		return nil, err
	}
	h.Inputs = ext.Inputs
	doc.Header = h
	return doc, nil
}
