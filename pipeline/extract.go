package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/pipeline/reconstruct/logged"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Filter chooses runs by id.
type Filter struct {
	Only    []string // globs; none: every run
	Exclude []string // globs
}

func (f *Filter) check() error {
	for _, glob := range slices.Concat(f.Only, f.Exclude) {
		if _, err := path.Match(glob, ""); err != nil {
			return option.Misusef("--only, --exclude: got %q, want a glob over run ids such as 'h100-*'", glob)
		}
	}
	return nil
}

func anyMatches(globs []string, id string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { ok, _ := path.Match(g, id); return ok })
}

// tellIdle tells warn, unless nil, of the globs that no run has.
func (f *Filter) tellIdle(ids []string, warn func([]trace.Finding)) {
	for _, glob := range slices.Concat(f.Only, f.Exclude) {
		if warn != nil && !slices.ContainsFunc(ids, func(id string) bool { return anyMatches([]string{glob}, id) }) {
			warn([]trace.Finding{trace.Findingf(extract.CodeNoRuns, "--only, --exclude: no run is named %q; there are %s", glob, firstIDs(ids))})
		}
	}
}

// Rejected lists the runs of an extracted folder that the filter leaves out; that
// it leaves none is an error. warn, unless nil, hears of globs without a run.
func (f *Filter) Rejected(ext *result.Extract, warn func([]trace.Finding)) ([]string, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	var out, all []string
	for i := range ext.Runs {
		id := ext.Runs[i].ID
		all = append(all, id)
		if anyMatches(f.Exclude, id) || len(f.Only) > 0 && !anyMatches(f.Only, id) {
			out = append(out, id)
		}
	}
	if len(out) > 0 && len(out) == len(all) {
		return nil, trace.Errorf(extract.CodeNoRuns, "--only and --exclude leave no run; there are %s", firstIDs(all))
	}
	f.tellIdle(all, warn)
	return out, nil
}

