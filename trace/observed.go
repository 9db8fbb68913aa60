package trace

// This file has the row of a request as its client saw it, with what follows from it.

// ObservedRequest is one request as its client saw it.
type ObservedRequest struct {
	ID            string       `json:"id" col:"request_id" doc:"client's id"`
	Source        string       `json:"-" col:"source" doc:"client, guidellm, tracev2, llmservingsim, vllm_bench, aiperf, sglang or inference_perf"`
	CoreID        Opt[string]  `json:"-" col:"core_id" doc:"joined core span, by id prefix"`
	Phase         Opt[string]  `json:"phase" col:"phase" doc:"workload phase"`
	Route         Opt[string]  `json:"route" col:"route" doc:"completions or chat"`
	ArrivalNs     Opt[int64]   `json:"intended_ns" col:"arrival_ns" unit:"ns" doc:"planned arrival (intended_ns, arrival_time_us)"`
	SendNs        Opt[int64]   `json:"send_ns" col:"send_ns" unit:"ns" doc:"request sent, client clock"`
	FirstChunkNs  Opt[int64]   `json:"first_chunk_ns" col:"first_chunk_ns" unit:"ns" doc:"first output chunk"`
	LastChunkNs   Opt[int64]   `json:"last_chunk_ns" col:"last_chunk_ns" unit:"ns" doc:"last output chunk"`
	EndNs         Opt[int64]   `json:"end_ns" col:"end_ns" unit:"ns" doc:"response closed"`
	QueuedNs      Opt[int64]   `json:"-" col:"queued_ns" unit:"ns" doc:"engine pick-up, engine clock (llmservingsim)"`
	ScheduledNs   Opt[int64]   `json:"-" col:"scheduled_ns" unit:"ns" doc:"first scheduling, engine clock (llmservingsim)"`
	EngineFirstNs Opt[int64]   `json:"-" col:"engine_first_token_ns" unit:"ns" doc:"first token, engine clock (llmservingsim)"`
	EngineLastNs  Opt[int64]   `json:"-" col:"engine_last_token_ns" unit:"ns" doc:"last token, engine clock (llmservingsim)"`
	SendWallNs    Opt[int64]   `json:"send_wall_ns" col:"send_wall_ns" unit:"ns" doc:"send time, wall clock"`
	AskedTokens   Opt[int64]   `json:"output_tokens" col:"asked_tokens" unit:"tokens" doc:"output tokens asked for"`
	PromptTokens  Opt[int64]   `json:"prompt_tokens" col:"prompt_tokens" unit:"tokens" doc:"prompt tokens (server's count when given)"`
	OutputTokens  Opt[int64]   `json:"-" col:"output_tokens" unit:"tokens" doc:"completion tokens (usage when given), all samples of n together"`
	N             Opt[int64]   `json:"n" col:"n" doc:"samples asked for"`
	Streaming     Opt[bool]    `json:"stream" col:"stream" doc:"streamed response"`
	Status        Opt[int64]   `json:"status" col:"status" doc:"HTTP status"`
	Success       Opt[bool]    `json:"-" col:"success" doc:"finished without error or abort"`
	Aborted       Opt[bool]    `json:"aborted" col:"aborted" doc:"the client gave up"`
	Error         Opt[string]  `json:"-" col:"error" doc:"error text"`
	FinishReason  Opt[string]  `json:"finish_reason" col:"finish_reason" doc:"finish reason"`
	PrefixGroup   Opt[string]  `json:"-" col:"prefix_group" doc:"requests of one group share a prompt prefix"`
	PrefixTokens  Opt[int64]   `json:"prefix_tokens" col:"prefix_tokens" unit:"tokens" doc:"length of the shared prefix; 0 without a group: the client's file states that the prompt shares nothing"`
	Priority      Opt[int64]   `json:"priority" col:"priority" doc:"scheduling priority"`
	SLOClass      Opt[string]  `json:"slo_class" col:"slo_class" doc:"service class"`
	QueueUs       Opt[float64] `json:"-" col:"queue_us" unit:"us" doc:"the server's queueing delay, scheduled - queued, as its metrics of the request state it (queue_time_ms)"`
	ServerTTFTUs  Opt[float64] `json:"-" col:"server_ttft_us" unit:"us" doc:"first token - scheduled, by the server's metrics of the request: without queue, front end and network"`
	ServerGenUs   Opt[float64] `json:"-" col:"server_generation_us" unit:"us" doc:"last - first token, by the same metrics; also of answers that came in one chunk"`
	ClientWaitUs  Opt[float64] `json:"-" col:"client_wait_us" unit:"us" doc:"how long the client itself held the request back before it sent it: no part of any other time"`
	VisibleUs     Opt[float64] `json:"-" col:"first_visible_us" unit:"us" doc:"first token that is not reasoning - send, where the client states it"`
	Reasoning     Opt[int64]   `json:"-" col:"reasoning_tokens" unit:"tokens" doc:"output tokens that are reasoning, as the server counts them"`
	Chunks        Opt[int64]   `json:"chunks" col:"chunks" doc:"output chunks received; fewer than tokens when the client was late"`
	TTFTUs        Opt[float64] `json:"-" col:"ttft_us" unit:"us" doc:"first chunk - send"`
	E2EUs         Opt[float64] `json:"-" col:"e2e_us" unit:"us" doc:"last chunk - send"`
	ChunkGapsUs   []float64    `json:"-" col:"chunk_gaps_us" unit:"us" doc:"gaps between chunks"`
	CachedTokens  Opt[int64]   `json:"-" col:"cached_tokens" unit:"tokens" doc:"prompt tokens that the server took from its prefix cache"`
	CachedSource  Opt[string]  `json:"-" col:"cached_source" doc:"source of cached_tokens: usage (of the server), exact (the passes of the log), session, group or bound (shares of the passes of several requests), counter (shares of the counters of /metrics or the log's hit rates, for all requests)"`
	CachedMin     Opt[int64]   `json:"-" col:"cached_min_tokens" unit:"tokens" doc:"the least that the passes of the log allow"`
	CachedMax     Opt[int64]   `json:"-" col:"cached_max_tokens" unit:"tokens" doc:"the most"`
	Iteration     Opt[int64]   `json:"-" col:"iteration" doc:"the engine's pass that ended the prompt, found by counting"`
	Engine        Opt[int64]   `json:"-" col:"engine" doc:"engine run of the folder that served it, from 1, where passes of several are logged"`
	Session       Opt[string]  `json:"-" col:"session" doc:"conversation, as the client names it"`
	Turn          Opt[int64]   `json:"-" col:"turn" doc:"turn of it"`
	LoadOnly      Opt[bool]    `json:"-" col:"load_only" doc:"sent while requests that the file leaves out may still have run: part of the load, compared with nothing"`
	Line          int64        `json:"-" col:"line" doc:"line in the client file"`
}

