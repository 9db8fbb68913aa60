package pipeline

import (
	"context"

	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/validate/inspect"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Inspect reports the data quality of the runs of an output folder, in its
// order. f adds the lag and its evidence where there is a fit; nil without one.
func Inspect(ctx context.Context, out string, ext *result.Extract, f *result.Fit, h result.Header, progress trace.Progress) (*result.Inspect, error) {
	doc := &result.Inspect{Header: h, Runs: []result.InspectRun{}, Unfit: []string{}, Warnings: []trace.Finding{}}
	doc.Inputs = ext.Inputs
	for i := range ext.Runs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r := &ext.Runs[i]
		run, err := table.ReadLean(RunDir(out, r.ID), table.JourneyEvents)
		if err != nil {
			return nil, err
		}
		in := inspection(r, f)
		if f == nil {
			in.measureLag(run, r)
		}
		got, err := inspect.Inspect(run, r.Deployment, in.Inspection)
		if err != nil {
			return nil, err
		}
		got.Findings = append(got.Findings, r.Warnings...)
		doc.Runs = append(doc.Runs, got)
		if got.Unfit {
			doc.Unfit = append(doc.Unfit, got.ID)
		}
		progress.Report("inspect", int64(i+1), int64(len(ext.Runs)), "runs")
	}
	doc.Pass = len(doc.Unfit) == 0
	return doc, nil
}

// Identify says what the runs of an output folder can tell apart.
func Identify(ctx context.Context, out string, ext *result.Extract) (*result.Identify, error) {
	return fit.Identify(ctx, FitSources(out, ext), fit.DefaultOptions())
}

// seen is what is known about a run before it is inspected.
type seen struct{ inspect.Inspection }

// measureLag stands in for the fit's evidence. A run whose batches cannot be
// rebuilt has none: its findings say why.
func (s *seen) measureLag(run *trace.Run, r *result.ExtractRun) {
	lag, evidence, err := fit.MeasureLag(fit.Source{ID: r.ID, Deployment: *r.Deployment, Load: func() (*trace.Run, error) { return run, nil }}, fit.DefaultOptions())
	if err == nil {
		s.Lag, s.Evidence = &lag, evidence
	}
}

// inspection is what extraction and the fit know about a run.
func inspection(r *result.ExtractRun, f *result.Fit) seen {
	in := seen{inspect.Inspection{Extract: r}}
	if f == nil {
		return in
	}
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
