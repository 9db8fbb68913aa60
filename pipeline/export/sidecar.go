package export

// This file writes the sidecar of an export: a JSON file that states where each value comes from and
// what it is valid for.

import (
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// SidecarSuffix is appended to the name of a foreign file for its provenance.
const SidecarSuffix = ".provenance.json"

// Sidecar is the provenance of a foreign file.
type Sidecar struct {
	result.Header
	Format       string         `json:"format"`
	ReadBy       string         `json:"read_by"`
	FitInputs    []result.Input `json:"fit_inputs"` // what the fit was made from
	FitCommand   string         `json:"fit_command"`
	TrainingDate string         `json:"training_date"`
	Holdout      *result.Errors `json:"holdout"` // of the exported parameterisation, null when it has none
	Verdict      string         `json:"verdict"` // that allowed the export; "not validated" without one
	// Purpose is the use of the coefficients that the verdict is about: steps, replay, waits,
	// transfer or all; null without a verdict.
	Purpose     *string         `json:"purpose"`
	Scope       *string         `json:"scope"`            // of the verdict: the label of a configuration, or all; null as the purpose is
	SpecVersion *string         `json:"spec_version"`     // of the features, or the queueing model; null: neither
	FeatureHash *string         `json:"feature_set_hash"` // of the formulas behind the coefficients
	Library     *string         `json:"library_version"`  // of a library's coefficients; null: fitted to recordings
	Values      []SideValue     `json:"values"`
	Configs     []SideConfig    `json:"configs"`
	Warnings    []trace.Finding `json:"warnings"`
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
	Seats               int64    `json:"seats,omitempty"` // largest batch considered, requests of the lengths below
	CommandLine         string   `json:"command_line,omitempty"`
	DefaultsCommandLine string   `json:"defaults_command_line,omitempty"`
	PromptTokens        *float64 `json:"prompt_tokens,omitempty"` // mean length the lines below assume
	OutputTokens        *float64 `json:"output_tokens,omitempty"`
	// Largest relative error, over a grid of batches, of the straight line that the consumer's file states
	// for the step time, compared with the step-time model.
	MaxRelErr  *float64 `json:"max_rel_err,omitempty"`
	MeanRelErr *float64 `json:"mean_rel_err,omitempty"` // the same, mean of absolute values
	GridPoints int      `json:"grid_points,omitempty"`  // batches of the grid
	// ValidFor is the range in which the line was compared with the model. The consumer's file has no
	// place for it.
	ValidFor *Validity `json:"valid_for,omitempty"`
	// Steady compares the consumer's own formula with our simulator, by load.
	Steady []SteadyPoint `json:"steady_state,omitempty"`
	// Projection compares the consumer's terms with the step-time model, on batches that were not fitted.
	Projection []projectionError `json:"projection,omitempty"`
	// Loads compares the consumer's terms with the model in simulated traffic.
	Loads []LoadPoint `json:"simulated_loads,omitempty"`
	Note  string      `json:"note,omitempty"`
}

// Validity is the range of batches on which a line was fitted, both ends included, and the largest
// values in the training data.
type Validity struct {
	Requests      [2]int64 `json:"requests"`       // decodes in a batch
	ContextTokens [2]int64 `json:"context_tokens"` // of each
	// of a prompt in the same step, within max_num_batched_tokens
	ChunkTokens   [2]int64 `json:"prompt_chunk_tokens"`
	LongestPrompt int64    `json:"trained_prompt_tokens,omitempty"` // of a finished request; 0: not known
	LongestOutput int64    `json:"trained_output_tokens,omitempty"`
	MostRunning   int64    `json:"trained_running,omitempty"`
}

// projectionError is the error of the consumer's terms against the model they represent.
type projectionError struct {
	Batches string   `json:"batches"` // all, decode, mixed or prefill
	Steps   int      `json:"steps"`
	MAPE    *float64 `json:"mape"`
	Worst   *float64 `json:"worst"` // signed
	Bias    *float64 `json:"bias"`  // of the sum of times
}

// NewSidecar returns the provenance of a file that a command made from the document in, whose
// header is of. readBy is the program that reads the file. Fields that the header does not
// determine are empty.
func NewSidecar(of *result.Header, in result.Input, format, command, readBy string) *Sidecar {
	s := &Sidecar{
		Header: result.NewHeader(of.ToolVersion, command), Format: format, ReadBy: readBy, FitInputs: of.Inputs,
		FitCommand: of.Command, Verdict: "not validated", Values: []SideValue{}, Configs: []SideConfig{},
		Warnings: []trace.Finding{},
	}
	s.Inputs = []result.Input{in}
	s.Platform = of.Platform
	return s
}

// Sidecar returns the provenance of an export of coefficients, without its values.
func (src *Source) Sidecar(opt Options, f Format, readBy string) *Sidecar {
	s := NewSidecar(&src.Fit.Header, src.FitInput, string(f), opt.Command, readBy)
	s.TrainingDate = src.Fit.TrainingDate
	s.SpecVersion = result.TextOrNull(src.Fit.Beta.SpecVersion)
	s.FeatureHash = result.TextOrNull(src.Fit.FeatureSet.Hash)
	s.Library = result.TextOrNull(src.Library)
	if v := src.Judged; v != nil {
		s.Verdict = v.Verdict
		s.Purpose = &v.Purpose
		s.Scope = &v.Scope
	}
	if m := modelNamed(src.Fit, blisModel); m != nil && f == FormatBLIS {
		s.Holdout = m.Holdout
	}
	return s
}

// regions returns the seats and mean lengths that are assumed of each configuration, for files that
// have no values by configuration.
func regions(cfgs []result.FitConfig, opt Options) (out []SideConfig, warn []trace.Finding) {
	for _, c := range cfgs {
		l, w := opt.MeanLengths(c)
		out = append(out, SideConfig{Label: c.Label, Seats: c.Deployment.Seats(l.Prompt + l.Output),
			PromptTokens: &l.Prompt,
			OutputTokens: &l.Output})
		warn = append(warn, w...)
	}
	return out, warn
}

// OutputWith returns the files of an export, followed by this sidecar.
func (s *Sidecar) OutputWith(warn []trace.Finding, files ...File) (*Output, error) {
	if s.Warnings == nil {
		s.Warnings = []trace.Finding{}
	}
	data, err := result.Marshal(s)
	if err != nil {
		return nil, err
	}
	return &Output{Files: append(files, File{Suffix: SidecarSuffix, Data: data}), Warnings: warn}, nil
}
