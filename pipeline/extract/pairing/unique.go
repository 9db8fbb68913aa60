package pairing

import (
	"cmp"
	"math"
	"slices"
)

// This file drops the matches that are not the only possible ones.

// clockSlackNs is how far the stamp of a line may be from the chunk that its pass brought, apart
// from the resolution of the stamp.
const clockSlackNs = 300_000_000

// offsetRange is the range of the log's clock less the clients' that a chain allows; ok is false
// for a line without a stamp.
func (p *passLog) offsetRange(c *chain) (lo, hi int64, ok bool) {
	l := &p.lines[c.lines[len(c.lines)-1]]
	first := c.prompts[len(c.prompts)-1].firstNs
	d := l.stampNs.V - first
	return d - clockSlackNs, d + l.stampStepNs + clockSlackNs, l.stampNs.OK
}

// commonOffset is the difference of the clocks that most chains allow.
func (m *matcher) commonOffset(found []match) int64 {
	type edge struct {
		ns   int64
		step int
	}
	var edges []edge
	for _, match := range found {
		for k := range match.chains {
			if lo, hi, ok := m.passes.offsetRange(&match.chains[k]); ok {
				edges = append(edges, edge{lo, 1}, edge{hi, -1})
			}
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.ns, b.ns), cmp.Compare(b.step, a.step)) })
	allowed := 0
	most := 0
	best := int64(0)
	for _, e := range edges {
		allowed += e.step
		if allowed > most {
			most = allowed
			best = e.ns
		}
	}
	return best
}

// isOffClock reports whether most lines of chains were stamped at another time than when their
// chunks came, give or take slackNs.
func (m *matcher) isOffClock(chains []chain, slackNs int64) bool {
	off := 0
	for i := range chains {
		lo, hi, ok := m.passes.offsetRange(&chains[i])
		if ok && (m.offsetNs < lo-slackNs || m.offsetNs > hi+slackNs) {
			off++
		}
	}
	return 2*off > len(chains)
}

// onlyMatches keeps the matches that are the only ones: the stamps agree with them, and next to
// periods or stretches that were skipped no other match is as good.
func (m *matcher) onlyMatches(found []match) []match {
	m.offsetNs = m.commonOffset(found)
	found = slices.DeleteFunc(found, func(x match) bool { return m.isOffClock(x.chains, 0) })
	isOpen := make([]bool, len(found)) // another match may be the right one
	for i := 0; i <= len(found); i++ {
		// What is between match i-1 and match i.
		from := 0
		to := len(m.stretches)
		periodBefore := -1
		periodAfter := len(m.periods)
		if i > 0 {
			from = found[i-1].to
			periodBefore = found[i-1].period
		}
		if i < len(found) {
			to = found[i].from
			periodAfter = found[i].period
		}
		if from < to {
			m.markShifted(found, isOpen, i-1, -1, to)
			m.markShifted(found, isOpen, i, 1, from)
		}
		if skipped := periodAfter - periodBefore - 1; skipped > 0 {
			m.markExchanged(found, isOpen, i-1, -1, skipped)
			m.markExchanged(found, isOpen, i, 1, skipped)
		}
	}
	m.markAtEnd(found, isOpen)
	m.markCut(found, isOpen)
	m.markUnproven(found, isOpen)
	var out []match
	for i, x := range found {
		if !isOpen[i] {
			out = append(out, x)
		}
	}
	return out
}

// markAtEnd marks the last match where it takes the last stretch and periods are left: the log may
// have ended within its work.
func (m *matcher) markAtEnd(found []match, isOpen []bool) {
	last := len(found) - 1
	if last >= 0 && found[last].to == len(m.stretches) && found[last].period < len(m.periods)-1 {
		isOpen[last] = true
	}
}

// markCut marks a match whose last prompt may go on in the next stretch, and the match behind it.
func (m *matcher) markCut(found []match, isOpen []bool) {
	for i := range found {
		x := &found[i]
		if x.to == x.from || x.to == len(m.stretches) {
			continue
		}
		lastLine := m.stretches[x.to-1].to - 1
		if !m.passes.lines[lastLine].isFull {
			continue
		}
		if _, end := m.fit(x.period, x.from, x.to); end >= 0 {
			isOpen[i] = true
			isOpen[min(i+1, len(isOpen)-1)] = true
		}
	}
}

