package pipeline

// This file is the stage validate: replays and comparisons with fitted coefficients.

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// ValidateOptions are the options of the validation of a folder.
type ValidateOptions struct {
	validate.Options        // Split 0: that of the fit
	Fit              string // fit.json to validate; "": that of the folder
	Coefficients     string // coefficient file to validate in place of the fit's coefficients; "": none
	Out              string // folder of the results; "": that of the tables
	Figures          string // folder of the report's figures; "": none are written
	Baseline         string // older validation.json, coefficient file, or folder of them to compare with; "": none
	Force            bool   // accept a folder of results that holds foreign files
	Special          bool   // read pipes and devices given as files
	Config           *result.Config
	Warn             func([]trace.Finding) // called with warnings that are in no document; may be nil
	Changed          func(*result.Changes) // called with the changes since Baseline; may be nil

	given *givenCoefficients // set by readCoefficients
}

// givenCoefficients are those of a file that is validated in place of the fit.
type givenCoefficients struct {
	set  *coeff.Set
	file result.Input
}

// readCoefficients returns what the file o.Coefficients holds. It is read once, because it may be a pipe.
func (o *ValidateOptions) readCoefficients() (*coeff.Set, result.Input, error) {
	if o.given == nil {
		set, file, err := folder.LoadCoefficients(o.Coefficients, o.Special)
		if err != nil {
			return nil, file, err
		}
		o.given = &givenCoefficients{set: set, file: file}
	}
	return o.given.set, o.given.file, nil
}

// DefaultValidateOptions returns the options that the command line has by default.
func DefaultValidateOptions() ValidateOptions {
	o := ValidateOptions{Options: validate.DefaultOptions()}
	o.Split = 0
	return o
}

// Validate validates the fit of an extracted folder and writes validation.json and report.html to
// o.Out. It returns the validation and the fit, which may be nil with o.Coefficients.
func Validate(ctx context.Context, in string, o ValidateOptions) (*result.Validation, *result.Fit, error) {
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	o.Out = cmp.Or(o.Out, in)
	old, err := o.ReadBaseline()
	if err != nil {
		return nil, nil, err
	}
	release, err := folder.Claim(o.Out, o.Force || files.Same(o.Out, in))
	if err != nil {
		return nil, nil, err
	}
	defer release()
	t, err := ReadTables(in, o.Warn)
	if err != nil {
		return nil, nil, err
	}
	f, changed, err := o.fitToJudge(in)
	if err != nil {
		return nil, nil, err
	}
	t.Warnings = append(t.Warnings, changed...)
	val, err := ValidateAndWrite(ctx, t.validationInput(ctx, f, old), o)
	return val, f, err
}

// ValidationInput is the input of a validation: the tables, the fit, and results that are already known.
type ValidationInput struct {
	Tables
	Fit     *result.Fit                                         // nil: there are coefficients alone
	Sources []validate.Source                                   // the runs; rows or replays of some may have been made elsewhere
	Inspect func(*result.ExtractRun) (result.InspectRun, error) // makes the inspection of a run for the report
	Old     *export.Old                                         // what ValidateOptions.Baseline names; nil: nothing
}

// validationInput returns the input of a validation with nothing known yet.
func (t Tables) validationInput(ctx context.Context, f *result.Fit, old *export.Old) ValidationInput {
	return ValidationInput{Tables: t, Fit: f, Sources: t.ValidateSources(f), Old: old,
		Inspect: func(r *result.ExtractRun) (result.InspectRun, error) { return InspectRun(ctx, t.runDir(r.ID), r, f) }}
}

// check returns an error for invalid options, before anything is read.
func (o *ValidateOptions) check() error {
	if err := o.checkThresholds(); err != nil {
		return err
	}
	return o.Options.Check()
}

// checkThresholds returns an error for a threshold of an unknown gate.
func (o *ValidateOptions) checkThresholds() error {
	if _, err := gate.NewRules(o.Thresholds); err != nil {
		return &option.Misuse{Msg: err.Error(), Hint: "--gate list prints the names"}
	}
	return nil
}

// fitToJudge returns the fit.json to validate. If it was changed since it was written, a warning is
// put before the fit's own and also returned. The fit is nil if there is a coefficient file, o.Fit is
// empty and the folder has no fit.json.
func (o *ValidateOptions) fitToJudge(in string) (*result.Fit, []trace.Finding, error) {
	f := &result.Fit{}
	changed := warnings{tell: o.Warn}
	err := folder.ReadDocument(o.fitPath(in), f, changed.add)
	switch {
	case err == nil:
		f.Warnings = joinFindings(changed.found, f.Warnings)
		return f, changed.found, nil
	case errors.Is(err, fs.ErrNotExist) && o.Coefficients != "" && o.Fit == "":
		return nil, nil, nil
	}
	return nil, nil, trace.Hinted(err, fmt.Sprintf("blis-train fit %s", in))
}

