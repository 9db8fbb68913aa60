package pipeline

// This file is the stage export: a fit in the format of another program.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// ExportOptions are the options of an export.
type ExportOptions struct {
	export.Options
	Format     export.Format
	Given      []string        // KEY=VALUE options of the format
	Writers    []export.Writer // of the formats of other programs
	Out        string          // file to write
	Validation string          // validation.json with the gates; "": the one in the folder of fit.json, if any; "none": none
	For        string          // purpose whose verdict decides whether to export; "": that of the validation
	Accept     coeff.Accept    // verdicts that are accepted in addition to pass
	Special    bool            // read pipes and devices given as files
}

// DefaultExportOptions returns the defaults of the command line. Out has none.
func DefaultExportOptions() ExportOptions {
	return ExportOptions{Format: export.FormatNative, Writers: export.Writers()}
}

// ExportResult is what an export wrote.
type ExportResult struct {
	Format export.Format
	Files  []result.Input // named below the folder of -o
	Output *export.Output // their bytes, and the warnings
}

// Export writes the coefficients of a fit.json in the format that a consumer loads, to o.Out and to files
// whose names begin with it.
func Export(ctx context.Context, fitFile string, o ExportOptions) (*ExportResult, error) {
	if o.Out == "" {
		return nil, option.Misusef("export: missing -o FILE")
	}
	write, err := o.Resolve()
	if err != nil {
		return nil, err
	}
	src, err := o.source(fitFile)
	if err != nil {
		return nil, err
	}
	if src.Judged, err = o.Judged(src.Validation); err != nil {
		return nil, err
	}
	out, err := exportAs(src, write, o.Options)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	if err := o.TooFarOff(out); err != nil {
		return nil, err
	}
	return WriteExport(o.Out, o.Format, out)
}

// Resolve checks the options, reads those of the format, and returns its writer.
func (o *ExportOptions) Resolve() (export.Writer, error) {
	w := export.Writer{Format: export.FormatNative}
	if o.Format != w.Format {
		i := slices.IndexFunc(o.Writers, func(w export.Writer) bool { return w.Format == o.Format })
		if i < 0 {
			names := []export.Format{export.FormatNative}
			for _, known := range o.Writers {
				names = append(names, known.Format)
			}
			hint := "queue fit writes queue.json, and predictor fit predictor.json, for the other formats"
			var similar []export.Format // that begin with what was given
			for _, name := range names {
				if strings.HasPrefix(plainName(name), plainName(o.Format)) {
					similar = append(similar, name)
				}
			}
			if len(similar) > 0 {
				hint = "did you mean " + trace.OneOf(similar) + "? export --help has the reader of each"
			}
			return w, &option.Misuse{Msg: fmt.Sprintf("--format: got %q, of a fit want %s", o.Format, trace.OneOf(names)), Hint: hint}
		}
		w = o.Writers[i]
	}
	if o.Format == export.FormatNative || o.Format == export.FormatCard {
		if err := o.Whole(); err != nil {
			return w, err
		}
	}
	return w, o.ResolveFor(w.Settings)
}

// Whole returns an error if the options choose a configuration. It is for formats whose files are of all of them.
func (o *ExportOptions) Whole() error {
	if o.Config == "" {
		return nil
	}
	return &option.Misuse{Msg: fmt.Sprintf("--config: got %q, want none with %s, which is of all configurations", o.Config, o.Format),
		Hint: "fit the runs of one configuration alone: fit --without the others, or run --only"}
}

// plainName returns the name of a format in small letters without dashes: llm-d and llmd are one word.
func plainName(f export.Format) string {
	return strings.ToLower(strings.ReplaceAll(string(f), "-", ""))
}

// ResolveFor checks the options against those of a format (known), and sets the command that
// documents record.
func (o *ExportOptions) ResolveFor(known []export.Setting) error {
	err := o.Check()
	if err == nil {
		o.Settings, err = export.ParseSettings(o.Format, known, o.Given)
	}
	if err != nil {
		return &option.Misuse{Msg: err.Error()}
	}
	o.Command = option.Command("export", o.Flags())
	return nil
}

// VerdictError is returned for coefficients whose validation for the purpose failed or had too few
// data. It is a result of the validation, not a failure of the program, and has an exit status of
// its own.
type VerdictError struct{ Msg string }

