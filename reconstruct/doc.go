// Package reconstruct finds out which requests an engine ran in each step, and marks what is known,
// from recordings that do not list the batches. Two kinds of evidence lead to whole batches:
//
//   - Journeys: vLLM records in which steps each request was scheduled, gave its first token and
//     finished. [Lives] reads them, [FromJourneys] gives the [Batches] of all steps, a [Walk] visits
//     them in order, and [Batches.Reasons] has a [Reason] for every step whose batch is unknown.
//     Step summaries, where recorded, confirm or contradict a batch.
//   - Chunks: when clients saw every token, those that arrive together were made by one step.
//     [FromChunks] returns the steps as iterations, with [ChunkQuality] that decides whether the
//     groups of chunks are steps at all.
//
// batch.go has the facts of vLLM's scheduler that both use: how the [Budget] of a step cuts prompts
// into chunks after the decodes, which prefills are first decodes ([Counts]), and how much of a prompt
// can come from the prefix cache. Other packages that reconstruct batches use them too:
// reconstruct/logged, pipeline/extract/pairing and predictor.
//
// # A request in steps
//
// A request runs chunks of its prompt from its SCHEDULED step to its FIRST_TOKEN step, then one decode
// a step until it is FINISHED. Prompts take what the decodes leave of the token budget, in the order in
// which they were scheduled. If a request ran otherwise (it was preempted or aborted, or events were
// lost), the batches of all steps in which it can have run are unknown, unless a summary confirms the
// totals. Under
// asynchronous scheduling a request that stops by EOS runs one more decode, whose token is dropped.
//
// Stamps are int64 ns, steps are ids of the engine's step counter. Nothing here depends on a clock, on
// files or on the order of a map.
package reconstruct

// Reason is why the batch of a step is unknown. It is a number, because long runs have millions of steps.
type Reason uint8

// The reasons that come from journeys and summaries, then those of steps that are made from other records.
const (
	Known Reason = iota // no reason: the batch is known
	PreemptedRequest
	InconsistentRequest
	PrefillUnknown
	CachedUnknown
	Unconfirmed
	Contradicted
	NoRequests
	ChunkedTotals
	EncoderRan
	RecomputedTotals
	ChunkedNoSnapshots
)

// String returns the reason as a sentence; "" for Known.
func (r Reason) String() string { return reasonTexts[r] }

var reasonTexts = [...]string{
	Known:               "",
	PreemptedRequest:    "what a preempted request recomputed is not recorded",
	InconsistentRequest: "a request's events do not fit one token a step: some were lost, or it was aborted",
	PrefillUnknown:      "a prompt cannot be cut into chunks that end in its FIRST_TOKEN step",
	CachedUnknown:       "it is not recorded how many prompt tokens of a request were cached",
	Unconfirmed:         "requests may be missing from the journeys, and no BATCH_SUMMARY confirms the batch",
	Contradicted:        "the reconstructed batch contradicts the BATCH_SUMMARY of the step",
	NoRequests:          "neither snapshots nor requests in the journeys account for it",
	ChunkedTotals:       "totals do not determine the work of chunked prompts",
	EncoderRan:          "a multimodal encoder ran in the pass, and its time is not modelled",
	RecomputedTotals:    "decode tokens differ from decode requests, as when a preempted request is recomputed",
	ChunkedNoSnapshots:  "spec 1.0 has no input for chunked prefill without snapshots",
}
