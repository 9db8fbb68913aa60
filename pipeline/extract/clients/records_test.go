package clients

import (
	"fmt"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// TestRequestsThatContradictThemselves: an answer without a token has no chunks, and no stamp is before an earlier one.
func TestRequestsThatContradictThemselves(t *testing.T) {
	gaps := []float64{10, 20}
	for name, c := range map[string]struct {
		r    trace.ObservedRequest
		want string // of a request that is dropped
	}{
		"nothing known":           {trace.ObservedRequest{}, ""},
		"no token, no chunks":     {trace.ObservedRequest{OutputTokens: some[int64](0)}, ""},
		"no token, three chunks":  {trace.ObservedRequest{OutputTokens: some[int64](0), ChunkGapsUs: gaps}, "request q: output_tokens: got 0, want at least 1 with 3 chunks"},
		"one token, three chunks": {trace.ObservedRequest{OutputTokens: some[int64](1), ChunkGapsUs: gaps}, ""},
		"tokens not known":        {trace.ObservedRequest{ChunkGapsUs: gaps}, ""},
		"chunks at once":          {trace.ObservedRequest{FirstChunkNs: some[int64](7), LastChunkNs: some[int64](7)}, ""},
		"chunks backwards":        {trace.ObservedRequest{FirstChunkNs: some[int64](7), LastChunkNs: some[int64](6)}, "request q: its stamps run backwards"},
		"first chunk alone":       {trace.ObservedRequest{FirstChunkNs: some[int64](7)}, ""},
		"last chunk alone":        {trace.ObservedRequest{LastChunkNs: some[int64](7)}, ""},
		"ends at once":            {trace.ObservedRequest{SendNs: some[int64](7), EndNs: some[int64](7)}, ""},
		"ends before":             {trace.ObservedRequest{SendNs: some[int64](7), EndNs: some[int64](6)}, "request q: its stamps run backwards"},
	} {
		reader := &Reader{Acc: source.NewAccount(nil)}
		c.r.ID = "q"
		reader.addRequest(&source.Source{Name: "f"}, c.r)
		kept := c.want == ""
		if (len(reader.Requests) == 1) != kept || reader.Acc.Read != 1 || (reader.Acc.Dropped[source.CodeBadRecord] == 1) == kept {
			t.Errorf("%s: got %+v, %d dropped", name, reader.Requests, reader.Acc.Dropped[source.CodeBadRecord])
		}
		if got := fmt.Sprint(reader.Acc.ExampleList()); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