// Error returns the message.
func (e *VerdictError) Error() string { return e.Msg }

// TooFarOff returns an error if the consumer's formula cannot represent the coefficients well
// enough, unless the user overrules that.
func (o *ExportOptions) TooFarOff(out *export.Output) error {
	i := slices.IndexFunc(out.Warnings, func(f trace.Finding) bool { return f.Code == export.PoorProjection })
	if i < 0 || o.Overrules(export.PoorProjection) {
		return nil
	}
	return &VerdictError{fmt.Sprintf("%s; aic-fpm, keda-token-aware and llmd-epp represent any step; --force %s writes it all the same",
		out.Warnings[i].Message, export.PoorProjection)}
}

// Judged returns the verdict that decides the export, on the purpose and the configuration that the options name; nil
// without a validation. The error is that the verdict forbids the export, or that there is none for a purpose that was
// asked for.
func (o *ExportOptions) Judged(v *result.Validation) (*result.PurposeVerdict, error) {
	if o.For != "" && !gate.IsPurpose(o.For) {
		return nil, option.Misusef("--for: got %q, want %s or %s", o.For, strings.Join(coeff.Purposes, ", "), coeff.PurposeAll)
	}
	if v == nil {
		if o.For != "" && !o.Accept.Any {
			return nil, trace.Hinted(&VerdictError{fmt.Sprintf("verdict for %s: not validated", o.For)},
				"blis-train validate judges a fit; --ignore-verdict exports all the same")
		}
		return nil, nil
	}
	// A scope is one configuration, or all. The verdict is that of the exported configuration, if one is
	// chosen by label or key.
	purpose := cmp.Or(o.For, v.For, coeff.PurposeReplay)
	scope := coeff.ScopeAll
	for _, c := range v.Configs {
		if o.Config != "" && (c.Scope == o.Config || c.Config == o.Config) {
			scope = c.Scope
		}
	}
	got := v.VerdictFor(purpose, scope)
	return &got, o.Judge(purpose, scope, got.Verdict, slices.Concat(got.Failed, got.Missing))
}

// Judge returns an error if the verdict forbids the export, with the first of the reasons for the
// verdict (why). purpose and scope are those of the verdict.
func (o *ExportOptions) Judge(purpose, scope, verdict string, why []string) error {
	accept := o.Accept
	accept.Asked = o.For != ""
	if accept.Takes(verdict) {
		return nil
	}
	text := fmt.Sprintf("verdict for %s of %s: %s", purpose, scope, verdict)
	const most = 3
	if more := len(why) - most; more > 0 {
		why = append(why[:most], fmt.Sprintf("and %d more", more))
	}
	if len(why) > 0 {
		text += " (" + strings.Join(why, "; ") + ")"
	}
	flag := "--ignore-verdict"
	if verdict == coeff.VerdictInsufficient {
		flag = "--allow-insufficient" // no gate is accepted that failed
	}
	return trace.Hinted(&VerdictError{text}, "the report has the reasons; "+flag+" exports all the same")
}

// WriteExport writes the files of a format, name itself and files whose names begin with it, and
// returns what it wrote.
func WriteExport(name string, format export.Format, out *export.Output) (*ExportResult, error) {
	got := &ExportResult{Format: format, Files: []result.Input{}, Output: out}
	for _, f := range out.Files { // all of them or none
		if err := files.CheckOutput(name+f.Suffix, false); err != nil {
			return nil, err
		}
	}
	for i := range out.Files {
		f := &out.Files[i]
		if !strings.HasSuffix(f.Suffix, ".parquet") {
			f.Data = files.Readable(f.Data)
		}
		if strings.Contains(f.Suffix, "/") { // in a folder
			if err := os.MkdirAll(filepath.Dir(name+f.Suffix), 0o755); err != nil {
				return nil, err
			}
		}
		if err := files.Write(name+f.Suffix, f.Data); err != nil {
			return nil, err
		}
		got.Files = append(got.Files, folder.InputOf(filepath.Base(name)+f.Suffix, f.Data))
	}
	return got, nil
}

