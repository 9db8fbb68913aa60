package pairing

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// prompt is one client request as pairing needs it.
type prompt struct {
	row          int // of the observed requests
	rank         int // in order of sends, within its period
	tokens       int64
	outputTokens int64
	firstNs      int64            // its first chunk
	cached       trace.Opt[int64] // tokens in the cache, as the server's usage states
	mostCached   int64            // tokens that may have been in the cache
}

// period is a stretch of time in which some request was open at its client.
type period struct {
	prompts    []prompt   // in order of their first chunks
	orders     [][]prompt // in which the prompts may have ended
	generation int64      // output tokens behind the first ones
	isUnusable bool       // it has requests that the engine may have treated in several ways
	hasFailed  bool       // it has requests that may never have run
}

// periodsOf cuts the clients' requests where none was open.
func periodsOf(rows []trace.ObservedRequest, rules *Rules) []period {
	type request struct {
		row             int
		fromNs, untilNs int64
	}
	var all []request
	for i := range rows {
		r := &rows[i]
		from := r.SentNs()
		if from == 0 {
			from = r.FirstChunkNs.V
		}
		all = append(all, request{i, from, max(from, r.FirstChunkNs.V, r.LastChunkNs.V, r.EndNs.V)})
	}
	slices.SortStableFunc(all, func(a, b request) int { return cmp.Compare(a.fromNs, b.fromNs) })
	var out []period
	openUntilNs := int64(math.MinInt64)
	for _, r := range all {
		if r.fromNs > openUntilNs {
			out = append(out, period{})
		}
		openUntilNs = max(openUntilNs, r.untilNs)
		out[len(out)-1].addRequest(&rows[r.row], r.row, rules)
	}
	for i := range out {
		out[i].orderPrompts()
	}
	return out
}

func (p *period) addRequest(r *trace.ObservedRequest, row int, rules *Rules) {
	isFailure := r.Success.OK && !r.Success.V
	switch {
	case !r.FirstChunkNs.OK && isFailure:
		p.hasFailed = true // it may never have run; the counts decide
		return
	case !r.FirstChunkNs.OK || r.PromptTokens.V < 1 || r.OutputTokens.V < 1 || r.N.Or(1) > 1:
		p.isUnusable = true
		return
	}
	p.prompts = append(p.prompts, prompt{
		row:          row,
		rank:         len(p.prompts),
		tokens:       r.PromptTokens.V,
		outputTokens: r.OutputTokens.V,
		firstNs:      r.FirstChunkNs.V,
		cached:       r.CachedTokens,
		mostCached:   rules.maxCached(r.PromptTokens.V),
	})
	p.generation += r.OutputTokens.V - 1
}

// orderPrompts sorts the prompts by their first chunks. Chunks that come this close may have been
// read late by a client, so a second order has these prompts as they were sent.
func (p *period) orderPrompts() {
	slices.SortStableFunc(p.prompts, func(a, b prompt) int { return cmp.Compare(a.firstNs, b.firstNs) })
	bySend := slices.Clone(p.prompts)
	isOther := false
	for from, to := 0, 0; from < len(bySend); from = to {
		for to = from + 1; to < len(bySend) && bySend[to].firstNs-bySend[to-1].firstNs < closeNs; to++ {
			isOther = isOther || bySend[to].rank < bySend[to-1].rank
		}
		slices.SortFunc(bySend[from:to], func(a, b prompt) int { return a.rank - b.rank })
	}
	p.orders = [][]prompt{p.prompts}
	if isOther {
		p.orders = append(p.orders, bySend)
	}
}
