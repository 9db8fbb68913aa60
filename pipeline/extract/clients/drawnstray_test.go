package clients

import (
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// TestRangesWithoutStrays: the ranges of requests that files gave are those of the requests that are left after one
// was dropped for a stray stamp.
func TestRangesWithoutStrays(t *testing.T) {
	const load = `{"dataset_name": "random", "completed": 6, "total_input_tokens": 6, "burstiness": 1,
		"input_lens": [9, 9, 9, 9, 9, 9], "output_lens": [2, 2, 2, 2, 2, 2], "ttfts": [0.1, 0.1, 0.1, 0.1, 0.1, 0.1],
		"itls": [[0.01], [0.01], [0.01], [0.01], [0.01], [0.01]], "start_times": `
	const header = "request_id,arrival_time_us,send_time_us,input_tokens,output_tokens\n"
	got := readFiles(t, map[string]string{
		"a.json": load + "[300000, 1, 2, 3, 4, 5]}",
		"b.csv":  header + "0,1000000,1000000,9,2\n1,2000000,2000000,9,2\n2,900000000000,900000000000,9,2\n",
		"c.json": load + "[101, 102, 103, 104, 105, 300000]}",
	})
	if len(got.Requests) != 12 {
		t.Fatalf("got %d requests, want 5, 2 and 5", len(got.Requests))
	}
	dep := &deploy.Deployment{}
	dep.Engine.PrefixCaching = true
	got.doubtDrawnAgain(dep)
	drawn := map[string]trace.Opt[int64]{}
	for _, d := range got.drawn {
		if d.to-d.from != 5 || got.Requests[d.from].SendNs.V/1e9 != d.startNs/1e9 {
			t.Errorf("got the requests %d to %d of %s", d.from, d.to, d.name)
		}
		drawn[d.name] = got.Requests[d.from].SendNs
	}
	if drawn["a"].V != 1e9 || drawn["c"].V != 101e9 {
		t.Errorf("got the first sends %v, want 1 and 101 s", drawn)
	}
	if f := got.traceFiles[0]; f.from != 5 || f.to != 7 {
		t.Errorf("got the requests %d to %d of the trace, want 5 to 7", f.from, f.to)
	}
}
