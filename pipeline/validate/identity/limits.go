package identity

// This file compares the batches that the engine formed with the limits of its scheduler. A reading
// (identity.go) has what was compared, how much of it contradicts, and a sentence.

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Tolerances of the scheduler's limits.
const (
	mostUnreasoned    = 0.1  // share of the steps that leave requests waiting without a reason
	fewestWaiting     = 10   // such steps
	overSeqs          = 1.1  // times max_num_seqs that may be between first and last token, by clients' clocks
	slackSeqs         = 2    // requests that may be more than that
	mostTimeOverSeqs  = 0.02 // share of the time
	mostOfPoolClients = 0.9  // of the KV cache, above which preempted requests may be among them
)

// otherReasonsToWait are flags of `vllm serve`, of those without a field of vllm.Engine, that keep requests waiting or
// cut prompts while there is room. mostSeqs and mostTokens have the ones that state what there is room for;
// long_prefill_token_threshold only cuts prompts, and scheduling_policy only changes their order.
var otherReasonsToWait = []string{
	"max_num_partial_prefills", "max_long_partial_prefills", "prefill_schedule_interval", "scheduler_delay_factor", "watermark",
	"watermark_config", "enable_lora", "lora_modules", "kv_transfer_config", "kv_offloading_size", "scheduler_cls",
}

// A schedulerLimit is a limit of what runs in a step, with the key of run.yaml that states it.
type schedulerLimit struct {
	key  string
	most int64 // 0: not known
}

// String returns the limit as sentences have it.
func (l schedulerLimit) String() string { return fmt.Sprintf("%s %d", l.key, l.most) }

// tighter returns the smaller of two limits that are known.
func (l schedulerLimit) tighter(other schedulerLimit) schedulerLimit {
	if other.most > 0 && (l.most <= 0 || other.most < l.most) {
		return other
	}
	return l
}

// mostSeqs returns how many requests a server like that of run.yaml runs at once.
func (f *facts) mostSeqs() schedulerLimit {
	limit := schedulerLimit{"max_num_seqs", f.dep.Engine.MaxNumSeqs}
	if rules, err := f.dep.Engine.Rules(); err == nil { // those of its release: an earlier one has no such key
		limit = limit.tighter(schedulerLimit{"max_num_active_seqs", rules.MaxNumActiveSeqs})
	}
	return limit
}

// mostTokens returns how many tokens such a server computes in a step.
func (f *facts) mostTokens() schedulerLimit {
	limit := schedulerLimit{"max_num_batched_tokens", f.dep.Engine.MaxNumBatchedTokens}
	scheduled, _ := vllm.Number(f.dep.Engine.Extra[scheduledTokens])
	return limit.tighter(schedulerLimit{scheduledTokens, int64(scheduled)})
}

// scheduledTokens is a key of vllm: the tokens of a step, where max_num_batched_tokens is the size of buffers.
const scheduledTokens = "max_num_scheduled_tokens"

// Tolerances of ranks.
const (
	fewestJoined  = 20  // requests of an engine with their API span
	mostElsewhere = 0.1 // API spans without a journey, which another engine may have, for each with one
	atOnceOfRank  = 2   // requests for each rank that run or wait in one engine at once
)

// engineRanks looks for other data-parallel ranks beside the recorded engine. The balancer gives a request to the rank
// with the fewest (vllm/v1/engine/core_client.py: DPLBAsyncMPClient), so that no rank has several while another has none.
// Where one engine has all requests of its API server, there are no other ranks. largest is how many requests it has at
// once.
func engineRanks(f *facts) reading {
	ranks, _ := f.dep.Balanced()
	if ranks < 2 {
		return notChecked("run.yaml states one rank behind an API server")
	}
	if slices.ContainsFunc(f.Findings, func(w trace.Finding) bool { return w.Code == source.CodeSeveralEngines }) {
		return notChecked("the recording has several engine runs")
	}
	var r reading
	elsewhere := 0
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		switch {
		case q.Source == trace.SourceStock || !q.APIID.OK:
		case q.CoreID.OK:
			r.checked++
		default:
			elsewhere++
		}
	}
	for i := range f.run.Steps {
		r.largest = math.Max(r.largest, float64(f.run.Steps[i].RunningDepth+f.run.Steps[i].WaitingDepth))
	}
	if f.run.Aggregate != nil || r.checked < fewestJoined || r.largest < float64(atOnceOfRank*ranks) {
		return notChecked("fewer than %d requests with API span and journey, or than %d in a step", fewestJoined, atOnceOfRank*ranks)
	}
	r.broken = float64(elsewhere) <= mostElsewhere*float64(r.checked)
	if r.broken {
		r.violated = r.checked
	}
	r.sentence = fmt.Sprintf("run.yaml states data_parallel_size %d, and one engine has %d of the %d requests of its API server, up to %.0f at once: the server had one "+
		"rank, or the recording is that of one rank, which is described with data_parallel_size 1", f.dep.DP, r.checked, r.checked+elsewhere, r.largest)
	return r
}

