package sizing

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/sim"
)

// question is Qwen3-32B on H100, 2,000 + 300 tokens.
func question(load predict.Load, slo string, tp ...int64) *Question {
	q := DefaultQuestion()
	q.Server.Model = "Qwen/Qwen3-32B"
	q.Hardware = []string{"H100"}
	q.TP = tp
	q.Load = load
	q.Workers = 2
	q.measured = 300
	q.replications = leastReplications
	var err error
	if q.Targets, err = predict.ParseTargets(slo); err != nil {
		panic(err)
	}
	return &q
}

func answered(t *testing.T, q *Question) *Answer {
	t.Helper()
	a, err := q.Answer(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestFewestReplicas checks that the replicas that a row names meet the targets, and that one fewer does not.
func TestFewestReplicas(t *testing.T) {
	load := predict.Load{RateRPS: 9, InputTokens: 2000, OutputTokens: 100}
	q := question(load, "ttft.p95=600ms,tpot.mean=30ms", 2)
	a := answered(t, q)
	r := a.Best()
	if r == nil || r.Replicas < 2 || r.GPUs != 2*int64(r.Replicas) {
		t.Fatalf("got %+v, want at least two replicas of two GPUs", r)
	}
	if !(r.Headroom >= 0 && r.Headroom < 1 && r.HighestLoad >= r.ReplicaLoad) || math.Abs(r.ReplicaLoad*float64(r.Replicas)-9) > 1e-9 {
		t.Errorf("load %g, highest %g, headroom %g of %d replicas, want a load of 9 in all", r.ReplicaLoad, r.HighestLoad, r.Headroom, r.Replicas)
	}
	c := &candidate{q: q, tp: 2, hardware: "H100"}
	all, err := q.candidates()
	if err != nil {
		t.Fatal(err)
	}
	c.asked = all[0].asked
	if c.server, _, err = c.asked.Server(context.Background()); err != nil {
		t.Fatal(err)
	}
	if c.warmUpS, err = c.server.WarmUpS(&q.Load, q.Seed); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]bool{r.Replicas: true, r.Replicas - 1: false} {
		samples, err := c.replicate(context.Background(), n, nil, c.measure, func(s []*predict.Sample) bool { return len(s) == leastReplications })
		if err != nil {
			t.Fatal(err)
		}
		if broken := predict.Broken(samples, &q.Targets); (broken == "") != want {
			t.Errorf("%d replicas: got broken target %q, want met %v", n, broken, want)
		}
	}
	// Little's law: requests in the system are the rate times their time in it.
	e2e := r.Figures[slices.IndexFunc(r.Figures, func(f Figure) bool { return f.Metric == predict.E2E && f.Statistic == "mean" })]
	if want := 9 * e2e.Ms.Value / 1e3; math.Abs(r.InFlight/want-1) > 0.03 {
		t.Errorf("mean in flight %g, want rate x E2E = %g within 3 %%", r.InFlight, want)
	}
}

// TestSmoothArrivals: a server behind a router may carry several times what it does alone with Poisson arrivals, and
// no more servers are needed for it: what a row has to spare is less than one server.
func TestSmoothArrivals(t *testing.T) {
	q := question(predict.Load{RateRPS: 30, InputTokens: 800, OutputTokens: 60}, "ttft.p99=500ms", 4)
	q.Server.Model = "meta-llama/Llama-3.1-8B"
	q.Hardware = []string{"L40S"}
	r := answered(t, q).Best()
	if r == nil || r.Replicas < 2 || r.Headroom > 1/float64(r.Replicas)+0.03 {
		t.Errorf("got %+v, want less to spare than one of the replicas", r)
	}
}

// TestCertainRow: where the fewest replicas meet the targets by the estimate only, the fewest that meet them at the
// upper end of the stated error are a row too.
func TestCertainRow(t *testing.T) {
	q := question(predict.Load{RateRPS: 9, InputTokens: 2000, OutputTokens: 20}, "ttft.p95=600ms,tpot.mean=30ms", 2)
	a := answered(t, q)
	if len(a.Rows) != 2 || a.Rows[0].Met != MetEstimate || a.Rows[1].Met != MetYes || a.Rows[1].Replicas <= a.Rows[0].Replicas {
		t.Fatalf("got %+v, want a row that may meet the targets and one of more replicas that does", a.Rows)
	}
	trust := oneServer(t, q).server.Trust
	for i, r := range a.Rows {
		if trust.Sentence == "" || r.Trust != trust.Sentence || r.TrustSummary != trust.Summary || r.Family != trust.Family {
			t.Errorf("row %d: got trust %q, %q, %q", i, r.Trust, r.TrustSummary, r.Family)
		}
	}
	for i, want := range []bool{false, true} {
		keepsAll := true
		for _, f := range a.Rows[i].Figures {
			keepsAll = keepsAll && (f.LimitMs == 0 || f.ErrorHigh <= f.LimitMs)
		}
		if keepsAll != want {
			t.Errorf("row %d: targets met at the stated error: %v, want %v", i, keepsAll, want)
		}
	}
	if a.Rows[1].Headroom <= a.Rows[0].Headroom {
		t.Errorf("spare %g of more replicas, %g of fewer", a.Rows[1].Headroom, a.Rows[0].Headroom)
	}
}

// TestSameAnswerForAnyWorkers compares one worker with three.
func TestSameAnswerForAnyWorkers(t *testing.T) {
	answer := func(workers int) *Answer {
		q := question(predict.Load{Clients: 12, InputTokens: 500, OutputTokens: 20}, "tpot.mean=25ms", 1, 2)
		q.Workers = workers
		return answered(t, q)
	}
	one, three := answer(1), answer(3)
	for i := range one.Rows {
		if a, b := one.Rows[i].Figures, three.Rows[i].Figures; !slices.Equal(a, b) {
			t.Errorf("row %d differs between one worker and three", i)
		}
	}
}

// TestErrorsOfParallelCandidates: an error of one candidate is in its own row, also while others end. The race
// detector sees a variable that candidates share.
func TestErrorsOfParallelCandidates(t *testing.T) {
	q := question(predict.Load{Clients: 2, InputTokens: 100, OutputTokens: 5}, "tpot.mean=100ms", 2, 4)
	q.Hardware = []string{"H100", "no-such-gpu", "H200", "none-such-gpu"}
	q.Workers = 8
	q.measured = 20
	for _, r := range answered(t, q).Rows {
		isUnknown := !slices.Contains([]string{"H100-SXM-80GB", "H200-SXM-141GB", "H100", "H200"}, r.Hardware)
		if isUnknown != strings.Contains(r.Refused, r.Hardware) || isUnknown != (r.Met == "") {
			t.Errorf("%s tp %d: got met %q, refused %q", r.Hardware, r.TP, r.Met, r.Refused)
		}
	}
}

// TestSplitServers: servers behind round robin that see independent arrivals are what the gateway simulates.
func TestSplitServers(t *testing.T) {
	q := question(predict.Load{RateRPS: 6, InputTokens: 400, OutputTokens: 20}, "ttft=1s", 1)
	all, err := q.candidates()
	if err != nil {
		t.Fatal(err)
	}
	c := &all[0]
	if c.server, _, err = c.asked.Server(context.Background()); err != nil {
		t.Fatal(err)
	}
	s, err := q.Load.Stretch(1, 60, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := c.server.Engine(1)
	if err != nil {
		t.Fatal(err)
	}
	split, _, err := cluster.Servers(cfg, 3, cluster.RouteRoundRobin, s.Requests)
	if err != nil {
		t.Fatal(err)
	}
	// A request that follows an answer makes the gateway simulate all on one clock.
	followed := slices.Clone(s.Requests)
	last := len(followed) - 1
	followed[last].After = 1
	whole, _, err := cluster.Servers(cfg, 3, cluster.RouteRoundRobin, followed)
	if err != nil {
		t.Fatal(err)
	}
	for i := range split[:last] {
		if a, b := timesOf(&split[i]), timesOf(&whole[i]); a != b {
			t.Fatalf("request %d: got %v alone and %v behind the gateway", i, a, b)
		}
	}
}

func timesOf(r *sim.RequestResult) [3]int64 {
	return [3]int64{r.ArrivalUs, r.FirstTokenUs.V, r.FinishedUs.V}
}
