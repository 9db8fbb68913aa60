package rows

import (
	"context"
	"errors"
	"fmt"
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
		if many.LastStep[i]-many.FirstStep[i]+1 != int64(many.Steps[i]) || many.Steps[i] > 20 {
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
		{"last step", func(*trace.Run, *deploy.Deployment, *Options) {}, NoInterval, 1},
		{"idle", func(run *trace.Run, _ *deploy.Deployment, o *Options) {
			run.Steps[50].RunningDepth = 0
			run.Steps[50].ScheduledTokens = 0
			o.Lag = 2
		}, NoInterval, 4}, // and the last step
		{"gap", func(run *trace.Run, _ *deploy.Deployment, _ *Options) {
			run.Steps = slices.Delete(run.Steps, 50, 70)
		}, NoInterval, 2}, // and the last step
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
			st.RunningDepth = 2
			st.NumPrefillReqs = 1
			st.PrefillTokens = 500
			st.ScheduledTokens = 501
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
		run := decodeRun(120)
		d := testDeployment()
		o := Options{Gamma: 0.5}
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
	var m runningMedian
	var naive []float64
	r := rand.New(rand.NewPCG(1, 1))
	spikes := 0
	for i := range 2000 {
		v := math.Exp(r.NormFloat64())
		if i > 1000 {
			v *= 30
		}
		last := naive[max(0, len(naive)-101):]
		want := len(last) >= 10 && v > 10*stat.Median(last)
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
	run.Steps[20].ScheduledTokens = 0
	run.Steps[20].RunningDepth = 0
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
	duration := betaOf(t, run, d, Options{Target: coeff.Duration})
	cadence := betaOf(t, run, d, Options{})
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
	run.Steps[30].NumPreempted = 1
	run.Steps[31].KVUsage = 0.95
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
	stopped, stop := context.WithCancel(context.Background())
	stop()
	if _, err := s.LagEvidence(stopped, testSpace(t, d, features.V11), Options{}, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: got %v, want %v", err, context.Canceled)
	}
	e, err := s.LagEvidence(context.Background(), testSpace(t, d, features.V11), Options{Lag: 2, Saturated: []Span{{0, math.MaxInt64}}}, 2)
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

const ms = int64(1e6) // ns

// request is queued, scheduled 0.2 ms later, finishes and departs 1 ms later;
// arrived 2 ms before it is queued.
func request(id string, queuedNs, finishedNs int64) trace.Request {
	return trace.Request{Source: trace.SourceFork, CoreID: trace.Some(id), APIID: trace.Some(id), APISpanID: trace.Some("span-" + id),
		PromptTokens: trace.Some(int64(100)), ArrivedNs: trace.Some(queuedNs - 2*ms), QueuedNs: trace.Some(queuedNs),
		ScheduledNs: trace.Some(queuedNs + ms/5), FinishedNs: trace.Some(finishedNs), DepartedNs: trace.Some(finishedNs + ms)}
}

// stepsEvery10ms are n recorded busy steps.
func stepsEvery10ms(n int) []trace.Step {
	var steps []trace.Step
	for i := range int64(n) {
		steps = append(steps, trace.Step{ID: i + 1, TsStartNs: (i + 1) * 10 * ms, RunningDepth: 2, WaitingDepth: int32(i % 2), ScheduledTokens: 2,
			NumDecodeReqs: 2, DecodeTokens: 2, BlocksTotal: 100, BlocksFree: 40, KVUsage: 0.6})
	}
	return steps
}

func alphaOf(t *testing.T, run *trace.Run, d *deploy.Deployment, o Options) *Table {
	t.Helper()
	return tableOf(t, run, d, (*Steps).Alpha, o)
}

// TestJoin: the last step up to QUEUED, ties included; egress joins at
// FINISHED.
func TestJoin(t *testing.T) {
	run := &trace.Run{Steps: stepsEvery10ms(60), Requests: []trace.Request{
		request("tie", 200*ms, 405*ms), request("between", 215*ms, 430*ms)}}
	queue := alphaOf(t, run, testDeployment(), Options{Target: coeff.Queue})
	if !slices.Equal(queue.FirstStep, []int64{20, 21}) || !slices.Equal(queue.Regime, []Regime{Waiting, Idle}) {
		t.Errorf("queue joins %v, regimes %v", queue.FirstStep, queue.Regime)
	}
	egress := alphaOf(t, run, testDeployment(), Options{Target: coeff.Egress})
	if !slices.Equal(egress.FirstStep, []int64{40, 43}) {
		t.Errorf("egress joins %v", egress.FirstStep)
	}
	if queue.Y[0] != 200 || egress.Y[0] != 1000 {
		t.Errorf("queue %g us, egress %g us", queue.Y[0], egress.Y[0])
	}
	names := features.Names(features.AlphaFeatures(features.V11))
	if got := queue.Row(0)[slices.Index(names, "batch_saturation")]; got != 2.0/256 {
		t.Errorf("running/max_num_seqs: got %g", got)
	}
	if got := queue.Row(0)[slices.Index(names, "kv_pressure")]; got != 0.6 {
		t.Errorf("usage: got %g", got)
	}
}

// TestOverheadIntervals: bounded below by the step that was running, exact
// where the server idled.
func TestOverheadIntervals(t *testing.T) {
	idle := func(steps []trace.Step, k int) {
		steps[k].RunningDepth = 0
		steps[k].WaitingDepth = 0
	}
	for _, c := range []struct {
		name   string
		change func(run *trace.Run, d *deploy.Deployment)
		lo     float64 // of the last request
		exact  bool
	}{
		{"busy", func(*trace.Run, *deploy.Deployment) {}, 1000, false},
		{"arrived after the step", func(run *trace.Run, _ *deploy.Deployment) { run.Requests[1].ArrivedNs.V = 240*ms + 1 }, 0, false},
		{"idle", func(run *trace.Run, _ *deploy.Deployment) { idle(run.Steps, 23) }, 2000, true},
		{"no step since the last finish", func(run *trace.Run, _ *deploy.Deployment) {
			run.Requests[0].FinishedNs.V = 240*ms + 5
			run.Requests[1].ArrivedNs.V = 240*ms + 5
		}, 999.995, true},
		{"arrived before the last finish", func(run *trace.Run, _ *deploy.Deployment) { run.Requests[0].FinishedNs.V = 240*ms + 5 }, 1000, false},
		{"not alone", func(run *trace.Run, _ *deploy.Deployment) {
			idle(run.Steps, 23)
			run.Requests[0].FinishedNs.V = 300 * ms
		}, 1000, false},
		{"the other never finished", func(run *trace.Run, _ *deploy.Deployment) {
			idle(run.Steps, 23)
			run.Requests[0].FinishedNs.OK = false
		}, 1000, false},
		{"sampled journeys", func(run *trace.Run, d *deploy.Deployment) {
			idle(run.Steps, 23)
			d.Tracing.JourneySampleRate = trace.Some(0.5)
		}, 1000, false},
		{"a lost core span", func(run *trace.Run, _ *deploy.Deployment) {
			idle(run.Steps, 23)
			run.Requests = append([]trace.Request{{Source: trace.SourceFork, APIID: trace.Some("lost"), ArrivedNs: trace.Some(ms)}}, run.Requests...)
		}, 1000, false},
		{"queued at the start of its own step", func(run *trace.Run, _ *deploy.Deployment) {
			run.Requests[1].QueuedNs.V = 250 * ms
			run.Requests[1].ArrivedNs.V = 239 * ms
		}, 1000, false},
	} {
		run := &trace.Run{Steps: stepsEvery10ms(60), Requests: []trace.Request{request("a", 150*ms, 200*ms), request("b", 241*ms, 300*ms)}}
		d := testDeployment()
		c.change(run, d)
		table := alphaOf(t, run, d, Options{})
		k := slices.Index(table.ID, "b")
		if k < 0 || table.Lo[k] != c.lo || table.Exact[k] != c.exact || table.Hi[k] != table.Y[k] {
			t.Errorf("%s: row %d lo %v hi %v exact %v, want %g %t", c.name, k, table.Lo, table.Hi, table.Exact, c.lo, c.exact)
		}
	}
}

// TestBurstsJoinAtArrival: of requests that arrive within a millisecond, one that is queued behind another, after its own
// arrival, is joined to the step before its arrival, as in a simulator: at QUEUED a step with the other had started.
func TestBurstsJoinAtArrival(t *testing.T) {
	for _, c := range []struct {
		name             string
		arrived, queued  int64 // of the other request; this one arrives at 241 ms and is queued at 253 ms
		isJoinedAtQueued bool
	}{
		{"the other is queued a step before", 241*ms + ms/2, 243 * ms, false},
		{"it arrived a millisecond before", 240 * ms, 243 * ms, false},
		{"it arrived earlier", 240*ms - 1, 243 * ms, true},
		{"it was queued before this one arrived", 240*ms + 1, 241 * ms, true},
		{"it is queued at the same time", 241 * ms, 253 * ms, true},
	} {
		run := &trace.Run{Steps: stepsEvery10ms(60), Requests: []trace.Request{request("a", c.queued, 300*ms), request("b", 253*ms, 310*ms)}}
		run.Requests[0].ArrivedNs.V, run.Requests[1].ArrivedNs.V = c.arrived, 241*ms
		table := alphaOf(t, run, testDeployment(), Options{})
		want := int64(24) // the step that starts at 240 ms
		if c.isJoinedAtQueued {
			want = 25
		}
		if k := slices.Index(table.ID, "b"); k < 0 || table.LastStep[k] != want {
			t.Errorf("%s: joined to step %v, want %d", c.name, table.LastStep, want)
		}
	}
}

// TestAlphaDrops: each reason on its own; read = kept + dropped.
func TestAlphaDrops(t *testing.T) {
	for _, c := range []struct {
		name   string
		target string
		change func(r *trace.Request)
		code   trace.Code
	}{
		{"before the first step", coeff.Queue, func(r *trace.Request) { r.QueuedNs.V, r.ArrivedNs.V = ms, 0 }, codeNoTarget},
		{"warm-up", coeff.Queue, func(r *trace.Request) { r.QueuedNs.V = 101 * ms }, codeWarmUp},
		{"no schedule", coeff.Admission, func(r *trace.Request) { r.ScheduledNs.OK = false }, codeNoTarget},
		{"no arrival", coeff.Overhead, func(r *trace.Request) { r.ArrivedNs.OK = false }, codeNoTarget},
		{"aborted", coeff.Egress, func(r *trace.Request) { r.DepartedNs.OK = false }, codeNoTarget},
		{"clocks", coeff.Overhead, func(r *trace.Request) { r.ArrivedNs.V = r.QueuedNs.V + 1 }, codeNoTarget},
		{"stop string", coeff.Egress, func(r *trace.Request) { r.DepartedNs.V = r.FinishedNs.V - 1 }, codeNoTarget},
		{"stock", coeff.Overhead, func(r *trace.Request) { r.Source = trace.SourceStock }, codeNoTarget},
		{"earlier sample of n = 2", coeff.Egress, func(r *trace.Request) {
			r.APISpanID.V = "span-b"
			r.FinishedNs.V = r.FinishedNs.V - ms
		}, codeNoTarget},
	} {
		run := &trace.Run{Steps: stepsEvery10ms(60), Requests: []trace.Request{request("a", 241*ms, 300*ms), request("b", 242*ms, 301*ms)}}
		c.change(&run.Requests[0])
		table := alphaOf(t, run, testDeployment(), Options{Target: c.target})
		if table.Read != 2 || table.Kept != 1 || table.ID[0] != "b" || table.DroppedFor(c.code) != 1 {
			t.Errorf("%s: kept %v, dropped %v, want %s", c.name, table.ID, table.Dropped, c.code)
		}
	}
}

// TestAlphaRowsAreInTimeOrder although a request without ARRIVED counts from
// QUEUED.
func TestAlphaRowsAreInTimeOrder(t *testing.T) {
	late := request("late", 400*ms, 500*ms)
	late.ArrivedNs.OK = false
	run := &trace.Run{Steps: stepsEvery10ms(60), Requests: []trace.Request{late, request("early", 200*ms, 300*ms)}}
	table := alphaOf(t, run, testDeployment(), Options{Target: coeff.Queue})
	if !slices.Equal(table.ID, []string{"early", "late"}) || !slices.IsSorted(table.TimeNs) || table.FirstStep[0] != 20 {
		t.Errorf("%v %v %v", table.ID, table.TimeNs, table.FirstStep)
	}
}

// TestPrefixHits come from the first snapshot with scheduled tokens; without
// one they are 0 and said.
func TestPrefixHits(t *testing.T) {
	run := &trace.Run{Steps: stepsEvery10ms(60), Requests: []trace.Request{request("a", 241*ms, 300*ms), request("b", 242*ms, 301*ms)},
		Snapshots: []trace.Snapshot{
			{StepID: 25, CoreID: "a", PromptTokens: 100, ScheduledTokens: 0, EffectivePromptLen: trace.Some(int64(100))},
			{StepID: 26, CoreID: "a", PromptTokens: 100, ScheduledTokens: 25, ComputedTokens: 75, EffectivePromptLen: trace.Some(int64(25))},
			{StepID: 27, CoreID: "a", PromptTokens: 100, ScheduledTokens: 1, ComputedTokens: 100, EffectivePromptLen: trace.Some(int64(99))}}}
	d := testDeployment()
	d.Engine.PrefixCaching = true
	slot := slices.Index(features.Names(features.AlphaFeatures(features.V11)), "prefix_cache_benefit")
	table := alphaOf(t, run, d, Options{Target: coeff.Queue})
	g := 2.0/256 + 0.6 - 2.0/256*0.6
	if got, want := table.Row(0)[slot], g*0.75*100/8192; math.Abs(got-want) > 1e-15 {
		t.Errorf("hit 0.75: got %g, want %g", got, want)
	}
	if table.Row(1)[slot] != 0 || len(table.Findings) != 1 || table.Findings[0].Code != codeNotRecorded {
		t.Errorf("no snapshot: %g, %v", table.Row(1)[slot], table.Findings)
	}
	d.Engine.PrefixCaching = false
	if table := alphaOf(t, run, d, Options{Target: coeff.Queue}); table.Row(0)[slot] != 0 || len(table.Findings) > 0 {
		t.Errorf("caching off: %g, %v", table.Row(0)[slot], table.Findings)
	}
}

// TestAlphaHoldOut: requests belong to the phase of their ARRIVED and count
// as hold-out by it.
func TestAlphaHoldOut(t *testing.T) {
	run := &trace.Run{Steps: stepsEvery10ms(60)}
	for i := range int64(40) {
		run.Requests = append(run.Requests, request(string(rune('A'+i)), (120+10*i)*ms, (140+10*i)*ms))
	}
	d := testDeployment()
	d.Phases = []deploy.Phase{{Name: deploy.WarmupPhase, StartNs: 0, EndNs: 150 * ms}, {Name: "open", StartNs: 200 * ms, EndNs: 400 * ms}}
	table := alphaOf(t, run, d, Options{Target: coeff.Admission, Saturated: []Span{{420 * ms, 450 * ms}}})
	if table.DroppedFor(codeWarmUp) != 4 || table.DroppedFor(Saturated) != 3 {
		t.Errorf("dropped %v", table.Dropped)
	}
	for i, ns := range table.TimeNs {
		in := ns >= 200*ms && ns < 400*ms
		if (table.Phase[i] == 1) != in || table.HoldOut[i] != (in && ns >= 360*ms) {
			t.Errorf("arrival %d: phase %d hold-out %t", ns, table.Phase[i], table.HoldOut[i])
		}
	}
}

// load makes a run of n requests, one a second, with the given TTFT and E2E in ms.
func load(n int, ttftMs, e2eMs func(i int) float64) *trace.Run {
	run := &trace.Run{ID: "r"}
	for i := range n {
		at := int64(i) * 1e9
		run.Requests = append(run.Requests, trace.Request{
			CoreID: trace.Some(fmt.Sprint("c", i)), APIID: trace.Some(fmt.Sprint("a", i)), Source: trace.SourceFork,
			ArrivedNs:    trace.Some(at),
			FirstTokenNs: trace.Some(at + int64(ttftMs(i)*1e6)),
			FinishedNs:   trace.Some(at + int64(e2eMs(i)*1e6)),
			DepartedNs:   trace.Some(at + int64(e2eMs(i)*1e6)),
			OutputTokens: trace.Some(int64(10)), Preemptions: trace.Some(int64(0)), Success: trace.Some(true),
		})
	}
	return run
}

func flat(ms float64) func(int) float64 { return func(int) float64 { return ms } }

// rising is an E2E that grows until departures no longer keep up with arrivals.
func rising(i int) float64 { return 900 + 400*float64(i) }

func TestSaturationEachCheckHits(t *testing.T) {
	const n = 60
	cases := []struct {
		check string
		run   func() *trace.Run
	}{
		{stat.CheckFailureShare, func() *trace.Run {
			r := load(n, flat(100), flat(900))
			for i := 0; i < 4; i++ { // 4 of 60 > 5 %
				r.Requests[i].Success = trace.Some(false)
				r.Requests[i].AbortReason = trace.Some("generation_error")
			}
			return r
		}},
		{stat.CheckQueueRising, func() *trace.Run {
			return load(n, flat(100), rising)
		}},
		{stat.CheckPreemptedShare, func() *trace.Run {
			r := load(n, flat(100), flat(900))
			for i := 0; i < 10; i++ { // 10 of 60 > 15 %
				r.Requests[i].Preemptions = trace.Some(int64(1))
			}
			return r
		}},
		{stat.CheckTTFTDrift, func() *trace.Run {
			return load(n, func(i int) float64 { return 100 * (1 + float64(i)/20) }, flat(900))
		}},
		{stat.CheckE2ETail, func() *trace.Run {
			return load(n, flat(100), func(i int) float64 { return 200 + 2800*float64(i/58) })
		}},
	}
	for _, c := range cases {
		s := VerdictsOf(c.run(), &deploy.Deployment{})
		if !slices.Equal(s.Run.Hits(), []string{c.check}) {
			t.Errorf("%s: got hits %v", c.check, s.Run.Hits())
		}
		if rises := c.check == stat.CheckQueueRising; s.Run.Saturated != rises {
			t.Errorf("%s: got saturated %v, want only a queue that rises to saturate alone", c.check, s.Run.Saturated)
		}
	}
}

func TestSaturationTwoHitsSaturate(t *testing.T) {
	run := load(60, func(i int) float64 { return 100 * (1 + float64(i)/20) }, rising)
	s := VerdictsOf(run, &deploy.Deployment{})
	if !s.Run.Saturated || len(s.Spans()) != 1 {
		t.Errorf("got %v, spans %v", s.Run.Hits(), s.Spans())
	}
}

// TestSaturationFallingQueueIsNone: a queue that drains has a high R2 too.
func TestSaturationFallingQueueIsNone(t *testing.T) {
	run := load(60, flat(100), func(i int) float64 { return max(900, 30000-800*float64(i)) })
	for _, c := range VerdictsOf(run, &deploy.Deployment{}).Run.Checks {
		if c.Name == stat.CheckQueueRising && c.Hit {
			t.Errorf("got R2 %v", *c.Value)
		}
	}
}

// TestSaturationClientAbortsAreNoFailures: the client asked for the end.
func TestSaturationClientAbortsAreNoFailures(t *testing.T) {
	run := load(60, flat(100), flat(900))
	for i := 0; i < 30; i++ {
		run.Requests[i].Success = trace.Some(false)
		run.Requests[i].AbortReason = trace.Some("client_disconnect")
	}
	if hits := VerdictsOf(run, &deploy.Deployment{}).Run.Hits(); len(hits) != 0 {
		t.Errorf("got %v", hits)
	}
}

// TestSaturationClosedLoopDoesNotDecide: only open phases make a run saturated, and a closed loop never is.
func TestSaturationClosedLoopDoesNotDecide(t *testing.T) {
	run := load(90, func(i int) float64 {
		if i < 30 {
			return 100 * (1 + float64(i)/5)
		}
		return 100
	}, flat(900))
	for i := range run.Requests[:30] {
		run.Requests[i].Preemptions = trace.Some(int64(2))
	}
	dep := &deploy.Deployment{Phases: []deploy.Phase{
		{Name: "closed", StartNs: 0, EndNs: 30e9, Load: deploy.LoadClosed},
		{Name: "open", StartNs: 30e9, EndNs: 90e9, Load: deploy.LoadOpen},
	}}
	s := VerdictsOf(run, dep)
	if s.Phase("closed").Saturated || len(s.Phase("closed").Hits()) < 2 || s.Run.Saturated || s.Phase("open").Saturated {
		t.Errorf("closed %v, open %v, run %v", s.Phase("closed").Hits(), s.Phase("open").Hits(), s.Run.Hits())
	}
}

// TestSaturationHeldLoadIsAClosedLoop: a phase whose clients send as soon as they are answered is a closed loop,
// whatever run.yaml calls it, and not saturated though its answers take long at first and single ones ten times
// as long. Recorded as arrivals that follow no answer, the same times are saturated.
func TestSaturationHeldLoadIsAClosedLoop(t *testing.T) {
	const clients, requests = 8, 200
	run := &trace.Run{}
	free := make([]int64, clients) // when a client sends next
	for i := range requests {
		ms := int64(100 + i) // ever slower
		if i%40 == 39 {
			ms *= 20
		}
		k := 0
		for c := range free {
			if free[c] < free[k] {
				k = c
			}
		}
		at := free[k]
		free[k] = at + ms*1e6
		run.Requests = append(run.Requests, trace.Request{
			CoreID: trace.Some(fmt.Sprint(i)), Source: trace.SourceFork, Success: trace.Some(true),
			ArrivedNs: trace.Some(at), FirstTokenNs: trace.Some(at + ms*1e6), DepartedNs: trace.Some(at + ms*1e6),
		})
	}
	s := VerdictsOf(run, &deploy.Deployment{})
	if p := s.Phases[0]; p.Load != deploy.LoadClosed || p.Saturated || s.Run.Saturated {
		t.Errorf("got a load %s, saturated %t (%v)", p.Load, p.Saturated, p.Hits())
	}
	for i := range run.Requests {
		r := &run.Requests[i]
		lasts := r.DepartedNs.V - r.ArrivedNs.V
		r.ArrivedNs = trace.Some(int64(i) * 10e6) // a hundred a second, whatever is answered
		r.DepartedNs = trace.Some(r.ArrivedNs.V + lasts*int64(1+i)/10)
		r.FirstTokenNs = r.DepartedNs
	}
	if p := VerdictsOf(run, &deploy.Deployment{}).Phases[0]; p.Load != deploy.LoadOpen || !p.Saturated {
		t.Errorf("arrivals: got a load %s, saturated %t (%v)", p.Load, p.Saturated, p.Hits())
	}
}

// TestSaturationTooFewRequestsIsNull, never 0.
func TestSaturationTooFewRequestsIsNull(t *testing.T) {
	s := VerdictsOf(load(4, flat(1), flat(2)), &deploy.Deployment{})
	for _, c := range s.Run.Checks {
		if (c.Name == stat.CheckTTFTDrift || c.Name == stat.CheckE2ETail || c.Name == stat.CheckQueueRising) && c.Value != nil {
			t.Errorf("%s: got %v, want null", c.Name, *c.Value)
		}
	}
}
