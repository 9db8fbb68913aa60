package pipeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
)

// This file has a planted server, whose step times are those of known coefficients, and writes what the load
// clients of autumn 2026 would have recorded of it.

// stockBaseNs is the wall clock at the simulation's 0.
const stockBaseNs = int64(1_760_000_000e9)

// betweenUs is what passes between an iteration's end and the next one's begin, which elapsed leaves out.
const betweenUs = 200

// plantedRun is the run.yaml of the planted server.
const plantedRun = "name: run1\nmodel: {id: m, config: config.json}\nhardware: {name: H100-SXM-80GB}\nvllm: {version: 0.24.0, max_num_seqs: 128, " +
	"max_num_batched_tokens: 2048, kv_blocks_total_gpu: 27000, enable_prefix_caching: false, async_scheduling: false}\n"

// plantedLoad is what is sent to the planted server.
type plantedLoad struct {
	n                          int
	rate                       float64 // requests/s, Poisson
	prompt, output             float64 // medians of the lengths
	promptSpread, outputSpread float64 // standard deviations of their logarithms
	mostTokens                 int64   // of a length
	noise                      float64 // standard deviation of the step times, relative
	seed                       uint64
}

// stockLoad is the load of README's stock path: 400 prompts at 4 requests a second.
var stockLoad = plantedLoad{n: 400, rate: 4, prompt: 600, output: 100, promptSpread: 0.8, outputSpread: 0.7, mostTokens: 4000, noise: 0.02, seed: 400}

// plantedRequest is a request of a planted server as the server and its client saw it, us from the start.
type plantedRequest struct {
	prompt, output        int64
	sentUs                int64
	chunksUs              []int64 // arrival of each token at the client
	queuedUs, scheduledUs int64
	firstUs, lastUs       int64 // tokens in the engine
}

// plantedRecording is what a planted server logged and what it did to each request.
type plantedRecording struct {
	log      string
	spans    string // the same requests and steps as the tracing fork writes them
	requests []plantedRequest
}

// stockLog notes what an unmodified engine logs of its iterations, and when each request has its tokens.
type stockLog struct {
	lines  strings.Builder
	index  int
	tokens map[int][]int64 // by request, us
}

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

// bothRecorders are the log and the spans of one server.
type bothRecorders struct {
	log  *stockLog
	dump *sim.Dump
}

func (b bothRecorders) Step(v *sim.StepView) {
	b.log.Step(v)
	b.dump.Step(v)
}

func (b bothRecorders) Event(e *sim.Event) { b.dump.Event(e) }

// stockLogHead is what the planted server logs as it starts.
const stockLogHead = "(APIServer pid=7) INFO 10-09 08:53:20 [api_server.py:1] vLLM API server version 0.24.0\n" +
	"(APIServer pid=7) INFO 10-09 08:53:20 [api_utils.py:286] non-default args: {'model': 'm', 'enable_logging_iteration_details': True, " +
	"'max_num_batched_tokens': 2048, 'max_num_seqs': 128, 'async_scheduling': False}\n" +
	"(APIServer pid=7) INFO 10-09 08:53:21 [model.py:1510] Using max model len 8192\n" +
	"(APIServer pid=7) INFO 10-09 08:53:21 [scheduler.py:205] Chunked prefill is enabled with max_num_batched_tokens=2048.\n" +
	"(EngineCore_DP0 pid=8) INFO 10-09 08:53:30 [core.py:77] Initializing a V1 LLM engine (v0.24.0) with config: model='m', " +
	"dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1, " +
	"quantization=None, enforce_eager=False, kv_cache_dtype=auto, device_config=cuda, enable_prefix_caching=False, " +
	"enable_chunked_prefill=True\n" +
	"(EngineCore_DP0 pid=8) INFO 10-09 08:54:10 [kv_cache_utils.py:1229] GPU KV cache size: 432,016 tokens\n"

// plantedDir makes a run folder with the planted server's model and run.yaml.
func plantedDir(t *testing.T) (string, *deploy.Deployment) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run1")
	demo := filepath.Join(repo.Root(t), "testdata", "traces", "demo", "b200-llama-3.1-8b-tp1")
	repo.Write(t, repo.Read(t, demo, "config.json"), dir, "config.json")
	repo.Write(t, plantedRun, dir, "run.yaml")
	dep, err := deploy.LoadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, dep
}

