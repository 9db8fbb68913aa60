package logged

// This file decides what the logged times of passes measure, before they are used as step times.

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// Sources of the step times of a run (spec#iteration-times).
const (
	timeCadence = "cadence" // precise stamps of neighbouring passes
	timeElapsed = "elapsed" // the logged time and one constant
	timeTicks   = "ticks"   // passes between whole seconds
)

// Thresholds of the audit.
const (
	preciseNs     = 1_000_000 // resolution of a stamp that gives a cadence, the time between neighbouring lines
	precisePart   = 0.9       // share of the passes that must have such a stamp
	coarsePart    = 0.02      // share of a pass: stamps no finer than this give no cadence of a single one
	belowFloorMax = 0.1       // share of elapsed times below reading the weights once that a synchronous engine may show
	sumOverMax    = 1.02      // most of the sum of elapsed times over the time that passed; more: passes overlap
	overStampsMax = 3         // most of that sum over the time between the stamps; asynchronous passes may double it
	unlikeMax     = 0.7       // most of the error of the best lag; more: the times are those of no batch (synchronous engines: up to 0.6)
	prefillNear   = 64        // tokens of such a prefill: fewer do not show in the time of a pass
	tickSeconds   = 300       // s of busy time that stamps in whole seconds need
	idleFactor    = 3         // a gap between passes of this many constants and idleUs is idle time
	idleUs        = 5000
)

// timeAudit is the result of the time audit (spec#iteration-audit).
//
// elapsedLag finds the log line whose counts predict the elapsed time best: its own or an earlier
// one.
//
// The constant is the time between passes that elapsed does not include. With precise stamps it is
// the mean of the inner 80 % of (cadence - elapsed). With stamps in whole seconds it is the slope
// of (tick - sum of elapsed) over passes. Otherwise it follows from clients whose tokens are the
// decodes of the run: (sum of last - first chunk, less the sum over passes of elapsed times
// decodes), divided by the decodes.
type timeAudit struct {
	time       string          // the source of step times: timeCadence, timeElapsed or timeTicks
	sync       bool            // elapsed is the time of its own pass
	coarse     bool            // the resolution of stamps is more than coarsePart of a pass
	constantUs float64         // between passes, not in elapsed
	refused    *trace.Error    // why there are no step times; nil if there are
	figures    trace.TimeAudit // for the documents
}

// auditTimes returns the source of step times that it chose: the cadence of precise stamps; without
// such stamps elapsed, if the engine is synchronous and the figures agree with that; otherwise the
// time between whole seconds, if there is enough busy time.
func (f *filler) auditTimes() timeAudit {
	var a timeAudit
	if f.isFromChunks {
		a.time = timeCadence
		a.coarse = f.isCoarse()
		a.figures.Time = timeCadence
		return a
	}
	if n := f.overStamps(); n > overStampsMax {
		a.refused = trace.Errorf(codeNoStepTimes,
			"run %s: elapsed is no step time: the values sum up to %.3g times the time between the first and the last stamp",
			f.run.ID, n).WithHint("look at the log: times of another unit, or lines of several engines?")
		return a
	}
	// The evidence: the resolution of the stamps, whether elapsed belongs to the batch of its own line (lag),
	// and whether it can be a whole step at all.
	precise, second := f.resolution()
	var e elapsedEvidence
	e.lag, e.isConclusive = f.elapsedLag(&a.figures)
	if errs := a.figures.LagErrors; len(errs) > 0 {
		e.unlike = slices.Min(errs)
	}
	e.below = f.belowFloor()
	a.constantUs = f.gapConstant(precise, second, &a.figures)
	e.isOver = a.figures.SumOverWall.OK && a.figures.SumOverWall.V > sumOverMax

	// TensorRT-LLM logs the time of the device, which is the pass's own with any scheduling.
	isDeviceTime := f.passes[0].it.Form == trace.IterationTensorRT
	dep := &f.dep.Engine
	e.isAsync = !isDeviceTime && dep.IsAsync()

	// Nothing contradicts it, and something shows it.
	a.sync = !e.contradictsSync() && !e.isAsync && (isDeviceTime || dep.AsyncScheduling.OK || e.isConclusive)
	a.coarse = precise && f.isCoarse()
	// Precise stamps are best; those that are coarse for a single pass are worse than the elapsed time of a
	// synchronous engine.
	switch {
	case precise && !(a.coarse && a.sync):
		a.time = timeCadence
	case a.sync:
		a.time = timeElapsed
	case !second: // no stamps either
		a.refused = f.refusedElapsed(e)
	default:
		a.time = timeTicks
		if s := f.secondsBetweenTicks(); s < tickSeconds {
			why := f.refusedElapsed(e)
			a.refused = trace.Errorf(codeNoStepTimes,
				"%s; stamps in whole seconds leave %.0f s of busy time between ticks, want %d", why.Msg, s, tickSeconds).
				WithHint("save the log with precise stamps (docker logs --timestamps; SGLANG_LOG_MS=1), or record " +
					fmt.Sprintf("%.0f times as long", math.Ceil(tickSeconds/math.Max(s, 1))))
		}
	}
	a.figures.Time = a.time
	return a
}

// overStamps returns the sum of all elapsed times divided by the time from the first stamp to the last.
func (f *filler) overStamps() float64 {
	lo := int64(math.MaxInt64)
	hi := int64(math.MinInt64)
	sum := 0.0
	for i := range f.passes {
		if it := f.passes[i].it; it.StampNs.OK {
			lo = min(lo, it.StampNs.V)
			hi = max(hi, it.StampNs.V)
			sum += it.ElapsedUs
		}
	}
	return sum / (math.Max(0, float64(hi)-float64(lo))/1000 + 1e6) // whole seconds at least
}

