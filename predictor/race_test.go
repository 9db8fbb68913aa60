package predictor

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/trace"
)

// synthetic is one run of three load stages at 1, 2 and 4 requests per second,
// whose TTFT grows with the requests that wait, far beyond any before in the last.
func synthetic(id, config string, n int, seed uint64) *runRows {
	rng := rand.New(rand.NewPCG(seed, 3))
	run := &runRows{ID: id, Config: config}
	at := int64(1)
	for i := range n {
		stage := int64(i * 3 / n)
		at += int64(1e9) >> stage
		r := Row{RequestID: fmt.Sprint(i), DecisionNs: at, DepartedNs: trace.Some(at + 3e9), Stage: trace.Some(stage),
			InputTokenLength: 10 + rng.Int64N(500), NumRequestWaiting: rng.Int64N(1 + 4*stage), KVCachePercentage: rng.Float64()}
		r.TTFTMs = truthOf(&r) * math.Exp(0.1*rng.NormFloat64())
		r.TPOTMs = trace.Some(5 + rng.Float64())
		run.Rows = append(run.Rows, r)
	}
	return run
}

func truthOf(r *Row) float64 {
	return 10 + 0.02*float64(r.InputTokenLength) + 30*float64(r.NumRequestWaiting)
}

func truth(runs []*runRows) estimator {
	return func(context.Context, []hidden) ([]estimates, error) {
		out := make([]estimates, len(runs))
		for k, run := range runs {
			out[k] = estimates{}
			for i := range run.Rows {
				r := &run.Rows[i]
				out[k][targetTTFT], out[k][targetTPOT] = append(out[k][targetTTFT], truthOf(r)), append(out[k][targetTPOT], 5.5)
				out[k][targetE2E] = append(out[k][targetE2E], truthOf(r)+550)
			}
		}
		return out, nil
	}
}

func testOptions(runs []*runRows) TrainOptions {
	o := DefaultTrainOptions()
	o.features, o.bins, o.physics = featuresLLMD, 32, truth(runs)
	return o
}

// With a planted truth physics wins where the load was never seen, trees cannot
// predict above their largest leaf, and what an online predictor does has its price.
func TestRace(t *testing.T) {
	runs := []*runRows{synthetic("a", "one", 520, 1), synthetic("b", "two", 240, 2)}
	o := testOptions(runs)
	splits := map[string]*raced{}
	for _, name := range splitNames {
		splits[name] = race(t, runs, targetTTFT, name, o, o.physics)
		t.Logf("%s: %s", name, splits[name].text())
	}
	up := splits[loadUp].outcome
	physics, trees := up.score(namePhysics, o.Seed), up.score(nameTrees, o.Seed)
	if *physics.MAPE > 0.1 || *trees.MAPE < 1.5**physics.MAPE || trees.AboveMaxRows == 0 || *trees.AboveMaxMAPE < *trees.MAPE {
		t.Errorf("load-up: physics %.3f, trees %.3f with %d rows above the training maximum", *physics.MAPE, *trees.MAPE, trees.AboveMaxRows)
	}
	if d, shown := splits[loadUp].beats(namePhysics, nameTrees, o.Seed); d >= 0 || !shown {
		t.Errorf("load-up: physics - trees is %.3f, shown %v, want below 0 and shown", d, shown)
	}
	if got := splits[byTime].mape(nameTrees); got > *trees.MAPE {
		t.Errorf("trees: %.3f on time, %.3f on load-up, want the second larger", got, *trees.MAPE)
	}
	if _, after, _ := splits[byTime].coverage(t, namePhysics, o); after < 0.84 || after > 0.96 {
		t.Errorf("physics covers %.3f on time, want 0.84 to 0.96", after)
	}
	a := gather(runs, targetTTFT, o.features)
	base, _, _ := under(t, a, habits{}, targetTTFT, o)
	if p90, _, _ := under(t, a, habits{isP90: true}, targetTTFT, o); p90 <= base {
		t.Errorf("P90 as latency: MAPE %.3f, the mean's %.3f, want it larger", p90, base)
	}
}

