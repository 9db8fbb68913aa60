package rows

// This file stores the steps of a run. A long recording has millions, so that they are most of the memory of a
// stage. Most steps only decode: such a step is kept in 32 bytes, one with prompts in 24 more, without pointers, which
// the garbage collector need not follow.

import (
	"math"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
)

// stepList has the steps of a run by id, less the id of the first one.
type stepList struct {
	steps []compactStep
	// prompts has the sums over the prompts of the steps that have some.
	prompts []promptSums
	// whole has the inputs of the steps whose sums are not those of compactStep and promptSums: of spec 1.0, with moved
	// KV blocks, or beyond the bytes of a field.
	whole []features.StepInput
	// reached has features.StepInput.Reached by step; nil for models whose layers all have full attention.
	reached []*features.Reached
}

// compactStep is a step without its id, and without the inputs that follow from others.
type compactStep struct {
	decodeContextTokens                                         float64
	decodeTokens                                                int32
	recorded                                                    int32
	more                                                        int32 // above 0: place in stepList.prompts, from 1; below: in whole, from -1
	numPrefillReqs, numDecodeReqs, numSampledSeqs, runningDepth uint16
	tag                                                         Tag
	reason                                                      reconstruct.Reason
	noStart                                                     bool
}

// promptSums are the inputs of a step that are 0 without prompts, and its scheduled tokens, which without prompts are the
// decode tokens.
type promptSums struct {
	causalWork, context float64
	tokens, scheduled   int32
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
		decodeContextTokens: in.DecodeContextTokens,
		decodeTokens:        inFourBytes(in.DecodeTokens),
		numPrefillReqs:      inTwoBytes(in.NumPrefillReqs),
		numDecodeReqs:       inTwoBytes(in.NumDecodeReqs),
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
	if l.input(k) == *in {
		return
	}
	l.prompts = append(l.prompts, promptSums{
		causalWork: in.PrefillCausalWork,
		context:    in.PrefillContext,
		tokens:     inFourBytes(in.PrefillTokens),
		scheduled:  inFourBytes(in.ScheduledTokens),
	})
	c.more = int32(len(l.prompts))
	if l.input(k) == *in {
		return
	}
	l.prompts = l.prompts[:len(l.prompts)-1]
	l.whole = append(l.whole, *in)
	c.more = int32(-len(l.whole))
}

// inFourBytes returns a number of tokens, inTwoBytes one of requests. If it is larger, or no whole number, the step has
// its inputs in stepList.whole.
func inFourBytes(v float64) int32 { return int32(max(0, min(v, math.MaxInt32))) }
func inTwoBytes(v float64) uint16 { return uint16(max(0, min(v, math.MaxUint16))) }

// input returns the inputs of step k.
func (l *stepList) input(k int) features.StepInput {
	c := &l.steps[k]
	if c.more < 0 {
		return l.whole[-c.more-1]
	}
	in := features.StepInput{
		DecodeTokens:        float64(c.decodeTokens),
		ScheduledTokens:     float64(c.decodeTokens),
		NumPrefillReqs:      float64(c.numPrefillReqs),
		NumDecodeReqs:       float64(c.numDecodeReqs),
		NumSampledSeqs:      float64(c.numSampledSeqs),
		DecodeContextTokens: c.decodeContextTokens,
		KVReadTokens:        c.decodeContextTokens,
		RunningDepth:        float64(c.runningDepth),
	}
	if c.more > 0 {
		p := &l.prompts[c.more-1]
		in.PrefillTokens = float64(p.tokens)
		in.ScheduledTokens = float64(p.scheduled)
		in.PrefillCausalWork = p.causalWork
		in.PrefillContext = p.context
		in.KVReadTokens = c.decodeContextTokens + p.context + float64(p.tokens)
	}
	if l.reached != nil {
		in.Reached = l.reached[k]
	}
	return in
}

// prefillTokens returns the prompt tokens of step k.
func (l *stepList) prefillTokens(k int) float64 {
	switch more := l.steps[k].more; {
	case more > 0:
		return float64(l.prompts[more-1].tokens)
	case more < 0:
		return l.whole[-more-1].PrefillTokens
	}
	return 0
}

// scheduledTokens returns all tokens of step k.
func (l *stepList) scheduledTokens(k int) float64 {
	switch more := l.steps[k].more; {
	case more > 0:
		return float64(l.prompts[more-1].scheduled)
	case more < 0:
		return l.whole[-more-1].ScheduledTokens
	}
	return float64(l.steps[k].decodeTokens)
}

// at returns step k, whose id is given.
func (l *stepList) at(k int, id int64) Step {
	c := &l.steps[k]
	return Step{ID: id, Tag: c.tag, Reason: c.reason, NoStart: c.noStart, Recorded: c.recorded, In: l.input(k)}
}
