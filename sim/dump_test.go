package sim_test

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/internal/testkit/recordings"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// runYAML is a deployment with everything a replay needs.
const runYAML = `name: simulated
provenance: simulated
model: {id: tiny, config: config.json, dtype: bfloat16, kv_cache_dtype: bfloat16}
hardware: {name: H100, TFlopsPeak: 989.5, TFlopsFP8: 1979, BwPeakTBs: 3.35, memory_gb: 80, pcie_bandwidth_gb_s: 64, pcie_efficiency: 0.75, interconnect_bandwidth_gb_s: 900}
tensor_parallel_size: 1
pipeline_parallel_size: 1
data_parallel_size: 1
vllm: {version: 0.15.1, max_model_len: 4096, max_num_seqs: 8, max_num_batched_tokens: 256, enable_chunked_prefill: true, enable_prefix_caching: %t, block_size: 16,
  gpu_memory_utilization: 0.9, num_gpu_blocks_override: null, kv_blocks_total_gpu: %d, cpu_offloading: false, kv_blocks_total_cpu: 0, async_scheduling: %t, scheduling_policy: fcfs}
tracing: {journey_tracing_sample_rate: 1.0, step_tracing_sample_rate: 1.0, step_tracing_rich_subsample_rate: 1.0, step_tracing_closure_interval: 20, otel_span_event_count_limit: %d, api: %s}
files: {traces: traces.jsonl, kv_events: %s}
`

const configJSON = `{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"intermediate_size":14336,"vocab_size":128256,"torch_dtype":"bfloat16","max_position_embeddings":8192}`

type affine struct{ a, b, c float64 }

func (m affine) StepUs(b *sim.Batch) (float64, error) {
	return m.a + m.b*float64(b.PrefillTokens) + m.c*float64(b.DecodeTokens), nil
}

// workloadOf is n requests that overlap, share prefixes, stop early and give up.
func workloadOf(n int) []sim.Request {
	rng := rand.New(rand.NewPCG(3, 4))
	reqs := make([]sim.Request, n)
	at := 0.0
	for i := range reqs {
		at += rng.ExpFloat64() * 20000
		out := 1 + rng.Int64N(60)
		reqs[i] = sim.Request{ArrivalUs: int64(at), PromptTokens: 1 + rng.Int64N(400), OutputTokens: out, MaxTokens: out + rng.Int64N(2)*7}
		if i%3 == 0 {
			reqs[i].Group = uint64(1 + i%4)
			reqs[i].GroupTokens = min(96, reqs[i].PromptTokens)
		}
		if i%17 == 5 {
			reqs[i].AbortAtUs = trace.Some(int64(at) + 40000)
			reqs[i].AbortKind = []sim.Outcome{sim.OutcomeAborted, sim.OutcomeFinished}[i%2]
		}
	}
	return reqs
}

// emitted is one simulated, recorded and extracted run.
type emitted struct {
	res  *sim.Result
	dump *sim.Dump
	run  *trace.Run
	dep  *deploy.Deployment
	reqs []sim.Request
}

func simulateAndExtract(t *testing.T, yaml string, reqs []sim.Request, mutate func(*sim.DumpOptions)) emitted {
	t.Helper()
	dir := t.TempDir()
	repo.Write(t, yaml, dir, "run.yaml")
	repo.Write(t, configJSON, dir, "config.json")
	dep, err := deploy.LoadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	traces := create(t, dir, "traces.jsonl")
	kv := create(t, dir, "kv_events.jsonl")
	opt := sim.DefaultDumpOptions(dep)
	if mutate != nil {
		mutate(&opt)
	}
	dump, err := sim.NewDump(traces, kv, dep, reqs, opt)
	if err != nil {
		t.Fatal(err)
	}
	cfg := sim.DefaultConfig(dep, affine{5000, 20, 100})
	cfg.Overhead = sim.Const(700)
	cfg.Egress = sim.Const(300)
	res, err := sim.Run(cfg, reqs, dump)
	if err != nil {
		t.Fatal(err)
	}
	if err := dump.Close(res.Steps); err != nil {
		t.Fatal(err)
	}
	traces.Close()
	kv.Close()
	return emitted{res: res, dump: dump, run: extracted(t, dir), dep: dep, reqs: reqs}
}

