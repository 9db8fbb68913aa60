package cluster

import (
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// record is what became of one request.
type record struct {
	sim.RequestResult // of its engine; ArrivalUs is when it first came
	Class             string
	Priority          int // of its class
	Group             uint64
	SLOTTFTUs         int64            // its target, 0: none
	Instance          int              // -1: it was not let in
	Prefill           trace.Opt[int64] // instance that computed its prompt, where another goes on
	Tries             int
	DecidedUs         int64    // last decision
	Decision          Decision // the last
	Expected          int64    // cached tokens the index expected where it went
	Potential         int64    // the most it expected anywhere when it first came
	// Shadowed: it was not let in, and a copy of its engine served it beside what came
	// later. Shadow is how long its first token took there from the decision, unknown
	// where it took longer than FollowedUs.
	Shadowed bool
	Shadow   trace.Opt[int64]
}

// Admitted reports whether the gateway let it in.
func (r *record) Admitted() bool { return r.Instance >= 0 }

// TookUs is the time from the last decision to the first token.
func (r *record) TookUs() (us int64, ok bool) {
	return r.FirstTokenUs.V - r.DecidedUs, r.FirstTokenUs.OK
}

// Result is one run.
type Result struct {
	Records []record // in workload order
	Engines []*sim.Result
	Retries int // arrivals beyond the first
	// Transfers of KV blocks; nil without prefill and decode instances.
	Transfers *Transfers
}

// Totals adds up what the engines counted.
func (r *Result) Totals() *sim.Result { return sim.Totals(r.Engines) }
