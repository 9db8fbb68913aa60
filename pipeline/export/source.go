// Package export turns a fit into files: the native artifact, and the formats
// of the simulators that read coefficients.
//
//	native              coeff.Set as YAML; everything needed to reproduce it is inside
//	blis-defaults       BLIS's defaults.yaml: 3 alpha and 11 beta by position
//	blis-scenario       a scenario and a coefficient set of BLIS's kernel mode
//	blis-registry-host  entries of the registry's cost-model-host-overheads set
//	keda-token-aware    ScaledObjects of KEDA with our prefill throughput
//	llmd-epp            the plugin chain of llm-d's router with it
//
// In goes a [Source]: fit.json, validation.json when there is one, and functions
// that predict a step and simulate. Out come [File]s. A foreign format has no place
// for provenance (BLIS calls an unknown key a fatal error), so each comes with a
// sidecar that has: inputs with hashes, every value with its origin and what it does
// in the consumer, the equivalent command lines, warnings. A product beside the core
// adds formats of its own as [Writer]s, with the helpers of this package.
//
// What it promises: the same source gives the same bytes. What it refuses,
// unless [Options].Force names it: negative and non-finite values, values the data
// did not teach and the deployment would use, and poor projections. Every refusal says what the value would do in the consumer.
//
// [Check] holds an artifact against a deployment, [Diff] against another artifact, and
// [Entry] is a line of the ledger of fits. The formats as read, and the commits they were
// read at, are in docs/compatibility.md.
package export

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Format is an output format.
type Format string

// The formats of this package.
const (
	FormatNative       Format = "native"
	FormatBLIS         Format = "blis-defaults"
	FormatScenario     Format = "blis-scenario"
	FormatRegistryHost Format = "blis-registry-host"
	FormatKEDA         Format = "keda-token-aware"
	FormatEPP          Format = "llmd-epp"
)

// Writer makes the files of one format of a fit.
type Writer struct {
	Format   Format
	Settings []Setting // the options that only this format has
	Write    func(Source, Options) (*Output, error)
}

// Writers are the foreign formats of this package.
func Writers() []Writer {
	return []Writer{{Format: FormatBLIS, Write: blisDefaults, Settings: blisSettings}, {Format: FormatRegistryHost, Write: hostRegistry},
		{Format: FormatScenario, Write: blisScenario, Settings: formats().Options[FormatScenario]},
		{Format: FormatKEDA, Write: keda, Settings: formats().Options[FormatKEDA]},
		{Format: FormatEPP, Write: endpointPicker, Settings: formats().Options[FormatEPP]}}
}

// Source is what an export is made from.
type Source struct {
	Fit        *result.Fit
	FitInput   result.Input       // fit.json itself: name, bytes, sha256
	Validation *result.Validation // nil: not validated
	Warnings   []trace.Finding    // about those files
	Library    string             // version of the library the coefficients are of; empty: fitted to recordings
	// Set are the coefficients; nil: none are known.
	Set func() (*coeff.Set, error)
	// Step returns the step time of one configuration under the coefficients.
	Step func(deploy.Deployment) (StepTimer, error)
	// OverheadUs is the fit's overhead of a prompt that meets an idle server; needed by blis-registry-host.
	OverheadUs func(d deploy.Deployment, promptTokens int64) (float64, error)
	// Loads simulates a deployment with a model of BLIS's and with its own at several loads; needed by
	// blis-defaults and blis-scenario.
	Loads func(d deploy.Deployment, alpha []float64, prompt, output float64, blis ConsumerModel) (*OnLoads, error)
}

// SteadyPoint is one load: what the simulator says, and what the consumer's own formula says of it.
type SteadyPoint struct {
	LoadFrac float64  `json:"load_frac"` // of the capacity
	RateRPS  float64  `json:"rate_rps"`
	TTFTMs   float64  `json:"ttft_ms"` // simulated mean
	ITLMs    float64  `json:"itl_ms"`
	TTFTErr  *float64 `json:"ttft_rel_err"` // consumer / simulated - 1; null: the consumer has no answer
	ITLErr   *float64 `json:"itl_rel_err"`
}

// StepTimer predicts how long one engine step takes, in us.
type StepTimer interface {
	StepUs(batch []trace.Chunk) (float64, error)
}

// Options change what is written.
type Options struct {
	Force string // codes of refusals to overrule, by comma
	// PromptTokens and OutputTokens are the mean lengths the linear formats
	// assume; 0 takes the fit's means, else 512 and 128 with a warning.
	PromptTokens, OutputTokens float64
	Config                     string   // only this configuration (label or key); empty: all
	Settings                   Settings // those of the format
	Command                    string   // these options as documents record them
}

