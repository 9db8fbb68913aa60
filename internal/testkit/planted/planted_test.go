package planted

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// TestLoad: of many requests the median output is 2 + 20 tokens, the median prompt 8 + 120, the spread of their
// logarithms 0.6 and 0.8, and the rate the one that was asked for. The tolerances are some three standard errors.
func TestLoad(t *testing.T) {
	const n = 100_000
	reqs := Load(n, 50, 7)
	var outputs, prompts []float64
	for i, r := range reqs {
		if r.ID != fmt.Sprintf("c%05d", i) || r.MaxTokens != r.OutputTokens || i > 0 && r.ArrivalUs < reqs[i-1].ArrivalUs {
			t.Fatalf("request %d: got %+v", i, r)
		}
		outputs = append(outputs, float64(r.OutputTokens)+0.5) // the middle of what was cut to a whole number
		prompts = append(prompts, float64(r.PromptTokens)+0.5)
	}
	quantile := func(x []float64, q float64) float64 {
		slices.Sort(x)
		return x[int(q*float64(len(x)))]
	}
	for _, c := range []struct {
		name                 string
		got, want, tolerance float64
	}{
		{"first arrival", float64(reqs[0].ArrivalUs), 0, 0},
		{"rate per s", (n - 1) / float64(reqs[n-1].ArrivalUs) * 1e6, 50, 0.6},
		{"median output", quantile(outputs, 0.5), 22, 0.5},
		{"median prompt", quantile(prompts, 0.5), 128, 0.9},
		// One standard deviation above the median, the 84.13 % quantile: 2 + 20 exp(0.6) and 8 + 120 exp(0.8).
		{"high output", quantile(outputs, 0.8413), 2 + 20*1.8221, 0.5},
		{"high prompt", quantile(prompts, 0.8413), 8 + 120*2.2255, 2.5},
		// Three below it, the 0.135 % quantile.
		{"low output", quantile(outputs, 0.00135), 2 + 20*0.1653, 0.51},
		{"low prompt", quantile(prompts, 0.00135), 8 + 120*0.0907, 0.9},
	} {
		if math.Abs(c.got-c.want) > c.tolerance {
			t.Errorf("%s: got %g, want %g +- %g", c.name, c.got, c.want, c.tolerance)
		}
	}
	if other := Load(2, 50, 8); other[0].PromptTokens == reqs[0].PromptTokens && other[1].ArrivalUs == reqs[1].ArrivalUs {
		t.Error("another seed gives the same requests")
	}
}

