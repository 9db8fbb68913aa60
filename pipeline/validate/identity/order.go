package identity

// This file checks that the time stamps of a request are in the order in which a server passes through
// them. A reading (identity.go) has what was compared, how much of it contradicts, and a sentence.

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Tolerances of stamps. The API server and the engine are processes of one machine with one monotonic
// clock; the client may be another program on it.
const (
	mostBackwards = 0.01      // share of requests whose stamps may run backwards
	clockSlackNs  = 1_000_000 // between two processes
	clientSlackUs = 2_000     // between a client's and the server's duration

	mostClientFactor = 1.15 // by which a client's times may grow faster than the server's
)

// engineOrder compares the stamps of a request up to its last token.
func engineOrder(f *facts) reading {
	return f.inOrder("a later event has the earlier stamp",
		func(q *trace.Request) []trace.Opt[int64] {
			return []trace.Opt[int64]{q.ArrivedNs, q.QueuedNs, q.ScheduledNs, q.FirstTokenNs, q.FinishedNs}
		})
}

// departures compares the end of a request in the engine with its departure from the API server.
func departures(f *facts) reading {
	return f.inOrder("the response departs before the engine finished",
		func(q *trace.Request) []trace.Opt[int64] {
			if q.FinishStatus.Or("") == trace.FinishAborted {
				return nil // a stop string ends the response first
			}
			return []trace.Opt[int64]{q.FinishedNs, q.DepartedNs}
		})
}

// inOrder returns a reading with the number of requests whose known stamps are not ascending. largest is by how many ms
// one of them is too early.
func (f *facts) inOrder(what string, stamps func(*trace.Request) []trace.Opt[int64]) reading {
	var r reading
	var worstNs int64
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		if q.Source == trace.SourceStock {
			continue
		}
		known := 0
		last := int64(math.MinInt64)
		var back int64
		for _, at := range stamps(q) {
			if !at.OK {
				continue
			}
			if known > 0 {
				back = max(back, last-at.V)
			}
			known++
			last = max(last, at.V)
		}
		if known < 2 {
			continue
		}
		r.checked++
		worstNs = max(worstNs, back)
		if back > clockSlackNs {
			r.violated++
		}
	}
	r.largest = float64(worstNs) / 1e6
	r.broken = float64(r.violated) > mostBackwards*float64(r.checked)
	r.sentence = fmt.Sprintf("in %d of %d requests %s, by up to %.3g ms: the clocks of two streams differ, or one was changed",
		r.violated, r.checked, what, r.largest)
	return r
}

// stepSlackNs is how far an event of a journey may be outside of the time that stepOrder allows.
const stepSlackNs = 20_000_000

// stepOrder compares the stamps of scheduling, of the first token and of the end of each request with those of the step
// that the event names. A step's stamps are those of schedule(). Its tokens come back later, with asynchronous
// scheduling only after the next step was scheduled. So an event may be from the start of the step before to the end of
// the second step after. violated counts events, and largest is by how many ms one is outside of that time.
func stepOrder(f *facts) reading {
	steps := f.run.Steps
	if len(steps) < 4 || f.run.Aggregate != nil {
		return notChecked("no step summaries")
	}
	first := steps[0].ID
	var r reading
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		for _, event := range []struct{ ns, step trace.Opt[int64] }{
			{ns: q.ScheduledNs, step: q.ScheduledStep},
			{ns: q.FirstTokenNs, step: q.FirstTokenStep},
			{ns: q.FinishedNs, step: q.FinishedStep},
		} {
			k := event.step.V - first // index of its step, if no summary was lost up to the second step after it
			if !event.ns.OK || !event.step.OK || k < 1 || k+2 >= int64(len(steps)) || steps[k+2].ID != event.step.V+2 || steps[k-1].ID != event.step.V-1 {
				continue
			}
			off := max(steps[k-1].TsStartNs-event.ns.V, event.ns.V-steps[k+2].TsEndNs) - stepSlackNs
			r.checked++
			if off > 0 {
				r.violated++
				r.largest = math.Max(r.largest, float64(off)/1e6)
			}
		}
	}
	r.broken = float64(r.violated) > mostOffSteps*float64(r.checked)
	if scheduled := f.scheduledOutside(); !r.broken && scheduled.broken {
		return scheduled
	}
	r.sentence = fmt.Sprintf("%d of %d events of journeys are not at the time of the step that they name, by up to %.3g ms: steps and journeys have "+
		"different clocks or units, or are of two runs", r.violated, r.checked, r.largest)
	return r
}

