package testkit

import (
	"embed"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
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
