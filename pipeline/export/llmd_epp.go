package export

import (
	"fmt"

	"github.com/blis-train/blis-train/result"
)

// eppSettings are the options of llmd-epp.
var eppSettings = []Setting{
	{Key: "ttft-source", Usage: "what the affinity filters compare: prefillThroughput (V_P) or latencyPredictor",
		Default: "prefillThroughput", OneOf: []string{"prefillThroughput", "latencyPredictor"}},
	{Key: "p2p", Usage: "true: with p2p-source-producer and its cost of a prompt token; transfer costs are not known", Default: "false", OneOf: []string{"true", "false"}},
}

// eppText is the plugin chain that llm-d's router ships with the predictor on (router@ebab687,
// config/charts/routerlib).
const eppText = `# {{.Label}}: {{.Rate.Said}}.
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: predicted-latency-producer
- name: strict-affinity-filter
  type: prefix-cache-affinity-filter
  parameters: {affinityThreshold: 0.99, {{.Source}}, maxTTFTPenaltyMs: 5000}
- name: loose-affinity-filter
  type: prefix-cache-affinity-filter
  parameters: {affinityThreshold: 0.80, {{.Source}}, maxTTFTPenaltyMs: 5000}
- type: latency-scorer
- type: weighted-random-picker
- type: slo-headroom-tier-filter
- type: latency-slo-admitter
{{- if .P2P}}
- type: p2p-source-producer
  parameters:
    costModel:
      prefillMicrosecondsPerToken: {{printf "%.4g" .Rate.SlopeUs}}
{{- end}}
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: predicted-latency-producer
  - pluginRef: strict-affinity-filter
  - pluginRef: slo-headroom-tier-filter
  - pluginRef: loose-affinity-filter
  - pluginRef: latency-scorer
  - pluginRef: weighted-random-picker
`

// endpointPicker writes the configuration of llm-d's router for one deployment.
func endpointPicker(src Source, opt Options) (*Output, error) {
	c, err := src.onlyConfig(opt, FormatEPP)
	if err != nil {
		return nil, err
	}
	r, err := prefillRateOf(&src, c)
	if err != nil {
		return nil, err
	}
	source := "ttftSource: " + opt.Settings["ttft-source"]
	side := src.Sidecar(opt, FormatEPP, "llm-d's router, EndpointPickerConfig llm-d.ai/v1alpha1 (ebab687)")
	if opt.Settings["ttft-source"] == "prefillThroughput" {
		source += fmt.Sprintf(", peakPrefillThroughput: %.0f", r.PerS)
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
	data, err := fill(eppText, map[string]any{"Label": c.Label, "Rate": r, "Source": source, "P2P": p2p})
	if err != nil {
		return nil, err
	}
	lines, assumed := regions([]result.FitConfig{*c}, opt)
	side.Configs, side.Warnings = lines, src.ValidationWarnings()
	return side.Beside(assumed, File{Data: data})
}
