// Package pipeline is our table of contents: the stages in order. Each stage
// reads what the one before left in the output folder, so that every stage can
// be run alone and `run` writes the same bytes as the stages one by one.
//
//	Extract   run directories -> OUT/tables, OUT/extract.json
//	Fit       tables          -> OUT/fit.json, OUT/coefficients.yaml
//	Validate  fit + tables    -> OUT/validation.json, OUT/report.html
//	Export    fit (+ gates)   -> coefficient files
package pipeline

import (
	"bytes"
	"context"

	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/report/input"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Fit fits the runs of an output folder. The header's inputs are those of the
// extraction: the files the numbers come from.
func Fit(ctx context.Context, out string, ext *result.Extract, o fit.Options, h result.Header, progress trace.Progress) (*result.Fit, error) {
	doc, err := fit.Fit(ctx, FitSources(out, ext), o, progress)
	if err != nil {
		return nil, err
	}
	h.Inputs = ext.Inputs
	doc.Header = h
	return doc, nil
}

// Artifact is the native coefficient file of a fit, with the gates of a
// validation unless that is nil.
func Artifact(f *result.Fit, v *result.Validation) ([]byte, error) {
	set, err := export.Native(f, v)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = set.Save(&b)
	return b.Bytes(), err
}

// Validate judges a fit on the runs of an output folder.
func Validate(ctx context.Context, out string, ext *result.Extract, f *result.Fit, o validate.Options, h result.Header) (*result.Validation, error) {
	set, err := export.Native(f, nil)
	if err != nil {
		return nil, err
	}
	return ValidateSet(ctx, out, ext, set, f, o, h)
}

// Report is report.html; any document may be nil.
func Report(in input.Input) ([]byte, error) {
	var b bytes.Buffer
	err := report.Render(&b, in)
	return b.Bytes(), err
}