func create(t *testing.T, dir, name string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// extracted returns the one run of a folder, of which every record is kept.
func extracted(t *testing.T, dir string) *trace.Run {
	t.Helper()
	out := t.TempDir()
	r := recordings.Into(t, out, dir).Runs[0]
	if r.Records.Read != r.Records.Kept {
		t.Errorf("records read %d, kept %d: %v", r.Records.Read, r.Records.Kept, r.Records.Dropped)
	}
	run, err := table.Read(table.RunDir(out, r.ID))
	if err != nil {
		t.Fatal(err)
	}
	run.ID = r.ID
	return run
}

// What extract reads from an emitted dump is the simulated run: requests with
// all stamps, steps, and the same schedule when replayed.
func TestEmitExtractGivesTheRunBack(t *testing.T) {
	for _, c := range []struct {
		name          string
		caching, asyn bool
		blocks, limit int
		api, kv       string
	}{
		{"sync completions", false, false, 4000, 100000, "completions", "null"},
		{"async chat", false, true, 4000, 100000, "chat", "null"},
		{"sync prefix caching", true, false, 200, 100000, "chat", "kv_events.jsonl"},
		{"async prefix caching under pressure", true, true, 90, 100000, "completions", "kv_events.jsonl"},
		{"preemption", false, false, 70, 100000, "completions", "null"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := simulateAndExtract(t, fmt.Sprintf(runYAML, c.caching, c.blocks, c.asyn, c.limit, c.api, c.kv), workloadOf(120), nil)
			e.checkRequests(t)
			e.checkSteps(t)
			e.checkReplay(t, c.caching)
			if c.caching && len(e.run.KVEvents) == 0 {
				t.Error("no KV events")
			}
			if c.blocks < 100 && e.res.Preemptions == 0 {
				t.Error("the case was to preempt")
			}
		})
	}
}

func (e *emitted) checkRequests(t *testing.T) {
	t.Helper()
	byID := map[string]*trace.Request{}
	for i := range e.run.Requests {
		byID[e.run.Requests[i].CoreID.V] = &e.run.Requests[i]
	}
	opt := sim.DefaultDumpOptions(e.dep)
	ns := func(us trace.Opt[int64]) int64 { return opt.MonotonicNs + us.V*1000 }
	for i := range e.res.Requests {
		want := &e.res.Requests[i]
		got := byID[e.dump.CoreID(i)]
		if got == nil {
			t.Fatalf("request %d is missing", i)
		}
		pairs := []struct {
			name string
			got  trace.Opt[int64]
			want trace.Opt[int64]
			step trace.Opt[int64]
			at   int64
		}{
			{"arrived", got.ArrivedNs, trace.Some(want.ArrivalUs), trace.Opt[int64]{}, 0},
			{"queued", got.QueuedNs, want.QueuedUs, got.QueuedStep, want.QueuedStep},
			{"scheduled", got.ScheduledNs, want.ScheduledUs, got.ScheduledStep, want.ScheduledStep},
			{"first token", got.FirstTokenNs, want.FirstTokenUs, got.FirstTokenStep, want.FirstStep},
			{"finished", got.FinishedNs, want.FinishedUs, got.FinishedStep, want.FinishedStep},
		}
		for _, p := range pairs {
			if p.got.OK != p.want.OK || p.got.OK && math.Abs(float64(p.got.V-ns(p.want))) >= 2000 || p.step.OK && p.step.V != p.at {
				t.Errorf("request %d %s: got %v step %v, want %v step %d", i, p.name, p.got, p.step, p.want, p.at)
			}
		}
		if got.PromptTokens.V != want.PromptTokens || got.OutputTokens.V != want.OutputTokens || got.Preemptions.V != want.Preemptions ||
			got.FinishStatus.V != want.FinishStatus || got.Success.V != (want.Outcome == sim.OutcomeFinished) {
			t.Errorf("request %d: got %+v, want %+v", i, got, want)
		}
		if want.ScheduledUs.OK && got.CachedTokens.V != want.CachedTokens {
			t.Errorf("request %d: %d cached tokens, want %d", i, got.CachedTokens.V, want.CachedTokens)
		}
	}
}

func (e *emitted) checkSteps(t *testing.T) {
	t.Helper()
	if int64(len(e.run.Steps)) != e.res.Steps {
		t.Errorf("%d steps, want %d", len(e.run.Steps), e.res.Steps)
	}
	tokens := int64(0)
	for i := range e.run.Steps {
		s := &e.run.Steps[i]
		tokens += int64(s.ScheduledTokens)
		if i > 0 && s.TsStartNs <= e.run.Steps[i-1].TsStartNs || s.TsEndNs <= s.TsStartNs {
			t.Errorf("step %d starts at %d and ends at %d after one at %d", s.ID, s.TsStartNs, s.TsEndNs, e.run.Steps[max(0, i-1)].TsStartNs)
		}
	}
	if tokens != e.res.ScheduledTokens {
		t.Errorf("%d tokens, want %d", tokens, e.res.ScheduledTokens)
	}
}

