package predictor

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
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
	physics := up.score(namePhysics, o.Seed)
	trees := up.score(nameTrees, o.Seed)
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
	a := gatherRows(runs, targetTTFT, o.features)
	base, _, _ := under(t, a, habits{}, targetTTFT, o)
	if p90, _, _ := under(t, a, habits{isP90: true}, targetTTFT, o); p90 <= base {
		t.Errorf("P90 as latency: MAPE %.3f, the mean's %.3f, want it larger", p90, base)
	}
}

// The same file and scores for any number of workers, with the figures of testdata; end to end there is one target.
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
			testkit.Document(t, "predictor", doc)
		} else if string(first) != string(text) {
			t.Error("the document depends on the number of workers")
		}
		if want := 3 * 2 * len(scored); len(doc.Models) != want { // scopes, targets
			t.Errorf("got %d scores, want %d", len(doc.Models), want)
		}
		for _, c := range doc.Models {
			if c.MAPE == nil || c.MAPEConst == nil || c.MAPEFloor == nil || c.Coverage == nil || c.Rows == 0 {
				t.Errorf("%s %s %s: a figure is missing", c.Scope, c.Target, c.Model)
			} else if *c.MAPE < *c.MAPEFloor {
				t.Errorf("%s %s %s: MAPE %.3f is below the floor %.3f", c.Scope, c.Target, c.Model, *c.MAPE, *c.MAPEFloor)
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
	a := gatherRows(runs, targetTTFT, featuresLLMD)
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
				if x := a.samples[i]; name == byTime && x.row.DepartedNs.V >= runs[x.run].testStartNs() {
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
			run.Rows[i].Stage = trace.Some(int64(0))
			run.Rows[i].DecisionNs = int64(i) * int64(1e9) / int64(k+1)
		}
		runs = append(runs, run)
	}
	a := gatherRows(runs, targetTTFT, featuresLLMD)
	if s := a.newSplit(loadDown, 1); s.reason != "" || a.samples[s.folds[0].test[0]].run != 0 || len(s.folds[0].test) != 100 {
		t.Errorf("load-down: got %q, want the slowest run as test", s.reason)
	}
	for _, run := range runs {
		for i := range run.Rows {
			run.Rows[i].DecisionNs = int64(i) * 1e9
		}
	}
	if s := gatherRows(runs, targetTTFT, featuresLLMD).newSplit(loadUp, 1); s.reason == "" {
		t.Error("runs at one rate: got stages, want a reason")
	}
}

// An interval needs five blocks.
func TestIntervalNeedsBlocks(t *testing.T) {
	o := &testOutcome{block: []int{0, 1, 2, 3}, blocks: 4}
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
		a := gatherRows(runs, target, o.features)
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
		bounded := 0
		for _, c := range doc.Models {
			if c.Coverage != nil {
				if bounded++; *c.Coverage < 0.85 || *c.Coverage > 0.99 {
					t.Errorf("%s: %g of the latencies are below their P90", c.Model, *c.Coverage)
				}
			}
			if usesPhysics(c.Model) != (c.Reason != "") {
				t.Errorf("%s: got reason %q without physics", c.Model, c.Reason)
			}
		}
		if bounded == 0 {
			t.Errorf("%s: no P90 is judged", target)
		}
	}
}

// Names of the race's splits: the first asks about the next minutes, the three of load
// about another load, run about another model, GPU or tensor-parallel size; random is a leak.
const (
	byTime   = "time"
	loadUp   = "load-up"
	loadDown = "load-down"
	loadGap  = "load-gap"
	byRun    = "run"
	random   = "random"
)

var splitNames = []string{byTime, loadUp, loadDown, loadGap, byRun, random}

const (
	randomShare  = 0.1 // of the rows, split random
	leastStages  = 3
	leastStage   = 20  // rows that make a stage
	leastRise    = 1.2 // highest over lowest rate of a unit's stages
	leastConfigs = 2
)

// fold is one training set and its test rows, places in a table.
type fold struct {
	name        string
	train, test []int
	hidden      []hidden
}

// split is one way to part the rows of a target.
type split struct {
	name    string
	reason  string // not formable
	folds   []fold
	dropped int
	groups  []string
}

// newSplit parts the rows (spec#predictor-splits).
func (a *rowSet) newSplit(name string, seed uint64) split {
	s := split{name: name}
	switch name {
	case byTime:
		f := fold{hidden: hiddenTails(a.runs)}
		f.train, f.test, s.dropped = a.byTime()
		s.folds = []fold{f}
	case loadUp, loadDown, loadGap:
		a.byLoad(&s)
	case byRun:
		a.byConfig(&s)
	case random:
		a.byHash(&s, seed)
	}
	for _, f := range s.folds {
		if s.reason == "" && (len(f.train) < leastPart || len(f.test) < leastPart) {
			s.reason = fmt.Sprintf("%d training and %d test rows, want %d of each", len(f.train), len(f.test), leastPart)
		}
	}
	if s.reason != "" {
		s.folds = nil
	}
	return s
}

// stage is a stretch of one run, or a whole run, at one load.
type stage struct {
	unit, name     string
	run            string
	rate           float64 // requests per second
	rows           []int
	startNs, endNs int64
	third          int // 0 low, 1 middle, 2 high
}