// firstIDs names the first few runs and counts the rest.
func firstIDs(ids []string) string {
	const most = 8
	if n := len(ids) - most; n > 0 {
		return strings.Join(ids[:most], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(ids, ", ")
}

// ExtractOptions decide an extraction.
type ExtractOptions struct {
	extract.Options
	Filter
	Special bool                  // read pipes and devices given as inputs
	Warn    func([]trace.Finding) // gets the findings that no document holds; may be nil
}

// DefaultExtractOptions are those of the command line but for Out, which has none.
func DefaultExtractOptions() ExtractOptions {
	o := ExtractOptions{Options: extract.DefaultOptions()}
	o.ToolVersion = folder.ToolVersion
	o.Batches = Batches
	return o
}

// Discover finds the runs of folders, parents of folders, globs and dumps.
func Discover(inputs []string, o *ExtractOptions) ([]extract.RunDir, error) {
	if err := o.Filter.check(); err != nil {
		return nil, err
	}
	for _, input := range inputs {
		if err := files.CheckInput(input, o.Special); err != nil {
			return nil, err
		}
	}
	all, err := extract.Find(inputs, o.Set...)
	if err != nil {
		if coded, ok := errors.AsType[*trace.Error](err); ok && coded.Code == deploy.BadSetting {
			return nil, option.Misusef("--set: %s", coded.Msg)
		}
		return nil, err
	}
	runs, err := extract.Select(all, o.Only, o.Exclude)
	if err != nil {
		return nil, err
	}
	if len(runs) == 0 {
		return nil, trace.Errorf(extract.CodeNoRuns, "--only and --exclude leave no run; there are %s", firstIDs(idsOf(all)))
	}
	if len(o.Only)+len(o.Exclude) > 0 {
		o.tellIdle(idsOf(all), o.Warn)
	}
	return runs, nil
}

func idsOf(runs []extract.RunDir) []string {
	var ids []string
	for i := range runs {
		ids = append(ids, runs[i].ID)
	}
	return ids
}

// Extract turns recordings into o.Out/tables and o.Out/extract.json. When more of
// a run is unreadable than o.MaxBadFrac everything is written all the same, and the
// error stands beside the document.
func Extract(ctx context.Context, inputs []string, o ExtractOptions) (*result.Extract, error) {
	runs, err := discovered(inputs, &o)
	if err != nil {
		return nil, err
	}
	release, err := folder.Claim(o.Out, o.Force)
	if err != nil {
		return nil, err
	}
	defer release()
	return extractRuns(ctx, runs, o)
}

// discovered checks the options and finds the runs.
func discovered(inputs []string, o *ExtractOptions) ([]extract.RunDir, error) {
	if o.Out == "" {
		return nil, option.Misusef("missing -o OUT")
	}
	if err := o.Check(); err != nil {
		return nil, &option.Misuse{Msg: err.Error()}
	}
	return Discover(inputs, o)
}

// extractRuns extracts to o.Out, which is ours.
func extractRuns(ctx context.Context, runs []extract.RunDir, o ExtractOptions) (*result.Extract, error) {
	defer extract.BoundMemory()()
	return extract.Run(ctx, runs, o.Options)
}

// Tables are extracted recordings, what Fit and Validate work on: the document of
// the extraction, and where the tables are that it lists.
type Tables struct {
	*result.Extract
	Dir      string            // output folder that holds them
	At       map[string]string // by run: that of the run, where it is another one
	Warnings []trace.Finding   // about the files themselves; they go into what is made of them
}

// ReadTables reads extract.json of an output folder and compares the tables with
// it. warn, unless nil, hears of damage at once.
func ReadTables(dir string, warn func([]trace.Finding)) (Tables, error) {
	heard := warnings{tell: warn}
	ext, err := extract.ReadDocument(dir, heard.add)
	return Tables{Extract: ext, Dir: dir, Warnings: heard.found}, err
}

// runDir is the folder of a run's tables.
func (t *Tables) runDir(id string) string { return table.RunDir(cmp.Or(t.At[id], t.Dir), id) }

// FitSources are the runs as inputs of a fit.
func (t *Tables) FitSources() []fit.Source {
	sources := make([]fit.Source, len(t.Runs))
	for i := range t.Runs {
		sources[i] = FitSource(t.runDir(t.Runs[i].ID), &t.Runs[i])
	}
	return sources
}

// FitSources are the extracted runs of an output folder as inputs of a fit.
func FitSources(dir string, ext *result.Extract) []fit.Source {
	t := Tables{Extract: ext, Dir: dir}
	return t.FitSources()
}

// FitSource is one run whose tables stand in dir.
func FitSource(dir string, r *result.ExtractRun) fit.Source {
	s := fit.Source{
		ID: r.ID, Deployment: *stepsOn(r), Most: mostRows(r),
		Load:  func() (*trace.Run, error) { return readRun(dir, r.Deployment) },
		Judge: func(run *trace.Run) (string, []rows.Span) { return rows.JudgeLoad(run, r.Deployment) },
	}
	if table.Len[trace.Step](dir, table.Steps) > rows.SliceSteps && table.Len[trace.Iteration](dir, table.Iterations) == 0 {
		s.Slices = func(visit func(*trace.Run) error) error {
			return table.EachSlice(dir, rows.SliceSteps, rows.SliceMargin, visit)
		}
	}
	return s
}

// ValidateSources are the same runs as inputs of a validation. A run that the fit
// used is a training run, another one a test run.
func (t *Tables) ValidateSources(f *result.Fit) []validate.Source {
	sources := make([]validate.Source, len(t.Runs))
	for i := range t.Runs {
		r, dir := &t.Runs[i], t.runDir(t.Runs[i].ID)
		sources[i] = validate.Source{
			ID: r.ID, Informs: informs(r, f), Most: mostRows(r), Config: stepsOn(r).Config(),
			Levels:   levelsOf(r.ID, f),
			Training: f != nil && slices.ContainsFunc(f.Runs, func(u result.FitRun) bool { return u.ID == r.ID && u.Used }),
			Load: func() (*trace.Run, *deploy.Deployment, error) {
				run, err := readRun(dir, r.Deployment)
				return run, stepsOn(r), err
			},
		}
	}
	return sources
}

// mostRows is how many rows of a target a run can have at most: one a step, or one a request.
func mostRows(r *result.ExtractRun) int64 {
	return max(r.Tables[table.Steps], r.Tables[table.Iterations], r.Tables[table.Requests])
}

// levelsOf are all load levels of a fit with its first run of them; nil with any other.
func levelsOf(id string, f *result.Fit) []result.LevelHoldout {
	if f == nil || f.Requests == nil || len(f.Requests.Levels) == 0 || f.Requests.Levels[0].Run != id {
		return nil
	}
	return f.Requests.Levels
}

// informs says why the replay of a run decides nothing about coefficients that were learned from
// what clients saw: a client held requests back, where journeys decide, for the server recorded
// when requests came; or its load levels are judged with those of another run, or not at all.
func informs(r *result.ExtractRun, f *result.Fit) string {
	if f == nil || f.Requests == nil {
		return ""
	}
	if r.Tables[table.Points] > 0 && len(f.Requests.Levels) > 0 && f.Requests.Levels[0].Run != r.ID {
		return "its load levels are judged with those of " + f.Requests.Levels[0].Run
	}
	if i := slices.IndexFunc(f.Runs, func(u result.FitRun) bool { return u.ID == r.ID }); i >= 0 && f.Runs[i].Reason == requestfit.BesideRequests {
		return requestfit.BesideRequests
	}
	if slices.ContainsFunc(r.Warnings, func(f trace.Finding) bool { return f.Code == clients.CodeCapped }) {
		return string(clients.CodeCapped) + ": the client waited for answers, so arrivals followed the server"
	}
	return ""
}

// stepsOn is the deployment as the steps of a run see it: passes of a log count drafted tokens.
func stepsOn(r *result.ExtractRun) *deploy.Deployment {
	if r.Tables[table.Iterations] > 0 && r.Tables[table.Steps] == 0 {
		return r.Deployment.WithoutDrafts()
	}
	return r.Deployment
}

// readRun reads a run as every stage wants it: the steps of an unmodified engine
// are made from its iterations.
func readRun(dir string, dep *deploy.Deployment, also ...string) (*trace.Run, error) {
	run, err := table.ReadLean(dir, also...)
	if err != nil {
		return nil, err
	}
	return run, logged.Fill(run, dep)
}

// Batches rebuilds the batches of one extracted run, under version 1.1, for the
// figures of extract.json (spec#members).
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

// warnings about the files that a stage reads: told at once, and put into the
// documents that are made of them.
type warnings struct {
	tell  func([]trace.Finding) // may be nil
	found []trace.Finding
}

func (w *warnings) add(found []trace.Finding) {
	if w.tell != nil {
		w.tell(found)
	}
	w.found = append(w.found, found...)
}

// joined are findings about files in front of a document's own.
func joined(files, own []trace.Finding) []trace.Finding {
	if len(files) == 0 {
		return own
	}
	return slices.Concat(files, own)
}
