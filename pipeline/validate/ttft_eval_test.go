package validate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// ttftParts are the parts of TTFT of one request, ms: until it is scheduled first, and from there to
// its first token.
type ttftParts struct{ wait, prefill float64 }

// beforeTTFT are the median relative errors of the hold-out's TTFT before delays and levels had the
// estimators of decisions 8 and 30, of the runs with at least leastTTFTs such requests.
var beforeTTFT = map[string]float64{
	"cpu-async-long": .245, "cpu-gqa-async": .207, "cpu-gqa-campaign": 19.8, "cpu-gqa-low": .215, "cpu-gqa-prefix": .289,
	"cpu-gqa-tp2": .188, "cpu-mha-long": .235, "cpu-mha-mixed": .234, "cpu-moe-medium": .075,
}

// leastTTFTs is the number of requests from which a hold-out is judged.
const leastTTFTs = 8

// TestEvalTTFT replays the phases of every real CPU run, each with its own coefficients, and compares
// the parts of TTFT with those of the journeys. The wait until a request is scheduled is the overhead
// and what the simulated engine makes it wait for the running step and for others. No run's hold-out may
// be worse than before by more than its interval, and the median must be better.
func TestEvalTTFT(t *testing.T) {
	repo.NeedEval(t)
	out, ext := extracted(t, "real_vllm_cpu")
	fmt.Println("real CPU runs, replayed from own fits: means, ms, measured -> simulated")
	var waits, prefills, errors, before []float64
	for i := range ext.Runs {
		alone := *ext
		alone.Runs = ext.Runs[i : i+1]
		f, err := fittedOf(out, &alone, 0.8)
		if err != nil {
			fmt.Printf("  %s: %v\n", ext.Runs[i].ID, err)
			continue
		}
		run, err := table.Read(table.RunDir(out, ext.Runs[i].ID))
		if err != nil {
			t.Fatal(err)
		}
		measured, simulated, isHeld := replayedTTFT(t, run, ext.Runs[i].Deployment, f)
		var all [2]ttftParts
		var held []float64
		n := float64(len(measured))
		for q, m := range measured {
			v := simulated[q]
			all[0].wait += m.wait / n
			all[0].prefill += m.prefill / n
			all[1].wait += v.wait / n
			all[1].prefill += v.prefill / n
			if isHeld[q] {
				held = append(held, math.Abs((v.wait+v.prefill)/(m.wait+m.prefill)-1))
			}
		}
		fmt.Printf("  %-18s %4d requests: wait %7.1f -> %7.1f, prefill %7.1f -> %7.1f", run.ID, len(measured), all[0].wait, all[1].wait,
			all[0].prefill, all[1].prefill)
		waits = append(waits, all[1].wait/all[0].wait-1)
		prefills = append(prefills, all[1].prefill/all[0].prefill-1)
		if was, known := beforeTTFT[run.ID]; known && len(held) >= leastTTFTs {
			lo, e := medianInterval(held)
			errors = append(errors, e)
			before = append(before, was)
			fmt.Printf("; TTFT of %3d held out: median error %5.1f %%, from %5.1f, before %5.1f", len(held), 100*e, 100*lo, 100*was)
			if lo > was {
				t.Errorf("%s: TTFT errs by %.3f, at least %.3f, before %.3f", run.ID, e, lo, was)
			}
		}
		fmt.Println()
	}
	fmt.Printf("  medians over runs: wait %+.1f %%, prefill %+.1f %%; TTFT of %d hold-outs %.1f %%, before %.1f\n", 100*stat.Median(waits),
		100*stat.Median(prefills), len(errors), 100*stat.Median(errors), 100*stat.Median(before))
	if len(errors) < len(beforeTTFT) || !(stat.Median(errors) < stat.Median(before)) {
		t.Errorf("TTFT of %d hold-outs: median %.4f, before %.4f", len(errors), stat.Median(errors), stat.Median(before))
	}
}

// medianInterval is the median with the lower end of its 95 % interval, resampled in blocks of five
// neighbours.
func medianInterval(v []float64) (lo, median float64) {
	rng := rand.New(rand.NewPCG(7, 8))
	const length = 5
	draws := make([]float64, 1000)
	for k := range draws {
		var drawn []float64
		for len(drawn) < len(v) {
			from := rng.IntN(len(v))
			for q := range length {
				drawn = append(drawn, v[(from+q)%len(v)])
			}
		}
		draws[k] = stat.Median(drawn[:len(v)])
	}
	slices.Sort(draws)
	return stat.Quantile(draws, 0.025), stat.Median(v)
}

// replayedTTFT replays every phase of a run and returns the parts of TTFT of each request that has a
// journey, and whether it arrived in the hold-out.
func replayedTTFT(t *testing.T, run *trace.Run, dep *deploy.Deployment, f *result.Fit) (measured, simulated []ttftParts, isHeld []bool) {
	t.Helper()
	set, err := fit.Native(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	set = features.On(set, dep)
	journeys := map[string]*trace.Request{}
	for k := range run.Requests {
		journeys[run.Requests[k].CoreID.V] = &run.Requests[k]
	}
	cuts := map[string]int64{}
	for _, part := range rows.Parts(run, dep, 0.8) {
		cuts[part.Name] = part.CutNs
	}
	all, _ := validate.Requests(run)
	content := validate.ContentOf(run, dep, all, validate.Sharing{}).Content
	for k := range dep.Phases {
		phase := &dep.Phases[k]
		requests, recorded, _ := validate.Workload(all, phase, content)
		if len(requests) == 0 {
			continue
		}
		latency, err := sim.NewPhysics(set, dep)
		if err != nil {
			t.Fatal(err)
		}
		cfg := sim.DefaultConfig(dep, latency)
		if cfg.Overhead, err = sim.NewAlphaDelay(set, coeff.Overhead, dep); err != nil {
			t.Fatal(err)
		}
		cfg.Async = f.Beta.PipelineLag[run.ID].Lag > 0
		res, err := sim.Run(cfg, requests, nil)
		if err != nil {
			t.Fatal(err)
		}
		for q := range recorded {
			r := journeys[recorded[q].ID]
			s := &res.Requests[q]
			if r == nil || recorded[q].Excluded != "" || !s.FirstTokenUs.OK {
				continue
			}
			wait, isScheduled := trace.BetweenMs(r.ArrivedNs, r.ScheduledNs)
			prefill, isAnswered := trace.BetweenMs(r.ScheduledNs, r.FirstTokenNs)
			if !isScheduled || !isAnswered {
				continue
			}
			measured = append(measured, ttftParts{wait, prefill})
			simulated = append(simulated, ttftParts{
				wait:    float64(s.ScheduledUs.V-s.ArrivalUs) / 1e3,
				prefill: float64(s.FirstTokenUs.V-s.ScheduledUs.V) / 1e3,
			})
			isHeld = append(isHeld, recorded[q].ArrivalNs >= cuts[phase.Name])
		}
	}
	return measured, simulated, isHeld
}