// Runs of matches between things that were skipped must fit by more than chance, unless they begin
// with the log and the first request or end with both.
const (
	matchBits = 3.0  // of information in the counts of a period, apart from its checksums
	leastBits = 20.0 // of a run
	neighbour = 30   // periods on either side that must not fit as well
)

// markUnproven marks the runs that may fit by chance.
func (m *matcher) markUnproven(found []match, isOpen []bool) {
	for i := 0; i < len(found); {
		end := i + 1
		for end < len(found) && found[end].from == found[end-1].to && found[end].period == found[end-1].period+1 {
			end++
		}
		first := &found[i]
		last := &found[end-1]
		isAtStart := first.from == 0 && first.period == 0
		isAtEnd := last.to == len(m.stretches) && last.period == len(m.periods)-1
		isProven := isAtStart || isAtEnd
		bits := 0.0
		for k := i; k < end && !isProven; k++ {
			if m.isDistinct(&found[k]) {
				blockBits := math.Log2(float64(max(2, m.passes.rules.Block)))
				bits += matchBits + float64(len(found[k].chains))*blockBits
			}
			isProven = bits >= leastBits
		}
		for ; i < end; i++ {
			isOpen[i] = isOpen[i] || !isProven
		}
	}
}

// isDistinct reports whether none of the periods around fits the stretches of a match.
func (m *matcher) isDistinct(x *match) bool {
	for j := max(0, x.period-neighbour); j < min(len(m.periods), x.period+neighbour); j++ {
		if j == x.period || len(m.periods[j].prompts) == 0 {
			continue
		}
		if _, end := m.fit(j, x.from, x.from); end >= 0 {
			return false
		}
	}
	return true
}

// fitEnd is where the stretches end that a period may take from one on, those up to beyond among
// them; -1 where they do not fit, also by the clock.
func (m *matcher) fitEnd(period, from, beyond int) int {
	chains, end := m.fit(period, from, beyond)
	if end >= 0 && m.isOffClock(chains, 1e9) {
		return -1
	}
	return end
}

// markShifted marks match i and those behind it in a direction, as long as each may also lie in
// stretches towards limit: those that were skipped, and those that the match before left free.
func (m *matcher) markShifted(found []match, isOpen []bool, i, direction, limit int) {
	for ; i >= 0 && i < len(found); i += direction {
		x := &found[i]
		var shifted int
		if direction < 0 {
			shifted = m.latestStart(x, limit)
		} else {
			shifted = m.earliestEnd(x, limit)
		}
		if shifted < 0 {
			return
		}
		isOpen[i] = true
		limit = shifted
	}
}

// latestStart is the last stretch before limit from which the period of a match fits up to limit,
// beyond where it ends now; -1 for none.
func (m *matcher) latestStart(x *match, limit int) int {
	latest := -1
	for k := x.from + 1; k < limit; k++ {
		if end := m.fitEnd(x.period, k, x.to); end >= 0 && end <= limit {
			latest = k
		}
	}
	return latest
}

// earliestEnd is where the period of a match ends at its first fit from limit on, before it begins
// now; -1 for none.
func (m *matcher) earliestEnd(x *match, limit int) int {
	for k := limit; k < x.from; k++ {
		if end := m.fitEnd(x.period, k, 0); end >= 0 && end <= x.to {
			return end
		}
	}
	return -1
}

// markExchanged marks match i and those behind it in a direction, as long as their stretches fit
// one of the periods that were skipped on the other side.
func (m *matcher) markExchanged(found []match, isOpen []bool, i, direction, skipped int) {
	for ; i >= 0 && i < len(found); i += direction {
		fits := false
		for k := 1; k <= skipped && !fits; k++ {
			j := found[i].period - direction*k
			fits = j >= 0 && j < len(m.periods) && len(m.periods[j].prompts) > 0 && m.fitEnd(j, found[i].from, 0) >= 0
		}
		if !fits {
			return
		}
		isOpen[i] = true
	}
}