// source returns fit.json and its validation.
func (o *ExportOptions) source(fitFile string) (export.Source, error) {
	data, in, err := folder.ReadInput(fitFile, o.Special)
	if err != nil {
		return export.Source{}, err
	}
	src := export.Source{Fit: &result.Fit{}, FitInput: in}
	var changed warnings
	if err := folder.ParseDocument(fitFile, data, src.Fit, changed.add); err != nil {
		return src, err
	}
	// The validation in the folder of the fit may be absent, a file that was asked for may not.
	var other *result.Validation // of another fit
	from, isDefault := o.Validation, o.Validation == ""
	if isDefault {
		from = filepath.Join(filepath.Dir(fitFile), folder.ValidationFile)
	}
	if from != "none" {
		val := &result.Validation{}
		switch err := folder.ReadDocument(from, val, changed.add); {
		case err == nil && val.Judged != nil && val.Judged.SHA256 == in.SHA256:
			src.Validation = val
		case err == nil:
			other = val
		case isDefault && errors.Is(err, fs.ErrNotExist):
		default:
			return src, err
		}
	}
	src.Warnings = append(slices.Clip(changed.found), src.Validation.Doubts()...)
	src.Fit.Warnings = joinFindings(changed.found, src.Fit.Warnings)
	if other != nil {
		what := "does not name the fit that it judged"
		if other.Judged != nil {
			what = fmt.Sprintf("judged another file, %s of sha256 %.12s", other.Judged.Name, other.Judged.SHA256)
		} else if _, err := o.Judged(other); err != nil { // it may be of this fit: its refusal counts, its pass does not
			return src, err
		}
		src.Warnings = append(slices.Clip(src.Warnings), trace.Findingf(export.OtherFit,
			"%s %s: this fit is exported as not validated; blis-train validate judges it", filepath.Base(from), what))
	}
	Predicts(&src, func() (*coeff.Set, error) { return fit.Native(src.Fit, nil) })
	return src, nil
}

// Predicts sets the functions of an export's source that predict times for a deployment. made makes
// the coefficient set when it is first needed.
func Predicts(src *export.Source, made func() (*coeff.Set, error)) {
	src.Set = sync.OnceValues(made)
	src.Step = func(d deploy.Deployment) (export.StepTimer, error) {
		set, err := src.Set()
		if err != nil {
			return nil, err
		}
		return NewStepTimes(set, &d)
	}
	src.OverheadUs = func(d deploy.Deployment, promptTokens int64) (float64, error) {
		set, err := src.Set()
		if err != nil {
			return 0, err
		}
		return overheadOf(set, &d, promptTokens)
	}
	src.Loads = func(d deploy.Deployment, alpha []float64, prompt, output float64, m export.ConsumerModel) (*export.OnLoads, error) {
		set, err := src.Set()
		if err != nil {
			return nil, err
		}
		return export.CompareLoads(set, &d, alpha, prompt, output, m)
	}
}

// overheadOf returns the overhead that a set predicts for a prompt on an idle server, us.
func overheadOf(set *coeff.Set, d *deploy.Deployment, promptTokens int64) (float64, error) {
	delay, err := sim.NewAlphaDelay(set, coeff.Overhead, d)
	if err != nil {
		return 0, err
	}
	blocks, _, err := d.KVBlocks()
	if err != nil {
		return 0, err
	}
	return delay.DelayUs(&sim.Queue{FreeBlocks: blocks, TotalBlocks: blocks, PromptTokens: promptTokens})
}

// exportAs returns the files of a format.
func exportAs(src export.Source, w export.Writer, opt export.Options) (*export.Output, error) {
	if w.Format == export.FormatCard { // the card states the verdicts
		src.Set = func() (*coeff.Set, error) { return fit.Native(src.Fit, src.Validation) }
	}
	if w.Format != export.FormatNative {
		return export.Export(src, w, opt)
	}
	data, err := coefficientFile(src.Fit, src.Validation)
	return &export.Output{Files: []export.File{{Data: data}}, Warnings: src.Warnings}, err
}

// coefficientFile returns the native coefficient file of a fit, with the gates of a
// validation unless that is nil.
func coefficientFile(f *result.Fit, v *result.Validation) ([]byte, error) {
	set, err := fit.Native(f, v)
	if err != nil {
		return nil, err
	}
	return folder.SetBytes(set)
}
