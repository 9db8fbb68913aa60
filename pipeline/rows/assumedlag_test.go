package rows

import (
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// TestAssumedLag: with asynchronous scheduling recorded steps, and passes of other logs, have a lag of one; the passes of
// vLLM's log have none.
func TestAssumedLag(t *testing.T) {
	for name, c := range map[string]struct {
		form    string // of logged passes; empty: recorded steps
		isAsync bool
		want    int
	}{
		"recorded, asynchronous": {"", true, 1},
		"recorded, synchronous":  {"", false, 0},
		"vLLM's log":             {trace.IterationLog, true, 0},
		"SGLang's log":           {trace.IterationSGLang, true, 1},
		"chunks":                 {trace.IterationChunks, true, 1},
	} {
		run := &trace.Run{}
		if c.form != "" {
			run.Aggregate = &trace.Aggregate{}
			run.Iterations = []trace.Iteration{{Form: c.form}}
		}
		d := &deploy.Deployment{}
		d.Engine.AsyncScheduling = trace.Some(c.isAsync)
		if got := (&Steps{Run: run, Dep: d}).AssumedLag(); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}
