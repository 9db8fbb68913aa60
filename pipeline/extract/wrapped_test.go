package extract

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/forms"
	"github.com/blis-train/blis-train/trace"
)

// TestWrappedDumps: an array of documents, Tempo's answers and a bare request give
// the tables of the lines they hold.
func TestWrappedDumps(t *testing.T) {
	lines := goodLines(3)
	inner := strings.TrimSuffix(strings.TrimPrefix(lines[0], `{"resourceSpans":`), "}")
	for name, c := range map[string]struct {
		text string
		want string // the lines it holds
	}{
		"array":                   {"[" + strings.Join(lines, ",") + "]", strings.Join(lines, "\n")},
		"array, pretty":           {"[\n" + strings.Join(lines, ",\n") + "\n]\n", strings.Join(lines, "\n")},
		"Tempo batches":           {`{"batches":` + inner + "}", lines[0]},
		"Tempo trace":             {`{"trace":` + lines[0] + "}", lines[0]},
		"Tempo trace of batches":  {`{"trace":{"batches":` + inner + "}}", lines[0]},
		"request without framing": {string(otlpProto([]byte(lines[0]))), lines[0]},
	} {
		if got, want := dumpRows(t, c.text), dumpRows(t, c.want+"\n"); want == 0 || got != want {
			t.Errorf("%s: got %d rows, want %d", name, got, want)
		}
	}
}

// dumpRows is how many rows a dump gives.
func dumpRows(t *testing.T, text string) int64 {
	t.Helper()
	dir := upstreamFolder(t, upstreamRun)
	put(t, filepath.Join(dir, "traces.jsonl"), text)
	out := extractTo(t, dir, nil)
	runs, err := readAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(runs[0].Requests) + len(runs[0].Events) + len(runs[0].Steps) + len(runs[0].Snapshots))
}

// TestForeignFilesAreNamed: an export of another tool is refused by name with the
// way out, as a dump, as a client file, and where nothing else stands in a folder.
func TestForeignFilesAreNamed(t *testing.T) {
	const jaeger = `{"data":[{"traceID":"ab","spans":[{"traceID":"ab","operationName":"llm_request"}]}]}`
	const perf = `{"service_kind":"openai","experiments":[{"requests":[{"response_timestamps":[1]}]}]}`
	files := map[string]string{"traces.json": jaeger, "client_requests.jsonl": perf, "export.json": jaeger, "spans.parquet": "PAR1xx"}
	for name, text := range files {
		dir := upstreamFolder(t, upstreamRun)
		if name == "spans.parquet" {
			dir = upstreamFolder(t, upstreamRun+"files: {traces: spans.parquet}\n")
		}
		put(t, filepath.Join(dir, name), text)
		_, err := extractArgs(t, filepath.Join(t.TempDir(), "out"), nil, dir)
		var coded *trace.Error
		if !errors.As(err, &coded) || coded.Code != forms.CodeUnknownFile || coded.Hint == "" {
			t.Errorf("%s: got %v, want the tool's name and a way out", name, err)
		}
	}
	dir := upstreamFolder(t, upstreamRun)
	put(t, filepath.Join(dir, "client_requests.jsonl"), `{"when":1,"tokens":3}`+"\n")
	_, err := extractArgs(t, filepath.Join(t.TempDir(), "out"), nil, dir)
	if err == nil || !strings.Contains(err.Error(), "unknown kind (the keys tokens, when)") {
		t.Errorf("got %v, want the keys of the unknown file", err)
	}
}
