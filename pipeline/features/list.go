package features

import (
	"cmp"
	_ "embed"
	"slices"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/internal/files"
)

// lists are the slots of one version in order.
type lists struct{ beta, alpha []Feature }

// experimental has the new slots that stand behind those of 1.3. A new feature is one file that declares
// it and one line at the end of a list here; lengths of all vectors follow from the lists.
var experimental = lists{
	beta: []Feature{
		// new slots of steps
	},
	alpha: []Feature{
		// new slots of waits
	},
}

// featuresYAML is what is said of every slot beside its function, with the slots of each released
// version. Released lists never change: a coefficient file names its version and must mean the same
// in every later build (a test pins them).
//
//go:embed features.yaml
var featuresYAML []byte

// declarations are the slots of each version by their keys, and what is said of each.
type declarations struct {
	Lists    map[Version]struct{ Beta, Alpha []string }
	Features map[string]Feature

	Separates      [][2]string
	Shows          map[string]string
	TrainedPhysics []Term `yaml:"trained_physics"`
}

// Experiments are step-time terms, each with what separates it from those that move with it, and by STAGE/NAME what would teach a
// term of a fit from requests (spec#request-directions).
func Experiments() (separates [][2]string, shows map[string]string) {
	return declared().Separates, declared().Shows
}

// declared is what features.yaml says: the slots of each version, and by NAME@VERSION what each is.
// The bound of 1.0 is its one clamp, 100 (spec#frozen-guards); that of a time-like slot of 1.1 is one
// hour (spec#bounds).
var declared = files.Embedded[declarations](featuresYAML, "features.yaml")

// slotsOf are the slots of keys, with their functions.
func slotsOf(keys []string) (out []Feature) {
	for _, key := range keys {
		f, known := declared().Features[key]
		f.Name, _, _ = strings.Cut(key, "@")
		f.beta, f.alpha = stepSlots[f.Name], queueSlots[f.Name]
		if own := stepSlots[key]; own != nil {
			f.beta = own
		}
		if own := queueSlots[key]; own != nil {
			f.alpha = own
		}
		if !known || f.beta == nil && f.alpha == nil {
			panic("features.yaml: " + key + " is not declared, or has no function")
		}
		out = append(out, f)
	}
	return out
}

// versions are the lists of every version.
var versions = sync.OnceValue(func() map[Version]*lists {
	all := map[Version]*lists{}
	for v, l := range declared().Lists {
		all[v] = &lists{numbered(slotsOf(l.Beta)), numbered(slotsOf(l.Alpha))}
	}
	all[Experimental] = &lists{numbered(slices.Concat(all[V13].beta, experimental.beta)),
		numbered(slices.Concat(all[V13].alpha, experimental.alpha))}
	return all
})

// listsOf are the lists of a version; nil for an unknown one.
func listsOf(v Version) *lists {
	if CheckVersion(v) != nil {
		return nil
	}
	return versions()[v.Base()]
}

// numbered sets slots and single-configuration penalties.
func numbered(fs []Feature) []Feature {
	for i := range fs {
		fs[i].Slot = i + 1
		fs[i].PenaltyOne = cmp.Or(fs[i].PenaltyOne, fs[i].Penalty)
	}
	return fs
}

// stepSlots are the functions of step slots by name; where a version has one of its own, by NAME@VERSION.
var stepSlots = map[string]func(*Space, *StepInput) float64{
	"prefill_linear_compute":     linearCompute,
	"prefill_linear_compute@1.0": linearCompute10,
	"batch_utilization":          batchUtilization11,
	"batch_utilization@1.0":      batchUtilization10,
	"prefill_decode_mix":         prefillDecodeMix,
	"chunked_prefill_mixed":      chunkedPrefillMixed,
	"prefill_attention":          prefillAttention,
	"prefill_attention@1.0":      prefillAttention10,
	"decode_attention":           decodeAttention,
	"decode_attention@1.0":       decodeAttention10,
	"tp_communication":           tpCommunication,
	"tp_communication@1.0":       tpCommunication10,
	"fixed_step_overhead":        fixedStepOverhead11,
	"fixed_step_overhead@1.0":    fixedStepOverhead10,
	"gqa_efficiency":             gqaEfficiency,
	"bias":                       bias11,
	"kv_cache_read":              kvCacheRead11,
	"kv_cache_read@1.0":          kvCacheRead10,
	"moe_activation":             moeActivation11,
	"moe_activation@1.0":         moeActivation10,
	"cpu_offload_transfer":       cpuOffloadTransfer,
	"cpu_offload_kv_read":        cpuOffloadKVRead,
	"preemption_overhead":        preemptionOverhead,
	"decode_weight_load":         weightLoad,
	"decode_weight_load@1.0":     weightLoad10,
	"weight_load_hidden":         weightLoadHidden12,
	"activation_traffic":         activationTraffic12,
	"collective_time":            collectiveTime12,
	"expert_load":                expertLoad12,
	"prefill_attention@1.3":      prefillAttention13,
	"decode_attention@1.3":       decodeAttention13,
	"kv_cache_read@1.3":          kvCacheRead13,
	"moe_activation@1.3":         moeActivation13,
	"expert_load@1.3":            expertLoad13,
}

// queueSlots are those of queue slots.
var queueSlots = map[string]func(*Space, *QueueInput) float64{
	"base_bias":                 baseBias11,
	"batch_saturation":          batchSaturation,
	"kv_pressure":               kvPressure,
	"queued_regime_bias":        queuedRegimeBias11,
	"cpu_offload_expansion":     cpuOffloadExpansion11,
	"cpu_offload_expansion@1.0": cpuOffloadExpansion10,
	"preemption_disruption":     preemptionDisruption,
	"admission_compute":         admissionCompute11,
	"admission_compute@1.0":     admissionCompute10,
	"admission_compute@1.3":     admissionCompute13,
	"queue_drain":               queueDrain,
	"queue_memory_interaction":  queueMemoryInteraction,
	"prefix_cache_benefit":      prefixCacheBenefit,
	"memory_admission_gap":      memoryAdmissionGap11,
	"memory_admission_gap@1.0":  memoryAdmissionGap10,
}
