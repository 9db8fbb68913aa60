package sim

// This file writes the step spans of a dump (dump.go): a span covers the schedule() calls of an
// interval (DumpOptions.ClosureInterval), with a BATCH_SUMMARY event for each sampled step.

import (
	"fmt"
)

// stepSpan is the step span that is open: its number, its first step and its events so far.
type stepSpan struct {
	sequence   int64  // number of the span, from 1 on
	first      int64  // its first step
	openedWall int64  // ns
	events     buffer // the events, separated by commas
	starts     []int  // offset in events of each event
	dropped    int64  // number of events at the beginning that closeStepSpan leaves out
	calls      int64  // schedule() calls since the last closure
	emitted    bool   // some step in it was sampled; a span without one is not closed
}

// openStepSpan opens a step span whose first step has the number first.
func (p *Dump) openStepSpan(first int64) {
	p.step = stepSpan{sequence: p.step.sequence + 1, first: first, openedWall: p.lastWall(), starts: p.step.starts[:0]}
	if n := len(p.spare); n > 0 {
		p.step.events = p.spare[n-1]
		p.spare = p.spare[:n-1]
	}
}

// Step implements Observer: it writes the summary and the snapshots of the step if they are
// sampled, and ends the step span if its interval is over.
func (p *Dump) Step(v *StepView) {
	ts := p.opt.MonotonicNs + v.StartUs*1000 + placeStart
	// schedule() takes at most half of the step's time (500 of 1000 ns), but at least 1 us.
	cpu := min(p.opt.ScheduleNs+p.opt.ScheduleSeqNs*v.Running, max(1000, (v.EndUs-v.StartUs)*500))
	sampled := p.stepCoin.Float64() < p.opt.StepRate
	if sampled {
		p.summary(v, ts, ts+cpu)
		if p.richCoin.Float64() < p.opt.RichRate {
			p.snapshots(v, ts+cpu)
		}
		p.step.emitted = true
	}
	p.step.calls++
	if p.step.calls < p.opt.ClosureInterval {
		return
	}
	if p.step.emitted {
		p.closeStepSpan(v.StepID, p.wall(ts+cpu))
		p.openStepSpan(v.StepID + 1)
	}
	p.step.calls, p.step.emitted = 0, false
}

// nextEvent returns the buffer for the next event of the open span. If the span has as many events
// as its limit, its oldest event is dropped, as OpenTelemetry's SDK does (spec#wire-event-limit).
func (p *Dump) nextEvent() *buffer {
	s := &p.step
	if len(s.starts) > 0 {
		s.events.raw(",")
	}
	s.starts = append(s.starts, len(s.events))
	if int64(len(s.starts)) > p.opt.EventLimit+s.dropped {
		s.dropped++
	}
	return &s.events
}

// summary writes the BATCH_SUMMARY event of a step. start and end of schedule() are monotonic ns.
func (p *Dump) summary(v *StepView, start, end int64) {
	b := p.nextEvent()
	b.event(p.wall(end), "step.BATCH_SUMMARY")
	b.int("step.id", v.StepID)
	b.int("step.ts_start_ns", start)
	b.int("step.ts_end_ns", end)
	b.int("step.duration_us", (end-start)/1000)
	b.int("queue.running_depth", v.Running)
	b.int("queue.waiting_depth", v.Waiting)
	b.int("batch.num_prefill_reqs", v.LabelledPrefillReqs)
	b.int("batch.num_decode_reqs", v.LabelledDecodeReqs)
	b.int("batch.scheduled_tokens", v.Tokens())
	b.int("batch.prefill_tokens", v.LabelledPrefillTokens)
	b.int("batch.decode_tokens", v.LabelledDecodeTokens)
	b.int("batch.num_finished", v.Finished)
	b.int("batch.num_preempted", v.Preempted)
	b.double("kv.usage_gpu_ratio", 1-float64(v.FreeBlocks)/float64(v.TotalBlocks))
	b.int("kv.blocks_total_gpu", v.TotalBlocks)
	b.int("kv.blocks_free_gpu", v.FreeBlocks)
	b.end()
}

// snapshots writes a REQUEST_SNAPSHOT event for each running request, at monotonic time `at`, ns.
func (p *Dump) snapshots(v *StepView, at int64) {
	for i := range v.Members {
		m := &v.Members[i]
		phase := "DECODE"
		if m.OutputTokens == 0 {
			phase = "PREFILL"
		}
		b := p.nextEvent()
		b.event(p.wall(at)+int64(i)*1000, "step.REQUEST_SNAPSHOT") // one a microsecond, in order
		b.int("step.id", v.StepID)
		b.text("request.id", p.CoreID(m.Request))
		b.text("request.phase", phase)
		b.int("request.num_prompt_tokens", m.Prompt)
		b.int("request.num_computed_tokens", m.Computed)
		b.int("request.num_output_tokens", m.OutputTokens)
		b.int("request.num_preemptions", m.Preemptions)
		b.int("request.scheduled_tokens_this_step", m.New)
		b.int("kv.blocks_allocated_gpu", m.Blocks)
		b.int("kv.blocks_cached_gpu", m.Registered)
		if m.CachedTokens < m.Prompt { // absent on a full hit (spec#wire-snapshot)
			b.int("request.effective_prompt_len", m.Prompt-m.CachedTokens)
		}
		b.end()
	}
}

// closeStepSpan ends the open step span with step last, at wall-clock time endWall (ns), and writes it in the
// form of the tracing fork's scheduler (spec#wire-step-intervals). Each step span is a trace of its own.
func (p *Dump) closeStepSpan(last, endWall int64) {
	s := &p.step
	id := func(salt uint64) string {
		return fmt.Sprintf("%016x", mix(uint64(p.opt.Seed)^salt, uint64(s.sequence)))
	}
	head := spanHead{
		traceID: id(saltStepTraceHigh) + id(saltStepTraceLow),
		spanID:  id(saltStepSpan),
		flags:   hasIsRemote,
		name:    "scheduler_steps_" + decimal(s.sequence),
		kind:    kindInternal,
		startNs: s.openedWall,
		endNs:   endWall,
	}
	var b buffer
	head.appendTo(&b)
	b.raw(`,"attributes":[`)
	b.int("scheduler.span_sequence", s.sequence)
	b.int("scheduler.step_range_start", s.first)
	b.int("scheduler.closure_interval", p.opt.ClosureInterval)
	b.int("scheduler.step_range_end", last)
	b.raw(`],"events":[`)
	var tail buffer
	tail.raw(`]`)
	spanTail(&tail, s.dropped)
	kept := s.events[s.starts[s.dropped]:] // without the oldest events, beyond the limit
	p.steps = append(p.steps, span{head: b, events: kept, tail: tail})
	p.writeLine(endWall, false)
}
