package sizing

import (
	"context"
	"testing"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/simulate"
)

// TestOneRuleForSaturation: ten loads around the capacity of a server are called the same by predict, by the
// simulations of size, by the summary of simulate and of a cluster of two with twice the load, and by validate.
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
		served := func(n int, routing string) (*predict.Stretch, []sim.RequestResult, []*sim.Result) {
			load := predict.Load{RateRPS: float64(n) * rate, InputTokens: 500, OutputTokens: 20}
			stretch, err := load.Stretch(3, 1000*n, 2, 1)
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := server.Engine(3)
			if err != nil {
				t.Fatal(err)
			}
			results, engines, err := cluster.Servers(cfg, n, routing, stretch.Requests)
			if err != nil {
				t.Fatal(err)
			}
			return stretch, results, engines
		}
		summarized := func(stretch *predict.Stretch, results []sim.RequestResult, engines []*sim.Result) bool {
			summary := simulate.NewCollector(stretch.Requests)
			for i := range results {
				summary.Add(&results[i])
			}
			return summary.Close(sim.Totals(engines)).Overload.Saturated
		}
		stretch, results, engines := served(1, cluster.RouteRoundRobin)
		var recorded []stat.Arrival // as validate and inspect read a recording of these requests
		for i := range results {
			recorded = append(recorded, simulate.ArrivalOf(&results[i]))
		}
		_, isRecordedSaturated := stat.Saturation(recorded)
		want := factor > 1
		verdicts := map[string]bool{
			"predict":  at(rate).Saturated,
			"size":     predict.NewSample(results, engines, stretch).Saturated,
			"simulate": summarized(stretch, results, engines),
			"validate": isRecordedSaturated,
			"cluster":  summarized(served(2, cluster.RouteLeastRequests)),
		}
		for command, got := range verdicts {
			if got != want {
				t.Errorf("%s at %.2g of the capacity of %.3g requests/s: got saturated %v, want %v", command, factor, capacity, got, want)
			}
		}
	}
}
