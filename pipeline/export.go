package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"sort"
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

// ExportOptions decide an export.
type ExportOptions struct {
	export.Options
	Format     export.Format
	Given      []string        // KEY=VALUE options of the format
	Writers    []export.Writer // the foreign formats there are
	Out        string          // file to write
	Validation string          // validation.json with the gates; "": that beside fit.json, where there is one; "none": none
	For        string          // the purpose whose verdict may refuse the export; "": the one the validation decided by
	Accept     coeff.Accept    // verdicts that are taken beside a pass
	Special    bool            // read pipes and devices given as files
}

// DefaultExportOptions are those of the command line but for Out, which has none.
func DefaultExportOptions() ExportOptions {
	return ExportOptions{Format: export.FormatNative, Writers: export.Writers()}
}

// ExportResult is what an export wrote.
type ExportResult struct {
	Format export.Format
	Files  []result.Input // named below the folder of -o
	Output *export.Output // their bytes, and the warnings
}

// Export writes the coefficients of a fit.json in the format a consumer loads, to
// o.Out and files beside it.
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
	if err := o.refused(src.Validation); err != nil {
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
			return w, &option.Misuse{Msg: fmt.Sprintf("--format: got %q, of a fit want %s", o.Format, trace.OneOf(names)),
				Hint: "queue fit writes queue.json, and predictor fit predictor.json, for the other formats"}
		}
		w = o.Writers[i]
	}
	return w, o.ResolveFor(w.Settings)
}

// ResolveFor checks the options against those of a format, and says the command.
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

// VerdictError refuses coefficients that failed their purpose, or could not be judged
// for it: a verdict, not a failure of the tool.
type VerdictError struct{ Msg string }

func (e *VerdictError) Error() string { return e.Msg }

// TooFarOff refuses parameters with which the consumer's formula misses the model.
func (o *ExportOptions) TooFarOff(out *export.Output) error {
	i := slices.IndexFunc(out.Warnings, func(f trace.Finding) bool { return f.Code == export.PoorProjection })
	if i < 0 || o.Overrules(export.PoorProjection) {
		return nil
	}
	return &VerdictError{fmt.Sprintf("%s; aic-fpm, keda-token-aware and llmd-epp hold any step; --force %s writes it all the same",
		out.Warnings[i].Message, export.PoorProjection)}
}

// refused is the verdict that forbids the export; nil without a validation, which the
// export says.
func (o *ExportOptions) refused(v *result.Validation) error {
	if o.For != "" && !gate.IsPurpose(o.For) {
		return option.Misusef("--for: got %q, want %s or %s", o.For, strings.Join(coeff.Purposes, ", "), coeff.PurposeAll)
	}
	if v == nil {
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
	return o.Judge(purpose, scope, got.Verdict, slices.Concat(got.Failed, got.Missing))
}

// Judge is the error when a verdict forbids the export, with the first reasons why.
func (o *ExportOptions) Judge(purpose, scope, verdict string, why []string) error {
	accept := o.Accept
	if accept.Asked = o.For != ""; accept.Takes(verdict) {
		return nil
	}
	said := fmt.Sprintf("verdict for %s of %s: %s", purpose, scope, verdict)
	const most = 3
	if more := len(why) - most; more > 0 {
		why = append(why[:most], fmt.Sprintf("and %d more", more))
	}
	if len(why) > 0 {
		said += " (" + strings.Join(why, "; ") + ")"
	}
	return trace.Hinted(&VerdictError{said}, "the report says why; --ignore-verdict exports all the same")
}

// WriteExport writes the files of a format: name, and those beside it.
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
	src.Warnings, src.Fit.Warnings = changed.found, joined(changed.found, src.Fit.Warnings)
	Predicts(&src, func() (*coeff.Set, error) { return fit.Native(src.Fit, nil) })
	return src, nil
}

// Predicts lets an export ask a coefficient set, made when it is first needed, what a deployment does.
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

// overheadOf is a set's overhead of a prompt that meets an idle server, us.
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

// exportAs makes the files of a format.
func exportAs(src export.Source, w export.Writer, opt export.Options) (*export.Output, error) {
	if w.Format != export.FormatNative {
		return export.Export(src, w, opt)
	}
	data, err := CoefficientFile(src.Fit, src.Validation)
	return &export.Output{Files: []export.File{{Data: data}}, Warnings: src.Warnings}, err
}

// Reference is the workload diff predicts on: Poisson arrivals at a share of
// what the engine can serve, prompts and outputs uniform in 0.5 to 1.5 times
// their means. Both artifacts see the same requests.
type Reference struct {
	Requests       int
	Load           float64 // share of capacity under A, (0, 1)
	Prompt, Output float64 // mean tokens
	Seed           int64
	Done           <-chan struct{} // see sim.Config
}

// DefaultReference is that of the command line.
func DefaultReference() Reference {
	return Reference{Requests: 300, Load: 0.5, Prompt: 512, Output: 128, Seed: 1}
}

// Check reports the first figure that is out of bounds.
func (r Reference) Check() error {
	switch {
	case r.Requests < 0 || r.Requests > 1e6:
		return option.Misusef("--requests: got %d, want 0 to 1e6", r.Requests)
	case !(r.Load > 0 && r.Load < 1):
		return option.Misusef("--load: got %g, want a share in (0, 1)", r.Load)
	case !(r.Prompt >= 2 && r.Prompt <= 1e6):
		return option.Misusef("--prompt-tokens: got %g, want 2 to 1e6", r.Prompt)
	case !(r.Output >= 2 && r.Output <= 1e6):
		return option.Misusef("--output-tokens: got %g, want 2 to 1e6", r.Output)
	}
	return nil
}

