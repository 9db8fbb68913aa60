package deploy

import (
	"os"
	"strings"
	"testing"
)

// The command that README.md tells people to start vLLM with is one that
// `init` understands, to the last flag.
func TestReadmeServeCommandIsRead(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i, block := range strings.Split(string(text), "```") {
		if i%2 == 0 || !strings.Contains(block, "step-tracing-enabled") {
			continue
		}
		n++
		var lines []string
		for _, line := range strings.Split(block, "\n")[1:] {
			line, _, _ = strings.Cut(line, "   #")
			lines = append(lines, strings.TrimSuffix(line, "\\"))
		}
		d, err := FromCommandLine(strings.Join(lines, " "), nil)
		if err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]any{"model.id": "meta-llama/Llama-3.1-8B", "tracing.step_tracing_sample_rate": 1.0,
			"tracing.step_tracing_rich_subsample_rate": 0.1,
			"tracing.step_tracing_closure_interval":    int64(100), "tracing.otel_span_event_count_limit": int64(100000),
			"vllm.enable_journey_tracing": true} {
			got := d.Get(key)
			if i, ok := got.(int64); ok && want == float64(i) {
				continue
			}
			if got != want {
				t.Errorf("%s: got %v, want %v", key, got, want)
			}
		}
	}
	if n != 1 {
		t.Errorf("README.md holds %d commands with step tracing, want 1", n)
	}
}

// A number that the engine would refuse is refused here, with its flag.
func TestCommandLineWantsWholeNumbers(t *testing.T) {
	for line, want := range map[string]string{
		"vllm serve m --max-num-seqs x":             `--max-num-seqs: got "x", want a whole number`,
		"vllm serve m --max-num-seqs":               `--max-num-seqs: got "", want a whole number`,
		"vllm serve m -tp two":                      `-tp: got "two", want a whole number`,
		"vllm serve m --max-num-batched-tokens 1.5": `--max-num-batched-tokens: got "1.5", want a whole number`,
	} {
		if _, err := FromCommandLine(line, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", line, err, want)
		}
	}
	for _, longest := range []string{"auto", "-1"} {
		d, err := FromCommandLine("vllm serve m --max-num-seqs 1k --max-model-len "+longest, nil)
		if err != nil {
			t.Fatal(err)
		}
		log := NewDraft()
		log.Set("vllm.max_model_len", int64(4096))
		var text strings.Builder
		want := "max_model_len: null  # " + longest + ": the longest that fits; give"
		if err := d.Write(&text); err != nil || !strings.Contains(text.String(), want) {
			t.Errorf("--max-model-len %s: got %s %v", longest, text.String(), err)
		}
		if d.Merge(log); d.Get("vllm.max_model_len") != int64(4096) {
			t.Errorf("what the log says is not taken: got %v", d.Get("vllm.max_model_len"))
		}
	}
}