// checkReplay replays the extracted run teacher-forced: same steps, same tokens.
func (e *emitted) checkReplay(t *testing.T, caching bool) {
	t.Helper()
	w, err := workload.ForceLater(e.run, e.dep)
	if err != nil {
		t.Fatal(err)
	}
	w.Under(e.dep.Engine.IsAsync())
	res, err := sim.Run(sim.DefaultConfig(e.dep, w.Timeline), w.Requests, nil)
	if err != nil {
		t.Fatal(err)
	}
	if caching { // cached tokens are taken from snapshots, but who shares blocks is not known
		return
	}
	if res.Steps != e.res.Steps || res.ScheduledTokens != e.res.ScheduledTokens || res.Preemptions != e.res.Preemptions {
		t.Errorf("replay: %d steps, %d tokens, %d preemptions, want %d, %d, %d",
			res.Steps, res.ScheduledTokens, res.Preemptions, e.res.Steps, e.res.ScheduledTokens, e.res.Preemptions)
	}
}

// Sampling and the event limit lose what the producer would lose, and say so.
func TestEmitSamplingAndLimit(t *testing.T) {
	yaml := fmt.Sprintf(runYAML, false, 4000, false, 128, "chat", "null")
	full := simulateAndExtract(t, yaml, workloadOf(150), func(o *sim.DumpOptions) { o.EventLimit = 100000 })
	some := simulateAndExtract(t, yaml, workloadOf(150), func(o *sim.DumpOptions) {
		o.JourneyRate = 0.5
		o.StepRate = 0.25
		o.RichRate = 0
		o.EventLimit = 100000
		o.ClosureInterval = 10
	})
	if n := len(some.run.Requests); n < 50 || n > 100 {
		t.Errorf("%d of 150 requests sampled at 0.5", n)
	}
	share := float64(len(some.run.Steps)) / float64(len(full.run.Steps))
	if math.Abs(share-0.25) > 0.03 || len(some.run.Snapshots) != 0 {
		t.Errorf("%.3f of the steps sampled at 0.25, %d snapshots", share, len(some.run.Snapshots))
	}
	lossy := simulateAndExtract(t, yaml, workloadOf(150), func(o *sim.DumpOptions) { o.EventLimit, o.ClosureInterval = 128, 100 })
	orphans := 0
	for i := range lossy.run.Snapshots {
		if lossy.run.Snapshots[i].Orphan {
			orphans++
		}
	}
	if len(lossy.run.Steps) >= len(full.run.Steps) || orphans == 0 {
		t.Errorf("limit 128: %d of %d steps, %d orphan snapshots", len(lossy.run.Steps), len(full.run.Steps), orphans)
	}
}

