package sim_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
)

// TestClosedLoopIsReproduced: a closed loop is simulated, recorded, extracted and
// replayed as a closed loop with the same coefficients: the clients are counted
// from the recording, and TTFT, ITL and E2E are distributed as they were. With
// step times 30 % too long E2E is 30 % too long; at the recorded arrivals, which
// do not wait for answers, the queue would run away.
func TestClosedLoopIsReproduced(t *testing.T) {
	for _, async := range []bool{false, true} {
		gen := workload.Generator{
			Requests: 400, Arrivals: workload.ArrivalSpec{Kind: "closed", Clients: 6, ThinkMs: 1, RampS: 0.05},
			Prompt: workload.LengthSpec{Kind: "lognormal", Mean: 200, Sigma: 0.8, Max: 900},
			Output: workload.LengthSpec{Kind: "lognormal", Mean: 30, Sigma: 0.7, Max: 100},
		}
		w, err := gen.Generate(3)
		if err != nil {
			t.Fatal(err)
		}
		e := simulateAndExtract(t, fmt.Sprintf(runYAML, false, 4000, async, 100000, "chat", "null"), w.Requests, nil)
		open, err := workload.FromRun(e.run, e.dep, workload.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		closed, err := workload.FromRun(e.run, e.dep, workload.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if c := closed.Concurrency(e.run); c.Clients != 6 || !c.IsClosed() {
			t.Errorf("async %t: got %+v, want 6 clients in a closed loop", async, c)
		}
		loop, err := closed.Reclose(e.run)
		if err != nil || loop.Clients != 6 {
			t.Fatalf("got %+v, %v, want 6 clients", loop, err)
		}
		replay := func(w *workload.Workload, slower float64) *sim.Result {
			cfg := sim.DefaultConfig(e.dep, affine{5000 * slower, 20 * slower, 100 * slower})
			cfg.Overhead, cfg.Egress = sim.Const(700), sim.Const(300)
			res, err := sim.Run(cfg, w.Requests, nil)
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		same := replay(closed, 1)
		for name, metric := range map[string]func(*sim.RequestResult) (float64, bool){
			"TTFT": (*sim.RequestResult).TTFTUs, "ITL": (*sim.RequestResult).ITLUs, "E2E": (*sim.RequestResult).E2EUs,
		} {
			if d := stat.KolmogorovSmirnov(values(e.res, metric), values(same, metric)).D; d > 0.03 {
				t.Errorf("async %t: %s KS %g, want at most 0.03", async, name, d)
			}
		}
		e2e := func(res *sim.Result) float64 { return stat.Median(values(res, (*sim.RequestResult).E2EUs)) }
		slower, wrong := e2e(replay(closed, 1.3))/e2e(e.res), e2e(replay(open, 1.3))/e2e(e.res)
		t.Logf("async %t: coefficients x1.3 give E2E x%.2f as a closed loop, x%.2f at recorded arrivals", async, slower, wrong)
		if math.Abs(slower-1.3) > 0.05 || wrong < 2 {
			t.Errorf("async %t: coefficients x1.3 give E2E x%.2f as a closed loop and x%.2f at recorded arrivals, want x1.3 and a runaway",
				async, slower, wrong)
		}
	}
}

func values(res *sim.Result, metric func(*sim.RequestResult) (float64, bool)) []float64 {
	var v []float64
	for i := range res.Requests {
		if x, ok := metric(&res.Requests[i]); ok {
			v = append(v, x)
		}
	}
	return v
}