// Check names the first option out of range.
func (o Options) Check() error {
	for _, v := range []struct {
		flag  string
		value float64
	}{{"--prompt-tokens", o.PromptTokens}, {"--output-tokens", o.OutputTokens}} {
		if math.IsNaN(v.value) || v.value < 0 || v.value > 1e7 {
			return fmt.Errorf("%s: got %g tokens, want 0 to 1e7", v.flag, v.value)
		}
	}
	for _, name := range o.forced() {
		if !slices.Contains(forceable, name) {
			return fmt.Errorf("--force: got %q, want %s", name, trace.OneOf(forceable))
		}
	}
	return nil
}

// forceable are the refusals that --force can name.
var forceable = []trace.Code{unlearnedValue, impossibleValue, PoorProjection, BeyondTraining, BadEntry}

// Overrules says whether the options overrule a refusal.
func (o *Options) Overrules(code trace.Code) bool { return slices.Contains(o.forced(), code) }

// forced are the refusals that are overruled.
func (o *Options) forced() []trace.Code {
	var out []trace.Code
	for _, name := range strings.Split(o.Force, ",") {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, trace.Code(name))
		}
	}
	return out
}

// File is one file to write: the export itself has an empty Suffix, sidecars
// are named by appending theirs.
type File struct {
	Suffix string
	Data   []byte
}

// Output is a finished export.
type Output struct {
	Files       []File
	Warnings    []trace.Finding
	Projections []Projected // of BLIS's formats: one a configuration
}

// Export writes the source in a foreign format. The native format is [Native],
// whose Set the caller saves.
func Export(src Source, w Writer, opt Options) (*Output, error) {
	if err := opt.Check(); err != nil {
		return nil, err
	}
	out, err := w.Write(src, opt)
	if err != nil {
		return nil, fmt.Errorf("export %s: %w", w.Format, err)
	}
	out.Warnings = append(src.ValidationWarnings(), out.Warnings...)
	return out, nil
}

// ValidationWarnings says what a reader of the export should know first.
func (src *Source) ValidationWarnings() []trace.Finding {
	return append(slices.Clip(src.Warnings), verdictWarnings(src.Validation)...)
}

func verdictWarnings(v *result.Validation) []trace.Finding {
	if v == nil {
		return []trace.Finding{trace.Findingf(notValidated, "no validation.json was given; the sidecar says so")}
	}
	if v.Verdict == coeff.VerdictPass {
		return nil
	}
	names := stat.Map(stat.Filter(v.Gates, func(g result.Gate) bool { return g.Pass != nil && !*g.Pass }), func(g result.Gate) string {
		return g.Name + " (" + g.Scope + ")"
	})
	if len(names) == 0 {
		return []trace.Finding{trace.Findingf(notValidated, "validation verdict %q", v.Verdict)}
	}
	return []trace.Finding{trace.Findingf(notValidated, "validation verdict %q: %s", v.Verdict, strings.Join(names, ", "))}
}

// modelNamed returns the parameterisation called name, nil where the fit has none.
func modelNamed(fit *result.Fit, name string) *result.Model {
	for i := range fit.Models {
		if fit.Models[i].Name == name {
			return &fit.Models[i]
		}
	}
	return nil
}

// Configs returns the configurations an export covers, in the fit's order.
func (src *Source) Configs(want string) ([]result.FitConfig, error) {
	var out []result.FitConfig
	var labels []string
	for _, c := range src.Fit.Configs {
		labels = append(labels, c.Label)
		if want == "" || c.Key == want || c.Label == want {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return nil, trace.Errorf(NothingToExport, "configuration: got %q, want %s", want, trace.OneOf(labels))
	}
	return out, nil
}

// one is the configuration of a format that holds one deployment.
func (src *Source) one(opt Options, f Format) (*result.FitConfig, error) {
	cfgs, err := src.Configs(opt.Config)
	if err != nil {
		return nil, err
	}
	if len(cfgs) > 1 {
		return nil, trace.Errorf(BadEntry, "%s: got %d configurations, want one", f, len(cfgs)).
			WithHint(fmt.Sprintf("--config %q", cfgs[0].Label))
	}
	return &cfgs[0], nil
}

// Lengths assumed when neither the fit nor the caller knows better, in tokens.
const (
	assumedPrompt = 512
	assumedOutput = 128
)

// Lengths are the mean prompt and output lengths of a configuration.
type Lengths struct{ Prompt, Output float64 }

// MeanLengths takes the options, else the fit's means, else a stated assumption.
func (o *Options) MeanLengths(c result.FitConfig) (Lengths, []trace.Finding) {
	l := Lengths{o.PromptTokens, o.OutputTokens}
	assumed := false
	pick := func(v *float64, mean *float64, def float64) {
		if *v > 0 {
			return
		}
		if mean != nil && *mean > 0 {
			*v = *mean
			return
		}
		*v, assumed = def, true
	}
	pick(&l.Prompt, c.MeanPromptTokens, assumedPrompt)
	pick(&l.Output, c.MeanOutputTokens, assumedOutput)
	if !assumed {
		return l, nil
	}
	return l, []trace.Finding{trace.Findingf(AssumedValue, "%s: %.0f prompt and %.0f output tokens", c.Label, l.Prompt, l.Output)}
}

// Timer binds the coefficients to one configuration.
func (src *Source) Timer(c result.FitConfig) (StepTimer, error) {
	if src.Step == nil {
		return nil, trace.Errorf(NothingToExport, "%s: no step-time model was given", c.Label)
	}
	t, err := src.Step(c.Deployment)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Label, err)
	}
	return t, nil
}

