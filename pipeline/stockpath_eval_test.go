package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// stockLog notes what an unmodified engine logs of its iterations, and when clients receive their tokens.
type stockLog struct {
	rng    *rand.Rand
	lines  strings.Builder
	index  int
	tokens map[int][]int64 // by request, us
}

// stockBaseNs is the wall clock at the simulation's 0.
const stockBaseNs = int64(1_760_000_000e9)

// betweenUs is what passes between an iteration's end and the next one's begin, which elapsed leaves out.
const betweenUs = 200

func (l *stockLog) Step(v *sim.StepView) {
	if v.PrefillTokens+v.DecodeTokens == 0 {
		return
	}
	end := time.Unix(0, stockBaseNs+1000*v.EndUs).UTC()
	fmt.Fprintf(&l.lines, "(APIServer pid=7) INFO %s [loggers.py:199] Engine 000: Iteration(%d): %d context requests, %d context tokens, "+
		"%d generation requests, %d generation tokens, iteration elapsed time: %.2f ms, GPU KV cache usage: %.1f%%\n", end.Format("01-02 15:04:05"),
		l.index, v.PrefillReqs, v.PrefillTokens, v.DecodeReqs, v.DecodeTokens, float64(v.EndUs-v.StartUs-betweenUs)/1000, 1.0)
	l.index++
	for _, m := range v.Members {
		if m.New > 0 && m.Computed+m.New >= m.Prompt {
			l.tokens[m.Request] = append(l.tokens[m.Request], v.EndUs)
		}
	}
}

func (l *stockLog) Event(*sim.Event) {}

// stockRun writes the folder of README's stock path: the log of a planted server and the result of
// `vllm bench serve --save-result --save-detailed` of 400 prompts at 4 requests a second. Steps scatter by
// noise. run.yaml is of the server, but for what edit changes.
func stockRun(t *testing.T, noise float64, edit func(string) string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run1")
	demo := filepath.Join(repo.Root(t), "testdata", "traces", "demo", "b200-llama-3.1-8b-tp1")
	run := "name: run1\nmodel: {id: m, config: config.json}\nhardware: {name: H100-SXM-80GB}\nvllm: {version: 0.24.0, max_num_seqs: 128, " +
		"max_num_batched_tokens: 2048, kv_blocks_total_gpu: 27000, enable_prefix_caching: false, async_scheduling: false}\n"
	repo.Write(t, repo.Read(t, demo, "config.json"), dir, "config.json")
	repo.Write(t, run, dir, "run.yaml")
	dep, err := deploy.LoadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	set := testkit.PlantedOn(dep)
	steps, err := sim.NewPhysics(set, dep)
	if err != nil {
		t.Fatal(err)
	}
	overhead, err := sim.NewAlphaDelay(set, coeff.Overhead, dep)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(4, 400))
	const n, rate = 400, 4.0
	requests := make([]sim.Request, n)
	at := 0.0
	for i := range requests {
		at += rng.ExpFloat64() / rate
		length := func(median, spread float64) int64 {
			return int64(math.Min(4000, math.Max(4, median*math.Exp(spread*rng.NormFloat64()))))
		}
		requests[i] = sim.Request{ArrivalUs: int64(1e6 * at), PromptTokens: length(600, 0.8), OutputTokens: length(100, 0.7)}
	}
	cfg := sim.DefaultConfig(dep, steps)
	cfg.Overhead = overhead
	half := math.Sqrt(3) * noise
	q := []sim.Quantile{{Q: 0, Ratio: 1 - half}, {Q: 1, Ratio: 1 + half}}
	cfg.Noise = &sim.Noise{Decode: q, Prefill: q, Mixed: q}
	log := &stockLog{rng: rng, tokens: map[int][]int64{}}
	if _, err := sim.Run(cfg, requests, log); err != nil {
		t.Fatal(err)
	}
	var inputs, outputs []int64
	var ttfts, starts []float64
	var itls [][]float64
	var failed []string
	for i := range requests {
		sent := requests[i].ArrivalUs
		inputs = append(inputs, requests[i].PromptTokens)
		outputs = append(outputs, int64(len(log.tokens[i])))
		starts = append(starts, 1000+float64(sent)/1e6)
		gaps := []float64{}
		last := sent
		for k, us := range log.tokens[i] {
			us += 500 + rng.Int64N(200) // to the client
			if k == 0 {
				ttfts = append(ttfts, float64(us-sent)/1e6)
			} else {
				gaps = append(gaps, float64(max(1, us-last))/1e6)
			}
			last = us
		}
		itls = append(itls, gaps)
		failed = append(failed, "")
	}
	details, err := json.Marshal(map[string]any{"input_lens": inputs, "output_lens": outputs, "ttfts": ttfts, "itls": itls,
		"start_times": starts, "errors": failed})
	if err != nil {
		t.Fatal(err)
	}
	bench := fmt.Sprintf(`{"date":"20251009-080640","backend":"openai","model_id":"m","num_prompts":%d,"request_rate":%g,"burstiness":1.0,`+
		`"max_concurrency":null,"completed":%d,"total_input_tokens":%d,"total_output_tokens":%d,%s`, n, rate, n, sum(inputs), sum(outputs), details[1:])
	head := "(APIServer pid=7) INFO 10-09 08:53:20 [api_server.py:1] vLLM API server version 0.24.0\n" +
		"(APIServer pid=7) INFO 10-09 08:53:20 [api_utils.py:286] non-default args: {'model': 'm', 'enable_logging_iteration_details': True, " +
		"'max_num_batched_tokens': 2048, 'max_num_seqs': 128, 'async_scheduling': False}\n" +
		"(APIServer pid=7) INFO 10-09 08:53:21 [model.py:1510] Using max model len 8192\n" +
		"(APIServer pid=7) INFO 10-09 08:53:21 [scheduler.py:205] Chunked prefill is enabled with max_num_batched_tokens=2048.\n" +
		"(EngineCore_DP0 pid=8) INFO 10-09 08:53:30 [core.py:77] Initializing a V1 LLM engine (v0.24.0) with config: model='m', " +
		"dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1, " +
		"quantization=None, enforce_eager=False, kv_cache_dtype=auto, device_config=cuda, enable_prefix_caching=False, " +
		"enable_chunked_prefill=True\n" +
		"(EngineCore_DP0 pid=8) INFO 10-09 08:54:10 [kv_cache_utils.py:1229] GPU KV cache size: 432,016 tokens\n"
	repo.Write(t, head+log.lines.String(), dir, "server.log")
	repo.Write(t, bench, dir, "openai-4.0qps-m.json")
	repo.Write(t, edit(run), dir, "run.yaml")
	return dir
}

