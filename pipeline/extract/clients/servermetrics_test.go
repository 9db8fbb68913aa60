package clients

import (
	"fmt"
	"strings"
	"testing"
)

// TestServerMetrics: what the server states of a request is read from each client's form, and the client's own waits
// never enter it.
func TestServerMetrics(t *testing.T) {
	const metrics = `{"queue_time_ms": 12.5, "time_to_first_token_ms": 40, "generation_time_ms": 90, "mean_itl_ms": 10, "tokens_per_second": 76.9}`
	const aiperf = `{"metadata":{"x_request_id":"a","credit_issued_ns":1793491199500000000,"request_start_ns":1793491200000000000,` +
		`"request_end_ns":1793491200160000000,"benchmark_phase":"profiling","was_cancelled":false},"metrics":{` +
		`"time_to_first_token":{"value":55,"unit":"ms"},"time_to_first_output_token":{"value":95,"unit":"ms"},"request_latency":{"value":145,"unit":"ms"},` +
		`"input_sequence_length":{"value":87,"unit":"tokens"},"output_sequence_length":{"value":9,"unit":"tokens"},` +
		`"usage_prompt_tokens":{"value":100,"unit":"tokens"},"usage_completion_tokens":{"value":10,"unit":"tokens"},` +
		`"usage_reasoning_tokens":{"value":4,"unit":"tokens"},"usage_prompt_cache_read_tokens":{"value":16,"unit":"tokens"}}}` + "\n"
	guide := `{"metadata":{"version":1},"config":{},"benchmarks":[{"type_":"generative_benchmark","config":{"strategy":{"type_":"constant"}},` +
		`"requests":{"successful":[{"request_id":"g","response_id":"cmpl-1","request_start_time":1793491200.0,"request_end_time":1793491200.145,` +
		`"request_latency":0.145,"request_dispatch_delay":0.5,"prompt_tokens":100,"output_tokens":10,"cached_tokens":16,` +
		`"time_to_first_token_ms":55,"time_to_first_output_token_ms":95,"response_metrics":` + metrics +
		`,"info":{"timings":{"token_iterations":10}}}],"errored":[],"incomplete":[]}}]}`
	own := `{"id":"c","send_ns":1000000000,"first_chunk_ns":1055000000,"last_chunk_ns":1145000000,"stream":true,"chunks":10,` +
		`"usage":{"prompt_tokens":100,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":16},"completion_tokens_details":{"reasoning_tokens":4}},` +
		`"metrics":` + metrics + "}\n"
	whole := strings.Replace(strings.Replace(own, "1055000000", "1145000000", 1), `"chunks":10`, `"chunks":1`, 1)
	bench := strings.TrimSuffix(benchFile(func(int, *float64, *[]float64) {}), "}") + `,"queue_times":[` + strings.Repeat("0.25,", 19) + "0.25]}"
	for name, c := range map[string]struct {
		file, text                       string
		queue, first, generation, client float64 // us; -1: unknown
		ttft, visible                    float64
		prompt, reasoning, cached        int64
	}{
		"ours":              {"client_requests.jsonl", own, 12500, 40000, 90000, -1, 55000, -1, 100, 4, 16},
		"ours in one chunk": {"client_requests.jsonl", whole, 12500, 40000, 90000, -1, 55000, -1, 100, 4, 16},
		"GuideLLM":          {"benchmarks.json", guide, 12500, 40000, 90000, 500000, 55000, 95000, 100, -1, 16},
		"AIPerf":            {"profile_export.jsonl", aiperf, -1, -1, -1, 500000, 55000, 95000, 100, 4, 16},
		"vllm bench":        {"bench.json", bench, -1, -1, -1, 250000, 40000, -1, 100, -1, -1},
	} {
		files := map[string]string{c.file: c.text}
		r := readFiles(t, files).Requests[0]
		got := fmt.Sprint(r.QueueUs.Or(-1), r.ServerTTFTUs.Or(-1), r.ServerGenUs.Or(-1), r.ClientWaitUs.Or(-1), r.TTFTUs.Or(-1), r.VisibleUs.Or(-1),
			r.PromptTokens.Or(-1), r.Reasoning.Or(-1), r.CachedTokens.Or(-1))
		want := fmt.Sprint(c.queue, c.first, c.generation, c.client, c.ttft, c.visible, c.prompt, c.reasoning, c.cached)
		if got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		if r.SendNs.V == 0 {
			t.Errorf("%s: no start", name)
		}
	}
}
