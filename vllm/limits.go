package vllm

import (
	_ "embed"
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

// Knobs gives the value of a flag of vllm serve in run.yaml's spelling, nil for none.
type Knobs func(key string) any

//go:embed limits.yaml
var limitsYAML []byte

// Limits is every knob of its kind, refused ones first.
var Limits = sync.OnceValue(func() []Limit {
	all := *files.Embedded[[]Limit](limitsYAML, "limits.yaml")()
	for i := range all {
		if all[i].Code = NotModelled; all[i].Refused {
			all[i].Code = UnsupportedEngine
		}
	}
	return all
})

// reached says how the knobs reach the limit; "" where they do not.
func (l *Limit) reached(get Knobs) string {
	switch v := get(l.Key); {
	case l.Most != nil:
		if n, _ := Number(v); n > *l.Most {
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
			if name != "" && !slices.Contains(TierConnectors, name) && l.Simulated == (name == PullConnector) {
				return fmt.Sprintf("kv_transfer_config: got connector %q, want none or %s", name, strings.Join(TierConnectors, ", "))
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
	PullConnector = "NixlConnector"
	LMCache       = "LMCacheConnectorV1"
	LMCacheServer = "LMCacheMPConnector"
)

// TierConnectors are those of a CPU tier, which is modelled.
var TierConnectors = []string{"OffloadingConnector", LMCache, LMCacheServer}

// ReachedLimit is a limit that is reached, and by what.
type ReachedLimit struct {
	*Limit
	Got string
}

// Reached lists the limits that the knobs reach. isMoE makes data parallelism one that
// is refused.
func Reached(get Knobs, isMoE bool) []ReachedLimit {
	var out []ReachedLimit
	all := Limits()
	for i := range all {
		l := &all[i]
		if l.Experts && !isMoE {
			continue
		}
		got := l.reached(get)
		if got != "" && !slices.ContainsFunc(out, func(h ReachedLimit) bool { return h.What == l.What || h.Refused && h.Key == l.Key }) {
			out = append(out, ReachedLimit{l, got})
		}
	}
	return out
}

// Findings words the limits that the knobs reach.
func Findings(get Knobs, isMoE bool) []trace.Finding {
	return stat.Map(Reached(get, isMoE), func(h ReachedLimit) trace.Finding { return h.Finding() })
}

// Finding words a limit that is reached.
func (h *ReachedLimit) Finding() trace.Finding {
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
	return trace.Findingf(h.Code, "%s: %s; %s", h.Got, what, h.Next)
}
