package pipeline

// This file is the stage inspect: the quality of recordings before any fit.

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// InspectOptions are the options of an inspection. Recordings are extracted into a temporary
// folder. inspect.json is written to Extract.Out; if that is "", it is not written.
type InspectOptions struct {
	Extract  ExtractOptions
	Identify bool // also report which terms the data determine
	Points   int  // load levels to propose for each deployment; 0: none
}

// DefaultInspectOptions returns the options that the command line has by default.
func DefaultInspectOptions() InspectOptions { return InspectOptions{Extract: DefaultExtractOptions()} }

// Inspect returns what recordings, or folders that Extract has written, can be used for, before any
// fit. If more of a run is unreadable than allowed, the document is returned together with an
// error.
func Inspect(ctx context.Context, inputs []string, o InspectOptions) (*result.Inspect, error) {
	if o.Points < 0 {
		return nil, option.Misusef("inspect --points: got %d, want a number of load levels", o.Points)
	}
	if o.Extract.Out != "" {
		release, err := folder.Claim(o.Extract.Out, o.Extract.Force)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	doc, err := o.inspectAll(ctx, inputs)
	if doc == nil || err != nil || o.Extract.Out == "" {
		return doc, err
	}
	return doc, folder.WriteDocument(filepath.Join(o.Extract.Out, folder.InspectFile), doc)
}

// inspectAll returns the inspection of extracted folders, and of other inputs after it has
// extracted them.
func (o *InspectOptions) inspectAll(ctx context.Context, inputs []string) (*result.Inspect, error) {
	folders, raw := Extracted(inputs)
	if o.Identify && len(folders) > 0 && len(inputs) > 1 {
		return nil, option.Misusef("inspect --identify: got %d extracted folders and %d others, want one extracted folder or run directories",
			len(folders), len(raw))
	}
	var doc *result.Inspect
	for _, f := range folders {
		one, err := o.inspectFolder(ctx, f)
		if err != nil {
			return nil, err
		}
		doc = joinInspect(doc, one)
	}
	if len(raw) == 0 {
		return doc, nil
	}
	one, err := o.inspectRecordings(ctx, raw)
	if one == nil {
		return nil, err
	}
	return joinInspect(doc, one), err
}

// Extracted returns the inputs that are folders which Extract has written, and the others.
func Extracted(inputs []string) (folders, others []string) {
	for _, in := range inputs {
		if _, err := os.Stat(filepath.Join(in, folder.ExtractFile)); err == nil {
			folders = append(folders, in)
		} else {
			others = append(others, in)
		}
	}
	return folders, others
}

// inspectFolder returns the inspection of an extracted folder.
func (o *InspectOptions) inspectFolder(ctx context.Context, dir string) (*result.Inspect, error) {
	heard := warnings{tell: o.Extract.Warn}
	ext, err := extract.ReadDocument(dir, heard.add)
	if err != nil {
		return nil, err
	}
	var f *result.Fit
	if _, err := os.Stat(filepath.Join(dir, folder.FitFile)); err == nil {
		f = &result.Fit{}
		if err := folder.ReadDocument(filepath.Join(dir, folder.FitFile), f, heard.add); err != nil {
			return nil, err
		}
	}
	doc, err := o.inspected(ctx, dir, ext, f)
	if err == nil {
		doc.Warnings = joinFindings(heard.found, doc.Warnings)
	}
	return doc, err
}

// inspectRecordings returns the inspection of recordings, which it extracts to a temporary folder.
func (o *InspectOptions) inspectRecordings(ctx context.Context, inputs []string) (*result.Inspect, error) {
	dir, remove, err := files.Temporary("", "blis-train-inspect-")
	if err != nil {
		return nil, err
	}
	defer remove()
	x := o.Extract
	x.Out = dir
	runs, err := discovered(inputs, &x)
	if err != nil {
		return nil, err
	}
	ext, err := extract.Run(ctx, runs, x.Options)
	if ext == nil {
		return nil, err
	}
	doc, more := o.inspected(ctx, dir, ext, nil)
	return doc, errors.Join(err, more)
}

// inspected returns the inspection of an extracted folder; with o.Identify it also states which terms
// the runs determine.
func (o *InspectOptions) inspected(ctx context.Context, dir string, ext *result.Extract, f *result.Fit) (*result.Inspect, error) {
	t := Tables{Extract: ext, Dir: dir}
	doc, err := inspectTables(ctx, ext, folder.Header("inspect", o.Extract.Config), o.Extract.Progress, t.validationInput(ctx, f, nil).Inspect)
	if err != nil || !o.Identify && o.Points == 0 {
		return doc, err
	}
	doc.Command = option.Command("inspect", o.recordedFlags())
	for i := range ext.Runs {
		if o.Points > 0 {
			if doc.Runs[i].Planned, err = requestfit.PlanPoints(ctx, ext.Runs[i].Deployment, o.Points); err != nil {
				return nil, err
			}
		}
	}
	if !o.Identify {
		return doc, nil
	}
	doc.Identify, err = fit.Identify(ctx, t.FitSources(), fit.DefaultOptions())
	return doc, err
}

// joinInspect returns a, which may be nil, with the runs of b after its own.
func joinInspect(a, b *result.Inspect) *result.Inspect {
	if a == nil {
		return b
	}
	a.Inputs = append(a.Inputs, b.Inputs...)
	a.Runs = append(a.Runs, b.Runs...)
	a.Unfit = append(a.Unfit, b.Unfit...)
	a.Warnings = append(a.Warnings, b.Warnings...)
	a.Pass = a.Pass && b.Pass
	return a
}

// inspectTables returns the document with the inspections of the runs of ext, in their order. The
// function inspect makes the inspection of one run.
func inspectTables(ctx context.Context, ext *result.Extract, h result.Header, progress trace.Progress,
	inspect func(*result.ExtractRun) (result.InspectRun, error)) (*result.Inspect, error) {
	doc := &result.Inspect{Header: h, Runs: []result.InspectRun{}, Unfit: []string{}, Warnings: []trace.Finding{}}
	doc.Inputs = ext.Inputs
	for i := range ext.Runs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		got, err := inspect(&ext.Runs[i])
		if err != nil {
			return nil, err
		}
		doc.Runs = append(doc.Runs, got)
		if got.Unfit {
			doc.Unfit = append(doc.Unfit, got.ID)
		}
		progress.Report("inspect", int64(i+1), int64(len(ext.Runs)), "runs")
	}
	doc.Pass = len(doc.Unfit) == 0
	return doc, nil
}

