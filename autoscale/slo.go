package autoscale

// This file writes the configMap with the latency targets of workload-variant-autoscaler from
// v0.6.0 on.

import (
	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/trace"
)

// sloEntry is one entry of the configMap wva-queueing-model-config.
type sloEntry struct {
	Multiplier float64 `yaml:"sloMultiplier,omitempty"`
	Tuning     *bool   `yaml:"tuningEnabled,omitempty"`
	ModelID    string  `yaml:"model_id,omitempty"`
	Namespace  string  `yaml:"namespace,omitempty"`
	TTFT       float64 `yaml:"targetTTFT,omitempty"` // ms
	ITL        float64 `yaml:"targetITL,omitempty"`  // ms
}

// configMap is a Kubernetes configMap of texts.
type configMap struct {
	APIVersion string            `yaml:"apiVersion"`
	Kind       string            `yaml:"kind"`
	Metadata   metadata          `yaml:"metadata"`
	Data       map[string]string `yaml:"data"`
}

// sloMultiplier is the autoscaler's default. For a model without targets the autoscaler takes as
// targets the latencies at which an iteration lasts this many times as long as in an idle engine.
const sloMultiplier = 3

// writeSLO returns the configMap with the TTFT and ITL targets of each server's model. Both are
// needed, because the autoscaler rejects one alone. Servers of one model share its entry, so their
// targets must be equal.
func writeSLO(servers []exported, o *queueOptions) ([]byte, []trace.Finding, error) {
	base, err := yaml.Marshal(sloEntry{Multiplier: sloMultiplier, Tuning: new(true)})
	if err != nil {
		return nil, nil, err
	}
	m := configMap{
		APIVersion: "v1",
		Kind:       "ConfigMap",
		Data:       map[string]string{"default": string(base)},
		Metadata: metadata{Name: "wva-queueing-model-config",
			Labels: map[string]string{"app.kubernetes.io/name": "workload-variant-autoscaler"}},
	}
	for _, s := range servers {
		e := sloEntry{
			ModelID:   s.Model,
			Namespace: o.Settings["namespace"],
			TTFT:      o.Float("ttft-ms"),
			ITL:       o.Float("itl-ms"),
		}
		if z := s.Sizing; z != nil && e.TTFT == 0 && e.ITL == 0 {
			e.TTFT, e.ITL = z.TargetTTFTMs, z.TargetITLMs
		}
		if !(e.TTFT > 0 && e.ITL > 0) || e.Namespace == "" {
			return nil, nil, trace.Errorf(export.NothingToExport,
				"wva-slo: %s: got TTFT %g ms, ITL %g ms, namespace %q, want all three", s.ID,
				e.TTFT, e.ITL, e.Namespace).
				WithHint("--option ttft-ms=MS --option itl-ms=MS --option namespace=NAME")
		}
		text, err := yaml.Marshal(e)
		if err != nil {
			return nil, nil, err
		}
		name := o.modelName(s.Model)
		if other, ok := m.Data[name]; ok && other != string(text) {
			return nil, nil, trace.Errorf(export.BadEntry,
				"wva-slo: %s: got TTFT %g ms, ITL %g ms of %s for the entry %s, want those of an earlier server", s.ID,
				e.TTFT, e.ITL, s.Model, name).
				WithHint("--config " + s.ID + " takes one server; --option ttft-ms=MS --option itl-ms=MS are for all")
		}
		m.Data[name] = string(text)
	}
	data, err := yaml.Marshal(m)
	return data, nil, err
}
