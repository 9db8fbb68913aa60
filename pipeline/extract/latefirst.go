package extract

// This file compares the answers of clients with the passes of the log that made their tokens.

import (
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// Rules by which the first chunk of an answer is found to come later than its first token.
const (
	leastLate      = 5   // answers
	leastLateShare = 0.2 // of those with fewer chunks than tokens
	lateSteps      = 2   // steps by which the first chunk may come late
	lateUs         = 5e3 // time in addition to these
)

// dropLateFirst finds answers whose tokens took longer in the log than from the client's first chunk to the last: the
// client did not show the first tokens (reasoning), so that its first chunk does not give TTFT
// (spec#client-first-token). The clocks of client and log do not matter, because both times are differences. Answers
// with a chunk for each token are not judged.
func (x *extraction) dropLateFirst() error {
	wanted := false
	for i := range x.obs {
		if r := &x.obs[i]; r.Iteration.OK && hasFewerChunks(r) {
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
	var seenUs, madeUs []float64
	judged := 0
	for i := range x.obs {
		r := &x.obs[i]
		if !r.Iteration.OK || !hasFewerChunks(r) {
			continue
		}
		engine := int(r.Engine.Or(1)) - 1
		first, ok := placeOf[engine][r.Iteration.V]
		if !ok {
			continue
		}
		last := min(first+int(r.OutputTokens.V)-1, len(sumUs[engine])-1)
		tookUs := sumUs[engine][last] - sumUs[engine][first]
		if x.dep.Engine.IsAsync() {
			tookUs /= 2 // two passes may be under way at a time
		}
		judged++
		stepUs := tookUs / float64(max(1, last-first))
		if shownUs := r.E2EUs.V - r.TTFTUs.V; shownUs < tookUs-lateSteps*stepUs-lateUs {
			late = append(late, r)
			seenUs = append(seenUs, shownUs)
			madeUs = append(madeUs, tookUs)
		}
	}
	if len(late) < leastLate || float64(len(late)) < leastLateShare*float64(judged) {
		return nil
	}
	others := 0
	for i := range x.obs {
		// The rest of these answers is too short to be judged alone.
		if r := &x.obs[i]; hasFewerChunks(r) && r.Chunks.OK {
			clients.DropFirstToken(r)
			others++
		}
	}
	for _, r := range late {
		clients.DropFirstToken(r)
	}
	x.clients = append(x.clients, trace.Findingf(source.CodeFirstToken, "by the log, the tokens of %d of %d answers with fewer chunks than tokens took "+
		"longer than from the first chunk to the last (in the median %.3g and %.3g ms), so their first chunk is not the first token, as where "+
		"reasoning is not shown or a first chunk holds several tokens: TTFT and ITL of %d such answers are not used, E2E is", len(late), judged, stat.Median(madeUs)/1e3, stat.Median(seenUs)/1e3,
		max(others, len(late))))
	return nil
}

// hasFewerChunks reports whether the client may not have seen all tokens of an answer, of which it has both times.
func hasFewerChunks(r *trace.ObservedRequest) bool {
	return r.Success.Or(true) && r.N.Or(1) == 1 && r.TTFTUs.OK && r.E2EUs.OK && r.OutputTokens.V > 1 && r.Chunks.Or(0) < r.OutputTokens.V &&
		r.VisibleUs.Or(0) <= r.TTFTUs.V
}
