package validate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// plantedOverheadUs is what a preemption costs in planted recordings, us per unit of the average.
const plantedOverheadUs = 30e3

// preempting is a recording with so few KV blocks that requests are preempted, and how often they were.
func preempting(t *testing.T, gamma float64, seed uint64, requests int, rps float64, blocks int64) (fit.Source, int64) {
	t.Helper()
	dep := plantedDeployment(t)
	set := testkit.PlantedOn(dep)
	setTerm(set, "preemption_overhead", plantedOverheadUs)
	run := recordPlanted(t, set, dep, plantedLoad(requests, rps, seed), func(c *sim.Config) {
		c.GammaEMA = gamma
		c.Seed = int64(seed)
		c.KVBlocks = blocks
		var q []sim.Quantile
		for k := 1; k < 40; k++ {
			p := float64(k) / 40
			q = append(q, sim.Quantile{Q: p, Ratio: math.Exp(0.03 * math.Sqrt2 * math.Erfinv(2*p-1))})
		}
		c.Noise = &sim.Noise{Decode: q, Prefill: q, Mixed: q}
	})
	run.ID = fmt.Sprintf("planted-%g-%d-%d", gamma, seed, blocks)
	var n int64
	for i := range run.Steps {
		n += int64(run.Steps[i].NumPreempted)
	}
	return fit.Source{ID: run.ID, Deployment: *dep, Load: func() (*trace.Run, error) { return run, nil },
		Judge: func(run *trace.Run) (string, []rows.Span) { return rows.JudgeLoad(run, dep) }}, n
}

// stepTimes are the options of a fit that is looked at for its step times.
func stepTimes() fit.Options {
	o := fit.DefaultOptions()
	o.Bootstraps = fit.MinBootstraps
	o.Models = []string{}
	o.AlphaTargets = []string{coeff.Overhead}
	return o
}

func stepTimesOf(t *testing.T, sources []fit.Source, o fit.Options) *result.Fit {
	t.Helper()
	doc, err := fit.Fit(t.Context(), sources, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// term is a coefficient of the step time.
func term(t *testing.T, m *result.Model, name string) *result.Coefficient {
	t.Helper()
	for i := range m.Coefficients {
		if m.Coefficients[i].Name == name {
			return &m.Coefficients[i]
		}
	}
	t.Fatalf("no term %s", name)
	return nil
}

// Planted gammas and overheads return, ten recordings each (spec#gamma-choice).
func TestEvalGamma(t *testing.T) {
	repo.NeedEval(t)
	o := stepTimes()
	o.KeepSaturated, o.Bootstraps = true, 500
	right := 0
	wrong := 0
	inside := 0
	narrow := 0
	fmt.Println("planted gamma, 30 ms overhead: preemptions, steps | gamma | overhead us, its interval")
	for _, gamma := range features.Gammas() {
		for seed := range uint64(10) {
			src, n := preempting(t, gamma, rand.New(rand.NewPCG(seed, 5)).Uint64(), 2800, 12, 80)
			m := &stepTimesOf(t, []fit.Source{src}, o).Beta
			c := term(t, m, "preemption_overhead")
			verdict := "not identified"
			switch {
			case *m.GammaIdentified && *m.GammaEMA == gamma:
				right, verdict = right+1, "right"
			case *m.GammaIdentified:
				wrong, verdict = wrong+1, "WRONG"
			}
			if ci := c.CI95; ci != nil && ci[0] <= plantedOverheadUs && plantedOverheadUs <= ci[1] {
				inside++
			}
			if ci := c.CI95; ci != nil && ci[1] < 2*ci[0] {
				narrow++
			}
			fmt.Printf("  %g %d: %4d, %5d | %g %-14s | %6.0f %.0f\n", gamma, seed, n, m.Rows.Kept, *m.GammaEMA, verdict, c.Value, c.Interval())
			if n < 200 {
				t.Errorf("%d preemptions, want at least 200", n)
			}
		}
	}
	fmt.Printf("  right %d, wrong %d, overhead inside its interval %d, interval narrower than a factor of 2 %d of 30\n", right, wrong, inside,
		narrow)
	if right < 20 || wrong > 3 || inside < 27 || narrow < 20 {
		t.Errorf("got %d right, %d wrong, %d inside, %d narrow; want at least 20, at most 3, at least 27 and 20", right, wrong, inside, narrow)
	}
}

// A saturated run that preempts teaches the overhead beside one that does not, with its training rows
// near preemptions alone; by itself it is not fitted.
func TestSaturatedRunTeachesPreemption(t *testing.T) {
	calm, none := preempting(t, 0.3, 107, 600, 4, 4000)
	full, n := preempting(t, 0.3, 7, 2000, 12, 80)
	full.Judge = func(*trace.Run) (string, []rows.Span) { return "two checks", nil }
	if none != 0 || n < 20 {
		t.Fatalf("%d and %d preemptions", none, n)
	}
	doc := stepTimesOf(t, []fit.Source{calm, full}, stepTimes())
	c := term(t, &doc.Beta, "preemption_overhead")
	if c.CI95 == nil || c.CI95[0] > plantedOverheadUs || c.CI95[1] < plantedOverheadUs || c.FoldSpread == nil {
		t.Errorf("overhead %g, interval %v, folds %v", c.Value, c.CI95, c.FoldSpread)
	}
	for _, cell := range doc.Beta.Cells {
		if cell.Run == full.ID {
			t.Errorf("the saturated run is judged: %+v", cell)
		}
	}
	for _, r := range doc.Beta.Rows.ByRun {
		if r.Run == full.ID && (r.Kept == 0 || r.Dropped[string(rows.Saturated)] == 0) {
			t.Errorf("%+v", r)
		}
	}
	if a := doc.AlphaNamed(coeff.Overhead); a != nil {
		for _, r := range a.Rows.ByRun {
			if r.Run == full.ID && r.Kept > 0 {
				t.Errorf("delays of a saturated run: %+v", r)
			}
		}
	}
	if _, err := fit.Fit(t.Context(), []fit.Source{full}, stepTimes(), nil); err == nil {
		t.Error("a saturated run is fitted alone")
	}
}
