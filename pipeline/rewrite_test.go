package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// rewriting is how a run of the fork is told once more as an unmodified engine
// would tell it.
type rewriting struct {
	form     string // core, front or fpm
	precise  bool   // stamps of a collector, else vLLM's own seconds
	stamps   bool   // any at all
	clients  bool
	silent   bool // run.yaml does not say that scheduling is asynchronous
	stated   bool // run.yaml says that it is synchronous
	early    bool // an asynchronous engine has waited for a batch with prompts before it asks for its result
	version  string
	constant float64 // us between passes that elapsed leaves out
}

// wallOffset is the wall clock of the rewritten log at the run's monotonic zero.
const wallOffset = int64(1_760_000_000e9)

// rewritten is one line of the rewritten log.
type rewritten struct {
	step    *trace.Step
	id      int64 // of the step
	index   int64 // of the iteration: steps without tokens write no line, lost ones leave a gap
	endNs   int64 // when its line is written
	elapsed float64
	usage   float64
}

// passes turns the step table into lines. A pass takes from the start of its step to that of the next one;
// elapsed is that less the scheduler's own time and a constant. An asynchronous engine schedules the next
// step first, then waits for the result of this one and logs it (vllm/v1/engine/core.py:
// step_with_batch_queue()): its pass takes from the start of the next step to that of the one after, and
// elapsed is what is left of it once the next step is scheduled. If early is set, the engine already waits for a
// batch with prompts while it prepares the next batch: the line of the prompts has next to nothing, and a later one
// has the time as well (public logs of runs with long prompts).
func (w rewriting) passes(run *trace.Run, dep *deploy.Deployment) []rewritten {
	var out []rewritten
	lag := 0
	if w.form != "fpm" && dep.Engine.AsyncScheduling.V {
		lag = 1
	}
	empty := run.Steps[0].ID
	before := 0.0 // us of passes whose line does not have them
	for i := range run.Steps {
		s := &run.Steps[i]
		if s.ScheduledTokens == 0 {
			empty++
		}
		if s.ScheduledTokens == 0 || i+lag+1 >= len(run.Steps) {
			continue
		}
		from := &run.Steps[i+lag]
		to := &run.Steps[i+lag+1]
		cadence := float64(to.TsStartNs-from.TsStartNs) / 1000
		if to.ID != from.ID+1 {
			cadence = float64(from.DurationUs) + w.constant + 1000
		}
		elapsed := math.Max(20, cadence-float64(from.DurationUs)-w.constant)
		switch hasPrompts := s.PrefillTokens > s.NumPrefillReqs; {
		case w.early && lag > 0 && hasPrompts:
			before += elapsed
			elapsed = 30
		default:
			elapsed += before
			before = 0
		}
		out = append(out, rewritten{s, s.ID, s.ID - empty, from.TsStartNs + int64(cadence*1000), elapsed, to.KVUsage})
	}
	return out
}

// line is one iteration of a log.
func (w rewriting) line(p *rewritten) string {
	s := p.step
	at := time.Unix(0, p.endNs+wallOffset).UTC()
	counts := fmt.Sprintf("Iteration(%d): %d context requests, %d context tokens, %d generation requests, %d generation tokens, "+
		"iteration elapsed time: %.2f ms", p.index, int64(s.NumPrefillReqs), int64(s.PrefillTokens), int64(s.NumDecodeReqs), int64(s.DecodeTokens), p.elapsed/1000)
	stamp := "INFO " + at.Format("01-02 15:04:05 ")
	if !w.stamps {
		stamp = ""
	}
	text := "(EngineCore_DP0 pid=77) " + stamp + "[core.py:349] " + counts
	if w.form == "front" {
		text = "(APIServer pid=7) " + stamp + "[loggers.py:199] Engine 000: " + counts + fmt.Sprintf(", GPU KV cache usage: %.1f%%", 100*p.usage)
	}
	if w.precise {
		text = at.Format(time.RFC3339Nano) + " " + text
	}
	return text + "\n"
}

