package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// statedResult is a result of 100 requests of 0.5 s that were sent at 4 a second, with the totals that vLLM writes. With a limit
// they were sent at once, and that many ran.
func statedResult(limit int) map[string]any {
	const n = 100
	rng := rand.New(rand.NewPCG(4, 4))
	lists := map[string][]any{}
	var input, output int
	atS := 1000.0
	for i := range n {
		prompt, tokens := 50+i, 5+i%7
		gaps := make([]float64, tokens-1)
		for k := range gaps {
			gaps[k] = 0.4 / float64(tokens-1)
		}
		start := atS
		atS += rng.ExpFloat64() / 4
		if limit > 0 {
			start = 1000 + 0.5*float64(i/limit)
		}
		for key, v := range map[string]any{"input_lens": prompt, "output_lens": tokens, "ttfts": 0.1, "itls": gaps, "start_times": start, "errors": ""} {
			lists[key] = append(lists[key], v)
		}
		input += prompt
		output += tokens
	}
	doc := map[string]any{
		"model_id": "meta-llama/Llama-3.1-8B-Instruct", "num_prompts": n, "completed": n, "total_input_tokens": input, "total_output_tokens": output,
		"duration": 60.0, "mean_ttft_ms": 100.0, "mean_itl_ms": 0.4 * n / float64(output-n) * 1e3, "mean_e2el_ms": 500.0, "request_rate": 4.0,
		"burstiness": 1.0, "max_concurrency": nil,
	}
	for key, list := range lists {
		doc[key] = list
	}
	if limit > 0 {
		doc["request_rate"] = "inf"
		doc["max_concurrency"] = limit
	}
	return doc
}

// scale multiplies the numbers of a list.
func scale(list any, factor float64) any {
	out := []any{}
	for _, v := range list.([]any) {
		out = append(out, v.(float64)*factor)
	}
	return out
}

