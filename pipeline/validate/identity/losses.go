package identity

// This file estimates how many records a recording lost, one identity for each stream: step summaries,
// journeys, spans, events, snapshots, logged passes, requests of clients, KV events. Functions return
// readings, in which `violated` is the number of lost records and `largest` their share.

import (
	"fmt"
	"math"
	"strconv"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// lossTolerance is the share of a stream that may be missing without breaking its identity.
const lossTolerance = 0.02

// stepLossTolerance is the tolerance for step summaries. It is larger, because each summary is exact even
// where others are missing.
const stepLossTolerance = 0.05

// lossReading returns the reading of a stream of which records were recorded and lost. format and args make
// the sentence on the loss.
func lossReading(recorded, lost int, format string, args ...any) reading {
	all := recorded + lost
	r := reading{checked: all, violated: lost, largest: share(lost, all)}
	r.broken = r.largest > lossTolerance
	r.sentence = fmt.Sprintf(format, args...)
	return r
}

// filesWhole returns a broken reading if the extraction found a file that ends too early. How much such a
// file lacks is unknown, so its share counts as 1.
func filesWhole(f *facts) reading {
	r := reading{checked: 1}
	for _, finding := range f.Findings {
		if finding.Code == source.CodeCut {
			r.violated = 1
			r.largest = 1
			r.broken = true
			r.sentence = finding.Message
		}
	}
	return r
}

// Standard deviations of sampling by which the number of sampled records may fall short before the rest of
// the difference counts as lost.
const (
	stepDeviations     = 3
	snapshotDeviations = 4
)

// stepsComplete counts how many fewer summaries there are than the sample rate gives for the step
// ids, less what sampling explains.
func stepsComplete(f *facts) reading {
	n := len(f.run.Steps)
	if n == 0 || f.run.Aggregate != nil { // steps of an aggregate were made of logged passes
		rate := f.dep.Tracing.StepSampleRate
		proof := ""
		if f.snapshot.orphanSteps > 0 {
			proof = "there are snapshots, which belong to them"
		}
		return f.absent("step summaries", "step_tracing_sample_rate", rate, sampledOf(f.stepsOfOthers(), rate, stepDeviations), proof)
	}
	ids := float64(f.stepIDs())
	if ids < 2 {
		return notChecked("fewer than two step ids")
	}
	rate := f.dep.Tracing.StepSampleRate.Or(1)
	expected := ids * rate
	lost := math.Max(0, expected-float64(n)-stepDeviations*math.Sqrt(expected*(1-rate)))
	r := lossReading(n, int(lost), "%d of %.0f step ids have a summary, where step_tracing_sample_rate %g gives about %.0f: about %.3g %% of the "+
		"summaries were lost", n, ids, rate, expected, 100*lost/math.Max(1, expected))
	r.broken = r.largest > stepLossTolerance
	return r
}

// stepIDs returns how many ids there are from the first step that a summary or a journey names to the last.
func (f *facts) stepIDs() int64 {
	ids := stepRange{first: f.run.Steps[0].ID, last: f.run.Steps[len(f.run.Steps)-1].ID, isKnown: true}
	for i := range f.run.Requests {
		ids.add(&f.run.Requests[i])
	}
	return ids.len()
}

// journeysComplete counts, in each step, the running requests of which no journey is known. Journeys that may
// run in the step, and those that ended in the step before, count as known.
func journeysComplete(f *facts) reading {
	if !f.hasForkSpans() {
		rate := f.dep.Tracing.JourneySampleRate
		return f.absent("journeys", "journey_tracing_sample_rate", rate, sampledOf(f.requestsOfOthers(), rate, stepDeviations), "")
	}
	if len(f.run.Steps) == 0 || f.run.Aggregate != nil || len(f.run.Requests) == 0 {
		return notChecked("no journeys beside step summaries")
	}
	if len(f.lives) == 0 {
		return notChecked("no journeys")
	}
	rate := f.dep.Tracing.JourneySampleRate.Or(1)
	if rate < 1 {
		return notChecked("journeys are sampled at %g, so that a loss cannot be told from the sampling", rate)
	}
	var running, known float64
	for k := range f.run.Steps {
		depth := float64(f.run.Steps[k].RunningDepth)
		running += depth
		known += math.Min(depth, float64(f.running[k]+f.ending[k]+f.maybe[k]))
	}
	lost := running - known
	return lossReading(int(known), int(math.Round(lost)), "the steps count %.0f running requests and the journeys have %.0f of them: about %.3g %% of the "+
		"journeys were lost", running, known, 100*lost/math.Max(1, running))
}

// samplingRates compares the recorded share of steps, journeys and snapshots with the sample rates that
// run.yaml states. A share above its rate means that the rate is stated too small. That hides a loss, because
// records that are missing then count as not sampled.
func samplingRates(f *facts) reading {
	n := len(f.run.Steps)
	if n < fewestOfPart || f.run.Aggregate != nil {
		return notChecked("fewer than %d step summaries", fewestOfPart)
	}
	var r reading
	// compare compares the rate that run.yaml states under a key with the number recorded of all.
	// independent is the number of independent draws among all.
	compare := func(key string, rate trace.Opt[float64], recorded, all, independent float64) {
		if !rate.OK || rate.V >= 1 || all < fewestOfPart {
			return
		}
		r.checked++
		deviation := math.Sqrt(rate.V * (1 - rate.V) / math.Max(1, independent))
		share := recorded / all
		if share > rate.V+lossTolerance+rateDeviations*deviation {
			r.violated++
			r.largest = math.Max(r.largest, share/rate.V)
			r.broken = true
			r.sentence = fmt.Sprintf("run.yaml states %s %g, and %.3g %% of %.0f were recorded: the rate is another, so that what was lost cannot be counted", key,
				rate.V, 100*share, all)
		}
	}
	tracing := &f.dep.Tracing
	ids := float64(f.stepIDs())
	compare("step_tracing_sample_rate", tracing.StepSampleRate, float64(n), ids, ids)
	// Sums over steps: running requests, those with a journey, and steps with a running request.
	var running, known, busy float64
	for k := range f.run.Steps {
		depth := float64(f.run.Steps[k].RunningDepth)
		running += depth
		if len(f.running) > 0 {
			known += math.Min(depth, float64(f.running[k]+f.ending[k]+f.maybe[k]))
		}
		if depth > 0 {
			busy++
		}
	}
	compare("journey_tracing_sample_rate", tracing.JourneySampleRate, known, running, float64(len(f.lives))/longerJourneys)
	compare("step_tracing_rich_subsample_rate", tracing.RichSubsampleRate, float64(f.snapshot.steps), busy, busy)
	if r.checked == 0 {
		return notChecked("run.yaml states no sample rate below 1")
	}
	return r
}

// Tolerances of sample rates.
const (
	rateDeviations = 5 // standard deviations of sampling
	// A journey that runs in many steps counts in each of them, so the share of running requests with a
	// journey scatters more than that of journeys: as if there were this many times fewer.
	longerJourneys = 4
)

// apiSpansComplete counts the core spans whose API span is missing.
func apiSpansComplete(f *facts) reading {
	core, lost := 0, 0
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		if !q.CoreID.OK || q.Source == trace.SourceStock {
			continue
		}
		core++
		if !q.APIID.OK {
			lost++
		}
	}
	if core == 0 {
		return notChecked("no core spans")
	}
	if lost == core {
		return f.absent("API spans", "journey_tracing_sample_rate", f.dep.Tracing.JourneySampleRate, float64(core), "")
	}
	return lossReading(core-lost, lost, "%d of %d requests of the engine have no API span: their arrival and departure are not known", lost, core)
}