// fpmRecord is one record of a forward-pass trace; members are those of the batch.
func fpmRecord(p *rewritten, members []trace.Member) string {
	var prefills, decodes, tokens, kv, decodeKV int64
	var lengths []float64
	for _, m := range members {
		if m.IsDecode() {
			decodes += 1
			decodeKV += m.Computed
			continue
		}
		prefills += 1
		tokens += m.New
		kv += m.Computed
		lengths = append(lengths, float64(m.Prompt))
	}
	mean, variance := 0.0, 0.0
	for _, v := range lengths {
		mean += v / float64(len(lengths))
	}
	for _, v := range lengths {
		variance += (v - mean) * (v - mean) / float64(len(lengths))
	}
	sums := map[string]any{"num_prefill_requests": prefills, "sum_prefill_tokens": tokens, "var_prefill_length": variance,
		"sum_prefill_kv_tokens": kv, "num_decode_requests": decodes, "sum_decode_kv_tokens": decodeKV, "var_decode_kv_tokens": 0}
	b, err := json.Marshal(map[string]any{"timestamp": p.index, "event": map[string]any{"schema": "dynamo.fpm.trace.v1",
		"source": map[string]any{"producer_id": "p"}, "capture_mode": "full", "observed_at_unix_ms": (p.endNs + wallOffset) / 1e6,
		"fpm": map[string]any{"version": 1, "worker_id": "w", "dp_rank": 0, "counter_id": p.index, "wall_time": p.elapsed / 1e6,
			"scheduled_requests": sums}}})
	if err != nil {
		panic(err)
	}
	return string(b) + "\n"
}

// filesSection is what run.yaml says of recordings, cut from a copy.
var (
	filesSection = regexp.MustCompile(`(?m)^files:\n(?:[ -].*\n?)*`)
	asyncLine    = regexp.MustCompile(`(?m)^  async_scheduling: .*\n`)
	versionLine  = regexp.MustCompile(`(?m)^  version: .*\n`)
)

// folder writes a run as a folder of its own: description, model, log or trace, and
// what clients saw.
func (w rewriting) folder(t testing.TB, src string, run *trace.Run, dep *deploy.Deployment) string {
	t.Helper()
	dir := t.TempDir()
	text := repo.Read(t, src, "run.yaml")
	yaml := filesSection.ReplaceAllString(string(text), "")
	if w.silent {
		yaml = asyncLine.ReplaceAllString(yaml, "")
	}
	if w.stated {
		yaml = asyncLine.ReplaceAllString(yaml, "  async_scheduling: false\n")
	}
	if w.version != "" {
		yaml = versionLine.ReplaceAllString(yaml, "  version: \""+w.version+"\"\n")
	}
	config := repo.Read(t, src, "config.json")
	name := "server.log"
	var b strings.Builder
	passes := w.passes(run, dep)
	if w.form == "fpm" {
		name = "fpm.p.0.jsonl"
		steps, err := rows.Rebuild(run, dep, features.V11)
		if err != nil {
			t.Fatal(err)
		}
		batches := map[int64][]trace.Member{}
		if err := steps.Each(func(st *rows.Step, m []trace.Member) { batches[st.ID] = append([]trace.Member{}, m...) }); err != nil {
			t.Fatal(err)
		}
		for k := range passes {
			b.WriteString(fpmRecord(&passes[k], batches[passes[k].id]))
		}
	} else {
		b.WriteString("(APIServer pid=7) INFO 01-01 00:00:00 [api_server.py:1] vLLM API server version 0.15.1\n")
		for k := range passes {
			b.WriteString(w.line(&passes[k]))
		}
	}
	for name, text := range map[string]string{"run.yaml": yaml, "config.json": string(config), name: b.String()} {
		repo.Write(t, text, dir, name)
	}
	if w.clients {
		recorded := "client_requests.jsonl.zst"
		if text, err := os.ReadFile(filepath.Join(src, recorded)); err == nil {
			repo.Write(t, string(text), dir, recorded)
		} else {
			repo.Write(t, clientFile(run), dir, "client_requests.jsonl")
		}
	}
	return dir
}

