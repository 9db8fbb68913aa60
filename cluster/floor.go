package cluster

import (
	"math"
)

// Floor lets in a share of every prefix group, and the first requests of a new one
// on easier terms, out of one budget of tokens.
type Floor struct {
	Share       float64 // of a group's arrivals
	BudgetShare float64 // of the prompt tokens served lately

	groups  map[uint64]*owed
	tokens  float64
	atUs    int64
	missed  int   // of those it let in, since one met its target
	untilUs int64 // how long it rests where all it let in lately missed
}

// owed is what a group may claim.
type owed struct {
	credit  float64
	firstUs int64
	count   int
}

// noteArrival notes an arrival of the group and reports whether it is one of its first.
func (f *Floor) noteArrival(r *Request, nowUs int64) (cold bool) {
	if f == nil || r.Try > 0 {
		return false
	}
	if f.groups == nil {
		f.groups = map[uint64]*owed{}
	}
	g := f.groups[r.Prefix]
	if g == nil {
		g = &owed{firstUs: nowUs}
		f.groups[r.Prefix] = g
	}
	g.count++
	g.credit = math.Min(maxCredit, g.credit+f.Share)
	return r.Prefix != 0 && g.count <= coldRequests && nowUs-g.firstUs <= coldUs
}

func (f *Floor) hasCredit(r *Request) bool {
	return f != nil && f.groups[r.Prefix] != nil && f.groups[r.Prefix].credit >= 1
}

func (f *Floor) isPaused(nowUs int64) bool {
	return f != nil && f.missed >= inVain && nowUs < f.untilUs
}

// noteFirstToken records when a request that the floor let in got its first token. After inVain late ones
// in a row the floor pauses for restUs.
func (f *Floor) noteFirstToken(r *Request, atUs, tookUs int64) {
	f.missed++
	f.untilUs = atUs + restUs
	if r.WaitedUs+tookUs <= r.SLOTTFTUs {
		f.missed = 0
	}
}

func (f *Floor) chargeGroup(r *Request) { f.groups[r.Prefix].credit-- }

// spendBudget takes tokens from the budget, if they are there.
func (f *Floor) spendBudget(v *View, tokens float64) bool {
	if f == nil {
		return false
	}
	perUs := f.BudgetShare * v.Ledger.ServedPerS(v.NowUs) / 1e6
	f.tokens = math.Min(f.tokens+perUs*float64(v.NowUs-f.atUs), math.Max(perUs*keptUs, tokens))
	f.atUs = v.NowUs
	if f.tokens < tokens {
		return false
	}
	f.tokens -= tokens
	if f.missed >= inVain { // after a pause one request at a time tests whether targets are met again
		f.untilUs = v.NowUs + restUs
	}
	return true
}
