package pairing

// This file cuts the clients' requests into busy periods, between which no request was open.

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// prompt is one client request as far as pairing needs it.
type prompt struct {
	row          int // index of the observed request
	rank         int // its place among the requests of its period in the order of sending
	tokens       int64
	outputTokens int64
	firstNs      int64            // stamp of its first chunk, client's clock; of its send where that is unknown
	isFirst      bool             // firstNs is the stamp of the first chunk
	cached       trace.Opt[int64] // cached tokens, if the server returned them with the answer
	mostCached   int64            // upper bound of its cached tokens
	isFailed     bool             // it has no answer, and may or may not have run
}

// period is a time in which some request was open at its client at every moment.
type period struct {
	prompts    []prompt   // in order of their first chunks
	orders     [][]prompt // the orders in which the prompts may have ended: of first chunks first, of sends last
	generation int64      // output tokens, without the first token of each request
	isUnusable bool       // it has requests whose tokens in the engine are not known
	hasFailed  bool       // it has failed requests, which may or may not have run
	failed     []prompt   // those of them whose tokens are known
}

// isTimeless reports whether no request has a stamp. Clients without start times write their requests in the order
// in which they sent them, and counting needs no more.
func isTimeless(rows []trace.ObservedRequest) bool {
	for i := range rows {
		r := &rows[i]
		if r.SentNs() != 0 || r.FirstChunkNs.OK || r.LastChunkNs.OK {
			return false
		}
	}
	return true
}

// periodsOf returns the clients' requests divided into periods, between which no request was open. Requests
// without any stamp are one period.
func periodsOf(rows []trace.ObservedRequest, rules *Rules) []period {
	type request struct {
		row             int
		fromNs, untilNs int64 // it was open at the client
	}
	var all []request
	for i := range rows {
		r := &rows[i]
		fromNs := r.SentNs()
		if fromNs == 0 { // unknown
			fromNs = r.FirstChunkNs.V
		}
		untilNs := max(fromNs, r.FirstChunkNs.V, r.LastChunkNs.V, r.EndNs.V)
		all = append(all, request{row: i, fromNs: fromNs, untilNs: untilNs})
	}
	stat.SortStable(all, func(a, b request) int { return cmp.Compare(a.fromNs, b.fromNs) })
	hasNoStamps := isTimeless(rows)
	var out []period
	openUntilNs := int64(math.MinInt64)
	for _, r := range all {
		if r.fromNs > openUntilNs {
			out = append(out, period{})
		}
		openUntilNs = max(openUntilNs, r.untilNs)
		out[len(out)-1].addRequest(&rows[r.row], r.row, rules, hasNoStamps)
	}
	for i := range out {
		out[i].orderPrompts()
	}
	return out
}

// addRequest adds a request to the period. A failed request without a chunk may never have run, so
// it is not among the prompts. A request of unknown lengths, without any chunk (unless no request has a
// stamp: hasNoStamps), or with several answers makes the period unusable.
func (p *period) addRequest(r *trace.ObservedRequest, row int, rules *Rules, hasNoStamps bool) {
	isFailure := r.Success.OK && !r.Success.V
	switch {
	case !r.FirstChunkNs.OK && isFailure:
		p.hasFailed = true
		if r.PromptTokens.V > 0 {
			f := prompt{row: row, rank: p.nextRank(), tokens: r.PromptTokens.V, firstNs: r.SentNs(), isFailed: true}
			f.mostCached = rules.maxCached(f.tokens)
			p.failed = append(p.failed, f)
		}
		return
	case !r.FirstChunkNs.OK && !r.LastChunkNs.OK && !hasNoStamps || r.PromptTokens.V < 1 || r.OutputTokens.V < 1 || r.N.Or(1) > 1:
		p.isUnusable = true
		return
	}
	p.prompts = append(p.prompts, prompt{
		row:          row,
		rank:         p.nextRank(),
		tokens:       r.PromptTokens.V,
		outputTokens: r.OutputTokens.V,
		firstNs:      r.FirstChunkNs.Or(r.SentNs()),
		isFirst:      r.FirstChunkNs.OK,
		cached:       r.CachedTokens,
		mostCached:   rules.maxCached(r.PromptTokens.V),
	})
	p.generation += r.OutputTokens.V - 1
}

// nextRank returns the rank of the next request: requests are added in the order in which they were sent.
func (p *period) nextRank() int { return len(p.prompts) + len(p.failed) }

// withFailed returns prompts in one of the period's orders together with the failed ones, each before the
// first that was sent after it: engines take requests in the order in which they came.
func (p *period) withFailed(order []prompt) []prompt {
	all := slices.Clone(order)
	for _, f := range p.failed {
		at := slices.IndexFunc(all, func(q prompt) bool { return q.rank > f.rank })
		if at < 0 {
			at = len(all)
		}
		all = slices.Insert(all, at, f)
	}
	return all
}

// orderPrompts sorts the prompts by their first chunks. A client may have read chunks that came
// close together late, so a second order has these prompts as they were sent.
func (p *period) orderPrompts() {
	stat.SortStable(p.prompts, func(a, b prompt) int { return cmp.Compare(a.firstNs, b.firstNs) })
	byRank := func(a, b prompt) int { return a.rank - b.rank }
	closeBySend := slices.Clone(p.prompts) // only chunks that came close together are in the order of sends
	isOther := false                       // closeBySend is another order
	for from, to := 0, 0; from < len(closeBySend); from = to {
		for to = from + 1; to < len(closeBySend) && closeBySend[to].firstNs-closeBySend[to-1].firstNs < closeNs; to++ {
			isOther = isOther || closeBySend[to].rank < closeBySend[to-1].rank
		}
		stat.SortStable(closeBySend[from:to], byRank)
	}
	p.orders = [][]prompt{p.prompts}
	if isOther {
		p.orders = append(p.orders, closeBySend)
	}
	// Engines take requests in the order in which they came. The first chunks of answers whose reasoning is
	// not shown come in another one.
	allBySend := slices.Clone(p.prompts)
	stat.SortStable(allBySend, byRank)
	if !slices.EqualFunc(allBySend, p.prompts, func(a, b prompt) bool { return a.rank == b.rank }) {
		p.orders = append(p.orders, allBySend)
	}
}
