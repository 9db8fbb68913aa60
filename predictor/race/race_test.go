package race

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/predictor/decision"
	"github.com/blis-train/blis-train/predictor/model"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// synthetic is one run of three load stages at 1, 2 and 4 requests per second,
// whose TTFT grows with the requests that wait, far beyond any before in the last.
func synthetic(id, config string, n int, seed uint64) *Run {
	rng := rand.New(rand.NewPCG(seed, 3))
	run := &Run{ID: id, Config: config}
	at := int64(1)
	for i := range n {
		stage := int64(i * 3 / n)
		at += int64(1e9) >> stage
		r := decision.Row{RequestID: fmt.Sprint(i), DecisionNs: at, DepartedNs: trace.Some(at + 3e9), Stage: trace.Some(stage),
			InputTokenLength: 10 + rng.Int64N(500), NumRequestWaiting: rng.Int64N(1 + 4*stage), KVCachePercentage: rng.Float64()}
		r.TTFTMs = truthOf(&r) * math.Exp(0.1*rng.NormFloat64())
		r.TPOTMs = trace.Some(5 + rng.Float64())
		run.Rows = append(run.Rows, r)
	}
	return run
}

func truthOf(r *decision.Row) float64 {
	return 10 + 0.02*float64(r.InputTokenLength) + 30*float64(r.NumRequestWaiting)
}

func truth(runs []*Run) Physics {
	return func(context.Context, []Hidden) ([]Estimates, error) {
		out := make([]Estimates, len(runs))
		for k, run := range runs {
			for i := range run.Rows {
				out[k].TTFT, out[k].TPOT = append(out[k].TTFT, truthOf(&run.Rows[i])), append(out[k].TPOT, 5.5)
			}
		}
		return out, nil
	}
}

func options(runs []*Run) Options {
	o := DefaultOptions()
	o.Features, o.Draws, o.Bins, o.Physics = decision.FeaturesLLMD, 200, 32, truth(runs)
	return o
}

func cellOf(t *testing.T, doc *result.PredictorScores, target, split, name string) result.PredictorCell {
	t.Helper()
	for _, c := range doc.Cells {
		if c.Scope == ScopeAll && c.Target == target && c.Split == split && c.Model == name {
			return c
		}
	}
	t.Fatalf("no cell for %s, %s, %s", target, split, name)
	return result.PredictorCell{}
}

// With a planted truth physics wins where the load was never seen, trees cannot
// predict above their largest leaf, every cell has its constant and floor, and a
// split that cannot be formed says why.
func TestRace(t *testing.T) {
	runs := []*Run{synthetic("a", "one", 520, 1), synthetic("b", "two", 240, 2)}
	o := options(runs)
	o.Emulate = emulateLLMD
	doc, err := Fit(context.Background(), runs, o)
	if err != nil {
		t.Fatal(err)
	}
	scopes := 2
	if want := scopes * len(Targets) * len(splitNames) * len(model.Names); len(doc.Cells) != want {
		t.Errorf("got %d cells, want %d", len(doc.Cells), want)
	}
	for _, c := range doc.Cells {
		if c.Reason != "" {
			if c.Split != byRun || c.Scope == ScopeAll {
				t.Errorf("%s %s %s %s: %s", c.Scope, c.Target, c.Split, c.Model, c.Reason)
			}
			continue
		}
		if c.MAPE == nil || c.MAPEConst == nil || c.MAPEFloor == nil || c.Rows == 0 {
			t.Errorf("%s %s %s %s: a figure is missing", c.Scope, c.Target, c.Split, c.Model)
		}
	}
	physics, trees := cellOf(t, doc, "ttft_ms", loadUp, model.Physics), cellOf(t, doc, "ttft_ms", loadUp, model.Trees)
	if *physics.MAPE > 0.1 || *trees.MAPE < 1.5**physics.MAPE || trees.AboveMaxRows == 0 || *trees.AboveMaxMAPE < *trees.MAPE {
		t.Errorf("load-up: physics %.3f, trees %.3f with %d rows above the training maximum at %.3f",
			*physics.MAPE, *trees.MAPE, trees.AboveMaxRows, *trees.AboveMaxMAPE)
	}
	if up := *cellOf(t, doc, "ttft_ms", Time, model.Trees).MAPE; up > *trees.MAPE {
		t.Errorf("trees: %.3f on time, %.3f on load-up, want the second larger", up, *trees.MAPE)
	}
	want := "all, ttft_ms, load-up: physics beats trees by"
	if !strings.Contains(strings.Join(doc.Sentences, "\n"), want) {
		t.Errorf("no sentence %q in\n%s", want, strings.Join(doc.Sentences, "\n"))
	}
	if want := "all, ttft_ms, random - time: trees "; !strings.Contains(strings.Join(doc.Sentences, "\n"), want) {
		t.Errorf("no sentence %q", want)
	}
	covered := 0
	for _, c := range doc.Calibration {
		if c.Scope == ScopeAll && c.Split == Time && c.Target == "ttft_ms" && c.Model == model.Physics && *c.After > 0.84 && *c.After < 0.96 {
			covered++
		}
	}
	if covered != 1 {
		t.Error("physics is not calibrated on split time")
	}
	sum := 0.0
	for _, p := range doc.Emulation[1:6] {
		sum += *p.MAPEDelta
	}
	if p := doc.Emulation[6]; p.Pitfall != "sum" || math.Abs(*p.MAPEDelta-sum) > 1e-12 {
		t.Errorf("got %s of %g, want the sum %g of the single ones", p.Pitfall, *p.MAPEDelta, sum)
	}
	if len(doc.Emulation) != scopes*2*(len(pitfalls)+1) {
		t.Errorf("got %d lines of pitfalls", len(doc.Emulation))
	}
}

