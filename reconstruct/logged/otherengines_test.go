package logged

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// TestOtherEngines: SGLang's passes with precise stamps, and TensorRT-LLM's with device times and
// whole seconds, give the times that were planted; SGLang's one decode in forty is refused with
// the flag that cures it, and so are its passes with stamps in whole seconds.
func TestOtherEngines(t *testing.T) {
	told := func(form string, step int64, sampled bool, states func(*deploy.Deployment)) (*trace.Run, truth) {
		run, tr := engine{constant: 1500, seconds: 60, stampStep: step, gap: 0.05}.record()
		for i := range run.Iterations {
			it := &run.Iterations[i]
			if it.Form = form; form == trace.IterationSGLang {
				it.ElapsedUs = 0
				it.Sampled = sampled && it.ContextReqs == 0
				it.ContextKVTokens, it.DecodeKVTokens = trace.Some(int64(0)), trace.Some(int64(tr.contexts[i])-it.GenerationReqs)
			}
		}
		if err := Fill(run, deployment(t, states)); err != nil {
			t.Fatal(err)
		}
		return run, tr
	}
	newest := func(d *deploy.Deployment) {
		d.Engine.AsyncScheduling = trace.Opt[bool]{}
		d.Engine.VLLMVersion = "0.33.0"
	}
	for _, c := range []struct {
		form   string
		step   int64
		states func(*deploy.Deployment) // of vLLM, which these are not
	}{{trace.IterationSGLang, 1000, asynchronous(false)}, {trace.IterationSGLang, 1000, newest},
		{trace.IterationTensorRT, 1e9, asynchronous(false)}, {trace.IterationTensorRT, 1e9, asynchronous(true)},
		{trace.IterationTensorRT, 1e9, newest}} {
		run, tr := told(c.form, c.step, false, c.states)
		if run.Aggregate.Refused != nil {
			t.Errorf("%s: got %v", c.form, run.Aggregate.Refused)
			continue
		}
		times, contexts := errorsOf(run, tr)
		t.Logf("%s: planted step times are off by %.2g %% (median), contexts by %.2g %%", c.form, 100*times, 100*contexts)
		if times > 0.03 {
			t.Errorf("%s: planted step times are off by %.2g, want at most 0.03", c.form, times)
		}
	}
	for _, c := range []struct {
		step    int64
		sampled bool
		hint    string
	}{{1000, true, "--decode-log-interval 1"}, {1e9, false, "timestamps"}} {
		run, _ := told(trace.IterationSGLang, c.step, c.sampled, asynchronous(false))
		if e := run.Aggregate.Refused; e == nil || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("got %v, want a refusal with %q", e, c.hint)
		}
	}
}
