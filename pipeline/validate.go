package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/export/compare"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/pipeline/validate/gates"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/report/input"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// ValidateOptions decide the validation of a folder.
type ValidateOptions struct {
	validate.Options        // Split 0: that of the fit
	Fit              string // fit.json to judge; "": that of the folder
	Coefficients     string // coefficient file to judge in place of the fit's own; "": those
	Out              string // folder of the results; "": that of the tables
	Figures          string // folder of the report's figures; "": none are written
	Baseline         string // older validation.json, coefficient file, or folder of them to compare with; "": none
	Force            bool   // accept a folder of results that holds foreign files
	Special          bool   // read pipes and devices given as files
	Config           *result.Config
	Warn             func([]trace.Finding) // hears what stands in no document; nil: nobody
	Changed          func(*result.Changes) // hears what changed since Baseline; nil: nobody
	doubts           doubts
	old              *compare.Old         // what Baseline names
	judged           map[string]judgement // by run, where tasks judged it
}

// DefaultValidateOptions are those of the command line.
func DefaultValidateOptions() ValidateOptions {
	o := ValidateOptions{Options: validate.DefaultOptions()}
	o.Split = 0
	return o
}

// Table is the options of the stage as flags and as recorded.
func (o *ValidateOptions) Table() option.Table {
	all := append(o.Options.Table(),
		option.String("fit", &o.Fit, "the `FILE` fit.json to judge (default: OUT/fit.json)"),
		option.String("coefficients", &o.Coefficients, "judge this coefficient `FILE` in place of the fit's own"),
		option.String("figures", &o.Figures, "export every figure of the report as SVG to `DIR`"),
		option.String("baseline", &o.Baseline, "say what changed since `OLD`: a validation.json, a coefficient file, or a folder of them"),
		option.Switch("force", &o.Force, "accept an output folder that holds foreign files"),
	)
	for i := range all {
		if name := all[i].Name; name == "split" || name == "max-rows" {
			all[i].Shown = "the fit's"
		}
	}
	return all
}

// Validate judges the fit of an extracted folder and writes validation.json and
// report.html to o.Out. The fit judged comes back too; with o.Coefficients there may
// be none.
func Validate(ctx context.Context, in string, o ValidateOptions) (*result.Validation, *result.Fit, error) {
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	if o.Out == "" {
		o.Out = in
	}
	if err := o.readBaseline(); err != nil {
		return nil, nil, err
	}
	release, err := folder.Claim(o.Out, o.Force || o.Out == in)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	o.doubts.tell = o.Warn
	ext, err := folder.ReadExtract(in, o.doubts.add)
	if err != nil {
		return nil, nil, err
	}
	f, err := o.fitToJudge(in)
	if err != nil {
		return nil, nil, err
	}
	val, err := validateFolder(ctx, in, ext, f, o)
	return val, f, err
}

// check refuses options out of their range, before anything is read.
func (o *ValidateOptions) check() error {
	if err := o.checkThresholds(); err != nil {
		return err
	}
	return o.Options.Check()
}

func (o *ValidateOptions) checkThresholds() error {
	if err := gates.CheckThresholds(o.Thresholds); err != nil {
		return &option.Misuse{Msg: err.Error(), Hint: "--gates list prints the names"}
	}
	return nil
}

// fitToJudge reads the report of the fit. With coefficients alone there may be none.
func (o *ValidateOptions) fitToJudge(in string) (*result.Fit, error) {
	path := o.Fit
	if path == "" {
		path = filepath.Join(in, folder.FitFile)
	}
	f := &result.Fit{}
	changed := doubts{tell: o.doubts.add}
	err := folder.ReadDocument(path, f, changed.add)
	switch {
	case err == nil:
		f.Warnings = changed.before(f.Warnings)
		return f, nil
	case errors.Is(err, fs.ErrNotExist) && o.Coefficients != "" && o.Fit == "":
		return nil, nil
	}
	return nil, trace.Hinted(err, fmt.Sprintf("blis-train fit %s", in))
}

// settle makes the choices that depend on the fit and the runs.
func (o *ValidateOptions) settle(f *result.Fit, ext *result.Extract) ([]trace.Finding, error) {
	if f != nil && o.Split == 0 {
		o.Split = f.Options.Split
	}
	return o.skipReplay(f, ext)
}

