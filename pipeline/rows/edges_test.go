package rows

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// TestClosedLoopsShowTheirChecks: a run of closed loops alone shows the checks of all its requests and is not saturated,
// though a queue that rises would saturate an open one.
func TestClosedLoopsShowTheirChecks(t *testing.T) {
	run := load(60, flat(100), rising)
	for kind, saturated := range map[string]bool{deploy.LoadClosed: false, deploy.LoadOpen: true} {
		dep := &deploy.Deployment{Phases: []deploy.Phase{{Name: "a", EndNs: 60e9, Load: kind}}}
		s := VerdictsOf(run, dep)
		if !slices.Contains(s.Run.Hits(), stat.CheckQueueRising) || s.Run.Saturated != saturated || len(s.Spans()) == 1 != saturated {
			t.Errorf("%s: got hits %v, saturated %v, spans %v", kind, s.Run.Hits(), s.Run.Saturated, s.Spans())
		}
		if reason, spans := JudgeLoad(run, dep); (reason != "") != saturated || len(spans) != 0 {
			t.Errorf("%s: got the reason %q and spans %v", kind, reason, spans)
		}
	}
}

// TestRecordedAmong: steps 1, 2, 5 and 6 of a run are recorded, 3 and 4 are not.
func TestRecordedAmong(t *testing.T) {
	run := decodeRun(6)
	run.Steps = slices.Delete(run.Steps, 2, 4)
	b := &betaBuilder{s: mustRebuild(t, run, testDeployment(), features.V11)}
	for _, c := range []struct {
		from, last int64
		want       bool
	}{{3, 4, false}, {3, 3, false}, {2, 4, true}, {3, 5, true}, {2, 2, true}, {5, 4, false}, {-3, 0, false}, {-3, 1, true}, {7, 9, false}} {
		if got := b.isRecorded(c.from, c.last); got != c.want {
			t.Errorf("steps %d to %d: got %v", c.from, c.last, got)
		}
	}
}

// TestExtentOfArrivals: the first and the last arrival that is known, also if all are before the origin of the clock.
func TestExtentOfArrivals(t *testing.T) {
	for _, c := range []struct {
		arrivals    []int64
		first, last int64
		ok          bool
	}{{nil, 0, 0, false}, {[]int64{7}, 7, 7, true}, {[]int64{50, 9, 59, 30}, 9, 59, true}, {[]int64{-30, -50, -9, -20}, -50, -9, true}} {
		run := &trace.Run{Requests: []trace.Request{{}}}
		for _, ns := range c.arrivals {
			run.Requests = append(run.Requests, trace.Request{ArrivedNs: trace.Some(ns)}, trace.Request{ArrivedNs: trace.Opt[int64]{V: 1000}})
		}
		if first, last, ok := recordedExtent(run); first != c.first || last != c.last || ok != c.ok {
			t.Errorf("%v: got %d to %d, %v", c.arrivals, first, last, ok)
		}
	}
}

