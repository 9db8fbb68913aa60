package clients

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// benchRequests is a result of two requests with more keys, as `vllm bench serve` and SGLang write it.
func benchRequests(keys string) string {
	return `{` + keys + `"completed":2,"total_input_tokens":80,"total_output_tokens":10,"request_rate":2,"max_concurrency":null,` +
		`"input_lens":[40,40],"output_lens":[5,5],"ttfts":[0.1,0.1],"itls":[[0.1,0.1,0.1,0.1],[0.1,0.1,0.1,0.1]],"start_times":[1,2]}`
}

// guideRequests is a report of two requests with these arguments.
func guideRequests(args string) string {
	const request = `{"request_id":"%s","request_start_time":%d,"request_end_time":9,"request_latency":1,"prompt_tokens":40,"output_tokens":5,"time_to_first_token_ms":100}`
	return `{"metadata":{"guidellm_version":"0.8.1"},` + args + `,"benchmarks":[{"type_":"generative_benchmark","config":{"strategy":{"type_":"constant"}},` +
		`"requests":{"successful":[` + fmt.Sprintf(request, "a", 1) + "," + fmt.Sprintf(request, "b", 2) + `]}}]}`
}

// TestPromptsShare: what a client's file states of the prompts it sent, request by request.
func TestPromptsShare(t *testing.T) {
	const tracev2 = "request_id,prefix_group,prefix_length,input_tokens,output_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,status\n"
	rows := func(prefix string) string {
		return tracev2 + "0," + prefix + ",40,5,0,1000000,1100000,1500000,ok\n" + "1," + prefix + ",40,5,0,2000000,2100000,2500000,ok\n"
	}
	const growing = "trace_version: 3\nsession_context_growth: accumulate\n" +
		"request_id,session_id,round_index,prefix_group,prefix_length,input_tokens,output_tokens,arrival_time_us,send_time_us\n" +
		"0,s,0,,0,40,5,0,1000000\n1,s,1,,0,40,5,0,2000000\n"
	none := trace.Opt[int64]{}
	for name, c := range map[string]struct {
		text   string
		tokens trace.Opt[int64] // of the shared prefix
		group  bool
	}{
		"TraceV2 without prefixes":         {text: rows(",0"), tokens: trace.Some(int64(0))},
		"TraceV2 with prefixes":            {text: rows("g,16"), tokens: trace.Some(int64(16)), group: true},
		"TraceV2 whose sessions grow":      {text: growing, tokens: none},
		"vllm bench of stock":              {text: benchRequests(``), tokens: none},
		"vllm bench, random":               {text: benchRequests(`"dataset_name":"random",`), tokens: trace.Some(int64(0))},
		"vllm bench, random after a text":  {text: benchRequests(`"dataset_name":"random","random_prefix_len":"32",`), tokens: trace.Some(int64(32)), group: true},
		"vllm bench, sonnet":               {text: benchRequests(`"dataset_name":"sonnet",`), tokens: trace.Some(int64(200)), group: true},
		"vllm bench, sharegpt":             {text: benchRequests(`"dataset_name":"sharegpt",`), tokens: none},
		"vllm bench, ten prefixes":         {text: benchRequests(`"dataset_name":"prefix_repetition",`), tokens: none},
		"SGLang, random":                   {text: benchRequests(`"backend":"sglang","dataset_name":"random-ids","random_input_len":40,`), tokens: trace.Some(int64(0))},
		"SGLang, generated prefixes":       {text: benchRequests(`"backend":"sglang","dataset_name":"generated-shared-prefix",`), tokens: none},
		"GuideLLM 0.8, synthetic":          {text: guideRequests(`"config":{"data":[{"kind":"synthetic_text","prompt_tokens":40,"output_tokens":5}]}`), tokens: trace.Some(int64(0))},
		"GuideLLM 0.8, a bucket":           {text: guideRequests(`"config":{"data":[{"kind":"synthetic_text","prompt_tokens":40,"prefix_buckets":[{"prefix_tokens":9}]}]}`), tokens: trace.Some(int64(9)), group: true},
		"GuideLLM 0.8, many prefixes":      {text: guideRequests(`"config":{"data":[{"kind":"synthetic_text","prompt_tokens":40,"prefix_buckets":[{"prefix_tokens":9,"prefix_count":2}]}]}`), tokens: none},
		"GuideLLM 0.8, buckets":            {text: guideRequests(`"config":{"data":[{"kind":"synthetic_text","prompt_tokens":40,"prefix_buckets":[{"prefix_tokens":9},{"prefix_tokens":0}]}]}`), tokens: none},
		"GuideLLM 0.8, turns":              {text: guideRequests(`"config":{"data":[{"kind":"synthetic_text","prompt_tokens":40,"turns":3}]}`), tokens: none},
		"GuideLLM 0.4, pairs":              {text: guideRequests(`"args":{"target":"http://x","data":["prompt_tokens=40,output_tokens=5"]}`), tokens: trace.Some(int64(0))},
		"GuideLLM 0.3, JSON with a prefix": {text: guideRequests(`"args":{"request_loader":{"data":"{\"prompt_tokens\": 40, \"prefix_tokens\": 16}"}}`), tokens: trace.Some(int64(16)), group: true},
		"GuideLLM 0.6, Python's dict":      {text: guideRequests(`"args":{"data":["{'prefix_tokens': 16, 'prompt_tokens': 40, 'output_tokens': 5, 'prefix_buckets': None}"]}`), tokens: trace.Some(int64(16)), group: true},
		"GuideLLM 0.6, Python's list":      {text: guideRequests(`"args":{"requests":{"data":"[{'prompt_tokens': 40}]"}}`), tokens: trace.Some(int64(0))},
		"GuideLLM, several prefixes":       {text: guideRequests(`"args":{"data":["prompt_tokens=40,prefix_tokens=16,prefix_count=10"]}`), tokens: none},
		"GuideLLM, a file":                 {text: guideRequests(`"args":{"data":["prompts.jsonl"]}`), tokens: none},
	} {
		t.Run(name, func(t *testing.T) {
			file := "r.json"
			if strings.Contains(name, "TraceV2") {
				file = "r.csv"
			}
			r := readFiles(t, map[string]string{file: c.text})
			if len(r.Requests) != 2 {
				t.Fatalf("got %d requests, want 2", len(r.Requests))
			}
			for _, q := range r.Requests {
				if q.PrefixTokens != c.tokens || q.PrefixGroup.OK != c.group {
					t.Errorf("got %+v of group %+v, want %+v, a group %v", q.PrefixTokens, q.PrefixGroup, c.tokens, c.group)
				}
			}
		})
	}
}

