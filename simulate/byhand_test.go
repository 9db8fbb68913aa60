package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// TestEngineByHand: what the options set of an engine.
func TestEngineByHand(t *testing.T) {
	o := DefaultOptions()
	o.EPLBPauseMs, o.ExpertImbalance, o.KVBlocks, o.OverheadUs, o.EgressUs, o.Async, o.Model = 2.5, 1.25, 77, known(3), known(4), "on", "linear3"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &Simulation{Deployment: testkit.Small(10), LatencyModel: "linear3", ctx: ctx, o: &o, beta: []float64{1000, 2, 3}}
	cfg, err := s.Engine(9)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.EPLBPauseUs != 2500 || cfg.ExpertImbalance != 1.25 || cfg.KVBlocks != 77 || cfg.Overhead != sim.Const(3) || cfg.Egress != sim.Const(4) || !cfg.Async || cfg.Seed != 9 || !cfg.TokenGaps || cfg.Done == nil || cfg.Noise != nil {
		t.Errorf("got %+v", cfg)
	}
	o.Async, o.OverheadUs, o.EgressUs, o.Noise = "off", nil, nil, "residual"
	s.Set = testkit.Planted()
	s.Set.Residuals = nil
	if cfg, err = s.Engine(9); err == nil || !strings.Contains(err.Error(), "no residual quantiles") {
		t.Errorf("noise without quantiles: got %v", err)
	}
	if cfg.Async || cfg.Overhead != nil {
		t.Errorf("got %+v", cfg)
	}
	o.Noise = "none"
	set := testkit.Planted()
	s.Set, s.LatencyModel = set, ModelPhysics
	s.Deployment = testkit.Llama8B()
	step := func(seed int64) float64 {
		cfg, err := s.Engine(seed)
		if err != nil {
			t.Fatal(err)
		}
		var b sim.Batch
		b.AddPrefill(0, 500, 500)
		us, err := cfg.Latency.StepUs(&b)
		if err != nil {
			t.Fatal(err)
		}
		return us
	}
	if step(1) != step(2) {
		t.Error("coefficients are drawn that nobody asked for")
	}
	set.Covariance = make([][]float64, len(set.Beta))
	for i := range set.Covariance {
		set.Covariance[i] = make([]float64, len(set.Beta))
		set.Covariance[i][i] = set.Beta[i].Value * set.Beta[i].Value / 100
	}
	o.SampleCoefficients = true
	if step(1) == step(2) || step(1) != step(1) {
		t.Error("the seeds have equal coefficients, or one seed has several")
	}
	s.Deployment = testkit.Small(10)
	s.Deployment.DP = 2
	s.LatencyModel, s.alpha, s.beta, o.SampleCoefficients = "blackbox", []float64{5, 0, 7}, []float64{1, 1, 1}, false
	if cfg, err = s.Engine(1); err != nil || cfg.TokenUs != 7 || cfg.Overhead == nil {
		t.Errorf("got %+v, %v", cfg, err)
	}
	for _, w := range []struct {
		options      Options
		clients      int
		think, rampU int64
		keep         bool
	}{{Options{Concurrency: 3, ThinkMs: 1.5, RampS: 0.25}, 3, 1500, 250_000, false}, {Options{MaxConcurrency: 4, ThinkMs: 9}, 4, 0, 0, true}, {Options{}, 0, 0, 0, false}} {
		if got := loopOf(&w.options); got != (workload.Loop{Clients: w.clients, ThinkUs: w.think, RampUs: w.rampU, KeepArrivals: w.keep}) {
			t.Errorf("%+v: got %+v", w.options, got)
		}
	}
	think, err := (&Options{ThinkMs: 1.5}).think(1)
	if err != nil || think() != 1500 {
		t.Errorf("got %v", err)
	}
	if think, err := (&Options{}).think(1); think != nil || err != nil {
		t.Error("no think time is drawn")
	}
	found := WarningsOf(&sim.Config{Latency: warning("a"), Overhead: warning("b"), Egress: warning("c")})
	if !reflect.DeepEqual(found, []trace.Finding{{Code: "w", Message: "a"}, {Code: "w", Message: "overhead: b"}, {Code: "w", Message: "egress: c"}}) {
		t.Errorf("got %v", found)
	}
}

// warning is a model that warns.
type warning string

