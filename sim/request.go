package sim

// This file has the requests that a simulation takes, and checks them.

import (
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// Request is one request of a workload. Times are us of simulated time unless a field names a step.
type Request struct {
	ID           string
	ArrivalUs    int64 // at the API (api.ARRIVED)
	PromptTokens int64
	OutputTokens int64  // tokens it will produce; the engine learns it only as "stop now"
	MaxTokens    int64  // max_tokens of the request; 0 = OutputTokens. A request with fewer OutputTokens ends by EOS
	Priority     int64  // smaller is served first under the priority policy
	SLOClass     string // service class, which the engine only copies to the result
	SLOTTFTUs    int64  // goodput target, 0 = none
	SLOE2EUs     int64  // goodput target, 0 = none
	SLOITLUs     int64  // goodput target of the mean gap between output tokens, 0 = none

	// Content, for prefix caching. Requests of one Group (not 0) share their first GroupTokens
	// prompt tokens. Hashes are content ids of consecutive spans of HashTokens prompt tokens;
	// requests with equal leading ids have equal tokens there. A request without Group and Hashes
	// shares nothing.
	Group       uint64
	GroupTokens int64
	Hashes      []uint64
	HashTokens  int64
	// HashedTokens is the number of tokens that Hashes cover, which may include output tokens with
	// which a later request begins; 0 for the prompt.
	HashedTokens int64

	// Unmeasured keeps the request out of Means and its token gaps out of Result.Gaps: it only warms the
	// server up, or keeps it busy to the end.
	Unmeasured bool

	// CachedTokens overrides the prefix-cache lookup of the first admission with what a recording
	// found there. Blocks of it that are in the simulated cache are shared; the others count as the
	// request's own.
	CachedTokens trace.Opt[int64]
	// LoadedTokens are the last of CachedTokens that the recording loaded from the tier of CPU memory at the first
	// admission (Config.Deployment, vllm.cpu_offloading): they take a copy. The others were on the GPU.
	LoadedTokens int64

	// For speculative decoding, Accepted is the number of drafts accepted by its 1st, 2nd, ... verify
	// step in a recording. If it is nil, they are drawn from the deployment's rates. Proposed is the
	// number of drafts proposed, if fewer than the engine's number.
	Accepted, Proposed []uint8

	// For disaggregated prefill: with RemotePrefill the KV of the whole prompt is loaded from another
	// server, which ends LoadUs after the blocks were allocated. With RemoteDecode the blocks are
	// kept until SendUs after the request's end, when another server has read them.
	RemotePrefill, RemoteDecode bool
	LoadUs, SendUs              int64

	// AbortAtUs is when an abort reaches the engine: the client has gone, or the API has found a
	// stop string. AbortKind is the outcome: OutcomeAborted, OutcomeTimedOut or, for a stop string,
	// OutcomeFinished, because for the client that is success.
	AbortAtUs trace.Opt[int64]
	// AbortAfterUs is the same, counted from the arrival.
	AbortAfterUs trace.Opt[int64]
	AbortKind    Outcome

	// After makes the request part of a closed loop of one client: with After = i+1 it arrives
	// ThinkUs after request i of the workload has left the system, whatever its outcome, but not
	// before ArrivalUs. 0 means that it follows no request.
	After int
	// Loop makes a closed loop of clients with a shared queue. Of the requests of one Loop (not 0),
	// those with Queued are sent in workload order: one whenever any request of the loop has left,
	// ThinkUs later and not before ArrivalUs. The others arrive by themselves, one for each client.
	Loop    int
	Queued  bool
	ThinkUs int64
	// With = i+1 makes it a further sample of request i (n > 1 in the API): both arrive together,
	// and a request that follows i waits for both. 0 for none.
	With int

	// EnqueueUs, if known, is when the request reaches the engine's input queue, in place of
	// arrival + overhead.
	EnqueueUs trace.Opt[int64]

	// PickUpStep is for recordings whose step times are incomplete: the last step before the
	// recorded pick-up (scheduler.step of QUEUED). The request stays in the input queue until that
	// step or, if the engine becomes idle before, makes it go on with that step number.
	PickUpStep trace.Opt[int64]
}

// abortOutcomes are the outcomes that an abort may have.
var abortOutcomes = []Outcome{OutcomeAborted, OutcomeTimedOut, OutcomeFinished}

// content returns the content of the blocks of request i of the workload.
func (r *Request) content(i int) Content {
	return Content{
		PromptTokens: r.PromptTokens,
		Group:        r.Group,
		GroupTokens:  r.GroupTokens,
		Hashes:       r.Hashes,
		HashTokens:   r.HashTokens,
		HashedTokens: r.HashedTokens,
		Own:          uint64(i),
	}
}

// LatestUs is the largest time in a workload, us: three centuries. Requests with later times are
// errors.
const LatestUs = int64(1e16)

// ToUs rounds a time >= 0 to whole microseconds. NaN and values out of range become times that
// checks reject (-1 or LatestUs + 1), because their direct conversion differs between processors.
func ToUs(v float64) int64 {
	switch {
	case v <= -1:
		return -1
	case v < float64(LatestUs):
		return int64(float64(v) + 0.5) // the conversion keeps a product in v from being fused with the addition
	}
	return LatestUs + 1
}

// checkRequest returns an error for impossible values of r, which is request i of the n of a workload.
func (r *Request) checkRequest(i, n int) error {
	bad := func(format string, args ...any) error {
		return trace.Errorf(CodeBadConfig, "request %d (%q): got "+format, append([]any{i, r.ID}, args...)...)
	}
	switch {
	case r.PromptTokens < 1 || r.OutputTokens < 1 || r.MaxTokens < 0:
		return bad("%d prompt, %d output, %d max tokens, want >= 1, >= 1, >= 0", r.PromptTokens, r.OutputTokens,
			r.MaxTokens)
	case r.ArrivalUs > LatestUs || r.ThinkUs > LatestUs:
		return bad("an arrival or think time beyond %d us, want at most that", LatestUs)
	case r.ArrivalUs < 0 || r.ThinkUs < 0 || r.EnqueueUs.OK && r.EnqueueUs.V < r.ArrivalUs:
		return bad("arrival %d us, think time %d us, enqueue %d us, want >= 0, >= 0, >= arrival", r.ArrivalUs,
			r.ThinkUs, r.EnqueueUs.V)
	case len(r.Hashes) > 0 && r.HashTokens < 1:
		return bad("%d content ids of %d tokens, want >= 1 token each", len(r.Hashes), r.HashTokens)
	case r.CachedTokens.OK && (r.CachedTokens.V < 0 || r.CachedTokens.V > r.PromptTokens):
		return bad("%d cached tokens, want 0 to the prompt's %d", r.CachedTokens.V, r.PromptTokens)
	case r.LoadedTokens < 0 || r.LoadedTokens > r.CachedTokens.Or(0):
		return bad("%d loaded tokens, want 0 to the %d cached ones", r.LoadedTokens, r.CachedTokens.Or(0))
	case r.After < 0 || r.After > n || r.After == i+1:
		return bad("after %d, want another request's position, 1 to %d", r.After, n)
	case r.Loop < 0 || r.Queued && (r.Loop == 0 || r.After > 0):
		return bad("loop %d after %d, want a loop of 1 or more and no predecessor for a queued request", r.Loop,
			r.After)
	case r.With < 0 || r.With > n || r.With == i+1 || r.With > 0 && (r.After > 0 || r.Loop > 0):
		return bad("with %d after %d loop %d, want another request's position, 1 to %d, and nothing else", r.With,
			r.After, r.Loop, n)
	case (r.AbortAtUs.OK || r.AbortAfterUs.OK) && !slices.Contains(abortOutcomes, r.AbortKind):
		return bad("abort outcome %q, want aborted, timed_out or finished", r.AbortKind)
	}
	return nil
}

// IsClosedLoop reports whether a closed loop of clients sends the requests. Such a loop cannot
// saturate a server, because it sends no more than the clients have in flight.
func IsClosedLoop(reqs []Request) bool {
	return slices.ContainsFunc(reqs, func(r Request) bool { return r.Loop > 0 })
}
