package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/pipeline/queue"
	"github.com/blis-train/blis-train/pipeline/validate/gates"
	"github.com/blis-train/blis-train/queueing"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim/latency"
	"github.com/blis-train/blis-train/trace"
)

// ExportOptions decide an export.
type ExportOptions struct {
	export.QueueOptions // those of a fit are embedded in them
	Format              export.Format
	Out                 string // file to write
	Validation          string // validation.json with the gates; "": that beside fit.json, where there is one; "none": none
	For                 string // the purpose whose verdict may refuse the export; "": the one the validation decided by
	Ignore              bool   // write it whatever the verdict
	Special             bool   // read pipes and devices given as files
}

// DefaultExportOptions are those of the command line but for Out, which has none.
func DefaultExportOptions() ExportOptions {
	return ExportOptions{QueueOptions: export.QueueOptions{Options: export.DefaultOptions(), Key: "perfParms"}, Format: export.FormatNative}
}

// Table is the options of the stage as flags and as recorded.
func (o *ExportOptions) Table() option.Table {
	var names []string
	for _, f := range export.All() {
		names = append(names, string(f))
	}
	d := DefaultExportOptions()
	return option.Table{
		option.String("format", &o.Format, "`FORMAT`: "+strings.Join(names, ", ")).Recorded(),
		option.String("validation", &o.Validation, "validation.json with the gates, `FILE`; default the one beside fit.json, none for none"),
		option.String("for", &o.For, "the `PURPOSE` whose verdict may refuse the export (default: the validation's own)").Recorded(),
		option.Switch("ignore-verdict", &o.Ignore, "write the export though its purpose failed or could not be judged").Recorded(),
		option.String("force", &o.Force, "write what the format's reader should not be given, by the `CODE` of the refusal; several by comma").
			Recorded(),
		option.String("config", &o.Config, "only this configuration, by `LABEL` or key").Recorded(),
		option.Real("prompt-tokens", &o.PromptTokens,
			"mean prompt length `TOKENS` of the traffic; 0: of the training requests").Recorded().Unless("0"),
		option.Real("output-tokens", &o.OutputTokens,
			"mean output length `TOKENS` of the traffic; 0: of the training requests").Recorded().Unless("0"),
		option.String("name", &o.Name, "`PREFIX` of the registry set and the Kubernetes resources").Recorded().Unless(d.Name),
		option.String("slo-class-name", &o.SLOClassName, "wva: `CONFIGMAP` that sloClassRef names").Recorded().Unless(d.SLOClassName),
		option.String("slo-class-key", &o.SLOClassKey, "wva: `KEY` in it; default the model id").Recorded(),
		option.String("consumer-version", &o.ConsumerVersion, "`VERSION` of the autoscaler, such as v0.4.2; one that does not read the "+
			"file is refused").Recorded(),
		option.String("key", &o.Key, "inferno-models: `KEY` of the parameters, perfParms or serviceParms").Recorded().Unless(d.Key),
		option.String("namespace", &o.Namespace, "wva-slo: `NAMESPACE` of the model's pods").Recorded(),
		option.Real("unit-cost", &o.UnitCost, "wva-4p of a queue.json: `CENTS` per device and hour").Recorded().Unless("0"),
		option.Real("ttft-ms", &o.TTFTMs, "wva-slo: target mean TTFT, `MS`; default that of queue size").Recorded().Unless("0"),
		option.Real("itl-ms", &o.ITLMs, "wva-slo: target mean ITL, `MS`; default that of queue size").Recorded().Unless("0"),
		option.Switch("physical", &o.Physical, "queue.json: physical parameters in place of the effective ones").Recorded(),
	}
}

// ExportResult is what an export wrote.
type ExportResult struct {
	Format export.Format
	Files  []result.Input // by base name
	Output *export.Output // their bytes, and the warnings
}

