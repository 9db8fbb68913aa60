package clients

import (
	"strings"
	"testing"
)

// TestForeignForms: an export of another tool is refused by name with advice; what is read here, and
// OTLP, is not.
func TestForeignForms(t *testing.T) {
	for text, want := range map[string]string{
		`{"data":[{"traceID":"ab","spans":[{"traceID":"ab","spanID":"c","operationName":"llm_request","startTime":1}]}]}`: "a Jaeger export",
		`{"data":[{"traceID":"ab","processes":{"p1":{}}}]}`:                                                               "a Jaeger export",
		`[{"traceId":"ab","id":"c","name":"x","timestamp":1,"duration":2,"localEndpoint":{"serviceName":"v"}}]`:           "a Zipkin export",
		`{"Timestamp":"2026-01-01","TraceId":"ab","SpanId":"c","SpanName":"llm_request","SpanAttributes":{}}`:             "rows of ClickHouse",
		"Timestamp,TraceId,SpanId,ParentSpanId,SpanName,SpanAttributes\n":                                                 "rows of ClickHouse",
		"PAR1\x15\x04": "a Parquet file",
		`{"service_kind":"openai","endpoint":"v1/completions","experiments":[{"requests":[]}]}`:       "Perf Analyzer",
		`{"experiments":[{"requests":[{"timestamp":1,"response_timestamps":[2]}]}]}`:                  "Perf Analyzer",
		`{"load_summary":{"count":3},"successes":{"count":3},"failures":{}}`:                          "",
		`[{"start_time":1.5,"info":{"input_tokens":3,"output_token_times":[1.6]}}]`:                   "",
		`{"resourceSpans":[{"resource":{"attributes":[{"key":"traceID"},{"key":"operationName"}]}}]}`: "",
		`{"id":"r1","send_ns":1,"itl_us":[1,2]}`:                                                      "",
		`{"batches":[{"resource":{},"scopeSpans":[]}]}`:                                               "",
		`{"date":"x","completed":3,"total_input_tokens":1}`:                                           "",
		`(APIServer pid=7) INFO 11-21 23:19:33 [api_utils.py:339] vLLM API server version 0.25.1`:     "",
	} {
		err := RefuseForeign("f", []byte(text))
		switch {
		case want == "" && err != nil:
			t.Errorf("%.60s: got %v, want nobody's", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Msg, want) || err.Hint == ""):
			t.Errorf("%.60s: got %v, want %s and a way out", text, err, want)
		}
	}
}