// TestBinsAreInOrder: 40 rows in bins of their own, by measured and then by predicted time; rows without a time above 0 have no
// bin and no residual.
func TestBinsAreInOrder(t *testing.T) {
	s := judgedSteps()
	s.Part = Whole
	table := &Table{Run: "r", Config: "c", P: 3}
	row := func(y, pred float64) {
		table.Y = append(table.Y, y)
		s.Pred = append(s.Pred, pred)
		table.X = append(table.X, 1, 1, 1)
		table.Steps = append(table.Steps, 1)
		table.HoldOut = append(table.HoldOut, true)
		table.Regime = append(table.Regime, Decode)
		table.Batch = append(table.Batch, 1)
		table.Context = append(table.Context, 1)
		table.Sets = append(table.Sets, 0)
		table.FloorUs = append(table.FloorUs, 0)
		table.Factor = append(table.Factor, 1)
		table.TimeNs = append(table.TimeNs, int64(len(table.Y)))
		table.Kept++
		table.Read++
	}
	s.Pred = nil
	const decade = 12.0
	for k := range 40 {
		bin := float64(k*7%40)/2 + 24.5 // two predictions, a bin apart, to each half of a measured bin
		row(math.Pow(10, math.Floor(bin)/decade+0.04), math.Pow(10, (math.Floor(bin)+float64(k%2))/decade+0.04))
	}
	row(0, 100)
	row(100, 0)
	row(100, -5)
	s.Table = table
	j := JudgeSteps([][]*Sample{{s}}, false, 1)
	bins := j.countBins()
	total := 0
	for k, b := range bins {
		total += b.N
		if k > 0 && (b.X < bins[k-1].X || b.X == bins[k-1].X && b.Y <= bins[k-1].Y) {
			t.Errorf("bin %d at %g, %g comes after %g, %g", k, b.X, b.Y, bins[k-1].X, bins[k-1].Y)
		}
	}
	if len(bins) < 20 || total != 40 {
		t.Errorf("got %d rows in %d bins, want 40 in at least 20", total, len(bins))
	}
	residuals := 0
	for _, b := range j.residualBands("batch", Decode, func(t *Table, i int32) float64 { return 1 }) {
		residuals += b.N
		if math.IsNaN(b.P10) || math.IsInf(b.P90, 0) {
			t.Errorf("got %+v", b)
		}
	}
	if residuals != 42 { // without the row that took no time
		t.Errorf("got %d residuals, want 42", residuals)
	}
}

// TestMarksOfEvidence: of steps 1 to 6 an interval shows the lag if more than 64 prefill tokens run in its step or in the two
// before it, and if a step follows it.
func TestMarksOfEvidence(t *testing.T) {
	for _, c := range []struct {
		prompt int64 // the step with prefill tokens
		tokens float64
		lost   int64 // a step without a summary; 0: none
		want   []int64
	}{
		{1, 65, 0, []int64{3}}, {2, 65, 0, []int64{3, 4}}, {3, 65, 0, []int64{3, 4, 5}}, {4, 65, 0, []int64{4, 5}}, {5, 65, 0, []int64{5}}, {6, 65, 0, nil},
		{3, 64, 0, nil}, {3, 65, 6, []int64{3, 4}}, {3, 65, 5, []int64{3}}, {3, 65, 2, []int64{5}},
	} {
		run := decodeRun(6)
		run.Steps = slices.DeleteFunc(run.Steps, func(s trace.Step) bool { return s.ID == c.lost })
		s := mustRebuild(t, run, testDeployment(), features.V11)
		s.all.change(int(c.prompt-s.First), func(st *Step) { st.In.PrefillTokens = c.tokens })
		var got []int64
		for _, ns := range slices.Sorted(maps.Keys(s.evidenceMarks())) {
			got = append(got, ns/10e6)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%g prefill tokens in step %d, step %d lost: got marks of %v, want %v", c.tokens, c.prompt, c.lost, got, c.want)
		}
	}
	idle := mustRebuild(t, decodeRun(6), testDeployment(), features.V11)
	idle.all.change(int(3-idle.First), func(st *Step) { st.In.PrefillTokens = 65 })
	idle.Run.Steps[3].RunningDepth = 0
	if got := idle.evidenceMarks(); len(got) != 1 || got[30e6] != 1 {
		t.Errorf("step 4 is idle: got %v, want the mark of step 3", got)
	}
}

