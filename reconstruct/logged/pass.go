package logged

// This file takes the counts of a pass from its record, which was read from a log line or a trace before (package
// enginelog), and corrects those that an engine labels in a way of its own: recomputed requests, and first decodes of
// vLLM that are logged as context requests. The sums that no record states are filled in later (contexts.go).

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// pass is one logged iteration with the values found for it. Stamps are ns of one clock.
type pass struct {
	it       *trace.Iteration
	next     bool  // it directly follows the pass before: no record is lost in between
	follows  bool  // a request runs in it and in the pass before, so the engine was not idle in between
	idle     bool  // the engine was idle before it
	startNs  int64 // when it began
	hasStart bool  // startNs is known
	endNs    int64 // when it ended
	hasEnd   bool  // endNs is known
	tick     bool  // the first pass whose stamp is in a new second
	tickNs   int64 // the beginning of that second

	afterClockSet bool // the clock of the log was set between the pass before and this one

	constantUs float64 // time between this pass and the one before that elapsed does not include

	// What ran. Counts are exact up to relabelled first decodes, the sums may be filled in.
	prefills, decodes int64
	cutPrompts        int64 // 1 where the budget may have cut the last prompt
	prefillTokens     int64
	drafted           int64   // speculative tokens that the decodes verify in addition to their own
	causalWork        float64 // pairs of a prompt token and a token that it attends to (features.CausalFromTotals)
	prefillContext    float64 // tokens in KV of the prompts before the pass, summed
	decodeContext     float64 // tokens that the decodes attend to, summed
	recompute         bool    // it recomputes preempted requests, so the sums are unknown
}

// passesOf returns a pass for every iteration, with its counts. drafts states whether the engine decodes
// speculatively; dep is then the deployment without that (Fill).
func passesOf(its []trace.Iteration, dep *deploy.Deployment, drafts bool) []pass {
	out := make([]pass, len(its))
	budget := dep.Engine.MaxNumBatchedTokens
	for i := range its {
		p, it := &out[i], &its[i]
		p.it = it
		p.prefills = it.ContextReqs
		p.prefillTokens = it.ContextTokens
		p.decodes = it.GenerationReqs
		if drafts {
			p.drafted = max(0, it.GenerationTokens-it.GenerationReqs)
		} else {
			// A decode computes one token. A preempted request that had begun to answer counts as a generation request
			// too, and computes its prompt and its answer once more.
			p.recompute = it.GenerationTokens > it.GenerationReqs
		}
		counts := reconstruct.Counts{
			Prefills:      it.ContextReqs,
			PrefillTokens: it.ContextTokens,
			Decodes:       it.GenerationReqs,
			DecodeTokens:  it.GenerationTokens,
		}
		if counts.MayCutPrompt(budget) {
			p.cutPrompts = 1
		}
		if i == 0 {
			continue
		}
		before := &out[i-1]
		p.next = it.Index == its[i-1].Index+1
		p.follows = p.next && (it.GenerationReqs > 0 || before.cutPrompts > 0 && p.prefills > 0)
	}
	return out
}

// Limits of the rule by which relabelFirstDecodes recognises such recordings (spec#iteration-fill). It
// relies on prompts of one token being rare.
const (
	labelPasses = 5   // passes whose prompts all end, at least
	labelExact  = 0.1 // share of them that must be followed by as many context requests of one token; new prompts hide the others
)

// relabelFirstDecodes corrects the counts of recordings that label a request as context until its
// first token has come back. Under asynchronous scheduling its first decode is scheduled before
// that. In such recordings, a pass in which prompts end is followed by as many context requests of
// one token, none of which is new.
func (f *filler) relabelFirstDecodes() {
	// Count passes in which prompts ended, and of these the ones followed by as many one-token contexts.
	ended := 0
	exact := 0
	for i := 1; i < len(f.passes); i++ {
		a, b := &f.passes[i-1], &f.passes[i]
		if !b.next || a.prefills == 0 || a.cutPrompts > 0 || a.prefillTokens < 2*a.prefills {
			continue // a with less than two tokens a prompt may be first decodes itself
		}
		ended++
		if b.prefills == a.prefills && b.prefillTokens == a.prefills {
			exact++
		}
	}
	if ended < labelPasses || float64(exact) < labelExact*float64(ended) {
		return
	}
	// In the order of time: of pass a, which is corrected already, only prompts are left, and all but the cut one ended.
	for i := 1; i < len(f.passes); i++ {
		a, b := &f.passes[i-1], &f.passes[i]
		if !b.next {
			continue
		}
		c := reconstruct.Counts{Prefills: b.prefills, PrefillTokens: b.prefillTokens, Decodes: b.decodes}
		c = c.Relabel(c.FirstDecodes(a.prefills - a.cutPrompts))
		b.prefills = c.Prefills
		b.prefillTokens = c.PrefillTokens
		b.decodes = c.Decodes
		if b.prefills == 0 {
			// No prompt is left, so no token is one of a prompt. Tokens that are left over are counted as decodes of one
			// token each, so that the pass keeps its tokens: a decode without drafts computes one.
			b.decodes += b.prefillTokens
			b.prefillTokens = 0
			b.cutPrompts = 0
		}
		b.follows = b.follows || b.decodes > 0
	}
	f.addFinding(codeFilledIn, "the log counts first decodes as context requests; they are taken for decodes")
}

// promptVariation returns the squared coefficient of variation of the prompt lengths of a pass; 0
// if the trace does not state their variance.
func (p *pass) promptVariation() float64 {
	v := p.it.PromptVariance
	if !v.OK || p.prefills < 2 || p.prefillTokens == 0 {
		return 0
	}
	// n prompts with a given mean vary most where one of them has all tokens: then the square is n - 1.
	mean := float64(p.prefillTokens+p.it.ContextKVTokens.Or(0)) / float64(p.prefills)
	return math.Min(v.V/(mean*mean), float64(p.prefills-1))
}

// hasEncoder reports whether the pass also ran a multimodal encoder, whose time is in its own.
func (p *pass) hasEncoder() bool { return p.it.EncoderInputs.V > 0 || p.it.EncoderOutputs.V > 0 }

// middle returns the time in the middle of a pass whose end is known, ns: where its start is not, half of its elapsed
// time before the end.
func (p *pass) middle() int64 {
	if !p.hasStart {
		return p.endNs - trace.Ns(p.it.ElapsedUs/2)
	}
	return p.startNs + (p.endNs-p.startNs)/2
}

// stepTotals returns the sums of a pass in the form of trace.Aggregate.
func (p *pass) stepTotals() trace.StepTotals {
	if p.it.Dummy {
		return trace.StepTotals{Known: true}
	}
	hasEncoder := p.hasEncoder()
	return trace.StepTotals{
		Known:          !p.recompute && !hasEncoder,
		Encoder:        hasEncoder,
		Prefill:        p.prefillTokens,
		Decode:         p.decodes + p.drafted,
		PrefillReqs:    p.prefills,
		DecodeReqs:     p.decodes,
		Sampled:        p.prefills + p.decodes + p.drafted - p.cutPrompts, // tokens with logits: a draft needs its own to be verified, a cut prompt has none
		CausalWork:     p.causalWork,
		PrefillContext: p.prefillContext,
		DecodeContext:  p.decodeContext,
	}
}