// Sources of cached tokens, best first.
const (
	CachedUsage   = "usage"
	CachedExact   = "exact"
	CachedSession = "session"
	CachedGroup   = "group"
	CachedBound   = "bound"
	CachedCounter = "counter"
)

// MostGuessed is the share of a prompt's tokens, or of the tokens of all prompts of a load, up to
// which it does not matter that the number of cached tokens is unknown.
const MostGuessed = 0.05

// KnowsCached reports whether the number of cached tokens of the prompt is known, to within
// MostGuessed of the prompt. The increase of a counter over several requests does not show how it
// is divided among them, so a share of it counts as known only if it is small, or if the counter did
// not increase, in which case both bounds are 0.
func (r *ObservedRequest) KnowsCached() bool {
	isShare := r.CachedSource.V == CachedCounter && r.CachedMin.V != r.CachedMax.V
	isSmall := float64(r.CachedTokens.V) <= MostGuessed*float64(r.PromptTokens.V)
	return r.CachedTokens.OK && (!isShare || isSmall)
}

// SharesNothing reports whether the client's file states that the prompt begins like no other one: it has
// the length of the shared prefix, which is 0, and no group.
func (r *ObservedRequest) SharesNothing() bool {
	return r.PrefixTokens.OK && r.PrefixTokens.V == 0 && !r.PrefixGroup.OK
}

// Uncounted reports whether the counts of a log do not show when the request ran, because it has
// several samples, or failed or was aborted.
func (r *ObservedRequest) Uncounted() bool { return r.N.Or(1) > 1 || !r.Success.Or(true) }

// LoadTokens returns the output tokens with which a request loads a simulation. Where nobody counted them they are about as
// many as its chunks or, if these are not known either, as were asked for.
func (r *ObservedRequest) LoadTokens() Opt[int64] {
	for _, n := range []Opt[int64]{r.OutputTokens, r.Chunks, r.AskedTokens} {
		if n.OK {
			return n
		}
	}
	return Opt[int64]{}
}

// QueuedAtNs returns when the engine took the request into its queue (ns), on the clock of the client's
// stamps: the server's own times are subtracted from the client's first chunk or, for an answer in one
// chunk, from that. It returns false if one of these is unknown.
func (r *ObservedRequest) QueuedAtNs() (int64, bool) {
	if !r.QueueUs.OK || !r.ServerTTFTUs.OK {
		return 0, false
	}
	toFirstUs := r.QueueUs.V + r.ServerTTFTUs.V // from the queue to the first token
	switch {
	case r.FirstChunkNs.OK:
		return r.FirstChunkNs.V - Ns(toFirstUs), true
	case r.LastChunkNs.OK && r.ServerGenUs.OK:
		return r.LastChunkNs.V - Ns(toFirstUs+r.ServerGenUs.V), true
	}
	return 0, false
}

// SentNs returns the stamp (ns) at which the client sent the request, or planned to send it, on the
// clock of its other stamps; 0 if it is unknown.
func (r *ObservedRequest) SentNs() int64 { return r.SendNs.Or(r.ArrivalNs.Or(r.SendWallNs.V)) }