// validateFolder judges and writes; the folder is ours.
func validateFolder(ctx context.Context, in string, ext *result.Extract, f *result.Fit, o ValidateOptions) (*result.Validation, error) {
	skipped, err := o.settle(f, ext)
	if err != nil {
		return nil, err
	}
	val, err := o.judge(ctx, in, ext, f)
	if err != nil {
		return nil, err
	}
	o.doubts.found = append(o.doubts.found, skipped...)
	val.Warnings = o.doubts.before(val.Warnings)
	if err := folder.WriteDocument(filepath.Join(o.Out, folder.ValidationFile), val); err != nil {
		return nil, err
	}
	if o.ownFit(in) { // the verdict travels with the coefficients
		if err := writeCoefficients(o.Out, f, val); err != nil {
			return nil, err
		}
	}
	inspection, err := joinRuns(ctx, ext, folder.Header("inspect", o.Config), nil, func(r *result.ExtractRun) (result.InspectRun, error) {
		if d, ok := o.judged[r.ID]; ok {
			return readInspection(d.inspection)
		}
		return inspectRun(in, r, f)
	})
	if err != nil {
		return nil, err
	}
	changes, err := o.changes(f, val)
	if err != nil {
		return nil, err
	}
	if changes != nil && o.Changed != nil {
		o.Changed(changes)
	}
	return val, writeReport(o.Out, o.Figures, input.Input{Extract: withoutRuntime(ext), Fit: f, Validation: val, Inspect: inspection,
		Changes: changes})
}

// ownFit reports whether what is judged is the fit of the folder itself, whose
// coefficient file stands there.
func (o *ValidateOptions) ownFit(in string) bool {
	return o.Coefficients == "" && o.Out == in && (o.Fit == "" || filepath.Clean(o.Fit) == filepath.Join(in, folder.FitFile))
}

// judge validates the fit's own coefficients, or those of a file.
func (o *ValidateOptions) judge(ctx context.Context, in string, ext *result.Extract, f *result.Fit) (*result.Validation, error) {
	h := folder.Header(o.Command(), o.Config)
	if o.Coefficients == "" {
		set, err := export.Native(f, nil)
		if err != nil {
			return nil, err
		}
		return validateSet(ctx, o.sources(in, ext, f), ext, set, f, o.Options, h)
	}
	set, file, err := folder.LoadCoefficients(o.Coefficients, o.Special)
	if err != nil {
		return nil, err
	}
	h.Command += " --coefficients " + file.Name
	val, err := validateSet(ctx, validateSources(in, ext, f), ext, set, f, o.Options, h)
	if err == nil {
		val.Inputs = append(append([]result.Input{}, val.Inputs...), file)
		val.Warnings = append(set.Doubts(), val.Warnings...)
	}
	return val, err
}

// skipReplay turns the replays off when nothing says how long a request takes to
// reach the engine (spec#overhead): the steps are judged all the same, and the
// warning says so.
func (o *ValidateOptions) skipReplay(f *result.Fit, ext *result.Extract) ([]trace.Finding, error) {
	if o.StepsOnly || o.OverheadUs != nil || o.IdleDelays {
		return nil, nil
	}
	if o.Coefficients != "" {
		set, _, err := folder.LoadCoefficients(o.Coefficients, o.Special)
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
		return []trace.Finding{trace.Findingf(validate.CodeIdleTaken,
			"no overhead coefficients: the replays take it from requests that met an idle server (--idle-delays)")}, nil
	}
	o.StepsOnly = true
	return []trace.Finding{trace.Findingf(validate.CodeNoOverhead,
		"no overhead coefficients: the replays are skipped; --overhead-us or --idle-delays replays without them")}, nil
}

// ValidateTables judges a fit on the runs of an output folder and writes nothing.
func ValidateTables(ctx context.Context, in string, ext *result.Extract, f *result.Fit, o validate.Options,
	h result.Header) (*result.Validation, error) {
	set, err := export.Native(f, nil)
	if err != nil {
		return nil, err
	}
	return validateSet(ctx, validateSources(in, ext, f), ext, set, f, o, h)
}

// sources are the runs of a folder with what tasks made of them.
func (o *ValidateOptions) sources(in string, ext *result.Extract, f *result.Fit) []validate.Source {
	all := validateSources(in, ext, f)
	for i := range all {
		d := o.judged[all[i].ID]
		all[i].Steps, all[i].Replay = d.steps, d.replay
	}
	return all
}

// validateSet judges any coefficient set. f is the report of the fit that made it;
// nil when there is none: then every run is a test run, and what only the fit knows
// is not judged.
func validateSet(ctx context.Context, sources []validate.Source, ext *result.Extract, set *coeff.Set, f *result.Fit, o validate.Options,
	h result.Header) (*result.Validation, error) {
	doc, err := validate.Run(ctx, set, f, sources, o)
	if err != nil {
		return nil, err
	}
	h.Inputs = ext.Inputs
	doc.Header = h
	doc.Platform = result.AnyPlatform
	return doc, nil
}

// withoutRuntime drops what differs between two runs on the same inputs.
func withoutRuntime(ext *result.Extract) *result.Extract {
	clean := *ext
	clean.Seconds, clean.PeakRSSBytes = nil, nil
	return &clean
}

// writeReport writes report.html from the documents, and the figures when asked.
func writeReport(out, figures string, in input.Input) error {
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
	if err := os.MkdirAll(figures, 0o777); err != nil {
		return err
	}
	return report.Figures(func(name string, data []byte) error { return files.Write(filepath.Join(figures, name), data) }, in)
}
