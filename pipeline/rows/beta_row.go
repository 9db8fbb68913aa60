package rows

// This file appends a row of step times to the table: sums, regime, weight and stress sets of its
// steps.

import (
	"math"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// appendRow appends the row of an interval that starts at recorded step i. The features are in b.x.
func (b *betaBuilder) appendRow(i *trace.Step, iv interval, phase int32, isHoldOut bool) {
	t := b.t
	summary := b.summarise(iv)
	t.X = append(t.X, b.x...)
	t.Y = append(t.Y, iv.y)
	t.Steps = append(t.Steps, iv.steps())
	t.Regime = append(t.Regime, summary.regime())
	t.TimeNs = append(t.TimeNs, i.TsStartNs)
	if !b.o.Slim {
		t.FirstStep = append(t.FirstStep, iv.from)
		t.LastStep = append(t.LastStep, iv.to)
	}
	t.Tag = append(t.Tag, summary.tag)
	t.Phase = append(t.Phase, phase)
	t.Factor = append(t.Factor, summary.factor)
	t.HoldOut = append(t.HoldOut, isHoldOut)
	t.Sets = append(t.Sets, summary.stressSets())
	t.FloorUs = append(t.FloorUs, summary.floorUs)
	t.Batch = append(t.Batch, summary.requests/iv.steps())
	t.Context = append(t.Context, summary.context/math.Max(1, summary.decodes))
	t.Kept++
	b.others.appendRow(t, b.x, func(ema averages, x []float64) { b.vectorUnder(iv, ema, x) })
}

// widenRanges extends the range of the features by each step of an interval.
func (b *betaBuilder) widenRanges(iv interval) {
	for u := iv.from; u <= iv.to; u++ {
		x := b.x
		if iv.to > iv.from {
			x, _, _ = b.step(u)
		}
		b.t.widenRange(x)
	}
}

// rowSummary collects what the steps of a row have in common, and their sums.
type rowSummary struct {
	tag              Tag     // the worst of a step
	prefill          bool    // every step has prefills alone
	decode           bool    // every step has decodes alone
	few              bool    // every step has at most fewTokensTop tokens
	preempting, full bool    // some step preempted a request; had KV usage above 0.9
	factor           float64 // of the row's weight (spec#preempting-rows)
	floorUs          float64
	requests         float64
	decodes          float64
	context          float64 // tokens in KV of the decodes
}

// summarise returns the sums over the steps of an interval.
func (b *betaBuilder) summarise(iv interval) rowSummary {
	k := rowSummary{prefill: true, decode: true, few: true, factor: 1}
	for u := iv.from; u <= iv.to; u++ {
		st := b.s.compact(u)
		in := b.s.input(u)
		k.addStep(&in, b.sp.FloorUs(&in))
		k.tag = max(k.tag, st.tag)
		if st.recorded >= 0 {
			k.addSummary(&b.s.Run.Steps[st.recorded])
		}
	}
	if iv.approx {
		k.tag = tagLagApproximate
	}
	return k
}

// addStep adds a step with its inputs and its physical floor in us.
func (k *rowSummary) addStep(in *features.StepInput, floorUs float64) {
	k.prefill = k.prefill && in.DecodeTokens == 0
	k.decode = k.decode && in.PrefillTokens == 0
	k.few = k.few && in.ScheduledTokens <= fewTokensTop
	k.floorUs += floorUs
	k.requests += in.NumPrefillReqs + in.NumDecodeReqs
	k.decodes += in.NumDecodeReqs
	k.context += in.DecodeContextTokens
}

// addSummary adds what only the recorded summary of a step has.
func (k *rowSummary) addSummary(s *trace.Step) {
	k.preempting = k.preempting || s.NumPreempted > 0
	k.full = k.full || s.KVUsage > fullCacheUsage
	k.factor = math.Min(k.factor, preemptionFactor(int64(s.NumPreempted), int64(s.RunningDepth)))
}

// preemptionFactor returns the weight factor of a step: 0.5 where more than half of the running requests
// were preempted, else 1 (spec#preempting-rows).
func preemptionFactor(preempted, running int64) float64 {
	if float64(preempted)/float64(max(1, running)) > 0.5 {
		return 0.5
	}
	return 1
}

// regime returns the regime of the row: decode, prefill or mixed.
func (k *rowSummary) regime() Regime {
	switch {
	case k.decode:
		return Decode
	case k.prefill:
		return Prefill
	}
	return Mixed
}

// stressSets returns the stress sets (rare states of the engine) to which the row belongs.
func (k *rowSummary) stressSets() StressSet {
	var s StressSet
	if k.preempting {
		s |= Preempting
	}
	if k.full {
		s |= fullCache
	}
	if k.prefill {
		s |= purePrefill
	}
	if k.decode {
		s |= PureDecode
	}
	if k.few {
		s |= fewTokens
	}
	return s
}
