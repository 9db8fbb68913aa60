package sim

import "github.com/blis-train/blis-train/trace"

// Request is one request of a workload. Times are us of simulated time.
type Request struct {
	ID           string
	ArrivalUs    int64 // at the API (api.ARRIVED)
	PromptTokens int64
	OutputTokens int64 // tokens it will produce; the engine learns it only as "stop now"
	MaxTokens    int64 // cap the engine knows; 0 = OutputTokens. Below it the request stops by itself (EOS)
	Priority     int64 // smaller is served first under the priority policy
	SLOClass     string
	SLOTTFTUs    int64 // goodput target, 0 = none
	SLOE2EUs     int64 // goodput target, 0 = none

	// Content, for prefix caching. Requests of one Group (not 0) share their
	// first GroupTokens prompt tokens. Hashes are content ids of consecutive
	// spans of HashTokens prompt tokens; equal leading ids mean equal tokens.
	// Without either the prompt is unlike any other.
	Group       uint64
	GroupTokens int64
	Hashes      []uint64
	HashTokens  int64

	// CachedTokens overrides the prefix-cache lookup of the first admission: what
	// a recording says was found there. The blocks count as the request's own.
	CachedTokens trace.Opt[int64]

	// AbortAtUs is when the abort reaches the engine (client gone, stop string);
	// AbortKind says which outcome it leaves: OutcomeAborted, OutcomeTimedOut or
	// OutcomeFinished (a stop string: the API calls it a success).
	AbortAtUs trace.Opt[int64]
	AbortKind Outcome

	// After makes a closed loop: with After = i+1 the request arrives ThinkUs
	// after request i of the workload has left the system, whatever its outcome;
	// ArrivalUs is ignored then. 0 = open.
	After   int
	ThinkUs int64

	// EnqueueUs overrides arrival + overhead: when the request reaches the
	// engine's input queue. Used by replays that know it.
	EnqueueUs trace.Opt[int64]

	// PickUpStep is the last step before its recorded pick-up (scheduler.step of
	// QUEUED): the request stays in the input queue until then, or until the
	// engine is idle, which then goes on with that step. For recordings whose
	// step times are incomplete.
	PickUpStep trace.Opt[int64]
}

// Outcome is how a request left.
type Outcome string

// Outcomes. A request still inside when Config.StopUs is reached is unfinished.
const (
	OutcomeFinished   Outcome = "finished"
	OutcomeRejected   Outcome = "rejected"
	OutcomeAborted    Outcome = "aborted"
	OutcomeTimedOut   Outcome = "timed_out"
	OutcomeUnfinished Outcome = "unfinished"
)

// RequestResult is what one request experienced, in workload order. Stamps are
// us of simulated time; what never happened is unknown. TTFT = FirstToken -
// Arrival, E2E = Departed - Arrival, ITL = (Finished - FirstToken)/(Output-1).
type RequestResult struct {
	ID            string
	ArrivalUs     int64
	EnqueuedUs    trace.Opt[int64] // reached the engine's input queue
	QueuedUs      trace.Opt[int64] // picked up at a scheduling boundary
	ScheduledUs   trace.Opt[int64] // first schedule
	FirstTokenUs  trace.Opt[int64]
	FinishedUs    trace.Opt[int64]
	DepartedUs    trace.Opt[int64] // FinishedUs + egress
	PromptTokens  int64
	OutputTokens  int64 // produced
	CachedTokens  int64 // prompt tokens served from the prefix cache at first admission
	Preemptions   int64
	Outcome       Outcome
	Reason        trace.Code // why it was rejected
	FinishStatus  string     // trace.FinishStopped, FinishLength or FinishAborted
	SLOClass      string
	SLOMet        trace.Opt[bool]
	ITLP50Us      trace.Opt[float64] // of its token gaps, with Config.TokenGaps
	ITLP99Us      trace.Opt[float64]
	TokenUs       float64   // Config.TokenUs, part of TTFT, ITL and E2E
	PrefillSums   []float64 // with Config.Gradient: features summed over the steps from arrival to first token
	DecodeSums    []float64 // the same from first token to last
	QueuedStep    int64     // last step before pick-up; scheduler.step of QUEUED
	ScheduledStep int64
	FirstStep     int64 // step that produced the first token
	FinishedStep  int64
}

// TTFTUs is the time to first token.
func (r *RequestResult) TTFTUs() (float64, bool) {
	return float64(r.FirstTokenUs.V-r.ArrivalUs) + r.TokenUs, r.FirstTokenUs.OK
}

// E2EUs is arrival to departure of a finished request.
func (r *RequestResult) E2EUs() (float64, bool) {
	return float64(r.DepartedUs.V-r.ArrivalUs) + r.TokenUs*float64(r.OutputTokens), r.DepartedUs.OK && r.Outcome == OutcomeFinished
}

// ITLUs is the mean gap between tokens, for two output tokens or more.
func (r *RequestResult) ITLUs() (float64, bool) {
	if !r.FirstTokenUs.OK || !r.FinishedUs.OK || r.OutputTokens < 2 {
		return 0, false
	}
	return float64(r.FinishedUs.V-r.FirstTokenUs.V)/float64(r.OutputTokens-1) + r.TokenUs, true
}