// InspectRun returns the inspection of a run whose tables are in dir. The lag (steps from
// schedule() to the execution) and its evidence come from the fit f; they are measured if f is nil.
func InspectRun(ctx context.Context, dir string, r *result.ExtractRun, f *result.Fit) (result.InspectRun, error) {
	var also []string
	if r.Tables[table.Steps] == 0 { // the clocks of other runs are compared by their steps
		also = append(also, table.JourneyEvents)
	}
	run, err := readRun(dir, r.Deployment, also...)
	if err != nil {
		return result.InspectRun{}, err
	}
	in := validate.Inspection{Extract: r}
	if f == nil { // a run whose batches cannot be rebuilt has no lag evidence
		src := fit.Source{ID: r.ID, Deployment: *stepsOn(r), Load: func() (*trace.Run, error) { return run, nil }}
		if lag, evidence, err := fit.MeasureLag(ctx, src, fit.DefaultOptions()); err == nil {
			in.Lag, in.Evidence = &lag, evidence
		}
	} else {
		in = inspectionOf(r, f)
	}
	got, err := validate.Inspect(run, stepsOn(r), in)
	if err != nil {
		return got, err
	}
	addToInspection(&got, run, r)
	return got, nil
}

// inspectionOf returns what extraction and the fit have found out about a run.
func inspectionOf(r *result.ExtractRun, f *result.Fit) validate.Inspection {
	in := validate.Inspection{Extract: r}
	if lag, ok := f.Beta.PipelineLag[r.ID]; ok {
		in.Lag = &lag
	}
	for _, e := range f.Beta.LagEvidence {
		if e.Run == r.ID {
			in.Evidence = append(in.Evidence, e)
		}
	}
	return in
}

// addToInspection adds what the extraction warned of, and what a fit can learn from the requests.
func addToInspection(got *result.InspectRun, run *trace.Run, r *result.ExtractRun) {
	got.Findings = append(got.Findings, r.Warnings...)
	requestfit.Inspect(got, run, r.Deployment)
}
