// Package export turns a fit into files: the native artifact, and the formats
// of the simulators and autoscalers that read coefficients.
//
//	native         coeff.Set as YAML; everything needed to reproduce it is inside
//	blis-defaults  BLIS's defaults.yaml: 3 alpha and 11 beta by position
//	blis-registry  a CoefficientSet of the BLIS registry, one entry a term; no reader takes it any more
//	blis-registry-host  entries of the registry's cost-model-host-overheads set
//	wva            VariantAutoscaling resources with four parameters an accelerator
//	inferno        model-data.json with three parameters a model and accelerator
//
// In goes a [Source]: fit.json, validation.json when there is one, and for the
// two linearised formats a function that predicts a step of one configuration.
// Out come [File]s. A foreign format has no room for provenance (BLIS calls an
// unknown key a fatal error), so each comes with a sidecar that has: inputs
// with hashes, every value with its origin and what it does in the consumer,
// the equivalent command lines, warnings.
//
// What it promises: the same source gives the same bytes. What it refuses,
// unless [Options].Force names it: negative and non-finite values, values the data
// did not teach and the deployment would use, and poor projections. Every refusal says what the value would do in the consumer.
//
// Two more parts of an artifact's life have rooms of their own: compare holds an
// artifact against a deployment or another artifact, ledger keeps the ledger of
// fits.
//
// The formats as read, and the commits they were read at, are in docs/formats.md.
package export

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/export/scaler"
	"github.com/blis-train/blis-train/queueing"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Format is an output format.
type Format string

// The formats there are.
const (
	FormatNative   Format = "native"
	FormatBLIS     Format = "blis-defaults"
	FormatRegistry Format = "blis-registry"
	// FormatRegistryHost is what the registry's readers of today load; FormatRegistry has none any more.
	FormatRegistryHost Format = "blis-registry-host"
	FormatWVA          Format = Format(scaler.WVA4P)
	FormatInferno      Format = Format(scaler.InfernoModels)
)

// Formats lists those of a fit in the order help shows them. A queueing calibration
// has those of package scaler.
var Formats = []Format{FormatNative, FormatBLIS, FormatRegistry, FormatRegistryHost, FormatWVA, FormatInferno}

// aliases are earlier names of formats.
var aliases = map[string]Format{"wva": FormatWVA, "inferno": FormatInferno}

// All lists every format there is, those of a queueing calibration last.
func All() []Format {
	all := slices.Clone(Formats)
	for _, f := range scaler.Formats {
		if !slices.Contains(all, Format(f)) {
			all = append(all, Format(f))
		}
	}
	return all
}

// ParseFormat returns the format called name, now or earlier.
func ParseFormat(name string) (Format, error) {
	if f, ok := aliases[name]; ok {
		return f, nil
	}
	if f := Format(name); slices.Contains(All(), f) {
		return f, nil
	}
	return "", trace.Errorf(unknownFormat, "--format: got %q, want %s", name, trace.OneOf(All()))
}

// Source is what an export is made from.
type Source struct {
	Fit        *result.Fit
	FitInput   result.Input       // fit.json itself: name, bytes, sha256
	Validation *result.Validation // nil: not validated
	Doubts     []trace.Finding    // about those files
	Library    string             // version of the library the coefficients are of; empty: fitted to recordings
	// Step returns the step time of one configuration under the fit's physics
	// coefficients; needed by wva and inferno only.
	Step func(deploy.Deployment) (StepTimer, error)
	// OverheadUs is the fit's overhead of a prompt that meets an idle server; needed by blis-registry-host.
	OverheadUs func(d deploy.Deployment, promptTokens int64) (float64, error)
	// Steady simulates a deployment's steady state at several loads, with mean lengths in tokens and the
	// API overhead in ms, and fits the autoscaler's four parameters to it; needed by wva only.
	Steady func(d deploy.Deployment, overheadMs, prompt, output float64) (*Steady, error)
	// Loads simulates a deployment with BLIS's terms and with its own at several loads; needed by
	// blis-defaults only.
	Loads func(d deploy.Deployment, beta []float64, prompt, output float64) ([]LoadPoint, error)
}

