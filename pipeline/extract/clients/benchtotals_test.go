package clients

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
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
		{"gaps", 0, func(doc map[string]any) { doc["mean_itl_ms"] = 1.0 }, "client_totals mean_itl_ms"},
		{"E2E", 0, func(doc map[string]any) { doc["mean_e2el_ms"] = 900.0 }, "client_totals mean_e2el_ms"},
		{"starts in ms", 0, func(doc map[string]any) { doc["start_times"] = scale(doc["start_times"], 1e3) }, "client_totals duration"},
		{"rate", 0, func(doc map[string]any) { doc["request_rate"] = 2.0 }, "client_load request_rate"},
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
		r.reportBenchResults(dep)
		var got []string
		for _, f := range r.Findings {
			rest, found := strings.CutPrefix(f.Message, "bench: ")
			if !found || !slices.Contains([]string{string(source.CodeRunContradicted), string(source.CodeClientTotals), string(source.CodeClientLoad)}, string(f.Code)) {
				t.Errorf("%s: got %+v", c.name, f)
			}
			got = append(got, fmt.Sprint(f.Code, " ", rest))
		}
		if len(got) > 1 || c.want == "" && len(got) > 0 || c.want != "" && (len(got) == 0 || !strings.HasPrefix(got[0], c.want+" ")) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
