package sizing

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
)

func TestParseTargets(t *testing.T) {
	for text, want := range map[string]string{
		"ttft.p95=1s,tpot.mean=40ms": "ttft.p95=1000ms tpot.mean=40ms",
		"itl=30ms":                   "itl.p90=30ms",
		"E2E.p99.9=10s":              "e2e.p99.9=10000ms",
	} {
		got, err := ParseTargets(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		words := ""
		for i, l := range got.Limits {
			if i > 0 {
				words += " "
			}
			words += l.String()
		}
		if words != want || got.Goodput != 0 {
			t.Errorf("%s: got %q, goodput %g, want %q", text, words, got.Goodput, want)
		}
	}
	for _, text := range []string{"ttft=1s,goodput=95%", "ttft=1s,goodput=95", "ttft=1s,goodput=0.95"} {
		if got, err := ParseTargets(text); err != nil || math.Abs(got.Goodput-0.95) > 1e-12 {
			t.Errorf("%s: got goodput %g, %v, want 0.95", text, got.Goodput, err)
		}
	}
	for _, text := range []string{"", "goodput=95%", "ttft.p95=1s,goodput=95%", "itl=40ms,goodput=95%", "ttft=0s", "ttft.p0=1s", "ttft.p100=1s",
		"latency=1s", "ttft=1", "ttft=1s,goodput=120%", "ttft.q95=1s"} {
		if got, err := ParseTargets(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

// question is Qwen3-32B on H100, 2,000 + 300 tokens.
func question(load Load, slo string, tp ...int64) *Question {
	q := DefaultQuestion()
	q.Server.Model = "Qwen/Qwen3-32B"
	q.Hardware = []string{"H100"}
	q.TP = tp
	q.Load = load
	q.Workers = 2
	var err error
	if q.Targets, err = ParseTargets(slo); err != nil {
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
	load := Load{RateRPS: 9, InputTokens: 2000, OutputTokens: 100}
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
	if err := c.measureIdle(); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]bool{r.Replicas: true, r.Replicas - 1: false} {
		samples, err := c.replicate(context.Background(), n, nil, func(s []*sample) bool { return len(s) == leastReplications })
		if err != nil {
			t.Fatal(err)
		}
		if broken := brokenTarget(samples, &q.Targets); (broken == "") != want {
			t.Errorf("%d replicas: got broken target %q, want met %v", n, broken, want)
		}
	}
	// Little's law: requests in the system are the rate times their time in it.
	e2e := r.Figures[slices.IndexFunc(r.Figures, func(f Figure) bool { return f.Metric == E2E && f.Statistic == "mean" })]
	if want := 9 * e2e.Ms.Value / 1e3; math.Abs(r.InFlight/want-1) > 0.03 {
		t.Errorf("mean in flight %g, want rate x E2E = %g within 3 %%", r.InFlight, want)
	}
}

// TestSameAnswerForAnyWorkers compares one worker with three.
func TestSameAnswerForAnyWorkers(t *testing.T) {
	answer := func(workers int) *Answer {
		q := question(Load{Clients: 24, InputTokens: 500, OutputTokens: 50}, "tpot.mean=25ms", 1, 2)
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

// TestGoodput counts requests by hand.
func TestGoodput(t *testing.T) {
	s := &sample{ttft: []float64{1, 2, 3, 4}, tpot: []float64{10, 10, 30, 10}, e2e: []float64{1, 1, 1, 1}, lost: 1, gaps: stat.NewHistogram()}
	limits := []Target{{Metric: TTFT, LimitMs: 3}, {Metric: TPOT, LimitMs: 20}}
	if got := s.goodput(limits); got != 2.0/5 {
		t.Errorf("got goodput %g, want 2 of 5", got)
	}
	if got := s.figure(TTFT, 0.99); !math.IsInf(got, 1) {
		t.Errorf("p99 with a lost request: got %g, want infinite", got)
	}
	if got := s.figure(TTFT, 0.25); got != 2 {
		t.Errorf("p25 of 1, 2, 3, 4 and a lost one: got %g, want 2", got)
	}
}

// TestSteadyState: the clients of a closed loop start one after another, and the first ones are not measured.
func TestSteadyState(t *testing.T) {
	l := Load{Clients: 8, InputTokens: 100, OutputTokens: 10}
	s, err := l.draw(1, 40, 4, 1)
	if err != nil {
		t.Fatal(err)
	}
	measured := 0
	for i := range s.requests {
		if !s.requests[i].Unmeasured {
			measured++
		}
	}
	if measured != 40 || len(s.requests) != 40+4*8 {
		t.Errorf("got %d measured of %d, want 40 of 72", measured, len(s.requests))
	}
	if got := s.requests[7].ArrivalUs; got != 3_500_000 {
		t.Errorf("client 8 starts at %d us, want 7/8 of 4 s", got)
	}
}

// TestWorkloadOfLengths: a table without arrivals is served at a rate.
func TestWorkloadOfLengths(t *testing.T) {
	w, _, err := workload.Read([]byte("num_prefill_tokens,num_decode_tokens\n100,20\n200,10\n300,30\n"), "lengths.csv")
	if err != nil {
		t.Fatal(err)
	}
	l := Load{RateRPS: 2, Workload: w}
	s, err := l.draw(1, 0, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	tokens := int64(0)
	for i := range s.requests {
		tokens += s.requests[i].PromptTokens
	}
	if len(s.requests) != 3 || tokens != 600 || lastArrivalUs(s.requests) == 0 {
		t.Errorf("got %d requests, %d prompt tokens, last arrival %d us, want 3, 600 and Poisson arrivals", len(s.requests), tokens,
			lastArrivalUs(s.requests))
	}
	l.RateRPS = 0
	if _, err := l.draw(1, 0, 0, 1); err == nil {
		t.Error("lengths without arrivals or rate: got no error")
	}
}

// TestSplitServers: servers behind round robin that see independent arrivals are what the gateway simulates.
func TestSplitServers(t *testing.T) {
	q := question(Load{RateRPS: 6, InputTokens: 400, OutputTokens: 20}, "ttft=1s", 1)
	all, err := q.candidates()
	if err != nil {
		t.Fatal(err)
	}
	c := &all[0]
	if c.server, _, err = c.asked.Server(context.Background()); err != nil {
		t.Fatal(err)
	}
	s, err := q.Load.draw(1, 60, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := c.server.Engine(1)
	if err != nil {
		t.Fatal(err)
	}
	split, _, err := cluster.Servers(cfg, 3, cluster.RouteRoundRobin, s.requests)
	if err != nil {
		t.Fatal(err)
	}
	// A request that follows an answer makes the gateway simulate all on one clock.
	followed := slices.Clone(s.requests)
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
