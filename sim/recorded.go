package sim

// This file plays recorded step times in place of predicted ones.

// timeline is a Model that also has recorded starts and ends of steps, for a teacher-forced replay,
// in which steps take their recorded times. Where a time is unknown, the engine uses StepUs.
type timeline interface {
	Model
	// StartUs returns when schedule() of a step begins, us, if the engine is ready at readyUs.
	StartUs(step, readyUs int64) int64
	// EndUs returns when the execution of a step that began at startUs ends, us; ok is false when
	// unknown.
	EndUs(step, startUs int64) (endUs int64, ok bool)
}

// Recorded is a timeline of recorded steps. Step First+i began at Start[i] and its execution ended at
// End[i], us; Unknown marks a time that was not recorded. Steps after the list, and steps of unknown
// end, take FallbackUs.
type Recorded struct {
	First      int64
	Start, End []int64
	FallbackUs float64
}

// Unknown marks a time that was not recorded.
const Unknown = int64(-1)

// StepUs returns the time of a step whose end is unknown, us.
func (r *Recorded) StepUs(*Batch) (float64, error) { return max(1, r.FallbackUs), nil }

// StartUs returns the recorded start of a step, and readyUs if it was not recorded.
func (r *Recorded) StartUs(step, readyUs int64) int64 {
	if i := step - r.First; i >= 0 && i < int64(len(r.Start)) && r.Start[i] != Unknown {
		return r.Start[i]
	}
	return readyUs
}

// EndUs returns the recorded end of the execution of a step; false if it was not recorded. The
// recorded end holds whenever the simulated step began, so the start is not used.
func (r *Recorded) EndUs(step, _ int64) (int64, bool) {
	if i := step - r.First; i >= 0 && i < int64(len(r.End)) && r.End[i] != Unknown {
		return r.End[i], true
	}
	return 0, false
}
