package pipeline

import (
	"context"

	"github.com/blis-train/blis-train/pipeline/validate"
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
		run, err := table.Read(RunDir(out, r.ID))
		if err != nil {
			return nil, err
		}
		seen, err := validate.Inspect(run, r.Deployment, inspection(r, f))
		if err != nil {
			return nil, err
		}
		seen.Findings = append(seen.Findings, r.Warnings...)
		doc.Runs = append(doc.Runs, seen)
		if seen.Unfit {
			doc.Unfit = append(doc.Unfit, seen.ID)
		}
		progress.Report("inspect", int64(i+1), int64(len(ext.Runs)), "runs")
	}
	doc.Pass = len(doc.Unfit) == 0
	return doc, nil
}

// inspection is what extraction and the fit know about a run.
func inspection(r *result.ExtractRun, f *result.Fit) validate.Inspection {
	in := validate.Inspection{Extract: r}
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
