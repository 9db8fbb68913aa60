package vllm

// This file lists the rules of vLLM's scheduler that differ between releases.

import (
	"math"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// Rules are the behaviours of vLLM's scheduler, block pool, balancer and CPU tier that differ
// between releases 0.15.1 and 0.33.0. A false or zero field is the behaviour of 0.15.1. [rules]
// lists the releases that have each one and the flag that sets it.
type Rules struct {
	// A request is admitted only when blocks for all its known tokens are free.
	FullPromptAdmission bool
	// Watermark is the share of the blocks that an admission leaves free while other requests run.
	Watermark float64
	// Freed blocks without cached content are handed out before cached ones.
	UnhashedBlocksFirst bool
	// long_prefill_token_threshold is off while a single request runs or waits.
	ThresholdNotAlone bool
	// long_prefill_token_threshold is at least an equal share of max_num_batched_tokens.
	ThresholdAdaptive bool
	// MaxNumActiveSeqs bounds the running requests; 0 is max_num_seqs.
	MaxNumActiveSeqs int64
	// MaxNumQueuedReqs is the number of unfinished requests at which an API server rejects the
	// next; 0 is no bound.
	MaxNumQueuedReqs int64
	// MaxNumQueuedTokens bounds the prompt tokens of requests without a first token in the same
	// way.
	MaxNumQueuedTokens int64
	// PrefillInterval is the number of executed steps from one with prefill to the next while
	// requests decode; 0 and 1 are off.
	PrefillInterval int64
	// A preempted request waits for its steps in flight before it is admitted again.
	ResumeAfterDrain bool
	// A preemption victim before the request being scheduled shifts the position in the running
	// list, whether the victim was scheduled or not.
	PreemptByPosition bool
	// Under the priority policy, scheduling continues with the next running request after one has
	// preempted itself.
	SelfPreemptedGoesOn bool
	// Requests passed over in a step come before all waiting ones in the next.
	SkippedFirst bool
	// Only the passed-over requests that hold blocks come first.
	HoldersFirst bool
	// An empty batch takes a place in the queue of batches in flight.
	EmptyBatchesQueue bool
	// There are pp + 1 batches in flight with asynchronous scheduling, and the decodes of a
	// request are pp calls of schedule() apart.
	ModelRunnerV2 bool
	// With pipeline parallelism a decode does not wait for its token in flight.
	AsyncWithPP bool
	// max_num_seqs times the drafter's slots are taken off the token budget.
	DraftSlotsReserved bool
	// The drafter's slots are taken off the token budget for each scheduled request.
	DraftSlotsPerRequest bool
	// Drafts are dropped after a step with an unfinished prompt.
	NoDraftsAfterChunks bool
	// The blocks of an admission include the drafter's lookahead tokens.
	FirstLookahead bool
	// num_speculative_tokens_per_batch_size is applied.
	DraftsByBatchSize bool
	// A request admitted with one token left is scheduled with 1 + k.
	DecodePadding bool
	// DecodePadding also applies when no other request decodes.
	DecodePaddingAlone bool
	// disable_eagle_block_drop is applied.
	EagleBlockDropOff bool
	// A block's hash covers the token after the block, so that EAGLE drops no cached block.
	LookaheadHashes bool
	// Blocks of decoded tokens enter the prefix cache once no step in flight can change them.
	ReadyTokensCached bool
	// A load from elsewhere leaves free the blocks that prompts in chunks still need.
	LoadsReserve bool
	// The blocks of a load include no lookahead, whatever the drafter.
	LoadsNoLookahead bool
	// The blocks reserved by LoadsReserve include those of a verify.
	LoadsReserveDrafts bool
	// A finished request whose blocks another server still reads keeps the engine stepping.
	LeavingIsWork bool
	// The blocks of an aborted load stay allocated until the load has arrived.
	AbortedLoadsStay bool
	// DPPrefillInterval is the number of iterations from one with prefill to the next, the same on
	// all data-parallel ranks; 0 and 1 are off.
	DPPrefillInterval int64
	// DPSyncInterval is the number of iterations between two synchronizations on whether any rank
	// is busy; 0 is the release's own.
	DPSyncInterval int64
	// The first iteration synchronizes too.
	DPSyncFirst bool
	// Ranks of equal score take turns.
	BalancerRotates bool
	// An API server counts the requests it has in flight, and the KV usage where requests wait.
	BalancerInFlight bool
	// The blocks of a finished request are free before their copies to the CPU tier are done; a
	// request that gets such a block waits for the copy.
	OffloadFreesAtOnce bool
	// Chunks are offered in the order of the batch, not those of new requests first.
	OffloadInOrder bool
	// Chunks are looked up until the first miss; an offer counts as a use of all chunks of the
	// request.
	OffloadByKey bool
	// With asynchronous scheduling and drafts, chunks of known tokens are offered and the others
	// later.
	OffloadKnownTokens bool
	// No chunk of the CPU tier is evicted for the request that offers it again.
	OffloadKeepsOffered bool
	// A chunk's last use is the end of its last copy, and a request waits for its own copies.
	OffloadByUse bool
	// The chunks that a finished request has not offered yet are offered with the next step.
	OffloadAtFinish bool
	// OffloadAtFinish does not apply to a request that finishes with its last copy; of an aborted
	// request the chunks that were not computed are offered too.
	OffloadForgets bool
	// Only caches marked as a drafter's (marked since 0.33) omit their last chunk; a finished
	// request omits none.
	OffloadMarksDrafts bool
	// store_threshold counts the chunks that are offered, not those that are looked up.
	OffloadCountsOffers bool
	// A finished request does not cache its last token; the arc policy evicts from either list; an
	// offer evicts no usage counts of its own chunks.
	OffloadCommitted bool
	// Chunks count as used once a request, when it has finished.
	OffloadByRequest bool
	// Loads within sync_load_budget_bytes run inside the step; an admission offers all its chunks
	// again.
	OffloadSyncLoads bool
	// With a connector, blocks that a step in flight may write become free after that step.
	DeferredFrees bool
	// A request whose blocks would become free only later is no preemption victim.
	VictimsInFlightStay bool
}

// rule is a field of [Rules] with the releases that have it.
type rule struct {
	name  string // as simulation.json lists it
	since Release
	until Release // the first release without it; zero: no such release
	flag  string  // of `vllm serve`, that sets the field; "": the release alone decides
	// onByDefault is true of a switch that is on where its flag is not given.
	onByDefault bool
	needs       feature
	// value points to the field: a *bool, a *float64 (a share in [0, 1)) or an *int64 (1 or more).
	value func(*Rules) any
}

// feature is a part of vLLM without which a rule has no effect. [Engine.RulesInForce] lists a rule
// only where the engine uses its feature.
type feature string

const (
	needsDrafts    feature = "speculative decoding"
	needsPP        feature = "pipeline parallelism"
	needsDP        feature = "data parallelism"
	needsConnector feature = "a KV connector"
	needsOffload   feature = "the CPU tier of the offloading connector"
)

// rules is the table of all rules, in the order in which simulation.json lists them. A comment
// names the functions of vLLM that a group mirrors (as in 0.33.0; older releases may have them
// elsewhere).
var rules = []rule{
	// vllm/v1/core/sched/scheduler.py: schedule(), full_sequence_must_fit
	{name: "full_prompt_admission", since: Release{0, 19}, flag: "scheduler_reserve_full_isl", onByDefault: true,
		value: func(r *Rules) any { return &r.FullPromptAdmission }},

	// vllm/v1/core/kv_cache_manager.py: allocate_slots(), watermark_blocks
	{name: "watermark", since: Release{0, 24}, flag: "watermark",
		value: func(r *Rules) any { return &r.Watermark }},

	// vllm/v1/core/block_pool.py: free_blocks()
	{name: "unhashed_blocks_first", since: Release{0, 24},
		value: func(r *Rules) any { return &r.UnhashedBlocksFirst }},

	// scheduler.py: schedule(), __init__()
	{name: "threshold_not_alone", since: Release{0, 31},
		value: func(r *Rules) any { return &r.ThresholdNotAlone }},
	{name: "threshold_adaptive", since: Release{0, 31}, flag: "long_prefill_token_threshold_adaptive",
		value: func(r *Rules) any { return &r.ThresholdAdaptive }},
	{name: "max_num_active_seqs", since: Release{0, 31}, flag: "max_num_active_seqs",
		value: func(r *Rules) any { return &r.MaxNumActiveSeqs }},

	// vllm/v1/engine/async_llm.py: check_admission()
	{name: "max_num_queued_reqs", since: Release{0, 29}, flag: "max_num_queued_reqs",
		value: func(r *Rules) any { return &r.MaxNumQueuedReqs }},
	{name: "max_num_queued_tokens", since: Release{0, 29}, flag: "max_num_queued_tokens",
		value: func(r *Rules) any { return &r.MaxNumQueuedTokens }},

	// scheduler.py: schedule(), the prefill cadence
	{name: "prefill_schedule_interval", since: Release{0, 33}, flag: "prefill_schedule_interval",
		value: func(r *Rules) any { return &r.PrefillInterval }},

	// scheduler.py: schedule(), _preempt_request(), _enqueue_waiting_request(), _holds_kv_blocks()
	{name: "resume_after_drain", since: Release{0, 27},
		value: func(r *Rules) any { return &r.ResumeAfterDrain }},
	{name: "preempt_by_position", since: Release{0, 28},
		value: func(r *Rules) any { return &r.PreemptByPosition }},
	{name: "self_preempted_goes_on", since: Release{0, 33},
		value: func(r *Rules) any { return &r.SelfPreemptedGoesOn }},
	{name: "skipped_first", since: Release{0, 19}, until: Release{0, 31}, needs: needsConnector,
		value: func(r *Rules) any { return &r.SkippedFirst }},
	{name: "holders_first", since: Release{0, 31}, needs: needsConnector,
		value: func(r *Rules) any { return &r.HoldersFirst }},

	// vllm/v1/engine/core.py: step_with_batch_queue(); vllm/v1/core/sched/async_scheduler.py
	{name: "empty_batches_queue", since: Release{0, 23},
		value: func(r *Rules) any { return &r.EmptyBatchesQueue }},
	{name: "model_runner_v2", since: Release{0, 23}, needs: needsPP,
		value: func(r *Rules) any { return &r.ModelRunnerV2 }},
	{name: "async_with_pp", since: Release{0, 19}, needs: needsPP,
		value: func(r *Rules) any { return &r.AsyncWithPP }},

	// scheduler.py: schedule(), _drafts_unused(), _reserve_prefill_lookahead()
	{name: "draft_slots_reserved", since: Release{0, 19}, until: Release{0, 28}, needs: needsDrafts,
		value: func(r *Rules) any { return &r.DraftSlotsReserved }},
	{name: "draft_slots_per_request", since: Release{0, 28}, needs: needsDrafts,
		value: func(r *Rules) any { return &r.DraftSlotsPerRequest }},
	{name: "no_drafts_after_chunks", since: Release{0, 19}, needs: needsDrafts,
		value: func(r *Rules) any { return &r.NoDraftsAfterChunks }},
	{name: "first_lookahead", since: Release{0, 23}, needs: needsDrafts,
		value: func(r *Rules) any { return &r.FirstLookahead }},
	{name: "drafts_by_batch_size", since: Release{0, 24}, needs: needsDrafts,
		value: func(r *Rules) any { return &r.DraftsByBatchSize }},
	{name: "decode_padding", since: Release{0, 25}, needs: needsDrafts,
		value: func(r *Rules) any { return &r.DecodePadding }},
	{name: "decode_padding_alone", since: Release{0, 30}, needs: needsDrafts,
		value: func(r *Rules) any { return &r.DecodePaddingAlone }},

	// vllm/config/speculative.py; vllm/v1/core/block_pool.py, generate_lookahead_block_hash_extra_keys()
	{name: "eagle_block_drop_off", since: Release{0, 30}, needs: needsDrafts,
		value: func(r *Rules) any { return &r.EagleBlockDropOff }},
	{name: "lookahead_hashes", since: Release{0, 33}, needs: needsDrafts,
		value: func(r *Rules) any { return &r.LookaheadHashes }},

	// scheduler.py: update_from_output(); kv_cache_manager.py: cache_blocks()
	{name: "ready_tokens_cached", since: Release{0, 33},
		value: func(r *Rules) any { return &r.ReadyTokensCached }},

	// scheduler.py: schedule(), _inflight_prefill_reserved_blocks(), _connector_finished(), _update_from_kv_xfer_finished()
	{name: "loads_reserve", since: Release{0, 23}, needs: needsConnector,
		value: func(r *Rules) any { return &r.LoadsReserve }},
	{name: "loads_no_lookahead", since: Release{0, 25}, needs: needsConnector,
		value: func(r *Rules) any { return &r.LoadsNoLookahead }},
	{name: "loads_reserve_drafts", since: Release{0, 31}, needs: needsConnector,
		value: func(r *Rules) any { return &r.LoadsReserveDrafts }},
	{name: "leaving_is_work", since: Release{0, 22}, needs: needsConnector,
		value: func(r *Rules) any { return &r.LeavingIsWork }},
	{name: "aborted_loads_stay", since: Release{0, 19}, needs: needsConnector,
		value: func(r *Rules) any { return &r.AbortedLoadsStay }},

	// vllm/v1/engine/core.py: DPEngineCoreProc, _should_throttle_prefills(), _has_global_unfinished_reqs()
	{name: "dp_prefill_schedule_interval", since: Release{0, 24}, flag: "prefill_schedule_interval", needs: needsDP,
		value: func(r *Rules) any { return &r.DPPrefillInterval }},
	{name: "dp_sync_interval", since: Release{0, 31}, flag: "dp_sync_interval", needs: needsDP,
		value: func(r *Rules) any { return &r.DPSyncInterval }},
	{name: "dp_sync_first", since: Release{0, 31}, needs: needsDP,
		value: func(r *Rules) any { return &r.DPSyncFirst }},

	// vllm/v1/engine/core_client.py: get_core_engine_for_request()
	{name: "balancer_rotates", since: Release{0, 26}, needs: needsDP,
		value: func(r *Rules) any { return &r.BalancerRotates }},
	{name: "balancer_in_flight", since: Release{0, 28}, needs: needsDP,
		value: func(r *Rules) any { return &r.BalancerInFlight }},

	// vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py: _lookup(), _build_store_jobs(),
	// request_finished(); vllm/v1/kv_offload/cpu/manager.py: touch(), prepare_store()
	{name: "offload_frees_at_once", since: Release{0, 22}, needs: needsConnector,
		value: func(r *Rules) any { return &r.OffloadFreesAtOnce }},
	{name: "offload_in_order", since: Release{0, 23}, needs: needsOffload,
		value: func(r *Rules) any { return &r.OffloadInOrder }},
	{name: "offload_by_key", since: Release{0, 20}, needs: needsOffload,
		value: func(r *Rules) any { return &r.OffloadByKey }},
	{name: "offload_known_tokens", since: Release{0, 18}, needs: needsOffload,
		value: func(r *Rules) any { return &r.OffloadKnownTokens }},
	{name: "offload_keeps_offered", since: Release{0, 18}, needs: needsOffload,
		value: func(r *Rules) any { return &r.OffloadKeepsOffered }},
	{name: "offload_by_use", since: Release{0, 24}, needs: needsOffload,
		value: func(r *Rules) any { return &r.OffloadByUse }},
	{name: "offload_at_finish", since: Release{0, 26}, needs: needsOffload,
		value: func(r *Rules) any { return &r.OffloadAtFinish }},
	{name: "offload_forgets", since: Release{0, 26}, until: Release{0, 27}, needs: needsOffload,
		value: func(r *Rules) any { return &r.OffloadForgets }},
	{name: "offload_marks_drafts", since: Release{0, 30}, needs: needsOffload,
		value: func(r *Rules) any { return &r.OffloadMarksDrafts }},
	{name: "offload_counts_offers", since: Release{0, 29}, needs: needsOffload,
		value: func(r *Rules) any { return &r.OffloadCountsOffers }},
	{name: "offload_committed", since: Release{0, 30}, needs: needsOffload,
		value: func(r *Rules) any { return &r.OffloadCommitted }},
	{name: "offload_by_request", since: Release{0, 31}, needs: needsOffload,
		value: func(r *Rules) any { return &r.OffloadByRequest }},
	{name: "offload_sync_loads", since: Release{0, 33}, needs: needsOffload,
		value: func(r *Rules) any { return &r.OffloadSyncLoads }},

	// scheduler.py: defer_block_free, _drain_deferred_frees()
	{name: "deferred_frees", since: Release{0, 24}, needs: needsConnector,
		value: func(r *Rules) any { return &r.DeferredFrees }},
	{name: "victims_in_flight_stay", since: Release{0, 30}, needs: needsConnector,
		value: func(r *Rules) any { return &r.VictimsInFlightStay }},
}

// isIn reports whether release v has the rule; a release that is not known counts as the newest.
func (t *rule) isIn(v Release, known bool) bool {
	if !known {
		return t.until == Release{}
	}
	return !v.Before(t.since) && (t.until == Release{} || v.Before(t.until))
}

// Rules returns the rules of the stated release, or of the newest where the version is not a
// release number. A flag overrides its rule; flags that the release does not have are ignored.
// Code: bad_knobs.
func (e *Engine) Rules() (Rules, error) {
	var r Rules
	v, known := e.Release()
	for i := range rules {
		t := &rules[i]
		if !t.isIn(v, known) {
			continue
		}
		if given := e.Extra[t.flag]; !t.set(&r, given) {
			return r, trace.Errorf(BadKnobs, "%s: got %v, want what vllm serve takes for --%s", t.flag, given, t.flag)
		}
	}
	return r, nil
}

// set sets the rule's field to the value of its flag, or to the release's default where the flag is
// not given (nil). It returns false for a value that vllm serve refuses.
func (t *rule) set(r *Rules, given any) bool {
	switch field := t.value(r).(type) {
	case *bool:
		if given == nil {
			*field = t.flag == "" || t.onByDefault
			return true
		}
		on, isBool := given.(bool)
		*field = on
		return isBool
	case *float64:
		share, isNumber := Number(given)
		*field = share
		return given == nil || isNumber && share >= 0 && share < 1
	case *int64:
		n, isNumber := Number(given)
		*field = trace.Int(n)
		return given == nil || isNumber && n >= 1 && n == math.Trunc(n) && n < 1<<30
	}
	panic("vllm: rule " + t.name + " has a field of an unknown type")
}

// isSet returns the value of the rule's field, and whether it differs from that of release 0.15.1, which is zero.
func (t *rule) isSet(r *Rules) (value any, differs bool) {
	switch field := t.value(r).(type) {
	case *bool:
		return *field, *field
	case *float64:
		return *field, *field != 0
	case *int64:
		return *field, *field != 0
	}
	return nil, false
}

// RuleInForce is a rule of the scheduler that earlier releases did not have.
type RuleInForce struct {
	Name  string `json:"name"`
	Value any    `json:"value"`           // true, or the flag's value
	Since string `json:"since,omitempty"` // the first release that has it, "0.19"
	Flag  string `json:"flag,omitempty"`  // the flag that sets it here
}

// RulesInForce returns the rules that a simulation of the engine follows and 0.15.1 did not have,
// and those that flags set. pp and dp are the sizes of pipeline and data parallelism. Rules about
// drafts, pipelines, ranks and connectors are listed only if the engine uses them.
func (e *Engine) RulesInForce(pp, dp int64) []RuleInForce {
	r, err := e.Rules()
	if err != nil {
		return nil
	}
	v, known := e.Release()
	uses := map[feature]bool{
		"":             true,
		needsDrafts:    e.Extra["speculative_config"] != nil,
		needsPP:        pp > 1,
		needsDP:        dp > 1,
		needsConnector: e.Extra["kv_transfer_config"] != nil || e.CPUOffloading,
		needsOffload:   e.CPUOffloading,
	}
	var out []RuleInForce
	for i := range rules {
		t := &rules[i]
		if !t.isIn(v, known) || !uses[t.needs] {
			continue
		}
		// LMCache has a CPU tier of its own, which does not change with vLLM's releases.
		if strings.HasPrefix(t.name, "offload_") && e.Offload().LMCache {
			continue
		}
		value, differs := t.isSet(&r)
		if e.Extra[t.flag] != nil {
			out = append(out, RuleInForce{Name: t.name, Value: value, Flag: t.flag})
		} else if differs {
			out = append(out, RuleInForce{Name: t.name, Value: value, Since: t.since.String()})
		}
	}
	return out
}
