// Package pipeline has the stages of the program, in order. Each stage reads what
// the one before wrote to the output folder, so that every stage can run alone, and
// Run writes the same bytes as the stages one by one. FitDocument and ValidateAndWrite are the
// stages fit and validate for callers that have already read their input.
//
//	Extract   recordings      -> OUT/tables, OUT/extract.json
//	Fit       tables          -> OUT/fit.json, OUT/coefficients.yaml
//	Validate  fit + tables    -> OUT/validation.json, OUT/report.html
//	Run       all of them, with the gates in OUT/coefficients.yaml
//	Export    fit (+ gates)   -> formats of other programs
//	Simulate  coefficients    -> OUT/simulation.json, OUT/requests.parquet
//	Inspect   recordings      -> whether they can be fitted
//
// Every stage has options with defaults (such as DefaultFitOptions) and one list of
// them as flags (FitOptions.Flags), from which the command line and the command
// recorded in documents come. Invalid options are an [option.Misuse]. A stage stops
// when its context ends. A file gets its name when it is complete.
package pipeline

import (
	"context"
	"errors"
	"slices"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
)

// RunOptions are the options of a run of the whole pipeline. Out, Force, Workers and Config of the
// extraction apply to every stage.
type RunOptions struct {
	Extract  ExtractOptions
	Fit      FitOptions
	Validate ValidateOptions
	// Done is called with every stage's document before the next stage begins; it may be nil.
	Done func(doc any)
}

// DefaultRunOptions returns the defaults of the command line. Extract.Out has none.
func DefaultRunOptions() RunOptions {
	return RunOptions{Extract: DefaultExtractOptions(), Fit: DefaultFitOptions(), Validate: DefaultValidateOptions()}
}

// RunResult has the documents of the stages; nil for stages that were not reached.
type RunResult struct {
	Extract    *result.Extract    `json:"extract"`
	Fit        *result.Fit        `json:"fit"`
	Validation *result.Validation `json:"validation"`
}

// Brief returns the result as the summary prints it: without curves, the selection grid, single
// replays, covariances, other models, deployments, and gates that passed.
func (r *RunResult) Brief() *RunResult {
	var out RunResult
	if r.Extract != nil {
		e := *r.Extract
		e.Runs = slices.Clone(e.Runs)
		for i := range e.Runs {
			e.Runs[i].Deployment = nil
			e.Runs[i].Scopes = nil
			e.Runs[i].Files = nil
			e.Runs[i].TableFiles = nil
		}
		out.Extract = &e
	}
	if r.Fit != nil {
		f := *r.Fit
		f.Inputs = nil
		f.Configs = nil
		f.Models = nil
		f.Beta = briefModel(f.Beta)
		f.Alpha = slices.Clone(f.Alpha)
		for i := range f.Alpha {
			f.Alpha[i] = briefModel(f.Alpha[i])
		}
		out.Fit = &f
	}
	if r.Validation != nil {
		v := *r.Validation
		v.Inputs = nil
		v.Runs = nil
		v.Figures = nil
		v.Gates = slices.DeleteFunc(slices.Clone(v.Gates), func(g result.Gate) bool { return g.Pass != nil && *g.Pass })
		out.Validation = &v
	}
	return &out
}

// briefModel returns a model without what Brief omits.
func briefModel(m result.Model) result.Model {
	m.Grid = nil
	m.Covariance = nil
	m.Cells = nil
	m.Figures = nil
	m.StressSets = nil
	m.ResidualQuant = nil
	m.Drift = nil
	m.TargetAudit = nil
	m.LagEvidence = nil
	m.FoldFingerprints = nil
	m.Loco = nil
	m.AlphaRuns = nil
	return m
}

// Run extracts, fits and validates the inputs, writes coefficients.yaml with the gates, and returns
// the documents. A failed gate is not an error but part of the validation.
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
	if got.Validation, err = ValidateAndWrite(ctx, t.validationInput(ctx, got.Fit, old), o.Validate); err != nil {
		return got, err
	}
	o.Tell(got.Validation)
	return got, nil
}

// Check copies the output folder and configuration of the extraction to all stages, and checks
// their options.
func (o *RunOptions) Check() error {
	o.Fit.Out = o.Extract.Out
	o.Validate.Out = o.Extract.Out
	o.Fit.Config = o.Extract.Config
	o.Validate.Config = o.Extract.Config
	return errors.Join(o.Fit.check(), o.Validate.check())
}

// Tell calls Done, if set, with the document of a stage.
func (o *RunOptions) Tell(doc any) {
	if o.Done != nil {
		o.Done(doc)
	}
}