func sum(values []int64) (total int64) {
	for _, v := range values {
		total += v
	}
	return total
}

// stockPathLies are what run.yaml may state wrongly of the server whose log states it.
var stockPathLies = []struct{ name, from, to, setting string }{
	{"max_num_seqs 64 for 128", "max_num_seqs: 128", "max_num_seqs: 64", "vllm.max_num_seqs"},
	{"max_num_seqs 1024 for 128", "max_num_seqs: 128", "max_num_seqs: 1024", "vllm.max_num_seqs"},
	{"max_num_batched_tokens 512 for 2048", "max_num_batched_tokens: 2048", "max_num_batched_tokens: 512", "vllm.max_num_batched_tokens"},
	{"max_num_batched_tokens 8192 for 2048", "max_num_batched_tokens: 2048", "max_num_batched_tokens: 8192", "vllm.max_num_batched_tokens"},
	{"block_size 32 for 16", "async", "block_size: 32, async", "vllm.kv_blocks_total_gpu"}, // the log states tokens
	{"half of the KV blocks", "kv_blocks_total_gpu: 27000", "kv_blocks_total_gpu: 13500", "vllm.kv_blocks_total_gpu"},
	{"twice the KV blocks", "kv_blocks_total_gpu: 27000", "kv_blocks_total_gpu: 54000", "vllm.kv_blocks_total_gpu"},
	{"prefix caching on", "enable_prefix_caching: false", "enable_prefix_caching: true", "vllm.enable_prefix_caching"},
	{"chunked prefill off", "async", "enable_chunked_prefill: false, async", "vllm.enable_chunked_prefill"},
	{"scheduling by priority", "async", "scheduling_policy: priority, async", "vllm.scheduling_policy"},
	{"max_model_len 2048 for 8192", "async", "max_model_len: 2048, async", "vllm.max_model_len"},
	{"two GPUs", "vllm:", "tensor_parallel_size: 2\nvllm:", "tensor_parallel_size"},
}

