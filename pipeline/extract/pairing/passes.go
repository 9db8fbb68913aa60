package pairing

import (
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// passLog is what pairing needs of a log: the passes that compute prompts, of all engines in the
// order of the log.
type passLog struct {
	rules   Rules
	isAsync bool // a request counts as context until its first token has come back
	engines []engineState
	lines   []promptPass
	passes  int64 // so far
	isTorn  bool  // the log begins within the work of an engine

	generationReqs, generationTokens int64 // of all passes
}

// promptPass is a pass with context requests, and the passes without any that follow it on its
// engine.
type promptPass struct {
	engine         int
	place          int   // among the passes of its engine (engineState.leaving)
	index          int64 // as the engine numbers it
	order          int64 // place in the log
	orderBefore    int64 // of its engine's pass before it
	contextReqs    int64 // prompts
	contextTokens  int64
	hits           int64 // tokens of its prompts in the cache, as SGLang counts them; -1: not counted
	generation     int64 // tokens of this pass and of those behind it
	isFull         bool  // the token budget may be spent: its last prompt may continue in the next pass
	isFresh        bool  // it has no generation requests: no decode continued from an earlier pass
	hasGapBefore   bool  // passes are lost just before it
	hasGapBehind   bool  // or behind it
	mayBeLastAgain bool  // of an asynchronous engine: one token for each prompt, which may be those of the pass before
	stampNs        trace.Opt[int64]
	stampStepNs    int64
	elapsedUs      float64
}

// engineState is the last pass of an engine.
type engineState struct {
	hasPass  bool
	index    int64
	order    int64
	prefills int64 // of the last pass, prompts that may decode in the next one
	line     int   // its last promptPass; -1: none

	// leaving are, after each pass, its requests less the generation requests of the next pass:
	// those that left. It is kept where the log has several engines.
	leaving []int64
}

func newPassLog(rules Rules, engines int, isAsync bool) *passLog {
	p := &passLog{rules: rules, isAsync: isAsync, engines: make([]engineState, engines)}
	for i := range p.engines {
		p.engines[i].line = -1
	}
	return p
}

// add adds the next pass of an engine.
func (p *passLog) add(engine int, it *trace.Iteration) {
	e := &p.engines[engine]
	counts := reconstruct.Counts{
		Prefills:      it.ContextReqs,
		PrefillTokens: it.ContextTokens,
		Decodes:       it.GenerationReqs,
		DecodeTokens:  it.GenerationTokens,
	}
	if p.isAsync {
		first := counts.FirstDecodes(e.prefills)
		if first == counts.Prefills && counts.PrefillTokens > first {
			first = 0 // one of them has more than the one token of a decode, and which one is not known
		}
		counts = counts.Relabel(first)
	}
	p.passes++
	p.generationReqs += counts.Decodes
	p.generationTokens += counts.DecodeTokens
	if len(p.engines) > 1 {
		if n := len(e.leaving); n > 0 {
			e.leaving[n-1] -= counts.Decodes
		}
		e.leaving = append(e.leaving, counts.Prefills+counts.Decodes)
	}
	isLost := it.Index > 0
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
		e.line = len(p.lines)
		p.lines = append(p.lines, promptPass{
			engine:         engine,
			place:          len(e.leaving) - 1,
			index:          it.Index,
			order:          p.passes,
			orderBefore:    e.order,
			contextReqs:    counts.Prefills,
			contextTokens:  counts.PrefillTokens,
			hits:           hits,
			generation:     counts.DecodeTokens,
			isFull:         isFull,
			isFresh:        counts.Decodes == 0,
			hasGapBefore:   isLost,
			mayBeLastAgain: p.isAsync && e.prefills > 0 && counts.PrefillTokens == counts.Prefills,
			stampNs:        it.StampNs,
			stampStepNs:    it.StampStepNs.Or(1e9),
			elapsedUs:      it.ElapsedUs,
		})
	case e.line < 0:
		p.isTorn = p.isTorn || counts.DecodeTokens > 0
	default:
		l := &p.lines[e.line]
		l.generation += counts.DecodeTokens
		l.hasGapBehind = l.hasGapBehind || isLost
	}
	e.prefills = counts.Prefills
	if isFull {
		e.prefills-- // the last one goes on
	}
	e.hasPass = true
	e.index = it.Index
	e.order = p.passes
}

// stretch is a run of lines before and behind which no engine had work.
type stretch struct {
	from, to    int   // of passLog.lines
	contextReqs int64 // summed over its lines, a prompt that was cut once for each pass
	generation  int64 // tokens
	full        int64 // lines whose budget is spent
	isBroken    bool  // passes are lost in it, before it or behind it
}

// stretches cuts the lines where every engine was idle.
func (p *passLog) stretches() []stretch {
	var out []stretch
	for i := range p.lines {
		l := &p.lines[i]
		if i == 0 || p.isIdleBefore(i) {
			isBroken := l.hasGapBefore || i == 0 && (p.isTorn || !l.isFresh)
			if n := len(out); n > 0 {
				last := &out[n-1]
				last.isBroken = last.isBroken || l.hasGapBefore
				// The last prompt of the stretch before may go on here.
				isBroken = isBroken || last.isBroken && p.lines[i-1].isFull
			}
			out = append(out, stretch{from: i, isBroken: isBroken})
		}
		s := &out[len(out)-1]
		s.to = i + 1
		s.contextReqs += l.contextReqs
		s.generation += l.generation
		s.isBroken = s.isBroken || l.hasGapBehind || l.hasGapBefore
		if l.isFull {
			s.full++
		}
	}
	return out
}

// isIdleBefore reports whether all engines were idle just before the i-th line: the next line of each engine
// from i on is fresh, and the engine had no pass between the i-th line and that one.
func (p *passLog) isIdleBefore(i int) bool {
	if !p.lines[i].isFresh {
		return false
	}
	if len(p.engines) == 1 {
		return true
	}
	order := p.lines[i].order
	var seen [mostEngines]bool
	unseen := len(p.engines)
	for k := i; k < len(p.lines) && unseen > 0; k++ {
		l := &p.lines[k]
		if seen[l.engine] {
			continue
		}
		if !l.isFresh || l.orderBefore >= order {
			return false
		}
		seen[l.engine] = true
		unseen--
	}
	for e := range p.engines { // without a line from here on
		if !seen[e] && p.engines[e].order >= order {
			return false
		}
	}
	return true
}
