package validate

// This file lists the sources of a recording, what each of them can be used for, and what one more
// option of the server would add.

import (
	"fmt"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// What one flag more would add to a recording.
const (
	addLog     = "--enable-logging-iteration-details (vLLM 0.14 or newer): batches and step times of an unmodified server"
	addClients = "vllm bench serve --save-result --save-detailed: contexts of decodes, and a replay that is judged"
	addUsage   = "--enable-prompt-tokens-details and a client that keeps the usage: cached tokens of every request"
)

// sourcesOf returns the sources of a recording with what each can be used for, and what one more
// recording option would add. Missing sources are listed if they would add something.
func sourcesOf(run *trace.Run, dep *deploy.Deployment, in *result.ExtractRun) []result.InspectSource {
	if in == nil {
		return nil
	}
	var out []result.InspectSource
	// got is what was recorded, "" if the source is missing; teaches is what it can be used for; adds is
	// what one more option would add.
	add := func(source, got, teaches, adds string) {
		out = append(out, result.InspectSource{Source: source, Found: got != "", Got: got, Teaches: teaches, Adds: adds})
	}
	ranks, servers := dep.Balanced()
	journeys := int(in.Requests.Engine)
	steps := int(in.Steps.Summaries)
	if journeys+steps > 0 {
		adds := ""
		if steps == 0 {
			adds = "--step-tracing-enabled: the time and the batch of every step"
		}
		add("spans of the tracing fork", fmt.Sprintf("%d requests, %d steps", journeys, steps), "waits, batches and step times", adds)
	}
	if got := countOf(int(in.Requests.Stock), "requests"); got != "" {
		add("spans of unmodified vLLM", got, "queue, prefill and decode times of each request", "")
	}
	isPasses := len(run.Iterations) > 0 && run.Iterations[0].Form != trace.IterationChunks
	if isPasses {
		out = append(out, passesSource(run))
	} else if steps == 0 {
		adds := addLog
		if servers > 1 {
			adds += "; also --api-server-count 1: of several API servers, as many as data-parallel ranks unless told, none writes them"
		}
		add("log of the engine's passes", "", "step times by batch", adds)
	}
	requests, withGaps := 0, 0
	for i := range run.Observed {
		requests++
		if run.Observed[i].ChunkGapsUs != nil {
			withGaps++
		}
	}
	adds := ""
	switch {
	case ranks > 1 && len(run.Iterations) > 0 && run.Iterations[0].Form == trace.IterationLog:
		adds = "--data-parallel-external-lb and a client for each rank: which of the engines served a request"
	case requests == 0 && journeys == 0:
		adds = addClients
	case requests > 0 && withGaps == 0:
		adds = "vllm bench serve --save-detailed: the times of single tokens"
	}
	if requests > 0 || adds != "" {
		add("results of clients", countOf(requests, "requests"), "TTFT, ITL and E2E of each request, and who was decoding", adds)
	}
	if got := countOf(len(run.Points), "load levels"); got != "" {
		add("load levels", got, "mean TTFT and TPOT by load", addClients)
	}
	metricFiles := 0
	for i := range in.Files {
		if in.Files[i].Kind == "metrics" {
			metricFiles++
		}
	}
	adds = ""
	if metricFiles == 0 && len(run.Iterations) > 0 {
		adds = "curl HOST:PORT/metrics > run/NAME.prom before and after each load: what the counters say of cached tokens"
	}
	if metricFiles > 0 || adds != "" {
		add("answers of /metrics", countOf(metricFiles, "files"), "sums that lengths and cached tokens are checked by, and load levels", adds)
	}
	if s, applies := cachedTokensSource(in, requests); applies {
		out = append(out, s)
	}
	if got := countOf(len(run.KVEvents), "events"); got != "" {
		add("KV events", got, "blocks that were stored, evicted and moved", "")
	}
	return out
}

// countOf returns "N nouns"; "" for none.
func countOf(n int, nouns string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s", n, nouns)
}

// passesSource returns what the passes of a log or of forward-pass metrics can be used for.
func passesSource(run *trace.Run) result.InspectSource {
	form := run.Iterations[0].Form
	s := result.InspectSource{
		Source:  passesName(form),
		Found:   true,
		Got:     fmt.Sprintf("%d passes", len(run.Iterations)),
		Teaches: "batches, and no step times",
	}
	var drafted int64
	for i := range run.Iterations {
		drafted += run.Iterations[i].GenerationTokens - run.Iterations[i].GenerationReqs
	}
	if drafted > 0 && form == trace.IterationLog {
		s.Got += fmt.Sprintf(", %d drafted tokens", drafted)
	}
	a := run.Aggregate
	if a == nil {
		return s
	}
	if a.Refused != nil {
		s.Adds = a.Refused.Hint
		return s
	}
	times, contexts := timeSources(a)
	s.Teaches = times + " and " + contexts
	if a.Audit.Time != "cadence" {
		s.Adds = "docker logs --timestamps (kubectl logs --timestamps): the time of every step"
	}
	return s
}

// passesName returns the name of a form of passes.
func passesName(form string) string {
	switch form {
	case "", trace.IterationLog:
		return "iterations in vLLM's log"
	case trace.IterationFPM:
		return "forward-pass metrics"
	case trace.IterationSGLang:
		return "batches in SGLang's log"
	case trace.IterationTensorRT:
		return "iterations in TensorRT-LLM's log"
	}
	return "iterations in the log of " + form
}

// timeSources returns in words where step times and contexts of passes come from.
func timeSources(a *trace.Aggregate) (times, contexts string) {
	switch a.Audit.Time {
	case "cadence":
		times = "step times from the stamps of its lines"
	case "elapsed":
		times = "step times from the logged elapsed time"
	case "ticks":
		times = "sums of step times between whole seconds"
	case "":
		times = "no step times"
	}
	switch a.Contexts {
	case "trace":
		contexts = "the KV-read term from the trace's own sums"
	case "client":
		contexts = "the KV-read term from the clients' requests"
	case "kv_usage":
		contexts = "the KV-read term from the KV usage, roughly"
	case trace.ContextsMean:
		contexts = "the KV-read term merged with the per-decode term"
	case "":
		contexts = "no KV-read term"
	}
	return times, contexts
}

// cachedTokensSource returns what is known of the prefix cache. applies is false if engine spans
// record it or there are no requests.
func cachedTokensSource(in *result.ExtractRun, requests int) (s result.InspectSource, applies bool) {
	var sum result.CachedTokens
	for i := range in.CachedTokens {
		sum.Add(&in.CachedTokens[i])
	}
	known := sum.Exact + sum.Usage + sum.Bounded
	if known == 0 && (requests+int(in.Requests.Stock) == 0 || in.Requests.Engine > 0) {
		return s, false
	}
	s = result.InspectSource{Source: "cached tokens", Teaches: "prompts cost what was computed of them", Found: known > 0}
	if s.Found {
		s.Got = fmt.Sprintf("%d of %d prompt tokens; of %d requests %d by usage, %d exactly, %d within bounds", sum.HitTokens, sum.PromptTokens,
			sum.Requests, sum.Usage, sum.Exact, sum.Bounded)
	}
	if sum.Bounded+sum.Unpaired > 0 || !s.Found {
		s.Adds = addUsage
	}
	return s, true
}