// coreSpansComplete counts the API spans whose core span is missing.
func coreSpansComplete(f *facts) reading {
	api, lost := 0, 0
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		if !q.APIID.OK || q.Source == trace.SourceStock {
			continue
		}
		api++
		if !q.CoreID.OK && !q.AbortedNs.OK {
			lost++
		}
	}
	if api == 0 {
		return notChecked("no API spans")
	}
	if rate := f.dep.Tracing.JourneySampleRate; lost == api {
		proof := ""
		if !rate.OK {
			proof = "there are API spans, which only a server with journeys writes"
		}
		return f.absent("journeys", "journey_tracing_sample_rate", rate, sampledOf(float64(api), rate, stepDeviations), proof)
	}
	if f.isSampled() {
		return notChecked("journeys are sampled")
	}
	return lossReading(api-lost, lost, "%d of %d API spans have no core span: their journeys were lost", lost, api)
}

// eventsComplete counts the core spans with dropped or missing events.
func eventsComplete(f *facts) reading {
	core, lost := 0, 0
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		if !q.CoreID.OK || q.Source == trace.SourceStock {
			continue
		}
		core++
		started := q.ScheduledNs.OK || q.FirstTokenNs.OK
		// It has an event but not one that must have come before it.
		isHalf := q.FinishedNs.OK && q.FirstTokenNs.OK && !q.ScheduledNs.OK || started && !q.QueuedNs.OK
		if q.DroppedEvents > 0 || isHalf {
			lost++
		}
	}
	if core == 0 {
		return notChecked("no core spans")
	}
	return lossReading(core-lost, lost, "%d of %d journeys lost events", lost, core)
}

