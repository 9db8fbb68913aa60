package export

// This file writes the configuration of llm-d's endpoint picker.

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
)

// eppSettings are the options of llmd-epp.
var eppSettings = []Setting{
	{Key: "ttft-source", Usage: "what the affinity filters compare: prefillThroughput (V_P) or latencyPredictor",
		Default: "prefillThroughput", OneOf: []string{"prefillThroughput", "latencyPredictor"}},
	{Key: "p2p", Usage: "true: with p2p-source-producer and its cost of a prompt token; transfer costs are not known", Default: "false", OneOf: []string{"true", "false"}},
}

// pickerConfig is the configuration of llm-d's router: the plugin chain that it ships with the predictor on
// (router@ebab687, config/charts/routerlib).
type pickerConfig struct {
	APIVersion string          `yaml:"apiVersion"`
	Kind       string          `yaml:"kind"`
	Plugins    []pickerPlugin  `yaml:"plugins"`
	Profiles   []pickerProfile `yaml:"schedulingProfiles"`
}

// pickerPlugin is a plugin of the router.
type pickerPlugin struct {
	Name       string `yaml:"name,omitempty"`
	Type       string `yaml:"type"`
	Parameters any    `yaml:"parameters,omitempty"`
}

// pickerProfile is a chain of plugins.
type pickerProfile struct {
	Name    string      `yaml:"name"`
	Plugins []pluginRef `yaml:"plugins"`
}

// pluginRef names a plugin.
type pluginRef struct {
	Ref string `yaml:"pluginRef"`
}

// affinity are the parameters of a prefix-cache-affinity-filter.
type affinity struct {
	Threshold      float64 `yaml:"affinityThreshold"`
	Source         string  `yaml:"ttftSource"`
	PeakThroughput float64 `yaml:"peakPrefillThroughput,omitempty"`
	MaxPenaltyMs   int     `yaml:"maxTTFTPenaltyMs"`
}

// chain returns the configuration of llm-d's endpoint picker: its chain of filters and scorers. source
// is the affinity filters' ttftSource, where they take predicted TTFTs from; peak is the prefill
// throughput, tokens/s. p2p adds the plugin for transfers of KV between engines, to which slopeUs, the time per
// prompt token, us, belongs.
func chain(source string, peak float64, p2p bool, slopeUs float64) *pickerConfig {
	c := &pickerConfig{APIVersion: "llm-d.ai/v1alpha1", Kind: "EndpointPickerConfig"}
	filter := func(name string, threshold float64) pickerPlugin {
		return pickerPlugin{
			Name:       name,
			Type:       "prefix-cache-affinity-filter",
			Parameters: affinity{Threshold: threshold, Source: source, PeakThroughput: peak, MaxPenaltyMs: 5000},
		}
	}
	c.Plugins = []pickerPlugin{
		{Type: "predicted-latency-producer"},
		filter("strict-affinity-filter", 0.99),
		filter("loose-affinity-filter", 0.80),
		{Type: "latency-scorer"},
		{Type: "weighted-random-picker"},
		{Type: "slo-headroom-tier-filter"},
		{Type: "latency-slo-admitter"},
	}
	if p2p {
		cost := map[string]map[string]float64{"costModel": {"prefillMicrosecondsPerToken": rounded(slopeUs)}}
		c.Plugins = append(c.Plugins, pickerPlugin{Type: "p2p-source-producer", Parameters: cost})
	}
	profile := pickerProfile{Name: "default"}
	for _, name := range []string{"predicted-latency-producer", "strict-affinity-filter", "slo-headroom-tier-filter",
		"loose-affinity-filter", "latency-scorer", "weighted-random-picker"} {
		profile.Plugins = append(profile.Plugins, pluginRef{Ref: name})
	}
	c.Profiles = []pickerProfile{profile}
	return c
}

// rounded returns v with four significant digits.
func rounded(v float64) float64 { return stat.Round(v, 4) }

// endpointPicker returns the files of format llmd-epp, the configuration of llm-d's router for one
// deployment.
func endpointPicker(src Source, opt Options) (*Output, error) {
	c, err := src.onlyConfig(opt, FormatEPP)
	if err != nil {
		return nil, err
	}
	r, err := prefillRateOf(&src, c)
	if err != nil {
		return nil, err
	}
	source := opt.Settings["ttft-source"]
	peak := 0.0
	side := src.Sidecar(opt, FormatEPP, "llm-d's router, EndpointPickerConfig llm-d.ai/v1alpha1 (ebab687)")
	if source == "prefillThroughput" {
		peak = math.Round(r.PerS)
		side.Values = append(side.Values, r.sideValue("peakPrefillThroughput"))
	}
	p2p := opt.Settings["p2p"] == "true"
	if p2p {
		side.Values = append(side.Values,
			SideValue{Key: "prefillMicrosecondsPerToken", Name: "slope of idle TTFT", Value: &r.SlopeUs,
				Unit: "us/token", Identified: "derived", Learned: true,
				Origin: "least squares over eight prompt lengths up to a chunk",
				Effect: "what a block costs to compute that another pod could send"})
	}
	data, err := resourceYAML([][]string{{fmt.Sprintf("%s: %s.", c.Label, r.Sentence())}}, chain(source, peak, p2p, r.SlopeUs))
	if err != nil {
		return nil, err
	}
	lines, assumed := regions([]result.FitConfig{*c}, opt)
	side.Configs = lines
	side.Warnings = src.ValidationWarnings()
	return side.OutputWith(assumed, File{Data: data})
}
