package validate

// This file takes the recorded requests that a replay sends again from what the run has: journeys, API
// spans or the client's file.

import (
	"cmp"
	"fmt"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Reasons for which a replayed request is not compared (excluded of validation.json).
const (
	excludedFailed      = "failed"            // ended without success, and its client did not give up
	excludedAborted     = "aborted"           // its client gave up
	excludedUnfinished  = "unfinished"        // no end recorded
	excludedUnknownLoad = "load_only"         // sent while requests that are not in the file may have run
	excludedUncounted   = "uncounted"         // nobody counted the tokens of its answer
	excludedRejected    = "rejected_by_model" // the simulator could not serve it
	excludedTraining    = "before_split"      // arrived in the training share
	excludedUnrecorded  = "unrecorded"        // it left no journey and was rebuilt from what the steps count
)

// SourceOf returns where the requests that Requests lists come from: result.SourceJourneys and the
// like.
func SourceOf(run *trace.Run) string {
	stock := false
	for i := range run.Requests {
		r := &run.Requests[i]
		if r.CoreID.OK {
			return result.SourceJourneys
		}
		stock = stock || r.Source == trace.SourceStock
	}
	passesOnClientClock := run.Aggregate != nil && run.Aggregate.OffsetNs.OK
	switch {
	case passesOnClientClock:
		return result.SourcePasses
	case len(run.Observed) > 0:
		return result.SourceClient
	case stock:
		return result.SourceStock
	}
	return result.SourceJourneys
}

// Request is one request as recorded by a core span, a stock span or a client. Stamps are ns of one clock
// per run.
type Request struct {
	ID        string
	Group     string // samples of one API request share it; empty for a single sample
	ArrivalNs int64
	EndNs     trace.Opt[int64]       // when it left the engine, for requests that did not succeed
	Prompt    int64                  // tokens
	Output    int64                  // tokens produced; 0: unknown
	MaxTokens int64                  // 0: unknown
	Excluded  string                 // why it is not compared; empty: it is
	Row       *trace.ObservedRequest // the client's record; nil for a request from spans

	TTFTMs, ITLMs, E2EMs trace.Opt[float64] // ITL: the mean gap between its tokens
}

// Requests returns the requests of a run in order of arrival, with findings on what was assumed
// (spec#replay-requests). Journeys are preferred to client rows, and these to spans of unmodified
// vLLM, whose wall clock need not be that of the phases. Requests that never reached an engine or
// whose prompt length is unknown are omitted.
func Requests(run *trace.Run) ([]Request, []trace.Finding) {
	var out []Request
	var findings []trace.Finding
	assumed := 0
	halfStep := halfStepNs(run)
	for i := range run.Requests {
		r := &run.Requests[i]
		o, ok := spanRequest(r)
		if !ok || !r.CoreID.OK && len(run.Observed) > 0 { // a span of unmodified vLLM beside client rows
			continue
		}
		if !r.ArrivedNs.OK && r.Source != trace.SourceStock {
			assumed++
			o.ArrivalNs = r.QueuedNs.V - halfStep
			if r.FirstTokenNs.OK {
				o.TTFTMs = trace.Some(float64(r.FirstTokenNs.V-o.ArrivalNs) / 1e6)
			}
		}
		out = append(out, o)
	}
	if assumed > 0 {
		findings = append(findings, trace.Findingf(ReplayAssumes,
			"run %s: %d of %d requests have no ARRIVED; QUEUED minus half a step (%.1f ms) was taken", run.ID, assumed, len(out),
			float64(halfStep)/1e6))
	}
	if len(out) == 0 {
		var found []trace.Finding
		out, found = clientRequests(run)
		findings = append(findings, found...)
	}
	leaveE2EToLastSample(out)
	stat.SortStable(out, func(a, b Request) int { return cmp.Compare(a.ArrivalNs, b.ArrivalNs) })
	return out, findings
}

// spanRequest returns a request from its spans.
func spanRequest(r *trace.Request) (Request, bool) {
	arrivalNs, known := r.ArrivalNs()
	reachedEngine := r.CoreID.OK || r.Source == trace.SourceStock
	if !known || !r.PromptTokens.OK || r.PromptTokens.V < 1 || !reachedEngine {
		return Request{}, false
	}
	o := Request{
		ID:        r.CoreID.Or(r.APIID.V),
		ArrivalNs: arrivalNs,
		Prompt:    r.PromptTokens.V,
		Output:    r.OutputTokens.Or(0),
		MaxTokens: r.MaxTokens.Or(0),
		TTFTMs:    optOf(r.TTFTMs()),
		ITLMs:     optOf(itlMs(r)),
		E2EMs:     optOf(r.E2EMs()),
	}
	if r.N.Or(1) > 1 {
		o.Group = r.APIID.V
	}
	switch {
	case !r.Success.OK:
		o.Excluded = excludedUnfinished
	case r.Success.V:
	case r.ClientAborted():
		o.Excluded = excludedAborted
	default:
		o.Excluded = excludedFailed
	}
	for _, end := range []trace.Opt[int64]{r.FinishedNs, r.AbortedNs, r.DepartedNs} { // the engine's own first
		if end.OK {
			o.EndNs = end
			break
		}
	}
	return o, true
}

// clientRequests returns the requests by the client's own timings: send, first and last chunk.
// Engine stamps of a file without client chunks (llmservingsim) are moved to the clock of the
// arrivals by the smallest queueing delay, which is then 0 by assumption.
func clientRequests(run *trace.Run) ([]Request, []trace.Finding) {
	var out []Request
	var findings []trace.Finding
	offsetNs, twoClocks := engineOffsetNs(run)
	if twoClocks {
		findings = append(findings, trace.Findingf(ReplayAssumes,
			"run %s: arrivals and engine stamps are on two clocks; the smallest pick-up wait was taken as 0", run.ID))
	}
	uncounted := 0
	for i := range run.Observed {
		c := &run.Observed[i]
		o := Request{ID: c.ID, Row: c, Prompt: c.PromptTokens.Or(0), Output: c.OutputTokens.Or(0), MaxTokens: c.AskedTokens.Or(0)}
		first, last := c.FirstChunkNs, c.LastChunkNs
		switch {
		case c.SendNs.OK:
			o.ArrivalNs = c.SendNs.V
		case twoClocks && c.SendWallNs.OK:
			o.ArrivalNs = c.SendWallNs.V + offsetNs
			first, last = c.EngineFirstNs, c.EngineLastNs
		default:
			continue
		}
		if o.Prompt < 1 {
			continue
		}
		switch failed := c.Success.OK && !c.Success.V; {
		case failed && c.Aborted.V:
			o.Excluded = excludedAborted
			o.EndNs = c.EndNs
		case failed:
			o.Excluded = excludedFailed
			o.EndNs = c.EndNs
		case c.LoadOnly.V:
			o.Excluded = excludedUnknownLoad
		case !c.OutputTokens.OK:
			uncounted++
			o.Excluded = excludedUncounted
			o.Output = c.LoadTokens().Or(0)
		}
		arrival := trace.Some(o.ArrivalNs)
		o.TTFTMs = optOf(trace.BetweenMs(arrival, first))
		o.E2EMs = optOf(trace.BetweenMs(arrival, last))
		decodeMs := optOf(trace.BetweenMs(first, last))
		out = append(out, samplesOfCall(o, c.N.Or(1), decodeMs)...)
	}
	if uncounted > 0 {
		findings = append(findings, trace.Findingf(ReplayAssumes,
			"run %s: nobody counted the output tokens of %d of %d requests: each is a load of as many tokens as it had chunks, and compared with "+
				"nothing; record the usage that the server returns (stream_options.include_usage)", run.ID, uncounted, len(run.Observed)))
	}
	if n := arriveAsSpans(run, out); n > 0 {
		findings = append(findings, trace.Findingf(ReplayAssumes,
			"run %s: %d of %d requests were overtaken between client and server; they arrive in the order of the server's spans", run.ID, n, len(out)))
	}
	return out, findings
}

// arriveAsSpans lets requests arrive in the order in which the spans of an unmodified vLLM began, and
// returns how many it delayed for that. Requests of a burst overtake each other on the way to the
// server, by their tokenization for one, and the order decides who waits for whom. A request that was
// overtaken arrives with the last one before it, and its times count from then. Requests without a
// span keep their arrival, and so do those with several, and those that got their first token earlier
// than they would arrive: their span is of another call.
func arriveAsSpans(run *trace.Run, requests []Request) (delayed int) {
	spans := run.StockSpans()
	beganNs := func(o *Request) int64 { // 0: no span
		if span := spans[o.ID]; span != nil {
			return span.StartWallNs.V
		}
		return 0
	}
	inOrder := func(a, b Request) int { return cmp.Compare(beganNs(&a), beganNs(&b)) }
	stat.SortStable(requests, inOrder) // those without a span first
	var latestNs int64                 // latest arrival so far
	for i := range requests {
		o := &requests[i]
		if beganNs(o) == 0 {
			continue
		}
		lateMs := float64(latestNs-o.ArrivalNs) / 1e6 // by how much it must arrive later
		if o.TTFTMs.OK && lateMs >= o.TTFTMs.V {
			continue
		}
		if lateMs > 0 {
			delayed++
			o.ArrivalNs = latestNs
			o.TTFTMs.V -= lateMs
			o.E2EMs.V -= lateMs
		}
		latestNs = o.ArrivalNs
	}
	return delayed
}

// samplesOfCall returns the n samples of a call. Clients do not record which sample a chunk was of:
// all are taken to begin with the first chunk and to share the tokens evenly.
func samplesOfCall(o Request, n int64, decodeMs trace.Opt[float64]) []Request {
	out := make([]Request, max(1, n))
	for k := range out {
		s := o
		if n > 1 {
			s.ID = fmt.Sprintf("%s#%d", o.ID, k)
			s.Group = o.ID
			s.Output = o.Output / n
		}
		if decodeMs.OK && s.Output > 1 {
			s.ITLMs = trace.Some(decodeMs.V / float64(s.Output-1))
		}
		out[k] = s
	}
	return out
}

// engineOffsetNs returns the number that is added to a wall-clock send time to get a stamp of the
// engine's clock, ns: the smallest of QUEUED - send. ok is false if no request has both stamps and
// none of the client's own clock.
func engineOffsetNs(run *trace.Run) (offset int64, ok bool) {
	for i := range run.Observed {
		c := &run.Observed[i]
		if c.SendNs.OK || !c.SendWallNs.OK || !c.QueuedNs.OK {
			continue
		}
		if d := c.QueuedNs.V - c.SendWallNs.V; !ok || d < offset {
			offset, ok = d, true
		}
	}
	return offset, ok
}

// leaveE2EToLastSample removes E2E from all samples of an API request but the one that finished last,
// because DEPARTED is stamped when all of them have finished.
func leaveE2EToLastSample(requests []Request) {
	last := map[string]int{} // by group: position of the sample that finished last
	for i := range requests {
		o := &requests[i]
		if o.Group == "" {
			continue
		}
		if j, known := last[o.Group]; !known || o.EndNs.V > requests[j].EndNs.V {
			last[o.Group] = i
		}
	}
	for i := range requests {
		if group := requests[i].Group; group != "" && last[group] != i {
			requests[i].E2EMs = trace.Opt[float64]{}
		}
	}
}

// halfStepNs returns half the median cadence of adjacent recorded steps, ns; 0 without any.
func halfStepNs(run *trace.Run) int64 {
	var gaps []float64
	for i := 1; i < len(run.Steps); i++ {
		a, b := &run.Steps[i-1], &run.Steps[i]
		if b.ID == a.ID+1 && a.RunningDepth > 0 {
			gaps = append(gaps, float64(b.TsStartNs-a.TsStartNs))
		}
	}
	if len(gaps) == 0 {
		return 0
	}
	return int64(stat.Median(gaps) / 2)
}

// optOf returns v, unknown unless ok is set.
func optOf[T any](v T, ok bool) trace.Opt[T] { return trace.Opt[T]{V: v, OK: ok} }

// itlMs returns (FINISHED - FIRST_TOKEN)/(output tokens - 1) in ms, or a stock span's decode time
// over the same count. It returns false for requests with fewer than two output tokens.
func itlMs(r *trace.Request) (float64, bool) {
	if !r.OutputTokens.OK || r.OutputTokens.V < 2 {
		return 0, false
	}
	gaps := float64(r.OutputTokens.V - 1)
	if r.Source == trace.SourceStock {
		return r.StockDecodeUs.V / 1e3 / gaps, r.StockDecodeUs.OK
	}
	decodeMs, ok := trace.BetweenMs(r.FirstTokenNs, r.FinishedNs)
	return decodeMs / gaps, ok
}

// OfClients returns the saturation checks on what clients saw, for runs of which nothing else was
// recorded: their send stamps and times are used like those of spans.
func OfClients(run *trace.Run, dep *deploy.Deployment) *rows.LoadVerdicts {
	us := func(ms trace.Opt[float64]) trace.Opt[float64] { return trace.Opt[float64]{V: 1e3 * ms.V, OK: ms.OK} }
	asSpans := *run
	requests, _ := Requests(run)
	for i := range requests {
		o := &requests[i]
		if o.Excluded == excludedUnknownLoad {
			continue
		}
		asSpans.Requests = append(asSpans.Requests, trace.Request{
			Source:      trace.SourceStock,
			APIID:       trace.Some(o.ID),
			StartWallNs: trace.Some(o.ArrivalNs),
			StockTTFTUs: us(o.TTFTMs),
			StockE2EUs:  us(o.E2EMs),
			Success:     trace.Some(o.Excluded == ""),
		})
	}
	return rows.VerdictsOf(&asSpans, dep)
}
