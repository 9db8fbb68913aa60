// Package library holds the coefficient files that ship with the tool, embedded:
// one per GPU, kind of weights, and dense models or mixtures of experts. They are
// made by `blis-train library build` from published kernel times and measured
// servers (package pipeline/library); nothing of them is written by hand.
package library

import (
	"bytes"
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

//go:embed *.yaml
var embedded embed.FS

// NotInLibrary is the code of For.
const NotInLibrary trace.Code = "not_in_library"

// Codes describes the codes of this package.
var Codes = []trace.CodeEntry{
	{Code: NotInLibrary, Kind: "error", Meaning: "The library has no coefficients for the deployment's GPU and weights.",
		Action: "Give a coefficient file with --coefficients; `blis-train library show` lists what there is."},
}

// FileNames lists the embedded files, sorted.
func FileNames() []string {
	entries, err := embedded.ReadDir(".")
	if err != nil {
		panic("library: embedded files: " + err.Error())
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// FileText is one embedded file.
func FileText(name string) ([]byte, error) { return embedded.ReadFile(name) }

// Open loads one embedded file.
func Open(name string) (*coeff.Set, error) {
	text, err := FileText(name)
	if err != nil {
		return nil, err
	}
	return coeff.Load(bytes.NewReader(text), "library/"+name, nil) // a test compares its terms
}

// FileFor names the file of a deployment: its GPU, its weights, dense or experts.
// Code: not_in_library.
func FileFor(d *deploy.Deployment) (string, error) {
	m := &d.Model
	weights, experts := "bf16", ""
	switch {
	case m.BytesPerWeight == 1 && m.LinearCompute == "fp8":
		weights = "fp8"
	case m.BytesPerWeight != 2:
		weights = fmt.Sprintf("%g-bit", 8*m.BytesPerWeight)
	}
	if m.IsMoE() {
		experts = "-moe"
	}
	name := strings.ToLower(d.Hardware.Name) + "-" + weights + experts + ".yaml"
	if slices.Contains(FileNames(), name) {
		return name, nil
	}
	var have []string
	for _, h := range deploy.Datasheets() {
		for _, w := range []string{"bf16", "fp8"} {
			if slices.Contains(FileNames(), strings.ToLower(h.Name)+"-"+w+experts+".yaml") {
				have = append(have, h.Name+" "+w)
			}
		}
	}
	return "", trace.Errorf(NotInLibrary, "library: got no coefficients for %s with %s weights, want one of %s", d.Hardware.Name, weights,
		strings.Join(have, ", ")).WithHint("give a coefficient file with --coefficients, or simulate with --latency-model roofline")
}

// For is the library's set for a deployment. Code: not_in_library.
func For(d *deploy.Deployment) (set *coeff.Set, name string, err error) {
	if name, err = FileFor(d); err != nil {
		return nil, "", err
	}
	set, err = Open(name)
	return set, name, err
}