// Predictions simulates every configuration of a under both artifacts.
func (r Reference) Predictions(a, b *coeff.Set) ([]export.Prediction, error) {
	var out []export.Prediction
	if r.Requests == 0 {
		return out, nil
	}
	for i := range a.Configs {
		d := a.Configs[i].Deployment
		p, err := r.onConfig(&d, a, b)
		if err != nil {
			return nil, fmt.Errorf("reference workload on %s: %w", d.Label(), err)
		}
		out = append(out, p...)
	}
	return out, nil
}

func (r Reference) onConfig(d *deploy.Deployment, a, b *coeff.Set) ([]export.Prediction, error) {
	fit := r.fitting(d)
	rate, err := fit.rate(d, a)
	if err != nil {
		return nil, err
	}
	reqs := fit.workload(rate)
	ra, err := r.replayOf(d, a, reqs)
	if err != nil {
		return nil, err
	}
	rb, err := r.replayOf(d, b, reqs)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d requests, %.3g/s, %.0f + %.0f tokens", fit.Requests, rate, fit.Prompt, fit.Output)
	var out []export.Prediction
	for k, m := range ra {
		p := export.Prediction{Scope: d.Label(), Workload: name, Metric: m.name, AMs: m.ms, BMs: rb[k].ms}
		if m.ms > 0 {
			p.Change = rb[k].ms/m.ms - 1
		}
		out = append(out, p)
	}
	return out, nil
}

// fitting shortens the lengths so that the longest request fits the model.
func (r Reference) fitting(d *deploy.Deployment) Reference {
	longest := float64(d.LongestSequence().Or(math.MaxInt32))
	if !d.Engine.ChunkedPrefill {
		r.Prompt = math.Min(r.Prompt, float64(d.Engine.MaxNumBatchedTokens)/1.5)
	}
	if need := 1.5 * (r.Prompt + r.Output); need > longest {
		r.Prompt = r.Prompt * longest / need
		r.Output = r.Output * longest / need
	}
	r.Prompt, r.Output = math.Max(2, math.Floor(r.Prompt)), math.Max(2, math.Floor(r.Output))
	return r
}

// rate is load times the requests per second of a full engine: a batch of
// decodes at mean depth in which each request's prompt is prefilled once.
func (r Reference) rate(d *deploy.Deployment, set *coeff.Set) (float64, error) {
	p, err := NewStepTimes(set, d)
	if err != nil {
		return 0, err
	}
	seats := float64(d.Seats(r.Prompt + r.Output))
	depth := trace.Int(math.Trunc(r.Prompt + r.Output/2))
	house := make([]trace.Chunk, int(seats))
	for i := range house {
		house[i] = trace.Chunk{Computed: depth, Prompt: trace.Int(math.Trunc(r.Prompt)), New: 1}
	}
	step, err := p.StepUs(house)
	if err != nil {
		return 0, err
	}
	prefill, err := p.StepUs([]trace.Chunk{{Prompt: trace.Int(math.Trunc(r.Prompt)), New: trace.Int(math.Trunc(r.Prompt))}})
	if err != nil {
		return 0, err
	}
	perRequestUs := r.Output*step/seats + prefill
	return r.Load * 1e6 / perRequestUs, nil
}

// workload draws the requests; the same seed gives the same ones.
func (r Reference) workload(rate float64) []sim.Request {
	rng := rand.New(rand.NewSource(r.Seed))
	at := 0.0
	reqs := make([]sim.Request, r.Requests)
	around := func(mean float64) int64 { return max(1, trace.Int(mean*(0.5+float64(rng.Float64())))) }
	for i := range reqs {
		at += rng.ExpFloat64() / rate * 1e6
		reqs[i] = sim.Request{ID: fmt.Sprintf("r%06d", i), ArrivalUs: sim.ToUs(math.Floor(at)), PromptTokens: around(r.Prompt),
			OutputTokens: around(r.Output)}
	}
	return reqs
}

// figure is one summary of a simulated workload.
type figure struct {
	name string
	ms   float64
}

// replayOf runs the requests under a set and returns p50 and p99 of TTFT, ITL
// and E2E in a fixed order.
func (r Reference) replayOf(d *deploy.Deployment, set *coeff.Set, reqs []sim.Request) ([]figure, error) {
	cfg, err := sim.EngineOf(d, set)
	if err != nil {
		return nil, err
	}
	cfg.Done = r.Done
	res, err := sim.Run(cfg, reqs, nil)
	if err != nil {
		return nil, err
	}
	var ttft, itl, e2e []float64
	for i := range res.Requests {
		q := &res.Requests[i]
		if v, ok := q.TTFTUs(); ok {
			ttft = append(ttft, v/1000)
		}
		if v, ok := q.ITLUs(); ok {
			itl = append(itl, v/1000)
		}
		if v, ok := q.E2EUs(); ok {
			e2e = append(e2e, v/1000)
		}
	}
	var out []figure
	for _, m := range []struct {
		name string
		v    []float64
	}{{"ttft", ttft}, {"itl", itl}, {"e2e", e2e}} {
		if len(m.v) == 0 {
			return nil, fmt.Errorf("no request of the reference workload finished")
		}
		sort.Float64s(m.v)
		out = append(out, figure{m.name + "_p50", at(m.v, 0.5)}, figure{m.name + "_p99", at(m.v, 0.99)})
	}
	return out, nil
}

// at is the nearest-rank quantile of sorted values.
func at(sorted []float64, q float64) float64 {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
