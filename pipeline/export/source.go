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
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/pipeline/result"
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
	s.Inputs, s.Platform = []result.Input{in}, of.Platform
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
		out, warn = append(out, SideConfig{Label: c.Label, Seats: c.Deployment.Seats(l.Prompt + l.Output), PromptTokens: &l.Prompt,
			OutputTokens: &l.Output}), append(warn, w...)
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
