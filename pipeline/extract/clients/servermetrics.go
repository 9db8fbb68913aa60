package clients

// This file reads what a server states in an answer about its own times, and reports them.

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// serverMetrics is what vLLM states about a request in its answer with --enable-per-request-metrics: times in ms,
// none of them a stamp (spec#server-metrics). Fields may be absent or null.
//
// Source: vLLM 0.25 to 0.33, docs/features/per_request_metrics.md.
type serverMetrics struct {
	Queue      trace.Opt[float64] `json:"queue_time_ms"`          // scheduled - queued
	First      trace.Opt[float64] `json:"time_to_first_token_ms"` // first token - scheduled
	Generation trace.Opt[float64] `json:"generation_time_ms"`     // last - first token
	MeanITL    trace.Opt[float64] `json:"mean_itl_ms"`            // generation / (tokens - 1)
	Output     *struct {
		Reasoning *struct {
			Tokens trace.Opt[int64]   `json:"token_count"`
			First  trace.Opt[float64] `json:"time_to_first_token_ms"`
		} `json:"reasoning"`
	} `json:"output_token_metrics"`
}

// applyTo sets the server's times of a request.
func (m *serverMetrics) applyTo(r *trace.ObservedRequest) {
	if m == nil {
		return
	}
	r.QueueUs = fromMs(m.Queue)
	r.ServerTTFTUs = fromMs(m.First)
	r.ServerGenUs = fromMs(m.Generation)
	if !r.ServerGenUs.OK && m.MeanITL.OK && r.OutputTokens.V > 1 {
		r.ServerGenUs = trace.Some(1e3 * m.MeanITL.V * float64(r.OutputTokens.V-1))
	}
	if m.Output != nil && m.Output.Reasoning != nil {
		r.Reasoning = firstKnown(r.Reasoning, m.Output.Reasoning.Tokens)
	}
}

// fromMs is a time in ms as us; unknown where it is negative or no number.
func fromMs(ms trace.Opt[float64]) trace.Opt[float64] {
	if !ms.OK || !(ms.V >= 0) || math.IsInf(ms.V, 0) {
		return trace.Opt[float64]{}
	}
	return trace.Some(1e3 * ms.V)
}

// fromSeconds is a wait of the client in s as us; unknown where it is negative.
func fromSeconds(s trace.Opt[float64]) trace.Opt[float64] {
	return fromMs(trace.Opt[float64]{V: 1e3 * s.V, OK: s.OK})
}

// leastClientWaitUs is the wait above which a client held a request back. Each client needs some time from its plan to
// the request.
const leastClientWaitUs = 5e3

// reportServerTimes reports the server's own times and the client's waits. Where an earlier check has
// removed a client's TTFT, it derives it from the server's times.
func (c *Reader) reportServerTimes() {
	queued := 0    // answers with the server's queueing delay
	waits := 0     // requests that the client delayed
	longest := 0.0 // such delay, us
	used := 0      // answers whose TTFT is derived
	for i := range c.Requests {
		r := &c.Requests[i]
		if r.QueueUs.OK {
			queued++
		}
		if r.ClientWaitUs.V > leastClientWaitUs {
			waits++
			longest = max(longest, r.ClientWaitUs.V)
		}
		// The first token came to the client as long before the last one as it was made before it: the delivery of
		// both is assumed to take the same time.
		if !r.FirstChunkNs.OK && r.LastChunkNs.OK && r.ServerGenUs.OK && r.ServerTTFTUs.OK && r.E2EUs.V > r.ServerGenUs.V {
			r.FirstChunkNs = trace.Some(r.LastChunkNs.V - trace.Ns(r.ServerGenUs.V))
			r.TTFTUs = sinceUs(r.SendNs, r.FirstChunkNs)
			used++
		}
	}
	if queued > 0 {
		c.addFinding(CodeClientFile, "%d of %d answers have the server's queueing delay and its TTFT from scheduling; TTFT less both is the front "+
			"end and the network", queued, len(c.Requests))
	}
	if used > 0 {
		c.addFinding(CodeClientFile, "TTFT and ITL of %d answers whose first chunk is not the first token are those of the server's metrics", used)
	}
	if waits > 0 {
		c.addFinding(CodeClientFile, "the client delayed %d of %d requests before it sent them, by up to %.3g s: that delay is not in the times of "+
			"the server and not in the queueing delay", waits, len(c.Requests), longest/1e6)
	}
}