func (warning) StepUs(*sim.Batch) (float64, error)  { return 1, nil }
func (warning) DelayUs(*sim.Queue) (float64, error) { return 1, nil }
func (w warning) Warnings() []trace.Finding         { return []trace.Finding{{Code: "w", Message: string(w)}} }

// TestPartsByHand: the counts of an engine and of its ranks.
func TestPartsByHand(t *testing.T) {
	engine := func(by int64) *sim.Result {
		return &sim.Result{Sent: by, Steps: 2 * by, DummySteps: 3 * by, WaitedUs: 4 * by, Preemptions: 5 * by, BusyUs: 6 * by, PeakRunning: 7 * by, PeakWaiting: 8 * by}
	}
	part := func(by int64) EnginePart {
		return EnginePart{Requests: by, Steps: 2 * by, DummySteps: 3 * by, WaitedUs: 4 * by, Preemptions: 5 * by, BusyUs: 6 * by, PeakRunning: 7 * by, PeakWaiting: 8 * by}
	}
	all := engine(100)
	all.Ranks = []*sim.Result{engine(1), engine(10)}
	want := part(100)
	want.Ranks = []EnginePart{part(1), part(10)}
	if got := PartOf(all); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	s := &Summary{}
	gaps := stat.NewHistogram()
	gaps.Add(2000, 3)
	c := &collector{ttft: []float64{1000, 3000}, completed: []float64{5000}, e2e: []float64{7000}, itl: []float64{11_000}, delay: []float64{13_000}, queueWait: []float64{17_000}}
	s.fillLatencies(c, gaps)
	for name, v := range map[string][2]float64{
		"ttft": {*s.TTFTMeanMs, 2}, "ttft p50": {*s.TTFTP50Ms, 2}, "ttft p90": {*s.TTFTP90Ms, 2.8}, "ttft p95": {*s.TTFTP95Ms, 2.9}, "ttft p99": {*s.TTFTP99Ms, 2.98}, "completed": {*s.CompletedTTFTP90Ms, 5}, "e2e": {*s.E2EMeanMs, 7},
		"request itl": {*s.RequestITLP95Ms, 11}, "delay": {*s.SchedulingP99Ms, 13}, "wait": {*s.QueueWaitMeanMs, 17}, "latency": {*s.Latency("ttft", "p90"), 2.8}, "itl": {*s.ITLMeanMs, 2},
	} {
		if d := v[0] - v[1]; d > 1e-9 || d < -1e-9 {
			t.Errorf("%s: got %g ms, want %g", name, v[0], v[1])
		}
	}
	none := &Summary{}
	if none.fillLatencies(&collector{}, nil); none.TTFTMeanMs != nil || none.ITLP50Ms != nil || none.Latency("e2e", "p99") != nil {
		t.Error("nothing has latencies")
	}
	if none.fillLatencies(&collector{}, stat.NewHistogram()); none.ITLMeanMs != nil {
		t.Error("no gaps have a mean")
	}
	for _, w := range []struct {
		judged, met int
		seconds     float64
		attained    float64
		perS        float64
	}{{4, 3, 2, 0.75, 1.5}, {1, 1, 0, 1, -1}, {0, 0, 2, -1, -1}} {
		k := (&class{Class: Class{Judged: w.judged, Met: w.met}, ttft: []float64{1000, 2000}, e2e: []float64{3000}}).summarize(w.seconds)
		if (k.Attainment == nil) != (w.attained < 0) || k.Attainment != nil && *k.Attainment != w.attained || (k.GoodputRPS == nil) != (w.perS < 0) || k.GoodputRPS != nil && *k.GoodputRPS != w.perS || *k.TTFTP50Ms != 1.5 || *k.TTFTP99Ms != 1.99 || *k.E2EP50Ms != 3 || *k.E2EP99Ms != 3 {
			t.Errorf("%+v: got %+v", w, k)
		}
	}
	// Without any request, and of one that left at once, there is no time to divide by.
	empty := NewCollector(nil).Close(&sim.Result{})
	if empty.DurationS != 0 || empty.BusyShare != 0 || empty.CacheHitRate != nil || empty.PromptCacheHitRate != nil || empty.TokensPerVerify != 0 || empty.GoodputRPS != nil || empty.ResponsesPerSec != 0 {
		t.Errorf("got %+v", empty)
	}
	busy := NewCollector(nil)
	busy.Add(&sim.RequestResult{ArrivalUs: 1_000_000, DepartedUs: trace.Some[int64](3_000_000), FinishedUs: trace.Some[int64](2_500_000), Outcome: sim.OutcomeFinished, SLOMet: trace.Some(true)})
	if got := busy.Close(&sim.Result{BusyUs: 500_000}); got.DurationS != 2 || got.BusyShare != 0.25 || got.EndS != 2.5 || *got.GoodputRPS != 0.4 || got.ResponsesPerSec != 0.4 {
		t.Errorf("got %+v", got)
	}
}

