package coeff

import (
	"bytes"
	"embed"
	"fmt"
	"math"
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
	if why := m.WhyLayered(); why != "" {
		return "", trace.Errorf(NotInLibrary, "library: model %s: %s, want equal layers of grouped-query attention", m.ID, why).
			WithHint("give a coefficient file with --coefficients, or simulate with --latency-model roofline")
	}
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

// Library is what a set of the library says about itself: coefficients of one
// GPU and one kind of weights for any model, made from published kernel times and
// corrected by measured servers. Nil for sets that were fitted to traces.
type Library struct {
	Version string `yaml:"version"` // of the library: the day of its newest input
	Weights string `yaml:"weights"` // bf16 | fp8
	MoE     bool   `yaml:"moe"`     // mixtures of experts; else dense models
	Rules   string `yaml:"kernel_rules"`
	// Host is what differs between the deployments of one GPU; Set.On adds it.
	Host HostWork `yaml:"host"`
	// Family, Judged and Representation are of coefficients of one deployment: what is judged together, how far predictions of the family
	// were off where it was left out, in words, and by how much the terms miss the sums of kernels they were fitted to, the median relative
	// error of decode, mixed and prefill batches.
	Family         string    `yaml:"family,omitempty"`
	Judged         string    `yaml:"judged,omitempty"`
	Representation []float64 `yaml:"representation_error,flow,omitempty"`
	// Expected are the errors on measured groups that the correction had not seen.
	Expected ExpectedError `yaml:"expected_error"`
}

// HostWork is time of the host that no term of a step holds, each with its
// standard error.
type HostWork struct {
	RankUs         []float64 `yaml:"rank_us"`          // per step and further tensor-parallel rank
	SyncStepUs     []float64 `yaml:"sync_step_us"`     // per step of an engine without asynchronous scheduling, on top
	SyncSequenceUs []float64 `yaml:"sync_sequence_us"` // per sequence of such a step, on top
}

// ExpectedError is how far predictions were off where the library had not been
// corrected; ratios.
type ExpectedError struct {
	TPOTMape   float64 `yaml:"tpot_mape"`
	TTFTMedian float64 `yaml:"ttft_median"`
	Points     int     `yaml:"points"`          // measured points behind the two
	OnGPU      bool    `yaml:"measured_on_gpu"` // false: measured on other GPUs only
}

func (l *Library) check() error {
	if l == nil {
		return nil
	}
	h := &l.Host
	for _, v := range []struct {
		name string
		pair []float64
	}{{"rank_us", h.RankUs}, {"sync_step_us", h.SyncStepUs}, {"sync_sequence_us", h.SyncSequenceUs}} {
		if len(v.pair) != 2 || !(v.pair[0] >= 0) || !(v.pair[1] >= 0) || math.IsInf(v.pair[0], 0) || math.IsInf(v.pair[1], 0) {
			return trace.Errorf(BadFile, "library.host.%s: got %v, want a time in us and its standard error, both >= 0", v.name, v.pair)
		}
	}
	return nil
}
