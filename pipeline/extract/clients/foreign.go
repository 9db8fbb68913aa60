// This file names exports of other tools by the beginning of a file, and
// says how to get what is read here.

package clients

import (
	"bytes"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// tool is a form of another tool: all words of one of its sets stand in the first
// bytes of a file, and it begins as said.
type tool struct {
	name, way string
	begins    string // first bytes; "" for any
	words     [][]string
}

const collector = "read the spans from an OpenTelemetry Collector instead: exporters: {file: {path: traces.jsonl}}"

var tools = []tool{
	{name: "a Parquet file", begins: "PAR1", way: "export the spans as OTLP JSON; of Parquet only this program's own tables are read"},
	{name: "a Jaeger export", way: collector + ", or Jaeger's OTLP query (/api/v3/traces), whose resourceSpans are read",
		words: [][]string{{`"traceID"`, `"operationName"`}, {`"traceID"`, `"processes"`}}},
	{name: "a Zipkin export", way: collector, words: [][]string{{`"traceId"`, `"localEndpoint"`}, {`"traceId"`, `"timestamp"`, `"duration"`, `"id"`}}},
	{name: "rows of ClickHouse's otel_traces", way: collector + "; a table of spans has lost their events' order",
		words: [][]string{{`"TraceId"`, `"SpanName"`}, {`TraceId`, `SpanId`, `SpanName`, `SpanAttributes`}}},
	{name: "a profile of Perf Analyzer, whose texts nobody counted",
		way:   "take profile_export_genai_perf.json beside it, or profile_export.jsonl of AIPerf",
		words: [][]string{{`"experiments"`, `"response_timestamps"`}, {`"service_kind"`, `"experiments"`}}},
}

// Refuse refuses the beginning of a foreign file; nil for any other. One that says
// resourceSpans is OTLP whatever else stands in it.
func RefuseForeign(name string, head []byte) *trace.Error {
	if bytes.Contains(head, []byte(`"resourceSpans"`)) || bytes.Contains(head, []byte(`"scopeSpans"`)) {
		return nil
	}
	for i := range tools {
		if t := &tools[i]; t.is(head) {
			return trace.Errorf(source.CodeUnknownFile, "%s: this is %s", name, t.name).WithHint(t.way)
		}
	}
	return nil
}

func (t *tool) is(head []byte) bool {
	if t.begins != "" {
		return bytes.HasPrefix(head, []byte(t.begins))
	}
	for _, set := range t.words {
		all := true
		for _, w := range set {
			all = all && bytes.Contains(head, []byte(w))
		}
		if all {
			return true
		}
	}
	return false
}
