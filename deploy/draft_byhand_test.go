package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/vllm"
)

// TestScalars: values on one line of YAML.
func TestScalars(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{{nil, "null"}, {"0.9", `"0.9"`}, {0.125, "0.125"}, {1.0 / 3, "0.3333333333333333"}, {int64(7), "7"}, {true, "true"}, {1e300, "1e+300"}} {
		if got := scalar(c.v); got != c.want {
			t.Errorf("%v: got %s, want %s", c.v, got, c.want)
		}
	}
}

// TestServeArguments: where the arguments of the server begin, in a plain command, a container, a module and a shell's
// word.
func TestServeArguments(t *testing.T) {
	for text, want := range map[string]string{
		"vllm serve m --x":      "m --x",
		"/usr/bin/vllm serve m": "m",
		"serve m":               "",
		"vllm bench serve m":    "",
		"python -m vllm.entrypoints.cli.main serve m":            "m",
		"python -m vllm.entrypoints.openai.api_server --model m": "--model m",
		"python api_server.py --model m":                         "--model m",
		"python -m dynamo.vllm --model m":                        "--model m",
		"docker run vllm/vllm-openai:v0.9.1 --model m":           "--model m",
		"docker run vllm/vllm-openai:v0.9.1 serve m":             "m",
		"docker run vllm/vllm-openai:v0.9.1":                     "",
		"docker run other serve m":                               "",
		"bash -c 'vllm serve m --x'":                             "m --x",
		"bash -c 'vllm bench m'":                                 "",
		"bash -c 'other serve m'":                                "",
	} {
		words, err := vllm.ShellWords(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := NewDraft().findServeArgs(words)
		if (err == nil) != (want != "") || strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
	d := NewDraft()
	words := strings.Fields("OTEL_SPAN_EVENT_COUNT_LIMIT=512 LMCACHE_CHUNK_SIZE=256 docker run vllm/vllm-openai:v0.9.1 --model m")
	if _, err := d.findServeArgs(words); err != nil || d.Get("tracing.otel_span_event_count_limit") != int64(512) || d.Get("vllm.version") != "0.9.1" ||
		len(d.findings) != 1 || !strings.HasPrefix(d.findings[0].Message, "LMCACHE_CHUNK_SIZE: settings of LMCache's environment") {
		t.Errorf("got %+v, %v", d, err)
	}
	d = NewDraft()
	if _, err := d.findServeArgs(strings.Fields("OTEL_SPAN_EVENT_COUNT_LIMIT=many docker run vllm/vllm-openai:latest --model m")); err != nil || len(d.values) != 0 {
		t.Errorf("got %+v, %v", d, err)
	}
}

// TestBatchDefaults: sequences and tokens of a step by device, release and mode, none above what is given.
func TestBatchDefaults(t *testing.T) {
	for _, c := range []struct {
		device, version string
		set             func(d *Draft)
		seqs, tokens    int64
	}{
		{"H100", "0.28.0", nil, 1024, 8192}, {"A100-80", "0.28.0", nil, 256, 2048}, {"L40S", "0.28.0", nil, 256, 2048},
		{"B200", "0.28.0", nil, 1024, 16_384}, {"B200", "0.27.0", nil, 1024, 8192}, {"B200", "", nil, 1024, 8192}, {"none", "0.28.0", nil, 0, 0},
		{"H100", "", func(d *Draft) { d.Set("vllm.performance_mode", "throughput") }, 2048, 16_384},
		{"L40S", "", func(d *Draft) { d.Set("vllm.max_num_batched_tokens", int64(100)) }, 100, 100},
		{"L40S", "", func(d *Draft) { d.Set("vllm.max_num_batched_tokens", int64(0)) }, 256, 0},
		{"L40S", "", func(d *Draft) { d.Set("vllm.max_num_seqs", int64(5000)) }, 5000, 2048},
		{"L40S", "", func(d *Draft) { d.Set("vllm.max_model_len", int64(4096)); d.Set("vllm.enable_chunked_prefill", false) }, 256, 4096},
		{"L40S", "", func(d *Draft) { d.Set("vllm.max_model_len", int64(4096)); d.Set("vllm.enable_chunked_prefill", true) }, 256, 2048},
		{"L40S", "", func(d *Draft) { d.Set("vllm.max_model_len", int64(1024)); d.Set("vllm.enable_chunked_prefill", false) }, 256, 2048},
	} {
		d := NewDraft()
		d.Set("hardware.name", c.device)
		if c.version != "" {
			d.Set("vllm.version", c.version)
		}
		if c.set != nil {
			c.set(d)
		}
		d.FillDefaults()
		seqs, _ := d.Get("vllm.max_num_seqs").(int64)
		tokens, _ := d.Get("vllm.max_num_batched_tokens").(int64)
		if seqs != c.seqs || tokens != c.tokens {
			t.Errorf("%s with vLLM %q: got %d and %d, want %d and %d", c.device, c.version, seqs, tokens, c.seqs, c.tokens)
		}
	}
}

// TestDatasheetsEnd: a file has one object, with the figures of each device by name.
func TestDatasheetsEnd(t *testing.T) {
	const sheet = `{"b": {"TFlopsPeak": 2}, "a": {"TFlopsPeak": 1}}`
	got, err := readDatasheets(strings.NewReader(sheet+"\n"), "f")
	var names []string
	for _, h := range got {
		names = append(names, h.Name)
		if h.PCIeEfficiency != DefaultPCIeEfficiency || h.InterconnectLatencyUs != DefaultLatencyUs {
			t.Errorf("%s: got %+v, want what is usual", h.Name, h)
		}
	}
	if err != nil || !slices.Equal(names, []string{"a", "b"}) || got[0].TFlopsPeak != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, text := range []string{sheet + " {}", sheet + "x", `{"a": {"TFlops": 1}}`, "[]", ""} {
		if _, err := readDatasheets(strings.NewReader(text), "f"); err == nil {
			t.Errorf("%s: passes", text)
		}
	}
}
