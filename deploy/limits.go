package deploy

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Limit is a knob of vLLM whose effect on a step is not modelled (spec#unmodelled-knobs), by one of the
// rules Most, On, Given and Words.
type Limit struct {
	Code    trace.Code `yaml:"-"`
	Key     string     // the flag that turns it on, as run.yaml spells it
	Refused bool       // fit and simulate refuse it; else they warn
	What    string     // what is not modelled
	// Simulated: the simulator's schedule has it.
	Simulated bool
	// Layered: spec 1.3 adds it up.
	Layered bool
	Next    string   // the next step
	Most    *float64 // the largest value that is modelled
	On      bool     // it must be off
	Given   []string // flags that must be absent or off
	Words   []string // values that it must not have
	Experts bool     // of models with experts alone
}

// knobs gives the value of a flag of vllm serve in run.yaml's spelling, nil for none.
type knobs func(key string) any

//go:embed limits.yaml
var limitsYAML []byte

// limits is every knob of its kind, refused ones first.
var limits = sync.OnceValue(func() []Limit {
	all := *files.Embedded[[]Limit](limitsYAML, "limits.yaml")()
	for i := range all {
		if all[i].Code = notModelled; all[i].Refused {
			all[i].Code = UnsupportedEngine
		}
	}
	return all
})

// reached says how the knobs reach the limit; "" where they do not.
func (l *Limit) reached(get knobs) string {
	switch v := get(l.Key); {
	case l.Most != nil:
		if n, _ := number(v); n > *l.Most {
			return fmt.Sprintf("%s: got %g, want at most %g", l.Key, n, *l.Most)
		}
	case l.On && v == true:
		return l.Key + ": got true, want false"
	case l.Words != nil:
		if v, _ := v.(string); slices.Contains(l.Words, v) {
			return fmt.Sprintf("%s: got %q, want another", l.Key, v)
		}
	}
	for _, key := range l.Given {
		v := get(key)
		if config, _ := v.(map[string]any); config != nil && key == "kv_transfer_config" {
			name, _ := config["kv_connector"].(string)
			if name != "" && !slices.Contains(tierConnectors, name) && l.Simulated == (name == pullConnector) {
				return fmt.Sprintf("kv_transfer_config: got connector %q, want none or %s", name, strings.Join(tierConnectors, ", "))
			}
		} else if v != nil && v != false && v != "" {
			return key + ": got a value, want none"
		}
	}
	return ""
}

// Connectors: pullConnector is that of prefill apart from decode, which simulate plays, lmCache that of LMCache in the
// engine's process, lmCacheServer of its server beside it.
const (
	pullConnector = "NixlConnector"
	lmCache       = "LMCacheConnectorV1"
	lmCacheServer = "LMCacheMPConnector"
)

// tierConnectors are those of a CPU tier, which is modelled.
var tierConnectors = []string{"OffloadingConnector", lmCache, lmCacheServer}

// hit is a limit that is reached, and by what.
type hit struct {
	*Limit
	got string
}

// hits lists the limits that the knobs reach. isMoE makes data parallelism one that
// is refused.
func hits(get knobs, isMoE bool) []hit {
	var out []hit
	all := limits()
	for i := range all {
		l := &all[i]
		if l.Experts && !isMoE {
			continue
		}
		got := l.reached(get)
		if got != "" && !slices.ContainsFunc(out, func(h hit) bool { return h.What == l.What || h.Refused && h.Key == l.Key }) {
			out = append(out, hit{l, got})
		}
	}
	return out
}

// findings words the limits that the knobs reach.
func findings(get knobs, isMoE bool) []trace.Finding {
	return stat.Map(hits(get, isMoE), func(h hit) trace.Finding { return h.finding() })
}

// finding words a limit that is reached.
func (h *hit) finding() trace.Finding {
	what := h.What
	if h.Refused {
		what += " is not modelled; fit and simulate refuse it"
		switch {
		case h.Layered:
			what = h.What + " is in the step times of spec 1.3 alone"
		case h.Simulated:
			what = h.What + " is not in the step times; simulate plays it"
		}
	}
	return trace.Findingf(h.Code, "%s: %s; %s", h.got, what, h.Next)
}

// knob is the value of a flag of the deployment, wherever it stands.
func (d *Deployment) knob(key string) any {
	switch key {
	case "pipeline_parallel_size":
		return d.PP
	case "data_parallel_size":
		return d.DP
	case "enable_expert_parallel":
		return d.Engine.ExpertParallel
	case "speculative_decoding":
		return d.Engine.SpeculativeDecoding
	}
	return d.Engine.Extra[key]
}

// RefusedModel words the error of a config.json that [LoadModel] refuses, for those
// who go on without it.
func RefusedModel(err error) []trace.Finding {
	var e *trace.SyntaxError
	if !errors.As(err, &e) {
		return []trace.Finding{{Code: BadModel, Message: err.Error()}}
	}
	return []trace.Finding{trace.Findingf(e.Code, "%s: %s; extract refuses it%s", e.File, e.Msg, strings.TrimSuffix("; "+e.Hint, "; "))}
}

// NotModelled lists what of the deployment no step time covers: knobs of the engine,
// inputs and architecture of the model. What fit and simulate refuse stands first.
func (d *Deployment) NotModelled() []trace.Finding {
	out := findings(d.knob, d.Model.IsMoE())
	if n, most := d.Engine.MaxModelLen.V, d.Model.MaxPositionEmbeddings; most > 0 && n > most && d.Engine.Extra["hf_overrides"] == nil {
		out = append(out, trace.Findingf(notModelled, "max_model_len: got %d, want at most the %d positions of config.json: vLLM refuses it "+
			"without VLLM_ALLOW_LONG_MAX_MODEL_LEN", n, most))
	}
	return append(append(out, unmeasured(d.Hardware.Name)...), d.Model.NotModelled()...)
}

// unmeasured tells of a built-in device of another maker than those whose kernels
// and servers were measured.
func unmeasured(device string) []trace.Finding {
	if device != "MI300X-192GB" {
		return nil
	}
	return []trace.Finding{trace.Findingf(notModelled, "%s: known by its vendor's rates alone; no measured kernel or server of it stands "+
		"behind the features and the library", device)}
}

// NotModelled lists what of the model no step time covers.
func (m *Model) NotModelled() (out []trace.Finding) {
	if len(m.Encoders) > 0 {
		out = append(out, trace.Findingf(notModelled, "%s: the encoder's time for images, video and audio is not told apart; use "+
			"recordings of text requests alone", strings.Join(m.Encoders, ", ")))
	}
	if len(m.UnknownKeys) > 0 {
		const most = 6
		keys := m.UnknownKeys
		more := ""
		if n := len(keys) - most; n > 0 {
			keys = keys[:most]
			more = fmt.Sprintf(" and %d more", n)
		}
		out = append(out, trace.Findingf(notModelled, "%s: the model's config.json says %s%s, which this version does not know; where it "+
			"changes attention or the MLP, the features are wrong", m.ID, strings.Join(keys, ", "), more))
	}
	if m.Sizes != nil {
		out = append(out, trace.Findingf(notModelled, "%s: %s; its memory is that of stated sizes, its step times are not modelled", m.ID,
			m.Sizes.Why))
	}
	if slices.Contains(m.Warnings, architectureAssumed) {
		out = append(out, trace.Findingf(architectureAssumed, "%s: model_type %q is read as model.assume says", m.ID, m.ModelType))
	}
	if slices.Contains(m.Warnings, fullAttentionAssumed) {
		out = append(out, trace.Findingf(fullAttentionAssumed, "%s: windowed attention is taken for full attention, as "+
			"model.assume_full_attention says", m.ID))
	}
	return out
}

// refused is the first limit the deployment reaches that nothing goes on with; layered: with sums over layers, which some
// are part of.
func (d *Deployment) refused(layered bool) error {
	for _, h := range hits(d.knob, d.Model.IsMoE()) {
		if h.Refused && !(layered && h.Layered) {
			return trace.Errorf(h.Code, "%s: %s is not modelled", h.got, h.What).WithHint(h.Next)
		}
	}
	return d.Model.known()
}