// The same bytes for any number of workers.
func TestRaceIsDeterministic(t *testing.T) {
	runs := []*Run{synthetic("a", "one", 200, 1), synthetic("b", "two", 200, 2)}
	var first []byte
	for _, workers := range []int{1, 4} {
		o := options(runs)
		o.Workers, o.Models, o.Splits = workers, []string{model.Linear, model.Trees, model.PhysicsTrees}, []string{Time, loadUp, byRun}
		doc, err := Fit(context.Background(), runs, o)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = text
		} else if string(first) != string(text) {
			t.Error("the document depends on the number of workers")
		}
	}
}

// Splits hold every row at most once, in one part; time drops what was alive at
// the border; what is hidden from physics covers the test rows.
func TestSplits(t *testing.T) {
	runs := []*Run{synthetic("a", "one", 400, 1), synthetic("b", "two", 300, 2)}
	r := &race{o: options(runs), runs: runs}
	a := r.gather(ScopeAll, Targets[0])
	for _, name := range splitNames {
		s := a.newSplit(name, 1)
		if s.reason != "" {
			t.Errorf("%s: %s", name, s.reason)
			continue
		}
		for _, f := range s.folds {
			seen := map[int]bool{}
			for _, i := range append(append([]int{}, f.train...), f.test...) {
				if seen[i] {
					t.Fatalf("%s: row %d twice", name, i)
				}
				seen[i] = true
			}
			for _, i := range f.test {
				x, hidden := a.samples[i], name == random
				for _, h := range f.hidden {
					hidden = hidden || h.Run == runs[x.run].ID && x.row.DecisionNs >= h.StartNs && x.row.DecisionNs < h.EndNs
				}
				if !hidden {
					t.Fatalf("%s: the test row %s/%s is not hidden from physics", name, runs[x.run].ID, x.row.RequestID)
				}
			}
			for _, i := range f.train {
				if x := a.samples[i]; name == Time && x.row.DepartedNs.V >= runs[x.run].border() {
					t.Fatalf("time: row %s was alive at the border", x.row.RequestID)
				}
			}
		}
		if name == Time && s.dropped == 0 {
			t.Error("time: nothing was dropped at the border")
		}
	}
	up := a.newSplit(loadUp, 1)
	for _, i := range up.folds[0].test {
		if a.samples[i].row.Stage.V != 2 {
			t.Fatalf("load-up tests a row of stage %d", a.samples[i].row.Stage.V)
		}
	}
}

