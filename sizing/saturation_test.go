package sizing

import (
	"context"
	"testing"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/simulate"
)

// TestOneRuleForSaturation: ten loads around the capacity of a server are called the same by predict, by the
// summary of simulate and of clusters, and by the simulations of size.
func TestOneRuleForSaturation(t *testing.T) {
	q := question(predict.Load{RateRPS: 200, InputTokens: 500, OutputTokens: 20}, "ttft.p90=1h", 2)
	all, err := q.candidates()
	if err != nil {
		t.Fatal(err)
	}
	asked := all[0].asked
	server, _, err := asked.Server(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	at := func(rate float64) *predict.Prediction {
		own := asked
		own.RateRPS = rate
		p, err := own.Predict(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	capacity := at(200).RequestsPerS
	for _, factor := range []float64{0.4, 0.5, 0.6, 0.7, 0.8, 1.2, 1.3, 1.4, 1.5, 2} {
		rate := factor * capacity
		load := predict.Load{RateRPS: rate, InputTokens: 500, OutputTokens: 20}
		stretch, err := load.Stretch(3, 1000, 2, 1)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := server.Engine(3)
		if err != nil {
			t.Fatal(err)
		}
		results, engines, err := cluster.Servers(cfg, 1, q.Routing, stretch.Requests)
		if err != nil {
			t.Fatal(err)
		}
		summary := simulate.NewCollector(stretch.Requests)
		for i := range results {
			summary.Add(&results[i])
		}
		want := factor > 1
		verdicts := map[string]bool{
			"predict":  at(rate).Saturated,
			"size":     predict.NewSample(results, engines, stretch).Saturated,
			"simulate": summary.Close(sim.Totals(engines)).Overload.Saturated,
		}
		for command, got := range verdicts {
			if got != want {
				t.Errorf("%s at %.2g of the capacity of %.3g requests/s: got saturated %v, want %v", command, factor, capacity, got, want)
			}
		}
	}
}
