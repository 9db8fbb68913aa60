package validate

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// TestSourcesOfRecordings: what was recorded is named with what it teaches, what is missing with
// the one flag that would give it, and nothing is asked for that what is there already tells.
func TestSourcesOfRecordings(t *testing.T) {
	passes := func(form string) *trace.Run {
		return &trace.Run{Iterations: []trace.Iteration{{Form: form, GenerationReqs: 2, GenerationTokens: 5}},
			Aggregate: &trace.Aggregate{Audit: trace.TimeAudit{Time: "elapsed"}, Contexts: "client"}}
	}
	refused := passes(trace.IterationSGLang)
	refused.Aggregate.Refused = &trace.Error{Hint: "--decode-log-interval 1"}
	clients := &trace.Run{Observed: []trace.ObservedRequest{{ID: "a"}}}
	for name, c := range map[string]struct {
		run   *trace.Run
		dp    int64
		in    result.ExtractRun
		says  []string // of a source: got: teaches: adds
		never string
	}{
		"the tracing fork": {&trace.Run{}, 1, result.ExtractRun{Requests: result.ExtractRequests{Engine: 4},
			Steps: result.ExtractSteps{StepTotals: result.StepTotals{Summaries: 9}}}, []string{"fork: 4 requests, 9 steps: waits"}, "--"},
		"journeys alone": {&trace.Run{}, 1, result.ExtractRun{Requests: result.ExtractRequests{Engine: 4}},
			[]string{"fork: 4 requests, 0 steps: waits, batches and step times: --step-tracing-enabled"}, "vllm bench"},
		"stock spans": {&trace.Run{}, 1, result.ExtractRun{Requests: result.ExtractRequests{Stock: 4}},
			[]string{"vLLM: 4 requests: queue", "passes: missing: step times by batch: --enable-logging-iteration-details",
				"clients: missing"}, "api-server-count"},
		"two ranks": {clients, 2, result.ExtractRun{}, []string{
			"missing: step times by batch: --enable-logging-iteration-details", "--api-server-count 1",
			"clients: 1 requests", "--save-detailed", "cached tokens: missing", "--enable-prompt-tokens-details"}, "/metrics"},
		"a log": {passes(trace.IterationLog), 1, result.ExtractRun{}, []string{"vLLM's log: 1 passes, 3 drafted tokens: step times from the " +
			"logged elapsed time and the KV-read term from the clients' requests: docker logs --timestamps", "/metrics: missing",
			"clients: missing"}, "--enable-logging"},
		"passes that are metrics": {passes(trace.IterationFPM), 1, result.ExtractRun{}, []string{
			"forward-pass metrics: 1 passes: step times"}, "drafted"},
		"SGLang, one in forty": {refused, 1, result.ExtractRun{}, []string{
			"SGLang's log: 1 passes: batches, and no step times: --decode-log-interval 1"}, ""},
		"levels": {&trace.Run{Points: make([]trace.LoadPoint, 3)}, 1, result.ExtractRun{}, []string{
			"load levels: 3 load levels: mean TTFT"}, ""},
		"metrics and cached tokens": {passes(trace.IterationLog), 1, result.ExtractRun{
			Files:        []result.ExtractFile{{Kind: "metrics"}, {Kind: "metrics"}},
			CachedTokens: []result.CachedTokens{{Requests: 5, PromptTokens: 90, HitTokens: 30, Exact: 4, Bounded: 1}}},
			[]string{"/metrics: 2 files", "30 of 90 prompt tokens; of 5 requests 0 by usage, 4 exactly, 1 within bounds",
				"--enable-prompt-tokens-details"},
			"curl"},
	} {
		var text strings.Builder
		for _, s := range sourcesOf(c.run, &deploy.Deployment{DP: c.dp}, &c.in) {
			got := s.Got
			if !s.Found {
				got = "missing"
			}
			text.WriteString(s.Source + ": " + got + ": " + s.Teaches + ": " + s.Adds + "\n")
		}
		for _, want := range c.says {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%s: got\n%swant %q", name, text.String(), want)
			}
		}
		if c.never != "" && strings.Contains(text.String(), c.never) {
			t.Errorf("%s: got\n%sand %q, which nobody needs", name, text.String(), c.never)
		}
	}
}
