package coeff

import (
	"bytes"
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// The library: the coefficient files that ship with the tool, one per GPU, kind of weights,
// and dense models or mixtures of experts. They are made by `blis-train library build` from
// published kernel times and measured servers; nothing of them is written by hand.
//
//go:embed library/*.yaml
var embedded embed.FS

// LibraryFiles lists the embedded files, sorted.
func LibraryFiles() []string {
	entries, err := embedded.ReadDir("library")
	if err != nil {
		panic("library: embedded files: " + err.Error())
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// LibraryText is one embedded file.
func LibraryText(name string) ([]byte, error) { return embedded.ReadFile("library/" + name) }

// OpenLibrary loads one embedded file.
func OpenLibrary(name string) (*Set, error) {
	text, err := LibraryText(name)
	if err != nil {
		return nil, err
	}
	return Load(bytes.NewReader(text), "library/"+name, nil) // a test compares its terms
}

// LibraryFileFor names the file of a deployment: its GPU, its weights, dense or experts.
// Code: not_in_library.
func LibraryFileFor(d *deploy.Deployment) (string, error) {
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
	if slices.Contains(LibraryFiles(), name) {
		return name, nil
	}
	var have []string
	for _, h := range deploy.Datasheets() {
		for _, w := range []string{"bf16", "fp8"} {
			if slices.Contains(LibraryFiles(), strings.ToLower(h.Name)+"-"+w+experts+".yaml") {
				have = append(have, h.Name+" "+w)
			}
		}
	}
	return "", trace.Errorf(NotInLibrary, "library: got no coefficients for %s with %s weights, want one of %s", d.Hardware.Name, weights,
		strings.Join(have, ", ")).WithHint("give a coefficient file with --coefficients, or simulate with --latency-model roofline")
}

// LibraryFor is the library's set for a deployment. Code: not_in_library.
func LibraryFor(d *deploy.Deployment) (set *Set, name string, err error) {
	if name, err = LibraryFileFor(d); err != nil {
		return nil, "", err
	}
	set, err = OpenLibrary(name)
	return set, name, err
}
