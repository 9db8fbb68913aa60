package pipeline

import (
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/client"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/rows/aggregate"
	"github.com/blis-train/blis-train/pipeline/score"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/pipeline/validate/saturation"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// FitSources are the extracted runs of an output folder as inputs of a fit.
func FitSources(out string, ext *result.Extract) []fit.Source {
	sources := make([]fit.Source, len(ext.Runs))
	for i := range ext.Runs {
		sources[i] = fitSource(out, &ext.Runs[i])
	}
	return sources
}

func fitSource(out string, r *result.ExtractRun) fit.Source {
	dir := table.RunDir(out, r.ID)
	s := fit.Source{
		ID: r.ID, Deployment: *r.Deployment, Most: mostRows(r),
		Load:  func() (*trace.Run, error) { return readRun(dir, r.Deployment) },
		Judge: func(run *trace.Run) (string, []rows.Span) { return saturation.Judge(run, r.Deployment) },
	}
	if table.Len[trace.Step](dir, table.Steps) > rows.SliceSteps && table.Len[trace.Iteration](dir, table.Iterations) == 0 {
		s.Slices = func(visit func(*trace.Run) error) error {
			return table.EachSlice(dir, rows.SliceSteps, rows.SliceMargin, visit)
		}
	}
	return s
}

// mostRows is how many rows of a target a run can have at most: one a step, or one a request.
func mostRows(r *result.ExtractRun) int64 {
	return max(r.Tables[table.Steps], r.Tables[table.Iterations], r.Tables[table.Requests])
}

// readRun reads a run as every stage wants it: the steps of an unmodified engine
// are made from its iterations.
func readRun(dir string, dep *deploy.Deployment, also ...string) (*trace.Run, error) {
	run, err := table.ReadLean(dir, also...)
	if err != nil {
		return nil, err
	}
	return run, aggregate.Fill(run, dep)
}

// Batches rebuilds the batches of one extracted run, under version 1.1, for the
// figures of extract.json (spec#members).
func Batches(runDir string, dep *deploy.Deployment) (result.StepQuality, error) {
	run, err := readRun(runDir, dep)
	if err != nil {
		return result.StepQuality{}, err
	}
	steps, err := rows.Rebuild(run, dep, features.V11)
	if err != nil {
		return result.StepQuality{}, err
	}
	return score.StepQuality(steps.Quality), nil
}

// capped says why the replay of a client that held requests back decides nothing about
// coefficients that were learned from what clients saw. Journeys decide: the server
// recorded when requests came.
func capped(r *result.ExtractRun, f *result.Fit) string {
	if f != nil && f.Requests != nil && slices.ContainsFunc(r.Warnings, func(f trace.Finding) bool { return f.Code == client.CodeCapped }) {
		return string(client.CodeCapped) + ": the client waited for answers, so arrivals followed the server"
	}
	return ""
}

// validateSources are the same runs as inputs of a validation.
func validateSources(out string, ext *result.Extract, f *result.Fit) []validate.Source {
	sources := make([]validate.Source, len(ext.Runs))
	for i := range ext.Runs {
		sources[i] = validateSource(out, &ext.Runs[i], f)
	}
	return sources
}

// validateSource is one of them. A run that the fit used is a training run, another one a
// test run.
func validateSource(out string, r *result.ExtractRun, f *result.Fit) validate.Source {
	return validate.Source{
		ID: r.ID, Informs: capped(r, f), Most: mostRows(r), Config: r.Deployment.Config(),
		Training: f != nil && slices.ContainsFunc(f.Runs, func(u result.FitRun) bool { return u.ID == r.ID && u.Used }),
		Load: func() (*trace.Run, *deploy.Deployment, error) {
			run, err := readRun(table.RunDir(out, r.ID), r.Deployment)
			return run, r.Deployment, err
		},
	}
}
