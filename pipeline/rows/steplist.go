package rows

// This file stores the steps of a run. A long recording has millions, so that they are most of the memory of a
// stage: a step is kept in 56 bytes without pointers, which the garbage collector need not follow.

import (
	"math"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
)

// stepList has the steps of a run by id, less the id of the first one.
type stepList struct {
	steps []compactStep
	// whole has the inputs of the steps whose sums are not those of compactStep: of spec 1.0, with moved KV
	// blocks, or beyond the bytes of a field.
	whole []features.StepInput
	// reached has features.StepInput.Reached by step; nil for models whose layers all have full attention.
	reached []*features.Reached
}

// compactStep is a step without its id, and without the inputs that follow from others.
type compactStep struct {
	prefillCausalWork, decodeContextTokens, prefillContext      float64
	prefillTokens, decodeTokens, scheduledTokens                int32
	recorded                                                    int32
	whole                                                       int32 // place in stepList.whole, from 1; 0: not there
	numPrefillReqs, numDecodeReqs, numSampledSeqs, runningDepth uint16
	tag                                                         Tag
	reason                                                      reconstruct.Reason
	noStart                                                     bool
}

// known reports whether the step's batch may be used.
func (c *compactStep) known() bool { return c.tag != tagUnknown }

// newStepList returns n steps of unknown batches. withReaches: the attention of some layers has a reach.
func newStepList(n int, withReaches bool) stepList {
	l := stepList{steps: make([]compactStep, n)}
	if withReaches {
		l.reached = make([]*features.Reached, n)
	}
	return l
}

// set stores step k.
func (l *stepList) set(k int, st *Step) {
	in := &st.In
	c := &l.steps[k]
	*c = compactStep{
		prefillCausalWork:   in.PrefillCausalWork,
		decodeContextTokens: in.DecodeContextTokens,
		prefillContext:      in.PrefillContext,
		prefillTokens:       inFourBytes(in.PrefillTokens),
		decodeTokens:        inFourBytes(in.DecodeTokens),
		numPrefillReqs:      inTwoBytes(in.NumPrefillReqs),
		numDecodeReqs:       inTwoBytes(in.NumDecodeReqs),
		scheduledTokens:     inFourBytes(in.ScheduledTokens),
		numSampledSeqs:      inTwoBytes(in.NumSampledSeqs),
		runningDepth:        inTwoBytes(in.RunningDepth),
		recorded:            st.Recorded,
		tag:                 st.Tag,
		reason:              st.Reason,
		noStart:             st.NoStart,
	}
	if l.reached != nil {
		l.reached[k] = in.Reached
	}
	if l.input(k) != *in {
		l.whole = append(l.whole, *in)
		c.whole = int32(len(l.whole))
	}
}

// inFourBytes returns a number of tokens, inTwoBytes one of requests. If it is larger, or no whole number, the step has
// its inputs in stepList.whole.
func inFourBytes(v float64) int32 { return int32(max(0, min(v, math.MaxInt32))) }
func inTwoBytes(v float64) uint16 { return uint16(max(0, min(v, math.MaxUint16))) }

// input returns the inputs of step k.
func (l *stepList) input(k int) features.StepInput {
	c := &l.steps[k]
	if c.whole > 0 {
		return l.whole[c.whole-1]
	}
	in := features.StepInput{
		PrefillTokens:       float64(c.prefillTokens),
		DecodeTokens:        float64(c.decodeTokens),
		ScheduledTokens:     float64(c.scheduledTokens),
		NumPrefillReqs:      float64(c.numPrefillReqs),
		NumDecodeReqs:       float64(c.numDecodeReqs),
		NumSampledSeqs:      float64(c.numSampledSeqs),
		PrefillCausalWork:   c.prefillCausalWork,
		DecodeContextTokens: c.decodeContextTokens,
		KVReadTokens:        c.decodeContextTokens + c.prefillContext + float64(c.prefillTokens),
		RunningDepth:        float64(c.runningDepth),
		PrefillContext:      c.prefillContext,
	}
	if l.reached != nil {
		in.Reached = l.reached[k]
	}
	return in
}

// at returns step k, whose id is given.
func (l *stepList) at(k int, id int64) Step {
	c := &l.steps[k]
	return Step{ID: id, Tag: c.tag, Reason: c.reason, NoStart: c.noStart, Recorded: c.recorded, In: l.input(k)}
}
