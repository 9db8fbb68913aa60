package simulate

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// onL4 returns options of a deployment whose steps take the datasheet's roofline: its GPU has no kernel tables.
func onL4(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	deployment := "model: {id: meta-llama/Llama-3.1-8B}\nhardware: {name: L4}\nvllm: {version: 0.24.0, max_num_seqs: 8, max_num_batched_tokens: 512, " +
		"max_model_len: 400, kv_blocks_total_gpu: 90, enable_prefix_caching: true}\n"
	if err := os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(deployment), 0o644); err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Deployment = dir
	o.Out = filepath.Join(dir, "out")
	o.Model = ModelRoofline
	if err := os.Mkdir(o.Out, 0o755); err != nil {
		t.Fatal(err)
	}
	return o
}

// sharedSessions is a trace of two sessions with three rounds each, one request with a target it misses, one whose
// client leaves after 0.1 s and one that is too long.
const sharedSessions = `trace_version: 2
session_context_growth: accumulate
request_id,session_id,round_index,input_tokens,output_tokens,arrival_time_us,slo_class,deadline_us
0,a,0,100,5,0,chat,0
1,b,0,90,5,10000,chat,0
2,a,1,40,5,20000,chat,0
3,a,2,30,5,30000,chat,0
4,b,1,20,5,40000,batch,0
5,b,2,10,5,50000,batch,0
6,,0,200,50,60000,batch,160000
7,,0,500,5,70000,,0
`