// Setting is an option of one format: --option KEY=VALUE.
type Setting struct {
	Key, Usage string
	Default    string
	Number     bool     // a number from 0 up
	OneOf      []string // the only values there are; empty: any
}

// Settings are the options of a format by key, every one of them there.
type Settings map[string]string

// ParseSettings reads KEY=VALUE words against what a format has. A key that it lacks, or a
// value that is none, is a misuse.
func ParseSettings(f Format, known []Setting, words []string) (Settings, error) {
	out := Settings{}
	var keys []string
	if read := formats().Versions[f]; read != nil {
		known = append(slices.Clip(known), Setting{Key: "version", OneOf: read})
	}
	for _, k := range known {
		out[k.Key] = k.Default
		keys = append(keys, k.Key)
	}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		i := slices.Index(keys, key)
		if i < 0 && len(keys) == 0 {
			return nil, option.Misusef("--option %s: format %s has no options", word, f)
		}
		if i < 0 || !ok {
			return nil, option.Misusef("--option: got %q, want KEY=VALUE with one of %s (format %s)", word, trace.OneOf(keys), f)
		}
		if known[i].Number {
			if v, err := strconv.ParseFloat(value, 64); err != nil || !(v >= 0 && v <= mostNumber) {
				return nil, option.Misusef("--option %s: got %q, want a number from 0 to %g", key, value, float64(mostNumber))
			}
		}
		if len(known[i].OneOf) > 0 && !slices.Contains(known[i].OneOf, value) {
			return nil, option.Misusef("--option %s: got %q, want %s", key, value, trace.OneOf(known[i].OneOf))
		}
		out[key] = value
	}
	return out, nil
}

// mostNumber is above any price, time or length.
const mostNumber = 1e12

// Float is the value of a number; 0 where the format has none of that key.
func (s Settings) Float(key string) float64 {
	v, _ := strconv.ParseFloat(s[key], 64)
	return v
}

// SidecarSuffix is appended to the name of a foreign file for its provenance.
const SidecarSuffix = ".provenance.json"

// Sidecar is the provenance of a foreign file.
type Sidecar struct {
	result.Header
	Format       string          `json:"format"`
	ReadBy       string          `json:"read_by"`
	FitInputs    []result.Input  `json:"fit_inputs"` // what the fit was made from
	FitCommand   string          `json:"fit_command"`
	TrainingDate string          `json:"training_date"`
	Holdout      *result.Errors  `json:"holdout"`          // of the exported parameterisation, null when it has none
	Verdict      string          `json:"verdict"`          // of validation.json; "not validated" without one
	Purpose      *string         `json:"purpose"`          // the verdict is of: steps, replay, waits, transfer or all; null: of none
	SpecVersion  *string         `json:"spec_version"`     // of the features, or the queueing model; null: neither
	FeatureHash  *string         `json:"feature_set_hash"` // of the formulas behind the coefficients
	Library      *string         `json:"library_version"`  // of a library's coefficients; null: fitted to recordings
	Values       []SideValue     `json:"values"`
	Configs      []SideConfig    `json:"configs"`
	Warnings     []trace.Finding `json:"warnings"`
}

// SideValue is one number of the foreign file.
type SideValue struct {
	Key        string      `json:"key"`
	Name       string      `json:"name"`
	Value      *float64    `json:"value"` // null when not finite
	Unit       string      `json:"unit"`
	CI95       *[2]float64 `json:"ci95"`
	Identified string      `json:"identified"`
	Learned    bool        `json:"learned"`
	Origin     string      `json:"origin"`
	Effect     string      `json:"effect"` // what the consumer does with it
}

