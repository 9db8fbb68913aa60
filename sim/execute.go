package sim

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// execute says when the step's result is there. A step without tokens runs no
// model. Synchronous step times are cadences, schedule() included; an
// asynchronous step begins when it is scheduled and the one before is done.
func (e *Engine) execute() (int64, error) {
	if e.peers != nil && e.batch.Tokens() > 0 {
		e.peers.submit(e, &e.batch, false)
		return pendingUs, nil
	}
	us := e.cfg.EmptyStepUs
	if e.batch.Tokens() > 0 {
		var err error
		if us, err = e.stepUs(&e.batch); err != nil {
			return 0, err
		}
		e.out.BusyUs += us
	} else {
		e.out.EmptySteps++
	}
	start, fromGPU := e.now, false
	if e.depth > 1 && e.batch.Tokens() > 0 {
		start += e.cfg.ScheduleUs
		if fromGPU = e.gpuFree[0] > start; fromGPU {
			start = e.gpuFree[0]
		}
	}
	if e.cpu != nil {
		start = max(start, e.cpu.flush()) + e.cpu.syncUs
		e.cpu.syncUs = 0
	}
	end := start + us
	if e.pp > 1 && e.batch.Tokens() > 0 {
		end = e.throughStages(start, us)
	}
	if e.timeline != nil {
		if at, ok := e.timeline.EndUs(e.step, e.now); ok {
			end = max(at, e.now)
		}
	}
	if e.grad != nil {
		e.moveClocks(fromGPU, start, us)
	}
	if e.batch.Tokens() > 0 {
		e.gpuFree[e.pp-1] = end
	}
	return end, nil
}

// throughStages says when a step of us in all is through the pipeline: each stage takes
// an equal part of it, one step at a time and in order.
func (e *Engine) throughStages(start, us int64) int64 {
	for i := range e.gpuFree {
		start = max(start, e.gpuFree[i]) + us/e.pp
		e.gpuFree[i] = start
	}
	return start + us%e.pp
}

// moveClocks is execute for the derivatives.
func (e *Engine) moveClocks(fromGPU bool, start, us int64) {
	switch {
	case e.batch.Tokens() == 0:
		e.grad.idles(us)
	case fromGPU:
		e.grad.executes(true, 0)
	default:
		e.grad.executes(false, start-e.now)
	}
}

// stepUs predicts the execution time of a step in whole us.
func (e *Engine) stepUs(b *Batch) (int64, error) {
	y, err := e.cfg.Latency.StepUs(b)
	if err != nil {
		return 0, err
	}
	if !(math.Abs(y)+float64(e.now) <= mostUs) {
		return 0, trace.Errorf(CodeBadPrediction, "step %d: got %g us, want less than the clock has", b.StepID, y)
	}
	if y < 1 {
		e.out.ClippedSteps++
		y = 1
	}
	plain := y
	y *= e.drift.at(e.now)
	if e.cfg.Noise != nil {
		y *= e.cfg.Noise.draw(e.rng, b.Regime())
	}
	if e.grad != nil {
		e.grad.stepUs, e.grad.factor = y, y/plain
		if plain <= 1 {
			e.grad.factor = 0
		}
	}
	return max(1, roundUs(y)), nil
}

// delayUs is the delay, before and after rounding.
func (e *Engine) delayUs(d Delay, q *Queue) (exact float64, us int64, err error) {
	if d == nil {
		return 0, 0, nil
	}
	y, err := d.DelayUs(q)
	if err != nil {
		return 0, 0, err
	}
	if !(math.Abs(y)+float64(e.now) <= mostUs) {
		return 0, 0, trace.Errorf(CodeBadPrediction, "delay at %d us: got %g us, want less than the clock has", q.NowUs, y)
	}
	if y < 0 {
		e.out.ClippedDelays++
		y = 0
	}
	return y, roundUs(y), nil
}

// mostUs is where the clock ends: far above any time, and sums of two stay whole.
const mostUs = 1e18

// roundUs rounds half up to the integer clock (spec#prediction-use).
func roundUs(us float64) int64 { return int64(math.Floor(us + 0.5)) }
