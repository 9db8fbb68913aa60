package extract

// This file finds the cached tokens of client requests from an engine's log, where usage does not
// state them: package pairing counts tokens to find the pass of the log in which each prompt ended,
// and the counters of /metrics bound what was cached (spec#counted-hits).

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/pairing"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
	"github.com/blis-train/blis-train/vllm"
)

// findCached finds for each client request the pass of the log in which its prompt ended, and its
// cached tokens, by counting (package pairing) and with the counters of /metrics
// (spec#counted-hits).
func (x *extraction) findCached(streaming source.Options) error {
	answers, err := x.counters(streaming)
	if err != nil {
		return err
	}
	x.drafts = x.countDrafts(answers)
	for i := range x.observed {
		if r := &x.observed[i]; r.CachedTokens.OK {
			r.CachedSource = trace.Some(trace.CachedUsage)
		}
	}
	e := &x.dep.Engine
	if len(x.observed) == 0 || !e.PrefixCaching && len(x.lives) == 0 {
		return nil
	}
	if why := uncountable(e); why != "" && len(x.lives) > 0 {
		x.clients = append(x.clients, trace.Findingf(codeIncomplete,
			"%s, so the cached tokens of prompts cannot be found from the log; start vLLM with "+
				"--enable-prompt-tokens-details, with which its usage states them", why))
		return nil
	}
	// Answers of /metrics without a single hit prove that nothing was cached; without any answer there
	// may be hits.
	hasHits := len(answers) == 0
	isSGLang := len(x.lives) > 0 && strings.HasPrefix(x.lives[0].Engine, trace.IterationSGLang)
	for _, c := range answers {
		if c.Hits > 0 {
			hasHits = true
		}
		if c.IsSGLang {
			isSGLang = true
		}
	}
	rules := pairing.Rules{ // how the engine cuts prompts into passes
		Block:       e.BlockSize,
		Budget:      e.MaxNumBatchedTokens,
		Chunked:     e.ChunkedPrefill,
		Caching:     e.PrefixCaching && hasHits,
		Speculative: e.SpeculativeDecoding,
		Ahead:       e.IsAsync(),
	}
	if isSGLang { // its radix cache has pages of one token by default
		rules.Block = 1
	}
	g, err := pairing.Pair(x.observed, rules, len(x.lives), x.inLogOrder)
	if err != nil || g == nil { // nil: there is nothing to pair
		return err
	}
	// Some clients count prompt tokens without the chat template. If another count explains the log,
	// the lengths are corrected and paired again.
	lengths, recounted, err := pairing.Recount(x.observed, rules, len(x.lives), g.Paired, x.inLogOrder)
	if err != nil {
		return err
	}
	if lengths != nil {
		x.clients = append(x.clients, trace.Findingf(clients.CodeClientFile, "%s", recounted))
		for i := range x.observed {
			x.observed[i].PromptTokens.V = lengths[i]
		}
		if g, err = pairing.Pair(x.observed, rules, len(x.lives), x.inLogOrder); err != nil {
			return err
		}
	}
	if g.Unpaired > 0 {
		x.clients = append(x.clients, trace.Findingf(clients.CodeClientFile,
			"none of the %d requests could be paired with a prompt of the log: they are of another run, some are there twice, or their lengths are wrong", g.Unpaired))
	}
	if g.Exceptions > 0 {
		x.clients = append(x.clients, trace.Findingf(clients.CodeClientFile,
			"%d prompts are in the log alone or in the client's file alone; the %d around them are paired all the same",
			g.Exceptions, g.Paired))
	}
	g.Fill() // before dropLateFirst, which reads the passes that it stores in the requests
	if err := x.dropLateFirst(); err != nil {
		return err
	}
	x.clients = append(x.clients, g.Check(answers)...)
	if e.SpeculativeDecoding && len(x.lives) > 0 {
		x.clients = append(x.clients, trace.Findingf(clients.CodeClientFile, "%s", g.Drafts(answers)))
	}
	if len(x.spans.cores) == 0 { // journeys are a better source
		x.clients = append(x.clients, g.Rate(x.logs.Statistics)...)
	}
	x.paired = g
	if len(x.lives) > 0 {
		x.clients = append(x.clients, g.Preempted(answers)...)
	}
	lost := 0
	for _, a := range g.Account(0) { // of all engines together, by phase
		lost += a.Unpaired
	}
	if lost > 0 && len(x.lives) > 0 && e.PrefixCaching {
		x.clients = append(x.clients, trace.Findingf(codeIncomplete,
			"the passes of %d of %d prompts are not found by counting (passes lost, other clients, failed "+
				"requests, preemption): their cached tokens are unknown", lost, len(x.observed)))
	}
	return nil
}