// modelLen compares the tokens of each request with max_model_len (vllm/v1/engine/input_processor.py refuses longer
// prompts, and vllm/v1/core/sched/utils.py: check_stop() ends outputs there). largest is the ratio of the two.
func modelLen(f *facts) reading {
	most := f.dep.MaxModelLen()
	if !most.OK {
		return notChecked("max_model_len is not known")
	}
	var r reading
	compare := func(prompt, output, n trace.Opt[int64]) {
		if !prompt.OK {
			return
		}
		tokens := prompt.V + output.V/max(1, n.Or(1))
		r.checked++
		over := float64(tokens-most.V) - slackTokens
		if over > slackShare*float64(most.V) {
			r.violated++
		}
		r.largest = math.Max(r.largest, float64(tokens)/float64(most.V))
	}
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		compare(q.PromptTokens, q.OutputTokens, trace.Opt[int64]{}) // those of one sample
	}
	for i := range f.run.Observed {
		if o := &f.run.Observed[i]; o.Success.Or(true) {
			compare(o.PromptTokens, o.OutputTokens, o.N)
		}
	}
	r.broken = float64(r.violated) > mostBackwards*float64(r.checked)
	r.sentence = fmt.Sprintf("%d of %d requests have more prompt and output tokens than max_model_len %d, up to %.3g times: the server had a larger one, "+
		"or lengths are not in tokens", r.violated, r.checked, most.V, r.largest)
	return r
}

// Tolerances of the largest steps.
const (
	fewestFull   = 5 // steps with as many tokens as any
	fewestCounts = 3 // numbers of decodes among them
)

// budgetReached looks for a number of tokens below max_num_batched_tokens that no step exceeds and that steps with
// prompts reach beside different numbers of decodes. Only a limit of the server cuts prompts so
// (vllm/v1/core/sched/scheduler.py: schedule(), token_budget). violated counts the steps that reach it, and largest is
// the ratio of the stated limit to it.
func budgetReached(f *facts) reading {
	var r reading
	most := int64(0)
	full := 0
	decodes := map[int64]bool{} // numbers of them in the largest steps
	add := func(tokens, decoding, prompts int64) {
		if tokens == 0 {
			return
		}
		r.checked++
		if tokens > most {
			most, full = tokens, 0
			clear(decodes)
		}
		if tokens == most && prompts > 0 {
			full++
			decodes[decoding] = true
		}
	}
	if len(f.run.Iterations) > 0 {
		for i := range f.run.Iterations {
			it := &f.run.Iterations[i]
			add(it.ContextTokens+it.GenerationTokens, it.GenerationTokens, it.ContextReqs)
		}
	} else {
		for i := range f.run.Steps {
			s := &f.run.Steps[i]
			add(int64(s.ScheduledTokens), int64(s.DecodeTokens), int64(s.NumPrefillReqs))
		}
	}
	stated := f.mostTokens()
	r.largest = float64(stated.most) / float64(max(1, most))
	r.broken = most < stated.most && full >= fewestFull && len(decodes) >= fewestCounts
	if r.broken {
		r.violated = full
	}
	r.sentence = fmt.Sprintf("%d steps with %d different numbers of decodes have exactly %d tokens and none has more: the server's %s was "+
		"that, run.yaml says %d", full, len(decodes), most, stated.key, stated.most)
	return r
}