// SideConfig is one configuration the file is meant for.
type SideConfig struct {
	Label               string   `json:"label"`
	Seats               int64    `json:"seats,omitempty"` // the region: 1 to so many requests at a time, of the lengths below
	CommandLine         string   `json:"command_line,omitempty"`
	DefaultsCommandLine string   `json:"defaults_command_line,omitempty"`
	PromptTokens        *float64 `json:"prompt_tokens,omitempty"` // mean length the lines below assume
	OutputTokens        *float64 `json:"output_tokens,omitempty"`
	MaxRelErr           *float64 `json:"max_rel_err,omitempty"`  // straight line against the physics model, on the grid
	MeanRelErr          *float64 `json:"mean_rel_err,omitempty"` // the same, mean of absolute values
	GridPoints          int      `json:"grid_points,omitempty"`
	// ValidFor is where the line was held against the model; the JSON of the consumer has no place for it.
	ValidFor *Validity `json:"valid_for,omitempty"`
	// Steady is the consumer's own formula against our simulator, by load.
	Steady []SteadyPoint `json:"steady_state,omitempty"`
	// Projection is the consumer's terms against the step-time model, on batches that were not fitted.
	Projection []projectionError `json:"projection,omitempty"`
	// Loads are the consumer's terms in simulated traffic, beside the model.
	Loads []LoadPoint `json:"simulated_loads,omitempty"`
	Note  string      `json:"note,omitempty"`
}

// Validity is the range of batches that a line is fitted on, both ends included, and what the training reached.
type Validity struct {
	Requests      [2]int64 `json:"requests"`                        // decodes in a batch
	ContextTokens [2]int64 `json:"context_tokens"`                  // of each
	ChunkTokens   [2]int64 `json:"prompt_chunk_tokens"`             // beside them; within the token budget
	LongestPrompt int64    `json:"trained_prompt_tokens,omitempty"` // of a finished request; 0: not known
	LongestOutput int64    `json:"trained_output_tokens,omitempty"`
	MostRunning   int64    `json:"trained_running,omitempty"`
}

// projectionError is how far the consumer's terms are from the model they stand for.
type projectionError struct {
	Batches string   `json:"batches"` // all, decode, mixed or prefill
	Steps   int      `json:"steps"`
	MAPE    *float64 `json:"mape"`
	Worst   *float64 `json:"worst"` // signed
	Bias    *float64 `json:"bias"`  // of the sum of times
}

// NewSidecar is the provenance of a file that a command made from a document, in, of the given header:
// what is not known of it is null.
func NewSidecar(of *result.Header, in result.Input, format, command, readBy string) *Sidecar {
	s := &Sidecar{
		Header: result.NewHeader(of.ToolVersion, command), Format: format, ReadBy: readBy, FitInputs: of.Inputs,
		FitCommand: of.Command, Verdict: "not validated", Values: []SideValue{}, Configs: []SideConfig{}, Warnings: []trace.Finding{},
	}
	s.Inputs = []result.Input{in}
	s.Platform = of.Platform
	return s
}

// Sidecar is that of an export of coefficients.
func (src *Source) Sidecar(opt Options, f Format, readBy string) *Sidecar {
	s := NewSidecar(&src.Fit.Header, src.FitInput, string(f), opt.Command, readBy)
	s.TrainingDate = src.Fit.TrainingDate
	s.SpecVersion, s.FeatureHash = result.TextOrNull(src.Fit.Beta.SpecVersion), result.TextOrNull(src.Fit.FeatureSet.Hash)
	s.Library = result.TextOrNull(src.Library)
	if src.Validation != nil {
		s.Verdict, s.Purpose = src.Validation.Verdict, result.TextOrNull(src.Validation.For)
	}
	if m := modelNamed(src.Fit, blisModel); m != nil && f == FormatBLIS {
		s.Holdout = m.Holdout
	}
	return s
}

// regions are the configurations of a file without lines of their own: how they will be used.
func regions(cfgs []result.FitConfig, opt Options) (out []SideConfig, warn []trace.Finding) {
	for _, c := range cfgs {
		l, w := opt.MeanLengths(c)
		out = append(out, SideConfig{Label: c.Label, Seats: c.Deployment.Seats(l.Prompt + l.Output), PromptTokens: &l.Prompt,
			OutputTokens: &l.Output})
		warn = append(warn, w...)
	}
	return out, warn
}