// TestRecord: two requests of 10 + 3 and 7 + 1 tokens, 1 s apart, on an idle engine with 100 blocks of 4 tokens. Each
// is queued after 2 ms of overhead and departs 2 ms after its last token. A prompt of 10 needs 3 blocks, of 7 tokens 2.
// The last request of a batch leaves it in a step without members, so the first has steps 1 to 4 and the second 5 and 6.
func TestRecord(t *testing.T) {
	dep := testkit.Small(100)
	dep.Model, dep.Hardware = testkit.Llama8B().Model, testkit.Llama8B().Hardware
	reqs := []sim.Request{
		{ID: "c00000", ArrivalUs: 0, PromptTokens: 10, OutputTokens: 3, MaxTokens: 3},
		{ID: "c00001", ArrivalUs: 1_000_000, PromptTokens: 7, OutputTokens: 1, MaxTokens: 1},
	}
	var async bool
	run := Record(t, testkit.Planted(), dep, reqs, func(c *sim.Config) { async = c.Async })
	if run.ID != "planted" || async || len(run.Steps) != 6 || len(run.Snapshots) != 4 || len(run.Requests) != 2 {
		t.Fatalf("got run %q, async %t, %d steps, %d snapshots, %d requests", run.ID, async, len(run.Steps), len(run.Snapshots), len(run.Requests))
	}
	wantSteps := []trace.Step{
		{ID: 1, TsStartNs: 1000_002_000_000, TsEndNs: 1000_002_100_000, DurationUs: 100, WallNs: 500_001_000_002_100_000,
			RunningDepth: 1, NumPrefillReqs: 1, ScheduledTokens: 10, PrefillTokens: 10,
			BlocksTotal: 100, BlocksFree: 97, KVUsage: 0.03, NumSnapshots: 1},
		{ID: 2, RunningDepth: 1, NumDecodeReqs: 1, ScheduledTokens: 1, DecodeTokens: 1, BlocksTotal: 100, BlocksFree: 97, KVUsage: 0.03, NumSnapshots: 1},
		{ID: 4, NumFinished: 1, BlocksTotal: 100, BlocksFree: 100},
		{ID: 5, TsStartNs: 1001_002_000_000, TsEndNs: 1001_002_100_000, DurationUs: 100, WallNs: 500_001_001_002_100_000,
			RunningDepth: 1, NumPrefillReqs: 1, ScheduledTokens: 7, PrefillTokens: 7,
			BlocksTotal: 100, BlocksFree: 98, KVUsage: 0.02, NumSnapshots: 1},
	}
	for _, want := range wantSteps {
		got := run.Steps[want.ID-1]
		if want.TsStartNs == 0 { // its start depends on the coefficients
			if got.TsEndNs != got.TsStartNs+100_000 || got.WallNs != got.TsEndNs+5e17 {
				t.Errorf("got %+v", got)
			}
			want.TsStartNs, want.TsEndNs, want.DurationUs, want.WallNs = got.TsStartNs, got.TsEndNs, 100, got.WallNs
		}
		if math.Abs(got.KVUsage-want.KVUsage) > 1e-12 {
			t.Errorf("step %d: got usage %g, want %g", want.ID, got.KVUsage, want.KVUsage)
		}
		got.KVUsage = want.KVUsage
		if got != want {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
	for i, want := range []trace.Snapshot{
		{StepID: 1, CoreID: "c00000", PromptTokens: 10, ScheduledTokens: 10, BlocksAllocated: 3, EffectivePromptLen: trace.Some(int64(10))},
		{StepID: 2, CoreID: "c00000", PromptTokens: 10, ComputedTokens: 10, OutputTokens: 1, ScheduledTokens: 1, BlocksAllocated: 3,
			EffectivePromptLen: trace.Some(int64(10))},
		{StepID: 3, CoreID: "c00000", PromptTokens: 10, ComputedTokens: 11, OutputTokens: 2, ScheduledTokens: 1, BlocksAllocated: 3,
			EffectivePromptLen: trace.Some(int64(10))},
		{StepID: 5, CoreID: "c00001", PromptTokens: 7, ScheduledTokens: 7, BlocksAllocated: 2, EffectivePromptLen: trace.Some(int64(7))},
	} {
		if got := run.Snapshots[i]; got != want {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
	firstNs, finishedNs := run.Steps[1].TsStartNs, run.Steps[3].TsStartNs
	want := trace.Request{
		CoreID: trace.Some("c00000"), APIID: trace.Some("ac00000"), Source: "fork", Link: "parent",
		ArrivedNs: trace.Some(int64(1000e9)), QueuedNs: trace.Some(int64(1000_002_000_000)), ScheduledNs: trace.Some(int64(1000_002_000_000)),
		FirstTokenNs: trace.Some(firstNs), FinishedNs: trace.Some(finishedNs), DepartedNs: trace.Some(finishedNs + 2_000_000),
		QueuedStep: trace.Some(int64(0)), ScheduledStep: trace.Some(int64(1)), FirstTokenStep: trace.Some(int64(1)), FinishedStep: trace.Some(int64(3)),
		PromptTokens: trace.Some(int64(10)), CachedTokens: trace.Some(int64(0)), OutputTokens: trace.Some(int64(3)), MaxTokens: trace.Some(int64(3)),
		Preemptions: trace.Some(int64(0)), FinishStatus: trace.Some("length"), Success: trace.Some(true),
	}
	if got := run.Requests[0]; got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if got := run.Requests[1]; got.ArrivedNs.V != 1001e9 || got.QueuedStep.V != 4 || got.FinishedStep.V != 5 {
		t.Errorf("got %+v", got)
	}
	Record(t, testkit.Planted(), dep, reqs, nil)
}
