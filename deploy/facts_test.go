package deploy

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Asynchronous scheduling is on from vLLM 0.14 unless stated otherwise; a
// version that is no number counts as the newest, and that is said.
func TestAsyncSchedulingByVersion(t *testing.T) {
	for version, want := range map[string]struct{ async, assumed bool }{
		"0.11.0": {}, "0.13.9": {}, "0.14.0": {async: true}, "0.15rc1": {async: true}, "v0.14.0rc1.dev5+gabc": {async: true},
		"0.15.1 (inference-sim fork)": {async: true}, "v0.19.0": {async: true}, "1.0": {async: true}, "0.15.1+cpu": {},
		"main": {true, true}, "nightly": {true, true}, "": {true, true}, "0.1.dev12345+g0123abc": {true, true},
	} {
		d := Deployment{Name: "r", Engine: vllm.Engine{VLLMVersion: version}}
		if got := d.Engine.IsAsync(); got != want.async {
			t.Errorf("%q: got %v, want %v", version, got, want.async)
		}
		said := d.Assumed()
		if (len(said) > 0) != want.assumed || want.assumed && said[0].Code != asyncAssumed {
			t.Errorf("%q: got %v, want assumed %v", version, said, want.assumed)
		}
		d.Engine.AsyncScheduling = trace.Some(false)
		if stated := d.Assumed(); d.Engine.IsAsync() || (len(stated) > 0) != want.assumed ||
			want.assumed && strings.Contains(stated[0].Message, "asynchronous") {
			t.Errorf("%q stated as off: got %v, %v", version, d.Engine.IsAsync(), d.Assumed())
		}
	}
	ray := vllm.Engine{VLLMVersion: "0.15.1", Extra: map[string]any{"distributed_executor_backend": "ray"}}
	if ray.IsAsync() {
		t.Error("the executor ray schedules asynchronously")
	}
}

