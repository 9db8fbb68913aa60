package sim

// This file predicts how long a step executes and when its result is ready.

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// execute returns the time, us, when the result of the step just formed is ready. A step without
// tokens runs no model and takes Config.EmptyStepUs. The predicted time of a synchronous step
// includes schedule(); an asynchronous step begins once it is scheduled and the step before has
// ended. For ranks in lockstep the result is pendingUs until all ranks have reached the forward
// pass.
func (e *Engine) execute() (int64, error) {
	hasTokens := e.batch.Tokens() > 0
	if e.rank != nil && hasTokens {
		e.rank.submit(&e.batch, false)
		return pendingUs, nil
	}
	us := e.cfg.EmptyStepUs
	if hasTokens {
		var err error
		if us, err = e.stepUs(&e.batch); err != nil {
			return 0, err
		}
		e.out.BusyUs += us
	} else {
		e.out.EmptySteps++
	}
	start := e.now
	waitsForGPU := false
	if e.depth > 1 && hasTokens { // an asynchronous step, see above
		start += e.cfg.ScheduleUs
		if e.stageFree[0] > start {
			start = e.stageFree[0]
			waitsForGPU = true
		}
	}
	if e.connector != nil {
		start = e.connector.delayStep(start)
	}
	end := start + us
	if e.pp > 1 && hasTokens {
		end = e.throughStages(max(start, e.sampledUs()), us)
	}
	if e.timeline != nil { // the recorded end, if there is one, instead of all that
		if at, ok := e.timeline.EndUs(e.step, e.now); ok {
			end = max(at, e.now)
		}
	}
	if e.grad != nil {
		if hasTokens {
			e.grad.executed(waitsForGPU, start-e.now)
		} else {
			e.grad.idled(us)
		}
	}
	if hasTokens {
		e.stageFree[e.pp-1] = end // also where the end was recorded, or there is one stage
	}
	if e.pp > 1 {
		for i := range e.cur {
			if it := &e.cur[i]; it.yields {
				it.s.sampledUs = end
			}
		}
	}
	return end, nil
}

// sampledUs returns when the last stage has sampled all tokens that the step just formed computes, us. The first
// stage needs them, also where the scheduler does not wait for them (asynchronous scheduling with pipeline stages).
func (e *Engine) sampledUs() (us int64) {
	for i := range e.cur {
		if s := e.cur[i].s; s.inFlight > 0 {
			us = max(us, s.sampledUs)
		}
	}
	return us
}

// throughStages returns when a step has passed the pipeline stages if it is ready at start and
// takes us microseconds in all. Each stage takes an equal part, whole us, and the rest of the
// division comes at the end. A stage runs one step at a time, in order.
func (e *Engine) throughStages(start, us int64) int64 {
	at := start
	for i := range e.stageFree {
		at = max(at, e.stageFree[i]) + us/e.pp
		e.stageFree[i] = at
	}
	return at + us%e.pp
}

// stepUs returns the predicted execution time of a step in whole us, with drift and noise, at least
// 1.
func (e *Engine) stepUs(b *Batch) (int64, error) {
	plain, err := e.cfg.Latency.StepUs(b)
	if err != nil {
		return 0, err
	}
	if !(math.Abs(plain)+float64(e.now) <= mostUs) { // also for NaN
		return 0, trace.Errorf(CodeBadPrediction, "step %d: got %g us, want less than the clock has", b.StepID, plain)
	}
	if plain < 1 {
		e.out.ClippedSteps++
		plain = 1
	}
	us := plain * e.drift.factorAt(e.now)
	if e.cfg.Noise != nil {
		us *= e.cfg.Noise.draw(e.rng, b.Regime())
	}
	if e.grad != nil {
		e.grad.predicted(us, plain)
	}
	return max(1, roundUs(us)), nil
}

// delayUs returns the delay that model d predicts for state q, us: exact, and rounded to whole us.
// A negative prediction counts as 0.
func (e *Engine) delayUs(d Delay, q *Queue) (exact float64, us int64, err error) {
	if d == nil {
		return 0, 0, nil
	}
	exact, err = d.DelayUs(q)
	if err != nil {
		return 0, 0, err
	}
	if !(math.Abs(exact)+float64(e.now) <= mostUs) {
		return 0, 0, trace.Errorf(CodeBadPrediction,
			"delay at %d us: got %g us, want less than the clock has", q.NowUs, exact)
	}
	if exact < 0 {
		e.out.ClippedDelays++
		exact = 0
	}
	return exact, roundUs(exact), nil
}

// mostUs is the largest time that the clock can show, us. It is far above any real time, and sums
// of two such times fit into an int64.
const mostUs = 1e18

// roundUs rounds half up to whole microseconds, the unit of the clock (spec#prediction-use).
func roundUs(us float64) int64 { return int64(math.Floor(us + 0.5)) }
