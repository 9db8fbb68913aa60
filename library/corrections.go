package library

// This file has the corrections: the few fitted numbers for what no kernel table has, such as the
// host's work, with their errors on servers that were held out.

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"gopkg.in/yaml.v3"
)

// Indices of the corrections. A step's time is linear in them: scales are factors on the kernels' time
// from the tables, the others times that are added. None is specific to one model, because it would not
// transfer to another. "On top" means that it is added to the correction above it that covers the same.
const (
	ScaleGPU     = iota // of all kernels of one GPU
	ScaleExpert         // of experts, on top: added to ScaleGPU
	ScaleReduce         // of collectives, on top
	HostStep            // us per step
	HostRank            // us per step and further tensor-parallel rank
	HostSequence        // us per running sequence
	SyncStep            // us per step of an engine that schedules synchronously, on top
	SyncSequence        // us per sequence of such an engine, on top
	ScalePrompt         // of all kernels of a step with prompts, on top: clocks under long load, which no repeated kernel shows
	SmallKernel         // us per kernel that no table has, on top of its bytes and launchUs
	EagerLayer          // us that the host takes to launch a layer of a step outside CUDA graphs: the step takes at least that
	EagerExperts        // us, on top, of a layer with routed experts
	EagerLatent         // us, on top, of a layer with multi-head latent attention, which launches more kernels
	EagerWhole          // us, on top, of a layer of an engine whose graphs are of decodes only: its prompts run without pieces of graphs
	EagerFP8            // us, on top, of an fp8 product whose kernel FlashInfer chooses at each call
	NumStep
)

// Parameter is one number of the corrections: what is believed before the fit, and its least value.
type Parameter struct {
	Name    string
	Mean    float64 // of the prior
	SD      float64 // standard deviation of the prior
	AtLeast float64
}

// Parameters are those of a step, then the overhead: the us before a request reaches the engine. An
// engine that schedules synchronously does the host's work in every step; an asynchronous one
// prepares a step while the GPU runs the one before, so that only what cannot overlap counts. Fields in
// order: name, mean and standard deviation of the prior, least value.
var Parameters = [NumStep + 1]Parameter{
	ScaleGPU:     {"gpu_scale", 1, 0.003, 0.5},
	ScaleExpert:  {"expert_scale", 0, 0.006, -0.5},
	ScaleReduce:  {"collective_scale", 0, 0.01, -0.5},
	HostStep:     {"host_step_us", 200, 30, 0},
	HostRank:     {"host_rank_us", 80, 20, 0},
	HostSequence: {"host_sequence_us", 0, 1, 0},
	SyncStep:     {"sync_step_us", 750, 300, 0},
	SyncSequence: {"sync_sequence_us", 10, 30, 0},
	ScalePrompt:  {"prompt_scale", 0, 0.045, -0.5},
	SmallKernel:  {"small_kernel_us", 0.5, 0.25, 0},
	EagerLayer:   {"eager_layer_us", 150, 100, 0},
	EagerExperts: {"eager_experts_us", 1_500, 700, 0},
	EagerLatent:  {"eager_latent_us", 1_000, 300, 0},
	EagerWhole:   {"eager_whole_us", 600, 300, 0},
	EagerFP8:     {"eager_fp8_us", 52, 10, 0},
	NumStep:      {"overhead_us", 8_000, 3_000, 0},
}

// ByGPU are the parameters that hosts and GPUs differ in, with the prior of how far one is from what
// all have in common: clocks under load.
var ByGPU = []Parameter{
	{Name: Parameters[ScaleGPU].Name, SD: Parameters[ScaleGPU].SD, AtLeast: -0.5},
	{Name: Parameters[ScalePrompt].Name, SD: 0.05, AtLeast: -0.5},
}

// Corrections are the fitted values, each with its standard error, and the errors of predictions
// with them.
type Corrections struct {
	Version string `yaml:"version"`
	// GPUs has by how much the parameters of ByGPU differ on a GPU from Step: by the GPU's datasheet name, then by
	// Parameter.Name, the difference and its standard error.
	GPUs map[string]map[string][2]float64 `yaml:"gpus"`
	// Step has what all GPUs have in common: by Parameter.Name, the value and its standard error.
	Step map[string][2]float64 `yaml:"common"`
	// PerShare are the intervals for each share of time that rests on no measured kernel, learned from all
	// families (UnmeasuredShares).
	PerShare Intervals `yaml:"per_share,flow"`
	Unseen   Intervals `yaml:"unseen,flow"` // the widest of the families, where step times are not from kernel tables
	Judged   []Judged  `yaml:"judged"`
}