// The longest sequence is the stated one, else the model's position limit as
// vLLM derives it, and never more than the KV cache holds.
func TestLongestSequence(t *testing.T) {
	load := func(config string, set ...string) *Deployment {
		t.Helper()
		fsys := runFS(goodRun)
		fsys["config.json"].Data = []byte(strings.Replace(string(fsys["config.json"].Data), "{", "{"+config, 1))
		d, err := loadRunFS(fsys, "run.yaml", set...)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, c := range []struct {
		config, set string
		want        trace.Opt[int64]
	}{
		{"", "name=x", trace.Opt[int64]{}},
		{`"max_position_embeddings": 4096,`, "name=x", trace.Some[int64](4096)},
		{`"max_position_embeddings": 4096,`, "vllm.max_model_len=100", trace.Some[int64](100)},
		{`"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 2.0},`, "name=x", trace.Some[int64](8192)},
		{`"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0},`, "name=x", trace.Some[int64](131072)},
		{`"max_position_embeddings": 40960, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},`,
			"name=x", trace.Some[int64](131072)},
	} {
		if got := load(c.config, c.set).MaxModelLen(); got != c.want {
			t.Errorf("%s %s: got %v, want %v", c.config, c.set, got, c.want)
		}
	}
	d := load(`"max_position_embeddings": 4096,`, "vllm.kv_blocks_total_gpu=10")
	if got := d.LongestSequence(); got.V != 160 {
		t.Errorf("10 blocks: got %v, want 160 tokens", got)
	}
	if d.Seats(1) != 10 || d.Seats(17) != 5 || d.Seats(1e6) != 1 {
		t.Errorf("10 blocks: got %d, %d, %d seats, want 10, 5, 1", d.Seats(1), d.Seats(17), d.Seats(1e6))
	}
}

// A position limit within the attention window leaves the window inactive.
func TestPositionLimitWithinTheWindow(t *testing.T) {
	config := `{"model_type": "mistral", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8, "intermediate_size": 128,
		"vocab_size": 100, "torch_dtype": "bfloat16", "sliding_window": 4096, "max_position_embeddings": `
	for _, limit := range []string{"4096}", "8192}"} {
		m, err := model.Load(strings.NewReader(config+limit), "c.json", model.Options{})
		if err != nil || (m.Layered != nil) != (limit == "8192}") {
			t.Errorf("position limit %s: got %v and layers %v", limit, err, m.Layered)
		}
	}
}

func TestGraphTokens(t *testing.T) {
	for _, c := range []struct {
		seqs           int64
		tokens, padded float64
		captured       bool
	}{{256, 1, 1, true}, {256, 2, 2, true}, {256, 3, 4, true}, {256, 5, 8, true}, {256, 17, 24, true}, {256, 250, 256, true},
		{256, 257, 272, true},
		{256, 512, 512, true}, {256, 513, 513, false}, {1024, 600, 600, false}, {3, 5, 5, false}, {3, 7, 7, false}, {100, 100, 104, true}} {
		d := &Deployment{Engine: vllm.Engine{VLLMVersion: "0.15.1", MaxNumSeqs: c.seqs}}
		if padded, captured := d.GraphSizes().Tokens(c.tokens); padded != c.padded || captured != c.captured {
			t.Errorf("%g tokens at %d sequences: got %g, %v, want %g, %v", c.tokens, c.seqs, padded, captured, c.padded, c.captured)
		}
	}
}

// Sizes by release, those that vllm/config/vllm.py of each computes.
func TestGraphTokensByRelease(t *testing.T) {
	spec := vllm.Values{"speculative_config": map[string]any{"method": "eagle3", "num_speculative_tokens": 3}}
	for _, c := range []struct {
		version, gpu   string
		seqs, budget   int64
		extra          vllm.Values
		tokens, padded float64
		captured       bool
	}{
		{"0.28.0", "H100", 100, 8192, nil, 100, 104, true}, {"0.29.0", "H100", 100, 8192, nil, 100, 100, true},
		{"0.33.0", "H100", 100, 8192, nil, 99, 100, true}, {"0.33.0", "H100", 100, 8192, nil, 101, 104, true},
		{"0.26.0", "B200", 1024, 8192, nil, 600, 600, false}, {"0.28.0", "B200", 1024, 8192, nil, 600, 608, true},
		{"0.33.0", "B200-SXM-180GB", 1024, 8192, nil, 1025, 1025, false},
		{"0.19.1", "H100", 256, 100, nil, 99, 99, false}, {"0.23.0", "H100", 256, 100, nil, 99, 100, true},
		{"0.28.0", "H100", 10, 8192, spec, 21, 24, true}, {"0.29.0", "H100", 5, 8192, spec, 17, 20, true},
		{"0.28.0", "H100", 5, 8192, spec, 17, 24, true}, {"0.28.0", "H100", 5, 8192, spec, 40, 40, true},
		{"0.28.0", "H100", 5, 8192, spec, 41, 41, false},
		{"0.33.0", "H100", 256, 8192, vllm.Values{"performance_mode": "interactivity"}, 13, 13, true},
		{"0.33.0", "H100", 100, 8192, vllm.Values{"max_cudagraph_capture_size": int64(300)}, 100, 104, true},
		{"0.33.0", "H100", 20, 50, vllm.Values{"cudagraph_capture_sizes": []any{int64(8), int64(48), int64(64)}}, 49, 49, false},
		{"0.33.0", "H100", 7, 8192, vllm.Values{"speculative_config": map[string]any{"method": "eagle3", "num_speculative_tokens": int64(3),
			"num_speculative_tokens_per_batch_size": [][]int{{1, 4, 3}, {5, 7, 2}}}}, 21, 21, true},
		{"0.24.0", "H100", 256, 8192, vllm.Values{"enforce_eager": true}, 13, 13, false},
		{"0.24.0", "H100", 256, 8192, vllm.Values{"optimization_level": int64(0)}, 13, 13, false},
		{"0.24.0", "H100", 256, 8192, vllm.Values{"optimization_level": int64(1)}, 13, 16, true},
		{"0.24.0", "H100", 256, 8192, vllm.Values{"max_cudagraph_capture_size": int64(0)}, 13, 13, false},
		{"0.24.0", "H100", 256, 8192, vllm.Values{"compilation_config": map[string]any{"cudagraph_mode": "none"}}, 13, 13, false},
		{"0.24.0", "H100", 256, 8192, vllm.Values{"compilation_config": map[string]any{"mode": int64(0)}}, 13, 13, false},
		{"0.24.0", "H100", 256, 8192, vllm.Values{"compilation_config": map[string]any{"mode": int64(0), "cudagraph_mode": "FULL"}}, 13, 16, true},
	} {
		d := &Deployment{Hardware: Hardware{Name: c.gpu},
			Engine: vllm.Engine{VLLMVersion: c.version, MaxNumSeqs: c.seqs, MaxNumBatchedTokens: c.budget, Extra: c.extra}}
		if padded, captured := d.GraphSizes().Tokens(c.tokens); padded != c.padded || captured != c.captured {
			t.Errorf("%s, %s, %d seats: %g tokens: got %g, %v, want %g, %v", c.version, c.gpu, c.seqs, c.tokens, padded, captured,
				c.padded, c.captured)
		}
	}
}

const mib = 1 << 20

func TestAllReduceCurves(t *testing.T) {
	graph, eager := AllReduceOf("H100", 8)
	if graph == nil || eager == nil || graph.Us(1) != graph.TimeUs[0] || graph.Us(2*512*mib) != 2*graph.Us(512*mib) ||
		eager.Us(4*mib) <= graph.Us(4*mib) {
		t.Errorf("H100: got %v and %v", graph, eager)
	}
	if mid := graph.Us(96 * 1024); mid != (graph.Us(64*1024)+graph.Us(128*1024))/2 {
		t.Errorf("between two sizes: got %g", mid)
	}
	if graph, _ := AllReduceOf("H100", 3); graph != nil {
		t.Errorf("3 GPUs: got %v", graph)
	}
	if graph, _ := AllReduceOf("RTX 4090", 2); graph != nil {
		t.Errorf("a device without a table: got %v", graph)
	}
	d := &Deployment{Hardware: Hardware{Name: "B200-SXM-180GB"}, TP: 8,
		Engine: vllm.Engine{Extra: map[string]any{
			"compilation_config": map[string]any{"pass_config": map[string]any{"enable_fi_allreduce_fusion": true}}}}}
	if c, most := d.FusedAllReduce(); c == nil || most != 8*mib {
		t.Errorf("fused: got %v, %g", c, most)
	}
	d.Hardware.Name = "H100-SXM-80GB"
	if c, _ := d.FusedAllReduce(); c != nil {
		t.Errorf("fused on H100: got %v", c)
	}
}

// Settings of the CPU tier that vLLM refuses are refused by name.
func TestBadOffloadIsNamed(t *testing.T) {
	for setting, c := range map[string]struct {
		value any
		want  string
	}{
		"offload_prompt_only": {true, ""}, "eviction_policy": {"fifo", "eviction_policy: got fifo, want lru, or arc from 0.19 on"},
		"block_size": {40, "block_size: got 40, want a multiple of 16"}, "store_threshold": {2.0, ""}, "num_cpu_blocks": {500, ""},
		"max_tracker_size":       {0, "max_tracker_size: got 0, want 1 or more"},
		"sync_load_budget_bytes": {int64(1 << 20), ""}, "blocks_per_chunk": {0, "blocks_per_chunk: got 0, want 1 or more"},
	} {
		d := &Deployment{Name: "x", TP: 1, PP: 1, DP: 1}
		d.Engine = vllm.Engine{BlockSize: 16, CPUOffloading: true, VLLMVersion: "0.33.0", Extra: vllm.Values{"kv_transfer_config": map[string]any{
			"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": map[string]any{setting: c.value}}}}
		err := d.CheckSimulated()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %v: got %v, want %q", setting, c.value, err, c.want)
		}
		d.Engine.VLLMVersion = "0.19.1"
		d.Engine.Extra = vllm.Values{"kv_transfer_config": map[string]any{
			"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
			"kv_connector_extra_config": map[string]any{"block_size": 16, "eviction_policy": "lru", "store_threshold": 0}}}
		if err := d.CheckSimulated(); err != nil || len(d.Estimates()) != 0 {
			t.Errorf("defaults: %v, %v", err, d.Estimates())
		}
	}
}

