package pairing

// This file drops matches that are not the only possible ones. A match is open if its clocks disagree
// with those of most others, if its period or stretches would also fit a neighbour, or if it may fit by
// chance. Requests of open matches stay unpaired.

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

// clockSlackNs is the most that the stamp of a pass may differ from the arrival of the chunk that
// the pass produced, after the clocks' common offset and beyond the resolution of the stamp.
const clockSlackNs = 300_000_000

// offsetRange returns the range, ns, in which the log's clock less the clients' clock must be if the last
// pass of a chain produced the first chunk of its last prompt. ok is false for a pass without a
// stamp, and for a prompt without a first chunk. A stamp is rounded down, so the offset may be larger by its
// resolution.
func (p *passLog) offsetRange(c *chain) (lo, hi int64, ok bool) {
	pass := &p.promptPasses[c.passes[len(c.passes)-1]]
	last := &c.prompts[len(c.prompts)-1]
	offsetNs := pass.stampNs.V - last.firstNs
	return offsetNs - clockSlackNs, offsetNs + pass.stampStepNs + clockSlackNs, pass.stampNs.OK && last.isFirst
}

// clockOffsets are values that the log's clock less the clients' clock may have, ns.
type clockOffsets struct{ lo, hi int64 }

// agrees reports whether a pass can have produced the first chunk of a prompt, given the offsets of the clocks.
func (p *passLog) agrees(q prompt, pass int, offsets clockOffsets) bool {
	lo, hi, ok := p.offsetRange(&chain{passes: []int{pass}, prompts: []prompt{q}})
	return !ok || offsets.hi >= lo && offsets.lo <= hi
}

// commonOffset returns the least of commonOffsets.
func (m *matcher) commonOffset(found []match) int64 { return m.commonOffsets(found).lo }

// commonOffsets returns the offsets of the clocks that are in the ranges of most chains.
func (m *matcher) commonOffsets(found []match) clockOffsets {
	type edge struct { // begin or end of a chain's range
		ns     int64
		change int // of the number of ranges: +1 or -1
	}
	var edges []edge
	for _, match := range found {
		for k := range match.chains {
			if lo, hi, ok := m.log.offsetRange(&match.chains[k]); ok {
				edges = append(edges, edge{lo, 1}, edge{hi, -1})
			}
		}
	}
	stat.SortStable(edges, func(a, b edge) int { // begins before ends at the same offset
		return cmp.Or(cmp.Compare(a.ns, b.ns), cmp.Compare(b.change, a.change))
	})
	allowed := 0 // ranges that have the offset of the edge
	most := 0
	var best clockOffsets
	for i, e := range edges {
		allowed += e.change
		if allowed > most {
			most = allowed
			best = clockOffsets{lo: e.ns, hi: edges[i+1].ns} // a begin, so another edge follows
		}
	}
	return best
}

// isOffClock reports whether the common offset is outside of the ranges of most chains, each
// widened by slackNs.
func (m *matcher) isOffClock(chains []chain, slackNs int64) bool {
	off := 0
	for i := range chains {
		lo, hi, ok := m.log.offsetRange(&chains[i])
		if ok && (m.offsetNs < lo-slackNs || m.offsetNs > hi+slackNs) {
			off++
		}
	}
	return 2*off > len(chains)
}

