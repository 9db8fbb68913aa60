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