// One load per run makes stages of the runs of one configuration; without rates
// that differ there is a reason.
func TestStagesFromRuns(t *testing.T) {
	var runs []*Run
	for k := range 3 {
		run := synthetic(fmt.Sprint(k), "one", 100, uint64(k))
		for i := range run.Rows {
			run.Rows[i].Stage, run.Rows[i].DecisionNs = trace.Some(int64(0)), int64(i)*int64(1e9)/int64(k+1)
		}
		runs = append(runs, run)
	}
	r := &race{o: options(runs), runs: runs}
	a := r.gather(ScopeAll, Targets[0])
	if s := a.newSplit(loadDown, 1); s.reason != "" || a.samples[s.folds[0].test[0]].run != 0 || len(s.folds[0].test) != 100 {
		t.Errorf("load-down: got %q, want the slowest run as test", s.reason)
	}
	for _, run := range runs {
		for i := range run.Rows {
			run.Rows[i].DecisionNs = int64(i) * 1e9
		}
	}
	if s := r.gather(ScopeAll, Targets[0]).newSplit(loadUp, 1); s.reason == "" {
		t.Error("runs at one rate: got stages, want a reason")
	}
}

// Intervals and decisions by hand.
func TestScoresByHand(t *testing.T) {
	o := &outcome{y: []float64{40, 60, 120, 300}, pred: map[string][]float64{"m": {45, 45, 130, 90}}}
	d := o.decisions("m")
	// at 50 ms: late are 60, 120, 300, of which the second is let in; at 100 ms: late 120, 300, one let in
	if math.Abs(*d[0].FalseAdmit-1.0/3) > 1e-12 || *d[0].FalseReject != 0 || *d[1].FalseAdmit != 0.5 || *d[1].FalseReject != 0 {
		t.Errorf("got %v %v %v %v", *d[0].FalseAdmit, *d[0].FalseReject, *d[1].FalseAdmit, *d[1].FalseReject)
	}
	if d[3].FalseAdmit != nil {
		t.Errorf("nothing takes 500 ms: got %v, want null", *d[3].FalseAdmit)
	}
	o.block, o.strata = []int{0, 1, 2, 3}, [][]int{{0, 1, 2, 3}}
	if _, _, ok := o.interval([]float64{1, 1, 1, 1}, 1, 100); ok {
		t.Error("four blocks gave an interval, want none below five")
	}
}

// What a router loads from predictor.json predicts what the race scored, row by
// row, with the standard library's reader alone.
func TestFileIsTheModel(t *testing.T) {
	runs := []*Run{synthetic("a", "one", 500, 1)}
	o := options(runs)
	targets, err := GrowTargets(context.Background(), runs, o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"schema_version": "1", "targets": targets})
	if err != nil {
		t.Fatal(err)
	}
	file, err := forest.Load(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	r := &race{o: o, runs: runs}
	for k, target := range Targets {
		a := r.gather(ScopeAll, target)
		models, err := model.FromTarget(&targets[k])
		if err != nil {
			t.Fatal(err)
		}
		e := file.Target(target)
		x := make([]float64, len(a.table.X))
		for i := range a.samples {
			a.table.Row(i, x)
			if got, _ := e.Predict(x); got != models[model.Trees].Predict(a.table, i) {
				t.Fatalf("%s row %d: the file says %g, the model %g", target, i, got, models[model.Trees].Predict(a.table, i))
			}
			if got, _ := e.PredictGated(x); got != models[model.TreesGated].Predict(a.table, i) {
				t.Fatalf("%s row %d: gated forests differ", target, i)
			}
		}
		if _, ok := e.P90(x); !ok || len(e.Quantiles) != 3 {
			t.Errorf("%s: no calibrated P90 or %d quantiles", target, len(e.Quantiles))
		}
	}
	judged, err := JudgeFile(context.Background(), runs, targets, o)
	if err != nil || len(judged.Cells) != 2*len(evaluated) {
		t.Fatalf("got %v and %d cells, want %d", err, len(judged.Cells), 2*len(evaluated))
	}
}