// Of LMCache a tier in CPU memory is played; other settings, and what it cannot be, are refused by name.
func TestBadLMCacheIsNamed(t *testing.T) {
	for _, c := range []struct {
		connector, setting string
		value              any
		want               string
	}{
		{"LMCacheConnectorV1", "lmcache.chunk_size", 512, ""}, {"LMCacheConnectorV1", "lmcache.max_local_cpu_size", 20, ""},
		{"LMCacheConnectorV1", "lmcache.cache_policy", "LFU", ""}, {"LMCacheConnectorV1", "lmcache.local_cpu", true, ""},
		{"LMCacheConnectorV1", "lmcache.remote_url", nil, ""}, {"LMCacheConnectorV1", "discard_partial_chunks", true, ""},
		{"LMCacheConnectorV1", "lmcache.max_local_disk_size", 0.0, ""}, {"LMCacheMPConnector", "lmcache.mp.port", 6555, ""},
		{"LMCacheConnectorV1", "lmcache.chunk_size", 100, "lmcache.chunk_size: got 100, want a multiple of block_size 16"},
		{"LMCacheConnectorV1", "lmcache.chunk_size", -256, "lmcache.chunk_size: got -256, want"},
		{"LMCacheConnectorV1", "lmcache.cache_policy", "S3FIFO", "lmcache.cache_policy: got s3fifo, want lru, fifo, lfu or mru"},
		{"LMCacheConnectorV1", "lmcache.max_local_cpu_size", -1, "lmcache.max_local_cpu_size: got -1.073741824e+09 bytes, want more"},
		{"LMCacheConnectorV1", "lmcache.local_cpu", false, "lmcache.local_cpu: got false, want it left out"},
		{"LMCacheConnectorV1", "lmcache.remote_url", "redis://h:6379", "lmcache.remote_url: got redis://h:6379, want it left out"},
		{"LMCacheConnectorV1", "lmcache.local_disk", "file:///tmp", "lmcache.local_disk: got file:///tmp, want it left out"},
		{"LMCacheConnectorV1", "lmcache.enable_p2p", true, "lmcache.enable_p2p: got true, want it left out"},
		{"LMCacheConnectorV1", "lmcache.enable_blending", true, "lmcache.enable_blending: got true, want it left out"},
		{"LMCacheConnectorV1", "lmcache.save_unfull_chunk", true, "lmcache.save_unfull_chunk: got true, want it left out"},
		{"LMCacheConnectorV1", "lmcache.blend_check_layers", []any{1}, "lmcache.blend_check_layers: got [1], want it left out"},
		{"LMCacheConnectorV1", "use_native", true, "use_native: got true, want it left out"},
	} {
		d := &Deployment{Name: "x", TP: 1, PP: 1, DP: 1}
		d.Engine = vllm.Engine{BlockSize: 16, CPUOffloading: true, KVBlocksCPU: 100, VLLMVersion: "0.33.0"}
		d.Engine.Extra = vllm.Values{"kv_transfer_config": map[string]any{"kv_connector": c.connector,
			"kv_role": "kv_both", "kv_connector_extra_config": map[string]any{c.setting: c.value}}}
		err := d.CheckSimulated()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %v: got %v, want %q", c.setting, c.value, err, c.want)
		}
		if found := d.Estimates(); len(found) != 1 || !strings.Contains(found[0].Message, "not validated: no server with LMCache") {
			t.Errorf("%s: got %v, want not validated", c.setting, found)
		}
		d.Engine.KVBlocksCPU = 0
		if err := d.CheckSimulated(); c.want == "" && (c.connector == vllm.LMCacheServer) != (err != nil) {
			t.Errorf("%s without kv_blocks_total_cpu: got %v", c.connector, err)
		}
	}
}

