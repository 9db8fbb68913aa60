package export

import (
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
)

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
