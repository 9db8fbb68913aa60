// Package pipeline is the program, and our table of contents: the stages in order.
// Each stage reads what the one before left in the output folder, so that every
// stage can be run alone and Run writes the same bytes as the stages one by one.
// FitDocument and Judge are two of them without the reading: on tables and a fit that
// the caller has.
//
//	Extract   recordings      -> OUT/tables, OUT/extract.json
//	Fit       tables          -> OUT/fit.json, OUT/coefficients.yaml
//	Validate  fit + tables    -> OUT/validation.json, OUT/report.html
//	Run       all of them, with the gates in OUT/coefficients.yaml
//	Export    fit (+ gates)   -> other people's formats
//	Simulate  coefficients    -> OUT/simulation.json, OUT/requests.parquet
//	Inspect   recordings      -> whether they are fit to fit
//
// Every stage has options with defaults (DefaultFitOptions) and one table of them
// (FitOptions.Table): the command line's flags and the recorded command come from
// it. A mistake in the options is an [option.Misuse]. A context that ends ends a
// stage; files get their names when they are complete.
package pipeline

import (
	"context"
	"errors"

	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/result"
)

// RunOptions decide a run of the whole pipeline. Out, Force, Workers and Config of
// the extraction hold for every stage.
type RunOptions struct {
	Extract  ExtractOptions
	Fit      FitOptions
	Validate ValidateOptions
	// Done is told of every stage's document before the next stage begins; nil:
	// nobody asks.
	Done func(doc any)
}

// DefaultRunOptions are those of the command line but for Extract.Out, which has none.
func DefaultRunOptions() RunOptions {
	return RunOptions{Extract: DefaultExtractOptions(), Fit: DefaultFitOptions(), Validate: DefaultValidateOptions()}
}

// Tables are the options of the stages; what several have under one name is one
// option of a run.
func (o *RunOptions) Tables() []option.Table {
	return []option.Table{o.Extract.Table(), o.Fit.Learning(), o.Validate.Table().Without("fit", "coefficients", "force")}
}

// RunResult is what the stages of a run made; nil where it did not come to that.
type RunResult struct {
	Extract    *result.Extract    `json:"extract"`
	Fit        *result.Fit        `json:"fit"`
	Validation *result.Validation `json:"validation"`
}

// Run extracts, fits, validates and writes coefficients.yaml with the gates. A gate
// that fails is no error: the validation says so.
func Run(ctx context.Context, inputs []string, o RunOptions) (*RunResult, error) {
	got := &RunResult{}
	if err := o.Check(); err != nil {
		return got, err
	}
	runs, err := discovered(inputs, &o.Extract)
	if err != nil {
		return got, err
	}
	old, err := o.Validate.ReadBaseline()
	if err != nil {
		return got, err
	}
	release, err := folder.Claim(o.Extract.Out, o.Extract.Force)
	if err != nil {
		return got, err
	}
	defer release()
	if got.Extract, err = extractRuns(ctx, runs, o.Extract); got.Extract != nil {
		o.Tell(got.Extract)
	}
	if err != nil {
		return got, err
	}
	t := Tables{Extract: got.Extract, Dir: o.Extract.Out}
	if got.Fit, err = fitAndWrite(ctx, t, o.Fit); err != nil {
		return got, err
	}
	o.Tell(got.Fit)
	if got.Validation, err = Judge(ctx, t.judged(got.Fit, old), o.Validate); err != nil {
		return got, err
	}
	o.Tell(got.Validation)
	return got, nil
}

// Check makes the stages agree and refuses mistakes in any of their options.
func (o *RunOptions) Check() error {
	o.Fit.Out, o.Validate.Out = o.Extract.Out, o.Extract.Out
	o.Fit.Config, o.Validate.Config = o.Extract.Config, o.Extract.Config
	return errors.Join(o.Fit.check(), o.Validate.check())
}

// Tell tells who asked of a document.
func (o *RunOptions) Tell(doc any) {
	if o.Done != nil {
		o.Done(doc)
	}
}