// TestSurveyOfSnapshots: prompt lengths count once for each request, and one of them is known to vary by 0.
func TestSurveyOfSnapshots(t *testing.T) {
	for name, c := range map[string]struct {
		prompts []int64 // of requests 0, 1, ..., each in two snapshots
		known   int     // requests with a span
		want    snapshotSurvey
	}{
		"none":       {nil, 0, snapshotSurvey{}},
		"one":        {[]int64{5}, 1, snapshotSurvey{hasCV2: true}},
		"two":        {[]int64{5, 15}, 1, snapshotSurvey{hasCV2: true, cv2: 0.25, unknown: 1}},
		"two alike":  {[]int64{7, 7}, 0, snapshotSurvey{hasCV2: true, unknown: 2}},
		"no lengths": {[]int64{0}, 1, snapshotSurvey{hasCV2: true}},
	} {
		run := &trace.Run{}
		for i, prompt := range c.prompts {
			id := fmt.Sprint("c", i)
			if i < c.known {
				run.Requests = append(run.Requests, trace.Request{CoreID: trace.Some(id)})
			}
			for step := range int64(2) { // of the first one nothing is scheduled
				run.Snapshots = append(run.Snapshots, trace.Snapshot{StepID: step, CoreID: id, PromptTokens: prompt, ScheduledTokens: step})
			}
		}
		got, err := surveySnapshots(run)
		if err != nil || got.hasCV2 != c.want.hasCV2 || math.Abs(got.cv2-c.want.cv2) > 1e-12 || got.unknown != c.want.unknown || len(got.hits) != len(c.prompts) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, c.want)
		}
	}
}

// TestStepsOfAnInterval: the batches whose features are summed must be known; of the steps after them only that they ran.
func TestStepsOfAnInterval(t *testing.T) {
	const known = tagUnknown + 1
	busy := trace.Step{ScheduledTokens: 3, RunningDepth: 2}
	for name, c := range map[string]struct {
		change func(all []Step, recorded []trace.Step)
		want   trace.Code
	}{
		"all known":                    {func([]Step, []trace.Step) {}, ""},
		"the last of the sum unknown":  {func(all []Step, _ []trace.Step) { all[2].Tag = tagUnknown }, UnknownBatch},
		"the first of the sum unknown": {func(all []Step, _ []trace.Step) { all[1].Tag = tagUnknown }, UnknownBatch},
		"one after it unknown":         {func(all []Step, _ []trace.Step) { all[3].Tag = tagUnknown }, ""},
		"one after it not recorded":    {func(all []Step, _ []trace.Step) { all[3].Tag, all[3].Recorded = tagUnknown, -1 }, UnknownBatch},
		"one before it unknown":        {func(all []Step, _ []trace.Step) { all[0].Tag = tagUnknown }, ""},
		"one after it idle":            {func(_ []Step, recorded []trace.Step) { recorded[3].RunningDepth = 0 }, NoInterval},
		"an idle one after unknown":    {func(all []Step, recorded []trace.Step) { all[1].Tag, recorded[3].ScheduledTokens = tagUnknown, 0 }, NoInterval},
		"not recorded and empty":       {func(all []Step, _ []trace.Step) { all[2].Recorded, all[2].In.ScheduledTokens = -1, 0 }, NoInterval},
		"not recorded and busy":        {func(all []Step, _ []trace.Step) { all[2].Recorded = -1 }, ""},
		"an encoder ran":               {func(all []Step, _ []trace.Step) { all[3].Reason = reconstruct.EncoderRan }, codeEncoder},
	} {
		s := &Steps{First: 7, Run: &trace.Run{}}
		var all []Step
		for k := range 4 {
			st := Step{ID: 7 + int64(k), Tag: known, Recorded: int32(k)}
			st.In.ScheduledTokens = 3
			all = append(all, st)
			s.Run.Steps = append(s.Run.Steps, busy)
		}
		c.change(all, s.Run.Steps)
		s.all = listOf(all...)
		if got := s.checkInterval(interval{from: 8, to: 9}, 10); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	s := &Steps{First: 7, all: listOf(Step{Tag: known}), Run: &trace.Run{Steps: []trace.Step{busy}}}
	if got := s.checkInterval(interval{from: 7, to: 8}, 8); got != UnknownBatch {
		t.Errorf("beyond the run: got %q", got)
	}
}
