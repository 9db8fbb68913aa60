package pairing

import "math"

// matcher finds the stretches of the log that belong to the clients' periods.
type matcher struct {
	passes    *passLog
	periods   []period
	stretches []stretch
	offsetNs  int64 // the log's clock less the clients', as most chains allow it (unique.go)
}

// match is a period whose stretches are found.
type match struct {
	period   int
	from, to int // of the stretches
	chains   []chain
}

// Bounds of the search for the stretches of a period that does not follow the one before.
const (
	mostPeriods   = 2000
	mostStretches = 2000
	pairedScore   = 1 << 20 // of a request that is paired, in things that are skipped
)

// findMatches goes through periods and stretches in order. A period takes the next stretches that
// hold as many prompts and generation tokens as it has. Where they do not, the periods and
// stretches are skipped that leave most requests paired, broken ones first.
func (m *matcher) findMatches() []match {
	var out []match
	period := 0
	at := 0 // stretch
	for period < len(m.periods) {
		if chains, end := m.fit(period, at, at); end >= 0 {
			out = append(out, match{period, at, end, chains})
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
			out = append(out, match{step.period, step.stretch, end, chains})
			period = step.period + 1
			at = end
		}
		if period-first < mostPeriods/2 && first+mostPeriods >= len(m.periods) {
			return out
		}
	}
	return out
}

// pathStep is a period and its first stretch.
type pathStep struct{ period, stretch int }

// search finds the best way through the next periods and stretches, by dynamic programming from
// their ends: a way that pairs more requests is better, then one that skips fewer things.
func (m *matcher) search(firstPeriod, firstStretch int) []pathStep {
	periods := m.periods[firstPeriod:min(len(m.periods), firstPeriod+mostPeriods)]
	lastStretch := min(len(m.stretches), firstStretch+mostStretches)
	const (
		skipPeriod  = -1
		skipStretch = -2
	)
	width := lastStretch - firstStretch + 1
	scores := make([]int64, (len(periods)+1)*width)
	choices := make([]int32, (len(periods)+1)*width) // one of the above, or the end of a match
	at := func(j, k int) int { return j*width + k - firstStretch }
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
					best-- // the period's passes should be in the log
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

// fit takes stretches from one on for a period, those up to beyond among them: as many as hold its
// prompts and its tokens, and pairs them. The end is -1 where none do.
func (m *matcher) fit(period, from, beyond int) ([]chain, int) {
	return m.fitWithin(period, from, beyond, len(m.stretches))
}

// fitWithin is fit with stretches before last.
func (m *matcher) fitWithin(period, from, beyond, last int) ([]chain, int) {
	p := m.passes
	q := &m.periods[period]
	n := int64(len(q.prompts))
	if q.isUnusable {
		return nil, -1
	}
	if n == 0 {
		return nil, from
	}
	spare := int64(0) // generation tokens that the clients need not have got
	if p.isAsync || p.rules.Ahead {
		spare = n // one more is planned before the engine sees that an answer stopped
	}
	prompts := int64(0)
	generation := int64(0)
	full := int64(0)
	for e := from; e < last; e++ {
		s := &m.stretches[e]
		if s.isBroken {
			break
		}
		prompts += s.contextReqs
		generation += s.generation
		full += s.full
		hasTooMany := prompts-full > n || !p.rules.Speculative && generation > q.generation+spare
		mayMissOne := q.hasFailed && full > 0 // a failed request may have shared a full pass
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