// clientFile is what clients saw, or, where nobody recorded it, what they would
// have seen 3 ms behind the engine.
func clientFile(run *trace.Run) string {
	var b strings.Builder
	line := func(id string, send, first, last, prompt, output int64) {
		fmt.Fprintf(&b, `{"id":%q,"send_ns":%d,"first_chunk_ns":%d,"last_chunk_ns":%d,"end_ns":%d,"status":200,"usage":{"prompt_tokens":%d,`+
			`"completion_tokens":%d}}`+"\n", id, send, first, last, last, prompt, output)
	}
	for i := range run.Observed {
		if o := &run.Observed[i]; o.FirstChunkNs.OK && o.LastChunkNs.OK && o.SendNs.OK && o.OutputTokens.OK && o.N.Or(1) == 1 {
			line(o.ID, o.SendNs.V, o.FirstChunkNs.V, o.LastChunkNs.V, o.PromptTokens.V, o.OutputTokens.V)
		}
	}
	if b.Len() > 0 {
		return b.String()
	}
	const delay = 3_000_000
	for i := range run.Requests {
		if r := &run.Requests[i]; r.FirstTokenNs.OK && r.FinishedNs.OK && r.OutputTokens.OK {
			line(r.CoreID.V, r.ArrivedNs.Or(r.QueuedNs.V), r.FirstTokenNs.V+delay, r.FinishedNs.V+delay, r.PromptTokens.V, r.OutputTokens.V)
		}
	}
	return b.String()
}

// chunkLog notes the chunks that clients receive of a simulated engine.
type chunkLog struct {
	chunks map[int][]int64 // by request, us
	steps  int             // with work
	hidden int             // of them that deliver nothing
}

func (l *chunkLog) Step(v *sim.StepView) {
	if v.PrefillTokens+v.DecodeTokens == 0 {
		return
	}
	l.steps++
	delivered := false
	for _, m := range v.Members {
		if m.New > 0 && m.Computed+m.New >= m.Prompt {
			l.chunks[m.Request] = append(l.chunks[m.Request], v.EndUs)
			delivered = true
		}
	}
	if !delivered {
		l.hidden++
	}
}

func (l *chunkLog) Event(*sim.Event) {}

// recordChunks simulates a load and writes what a client of it would: TraceV2 and its
// chunk file, stamps of the wall clock, each chunk late by up to jitterUs.
func recordChunks(t *testing.T, dir string, dep *deploy.Deployment, set *coeff.Set, rate float64, n int, jitterUs float64) *chunkLog {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(10*rate), 7))
	reqs, at := make([]sim.Request, n), 0.0
	for i := range reqs {
		at += rng.ExpFloat64() / rate
		length := func(median, spread, most float64) int64 {
			return int64(math.Min(most, math.Max(4, median*math.Exp(spread*rng.NormFloat64()))))
		}
		reqs[i] = sim.Request{ArrivalUs: int64(1e6 * at), PromptTokens: length(600, 0.9, 6000), OutputTokens: length(60, 0.7, 400)}
	}
	steps, err := sim.NewPhysics(set, dep)
	if err != nil {
		t.Fatal(err)
	}
	overhead, err := sim.NewAlphaDelay(set, coeff.Overhead, dep)
	if err != nil {
		t.Fatal(err)
	}
	cfg := sim.DefaultConfig(dep, steps)
	cfg.Overhead = overhead
	log := &chunkLog{chunks: map[int][]int64{}}
	if _, err := sim.Run(cfg, reqs, log); err != nil {
		t.Fatal(err)
	}
	const base = int64(1_760_000_000e6)
	var rows, chunks bytes.Buffer
	rows.WriteString("request_id,streaming,input_tokens,output_tokens,server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us," +
		"last_chunk_time_us,num_chunks,status\n")
	chunks.WriteString("request_id,chunk_index,timestamp_us\n")
	for i := range reqs {
		var stamps []int64
		for k, us := range log.chunks[i] {
			us += base + 1500 + int64(jitterUs*rng.Float64())
			if k > 0 {
				us = max(us, stamps[k-1]+1)
			}
			stamps = append(stamps, us)
			fmt.Fprintf(&chunks, "%d,%d,%d\n", i, k, us)
		}
		sent := base + reqs[i].ArrivalUs
		n := reqs[i].PromptTokens
		fmt.Fprintf(&rows, "%d,true,%d,%d,%d,%d,%d,%d,%d,%d,ok\n", i, n, len(stamps), n, sent, sent, stamps[0],
			stamps[len(stamps)-1], len(stamps))
	}
	for name, text := range map[string]string{"trace.csv": rows.String(), "trace.itl.csv": chunks.String(),
		"trace.yaml": "trace_version: 2\ntime_unit: us\nmode: real\nwarm_up_requests: 0\n"} {
		repo.Write(t, text, dir, name)
	}
	return log
}