// snapshotsComplete takes the larger of two lost shares: of running requests without a snapshot in the steps that have
// snapshots, and of steps that should have snapshots by the sample rate and have none. The share is applied to the
// running requests of the steps that have snapshots, so that checked and violated count request-steps: one for each
// running request of a step.
func snapshotsComplete(f *facts) reading {
	c := &f.snapshot
	rate := f.dep.Tracing.RichSubsampleRate
	busy := 0
	if f.run.Aggregate == nil {
		for i := range f.run.Steps {
			if f.run.Steps[i].RunningDepth > 0 {
				busy++
			}
		}
	}
	if c.steps == 0 {
		return f.absent("snapshots", "step_tracing_rich_subsample_rate", rate, sampledOf(float64(busy), rate, snapshotDeviations), "")
	}
	lostInSteps := int(max(0, c.depth-c.rows))
	lost := share(lostInSteps, int(c.depth))
	if rate.OK {
		expected := float64(busy) * rate.V
		missing := math.Max(0, expected-float64(c.steps)-snapshotDeviations*math.Sqrt(expected*(1-rate.V)))
		lost = math.Max(lost, missing/math.Max(1, expected))
	}
	all := int(c.depth)
	return lossReading(all-int(lost*float64(all)), int(lost*float64(all)), "about %.3g %% of the snapshots that running requests should have were lost",
		100*lost)
}

// passesComplete counts the numbers that are missing between those of the logged passes of the run's
// engine. Of the forms of passes only the logs of vLLM and TensorRT-LLM number every pass.
func passesComplete(f *facts) reading {
	lost, pairs := 0, 0 // pairs of consecutive records
	its := f.run.Iterations
	for i := 1; i < len(its); i++ {
		before, it := &its[i-1], &its[i]
		isNumbered := it.Form == trace.IterationLog || it.Form == trace.IterationTensorRT
		if it.Form != before.Form || it.Sampled || !isNumbered {
			continue
		}
		pairs++
		if gap := it.Index - before.Index - 1; gap > 0 {
			lost += int(gap)
		}
	}
	if pairs == 0 {
		return notChecked("no passes that are numbered")
	}
	recorded := pairs + 1
	return lossReading(recorded, lost, "%d numbers of logged passes are missing among %d", lost, recorded+lost)
}

// clientsComplete estimates how many requests the clients' files lack: the largest of the gaps in
// numbered ids, the served requests that no client has, and the share of others' requests in counters.
func clientsComplete(f *facts) reading {
	n := len(f.run.Observed)
	if n == 0 {
		return notChecked("no requests of clients")
	}
	if sample := f.foundOfClients(source.CodeClientSample); sample.broken {
		return sample
	}
	lost := f.missingNumbers()
	joined := 0
	for i := range f.run.Observed {
		if f.run.Observed[i].CoreID.OK {
			joined++
		}
	}
	served := map[string]bool{} // by the id of the API: samples of one request count once
	for i := range f.run.Requests {
		if q := &f.run.Requests[i]; q.APIID.OK && q.CoreID.OK {
			served[q.APIID.V] = true
		}
	}
	if joined > 0 && !f.isSampled() {
		lost = max(lost, len(served)-joined)
	}
	if a := f.run.Aggregate; a != nil && a.Others > 0 && a.Others < 1 { // Others: share of the decodes
		lost = max(lost, int(a.Others/(1-a.Others)*float64(n)))
	}
	// Tokens of a load at another time are only named, and only if no loss is found.
	if r := f.decodesOfOthers(); float64(lost) <= lossTolerance*float64(n+lost) && r.broken {
		return r
	}
	return lossReading(n, lost, "about %d requests of the server, or of the numbered requests, are not among the %d of the client: they were lost, or "+
		"another client ran", lost, n)
}