// countCached sums the cached tokens of the requests of each engine, or of all requests if they are
// not divided among engines.
func (x *extraction) countCached() {
	if x.paired == nil || !x.dep.Engine.PrefixCaching {
		return
	}
	if len(x.served) == 0 {
		x.cachedSum = [][]result.CachedTokens{x.paired.Account(0)} // 0: every engine
		return
	}
	for i := range x.served {
		x.cachedSum = append(x.cachedSum, x.paired.Account(int64(i)+1)) // engines count from 1
	}
}

// uncountable returns the setting of the engine because of which cached tokens cannot be found by
// counting; "" if there is none. Counting treats the prompt tokens that no pass computed as cached
// ones, which these settings make wrong.
func uncountable(e *vllm.Engine) string {
	switch partialPrefills, _ := vllm.Number(e.Extra["max_num_partial_prefills"]); {
	case e.LongPrefillThreshold > 0:
		return "long_prefill_token_threshold cuts prompts in passes that are not full"
	case partialPrefills > 1:
		return "max_num_partial_prefills lets several prompts go on at once"
	case e.CPUOffloading || e.Extra["kv_transfer_config"] != nil:
		return "KV that is loaded from elsewhere (cpu_offloading, kv_transfer_config) looks like a hit in the prefix cache"
	}
	return ""
}

// counters returns the answers of /metrics in the run folder, without those that have no counts of
// the prefix cache.
func (x *extraction) counters(how source.Options) (out []enginelog.Counters, err error) {
	for i := range x.inputs.metrics {
		in := &x.inputs.metrics[i]
		list, err := enginelog.ReadCounters(in, how)
		if err != nil {
			return nil, err
		}
		x.acc.Read++ // a file of metrics counts as one record
		in.Gave++
		if len(list) == 0 {
			x.acc.Drop(codeIgnoredSignal, 1, source.Place{File: in.Name},
				"metrics without the counts of the prefix cache's queries and hits")
			continue
		}
		x.acc.Keep(1)
		out = append(out, list...)
	}
	return out, x.acc.Err
}

// countDrafts returns what the server counted of speculative decoding: the lines of its log, else the
// answer of /metrics with the most drafts, which is the last. It returns nil where neither counts any.
func (x *extraction) countDrafts(answers []enginelog.Counters) *result.DraftCounts {
	if !x.dep.Engine.SpeculativeDecoding {
		return nil
	}
	if x.logs != nil && x.logs.Drafts.Drafted > 0 {
		return &result.DraftCounts{
			DraftedTokens:  x.logs.Drafts.Drafted,
			AcceptedTokens: x.logs.Drafts.Accepted,
			Source:         "the log",
		}
	}
	var last *enginelog.Counters // counters only grow, so the largest is the last
	for i := range answers {
		if c := &answers[i]; c.Drafted > 0 && (last == nil || c.Drafted > last.Drafted) {
			last = c
		}
	}
	if last == nil {
		return nil
	}
	return &result.DraftCounts{DraftedTokens: last.Drafted, AcceptedTokens: last.Accepted, Source: last.Name}
}

// inLogOrder calls add with the iterations of all engines in the order of the logs, merged by their
// position in the file, because engines behind one server may write to one log. engine is the index
// in x.lives.
func (x *extraction) inLogOrder(add func(engine int, iteration *trace.Iteration)) error {
	place := map[string]int{} // of each file in reading order
	for i, in := range slices.Concat(x.inputs.logs, x.inputs.passes) {
		place[in.Name] = i
	}
	// Merge: heads has the next iteration of each engine; nil once its table is read to the end, and
	// Line -1 when the next one still has to be read.
	next := make([]func() (trace.Iteration, error, bool), len(x.lives))
	heads := make([]*trace.Iteration, len(x.lives))
	for i, l := range x.lives {
		pull, stop := iter.Pull2(fileRows[trace.Iteration](l.Dir, table.Iterations, x.o.Format))
		defer stop()
		next[i] = pull
		heads[i] = &trace.Iteration{Line: -1}
	}
	comesBefore := func(a, b *trace.Iteration) bool {
		return cmp.Or(cmp.Compare(place[a.File], place[b.File]), cmp.Compare(a.Line, b.Line)) < 0
	}
	for {
		first := -1
		for i, head := range heads {
			if head != nil && head.Line < 0 { // the last iteration of this engine was used
				iteration, err, ok := next[i]()
				if err != nil {
					return err
				}
				head = nil
				if ok {
					head = &iteration
				}
				heads[i] = head
			}
			if head != nil && (first < 0 || comesBefore(head, heads[first])) {
				first = i
			}
		}
		if first < 0 {
			return nil
		}
		add(first, heads[first])
		heads[first] = &trace.Iteration{Line: -1}
	}
}
