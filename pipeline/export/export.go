// Package export turns a fit into files: the native artifact, and the formats
// of the simulators that read coefficients.
//
//	native              coeff.Set as YAML; everything needed to reproduce it is inside
//	blis-defaults       BLIS's defaults.yaml: 3 alpha and 11 beta by position (legacy)
//	blis-scenario       a scenario and a coefficient set of BLIS's kernel mode
//	blis-registry-host  entries of the registry's cost-model-host-overheads set
//	keda-token-aware    ScaledObjects of KEDA with our prefill throughput
//	llmd-epp            the plugin chain of llm-d's router with it
//	card                a page of Markdown about the coefficients, for people
//
// [Export] reads a [Source] (fit.json, validation.json when there is one, and functions that predict
// a step and simulate) and returns [File]s. Foreign formats have no place for provenance: to BLIS an
// unknown key is a fatal error. Each file therefore comes with a sidecar: the inputs with hashes,
// every value with its origin and its effect in the consumer, the equivalent command lines, and
// warnings. Packages outside the pipeline add formats of their own as [Writer]s, with the helpers of
// this package.
//
// The same source gives the same bytes. Refused, unless [Options].Force names them, are negative and
// non-finite values, values that the data do not determine but the deployment would use, and poor
// projections. Every refusal states what the value would do in the consumer.
//
// [Check] compares an artifact with a deployment, [Diff] with another artifact, and [Entry] is a line
// of the ledger of fits. docs/compatibility.md lists the formats and the commits of their readers.
//
// Where to start reading: export.go; blis_defaults.go, blis_scenario.go (with blis_graph.go, the models of
// BLIS's catalog), registry.go, keda.go and
// llmd_epp.go (one format each); projection.go (a step-time model in the terms of another).
package export

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
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

// Writer writes a fit in one format.
type Writer struct {
	Format   Format
	Note     string    // what the help states about the format
	Settings []Setting // the options that only this format has
	Write    func(Source, Options) (*Output, error)
}

// Writers returns the writers of the foreign formats of this package, foreign being those that
// other programs load.
func Writers() []Writer {
	return []Writer{
		{Format: FormatBLIS, Note: defaultsLegacy, Write: blisDefaults, Settings: blisSettings},
		{Format: FormatRegistryHost, Write: hostRegistry, Settings: catalogSettings},
		{Format: FormatScenario, Write: blisScenario, Settings: catalogSettings},
		{Format: FormatKEDA, Write: keda, Settings: kedaSettings},
		{Format: FormatEPP, Write: endpointPicker, Settings: eppSettings},
		{Format: FormatCard, Write: card},
	}
}

// Source is the input of an export.
type Source struct {
	Fit        *result.Fit
	FitInput   result.Input           // fit.json itself: name, bytes, sha256
	Validation *result.Validation     // nil: not validated
	Judged     *result.PurposeVerdict // the verdict for which the file is written, with its purpose and scope; nil: not validated
	Warnings   []trace.Finding        // about those files
	Library    string                 // version of the library that the coefficients come from; empty: fitted to recordings
	// Set returns the coefficients; nil where there are none.
	Set func() (*coeff.Set, error)
	// Step returns the step-time model of one configuration.
	Step func(deploy.Deployment) (StepTimer, error)
	// OverheadUs is the fitted overhead of a request with so many prompt tokens on an idle server.
	// blis-registry-host needs it.
	OverheadUs func(d deploy.Deployment, promptTokens int64) (float64, error)
	// Loads simulates a deployment at several loads with its own model and with BLIS's. blis-defaults
	// and blis-scenario need it.
	Loads func(d deploy.Deployment, alpha []float64, prompt, output float64, blis ConsumerModel) (*OnLoads, error)
}

// SteadyPoint compares, at one load, the simulator with the consumer's own formula.
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

// Options are the options of an export.
type Options struct {
	Force string // codes of refusals to overrule, by comma
	// PromptTokens and OutputTokens are the mean lengths that linear formats assume. 0 takes the
	// fit's means, or where it has none 512 and 128, with a warning.
	PromptTokens, OutputTokens float64
	Config                     string   // only this configuration (label or key); empty: all
	Settings                   Settings // of the format
	Command                    string   // command line of these options, as documents record it
}

// Check returns an error that names the first option out of range.
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

// Overrules reports whether --force names the refusal.
func (o *Options) Overrules(code trace.Code) bool { return slices.Contains(o.forced(), code) }

// forced returns the codes that --force names.
func (o *Options) forced() []trace.Code {
	var out []trace.Code
	for _, name := range strings.Split(o.Force, ",") {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, trace.Code(name))
		}
	}
	return out
}

// File is one file to write. Its name is that of the export followed by Suffix, which is empty for
// the export itself.
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

// Export returns the files of a fit in a foreign format. The native format is [Native], whose Set
// the caller writes.
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

// ValidationWarnings returns the source's warnings and, unless its verdict is a pass, one that names the gates that
// failed.
func (src *Source) ValidationWarnings() []trace.Finding {
	return append(slices.Clip(src.Warnings), verdictWarnings(src.Judged)...)
}

// verdictWarnings returns a warning with the failed gates, unless the verdict is a pass.
func verdictWarnings(v *result.PurposeVerdict) []trace.Finding {
	if v == nil {
		return []trace.Finding{trace.Findingf(notValidated, "no validation of these coefficients on their deployments was given, which the sidecar states")}
	}
	if v.Verdict == coeff.VerdictPass {
		return nil
	}
	text := fmt.Sprintf("verdict for %s of %s: %s", v.Purpose, v.Scope, v.Verdict)
	if len(v.Failed) > 0 {
		text += ": " + strings.Join(v.Failed, ", ")
	}
	return []trace.Finding{trace.Findingf(notValidated, "%s", text)}
}

// modelNamed returns the fit's model with the name of a parameterisation; nil if the fit has none.
func modelNamed(fit *result.Fit, name string) *result.Model {
	for i := range fit.Models {
		if fit.Models[i].Name == name {
			return &fit.Models[i]
		}
	}
	return nil
}

// Configs returns the configurations that an export covers, in the fit's order: all, or the one
// whose key or label is want.
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

// onlyConfig returns the configuration for a format that describes a single deployment. It returns
// an error if there are several.
func (src *Source) onlyConfig(opt Options, f Format) (*result.FitConfig, error) {
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

// Timer returns the step-time model of one configuration.
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
