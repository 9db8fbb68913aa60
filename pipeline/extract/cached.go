package extract

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/forms"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// cached finds the pass in which each client's prompt ended and how much of it the prefix
// cache held, from the passes of the log and the counters of /metrics (spec#counted-hits).
func (x *extraction) cached(how source.Options) error {
	answers, err := x.counters(how)
	if err != nil {
		return err
	}
	for i := range x.obs {
		if r := &x.obs[i]; r.CachedTokens.OK {
			r.CachedSource = trace.Some(trace.CachedUsage)
		}
	}
	e := &x.dep.Engine
	if len(x.obs) == 0 || !e.PrefixCaching && len(x.lives) == 0 {
		return nil
	}
	if why := uncountable(e); why != "" && len(x.lives) > 0 {
		x.clients = append(x.clients, trace.Findingf(codeIncomplete, "%s: what of prompts was cached cannot be told from the log; ask for usage "+
			"with --enable-prompt-tokens-details", why))
		return nil
	}
	noHits := len(answers) > 0 && !slices.ContainsFunc(answers, func(c forms.Counters) bool { return c.Hits > 0 })
	rules := forms.PairRules{Block: e.BlockSize, Budget: e.MaxNumBatchedTokens, Chunked: e.ChunkedPrefill, Caching: e.PrefixCaching && !noHits,
		Speculative: e.SpeculativeDecoding, Ahead: e.IsAsync()}
	if len(x.lives) > 0 && strings.HasPrefix(x.lives[0].Engine, trace.IterationSGLang) ||
		slices.ContainsFunc(answers, func(c forms.Counters) bool { return c.IsSGLang }) {
		rules.Block = 1
	}
	g, err := forms.PairRequests(x.obs, rules, len(x.lives), x.inLogOrder)
	if err != nil || g == nil {
		return err
	}
	g.Fill()
	x.clients = append(x.clients, g.Check(answers)...)
	if e.SpeculativeDecoding && len(x.lives) > 0 {
		x.clients = append(x.clients, trace.Findingf(forms.CodeClientFile, "%s", g.Drafts(answers)))
	}
	if len(x.col.cores) == 0 { // else journeys tell
		x.clients = append(x.clients, g.Rate(x.iter.Rates)...)
	}
	x.paired = g
	if len(x.lives) > 0 {
		x.clients = append(x.clients, g.Preempted(answers)...)
	}
	if lost := stat.Sum(g.Account(0), func(a result.CachedTokens) int { return a.Unpaired }); lost > 0 && len(x.lives) > 0 && e.PrefixCaching {
		x.clients = append(x.clients, trace.Findingf(codeIncomplete, "the passes of %d of %d prompts are not found by counting (passes lost, "+
			"other clients, failed requests, preemption): what the prefix cache gave them is not known", lost, len(x.obs)))
	}
	return nil
}

// account sums up what the prefix cache gave the requests that each engine keeps.
func (x *extraction) account() {
	if x.paired == nil || !x.dep.Engine.PrefixCaching {
		return
	}
	x.told = append(x.told, x.paired.Account(0))
	for i := range x.served {
		x.told = append(x.told[:i], x.paired.Account(int64(i)+1))
	}
}

// uncountable names what makes passes hold other tokens than the parts of prompts that were in no cache.
func uncountable(e *deploy.Engine) string {
	switch n, _ := e.Extra["max_num_partial_prefills"].(float64); {
	case e.LongPrefillThreshold > 0:
		return "long_prefill_token_threshold cuts prompts in passes that are not full"
	case n > 1:
		return "max_num_partial_prefills lets several prompts go on at once"
	case e.CPUOffloading || e.Extra["kv_transfer_config"] != nil:
		return "KV that is loaded from elsewhere (cpu_offloading, kv_transfer_config) looks like a hit in the prefix cache"
	}
	return ""
}

// counters reads the answers of /metrics in the run folder.
func (x *extraction) counters(how source.Options) (out []forms.Counters, err error) {
	for i := range x.set.metrics {
		in := &x.set.metrics[i]
		c, ok, err := forms.ReadCounters(in, how)
		if err != nil {
			return nil, err
		}
		x.acc.Read++
		in.Gave++
		if !ok {
			x.acc.Drop(codeIgnoredSignal, 1, source.Place{File: in.Name}, "metrics without the counts of the prefix cache's queries and hits")
			continue
		}
		x.acc.Keep(1)
		out = append(out, c)
	}
	return out, x.acc.Err
}

// serve gives the clients' requests to the engines that served them, where logs hold several
// and no step traces tell: phase by phase, where the counts leave one way for nearly all.
// The others, and spans that name no engine, are in no table: a replay would meet another
// engine's load.
func (x *extraction) serve() {
	if len(x.lives) < 2 || len(x.col.engines)+len(x.col.cores) > 0 {
		return
	}
	drop := func(n int64, what string) {
		if n > 0 {
			x.acc.Keep(-n)
			x.acc.Drop(codeSeveralEngines, n, source.Place{File: x.lives[0].Engine}, "%s", what)
			x.clients = append(x.clients, trace.Findingf(codeSeveralEngines, "%d %s: they are in no table, and no replay has them", n, what))
		}
	}
	drop(int64(len(x.col.apis)), "spans of requests do not name which of the engines served them")
	x.col.apis = nil
	unknown, all := map[string]int64{}, map[string]int64{}
	for i := range x.obs {
		r := &x.obs[i]
		if all[r.Phase.V]++; !r.Engine.OK {
			unknown[r.Phase.V]++
		}
	}
	x.served = make([][]trace.ObservedRequest, len(x.lives))
	left := map[string]int64{}
	for i := range x.obs {
		r := &x.obs[i]
		if p := r.Phase.V; !r.Engine.OK || float64(unknown[p]) > trace.MostGuessed*float64(all[p]) {
			r.Engine = trace.Opt[int64]{}
			left[p]++
		} else {
			x.served[r.Engine.V-1] = append(x.served[r.Engine.V-1], *r)
		}
	}
	for _, phase := range slices.Sorted(maps.Keys(left)) {
		drop(left[phase], fmt.Sprintf("of %d requests of phase %q: the passes of the engines do not tell for %d which engine served them",
			all[phase], phase, unknown[phase]))
	}
	for _, rows := range x.served {
		slices.SortStableFunc(rows, func(a, b trace.ObservedRequest) int {
			return cmp.Or(cmp.Compare(sendTime(&a), sendTime(&b)), cmp.Compare(a.ID, b.ID))
		})
	}
	x.obs = x.served[0]
}