// recordPlanted sends a load to the planted server.
func recordPlanted(t *testing.T, dep *deploy.Deployment, load plantedLoad) *plantedRecording {
	t.Helper()
	set := testkit.PlantedOn(dep)
	steps, err := sim.NewPhysics(set, dep)
	if err != nil {
		t.Fatal(err)
	}
	overhead, err := sim.NewAlphaDelay(set, coeff.Overhead, dep)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(4, load.seed))
	requests := make([]sim.Request, load.n)
	at := 0.0
	for i := range requests {
		at += rng.ExpFloat64() / load.rate
		length := func(median, spread float64) int64 {
			return int64(math.Min(float64(load.mostTokens), math.Max(4, median*math.Exp(spread*rng.NormFloat64()))))
		}
		requests[i] = sim.Request{ArrivalUs: int64(1e6 * at), PromptTokens: length(load.prompt, load.promptSpread),
			OutputTokens: length(load.output, load.outputSpread)}
	}
	cfg := sim.DefaultConfig(dep, steps)
	cfg.Overhead = overhead
	half := math.Sqrt(3) * load.noise
	q := []sim.Quantile{{Q: 0, Ratio: 1 - half}, {Q: 1, Ratio: 1 + half}}
	cfg.Noise = &sim.Noise{Decode: q, Prefill: q, Mixed: q}
	log := &stockLog{tokens: map[int][]int64{}}
	var spans bytes.Buffer
	dump, err := sim.NewDump(&spans, nil, dep, requests, sim.DefaultDumpOptions(dep))
	if err != nil {
		t.Fatal(err)
	}
	res, err := sim.Run(cfg, requests, bothRecorders{log, dump})
	if err != nil {
		t.Fatal(err)
	}
	if err := dump.Close(res.Steps); err != nil {
		t.Fatal(err)
	}
	out := &plantedRecording{spans: spans.String()}
	for i := range requests {
		done := &res.Requests[i]
		p := plantedRequest{
			prompt:      requests[i].PromptTokens,
			output:      int64(len(log.tokens[i])),
			sentUs:      requests[i].ArrivalUs,
			queuedUs:    done.QueuedUs.V,
			scheduledUs: done.ScheduledUs.V,
			firstUs:     done.FirstTokenUs.V,
			lastUs:      done.FinishedUs.V,
		}
		last := p.sentUs
		for _, us := range log.tokens[i] {
			us = max(last+1, us+500+rng.Int64N(200)) // to the client
			p.chunksUs = append(p.chunksUs, us)
			last = us
		}
		out.requests = append(out.requests, p)
	}
	out.log = stockLogHead + log.lines.String()
	return out
}

// recordedAs is what a client recorded of a planted server, and what it left out.
type recordedAs struct {
	usage    bool    // the answers have usage, so the server's own counts
	template int64   // tokens of the chat template, which the server alone counts
	hidden   float64 // share of each answer, its beginning, that the client does not see (reasoning)
	metrics  bool    // the answers have vLLM's metrics
	missing  int     // the request that the client's file lacks, by its place from 1
	every    int     // it lacks every so many more, from that one on; 0: no other
}

// isMissing reports whether the client's file lacks the i-th request, from 0.
func (as recordedAs) isMissing(i int) bool {
	i -= as.missing - 1
	return as.missing > 0 && (i == 0 || i > 0 && as.every > 0 && i%as.every == 0)
}

// clientView is a request as a client recorded it: what it saw and, with usage, the server's counts.
type clientView struct {
	plantedRequest
	id             int
	prompt, output int64 // as the client states them
}

// view returns the requests as a client recorded them.
func (p *plantedRecording) view(as recordedAs) []clientView {
	var out []clientView
	for i, r := range p.requests {
		if as.isMissing(i) {
			continue
		}
		v := clientView{plantedRequest: r, id: i, prompt: r.prompt, output: r.output}
		v.chunksUs = r.chunksUs[int(as.hidden*float64(len(r.chunksUs))):]
		if !as.usage {
			v.prompt -= as.template
			v.output = int64(len(v.chunksUs))
		}
		out = append(out, v)
	}
	return out
}

// monotonicS is a stamp on the client's monotonic clock, s.
func monotonicS(us int64) float64 { return 1000 + float64(us)/1e6 }

// wallS is a stamp on the wall clock, s.
func wallS(us int64) float64 { return float64(stockBaseNs)/1e9 + float64(us)/1e6 }

// gapsS returns the times between the chunks of an answer, s.
func (v *clientView) gapsS() []float64 {
	gaps := []float64{}
	for k := 1; k < len(v.chunksUs); k++ {
		gaps = append(gaps, float64(v.chunksUs[k]-v.chunksUs[k-1])/1e6)
	}
	return gaps
}

// metrics returns vLLM's metrics of a request.
func (v *clientView) metrics() map[string]any {
	m := map[string]any{
		"queue_time_ms":          float64(v.scheduledUs-v.queuedUs) / 1e3,
		"time_to_first_token_ms": float64(v.firstUs-v.scheduledUs) / 1e3,
		"generation_time_ms":     float64(v.lastUs-v.firstUs) / 1e3,
	}
	if v.plantedRequest.output > 1 {
		m["mean_itl_ms"] = float64(v.lastUs-v.firstUs) / 1e3 / float64(v.plantedRequest.output-1)
	}
	return m
}

