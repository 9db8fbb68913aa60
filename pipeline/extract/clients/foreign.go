package clients

import (
	"bytes"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// This file names exports of other tools that are not read, and what to export in their place.

// foreignForm is a form of another tool's export: it begins with a text, or all words of one of
// its sets are in the first bytes of the file.
type foreignForm struct {
	name   string     // as in "this is a Jaeger export"
	begins string     // the first bytes; "" if words decide
	words  [][]string // sets of words, of which one must be there whole
	advice string     // what to export in its place
}

const useCollector = "read the spans from an OpenTelemetry Collector instead: exporters: {file: {path: traces.jsonl}}"

var foreignForms = []foreignForm{
	{
		name:   "a Parquet file",
		begins: "PAR1",
		advice: "export the spans as OTLP JSON; of Parquet only this program's own tables are read",
	},
	{
		name:   "a Jaeger export",
		words:  [][]string{{`"traceID"`, `"operationName"`}, {`"traceID"`, `"processes"`}},
		advice: useCollector + ", or Jaeger's OTLP query (/api/v3/traces), whose resourceSpans are read",
	},
	{
		name:   "a Zipkin export",
		words:  [][]string{{`"traceId"`, `"localEndpoint"`}, {`"traceId"`, `"timestamp"`, `"duration"`, `"id"`}},
		advice: useCollector,
	},
	{
		name:   "rows of ClickHouse's otel_traces",
		words:  [][]string{{`"TraceId"`, `"SpanName"`}, {`TraceId`, `SpanId`, `SpanName`, `SpanAttributes`}},
		advice: useCollector + "; a table of spans has lost their events' order",
	},
	{
		name:   "a profile of Perf Analyzer, which does not count tokens",
		words:  [][]string{{`"experiments"`, `"response_timestamps"`}, {`"service_kind"`, `"experiments"`}},
		advice: "use profile_export_genai_perf.json of the same run, or profile_export.jsonl of AIPerf",
	},
}

// companions are the texts by which files are recognised that a load client writes beside its requests and that state
// nothing of them: AIPerf's prompts, its means of /metrics over the load, its GPU telemetry and its probes of the
// network; inference-perf's check of its own reports.
var companions = [][]string{
	{`"data"`, `"session_id"`, `"payloads"`},
	{`"aiperf_version"`, `"metrics_phase"`},
	{"# AIPerf Server Metrics Export"},
	{`"telemetry_data"`, `"gpu_index"`},
	{`"probe_type"`, `"rtt_ns"`},
	{`"reports"`, `_lifecycle_metrics.json"`, `"warnings"`},
}

// IsCompanion reports whether a file is one that a load client writes beside its requests, by its beginning.
func IsCompanion(head []byte) bool {
	for _, words := range companions {
		if containsAll(head, words...) {
			return true
		}
	}
	return false
}

// RefuseForeign returns an error for a file that is another tool's export, by its beginning; nil
// for any other. A file with resourceSpans or scopeSpans is OTLP, whatever else it contains.
func RefuseForeign(name string, head []byte) *trace.Error {
	if containsAll(head, `"resourceSpans"`) || containsAll(head, `"scopeSpans"`) {
		return nil
	}
	for i := range foreignForms {
		if f := &foreignForms[i]; f.matches(head) {
			return trace.Errorf(source.CodeUnknownFile, "%s: this is %s", name, f.name).WithHint(f.advice)
		}
	}
	return nil
}

// matches reports whether a file begins like this form.
func (f *foreignForm) matches(head []byte) bool {
	if f.begins != "" {
		return bytes.HasPrefix(head, []byte(f.begins))
	}
	for _, words := range f.words {
		if containsAll(head, words...) {
			return true
		}
	}
	return false
}
