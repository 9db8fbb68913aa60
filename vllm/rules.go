package vllm

import (
	"fmt"
	"math"
	"reflect"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// Rules is what the scheduler of a release does that another release does not, and the
// flags that say otherwise. A name says what vLLM does from the release on that
// [ruleTable] gives; read off the schedulers of vLLM 0.15.1 to 0.33.0.
type Rules struct {
	// FullPromptAdmission: a request is admitted only when blocks for all its known tokens are free
	FullPromptAdmission bool `rule:"full_prompt_admission" since:"0.19" flag:"scheduler_reserve_full_isl"`
	// Watermark: share of the blocks that an admission beside running requests leaves free
	Watermark float64 `rule:"watermark" since:"0.24" flag:"watermark"`
	// UnhashedBlocksFirst: freed blocks without content are handed out before cached ones
	UnhashedBlocksFirst bool `rule:"unhashed_blocks_first" since:"0.24"`
	// ThresholdNotAlone: long_prefill_token_threshold is off while one request alone runs or waits
	ThresholdNotAlone bool `rule:"threshold_not_alone" since:"0.31"`
	// ThresholdAdaptive: it is at least an equal share of max_num_batched_tokens
	ThresholdAdaptive bool `rule:"threshold_adaptive" since:"0.31" flag:"long_prefill_token_threshold_adaptive"`
	// MaxNumActiveSeqs: requests running; 0 = max_num_seqs
	MaxNumActiveSeqs int64 `rule:"max_num_active_seqs" since:"0.31" flag:"max_num_active_seqs"`
	// MaxNumQueuedReqs: requests that an API server has unfinished when it turns the next away; 0 = any
	MaxNumQueuedReqs int64 `rule:"max_num_queued_reqs" since:"0.29" flag:"max_num_queued_reqs"`
	// MaxNumQueuedTokens: prompt tokens of those without first token, likewise
	MaxNumQueuedTokens int64 `rule:"max_num_queued_tokens" since:"0.29" flag:"max_num_queued_tokens"`
	// PrefillInterval: executed steps from one with prefill to the next while somebody decodes; 0, 1 = off
	PrefillInterval int64 `rule:"prefill_schedule_interval" since:"0.33" flag:"prefill_schedule_interval"`
	// ResumeAfterDrain: a preempted request waits for its steps in flight before it is admitted again
	ResumeAfterDrain bool `rule:"resume_after_drain" since:"0.27"`
	// PreemptByPosition: a victim in front of the request being scheduled moves it up, scheduled or not
	PreemptByPosition bool `rule:"preempt_by_position" since:"0.28"`
	// SelfPreemptedGoesOn: under priority a request that preempted itself does not end the running list
	SelfPreemptedGoesOn bool `rule:"self_preempted_goes_on" since:"0.33"`
	// SkippedFirst: requests passed over in a step come before all waiting ones
	SkippedFirst bool `rule:"skipped_first" since:"0.19" until:"0.31" with:"kv"`
	// HoldersFirst: only those that hold blocks do
	HoldersFirst bool `rule:"holders_first" since:"0.31" with:"kv"`
	// EmptyBatchesQueue: an empty batch takes a place in the queue of batches
	EmptyBatchesQueue bool `rule:"empty_batches_queue" since:"0.23"`
	// ModelRunnerV2: pp + 1 batches with asynchronous scheduling, decodes pp schedule() calls apart
	ModelRunnerV2 bool `rule:"model_runner_v2" since:"0.23" with:"pp"`
	// AsyncWithPP: with pipeline parallelism a decode does not wait for its token in flight
	AsyncWithPP bool `rule:"async_with_pp" since:"0.19" with:"pp"`
	// DraftSlotsReserved: max_num_seqs times a drafter's slots are taken off the token budget
	DraftSlotsReserved bool `rule:"draft_slots_reserved" since:"0.19" until:"0.28" with:"spec"`
	// DraftSlotsPerRequest: they are taken off for each scheduled request
	DraftSlotsPerRequest bool `rule:"draft_slots_per_request" since:"0.28" with:"spec"`
	// NoDraftsAfterChunks: drafts behind an unfinished prompt are dropped
	NoDraftsAfterChunks bool `rule:"no_drafts_after_chunks" since:"0.19" with:"spec"`
	// FirstLookahead: an admission's blocks count the drafter's lookahead
	FirstLookahead bool `rule:"first_lookahead" since:"0.23" with:"spec"`
	// DraftsByBatchSize: num_speculative_tokens_per_batch_size
	DraftsByBatchSize bool `rule:"drafts_by_batch_size" since:"0.24" with:"spec"`
	// DecodePadding: a request admitted with one token left gets 1 + k
	DecodePadding bool `rule:"decode_padding" since:"0.25" with:"spec"`
	// DecodePaddingAlone: also when nobody else decodes
	DecodePaddingAlone bool `rule:"decode_padding_alone" since:"0.30" with:"spec"`
	// EagleBlockDropOff: disable_eagle_block_drop
	EagleBlockDropOff bool `rule:"eagle_block_drop_off" since:"0.30" with:"spec"`
	// LookaheadHashes: hashes cover the token behind a block, so that EAGLE drops none
	LookaheadHashes bool `rule:"lookahead_hashes" since:"0.33" with:"spec"`
	// ReadyTokensCached: blocks of decoded tokens are findable once no step in flight can change them
	ReadyTokensCached bool `rule:"ready_tokens_cached" since:"0.33"`
	// LoadsReserve: a load from elsewhere leaves the blocks that prompts in chunks still need
	LoadsReserve bool `rule:"loads_reserve" since:"0.23" with:"kv"`
	// LoadsNoLookahead: a load's blocks count no lookahead whatever the drafter
	LoadsNoLookahead bool `rule:"loads_no_lookahead" since:"0.25" with:"kv"`
	// LoadsReserveDrafts: and those of a verify
	LoadsReserveDrafts bool `rule:"loads_reserve_drafts" since:"0.31" with:"kv"`
	// LeavingIsWork: a finished request whose blocks stay for another server keeps the engine stepping
	LeavingIsWork bool `rule:"leaving_is_work" since:"0.22" with:"kv"`
	// AbortedLoadsStay: the blocks of an aborted load stay until it has arrived
	AbortedLoadsStay bool `rule:"aborted_loads_stay" since:"0.19" with:"kv"`
	// DPPrefillInterval: iterations from one with prefill to the next, the same on all data-parallel ranks; 0, 1 = off
	DPPrefillInterval int64 `rule:"dp_prefill_schedule_interval" since:"0.24" flag:"prefill_schedule_interval" with:"dp"`
	// DPSyncInterval: iterations between two questions whether a rank is busy; 0 = the release's
	DPSyncInterval int64 `rule:"dp_sync_interval" since:"0.31" flag:"dp_sync_interval" with:"dp"`
	// DPSyncFirst: the first one asks too
	DPSyncFirst bool `rule:"dp_sync_first" since:"0.31" with:"dp"`
	// BalancerRotates: ranks of equal score take turns
	BalancerRotates bool `rule:"balancer_rotates" since:"0.26" with:"dp"`
	// BalancerInFlight: an API server counts what it has in flight, and KV usage where requests wait
	BalancerInFlight bool `rule:"balancer_in_flight" since:"0.28" with:"dp"`
	// OffloadFreesAtOnce: a finished request's blocks are free before their copies to the CPU tier are done; who takes one waits
	OffloadFreesAtOnce bool `rule:"offload_frees_at_once" since:"0.22" with:"kv"`
	// OffloadInOrder: chunks are offered in the order of the batch, not those of new requests first
	OffloadInOrder bool `rule:"offload_in_order" since:"0.23" with:"offload"`
	// OffloadByKey: chunks are asked for to the first that misses; an offer uses all of the request's
	OffloadByKey bool `rule:"offload_by_key" since:"0.20" with:"offload"`
	// OffloadKnownTokens: of asynchronous scheduling and drafts, the chunks of tokens that are known are offered, others later
	OffloadKnownTokens bool `rule:"offload_known_tokens" since:"0.18" with:"offload"`
	// OffloadKeepsOffered: no chunk of the CPU tier is evicted for the request that offers it again
	OffloadKeepsOffered bool `rule:"offload_keeps_offered" since:"0.18" with:"offload"`
	// OffloadByUse: a chunk's last use is the end of its last copy; a request waits for its own copies
	OffloadByUse bool `rule:"offload_by_use" since:"0.24" with:"offload"`
	// OffloadAtFinish: what a finished request has not offered yet is offered with the next step
	OffloadAtFinish bool `rule:"offload_at_finish" since:"0.26" with:"offload"`
	// OffloadForgets: but for who finishes with its last copy; of an aborted one what was not computed too
	OffloadForgets bool `rule:"offload_forgets" since:"0.26" until:"0.27" with:"offload"`
	// OffloadMarksDrafts: only caches marked as a drafter's (0.33 marks them) leave out their last chunk, none of a finished request
	OffloadMarksDrafts bool `rule:"offload_marks_drafts" since:"0.30" with:"offload"`
	// OffloadCountsOffers: store_threshold counts what is offered, not what is asked for
	OffloadCountsOffers bool `rule:"offload_counts_offers" since:"0.29" with:"offload"`
	// OffloadCommitted: a finished request leaves out its last token; arc evicts from either list; an offer evicts no counts of its own
	OffloadCommitted bool `rule:"offload_committed" since:"0.30" with:"offload"`
	// OffloadByRequest: chunks are used once a request, when it has finished
	OffloadByRequest bool `rule:"offload_by_request" since:"0.31" with:"offload"`
	// OffloadSyncLoads: loads within sync_load_budget_bytes run inside the step; an admission offers all chunks again
	OffloadSyncLoads bool `rule:"offload_sync_loads" since:"0.33" with:"offload"`
	// DeferredFrees: blocks that a step in flight may write come free after it, with a connector
	DeferredFrees bool `rule:"deferred_frees" since:"0.24" with:"kv"`
	// VictimsInFlightStay: nobody is preempted whose blocks would come free later only
	VictimsInFlightStay bool `rule:"victims_in_flight_stay" since:"0.30" with:"kv"`
}

// rule is a field of Rules with what its tags say.
type rule struct {
	name  string // as simulation.json lists it
	since [2]int
	until [2]int // the first release without it; zero: none
	flag  string // of vllm serve, that sets it
	with  string // what it is about, where not everybody has it: spec, pp, dp, kv or offload
	field int
}

// ruleTable says which release has which rule, and which flag sets it.
var ruleTable = func() (all []rule) {
	for i, f := range reflect.VisibleFields(reflect.TypeFor[Rules]()) {
		since, _ := ParseVersion(f.Tag.Get("since"))
		until, _ := ParseVersion(f.Tag.Get("until"))
		all = append(all, rule{f.Tag.Get("rule"), since, until, f.Tag.Get("flag"), f.Tag.Get("with"), i})
	}
	return all
}()

// at is the rule's field, as a pointer.
func (t *rule) at(r *Rules) any { return reflect.ValueOf(r).Elem().Field(t.field).Addr().Interface() }

// in reports whether release v has the rule; a release that cannot be read counts as the newest.
func (t *rule) in(v [2]int, known bool) bool {
	if !known {
		return t.until == Always
	}
	return !Before(v, t.since) && (t.until == Always || Before(v, t.until))
}

// Rules are those of the stated release, the newest where it states none
// ([Deployment.Assumed] says so). A flag overrides its rule; one that the release does
// not have is ignored. Code: bad_knobs.
func (e *Engine) Rules() (Rules, error) {
	var r Rules
	v, known := e.Release()
	for i := range ruleTable {
		t := &ruleTable[i]
		if !t.in(v, known) {
			continue
		}
		given := e.Extra[t.flag]
		bad := false
		switch at := t.at(&r).(type) {
		case *bool:
			on, ok := given.(bool)
			bad = given != nil && !ok
			*at = on || given == nil && (t.flag == "" || t.name == "full_prompt_admission")
		case *float64:
			var ok bool
			*at, ok = Number(given)
			bad = given != nil && !(ok && *at >= 0 && *at < 1)
		case *int64:
			n, ok := Number(given)
			*at = trace.Int(n)
			bad = given != nil && !(ok && n >= 1 && n == math.Trunc(n) && n < 1<<30)
		}
		if bad {
			return r, trace.Errorf(BadKnobs, "%s: got %v, want what vllm serve takes for --%s", t.flag, given, t.flag)
		}
	}
	return r, nil
}

// RuleInForce is a rule of the scheduler that releases before it did not have.
type RuleInForce struct {
	Name  string `json:"name"`
	Value any    `json:"value"`           // true, or the flag's value
	Since string `json:"since,omitempty"` // the release that has it first, "0.19"
	Flag  string `json:"flag,omitempty"`  // where a flag sets it
}

// RulesInForce are the rules that the stated release has and an older one had not, and
// what flags set: what a simulation of d goes by. Rules about drafts, pipelines, ranks and
// other servers are listed only where d has such.
func (e *Engine) RulesInForce(pp, dp int64) []RuleInForce {
	r, err := e.Rules()
	if err != nil {
		return nil
	}
	v, known := e.Release()
	has := map[string]bool{"": true, "pp": pp > 1, "spec": e.Extra["speculative_config"] != nil, "dp": dp > 1,
		"kv": e.Extra["kv_transfer_config"] != nil || e.CPUOffloading, "offload": e.CPUOffloading}
	var out []RuleInForce
	for i := range ruleTable {
		t := &ruleTable[i]
		if !t.in(v, known) || !has[t.with] || strings.HasPrefix(t.name, "offload_") && e.Offload().LMCache {
			continue
		}
		f := RuleInForce{Name: t.name, Since: fmt.Sprintf("%d.%d", t.since[0], t.since[1])}
		if e.Extra[t.flag] != nil {
			f.Since, f.Flag = "", t.flag
		}
		f.Value = reflect.ValueOf(r).Field(t.field).Interface()
		if f.Flag != "" || f.Value != false && f.Value != 0.0 && f.Value != int64(0) {
			out = append(out, f)
		}
	}
	return out
}
