package validate

// This file has what is kept of a replay. The simulator's own results of a long recording are five times as large,
// and several replays of it are compared.

import (
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// simulatedRun is one replay of a phase.
type simulatedRun struct {
	requests       []simulatedRequest // as in replayedPhase.recorded
	steps, clipped int64              // steps; predictions of them and of delays that were clipped
	findings       []trace.Finding
}

// simulatedRequest is what a replay gave of one request.
type simulatedRequest struct {
	ttftUs, itlUs, e2eUs  trace.Opt[float64]
	arrivalUs, departedUs int64
	isFinished            bool
	isStarved             bool // see sim.RequestResult
	waited                bool // it was not in the step after the engine took it
}

// timesOf returns what is compared of a simulated request.
func timesOf(r *sim.RequestResult) simulatedRequest {
	return simulatedRequest{
		ttftUs:     optOf(r.TTFTUs()),
		itlUs:      optOf(r.ITLUs()),
		e2eUs:      optOf(r.E2EUs()),
		arrivalUs:  r.ArrivalUs,
		departedUs: r.DepartedUs.V,
		isFinished: r.Outcome == sim.OutcomeFinished,
		isStarved:  r.Starved,
		waited:     r.ScheduledStep > r.QueuedStep+1,
	}
}
