package autoscale

import (
	"context"
	"fmt"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
)

// plantedServer has windows at the given rates of an engine whose times are those of the flavour's model with the given
// parameters, a few percent too long or too short in turn.
func plantedServer(t *testing.T, f Flavour, x []float64, rates ...float64) *Server {
	t.Helper()
	s := &Server{ID: "chat", Source: "run", Model: "m", Accelerator: "H100", AccCount: 2,
		Limits: Limits{MaxBatch: 64, Queue: 640, MaxBatchedTokens: 2048}}
	for i, rate := range rates {
		w := window{Name: fmt.Sprintf("w%d", i), StartNs: int64(i) * 60e9, EndNs: int64(i+1) * 60e9, Requests: 100 + i, RateRPS: rate, Limits: s.Limits,
			Shape: shape{Prompt: 100 + 150*float64(i%4), Output: 60 + 40*float64(i%3)}}
		ttft, itl, ok := predictWindow(f, &w, x, asSized)
		if !ok {
			t.Fatalf("no prediction at %g/s", rate)
		}
		w.TTFTMs = ttft * (1 + 0.03*float64(i%3-1))
		w.ITLMs = itl * (1 + 0.02*float64(i%2))
		w.TTFTSeMs = ttft / 50
		w.ITLSeMs = itl / 100
		s.Windows = append(s.Windows, w)
	}
	s.Account = queueAccount{Read: len(rates), Kept: len(rates)}
	return s
}

const fleetOfChat = `capacity: {H100: 40}
unit_cost: {H100: 400}
policy: PriorityExhaustive
servers:
  - {name: small, model: m, rate_rps: 9, ttft_ms: 200, itl_ms: 20, priority: 2, min_replicas: 1}
  - {name: large, model: m, tps: 2000, itl_ms: 20, prompt_tokens: 200, output_tokens: 80, current: {accelerator: 2xH100, replicas: 1}}
`

// TestQueueDocuments compares every figure of a fit of queueing models with its tracks, its sizes, an allocation and a
// validation, for three flavours.
func TestQueueDocuments(t *testing.T) {
	for _, c := range []struct {
		flavour Flavour
		x       []float64
	}{{corrected, []float64{8, 0.05, 1e-4}}, {inferno3P, []float64{8, 0.05, 1e-4}}, {wvA3P, []float64{8, 0.05, 1e-4}}} {
		o := DefaultOptions()
		o.Flavour = c.flavour
		o.Workers = 1
		fitted, rows, err := FitQueues(context.Background(), []*Server{plantedServer(t, c.flavour, c.x, 1, 4, 8, 2, 6, 3, 7, 5, 2, 4, 6, 3)}, &o, Track)
		if err != nil {
			t.Fatal(err)
		}
		doc := &Queue{Flavour: string(c.flavour), Options: o.Record(), Servers: []QueueServer{fitted[0].Doc}}
		if err := SizeQueues(context.Background(), doc, SizeOptions{Targets: Targets{TTFTMs: 150, ITLMs: 15}, Requests: 300, Seed: 1, Workers: 1}); err != nil {
			t.Fatal(err)
		}
		p, err := ReadProblem([]byte(fleetOfChat), "fleet.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if err := AllocateQueues(doc, p); err != nil {
			t.Fatal(err)
		}
		later := plantedServer(t, c.flavour, []float64{9, 0.05, 1e-4}, 2, 3, 5)
		validated, err := ValidateQueues(context.Background(), doc, []*Server{later}, "", &o, 0)
		if err != nil {
			t.Fatal(err)
		}
		testkit.Document(t, string(c.flavour), doc)
		testkit.Document(t, string(c.flavour)+"_validated", validated)
		testkit.Document(t, string(c.flavour)+"_rows", rows[:20])
	}
}
