package extract

// This file marks the client requests that ran while a multimodal encoder did. Its time is in theirs,
// and replays do not model it (spec#encoder-passes).

import (
	"slices"

	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/trace"
)

// passTimes are the passes of one engine in order. Its lists have one entry for each pass.
type passTimes struct {
	index    []int64   // the engine's number of the pass, ascending
	sumUs    []float64 // elapsed times of the passes up to and including it
	encoders []int     // number of passes up to and including it in which an encoder ran
}

// addPass adds the next pass.
func (p *passTimes) addPass(it *trace.Iteration) {
	sum := it.ElapsedUs
	encoders := 0
	if n := len(p.index); n > 0 {
		sum += p.sumUs[n-1]
		encoders = p.encoders[n-1]
	}
	if it.EncoderInputs.V > 0 || it.EncoderOutputs.V > 0 {
		encoders++
	}
	p.index = append(p.index, it.Index)
	p.sumUs = append(p.sumUs, sum)
	p.encoders = append(p.encoders, encoders)
}

// sawEncoder reports whether an encoder ran while a request waited, computed its prompt or decoded.
// The pass in which its prompt ended is known; the wait before it is as many passes as fit into the
// TTFT, and each output token after the first takes one pass.
func (p *passTimes) sawEncoder(r *trace.ObservedRequest) bool {
	promptPass, ok := slices.BinarySearch(p.index, r.Iteration.V)
	if !ok {
		return true // its passes are not in the log, so an encoder may have run
	}
	from := promptPass
	for from > 0 && p.sumUs[promptPass]-p.sumUs[from-1] < r.TTFTUs.V {
		from--
	}
	to := min(len(p.index)-1, promptPass+int(max(1, r.OutputTokens.V))-1)
	before := 0
	if from > 0 {
		before = p.encoders[from-1]
	}
	return p.encoders[to] > before
}

// markEncoderRequests marks the requests whose times include those of a multimodal encoder, which replays
// do not model: a replay serves them as load, but compares no time of theirs (spec#encoder-passes). A
// request whose passes are not known may be one of them.
func (x *extraction) markEncoderRequests() error {
	if x.logs.Encoders == 0 || len(x.observed) == 0 {
		return nil
	}
	engines := make([]passTimes, len(x.lives))
	err := x.inLogOrder(func(engine int, it *trace.Iteration) { engines[engine].addPass(it) })
	if err != nil {
		return err
	}
	marked := 0
	unknown := 0
	for i := range x.observed {
		r := &x.observed[i]
		engine := int(r.Engine.Or(1)) - 1 // Engine counts from 1
		isKnown := r.Iteration.OK && engine < len(engines)
		if isKnown && !engines[engine].sawEncoder(r) {
			continue
		}
		r.LoadOnly = trace.Some(true)
		marked++
		if !isKnown {
			unknown++
		}
	}
	x.clients = append(x.clients, trace.Findingf(clients.CodeClientFile,
		"%d of %d requests ran while %d passes ran a multimodal encoder, or may have (the passes of %d are not known): "+
			"they are load and compared with nothing", marked, len(x.observed), x.logs.Encoders, unknown))
	return nil
}
