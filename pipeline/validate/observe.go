package validate

import (
	"slices"

	"github.com/blis-train/blis-train/stat"
	"github.com/blis-train/blis-train/trace"
)

// Reasons for which a replayed request is not compared (excluded{} of
// validation.json).
const (
	excludedFailed     = "failed"            // ended without success, through no wish of its client
	excludedAborted    = "aborted"           // its client gave up
	excludedUnfinished = "unfinished"        // no end recorded
	excludedRejected   = "rejected_by_model" // the simulator could not serve it
	excludedTraining   = "before_split"      // arrived in the training share
)

// Where the recorded requests of a run come from.
const (
	sourceJourneys = "journeys"
	sourceStock    = "stock"
	sourceClient   = "client"
)

// sourceOfRun says which of them observed takes.
func sourceOfRun(run *trace.Run) string {
	stock := false
	for i := range run.Requests {
		r := &run.Requests[i]
		if r.CoreID.OK {
			return sourceJourneys
		}
		stock = stock || r.Source == trace.SourceStock
	}
	switch {
	case stock:
		return sourceStock
	case len(run.Observed) > 0:
		return sourceClient
	}
	return sourceJourneys
}

// observation is one request as recorded, whatever recorded it: a core span, a
// stock span or a client. Stamps are ns of one clock per run.
type observation struct {
	id        string
	group     string // samples of one API request share it; empty for a single sample
	arrivalNs int64
	endNs     trace.Opt[int64] // when it left the engine, for requests that did not succeed
	prompt    int64
	output    int64 // produced; 0 when unknown
	maxTokens int64 // 0 when unknown
	excluded  string

	ttftMs, itlMs, e2eMs trace.Opt[float64]
}

// observed lists the requests of a run in order of arrival and says what was
// assumed. Journeys win over client rows; requests that never reached an engine
// or whose prompt length is unknown are not listed.
func observed(run *trace.Run) ([]observation, []trace.Finding) {
	var out []observation
	var findings []trace.Finding
	assumed := 0
	half := halfStepNs(run)
	for i := range run.Requests {
		r := &run.Requests[i]
		o, ok := observationOf(r)
		if !ok {
			continue
		}
		if !r.ArrivedNs.OK && r.Source != trace.SourceStock {
			assumed++
			o.arrivalNs = r.QueuedNs.V - half
			if r.FirstTokenNs.OK {
				o.ttftMs = trace.Some(float64(r.FirstTokenNs.V-o.arrivalNs) / 1e6)
			}
		}
		out = append(out, o)
	}
	if assumed > 0 {
		findings = append(findings, trace.Findingf(CodeArrivedAssumed,
			"run %s: %d of %d requests have no ARRIVED; QUEUED minus half a step (%.1f ms) was taken", run.ID, assumed, len(out), float64(half)/1e6))
	}
	if len(out) == 0 {
		var more []trace.Finding
		out, more = clientSide(run)
		findings = append(findings, more...)
	}
	markLastSamples(out)
	slices.SortStableFunc(out, func(a, b observation) int {
		return int(max(-1, min(1, a.arrivalNs-b.arrivalNs)))
	})
	return out, findings
}

func observationOf(r *trace.Request) (observation, bool) {
	at, known := arrivalNs(r)
	stock := r.Source == trace.SourceStock
	if !known || !r.PromptTokens.OK || r.PromptTokens.V < 1 || !(r.CoreID.OK || stock) {
		return observation{}, false
	}
	o := observation{
		id: r.CoreID.Or(r.APIID.V), arrivalNs: at,
		prompt: r.PromptTokens.V, output: r.OutputTokens.Or(0), maxTokens: r.MaxTokens.Or(0),
	}
	if r.N.Or(1) > 1 {
		o.group = r.APIID.V
	}
	switch {
	case !r.Success.OK:
		o.excluded = excludedUnfinished
	case r.Success.V:
	case isClientAbort(r):
		o.excluded = excludedAborted
	default:
		o.excluded = excludedFailed
	}
	for _, end := range []trace.Opt[int64]{r.FinishedNs, r.AbortedNs, r.DepartedNs} {
		if end.OK {
			o.endNs = end
			break
		}
	}
	o.ttftMs, o.itlMs, o.e2eMs = opt(TTFTMs(r)), opt(ITLMs(r)), opt(E2EMs(r))
	return o, true
}

// clientSide are the client's own timings: send, first and last chunk. Engine
// stamps of a file that has no client chunks (llmservingsim) are moved to the
// arrival's clock by the smallest pick-up wait, which is then 0 by assumption.
func clientSide(run *trace.Run) ([]observation, []trace.Finding) {
	var out []observation
	var findings []trace.Finding
	offset, twoClocks := engineOffset(run)
	if twoClocks {
		findings = append(findings, trace.Findingf(CodeArrivedAssumed,
			"run %s: arrivals and engine stamps are on two clocks; the smallest pick-up wait was taken as 0", run.ID))
	}
	for i := range run.Observed {
		c := &run.Observed[i]
		o := observation{id: c.ID, prompt: c.PromptTokens.Or(0), output: c.OutputTokens.Or(0), maxTokens: c.AskedTokens.Or(0)}
		first, last := c.FirstChunkNs, c.LastChunkNs
		switch {
		case c.SendNs.OK:
			o.arrivalNs = c.SendNs.V
		case twoClocks && c.SendWallNs.OK:
			o.arrivalNs = c.SendWallNs.V + offset
			first, last = c.EngineFirstNs, c.EngineLastNs
		default:
			continue
		}
		if o.prompt < 1 {
			continue
		}
		if c.Success.OK && !c.Success.V {
			o.excluded = excludedFailed
			if c.Aborted.V {
				o.excluded = excludedAborted
			}
			o.endNs = c.EndNs
		}
		arrival := trace.Some(o.arrivalNs)
		o.ttftMs = opt(betweenMs(arrival, first))
		o.e2eMs = opt(betweenMs(arrival, last))
		if total, ok := betweenMs(first, last); ok && o.output > 1 {
			o.itlMs = trace.Some(total / float64(o.output-1))
		}
		out = append(out, o)
	}
	return out, findings
}

// engineOffset is what must be added to a wall-clock send time to reach the
// engine's clock: the smallest of QUEUED - send.
func engineOffset(run *trace.Run) (int64, bool) {
	best, found := int64(0), false
	for i := range run.Observed {
		c := &run.Observed[i]
		if c.SendNs.OK || !c.SendWallNs.OK || !c.QueuedNs.OK {
			continue
		}
		if d := c.QueuedNs.V - c.SendWallNs.V; !found || d < best {
			best, found = d, true
		}
	}
	return best, found
}

// markLastSamples leaves E2E to the sample of an API request that finished last:
// DEPARTED waits for all of them.
func markLastSamples(obs []observation) {
	last := map[string]int{}
	for i := range obs {
		o := &obs[i]
		if o.group == "" {
			continue
		}
		if j, ok := last[o.group]; !ok || o.endNs.V > obs[j].endNs.V {
			last[o.group] = i
		}
	}
	for i := range obs {
		if g := obs[i].group; g != "" && last[g] != i {
			obs[i].e2eMs = trace.Opt[float64]{}
		}
	}
}

// halfStepNs is half the median cadence of adjacent recorded steps, 0 without.
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

func opt(v float64, ok bool) trace.Opt[float64] { return trace.Opt[float64]{V: v, OK: ok} }