// TestRequestsByHand: the first requests of a workload, at another rate.
func TestRequestsByHand(t *testing.T) {
	w := &workload.Workload{Requests: []sim.Request{{ArrivalUs: 0}, {ArrivalUs: 1000}, {ArrivalUs: 3000}}}
	o := DefaultOptions()
	s := &Simulation{o: &o, load: load{fixed: w}}
	arrivals := func() (out []int64) {
		reqs, err := s.Requests(1)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range reqs {
			out = append(out, r.ArrivalUs)
		}
		return out
	}
	for most, want := range map[int]int{0: 3, 1: 1, 2: 2, 3: 3, 4: 3} {
		o.MaxRequests = most
		if got := arrivals(); len(got) != want {
			t.Errorf("at most %d: got %d", most, len(got))
		}
	}
	o.MaxRequests = 0
	if o.RateScale = 2; !slices.Equal(arrivals(), []int64{0, 500, 1500}) || w.Requests[2].ArrivalUs != 3000 {
		t.Errorf("twice the rate: got %v, and the recording %v", arrivals(), w.Requests)
	}
	o.SessionMode = sessionsClosed
	if _, err := s.Requests(1); err == nil || !strings.Contains(err.Error(), "got a workload without sessions") {
		t.Errorf("got %v", err)
	}
	failed := errors.New("no draw")
	s.load.draw = func(int64) (*workload.Workload, error) { return nil, failed }
	if _, err := s.Requests(1); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	header := "trace_version: 2\nx: 1\n"
	dir := t.TempDir()
	for _, w := range []struct {
		name, text, rows string
		want             bool
	}{
		{"a.yaml", header, "a.csv", true}, {"b.yml", header, "b.csv.gz", true}, {"c.yaml", header, "", false}, {"d.json", header, "d.csv", false}, {"e.yaml", "x: 1\n", "e.csv", false}, {"f.yaml", header + "request_id,session_id\n", "f.csv", false},
	} {
		if w.rows != "" {
			if err := os.WriteFile(filepath.Join(dir, w.rows), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want := ""
		if w.want {
			want = filepath.Join(dir, w.rows)
		}
		if got := rowsBeside([]byte(w.text), filepath.Join(dir, w.name)); got != want {
			t.Errorf("%s: got %q, want %q", w.name, got, want)
		}
	}
	for name, options := range map[string]Options{"a": {EventLog: filepath.Join(dir, "none", "x")}, "b": {EmitOTLP: filepath.Join(dir, "none", "x")}, "c": {EmitOTLP: filepath.Join(dir, "x"), EmitKVEvents: filepath.Join(dir, "none", "x")}} {
		if _, _, err := (&Simulation{o: &options, Deployment: testkit.Small(10)}).Observers(nil); err == nil {
			t.Errorf("%s: a file in a missing folder is written", name)
		}
	}
	obs, done, err := (&Simulation{o: &Options{}}).Observers(nil)
	if obs != nil || err != nil || done(nil) != nil {
		t.Errorf("nothing is asked for: got %v, %v", obs, err)
	}
	if got := (&Options{}).setValues(); got != nil {
		t.Errorf("got %q", got)
	}
	if got := (&Options{Set: []string{"a=1", "b=2"}}).setValues(); !slices.Equal(got, []string{"a=1,b=2"}) {
		t.Errorf("got %q", got)
	}
	if w, err := (&Options{}).blisWriter(); w != nil || err != nil || w.close() != nil || w.writeRequest(0, nil) != nil {
		t.Error("BLIS's form is written that nobody asked for")
	}
}

// TestResultsInBLISsForm: a request under its number or, without one, its place; one without an answer is left out.
func TestResultsInBLISsForm(t *testing.T) {
	for _, c := range []struct {
		requests []sim.RequestResult
		want     string
	}{
		{nil, "[]\n"},
		{[]sim.RequestResult{
			{ID: "17", ArrivalUs: 100, FirstTokenUs: trace.Some[int64](130), FinishedUs: trace.Some[int64](170), DepartedUs: trace.Some[int64](190), Outcome: sim.OutcomeFinished, PromptTokens: 7, OutputTokens: 5, SLOClass: "batch"},
			{ID: "18", ArrivalUs: 100, FirstTokenUs: trace.Some[int64](130), Outcome: sim.OutcomeUnfinished},
			{ID: "chat-1", ArrivalUs: 200, FirstTokenUs: trace.Some[int64](211), FinishedUs: trace.Some[int64](211), DepartedUs: trace.Some[int64](212), Outcome: sim.OutcomeFinished, PromptTokens: 8, OutputTokens: 1},
		}, `[
 {"request_id":17,"ttft_us":30,"e2e_us":90,"input_tokens":7,"output_tokens":5,"slo_class":"batch","itl_mean_us":10},
 {"request_id":2,"ttft_us":11,"e2e_us":12,"input_tokens":8,"output_tokens":1}
]
`},
	} {
		dir := t.TempDir()
		w, err := (&Options{Out: dir, Format: "blis"}).blisWriter()
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.requests {
			if err := w.writeRequest(i, &c.requests[i]); err != nil {
				t.Error(err)
			}
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "blis_results.json")); err != nil || string(got) != c.want {
			t.Errorf("got %s, %v", got, err)
		}
	}
}

// TestNotesByHand: what is assumed of a deployment that states little, and of a load beyond it.
func TestNotesByHand(t *testing.T) {
	o := onL4(t)
	repo.Write(t, "model: {id: meta-llama/Llama-3.1-8B}\nhardware: {name: L4}\nvllm: {version: 0.24.0, max_num_seqs: 8, max_num_batched_tokens: 512, max_model_len: 400}\n", o.Deployment, "run.yaml")
	o.InputTokens, o.OutputTokens, o.Requests = 10, 2, 2
	s, err := New(t.Context(), &o)
	if err != nil {
		t.Fatal(err)
	}
	if want := s.assumed(); len(want) == 0 || len(s.notes) < len(want) {
		t.Errorf("got %v of %v", s.notes, want)
	}
	o.KVBlocks = 50
	if stated := s.assumed(); len(stated) >= len(s.notes) {
		t.Errorf("with the number of blocks stated: got %v", stated)
	}
	slow := &Simulation{Step: &library.Step{Family: "f"}, Trust: &Trust{Contradictions: []string{"x", "y"}}, o: &o}
	if slow.MarkSaturated(); !strings.HasSuffix(slow.Trust.Sentence, "; x; y") || len(slow.Trust.Contradictions) != 2 {
		t.Errorf("got %+v", slow.Trust)
	}
	plain := &Simulation{Step: &library.Step{Family: "f"}, Trust: &Trust{}, o: &o}
	if plain.MarkSaturated(); strings.HasSuffix(plain.Trust.Sentence, "; ") || plain.Trust.Contradictions != nil {
		t.Errorf("got %+v", plain.Trust)
	}
	for name, change := range map[string]func(o *Options){"alpha": func(o *Options) { o.Model, o.Alpha = "blackbox", "x" }, "coefficients": func(o *Options) { o.Model, o.Coefficients = ModelPhysics, filepath.Join(t.TempDir(), "none.yaml") },
		"library": func(o *Options) { o.Model, o.Library = ModelTables, filepath.Join(t.TempDir(), "none") }, "deployment": func(o *Options) { o.Deployment = filepath.Join(t.TempDir(), "none") }} {
		own := o
		change(&own)
		if s, err := New(t.Context(), &own); err == nil || s != nil && name != "alpha" {
			t.Errorf("%s: got %v, %v", name, s, err)
		}
	}
	d := (&Simulation{o: &o, Deployment: testkit.Small(10), notes: []trace.Finding{{Message: "a"}}}).Document([]*Replication{{Summary: &Summary{Steps: 3}, Findings: []trace.Finding{{Message: "b"}}}})
	if d.Replications != 1 || d.Steps != 3 || len(d.Intervals) != 0 || fmt.Sprint(d.Warnings) != fmt.Sprint([]trace.Finding{{Message: "a"}, {Message: "b"}}) || d.SchemaVersion != "2" {
		t.Errorf("got %+v", d)
	}
}

// TestLoadOptionsByHand: each option of the load just inside and just outside of what it may be.
func TestLoadOptionsByHand(t *testing.T) {
	point := func(change func(o *Options)) Options {
		o := DefaultOptions()
		o.InputTokens, o.OutputTokens = 10, 5
		change(&o)
		return o
	}
	file := func(change func(o *Options)) Options {
		o := DefaultOptions()
		o.Workload = "w.yaml"
		change(&o)
		return o
	}
	inf := math.Inf(1)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{DefaultOptions(), "simulate: missing --workload FILE or RUNDIR, or --input-len and --output-len"},
		{point(func(o *Options) {}), ""}, {file(func(o *Options) {}), ""},
		{file(func(o *Options) { o.InputTokens = 1 }), "simulate: --workload and --input-len: got both, want one"},
		{file(func(o *Options) { o.OutputTokens = 1 }), "simulate: --workload and --input-len: got both, want one"},
		{point(func(o *Options) { o.InputTokens, o.OutputTokens = 1, 1 }), ""},
		{point(func(o *Options) { o.InputTokens = 0 }), "--input-len, --output-len: got 0 and 5, want both >= 1"},
		{point(func(o *Options) { o.OutputTokens = 0 }), "--input-len, --output-len: got 10 and 0, want both >= 1"},
		{file(func(o *Options) { o.RateScale = 0 }), "--rate-scale: got 0, want a finite number > 0"}, {file(func(o *Options) { o.RateScale = inf }), "--rate-scale: got +Inf, want a finite number > 0"},
		{file(func(o *Options) { o.RateScale = 1e-9 }), ""},
		{point(func(o *Options) { o.RateRPS = 0 }), ""}, {point(func(o *Options) { o.RateRPS = -1 }), "--request-rate: got -1 per second, want a finite number >= 0"},
		{point(func(o *Options) { o.RateRPS = inf }), "--request-rate: got +Inf per second, want a finite number >= 0"},
		{point(func(o *Options) { o.RangeRatio = 0.99 }), ""}, {point(func(o *Options) { o.RangeRatio = 1 }), "--random-range-ratio: got 1, want >= 0 and < 1"},
		{point(func(o *Options) { o.RangeRatio = -0.1 }), "--random-range-ratio: got -0.1, want >= 0 and < 1"},
		{file(func(o *Options) { o.MaxRequests = -1 }), "--max-requests: got -1, want >= 0"}, {file(func(o *Options) { o.MaxRequests = 1 }), ""},
		{point(func(o *Options) { o.Requests = 0 }), fmt.Sprintf("--num-prompts: got 0, want 1 to %d", workload.MaxGenerated)}, {point(func(o *Options) { o.Requests = 1 }), ""},
		{point(func(o *Options) { o.Requests = workload.MaxGenerated }), ""},
		{point(func(o *Options) { o.Requests = workload.MaxGenerated + 1 }), fmt.Sprintf("--num-prompts: got %d, want 1 to %d", workload.MaxGenerated+1, workload.MaxGenerated)},
		{file(func(o *Options) { o.ThinkMs = -1 }), "--think-time-ms, --ramp-s: got -1 ms and 0 s, want finite numbers >= 0"}, {file(func(o *Options) { o.RampS = -1 }), "--think-time-ms, --ramp-s: got 0 ms and -1 s, want finite numbers >= 0"},
		{file(func(o *Options) { o.RampS = inf }), "--think-time-ms, --ramp-s: got 0 ms and +Inf s, want finite numbers >= 0"},
		{file(func(o *Options) { o.Phase = "p" }), ""}, {point(func(o *Options) { o.Phase = "p" }), "--phase: goes with a recorded run as --workload only"},
		{file(func(o *Options) { o.Concurrency = 1 }), ""}, {file(func(o *Options) { o.MaxConcurrency = 1 }), ""},
		{file(func(o *Options) { o.Concurrency = -1 }), "--concurrency, --max-concurrency: got -1 and 0, want one of them >= 1"}, {file(func(o *Options) { o.MaxConcurrency = -1 }), "--concurrency, --max-concurrency: got 0 and -1, want one of them >= 1"},
		{file(func(o *Options) { o.Concurrency, o.MaxConcurrency = 1, 1 }), "--concurrency, --max-concurrency: got 1 and 1, want one of them >= 1"},
		{point(func(o *Options) { o.Concurrency, o.RateRPS = 2, 3 }), "--request-rate, --concurrency: got 3 per second and 2 clients, want one of them"},
		{file(func(o *Options) { o.Concurrency, o.RateScale = 2, 3 }), "--rate-scale: got 3 with --concurrency 2, want it with open arrivals only"},
		{point(func(o *Options) { o.MaxConcurrency, o.RateRPS, o.RateScale = 2, 3, 2 }), ""},
		{file(func(o *Options) { o.SessionMode = "fixed" }), ""}, {file(func(o *Options) { o.SessionMode = "closed-loop" }), ""},
		{file(func(o *Options) { o.SessionMode = "open" }), `--session-mode: got "open", want fixed or closed-loop`},
		{file(func(o *Options) { o.SessionMode, o.Concurrency = "closed-loop", 1 }), "--session-mode closed-loop: got --concurrency too, want one closed loop"},
		{file(func(o *Options) { o.SessionMode, o.MaxConcurrency = "closed-loop", 1 }), "--session-mode closed-loop: got --concurrency too, want one closed loop"},
		{file(func(o *Options) { o.SessionMode, o.Concurrency = "fixed", 1 }), ""},
		{file(func(o *Options) { o.SessionMode, o.ThinkMs = "closed-loop", 5 }), ""}, {file(func(o *Options) { o.SessionMode, o.ThinkDist = "closed-loop", "constant:value=500ms" }), ""},
		{file(func(o *Options) { o.SessionMode, o.ThinkDist, o.ThinkMs = "closed-loop", "constant:value=500ms", 5 }), `--think-time-dist: got "constant:value=500ms", want it with --session-mode closed-loop and without --think-time-ms`},
		{file(func(o *Options) { o.Concurrency, o.ThinkDist = 1, "constant:value=500ms" }), `--think-time-dist: got "constant:value=500ms", want it with --session-mode closed-loop and without --think-time-ms`},
		{file(func(o *Options) { o.RampS = 1 }), "--think-time-ms, --ramp-s: got no closed loop, want --concurrency N with them"}, {file(func(o *Options) { o.ThinkMs = 1 }), "--think-time-ms, --ramp-s: got no closed loop, want --concurrency N with them"},
		{file(func(o *Options) { o.SessionMode, o.RampS = "closed-loop", 1 }), "--think-time-ms, --ramp-s: got no closed loop, want --concurrency N with them"},
		{file(func(o *Options) { o.Concurrency, o.RampS, o.ThinkMs = 1, 1, 1 }), ""},
		{file(func(o *Options) { o.RangeRatio = 0.5 }), "--random-range-ratio: got no --input-len, want it with it"}, {file(func(o *Options) { o.Requests++ }), "--num-prompts: got no --input-len, want it with it"},
		{file(func(o *Options) { o.RateRPS = 3 }), "--request-rate: got no --input-len, want it with it"},
	} {
		got := ""
		if err := c.o.checkLoad(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	for ms, want := range map[float64]int64{0: -1, 0.001: 1, 2.5: 2500} {
		o := Options{ThinkMs: ms}
		think, err := o.think(1)
		if got := int64(-1); err != nil || (think == nil) != (want < 0) || think != nil && think() != want {
			t.Errorf("%g ms: got %d, %v", ms, got, err)
		}
	}
	for _, c := range []struct {
		o    Options
		want bool
	}{
		{Options{Model: ModelPhysics}, true}, {Options{Model: ModelAuto}, false}, {Options{Model: ModelAuto, Coefficients: "c.yaml"}, true}, {Options{Model: ModelTables, Coefficients: "c.yaml"}, false},
		{Options{Model: ModelAuto, Coefficients: LibraryWord, Noise: "none"}, false}, {Options{Model: ModelPhysics, Coefficients: LibraryWord, Noise: "none"}, true},
		{Options{Model: ModelAuto, Coefficients: LibraryWord, Noise: "step"}, true}, {Options{Model: ModelAuto, Coefficients: LibraryWord, Noise: "none", SampleCoefficients: true}, true},
	} {
		if got := c.o.usesSet(); got != c.want {
			t.Errorf("%s, %q, %q: got %v", c.o.Model, c.o.Coefficients, c.o.Noise, got)
		}
	}
}