// ResolveFor sets the options that depend on the fit and the runs, and returns warnings about them.
func (o *ValidateOptions) ResolveFor(f *result.Fit, ext *result.Extract) ([]trace.Finding, error) {
	if f != nil && o.Split == 0 {
		o.Split = f.Options.Split
	}
	return o.skipReplay(f, ext)
}

// ValidateAndWrite validates a fit, writes what Validate writes to o.Out, which the caller has locked
// (folder.Claim), and returns the validation.
func ValidateAndWrite(ctx context.Context, in ValidationInput, o ValidateOptions) (*result.Validation, error) {
	skipped, err := o.ResolveFor(in.Fit, in.Extract)
	if err != nil {
		return nil, err
	}
	// The runs are inspected for the report: those with recorded steps while they are validated, because both need the
	// run and its batches, the others at the same time as the validation.
	inspections := in.inspectWithRows()
	var val *result.Validation
	err = par.Do(ctx, o.Workers,
		func() (err error) {
			val, err = o.validateFitOrFile(ctx, in)
			return err
		},
		func() error { return inspections.makeOthers(ctx, in.Inspect) },
	)
	if err != nil {
		return nil, err
	}
	inspection, err := inspectTables(ctx, in.Extract, folder.Header("inspect", o.Config), nil, inspections.of(in.Inspect))
	if err != nil {
		return nil, err
	}
	val.Warnings = joinFindings(slices.Concat(in.Warnings, skipped), val.Warnings)
	changes, err := o.changes(in, val)
	if err != nil {
		return nil, err
	}
	if changes != nil && o.Changed != nil {
		o.Changed(changes)
	}
	shown := report.Input{Extract: withoutRuntime(in.Extract), Fit: in.Fit, Validation: val, Inspect: inspection, Changes: changes,
		Use: o.Use(in.Dir)}
	writes := []func() error{
		func() error { return folder.WriteDocument(filepath.Join(o.Out, folder.ValidationFile), val) },
		func() error { return writeReport(o.Out, o.Figures, shown) },
	}
	if o.ownFit(in.Dir) { // coefficients.yaml of the folder gets the gates
		writes = append(writes, func() error { return writeCoefficients(o.Out, in.Fit, val) })
	}
	return val, par.Do(ctx, o.Workers, writes...)
}

// inspections are the inspections of the runs for the report, made by the validation or at the same time.
type inspections []inspection

// inspection is the inspection of one run.
type inspection struct {
	run      *result.ExtractRun
	withRows bool               // the validation makes it
	got      *result.InspectRun // nil: it is not made yet
}

// inspectWithRows asks the validation for the inspections of runs with recorded steps. They need the lag that the fit
// has found.
func (in *ValidationInput) inspectWithRows() inspections {
	in.Sources = slices.Clone(in.Sources)
	list := make(inspections, len(in.Runs))
	for i := range in.Runs {
		r := &in.Runs[i]
		list[i].run = r
		k := slices.IndexFunc(in.Sources, func(s validate.Source) bool { return s.ID == r.ID })
		if in.Fit == nil || k < 0 || in.Sources[k].Steps != "" || r.Tables[table.Steps] == 0 {
			continue
		}
		list[i].withRows = true
		of := inspectionOf(r, in.Fit)
		in.Sources[k].Inspection = &of
		in.Sources[k].Inspected = func(run *trace.Run, got *result.InspectRun) {
			addToInspection(got, run, r)
			list[i].got = got
		}
	}
	return list
}

