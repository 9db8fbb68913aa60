package library

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"gopkg.in/yaml.v3"
)

// Indices of the corrections: the few numbers for what no kernel table has. A step's time is linear in
// them. None is specific to one model, because it would not transfer to another.
const (
	ScaleGPU     = iota // of all kernels of one GPU
	ScaleExpert         // of experts, on top: added to the GPU's
	ScaleReduce         // of collectives, on top
	HostStep            // us per step
	HostRank            // us per step and further tensor-parallel rank
	HostSequence        // us per running sequence
	SyncStep            // us per step of an engine that schedules synchronously, on top
	SyncSequence        // us per sequence of such an engine, on top
	ScalePrompt         // of all kernels of a step with prompts, on top: clocks under long load, which no repeated kernel shows
	SmallKernel         // us per kernel that no table holds, on top of its bytes and launchUs
	EagerLayer          // us that the host takes to launch a layer of a step outside CUDA graphs: the step takes at least that
	NumStep
)

// Parameter is one number of the corrections, with its prior (mean and standard deviation) and its
// least value.
type Parameter struct {
	Name              string
	Mean, SD, AtLeast float64
}

// Parameters are those of a step, then the overhead: the us before a request reaches the engine. An
// engine that schedules synchronously does the host's work in every step; an asynchronous one
// prepares a step while the GPU runs the one before, so that only what cannot overlap counts.
var Parameters = [NumStep + 1]Parameter{
	ScaleGPU:     {"gpu_scale", 1, 0.004, 0.5},
	ScaleExpert:  {"expert_scale", 0, 0.006, -0.5},
	ScaleReduce:  {"collective_scale", 0, 0.01, -0.5},
	HostStep:     {"host_step_us", 200, 30, 0},
	HostRank:     {"host_rank_us", 80, 20, 0},
	HostSequence: {"host_sequence_us", 0, 1, 0},
	SyncStep:     {"sync_step_us", 900, 400, 0},
	SyncSequence: {"sync_sequence_us", 10, 30, 0},
	ScalePrompt:  {"prompt_scale", 0, 0.05, -0.5},
	SmallKernel:  {"small_kernel_us", 0.5, 0.25, 0},
	EagerLayer:   {"eager_layer_us", 450, 50, 0},
	NumStep:      {"overhead_us", 8_000, 3_000, 0},
}

// Corrections are the fitted values, each with its standard error, and the errors of predictions
// with them.
type Corrections struct {
	Version string                `yaml:"version"`
	GPUs    map[string][2]float64 `yaml:"gpu_scale"` // by datasheet name; others take 1
	Step    map[string][2]float64 `yaml:"common"`    // by Parameter.Name
	Judged  []Judged              `yaml:"judged"`
}

// Judged is a family of deployments that was validated: its predictions were compared with measured
// servers while the family was held out of the fit of the corrections. Errors are ratios.
type Judged struct {
	Family     string   `yaml:"family" json:"family"`
	Model      string   `yaml:"model" json:"model"`
	TP         []int64  `yaml:"tp,flow" json:"tp"`
	Flags      []string `yaml:"flags,omitempty" json:"flags,omitempty"` // of the servers, where they change kernels, and of how many points
	Points     int      `yaml:"points" json:"points"`
	TPOTMape   float64  `yaml:"tpot_mape" json:"tpot_mape"`
	TTFTMedian float64  `yaml:"ttft_median" json:"ttft_median"`
	Interval90 float64  `yaml:"tpot_interval_90" json:"tpot_interval_90"` // half width: nine in ten held-out errors are within it
}

//go:embed corrections.yaml
var corrections []byte

// Learned returns the embedded corrections.
var Learned = files.Embedded[Corrections](corrections, "corrections.yaml")

// YAML returns the corrections as a file.
func (c *Corrections) YAML() ([]byte, error) { return yaml.Marshal(c) }

// Value returns a parameter on a GPU and its standard error; its prior where it was not fitted.
func (c *Corrections) Value(k int, gpu string) (value, se float64) {
	p := &Parameters[k]
	if k == ScaleGPU {
		if v, ok := c.GPUs[gpu]; ok {
			return v[0], v[1]
		}
	} else if v, ok := c.Step[p.Name]; ok {
		return v[0], v[1]
	}
	return p.Mean, p.SD
}

// On returns the values of a step's parameters on one GPU.
func (c *Corrections) On(gpu string) (out [NumStep]float64) {
	for k := range out {
		out[k], _ = c.Value(k, gpu)
	}
	return out
}

// OverheadUs returns the time in us before a request reaches the engine.
func (c *Corrections) OverheadUs() float64 {
	us, _ := c.Value(NumStep, "")
	return us
}

// UnjudgedInterval is the least half width of the 90 % interval of a family that was not validated.
const UnjudgedInterval = 0.3

// JudgedAs returns the validation of the step's family; nil and the reason where it was not
// validated.
func (c *Corrections) JudgedAs(s *Step) (*Judged, string) {
	i := slices.IndexFunc(c.Judged, func(j Judged) bool { return j.Family == s.Family })
	switch {
	case len(s.Unjudged) > 0:
		return nil, strings.Join(s.Unjudged, "; ")
	case i < 0:
		return nil, "no server of " + s.Family + " was measured"
	case !slices.Contains(c.Judged[i].TP, s.TP):
		return nil, fmt.Sprintf("%s: compared at tp %v, not at %d", s.Family, c.Judged[i].TP, s.TP)
	}
	return &c.Judged[i], ""
}

// Sentence returns for people how far predictions of a step can be trusted: the held-out error of
// its family, or that it was not validated.
func (c *Corrections) Sentence(s *Step) string {
	j, why := c.JudgedAs(s)
	if j == nil {
		return fmt.Sprintf("not validated (%s): TPOT may be off by %.0f %% or more", why, 100*UnjudgedInterval)
	}
	of := strings.Join(append([]string{j.Model}, j.Flags...), " with ")
	return fmt.Sprintf("validated on %d measured points of %s, held out of the fit: TPOT within %.0f %% (mean), nine in ten within %.0f %%, "+
		"TTFT within %.0f %% (median)", j.Points, of, 100*j.TPOTMape, 100*j.Interval90, 100*j.TTFTMedian)
}
