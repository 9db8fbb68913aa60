package vllm

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// with returns an engine of a release with other flags given.
func with(version string, extra Values) *Engine {
	return &Engine{VLLMVersion: version, Extra: extra, MaxNumSeqs: 8, MaxNumBatchedTokens: 512, BlockSize: 16}
}

// speculating returns the value of speculative_config in an engine's flags.
func speculating(text string) Values { return Values{"speculative_config": text} }

func TestSpeculationAsGiven(t *testing.T) {
	for _, c := range []struct {
		text             string
		method           string
		lookahead, slots int64
		rates            []float64
	}{
		{`{"method":"ngram","num_speculative_tokens":3}`, "ngram", 0, 0, nil},
		{`{"model":"[ngram]","num_speculative_tokens":3}`, "ngram", 0, 0, nil},
		{`{"model":"m","num_speculative_tokens":3}`, "draft_model", 3, 1, nil},
		{`{"model":"m","num_speculative_tokens":3,"parallel_drafting":true}`, "draft_model", 3, 3, nil},
		{`{"model":"org/EAGLE3-x","num_speculative_tokens":3}`, "eagle3", 3, 0, nil},
		{`{"model":"org/EAGLE-x","num_speculative_tokens":3}`, "eagle", 3, 0, nil},
		{`{"method":"eagle","num_speculative_tokens":3,"parallel_drafting":true}`, "eagle", 3, 2, nil},
		{`{"method":"deepseek_mtp","num_speculative_tokens":1}`, "mtp", 1, 0, nil},
		{`{"method":"mtp","model":"x-dspark","num_speculative_tokens":2}`, "dspark", 2, 0, nil},
		{`{"model":"x-dflash","num_speculative_tokens":2}`, "dflash", 3, 0, nil},
		{`{"method":"ngram","num_speculative_tokens":3,"synthetic_acceptance_length":2.25}`, "ngram", 0, 0, []float64{1, 0.25, 0}},
		{`{"method":"ngram","num_speculative_tokens":3,"synthetic_acceptance_length":4}`, "ngram", 0, 0, []float64{1, 1, 1}},
		{`{"method":"ngram","num_speculative_tokens":2,"synthetic_acceptance_rates":[0.9,0.9]}`, "ngram", 0, 0, []float64{0.9, 0.9}},
	} {
		s, err := with("0.24.0", speculating(c.text)).Speculation()
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if s.Method != c.method || s.Lookahead() != c.lookahead || s.Slots() != c.slots || !slices.Equal(s.Rates, c.rates) {
			t.Errorf("%s: got %s, lookahead %d, %d slots, rates %v", c.text, s.Method, s.Lookahead(), s.Slots(), s.Rates)
		}
	}
	if s, err := with("0.24.0", nil).Speculation(); s != nil || err != nil {
		t.Errorf("none: got %v, %v", s, err)
	}
	object := Values{"speculative_config": map[string]any{"method": "ngram", "num_speculative_tokens": 3}}
	if s, err := with("0.24.0", object).Speculation(); err != nil || s.Tokens != 3 {
		t.Errorf("an object: got %+v, %v", s, err)
	}
}

func TestSpeculationRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"num_speculative_tokens":0}`:                                                                    "num_speculative_tokens: got 0",
		`{"num_speculative_tokens":65537}`:                                                                "num_speculative_tokens: got 65537",
		`{"method":"medusa","num_speculative_tokens":1}`:                                                  "method",
		`{"num_speculative_token":1}`:                                                                     "num_speculative_token",
		`{"num_speculative_tokens":2,"prompt_lookup_min":3,"prompt_lookup_max":2}`:                        "prompt_lookup_min: got 3",
		`{"num_speculative_tokens":2,"synthetic_acceptance_length":0.9}`:                                  "synthetic_acceptance_length",
		`{"num_speculative_tokens":2,"synthetic_acceptance_length":3.1}`:                                  "synthetic_acceptance_length",
		`{"num_speculative_tokens":2,"synthetic_acceptance_length":2,"synthetic_acceptance_rates":[1,1]}`: "not both",
		`{"num_speculative_tokens":2,"synthetic_acceptance_rates":[1]}`:                                   "2 rates",
		`{"num_speculative_tokens":2,"synthetic_acceptance_rates":[0.5,0.6]}`:                             "never increase",
		`{"num_speculative_tokens":2,"synthetic_acceptance_rates":[1.1,0.6]}`:                             "never increase",
		`{"num_speculative_tokens":2,"synthetic_acceptance_rates":[0.1,-0.1]}`:                            "never increase",
		`{"num_speculative_tokens":2,"num_speculative_tokens_per_batch_size":[[2,4,1]]}`:                  "per_batch_size",
		`{"num_speculative_tokens":2,"num_speculative_tokens_per_batch_size":[[1,4,1],[4,8,1]]}`:          "per_batch_size",
		`{"num_speculative_tokens":2,"num_speculative_tokens_per_batch_size":[[1,4,1],[6,5,1]]}`:          "per_batch_size",
		`{"num_speculative_tokens":2,"num_speculative_tokens_per_batch_size":[[1,4,-1]]}`:                 "per_batch_size",
		`{`: "speculative_config",
	} {
		if s, err := with("0.24.0", speculating(text)).Speculation(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, %v, want an error with %q", text, s, err, want)
		}
	}
	_, err := with("0.24.0", speculating(`{"num_speculative_token":1}`)).Speculation()
	if trace.HintOf(err) != "did you mean num_speculative_tokens?" {
		t.Errorf("got the hint %q", trace.HintOf(err))
	}
}

// TestDraftsByBatchSize: a gap between ranges has the drafts of the range before, and beyond the last that of the last.
func TestDraftsByBatchSize(t *testing.T) {
	s, err := with("0.33.0", speculating(`{"method":"ngram","num_speculative_tokens":5,"num_speculative_tokens_per_batch_size":[[9,16,1],[1,4,7],[5,6,3],[17,17,0]]}`)).Speculation()
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int64]int64{1: 5, 4: 5, 5: 3, 6: 3, 8: 3, 9: 1, 16: 1, 17: 0, 100: 0} {
		if got := s.TokensFor(n); got != want {
			t.Errorf("%d requests: got %d drafts, want %d", n, got, want)
		}
	}
}

func TestAsyncScheduling(t *testing.T) {
	for _, c := range []struct {
		version string
		stated  trace.Opt[bool]
		extra   Values
		want    bool
	}{
		{"0.13.0", trace.Opt[bool]{}, nil, false},
		{"0.14.0", trace.Opt[bool]{}, nil, true},
		{"main", trace.Opt[bool]{}, nil, true},
		{"0.13.0", trace.Some(true), nil, true},
		{"0.24.0", trace.Some(false), nil, false},
		{"0.24.0", trace.Opt[bool]{}, Values{"distributed_executor_backend": "ray"}, false},
		{"0.24.0", trace.Opt[bool]{}, Values{"device": "cpu"}, false},
		{"0.24.0+cpu", trace.Opt[bool]{}, nil, false},
		{"0.24.0", trace.Opt[bool]{}, speculating(`{"method":"eagle","num_speculative_tokens":1}`), true},
		{"0.24.0", trace.Opt[bool]{}, speculating(`{"method":"suffix","num_speculative_tokens":1}`), false},
		{"0.27.0", trace.Opt[bool]{}, speculating(`{"model":"m","num_speculative_tokens":1}`), false},
		{"0.28.0", trace.Opt[bool]{}, speculating(`{"model":"m","num_speculative_tokens":1}`), true},
	} {
		e := with(c.version, c.extra)
		e.AsyncScheduling = c.stated
		if got := e.IsAsync(); got != c.want {
			t.Errorf("%s, %v, %v: got %t", c.version, c.stated, c.extra, got)
		}
	}
}

func TestGraphSizesByRelease(t *testing.T) {
	grid := []int64{1, 2, 4, 8, 16}
	for _, c := range []struct {
		name string
		e    *Engine
		want []int64
	}{
		{"twice max_num_seqs", with("0.22.0", nil), grid},
		{"eager", with("0.22.0", Values{"enforce_eager": true}), nil},
		{"the token budget is the cap", &Engine{VLLMVersion: "0.22.0", MaxNumSeqs: 8, MaxNumBatchedTokens: 13}, []int64{1, 2, 4, 8}},
		{"and is captured since 0.23", &Engine{VLLMVersion: "0.23.0", MaxNumSeqs: 8, MaxNumBatchedTokens: 13}, []int64{1, 2, 4, 8, 13}},
		{"a stated largest size", with("0.22.0", Values{"max_cudagraph_capture_size": 9}), []int64{1, 2, 4, 8}},
		{"no size", with("0.22.0", Values{"max_cudagraph_capture_size": 0}), nil},
		{"stated sizes", with("0.22.0", Values{"compilation_config": map[string]any{"cudagraph_capture_sizes": []any{7, 3, 7, 513, 0}}}), []int64{3, 7}},
		{"their old name", with("0.10.0", Values{"cuda_graph_sizes": []any{6}}), []int64{6}},
		{"interactivity", &Engine{VLLMVersion: "0.22.0", MaxNumSeqs: 3, MaxNumBatchedTokens: 512, Extra: Values{"performance_mode": "interactivity"}},
			[]int64{1, 2, 3, 4, 5, 6}},
		{"verifies of three tokens", with("0.22.0", Values{"speculative_config": map[string]any{"num_speculative_tokens": 2}}), []int64{1, 2, 4, 8, 16, 24, 32, 40, 48}},
		{"uniform decode batches since 0.29", &Engine{VLLMVersion: "0.29.0", MaxNumSeqs: 5, MaxNumBatchedTokens: 512,
			Extra: Values{"speculative_config": map[string]any{"method": "ngram", "num_speculative_tokens": 2}}}, []int64{1, 2, 3, 4, 6, 8, 12, 15, 16, 24}},
	} {
		if got := c.e.GraphSizes(false); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	large := &Engine{VLLMVersion: "0.28.0", MaxNumSeqs: 4096, MaxNumBatchedTokens: 8192}
	for _, c := range []struct {
		version      string
		capability10 bool
		want         int64
	}{{"0.28.0", true, 1024}, {"0.28.0", false, 512}, {"0.27.0", true, 512}} {
		large.VLLMVersion = c.version
		sizes := large.GraphSizes(c.capability10)
		if got := sizes[len(sizes)-1]; got != c.want || !slices.Contains(sizes, 248) || slices.Contains(sizes, 264) || !slices.Contains(sizes, 272) {
			t.Errorf("%s, capability 10: %t: got %d, %v", c.version, c.capability10, got, sizes)
		}
	}
	sizes := GraphSizes{1, 8, 16}
	for tokens, want := range map[float64]float64{1: 1, 1.5: 8, 8: 8, 16: 16} {
		if got, ok := sizes.Tokens(tokens); got != want || !ok {
			t.Errorf("%g tokens: got %g, %t, want %g", tokens, got, ok, want)
		}
	}
	if got, ok := sizes.Tokens(17); got != 17 || ok {
		t.Errorf("17 tokens: got %g, %t, want no graph", got, ok)
	}
}

func TestWhichStepsHaveGraphs(t *testing.T) {
	for _, c := range []struct {
		extra               Values
		captures, ofDecodes bool
	}{
		{nil, true, false},
		{Values{"compilation_config": map[string]any{"cudagraph_mode": "none"}}, false, false},
		{Values{"compilation_config": map[string]any{"use_cudagraph": false}}, false, false},
		{Values{"optimization_level": 0}, false, false},
		{Values{"optimization_level": 1}, true, false},
		{Values{"compilation_config": map[string]any{"level": 2}}, false, false},
		{Values{"compilation_config": map[string]any{"level": 3}}, true, false},
		{Values{"compilation_config": map[string]any{"mode": 0, "cudagraph_mode": "FULL"}}, true, false},
		{Values{"compilation_config": map[string]any{"mode": 0, "cudagraph_mode": "full_decode_only"}}, true, true},
		{Values{"compilation_config": map[string]any{"mode": 0, "cudagraph_mode": "PIECEWISE"}}, false, false},
	} {
		e := with("0.24.0", c.extra)
		if e.CapturesGraphs() != c.captures || e.GraphsOfDecodesOnly() != c.ofDecodes {
			t.Errorf("%v: got %t, of decodes only %t", c.extra, e.CapturesGraphs(), e.GraphsOfDecodesOnly())
		}
	}
}

func TestFlagsByRelease(t *testing.T) {
	for flag, want := range map[string]string{"-tp": "tensor_parallel_size", "--max-num-seqs": "max_num_seqs"} {
		if got := FlagName(flag); got != want {
			t.Errorf("%s: got %s, want %s", flag, got, want)
		}
	}
	if !IsFlag("aggregate_engine_logging", "0.11.0") || IsFlag("aggregate_engine_logging", "0.10.2") || !IsFlag("aggregate_engine_logging", "main") || IsFlag("x", "main") {
		t.Error("aggregate_engine_logging is a flag from 0.11 on")
	}
	if got := NewestFlags(); got != (Release{0, 33}) {
		t.Errorf("newest release: got %v", got)
	}
	all := AllFlags()
	if len(all) < 200 || !slices.IsSortedFunc(all, func(a, b Flag) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("got %d flags, want them all, sorted", len(all))
	}
	if names := Flags("0.10.2"); !slices.Contains(names, "max_num_seqs") || slices.Contains(names, "aggregate_engine_logging") {
		t.Errorf("flags of 0.10.2: got %v", names)
	}
	if !IsList("cudagraph_capture_sizes") || IsList("allowed_origins") || IsList("max_num_seqs") || !IsSwitch("enforce_eager") {
		t.Error("cudagraph_capture_sizes takes several words, allowed_origins one word of JSON")
	}
	if !IsSecret("api_key") || !IsSecret("hf_token") || IsSecret("host") {
		t.Error("the secrets are api_key and hf_token")
	}
}

func TestWordsOfACommandLine(t *testing.T) {
	for word, want := range map[string]bool{"--x": true, "-x": true, "-": false, "-1": false, "-1e3": false, "x": false} {
		if got := LooksLikeFlag(word); got != want {
			t.Errorf("%q looks like a flag: got %t", word, got)
		}
	}
	for text, want := range map[string]any{"8k": int64(8000), "8K": int64(8192), "25.6k": int64(25600), "2m": int64(2_000_000), "1M": int64(1 << 20), "1G": int64(1 << 30),
		"3T": int64(3 << 40), "1.5": 1.5, "TRUE": true, "false": false, "nan": "nan", "inf": "inf", "x": "x", "[1]": []any{1.0}, "{x": "{x", "k": "k",
		"1.5K": "1.5K"} {
		if got := FlagValue("max_model_len", text); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v (%T), want %v", text, got, got, want)
		}
	}
	if got := FlagValue("dtype", "16"); got != "16" {
		t.Errorf("dtype: got %v, want text", got)
	}
	words, err := ShellWords("a  'b c'\t\"d\\\"e\\f\" g\\ h \\\n '' i")
	if want := []string{"a", "b c", `d"e\f`, "g h", "", "i"}; err != nil || !slices.Equal(words, want) {
		t.Errorf("got %q, %v, want %q", words, err, want)
	}
	for _, line := range []string{"a 'b", `a "b`, `a \`} {
		if _, err := ShellWords(line); trace.CodeOf(err) != BadCommandLine {
			t.Errorf("%s: got %v", line, err)
		}
	}
}

func TestPythonLiterals(t *testing.T) {
	for text, want := range map[string]any{
		"{'a': 1, 'b': [True, None, (2.5,)]}":   map[string]any{"a": int64(1), "b": []any{true, nil, []any{2.5}}},
		`"it's"`:                                "it's",
		`'a\'b'`:                                "a'b",
		"EPLBConfig(window_size=1000, x=False)": map[string]any{"window_size": int64(1000), "x": false},
		"<Mode.FULL: (2, 1)>":                   "<Mode.FULL: (2, 1)>",
		"null":                                  nil,
	} {
		got, ok := ParsePython(text)
		gotText, _ := json.Marshal(got)
		wantText, _ := json.Marshal(want)
		if !ok || string(gotText) != string(wantText) {
			t.Errorf("%s: got %s, %t, want %s", text, gotText, ok, wantText)
		}
	}
	for _, text := range []string{"", "{'a' 1}", "{'a': }", "{1: 2}", "['a'", "[1 2", "'a", strings.Repeat("[", 200)} {
		if got, ok := ParsePython(text); ok {
			t.Errorf("%s: got %v, want none", text, got)
		}
	}
}

func TestOffloadByRelease(t *testing.T) {
	tier := func(connector string, extra map[string]any) Values {
		return Values{"kv_transfer_config": map[string]any{"kv_connector": connector, "kv_connector_extra_config": extra}}
	}
	all := map[string]any{"eviction_policy": "arc", "offload_prompt_only": false, "store_threshold": 3, "max_tracker_size": 7, "block_size": 64, "blocks_per_chunk": 6,
		"sync_load_budget_bytes": 99}
	lm := map[string]any{"lmcache.max_local_cpu_size": 2.0, "lmcache.save_decode_cache": true, "lmcache.cache_policy": "LFU", "lmcache.chunk_size": 64,
		"lmcache.min_retrieve_tokens": 5}
	for _, c := range []struct {
		name string
		e    *Engine
		want Offload
	}{
		{"defaults of 0.17", with("0.17.0", tier("OffloadingConnector", nil)), Offload{Tracked: 64_000, Blocks: 1}},
		{"defaults of 0.23", with("0.23.0", tier("OffloadingConnector", nil)), Offload{Tracked: 64_000, Blocks: 1, PromptOnly: true}},
		{"0.17", with("0.17.0", tier("OffloadingConnector", all)), Offload{Arc: true, Tracked: 64_000, Blocks: 4}},
		{"0.18", with("0.18.0", tier("OffloadingConnector", all)), Offload{Arc: true, Tracked: 7, Threshold: 3, Blocks: 4}},
		{"0.26", with("0.26.0", tier("OffloadingConnector", all)), Offload{Arc: true, Tracked: 7, Threshold: 3, Blocks: 6}},
		{"0.33", with("0.33.0", tier("OffloadingConnector", all)), Offload{Arc: true, Tracked: 7, Threshold: 3, Blocks: 6, SyncBytes: 99}},
		{"LMCache", with("0.24.0", tier(LMCache, nil)), Offload{LMCache: true, Policy: "lru", Bytes: 5 << 30, Blocks: 16}},
		{"LMCache as a server", with("0.24.0", tier(LMCacheServer, lm)), Offload{LMCache: true, Parks: true, Decodes: true, Policy: "lfu", Bytes: 2 << 30, Blocks: 4, Fewest: 5}},
	} {
		if got := c.e.Offload(); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
	if got := with("0.24.0", tier(PullConnector, nil)).Transfers(); got != PullConnector {
		t.Errorf("disaggregated prefill: got %q", got)
	}
	if got := with("0.24.0", tier(LMCache, nil)).Transfers(); got != "" {
		t.Errorf("a CPU tier: got %q", got)
	}
}

func TestExpertsThatAreStoredTwice(t *testing.T) {
	for _, c := range []struct {
		extra               Values
		redundant, interval int64
	}{
		{nil, 0, 0},
		{Values{"num_redundant_experts": 4}, 0, 0},
		{Values{"enable_eplb": true}, 0, 3000},
		{Values{"enable_eplb": true, "num_redundant_experts": 4}, 4, 3000},
		{Values{"enable_eplb": true, "num_redundant_experts": -4}, 0, 3000},
		{Values{"enable_eplb": true, "num_redundant_experts": 1e9}, MaxDevices, 3000},
		{Values{"enable_eplb": true, "eplb_config": map[string]any{"num_redundant_experts": 6, "step_interval": 1}, "num_redundant_experts": 4}, 6, 1},
		{Values{"enable_eplb": true, "eplb_config": map[string]any{"step_interval": 0.5}}, 0, 3000},
	} {
		e := with("0.24.0", c.extra)
		if e.RedundantExperts() != c.redundant || e.EPLBInterval() != c.interval {
			t.Errorf("%v: got %d redundant, every %d steps", c.extra, e.RedundantExperts(), e.EPLBInterval())
		}
	}
}

func TestValuesKeepWholeNumbers(t *testing.T) {
	var v Values
	if err := json.Unmarshal([]byte(`{"a": 1234567890123456789, "b": [1.5, {"c": 18446744073709551615}], "d": "x"}`), &v); err != nil {
		t.Fatal(err)
	}
	want := Values{"a": 1234567890123456789, "b": []any{1.5, map[string]any{"c": uint64(18446744073709551615)}}, "d": "x"}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("got %v, want %v", v, want)
	}
	if err := json.Unmarshal([]byte(`[]`), &v); err == nil {
		t.Error("a list: got no error")
	}
}

func TestDefaultsByRelease(t *testing.T) {
	for version, want := range map[string]float64{"0.22.9": 0.9, "0.23.0": 0.92, "main": 0.9} {
		if got := DefaultMemoryShare(version); got != want {
			t.Errorf("%s: got %g, want %g", version, got, want)
		}
	}
	e := Engine{}.WithDefaults()
	if e.BlockSize != 16 || e.GPUMemoryUtilization != 0.9 || e.SchedulingPolicy != "fcfs" {
		t.Errorf("got %+v", e)
	}
	e.Keep("x", 1)
	e.Keep("y", 2)
	if !reflect.DeepEqual(e.Extra, Values{"x": 1, "y": 2}) {
		t.Errorf("got %v", e.Extra)
	}
	if OptInt(trace.Some[int64](7)) != "7" || OptInt(trace.Opt[int64]{}) != "none" {
		t.Error("an optional count is its digits, or none")
	}
	for _, v := range []any{2, int64(2), 2.0} {
		if n, ok := Number(v); n != 2 || !ok {
			t.Errorf("%T: got %g, %t", v, n, ok)
		}
	}
	if _, ok := Number("2"); ok {
		t.Error("a text is no number")
	}
	for _, c := range []struct {
		capability, tp int64
		mib            float64
	}{{90, 2, 64}, {90, 4, 2}, {90, 8, 1}, {90, 3, 0}, {100, 2, 32}, {103, 4, 32}, {100, 8, 8}, {80, 2, 0}} {
		if got := FusedReduceMaxBytes(c.capability, c.tp); got != c.mib*(1<<20) {
			t.Errorf("capability %d, tp %d: got %g bytes, want %g MiB", c.capability, c.tp, got, c.mib)
		}
	}
}

// TestBoundsOfAnEngine: each setting at its end passes, and beyond it is an error with its name.
func TestBoundsOfAnEngine(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*Engine)
		ok   bool
	}{
		{"", func(*Engine) {}, true},
		{"max_num_batched_tokens", func(e *Engine) { e.MaxNumBatchedTokens = 0 }, false},
		{"max_num_batched_tokens", func(e *Engine) { e.MaxNumBatchedTokens = 1 }, true},
		{"max_num_batched_tokens", func(e *Engine) { e.MaxNumBatchedTokens = MaxTokens }, true},
		{"max_num_batched_tokens", func(e *Engine) { e.MaxNumBatchedTokens = MaxTokens + 1 }, false},
		{"max_num_seqs", func(e *Engine) { e.MaxNumSeqs = 0 }, false},
		{"max_num_seqs", func(e *Engine) { e.MaxNumSeqs = 1 << 21 }, false},
		{"block_size", func(e *Engine) { e.BlockSize = 0 }, false},
		{"block_size", func(e *Engine) { e.BlockSize = 1 << 16 }, true},
		{"block_size", func(e *Engine) { e.BlockSize = 1<<16 + 1 }, false},
		{"kv_blocks_total", func(e *Engine) { e.KVBlocksGPU = trace.Some[int64](-1) }, false},
		{"kv_blocks_total", func(e *Engine) { e.KVBlocksGPU = trace.Some[int64](0) }, true},
		{"kv_blocks_total", func(e *Engine) { e.KVBlocksCPU = -1 }, false},
		{"kv_blocks_total_gpu", func(e *Engine) { e.KVBlocksGPU = trace.Some[int64](MaxKVBlocks + 1) }, false},
		{"kv_blocks_total_cpu", func(e *Engine) { e.KVBlocksCPU = MaxKVBlocks + 1 }, false},
		{"max_model_len", func(e *Engine) { e.MaxModelLen = trace.Some[int64](MaxTokens + 1) }, false},
		{"long_prefill_token_threshold", func(e *Engine) { e.LongPrefillThreshold = MaxTokens + 1 }, false},
	} {
		e := with("0.24.0", nil)
		c.set(e)
		if err := e.Check(); (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s: got %v, want an error: %t", c.name, err, !c.ok)
		}
	}
}

// TestLimitsAreReached: settings within what is modelled reach none, others the one they belong to.
func TestLimitsAreReached(t *testing.T) {
	reached := func(isMoE bool, knobs Values) []string {
		var keys []string
		for _, h := range Reached(func(key string) any { return knobs[key] }, isMoE) {
			if h.Refused {
				h.Got = "refused"
			}
			keys = append(keys, h.Got)
		}
		return keys
	}
	for _, c := range []struct {
		knobs Values
		isMoE bool
		want  []string
	}{
		{Values{"pipeline_parallel_size": 1, "data_parallel_size": 1, "enable_expert_parallel": false}, true, nil},
		{Values{"pipeline_parallel_size": 2}, false, []string{"refused"}},
		{Values{"enable_expert_parallel": true}, true, []string{"refused"}},
		{Values{"data_parallel_size": 2}, false, []string{"data_parallel_size: got 2, want at most 1"}},
		{Values{"data_parallel_size": 2}, true, []string{"refused"}},
		{Values{"cpu_offload_gb": 0}, false, nil},
		{Values{"cpu_offload_gb": 1}, false, []string{"refused"}},
		{Values{"speculative_config": map[string]any{"method": "ngram"}}, false, []string{"refused"}},
		{Values{"kv_transfer_config": map[string]any{"kv_connector": "OffloadingConnector"}}, false, nil},
		{Values{"kv_transfer_config": map[string]any{"kv_connector": PullConnector}}, false, []string{"refused"}},
		{Values{"kv_transfer_config": map[string]any{"kv_connector": "Other"}}, false, []string{"refused"}},
		{Values{"enable_dbo": true}, false, []string{"refused"}},
		{Values{"enable_dbo": false}, false, nil},
		{Values{"mm_encoder_only": true}, false, []string{"refused"}},
	} {
		if got := reached(c.isMoE, c.knobs); !slices.Equal(got, c.want) {
			t.Errorf("%v, experts %t: got %v, want %v", c.knobs, c.isMoE, got, c.want)
		}
	}
	found := Findings(func(key string) any { return Values{"pipeline_parallel_size": 2, "cpu_offload_gb": 1}[key] }, false)
	if len(found) != 2 || found[0].Code != UnsupportedEngine || !strings.HasPrefix(found[0].Message, "pipeline_parallel_size: got 2, want at most 1: ") ||
		!strings.Contains(found[0].Message, "simulate") || !strings.Contains(found[1].Message, "refuse") {
		t.Errorf("got %v", found)
	}
	warned := Limit{What: "x"}
	if warned.Code() != NotModelled || len(Limits()) != len(limits) {
		t.Error("a limit that is not refused is a warning")
	}
}

// TestRulesInForce: the release and the flags decide, and rules of features that are not in use are not listed.
func TestRulesInForce(t *testing.T) {
	names := func(e *Engine, pp, dp int64) string {
		var out []string
		for _, r := range e.RulesInForce(pp, dp) {
			out = append(out, r.Name)
		}
		return strings.Join(out, " ")
	}
	plain := names(with("0.24.0", nil), 1, 1)
	if plain != "full_prompt_admission unhashed_blocks_first empty_batches_queue" {
		t.Errorf("0.24: got %s", plain)
	}
	if got := names(with("0.18.0", nil), 1, 1); got != "" {
		t.Errorf("0.18: got %s", got)
	}
	if got := names(with("0.24.0", Values{"scheduler_reserve_full_isl": false, "watermark": 0.1}), 1, 1); got != "full_prompt_admission watermark unhashed_blocks_first empty_batches_queue" {
		t.Errorf("flags: got %s", got)
	}
	if got := names(with("0.24.0", nil), 2, 1); got != plain+" model_runner_v2 async_with_pp" {
		t.Errorf("two stages: got %s", got)
	}
}