// makeOthers makes the inspections for which the validation was not asked.
func (list inspections) makeOthers(ctx context.Context, inspect func(*result.ExtractRun) (result.InspectRun, error)) error {
	for i := range list {
		if list[i].withRows {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		got, err := inspect(list[i].run)
		if err != nil {
			return err
		}
		list[i].got = &got
	}
	return nil
}

// of returns a function that returns the inspection of a run, and makes it if that is not done.
func (list inspections) of(inspect func(*result.ExtractRun) (result.InspectRun, error)) func(*result.ExtractRun) (result.InspectRun, error) {
	return func(r *result.ExtractRun) (result.InspectRun, error) {
		for i := range list {
			if list[i].run == r && list[i].got != nil {
				return *list[i].got, nil
			}
		}
		return inspect(r)
	}
}

// Use returns what has the judged coefficients for report.Input: "" for the coefficients.yaml that the validation of a
// folder completes, else the file that was given or a command that writes one.
func (o *ValidateOptions) Use(in string) string {
	out := cmp.Or(o.Out, in)
	switch {
	case o.Coefficients != "":
		return "`" + o.Coefficients + "`"
	case o.ownFit(in):
		return ""
	}
	return fmt.Sprintf("what `blis-train export %s --validation %s -o FILE` writes", files.Word(o.fitPath(in)),
		files.Word(filepath.Join(out, folder.ValidationFile)))
}

// ownFit reports whether the validated fit is that of the output folder, which has its coefficients.yaml too.
func (o *ValidateOptions) ownFit(in string) bool {
	return o.Coefficients == "" && files.Same(o.fitPath(in), filepath.Join(cmp.Or(o.Out, in), folder.FitFile))
}

// fitPath returns the path of the fit.json to validate. in is the folder of the tables.
func (o *ValidateOptions) fitPath(in string) string {
	return cmp.Or(o.Fit, filepath.Join(in, folder.FitFile))
}

// validateFitOrFile returns the validation of the fit's coefficients, or of those of a file.
func (o *ValidateOptions) validateFitOrFile(ctx context.Context, in ValidationInput) (*result.Validation, error) {
	h := folder.Header(o.Command(), o.Config)
	if o.Coefficients == "" {
		set, err := fit.Native(in.Fit, nil)
		if err != nil {
			return nil, err
		}
		path := o.fitPath(in.Dir)
		size, sum, err := files.Hash(path) // before the replays, as they take long enough for another fit to be written
		if err != nil {
			return nil, err
		}
		val, err := in.validate(ctx, set, o.Options, h)
		if err == nil {
			val.Judged = &result.Input{Name: filepath.Base(path), Bytes: size, SHA256: sum}
		}
		return val, err
	}
	set, file, err := o.readCoefficients()
	if err != nil {
		return nil, err
	}
	h.Command += " --coefficients " + file.Name
	val, err := in.validate(ctx, set, o.Options, h)
	if err == nil {
		val.Judged = &file
		val.Inputs = append(append([]result.Input{}, val.Inputs...), file)
		val.Warnings = append(set.FileWarnings(), val.Warnings...)
	}
	return val, err
}

// skipReplay turns replays off and returns a warning if the time that a request takes to reach the
// engine is unknown (spec#overhead). Steps are still validated.
func (o *ValidateOptions) skipReplay(f *result.Fit, ext *result.Extract) ([]trace.Finding, error) {
	if o.StepsOnly || o.OverheadUs != nil || o.IdleDelays {
		return nil, nil
	}
	if o.Coefficients != "" {
		set, _, err := o.readCoefficients()
		if err != nil {
			return nil, err
		}
		if m := set.AlphaModel(coeff.Overhead); m != nil && m.Replay {
			return nil, nil
		}
	} else if f == nil || slices.ContainsFunc(f.Alpha, func(m result.Model) bool { return m.Target == coeff.Overhead && m.Replay }) {
		return nil, nil
	}
	if slices.ContainsFunc(ext.Runs, func(r result.ExtractRun) bool {
		return r.Tables[table.Iterations] > 0 && r.Tables[table.ObservedRequests] > 0
	}) {
		o.IdleDelays = true
		return []trace.Finding{trace.Findingf(validate.ReplayAssumes,
			"no overhead was fitted, because logs do not show it: every request is replayed with the overhead of those that found the server idle")}, nil
	}
	o.StepsOnly = true
	// The frozen recipe has no overhead that a replay could use.
	if n := journeysOfFit(f, ext); n > 0 && o.Coefficients == "" && f.Options.Recipe != fit.Frozen {
		// The recording was made for replays: that none is possible says something about it, and steps alone would pass it.
		o.For = cmp.Or(o.For, coeff.PurposeReplay)
		o.Unreplayed = fmt.Sprintf("nothing is replayed: no overhead could be fitted to the %d requests of the recording; --for steps judges its steps alone", n)
	}
	return []trace.Finding{trace.Findingf(validate.NoReplay,
		"no overhead was fitted, so nothing is replayed; validate --overhead-us or --idle-delays replays with a constant one")}, nil
}

// journeysOfFit returns how many requests with journeys the runs of a fit have.
func journeysOfFit(f *result.Fit, ext *result.Extract) (n int64) {
	for i := range ext.Runs {
		isOfFit := f != nil && slices.ContainsFunc(f.Runs, func(r result.FitRun) bool { return r.ID == ext.Runs[i].ID })
		if isOfFit {
			n += ext.Runs[i].Requests.Engine + ext.Runs[i].Requests.APIOnly
		}
	}
	return n
}

// ValidateTables returns the validation of a fit on the runs of an output folder. It writes nothing. Tests of several
// packages use it.
func ValidateTables(ctx context.Context, in string, ext *result.Extract, f *result.Fit, o validate.Options,
	h result.Header) (*result.Validation, error) {
	set, err := fit.Native(f, nil)
	if err != nil {
		return nil, err
	}
	return Tables{Extract: ext, Dir: in}.validationInput(ctx, f, nil).validate(ctx, set, o, h)
}

// validate returns the validation of a coefficient set. Without the fit that made it, every run
// counts as a test run, and gates that need the fit are not evaluated.
func (in ValidationInput) validate(ctx context.Context, set *coeff.Set, o validate.Options, h result.Header) (*result.Validation, error) {
	doc, err := validate.Run(ctx, set, in.Fit, in.Sources, o)
	if err != nil {
		return nil, err
	}
	doc.Header = h
	doc.SchemaVersion = result.ValidationVersion
	doc.Inputs = in.Inputs
	return doc, nil
}

// withoutRuntime returns extract.json without running time and memory, which differ between runs on
// the same inputs.
func withoutRuntime(ext *result.Extract) *result.Extract {
	clean := *ext
	clean.Seconds, clean.PeakRSSBytes = nil, nil
	return &clean
}

// writeReport writes report.html from the documents, and the figures if asked for.
func writeReport(out, figures string, in report.Input) error {
	var b bytes.Buffer
	if err := report.Render(&b, in); err != nil {
		return err
	}
	if err := files.Write(filepath.Join(out, folder.ReportFile), b.Bytes()); err != nil {
		return err
	}
	if figures == "" {
		return nil
	}
	if err := files.Folder(figures); err != nil {
		return err
	}
	return report.Figures(func(name string, data []byte) error { return files.Write(filepath.Join(figures, name), data) }, in)
}

// ReadBaseline returns the earlier validation that o.Baseline names; nil if it is empty. It must be
// called before anything is written, because Baseline may be the folder that is overwritten.
func (o *ValidateOptions) ReadBaseline() (*export.Old, error) {
	if o.Baseline == "" {
		return nil, nil
	}
	return oldOf(o.Baseline, o.Special, o.Warn)
}

// oldOf returns the earlier validation in a validation.json, a coefficient file, or a folder with
// either or both.
func oldOf(path string, special bool, warn func([]trace.Finding)) (*export.Old, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return readOldFolder(path, special, warn)
	}
	if strings.HasSuffix(path, ".json") {
		old := &export.Old{Name: path}
		return old, addOldValidation(old, path, warn)
	}
	set, _, err := folder.LoadCoefficients(path, special)
	if err != nil {
		return nil, err
	}
	return export.OldSet(path, set), nil
}

