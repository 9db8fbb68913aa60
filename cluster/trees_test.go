package cluster

import (
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff/forest"
)

// constant is a predictor file whose forest of the given columns answers exp(base) ms
// always.
func constant(columns ...string) string {
	var list []string
	for _, c := range columns {
		list = append(list, `{"name": "`+c+`", "min": 0, "max": 10}`)
	}
	return `{"schema_version": "1", "targets": [{"name": "ttft_ms", "columns": [` + strings.Join(list, ",") +
		`], "trees": {"base": 5, "trees": []}}]}`
}

// A predictor file decides through latency-slo: its forest reads the columns that a
// gateway knows, and counts rows outside what it was trained on.
func TestTreesEstimate(t *testing.T) {
	p, err := forest.Load(strings.NewReader(constant("num_request_waiting", "input_token_length", "prefix_cache_score", "since_step_us")))
	if err != nil {
		t.Fatal(err)
	}
	trees, err := newTrees(p)
	if err != nil {
		t.Fatal(err)
	}
	v, r := eight(3), requestOfClass("sheddable")
	x, err := trees.TTFT(r, v, 0)
	if err != nil || !x.Queued || math.Abs(x.LikelyUs-1000*math.Exp(5)) > 0.01 || x.Us != x.LikelyUs {
		t.Errorf("got %+v, %v, want %g us", x, err, 1000*math.Exp(5))
	}
	for k, want := range []float64{3, 768, 512.0 / 768, math.NaN()} {
		if got := trees.x[k]; got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("column %d: got %g, want %g", k, got, want)
		}
	}
	if trees.Outside != 1 { // 768 tokens, trained up to 10
		t.Errorf("got %d rows outside the training range, want 1", trees.Outside)
	}
	gate := &latencySLO{Estimate: trees}
	for target, want := range map[int64]bool{100_000: false, 200_000: true} {
		r.SLOTTFTUs = target
		if d, err := gate.Decide(r, v, 0); err != nil || d.Admit != want {
			t.Errorf("target %d us: got %+v, %v, want %v", target, d, err, want)
		}
	}
	// Beside columns that llm-d does not have, running is the batch and not what is in flight.
	p, _ = forest.Load(strings.NewReader(constant("num_request_running", "own_uncached_tokens", "decode_batch")))
	if trees, err = newTrees(p); err != nil {
		t.Fatal(err)
	}
	if _, err := trees.TTFT(r, v, 0); err != nil || trees.x[0] != 100 || trees.x[1] != 256 {
		t.Errorf("got %v, %v, want a batch of 100 and 256 tokens", trees.x, err)
	}
	tpot, _ := forest.Load(strings.NewReader(strings.Replace(constant("is_queued"), "ttft_ms", "tpot_ms", 1)))
	if _, err := newTrees(tpot); err == nil {
		t.Error("a file without TTFT was taken")
	}
}

// Every column that a gateway claims to know is one of a router's view.
func TestColumnsAreKnown(t *testing.T) {
	v, r := eight(3), requestOfClass("standard")
	for name, read := range columns {
		if x := read(r, v, 0); math.IsNaN(x) != (name == "mean_output_tokens") { // nobody has finished
			t.Errorf("%s: got %g", name, x)
		}
	}
	v.Ledger.Class("standard", 3)
	v.Ledger.Sent(&Request{Index: 1, PromptTokens: 10}, 0, 1, 0)
	v.Ledger.FirstToken(1, 0, 2)
	v.Ledger.Left(1, 0, 3, 40, true)
	if x := columns["mean_output_tokens"](r, v, 0); x != 40 {
		t.Errorf("mean output: got %g, want 40", x)
	}
}