// TestCachedTokensOfRequests: the server's counts in the results of SGLang, GuideLLM and AIPerf.
func TestCachedTokensOfRequests(t *testing.T) {
	aiperf := `{"metadata":{"x_request_id":"a","request_start_ns":1000000000,"request_end_ns":2000000000,"benchmark_phase":"profiling"},"metrics":{` +
		`"input_sequence_length":{"value":40,"unit":"tokens"},"output_sequence_length":{"value":5,"unit":"tokens"},` +
		`"usage_prompt_cache_read_tokens":{"value":16,"unit":"tokens"},"time_to_first_token":{"value":100,"unit":"ms"},"request_latency":{"value":500,"unit":"ms"}}}` + "\n"
	for name, text := range map[string]string{
		"SGLang":   benchRequests(`"cached_tokens":[16,0],`),
		"GuideLLM": strings.Replace(guideRequests(`"args":{}`), `"prompt_tokens":40`, `"prompt_tokens":40,"cached_tokens":16`, 1),
		"AIPerf":   aiperf,
	} {
		r := readFiles(t, map[string]string{"r.json": text})
		if got := r.Requests[0].CachedTokens; got != trace.Some(int64(16)) {
			t.Errorf("%s: got %+v cached tokens, want 16", name, got)
		}
	}
}