// waitingReason looks for steps that leave requests waiting although every limit of the scheduler leaves room
// (vllm/v1/core/sched/scheduler.py: schedule(), the loop over waiting requests): the server's max_num_seqs,
// max_num_batched_tokens or number of blocks is smaller than that of run.yaml. largest is the most requests that such a
// step leaves waiting.
func waitingReason(f *facts) reading {
	if len(f.run.Steps) == 0 || f.run.Aggregate != nil {
		return notChecked("no step summaries")
	}
	e := &f.dep.Engine
	longest := int64(0)
	for i := range f.run.Requests {
		longest = max(longest, f.run.Requests[i].PromptTokens.Or(0))
	}
	if longest == 0 {
		return notChecked("no prompt lengths")
	}
	for _, key := range otherReasonsToWait {
		if e.Extra[key] != nil {
			return notChecked("%s makes requests wait too", key)
		}
	}
	if f.speculates() || !f.hasPlainBlocks() {
		return notChecked("drafts or several kinds of cache make requests wait too")
	}
	if e.CPUOffloading {
		return notChecked("requests also wait for blocks that come from the CPU")
	}
	if waitingDepth(f).broken {
		return notChecked("waiting_depth contradicts the journeys")
	}
	// With chunked prefill one token is enough to start a waiting request; without it the whole prompt
	// has to fit.
	tokens := int64(1) // that the budget has to leave
	if !e.ChunkedPrefill {
		tokens = longest
	}
	needed := (longest+e.BlockSize-1)/max(1, e.BlockSize) + 1 // blocks of the longest prompt and of its first token
	mostSeqs, mostTokens := f.mostSeqs(), f.mostTokens()
	var r reading
	for i := range f.run.Steps {
		step := &f.run.Steps[i]
		if step.WaitingDepth == 0 || step.ScheduledTokens == 0 {
			continue
		}
		r.checked++
		spare := step.BlocksTotal / 50 // for the blocks that the scheduler leaves free (its watermark)
		hasRoom := int64(step.RunningDepth) < mostSeqs.most && int64(step.ScheduledTokens)+tokens <= mostTokens.most &&
			step.BlocksFree >= needed+spare
		if hasRoom {
			r.violated++
			r.largest = math.Max(r.largest, float64(step.WaitingDepth))
		}
	}
	if r.checked < fewestWaiting {
		return notChecked("%d steps leave requests waiting, want %d", r.checked, fewestWaiting)
	}
	r.broken = float64(r.violated) > mostUnreasoned*float64(r.checked)
	r.sentence = fmt.Sprintf("%d of %d steps that leave requests waiting run fewer than %v requests and %v tokens with "+
		"blocks to spare: run.yaml states more than the server had", r.violated, r.checked, mostSeqs, mostTokens)
	return r
}

// parts returns how many steps computed a part of a prompt: prompts begin in the step that have more tokens than it computes
// of prompts, and not all of them have their first token from it. Steps with a prompt of which it is not known what was
// cached, or that was preempted, are not counted.
func (f *facts) parts() int {
	if f.dep.Engine.CPUOffloading {
		return 0 // a prompt may begin with blocks that are still on their way
	}
	steps := f.run.Steps
	type begun struct {
		tokens  int64 // of the prompts that begin in a step
		later   bool  // one of them goes on in a later step
		unknown bool
	}
	byStep := map[int]*begun{} // by index in steps
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		k := q.ScheduledStep.V - steps[0].ID
		if !q.ScheduledStep.OK || k < 0 || k >= int64(len(steps)) || steps[k].ID != q.ScheduledStep.V {
			continue
		}
		b := byStep[int(k)]
		if b == nil {
			b = &begun{}
			byStep[int(k)] = b
		}
		isKnown := q.FirstTokenStep.OK && q.PromptTokens.OK && (q.CachedTokens.OK || !f.dep.Engine.PrefixCaching) && q.Preemptions.Or(0) == 0
		b.tokens += q.PromptTokens.V - q.CachedTokens.V
		b.later = b.later || q.FirstTokenStep.V > q.ScheduledStep.V
		b.unknown = b.unknown || !isKnown
	}
	n := 0
	for k, b := range byStep {
		if b.later && !b.unknown && b.tokens > int64(steps[k].PrefillTokens) {
			n++
		}
	}
	return n
}

// Tolerances of chunks of prompts.
const (
	fewestChunked = 3   // prompts in several chunks
	budgetShare   = 0.9 // of max_num_batched_tokens, from which a step is full
)