// Knobs that vLLM refuses beside each other are refused by name.
func TestContradictionsAreRefused(t *testing.T) {
	const spec = "vllm.speculative_config={num_speculative_tokens: 3, synthetic_acceptance_length: 2, "
	for _, c := range []struct {
		want string // "": accepted
		set  []string
	}{
		{"max_num_batched_tokens: got 2048, want at least max_model_len 8192", []string{"vllm.enable_chunked_prefill=false",
			"vllm.max_num_batched_tokens=2048"}},
		{"max_num_batched_tokens: got 64, want at least max_num_seqs 128", []string{"vllm.max_num_batched_tokens=64"}},
		{"max_num_active_seqs: got 129, want at most max_num_seqs 128", []string{"vllm.max_num_active_seqs=129"}},
		{"", []string{"vllm.max_num_active_seqs=128"}},
		{"long_prefill_token_threshold: got 8193, want at most max_model_len 8192", []string{"vllm.long_prefill_token_threshold=8193"}},
		{"eplb_config.num_redundant_experts: got 4, want enable_eplb", []string{"vllm.eplb_config={num_redundant_experts: 4}"}},
		{"data_parallel_rank: got 2, want less than data_parallel_size 2", []string{"data_parallel_size=2", "vllm.data_parallel_rank=2"}},
		{"kv_transfer_config.kv_role: got both, want kv_producer", []string{
			"vllm.kv_transfer_config={kv_connector: OffloadingConnector, kv_role: both}"}},
		{"kv_transfer_config.kv_role: got <nil>, want kv_producer", []string{"vllm.kv_transfer_config={kv_connector: OffloadingConnector}"}},
		{"all2all_backend: got \"deepep\", want one of naive, pplx", []string{"vllm.all2all_backend=deepep"}},
		{"per_request_spec_decode_metrics: got detailed, want speculative_config", []string{"vllm.per_request_spec_decode_metrics=detailed"}},
		{"", []string{"vllm.per_request_spec_decode_metrics=detailed", spec + "method: eagle}"}},
		{"async_scheduling: got true, want false with drafts by ngram", []string{"vllm.version=0.31.0", spec + "method: ngram}"}},
		{"", []string{spec + "method: ngram}"}},
		{"draft_tensor_parallel_size: got 2, want 1 or tensor_parallel_size 1", []string{spec + "method: eagle, draft_tensor_parallel_size: 2}"}},
		{"max_num_batched_tokens: got 3, want more than the drafts", []string{"vllm.max_num_seqs=3", "vllm.max_num_batched_tokens=3",
			spec + "method: eagle}"}},
		{"", []string{"vllm.max_num_seqs=3", "vllm.max_num_batched_tokens=4", spec + "method: eagle}"}},
		{"prompt_lookup_min: got 4, want at most prompt_lookup_max 2", []string{
			spec + "method: ngram, prompt_lookup_min: 4, prompt_lookup_max: 2}"}},
		{`the key "num_spec_tokens"`, []string{spec + "method: ngram, num_spec_tokens: 2}"}},
		{"", []string{spec + "method: eagle, num_speculative_tokens_per_batch_size: [[5, 9, 1], [1, 4, 3]]}"}},
		{`got draft_model with the model "x/y", whose size is not known`, []string{spec + "method: draft_model, model: x/y}"}},
		{"got Qwen3-0.6B with a vocabulary of 151936 tokens, want the 128256", []string{spec + "method: draft_model, model: Qwen3-0.6B}"}},
		{"", []string{spec + "method: draft_model, model: Qwen3-0.6B, use_heterogeneous_vocab: true}"}},
		{"", []string{spec + "method: draft_model, model: Llama-3.1-8B}"}},
		{"", []string{spec + "model: ../b200-llama-3.1-8b-tp1}"}}, // a draft model where no method is stated
		{"", []string{spec + "model: config.json}"}},
		{"got ../a100-codellama-34b-tp2 with a vocabulary of 32000 tokens, want the 128256", []string{
			spec + "model: ../a100-codellama-34b-tp2}"}},
		{"got draft_model with the model \"../none\", whose size is not known", []string{spec + "model: ../none}"}},
		{"", []string{spec + "model: org/EAGLE3-Llama}"}},
		{"method: got mtp, want a model with layers of multi-token prediction", []string{spec + "method: mtp}"}},
		{"method: got mtp, want a model with", []string{spec + "method: deepseek_mtp}"}},
		{"", []string{spec + "method: mtp, model: org/heads}"}},
	} {
		d, err := LoadRun("../testdata/traces/demo/b200-llama-3.1-8b-tp1", append([]string{"vllm.version=0.33.0"}, c.set...)...)
		if err == nil {
			err = d.CheckSimulated()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: got %v, want %q", c.set, err, c.want)
		}
	}
}