// TestTimesOfEmittedEvents: a dump has every time in the unit of its key: seconds under ts.monotonic and
// event.ts.monotonic, ns under ts.monotonic_ns and timeUnixNano, all of one clock.
func TestTimesOfEmittedEvents(t *testing.T) {
	dep := simulateAndExtract(t, fmt.Sprintf(runYAML, true, 200, false, 128, "chat", "kv_events.jsonl"), workloadOf(5), nil).dep
	reqs := workloadOf(5)
	opt := sim.DefaultDumpOptions(dep)
	var out strings.Builder
	dump, err := sim.NewDump(&out, io.Discard, dep, reqs, opt)
	if err != nil {
		t.Fatal(err)
	}
	res, err := sim.Run(sim.DefaultConfig(dep, affine{5000, 20, 100}), reqs, dump)
	if err != nil {
		t.Fatal(err)
	}
	if err := dump.Close(res.Steps); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, event := range regexp.MustCompile(`\{"timeUnixNano":"(\d+)","name":"(api|journey)\..*?\]`).FindAllStringSubmatch(out.String(), -1) {
		number := func(key, kind string) float64 {
			m := regexp.MustCompile(`"` + regexp.QuoteMeta(key) + `","value":\{"` + kind + `":"?([^"}]+)`).FindStringSubmatch(event[0])
			if m == nil {
				t.Fatalf("no %s in %s", key, event[0])
			}
			v, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		wall, err := strconv.ParseInt(event[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		want := float64(wall - opt.WallNs + opt.MonotonicNs)
		key := "event.ts.monotonic"
		if event[2] == "journey" {
			key = "ts.monotonic"
			if ns := number("ts.monotonic_ns", "intValue"); ns != want {
				t.Errorf("%s: got %.0f ns, want %.0f", event[0], ns, want)
			}
		}
		if seconds := number(key, "doubleValue"); math.Abs(seconds*1e9-want) > 1000 {
			t.Errorf("%s: got %g s, want %g", event[0], seconds, want/1e9)
		}
		seen[event[2]]++
	}
	if seen["api"] < 15 || seen["journey"] < 15 {
		t.Errorf("got %v events, want 15 or more of each kind", seen)
	}
}

// The same run and options give the same bytes.
func TestEmitIsDeterministic(t *testing.T) {
	text := fmt.Sprintf(runYAML, true, 200, false, 128, "chat", "kv_events.jsonl")
	dep := simulateAndExtract(t, text, workloadOf(40), nil).dep
	reqs := workloadOf(40)
	var out [2]strings.Builder
	for i := range out {
		dump, err := sim.NewDump(&out[i], &out[i], dep, reqs, sim.DefaultDumpOptions(dep))
		if err != nil {
			t.Fatal(err)
		}
		res, err := sim.Run(sim.DefaultConfig(dep, affine{5000, 20, 100}), reqs, dump)
		if err != nil {
			t.Fatal(err)
		}
		if err := dump.Close(res.Steps); err != nil {
			t.Fatal(err)
		}
	}
	if out[0].String() != out[1].String() || out[0].Len() == 0 {
		t.Error("two dumps of one run differ")
	}
}

// TestClosedLoopIsReproduced: a closed loop is simulated, recorded, extracted and
// replayed as a closed loop with the same coefficients: the clients are counted
// from the recording, and TTFT, ITL and E2E are distributed as they were. With
// step times 30 % too long E2E is 30 % too long; at the recorded arrivals, which
// do not wait for answers, the queue would run away.
func TestClosedLoopIsReproduced(t *testing.T) {
	for _, async := range []bool{false, true} {
		gen := workload.Generator{
			Requests: 400, Arrivals: workload.ArrivalSpec{Kind: "closed", Clients: 6, ThinkMs: 1, RampS: 0.05},
			Prompt: workload.LengthSpec{Kind: "lognormal", Mean: 200, Sigma: 0.8, Max: 900},
			Output: workload.LengthSpec{Kind: "lognormal", Mean: 30, Sigma: 0.7, Max: 100},
		}
		w, err := gen.Generate(3)
		if err != nil {
			t.Fatal(err)
		}
		e := simulateAndExtract(t, fmt.Sprintf(runYAML, false, 4000, async, 100000, "chat", "null"), w.Requests, nil)
		open, err := workload.FromRun(e.run, e.dep, workload.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		closed, err := workload.FromRun(e.run, e.dep, workload.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if c := closed.Concurrency(e.run); c.Clients != 6 || !c.IsClosed() {
			t.Errorf("async %t: got %+v, want 6 clients in a closed loop", async, c)
		}
		loop, err := closed.Reclose(e.run)
		if err != nil || loop.Clients != 6 {
			t.Fatalf("got %+v, %v, want 6 clients", loop, err)
		}
		replay := func(w *workload.Workload, slower float64) *sim.Result {
			cfg := sim.DefaultConfig(e.dep, affine{5000 * slower, 20 * slower, 100 * slower})
			cfg.Overhead = sim.Const(700)
			cfg.Egress = sim.Const(300)
			res, err := sim.Run(cfg, w.Requests, nil)
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		same := replay(closed, 1)
		for name, metric := range map[string]func(*sim.RequestResult) (float64, bool){
			"TTFT": (*sim.RequestResult).TTFTUs, "ITL": (*sim.RequestResult).ITLUs, "E2E": (*sim.RequestResult).E2EUs,
		} {
			if d := stat.KolmogorovSmirnov(values(e.res, metric), values(same, metric)).D; d > 0.03 {
				t.Errorf("async %t: %s KS %g, want at most 0.03", async, name, d)
			}
		}
		e2e := func(res *sim.Result) float64 { return stat.Median(values(res, (*sim.RequestResult).E2EUs)) }
		slower := e2e(replay(closed, 1.3)) / e2e(e.res)
		wrong := e2e(replay(open, 1.3)) / e2e(e.res)
		t.Logf("async %t: coefficients x1.3 give E2E x%.2f as a closed loop, x%.2f at recorded arrivals", async, slower, wrong)
		if math.Abs(slower-1.3) > 0.05 || wrong < 2 {
			t.Errorf("async %t: coefficients x1.3 give E2E x%.2f as a closed loop and x%.2f at recorded arrivals, want x1.3 and a runaway",
				async, slower, wrong)
		}
	}
}

func values(res *sim.Result, metric func(*sim.RequestResult) (float64, bool)) []float64 {
	var v []float64
	for i := range res.Requests {
		if x, ok := metric(&res.Requests[i]); ok {
			v = append(v, x)
		}
	}
	return v
}

// The roofline is the max of compute and bandwidth, phase by phase.
func TestRooflineIsTheMaximum(t *testing.T) {
	d := testkit.Llama8B()
	m, err := sim.NewRoofline(d)
	if err != nil {
		t.Fatal(err)
	}
	decode := sim.Batch{DecodeTokens: 8, DecodeReqs: 8, DecodeContext: 8 * 1000, KVRead: 8 * 1000, Running: 8}
	us, err := m.StepUs(&decode)
	if err != nil {
		t.Fatal(err)
	}
	weights := (32*(2*4096.0*(4096+1024)+3*4096*14336) + 4096*128256) * 2 / 3.35e12
	kv := 8000 * 2 * 32 * 1024 * 2.0 / 3.35e12
	if want := (weights + kv + 32*1e-5) * 1e6; math.Abs(us/want-1) > 1e-9 {
		t.Errorf("decode: got %g us, want %g: weights and KV at full bandwidth", us, want)
	}
	prefill := sim.Batch{PrefillTokens: 4000, PrefillReqs: 1, CausalWork: 4000 * 4001 / 2, KVRead: 4000, Running: 1}
	us, err = m.StepUs(&prefill)
	if err != nil {
		t.Fatal(err)
	}
	flops := 4000*32*(4*4096.0*(4096+1024)+6*4096*14336) + 2*4096*128256 + 4*4096*32*4000*4001/2
	if want := (flops/989.5e12 + 32*1e-5) * 1e6; math.Abs(us/want-1) > 1e-9 {
		t.Errorf("prefill: got %g us, want %g: FLOPs at peak", us, want)
	}
}

// An alpha that contains a wait is refused as a delay.
func TestWaitIsNeverADelay(t *testing.T) {
	set := testkit.Planted()
	set.Alpha = []coeff.AlphaModel{{Target: coeff.Admission, Coefficients: features.NewCoefficients(features.AlphaFeatures(features.V11))}}
	if _, err := sim.NewAlphaDelay(set, coeff.Admission, testkit.Llama8B()); err == nil {
		t.Error("the admission alpha was accepted as a delay")
	}
}

// Coefficients drawn from a covariance have it, and keep their signs.
func TestDrawBetaFollowsTheCovariance(t *testing.T) {
	set := testkit.Planted()
	n := len(set.Beta)
	set.Covariance = make([][]float64, n)
	for i := range set.Covariance {
		set.Covariance[i] = make([]float64, n)
	}
	set.Covariance[0][0] = 4e8
	set.Covariance[1][1] = 1e8
	set.Covariance[0][1] = 1.6e8
	set.Covariance[1][0] = 1.6e8
	rng := rand.New(rand.NewPCG(3, 3))
	var sxx, syy, sxy float64
	const draws = 20000
	for range draws {
		d, ok := sim.DrawBeta(set, rng)
		if !ok {
			t.Fatal("no covariance")
		}
		x := d.Beta[0].Value - set.Beta[0].Value
		y := d.Beta[1].Value - set.Beta[1].Value
		sxx += x * x / draws
		syy += y * y / draws
		sxy += x * y / draws
		if d.Beta[2].Value != set.Beta[2].Value {
			t.Fatal("a term without variance moved")
		}
	}
	if math.Abs(sxx/4e8-1) > 0.05 || math.Abs(syy/1e8-1) > 0.05 || math.Abs(sxy/1.6e8-1) > 0.05 {
		t.Errorf("covariance %g %g %g", sxx, syy, sxy)
	}
}

// TestLinear3CountsWhatItSays: computed tokens are those scheduled, KV tokens
// read the contexts including them.
func TestLinear3CountsWhatItSays(t *testing.T) {
	m, err := sim.NewLinear3([]float64{1000, 3, 0.5})
	if err != nil {
		t.Fatal(err)
	}
	b := sim.Batch{PrefillTokens: 100, DecodeTokens: 2, KVRead: 100 + 51 + 71}
	if us, err := m.StepUs(&b); err != nil || us != 1000+3*102+0.5*222 {
		t.Errorf("got %g us, %v, want %g", us, err, 1000+3*102+0.5*222)
	}
	for _, bad := range [][]float64{{1, 2}, {1, 2, math.NaN()}, {1, 2, -1}} {
		if _, err := sim.NewLinear3(bad); err == nil {
			t.Errorf("%v: got a model, want an error", bad)
		}
	}
}