// readOldFolder returns an earlier validation from an output folder: its coefficients, its
// validation.json or both. It is an error if the folder has neither.
func readOldFolder(dir string, special bool, warn func([]trace.Finding)) (*export.Old, error) {
	old := &export.Old{Name: dir}
	set, _, setErr := folder.LoadCoefficients(filepath.Join(dir, folder.CoefficientsFile), special)
	switch {
	case setErr == nil:
		old = export.OldSet(dir, set)
	case !errors.Is(setErr, fs.ErrNotExist):
		return nil, setErr
	}
	err := addOldValidation(old, filepath.Join(dir, folder.ValidationFile), warn)
	if !errors.Is(err, fs.ErrNotExist) {
		return old, err
	}
	if setErr == nil { // the coefficients have the gates of their validation
		return old, nil
	}
	return old, trace.Hinted(fmt.Errorf("%s: got neither %s nor %s, want what an older validation left", dir, folder.ValidationFile,
		folder.CoefficientsFile), "blis-train validate "+dir)
}

// addOldValidation adds the gates and verdicts of a validation.json to old.
func addOldValidation(old *export.Old, path string, warn func([]trace.Finding)) error {
	v := &result.Validation{}
	if err := folder.ReadDocument(path, v, warn); err != nil {
		return err
	}
	old.AddValidation(v)
	return nil
}

// changes returns the changes of the validation against the baseline; nil without one.
func (o *ValidateOptions) changes(in ValidationInput, val *result.Validation) (*result.Changes, error) {
	if in.Old == nil {
		return nil, nil
	}
	if o.Coefficients != "" {
		set, _, err := o.readCoefficients()
		if err != nil {
			return nil, err
		}
		return export.Since(in.Old, val, set), nil
	}
	set, err := fit.Native(in.Fit, val)
	if err != nil {
		return nil, err
	}
	return export.Since(in.Old, val, set), nil
}
