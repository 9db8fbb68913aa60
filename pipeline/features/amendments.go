package features

import (
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Amendment is a change of the specification that somebody proposed and that is not part of any
// version: it holds where a version names it behind a plus sign, "1.1+queue-pole" (spec#amendments).
type Amendment struct {
	Name  string
	Model string // steps or waits: whose errors show it
	Doc   string // what changes, in one sentence

	slots []string // of features.yaml: take the place of the slot of their name, or stand behind the last
}

// Names of the amendments that other packages read.
const (
	TimeAverage      = "time-average"
	SeparateAverages = "separate-averages"
	Components       = "principal-components"
)

// amendments, sorted by name: a version names them in this order.
var amendments = []Amendment{
	{Name: "log-queue", Model: "waits", Doc: "slot 6 of the waits takes the log of the queue per seat",
		slots: []string{"queue_memory_interaction@log-queue"}},
	{Name: "prefill-diversity", Model: "steps", Doc: "a prompt touches experts as 1 + ln(n) tokens do, not as its n",
		slots: []string{"decode_weight_load@prefill-diversity", "moe_activation@prefill-diversity"}},
	{Name: Components, Model: "steps", Doc: "step times are fitted in the leading principal components of the rows"},
	{Name: "queue-pole", Model: "waits", Doc: "waits get a slot gate/max(0.01, 1 - gate), the pole of a full server",
		slots: []string{"queue_pole@queue-pole"}},
	{Name: SeparateAverages, Model: "waits", Doc: "waits choose the gamma of their preemption average themselves"},
	{Name: "split-gates", Model: "waits", Doc: "the queue's drain is gated by seats and by memory, each with its own coefficient",
		slots: []string{"queue_drain@split-gates", "queue_drain_memory@split-gates"}},
	{Name: TimeAverage, Model: "steps", Doc: "the preemption average forgets by time, 1 - exp(-dt/tau), not by step"},
}

// Amendments returns every amendment, sorted by name; shared, do not modify.
func Amendments() []Amendment { return amendments }

// checkAmendments wants known names in order, and none on 1.0, which is frozen.
func checkAmendments(v Version) error {
	names := v.Amendments()
	if len(names) == 0 {
		return nil
	}
	var known []string
	for _, a := range amendments {
		known = append(known, a.Name)
	}
	for i, name := range names {
		switch {
		case v.Base() == V10:
			return trace.Errorf(UnknownSpecVersion, "spec_version: got %q, want 1.0 as it is, or amendments of a later version", string(v))
		case !slices.Contains(known, name):
			return trace.Errorf(UnknownSpecVersion, "spec_version: got amendment %q, want %s", name, trace.OneOf(known))
		case i > 0 && names[i-1] >= name:
			return trace.Errorf(UnknownSpecVersion, "spec_version: got %q, want its amendments once each and sorted by name", string(v))
		}
	}
	return nil
}

// amendedList is a version's list with what its amendments change; nil for a version that is not known.
func amendedList(v Version, base []Feature, model string) []Feature {
	if !strings.Contains(string(v), "+") {
		return base
	}
	if CheckVersion(v) != nil {
		return nil
	}
	out := slices.Clone(base)
	for i := range amendments {
		if !v.Has(amendments[i].Name) || amendments[i].Model != model {
			continue
		}
		for _, f := range slotsOf(amendments[i].slots) {
			if k := slices.IndexFunc(out, func(g Feature) bool { return g.Name == f.Name }); k >= 0 {
				out[k] = f
			} else {
				out = append(out, f)
			}
		}
	}
	return numbered(out)
}

// poleLeast is the smallest distance of the gate from 1 that the pole sees.
const poleLeast = 0.01

// queuePole grows as a server fills up, as the mean wait of a queue does with its load.
//
//	g/max(0.01, 1-g)
//
// Unit:   1
// Source: spec#amendments; the wait of M/M/1 is rho/(1-rho) services (Kleinrock, Queueing Systems I, 1975)
// Bounds: 0..100; 0 on an idle server, 1 at half load
// Omits:  how much work the running requests have left
func queuePole(s *Space, in *QueueInput) float64 {
	g := s.gate(in)
	return g / atLeast(poleLeast, 1-g)
}

// logQueue is queue slot 6 with the log of the queue.
func logQueue(s *Space, in *QueueInput) float64 {
	return s.gate(in) * in.KVUsageRatio * stat.Log1p(in.WaitingDepth/s.maxSeqs)
}

// seatDrain is queue slot 5 gated by the seats alone.
func seatDrain(s *Space, in *QueueInput) float64 {
	return atMost(1, in.RunningDepth/s.maxSeqs) * stat.Log1p(in.WaitingDepth) * s.rooflineS
}

// memoryDrain is the drain of a queue that waits for KV blocks.
//
//	kv_usage * ln(1 + waiting) * roofline     [s]
//
// Unit:   s
// Source: spec#amendments, spec#roofline-step-time
// Bounds: >= 0; 0 with an empty cache or an empty queue
// Omits:  lengths of the waiting prompts
func memoryDrain(s *Space, in *QueueInput) float64 {
	return atMost(1, atLeast(0, in.KVUsageRatio)) * stat.Log1p(in.WaitingDepth) * s.rooflineS
}

// diverse is the number of tokens that choose experts as many as the step's: tokens of one prompt go to
// the same experts more often than chance would have them.
func diverse(in *StepInput) float64 {
	n := in.NumPrefillReqs
	return in.DecodeTokens + float64(n*(1+stat.Log(atLeast(1, in.PrefillTokens/atLeast(1, n)))))
}

// diverseWeightLoad is step slot 3 with the experts that diverse tokens touch.
func diverseWeightLoad(s *Space, in *StepInput) float64 {
	return atLeast(0, s.weightBytes(diverse(in), in.NumSampledSeqs)/s.bandwidth-linearCompute(s, in))
}

// diverseActivation is step slot 8 with the same.
func diverseActivation(s *Space, in *StepInput) float64 {
	if s.moeLayers == 0 {
		return 0
	}
	return s.moeLayerShare * s.expertShare(diverse(in))
}

// averageUs is the time in which a gamma renews its share of a time-based average.
const averageUs = 100_000

// Average follows the preemption average over the steps of a run, in order (spec#preemption-average).
type Average struct {
	Version Version
	Gamma   float64

	value   float64
	lastNs  int64
	started bool
}

// Step takes one recorded step by its start and returns the average after it.
func (a *Average) Step(startNs int64, numPreempted, runningDepth float64) float64 {
	share := a.Gamma
	if a.started {
		share = Renewal(a.Version, a.Gamma, float64(startNs-a.lastNs)/1000)
	}
	a.value, a.lastNs, a.started = EMA(a.value, share, numPreempted, runningDepth), startNs, true
	return a.value
}

// Renewal is the share of the preemption average that a step renews: gamma, or with the amendment
// time-average 1 - exp(-dt/tau), tau = -100 ms/ln(1 - gamma) (spec#amendments). sinceUs is the time
// from the beginning of the step before it.
func Renewal(v Version, gamma, sinceUs float64) float64 {
	if !v.Has(TimeAverage) {
		return gamma
	}
	return -stat.Expm1(stat.Log1p(-gamma) * sinceUs / averageUs)
}
