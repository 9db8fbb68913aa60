// Package testkit holds deployments, coefficients and fits that tests of several packages
// share. It imports nouns alone, so that every other package's tests can use it.
package testkit

import (
	"embed"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
)

//go:embed data
var data embed.FS

// fitOf is a fit.json of the folder data.
func fitOf(name string) *result.Fit {
	text, err := data.ReadFile("data/" + name)
	fit := &result.Fit{}
	if err == nil {
		err = result.Read(text, fit)
	}
	if err != nil {
		panic(name + ": " + err.Error())
	}
	return fit
}

// Ptr points at a value.
func Ptr(v float64) *float64 { return &v }

// DeploymentOf is an 8B model on one H100 with the given tp.
func DeploymentOf(tp int64) deploy.Deployment {
	d := ExampleFit().Configs[0].Deployment
	d.TP = tp
	return d
}

// ExampleFit is a fit with every part an exporter reads; edit it in tests.
func ExampleFit() *result.Fit { return fitOf("example_fit.json") }

// PhysicsFit is ExampleFit with beta and alpha coefficients of spec 1.1, unsorted on purpose.
func PhysicsFit() *result.Fit { return fitOf("physics_fit.json") }

// Llama8B is Llama-3.1-8B on one H100 with vLLM's defaults.
func Llama8B() *deploy.Deployment {
	d := DeploymentOf(1)
	d.Name, d.Provenance, d.Hardware.Name = "", "", "H100"
	d.Engine.MaxNumSeqs, d.Engine.MaxNumBatchedTokens = 256, 8192
	d.Engine.KVBlocksGPU, d.Engine.AsyncScheduling = trace.Some(int64(27678)), trace.Some(false)
	return &d
}

// Small is an engine for scenarios: four seats, 64 tokens a step, blocks of 4.
func Small(blocks int64, mutate ...func(*deploy.Engine)) *deploy.Deployment {
	d := &deploy.Deployment{TP: 1, PP: 1, DP: 1, Engine: deploy.Engine{
		VLLMVersion: "0.15.1", MaxNumSeqs: 4, MaxNumBatchedTokens: 64, ChunkedPrefill: true, BlockSize: 4, KVBlocksGPU: trace.Some(blocks),
		MaxModelLen: trace.Some(int64(1000)), AsyncScheduling: trace.Some(false), SchedulingPolicy: "fcfs",
	}}
	for _, m := range mutate {
		m(&d.Engine)
	}
	return d
}

// terms are coefficients of features, those named with values and known so well.
func terms(fs []features.Feature, identified string, values map[string]float64) []coeff.Coefficient {
	all := features.NewCoefficients(fs)
	for i := range all {
		if v, ok := values[all[i].Name]; ok {
			all[i].Value, all[i].Identified = v, identified
		}
	}
	return all
}

// Planted is a coefficient set that costs what an H100 roughly does.
func Planted() *coeff.Set {
	return &coeff.Set{SpecVersion: features.V11, Beta: terms(features.BetaFeatures(features.V11), "", map[string]float64{
		"prefill_linear_compute": 1.6e6, "prefill_attention": 1.4e6, "decode_attention": 1.4e6, "kv_cache_read": 1.4e6,
		"tp_communication": 1.4e6, "decode_weight_load": 1.3e6, "batch_utilization": 900, "fixed_step_overhead": 2e6})}
}

// PlantedOn has steps of some tens of milliseconds on the deployment's machine.
func PlantedOn(dep *deploy.Deployment) *coeff.Set {
	set := &coeff.Set{
		SchemaVersion: coeff.SchemaVersion, SpecVersion: features.V11, Recipe: "relative", BetaTarget: coeff.Cadence, Gamma: 0.3,
		Beta: terms(features.BetaFeatures(features.V11), coeff.Within, map[string]float64{
			"prefill_linear_compute": 1.4e6, "prefill_attention": 1.2e6, "decode_weight_load": 1.2e6, "kv_cache_read": 2e6,
			"batch_utilization": 60e3, "fixed_step_overhead": 4e6, "bias": 3000}),
		Configs:     []coeff.Config{coeff.ConfigOf(dep, []string{"planted"}, 1000)},
		PipelineLag: map[string]coeff.RunLag{"planted": {Lag: 0, Measured: true}},
	}
	for _, target := range []string{coeff.Egress, coeff.Overhead} {
		set.Alpha = append(set.Alpha, coeff.AlphaModel{Target: target, Replay: true,
			Coefficients: terms(features.AlphaFeatures(features.V11), "", map[string]float64{"base_bias": 2000})})
	}
	return set
}