// chunkRun makes a run folder of the demo's deployment.
func chunkRun(t *testing.T, parent, name string) (string, *deploy.Deployment) {
	t.Helper()
	dir := filepath.Join(parent, name)
	demo := filepath.Join(repo.Root(t), "testdata", "traces", "demo", "b200-llama-3.1-8b-tp1")
	config := repo.Read(t, demo, "config.json")
	run := "name: " + name + "\nmodel: {id: m, config: config.json}\nhardware: {name: H100-SXM-80GB}\nvllm: {version: " +
		"0.15.1, max_num_seqs: 128, max_num_batched_tokens: 2048, enable_prefix_caching: false, kv_blocks_total_gpu: 27000, " +
		"async_scheduling: false}\n"
	for file, text := range map[string][]byte{"config.json": config, "run.yaml": []byte(run)} {
		repo.Write(t, text, dir, file)
	}
	dep, err := deploy.LoadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, dep
}

// TestStepsFromChunks: from the chunks of all clients at three loads the steps that
// delivered something are recovered, and their fit has the planted step times.
func TestStepsFromChunks(t *testing.T) {
	parent := t.TempDir()
	var truth *coeff.Set
	var dep *deploy.Deployment
	var logs []*chunkLog
	for _, rate := range []float64{2, 5, 8} {
		var dir string
		dir, dep = chunkRun(t, parent, fmt.Sprintf("r%g", rate))
		truth = testkit.PlantedOn(dep)
		logs = append(logs, recordChunks(t, dir, dep, truth, rate, 150, 300))
	}
	eo := DefaultExtractOptions()
	eo.Out = t.TempDir()
	ext, err := Extract(context.Background(), []string{parent}, eo)
	if err != nil {
		t.Fatal(err)
	}
	for i := range ext.Runs {
		r := &ext.Runs[i]
		n := r.Tables[table.Iterations]
		want := logs[i].steps - logs[i].hidden
		t.Logf("%s: %d of %d steps (%d more deliver nothing): %v", r.ID, n, want, logs[i].hidden, r.Warnings[len(r.Warnings)-1].Message)
		if float64(n) < 0.99*float64(want) {
			t.Errorf("%s: got %d steps, want 99 %% of %d: %v", r.ID, n, want, r.Warnings)
		}
	}
	o := DefaultFitOptions()
	o.Bootstraps = 50
	doc, err := Fit(context.Background(), eo.Out, o)
	if err != nil {
		t.Fatal(err)
	}
	if doc.Requests != nil {
		t.Fatal("the fit is from requests, want steps")
	}
	b, err := coefficientFile(doc, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := coeff.Load(bytes.NewReader(b), "coefficients.yaml", features.CheckSet)
	if err != nil {
		t.Fatal(err)
	}
	want := stepTimes(t, truth, dep)
	have := stepTimes(t, got, dep)
	for k := range want {
		off := have[k]/want[k] - 1
		t.Logf("batch %v: %.0f us, planted %.0f (%+.2f %%)", referenceBatches[k], have[k], want[k], 100*off)
		if math.Abs(off) > 0.01 {
			t.Errorf("batch %v: got %.0f us, want %.0f within 1 %%", referenceBatches[k], have[k], want[k])
		}
	}
}