// plantedClient is a client that records a planted server: the name of its file and the text.
type plantedClient struct {
	name, file string
	write      func(views []clientView, as recordedAs) string
}

// plantedClients are the clients of autumn 2026.
var plantedClients = []plantedClient{
	{"vllm bench", "openai-4.0qps-m.json", writeVLLMBench},
	{"GuideLLM 0.8", "benchmarks.json", writeGuideLLM},
	{"AIPerf 0.13", "profile_export.jsonl", writeAIPerf},
	{"inference-perf", "per_request_lifecycle_metrics.json", writeInferencePerf},
	{"SGLang's client", "sglang.jsonl", writeSGLangBench},
	{"TraceV2", "trace.csv", writePlantedTraceV2},
}

// asJSON is a value as JSON.
func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// benchLists are the lists of vllm bench and SGLang's client, which began as a copy of it.
func benchLists(views []clientView) map[string]any {
	var inputs, outputs []int64
	var ttfts, starts []float64
	var itls [][]float64
	var failed []string
	for i := range views {
		v := &views[i]
		inputs = append(inputs, v.prompt)
		outputs = append(outputs, v.output)
		ttfts = append(ttfts, float64(v.chunksUs[0]-v.sentUs)/1e6)
		starts = append(starts, monotonicS(v.sentUs))
		itls = append(itls, v.gapsS())
		failed = append(failed, "")
	}
	return map[string]any{"input_lens": inputs, "output_lens": outputs, "ttfts": ttfts, "itls": itls, "start_times": starts, "errors": failed}
}

// writeVLLMBench is the result of `vllm bench serve --save-result --save-detailed`.
func writeVLLMBench(views []clientView, _ recordedAs) string {
	lists := benchLists(views)
	return fmt.Sprintf(`{"date":"20251009-080640","backend":"openai","model_id":"m","num_prompts":%d,"request_rate":4,"burstiness":1.0,`+
		`"max_concurrency":null,"completed":%d,"total_input_tokens":%d,"total_output_tokens":%d,%s`, len(views), len(views),
		sum(lists["input_lens"].([]int64)), sum(lists["output_lens"].([]int64)), asJSON(lists)[1:])
}

// writeSGLangBench is a line of `sglang.bench_serving --output-file --output-details`, which has no start times.
func writeSGLangBench(views []clientView, _ recordedAs) string {
	lists := benchLists(views)
	delete(lists, "start_times")
	duration := float64(views[len(views)-1].chunksUs[0]) / 1e6
	sumMs := 0.0 // from sending to the last chunk
	for i := range views {
		v := &views[i]
		sumMs += float64(v.chunksUs[len(v.chunksUs)-1]-v.sentUs) / 1e3
	}
	return fmt.Sprintf(`{"backend":"vllm","dataset_name":"random","request_rate":4.0,"max_concurrency":null,"duration":%g,"completed":%d,`+
		`"total_input_tokens":%d,"total_output_tokens":%d,"request_throughput":%g,"mean_e2e_latency_ms":%g,"accept_length":NaN,%s`+"\n", duration,
		len(views), sum(lists["input_lens"].([]int64)), sum(lists["output_lens"].([]int64)), float64(len(views))/duration, sumMs/float64(len(views)), asJSON(lists)[1:])
}

// writeGuideLLM is benchmarks.json of GuideLLM 0.8. Without usage it counts chunks.
func writeGuideLLM(views []clientView, as recordedAs) string {
	var list []any
	for i := range views {
		v := &views[i]
		first := v.chunksUs[0]
		last := v.chunksUs[len(v.chunksUs)-1]
		r := map[string]any{
			"type_": "generative", "request_id": fmt.Sprintf("r%d", v.id), "response_id": fmt.Sprintf("cmpl-%d", v.id),
			"request_type": "text_completions", "request_args": "{}", "output": "x",
			"request_start_time": wallS(v.sentUs), "request_end_time": wallS(last), "request_latency": float64(last-v.sentUs) / 1e6,
			"prompt_tokens": v.prompt, "output_tokens": v.output, "cached_tokens": nil,
			"time_to_first_token_ms": float64(first-v.sentUs) / 1e3, "time_to_first_output_token_ms": float64(first-v.sentUs) / 1e3,
			"inter_token_latency_ms": float64(last-first) / 1e3 / math.Max(1, float64(v.output-1)),
			"response_metrics":       nil,
			"info": map[string]any{"status": "completed", "error": nil, "timings": map[string]any{
				"request_start": wallS(v.sentUs), "first_request_iteration": wallS(first), "first_token_iteration": wallS(first),
				"first_output_token_iteration": wallS(first), "last_token_iteration": wallS(last), "request_iterations": len(v.chunksUs),
				"token_iterations": len(v.chunksUs), "request_end": wallS(last)}},
		}
		if as.metrics {
			r["response_metrics"] = v.metrics()
		}
		list = append(list, r)
	}
	return asJSON(map[string]any{"metadata": map[string]any{"version": 1, "guidellm_version": "0.8.1"}, "config": map[string]any{},
		"benchmarks": []any{map[string]any{"type_": "generative_benchmark", "config": map[string]any{"strategy": map[string]any{"type_": "poisson", "rate": 4}},
			"requests": map[string]any{"successful": list, "errored": []any{}, "incomplete": []any{}}}}, "conclusions": []any{}})
}