// Beside is an export of files and their sidecar.
func (s *Sidecar) Beside(warn []trace.Finding, files ...File) (*Output, error) {
	if s.Warnings == nil {
		s.Warnings = []trace.Finding{}
	}
	data, err := result.Marshal(s)
	if err != nil {
		return nil, err
	}
	return &Output{Files: append(files, File{SidecarSuffix, data}), Warnings: warn}, nil
}

// kernelModels are the models of BLIS's catalog 0.2 whose graph has the nodes of kernelMode's law (full attention, equal layers, 16
// bits), with their layers and hidden size. A graph is made by the catalog's derive_graph.py alone.
var kernelModels = map[string][2]int64{"codellama-34b-instruct-hf": {48, 8192}, "llama-2-70b-hf": {80, 8192}, "llama-2-7b-hf": {32, 4096},
	"llama-3.1-70b-instruct": {80, 8192}, "llama-3.1-8b-instruct": {32, 4096}, "mistral-nemo-instruct-2407": {40, 5120},
	"mixtral-8x22b-v0.1": {56, 6144}, "mixtral-8x7b-v0.1": {32, 4096}, "qwen2.5-7b-instruct": {28, 3584}, "qwen3-14b": {40, 5120},
	"qwen3-30b-a3b": {48, 2048}, "yi-34b": {60, 7168}}

// kernelPeaks are 1e12 FLOP/s of 16 bits and 1e12 bytes/s of the catalog's parts (hardware/*.yaml at b20b7f1), which the law's
// efficiencies are shares of.
var kernelPeaks = map[string][2]float64{"a100-sxm": {312, 2.039}, "b200": {2250, 7.7}, "b300": {2250, 7.75}, "gb200-nvl72": {2500, 8},
	"h100": {989.5, 3.35}, "h200": {989.5, 4.8}, "l40s": {362.05, 0.864}}

// kernelRows are the m_half of gemm_m_half_bf16 that are tried.
var kernelRows = []float64{8, 16, 32, 64, 96, 128, 192, 256, 384}

// scenarioText is a scenario and its deployment (inference-sim docs/guide/latency-models.md@a919bf9, blis-schemas v0.2). Every
// replay costs the same in PIECEWISE, whatever the batch; one unit of our set is written so.
const scenarioText = `kind: Scenario
name: {{.Name}}
model: {{.Model}}
engine_version: "0.29.0"
coefficients: [cost-model-primitives, cost-model-collectives, cost-model-host-overheads, cost-model-attention, cost-model-recurrent, ` +
	`cost-model-memory, {{.Name}}]
cluster: {hardware: {{.Part}}, nodes: 1, gpus_per_node: 8}
---
kind: Deployment
name: {{.Name}}
pools:
  - {role: colocated, nodes: 1, parallel: {tp: {{.TP}}, pp: 1, dp: 1}, engine: {block_size: {{.E.BlockSize}}, ` +
	`max_num_batched_tokens: {{.E.MaxNumBatchedTokens}}, max_num_seqs: {{.E.MaxNumSeqs}}, max_model_len: {{.Longest}}, ` +
	`cudagraph_mode: PIECEWISE, enable_prefix_caching: {{.E.PrefixCaching}}}}
`

// kernelLacks says what the law does not have of a deployment.
func kernelLacks(d *deploy.Deployment, model, part string) *trace.Error {
	p, sizes := d.Parallel(), kernelModels[model]
	for _, x := range []struct {
		lacks     bool
		got, want string
	}{{kernelPeaks[part][0] == 0, "hardware " + d.Hardware.Name, "a part of BLIS's catalog"},
		{d.Model.WhyLayered() != "", d.Model.WhyLayered(), "full attention and equal layers"},
		{sizes[0] == 0, "model " + model, trace.OneOf(slices.Sorted(maps.Keys(kernelModels))) + " (--option model=NAME)"},
		{sizes != [2]int64{d.Model.NumLayers, d.Model.HiddenSize}, fmt.Sprintf("%d layers of %d", d.Model.NumLayers, d.Model.HiddenSize),
			fmt.Sprintf("%d of %d as %s has", sizes[0], sizes[1], model)},
		{d.Model.BytesPerWeight != 2 || d.Model.BytesPerActivation != 2, fmt.Sprintf("%g bytes a weight", d.Model.BytesPerWeight), "2"},
		{p.Experts || p.DP > 1 || p.PP > 1, "expert, data or pipeline parallelism", "tensor parallelism alone"},
		{!slices.Contains([]int64{1, 2, 4, 8}, p.TP), fmt.Sprintf("tensor parallelism %d", p.TP), "1, 2, 4 or 8"},
		{!d.LongestSequence().OK, "no max_model_len", "one"},
	} {
		if x.lacks {
			return trace.Errorf(BadEntry, "%s: got %s, want %s", FormatScenario, x.got, x.want).
				WithHint("--format native or aic-fpm hold any deployment's steps")
		}
	}
	return nil
}

