package kernels

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// What no kernel table knows, in few numbers that a step's time is linear in; never one per model, which would not transfer.
const (
	ScaleGPU     = iota // of all kernels of one GPU
	ScaleExpert         // of experts, on top: added to the GPU's
	ScaleReduce         // of collectives, on top
	HostStep            // us per step
	HostRank            // us per step and further tensor-parallel rank, of asynchronous engines: in others all ranks begin a step together
	HostSequence        // us per running sequence
	SyncStep            // us per step of an engine that schedules synchronously, on top
	SyncSequence        // us per sequence of such an engine, on top
	ScalePrompt         // of all kernels of a step with prompts, on top: clocks under long load, which no repeated kernel shows
	SmallKernel         // us per kernel that no table holds, on top of its bytes and launchUs
	EagerLayer          // us in which the host launches a layer of a step that no CUDA graph runs, at least
	NumStep
)

// Parameter is one number of the corrections: its name, its prior and its least value.
type Parameter struct {
	Name              string
	Mean, SD, AtLeast float64
}

// Parameters are those of a step, then Overhead: us before a request reaches the engine. A synchronous engine pays its host in every
// step; an asynchronous one prepares a step while the GPU runs the one before and pays what cannot overlap.
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

// Corrections are the values, each with its standard error, and how predictions with them did.
type Corrections struct {
	Version string                `yaml:"version"`
	GPUs    map[string][2]float64 `yaml:"gpu_scale"` // by datasheet name; others take 1
	Step    map[string][2]float64 `yaml:"common"`    // by Parameter.Name
	Judged  []Judged              `yaml:"judged"`
}

// Judged is a family that was compared with servers, left out of the corrections: ratios.
type Judged struct {
	Family     string   `yaml:"family" json:"family"`
	Model      string   `yaml:"model" json:"model"`
	TP         []int64  `yaml:"tp,flow" json:"tp"`
	Flags      []string `yaml:"flags,omitempty" json:"flags,omitempty"` // of the servers, that change kernels, and of how many points
	Points     int      `yaml:"points" json:"points"`
	TPOTMape   float64  `yaml:"tpot_mape" json:"tpot_mape"`
	TTFTMedian float64  `yaml:"ttft_median" json:"ttft_median"`
	Interval90 float64  `yaml:"tpot_interval_90" json:"tpot_interval_90"` // half width: nine in ten left-out errors are within it
}

//go:embed corrections.yaml
var corrections []byte

// Learned are the embedded corrections.
var Learned = files.Embedded[Corrections](corrections, "corrections.yaml")

// YAML is the corrections' file.
func (c *Corrections) YAML() ([]byte, error) { return yaml.Marshal(c) }

// Value is a parameter on a GPU and its standard error; what was not learned is its prior.
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

// On are the values of a step on one GPU.
func (c *Corrections) On(gpu string) (out [NumStep]float64) {
	for k := range out {
		out[k], _ = c.Value(k, gpu)
	}
	return out
}

// OverheadUs is what a request takes before it reaches the engine.
func (c *Corrections) OverheadUs() float64 {
	us, _ := c.Value(NumStep, "")
	return us
}

// unjudgedInterval is the least half width of the 90 % interval where nothing was compared.
const unjudgedInterval = 0.3

// JudgedAs is how the step's own family did; nil with the reason where no server of it was measured.
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

// Sentence says how far predictions of a step can be trusted: its own family's left-out error, or that it is unjudged.
func (c *Corrections) Sentence(s *Step) string {
	j, why := c.JudgedAs(s)
	if j == nil {
		return fmt.Sprintf("unjudged (%s): TPOT may be off by %.0f %% or more", why, 100*unjudgedInterval)
	}
	of := strings.Join(append([]string{j.Model}, j.Flags...), " with ")
	return fmt.Sprintf("judged on %d measured points of %s, left out: TPOT within %.0f %% (mean), nine in ten within %.0f %%, "+
		"TTFT within %.0f %% (median)", j.Points, of, 100*j.TPOTMape, 100*j.Interval90, 100*j.TTFTMedian)
}

// Bound is the plan of a deployment from the tables of its GPU. Codes: no_kernel_tables, kernel_rows_missing.
func Bound(d *deploy.Deployment, o Options) (*Step, error) {
	if g := o.GPU; g != nil && g.Hardware != d.Hardware.Name {
		return nil, trace.Errorf(NoTables, "--library: got tables of %s, want those of %s", g.Hardware, d.Hardware.Name)
	} else if g != nil {
		s, err := g.Bind(d, o)
		if err == nil {
			s.Unjudged = append(s.Unjudged, "tables of one's own")
		}
		return s, err
	}
	g, err := For(&d.Hardware)
	if err != nil {
		return nil, err
	}
	return g.Bind(d, o)
}

// Features are what a step's time is linear in at some corrections: us per unit of each (spec#library-step).
func (p *Pricer) Features(b *Batch, theta, x *[NumStep]float64) {
	p.Columns(b, x)
	Slower(theta, x)
}

// Columns are the features before it is known whether kernels or launches take longer.
func (p *Pricer) Columns(b *Batch, x *[NumStep]float64) {
	parts := p.Parts(b)
	*x = [NumStep]float64{ScaleGPU: parts.Total(), ScaleExpert: parts[Experts], ScaleReduce: parts[Collective], HostStep: 1,
		HostSequence: b.Sequences, SmallKernel: p.small}
	if p.sync {
		x[SyncStep], x[SyncSequence] = 1, b.Sequences
	} else {
		x[HostRank] = float64(p.TP - 1)
	}
	if b.Prefills > 0 {
		x[ScalePrompt] = parts.Total()
	}
	if !p.Captured(b) {
		x[EagerLayer] = p.Layers
	}
}

// kernelTimes are the columns that the GPU takes.
var kernelTimes = []int{ScaleGPU, ScaleExpert, ScaleReduce, ScalePrompt, SmallKernel}

// Slower leaves of a step outside a CUDA graph what takes longer: its kernels, or the host that launches them one by one.
func Slower(theta, x *[NumStep]float64) {
	us := stat.Sum(kernelTimes, func(k int) float64 { return float64(theta[k] * x[k]) })
	if us >= float64(theta[EagerLayer]*x[EagerLayer]) {
		x[EagerLayer] = 0
		return
	}
	for _, k := range kernelTimes {
		x[k] = 0
	}
}