// The short flags of speculative decoding are a speculative_config, which wins over them.
func TestShortDraftFlags(t *testing.T) {
	d, err := LoadRun("../testdata/traces/demo/b200-llama-3.1-8b-tp1", "vllm.version=0.33.0", "vllm.spec_method=eagle3", "vllm.spec_model=x",
		"vllm.spec_tokens=3", "vllm.speculative_config={num_speculative_tokens: 2, synthetic_acceptance_length: 2}")
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Engine.Speculation()
	if err != nil || s.Method != "eagle3" || s.Model != "x" || s.Tokens != 2 || !d.Engine.SpeculativeDecoding {
		t.Errorf("got %+v, %v", s, err)
	}
}

// A drafter's weights are read in each of its passes, and take room in an estimated KV cache.
func TestDrafterTakesTimeAndRoom(t *testing.T) {
	load := func(set ...string) (us float64, passes, blocks int64) {
		d, err := LoadRun("../testdata/traces/demo/b200-llama-3.1-8b-tp1", append([]string{"vllm.version=0.33.0"}, set...)...)
		if err != nil {
			t.Fatal(err)
		}
		us, passes = d.DrafterUs()
		if blocks, err = d.EstimateKVBlocks(); err != nil {
			t.Fatal(err)
		}
		return us, passes, blocks
	}
	_, none, plain := load()
	us, passes, less := load("vllm.speculative_config={method: draft_model, model: Llama-3.1-8B, num_speculative_tokens: 3}")
	if none != 0 || passes != 3 || us < 2050 || us > 2150 { // 16.1 GB at 7.7 TB/s
		t.Errorf("%d passes without a drafter; %d passes of %.0f us", none, passes, us)
	}
	if share := float64(less) / float64(plain); share < 0.42 || share > 0.48 { // as much KV again, and its weights
		t.Errorf("blocks: got %d beside a draft model, %d without", less, plain)
	}
	layer, _, most := load("vllm.speculative_config={method: eagle, num_speculative_tokens: 3}")
	if share := float64(most) / float64(plain); layer < 150 || layer > 250 || share < 0.93 || share > 0.97 { // 1/32 of the KV, 1.5 GB
		t.Errorf("EAGLE: %.0f us a pass, %d blocks, %d without", layer, most, plain)
	}
}