// onKernelMode projects the target on the law with the m_half that fits best; its efficiencies are shares of the peaks of part, none
// above 1. The model's layers are as BLIS reads them. Batches weigh by how near their requests are to those of busy.
func onKernelMode(t Target, part string, busy []float64) (of *kernelMode, best *Projection, err error) {
	own := *t.Deployment
	own.Model = own.Model.AsBLISReads()
	own.Hardware.TFlopsPeak = kernelPeaks[part][0]
	own.Hardware.BwPeakTBs = kernelPeaks[part][1]
	least := []float64{kernelDense: 1, kernelMemory: 1, kernelReduceBytes: 0}
	for _, rows := range kernelRows {
		k := newKernelMode(&own, rows)
		p, err := project([]Target{t}, []law{{least: least, busy: busy, terms: func(batch []trace.Chunk) []float64 {
			var b sim.Batch
			for _, c := range batch {
				b.Add(c.Computed, c.Prompt, c.New, 0, 1)
			}
			return slices.Clone(k.Terms(&b))
		}}})
		if err != nil {
			return nil, nil, err
		}
		if best == nil || p[0].fitted < best.fitted {
			of = k
			best = &p[0]
			k.Values = [kernelTerms]float64(p[0].Beta)
		}
	}
	return of, best, nil
}

// onKernelMode fits the entry twice: to all batches alike, and to those that are as large as the loads at which it is compared have
// them on average (Little's law), because one bend of the law has to do for a memory-bound and for a busy engine.
func (e *blisEntry) onKernelMode(src *Source, t Target, part string) (law *kernelMode, err error) {
	for range 2 {
		busy := stat.Map(e.loads, func(l LoadPoint) float64 { return math.Max(1, l.RateRPS*l.E2EMs/1e3) })
		var p *Projection
		if law, p, err = onKernelMode(t, part, busy); err != nil {
			return nil, err
		}
		e.beta, e.fits = p.Beta, *p
		if e.alpha, err = blisAlphas(src.Fit, e.config); err != nil {
			return nil, err
		}
		if _, err = e.simulate(src, func(alpha []float64) (sim.Parts, error) {
			return sim.Parts{Step: law, Overhead: sim.Const(alpha[0]), Egress: sim.Const(alpha[1]), TokenUs: alpha[2]}, nil
		}); err != nil {
			return nil, err
		}
	}
	return law, nil
}

// kernelValues are the registry's entries of a law, with the delays of a request before the queue and at completion, us.
// A value of 0 takes the place of the registry's own where the law has its time in another entry.
func kernelValues(k *kernelMode, d *deploy.Deployment, part string, alpha []float64) []blisValue {
	const none = 1e-9 // of a peak: in place of a rate without bound
	v := k.Values
	bytesPerUs := kernelPeaks[part][1] * 1e6
	rate := func(i int) float64 { return bytesPerUs / math.Max(v[i], none) }
	type entry = struct {
		name, units string
		value       float64
	}
	entries := []entry{{"gemm_eps_max_bf16", "dimensionless", 1 / v[kernelDense]}, {"gemm_m_half_bf16", "tokens", k.MHalf},
		{"hbm_derate", "dimensionless", 1 / v[kernelMemory]},
		{"attention_decode_floor", "us_per_transfer", v[kernelDecodes]}, {"attention_decode_rate", "bytes_per_us", rate(kernelDecodeKV)},
		{"attention_prefill_floor", "us_per_transfer", v[kernelPrefills]},
		{"attention_prefill_work_scale", "dimensionless", v[kernelDense] / math.Max(v[kernelPrefillPairs], none)},
		{"host_replay_graph_per_step", "us_per_step", v[kernelStep] / float64(d.Model.NumLayers+1)},
		{"host_launch_eager_per_layer", "us_per_layer", v[kernelStep] / float64(d.Model.NumLayers)},
		{"host_launch_per_kernel", "us_per_transfer", 0}, {hostRequest, "us_per_request", alpha[0]}, {hostAdmission, "us_per_token", 0},
		{hostOutput, "us_per_token", alpha[2]}, {hostCompletion, "us_per_request", alpha[1]}}
	if d.Model.IsMoE() {
		imbalance := math.Max(v[kernelExperts], none) / v[kernelDense]
		entries = append(entries, entry{"moe_routing_imbalance_median", "dimensionless", imbalance})
	}
	if d.TP > 1 {
		of := fmt.Sprintf("_all_reduce_fp16_%drank_%s", d.TP, strings.ReplaceAll(part, "-", "_"))
		entries = append(entries, entry{"collective_floor" + of, "us_per_transfer", v[kernelReduces]},
			entry{"collective_transition_rate" + of, "bytes_per_us", rate(kernelReduceBytes)},
			entry{"collective_peak_rate" + of, "bytes_per_us", rate(kernelReduceBytes)})
	}
	out := make([]blisValue, len(entries))
	for i, e := range entries {
		e.value, _ = strconv.ParseFloat(fmt.Sprintf("%.6g", e.value), 64)
		out[i] = blisValue{blisTerm: blisTerm{Name: e.name, Units: e.units, Role: "its term of the step",
			Zero: "this cost is in other entries of the set"}, value: e.value, identified: "derived", learned: true,
			origin: "projection of the step-time model on the kernel mode's law"}
	}
	return out
}