// Judged is a family of deployments that was validated: its predictions were compared with measured
// servers while the family was held out of the fit of the corrections. Errors are ratios.
type Judged struct {
	Family     string    `yaml:"family" json:"family"`
	Model      string    `yaml:"model" json:"model"`                     // that the servers ran
	TP         []int64   `yaml:"tp,flow" json:"tp"`                      // their tensor-parallel sizes
	Flags      []string  `yaml:"flags,omitempty" json:"flags,omitempty"` // of the servers, where they change kernels, and of how many points
	Points     int       `yaml:"points" json:"points"`                   // measured: a server at a number of clients
	Measured   Domain    `yaml:"measured" json:"measured"`
	Unknown    bool      `yaml:"flags_unknown,omitempty" json:"flags_unknown,omitempty"` // what the servers ran is not known in full
	TPOTMape   float64   `yaml:"tpot_mape" json:"tpot_mape"`                             // mean error of TPOT
	TTFTMedian float64   `yaml:"ttft_median" json:"ttft_median"`                         // median error of TTFT
	Intervals  Intervals `yaml:"intervals_90,flow" json:"intervals_90"`                  // that nine in ten of its points lie within
	PerShare   Intervals `yaml:"per_share,flow" json:"per_share"`                        // as Corrections.PerShare, learned from all other families
}

//go:embed corrections.yaml
var corrections []byte

// Learned returns the embedded corrections.
var Learned = files.Embedded[Corrections](corrections, "corrections.yaml")

// YAML returns the corrections as a file.
func (c *Corrections) YAML() ([]byte, error) { return yaml.Marshal(c) }

// Value returns a parameter on a GPU and its standard error; its prior where it was not fitted. A
// GPU that was not measured has the values that all have in common, and the standard error that
// GPUs differ by.
func (c *Corrections) Value(k int, gpu string) (value, se float64) {
	p := &Parameters[k]
	value, se = p.Mean, p.SD
	if v, ok := c.Step[p.Name]; ok {
		value, se = v[0], v[1]
	}
	for _, by := range ByGPU {
		if by.Name != p.Name {
			continue
		}
		difference, differenceSE := 0.0, by.SD
		if v, ok := c.GPUs[gpu][p.Name]; ok {
			difference, differenceSE = v[0], v[1]
		}
		return math.Max(p.AtLeast, value+difference), math.Hypot(se, differenceSE)
	}
	return value, se
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
		return nil, fmt.Sprintf("%s: measured at tp %s, not at %d", s.Family, listOfSizes(c.Judged[i].TP), s.TP)
	}
	return &c.Judged[i], ""
}

// listOfSizes returns parallel sizes in words, as "2, 4 and 8".
func listOfSizes(sizes []int64) string {
	var words []string
	for _, n := range sizes {
		words = append(words, strconv.FormatInt(n, 10))
	}
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// Sentence returns for people how far predictions of a step can be trusted, whatever the load.
func (c *Corrections) Sentence(s *Step) string { return c.SentenceFor(s, &Asked{}) }

// SentenceFor returns for people how far predictions of a step in a load can be trusted: the
// held-out error of its family, or that it was not validated and why.
func (c *Corrections) SentenceFor(s *Step, a *Asked) string {
	j, why := c.JudgedAs(s)
	i, outside := c.IntervalsOf(s, a)
	wide := fmt.Sprintf("expect TPOT within %.0f %%, TTFT within %.0f %% and throughput within %.0f %%; nine in ten servers of model families unknown to the fit were that close",
		100*i.ITL, 100*i.TTFT, 100*i.Throughput)
	switch {
	case j == nil:
		return fmt.Sprintf("not validated (%s): %s", why, wide)
	case len(outside) > 0:
		return fmt.Sprintf("not validated here: servers of %s were measured under other conditions (%s): %s", j.Model, strings.Join(outside, "; "), wide)
	}
	of := strings.Join(append([]string{j.Model}, j.Flags...), " with ")
	if j.Unknown {
		of += " with flags that are not known"
	}
	return fmt.Sprintf("validated on %d measured points of %s, held out of the fit: TPOT within %.0f %% (mean), nine in ten within %.0f %%, "+
		"TTFT within %.0f %% (median), nine in ten within %.0f %%", j.Points, of, 100*j.TPOTMape, 100*i.ITL, 100*j.TTFTMedian, 100*i.TTFT)
}
