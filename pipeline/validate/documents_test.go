package validate

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// unlike are two runs that differ from the coefficients they are judged with: of a training run every
// step takes 1.1 times as long, a test run is noisy and slows down by a third half way. A request of each failed and
// one was aborted.
func unlike(t *testing.T, dep *deploy.Deployment, set *coeff.Set) (training, test *trace.Run) {
	t.Helper()
	truth := copyOf(set)
	for i := range truth.Beta {
		truth.Beta[i].Value *= 1.1
	}
	training = recordPlanted(t, truth, dep, plantedLoad(80, 3, 41), nil)
	training.ID = "training"
	quantiles := []sim.Quantile{{Q: 0, Ratio: 0.8}, {Q: 0.5, Ratio: 1}, {Q: 1, Ratio: 1.4}}
	test = recordPlanted(t, set, dep, plantedLoad(60, 3, 42), func(c *sim.Config) {
		c.Noise = &sim.Noise{Decode: quantiles, Mixed: quantiles, Prefill: quantiles}
		c.Drift = []sim.DriftPoint{{FromUs: 0, Factor: 1}, {FromUs: 10e6, Factor: 1.33}}
	})
	test.ID = "test"
	for _, run := range []*trace.Run{training, test} {
		failed, aborted := &run.Requests[50], &run.Requests[55]
		failed.Success, failed.AbortReason = trace.Some(false), trace.Some("generation_error")
		aborted.Success, aborted.AbortReason = trace.Some(false), trace.Some("client_disconnect")
		aborted.DepartedNs = trace.Opt[int64]{}
		aborted.AbortedNs = aborted.FinishedNs
	}
	return training, test
}

// TestValidationDocument compares every figure of a validation of two runs.
func TestValidationDocument(t *testing.T) {
	dep := plantedDeployment(t)
	dep.Tracing.JourneySampleRate = trace.Some(1.0)
	set := testkit.PlantedOn(dep)
	set.Residuals = map[string][][2]float64{"decode": {{0, 0.9}, {0.5, 1}, {1, 1.2}}, "mixed": {{0, 0.8}, {1, 1.1}}}
	training, test := unlike(t, dep, set)
	sources := []Source{sourceOf(training, dep, true), sourceOf(test, dep, false)}
	fit := &result.Fit{Options: result.FitOptions{Split: 0.7}}
	for _, c := range set.Beta {
		fit.Beta.Coefficients = append(fit.Beta.Coefficients, result.Coefficient{Coefficient: c})
	}
	fit.Beta.Coefficients[2].Value *= 2 // the set was edited
	o := DefaultOptions()
	o.Split = 0.7
	v, err := Run(context.Background(), set, fit, sources, o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range v.Runs {
		shorten(v.Runs[i].Figures)
	}
	v.Figures.PredVsMeasured = v.Figures.PredVsMeasured[:5]
	testkit.Document(t, "validation", v, "spec", "holds", "tolerance", "streams")
	stored := storedRun(t, set, fit, sources, o)
	for i := range stored.Runs {
		shorten(stored.Runs[i].Figures)
	}
	stored.Figures.PredVsMeasured = stored.Figures.PredVsMeasured[:5]
	if !reflect.DeepEqual(stored, v) {
		t.Error("a validation in parts of many processes differs from one in one process")
	}
}

// shorten keeps every 90th point of the curves.
func shorten(f *result.RunFigures) {
	if f == nil {
		return
	}
	for _, curves := range [][]result.Curve{f.ECDF, f.QQ} {
		for i := range curves {
			var some [][2]float64
			for k := 0; k < len(curves[i].Points); k += 90 {
				some = append(some, curves[i].Points[k])
			}
			curves[i].Points = some
		}
	}
}

// storedRun validates as many processes do: the steps of each run, the limits over all of them, the replay of each
// run, and what those wrote.
func storedRun(t *testing.T, set *coeff.Set, fit *result.Fit, sources []Source, o Options) *result.Validation {
	t.Helper()
	ctx := context.Background()
	stored := make([]Source, len(sources))
	for i, s := range sources {
		stored[i] = s
		dir := t.TempDir()
		if err := StoreSteps(ctx, set, fit, s, o, dir); err != nil {
			t.Fatal(err)
		}
		stored[i].Steps = dir
	}
	limits, err := OutlierLimits(ctx, set, fit, stored, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range stored {
		dir := t.TempDir()
		if err := StoreReplay(ctx, set, fit, s, o, limits, dir); err != nil {
			t.Fatal(err)
		}
		stored[i].Replay = dir
	}
	v, err := Run(ctx, set, fit, stored, o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestInspectDocument compares every figure of the inspection of a run that lost something of each kind.
func TestInspectDocument(t *testing.T) {
	dep := plantedDeployment(t)
	_, run := unlike(t, dep, testkit.PlantedOn(dep))
	run.Steps = append(run.Steps[:40:40], run.Steps[43:]...)
	run.Requests[0].DroppedEvents = 2
	run.Requests[1].Success = trace.Opt[bool]{}
	run.Requests[2].Preemptions = trace.Some[int64](3)
	run.Requests[3].N = trace.Some[int64](2)
	run.Requests[4].Link = "none"
	run.Requests[5].CoreID = trace.Opt[string]{}
	run.Snapshots[7].Orphan = true
	for i := range run.Steps {
		run.Steps[i].WallNs += int64(i % 7 * 1e6)
	}
	last := run.Steps[len(run.Steps)-1].TsStartNs
	dep.Phases = []deploy.Phase{
		{Name: "first", StartNs: plantedNs, EndNs: plantedNs + 8e9, Load: deploy.LoadOpen},
		{Name: "second", StartNs: plantedNs + 8e9, EndNs: last + 1, Load: deploy.LoadOpen},
	}
	for i := range 6 {
		run.Observed = append(run.Observed, trace.ObservedRequest{ID: fmt.Sprint(i), Success: trace.Some(i > 2), Aborted: trace.Some(i > 1)})
	}
	out, err := Inspect(run, dep, Inspection{})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Document(t, "inspect", out, "holds", "tolerance", "streams", "doc", "series")
}
