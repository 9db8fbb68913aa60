package rows

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// dropUncertain adds up the planned chunks and takes back those that rest on uncertain
// steps: the chunk sizes of a prompt that runs in several steps are certain
// only if every one of them is. Taking one back makes its steps unknown, which
// may make another uncertain, hence the rounds; each ends with fewer plans.
func (p *plan) dropUncertain() {
	uncertain := make([]int32, len(p.summary)) // smallest index of a life with unknown prefill
	for u := range uncertain {
		uncertain[u] = math.MaxInt32
	}
	for i := range p.lives {
		p.tally(i, uncertain)
	}
	for changed := true; changed; {
		changed = false
		for i := range p.lives {
			if l := &p.lives[i]; l.upTo != nil && l.t > l.s && p.isUncertain(i, uncertain) {
				p.takeBack(i, uncertain)
				changed = true
			}
		}
	}
}

// tally adds the planned chunks of life i, or marks its steps as uncertain.
func (p *plan) tally(i int, uncertain []int32) {
	l := &p.lives[i]
	switch {
	case l.broken != "":
	case l.noPrefill != "":
		p.block(l.s, l.t, l.noPrefill)
		p.mark(i, uncertain)
	default:
		p.book(l, 1)
	}
}

// book adds (sign 1) or removes (-1) the planned chunks of a life.
func (p *plan) book(l *life, sign int64) {
	lo, hi := p.span(l.s, l.t)
	for u := lo; u < hi; u++ {
		p.prompts[u] += sign * (l.ran(u+p.first) - l.ran(u+p.first-1))
		p.running[u] += int32(sign)
	}
}

func (p *plan) mark(i int, uncertain []int32) {
	lo, hi := p.span(p.lives[i].s, p.lives[i].t)
	for u := lo; u < hi; u++ {
		uncertain[u] = min(uncertain[u], int32(i))
	}
}

// takeBack makes the prefill of life i unknown.
func (p *plan) takeBack(i int, uncertain []int32) {
	l := &p.lives[i]
	p.book(l, -1)
	l.noPrefill, l.upTo = prefillUnknown, nil
	p.block(l.s, l.t, prefillUnknown)
	p.mark(i, uncertain)
}

// isUncertain reports whether the chunks of life i rest on a step whose budget
// others may have used in an unknown way: a broken life ran there, an earlier
// scheduled prompt of unknown chunks did, or the summary contradicts. The last
// step takes what is left of the prompt whatever the others did.
func (p *plan) isUncertain(i int, uncertain []int32) bool {
	l := &p.lives[i]
	lo, hi := p.span(l.s, l.t)
	if hi-lo != l.t-l.s+1 {
		return true
	}
	for u := lo; u < hi; u++ {
		switch {
		case u < hi-1 && (p.blocked[u] == preemptedRequest || p.blocked[u] == inconsistentRequest || uncertain[u] < int32(i)):
			return true
		case p.summary[u] < 0 && p.confirm[u], p.blocked[u] == "" && p.summary[u] >= 0 && !p.agrees(int(u)):
			return true
		}
	}
	return false
}

// agrees compares the rebuilt batch of a step with its summary. Where the tails
// do not fit and their absence does, they did not run.
func (p *plan) agrees(u int) bool {
	s := &p.recorded[p.summary[u]]
	decodes := int64(p.decodes[u])
	if p.fits(u, s, decodes+int64(p.tails[u])) {
		p.noTail[u] = false
		return true
	}
	p.noTail[u] = p.tails[u] > 0 && p.fits(u, s, decodes)
	return p.noTail[u]
}

// fits compares totals. Up to firsts decodes may be labelled PREFILL with one
// token, since the first token was not processed yet.
func (p *plan) fits(u int, s *trace.Step, decodes int64) bool {
	mislabelled := s.NumPrefillReqs - int64(p.running[u])
	return s.ScheduledTokens == decodes+p.prompts[u] && s.NumPrefillReqs+s.NumDecodeReqs == decodes+int64(p.running[u]) &&
		mislabelled >= 0 && mislabelled <= int64(p.firsts[u]) && s.PrefillTokens-p.prompts[u] == mislabelled
}

// verdicts says for every step why the journeys do not tell its batch; empty
// where they do.
func (p *plan) verdicts() []Reason {
	why := make([]Reason, len(p.summary))
	copy(why, p.blocked)
	for u := range why {
		switch {
		case why[u] != "":
		case p.summary[u] < 0 && p.confirm[u], p.summary[u] >= 0 && !p.agrees(u) && p.confirm[u]:
			why[u] = unconfirmed
		case p.summary[u] >= 0 && !p.agrees(u):
			why[u] = contradicted
		}
	}
	p.guardGaps(why)
	return why
}

// guardGaps makes unrecorded steps next to a contradicted summary unknown: a
// request that is missing there is probably missing beside it.
func (p *plan) guardGaps(why []Reason) {
	var bad bool
	mark := func(u int) {
		if p.summary[u] >= 0 {
			bad = why[u] == contradicted
		} else if bad && why[u] == "" {
			why[u] = unconfirmed
		}
	}
	for u := range why {
		mark(u)
	}
	bad = false
	for u := len(why) - 1; u >= 0; u-- {
		mark(u)
	}
}
