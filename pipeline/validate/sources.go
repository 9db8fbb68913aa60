package validate

import (
	"fmt"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// What one flag more would add to a recording.
const (
	addLog     = "--enable-logging-iteration-details (vLLM 0.14 or newer): batches and step times of an unmodified server"
	addClients = "vllm bench serve --save-result --save-detailed: contexts of decodes, and a replay that is judged"
	addUsage   = "--enable-prompt-tokens-details and a client that keeps the usage: cached tokens of every request"
)

// sourcesOf says which sources a recording holds, what each teaches, and what one flag more would
// add; sources that are missing stand there where they would teach more than is there.
func sourcesOf(run *trace.Run, dep *deploy.Deployment, in *result.ExtractRun) []result.InspectSource {
	if in == nil {
		return nil
	}
	var out []result.InspectSource
	ranks, servers := dep.Balanced()
	add := func(source, got, teaches, adds string) {
		out = append(out, result.InspectSource{Source: source, Found: got != "", Got: got, Teaches: teaches, Adds: adds})
	}
	count := func(n int, what string) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprintf("%d %s", n, what)
	}
	fork, steps := int(in.Requests.Engine), int(in.Steps.Summaries)
	if fork+steps > 0 {
		adds := ""
		if steps == 0 {
			adds = "--step-tracing-enabled: the time and the batch of every step"
		}
		add("spans of the tracing fork", fmt.Sprintf("%d requests, %d steps", fork, steps), "waits, batches and step times", adds)
	}
	if got := count(int(in.Requests.Stock), "requests"); got != "" {
		add("spans of unmodified vLLM", got, "queue, prefill and decode times of each request", "")
	}
	switch {
	case len(run.Iterations) > 0 && run.Iterations[0].Form != trace.IterationChunks:
		out = append(out, passesOf(run))
	case steps == 0:
		adds := addLog
		if servers > 1 {
			adds += "; also --api-server-count 1: of several API servers, as many as data-parallel ranks unless told, none writes them"
		}
		add("log of the engine's passes", "", "step times by batch", adds)
	}
	requests, single := 0, 0
	for i := range run.Observed {
		if requests++; run.Observed[i].ChunkGapsUs != nil {
			single++
		}
	}
	adds := ""
	switch {
	case ranks > 1 && len(run.Iterations) > 0 && run.Iterations[0].Form == trace.IterationLog:
		adds = "--data-parallel-external-lb and a client for each rank: which of the engines served a request"
	case requests == 0 && fork == 0:
		adds = addClients
	case requests > 0 && single == 0:
		adds = "vllm bench serve --save-detailed: the times of single tokens"
	}
	if requests > 0 || adds != "" {
		add("results of clients", count(requests, "requests"), "TTFT, ITL and E2E of each request, and who was decoding", adds)
	}
	if got := count(len(run.Points), "load levels"); got != "" {
		add("load levels", got, "mean TTFT and TPOT by load", addClients)
	}
	files := stat.Count(in.Files, func(f result.ExtractFile) bool { return f.Kind == "metrics" })
	adds = ""
	if files == 0 && len(run.Iterations) > 0 {
		adds = "curl HOST:PORT/metrics > run/NAME.prom before and after each load: what the counters say of cached tokens"
	}
	if files > 0 || adds != "" {
		add("answers of /metrics", count(files, "files"), "sums that lengths and cached tokens are checked by, and load levels", adds)
	}
	if s, ok := cachedSource(in, requests); ok {
		out = append(out, s)
	}
	if got := count(len(run.KVEvents), "events"); got != "" {
		add("KV events", got, "blocks that were stored, evicted and moved", "")
	}
	return out
}

// passesOf is what the passes of a log or of forward-pass metrics teach.
func passesOf(run *trace.Run) result.InspectSource {
	a, form := run.Aggregate, run.Iterations[0].Form
	s := result.InspectSource{Found: true, Got: fmt.Sprintf("%d passes", len(run.Iterations)), Teaches: "batches, and no step times"}
	s.Source = map[string]string{trace.IterationFPM: "forward-pass metrics", trace.IterationSGLang: "batches in SGLang's log",
		trace.IterationTensorRT: "iterations in TensorRT-LLM's log"}[form]
	if s.Source == "" {
		s.Source = "iterations in vLLM's log"
	}
	drafted := stat.Sum(run.Iterations, func(x trace.Iteration) int64 { return x.GenerationTokens - x.GenerationReqs })
	if drafted > 0 && form == trace.IterationLog {
		s.Got += fmt.Sprintf(", %d drafted tokens", drafted)
	}
	switch {
	case a == nil:
	case a.Refused != nil:
		s.Adds = a.Refused.Hint
	default:
		times, contexts := taught(a)
		if s.Teaches = times + " and " + contexts; a.Audit.Time != "cadence" {
			s.Adds = "docker logs --timestamps (kubectl logs --timestamps): the time of every step"
		}
	}
	return s
}

// taught says in words where step times and contexts of passes come from.
func taught(a *trace.Aggregate) (times, contexts string) {
	times = map[string]string{
		"cadence": "step times from the stamps of its lines", "elapsed": "step times from the logged elapsed time",
		"ticks": "sums of step times between whole seconds", "": "no step times",
	}[a.Audit.Time]
	contexts = map[string]string{
		"trace": "the KV-read term from the trace's own sums", "client": "the KV-read term from the clients' requests",
		"kv_usage": "the KV-read term from the KV usage, roughly", trace.ContextsMean: "the KV-read term merged with the per-decode term",
		"": "no KV-read term",
	}[a.Contexts]
	return times, contexts
}

// cachedSource is what is known of the prefix cache.
func cachedSource(in *result.ExtractRun, requests int) (s result.InspectSource, ok bool) {
	var sum result.CachedTokens
	for _, p := range in.CachedTokens {
		sum.Requests, sum.HitTokens, sum.PromptTokens = sum.Requests+p.Requests, sum.HitTokens+p.HitTokens, sum.PromptTokens+p.PromptTokens
		sum.Exact, sum.Usage, sum.Bounded, sum.Unpaired = sum.Exact+p.Exact, sum.Usage+p.Usage, sum.Bounded+p.Bounded, sum.Unpaired+p.Unpaired
	}
	s = result.InspectSource{Source: "cached tokens", Teaches: "prompts cost what was computed of them"}
	known := sum.Exact + sum.Usage + sum.Bounded
	if known == 0 && (requests+int(in.Requests.Stock) == 0 || in.Requests.Engine > 0) {
		return s, false
	}
	if s.Found = known > 0; s.Found {
		s.Got = fmt.Sprintf("%d of %d prompt tokens; of %d requests %d by usage, %d exactly, %d within bounds", sum.HitTokens, sum.PromptTokens,
			sum.Requests, sum.Usage, sum.Exact, sum.Bounded)
	}
	if sum.Bounded+sum.Unpaired > 0 || !s.Found {
		s.Adds = addUsage
	}
	return s, true
}
