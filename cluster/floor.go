package cluster

// This file admits a small share of every prefix group whatever the gate decides, so that the gate can
// learn about groups that it rejects.

import (
	"math"
)

// Parameters of the floor. The first coldRequests of a group within coldUs are treated as class standard.
// The credit of a group grows up to maxCredit requests, and the unused budget up to that of keptUs. If
// engines serve by priority, inVain misses in a row pause the floor for restUs.
const (
	coldRequests = 5
	coldUs       = 60_000_000
	maxCredit    = 5
	keptUs       = 1_000_000
	inVain       = 3
	restUs       = 20_000_000
)

// Floor admits a share of every prefix group, and the first requests of a new group, out of one budget of
// tokens, even if the gate would reject them. Without it a gate that prefers cached prefixes may never learn
// that a new group has one.
type Floor struct {
	Share       float64 // share of a group's arrivals that is admitted
	BudgetShare float64 // budget, as a share of the prompt tokens that the instances served recently

	groups  map[uint64]*owed // by Request.Prefix; 0 is one group of all prompts without a known group
	tokens  float64          // tokens left of the budget at atUs
	atUs    int64            // time of the last refill
	missed  int              // requests admitted by the floor that missed their target since the last one that met it
	untilUs int64            // end of the pause, once missed has reached inVain
}

// owed is the claim of a prefix group on the floor. The claim grows with the group's arrivals and
// shrinks with each admission that the floor grants.
type owed struct {
	credit  float64 // admissions that the group may still have
	firstUs int64   // arrival of its first request
	count   int     // arrivals
}

// noteArrival counts the first arrival of a request for its prefix group, which adds Share to the
// group's credit. It reports whether the request is among the first coldRequests of a group that
// appeared less than coldUs ago. Retries are not counted.
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

// hasCredit reports whether the request's group has credit for one more admission by the floor.
func (f *Floor) hasCredit(r *Request) bool {
	return f != nil && f.groups[r.Prefix] != nil && f.groups[r.Prefix].credit >= 1
}

// isPaused reports whether the floor pauses at nowUs because the last requests that it admitted
// all missed their targets.
func (f *Floor) isPaused(nowUs int64) bool {
	return f != nil && f.missed >= inVain && nowUs < f.untilUs
}

// noteFirstToken records the first token, at atUs, of a request that the floor admitted tookUs
// ago. After inVain misses of the TTFT target in a row the floor pauses for restUs.
func (f *Floor) noteFirstToken(r *Request, atUs, tookUs int64) {
	f.missed++
	f.untilUs = atUs + restUs
	if r.WaitedUs+tookUs <= r.SLOTTFTUs {
		f.missed = 0
	}
}

// chargeGroup subtracts one admission from the credit of the request's group.
func (f *Floor) chargeGroup(r *Request) { f.groups[r.Prefix].credit-- }

// spendBudget takes a request's tokens (uncached prompt tokens) from the floor's budget and reports
// whether the budget had enough. The budget refills with BudgetShare of the recently served prompt
// tokens.
func (f *Floor) spendBudget(v *View, tokens float64) bool {
	if f == nil {
		return false
	}
	perUs := f.BudgetShare * v.Ledger.ServedPerS(v.NowUs) / 1e6
	// At most keptUs of refill is kept, but always enough for this request: otherwise a prompt longer
	// than that could never be admitted.
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
