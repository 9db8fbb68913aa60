package validate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// refusedOf is why no step times can be had from a run: a way of serving that no
// feature covers (spec#supported), or iterations without times; nil for no reason.
func refusedOf(run *trace.Run, dep *deploy.Deployment) *trace.Error {
	var unsupported *trace.Error
	if errors.As(dep.CheckSupported(), &unsupported) {
		return unsupported
	}
	if run.Aggregate == nil {
		return nil
	}
	return run.Aggregate.Refused
}

// engineLog says what the recording of an unmodified engine can be used for, and which
// option would give more.
func engineLog(run *trace.Run) []trace.Finding {
	a := run.Aggregate
	if a == nil {
		return nil
	}
	times := map[string]string{
		"cadence": "step times from the stamps of its lines", "elapsed": "step times from the logged elapsed time",
		"ticks": "sums of step times between whole seconds", "": "no step times",
	}[a.Audit.Time]
	contexts := map[string]string{
		"trace": "the KV-read term from the trace's own sums", "client": "the KV-read term from the clients' requests",
		"kv_usage": "the KV-read term from the KV usage, roughly", trace.ContextsMean: "the KV-read term merged with the per-decode term",
		"": "no KV-read term",
	}[a.Contexts]
	what := "passes of an unmodified engine give"
	if run.Iterations[0].Form == trace.IterationChunks {
		what, times, contexts = "steps recovered from chunks give", "step times from the chunks' stamps", "the KV-read term by counting"
	}
	var more []string
	if a.Audit.Time != "cadence" {
		more = append(more, "docker logs --timestamps (kubectl logs --timestamps) would give the time of every step")
	}
	if len(run.Observed) == 0 {
		more = append(more, "vllm bench serve --save-result --save-detailed would give contexts and a replay that is judged")
	}
	more = append(more, "the tracing fork would give waits and single requests")
	text := fmt.Sprintf("%s: %d %s %s and %s", run.ID, len(run.Iterations), what, times, contexts)
	if c := a.Audit.ConstantUs; c.OK {
		text += fmt.Sprintf("; %.2f ms lie between elapsed times", c.V/1000)
	}
	return []trace.Finding{trace.Findingf(EngineLog, "%s. %s", text, strings.Join(more, "; "))}
}