// elapsedEvidence is what logged times tell of the engine's scheduling.
type elapsedEvidence struct {
	lag          int     // lines from the batch that the times follow to the line that has them
	isConclusive bool    // whether lag is clearly the best
	unlike       float64 // mean relative error with which the batch of the best line predicts them; 0: unknown
	below        float64 // share of them that no pass can have
	isOver       bool    // they sum up to more than the time that passed
	isAsync      bool    // scheduling is asynchronous by run.yaml or by the version's default
}

// contradictsSync reports whether the times cannot be those of a synchronous engine's passes: they belong to an
// earlier line or to none, or, if no lag shows that they do not, they are often shorter than any pass; or passes
// overlap. That they belong to their own line is no proof: an asynchronous engine too logs the batch it
// waits for (vllm/v1/engine/core.py: step_with_batch_queue()).
func (e *elapsedEvidence) contradictsSync() bool {
	isLate := e.isConclusive && e.lag > 0
	isShort := e.below > belowFloorMax && !e.isConclusive
	return isLate || e.unlike > unlikeMax || isShort || e.isOver
}

// refusedElapsed returns the error that states why elapsed is not the time of a pass.
func (f *filler) refusedElapsed(e elapsedEvidence) *trace.Error {
	why := "nothing shows that the engine is synchronous"
	hint := "save the log with precise stamps (docker logs --timestamps, kubectl logs " +
		"--timestamps), or record with --no-async-scheduling"
	switch {
	case f.passes[0].it.Form == trace.IterationSGLang:
		why = "SGLang's lines state none"
		hint = f.allPasses()
	case e.isAsync:
		why = "scheduling is asynchronous by run.yaml or by its version's default"
		if _, known := f.dep.Engine.Release(); !known && !f.dep.Engine.AsyncScheduling.OK {
			why = "no release and no async_scheduling is stated, and the newest release's default is asynchronous"
			hint = "state vllm.version or vllm.async_scheduling in run.yaml, or save the log with precise stamps (docker logs --timestamps)"
		}
	case e.isConclusive && e.lag > 0:
		why = fmt.Sprintf("it follows the batch %d lines earlier, as with asynchronous scheduling", e.lag)
	case e.unlike > unlikeMax:
		why = fmt.Sprintf("no batch explains it, the counts of the best line are off by %.0f %%, as with asynchronous scheduling", 100*e.unlike)
	case e.below > belowFloorMax:
		why = fmt.Sprintf("%.0f %% of the values lie below the time that reading the weights takes", 100*e.below)
	case e.isOver:
		why = "the values sum up to more than the time that passed"
	}
	return trace.Errorf(codeNoStepTimes, "run %s: elapsed is no step time: %s", f.run.ID, why).WithHint(hint)
}

// resolution reports whether nearly all passes have precise stamps, and whether they have stamps at all,
// which are at least in whole seconds.
func (f *filler) resolution() (precise, second bool) {
	withPrecise := 0
	withStamp := 0
	for i := range f.passes {
		if it := f.passes[i].it; it.StampNs.OK {
			withStamp++
			if it.StampStepNs.V <= preciseNs {
				withPrecise++
			}
		}
	}
	least := precisePart * float64(len(f.passes))
	return float64(withPrecise) >= least, float64(withStamp) >= least
}

// isCoarse reports whether the resolution of the stamps is more than coarsePart of a pass.
func (f *filler) isCoarse() bool {
	var cadences []float64
	step := int64(0)
	for i := 1; i < len(f.passes); i++ {
		a, b := f.passes[i-1].it, f.passes[i].it
		if f.passes[i].follows && a.StampNs.OK && b.StampNs.OK {
			cadences = append(cadences, float64(b.StampNs.V-a.StampNs.V))
			step = max(step, b.StampStepNs.V)
		}
	}
	return len(cadences) > 0 && float64(step) > coarsePart*stat.Median(cadences)
}

// belowFloor returns the share of passes with tokens whose elapsed time is below the time that
// reading the weights once takes.
func (f *filler) belowFloor() float64 {
	below := 0
	n := 0
	for i := range f.passes {
		t := f.passes[i].stepTotals()
		if t.Prefill+t.Decode == 0 {
			continue
		}
		n++
		if f.passes[i].it.ElapsedUs < f.space.FloorUs(new(features.FromTotals(&t))) {
			below++
		}
	}
	return float64(below) / float64(max(1, n))
}

// TimeVerdict returns, for the documents, a sentence about the source from which the step times
// come.
func TimeVerdict(a *trace.TimeAudit) string {
	var verdict string
	switch a.Time {
	case timeCadence:
		verdict = "the stamps of neighbouring lines are the step time"
	case timeElapsed:
		verdict = fmt.Sprintf("the logged elapsed time and %.2f ms a pass are the step time", a.ConstantUs.V/1000)
	case timeTicks:
		verdict = "the time between whole seconds is that of the passes between them"
	default:
		return "nothing in the log is the step time"
	}
	if e := a.LagErrors; len(e) == 3 && !math.IsNaN(e[0]) {
		verdict += fmt.Sprintf("; predicted from the counts of its own line, elapsed has an error of %.0f %%, "+
			"from those of one and two lines before %.0f and %.0f %%", 100*e[0], 100*e[1], 100*e[2])
	}
	return verdict
}
