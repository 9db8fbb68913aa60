package workload_test

import (
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
)

// TestRealClosedLoopsAreRecognised: every closed phase of the recorded runs is
// told from every open one by its sends alone, and its clients are counted.
func TestRealClosedLoopsAreRecognised(t *testing.T) {
	for _, r := range recordedRuns(t, "real_vllm_cpu") {
		for _, p := range r.dep.Phases {
			if p.Name == deploy.WarmupPhase {
				continue
			}
			w, err := workload.FromRun(r.run, r.dep, workload.RunOptions{Phase: p.Name})
			if err != nil {
				t.Errorf("%s %s: %v", r.id, p.Name, err)
				continue
			}
			c := w.Concurrency(r.run)
			t.Logf("%-14s %-12s %4d requests, %3d at once, plateau %.2f, think p90 %6.1f ms, between sends %6.1f ms: closed %t",
				r.id, p.Name, len(w.Requests), c.Clients, c.PlateauShare, c.ThinkP90Us/1e3, c.MeanGapUs/1e3, c.IsClosed())
			if len(w.Requests) == c.Clients {
				continue // nobody sent twice
			}
			if c.IsClosed() != (p.Load == deploy.LoadClosed) {
				t.Errorf("%s %s: closed %t, recorded as %s", r.id, p.Name, c.IsClosed(), p.Load)
			}
		}
	}
}

// generated are n requests of fixed lengths, 10 ms apart.
func generated(t *testing.T, n int) *workload.Workload {
	t.Helper()
	g := workload.Generator{Requests: n, Arrivals: workload.ArrivalSpec{Kind: "constant", RateRPS: 100},
		Prompt: workload.LengthSpec{Kind: "constant", Value: 20}, Output: workload.LengthSpec{Kind: "uniform", Min: 1, Max: 30}}
	w, err := g.Generate(1)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// inFlight runs the workload and returns the most requests in flight at once,
// and the shortest time between an answer and the next send.
func inFlight(t *testing.T, w *workload.Workload) (most int, restUs int64) {
	t.Helper()
	n, answered := 0, int64(-1)
	restUs = 1 << 60
	count := func(e *sim.Event) {
		switch e.Kind {
		case sim.Arrived:
			n++
			most = max(most, n)
			if answered >= 0 {
				restUs = min(restUs, e.AtUs-answered)
			}
		case sim.Departed:
			n--
			answered = e.AtUs
		}
	}
	cfg := sim.DefaultConfig(testkit.Small(400), &sim.Blackbox{Beta: []float64{1000, 10, 5}})
	if _, err := sim.Run(cfg, w.Requests, events(count)); err != nil {
		t.Fatal(err)
	}
	return most, restUs
}

type events func(*sim.Event)

func (events) Step(*sim.StepView)   {}
func (f events) Event(e *sim.Event) { f(e) }

// A closed loop never has more requests in flight than clients, and always as
// many while requests last; its clients think; a cap on arrivals holds them back
// and sends none early.
func TestLoopsKeepTheirClients(t *testing.T) {
	w := generated(t, 60)
	if err := w.Close(workload.Loop{Clients: 7, ThinkUs: 2500, RampUs: 70_000}); err != nil {
		t.Fatal(err)
	}
	if w.Requests[6].ArrivalUs != 60_000 || w.Requests[6].Queued || !w.Requests[7].Queued {
		t.Errorf("ramp: %+v, then %+v", w.Requests[6], w.Requests[7])
	}
	if most, _ := inFlight(t, w); most != 7 {
		t.Errorf("%d in flight, want 7", most)
	}
	alone := generated(t, 20)
	if err := alone.Close(workload.Loop{Clients: 1, ThinkUs: 2500}); err != nil {
		t.Fatal(err)
	}
	if most, rest := inFlight(t, alone); most != 1 || rest != 2500 {
		t.Errorf("%d in flight, %d us of thought, want 1 and 2500", most, rest)
	}
	capped := generated(t, 60)
	planned := generated(t, 60)
	if err := capped.Close(workload.Loop{Clients: 2, KeepArrivals: true}); err != nil {
		t.Fatal(err)
	}
	if most, _ := inFlight(t, capped); most != 2 {
		t.Errorf("%d in flight under a cap of 2", most)
	}
	res, err := sim.Run(sim.DefaultConfig(testkit.Small(400), &sim.Blackbox{Beta: []float64{1000, 10, 5}}), capped.Requests, nil)
	if err != nil {
		t.Fatal(err)
	}
	late := 0
	for i := range res.Requests {
		switch at := res.Requests[i].ArrivalUs; {
		case at < planned.Requests[i].ArrivalUs:
			t.Errorf("request %d is sent at %d us, planned for %d", i, at, planned.Requests[i].ArrivalUs)
		case at > planned.Requests[i].ArrivalUs:
			late++
		}
	}
	if late == 0 {
		t.Error("the cap held nobody back")
	}
	for _, bad := range []workload.Loop{{}, {Clients: 1, ThinkUs: -1}, {Clients: 1, RampUs: -1}} {
		if generated(t, 3).Close(bad) == nil {
			t.Errorf("%+v: got no error", bad)
		}
	}
}

// A point is its lengths and its load: a closed loop at a concurrency, Poisson
// arrivals at a rate, or both with the concurrency as a cap.
func TestPoints(t *testing.T) {
	p := workload.Point{Requests: 50, InputTokens: 100, OutputTokens: 10, Concurrency: 4}
	w, err := p.Workload(1)
	if err != nil {
		t.Fatal(err)
	}
	if q := w.Requests[9]; q.PromptTokens != 100 || q.OutputTokens != 10 || !q.Queued || w.Requests[3].Queued {
		t.Errorf("%+v", q)
	}
	if most, _ := inFlight(t, w); most != 4 {
		t.Errorf("%d in flight, want 4", most)
	}
	p.RateRPS, p.RangeRatio = 50, 0.5
	if w, err = p.Workload(1); err != nil || w.Requests[9].ArrivalUs == 0 {
		t.Errorf("%v, %+v: want a planned arrival", err, w.Requests[9])
	}
	for _, q := range w.Requests {
		if q.PromptTokens < 50 || q.PromptTokens > 150 || q.OutputTokens < 5 || q.OutputTokens > 15 {
			t.Errorf("lengths %d and %d, want within half", q.PromptTokens, q.OutputTokens)
		}
	}
	for _, bad := range []workload.Point{{}, {Requests: 1, InputTokens: 1}, {Requests: 1, InputTokens: 1, OutputTokens: 1, RangeRatio: 1}} {
		if _, err := bad.Workload(1); err == nil {
			t.Errorf("%+v: got no error", bad)
		}
	}
}
