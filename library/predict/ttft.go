package predict

// This file divides the mean TTFT into its parts: front end, queueing, running step and the steps of
// the prompt.

import (
	"math"

	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/sim"
)

// TTFTPart is a part of the mean TTFT. Parts add up to it, less those below half a microsecond. The range is where nine
// in ten servers are expected to lie, from the error of that part alone, which is known in two forms (ranged).
type TTFTPart struct {
	Name   string  `json:"name"`
	MeanMs float64 `json:"mean_ms"`
	LowMs  float64 `json:"low_ms"`
	HighMs float64 `json:"high_ms"`
}

// Parts of the TTFT beside those of the steps of the prompt.
const (
	partFrontEnd = "front end"
	partQueueing = "queueing"
	partRunning  = "running step"
)

// stepPartNames names the parts of the steps that compute a prompt.
var stepPartNames = [library.NumTimeParts]string{
	library.LinearTime:     "prefill, linear layers",
	library.AttentionTime:  "prefill, attention",
	library.ExpertsTime:    "prefill, experts",
	library.CollectiveTime: "prefill, collectives",
	library.SmallTime:      "prefill, small kernels",
	library.LaunchTime:     "launch",
	library.HostTime:       "host",
}

// stepParts has the parts of the steps with prompts of a simulation, us, by the step's number.
type stepParts struct {
	price *library.Pricer
	theta [library.NumStep]float64
	steps map[int64][library.NumTimeParts]float64
}

// newStepParts returns a record of the parts of steps without any step yet.
func newStepParts(step *library.Step) *stepParts {
	return &stepParts{
		price: step.NewPricer(),
		theta: library.Learned().On(step.GPU.Hardware),
		steps: map[int64][library.NumTimeParts]float64{},
	}
}

// addStep records a step.
func (w *stepParts) addStep(id int64, b *library.Batch) {
	if b.Prefills > 0 {
		w.steps[id] = w.price.TimeParts(b, &w.theta)
	}
}

// requestParts are sums over requests of the parts of their TTFT, us.
type requestParts struct {
	requests float64                       // how many
	frontUs  float64                       // front end
	queueUs  float64                       // queueing
	waitUs   float64                       // for the running step
	stepsUs  [library.NumTimeParts]float64 // the steps of the prompt
}

// addRequests adds the parts of the TTFT of the measured requests of a stretch (the part of a load that one simulation
// runs, with requests before and after the measured ones); res is the result of its simulation.
//
// The front end is the server's HTTP and tokenizer, and the client. Queueing is the wait for a place in a batch. An
// engine that schedules asynchronously lets a scheduled prompt wait for the running step. The steps of the prompt
// follow, from the first that computes a part of it to the one that gives the first token, with what else runs in them.
func (w *stepParts) addRequests(s *Stretch, res *sim.Result, to *requestParts) {
	for i := range res.Requests {
		r := &res.Requests[i]
		ttftUs, ok := r.TTFTUs()
		if s.Requests[i].Unmeasured || !ok || r.Preemptions > 0 || r.ScheduledStep < 1 {
			continue // not measured, not answered, or not computed in one run of steps
		}
		inStepsUs := 0.0
		for k := r.ScheduledStep; k <= r.FirstStep; k++ {
			for part, us := range w.steps[k] {
				to.stepsUs[part] += us
				inStepsUs += us
			}
		}
		enqueuedUs := float64(r.EnqueuedUs.Or(r.ArrivalUs))
		scheduledUs := float64(r.ScheduledUs.V)
		firstUs := float64(r.FirstTokenUs.V)
		to.requests++
		to.frontUs += ttftUs - (firstUs - enqueuedUs) // what TTFT has beyond the engine's own times
		to.queueUs += scheduledUs - enqueuedUs
		to.waitUs += firstUs - scheduledUs - inStepsUs
	}
}

// ranged returns the means of the parts with their ranges.
//
// The front end and the launch are corrections that were fitted with a standard error each. All other parts consist of
// step times: the time that a prompt waits for a batch or for the running step is the time of other steps. Their error
// is the stated one of TPOT, not of TTFT, because a gap between tokens is one step, while TTFT also has the front end.
// It is the half width of a 90 % interval already, so only the standard errors are multiplied by z90.
func (r *requestParts) ranged(p *Prediction) (out []TTFTPart) {
	if r.requests == 0 {
		return nil
	}
	const z90 = 1.645 // standard errors within which 90 % of a normal distribution lie
	learned := library.Learned()
	_, overheadSE := learned.Value(library.NumStep, p.Hardware) // the parameter behind those of a step is the overhead, us
	_, launchSE := p.Step.LaunchUs(learned)
	stepError := p.StatedErrors(nil).TPOT
	// add adds a part with its sum over requests and half the width of its range, which is around the mean; both in us.
	add := func(name string, sumUs, halfUs float64) {
		if us := sumUs / r.requests; us >= 0.5 {
			out = append(out, TTFTPart{Name: name, MeanMs: us / 1e3, LowMs: math.Max(0, us-halfUs) / 1e3, HighMs: (us + halfUs) / 1e3})
		}
	}
	add(partFrontEnd, r.frontUs, z90*overheadSE)
	add(partQueueing, r.queueUs, stepError*r.queueUs/r.requests)
	add(partRunning, r.waitUs, stepError*r.waitUs/r.requests)
	for k, us := range r.stepsUs {
		halfUs := stepError * us / r.requests
		if library.TimePart(k) == library.LaunchTime {
			halfUs = z90 * launchSE
		}
		add(stepPartNames[k], us, halfUs)
	}
	return out
}
