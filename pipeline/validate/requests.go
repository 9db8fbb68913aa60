package validate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Reasons for which a replayed request is not compared (excluded{} of
// validation.json).
const (
	excludedFailed      = "failed"            // ended without success, through no wish of its client
	excludedAborted     = "aborted"           // its client gave up
	excludedUnfinished  = "unfinished"        // no end recorded
	excludedUnknownLoad = "load_only"         // sent while requests that the file leaves out may have run
	excludedRejected    = "rejected_by_model" // the simulator could not serve it
	excludedTraining    = "before_split"      // arrived in the training share
)

// SourceOf says which of them Requests takes.
func SourceOf(run *trace.Run) string {
	stock := false
	for i := range run.Requests {
		r := &run.Requests[i]
		if r.CoreID.OK {
			return result.SourceJourneys
		}
		stock = stock || r.Source == trace.SourceStock
	}
	switch {
	case onClients(run):
		return result.SourcePasses
	case len(run.Observed) > 0:
		return result.SourceClient
	case stock:
		return result.SourceStock
	}
	return result.SourceJourneys
}

// onClients says that the steps of an unmodified engine were put on the clock of
// its clients.
func onClients(run *trace.Run) bool {
	return run.Aggregate != nil && run.Aggregate.OffsetNs.OK
}

// Request is one request as recorded, whatever recorded it: a core span, a
// stock span or a client. Stamps are ns of one clock per run.
type Request struct {
	ID        string
	Group     string // samples of one API request share it; empty for a single sample
	ArrivalNs int64
	EndNs     trace.Opt[int64] // when it left the engine, for requests that did not succeed
	Prompt    int64
	Output    int64 // produced; 0 when unknown
	MaxTokens int64 // 0 when unknown
	Excluded  string
	Row       *trace.ObservedRequest // what its client saw, where that is the source

	TTFTMs, ITLMs, E2EMs trace.Opt[float64]
}

// Requests lists the requests of a run in order of arrival and says what was
// assumed. Journeys win over client rows, these over spans of unmodified vLLM, whose wall clock
// no phase need be on; requests that never reached an engine
// or whose prompt length is unknown are not listed.
func Requests(run *trace.Run) ([]Request, []trace.Finding) {
	var out []Request
	var findings []trace.Finding
	assumed := 0
	half := halfStepNs(run)
	for i := range run.Requests {
		r := &run.Requests[i]
		o, ok := observationOf(r)
		if !ok || !r.CoreID.OK && len(run.Observed) > 0 {
			continue
		}
		if !r.ArrivedNs.OK && r.Source != trace.SourceStock {
			assumed++
			o.ArrivalNs = r.QueuedNs.V - half
			if r.FirstTokenNs.OK {
				o.TTFTMs = trace.Some(float64(r.FirstTokenNs.V-o.ArrivalNs) / 1e6)
			}
		}
		out = append(out, o)
	}
	if assumed > 0 {
		findings = append(findings, trace.Findingf(ReplayAssumes,
			"run %s: %d of %d requests have no ARRIVED; QUEUED minus half a step (%.1f ms) was taken", run.ID, assumed, len(out), float64(half)/1e6))
	}
	if len(out) == 0 {
		var more []trace.Finding
		out, more = clientSide(run)
		findings = append(findings, more...)
	}
	markLastSamples(out)
	slices.SortStableFunc(out, func(a, b Request) int {
		return int(max(-1, min(1, a.ArrivalNs-b.ArrivalNs)))
	})
	return out, findings
}

func observationOf(r *trace.Request) (Request, bool) {
	at, known := r.ArrivalNs()
	stock := r.Source == trace.SourceStock
	if !known || !r.PromptTokens.OK || r.PromptTokens.V < 1 || !(r.CoreID.OK || stock) {
		return Request{}, false
	}
	o := Request{
		ID: r.CoreID.Or(r.APIID.V), ArrivalNs: at,
		Prompt: r.PromptTokens.V, Output: r.OutputTokens.Or(0), MaxTokens: r.MaxTokens.Or(0),
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
	for _, end := range []trace.Opt[int64]{r.FinishedNs, r.AbortedNs, r.DepartedNs} {
		if end.OK {
			o.EndNs = end
			break
		}
	}
	o.TTFTMs, o.ITLMs, o.E2EMs = optOf(r.TTFTMs()), optOf(itlMs(r)), optOf(r.E2EMs())
	return o, true
}

// clientSide are the client's own timings: send, first and last chunk. Engine
// stamps of a file that has no client chunks (llmservingsim) are moved to the
// arrival's clock by the smallest pick-up wait, which is then 0 by assumption.
func clientSide(run *trace.Run) ([]Request, []trace.Finding) {
	var out []Request
	var findings []trace.Finding
	offset, twoClocks := engineOffset(run)
	if twoClocks {
		findings = append(findings, trace.Findingf(ReplayAssumes,
			"run %s: arrivals and engine stamps are on two clocks; the smallest pick-up wait was taken as 0", run.ID))
	}
	for i := range run.Observed {
		c := &run.Observed[i]
		o := Request{ID: c.ID, Row: c, Prompt: c.PromptTokens.Or(0), Output: c.OutputTokens.Or(0), MaxTokens: c.AskedTokens.Or(0)}
		first, last := c.FirstChunkNs, c.LastChunkNs
		switch {
		case c.SendNs.OK:
			o.ArrivalNs = c.SendNs.V
		case twoClocks && c.SendWallNs.OK:
			o.ArrivalNs = c.SendWallNs.V + offset
			first, last = c.EngineFirstNs, c.EngineLastNs
		default:
			continue
		}
		if o.Prompt < 1 {
			continue
		}
		if c.Success.OK && !c.Success.V {
			o.Excluded = excludedFailed
			if c.Aborted.V {
				o.Excluded = excludedAborted
			}
			o.EndNs = c.EndNs
		} else if c.LoadOnly.V {
			o.Excluded = excludedUnknownLoad
		}
		arrival := trace.Some(o.ArrivalNs)
		o.TTFTMs = optOf(trace.BetweenMs(arrival, first))
		o.E2EMs = optOf(trace.BetweenMs(arrival, last))
		out = append(out, callSamples(o, c.N.Or(1), optOf(trace.BetweenMs(first, last)))...)
	}
	return out, findings
}

// callSamples are the samples of a call. Clients do not say which sample a chunk was
// of: all are taken to begin with the first one and to share the tokens evenly.
func callSamples(o Request, n int64, total trace.Opt[float64]) []Request {
	out := make([]Request, max(1, n))
	for k := range out {
		out[k] = o
		s := &out[k]
		if n > 1 {
			s.ID = fmt.Sprintf("%s#%d", o.ID, k)
			s.Group = o.ID
			s.Output = o.Output / n
		}
		if total.OK && s.Output > 1 {
			s.ITLMs = trace.Some(total.V / float64(s.Output-1))
		}
	}
	return out
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
func markLastSamples(obs []Request) {
	last := map[string]int{}
	for i := range obs {
		o := &obs[i]
		if o.Group == "" {
			continue
		}
		if j, ok := last[o.Group]; !ok || o.EndNs.V > obs[j].EndNs.V {
			last[o.Group] = i
		}
	}
	for i := range obs {
		if g := obs[i].Group; g != "" && last[g] != i {
			obs[i].E2EMs = trace.Opt[float64]{}
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

// optOf is v, unknown unless ok.
func optOf[T any](v T, ok bool) trace.Opt[T] { return trace.Opt[T]{V: v, OK: ok} }

// itlMs is (FINISHED - FIRST_TOKEN)/(outputs - 1) in ms, or a stock span's decode
// time over the same count; requests with at least two output tokens have one.
func itlMs(r *trace.Request) (float64, bool) {
	if !r.OutputTokens.OK || r.OutputTokens.V < 2 {
		return 0, false
	}
	total, ok := trace.BetweenMs(r.FirstTokenNs, r.FinishedNs)
	if r.Source == trace.SourceStock {
		total = r.StockDecodeUs.V / 1e3
		ok = r.StockDecodeUs.OK
	}
	return total / float64(r.OutputTokens.V-1), ok
}

// idle is what the API adds around the engine, measured on requests that met a
// server with nothing else in flight: nothing hides in their stamps.
type idle struct {
	OverheadUs float64 // median
	EgressUs   float64 // median, 0 when unknown
}

// measureIdle looks at stock spans (time to first token - queue - prefill; e2e -
// queue - inference - overhead) and at journeys (QUEUED - ARRIVED; DEPARTED -
// FINISHED) of requests that arrived after every other one had left. ok is false
// when there is none.
//
// With the passes of an unmodified engine on the clock of its clients, both are
// one: TTFT less the pass of those that met an idle server.
func measureIdle(run *trace.Run) (idle, bool) {
	if a := run.Aggregate; a != nil && len(a.DelaysUs) > 0 {
		return idle{OverheadUs: max(0, stat.Median(a.DelaysUs))}, true
	}
	type span struct {
		from, to int64
		r        *trace.Request
	}
	var spans []span
	for i := range run.Requests {
		r := &run.Requests[i]
		from, ok := r.ArrivalNs()
		if !ok {
			continue
		}
		to := from
		for _, at := range []trace.Opt[int64]{r.FinishedNs, r.DepartedNs, r.AbortedNs} {
			to = max(to, at.V)
		}
		if r.Source == trace.SourceStock {
			to = r.EndWallNs.Or(from + trace.Ns(r.StockE2EUs.V))
		}
		spans = append(spans, span{from, to, r})
	}
	slices.SortStableFunc(spans, func(a, b span) int { return int(max(-1, min(1, a.from-b.from))) })
	var overhead, egress []float64
	busyUntil := int64(-1 << 62)
	for i, s := range spans {
		alone := s.from >= busyUntil && (i+1 == len(spans) || spans[i+1].from > s.from)
		busyUntil = max(busyUntil, s.to)
		if !alone {
			continue
		}
		if o, e, ok := around(s.r); ok {
			overhead = append(overhead, o)
			egress = append(egress, e)
		}
	}
	if len(overhead) == 0 {
		return idle{}, false
	}
	return idle{OverheadUs: max(0, stat.Median(overhead)), EgressUs: max(0, stat.Median(egress))}, true
}

// around is the time before and after the engine of one request, us.
func around(r *trace.Request) (overhead, egress float64, ok bool) {
	if r.Source == trace.SourceStock {
		if !r.StockTTFTUs.OK || !r.StockQueueUs.OK || !r.StockPrefillUs.OK || !r.StockE2EUs.OK || !r.StockInferUs.OK {
			return 0, 0, false
		}
		overhead = r.StockTTFTUs.V - r.StockQueueUs.V - r.StockPrefillUs.V
		return overhead, r.StockE2EUs.V - r.StockQueueUs.V - r.StockInferUs.V - overhead, true
	}
	before, known := trace.BetweenMs(r.ArrivedNs, r.QueuedNs)
	after, departed := trace.BetweenMs(r.FinishedNs, r.DepartedNs)
	return before * 1e3, after * 1e3, known && departed
}

// OfClients runs the checks on what clients saw, for runs of which nothing else was
// recorded: their send stamps and times stand for those of spans.
func OfClients(run *trace.Run, dep *deploy.Deployment) *rows.LoadVerdicts {
	seen := *run
	us := func(ms trace.Opt[float64]) trace.Opt[float64] { return trace.Opt[float64]{V: 1e3 * ms.V, OK: ms.OK} }
	obs, _ := Requests(run)
	for i := range obs {
		if o := &obs[i]; o.Excluded != excludedUnknownLoad {
			seen.Requests = append(seen.Requests, trace.Request{Source: trace.SourceStock, APIID: trace.Some(o.ID),
				StartWallNs: trace.Some(o.ArrivalNs), StockTTFTUs: us(o.TTFTMs), StockE2EUs: us(o.E2EMs), Success: trace.Some(o.Excluded == "")})
		}
	}
	return rows.VerdictsOf(&seen, dep)
}

// fewestLevels decide.
const fewestLevels = 5

// Relative errors of the means of a level, beyond what coefficients explain: those that a fit from
// levels takes for known (spec#level-holdout).
const levelTPOTSD, levelTTFTSD = 0.02, 0.04

// unfinished is how many times the measured time stands for a level that the simulated server does
// not finish.
const unfinished = 100

// levels compares load levels with what coefficients say that never saw them (spec#level-holdout).
func (t *judgedRun) levels(levels []result.LevelHoldout, seed int64) result.ValidationRun {
	v := t.entry()
	v.Source = result.SourcePoints
	v.Load = "levels"
	v.Requests = len(levels)
	v.Replayed = len(levels)
	v.Split = result.Split{Kind: result.SplitLevels, Test: 1}
	v.Metrics = &result.Metrics{}
	q := chance{}
	for _, k := range []struct {
		name string
		of   func(*result.LevelHoldout) (real, simulated *float64)
		to   **result.Metric
		sd   float64
	}{{"ttft", levelTTFT, &v.Metrics.TTFT, levelTTFTSD}, {"itl", levelTPOT, &v.Metrics.ITL, levelTPOTSD}} {
		var real, simulated []float64
		for i := range levels {
			a, b := k.of(&levels[i])
			if a == nil || *a <= 0 {
				continue
			}
			guess := unfinished * *a
			if b != nil && *b > 0 {
				guess = *b
			}
			real = append(real, *a)
			simulated = append(simulated, guess)
		}
		if *k.to = Compare(real, simulated, true); len(real) < fewestLevels {
			continue
		}
		noise := make([]float64, len(simulated))
		for draw := range chanceReplays {
			rng := rand.New(rand.NewPCG(uint64(seed)+uint64(draw), chanceStream))
			for i, x := range simulated {
				noise[i] = x * (1 + k.sd*rng.NormFloat64())
			}
			q.raise(k.name, differ(simulated, noise))
		}
	}
	q.fill(v.Metrics)
	return v
}

func levelTTFT(l *result.LevelHoldout) (real, simulated *float64) { return l.TTFTMs, l.PredictedTTFTMs }
func levelTPOT(l *result.LevelHoldout) (real, simulated *float64) {
	return &l.TPOTMs, l.PredictedTPOTMs
}

// worstLevels names the levels that are farthest off.
func worstLevels(levels []result.LevelHoldout) string {
	worst := func(of func(*result.LevelHoldout) (real, simulated *float64)) string {
		name, most := "none was predicted", 0.0
		for i := range levels {
			if a, b := of(&levels[i]); a != nil && b != nil && *a > 0 && math.Abs(*b / *a - 1) > math.Abs(most) {
				most = *b / *a - 1
				name = fmt.Sprintf("%s, %+.0f %%", levels[i].Name, 100*most)
			}
		}
		return name
	}
	return fmt.Sprintf("no cause can be found without recorded steps; worst TTFT: %s; worst TPOT: %s", worst(levelTTFT), worst(levelTPOT))
}