// stages are the load stages of every unit that has three or more at different
// rates: the stages of a run, else the runs of a configuration.
func (a *rowSet) stages() []stage {
	byRun := map[int]map[int64][]int{}
	for i, s := range a.samples {
		if byRun[s.run] == nil {
			byRun[s.run] = map[int64][]int{}
		}
		if s.row.Stage.OK {
			byRun[s.run][s.row.Stage.V] = append(byRun[s.run][s.row.Stage.V], i)
		}
	}
	var out []stage
	rest := map[string][]stage{} // whole runs by configuration
	var configs []string
	for run, r := range a.runs {
		var unit []stage
		for k := int64(0); len(unit) < len(byRun[run]) && k < 10_000; k++ {
			if rows := byRun[run][k]; rows != nil {
				unit = append(unit, a.newStage(r.ID, fmt.Sprintf("%s stage %d", r.ID, k), rows))
			}
		}
		if thirds(&unit) {
			out = append(out, unit...)
			continue
		}
		var whole []int
		for i, s := range a.samples {
			if s.run == run {
				whole = append(whole, i)
			}
		}
		if rest[r.Config] == nil {
			configs = append(configs, r.Config)
		}
		if len(whole) > 0 {
			rest[r.Config] = append(rest[r.Config], a.newStage(r.Config, r.ID, whole))
		}
	}
	for _, config := range configs {
		if unit := rest[config]; thirds(&unit) {
			out = append(out, unit...)
		}
	}
	return out
}

func (a *rowSet) newStage(unit, name string, rows []int) stage {
	first := a.samples[rows[0]].row.DecisionNs
	last := a.samples[rows[len(rows)-1]].row.DecisionNs
	seconds := float64(last-first) / 1e9
	return stage{unit: unit, name: name, run: a.runs[a.samples[rows[0]].run].ID, rows: rows, startNs: first, endNs: last + 1,
		rate: float64(len(rows)-1) / math.Max(1e-9, seconds)}
}

// thirds ranks a unit's stages by rate; false when there are too few or all have
// about the same rate. Small stages are left out.
func thirds(unit *[]stage) bool {
	kept := slices.DeleteFunc(slices.Clone(*unit), func(s stage) bool { return len(s.rows) < leastStage })
	rates := make([]float64, len(kept))
	for k := range kept {
		rates[k] = kept[k].rate
	}
	order := stat.Order(rates)
	if len(kept) < leastStages || rates[order[len(order)-1]] < leastRise*rates[order[0]] {
		return false
	}
	for rank, k := range order {
		kept[k].third = rank * 3 / len(order)
	}
	*unit = kept
	return true
}

// byLoad holds a third of the stages out.
func (a *rowSet) byLoad(s *split) {
	stages := a.stages()
	if len(stages) == 0 {
		s.reason = "no run has three load stages at different rates, and no configuration three runs at different rates"
		return
	}
	out := map[string]int{loadDown: 0, loadGap: 1, loadUp: 2}[s.name]
	f := fold{}
	for _, st := range stages {
		if st.third == out {
			f.test = append(f.test, st.rows...)
			f.hidden = append(f.hidden, hidden{st.run, st.startNs, st.endNs})
			s.groups = append(s.groups, fmt.Sprintf("%s (%.3g/s)", st.name, st.rate))
		} else {
			f.train = append(f.train, st.rows...)
		}
	}
	slices.Sort(f.train)
	slices.Sort(f.test)
	s.folds = []fold{f}
}

// byConfig leaves one configuration out at a time.
func (a *rowSet) byConfig(s *split) {
	var configs []string
	rows := map[string][]int{}
	for i, x := range a.samples {
		c := a.runs[x.run].Config
		if rows[c] == nil {
			configs = append(configs, c)
		}
		rows[c] = append(rows[c], i)
	}
	configs = slices.DeleteFunc(configs, func(c string) bool { return len(rows[c]) < leastPart })
	if len(configs) < leastConfigs {
		s.reason = fmt.Sprintf("%d configuration with %d rows or more, want %d", len(configs), leastPart, leastConfigs)
		return
	}
	for _, c := range configs {
		f := fold{name: c, test: rows[c]}
		for i, x := range a.samples {
			if a.runs[x.run].Config != c {
				f.train = append(f.train, i)
			}
		}
		for _, r := range a.runs {
			if r.Config == c {
				f.hidden = append(f.hidden, hidden{r.ID, math.MinInt64, math.MaxInt64})
			}
		}
		s.folds = append(s.folds, f)
		s.groups = append(s.groups, c)
	}
}

// byHash takes a tenth of the rows by a hash of their ids.
func (a *rowSet) byHash(s *split, seed uint64) {
	f := fold{}
	for i, x := range a.samples {
		h := fnv.New64a()
		h.Write([]byte(a.runs[x.run].ID + "/" + x.row.RequestID))
		if stat.Draw(seed, h.Sum64()) < randomShare {
			f.test = append(f.test, i)
		} else {
			f.train = append(f.train, i)
		}
	}
	s.folds = []fold{f}
}