// TestSimulationDocuments compares every figure of simulations of each kind of load and latency model.
func TestSimulationDocuments(t *testing.T) {
	point := func(o *Options) {
		o.InputTokens, o.OutputTokens, o.Requests, o.RateRPS, o.RangeRatio = 120, 12, 30, 12, 0.2
	}
	for name, change := range map[string]func(o *Options){
		"rate": point,
		"loop": func(o *Options) {
			point(o)
			o.RateRPS, o.Concurrency, o.ThinkMs, o.RampS, o.Async = 0, 12, 7, 0.2, "on"
		},
		"replications": func(o *Options) {
			point(o)
			o.Replications, o.MaxConcurrency, o.Async = 3, 4, "off"
		},
		"blackbox": func(o *Options) {
			point(o)
			o.Model, o.Alpha, o.Beta = "blackbox", "3000,2,0", "9000,10,20"
		},
		"sessions": func(o *Options) {
			o.Workload = filepath.Join(o.Deployment, "sessions.csv")
			o.SessionMode, o.ThinkMs, o.Format = sessionsClosed, 5, "blis"
		},
	} {
		o := onL4(t)
		change(&o)
		if o.Workload != "" {
			if err := os.WriteFile(o.Workload, []byte(sharedSessions), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		doc, err := Run(context.Background(), o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		testkit.Document(t, name, doc, "platform", "tool_version", "inputs", "command")
		if o.Format == "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(o.Out, blisFile))
		if err != nil {
			t.Fatal(err)
		}
		var rows []blisRequest
		if err := json.Unmarshal(text, &rows); err != nil {
			t.Fatal(err)
		}
		testkit.Document(t, "blis", rows)
	}
}

// TestOutcomes: a request of each outcome is counted once, where it belongs.
func TestOutcomes(t *testing.T) {
	us := trace.Some[int64]
	c := NewCollector(nil)
	for i, r := range []sim.RequestResult{
		{Outcome: sim.OutcomeFinished, FinishStatus: trace.FinishStopped, PromptTokens: 1, OutputTokens: 100},
		{Outcome: sim.OutcomeFinished, FinishStatus: trace.FinishLength, PromptTokens: 2, OutputTokens: 200},
		{Outcome: sim.OutcomeFinished, FinishStatus: trace.FinishLength, LengthCapped: true, PromptTokens: 4, OutputTokens: 400},
		{Outcome: sim.OutcomeRejected, Reason: "too_long", PromptTokens: 8},
		{Outcome: sim.OutcomeAborted, PromptTokens: 16, OutputTokens: 1600},
		{Outcome: sim.OutcomeTimedOut, PromptTokens: 32},
		{Outcome: sim.OutcomeUnfinished, PromptTokens: 64},
	} {
		r.ArrivalUs = int64(i) * 1_000_000
		if r.Outcome != sim.OutcomeTimedOut {
			r.QueuedUs = us(r.ArrivalUs + 100)
		}
		c.Add(&r)
	}
	got := c.Close(&sim.Result{DraftTokens: 21, AcceptedTokens: 14, Verifies: 7, HitBlocks: 3, NewBlocks: 9, HitTokens: 5, LookedUpTokens: 20, BusyUs: 1_500_000,
		Preemptions: 22, Steps: 23, EmptySteps: 24, WastedTokens: 25, PeakRunning: 26, PeakWaiting: 27, PeakBlocks: 28})
	for name, v := range map[string][2]float64{
		"injected":          {float64(got.InjectedRequests), 7},
		"completed":         {float64(got.CompletedRequests), 3},
		"capped":            {float64(got.LengthCappedRequests), 1},
		"by max_tokens":     {float64(got.FinishedByMaxTokens), 1},
		"rejected":          {float64(got.RejectedRequests), 1},
		"too long":          {float64(got.Rejections["too_long"]), 1},
		"aborted":           {float64(got.AbortedRequests), 1},
		"timed out":         {float64(got.TimedOutRequests), 1},
		"unfinished":        {float64(got.UnfinishedRequests), 1},
		"input tokens":      {float64(got.TotalInputTokens), 1 + 2 + 4 + 16 + 64},
		"completed input":   {float64(got.CompletedInputTokens), 7},
		"output tokens":     {float64(got.TotalOutputTokens), 700},
		"drafted":           {float64(got.DraftTokens), 21},
		"accepted":          {float64(got.AcceptedTokens), 14},
		"tokens per verify": {got.TokensPerVerify, 3},
		"cache hit rate":    {*got.CacheHitRate, 0.25},
		"prompt hit rate":   {*got.PromptCacheHitRate, 0.25},
		"preemptions":       {float64(got.PreemptionCount), 22},
		"steps":             {float64(got.Steps), 23},
		"empty steps":       {float64(got.EmptySteps), 24},
		"wasted tokens":     {float64(got.WastedTokens), 25},
		"peak running":      {float64(got.PeakRunning), 26},
		"peak waiting":      {float64(got.PeakWaiting), 27},
		"peak blocks":       {float64(got.PeakBlocks), 28},
	} {
		if v[0] != v[1] {
			t.Errorf("%s: got %g, want %g", name, v[0], v[1])
		}
	}
}

// TestArrivals: what the saturation checks read of a request.
func TestArrivals(t *testing.T) {
	us := trace.Some[int64]
	r := sim.RequestResult{ArrivalUs: 100, QueuedUs: us(110), FirstTokenUs: us(150), DepartedUs: us(190), Preemptions: 1, Outcome: sim.OutcomeFinished}
	if got, want := ArrivalOf(&r), (stat.Arrival{At: 100, Left: 190, TTFT: 50, E2E: 90, Ended: true, Engine: true, Preempted: true, Waits: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for at, waits := range map[int64]bool{110: false, 111: true} {
		if r.ScheduledUs = us(at); ArrivalOf(&r).Waits != waits {
			t.Errorf("scheduled at %d: got waits %t", at, !waits)
		}
	}
	for outcome, want := range map[sim.Outcome][2]bool{ // ended, failed
		sim.OutcomeUnfinished: {false, false}, sim.OutcomeRejected: {true, true}, sim.OutcomeTimedOut: {true, true}, sim.OutcomeAborted: {true, false},
	} {
		got := ArrivalOf(&sim.RequestResult{Outcome: outcome})
		if got.Ended != want[0] || got.Failed != want[1] || got.Engine || got.Preempted || !math.IsNaN(got.Left) || !math.IsNaN(got.TTFT) || !math.IsNaN(got.E2E) {
			t.Errorf("%v: got %+v", outcome, got)
		}
	}
}

// TestClocksOfRecordings: a first arrival since 1970 is the zero of the run, another one is not.
func TestClocksOfRecordings(t *testing.T) {
	for first, wantEndS := range map[int64]float64{1e15: 2, 1e15 - 1: (1e15 - 1 + 2e6) / 1e6, 1_000_000: 3} {
		c := NewCollector(nil)
		c.Add(&sim.RequestResult{ArrivalUs: first, FinishedUs: trace.Some(first + 2_000_000), DepartedUs: trace.Some(first + 2_000_000), Outcome: sim.OutcomeFinished, OutputTokens: 10})
		got := c.Close(&sim.Result{})
		if math.Abs(got.EndS-wantEndS) > 1e-6 || math.Abs(got.ResponsesPerSec-1/wantEndS) > 1e-9 || math.Abs(got.TokensPerSec-10/wantEndS) > 1e-9 {
			t.Errorf("first arrival at %d: got the end after %g s, %g responses/s, %g tokens/s", first, got.EndS, got.ResponsesPerSec, got.TokensPerSec)
		}
	}
}

func TestIntervalsOfReplications(t *testing.T) {
	values := []float64{5, 1, 3}
	mean, lo, hi := stat.MeanInterval(values)
	if got := intervalOf("a", values, false); got != (interval{"a", mean, lo, hi}) || mean != 3 {
		t.Errorf("got %+v", got)
	}
	got := intervalOf("a", values, true)
	sorted := []float64{1, 3, 5}
	if want := (interval{"a", 3, stat.Quantile(sorted, 0.025), stat.Quantile(sorted, 0.975)}); got != want || !(got.Lo >= 1 && got.Lo < 1.2 && got.Hi > 4.8) {
		t.Errorf("of drawn coefficients: got %+v, want %+v", got, want)
	}
}

// TestOptionsAreChecked: a value at each end of its range passes, and one beyond it is an error that names its flag.
func TestOptionsAreChecked(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		flag string
		set  func(o *Options)
		ok   bool
	}{
		{"", func(o *Options) {}, true},
		{"--deployment", func(o *Options) { o.Deployment = "" }, false},
		{"-o", func(o *Options) { o.Out = "" }, false},
		{"--format", func(o *Options) { o.Format = "json" }, false},
		{"--replications", func(o *Options) { o.Replications = 0 }, false},
		{"--replications", func(o *Options) { o.Replications = 1 }, true},
		{"--replications", func(o *Options) { o.Replications = 100_000 }, true},
		{"--replications", func(o *Options) { o.Replications = 100_001 }, false},
		{"--noise", func(o *Options) { o.Noise = "some" }, false},
		{"--noise", func(o *Options) { o.Noise = "residual" }, false},
		{"--noise", func(o *Options) { o.Noise, o.Coefficients = "residual", "c.yaml" }, true},
		{"--async", func(o *Options) { o.Async = "yes" }, false},
		{"--latency-model", func(o *Options) { o.Model = "fast" }, false},
		{"--library", func(o *Options) { o.Library = "x" }, false},
		{"--library", func(o *Options) { o.Library, o.Model = "x", ModelTables }, true},
		{"--library", func(o *Options) { o.Library, o.Model = "x", ModelAuto }, true},
		{"--library", func(o *Options) { o.Library, o.Model = "x", ModelPhysics }, false},
		{"--sample-coefficients", func(o *Options) { o.SampleCoefficients = true }, false},
		{"--sample-coefficients", func(o *Options) { o.SampleCoefficients, o.Model = true, ModelPhysics }, true},
		{"--coefficients", func(o *Options) { o.Coefficients = "c.yaml" }, false},
		{"--coefficients", func(o *Options) { o.Coefficients, o.Model = "c.yaml", ModelAuto }, true},
		{"--coefficients", func(o *Options) { o.Coefficients, o.Model = LibraryWord, ModelAuto }, true},
		{"--coefficients", func(o *Options) { o.Coefficients, o.Model = LibraryWord, ModelTables }, false},
		{"--alpha-coeffs", func(o *Options) { o.Alpha = "1" }, false},
		{"--alpha-coeffs", func(o *Options) { o.Alpha, o.Model = "1", "trained-physics" }, true},
		{"--alpha-coeffs", func(o *Options) { o.Alpha, o.Model = "1", "linear3" }, false},
		{"--beta-coeffs", func(o *Options) { o.Beta = "1" }, false},
		{"--beta-coeffs", func(o *Options) { o.Beta, o.Model = "1", "linear3" }, true},
		{"--beta-coeffs", func(o *Options) { o.Beta, o.Model = "1", ModelPhysics }, false},
		{"--emit-kv-events", func(o *Options) { o.EmitKVEvents = "x" }, false},
		{"--emit-kv-events", func(o *Options) { o.EmitKVEvents, o.EmitOTLP = "x", "y" }, true},
		{"--expert-imbalance", func(o *Options) { o.ExpertImbalance = 0.99 }, false},
		{"--expert-imbalance", func(o *Options) { o.ExpertImbalance = 1 }, true},
		{"--expert-imbalance", func(o *Options) { o.ExpertImbalance = 1e6 }, true},
		{"--expert-imbalance", func(o *Options) { o.ExpertImbalance = 1e6 + 1 }, false},
		{"--eplb-pause-ms", func(o *Options) { o.EPLBPauseMs = -1 }, false},
		{"--eplb-pause-ms", func(o *Options) { o.EPLBPauseMs = 1e9 }, false},
		{"--eplb-pause-ms", func(o *Options) { o.EPLBPauseMs = 999_999_999 }, true},
		{"--kv-blocks", func(o *Options) { o.KVBlocks = -1 }, false},
		{"--overhead-us", func(o *Options) { o.OverheadUs = known(-1) }, false},
		{"--overhead-us", func(o *Options) { o.OverheadUs = known(0) }, true},
		{"--overhead-us", func(o *Options) { o.OverheadUs = known(1e9) }, false},
		{"--egress-us", func(o *Options) { o.EgressUs = known(1e9) }, false},
		{"--workload", func(o *Options) { o.InputTokens, o.OutputTokens = 0, 0 }, false},
		{"--workload", func(o *Options) { o.Workload = "x" }, false},
		{"--input-len", func(o *Options) { o.OutputTokens = 0 }, false},
		{"--rate-scale", func(o *Options) { o.RateScale = 0 }, false},
		{"--rate-scale", func(o *Options) { o.RateScale = inf }, false},
		{"--request-rate", func(o *Options) { o.RateRPS = -1 }, false},
		{"--request-rate", func(o *Options) { o.RateRPS = inf }, false},
		{"--random-range-ratio", func(o *Options) { o.RangeRatio = 1 }, false},
		{"--random-range-ratio", func(o *Options) { o.RangeRatio = 0.99 }, true},
		{"--max-requests", func(o *Options) { o.MaxRequests = -1 }, false},
		{"--num-prompts", func(o *Options) { o.Requests = 0 }, false},
		{"--num-prompts", func(o *Options) { o.Requests = 1 }, true},
		{"--think-time-ms", func(o *Options) { o.ThinkMs = -1 }, false},
		{"--think-time-ms", func(o *Options) { o.ThinkMs = 1 }, false},
		{"--think-time-ms", func(o *Options) { o.ThinkMs, o.Concurrency = 1, 1 }, true},
		{"--ramp-s", func(o *Options) { o.RampS = inf }, false},
		{"--ramp-s", func(o *Options) { o.RampS = 1 }, false},
		{"--phase", func(o *Options) { o.Phase = "a" }, false},
		{"--max-concurrency", func(o *Options) { o.MaxConcurrency = -1 }, false},
		{"--max-concurrency", func(o *Options) { o.Concurrency, o.MaxConcurrency = 1, 1 }, false},
		{"--session-mode", func(o *Options) { o.SessionMode = "open" }, false},
		{"--session-mode", func(o *Options) { o.SessionMode, o.Concurrency = sessionsClosed, 1 }, false},
		{"--think-time-dist", func(o *Options) { o.ThinkDist = "constant:5" }, false},
		{"--think-time-dist", func(o *Options) { o.ThinkDist, o.SessionMode = "no-such", sessionsClosed }, false},
	} {
		o := DefaultOptions()
		o.Deployment, o.Out, o.Model = "run.yaml", "out", ModelRoofline
		o.InputTokens, o.OutputTokens = 10, 10
		c.set(&o)
		err := o.Check()
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), c.flag) {
			t.Errorf("%s: got %v, want an error: %t", c.flag, err, !c.ok)
		}
	}
}

// TestOptionsOfWorkloads: what goes with a drawn load only is an error with a recorded one.
func TestOptionsOfWorkloads(t *testing.T) {
	for flag, set := range map[string]func(o *Options){
		"":                     func(*Options) {},
		"--random-range-ratio": func(o *Options) { o.RangeRatio = 0.1 },
		"--num-prompts":        func(o *Options) { o.Requests = 10 },
		"--request-rate":       func(o *Options) { o.RateRPS = 1 },
	} {
		o := DefaultOptions()
		o.Deployment, o.Out, o.Model, o.Workload = "run.yaml", "out", ModelRoofline, "w.csv"
		set(&o)
		if err := o.Check(); (err == nil) != (flag == "") || err != nil && !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}

// TestSourceOfStepTimes: the tables serve a library's coefficients unless its terms are asked for.
func TestSourceOfStepTimes(t *testing.T) {
	for _, c := range []struct {
		model, coefficients, noise string
		sample, want               bool
	}{
		{ModelPhysics, "", "none", false, true},
		{ModelAuto, "", "none", false, false},
		{ModelAuto, "c.yaml", "none", false, true},
		{ModelRoofline, "c.yaml", "none", false, false},
		{ModelAuto, LibraryWord, "none", false, false},
		{ModelPhysics, LibraryWord, "none", false, true},
		{ModelAuto, LibraryWord, "residual", false, true},
		{ModelAuto, LibraryWord, "none", true, true},
	} {
		o := Options{Model: c.model, Coefficients: c.coefficients, Noise: c.noise, SampleCoefficients: c.sample}
		if got := o.usesSet(); got != c.want {
			t.Errorf("%+v: got %t", c, got)
		}
	}
}

func TestNumbersOfFlags(t *testing.T) {
	if got, err := parseNumbers("--beta-coeffs", "1, 2.5,-3e2"); err != nil || !reflect.DeepEqual(got, []float64{1, 2.5, -300}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := parseNumbers("--beta-coeffs", ""); err != nil || got != nil {
		t.Errorf("none: got %v, %v", got, err)
	}
	if _, err := parseNumbers("--beta-coeffs", "1,x"); err == nil || !strings.Contains(err.Error(), "--beta-coeffs") {
		t.Errorf("got %v", err)
	}
}