// mostUnclaimed is the share of the decodes of a log that may be of no client's request: warm-ups, and loads of other days.
const mostUnclaimed = 0.25

// decodesOfOthers compares the output tokens of the clients' requests with those of a log without gaps. Its
// reading names the difference and fails nothing (IdentityNamed), because a load that ran before or after the
// requests of the clients changes none of them. It is empty if the log or the clients do not count all tokens.
func (f *facts) decodesOfOthers() reading {
	var outputs, generated float64
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		if !o.OutputTokens.OK {
			return reading{}
		}
		outputs += math.Max(0, float64(o.OutputTokens.V-1))
	}
	for i := range f.run.Iterations {
		it := &f.run.Iterations[i]
		if it.Sampled || it.Form != trace.IterationLog {
			return reading{}
		}
		generated += float64(it.GenerationTokens)
	}
	if generated == 0 || f.speculates() || passesComplete(f).broken || outputs >= (1-mostUnclaimed)*generated {
		return reading{}
	}
	return reading{
		checked:  len(f.run.Observed),
		violated: 1,
		largest:  1 - outputs/generated,
		broken:   true,
		effect:   result.IdentityNamed,
		sentence: fmt.Sprintf("the passes of the log made %.0f output tokens after the first, the %d requests of the client have %.0f of them: a client's file is "+
			"missing, or another client ran at another time", generated, len(f.run.Observed), outputs),
	}
}

// missingNumbers returns how many numbers are missing between the least and the largest of the
// clients' request ids; 0 if the ids are not numbered.
func (f *facts) missingNumbers() int {
	type series struct{ n, most, least int } // how many ids, and their largest and smallest number
	all := map[string]*series{}              // by the text before the number
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		prefix, number, ok := numbered(o.ID)
		if !ok || o.Engine.OK { // several engines share the file, so each lacks the others' numbers
			return 0
		}
		s := all[prefix]
		if s == nil {
			s = &series{least: number, most: number}
			all[prefix] = s
		}
		s.n++
		s.most = max(s.most, number)
		s.least = min(s.least, number)
	}
	lost := 0
	for _, s := range all {
		if s.most-s.least >= 4*s.n { // too few for consecutive numbers
			return 0
		}
		lost += max(0, s.most-s.least+1-s.n)
	}
	return lost
}

// numbered returns the parts of an id such as req-17: the text before its last digits and the value
// of the digits.
func numbered(id string) (prefix string, number int, ok bool) {
	from := len(id)
	for from > 0 && id[from-1] >= '0' && id[from-1] <= '9' {
		from--
	}
	number, err := strconv.Atoi(id[from:])
	return id[:from], number, err == nil && len(id)-from <= 9
}

// kvEventsComplete counts the store events whose parent block no earlier event stored.
// An event can store several blocks in a row; only the first has a parent that is outside the
// event.
func kvEventsComplete(f *facts) reading {
	if len(f.run.KVEvents) == 0 {
		return notChecked("no KV events")
	}
	stored := map[string]bool{} // by hash
	n, lost := 0, 0             // events that name a parent, and those of an unknown one
	for i := range f.run.KVEvents {
		e := &f.run.KVEvents[i]
		if len(e.Hashes) == 0 {
			continue
		}
		if e.Parent.OK && e.Parent.V != "" {
			n++
			if !stored[e.Parent.V] {
				lost++
			}
		}
		for _, h := range e.Hashes {
			stored[h] = true
		}
	}
	if n == 0 {
		return notChecked("no stored block names its parent")
	}
	return lossReading(n-lost, lost, "%d of %d stored blocks follow a block that was never stored: KV events were lost", lost, n)
}
