package rows

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// decodeRun is a run of n recorded steps, 10 ms apart, each with one decode
// shown by its snapshot.
func decodeRun(n int) *trace.Run {
	run := &trace.Run{ID: "decodes"}
	for i := range int64(n) {
		id := i + 1
		run.Steps = append(run.Steps, trace.Step{ID: id, TsStartNs: id * 10e6, DurationUs: 120, RunningDepth: 1, NumDecodeReqs: 1,
			DecodeTokens: 1, ScheduledTokens: 1, BlocksTotal: 100, BlocksFree: 50, KVUsage: 0.5})
		run.Snapshots = append(run.Snapshots, trace.Snapshot{StepID: id, CoreID: "r", Phase: "DECODE", PromptTokens: 5, ComputedTokens: 5 + id,
			ScheduledTokens: 1})
	}
	return run
}

func betaOf(t *testing.T, run *trace.Run, d *deploy.Deployment, o Options) *Table {
	t.Helper()
	return tableOf(t, run, d, (*Steps).Beta, o)
}

// tableOf is one of the tables of a run's steps.
func tableOf(t *testing.T, run *trace.Run, d *deploy.Deployment, of func(*Steps, *features.Space, Options) (*Table, error),
	o Options) *Table {
	t.Helper()
	table, err := of(mustRebuild(t, run, d, features.V11), testSpace(t, d, features.V11), o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestIntervalRowsSumTheirSteps: a row over a gap equals the sum of the rows
// of the full recording, for every lag.
func TestIntervalRowsSumTheirSteps(t *testing.T) {
	for seed := range uint64(10) {
		y, _ := play(seed, true, true)
		d := toyDeployment(y)
		run := thin(y, firstOnly(y.run.Snapshots))
		for i := range run.Steps {
			run.Steps[i].TsStartNs += int64(i*i) * 1e4
		}
		full := *run
		r := rand.New(rand.NewPCG(seed, 3))
		run.Steps = slices.DeleteFunc(slices.Clone(run.Steps), func(s trace.Step) bool { return s.ID > 12 && r.IntN(4) > 0 })
		for lag := range 3 {
			one := betaOf(t, &full, d, Options{Lag: lag})
			many := betaOf(t, run, d, Options{Lag: lag})
			if many.Kept == 0 || slices.Max(many.Steps) < 2 {
				t.Fatalf("seed %d lag %d: no interval rows", seed, lag)
			}
			compareSums(t, one, many)
		}
	}
}

func compareSums(t *testing.T, one, many *Table) {
	t.Helper()
	at := map[int64]int{}
	for i := range one.Kept {
		at[one.FirstStep[i]] = i
	}
	ema := 11 // preemption_overhead: the toy never preempts
	for i := range many.Kept {
		if many.LastStep[i]-many.FirstStep[i]+1 != int64(many.Steps[i]) || many.Steps[i] > maxSteps {
			t.Errorf("row %d: steps %g of %d..%d", i, many.Steps[i], many.FirstStep[i], many.LastStep[i])
		}
		var y float64
		x := make([]float64, many.P)
		for u := many.FirstStep[i]; u <= many.LastStep[i]; u++ {
			k, ok := at[u]
			if !ok {
				x = nil
				break
			}
			y += one.Y[k]
			for j, v := range one.Row(k) {
				x[j] += v
			}
		}
		if x == nil {
			continue // a step of the interval made no row of its own
		}
		for j, v := range many.Row(i) {
			if j != ema && math.Abs(v-x[j]) > 1e-12*math.Abs(v) {
				t.Errorf("row %d slot %d: got %g, want %g", i, j+1, v, x[j])
			}
		}
		if math.Abs(y-many.Y[i]) > 1e-9*y {
			t.Errorf("row %d: got %g us, want %g", i, many.Y[i], y)
		}
	}
}

// TestRowsPartitionTheSteps: no step's features are used by two rows.
func TestRowsPartitionTheSteps(t *testing.T) {
	y, _ := play(4, false, true)
	run := thin(y, firstOnly(y.run.Snapshots))
	r := rand.New(rand.NewPCG(4, 4))
	run.Steps = slices.DeleteFunc(run.Steps, func(trace.Step) bool { return r.IntN(3) == 0 })
	table := betaOf(t, run, toyDeployment(y), Options{Lag: 1})
	for i := 1; i < table.Kept; i++ {
		if table.FirstStep[i] <= table.LastStep[i-1] {
			t.Errorf("rows %d and %d overlap", i-1, i)
		}
	}
}

// TestDrops: each reason on its own.
func TestDrops(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(run *trace.Run, d *deploy.Deployment, o *Options)
		code   trace.Code
		n      int
	}{
		{"none", func(*trace.Run, *deploy.Deployment, *Options) {}, codeWarmUp, 10},
		{"last step", func(*trace.Run, *deploy.Deployment, *Options) {}, codeNoInterval, 1},
		{"idle", func(run *trace.Run, _ *deploy.Deployment, o *Options) {
			run.Steps[50].RunningDepth, run.Steps[50].ScheduledTokens = 0, 0
			o.Lag = 2
		}, codeNoInterval, 4}, // and the last step
		{"gap", func(run *trace.Run, _ *deploy.Deployment, _ *Options) {
			run.Steps = slices.Delete(run.Steps, 50, 70)
		}, codeNoInterval, 2}, // and the last step
		{"unknown", func(run *trace.Run, _ *deploy.Deployment, _ *Options) {
			run.Steps = slices.Delete(run.Steps, 50, 60)
		}, UnknownBatch, 1},
		{"negative", func(run *trace.Run, _ *deploy.Deployment, _ *Options) {
			run.Steps[50].TsStartNs = run.Steps[49].TsStartNs - 1
		}, codeNoTarget, 1},
		{"spike", func(run *trace.Run, _ *deploy.Deployment, _ *Options) {
			for i := 51; i < len(run.Steps); i++ {
				run.Steps[i].TsStartNs += 90e6 + 1
			}
		}, codeOutlier, 1},
		{"no spike", func(run *trace.Run, _ *deploy.Deployment, _ *Options) {
			for i := 51; i < len(run.Steps); i++ {
				run.Steps[i].TsStartNs += 90e6
			}
		}, codeOutlier, 0},
		{"long prompt", func(run *trace.Run, _ *deploy.Deployment, _ *Options) {
			st := &run.Steps[50]
			st.RunningDepth, st.NumPrefillReqs, st.PrefillTokens, st.ScheduledTokens = 2, 1, 500, 501
			run.Snapshots = append(run.Snapshots, trace.Snapshot{StepID: st.ID, CoreID: "p", Phase: "PREFILL", PromptTokens: 500,
				ComputedTokens: 500, ScheduledTokens: 500})
			for i := 51; i < len(run.Steps); i++ {
				run.Steps[i].TsStartNs += 900e6
			}
		}, codeOutlier, 0},
		{"saturated", func(_ *trace.Run, _ *deploy.Deployment, o *Options) {
			o.Saturated = []Span{{StartNs: 500e6, EndNs: 600e6}}
		}, Saturated, 10},
		{"out of range", func(run *trace.Run, d *deploy.Deployment, _ *Options) {
			run.Steps[50].RunningDepth = 1
			run.Steps[49].NumPreempted = 1 << 20
		}, features.FeatureOutOfRange, 20},
		{"warm-up phase", func(_ *trace.Run, d *deploy.Deployment, _ *Options) {
			d.Phases = []deploy.Phase{{Name: "load", StartNs: 300e6, EndNs: 900e6}, {Name: deploy.WarmupPhase, StartNs: 0, EndNs: 300e6}}
		}, codeWarmUp, 29},
	} {
		run, d, o := decodeRun(120), testDeployment(), Options{Gamma: 0.5}
		c.change(run, d, &o)
		table := betaOf(t, run, d, o)
		got := table.DroppedFor(c.code)
		if c.code == features.FeatureOutOfRange {
			got = min(got, c.n) // how long the average stays above its bound is not the point
			if table.Hits[11] == 0 {
				t.Errorf("%s: no hit counted", c.name)
			}
		}
		if c.name == "out of range" && table.DroppedFor(c.code) < 1 || c.name != "out of range" && got != c.n {
			t.Errorf("%s: %s: got %d, want %d (%v)", c.name, c.code, got, c.n, table.Dropped)
		}
		sum := table.Kept
		for _, d := range table.Dropped {
			sum += d.N
		}
		if sum != table.Read || table.Read != len(run.Steps) {
			t.Errorf("%s: read %d, kept %d, dropped %v", c.name, table.Read, table.Kept, table.Dropped)
		}
	}
}

// TestSpikesAreRelativeToTheRecentPast: a lasting change of level is kept
// once the median has followed.
func TestSpikesAreRelativeToTheRecentPast(t *testing.T) {
	var m median
	var naive []float64
	r := rand.New(rand.NewPCG(1, 1))
	spikes := 0
	for i := range 2000 {
		v := math.Exp(r.NormFloat64())
		if i > 1000 {
			v *= 30
		}
		last := naive[max(0, len(naive)-spikeWindow):]
		want := len(last) >= spikeHistory && v > spikeFactor*stat.Median(last)
		if got := m.isSpike(v); got != want {
			t.Fatalf("value %d: got %t, want %t", i, got, want)
		}
		if want {
			spikes++
		}
		naive = append(naive, v)
	}
	if spikes < 40 || spikes > 300 {
		t.Errorf("%d spikes", spikes)
	}
}

// TestLagApproximate: in sparse runs a pure-decode interval takes the
// features of step i for step i-lag, and says so.
func TestLagApproximate(t *testing.T) {
	run := decodeRun(300)
	run.Snapshots = nil
	run.Steps = slices.DeleteFunc(run.Steps, func(s trace.Step) bool { return s.ID > 12 && s.ID%10 > 1 })
	table := betaOf(t, run, testDeployment(), Options{Lag: 1})
	n := 0
	for i := range table.Kept {
		if table.Tag[i] == tagLagApproximate {
			n++
			if table.FirstStep[i]*10e6 != table.TimeNs[i] || table.Steps[i] != 1 {
				t.Errorf("row %d: features of step %d at %d", i, table.FirstStep[i], table.TimeNs[i])
			}
		}
	}
	if n != 28 {
		t.Errorf("%d lag_approximate rows, want 28 (%v)", n, table.Dropped)
	}
	for _, s := range table.Tag {
		if s != tagLagApproximate && s != TagSummary {
			t.Errorf("tag %s", s)
		}
	}
}

// TestDurationTarget uses the step's own duration and features, at no lag.
func TestDurationTarget(t *testing.T) {
	run := decodeRun(40)
	run.Steps[20].ScheduledTokens, run.Steps[20].RunningDepth = 0, 0
	table := betaOf(t, run, testDeployment(), Options{Target: coeff.Duration, Lag: 1})
	if table.Kept != 29 || table.DroppedFor(codeNoTarget) != 1 || table.Lag != 0 {
		t.Fatalf("kept %d, dropped %v, lag %d", table.Kept, table.Dropped, table.Lag)
	}
	for i := range table.Kept {
		if table.Y[i] != 120 || table.FirstStep[i]*10e6 != table.TimeNs[i] {
			t.Errorf("row %d: %g us, step %d", i, table.Y[i], table.FirstStep[i])
		}
	}
}

// TestFloor: the duration target lies below the time to read the weights, the cadence does not.
func TestFloor(t *testing.T) {
	run, d := decodeRun(40), testDeployment()
	duration, cadence := betaOf(t, run, d, Options{Target: coeff.Duration}), betaOf(t, run, d, Options{})
	// 15,009,316,864 bytes of weights less the embedding, read at 3.35 TB/s (spec#worked-example)
	floor := cadence.FloorUs[0] / cadence.Steps[0]
	if math.Abs(floor-15009316864/3.35e6) > 1 || duration.Y[0] >= floor || cadence.Y[0]/cadence.Steps[0] <= floor {
		t.Errorf("floor %g us, duration %g us, cadence %g us", floor, duration.Y[0], cadence.Y[0])
	}
}

// TestEMARunsOverAllRecordedSteps, before warm-up and drops.
func TestEMARunsOverAllRecordedSteps(t *testing.T) {
	run, d := decodeRun(60), testDeployment()
	run.Steps[3].NumPreempted = 1 // inside the warm-up
	table := betaOf(t, run, d, Options{Gamma: 0.5})
	slot := slices.Index(features.Names(features.BetaFeatures(features.V11)), "preemption_overhead")
	if got, want := table.Row(0)[slot], math.Pow(0.5, 8); math.Abs(got-want) > 1e-15 {
		t.Errorf("EMA at step 11: got %g, want %g", got, want)
	}
}

// TestPreemptionFactor is strict.
func TestPreemptionFactor(t *testing.T) {
	for _, c := range []struct {
		preempted, running int64
		want               float64
	}{{0, 0, 1}, {1, 2, 1}, {2, 3, 0.5}, {1, 0, 0.5}, {1, 1, 0.5}} {
		if got := preemptionFactor(c.preempted, c.running); got != c.want {
			t.Errorf("%d of %d: got %g, want %g", c.preempted, c.running, got, c.want)
		}
	}
}

// TestHoldOut is the last 20 % in time of each phase; rows outside all
// phases are training rows of no phase.
func TestHoldOut(t *testing.T) {
	run, d := decodeRun(200), testDeployment()
	table := betaOf(t, run, d, Options{})
	for i := range table.Kept {
		if want := table.TimeNs[i] >= 10e6+1592e6; table.HoldOut[i] != want || table.Phase[i] != -1 {
			t.Errorf("row at %d: hold-out %t phase %d", table.TimeNs[i], table.HoldOut[i], table.Phase[i])
		}
	}
	d.Phases = []deploy.Phase{{Name: "a", StartNs: 200e6, EndNs: 700e6}, {Name: "b", StartNs: 1000e6, EndNs: 2000e6}}
	table = betaOf(t, run, d, Options{})
	for i := range table.Kept {
		ts := table.TimeNs[i]
		phase, held := int32(-1), false
		switch {
		case ts >= 200e6 && ts < 700e6:
			phase, held = 0, ts >= 600e6
		case ts >= 1000e6 && ts < 2000e6:
			phase, held = 1, ts >= 1800e6
		}
		if table.Phase[i] != phase || table.HoldOut[i] != held {
			t.Errorf("row at %d: phase %d hold-out %t, want %d %t", ts, table.Phase[i], table.HoldOut[i], phase, held)
		}
	}
}

// TestStressSets and regimes follow the steps of a row.
func TestStressSets(t *testing.T) {
	y := &toy{budget: 100, chunking: true}
	y.play([]*job{{id: "a", arrive: 1, prompt: 250, outputs: 40}, {id: "b", arrive: 20, prompt: 90, outputs: 3}})
	run := *y.run
	run.Steps = slices.Clone(run.Steps)
	run.Steps[30].NumPreempted, run.Steps[31].KVUsage = 1, 0.95
	d := toyDeployment(y)
	d.Phases = []deploy.Phase{{Name: deploy.WarmupPhase, EndNs: 1}}
	table := betaOf(t, &run, d, Options{})
	for _, c := range []struct {
		step   int64
		regime Regime
		sets   StressSet
	}{
		{1, Prefill, purePrefill}, {10, Decode, PureDecode | fewTokens}, {20, Mixed, 0},
		{31, Decode, PureDecode | fewTokens | Preempting}, {32, Decode, PureDecode | fewTokens | fullCache},
	} {
		i := slices.Index(table.FirstStep, c.step)
		if i < 0 || table.Regime[i] != c.regime || table.Sets[i] != c.sets {
			t.Errorf("step %d: row %d, want %s %b", c.step, i, c.regime, c.sets)
		}
	}
}

// TestRanges are per step, over training rows only.
func TestRanges(t *testing.T) {
	run, d := decodeRun(100), testDeployment()
	for i := range run.Steps {
		run.Snapshots[i].ComputedTokens = int64(i + 10)
	}
	table := betaOf(t, run, d, Options{})
	lo, hi := Ranges([]*Table{table})
	slot := slices.Index(features.Names(features.BetaFeatures(features.V11)), "kv_cache_read")
	perToken := 131072 / 3.35e12
	if want := (10.0 + 10 + 1) * perToken; math.Abs(lo[slot]-want) > 1e-12*want {
		t.Errorf("min %g, want %g", lo[slot], want)
	}
	last := 0.0
	for i := range table.Kept {
		if !table.HoldOut[i] {
			last = table.Row(i)[slot]
		}
	}
	if hi[slot] != last {
		t.Errorf("max %g, want %g", hi[slot], last)
	}
}

// TestBadOptions are errors with a code.
func TestBadOptions(t *testing.T) {
	s := mustRebuild(t, decodeRun(20), testDeployment(), features.V11)
	sp := testSpace(t, testDeployment(), features.V11)
	for _, o := range []Options{{Lag: 3}, {Lag: -1}, {Gamma: 2}, {Split: -1}, {Target: "wall"}} {
		if _, err := s.Beta(sp, o); trace.CodeOf(err) != BadOption {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := s.Alpha(sp, Options{Target: "ingress"}); trace.CodeOf(err) != BadOption {
		t.Errorf("ingress: %v", err)
	}
}

// TestBetaBasis: another basis gets the same rows, with its own sums.
func TestBetaBasis(t *testing.T) {
	y, _ := play(2, false, true)
	d := toyDeployment(y)
	s := mustRebuild(t, y.run, d, features.V11)
	sp := testSpace(t, d, features.V11)
	physics, err := s.Beta(sp, Options{})
	if err != nil {
		t.Fatal(err)
	}
	count := Vectorizer{P: 2, WantMembers: true, Step: func(in *features.StepInput, members []trace.Member, x []float64) (features.Hits,
		error) {
		x[0], x[1] = 1, float64(len(members))
		return 0, nil
	}}
	basis, err := s.BetaBasis(sp, count, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(basis.FirstStep, physics.FirstStep) || !slices.Equal(basis.Y, physics.Y) {
		t.Fatal("rows differ")
	}
	for i := range basis.Kept {
		if x := basis.Row(i); x[0] != basis.Steps[i] || x[1] != float64(len(y.truth[basis.FirstStep[i]])) {
			t.Errorf("row %d: %v", i, x)
		}
	}
}

// TestLagEvidence: the three test tables hold the same intervals, behind the
// training rows, each near a prefill of more than 64 tokens.
func TestLagEvidence(t *testing.T) {
	y := &toy{budget: 500, chunking: true}
	var js []*job
	for i := range int64(60) {
		js = append(js, &job{id: string(rune('a' + i)), arrive: 1 + 10*i, prompt: 300, outputs: 25})
	}
	y.play(js)
	d := toyDeployment(y)
	s := mustRebuild(t, y.run, d, features.V11)
	e, err := s.LagEvidence(testSpace(t, d, features.V11), Options{Lag: 2, Saturated: []Span{{0, math.MaxInt64}}})
	if err != nil {
		t.Fatal(err)
	}
	if e.N() < 20 {
		t.Fatalf("%d intervals", e.N())
	}
	cut := y.run.Steps[int(math.Ceil(0.8*float64(len(y.run.Steps))))].TsStartNs
	_, first, err := e.At(0)
	if err != nil {
		t.Fatal(err)
	}
	for lag := range 3 {
		train, test, err := e.At(lag)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(test.TimeNs, first.TimeNs) || !slices.Equal(test.Y, first.Y) || test.Lag != lag || test.Kept != e.N() {
			t.Errorf("lag %d: other intervals", lag)
		}
		if train.TimeNs[train.Kept-1] >= cut || test.TimeNs[0] < cut {
			t.Errorf("lag %d: training ends at %d, test begins at %d", lag, train.TimeNs[train.Kept-1], test.TimeNs[0])
		}
		for i := range test.Kept {
			id := test.FirstStep[i] + int64(lag)
			most := 0.0
			for u := id - 2; u <= id; u++ {
				most = max(most, s.At(u).In.PrefillTokens)
			}
			if most <= 64 || test.TimeNs[i] != id*20e6 {
				t.Errorf("lag %d row %d: step %d, %g prefill tokens", lag, i, id, most)
			}
		}
	}
}
