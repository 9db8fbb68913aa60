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
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
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

// Brief is the result without what only the files of the stages need to hold: curves, the selection grid, single replays,
// covariances, the models beside the fit, deployments, and the gates that passed.
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
		f.Inputs, f.Configs, f.Models, f.Beta, f.Alpha = nil, nil, nil, briefModel(f.Beta), slices.Clone(f.Alpha)
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
	o.Fit.Out = o.Extract.Out
	o.Validate.Out = o.Extract.Out
	o.Fit.Config = o.Extract.Config
	o.Validate.Config = o.Extract.Config
	return errors.Join(o.Fit.check(), o.Validate.check())
}

// Tell tells who asked of a document.
func (o *RunOptions) Tell(doc any) {
	if o.Done != nil {
		o.Done(doc)
	}
}

// RefitOptions decide how a coefficient file is made again.
type RefitOptions struct {
	Data     string   // parent of the run folders
	Set      []string // what overrode run.yaml when the file was made
	Workers  int      // 0 uses every core
	Special  bool     // read pipes and devices given as files
	Progress trace.Progress
}

// RefitResult says whether a coefficient file was made again from its recorded inputs.
type RefitResult struct {
	SchemaVersion string        `json:"schema_version"`
	ToolVersion   string        `json:"tool_version"`
	Platform      string        `json:"platform"` // of this build
	RecordedOn    string        `json:"recorded_on"`
	File          result.Input  `json:"file"`
	Command       string        `json:"command"` // what was run again
	Refit         *result.Input `json:"refit"`   // null when the inputs already differ
	Identical     bool          `json:"identical"`
	Differences   []string      `json:"differences"`
}

// Refit fits the recorded inputs of a coefficient file again and compares the bytes: the inputs
// first, found by the hash of their run.yaml, then the file. Gates are taken from the file.
func Refit(ctx context.Context, file string, set *coeff.Set, o RefitOptions) (*RefitResult, error) {
	recorded, in, err := folder.ReadInput(file, o.Special)
	if err != nil {
		return nil, err
	}
	doc := &RefitResult{SchemaVersion: result.SchemaVersion, ToolVersion: folder.ToolVersion, Platform: result.Platform(),
		RecordedOn: set.Platform, File: in, Command: set.Command}
	fo, err := recordedOptions(set.Command)
	if err != nil {
		return nil, err
	}
	fo.Workers = o.Workers
	runs, err := recordedRuns(set, o)
	if err != nil {
		return nil, err
	}
	tmp, remove, err := files.Temporary("", "blis-train-refit-")
	if err != nil {
		return nil, err
	}
	defer remove()
	xo := extract.DefaultOptions()
	xo.Out = tmp
	xo.Workers = o.Workers
	xo.ToolVersion = folder.ToolVersion
	xo.Progress = o.Progress
	ext, err := extract.Run(ctx, runs, xo)
	if ext == nil {
		return nil, err
	}
	if doc.Differences = inputDifferences(set.Inputs, ext.Inputs); len(doc.Differences) > 0 {
		return doc, nil
	}
	// Content decides: the names depend on where the data stand.
	for i := range ext.Inputs {
		ext.Inputs[i].Name = set.Inputs[i].Name
	}
	again, err := refitBytes(ctx, tmp, ext, fo, set, o.Progress)
	if err != nil {
		return nil, err
	}
	if _, bound := coeff.Body(recorded); !bound { // of an older version
		again, _ = coeff.Body(again)
	}
	made := folder.InputOf(filepath.Base(file), again)
	doc.Refit = &made
	doc.Identical = made.SHA256 == in.SHA256
	if !doc.Identical {
		doc.Differences = append(platformDifference(set.Platform), lineDifferences(recorded, again)...)
	}
	return doc, nil
}

// recordedOptions reads the options back from the artifact's command.
func recordedOptions(command string) (fit.Options, error) {
	o := fit.BareOptions()
	if err := o.Table().Parse(command, "fit"); err != nil {
		return o, trace.Errorf(export.NotReproducible, "%v", err).WithHint("use the blis-train that wrote the file")
	}
	o, err := o.Resolve()
	if err != nil {
		return o, trace.Errorf(export.NotReproducible, "command %q: %v", command, err).WithHint("use the blis-train that wrote the file")
	}
	return o, nil
}

