// Package testkit holds deployments, coefficients and fits that tests of several packages
// share. It imports nouns alone, so that every other package's tests can use it.
package testkit

import (
	"embed"
	"encoding/json"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
)

//go:embed data
var data embed.FS

// read is a document of the folder data.
func read[T any](name string) *T {
	text, err := data.ReadFile("data/" + name + ".json")
	v := new(T)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		panic(name + ": " + err.Error())
	}
	return v
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
func ExampleFit() *result.Fit { return read[result.Fit]("example_fit") }

// PhysicsFit is ExampleFit with beta and alpha coefficients of spec 1.1, unsorted on purpose.
func PhysicsFit() *result.Fit { return read[result.Fit]("physics_fit") }

// Llama8B is Llama-3.1-8B on one H100 with vLLM's defaults.
func Llama8B() *deploy.Deployment { return read[deploy.Deployment]("llama8b") }

// Small is an engine for scenarios: four seats, 64 tokens a step, blocks of 4.
func Small(blocks int64, mutate ...func(*deploy.Engine)) *deploy.Deployment {
	d := read[deploy.Deployment]("small")
	d.Engine.KVBlocksGPU = trace.Some(blocks)
	for _, m := range mutate {
		m(&d.Engine)
	}
	return d
}

// Planted is a coefficient set that costs what an H100 roughly does.
func Planted() *coeff.Set { return read[coeff.Set]("planted") }

// PlantedOn has steps of some tens of milliseconds on the deployment's machine.
func PlantedOn(dep *deploy.Deployment) *coeff.Set {
	set := read[coeff.Set]("planted_on")
	set.Configs = []coeff.Config{coeff.ConfigOf(dep, []string{"planted"}, 1000)}
	return set
}
