// Package testkit holds deployments, coefficients and fits that tests of several packages
// share. It imports nouns alone, so that every other package's tests can use it.
package testkit

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// Llama8B is Llama-3.1-8B on one H100 with vLLM's defaults.
func Llama8B() *deploy.Deployment {
	return &deploy.Deployment{
		Model: deploy.Model{
			ID: "meta-llama/Llama-3.1-8B", ModelType: "llama", NumLayers: 32, HiddenSize: 4096, NumHeads: 32, NumKVHeads: 8, HeadDim: 128,
			IntermediateSize: 14336, VocabSize: 128256, NumMLPProj: 3,
			BytesPerParam: 2, BytesPerWeight: 2, BytesPerKV: 2, BytesPerActivation: 2, BytesPerLMHead: 2, LinearCompute: "native",
		},
		Hardware: deploy.Hardware{
			Name: "H100", TFlopsPeak: 989.5, TFlopsFP8: 1979, BwPeakTBs: 3.35, MemoryGB: 80,
			PCIeBandwidthGBs: 64, PCIeEfficiency: 0.75, InterconnectBandwidthGBs: 900, InterconnectLatencyUs: 10,
		},
		TP: 1, PP: 1, DP: 1,
		Engine: deploy.Engine{
			VLLMVersion: "0.15.1", MaxModelLen: trace.Some(int64(8192)), MaxNumSeqs: 256, MaxNumBatchedTokens: 8192, ChunkedPrefill: true,
			BlockSize: 16, GPUMemoryUtilization: 0.9, KVBlocksGPU: trace.Some(int64(27678)),
			AsyncScheduling: trace.Some(false), SchedulingPolicy: "fcfs",
		},
	}
}

// Small is an engine for scenarios: four seats, 64 tokens a step, blocks of 4.
func Small(blocks int64, mutate ...func(*deploy.Engine)) *deploy.Deployment {
	d := &deploy.Deployment{TP: 1, PP: 1, DP: 1, Engine: deploy.Engine{
		MaxNumSeqs: 4, MaxNumBatchedTokens: 64, ChunkedPrefill: true, BlockSize: 4, KVBlocksGPU: trace.Some(blocks),
		MaxModelLen: trace.Some(int64(1000)), AsyncScheduling: trace.Some(false), SchedulingPolicy: "fcfs",
	}}
	for _, m := range mutate {
		m(&d.Engine)
	}
	return d
}

// Planted is a coefficient set that costs what an H100 roughly does.
func Planted() *coeff.Set {
	s := &coeff.Set{SpecVersion: features.V11, Beta: features.NewCoefficients(features.BetaFeatures(features.V11))}
	for i := range s.Beta {
		switch s.Beta[i].Name {
		case "prefill_linear_compute":
			s.Beta[i].Value = 1.6e6
		case "prefill_attention", "decode_attention", "kv_cache_read", "tp_communication":
			s.Beta[i].Value = 1.4e6
		case "decode_weight_load":
			s.Beta[i].Value = 1.3e6
		case "batch_utilization":
			s.Beta[i].Value = 900
		case "fixed_step_overhead":
			s.Beta[i].Value = 2e6
		}
	}
	return s
}

// PlantedOn has steps of some tens of milliseconds on the deployment's machine.
func PlantedOn(dep *deploy.Deployment) *coeff.Set {
	set := &coeff.Set{
		SchemaVersion: coeff.SchemaVersion, SpecVersion: features.V11, Recipe: "relative", BetaTarget: coeff.Cadence, Gamma: 0.3,
		Beta:        features.NewCoefficients(features.BetaFeatures(features.V11)),
		Configs:     []coeff.Config{coeff.ConfigOf(dep, []string{"planted"}, 1000)},
		PipelineLag: map[string]coeff.RunLag{"planted": {Lag: 0, Measured: true}},
	}
	for name, v := range map[string]float64{
		"prefill_linear_compute": 1.4e6, "prefill_attention": 1.2e6, "decode_weight_load": 1.2e6, "kv_cache_read": 2e6,
		"batch_utilization": 60e3, "fixed_step_overhead": 4e6, "bias": 3000,
	} {
		for i := range set.Beta {
			if c := &set.Beta[i]; c.Name == name {
				c.Value, c.Identified = v, coeff.Within
			}
		}
	}
	for _, target := range []string{coeff.Egress, coeff.Overhead} {
		m := coeff.AlphaModel{Target: target, Replay: true, Coefficients: features.NewCoefficients(features.AlphaFeatures(features.V11))}
		for i := range m.Coefficients {
			if m.Coefficients[i].Name == "base_bias" {
				m.Coefficients[i].Value = 2000
			}
		}
		set.Alpha = append(set.Alpha, m)
	}
	return set
}