// lockstep makes one run of the logs of data-parallel ranks whose model has experts: a pass begins and ends on all of
// them, so it takes as long as on the rank with the most tokens, whose row stands for it (spec#wire-lives). Code:
// several_engines where ranks are missing, whose load nobody knows, or the release does not log passes without load.
func (x *extraction) lockstep() error {
	n, lives := int(x.dep.DP), x.lives
	if n < 2 || !x.dep.Model.IsMoE() || len(lives)+len(x.col.engines) == 0 {
		return nil
	}
	engines := len(slices.CompactFunc(slices.Clone(lives), func(a, b *forms.Life) bool { return a.Engine == b.Engine }))
	v, known := x.dep.Engine.Release()
	switch {
	case len(lives) == 0:
		return trace.Errorf(codeSeveralEngines, "got step traces of %d data-parallel ranks in lockstep, whose steps no number joins, want "+
			"the logs of all ranks", n).WithHint("start vLLM with --enable-logging-iteration-details and --api-server-count 1")
	case engines != n || len(lives)%n != 0:
		return trace.Errorf(codeSeveralEngines, "got logs of %d ranks and %d starts, want all %d of data_parallel_size: a pass lasts as long as "+
			"on the slowest rank", engines, len(lives), n).WithHint("start vLLM with --api-server-count 1, which logs every rank, and keep all logs")
	case known && v[0] == 0 && v[1] < 23:
		return trace.Errorf(codeSeveralEngines, "got vLLM %s, want 0.23 or newer: before, ranks do not log the passes in which they have no load",
			x.dep.Engine.VLLMVersion)
	}
	x.lives = nil
	for k := range len(lives) / n {
		var ranks []*forms.Life
		for i := k; i < len(lives); i += len(lives) / n {
			ranks = append(ranks, lives[i])
		}
		all, err := x.slowest(ranks, filepath.Join(x.stage, "ranks."+strconv.Itoa(k)))
		if err != nil {
			return err
		}
		x.lives = append(x.lives, all)
	}
	return nil
}

// slowest writes the passes that all ranks have.
func (x *extraction) slowest(ranks []*forms.Life, dir string) (*forms.Life, error) {
	out, err := table.Create[trace.Iteration](dir, table.Iterations, x.o.Format)
	if err != nil {
		return nil, err
	}
	next, heads := make([]func() (trace.Iteration, error, bool), len(ranks)), make([]trace.Iteration, len(ranks))
	for i, l := range ranks {
		pull, stop := iter.Pull2(fileRows[trace.Iteration](l.Dir, table.Iterations, x.o.Format))
		defer stop()
		next[i], heads[i].Index = pull, -1
	}
	all, last := &forms.Life{Engine: ranks[0].Engine, Dir: dir}, int64(-1)
	for at := int64(0); ; {
		most := &heads[0]
		for i := range heads {
			h, ok := &heads[i], true
			for ok && h.Index < at {
				*h, err, ok = next[i]()
			}
			if err != nil || !ok {
				return all, errors.Join(err, out.Close())
			}
			if at = max(at, h.Index); h.ContextTokens+h.GenerationTokens > most.ContextTokens+most.GenerationTokens {
				most = h
			}
		}
		if slices.ContainsFunc(heads, func(h trace.Iteration) bool { return h.Index != at }) {
			continue
		}
		if gap := at - last - 1; all.Rows > 0 && gap > 0 {
			if all.Missing += gap; all.Missing == gap {
				all.FirstGap = source.Place{File: most.File, Line: most.Line}
			}
		}
		if err := out.Append(*most); err != nil {
			return nil, err
		}
		all.Rows, last, at = all.Rows+1, at, at+1
	}
}

// inLogOrder calls add with the iterations of all lives as they stand in the logs.
func (x *extraction) inLogOrder(add func(engine int, it *trace.Iteration)) error {
	place := map[string]int{}
	for i, in := range slices.Concat(x.set.logs, x.set.passes) {
		place[in.Name] = i
	}
	next, heads := make([]func() (trace.Iteration, error, bool), len(x.lives)), make([]*trace.Iteration, len(x.lives))
	for i, l := range x.lives {
		pull, stop := iter.Pull2(fileRows[trace.Iteration](l.Dir, table.Iterations, x.o.Format))
		defer stop()
		next[i], heads[i] = pull, &trace.Iteration{Line: -1}
	}
	for {
		first := -1
		for i, h := range heads {
			if h != nil && h.Line < 0 { // taken
				it, err, ok := next[i]()
				if err != nil {
					return err
				}
				if h = &it; !ok {
					h = nil
				}
				heads[i] = h
			}
			if h != nil && (first < 0 || cmp.Or(cmp.Compare(place[h.File], place[heads[first].File]), cmp.Compare(h.Line, heads[first].Line)) < 0) {
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