// TestBenchTotals: what a result states of itself is compared with its requests, each statement by its name.
func TestBenchTotals(t *testing.T) {
	dep := &deploy.Deployment{Model: model.Model{ID: "meta-llama/Llama-3.1-8B"}}
	for _, c := range []struct {
		name   string
		limit  int
		change func(doc map[string]any)
		want   string // code and beginning of the sentence; empty for none
	}{
		{"as written", 0, func(map[string]any) {}, ""},
		{"closed loop", 8, func(map[string]any) {}, ""},
		{"alias", 0, func(doc map[string]any) { doc["model_id"] = "served" }, ""},
		{"path", 0, func(doc map[string]any) { doc["model_id"] = "/models/Llama-3.1-8B/" }, ""},
		{"slower client", 0, func(doc map[string]any) { doc["request_rate"] = 5.9 }, ""},
		{"limit not reached", 0, func(doc map[string]any) { doc["max_concurrency"] = 64 }, ""},
		{"limit that holds back", 8, func(doc map[string]any) { doc["request_rate"] = 100 }, ""},
		{"ramp", 0, func(doc map[string]any) { doc["request_rate"], doc["ramp_up_strategy"] = 40, "linear" }, ""},
		{"model", 0, func(doc map[string]any) { doc["model_id"] = "Qwen/Qwen3-32B" }, "run_contradicted model_id"},
		{"requests lost", 0, func(doc map[string]any) { doc["completed"] = 101 }, "client_totals completed"},
		{"prompts", 0, func(doc map[string]any) { doc["total_input_tokens"] = 4 * 9950 }, "client_totals total_input_tokens"},
		{"outputs", 0, func(doc map[string]any) { doc["total_output_tokens"] = 2 }, "client_totals total_output_tokens"},
		{"TTFT in ms", 0, func(doc map[string]any) { doc["ttfts"] = scale(doc["ttfts"], 1e3) }, "client_totals mean_ttft_ms"},
		{"gaps", 0, func(doc map[string]any) { doc["mean_itl_ms"] = 2.0 }, "client_totals mean_itl_ms"},
		{"E2E", 0, func(doc map[string]any) { doc["mean_e2el_ms"] = 900.0 }, "client_totals mean_e2el_ms"},
		{"a mean that is not computed", 0, func(doc map[string]any) { doc["mean_ttft_ms"], doc["mean_itl_ms"] = 0, 1.0 }, "client_summary mean_ttft_ms"},
		{"a duration that is not computed", 0, func(doc map[string]any) { doc["duration"] = 0 }, "client_summary duration"},
		{"one that is and is wrong", 0, func(doc map[string]any) { doc["mean_ttft_ms"], doc["mean_itl_ms"] = 0, 2.0 }, "client_totals mean_itl_ms"},
		{"starts in ms", 0, func(doc map[string]any) { doc["start_times"] = scale(doc["start_times"], 1e3) }, "client_totals duration"},
		{"rate", 0, func(doc map[string]any) { doc["request_rate"] = 2.0 }, "client_rate request_rate"},
		{"rate too high", 0, func(doc map[string]any) { doc["request_rate"] = 8.0 }, "client_load request_rate"},
		{"limit too low", 8, func(doc map[string]any) { doc["max_concurrency"] = 4 }, "client_load max_concurrency"},
		{"limit too high", 8, func(doc map[string]any) { doc["max_concurrency"] = 32 }, "client_load max_concurrency"},
	} {
		text, err := json.Marshal(statedResult(c.limit))
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		c.change(doc)
		if text, err = json.Marshal(doc); err != nil {
			t.Fatal(err)
		}
		r := readFiles(t, map[string]string{"bench.json": string(text)})
		r.Findings = nil
		r.reportStated(dep)
		var got []string
		for _, f := range r.Findings {
			rest, found := strings.CutPrefix(f.Message, "bench: ")
			if !found || !slices.Contains([]string{string(source.CodeRunContradicted), string(source.CodeClientTotals), string(source.CodeClientLoad), string(source.CodeClientRate), string(source.CodeClientSummary)}, string(f.Code)) {
				t.Errorf("%s: got %+v", c.name, f)
			}
			got = append(got, fmt.Sprint(f.Code, " ", rest))
		}
		if len(got) > 1 || c.want == "" && len(got) > 0 || c.want != "" && (len(got) == 0 || !strings.HasPrefix(got[0], c.want+" ")) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// realFile is a file of a real client, decompressed.
func realFile(t *testing.T, name string) string {
	t.Helper()
	src, err := source.Open(&source.Input{Path: filepath.Join(repo.Root(t), "testdata", "clients", name+".zst"), Name: name}, nil, source.Limits{MaxExpansion: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	text, err := io.ReadAll(src.R)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// statedFindings reads files and returns the codes and sentences about what they state of themselves.
func statedFindings(t *testing.T, files map[string]string) []string {
	t.Helper()
	r := readFiles(t, files)
	var got []string
	for _, f := range r.Findings {
		switch f.Code {
		case source.CodeClientTotals, source.CodeClientLoad, source.CodeClientRate, source.CodeClientSummary, source.CodeClientSample:
			got = append(got, fmt.Sprint(f.Code, " ", f.Message))
		}
	}
	return got
}

// TestGuideLLMTotals: a report of GuideLLM is compared with its requests, and one that keeps a sample of them is named.
func TestGuideLLMTotals(t *testing.T) {
	text := realFile(t, "guidellm-completions-benchmarks.json")
	each := func(change func(i int, r map[string]any)) func(b map[string]any) {
		return func(b map[string]any) {
			for i, r := range b["requests"].(map[string]any)["successful"].([]any) {
				change(i, r.(map[string]any))
			}
		}
	}
	scaled := func(key string, every int, factor float64) func(b map[string]any) {
		return each(func(i int, r map[string]any) {
			if i%every == 0 {
				r[key] = r[key].(float64) * factor
			}
		})
	}
	for _, c := range []struct {
		name   string
		change func(b map[string]any)
		want   string // code and a part of the sentence; empty for none
	}{
		{"as written", func(map[string]any) {}, ""},
		{"TTFT in s", scaled("time_to_first_token_ms", 1, 1e-3), "client_totals poisson@8: time_to_first_token_ms states"},
		{"a third of the TTFTs x10", scaled("time_to_first_token_ms", 3, 10), "client_totals poisson@8: time_to_first_token_ms states"},
		{"prompts in characters", scaled("prompt_tokens", 1, 4), "client_totals poisson@8: prompt_token_count states"},
		{"a third of the outputs x10", scaled("output_tokens", 3, 10), "client_totals poisson@8: output_token_count states"},
		{"latency in ms", scaled("request_latency", 1, 1e3), "client_totals poisson@8: request_latency states"},
		{"a third, and the means with it", func(b map[string]any) {
			scaled("total_tokens", 3, 10)(b)
		}, "in 8 of 24 requests figures that the tool derives"},
		{"a sample", func(b map[string]any) {
			all := b["requests"].(map[string]any)
			all["successful"] = all["successful"].([]any)[:20]
		}, "client_sample poisson@8: the report has 20 of the 24 requests"},
		{"another rate", func(b map[string]any) {
			b["config"].(map[string]any)["strategy"].(map[string]any)["rate"] = 80.0
		}, "client_load poisson@80: strategy.rate states 80"},
		{"means that were not computed", func(b map[string]any) {
			b["metrics"].(map[string]any)["time_to_first_token_ms"].(map[string]any)["successful"].(map[string]any)["mean"] = 0.0
		}, "client_summary poisson@8: time_to_first_token_ms states 0"},
	} {
		var doc map[string]any
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		c.change(doc["benchmarks"].([]any)[0].(map[string]any))
		changed, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		got := statedFindings(t, map[string]string{"benchmarks.json": string(changed)})
		if len(got) > 1 || c.want == "" && len(got) > 0 || c.want != "" && (len(got) == 0 || !strings.Contains(got[0], c.want)) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestAIPerfDerivedFigures: the figures that AIPerf derives for each request are those of its others.
func TestAIPerfDerivedFigures(t *testing.T) {
	text := realFile(t, "aiperf-chat-profile_export.jsonl")
	for _, c := range []struct {
		name, key string
		factor    float64
		every     int
		want      string
	}{
		{"as written", "time_to_first_token", 1, 1, ""},
		{"one TTFT of 24", "time_to_first_token", 1e-3, 24, ""},
		{"a fourth of the TTFTs in s", "time_to_first_token", 1e-3, 4, "client_totals profile_export: in 6 of 24 requests"},
		{"a fourth of the latencies in s", "request_latency", 1e-3, 4, "client_totals profile_export: in 6 of 24 requests"},
		{"outputs in characters", "output_sequence_length", 4, 1, "client_totals profile_export: in 24 of 24 requests"},
	} {
		var lines []string
		for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
			var doc map[string]any
			if err := json.Unmarshal([]byte(line), &doc); err != nil {
				t.Fatal(err)
			}
			m := doc["metrics"].(map[string]any)[c.key].(map[string]any)
			if i%c.every == 0 {
				m["value"] = m["value"].(float64) * c.factor
			}
			changed, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(changed))
		}
		got := statedFindings(t, map[string]string{"profile_export.jsonl": strings.Join(lines, "\n")})
		if len(got) > 1 || c.want == "" && len(got) > 0 || c.want != "" && (len(got) == 0 || !strings.HasPrefix(got[0], c.want)) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestSummariesBeside: summaries in the folder of the requests of the same tool are of these requests.
func TestSummariesBeside(t *testing.T) {
	aiperf := realFile(t, "aiperf-chat-profile_export.jsonl")
	perf := realFile(t, "inference-perf-chat-per_request_lifecycle_metrics.json")
	// Means of the 24 requests of the two files, in ms and s.
	aiperfSummary := func(n int, ttft float64) string {
		return fmt.Sprintf(`{"input_config":{},"request_throughput":{"unit":"requests/sec","avg":5},"request_count":{"unit":"requests","avg":%d},"request_latency":{"unit":"ms","avg":%g},`+
			`"time_to_first_token":{"unit":"ms","avg":%g},"inter_token_latency":{"unit":"ms","avg":25},"input_sequence_length":{"unit":"tokens","avg":%g},`+
			`"output_sequence_length":{"unit":"tokens","avg":%g}}`, n, aiperfMeans.e2e, ttft, aiperfMeans.prompt, aiperfMeans.output)
	}
	stage := func(n int, latency float64) string {
		return fmt.Sprintf(`{"load_summary":{"count":%d,"requested_rate":8},"successes":{"count":%d,"throughput":{"requests_per_sec":5},"prompt_len":{"mean":%g},"output_len":{"mean":%g},`+
			`"latency":{"request_latency":{"mean":%g},"time_to_first_token":{"mean":%g},"time_per_output_token":{"mean":0.02}}}}`, n, n, perfMeans.prompt, perfMeans.output, latency, perfMeans.ttft)
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"AIPerf's own", map[string]string{"profile_export.jsonl": aiperf, "profile_export_aiperf.json": aiperfSummary(24, aiperfMeans.ttft)}, ""},
		{"of fewer requests", map[string]string{"profile_export.jsonl": aiperf, "profile_export_aiperf.json": aiperfSummary(12, aiperfMeans.ttft)}, "its number of requests states 12"},
		{"of another TTFT", map[string]string{"profile_export.jsonl": aiperf, "profile_export_aiperf.json": aiperfSummary(24, 3*aiperfMeans.ttft)}, "its mean TTFT states"},
		{"in another folder", map[string]string{"profile_export.jsonl": aiperf, "b/profile_export_aiperf.json": aiperfSummary(12, 1e3)}, ""},
		{"inference-perf's own", map[string]string{"per_request_lifecycle_metrics.json": perf, "summary_lifecycle_metrics.json": stage(24, perfMeans.e2e)}, ""},
		{"of two stages", map[string]string{"per_request_lifecycle_metrics.json": perf, "stage_0_lifecycle_metrics.json": stage(12, perfMeans.e2e), "stage_1_lifecycle_metrics.json": stage(12, perfMeans.e2e)}, ""},
		{"of one stage of two", map[string]string{"per_request_lifecycle_metrics.json": perf, "stage_0_lifecycle_metrics.json": stage(12, perfMeans.e2e)}, "its number of requests states 12"},
		{"of another E2E", map[string]string{"per_request_lifecycle_metrics.json": perf, "summary_lifecycle_metrics.json": stage(24, 2*perfMeans.e2e)}, "its mean E2E states"},
	} {
		got := statedFindings(t, c.files)
		if len(got) > 1 || c.want == "" && len(got) > 0 || c.want != "" && (len(got) == 0 || !strings.HasPrefix(got[0], "client_summary ") || !strings.Contains(got[0], c.want)) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// means of the requests of a file, in tokens and in the unit of the tool's summary.
type means struct{ prompt, output, ttft, e2e float64 }

var (
	aiperfMeans = means{prompt: 58.333333333333336, output: 17.416666666666668, ttft: 401.41266825, e2e: 1077.30024725}
	perfMeans   = means{prompt: 60, output: 16, ttft: 0.12317761862474678, e2e: 0.5815669721672142}
)
