package pairing

// This file keeps the passes of a log as far as pairing needs them, and cuts the log into stretches
// between which every engine was idle.

import (
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// passLog is the passes of all engines of a log, in the order of the log. It keeps those that
// compute prompts one by one and only the sums of the others.
type passLog struct {
	rules        Rules
	isAsync      bool // the log counts a request as a prompt until its first token has come back
	engines      []engineState
	promptPasses []promptPass // of all engines, in the order of the log
	numPasses    int64        // read so far, prompt passes and others
	isTorn       bool         // an engine was already generating tokens when the log began

	// Sums over all passes. More tokens than requests are drafts, or tokens that were computed again.
	generationReqs, generationTokens int64
}

// promptPass is a pass that computes prompts. generation and hasGapBehind include the decode-only
// passes that follow it on its engine.
type promptPass struct {
	engine        int
	place         int   // its number among all passes of its engine, an index of engineState.leaving
	index         int64 // the engine's own number of the pass
	order         int64 // its number among all passes of the log
	orderBefore   int64 // order of the previous pass of its engine
	contextReqs   int64 // number of prompts of which it computes tokens
	contextTokens int64
	hits          int64 // cached tokens of its prompts as SGLang logs them; -1 if not logged
	generation    int64 // generation tokens of this pass and of the decode-only passes after it
	isFull        bool  // the token budget may be spent, so its last prompt may continue in the next pass
	isFresh       bool  // it has no generation requests: no decode continued from an earlier pass
	hasGapBefore  bool  // passes of its engine just before it are missing in the log
	hasGapBehind  bool  // passes between it and its engine's next prompt pass are missing
	// mayRepeatLast is set with asynchronous scheduling if some of the prompts may be the first decodes of the
	// prompts of the pass before: the pass computes one token for each, or fewer of those decode than ended there.
	mayRepeatLast bool
	stampNs       trace.Opt[int64]
	stampStepNs   int64
	elapsedUs     float64
}

// engineState is what later passes of an engine need of its passes so far.
type engineState struct {
	hasPass        bool
	index          int64 // the engine's own number of its last pass
	order          int64 // number of that pass among all passes of the log
	prefills       int64 // prompts that ended in the last pass and may decode in the next one
	lastPromptPass int   // index of its latest promptPass; -1 for none

	// leaving is for each pass the number of its requests that are not in the next pass, which
	// have finished. It is nil for a log of one engine.
	leaving []int64
}

// newPassLog returns an empty log of so many engines.
func newPassLog(rules Rules, engines int, isAsync bool) *passLog {
	p := &passLog{rules: rules, isAsync: isAsync, engines: make([]engineState, engines)}
	for i := range p.engines {
		p.engines[i].lastPromptPass = -1
	}
	return p
}

// addPass adds the next pass of an engine. With isAsync, requests that the log still counts as prompts
// although they decode are counted as decodes first.
func (p *passLog) addPass(engine int, it *trace.Iteration) {
	e := &p.engines[engine]
	counts := reconstruct.Counts{
		Prefills:      it.ContextReqs,
		PrefillTokens: it.ContextTokens,
		Decodes:       it.GenerationReqs,
		DecodeTokens:  it.GenerationTokens,
	}
	isUnread := false // how many of its prompts are first decodes is not known
	if p.isAsync {
		first := counts.FirstDecodes(e.prefills)
		if first == counts.Prefills && counts.PrefillTokens > first {
			// One of them has more tokens than a decode, so a prompt of the pass before ended with its first token. The
			// line does not say how many did.
			isUnread = first > 1
			first = 0
		}
		counts = counts.Relabel(first)
	}
	p.numPasses++
	p.generationReqs += counts.Decodes
	p.generationTokens += counts.DecodeTokens
	if len(p.engines) > 1 {
		// The requests of a pass that do not decode in the next one have left.
		if n := len(e.leaving); n > 0 {
			e.leaving[n-1] -= counts.Decodes
		}
		e.leaving = append(e.leaving, counts.Prefills+counts.Decodes)
	}
	isLost := it.Index > 0 // passes just before this one are missing; an engine counts from 0
	if e.hasPass {
		isLost = it.Index != e.index+1
	}
	isFull := p.rules.Chunked && counts.MayCutPrompt(p.rules.Budget)
	switch {
	case counts.Prefills > 0:
		hits := int64(-1)
		if it.Form == trace.IterationSGLang {
			hits = it.ContextKVTokens.Or(-1)
		}
		e.lastPromptPass = len(p.promptPasses)
		p.promptPasses = append(p.promptPasses, promptPass{
			engine:        engine,
			place:         len(e.leaving) - 1,
			index:         it.Index,
			order:         p.numPasses,
			orderBefore:   e.order,
			contextReqs:   counts.Prefills,
			contextTokens: counts.PrefillTokens,
			hits:          hits,
			generation:    counts.DecodeTokens,
			isFull:        isFull,
			isFresh:       counts.Decodes == 0,
			hasGapBefore:  isLost,
			mayRepeatLast: isUnread || p.isAsync && e.prefills > 0 && counts.PrefillTokens == counts.Prefills,
			stampNs:       it.StampNs,
			stampStepNs:   it.StampStepNs.Or(1e9),
			elapsedUs:     it.ElapsedUs,
		})
	case e.lastPromptPass < 0: // decodes whose prompts were computed before the log began
		p.isTorn = p.isTorn || counts.DecodeTokens > 0
	default:
		last := &p.promptPasses[e.lastPromptPass]
		last.generation += counts.DecodeTokens
		last.hasGapBehind = last.hasGapBehind || isLost
		if !last.hasGapBehind && it.Form != trace.IterationSGLang {
			last.isFull = false // a cut prompt would continue here; SGLang logs only some of its decode passes
		}
	}
	e.prefills = counts.Prefills
	if isFull {
		e.prefills-- // the last prompt continues
	}
	e.hasPass = true
	e.index = it.Index
	e.order = p.numPasses
}

// stretch is a sequence of prompt passes before and after which every engine was idle.
type stretch struct {
	from, to    int   // of passLog.promptPasses
	contextReqs int64 // sum over its passes; a prompt that was cut counts once for each of its passes
	generation  int64 // tokens
	full        int64 // number of passes whose budget may be spent
	isBroken    bool  // passes in it, just before it or just after it are missing
}

// stretches returns the prompt passes divided where every engine was idle.
func (p *passLog) stretches() []stretch {
	var out []stretch
	for i := range p.promptPasses {
		promptPass := &p.promptPasses[i]
		if i == 0 || p.isIdleBefore(i) {
			isBroken := promptPass.hasGapBefore || i == 0 && (p.isTorn || !promptPass.isFresh)
			if n := len(out); n > 0 {
				last := &out[n-1]
				last.isBroken = last.isBroken || promptPass.hasGapBefore
				// The last prompt of the previous stretch may continue here.
				isBroken = isBroken || last.isBroken && p.promptPasses[i-1].isFull
			}
			out = append(out, stretch{from: i, isBroken: isBroken})
		}
		s := &out[len(out)-1]
		s.to = i + 1
		s.contextReqs += promptPass.contextReqs
		s.generation += promptPass.generation
		s.isBroken = s.isBroken || promptPass.hasGapBehind || promptPass.hasGapBefore
		if promptPass.isFull {
			s.full++
		}
	}
	return out
}

// isIdleBefore reports whether all engines were idle just before the i-th prompt pass: the next
// prompt pass of each engine has no decodes, and the engine ran nothing between the i-th pass and
// that one.
func (p *passLog) isIdleBefore(i int) bool {
	if !p.promptPasses[i].isFresh {
		return false
	}
	if len(p.engines) == 1 {
		return true
	}
	order := p.promptPasses[i].order
	var seen [mostEngines]bool
	unseen := len(p.engines)
	for k := i; k < len(p.promptPasses) && unseen > 0; k++ {
		promptPass := &p.promptPasses[k]
		if seen[promptPass.engine] {
			continue
		}
		if !promptPass.isFresh || promptPass.orderBefore >= order {
			return false
		}
		seen[promptPass.engine] = true
		unseen--
	}
	for e := range p.engines { // engines without a prompt pass from i on
		if !seen[e] && p.engines[e].order >= order {
			return false
		}
	}
	return true
}
