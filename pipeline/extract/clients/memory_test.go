package clients

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// TestRequestsHaveALimit: every form of client file ends with file_too_large, and a hint, when its records take more
// memory than the limit, whether they are many small requests, long lists of chunks or lists that make none.
func TestRequestsHaveALimit(t *testing.T) {
	const memory = 1 << 20
	many := func(head, piece, tail string) string {
		return head + strings.Repeat(piece, 1+2*memory/len(piece)) + tail
	}
	bench := `{"completed":9,"total_input_tokens":1,"input_lens":[1],"output_lens":[1],"ttfts":[0.1],`
	for name, text := range map[string]string{
		"requests":       many("", `{"id":"a","send_ns":1,"usage":{}}`+"\n", ""),
		"chunks":         many("", `{"id":"a","send_ns":1,"usage":{},"itl_us":[`+many("", "1,", "1")+"]}\n", ""),
		"AIPerf":         many("", `{"metadata":{"x_request_id":"a","request_start_ns":1},"metrics":{}}`+"\n", ""),
		"GuideLLM":       many(`{"guidellm_version":"1","benchmarks":[{"requests":{"successful":[{"request_start_time":1}`, `,{"request_start_time":1}`, "]}}]}"),
		"inference-perf": many(`[{"start_time":1,"end_time":2,"request":"","info":{}}`, `,{"start_time":1,"end_time":2,"info":{}}`, "]"),
		"TraceV2":        many("request_id,input_tokens\n", "r,1\n", ""),
		"chunk file":     many(chunkHeader+"\n", "r,1,1\n", ""),
		"numbers":        many(`{"completed":9,"total_input_tokens":1,"input_lens":[1`, ",1", "]}"),
		"empty lists":    many(bench+`"itls":[[0.1]`, ",[]", "]}"),
		"texts":          many(bench+`"errors":[""`, `,""`, "]}"),
		"sessions":       many(bench+`"conversation":[1`, `,[[]]`, "]}"),
	} {
		t.Run(name, func(t *testing.T) {
			c := &Reader{Acc: source.NewAccount(nil), Memory: memory}
			how := source.Options{Limits: source.Limits{MaxLine: 128 << 20, MaxExpansion: 300}, Stdin: strings.NewReader(text)}
			err := c.ReadFile(&source.Input{Path: "-", Name: "f"}, how)
			if trace.CodeOf(err) != files.TooLarge || !strings.Contains(trace.HintOf(err), "--max-client-memory 4194304") {
				t.Errorf("got %v (%s), want %s", err, trace.HintOf(err), files.TooLarge)
			}
		})
	}
}

// TestLongLinesAreNoRequests: a line above the limit is dropped and never decoded.
func TestLongLinesAreNoRequests(t *testing.T) {
	c := readText(t, `{"id":"a","send_ns":1,"usage":{}}`+"\n{"+strings.Repeat(" ", maxValue)+"}\n"+`{"id":"b"}`+"\n")
	if len(c.Requests) != 2 || c.Acc.Dropped[source.CodeOverLimit] != 1 {
		t.Errorf("got %d requests, dropped %v, want 2 and one over_limit", len(c.Requests), c.Acc.Dropped)
	}
}

// readText reads one client file.
func readText(t *testing.T, text string) *Reader {
	t.Helper()
	c := &Reader{Acc: source.NewAccount(nil)}
	how := source.Options{Limits: source.Limits{MaxLine: 128 << 20, MaxExpansion: 300}, Stdin: strings.NewReader(text)}
	if err := c.ReadFile(&source.Input{Path: "-", Name: "f"}, how); err != nil {
		t.Fatal(err)
	}
	return c
}