// scheduledOutside counts the requests whose stamp of scheduling is outside of the step that they name. The engine
// stamps the event in schedule() (vllm/v1/core/sched/scheduler.py), whose start and end are the step's stamps. largest
// is in ms.
func (f *facts) scheduledOutside() reading {
	steps := f.run.Steps
	var r reading
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		k := q.ScheduledStep.V - steps[0].ID // index of its step, if no summary before it was lost
		if !q.ScheduledNs.OK || !q.ScheduledStep.OK || k < 0 || k >= int64(len(steps)) || steps[k].ID != q.ScheduledStep.V {
			continue
		}
		r.checked++
		off := max(steps[k].TsStartNs-q.ScheduledNs.V, q.ScheduledNs.V-steps[k].TsEndNs)
		if off > clockSlackNs {
			r.violated++
			r.largest = math.Max(r.largest, float64(off)/1e6)
		}
	}
	r.broken = float64(r.violated) > mostOffSteps*float64(r.checked)
	r.sentence = fmt.Sprintf("%d of %d requests were first scheduled outside of schedule() of the step that they name, by up to %.3g ms: steps and journeys have "+
		"different clocks, or stamps are of other steps", r.violated, r.checked, r.largest)
	return r
}

// Limits of the comparison of first tokens with the step after theirs.
const (
	fewestAhead = 20  // first tokens of steps with two requests and more
	mostUnahead = 0.5 // of them, on the other side of the next step's start
)

// scheduledAhead compares the time of first tokens with the start of the step after theirs. An engine with asynchronous
// scheduling schedules the next step before the tokens of a step come back, one without it afterwards. A step that
// ran one request only may have none after it. Pipeline stages are scheduled ahead either way. largest is in ms.
func scheduledAhead(f *facts) reading {
	steps := f.run.Steps
	if len(steps) == 0 || f.run.Aggregate != nil {
		return notChecked("no step summaries")
	}
	if f.dep.PP > 1 {
		return notChecked("an engine with pipeline stages schedules ahead either way")
	}
	var r reading
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		k := q.FirstTokenStep.V - steps[0].ID // index of its step, if no summary up to the next one was lost
		if !q.FirstTokenNs.OK || !q.FirstTokenStep.OK || k < 0 || k+1 >= int64(len(steps)) ||
			steps[k].ID != q.FirstTokenStep.V || steps[k+1].ID != steps[k].ID+1 || steps[k].NumPrefillReqs+steps[k].NumDecodeReqs < 2 {
			continue
		}
		r.checked++
		late := q.FirstTokenNs.V - steps[k+1].TsStartNs // ns after the start of the next step
		if f.async == (late <= 0) {
			r.violated++
			r.largest = math.Max(r.largest, math.Abs(float64(late))/1e6)
		}
	}
	if r.checked < fewestAhead {
		return notChecked("fewer than %d first tokens of steps with two requests and more", fewestAhead)
	}
	r.broken = float64(r.violated) > mostUnahead*float64(r.checked)
	described, order, was := "off", "after", "scheduled"
	if f.async {
		described, order, was = "on", "before", "did not schedule"
	}
	by := "vllm.async_scheduling in run.yaml is " + described
	if !f.dep.Engine.AsyncScheduling.OK {
		by = fmt.Sprintf("vllm %s has asynchronous scheduling %s by default, and run.yaml does not state vllm.async_scheduling", f.dep.Engine.VLLMVersion, described)
		r.effect = result.IdentityUndecided
	}
	r.sentence = fmt.Sprintf("%s: %d of %d first tokens came %s the next step was scheduled, by up to %.3g ms: the server %s asynchronously, or stamps are wrong",
		by, r.violated, r.checked, order, r.largest, was)
	return r
}

// Tolerances of the stamps of steps.
const (
	restartNs = 1_000_000_000 // by which no step begins before the one before, not even once
)