// Steady are the four parameters of workload-variant-autoscaler that give a deployment's simulated
// latencies, and how well.
type Steady struct {
	Params queueing.Params
	Points []SteadyPoint
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

// LoadPoint is one load at which a format's terms and the model they stand for were simulated in the
// same traffic.
type LoadPoint struct {
	LoadFrac float64 `json:"load_frac"` // of the model's capacity
	RateRPS  float64 `json:"rate_rps"`
	E2EMs    float64 `json:"e2e_ms"`    // mean, of the model
	E2ERatio float64 `json:"e2e_ratio"` // of the terms over it
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
	Config                     string // only this configuration (label or key); empty: all
	Name                       string // name of a registry set or a Kubernetes resource prefix
	SLOClassName, SLOClassKey  string // wva: the ConfigMap entry the resource refers to
	ConsumerVersion            string // of an autoscaler: the version that reads the file; empty: not checked
	Command                    string // these options as documents record them
}

// DefaultOptions are the options of a bare export.
func DefaultOptions() Options {
	return Options{Name: "blis-train", SLOClassName: "premium-slo"}
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
var forceable = []trace.Code{unlearnedValue, noAlphaConstant, poorProjection, PoorLinearisation, beyondTraining, notInCatalog,
	negativeValue, nonFiniteValue, duplicateEntry}

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
	Projections []Projected // blis-defaults: one a configuration
}

// Export writes the source in a foreign format. The native format is [Native],
// whose Set the caller saves.
func Export(src Source, f Format, opt Options) (*Output, error) {
	if err := opt.Check(); err != nil {
		return nil, err
	}
	var out *Output
	var err error
	switch f {
	case FormatBLIS:
		out, err = blisDefaults(src, opt)
	case FormatRegistry:
		out, err = blisRegistry(src, opt)
	case FormatRegistryHost:
		out, err = hostRegistry(src, opt)
	case FormatWVA:
		out, err = wva(src, opt)
	case FormatInferno:
		out, err = inferno(src, opt)
	default:
		return nil, trace.Errorf(unknownFormat, "format of a fit: got %q, want %s", f, trace.OneOf(Formats[1:])).
			WithHint("blis-train queue fit OUT -o OUT writes queue.json, which the others are made of")
	}
	if err != nil {
		return nil, fmt.Errorf("export %s: %w", f, err)
	}
	out.Warnings = append(validationWarnings(src), out.Warnings...)
	return out, nil
}

// validationWarnings says what a reader of the export should know first.
func validationWarnings(src Source) []trace.Finding {
	return append(slices.Clip(src.Doubts), verdictWarnings(src.Validation)...)
}

func verdictWarnings(v *result.Validation) []trace.Finding {
	if v == nil {
		return []trace.Finding{trace.Findingf(notValidated, "no validation.json was given; the sidecar says so")}
	}
	if v.Verdict == coeff.VerdictPass {
		return nil
	}
	var names []string
	for _, g := range v.Gates {
		if g.Pass != nil && !*g.Pass {
			names = append(names, g.Name+" ("+g.Scope+")")
		}
	}
	if len(names) == 0 {
		return []trace.Finding{trace.Findingf(failedGates, "validation verdict %q", v.Verdict)}
	}
	return []trace.Finding{trace.Findingf(failedGates, "validation verdict %q: %s", v.Verdict, strings.Join(names, ", "))}
}

// modelNamed returns the parameterisation called name.
func modelNamed(fit *result.Fit, name string) (*result.Model, error) {
	for i := range fit.Models {
		if fit.Models[i].Name == name {
			return &fit.Models[i], nil
		}
	}
	var have []string
	for i := range fit.Models {
		have = append(have, fit.Models[i].Name)
	}
	return nil, trace.Errorf(noSuchModel, "the fit holds no %q model, got %q", name, have).
		WithHint("blis-train fit OUT writes the other parameterisations beside the physics one")
}

// configs returns the configurations an export covers, in the fit's order.
func configs(src Source, want string) ([]result.FitConfig, error) {
	var out []result.FitConfig
	var labels []string
	for _, c := range src.Fit.Configs {
		labels = append(labels, c.Label)
		if want == "" || c.Key == want || c.Label == want {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return nil, trace.Errorf(noConfiguration, "configuration: got %q, want %s", want, trace.OneOf(labels))
	}
	return out, nil
}
