// Package pipeline is the program, and our table of contents: the stages in order.
// Each stage reads what the one before left in the output folder, so that every
// stage can be run alone and Run writes the same bytes as the stages one by one.
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

	"github.com/blis-train/blis-train/pipeline/extract"
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
	return []option.Table{o.Extract.Table(), o.Fit.learning(), o.Validate.Table().Without("fit", "coefficients", "force")}
}

// RunResult is what the stages of a run made; nil where it did not come to that.
type RunResult struct {
	Extract    *result.Extract    `json:"extract"`
	Fit        *result.Fit        `json:"fit"`
	Validation *result.Validation `json:"validation"`
}

// Run extracts, fits, validates and writes coefficients.yaml with the gates. A gate
// that fails is no error: the validation says so. What follows the extraction are the
// tasks of a plan, done here.
func Run(ctx context.Context, inputs []string, o RunOptions) (*RunResult, error) {
	got := &RunResult{}
	plan := o.plan()
	plan.Build += " " + extract.Program() // another one does again what a killed process did
	if err := o.check(); err != nil {
		return got, err
	}
	runs, err := discovered(inputs, &o.Extract)
	if err != nil {
		return got, err
	}
	release, err := folder.Claim(o.Extract.Out, o.Extract.Force)
	if err != nil {
		return got, err
	}
	defer release()
	var entries []*extract.Entry
	if got.Extract, entries, err = extractRuns(ctx, runs, o.Extract); got.Extract != nil {
		o.tell(got.Extract)
	}
	if err != nil {
		return got, err
	}
	c, err := begin(ctx, entries, plan, &o)
	if err != nil {
		return got, err
	}
	defer c.end()
	c.ext = got.Extract
	if _, err = c.fit(); err == nil {
		err = c.fitted(ctx, got)
	}
	if err == nil {
		_, err = c.judge()
	}
	if err == nil {
		err = c.judged(ctx, got)
	}
	return got, err
}

// check makes the stages agree and refuses mistakes in any of their options.
func (o *RunOptions) check() error {
	o.Fit.Out, o.Validate.Out = o.Extract.Out, o.Extract.Out
	o.Fit.Config, o.Validate.Config = o.Extract.Config, o.Extract.Config
	if err := o.Fit.resolved(); err != nil {
		return err
	}
	if err := errors.Join(o.Fit.checkRequests(), o.Validate.check()); err != nil {
		return err
	}
	if o.Fit.From != "" {
		if _, err := o.Fit.fromRequests(&result.Extract{}); err != nil {
			return err
		}
	}
	return o.Validate.readBaseline()
}

// tell tells who asked of a document.
func (o *RunOptions) tell(doc any) {
	if o.Done != nil {
		o.Done(doc)
	}
}