// onlyMatches returns the matches that agree with the common offset of the clocks and whose periods
// and stretches have no other match. Alternatives can arise only next to skipped periods or
// stretches.
func (m *matcher) onlyMatches(found []match) []match {
	m.offsetNs = m.commonOffset(found)
	found = slices.DeleteFunc(found, func(x match) bool { return m.isOffClock(x.chains, 0) })
	isOpen := make([]bool, len(found)) // another match of the same period may be the right one
	for i := 0; i <= len(found); i++ {
		// The stretches and periods that were skipped between match i-1 and match i.
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
	if m.mayBeShifted(found) {
		return nil
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

// markAtEnd marks the last match if it takes the last stretch although periods are left: the log
// may have ended before the match's work did.
func (m *matcher) markAtEnd(found []match, isOpen []bool) {
	last := len(found) - 1
	if last >= 0 && found[last].to == len(m.stretches) && found[last].period < len(m.periods)-1 {
		isOpen[last] = true
	}
}

// markCut marks a match that also fits with one more stretch, because the last prompt may have been
// cut and continue there. The match after it is marked as well.
func (m *matcher) markCut(found []match, isOpen []bool) {
	for i := range found {
		x := &found[i]
		if x.to == x.from || x.to == len(m.stretches) {
			continue
		}
		lastLine := m.stretches[x.to-1].to - 1
		if !m.log.promptPasses[lastLine].isFull {
			continue
		}
		if _, end := m.fit(x.period, x.from, x.to); end >= 0 {
			isOpen[i] = true
			isOpen[min(i+1, len(isOpen)-1)] = true
		}
	}
}

// A run is a sequence of matches between which nothing was skipped. If it is tied neither to the start
// nor to the end of both log and requests, its counts must agree by more than chance. It is tied to nothing where
// the log has more than a few prompts of others: the first or the last of its prompts may then be of those too.
const (
	matchBits = 3.0  // information in the prompts and tokens of one period, bits
	leastBits = 20.0 // information that a run must have, bits
	fewOthers = 2    // prompts of others beside which the ends of a run are those of log and requests
	// Prompts of the log in no match, from which on matches of prompts of one length are not certain.
	leastUnpaired = 5
	unpairedShare = 0.2
	neighbour     = 30 // a match adds information only if this many periods on either side do not fit
)

// markUnproven marks the matches of runs that may fit by chance. Each chain adds the information
// that its hits are divisible by the block size, which tells prompts of one length not apart.
func (m *matcher) markUnproven(found []match, isOpen []bool) {
	blockBits := math.Log2(float64(max(2, m.log.rules.Block)))
	if n := len(lengthsOf(found)); n > 0 {
		blockBits = min(blockBits, math.Log2(float64(n)))
	}
	hasOthers := m.othersPrompts(found) > fewOthers
	for i := 0; i < len(found); {
		end := i + 1
		for end < len(found) && found[end].from == found[end-1].to && found[end].period == found[end-1].period+1 {
			end++
		}
		first := &found[i]
		last := &found[end-1]
		isAtStart := first.from == 0 && first.period == 0
		isAtEnd := last.to == len(m.stretches) && last.period == len(m.periods)-1
		isProven := (isAtStart || isAtEnd) && !hasOthers
		bits := 0.0
		for k := i; k < end && !isProven; k++ {
			if m.isDistinct(&found[k]) {
				bits += matchBits + float64(len(found[k].chains))*blockBits
			}
			isProven = bits >= leastBits
		}
		for ; i < end; i++ {
			isOpen[i] = isOpen[i] || !isProven
		}
	}
}

// lengthsOf returns the tokens that the prompts of matches have.
func lengthsOf(found []match) map[int64]bool {
	lengths := map[int64]bool{}
	for _, x := range found {
		for _, c := range x.chains {
			for _, q := range c.prompts {
				lengths[q.tokens] = true
			}
		}
	}
	return lengths
}

// othersPrompts returns how many more prompts the log has between matches than the client, in stretches of which no
// pass is missing: they are of another client or of failed requests.
func (m *matcher) othersPrompts(found []match) int64 {
	n := int64(0)
	for i := 1; i < len(found); i++ {
		skipped := m.stretches[found[i-1].to:found[i].from]
		if slices.ContainsFunc(skipped, func(s stretch) bool { return s.isBroken }) {
			continue // requests whose other passes are missing may have run there
		}
		more := int64(0) // prompts of the log than of the client
		for _, s := range skipped {
			more += s.contextReqs - s.full
		}
		for k := found[i-1].period + 1; k < found[i].period; k++ {
			more -= int64(len(m.periods[k].prompts))
		}
		n += max(0, more)
	}
	return n
}

// mayBeShifted reports whether the prompts of all matches have one length, while too many of the log's prompts are
// in no match: then any match may belong to a failed request or to another client.
func (m *matcher) mayBeShifted(found []match) bool {
	paired := int64(0)
	for _, x := range found {
		for _, c := range x.chains {
			paired += int64(len(c.prompts))
		}
	}
	logged := int64(0)
	for _, s := range m.stretches {
		if !s.isBroken {
			logged += s.contextReqs - s.full
		}
	}
	unpaired := logged - paired
	return len(lengthsOf(found)) == 1 && unpaired > leastUnpaired && float64(unpaired) > unpairedShare*float64(logged)
}

// isDistinct reports whether none of the neighbouring periods fits the stretches of a match.
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

// fitEnd returns the end of the stretches that fit a period, as in fit, or -1. Stretches whose stamps
// are far from the common offset of the clocks do not count.
func (m *matcher) fitEnd(period, from, beyond int) int {
	chains, end := m.fit(period, from, beyond)
	if end >= 0 && m.isOffClock(chains, 1e9) {
		return -1
	}
	return end
}

// markShifted marks match i if its period also fits stretches that lie towards skipped ones, up to limit,
// where the skipped stretches end. Then the next match in the direction (1: later matches, whose stretches
// may be earlier; -1: earlier ones) may shift too, to the stretches that match i would free, and so on.
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

// latestStart returns the last stretch from which the period of a match fits such that it ends
// after its present end and by limit; -1 for none.
func (m *matcher) latestStart(x *match, limit int) int {
	latest := -1
	for k := x.from + 1; k < limit; k++ {
		if end := m.fitEnd(x.period, k, x.to); end >= 0 && end <= limit {
			latest = k
		}
	}
	return latest
}

// earliestEnd returns where the period of a match ends if it takes the first fitting stretches from
// limit on that begin before its present ones; -1 for none.
func (m *matcher) earliestEnd(x *match, limit int) int {
	for k := limit; k < x.from; k++ {
		if end := m.fitEnd(x.period, k, 0); end >= 0 && end <= x.to {
			return end
		}
	}
	return -1
}

// markExchanged marks match i if a period up to skipped places further on in the other direction, towards
// the skipped periods, also fits its stretches. Then the same may be true of the next match in the
// direction (1: later, -1: earlier), and so on.
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