// Export writes the coefficients of a fit.json in the format a consumer loads, to
// o.Out and files beside it.
func Export(ctx context.Context, fitFile string, o ExportOptions) (*ExportResult, error) {
	if o.Out == "" {
		return nil, option.Misusef("export: missing -o FILE")
	}
	if err := errors.Join(o.Resolve(), o.OfCoefficients()); err != nil {
		return nil, err
	}
	src, err := o.source(fitFile)
	if err != nil {
		return nil, err
	}
	if err := o.refused(src.Validation); err != nil {
		return nil, err
	}
	out, err := exportAs(src, o.Format, o.Options)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	if err := o.TooFarOff(out); err != nil {
		return nil, err
	}
	return WriteExport(o.Out, o.Format, out)
}

// Resolve checks the options, names the format as it is called now, and says the command.
func (o *ExportOptions) Resolve() error {
	format, err := export.ParseFormat(string(o.Format))
	if err == nil {
		err = o.Check()
	}
	if err != nil {
		return &option.Misuse{Msg: err.Error()}
	}
	o.Format = format
	o.Command = o.Table().Command("export")
	return export.CheckVersion(format, o.ConsumerVersion)
}

// OfCoefficients refuses options that only a queue.json has a use for.
func (o *ExportOptions) OfCoefficients() error {
	said := o.Table().Only("key", "namespace", "unit-cost", "ttft-ms", "itl-ms", "physical").Command("")
	if said == "" {
		return nil
	}
	return option.Misusef("export:%s: got it without a queue.json", said)
}

// VerdictError refuses coefficients that failed their purpose, or could not be judged
// for it: a verdict, not a failure of the tool.
type VerdictError struct{ Msg string }

func (e *VerdictError) Error() string { return e.Msg }

// TooFarOff refuses parameters with which the consumer's formula misses the model.
func (o *ExportOptions) TooFarOff(out *export.Output) error {
	i := slices.IndexFunc(out.Warnings, func(f trace.Finding) bool { return f.Code == export.PoorLinearisation })
	if i < 0 || o.Overrules(export.PoorLinearisation) {
		return nil
	}
	return &VerdictError{fmt.Sprintf("%s; --force %s writes it all the same", out.Warnings[i].Message, export.PoorLinearisation)}
}

// refused is the verdict that forbids the export; nil without a validation, which the
// export says.
func (o *ExportOptions) refused(v *result.Validation) error {
	if o.For != "" && !gates.CheckPurpose(o.For) {
		return option.Misusef("--for: got %q, want %s or %s", o.For, strings.Join(coeff.Purposes, ", "), coeff.PurposeAll)
	}
	if v == nil || o.Ignore {
		return nil
	}
	purpose := cmp.Or(o.For, v.For, coeff.PurposeReplay)
	scope := coeff.ScopeAll
	for _, c := range v.Configs {
		if o.Config != "" && (c.Scope == o.Config || c.Config == o.Config) {
			scope = c.Scope
		}
	}
	got := v.VerdictFor(purpose, scope)
	if got.Verdict != coeff.VerdictFail && got.Verdict != coeff.VerdictInsufficient {
		return nil
	}
	why := slices.Concat(got.Failed, got.Missing)
	const most = 3
	if more := len(why) - most; more > 0 {
		why = append(why[:most], fmt.Sprintf("and %d more", more))
	}
	return &VerdictError{fmt.Sprintf("verdict for %s of %s: %s (%s); --ignore-verdict exports all the same", purpose, scope,
		got.Verdict, strings.Join(why, "; "))}
}

// WriteExport writes the files of a format: name, and those beside it.
func WriteExport(name string, format export.Format, out *export.Output) (*ExportResult, error) {
	got := &ExportResult{Format: format, Files: []result.Input{}, Output: out}
	for _, f := range out.Files {
		if err := files.Write(name+f.Suffix, f.Data); err != nil {
			return nil, err
		}
		got.Files = append(got.Files, folder.InputOf(filepath.Base(name+f.Suffix), f.Data))
	}
	return got, nil
}

// source reads fit.json and the validation beside it.
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
	from, beside := o.Validation, o.Validation == ""
	if beside {
		from = filepath.Join(filepath.Dir(fitFile), folder.ValidationFile)
	}
	if from != "none" {
		val := &result.Validation{}
		switch err := folder.ReadDocument(from, val, changed.add); {
		case err == nil:
			src.Validation = val
		case beside && errors.Is(err, fs.ErrNotExist):
		default:
			return src, err
		}
	}
	src.Doubts, src.Fit.Warnings = changed.found, joined(changed.found, src.Fit.Warnings)
	Predicts(&src, func() (*coeff.Set, error) { return export.Native(src.Fit, nil) })
	return src, nil
}

