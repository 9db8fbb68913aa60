package sim

// recording is an Observer that keeps when steps began and ended.
type recording struct{ start, end []int64 }

// Step notes the step's times.
func (r *recording) Step(v *StepView) {
	r.start, r.end = append(r.start, v.StartUs), append(r.end, v.EndUs)
}

// Event is ignored.
func (r *recording) Event(*Event) {}

// Timeline is the recording as a latency model.
func (r *recording) Timeline() *Recorded {
	return &Recorded{First: 1, Start: r.start, End: r.end}
}