// TestEvalStockPath: README's stock path, 400 prompts of a quiet planted server, passes; with a setting in run.yaml
// that the server's log states differently, the replay does not pass, and that setting is named.
func TestEvalStockPath(t *testing.T) {
	repo.NeedEval(t)
	judged := func(name string, edit func(string) string) *RunResult {
		dir := stockRun(t, 0.02, edit)
		o := DefaultRunOptions()
		o.Extract.Out = filepath.Join(t.TempDir(), "out")
		got, err := Run(context.Background(), []string{dir}, o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return nil
		}
		v := got.Validation
		fmt.Printf("  %s: %s for %v %v\n", name, v.Verdict, v.For, v.Missing)
		for _, g := range v.Gates {
			if g.Pass == nil && g.Required || g.Pass != nil && !*g.Pass {
				fmt.Printf("    gate %s %s: %s\n", g.Name, g.Scope, g.Note)
			}
		}
		return got
	}
	if honest := judged("as it was", func(run string) string { return run }); honest != nil && honest.Validation.Verdict != coeff.VerdictPass {
		t.Errorf("as it was: got %s, want pass", honest.Validation.Verdict)
	}
	// Elapsed times are then no step times, so that nothing can be fitted.
	dir := stockRun(t, 0.02, func(run string) string {
		return strings.Replace(run, "async_scheduling: false", "async_scheduling: true", 1)
	})
	o := DefaultRunOptions()
	o.Extract.Out = filepath.Join(t.TempDir(), "out")
	if _, err := Run(context.Background(), []string{dir}, o); err == nil || !strings.Contains(err.Error(), "scheduling is asynchronous by run.yaml") {
		t.Errorf("asynchronous scheduling: got %v, want an error that names it", err)
	}
	for _, c := range stockPathLies {
		got := judged(c.name, func(run string) string { return strings.Replace(run, c.from, c.to, 1) })
		if got == nil {
			continue
		}
		if verdict := got.Validation.VerdictFor(coeff.PurposeReplay, coeff.ScopeAll).Verdict; verdict == coeff.VerdictPass {
			t.Errorf("%s: the replay passes", c.name)
		}
		isNamed := slices.ContainsFunc(got.Extract.Runs[0].Warnings, func(w trace.Finding) bool { return w.Setting == c.setting })
		isReason := slices.ContainsFunc(got.Validation.Diagnoses, func(d result.Diagnosis) bool {
			return d.Cause == result.CauseStreams && strings.Contains(d.Sentence, c.setting)
		})
		if !isNamed || !isReason {
			t.Errorf("%s: named by the extraction %v, by a diagnosis %v, want both to name %s", c.name, isNamed, isReason, c.setting)
		}
	}
}

// TestEvalUnstatedSharing: the result file alone, of a server with prefix caching: it does not state what the
// prompts share, so that the replay is not judged, with the estimate and what to state in the reason; stated
// by the option, by run.yaml or by the file, it is.
func TestEvalUnstatedSharing(t *testing.T) {
	repo.NeedEval(t)
	nothing := int64(0)
	for name, c := range map[string]struct {
		option        *int64
		inRun, inFile bool
	}{
		"not stated":    {},
		"by the option": {option: &nothing},
		"by run.yaml":   {inRun: true},
		"by the file":   {inFile: true},
	} {
		dir := stockRun(t, 0.02, func(run string) string {
			if c.inRun {
				run += "client: {shared_prefix_tokens: 0}\n"
			}
			return run
		})
		if err := os.Remove(filepath.Join(dir, "server.log")); err != nil {
			t.Fatal(err)
		}
		if c.inFile { // vllm bench serve --metadata dataset_name=random
			file := filepath.Join(dir, "openai-4.0qps-m.json")
			repo.Write(t, strings.Replace(string(repo.Read(t, file)), `"burstiness"`, `"dataset_name":"random","burstiness"`, 1), file)
		}
		o := DefaultRunOptions()
		o.Extract.Out = filepath.Join(t.TempDir(), "out")
		o.Fit.From = fit.FromRequests.Name
		o.Fit.Shared = c.option
		o.Validate.SharedPrefix = c.option
		got, err := Run(context.Background(), []string{dir}, o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		v := got.Validation
		share := got.Fit.Requests.CachedShare
		why := ""
		for _, r := range v.Runs {
			why = cmp.Or(why, r.Undecided)
		}
		fmt.Printf("  %-14s %s; share %v; %s\n", name, v.Verdict, share, why)
		isStated := c.option != nil || c.inRun || c.inFile
		if (share == nil) != isStated || (why == "") != isStated || isStated == (v.Verdict == coeff.VerdictInsufficient) {
			t.Errorf("%s: got %s, share %v, undecided %q", name, v.Verdict, share, why)
		}
		if !isStated && (share.Low > 0 || !strings.Contains(why, share.String()) || !strings.Contains(why, "client or one of phases in run.yaml")) {
			t.Errorf("%s: got %v in %q, want the estimate and the key", name, share, why)
		}
	}
}
