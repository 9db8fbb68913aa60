package requestfit

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/trace"
)

// TestLevelsAtOtherSizes: a level has the parallel sizes it states, a KV cache of its own there,
// and its ranks share the server's clients or its rate, for max_num_seqs is a rank's.
func TestLevelsAtOtherSizes(t *testing.T) {
	d := testkit.Llama8B()
	d.Engine.KVBlocksGPU = trace.Some[int64](777)
	point := func(change func(p *trace.LoadPoint)) (*Level, error) {
		p := trace.LoadPoint{File: "a.csv", Line: 3, Clients: trace.Some[int64](96), PromptTokens: 100, OutputTokens: 100, TPOTMs: 12,
			TTFTMs: trace.Some(30.0)}
		change(&p)
		return LevelOf(&p, d)
	}
	same, err := point(func(*trace.LoadPoint) {})
	if err != nil || same.Deployment != d || same.Concurrency != 96 {
		t.Fatalf("got %+v, %v, want the deployment of run.yaml", same, err)
	}
	for name, c := range map[string]struct {
		change  func(p *trace.LoadPoint)
		tp, dp  int64
		clients int
		rate    float64
	}{
		"tp 2":       {func(p *trace.LoadPoint) { p.TP = trace.Some[int64](2) }, 2, 1, 96, 0},
		"dp 4":       {func(p *trace.LoadPoint) { p.DP = trace.Some[int64](4) }, 1, 4, 24, 0},
		"more ranks": {func(p *trace.LoadPoint) { p.DP, p.Clients = trace.Some[int64](4), trace.Some[int64](3) }, 1, 4, 1, 0},
		"rate over dp 2": {func(p *trace.LoadPoint) {
			p.DP, p.Clients.OK, p.Clients.V, p.OfferedRPS = trace.Some[int64](2), false, 0, trace.Some(9.0)
		}, 1, 2, 0, 4.5},
	} {
		got, err := point(c.change)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if o := got.Deployment; o.TP != c.tp || o.DP != c.dp || got.Concurrency != c.clients || got.rateRPS != c.rate || o.Engine.KVBlocksGPU.OK {
			t.Errorf("%s: got tp %d, dp %d, %d clients, %g/s, %+v KV blocks", name, o.TP, o.DP, got.Concurrency, got.rateRPS, o.Engine.KVBlocksGPU)
		}
	}
	if d.TP != 1 || d.DP > 1 || !d.Engine.KVBlocksGPU.OK {
		t.Errorf("the deployment of run.yaml was changed: %+v", d)
	}
	if _, err := point(func(p *trace.LoadPoint) { p.TP = trace.Some[int64](1 << 20) }); err == nil ||
		!strings.Contains(err.Error(), "a.csv:3:1: measured points: tp 1048576") {
		t.Errorf("got %v, want an error with the place", err)
	}
}