// TestCachedTokensOfLevels: cached tokens of a summary, as a sum, as a mean, by what the prompts share, or
// absent.
func TestCachedTokensOfLevels(t *testing.T) {
	inferencePerf := func(cached string) string {
		return `{"load_summary":{"requested_rate":2},"successes":{"count":50,"throughput":{"requests_per_sec":2},"prompt_tokens":{"mean":40,` + cached +
			`"total":2000},"output_tokens":{"mean":5},"latency":{"time_to_first_token":{"mean":0.1,"median":0.1},"time_per_output_token":{"mean":0.01},"request_latency":{"mean":0.14}}}}`
	}
	sglang := func(keys string) string {
		return `{` + keys + `"completed":50,"total_input_tokens":2000,"total_output_tokens":250,"request_rate":2,"max_concurrency":null,"request_throughput":2,` +
			`"mean_ttft_ms":100,"median_ttft_ms":100,"mean_tpot_ms":10,"mean_e2e_latency_ms":140}`
	}
	aiperf := func(more, config string) string {
		return `{` + more + `"request_count":{"unit":"requests","avg":50},"request_throughput":{"unit":"requests/sec","avg":2},` +
			`"input_sequence_length":{"unit":"tokens","avg":40},"output_sequence_length":{"unit":"tokens","avg":5},` +
			`"time_to_first_token":{"unit":"ms","avg":100,"p50":100},"inter_token_latency":{"unit":"ms","avg":10},"request_latency":{"unit":"ms","avg":140},` +
			`"input_config":{"loadgen":{"request_rate":2}` + config + `}}`
	}
	const unknown = -1.0
	for name, c := range map[string]struct {
		text string
		want float64 // mean cached tokens of a request
	}{
		"inference-perf, a sum":         {inferencePerf(`"cached":1000,"uncached":1000,`), 20},
		"inference-perf, a sum of 0":    {inferencePerf(`"cached":0.0,"uncached":2000,`), unknown},
		"inference-perf, absent":        {inferencePerf(``), unknown},
		"inference-perf, too many":      {inferencePerf(`"cached":9000,`), unknown},
		"SGLang, a sum":                 {sglang(`"dataset_name":"sharegpt","cache_report":{"total_cached_tokens":1000},`), 20},
		"SGLang, a sum of 0":            {sglang(`"dataset_name":"sharegpt","cache_report":{"total_cached_tokens":0},`), 0},
		"SGLang, counted before stated": {sglang(`"dataset_name":"random","cache_report":{"total_cached_tokens":1000},`), 20},
		"SGLang, random":                {sglang(`"dataset_name":"random",`), 0},
		"SGLang, absent":                {sglang(`"dataset_name":"sharegpt",`), unknown},
		"AIPerf, a mean":                {aiperf(`"usage_prompt_cache_read_tokens":{"unit":"tokens","avg":20},`, ``), 20},
		"AIPerf, a sum":                 {aiperf(`"total_usage_prompt_cache_read_tokens":{"unit":"tokens","avg":1000},`, ``), 20},
		"AIPerf, synthetic":             {aiperf(``, `,"input":{"prompt":{"input_tokens":{"mean":40}}}`), 0},
		"AIPerf, a system prompt":       {aiperf(``, `,"input":{"prompt":{"input_tokens":{"mean":40},"prefix_prompt":{"shared_system_prompt_length":16}}}`), 16},
		"AIPerf, a pool of prefixes":    {aiperf(``, `,"input":{"prompt":{"input_tokens":{"mean":40},"prefix_prompt":{"pool_size":8,"length":16}}}`), unknown},
		"AIPerf, conversations":         {aiperf(``, `,"input":{"prompt":{"input_tokens":{"mean":40}},"conversation":{"turn":{"mean":4}}}`), unknown},
		"AIPerf, a file":                {aiperf(``, `,"input":{"file":"x.jsonl","prompt":{"input_tokens":{"mean":40}}}`), unknown},
		"a table":                       {"input_tokens,output_tokens,concurrency,ttft_ms,tpot_ms,cached_tokens\n40,5,2,100,10,20\n", 20},
	} {
		f, err := ReadLevels(strings.NewReader(c.text), "levels")
		if err != nil || len(f.Levels) != 1 {
			t.Errorf("%s: got %d levels, %v", name, len(f.Levels), err)
			continue
		}
		point := f.Levels[0].LoadPoint()
		got := point.CachedTokens.V
		if !point.CachedTokens.OK {
			got = unknown
		}
		if math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: got %g cached tokens, want %g", name, got, c.want)
		}
	}
}

// TestPrefixOfAProfile: the synthetic data of a GuideLLM scenario state what prompts share; other files state nothing.
func TestPrefixOfAProfile(t *testing.T) {
	none := trace.Opt[int64]{}
	for text, want := range map[string]trace.Opt[int64]{
		"target: http://x\ndata:\n  prefix_tokens: 1024\n  prompt_tokens: 2048\n": trace.Some(int64(1024)),
		"data: {prompt_tokens: 2048}":              trace.Some(int64(0)),
		"data: prompt_tokens=2048,prefix_tokens=7": trace.Some(int64(7)),
		"data: {prompt_tokens: 2048, turns: 2}":    none,
		"data: {prefix_tokens: 1024}":              none,
		"data: prompts.jsonl":                      none,
		"default:\n  outputs: {}\n":                none,
		"- 1":                                      none,
		"data: [":                                  none,
		"":                                         none,
		"data: {prompt_tokens: 9}\ndata: {prefix_tokens: 1}": none,
	} {
		if got := ProfilePrefix([]byte(text)); got != want {
			t.Errorf("%q: got %+v, want %+v", text, got, want)
		}
	}
}