// chunkReason looks for prompts that were computed in several steps although the step that began them had tokens left
// (vllm/v1/core/sched/scheduler.py: schedule(), num_new_tokens): max_num_batched_tokens of run.yaml is larger than the
// server's, or the server chunks prompts and run.yaml says it does not. long_prefill_token_threshold cuts the prompts
// that are longer than it, which need no other reason. largest is the share of the tokens that were left.
func chunkReason(f *facts) reading {
	steps := f.run.Steps
	e := &f.dep.Engine
	if len(steps) == 0 || f.run.Aggregate != nil {
		return notChecked("no step summaries")
	}
	for _, key := range otherReasonsToWait {
		if e.Extra[key] != nil {
			return notChecked("%s makes chunks of prompts too", key)
		}
	}
	whole := int64(math.MaxInt64) // steps from the first chunk to the first token of a prompt in one chunk
	for i := range f.run.Requests {
		if q := &f.run.Requests[i]; q.ScheduledStep.OK && q.FirstTokenStep.OK {
			whole = min(whole, q.FirstTokenStep.V-q.ScheduledStep.V)
		}
	}
	mostTokens := f.mostTokens()
	threshold := e.LongPrefillThreshold
	cut := 0
	var r reading
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		k := q.ScheduledStep.V - steps[0].ID
		if !q.ScheduledStep.OK || !q.FirstTokenStep.OK || q.FirstTokenStep.V-q.ScheduledStep.V <= whole || q.Preemptions.Or(0) > 0 || k < 0 ||
			k >= int64(len(steps)) || steps[k].ID != q.ScheduledStep.V {
			continue
		}
		if threshold > 0 && !(q.PromptTokens.OK && q.PromptTokens.V-q.CachedTokens.Or(0) <= threshold) {
			cut++
			continue
		}
		r.checked++
		used := float64(steps[k].ScheduledTokens) / float64(max(1, mostTokens.most))
		if !e.ChunkedPrefill || used < budgetShare {
			r.violated++
			r.largest = math.Max(r.largest, 1-used)
		}
	}
	if n := f.parts(); !e.ChunkedPrefill && n > 0 { // one is enough
		r.checked = max(r.checked, n)
		r.violated = n
		r.broken = true
		r.sentence = fmt.Sprintf("in %d steps prompts begin that have more tokens than the step computes of prompts, and not all get their first token from it: they were computed in "+
			"parts, and run.yaml says enable_chunked_prefill false", n)
		return r
	}
	if r.checked < fewestChunked && cut > 0 {
		return notChecked("long_prefill_token_threshold %d cuts %d prompts in chunks too", threshold, cut)
	}
	if r.checked < fewestChunked {
		return notChecked("%d prompts ran in several chunks, want %d", r.checked, fewestChunked)
	}
	r.broken = 2*r.violated > r.checked
	r.sentence = fmt.Sprintf("%d of %d prompts in several chunks began in a step with tokens left of %v, or run.yaml says "+
		"enable_chunked_prefill false: run.yaml states another budget than the server had", r.violated, r.checked, mostTokens)
	return r
}

// clientLimits compares the requests that are between their first and last token by the clients' clocks with
// max_num_seqs. violated is the most such requests at once, and largest their ratio to it.
func clientLimits(f *facts) reading {
	e := &f.dep.Engine
	if len(f.loads) == 0 || e.MaxNumSeqs <= 0 {
		return notChecked("no requests with times of clients or stock spans")
	}
	type edge struct { // a change: a request gets its first token, or its last
		atUs        float64
		open        float64 // of the requests between first and last token
		base, perUs float64 // of the tokens held at time t: base + perUs*t
	}
	// A request holds its prompt's tokens from the first token on, and its output's at an even rate.
	var edges []edge
	for i := range f.loads {
		l := &f.loads[i]
		first, last := l.sentUs+l.ttftUs, l.sentUs+l.e2eUs
		if !(last > first) {
			continue
		}
		perUs := l.output / (last - first)
		base := l.prompt - perUs*first
		edges = append(edges,
			edge{atUs: first, open: 1, base: base, perUs: perUs},
			edge{atUs: last, open: -1, base: -base, perUs: -perUs})
	}
	stat.SortStable(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.atUs, b.atUs), cmp.Compare(a.open, b.open)) })
	dp := float64(max(1, f.dep.DP))
	most := dp * (overSeqs*float64(e.MaxNumSeqs) + slackSeqs)
	poolTokens := math.Inf(1)
	if blocks, _, err := f.dep.KVBlocks(); err == nil {
		poolTokens = mostOfPoolClients * dp * float64(blocks*e.BlockSize)
	}
	// Walk through the edges: how long were more requests between first and last token than run.yaml
	// allows? Time in which the KV cache may be full does not count: preempted requests wait there.
	var now edge // sums of the changes so far
	var busyUs, overUs, largest float64
	for k, change := range edges {
		if k > 0 && now.open > 0 {
			us := change.atUs - edges[k-1].atUs
			busyUs += us
			if held := now.base + now.perUs*change.atUs; now.open > most && held < poolTokens {
				overUs += us
				largest = math.Max(largest, now.open)
			}
		}
		now.open += change.open
		now.base += change.base
		now.perUs += change.perUs
	}
	r := reading{checked: len(edges) / 2, largest: largest / dp / float64(e.MaxNumSeqs)}
	if overUs > mostTimeOverSeqs*busyUs {
		r.broken = true
		r.violated = int(largest)
	}
	r.sentence = fmt.Sprintf("up to %.0f requests are between their first and last token at once, max_num_seqs in run.yaml is %d: the server had more",
		largest, e.MaxNumSeqs)
	return r
}
