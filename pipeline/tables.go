package pipeline

// This file finds the extracted tables of the runs of an output folder.

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/reconstruct/logged"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Tables is the input of Fit and Validate: extract.json and the tables of the runs that it lists.
type Tables struct {
	*result.Extract
	Dir      string            // output folder with tables/run=ID
	At       map[string]string // output folder of a run, by its id, where it is not Dir
	Warnings []trace.Finding   // about damaged files; documents made from the tables repeat them
}

// ReadTables returns the tables of an output folder, after it has read extract.json and checked
// that the tables are unchanged. warn, which may be nil, is called with warnings about damage as
// they are found.
func ReadTables(dir string, warn func([]trace.Finding)) (Tables, error) {
	heard := warnings{tell: warn}
	ext, err := extract.ReadDocument(dir, heard.add)
	return Tables{Extract: ext, Dir: dir, Warnings: heard.found}, err
}

// runDir returns the folder of a run's tables.
func (t *Tables) runDir(id string) string { return table.RunDir(cmp.Or(t.At[id], t.Dir), id) }

// FitSources returns a fit source for every run.
func (t *Tables) FitSources() []fit.Source {
	sources := make([]fit.Source, len(t.Runs))
	for i := range t.Runs {
		sources[i] = FitSource(t.runDir(t.Runs[i].ID), &t.Runs[i])
	}
	return sources
}

// FitSources returns a fit source for every run of an output folder.
func FitSources(dir string, ext *result.Extract) []fit.Source {
	t := Tables{Extract: ext, Dir: dir}
	return t.FitSources()
}

// FitSource returns the fit source of a run whose tables are in dir.
func FitSource(dir string, r *result.ExtractRun) fit.Source {
	s := fit.Source{
		ID:         r.ID,
		Deployment: *stepsOn(r),
		Most:       mostRows(r),
		Load:       func() (*trace.Run, error) { return readRun(dir, r.Deployment) },
		Judge:      func(run *trace.Run) (string, []rows.Span) { return rows.JudgeLoad(run, r.Deployment) },
	}
	if table.Len[trace.Step](dir, table.Steps) > rows.SliceSteps && table.Len[trace.Iteration](dir, table.Iterations) == 0 {
		s.Slices = func(atOnce int, visit func(int, *trace.Run) error) error {
			return table.EachSlice(dir, rows.SliceSteps, rows.SliceMargin, atOnce, visit)
		}
	}
	return s
}

// ValidateSources returns a validation source for every run. Runs that the fit used are training
// runs, the others test runs.
func (t *Tables) ValidateSources(f *result.Fit) []validate.Source {
	sources := make([]validate.Source, len(t.Runs))
	for i := range t.Runs {
		r := &t.Runs[i]
		dir := t.runDir(r.ID)
		training := f != nil && slices.ContainsFunc(f.Runs, func(u result.FitRun) bool { return u.ID == r.ID && u.Used })
		sources[i] = validate.Source{
			ID:        r.ID,
			Informs:   whyNotDecisive(r, f),
			Capped:    whyCapped(r, f),
			Most:      mostRows(r),
			Config:    stepsOn(r).Config(),
			Levels:    levelsOf(r.ID, f),
			Extracted: r.Warnings,
			Counted:   r.Counted,
			Training:  training,
			Load: func() (*trace.Run, *deploy.Deployment, error) {
				run, err := readRun(dir, r.Deployment)
				return run, stepsOn(r), err
			},
		}
		if dep := stepsOn(r); dep != r.Deployment {
			sources[i].Drafts = &validate.Drafts{Deployment: r.Deployment, Counted: r.Drafts}
		}
		if training && f.Requests != nil {
			sources[i].Cached = f.Requests.CachedShare
		}
	}
	return sources
}

// mostRows returns an upper bound of the number of measurements of a target in a run: one for each
// step, or one for each request.
func mostRows(r *result.ExtractRun) int64 {
	return max(r.Tables[table.Steps], r.Tables[table.Iterations], r.Tables[table.Requests])
}

// levelsOf returns the predicted load levels of a fit if they belong to run id, else nil. All levels
// belong to the first run that has some.
func levelsOf(id string, f *result.Fit) []result.LevelHoldout {
	if f == nil || f.Requests == nil || len(f.Requests.Levels) == 0 || f.Requests.Levels[0].Run != id {
		return nil
	}
	return f.Requests.Levels
}

// whyNotDecisive returns the reason why the replay of a run decides no gate of coefficients that were
// fitted to requests of clients: its load levels are validated with those of another run, or not at
// all. It is empty where the replay decides.
func whyNotDecisive(r *result.ExtractRun, f *result.Fit) string {
	if f == nil || f.Requests == nil {
		return ""
	}
	if r.Tables[table.Points] > 0 && len(f.Requests.Levels) > 0 && f.Requests.Levels[0].Run != r.ID {
		return "its load levels are validated with those of " + f.Requests.Levels[0].Run
	}
	if i := slices.IndexFunc(f.Runs, func(u result.FitRun) bool { return u.ID == r.ID }); i >= 0 && f.Runs[i].Reason == requestfit.LevelsNotFitted {
		return requestfit.LevelsNotFitted
	}
	return ""
}

// whyCapped returns the reason why the replay of a run whose client waited for answers decides no
// gate, unless the load is replayed as a closed loop: its recorded arrivals follow the recorded
// server. It is empty for other runs, and for coefficients that were not fitted to requests.
func whyCapped(r *result.ExtractRun, f *result.Fit) string {
	isCapped := func(f trace.Finding) bool { return f.Code == clients.CodeCapped }
	if f == nil || f.Requests == nil || !slices.ContainsFunc(r.Warnings, isCapped) {
		return ""
	}
	return string(clients.CodeCapped) + ": the client waited for answers, so arrivals followed the server"
}

// stepsOn returns the deployment with which the features of a run's steps are computed. Logged
// iterations count drafted tokens as computed ones, so for them it has no draft model.
func stepsOn(r *result.ExtractRun) *deploy.Deployment {
	if r.Tables[table.Iterations] > 0 && r.Tables[table.Steps] == 0 {
		return r.Deployment.WithoutDrafts()
	}
	return r.Deployment
}

// readRun returns a run from its tables, with reconstructed steps if it has only iterations of an
// unmodified engine. also names further tables to read.
func readRun(dir string, dep *deploy.Deployment, also ...string) (*trace.Run, error) {
	run, err := table.ReadLean(dir, also...)
	if err != nil {
		return nil, err
	}
	return run, logged.Fill(run, dep)
}

// Batches returns how many batches of an extracted run could be rebuilt, for extract.json
// (spec#members).
func Batches(runDir string, dep *deploy.Deployment) (result.StepQuality, error) {
	run, err := readRun(runDir, dep)
	if err != nil {
		return result.StepQuality{}, err
	}
	steps, err := rows.Rebuild(run, dep, features.DefaultVersion(dep))
	if err != nil {
		return result.StepQuality{}, err
	}
	return steps.Quality.StepQuality, nil
}

// warnings collects findings about the files that a stage reads, for the documents made from them.
// It also passes each on to tell at once.
type warnings struct {
	tell  func([]trace.Finding) // may be nil
	found []trace.Finding
}

// add appends findings and passes them on to tell.
func (w *warnings) add(found []trace.Finding) {
	if w.tell != nil {
		w.tell(found)
	}
	w.found = append(w.found, found...)
}

// joinFindings returns findings about files followed by a document's own.
func joinFindings(files, own []trace.Finding) []trace.Finding {
	if len(files) == 0 {
		return own
	}
	return slices.Concat(files, own)
}
