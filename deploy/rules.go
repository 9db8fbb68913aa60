package deploy

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/trace"
)

// Rules is what the scheduler of a release does that another release does not, and the
// flags that say otherwise. A name says what vLLM does from the release on that
// [ruleTable] gives; read off the schedulers of vLLM 0.15.1 to 0.33.0.
type Rules struct {
	FullPromptAdmission  bool    // a request is admitted only when blocks for all its known tokens are free
	Watermark            float64 // share of the blocks that an admission beside running requests leaves free
	UnhashedBlocksFirst  bool    // freed blocks without content are handed out before cached ones
	ThresholdNotAlone    bool    // long_prefill_token_threshold is off while one request alone runs or waits
	ThresholdAdaptive    bool    // it is at least an equal share of max_num_batched_tokens
	MaxNumActiveSeqs     int64   // requests running; 0 = max_num_seqs
	PrefillInterval      int64   // executed steps from one with prefill to the next while somebody decodes; 0, 1 = off
	ResumeAfterDrain     bool    // a preempted request waits for its steps in flight before it is admitted again
	PreemptByPosition    bool    // a victim in front of the request being scheduled moves it up, scheduled or not
	SelfPreemptedGoesOn  bool    // under priority a request that preempted itself does not end the running list
	SkippedFirst         bool    // requests passed over in a step come before all waiting ones
	HoldersFirst         bool    // only those that hold blocks do
	EmptyBatchesQueue    bool    // an empty batch takes a place in the queue of batches
	ModelRunnerV2        bool    // pp + 1 batches with asynchronous scheduling, decodes pp schedule() calls apart
	AsyncWithPP          bool    // with pipeline parallelism a decode does not wait for its token in flight
	DraftSlotsReserved   bool    // max_num_seqs times a drafter's slots are taken off the token budget
	DraftSlotsPerRequest bool    // they are taken off for each scheduled request
	NoDraftsAfterChunks  bool    // drafts behind an unfinished prompt are dropped
	FirstLookahead       bool    // an admission's blocks count the drafter's lookahead
	DraftsByBatchSize    bool    // num_speculative_tokens_per_batch_size
	DecodePadding        bool    // a request admitted with one token left gets 1 + k
	DecodePaddingAlone   bool    // also when nobody else decodes
	EagleBlockDropOff    bool    // disable_eagle_block_drop
	LookaheadHashes      bool    // hashes cover the token behind a block, so that EAGLE drops none
	ReadyTokensCached    bool    // blocks of decoded tokens are findable once no step in flight can change them
	LoadsReserve         bool    // a load from elsewhere leaves the blocks that prompts in chunks still need
	LoadsNoLookahead     bool    // a load's blocks count no lookahead whatever the drafter
	LoadsReserveDrafts   bool    // and those of a verify
	LeavingIsWork        bool    // a finished request whose blocks stay for another server keeps the engine stepping
	AbortedLoadsStay     bool    // the blocks of an aborted load stay until it has arrived
	DPPrefillInterval    int64   // iterations from one with prefill to the next, the same on all data-parallel ranks; 0, 1 = off
	DPSyncInterval       int64   // iterations between two questions whether a rank is busy; 0 = the release's
	DPSyncFirst          bool    // the first one asks too
	BalancerRotates      bool    // ranks of equal score take turns
	BalancerInFlight     bool    // an API server counts what it has in flight, and KV usage where requests wait
	DeferredFrees        bool    // blocks that a step in flight may write come free after it, with a connector
}

// rule is one line of the table.
type rule struct {
	name  string // as simulation.json lists it
	since [2]int
	until [2]int // the first release without it; zero: none
	flag  string // of vllm serve, that sets it
	with  string // what it is about, where not everybody has it: spec, pp, dp or kv
	at    func(*Rules) any
}

