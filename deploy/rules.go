package deploy

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
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
		since, _ := parseVersion(f.Tag.Get("since"))
		until, _ := parseVersion(f.Tag.Get("until"))
		all = append(all, rule{f.Tag.Get("rule"), since, until, f.Tag.Get("flag"), f.Tag.Get("with"), i})
	}
	return all
}()

// at is the rule's field, as a pointer.
func (t *rule) at(r *Rules) any { return reflect.ValueOf(r).Elem().Field(t.field).Addr().Interface() }

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

// IsMoE reports whether the model has routed experts; one expert is dense (spec#model-moe).
func (m *Model) IsMoE() bool {
	return m.NumExperts >= 2 || m.Layered != nil && m.Layered.hasExperts()
}

func (d *Decoder) hasExperts() bool {
	return slices.ContainsFunc(d.Layers, func(l Layer) bool { return l.FFN != nil && l.FFN.Kind == Experts })
}

// Check applies the rules of both spec versions (spec#deployment-checks). Codes:
// bad_model, bad_hardware, bad_knobs, bad_tp, bad_top_k.
func (d *Deployment) Check() error {
	for _, check := range []func() error{d.Model.check, d.checkHardware, d.Engine.check} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// known refuses a model of stated sizes, whose steps nothing can say.
func (m *Model) known() error {
	if m.Sizes == nil {
		return nil
	}
	return trace.Errorf(unsupportedModel, "model %s: its sizes are stated, its layers are not known (%s), want layers", m.ID, m.Sizes.Why).
		WithHint("memory, admission and recordings go on; step times need model.assume, or a family that is known")
}

func (m *Model) check() error {
	if m.Layered != nil {
		if len(m.Layered.Layers) == 0 || m.Layered.Hidden <= 0 || m.Layered.Vocab <= 0 || !(m.Layered.KVBytes > 0 && m.Layered.DTypeBytes > 0) {
			return trace.Errorf(BadModel, "model layers: got %d layers, hidden size %d, vocabulary %d, %g B a cached value, want all > 0",
				len(m.Layered.Layers), m.Layered.Hidden, m.Layered.Vocab, m.Layered.KVBytes)
		}
		return nil
	}
	if m.Sizes != nil {
		return nil
	}
	dims := []struct {
		name  string
		value int64
	}{
		{"num_hidden_layers", m.NumLayers}, {"hidden_size", m.HiddenSize}, {"num_attention_heads", m.NumHeads},
		{"num_key_value_heads", m.NumKVHeads}, {"intermediate_size", m.IntermediateSize},
		{"vocab_size", m.VocabSize}, {"n_mlp_proj", m.NumMLPProj},
	}
	for _, dim := range dims {
		if dim.value <= 0 || dim.value > maxDimension {
			return trace.Errorf(BadModel, "model %s: got %d, want 1 to %d", dim.name, dim.value, maxDimension)
		}
	}
	if !(m.BytesPerParam > 0) {
		return trace.Errorf(BadModel, "model bytes_per_param: got %g, want > 0 B", m.BytesPerParam)
	}
	if m.IsMoE() && (m.TopK < 1 || m.TopK > m.NumExperts) {
		return trace.Errorf(BadModel, "model top_k: got %d, want 1..%d experts", m.TopK, m.NumExperts)
	}
	return nil
}

func (d *Deployment) checkHardware() error {
	if d.TP < 1 || d.TP > maxDevices {
		return trace.Errorf(BadKnobs, "tensor_parallel_size: got %d, want 1 to %d", d.TP, maxDevices)
	}
	h := &d.Hardware
	if err := allPositive(BadHardware, "hardware", "", rate{"TFlopsPeak", h.TFlopsPeak}, rate{"BwPeakTBs", h.BwPeakTBs}); err != nil {
		return err
	}
	if !(h.TFlopsFP8 >= 0) || h.TFlopsFP8 > maxRate {
		return trace.Errorf(BadHardware, "hardware TFlopsFP8: got %g, want >= 0 (0 = none)", h.TFlopsFP8)
	}
	if !(h.PCIeEfficiency > 0 && h.PCIeEfficiency <= 1) {
		return trace.Errorf(BadHardware, "hardware pcie_efficiency: got %g, want in (0, 1]", h.PCIeEfficiency)
	}
	if d.TP > 1 && !isPositive(h.InterconnectBandwidthGBs) {
		return trace.Errorf(BadHardware, "hardware interconnect_bandwidth_gb_s: got %g, want > 0 GB/s at tensor_parallel_size %d",
			h.InterconnectBandwidthGBs, d.TP)
	}
	if d.Engine.CPUOffloading && !isPositive(h.PCIeBandwidthGBs) {
		return trace.Errorf(BadHardware, "hardware pcie_bandwidth_gb_s: got %g, want > 0 GB/s with cpu_offloading", h.PCIeBandwidthGBs)
	}
	if !(h.InterconnectLatencyUs >= 0) || h.InterconnectLatencyUs > maxRate {
		return trace.Errorf(BadHardware, "hardware interconnect_latency_us: got %g, want >= 0 us", h.InterconnectLatencyUs)
	}
	return nil
}

// maxRate is far above any datasheet and below overflow.
const maxRate = 1e15

func isPositive(v float64) bool { return v > 0 && v <= maxRate }

// Upper bounds of knobs: far above any server, and low enough that products of
// blocks, tokens and sequences stay exact.
const (
	maxDevices   = 1 << 16
	maxSeqs      = 1 << 20
	maxTokens    = 1 << 31
	maxBlockSize = 1 << 16
	MaxKVBlocks  = 1 << 24 // five times what eight B200 hold of a model of 100 M parameters in blocks of one token
)

func (e *Engine) checkBounds() error {
	for _, k := range []struct {
		name       string
		value, max int64
	}{{"max_num_batched_tokens", e.MaxNumBatchedTokens, maxTokens}, {"max_num_seqs", e.MaxNumSeqs, maxSeqs},
		{"block_size", e.BlockSize, maxBlockSize},
		{"max_model_len", e.MaxModelLen.V, maxTokens}, {"kv_blocks_total_gpu", e.KVBlocksGPU.V, MaxKVBlocks},
		{"kv_blocks_total_cpu", e.KVBlocksCPU, MaxKVBlocks}, {"long_prefill_token_threshold", e.LongPrefillThreshold, maxTokens}} {
		if k.value > k.max {
			return trace.Errorf(BadKnobs, "%s: got %d, want at most %d", k.name, k.value, k.max)
		}
	}
	return nil
}

func (e *Engine) check() error {
	if e.MaxNumBatchedTokens <= 0 {
		return trace.Errorf(BadKnobs, "max_num_batched_tokens: got %d, want > 0 tokens", e.MaxNumBatchedTokens).
			WithHint("give --max-num-batched-tokens as the server printed it at start")
	}
	if e.MaxNumSeqs <= 0 {
		return trace.Errorf(BadKnobs, "max_num_seqs: got %d, want > 0 requests", e.MaxNumSeqs).WithHint("give --max-num-seqs")
	}
	if e.BlockSize <= 0 {
		return trace.Errorf(BadKnobs, "block_size: got %d, want > 0 tokens", e.BlockSize).WithHint("give --block-size")
	}
	if e.KVBlocksGPU.OK && e.KVBlocksGPU.V < 0 || e.KVBlocksCPU < 0 {
		return trace.Errorf(BadKnobs, "kv_blocks_total: got %d on GPU and %d on CPU, want >= 0 blocks", e.KVBlocksGPU.V, e.KVBlocksCPU)
	}
	return e.checkBounds()
}

// Parallel is how the deployment spreads its model.
func (d *Deployment) Parallel() Parallel {
	e := &d.Engine
	p := Parallel{TP: max(1, d.TP), PP: max(1, d.PP), DP: max(1, d.DP), Experts: e.ExpertParallel, Redundant: e.redundantExperts(),
		OneGroup: e.Extra["disable_hybrid_kv_cache_manager"] == true, NoPrefixes: !e.PrefixCaching}
	p.Release, _ = e.Release()
	backend := strings.ToUpper(fmt.Sprint(e.Extra["attention_backend"], e.Extra["attention_config"]))
	p.Block, p.PlainCache = e.BlockSize, strings.Contains(backend, "FLASHINFER_MLA_SPARSE_DSV4")
	if s, err := e.Speculation(); err == nil && s != nil {
		p.Drafts, p.MTP = s.Tokens, s.Method == "mtp"
	}
	return p
}

// CheckStepTimes is nil where a specification can say the deployment's steps: those up to 1.2, else (layered) 1.3.
func (d *Deployment) CheckStepTimes() (layered bool, err error) {
	if err = d.CheckSupported(); err == nil {
		return false, nil
	}
	if own := d.CheckLayers(); own == nil || d.Model.Layered != nil {
		return true, own
	}
	return false, err
}

// shipped is the model's layers with their quantization, where config.json was read.
func (m *Model) shipped() *Decoder {
	if m.Layered == nil && m.Decoder != nil {
		return m.Decoder
	}
	return m.Layers()
}

// CheckLayers applies the rules of spec 1.3 alone (spec#supported): what vLLM would load, with attention within a few
// reaches. Codes: those of [Limits] that are refused, bad_knobs, bad_model.
func (d *Deployment) CheckLayers() error {
	if err := d.refused(true); err != nil {
		return err
	}
	layers := d.Model.shipped()
	if err := layers.Loads(d.Parallel()); err != nil {
		return err
	}
	if w := layers.Work(d.Parallel()); len(w.Reaches()) > MaxReaches {
		return trace.Errorf(BadModel, "model layers: got attention of %d windows and indexes, want at most %d", len(w.Reaches()), MaxReaches)
	}
	return d.checkOffload()
}

func (d *Deployment) checkOffload() error {
	switch e := &d.Engine; {
	case e.CPUOffloading && d.Model.Layered != nil:
		return trace.Errorf(UnsupportedEngine, "cpu_offloading: got true with layers whose caches differ, want false").
			WithHint("blocks of such models are not alike on both sides; trace a server without the CPU tier")
	case e.CPUOffloading && e.KVBlocksGPU.Or(0) <= 0:
		return trace.Errorf(BadKnobs, "kv_blocks_total_gpu: got %s, want > 0 blocks with cpu_offloading", optInt(e.KVBlocksGPU))
	}
	return nil
}

// CheckSupported applies the rules of specs 1.1 and 1.2 alone (spec#supported). Codes: those
// of [Limits] that are refused, tp_heads, tp_kv_heads, bad_model, bad_knobs, unsupported_model.
func (d *Deployment) CheckSupported() error {
	if err := d.refused(false); err != nil {
		return err
	}
	m := &d.Model
	if why := m.WhyLayered(); why != "" {
		return trace.Errorf(unsupportedModel, "model %s: %s, want full grouped-query attention and an MLP or experts, alike in all layers",
			m.ID, why).WithHint("spec 1.3 adds up unlike layers: --spec 1.3")
	}
	switch {
	case m.NumHeads%d.TP != 0:
		return trace.Errorf(BadKnobs, "tensor_parallel_size: got %d, want a divisor of %d attention heads", d.TP, m.NumHeads)
	case m.NumKVHeads%d.TP != 0 && d.TP%m.NumKVHeads != 0:
		return trace.Errorf(BadKnobs, "tensor_parallel_size: got %d, want a divisor or a multiple of %d KV heads", d.TP, m.NumKVHeads)
	case m.HeadDim <= 0:
		return trace.Errorf(BadModel, "model head_dim: got %d, want > 0", m.HeadDim)
	case m.IsMoE() && (m.NumMoELayers < 1 || m.NumMoELayers > m.NumLayers):
		return trace.Errorf(BadModel, "model num_moe_layers: got %d, want 1..%d", m.NumMoELayers, m.NumLayers)
	case m.IsMoE() && (m.MoEIntermediateSize <= 0 || m.SharedExpertSize < 0):
		return trace.Errorf(BadModel, "model expert widths: got %d routed and %d shared, want > 0 and >= 0", m.MoEIntermediateSize,
			m.SharedExpertSize)
	}
	if err := d.checkOffload(); err != nil {
		return err
	}
	if m.Decoder != nil {
		if err := m.Decoder.Loads(d.Parallel()); err != nil {
			return err
		}
	}
	return allPositive(BadModel, "model", " B", rate{"bytes_per_weight", m.BytesPerWeight}, rate{"bytes_per_kv", m.BytesPerKV},
		rate{"bytes_per_activation", m.BytesPerActivation}, rate{"bytes_per_lm_head", m.BytesPerLMHead})
}

// rate is a named figure that must be positive.
type rate struct {
	name  string
	value float64
}

func allPositive(code trace.Code, of, unit string, rates ...rate) error {
	for _, r := range rates {
		if !isPositive(r.value) {
			return trace.Errorf(code, "%s %s: got %g, want > 0%s", of, r.name, r.value, unit)
		}
	}
	return nil
}

// Codes of run.yaml and what stands beside it, of loading models and of checking deployments.
const (
	missingRunYAML  trace.Code = "missing_run_yaml"
	badRunYAML      trace.Code = "bad_run_yaml"
	unknownKey      trace.Code = "unknown_key"
	BadSetting      trace.Code = "bad_setting"
	missingConfig   trace.Code = "missing_config"
	unknownHardware trace.Code = "unknown_hardware"
	badCommandLine  trace.Code = "bad_command_line"
	UnknownFlag     trace.Code = "unknown_flag"
	asyncAssumed    trace.Code = "async_assumed"
	kvBlocksAssumed trace.Code = "kv_blocks_assumed"

	BadModel             trace.Code = "bad_model"
	unsupportedModel     trace.Code = "unsupported_model"
	architectureAssumed  trace.Code = "architecture_assumed"
	fullAttentionAssumed trace.Code = "full_attention_assumed"

	BadHardware       trace.Code = "bad_hardware"
	BadKnobs          trace.Code = "bad_knobs"
	UnsupportedEngine trace.Code = "unsupported_engine"
	notModelled       trace.Code = "not_modelled"
)

// optInt prints an optional count for a message.
func optInt(o trace.Opt[int64]) string {
	if !o.OK {
		return "none"
	}
	return strconv.FormatInt(o.V, 10)
}