// The same file and scores for any number of workers; end to end there is one target.
func TestTrainIsDeterministic(t *testing.T) {
	runs := []*runRows{synthetic("a", "one", 520, 1), synthetic("b", "two", 520, 2)}
	var first []byte
	for _, workers := range []int{1, 4} {
		o := testOptions(runs)
		o.Workers = workers
		targets, doc, err := train(context.Background(), runs, o)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal([]any{targets, doc})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = text
		} else if string(first) != string(text) {
			t.Error("the document depends on the number of workers")
		}
		if want := 3 * 2 * len(scored); len(doc.Models) != want { // scopes, targets
			t.Errorf("got %d scores, want %d", len(doc.Models), want)
		}
		for _, c := range doc.Models {
			if c.MAPE == nil || c.MAPEConst == nil || c.MAPEFloor == nil || c.Coverage == nil || c.Rows == 0 {
				t.Errorf("%s %s %s: a figure is missing", c.Scope, c.Target, c.Model)
			}
			if c.Model == namePhysics && c.Target == targetTTFT && (*c.Coverage < 0.8 || *c.MAPE > 0.12) {
				t.Errorf("%s: physics with MAPE %.3f covers %.3f", c.Scope, *c.MAPE, *c.Coverage)
			}
		}
	}
	for _, r := range runs {
		for i := range r.Rows {
			r.Rows[i].E2EMs = trace.Some(r.Rows[i].TTFTMs + 550)
			r.Rows[i].TTFTMs = 0
		}
	}
	o := testOptions(runs)
	o.targets = targetsOf(TargetE2E)
	targets, doc, err := train(context.Background(), runs, o)
	if err != nil || len(targets) != 1 || targets[0].Name != targetE2E || *doc.Models[0].MAPE > 0.1 {
		t.Errorf("end to end: got %v, %d targets, %v", err, len(targets), doc)
	}
}

// Splits hold every row at most once, in one part; time drops what was alive at
// the border; what is hidden from physics covers the test rows.
func TestSplits(t *testing.T) {
	runs := []*runRows{synthetic("a", "one", 400, 1), synthetic("b", "two", 300, 2)}
	a := gather(runs, targetTTFT, featuresLLMD)
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
				if x := a.samples[i]; name == byTime && x.row.DepartedNs.V >= runs[x.run].border() {
					t.Fatalf("time: row %s was alive at the border", x.row.RequestID)
				}
			}
		}
		if name == byTime && s.dropped == 0 {
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
	var runs []*runRows
	for k := range 3 {
		run := synthetic(fmt.Sprint(k), "one", 100, uint64(k))
		for i := range run.Rows {
			run.Rows[i].Stage, run.Rows[i].DecisionNs = trace.Some(int64(0)), int64(i)*int64(1e9)/int64(k+1)
		}
		runs = append(runs, run)
	}
	a := gather(runs, targetTTFT, featuresLLMD)
	if s := a.newSplit(loadDown, 1); s.reason != "" || a.samples[s.folds[0].test[0]].run != 0 || len(s.folds[0].test) != 100 {
		t.Errorf("load-down: got %q, want the slowest run as test", s.reason)
	}
	for _, run := range runs {
		for i := range run.Rows {
			run.Rows[i].DecisionNs = int64(i) * 1e9
		}
	}
	if s := gather(runs, targetTTFT, featuresLLMD).newSplit(loadUp, 1); s.reason == "" {
		t.Error("runs at one rate: got stages, want a reason")
	}
}

// An interval needs five blocks.
func TestIntervalNeedsBlocks(t *testing.T) {
	o := &outcome{block: []int{0, 1, 2, 3}, blocks: 4}
	if _, _, ok := o.interval([]float64{1, 1, 1, 1}, 1); ok {
		t.Error("four blocks gave an interval, want none below five")
	}
}

// What a router loads from predictor.json predicts what the race scored, row by
// row, with the standard library's reader alone.
func TestFileIsTheModel(t *testing.T) {
	runs := []*runRows{synthetic("a", "one", 500, 1)}
	o := testOptions(runs)
	targets, _, err := train(context.Background(), runs, o)
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
	for k, target := range o.targets {
		a := gather(runs, target, o.features)
		models, err := modelsOf(&targets[k])
		if err != nil {
			t.Fatal(err)
		}
		e := file.Target(target)
		x := make([]float64, len(a.table.X))
		for i := range a.samples {
			a.table.Row(i, x)
			if got, _ := e.Predict(x); got != models[nameTrees].Predict(a.table, i) {
				t.Fatalf("%s row %d: the file says %g, the model %g", target, i, got, models[nameTrees].Predict(a.table, i))
			}
			if got, _ := e.PredictGated(x); got != models[nameGated].Predict(a.table, i) {
				t.Fatalf("%s row %d: gated forests differ", target, i)
			}
		}
		if _, ok := e.P90(x); !ok || len(e.Quantiles) != 3 {
			t.Errorf("%s: no calibrated P90 or %d quantiles", target, len(e.Quantiles))
		}
		doc := newScores()
		if err := judgeFile(runs, &targets[k], nil, o, doc); err != nil || len(doc.Models) != len(scored) {
			t.Fatalf("got %v and %d scores, want %d", err, len(doc.Models), len(scored))
		}
		for _, c := range doc.Models {
			if usesPhysics(c.Model) != (c.Reason != "") {
				t.Errorf("%s: got reason %q without physics", c.Model, c.Reason)
			}
		}
	}
}
