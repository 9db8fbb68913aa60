package workload

import (
	"fmt"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/sim"
)

// TestTraceV2PrefixGroups: prompts are the group's prefix and the request's own
// tokens, a mean of 809 and not of 297.
func TestTraceV2PrefixGroups(t *testing.T) {
	var csv strings.Builder
	csv.WriteString("request_id,prefix_group,prefix_length,input_tokens,output_tokens,arrival_time_us\n")
	for i := range 200 {
		fmt.Fprintf(&csv, "%d,g%d,512,%d,5,%d\n", i, i%3, 297-100+2*(i%101), i*1000)
	}
	fmt.Fprintf(&csv, "200,,512,297,5,200000\n") // without a group nothing is shared
	w := load(t, csv.String())
	var sum int64
	for _, r := range w.Requests[:200] {
		sum += r.PromptTokens
		if r.GroupTokens != 512 || r.Group == 0 {
			t.Fatalf("got %+v, want a group that shares 512 tokens", r)
		}
	}
	if mean := float64(sum) / 200; mean < 805 || mean > 813 {
		t.Errorf("got prompts of %.0f tokens, want 809", mean)
	}
	if r := w.Requests[200]; r.PromptTokens != 297 || r.Group != 0 {
		t.Errorf("got %+v, want 297 tokens of its own", r)
	}
}

// TestTraceV2Sessions: rounds that accumulate share what was said before, and
// the group's prefix with other sessions.
func TestTraceV2Sessions(t *testing.T) {
	const rows = "request_id,session_id,round_index,prefix_group,prefix_length,input_tokens,output_tokens,arrival_time_us\n" +
		"0,a,0,sys,64,100,16,0\n1,b,0,sys,64,100,16,0\n2,a,1,sys,64,40,16,9\n3,a,2,,0,40,16,20\n"
	w := load(t, "trace_version: 2\nsession_context_growth: accumulate\n"+rows)
	want := []int64{164, 164, 220, 276}
	for i, r := range w.Requests {
		if r.PromptTokens != want[i] {
			t.Errorf("request %d: got %d prompt tokens, want %d", i, r.PromptTokens, want[i])
		}
	}
	for _, c := range []struct {
		a, b   int
		shared int64 // tokens
	}{{0, 1, 64}, {0, 2, 160}, {2, 3, 208}} {
		if got := shared(&w.Requests[c.a], &w.Requests[c.b]); got != c.shared {
			t.Errorf("requests %d and %d share %d tokens, want %d", c.a, c.b, got, c.shared)
		}
	}
	if plain := load(t, rows); plain.Requests[3].PromptTokens != 40 || plain.Requests[2].PromptTokens != 104 {
		t.Errorf("got %d and %d prompt tokens of independent rounds", plain.Requests[2].PromptTokens, plain.Requests[3].PromptTokens)
	}
	if _, _, err := Read([]byte("trace_version: 9\n"+rows), "w"); err == nil || !strings.Contains(err.Error(), "trace_version: got 9") {
		t.Errorf("got %v of a version nobody knows", err)
	}
	if _, _, err := Read([]byte("trace_version: 2\n"), "w"); err == nil || !strings.Contains(err.Error(), "CSV beside it") {
		t.Errorf("got %v of a header alone", err)
	}
}

// shared is how many leading tokens two requests have in common, in blocks of 16.
func shared(a, b *sim.Request) (tokens int64) {
	const block = 16
	content := func(r *sim.Request, own uint64) sim.Content {
		return sim.Content{
			PromptTokens: r.PromptTokens, Group: r.Group, GroupTokens: r.GroupTokens, Hashes: r.Hashes, HashTokens: r.HashTokens, Own: own,
		}
	}
	x, y := content(a, 1), content(b, 2)
	for n := int64(0); ; n++ {
		h, own := x.Block(n, block)
		if g, _ := y.Block(n, block); own || h != g {
			return n * block
		}
	}
}