// recordedRuns are the run folders below the data whose run.yaml is recorded, with
// the overrides of the original extraction.
func recordedRuns(set *coeff.Set, o RefitOptions) ([]extract.RunDir, error) {
	want := map[string]bool{}
	for _, in := range set.Inputs {
		if filepath.Base(in.Name) == deploy.RunFile {
			want[in.SHA256] = true
		}
	}
	found, err := extract.Discover([]string{o.Data}, nil, nil, o.Set...)
	if err != nil {
		return nil, err
	}
	var runs []extract.RunDir
	for _, r := range found {
		_, in, err := folder.ReadInput(filepath.Join(r.Dir, deploy.RunFile), o.Special)
		if err != nil {
			return nil, err
		}
		if want[in.SHA256] {
			runs = append(runs, r)
		}
	}
	if len(runs) == 0 {
		return nil, trace.Errorf(export.NotReproducible, "no run below %s has a %s that the file records", o.Data, deploy.RunFile)
	}
	return runs, nil
}

// inputDifferences compares recorded with found inputs by content and order.
func inputDifferences(want []coeff.Input, got []result.Input) []string {
	out := []string{}
	have := map[string]int{}
	for _, in := range got {
		have[in.SHA256]++
	}
	for _, in := range want {
		if have[in.SHA256] == 0 {
			out = append(out, fmt.Sprintf("input %s (%d bytes, sha256 %s) is missing or changed", in.Name, in.Bytes, in.SHA256))
			continue
		}
		have[in.SHA256]--
	}
	for _, in := range got {
		if have[in.SHA256] > 0 {
			have[in.SHA256]--
			out = append(out, fmt.Sprintf("input %s (sha256 %s) is not recorded", in.Name, in.SHA256))
		}
	}
	if len(out) == 0 {
		for i := range want {
			if want[i].SHA256 != got[i].SHA256 {
				return []string{fmt.Sprintf("input %d: got %s, recorded %s: the order of the runs differs", i+1, got[i].Name, want[i].Name)}
			}
		}
	}
	return out
}

// platformDifference says that the architecture may be the reason.
func platformDifference(recorded string) []string {
	here := result.Platform()
	if recorded == here || recorded == "" || recorded == result.AnyPlatform {
		return nil
	}
	return []string{fmt.Sprintf("the file was made on %s, this is %s: compilers fuse multiplications and additions differently, "+
		"so the last digits of a fit differ between architectures; repeat it on %s", recorded, here, recorded)}
}

// refitBytes is the native file of a fresh fit with what a fit does not decide
// taken from the recorded one: gates and platform.
func refitBytes(ctx context.Context, out string, ext *result.Extract, o fit.Options, recorded *coeff.Set,
	progress trace.Progress) ([]byte, error) {
	command, err := o.Command()
	if err != nil {
		return nil, err
	}
	doc, err := FitTables(ctx, out, ext, o, result.NewHeader(folder.ToolVersion, command), progress)
	if err != nil {
		return nil, err
	}
	set, err := fit.Native(doc, nil)
	if err != nil {
		return nil, err
	}
	set.Gates = recorded.Gates
	set.Purposes = recorded.Purposes
	set.ValidatedFor = recorded.ValidatedFor
	set.Platform = recorded.Platform
	return folder.SetBytes(set)
}

// lineDifferences are the first lines that differ, at most ten.
func lineDifferences(want, got []byte) []string {
	a := strings.Split(string(want), "\n")
	b := strings.Split(string(got), "\n")
	line := func(s []string, i int) string {
		if i < len(s) {
			return strings.TrimSpace(s[i])
		}
		return "nothing"
	}
	out := []string{}
	for i := 0; i < max(len(a), len(b)) && len(out) < 10; i++ {
		if x, y := line(a, i), line(b, i); x != y || (i < len(a)) != (i < len(b)) {
			out = append(out, fmt.Sprintf("line %d: recorded %q, refit %q", i+1, x, y))
		}
	}
	return out
}