// Predicts lets an export ask a coefficient set, made when it is first needed, what a deployment does.
func Predicts(src *export.Source, made func() (*coeff.Set, error)) {
	made = sync.OnceValues(made)
	src.Step = func(d deploy.Deployment) (export.StepTimer, error) {
		set, err := made()
		if err != nil {
			return nil, err
		}
		return NewStepTimes(set, &d)
	}
	src.OverheadUs = func(d deploy.Deployment, promptTokens int64) (float64, error) {
		set, err := made()
		if err != nil {
			return 0, err
		}
		return overheadOf(set, &d, promptTokens)
	}
	src.Steady = func(d deploy.Deployment, overheadMs, prompt, output float64) (*export.Steady, error) {
		set, err := made()
		if err != nil {
			return nil, err
		}
		return steadyOf(set, &d, overheadMs, prompt, output)
	}
	src.Loads = func(d deploy.Deployment, beta []float64, prompt, output float64) ([]export.LoadPoint, error) {
		set, err := made()
		if err != nil {
			return nil, err
		}
		return blisLoads(set, &d, beta, prompt, output)
	}
}

// overheadOf is a set's overhead of a prompt that meets an idle server, us.
func overheadOf(set *coeff.Set, d *deploy.Deployment, promptTokens int64) (float64, error) {
	delay, err := latency.NewAlphaDelay(set, coeff.Overhead, d)
	if err != nil {
		return 0, err
	}
	blocks, _, err := d.KVBlocks()
	if err != nil {
		return 0, err
	}
	return delay.DelayUs(&latency.Queue{FreeBlocks: blocks, TotalBlocks: blocks, PromptTokens: promptTokens})
}

// steadyOf are the four parameters of an autoscaler that give what a coefficient set says of a
// deployment's steady state.
func steadyOf(set *coeff.Set, d *deploy.Deployment, overheadMs, prompt, output float64) (*export.Steady, error) {
	step, err := latency.NewPhysics(set, d)
	if err != nil {
		return nil, err
	}
	s, err := queue.SteadyState(d, step, overheadMs, queueing.WVA4P, prompt, output)
	if err != nil {
		return nil, err
	}
	out := &export.Steady{Params: queueing.FromVector(s.X)}
	for _, p := range s.Points {
		out.Points = append(out.Points, export.SteadyPoint{LoadFrac: p.Load, RateRPS: p.RateRPS, TTFTMs: p.TTFTMs, ITLMs: p.ITLMs,
			TTFTErr: result.OrNull(p.TTFTPred/p.TTFTMs - 1), ITLErr: result.OrNull(p.ITLPred/p.ITLMs - 1)})
	}
	return out, nil
}

// blisLoads is what BLIS's terms do in simulated traffic, beside a coefficient set.
func blisLoads(set *coeff.Set, d *deploy.Deployment, beta []float64, prompt, output float64) ([]export.LoadPoint, error) {
	ours, err := latency.NewPhysics(set, d)
	if err != nil {
		return nil, err
	}
	theirs, err := latency.NewTrainedPhysics(make([]float64, 3), beta, d)
	if err != nil {
		return nil, err
	}
	points, err := queue.CompareLoads(d, ours, theirs, prompt, output)
	if err != nil {
		return nil, err
	}
	var out []export.LoadPoint
	for _, p := range points {
		out = append(out, export.LoadPoint{LoadFrac: p.Load, RateRPS: p.RateRPS, E2EMs: p.E2EMs, E2ERatio: p.E2ERatio})
	}
	return out, nil
}

// exportAs makes the files of a format.
func exportAs(src export.Source, format export.Format, opt export.Options) (*export.Output, error) {
	if format != export.FormatNative {
		return export.Export(src, format, opt)
	}
	data, err := CoefficientFile(src.Fit, src.Validation)
	return &export.Output{Files: []export.File{{Data: data}}, Warnings: src.Doubts}, err
}
