package sizing

import (
	"context"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/simulate"
)

// TestOneRuleForSaturation: loads around the capacity of a server are called the same by predict, by the
// simulations of size, by the summary of simulate and of a cluster of two with twice the load, and by validate.
func TestOneRuleForSaturation(t *testing.T) { oneRuleForSaturation(t, 0.5, 0.8, 1.2, 1.5) }

// TestEvalOneRuleForSaturation: the same of other loads.
func TestEvalOneRuleForSaturation(t *testing.T) {
	repo.NeedEval(t)
	oneRuleForSaturation(t, 0.4, 0.6, 0.7, 1.3, 1.4, 2)
}

// oneRuleForSaturation takes loads as shares of the capacity.
func oneRuleForSaturation(t *testing.T, factors ...float64) {
	t.Helper()
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
	for _, factor := range factors {
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

// TestTrustOfARow: what is stated of a row is of the clients that each of its servers has, and of a load that its
// servers keep up with.
func TestTrustOfARow(t *testing.T) {
	q := question(predict.Load{Clients: 400, InputTokens: 1000, OutputTokens: 200}, "ttft.p90=1h", 4)
	q.Server.Set = []string{"vllm.version=0.12.0"}
	c := oneServer(t, q)
	sample := func(isSaturated, isPreempted bool) []*predict.Sample {
		s := served(100)
		s.Saturated = isSaturated
		s.Preempted = isPreempted
		return []*predict.Sample{s}
	}
	for _, tried := range []struct {
		servers int
		samples []*predict.Sample
		want    string
	}{
		{5, sample(false, false), "validated on "},
		{1, sample(false, false), "(clients 400, measured 8 to 128)"},
		{3, sample(false, false), "(clients 134, measured 8 to 128)"}, // of the busiest
		{5, sample(false, true), "(a saturated server, measured within capacity)"},
		{5, sample(true, false), "(a saturated server, measured within capacity)"},
	} {
		row := Row{Replicas: tried.servers}
		c.fillFigures(&row, tried.samples)
		if !strings.Contains(row.Trust, tried.want) {
			t.Errorf("%d servers: got %q, want %q", tried.servers, row.Trust, tried.want)
		}
	}
	// What is stated decides whether the targets are surely met.
	calm := c.server.In(&q.Load, 5, sample(false, false)).StatedErrors(nil).TPOT
	loaded := c.server.In(&q.Load, 5, sample(false, true)).StatedErrors(nil).TPOT
	q.Targets.Limits[0] = predict.Target{Metric: predict.TPOT, LimitMs: 10 * (1 + (calm+loaded)/2)}
	for isPreempted, want := range map[bool]string{false: MetYes, true: MetEstimate} {
		row := Row{Replicas: 5}
		if c.fillFigures(&row, sample(false, isPreempted)); row.Met != want {
			t.Errorf("preempted %v: got met %q, want %q at errors of %g and %g", isPreempted, row.Met, want, calm, loaded)
		}
	}
	q.Load.CachedShare = 0.9
	cached := Row{Replicas: 5}
	if c.fillFigures(&cached, sample(false, false)); !strings.Contains(cached.Trust, "(0.9 of each prompt in the prefix cache, measured without)") {
		t.Errorf("cached prompts: got %q", cached.Trust)
	}
	q.Load.CachedShare = 0
	q.Load.Draw = func(int64) (*workload.Workload, error) { return nil, nil }
	row := Row{Replicas: 5}
	if c.fillFigures(&row, sample(false, false)); !strings.Contains(row.Trust, "arrivals and lengths of a workload") {
		t.Errorf("a workload: got %q", row.Trust)
	}
}

// TestPoolThatMissesGrows: one prefill server does less than the prompts that arrive, so a second one joins, however many
// decode servers there are.
func TestPoolThatMissesGrows(t *testing.T) {
	q := question(predict.Load{RateRPS: 30, InputTokens: 2000, OutputTokens: 50}, "ttft.p90=2s", 1)
	q.Server.Model = "Qwen/Qwen3-8B"
	q.Pools = true
	c := oneServer(t, q)
	at := division{prefill: 1, decode: 1}
	samples, err := c.measurePools(t.Context(), &at, 4)
	if err != nil {
		t.Fatal(err)
	}
	if samples == nil || at.prefill != 2 {
		t.Errorf("got %d samples of %d prefill servers and %d decode servers, want some of 2 prefill servers", len(samples), at.prefill, at.decode)
	}
}
