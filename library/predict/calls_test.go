package predict

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// TestCallsOutsideOfWhatWasMeasured: an unusual call is refused by name, or answered with the axis on which it lies outside of the measured
// servers, or the reason why none was; a call inside states its family's error.
func TestCallsOutsideOfWhatWasMeasured(t *testing.T) {
	const (
		llama   = "nvidia/Llama-3.1-70B-Instruct-FP8"
		minimax = "MiniMaxAI/MiniMax-M2.5"
	)
	h100 := Question{Model: llama, Hardware: "H100", InputTokens: 1024, OutputTokens: 1024, Concurrency: 16,
		Set: []string{"vllm.version=0.11.2"}, Serve: "--max-num-batched-tokens 8192 --tensor-parallel-size 2 --kv-cache-dtype bfloat16 --async-scheduling"}
	ask := func(change func(q *Question)) Question {
		q := h100
		change(&q)
		return q
	}
	serve := func(more string) Question {
		return ask(func(q *Question) { q.Serve += " " + more })
	}
	hub := t.TempDir()
	if err := os.WriteFile(hub+"/config.json", []byte(`{"model_type":"mystery","num_hidden_layers":2}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		q       Question
		step    []trace.Chunk
		inside  bool
		outside string // part of an axis
		why     string // part of the reason why no server of the kind counts
		refused string // part of the refusal
	}{
		{name: "as measured", q: h100, inside: true},
		{name: "one client", q: ask(func(q *Question) { q.Concurrency = 1 }), inside: true},
		{name: "float32", q: serve("--dtype float32"), refused: "dtype"},
		{name: "4,096 clients", q: ask(func(q *Question) { q.Concurrency = 4096 }), outside: "clients"},
		{name: "long prompts", q: ask(func(q *Question) { q.InputTokens = 38_000 }), outside: "input tokens"},
		{name: "short prompts", q: ask(func(q *Question) { q.InputTokens = 10 }), outside: "input tokens"},
		{name: "long answers", q: ask(func(q *Question) { q.OutputTokens = 20_000 }), outside: "output tokens"},
		{name: "short answers", q: ask(func(q *Question) { q.OutputTokens = 4 }), outside: "output tokens"},
		{name: "a rate", q: ask(func(q *Question) { q.Concurrency, q.RateRPS = 0, 2 }), outside: "rate"},
		{name: "LoRA", q: serve("--enable-lora"), outside: "LoRA"},
		{name: "fp8 cache", q: ask(func(q *Question) { q.Serve = "--tensor-parallel-size 2 --kv-cache-dtype fp8" }), outside: "KV cache"},
		{name: "today's release", q: ask(func(q *Question) { q.Set = nil }), outside: "vLLM 0.24"},
		{name: "small steps", q: serve("--max-num-batched-tokens 1024"), outside: "max_num_batched_tokens"},
		{name: "an old release", q: ask(func(q *Question) { q.Set = []string{"vllm.version=0.8.5"} }), outside: "vLLM 0.8"},
		{name: "a new release", q: ask(func(q *Question) { q.Set = []string{"vllm.version=0.33.0"} }), outside: "vLLM 0.33"},
		{name: "graphs of decodes", q: serve(`--compilation-config '{"cudagraph_mode":"FULL_DECODE_ONLY"}'`), outside: "CUDA graphs"},
		{name: "dp 8", q: serve("--data-parallel-size 8"), outside: "data parallelism"},
		{name: "experts over dp 8", q: Question{Model: minimax, Hardware: "B200", InputTokens: 1024, OutputTokens: 1024, Concurrency: 16,
			Serve: "--data-parallel-size 8 --enable-expert-parallel"}, why: "data-parallel"},
		{name: "synchronous", q: serve("--no-async-scheduling"), outside: "synchronous scheduling"},
		{name: "few seats", q: serve("--max-num-seqs 8"), outside: "max_num_seqs of 8"},
		{name: "as many seats as clients", q: serve("--max-num-seqs 16"), inside: true},
		{name: "small graphs", q: serve("--max-cudagraph-capture-size 8"), outside: "CUDA graph of 8 tokens"},
		{name: "without compilation", q: serve("--compilation-config 0"), why: "CUDA graphs"},
		{name: "ray", q: serve("--distributed-executor-backend ray"), why: "ray"},
		{name: "NCCL alone", q: serve("--disable-custom-all-reduce"), why: "all-reduces"},
		{name: "small chunks", q: serve("--long-prefill-token-threshold 256"), why: "long_prefill_token_threshold"},
		{name: "ten tokens at a time", q: serve("--stream-interval 10"), why: "streamed"},
		{name: "an attention backend", q: ask(func(q *Question) {
			q.Set = []string{"vllm.version=0.24.0"}
			q.Serve += " --attention-backend FLASHINFER"
		}), why: "--attention-backend FLASHINFER"},
		{name: "rebalanced experts", q: Question{Model: minimax, Hardware: "B200", InputTokens: 1024, OutputTokens: 1024, Concurrency: 16,
			Serve: "--tensor-parallel-size 4 --enable-expert-parallel --enable-eplb"}, why: "rebalanced"},
		{name: "eager", q: serve("--enforce-eager"), why: "CUDA graphs"},
		{name: "drafts", q: serve(`--no-async-scheduling --speculative-config '{"method":"ngram","num_speculative_tokens":3,"synthetic_acceptance_length":2}'`), why: "speculative"},
		{name: "tp 1", q: ask(func(q *Question) { q.Model, q.Serve = "Qwen/Qwen3-32B-FP8-Static-PerTensor", "" }), why: "tp"},
		{name: "tp 16", q: ask(func(q *Question) {
			q.Serve = "--tensor-parallel-size 8 --data-parallel-size 2 --enable-expert-parallel"
			q.Model = minimax
		}),
			why: "GPUs"},
		{name: "H200", q: ask(func(q *Question) { q.Hardware = "H200" }), why: "no server"},
		{name: "L40S", q: ask(func(q *Question) { q.Hardware, q.Serve = "L40S", "--tensor-parallel-size 4" }), why: "no server"},
		{name: "bfloat16 on B200", q: ask(func(q *Question) { q.Model, q.Hardware = "Qwen/Qwen3-32B", "B200" }), why: "no server"},
		{name: "pipeline stages", q: serve("--pipeline-parallel-size 2"), why: "pipeline"},
		{name: "three GPUs", q: ask(func(q *Question) { q.Serve = "--tensor-parallel-size 3" }), refused: "3"},
		{name: "no room", q: ask(func(q *Question) { q.Serve = "--tensor-parallel-size 1 --gpu-memory-utilization 0.5" }), refused: "room"},
		{name: "beyond the model", q: ask(func(q *Question) { q.InputTokens = 200_000 }), refused: "longest"},
		{name: "an unknown flag", q: serve("--no-such-flag"), refused: "no-such-flag"},
		{name: "an unknown cache type", q: serve("--kv-cache-dtype fp17"), refused: "fp17"},
		{name: "an unknown model type", q: ask(func(q *Question) { q.Model = hub }), refused: "mystery"},
		{name: "an unknown GPU", q: ask(func(q *Question) { q.Hardware = "H1000" }), refused: "H1000"},
		{name: "a step beyond max-num-seqs", q: h100, step: slices.Repeat([]trace.Chunk{{Computed: 5, Prompt: 1, New: 1}}, 2000), refused: "max_num_seqs"},
		{name: "a step beyond the cache", q: h100, step: slices.Repeat([]trace.Chunk{{Computed: 40_961, Prompt: 1, New: 1}}, 64), refused: "blocks"},
		{name: "a step beyond the budget", q: h100, step: []trace.Chunk{{Prompt: 100_000, New: 100_000}}, refused: "max_num_batched_tokens"},
	} {
		var p *Prediction
		var err error
		if c.step != nil {
			p, err = c.q.Plan(context.Background(), c.step)
		} else {
			p, _, err = c.q.Server(context.Background())
		}
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: got %v, want a refusal that names %q", c.name, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		outside := strings.Join(p.Trust.Outside, "; ")
		isInside := p.Trust.Judged != nil && outside == ""
		if isInside != c.inside || !strings.Contains(outside, c.outside) || c.why != "" && !strings.Contains(p.Trust.Unjudged, c.why) {
			t.Errorf("%s: got outside %q, reason %q: %s", c.name, outside, p.Trust.Unjudged, p.Trust.Sentence)
		}
	}
	q := serve(`--compilation-config '{"pass_config":{"fuse_allreduce_rms":false}}'`)
	p, _, err := q.Server(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range p.Step.Operators {
		if strings.Contains(op.Note, "fused with the norms") {
			t.Errorf("fuse_allreduce_rms false: got %s: %s", op.Name, op.Note)
		}
	}
}