// stepStamps compares the stamps of each step with each other and with those of the step before. largest is by how many
// ms a stamp is wrong.
func stepStamps(f *facts) reading {
	steps := f.run.Steps
	if f.run.Aggregate != nil || len(steps) == 0 {
		return notChecked("no step summaries")
	}
	r := reading{checked: len(steps)}
	restarted := false
	for i := range steps {
		back := steps[i].TsStartNs - steps[i].TsEndNs // ns by which a stamp is earlier than it can be; above 0: wrong
		if i > 0 {
			earlier := steps[i-1].TsStartNs - steps[i].TsStartNs + 1
			if earlier == 1 && f.async && isOtherBatch(&steps[i-1], &steps[i]) {
				earlier = 0 // scheduled one after the other while the device was idle, within the stamps' resolution
			}
			back = max(back, earlier)
			restarted = restarted || earlier > restartNs
		}
		// schedule() of a step ends before that of the next one begins, and its duration is from one stamp to the other.
		if i+1 < len(steps) && steps[i+1].ID == steps[i].ID+1 {
			back = max(back, steps[i].TsEndNs-steps[i+1].TsStartNs-clockSlackNs)
		}
		if us := steps[i].DurationUs; us > 0 {
			back = max(back, max(steps[i].TsEndNs-steps[i].TsStartNs-us*1000, us*1000-(steps[i].TsEndNs-steps[i].TsStartNs))-clockSlackNs)
		}
		if back > 0 {
			r.violated++
			r.largest = math.Max(r.largest, float64(back)/1e6)
		}
	}
	r.broken = restarted || float64(r.violated) > mostBackwards*float64(r.checked)
	r.sentence = fmt.Sprintf("%d of %d steps end before they begin or after the next one began, have another duration than from their beginning to their end, or do "+
		"not begin after the step before, by up to %.3g ms: stamps are mixed up or have two units, steps are recorded twice, or are of two engines", r.violated,
		r.checked, r.largest)
	return r
}

// isOtherBatch reports whether two steps differ in what they computed, so that they are not one that was recorded twice.
func isOtherBatch(a, b *trace.Step) bool {
	return a.ScheduledTokens != b.ScheduledTokens || a.PrefillTokens != b.PrefillTokens ||
		a.RunningDepth != b.RunningDepth || a.BlocksFree != b.BlocksFree
}

// clientOrder compares the stamps and times within each request of a client. largest is by how many ms one is too
// early.
func clientOrder(f *facts) reading {
	var r reading
	var worstUs float64
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		back := 0.0
		known := false
		later := func(a, b trace.Opt[int64]) {
			if a.OK && b.OK {
				known = true
				back = math.Max(back, float64(a.V-b.V)/1e3)
			}
		}
		later(o.SendNs, o.FirstChunkNs)
		later(o.FirstChunkNs, o.LastChunkNs)
		later(o.LastChunkNs, o.EndNs)
		later(o.QueuedNs, o.ScheduledNs)
		later(o.ScheduledNs, o.EngineFirstNs)
		later(o.EngineFirstNs, o.EngineLastNs)
		if o.TTFTUs.OK && o.E2EUs.OK {
			known = true
			back = math.Max(back, o.TTFTUs.V-o.E2EUs.V)
		}
		if !known {
			continue
		}
		r.checked++
		worstUs = math.Max(worstUs, back)
		if back > 1 || o.TTFTUs.OK && o.TTFTUs.V <= 0 {
			r.violated++
		}
	}
	r.largest = worstUs / 1e3
	r.broken = float64(r.violated) > mostBackwards*float64(r.checked)
	r.sentence = fmt.Sprintf("in %d of %d requests of the client a later stamp is the earlier one, the first token comes after the last, by up "+
		"to %.3g ms, or TTFT is 0", r.violated, r.checked, r.largest)
	return r
}

// Tolerances of the delays outside the engine.
const (
	fewestDelays   = 20   // requests of which the shortest delay is taken
	longestOfLeast = 0.25 // s
)