// ruleTable says which release has which rule, and which flag sets it.
var ruleTable = []rule{
	{"full_prompt_admission", [2]int{0, 19}, always, "scheduler_reserve_full_isl", "", func(r *Rules) any { return &r.FullPromptAdmission }},
	{"watermark", [2]int{0, 24}, always, "watermark", "", func(r *Rules) any { return &r.Watermark }},
	{"unhashed_blocks_first", [2]int{0, 24}, always, "", "", func(r *Rules) any { return &r.UnhashedBlocksFirst }},
	{"threshold_not_alone", [2]int{0, 31}, always, "", "", func(r *Rules) any { return &r.ThresholdNotAlone }},
	{"threshold_adaptive", [2]int{0, 31}, always, "long_prefill_token_threshold_adaptive", "",
		func(r *Rules) any { return &r.ThresholdAdaptive }},
	{"max_num_active_seqs", [2]int{0, 31}, always, "max_num_active_seqs", "", func(r *Rules) any { return &r.MaxNumActiveSeqs }},
	{"prefill_schedule_interval", [2]int{0, 33}, always, "prefill_schedule_interval", "", func(r *Rules) any { return &r.PrefillInterval }},
	{"resume_after_drain", [2]int{0, 28}, always, "", "", func(r *Rules) any { return &r.ResumeAfterDrain }},
	{"preempt_by_position", [2]int{0, 28}, always, "", "", func(r *Rules) any { return &r.PreemptByPosition }},
	{"self_preempted_goes_on", [2]int{0, 33}, always, "", "", func(r *Rules) any { return &r.SelfPreemptedGoesOn }},
	{"skipped_first", [2]int{0, 19}, [2]int{0, 31}, "", "kv", func(r *Rules) any { return &r.SkippedFirst }},
	{"holders_first", [2]int{0, 31}, always, "", "kv", func(r *Rules) any { return &r.HoldersFirst }},
	{"empty_batches_queue", [2]int{0, 23}, always, "", "", func(r *Rules) any { return &r.EmptyBatchesQueue }},
	{"model_runner_v2", [2]int{0, 23}, always, "", "pp", func(r *Rules) any { return &r.ModelRunnerV2 }},
	{"async_with_pp", [2]int{0, 19}, always, "", "pp", func(r *Rules) any { return &r.AsyncWithPP }},
	{"draft_slots_reserved", [2]int{0, 19}, [2]int{0, 28}, "", "spec", func(r *Rules) any { return &r.DraftSlotsReserved }},
	{"draft_slots_per_request", [2]int{0, 28}, always, "", "spec", func(r *Rules) any { return &r.DraftSlotsPerRequest }},
	{"no_drafts_after_chunks", [2]int{0, 19}, always, "", "spec", func(r *Rules) any { return &r.NoDraftsAfterChunks }},
	{"first_lookahead", [2]int{0, 23}, always, "", "spec", func(r *Rules) any { return &r.FirstLookahead }},
	{"drafts_by_batch_size", [2]int{0, 24}, always, "", "spec", func(r *Rules) any { return &r.DraftsByBatchSize }},
	{"decode_padding", [2]int{0, 26}, always, "", "spec", func(r *Rules) any { return &r.DecodePadding }},
	{"decode_padding_alone", [2]int{0, 31}, always, "", "spec", func(r *Rules) any { return &r.DecodePaddingAlone }},
	{"eagle_block_drop_off", [2]int{0, 31}, always, "", "spec", func(r *Rules) any { return &r.EagleBlockDropOff }},
	{"lookahead_hashes", [2]int{0, 33}, always, "", "spec", func(r *Rules) any { return &r.LookaheadHashes }},
	{"ready_tokens_cached", [2]int{0, 33}, always, "", "", func(r *Rules) any { return &r.ReadyTokensCached }},
	{"loads_reserve", [2]int{0, 23}, always, "", "kv", func(r *Rules) any { return &r.LoadsReserve }},
	{"loads_no_lookahead", [2]int{0, 26}, always, "", "kv", func(r *Rules) any { return &r.LoadsNoLookahead }},
	{"loads_reserve_drafts", [2]int{0, 31}, always, "", "kv", func(r *Rules) any { return &r.LoadsReserveDrafts }},
	{"leaving_is_work", [2]int{0, 23}, always, "", "kv", func(r *Rules) any { return &r.LeavingIsWork }},
	{"aborted_loads_stay", [2]int{0, 19}, always, "", "kv", func(r *Rules) any { return &r.AbortedLoadsStay }},
	{"dp_prefill_schedule_interval", [2]int{0, 24}, always, "prefill_schedule_interval", "dp",
		func(r *Rules) any { return &r.DPPrefillInterval }},
	{"dp_sync_interval", [2]int{0, 31}, always, "dp_sync_interval", "dp", func(r *Rules) any { return &r.DPSyncInterval }},
	{"dp_sync_first", [2]int{0, 31}, always, "", "dp", func(r *Rules) any { return &r.DPSyncFirst }},
	{"balancer_rotates", [2]int{0, 26}, always, "", "dp", func(r *Rules) any { return &r.BalancerRotates }},
	{"balancer_in_flight", [2]int{0, 28}, always, "", "dp", func(r *Rules) any { return &r.BalancerInFlight }},
	{"deferred_frees", [2]int{0, 24}, always, "", "kv", func(r *Rules) any { return &r.DeferredFrees }},
}

// in reports whether release v has the rule; a release that cannot be read counts as the newest.
func (t *rule) in(v [2]int, known bool) bool {
	if !known {
		return t.until == always
	}
	return !less(v, t.since) && (t.until == always || less(v, t.until))
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
			*at, ok = number(given)
			bad = given != nil && !(ok && *at >= 0 && *at < 1)
		case *int64:
			n, ok := number(given)
			*at = trace.Int(n)
			bad = given != nil && !(ok && n >= 1 && n == math.Trunc(n) && n < maxDimension)
		}
		if bad {
			return r, trace.Errorf(BadKnobs, "%s: got %v, want what vllm serve takes for --%s", t.flag, given, t.flag)
		}
	}
	return r, nil
}

// number is a number of run.yaml, whole or not.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
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
func (d *Deployment) RulesInForce() []RuleInForce {
	e := &d.Engine
	r, err := e.Rules()
	if err != nil {
		return nil
	}
	v, known := e.Release()
	has := map[string]bool{"": true, "pp": d.PP > 1, "spec": e.Extra["speculative_config"] != nil, "dp": d.DP > 1,
		"kv": e.Extra["kv_transfer_config"] != nil}
	var out []RuleInForce
	for i := range ruleTable {
		t := &ruleTable[i]
		if !t.in(v, known) || !has[t.with] {
			continue
		}
		f := RuleInForce{Name: t.name, Since: fmt.Sprintf("%d.%d", t.since[0], t.since[1])}
		if e.Extra[t.flag] != nil {
			f.Since, f.Flag = "", t.flag
		}
		switch at := t.at(&r).(type) {
		case *bool:
			f.Value = *at
		case *float64:
			f.Value = *at
		case *int64:
			f.Value = *at
		}
		if f.Flag != "" || f.Value != false && f.Value != 0.0 && f.Value != int64(0) {
			out = append(out, f)
		}
	}
	return out
}
