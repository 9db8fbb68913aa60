package rows

import (
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// TestAssumedLag: with asynchronous scheduling recorded steps, and passes of other logs, have a lag of one; the passes of
// vLLM's log have none, and do not show by their lag how the engine schedules.
func TestAssumedLag(t *testing.T) {
	for name, c := range map[string]struct {
		form    string // of logged passes; empty: recorded steps
		isAsync bool
		want    int
		// What IsAsync returns with a lag of 0 and of 1.
		with0, with1 bool
	}{
		"recorded, asynchronous":  {"", true, 1, false, true},
		"recorded, synchronous":   {"", false, 0, false, true},
		"vLLM's log":              {trace.IterationLog, true, 0, true, true},
		"vLLM's log, synchronous": {trace.IterationLog, false, 0, false, false},
		"SGLang's log":            {trace.IterationSGLang, true, 1, false, true},
		"chunks":                  {trace.IterationChunks, true, 1, false, true},
	} {
		run := &trace.Run{}
		if c.form != "" {
			run.Aggregate = &trace.Aggregate{}
			run.Iterations = []trace.Iteration{{Form: c.form}}
		}
		d := &deploy.Deployment{}
		d.Engine.AsyncScheduling = trace.Some(c.isAsync)
		steps := &Steps{Run: run, Dep: d}
		if got := AssumedLag(run, d); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
		if got0, got1 := IsAsync(steps.Run, steps.Dep, 0), IsAsync(steps.Run, steps.Dep, 1); got0 != c.with0 || got1 != c.with1 {
			t.Errorf("%s: asynchronous: got %v with a lag of 0 and %v with 1, want %v and %v", name, got0, got1, c.with0, c.with1)
		}
	}
}
