package cluster

// This file is the plant, the simulated engines of an experiment, and the gate, the coefficients
// with which the gateway predicts their step times.

import (
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/forecast"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// plantBeta are the published coefficients of the blackbox model: us, us per uncached prompt
// token, us per decode token.
var plantBeta = []float64{6910.42, 17.67, 2.84}

// otherBeta and otherAlpha are the coefficients of the trained-physics engines (a latency model of
// BLIS, in the order of sim.NewTrainedPhysics) that plants with Other have.
var (
	otherBeta  = []float64{0.15, 0, 1.36, 0.75, 32, 4.4, 126, 0, 0, 1.947}
	otherAlpha = []float64{1500, 700, 0}
)

// noise is the distribution of the factor on step times, the same in every regime: an assumed
// spread of a few percent with a longer upper tail.
var noise = []sim.Quantile{
	{Q: 0.05, Ratio: 0.95},
	{Q: 0.25, Ratio: 0.98},
	{Q: 0.5, Ratio: 1},
	{Q: 0.75, Ratio: 1.03},
	{Q: 0.95, Ratio: 1.1},
}

// defaultDeployment returns Llama-3.1-8B on one H100 with the limits of the published runs: 2,048 tokens
// a step and max_num_seqs 256.
func defaultDeployment() *deploy.Deployment {
	return &deploy.Deployment{
		Model: model.Model{
			ID:                 "meta-llama/Llama-3.1-8B",
			ModelType:          "llama",
			NumLayers:          32,
			HiddenSize:         4096,
			NumHeads:           32,
			NumKVHeads:         8,
			HeadDim:            128,
			IntermediateSize:   14336,
			VocabSize:          128256,
			NumMLPProj:         3,
			BytesPerParam:      2,
			BytesPerWeight:     2,
			BytesPerKV:         2,
			BytesPerActivation: 2,
			BytesPerLMHead:     2,
			LinearCompute:      "native",
		},
		Hardware: deploy.Hardware{
			Name:                     "H100-SXM-80GB",
			TFlopsPeak:               989.5,
			TFlopsFP8:                1979,
			BwPeakTBs:                3.35,
			MemoryGB:                 80,
			PCIeBandwidthGBs:         64,
			PCIeEfficiency:           0.75,
			InterconnectBandwidthGBs: 900,
		},
		TP: 1,
		PP: 1,
		DP: 1,
		Engine: vllm.Engine{
			VLLMVersion:          "0.15.1",
			MaxModelLen:          trace.Some[int64](8192),
			MaxNumSeqs:           256,
			MaxNumBatchedTokens:  2048,
			ChunkedPrefill:       true,
			PrefixCaching:        true,
			BlockSize:            16,
			GPUMemoryUtilization: 0.9,
			KVBlocksGPU:          trace.Some[int64](27_678),
			AsyncScheduling:      trace.Some(false),
			SchedulingPolicy:     "fcfs",
		},
	}
}

// plant is the simulated engines and the coefficients that determine their step times.
type plant struct {
	Name       string // for the report
	Deployment *deploy.Deployment
	Set        *coeff.Set // coefficients; nil for the published blackbox, or trained-physics with Other
	Other      bool       // without Set: the engines follow the trained-physics model instead of the published blackbox
}

// Config returns the configuration of one engine with a seed, in which each call makes a latency
// model of its own: fitted coefficients, trained-physics or the published blackbox, with noise.
func (p *plant) Config(seed int64) (sim.Config, error) {
	cfg := sim.DefaultConfig(p.Deployment, nil)
	var m interface{ Parts() sim.Parts } // latency model of the published coefficients; nil with p.Set
	var err error
	switch {
	case p.Set != nil:
		if cfg, err = sim.EngineOf(p.Deployment, p.Set); err == nil {
			cfg.Noise = sim.NoiseOf(p.Set)
		}
	case p.Other:
		m, err = sim.NewTrainedPhysics(otherAlpha, otherBeta, p.Deployment)
	default:
		m, err = sim.NewBlackbox([]float64{0, 0, 0}, plantBeta)
	}
	if err != nil {
		return cfg, err
	}
	if m != nil {
		cfg.Apply(m.Parts())
	}
	if cfg.Noise == nil {
		cfg.Noise = &sim.Noise{Decode: noise, Prefill: noise, Mixed: noise}
	}
	cfg.Seed = seed
	return cfg, nil
}

// Kinds of coefficients that the gate predicts with: those of the engines, fitted ones, those of
// the engines with step times multiplied by 0.7 or 1.3, and a model of another form.
const (
	kindSame      = "same"
	kindFitted    = "fitted"
	kindBiasedLow = "biased-0.7"
	kindBiasedUp  = "biased-1.3"
	kindOtherForm = "other-form"
)

// gate is the coefficients with which the gateway predicts.
type gate struct {
	Kind  string     // one of the kinds above, or the name of a coefficient file
	Set   *coeff.Set // coefficients of a fit or a file; nil for the plant's step times multiplied by Scale
	Scale float64
}

// scaled is a latency model whose step times are multiplied by a factor, to make a gate that is
// wrong by a known ratio.
type scaled struct {
	sim.Model
	by float64
}

// StepUs returns the scaled time of a step, us.
func (s scaled) StepUs(b *sim.Batch) (float64, error) {
	us, err := s.Model.StepUs(b)
	return us * s.by, err
}

// Parts returns what a run needs of plant p and gate g: the configurations of the engines,
// forecasts with the engines' own coefficients (Plants) and with the gate's (Controllers), and the
// prior of the gate's errors.
func (g *gate) Parts(p *plant, instances int, seed int64) (parts, error) {
	cfg, err := p.Config(seed)
	if err != nil {
		return parts{}, err
	}
	gate := cfg
	if g.Set != nil {
		if gate, err = sim.EngineOf(p.Deployment, g.Set); err != nil {
			return parts{}, err
		}
	} else if g.Scale != 1 {
		gate.Latency = scaled{cfg.Latency, g.Scale}
	}
	out := parts{Engines: slices.Repeat([]sim.Config{cfg}, instances), Seed: seed}
	out.Plants = slices.Repeat([]*forecast.Engine{rolloutOf(&cfg)}, instances)
	out.Controllers = slices.Repeat([]*forecast.Engine{rolloutOf(&gate)}, instances)
	if g.Set != nil {
		out.Prior = priorQuantile(g.Set)
	}
	return out, nil
}

// calibrationS is how long each of three loads lasts in a calibration run, s.
const calibrationS = 8.0

// calibrationSeed is the seed of a calibration run's step times and capacity; its three loads have
// the seeds after it. The isolation experiment does not use them: its 1,000 seeds at most end at 997.
const calibrationSeed = 999

// Calibration returns the requests of a calibration run of one engine: calibrationS seconds each at
// 0.5, 0.7 and 0.9 of its capacity, of workload groups, whose prompts vary in length and shared
// prefix.
func (p *plant) Calibration() ([]sim.Request, error) {
	load := loads["groups"]
	l := &lab{IsolationOptions: IsolationOptions{Instances: 1}}
	capacity, err := l.measureCapacity(p, &gate{Kind: kindSame, Scale: 1}, load.Draw(calibrationSeed, 4000, 0.3))
	if err != nil {
		return nil, err
	}
	var out []sim.Request
	for k, share := range []float64{0.5, 0.7, 0.9} {
		for _, q := range load.Draw(int64(calibrationSeed+1+k), share*capacity, calibrationS) {
			q.ID = fmt.Sprint(len(out))
			q.ArrivalUs += int64(float64(k) * calibrationS * 1e6)
			out = append(out, q)
		}
	}
	return out, nil
}

// runFiles returns the texts of run.yaml and config.json that describe deployment d, so that a
// simulated recording can be extracted like a real one. form is the fmt template of run.yaml.
func runFiles(d *deploy.Deployment, form string) (runYAML, config string) {
	h := &d.Hardware
	e := &d.Engine
	m := &d.Model
	blocks, _, _ := d.KVBlocks()
	// The order of the values is that of the placeholders in calibration_run.yaml.
	runYAML = fmt.Sprintf(form, h.Name, h.TFlopsPeak, h.TFlopsFP8, h.BwPeakTBs, h.MemoryGB, h.PCIeBandwidthGBs,
		h.PCIeEfficiency,
		h.InterconnectBandwidthGBs, d.TP, d.PP, d.DP, e.VLLMVersion, d.MaxModelLen().Or(8192), e.MaxNumSeqs,
		e.MaxNumBatchedTokens,
		e.ChunkedPrefill, e.PrefixCaching, e.BlockSize, blocks, e.IsAsync())
	config = fmt.Sprintf(`{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":%d,"num_hidden_layers":%d,`+
		`"num_attention_heads":%d,"num_key_value_heads":%d,"head_dim":%d,"intermediate_size":%d,"vocab_size":%d,"torch_dtype":"bfloat16",`+
		`"max_position_embeddings":%d}`, m.HiddenSize, m.NumLayers, m.NumHeads, m.NumKVHeads, m.HeadDim,
		m.IntermediateSize, m.VocabSize,
		d.MaxModelLen().Or(8192))
	return runYAML, config
}
