package pairing

// This file finds for each busy period of the clients the stretches of the log in which its requests
// ran: in order, and where periods or stretches have to be skipped, by dynamic programming (search).

import "math"

// matcher finds for each busy period of the clients the stretches of the log in which its requests
// ran.
type matcher struct {
	log       *passLog
	periods   []period
	stretches []stretch
	offsetNs  int64 // the log's clock less the clients' clock, the value that most chains agree on (unique.go)
}

// match is a period together with the stretches [from, to) of the log that fit it.
type match struct {
	period   int
	from, to int // indices of stretches
	chains   []chain
}

// Limits of search, whose memory is their product, and its score.
const (
	mostPeriods   = 2000    // that one search looks at
	mostStretches = 2000    // the same
	pairedScore   = 1 << 20 // one more paired request outweighs this many skipped periods and stretches
)

// findMatches returns the matches of periods and stretches, which it goes through in order. A
// period gets the next stretches if together they have as many prompts and generation tokens as the
// period. Otherwise search decides which periods and stretches to skip.
func (m *matcher) findMatches() []match {
	var out []match
	period := 0
	at := 0 // the next stretch
	for period < len(m.periods) {
		if chains, end := m.fit(period, at, at); end >= 0 {
			out = append(out, match{period: period, from: at, to: end, chains: chains})
			period++
			at = end
			continue
		}
		first := period
		path := m.search(first, at)
		if len(path) == 0 {
			return out
		}
		for _, step := range path {
			chains, end := m.fit(step.period, step.stretch, step.stretch)
			out = append(out, match{period: step.period, from: step.stretch, to: end, chains: chains})
			period = step.period + 1
			at = end
		}
		// The search has seen all periods, so those behind the last one that it paired fit nothing.
		if period-first < mostPeriods/2 && first+mostPeriods >= len(m.periods) {
			return out
		}
	}
	return out
}

// pathStep is a period and the first stretch that it takes.
type pathStep struct{ period, stretch int }

// search returns which of the periods from firstPeriod on are paired and with which stretches from
// firstStretch on; the others are skipped. By dynamic programming from their ends it pairs as many
// requests as possible and then skips as little as possible, not counting stretches that are broken and
// periods whose passes may be lost.
func (m *matcher) search(firstPeriod, firstStretch int) []pathStep {
	periods := m.periods[firstPeriod:min(len(m.periods), firstPeriod+mostPeriods)]
	lastStretch := min(len(m.stretches), firstStretch+mostStretches)
	const (
		skipPeriod  = -1
		skipStretch = -2
	)
	width := lastStretch - firstStretch + 1
	scores := make([]int64, (len(periods)+1)*width)
	choices := make([]int32, (len(periods)+1)*width)               // skipPeriod, skipStretch, or where the match ends
	at := func(j, k int) int { return j*width + k - firstStretch } // the next period is j, the next stretch k
	for j := len(periods); j >= 0; j-- {
		for k := lastStretch; k >= firstStretch; k-- {
			best := int64(math.MinInt64)
			choice := int32(skipPeriod)
			if j == len(periods) && k == lastStretch {
				best = 0
			}
			if j < len(periods) {
				best = scores[at(j+1, k)]
				mayBeLost := k == 0 || k == lastStretch || m.stretches[k].isBroken || m.stretches[k-1].isBroken
				if !mayBeLost {
					best-- // the log should have the period's passes
				}
			}
			if k < lastStretch {
				score := scores[at(j, k+1)]
				if !m.stretches[k].isBroken {
					score--
				}
				if score > best {
					best = score
					choice = skipStretch
				}
			}
			if j < len(periods) && k < lastStretch {
				if _, end := m.fitWithin(firstPeriod+j, k, k, lastStretch); end >= 0 {
					score := scores[at(j+1, end)] + pairedScore*int64(len(periods[j].prompts))
					if score >= best {
						best = score
						choice = int32(end)
					}
				}
			}
			scores[at(j, k)] = best
			choices[at(j, k)] = choice
		}
	}
	var path []pathStep
	for j, k := 0, firstStretch; j < len(periods) || k < lastStretch; {
		switch choice := choices[at(j, k)]; choice {
		case skipPeriod:
			j++
		case skipStretch:
			k++
		default:
			path = append(path, pathStep{firstPeriod + j, k})
			j++
			k = int(choice)
		}
	}
	return path
}

// fit finds the fewest stretches that begin with from, include the stretch beyond, and have as many
// prompts and tokens as a period, and pairs them: beyond is from, or a later one that must be among them.
// It returns the chains and the stretch after the last one, or -1 if no number of stretches fits.
func (m *matcher) fit(period, from, beyond int) ([]chain, int) {
	return m.fitWithin(period, from, beyond, len(m.stretches))
}

// fitWithin returns what fit does, with stretches before last only.
func (m *matcher) fitWithin(period, from, beyond, last int) ([]chain, int) {
	p := m.log
	q := &m.periods[period]
	n := int64(len(q.prompts))
	if q.isUnusable {
		return nil, -1
	}
	if n == 0 {
		return nil, from
	}
	spare := int64(0) // tokens that passes may have generated without the clients receiving them
	if p.isAsync || p.rules.Ahead {
		spare = n // one more token of each request is scheduled before the engine sees that it stopped
	}
	// Sums over the stretches from from to e.
	prompts := int64(0)    // a prompt that was cut counts in each of its passes
	generation := int64(0) // tokens
	full := int64(0)       // passes that may have cut a prompt
	for e := from; e < last; e++ {
		s := &m.stretches[e]
		if s.isBroken {
			break
		}
		prompts += s.contextReqs
		generation += s.generation
		full += s.full
		hasTooMany := prompts-full > n || !p.rules.Speculative && generation > q.generation+spare
		mayMissOne := q.hasFailed && full > 0 // a failed request may have run in a full pass with others
		if hasTooMany || mayMissOne {
			break
		}
		hasAll := prompts >= n && (p.rules.Speculative || generation >= q.generation)
		if e < beyond || !hasAll {
			continue
		}
		for _, order := range q.orders {
			if chains, ok := p.chainsOf(order, m.stretches[from].from, s.to); ok {
				return chains, e + 1
			}
		}
	}
	return nil, -1
}
