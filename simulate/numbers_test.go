package simulate

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// TestPartsThatNoServerHad: each part of a deployment that no measured server had is named.
func TestPartsThatNoServerHad(t *testing.T) {
	extra := func(pairs ...any) func(d *deploy.Deployment) {
		return func(d *deploy.Deployment) {
			for i := 0; i < len(pairs); i += 2 {
				d.Engine.Keep(pairs[i].(string), pairs[i+1])
			}
		}
	}
	for want, change := range map[string]func(d *deploy.Deployment){
		"":                                       func(*deploy.Deployment) {},
		"V0, the engine of vLLM before 0.8":      func(d *deploy.Deployment) { d.Engine.VLLMVersion = "0.7.3" },
		"pipeline stages":                        func(d *deploy.Deployment) { d.PP = 2 },
		"speculative decoding":                   func(d *deploy.Deployment) { d.Engine.SpeculativeDecoding = true },
		"copies to a CPU tier":                   func(d *deploy.Deployment) { d.Engine.CPUOffloading = true },
		"prefill apart from decode":              func(d *deploy.Deployment) { d.Transfer() },
		"the executor ray":                       extra("distributed_executor_backend", "ray"),
		"all-reduces without vLLM's own kernels": extra("disable_custom_all_reduce", true),
		"prompts in chunks of long_prefill_token_threshold":       func(d *deploy.Deployment) { d.Engine.LongPrefillThreshold = 1 },
		"experts that are rebalanced while the server runs":       extra("enable_eplb", true),
		"tokens that are streamed several at a time":              extra("stream_interval", 2),
		"--attention-backend FLASHINFER|--linear-backend cutlass": extra("attention_backend", "FLASHINFER", "linear_backend", "cutlass"),
	} {
		d := onH100(t)
		change(d)
		if got := strings.Join(unmeasuredParts(d), "|"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	d := onH100(t)
	extra("distributed_executor_backend", "mp", "disable_custom_all_reduce", true, "stream_interval", 1, "attention_backend", "AUTO", "linear_backend", 3)(d)
	if d.TP = 1; len(unmeasuredParts(d)) != 0 {
		t.Errorf("got %q", unmeasuredParts(d))
	}
}

// TestRoundsThatAreSentEarly: of two sessions of three rounds that are sent 20 ms apart, four rounds are sent before the round
// before them is answered; none where they wait for it.
func TestRoundsThatAreSentEarly(t *testing.T) {
	early := func(change func(o *Options)) (found []trace.Finding) {
		o := onL4(t)
		o.Workload = filepath.Join(o.Deployment, "sessions.csv")
		change(&o)
		repo.Write(t, sharedSessions, o.Workload)
		doc, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range doc.Warnings {
			if w.Code == workload.CodeIncomplete {
				found = append(found, w)
			}
		}
		return found
	}
	if got := early(func(*Options) {}); len(got) != 1 || got[0].Message != "4 rounds of sessions are sent at their recorded times, before the previous round is answered; session-mode closed-loop waits for it" {
		t.Errorf("got %v", got)
	}
	if got := early(func(o *Options) { o.SessionMode = sessionsClosed }); len(got) != 0 {
		t.Errorf("rounds that wait: got %v", got)
	}
	o := onL4(t)
	o.Workload, o.Phase = filepath.Join(o.Deployment, "sessions.csv"), "p"
	repo.Write(t, sharedSessions, o.Workload)
	if _, err := Run(t.Context(), o); err == nil || err.Error() != "--phase: goes with a recorded run as --workload only" {
		t.Errorf("got %v", err)
	}
}

// TestFilesOfASimulation: an overhead that is in no file, step times that fail, and what a deployment of two kinds of
// engines needs.
func TestFilesOfASimulation(t *testing.T) {
	example := filepath.Join(repo.Root(t), "coeff", "testdata", "example", "coefficients.yaml")
	simulated := func(change func(s *Simulation)) ([]trace.Finding, error) {
		o := onL4(t)
		o.Model, o.Coefficients = ModelAuto, example
		o.InputTokens, o.OutputTokens, o.Requests, o.RateRPS = 20, 2, 3, 1
		s, err := New(t.Context(), &o)
		if err != nil {
			t.Fatal(err)
		}
		change(s)
		runs, err := s.Replicate(s.runSeed)
		if err != nil {
			return nil, err
		}
		return runs[0].Findings, nil
	}
	without := func(s *Simulation) {
		own := *s.Set
		own.Alpha = slices.DeleteFunc(slices.Clone(own.Alpha), func(m coeff.AlphaModel) bool { return m.Target == coeff.Overhead })
		s.Set = &own
	}
	isNamed := func(found []trace.Finding) bool {
		return slices.ContainsFunc(found, func(f trace.Finding) bool {
			return f.Code == export.NotReplayable && strings.HasPrefix(f.Message, "the coefficient file has no overhead that a simulation may add")
		})
	}
	for name, c := range map[string]struct {
		change func(s *Simulation)
		want   bool
	}{
		"with an overhead": {func(*Simulation) {}, false}, "without": {without, true},
		"stated by an option": {func(s *Simulation) { without(s); s.o.OverheadUs = known(5) }, false},
	} {
		if found, err := simulated(c.change); err != nil || isNamed(found) != c.want {
			t.Errorf("%s: got %v, %v", name, found, err)
		}
	}
	o := onL4(t)
	o.InputTokens, o.OutputTokens, o.Requests, o.Transfers = 20, 2, 3, true
	s, err := New(t.Context(), &o)
	if err != nil || s.Deployment.Engine.Transfers() != vllm.PullConnector {
		t.Fatalf("got %v", err)
	}
	if _, err := s.Replicate(s.runSeed); trace.CodeOf(err) != vllm.UnsupportedEngine {
		t.Errorf("one kind of engine: got %v", err)
	}
	o.Coefficients = "c.yaml"
	bad := &trace.Error{Code: sim.CodeBadPrediction, Msg: "x"}
	if _, err := s.Replicate(func(int64, bool) (*Replication, error) { return nil, bad }); !errors.Is(err, bad) || err.Error() != "c.yaml: bad_prediction: x" {
		t.Errorf("got %v", err)
	}
	if o.Coefficients = ""; true {
		if _, err := s.Replicate(func(int64, bool) (*Replication, error) { return nil, bad }); err == nil || err.Error() != "bad_prediction: x" {
			t.Errorf("got %v", err)
		}
	}
	var seeds []int64
	o.Seed, o.Replications, o.Workers = 7, 3, 1
	if _, err := s.Replicate(func(seed int64, first bool) (*Replication, error) {
		if first != (seed == 7) {
			t.Errorf("seed %d: got first %v", seed, first)
		}
		seeds = append(seeds, seed)
		return &Replication{}, nil
	}); err != nil || !slices.Equal(seeds, []int64{7, 8, 9}) {
		t.Errorf("got %v, %v", seeds, err)
	}
	// The header of a trace stands beside it; another file of that name is none, and a damaged one is an error.
	dir := t.TempDir()
	const rows = "request_id,session_id,round_index,input_tokens,output_tokens,arrival_time_us\n0,,0,10,5,0\n1,,0,20,5,1000\n"
	for text, want := range map[string]int{"": 1, "trace_version: 2\n": 2, "a: 1\n": 1, "trace_version: 2\nx: [\n": -1} {
		repo.Write(t, rows, filepath.Join(dir, "w.csv"))
		if err := os.RemoveAll(filepath.Join(dir, "w.yaml")); err != nil {
			t.Fatal(err)
		}
		if text != "" {
			repo.Write(t, text, filepath.Join(dir, "w.yaml"))
		}
		w, draw, inputs, err := ReadWorkload(filepath.Join(dir, "w.csv"), false)
		if want < 0 {
			if err == nil {
				t.Errorf("%q: got no error", text)
			}
			continue
		}
		if err != nil || draw != nil || len(w.Requests) != 2 || len(inputs) != want {
			t.Errorf("%q: got %+v and %d inputs, %v", text, w, len(inputs), err)
		}
	}
	if _, _, _, err := ReadWorkload(filepath.Join(dir, "none"), false); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestPhasesOfClosedLoops: a recorded phase of clients that wait for answers is a closed loop again, unless the options state
// one, and a folder of two recordings is none.
func TestPhasesOfClosedLoops(t *testing.T) {
	traces := filepath.Join(repo.Root(t), "testdata", "traces")
	loaded := func(change func(o *Options)) (*Simulation, error) {
		o := DefaultOptions()
		o.Deployment, o.Out, o.Workload, o.Model = filepath.Join(traces, "smoke"), t.TempDir(), filepath.Join(traces, "smoke"), ModelRoofline
		change(&o)
		s, err := New(t.Context(), &o)
		if err != nil {
			t.Fatal(err)
		}
		s.Deployment.Phases = []deploy.Phase{{Load: deploy.LoadClosed}} // of the whole run
		if o.Seed == 7 {
			s.Deployment.Phases = []deploy.Phase{{Load: deploy.LoadOpen}, {Name: "other", Load: deploy.LoadClosed}}
		}
		return s, s.LoadWorkload()
	}
	notes := func(s *Simulation) (out []string) {
		for _, n := range s.notes {
			if n.Code == codeReclosed {
				out = append(out, n.Message)
			}
		}
		return out
	}
	s, err := loaded(func(*Options) {})
	if err != nil || len(notes(s)) != 1 || !strings.HasPrefix(notes(s)[0], `phase "" is a closed loop: `) || !strings.HasSuffix(notes(s)[0], " clients send when they are answered, not at the recorded moments") {
		t.Errorf("got %q, %v", notes(s), err)
	}
	if s, err := loaded(func(o *Options) { o.Concurrency = 3 }); err != nil || len(notes(s)) != 0 || s.load.loop.Clients != 3 {
		t.Errorf("got %q, %v", notes(s), err)
	}
	if s, err := loaded(func(o *Options) { o.Seed = 7 }); err != nil || len(notes(s)) != 0 { // only another phase is a closed loop
		t.Errorf("got %q, %v", notes(s), err)
	}
	// What is not known of recorded requests is stated beside the simulation.
	late := t.TempDir()
	for _, name := range []string{"config.json", "run.yaml", "traces.jsonl", "kv_events.jsonl"} {
		text, err := os.ReadFile(filepath.Join(traces, "smoke", name))
		if err != nil {
			t.Fatal(err)
		}
		repo.Write(t, strings.Replace(string(text), "api.ARRIVED", "api.OTHER", 2), filepath.Join(late, name))
	}
	if s, err := loaded(func(o *Options) { o.Workload, o.Seed = late, 7 }); err != nil || !slices.ContainsFunc(s.notes, func(f trace.Finding) bool {
		return f.Code == workload.CodeIncomplete && strings.HasPrefix(f.Message, "2 requests without ARRIVED: ")
	}) {
		t.Errorf("got %v, %v", s.notes, err)
	}
	var misuse *option.Misuse
	if _, err := loaded(func(o *Options) { o.Workload = filepath.Join(traces, "real") }); !errors.As(err, &misuse) || !strings.HasPrefix(misuse.Msg, "--workload: "+filepath.Join(traces, "real")+" holds ") || !strings.HasSuffix(misuse.Msg, " runs, want one") || !strings.HasPrefix(misuse.Hint, "give one of them, such as "+traces) {
		t.Errorf("got %v", err)
	}
}

// TestTablesOfAFile: kernel tables of a file are an input of the document, and what a set of coefficients adds to it.
func TestTablesOfAFile(t *testing.T) {
	s := &Simulation{o: &Options{}, Deployment: onH100(t), Inputs: []result.Input{{Name: "a"}}}
	set := &coeff.Set{SpecVersion: "1.1"}
	s.UseCoefficients(set, result.Input{Name: "b"})
	if s.Set != set || len(s.Inputs) != 2 || s.Inputs[1].Name != "b" || len(s.notes) != len(set.FileWarnings())+len(set.Outside(s.Deployment)) {
		t.Errorf("got %+v, %v", s.Inputs, s.notes)
	}
	// What is asked of the tables: the lengths and the rate of a drawn load, or a workload that has its own.
	for _, c := range []struct {
		o    Options
		want library.Asked
	}{
		{Options{Model: ModelTables, InputTokens: 11, OutputTokens: 12, Concurrency: 13, RateRPS: 14}, library.Asked{InputTokens: 11, OutputTokens: 12, Clients: 13, RateRPS: 14}},
		{Options{Model: ModelTables, Workload: "w", InputTokens: 11, RateRPS: 14}, library.Asked{Workload: true}},
	} {
		s, err := For(t.Context(), onH100(t), &c.o)
		if err != nil {
			t.Fatal(err)
		}
		if a := s.asked; a.InputTokens != c.want.InputTokens || a.OutputTokens != c.want.OutputTokens || a.Clients != c.want.Clients || a.RateRPS != c.want.RateRPS || a.Workload != c.want.Workload {
			t.Errorf("got %+v, want %+v", a, c.want)
		}
	}
	// What the tables themselves contradict is in the sentence, and a deployment that they cannot describe is refused.
	for tp, want := range map[int64]string{2: "", 8: "; rows slower than at tensor-parallel size 4: attention_decode ("} {
		d := onH100(t)
		d.TP = tp
		s, err := For(t.Context(), d, &Options{Model: ModelTables})
		if err != nil {
			t.Fatal(err)
		}
		if isNamed := want != ""; strings.HasSuffix(s.Trust.Sentence, "; ") || strings.Contains(s.Trust.Sentence, "; rows slower than ") != isNamed || !strings.Contains(s.Trust.Sentence, want) || len(s.Trust.Contradictions) > 0 != isNamed || s.Step == nil {
			t.Errorf("tp %d: got %q", tp, s.Trust.Sentence)
		}
	}
	uneven := onH100(t)
	uneven.TP = 3
	if _, err := For(t.Context(), uneven, &Options{Model: ModelTables}); err == nil || !strings.Contains(err.Error(), "tensor_parallel_size: got 3, want a divisor of 32 heads") {
		t.Errorf("got %v", err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "x.kernels")
	repo.Write(t, "no tables", path)
	if g, in, err := TablesFile(path, false); err == nil || g != nil || in.Name == "" || in.Bytes != 9 {
		t.Errorf("got %v, %+v, %v", g, in, err)
	}
}

// TestSummaryOfRequests: each count and rate, of requests with each outcome.
func TestSummaryOfRequests(t *testing.T) {
	at := trace.Some[int64]
	requests := func(start int64) []sim.RequestResult {
		served := sim.RequestResult{ArrivalUs: start + 1e6, QueuedUs: at(start + 1.1e6), ScheduledUs: at(start + 1.3e6), FirstTokenUs: at(start + 1.5e6), FinishedUs: at(start + 2e6), DepartedUs: at(start + 2.25e6),
			PromptTokens: 11, OutputTokens: 6, Outcome: sim.OutcomeFinished}
		long, capped, slow := served, served, served
		long.FinishStatus, long.SLOClass = trace.FinishLength, "gold"
		capped.FinishStatus, capped.LengthCapped, capped.SLOMet = trace.FinishLength, true, trace.Some(true)
		slow.FinishedUs, slow.SLOClass, slow.SLOMet = at(start+5e6), "gold", trace.Some(false)
		return []sim.RequestResult{served, long, capped, slow,
			{ArrivalUs: start + 5e5, QueuedUs: at(start + 6e5), PromptTokens: 100, Outcome: sim.OutcomeRejected, Reason: "too_long"},
			{ArrivalUs: start + 6e5, QueuedUs: at(start + 7e5), PromptTokens: 200, Outcome: sim.OutcomeAborted, DepartedUs: at(start + 6.5e6)},
			{ArrivalUs: start + 7e5, QueuedUs: at(start + 7e5), PromptTokens: 400, Outcome: sim.OutcomeTimedOut, Preemptions: 1},
			{ArrivalUs: start + 8e5, PromptTokens: 800, Outcome: sim.OutcomeUnfinished}}
	}
	res := &sim.Result{BusyUs: 1_500_000, HitBlocks: 1, NewBlocks: 3, HitTokens: 2, LookedUpTokens: 5, AcceptedTokens: 3, Verifies: 2, DraftTokens: 7, Steps: 21, EmptySteps: 22, WastedTokens: 23, PeakRunning: 24, PeakWaiting: 25, PeakBlocks: 26, Preemptions: 27}
	for _, c := range []struct {
		start int64
		end   float64
	}{{0, 5}, {2e15, 4.5}, {1e15 - 5e5, 4.5}, {1e15 - 5e5 - 1, 1e9 - 0.5 - 1e-6 + 5}} {
		col := NewCollector(nil)
		for _, r := range requests(c.start) {
			col.Add(&r)
		}
		s := col.Close(res)
		counts := []int64{int64(s.InjectedRequests), int64(s.CompletedRequests), int64(s.RejectedRequests), int64(s.Rejections["too_long"]), int64(s.AbortedRequests), int64(s.TimedOutRequests), int64(s.UnfinishedRequests), int64(s.LengthCappedRequests), int64(s.FinishedByMaxTokens),
			s.TotalInputTokens, s.CompletedInputTokens, s.TotalOutputTokens, s.Steps, s.EmptySteps, s.WastedTokens, s.PeakRunning, s.PeakWaiting, s.PeakBlocks, s.PreemptionCount, s.DraftTokens, s.AcceptedTokens}
		if want := []int64{8, 4, 1, 1, 1, 1, 1, 1, 1, 644, 44, 24, 21, 22, 23, 24, 25, 26, 27, 7, 3}; !slices.Equal(counts, want) {
			t.Errorf("got %v, want %v", counts, want)
		}
		for name, v := range map[string][2]float64{"end": {s.EndS, c.end}, "responses": {s.ResponsesPerSec, 4 / c.end}, "tokens": {s.TokensPerSec, 24 / c.end}, "goodput": {*s.GoodputRPS, 1 / c.end}, "duration": {s.DurationS, 6}, "busy": {s.BusyShare, 0.25},
			"blocks": {*s.CacheHitRate, 0.25}, "prompts": {*s.PromptCacheHitRate, 0.4}, "verify": {s.TokensPerVerify, 2.5}, "ttft": {*s.TTFTMeanMs, 500}, "e2e": {*s.E2EMeanMs, 1250}, "itl": {*s.RequestITLP50Ms, 100}, "delay": {*s.SchedulingMeanMs, 300}, "wait": {*s.QueueWaitMeanMs, 200}} {
			if math.Abs(v[0]-v[1]) > 1e-6*v[1] {
				t.Errorf("%s from %d on: got %.9g, want %.9g", name, c.start, v[0], v[1])
			}
		}
		if len(s.Classes) != 2 || s.Classes[0].Name != "" || s.Classes[0].Requests != 1 || s.Classes[0].Met != 1 || s.Classes[1].Name != "gold" || s.Classes[1].Requests != 2 || s.Classes[1].Judged != 1 || s.Classes[1].Met != 0 || s.Classes[1].Completed != 2 {
			t.Errorf("got %+v", s.Classes)
		}
	}
	col := NewCollector(nil)
	col.Add(&sim.RequestResult{ArrivalUs: 5, Outcome: sim.OutcomeUnfinished})
	if s := col.Close(&sim.Result{}); s.GoodputRPS != nil || s.CacheHitRate != nil || s.PromptCacheHitRate != nil || s.TokensPerVerify != 0 || s.DurationS != 0 || s.EndS != 0 || s.TTFTMeanMs != nil {
		t.Errorf("got %+v", s)
	}
}