// writeAIPerf is profile_export.jsonl of AIPerf 0.13.
func writeAIPerf(views []clientView, as recordedAs) string {
	var b strings.Builder
	for i := range views {
		v := &views[i]
		last := v.chunksUs[len(v.chunksUs)-1]
		ms := func(x float64) map[string]any { return map[string]any{"value": x, "unit": "ms"} }
		count := func(n int64) map[string]any { return map[string]any{"value": n, "unit": "tokens"} }
		var gapsMs []float64
		for _, gap := range v.gapsS() {
			gapsMs = append(gapsMs, 1e3*gap)
		}
		metrics := map[string]any{
			"time_to_first_token": ms(float64(v.chunksUs[0]-v.sentUs) / 1e3),
			"request_latency":     ms(float64(last-v.sentUs) / 1e3),
			// The client counts its own text, without the template, and the text that it saw, and derives the latency from that.
			"inter_token_latency":    ms(float64(last-v.chunksUs[0]) / 1e3 / math.Max(1, float64(len(v.chunksUs)-1))),
			"input_sequence_length":  count(v.plantedRequest.prompt - as.template),
			"output_sequence_length": count(int64(len(v.chunksUs))),
		}
		if gapsMs != nil {
			metrics["inter_chunk_latency"] = map[string]any{"value": gapsMs, "unit": "ms"}
		}
		if as.usage {
			metrics["usage_prompt_tokens"] = count(v.prompt)
			metrics["usage_completion_tokens"] = count(v.output)
		}
		sent := stockBaseNs + 1000*v.sentUs
		b.WriteString(asJSON(map[string]any{"metadata": map[string]any{"session_num": v.id, "x_request_id": fmt.Sprintf("q%d", v.id),
			"conversation_id": fmt.Sprint(v.id), "turn_index": 0, "credit_issued_ns": sent - 40_000, "request_start_ns": sent,
			"request_ack_ns": sent + 300_000, "request_end_ns": stockBaseNs + 1000*last + 50_000, "worker_id": "w", "record_processor_id": "p",
			"benchmark_phase": "profiling", "was_cancelled": false}, "metrics": metrics, "error": nil}))
		b.WriteString("\n")
	}
	return b.String()
}

// writeInferencePerf is per_request_lifecycle_metrics.json.
func writeInferencePerf(views []clientView, as recordedAs) string {
	var list []any
	for i := range views {
		v := &views[i]
		var times []float64
		for _, us := range v.chunksUs {
			times = append(times, monotonicS(us))
		}
		response := map[string]any{"output_tokens": int64(len(times)), "output_token_times": times, "chunk_times": times}
		if as.usage {
			response["server_usage"] = map[string]any{"prompt_tokens": v.prompt, "completion_tokens": v.output, "total_tokens": v.prompt + v.output}
		}
		list = append(list, map[string]any{"start_time": monotonicS(v.sentUs), "end_time": times[len(times)-1] + 0.0001, "request": "{}",
			"response": "", "info": map[string]any{"request_metrics": map[string]any{"text": map[string]any{"input_tokens": v.plantedRequest.prompt - as.template}},
				"response_metrics": response}, "error": nil})
	}
	return asJSON(list)
}

// writePlantedTraceV2 is BLIS's TraceV2, header and rows in one file.
func writePlantedTraceV2(views []clientView, as recordedAs) string {
	var b strings.Builder
	b.WriteString("trace_version: 2\ntime_unit: us\nmode: real\nwarm_up_requests: 0\n---\n")
	b.WriteString("request_id,streaming,input_tokens,output_tokens,server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us," +
		"last_chunk_time_us,num_chunks,status\n")
	for i := range views {
		v := &views[i]
		server := int64(0)
		if as.usage {
			server = v.prompt
		}
		const base = stockBaseNs / 1000
		fmt.Fprintf(&b, "%d,true,%d,%d,%d,%d,%d,%d,%d,%d,ok\n", v.id, v.plantedRequest.prompt-as.template, v.output, server, base+v.sentUs, base+v.sentUs,
			base+v.chunksUs[0], base+v.chunksUs[len(v.chunksUs)-1], len(v.chunksUs))
	}
	return b.String()
}
