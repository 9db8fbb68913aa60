package clients

import (
	"fmt"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// ownLines are requests of client_requests.jsonl with output tokens and an id for each.
func ownLines(prefix string, outputs ...int) string {
	var b strings.Builder
	for i, n := range outputs {
		send := 1_000_000_000 * int64(i+1)
		fmt.Fprintf(&b, `{"id":"%s%d","send_ns":%d,"first_chunk_ns":%d,"last_chunk_ns":%d,"usage":{"prompt_tokens":90,"completion_tokens":%d}}`+"\n",
			prefix, i, send, send+50_000_000, send+500_000_000, n)
	}
	return b.String()
}

// usageLines are as many lines of usage, with 16 cached tokens in the first, 32 in the second and so on.
func usageLines(prefix string, outputs ...int) string {
	var b strings.Builder
	for i, n := range outputs {
		fmt.Fprintf(&b, `{"index":%d,"id":"%s%d","prompt_tokens":100,"cached_tokens":%d,"output_tokens":%d}`+"\n", i, prefix, i, 16*(i+1), n)
	}
	return b.String()
}

// TestUsageLines: lines of usage are merged with the requests of the same id, else line by line with the file that
// has the same output tokens, whatever the names of the files are; others are dropped and counted.
func TestUsageLines(t *testing.T) {
	for _, c := range []struct {
		name    string
		files   map[string]string
		want    string // cached tokens of the requests
		dropped int64
	}{
		{"by id", map[string]string{"b.jsonl": ownLines("x-", 5, 6, 7), "a.jsonl": usageLines("x-", 5, 6, 7)}, "16 32 48", 0},
		{"line by line", map[string]string{"b.jsonl": ownLines("x-", 5, 6, 7), "u.jsonl": usageLines("y-", 5, 6, 7)}, "16 32 48", 0},
		{"the right file of two", map[string]string{"b.jsonl": ownLines("x-", 5, 6, 7), "c.jsonl": ownLines("z-", 8, 6, 9),
			"u.jsonl": usageLines("y-", 8, 6, 9)}, "? ? ? 16 32 48", 0},
		{"two files with these tokens", map[string]string{"b.jsonl": ownLines("x-", 5, 6, 7),
			"c.jsonl": strings.ReplaceAll(ownLines("z-", 5, 6, 7), `050000000,"last`, `060000000,"last`),
			"u.jsonl": usageLines("y-", 5, 6, 7)}, "? ? ? ? ? ?", 3},
		{"other tokens", map[string]string{"b.jsonl": ownLines("x-", 5, 6, 7), "u.jsonl": usageLines("y-", 5, 6, 8)}, "? ? ?", 3},
		{"another number", map[string]string{"b.jsonl": ownLines("x-", 5, 6, 7), "u.jsonl": usageLines("y-", 5, 6)}, "? ? ?", 2},
	} {
		r := readFiles(t, c.files)
		var got []string
		for i := range r.Requests {
			q := &r.Requests[i]
			text := "?"
			if q.CachedTokens.OK {
				text = fmt.Sprint(q.CachedTokens.V)
				if q.PromptTokens != trace.Some[int64](100) {
					t.Errorf("%s: got %d prompt tokens, want the 100 of the server's usage", c.name, q.PromptTokens.V)
				}
			}
			if q.Source == sourceUsage {
				t.Errorf("%s: a line of usage became a request", c.name)
			}
			got = append(got, text)
		}
		dropped := int64(0)
		for _, n := range r.Acc.Records().Dropped {
			dropped += n
		}
		if strings.Join(got, " ") != c.want || dropped != c.dropped {
			t.Errorf("%s: got %v and %d dropped, want %s and %d", c.name, got, dropped, c.want, c.dropped)
		}
	}
}