// blisScenario writes a scenario of BLIS's kernel mode, and the coefficient set that is listed last in it, in the folder of a registry.
func blisScenario(src Source, opt Options) (*Output, error) {
	c, err := src.one(opt, FormatScenario)
	if err != nil {
		return nil, err
	}
	d := &c.Deployment
	named := cmp.Or(opt.Settings["model"], slug(model.Name(d.Model.ID)))
	part := partOf(d.Hardware.Name)
	lacks := kernelLacks(d, named, part)
	timer, err := src.Timer(*c)
	if err != nil {
		return nil, err
	}
	l, warn := opt.MeanLengths(*c)
	e := blisEntry{config: c, region: RegionOf(d, l.Prompt, l.Output), limits: kernelLimits}
	law, err := e.onKernelMode(&src, Target{Deployment: d, Model: timer, Region: e.region}, part)
	if lacks != nil {
		for i, l := range e.loads {
			says := []string{"; with layers as BLIS reads them mean E2E is off by %+.1f %% at %.0f %% load", ", %+.1f %% at %.0f %%"}[min(i, 1)]
			lacks.Msg += fmt.Sprintf(says, 100*(l.E2ERatio-1), 100*l.LoadFrac)
		}
		return nil, lacks
	}
	if err != nil {
		return nil, err
	}
	forced, err := opt.Refuse(e.refusals(src.Fit), forceHint)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("blis-train-%s-%s-tp%d", named, part, d.TP)
	values := kernelValues(law, d, part, numbers(e.alpha))
	set, err := kernelSet(src, c, name, named, values)
	if err != nil {
		return nil, err
	}
	scenario, err := fill(scenarioText, map[string]any{"Name": name, "Model": named, "Part": part, "TP": d.TP, "E": d.Engine,
		"Longest": d.LongestSequence().V})
	if err != nil {
		return nil, err
	}
	side := src.Sidecar(opt, FormatScenario, "BLIS's kernel mode (blis-latency-kernel v0.4.0, law at 070f510), blis run --scenario")
	side.Values = sideValues("coefficients", values)
	line := e.side(blisCatalog)
	line.CommandLine = "blis run --scenario FILE --scenarios . --registry REGISTRY --catalog CATALOG"
	line.DefaultsCommandLine, line.Note = "", strings.TrimPrefix(line.Note+"; KV blocks come from the kernel's own memory terms", "; ")
	side.Configs, side.Warnings = []SideConfig{line}, append(append(src.ValidationWarnings(), warn...), forced...)
	out, err := side.Beside(append(warn, forced...), File{Data: scenario}, File{".registry/coefficients/" + name + ".yaml", set})
	if err == nil {
		out.Projections = []Projected{e.projected()}
	}
	return out, err
}

// kernelSet is the coefficient set of the values, for one deployment by its names in the catalog.
func kernelSet(src Source, c *result.FitConfig, name, model string, values []blisValue) ([]byte, error) {
	set := regSet{Kind: "CoefficientSet", Name: name}
	for _, v := range values {
		e := measuredHost(src, []result.FitConfig{*c}, v.value, v.Units)
		if e.Scope.Model = []string{model}; v.value == 0 {
			e.Method = "not_charged"
			e.Fitted = false
			e.Sources = nil
			e.Rationale = v.Zero
		}
		set.Coefficients = append(set.Coefficients, map[string]regEntry{v.Name: *e})
	}
	return set.file()
}

