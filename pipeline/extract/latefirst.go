package extract

// This file finds answers whose first chunk is not their first token, by comparing the clients' times
// with the passes of the log that made the tokens.

import (
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// Rules by which the first chunk of an answer is found to come later than its first token.
const (
	leastLate      = 5   // answers must be late before any is changed: few may be late by chance
	leastLateShare = 0.2 // of the answers with fewer chunks than tokens must be late
)

// dropLateFirst finds answers whose tokens took longer in the log than from the client's first chunk to the last: the
// client did not show the first tokens (reasoning), so that its first chunk does not give TTFT
// (spec#client-first-token). The clocks of client and log do not matter, because both times are differences. Answers
// with a chunk for each token are not judged.
func (x *extraction) dropLateFirst() error {
	wanted := false
	for i := range x.observed {
		if r := &x.observed[i]; r.Iteration.OK && hasFewerChunks(r) {
			wanted = true
		}
	}
	if !wanted || len(x.lives) == 0 || x.dep.Engine.SpeculativeDecoding {
		return nil
	}
	sumUs := make([][]float64, len(x.lives))       // elapsed time of the engine's passes up to each
	placeOf := make([]map[int64]int, len(x.lives)) // by the engine's number of the pass
	for i := range placeOf {
		placeOf[i] = map[int64]int{}
	}
	err := x.inLogOrder(func(engine int, it *trace.Iteration) {
		beforeUs := 0.0
		if n := len(sumUs[engine]); n > 0 {
			beforeUs = sumUs[engine][n-1]
		}
		placeOf[engine][it.Index] = len(sumUs[engine])
		sumUs[engine] = append(sumUs[engine], beforeUs+it.ElapsedUs)
	})
	if err != nil {
		return err
	}
	var late []*trace.ObservedRequest
	var shownUs, madeUs []float64 // of each late answer: its time from first to last chunk, and that of its passes
	compared := 0
	for i := range x.observed {
		r := &x.observed[i]
		if !r.Iteration.OK || !hasFewerChunks(r) {
			continue
		}
		engine := int(r.Engine.Or(1)) - 1
		// The pass that ended the prompt made the first token, and each pass after it one more.
		first, ok := placeOf[engine][r.Iteration.V]
		if !ok {
			continue
		}
		last := min(first+int(r.OutputTokens.V)-1, len(sumUs[engine])-1)
		tookUs := sumUs[engine][last] - sumUs[engine][first]
		if x.dep.Engine.IsAsync() {
			tookUs /= 2 // two passes may be under way at a time
		}
		compared++
		stepUs := tookUs / float64(max(1, last-first))
		if chunksUs := r.E2EUs.V - r.TTFTUs.V; chunksUs < tookUs-clients.LateSteps*stepUs-clients.LateUs {
			late = append(late, r)
			shownUs = append(shownUs, chunksUs)
			madeUs = append(madeUs, tookUs)
		}
	}
	if len(late) < leastLate || float64(len(late)) < leastLateShare*float64(compared) {
		return nil
	}
	// The client did the same to the rest of these answers, of which some are too short to show it.
	dropped := 0
	for i := range x.observed {
		if r := &x.observed[i]; hasFewerChunks(r) && r.Chunks.OK {
			clients.DropFirstToken(r)
			dropped++
		}
	}
	for _, r := range late {
		clients.DropFirstToken(r)
	}
	x.clients = append(x.clients, trace.Findingf(source.CodeFirstToken,
		"by the log, the tokens of %d of %d answers with fewer chunks than tokens took longer than from the first chunk to "+
			"the last (in the median %.3g and %.3g ms), so their first chunk is not the first token, as where reasoning is "+
			"not shown or a first chunk holds several tokens: TTFT and ITL of %d such answers are not used, E2E is",
		len(late), compared, stat.Median(madeUs)/1e3, stat.Median(shownUs)/1e3, max(dropped, len(late))))
	return nil
}

// hasFewerChunks reports whether an answer that can be compared (one successful sample of several
// tokens, with TTFT and E2E) has fewer chunks than tokens, so that the client may not have shown its
// first tokens. An unknown number of chunks counts as fewer. If the client states when it saw the first
// visible text and that is after its first chunk, it did see tokens before, and nothing is missing.
func hasFewerChunks(r *trace.ObservedRequest) bool {
	isComparable := r.Success.Or(true) && r.N.Or(1) == 1 && r.TTFTUs.OK && r.E2EUs.OK && r.OutputTokens.V > 1
	return isComparable && r.Chunks.Or(0) < r.OutputTokens.V && r.VisibleUs.Or(0) <= r.TTFTUs.V
}