// apiDelays compares the shortest time from arrival to the queue, and from the last token to the departure, with what a
// front end takes for one request. largest is the longer of the two shortest, in s.
func apiDelays(f *facts) reading {
	var r reading
	for _, delay := range []struct {
		what     string
		from, to func(*trace.Request) trace.Opt[int64]
	}{
		{
			what: "to be queued after its arrival",
			from: func(q *trace.Request) trace.Opt[int64] { return q.ArrivedNs },
			to:   func(q *trace.Request) trace.Opt[int64] { return q.QueuedNs },
		},
		{
			what: "to depart after its last token",
			from: func(q *trace.Request) trace.Opt[int64] { return q.FinishedNs },
			to:   func(q *trace.Request) trace.Opt[int64] { return q.DepartedNs },
		},
	} {
		n := 0
		least := math.Inf(1) // s
		for i := range f.run.Requests {
			q := &f.run.Requests[i]
			if ms, ok := trace.BetweenMs(delay.from(q), delay.to(q)); ok && q.Source != trace.SourceStock {
				n++
				least = math.Min(least, ms/1e3)
			}
		}
		if n < fewestDelays {
			continue
		}
		r.checked += n
		if least > longestOfLeast {
			r.violated += n
			r.broken = true
		}
		if least > r.largest {
			r.largest = least
			r.sentence = fmt.Sprintf("each of %d requests takes at least %.3g s %s: the clocks of API server and engine differ", n, least, delay.what)
		}
	}
	return r
}

// servers returns for each request of clients what the server recorded of it: its journey, else the span of an unmodified
// vLLM; nil: neither.
func (f *facts) servers() []*trace.Request {
	journeys := map[string]*trace.Request{}
	for i := range f.run.Requests {
		if q := &f.run.Requests[i]; q.CoreID.OK {
			journeys[q.CoreID.V] = q
		}
	}
	spans := f.run.StockSpans()
	out := make([]*trace.Request, len(f.run.Observed))
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		if o.CoreID.OK {
			out[i] = journeys[o.CoreID.V]
		} else if o.N.Or(1) == 1 {
			out[i] = spans[o.ID]
		}
	}
	return out
}

// serverTimesUs returns the times from the arrival of a request to its first token and to its end in the engine.
func serverTimesUs(q *trace.Request) (ttftUs, e2eUs trace.Opt[float64]) {
	if q.Source == trace.SourceStock {
		return q.StockTTFTUs, q.StockE2EUs
	}
	between := func(to trace.Opt[int64]) trace.Opt[float64] {
		ms, ok := trace.BetweenMs(q.ArrivedNs, to)
		return trace.Opt[float64]{V: ms * 1e3, OK: ok}
	}
	return between(q.FirstTokenNs), between(q.FinishedNs)
}

// clientEncloses compares the times of a client with those of the server for the same requests: the time that the
// client waited includes that of the server. Only durations are compared, so that the two may have different clocks.
// largest is by how many ms a client's time is too short, or how many times as fast its times grow.
func clientEncloses(f *facts) reading {
	servers := f.servers()
	var r reading
	short, long := 0, 0
	var worst float64
	var ofServer, ofClient []float64 // us of whole answers
	for i := range f.run.Observed {
		o, q := &f.run.Observed[i], servers[i]
		if q == nil || !o.E2EUs.OK {
			continue
		}
		ttftUs, e2eUs := serverTimesUs(q)
		if !e2eUs.OK || q.FinishStatus.Or("") == trace.FinishAborted || !o.Success.Or(true) {
			continue
		}
		r.checked++
		missing := e2eUs.V - o.E2EUs.V
		if ttftUs.OK && o.TTFTUs.OK {
			missing = math.Max(missing, ttftUs.V-o.TTFTUs.V)
		}
		worst = math.Max(worst, missing)
		if missing > clientSlackUs {
			short++
		}
		if o.E2EUs.V > 3*e2eUs.V+1e6 { // three times as long, and a second for the network
			long++
		}
		ofServer = append(ofServer, e2eUs.V)
		ofClient = append(ofClient, o.E2EUs.V)
	}
	r.violated = short + long
	r.largest = worst / 1e3
	r.broken = float64(short) > mostBackwards*float64(r.checked) || 2*long > r.checked
	r.sentence = fmt.Sprintf("%d of %d requests took the client less time than the engine, by up to %.3g ms, and %d over three times as long: "+
		"the client's times have another unit, or belong to another run", short, r.checked, r.largest, long)
	if r.broken || r.checked < fewestOfPart {
		return r
	}
	// What a network and a front end add is about the same for long and short answers.
	slope, lo, _ := stat.Slope(ofServer, ofClient)
	if lo > mostClientFactor {
		r.broken = true
		r.effect = result.IdentityUndecided
		r.violated = r.checked
		r.largest = slope
		r.sentence = fmt.Sprintf("the client's times of %d requests grow %.3g times as fast as the server's, which no delay on the way does: they have another unit, "+
			"or the client was too slow to read the answers", r.checked, slope)
	}
	return r
}