// Positions of the terms of BLIS's kernel mode.
const (
	kernelStep         = iota // 1: host time of a step, us
	kernelDense               // time of matrix products at peak and the ramp's rows: 1/eps
	kernelExperts             // the same of routed experts, not divided by tensor parallelism: imbalance/eps
	kernelMemory              // time of weights, reached experts and norms at peak bandwidth: 1/derate
	kernelDecodes             // layers of a step with decodes: floor, us
	kernelDecodeKV            // time of their keys and values at peak bandwidth: peak/rate
	kernelPrefills            // layers of a step with prompts: floor, us
	kernelPrefillPairs        // time of their query-key pairs at peak and the ramp's rows: 1/(eps*scale)
	kernelReduces             // all-reduces of a step: floor, us
	kernelReduceBytes         // time of their bytes at the memory's peak bandwidth: that/rate
	kernelTerms               // how many there are
)

// kernelMode is the step of BLIS's kernel mode as a sum of terms times coefficients: the NoOverlap estimate of
// inference-sim/blis-latency-kernel (kernel.go, internal/price at 070f510), whose largest rate of a collective is the one within its
// range, and whose host time of a step is one number. It is the law of models with full attention and equal layers in 16 bits, on
// tensor-parallel ranks. A prompt's chunk of one token is a prompt's here and a decode there.
//
// Units: us a term where its coefficient is a ratio, a count where the coefficient is in us.
type kernelMode struct {
	Values [kernelTerms]float64
	// MHalf is the rows at which a matrix product has half of its largest rate.
	MHalf float64

	layers                      float64
	dense, expert               float64 // us a row at peak
	weights, experts, norms     float64 // us: of all weights outside routed experts, of all routed experts, of a row's norms
	missed                      float64 // log of the share of experts that a row leaves untouched
	kv, pairs, reduces, reduced float64 // us a cached token, us a pair at peak, launches, us a row
	x                           [kernelTerms]float64
}

// newKernelMode is the law of a deployment.
func newKernelMode(d *deploy.Deployment, mHalf float64) *kernelMode {
	m := &d.Model
	h := &d.Hardware
	tp := float64(max(1, d.TP))
	flops := h.TFlopsPeak * 1e6
	bytes := h.BwPeakTBs * 1e6 // a us
	layers := float64(m.NumLayers)
	moe := float64(m.NumMoELayers)
	hid := float64(m.HiddenSize)
	heads := float64(m.NumHeads * m.HeadDim)
	kv := float64(m.NumKVHeads * m.HeadDim)
	parameters := 2*layers*hid*(heads+kv) + (layers-moe)*3*hid*float64(m.IntermediateSize) +
		moe*3*hid*float64(m.SharedExpertSize) + hid*float64(m.VocabSize)
	routed := moe * 3 * hid * float64(m.MoEIntermediateSize)
	k := &kernelMode{MHalf: mHalf, layers: layers, dense: 2 * parameters / tp / flops, weights: m.BytesPerWeight * parameters / tp / bytes,
		norms: layers * 8 * hid / tp / bytes, expert: 2 * float64(m.TopK) * routed / flops,
		experts: m.BytesPerWeight * float64(m.NumExperts) * routed / tp / bytes, missed: math.Inf(-1),
		kv:    layers * 2 * math.Max(float64(m.NumKVHeads)/tp, 1) * float64(m.HeadDim) * m.BytesPerKV / bytes,
		pairs: 4 * layers * heads / tp / flops}
	if m.TopK < m.NumExperts {
		k.missed = math.Log1p(-float64(m.TopK) / float64(m.NumExperts))
	}
	if tp > 1 {
		k.reduces = 2 * layers
		k.reduced = 4 * layers * hid / bytes
	}
	return k
}

// Terms are a batch's, by position; valid until the next call.
func (k *kernelMode) Terms(b *sim.Batch) []float64 {
	rows := float64(b.Tokens())
	ramp := rows + k.MHalf
	k.x = [kernelTerms]float64{kernelStep: 1, kernelDense: k.dense * ramp, kernelExperts: k.expert * ramp,
		kernelMemory:   k.weights + k.norms*rows - k.experts*math.Expm1(rows*k.missed),
		kernelDecodeKV: k.kv * float64(b.DecodeContext), kernelReduces: k.reduces, kernelReduceBytes: k.reduced * rows}
	if b.DecodeReqs > 0 {
		k.x[kernelDecodes] = k.layers
	}
	if b.PrefillReqs > 0 {
		k.x[kernelPrefills] = k.layers
		k.x[kernelPrefillPairs] = k.pairs * ramp / rows * (float64(2*b.CausalWork-b.PrefillTokens) / 2)
	}
	return k.x[:]
}

// StepUs is the sum of the terms times their coefficients.
func (k *kernelMode) StepUs(b *sim.Batch) (us float64, err error) {
	for i, x := range k.Terms(b) {
		us += x * k.Values[i]
	}
	return us, nil
}
