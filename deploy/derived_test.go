package deploy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// settings returns an 8B model on an H100 with further settings.
func settings(t *testing.T, more ...string) *Deployment {
	t.Helper()
	d, err := LoadSettings(append([]string{"model.id=meta-llama/Llama-3.1-8B", "hardware.name=H100", "vllm.version=0.24.0", "vllm.max_num_seqs=64",
		"vllm.max_num_batched_tokens=2048", "vllm.block_size=16", "vllm.max_model_len=8192"}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestKVCacheFromMemory recomputes the number of blocks: memory less weights, activations and the context. A
// block has 16 tokens of 32 layers with keys and values of 8 heads of 128 dimensions in two bytes.
func TestKVCacheFromMemory(t *testing.T) {
	const blockBytes = 16 * 32 * 2 * 8 * 128 * 2
	d := settings(t, "vllm.gpu_memory_utilization=0.8")
	stepBytes := 2*2048*(3*4096+3*14336.0) + 64*128256*8
	for _, c := range []struct {
		name  string
		set   []string
		bytes float64
	}{
		{"graphs", nil, 80*gib*0.99*0.8 - d.Model.WeightBytes() - stepBytes - gib/2.0},
		{"eager", []string{"vllm.enforce_eager=true"}, 80*gib*0.99*0.8 - d.Model.WeightBytes() - stepBytes - gib/4.0},
		{"stated bytes", []string{"vllm.kv_cache_memory_bytes=1073741824"}, gib},
	} {
		got, err := settings(t, append(c.set, "vllm.gpu_memory_utilization=0.8")...).EstimateKVBlocks()
		if want := int64(c.bytes/blockBytes) - 1; err != nil || got != want {
			t.Errorf("%s: got %d blocks, %v, want %d", c.name, got, err, want)
		}
	}
	// An encoder of images is on the GPUs of the first stage, shared by its ranks, unless the server takes text alone.
	vision := []string{"model.id=google/gemma-3-27b-it", "vllm.max_model_len=8192"}
	const ofGemma = 423e6 * 2
	for _, c := range []struct {
		name  string
		set   []string
		bytes float64
	}{
		{"one GPU", nil, ofGemma}, {"two ranks", []string{"tensor_parallel_size=2"}, ofGemma / 2},
		{"images whole on a rank", []string{"tensor_parallel_size=2", "vllm.mm_encoder_tp_mode=data"}, ofGemma},
		{"text alone", []string{"vllm.language_model_only=true"}, 0}, {"no images", []string{"vllm.limit_mm_per_prompt={image: 0, video: 0}"}, 0},
		{"no videos", []string{"vllm.limit_mm_per_prompt={image: 1, video: 0}"}, ofGemma},
	} {
		d := settings(t, append(append([]string{}, vision...), c.set...)...)
		if got := d.encoderBytes(); got != c.bytes {
			t.Errorf("%s: got %g bytes of an encoder, want %g", c.name, got, c.bytes)
		}
		with, err1 := d.EstimateKVBlocks()
		d.Model.EncoderParams = 0
		without, err2 := d.EstimateKVBlocks()
		pool, _ := d.Model.Layers().KVPool(d.Parallel(), d.Engine.BlockSize)
		if lost := float64(without - with); err1 != nil || err2 != nil || math.Abs(lost-c.bytes/pool.BlockBytes) > 1 {
			t.Errorf("%s: got %g blocks fewer, want the %g bytes of the encoder, %v, %v", c.name, lost, c.bytes, err1, err2)
		}
	}
	for _, want := range []int64{1, 77} {
		n, estimated, err := settings(t, fmt.Sprintf("vllm.kv_blocks_total_gpu=%d", want)).KVBlocks()
		if n != want || estimated || err != nil {
			t.Errorf("stated %d: got %d, %t, %v", want, n, estimated, err)
		}
	}
	if _, err := settings(t, "vllm.gpu_memory_utilization=0.1").EstimateKVBlocks(); trace.CodeOf(err) != BadHardware {
		t.Errorf("no room: got %v", err)
	}
	if _, err := settings(t, "hardware.memory_gb=0").EstimateKVBlocks(); trace.CodeOf(err) != BadHardware {
		t.Errorf("no memory stated: got %v", err)
	}
	if got := d.KVBytes(17); got != 2*blockBytes {
		t.Errorf("17 tokens: got %g bytes, want two blocks of %d", got, blockBytes)
	}
	for name, want := range map[string]float64{"L40S-48GB": 44.40 / 48, "RTX-4090-24GB": 23.52 / 24, "H100-SXM-80GB": 0.99} {
		if got := (&Hardware{Name: name}).usableShare(); got != want {
			t.Errorf("%s: got %g of the memory, want %g", name, got, want)
		}
	}
}

func TestLongestSequenceAndSeats(t *testing.T) {
	for _, c := range []struct {
		set         []string
		max, long   int64
		seats       int64
		ofSomeToken float64
	}{
		{[]string{"vllm.kv_blocks_total_gpu=1000"}, 8192, 8192, 15, 1025},
		{[]string{"vllm.kv_blocks_total_gpu=100"}, 8192, 1600, 1, 1025},
		{[]string{"vllm.kv_blocks_total_gpu=10000"}, 8192, 8192, 64, 1025},
	} {
		d := settings(t, c.set...)
		if d.MaxModelLen().V != c.max || d.LongestSequence().V != c.long || d.Seats(c.ofSomeToken) != c.seats {
			t.Errorf("%v: got %v, %v, %d seats, want %d, %d, %d", c.set, d.MaxModelLen(), d.LongestSequence(), d.Seats(c.ofSomeToken), c.max, c.long, c.seats)
		}
	}
	d := settings(t)
	d.Engine.MaxModelLen = trace.Opt[int64]{}
	if got := d.MaxModelLen(); got != trace.Some[int64](131072) {
		t.Errorf("not stated: got %v, want the model's positions", got)
	}
}

// TestTokenTimes: the weights of 8B parameters in two bytes at 3.35 TB/s on each of two devices.
func TestTokenTimes(t *testing.T) {
	d := settings(t, "tensor_parallel_size=2")
	readUs := d.Model.WeightBytes() / (2 * d.Hardware.BwPeakTBs * 1e6)
	got, ok := d.TokenTimes()
	want := TokenTimes{ReadUs: readUs, LeastUs: readUs / 2, MostUs: 1000 * readUs}
	if !ok || math.Abs(readUs-2400) > 100 || got != want {
		t.Errorf("got %+v, %t, want %+v", got, ok, want)
	}
	if _, ok := settings(t, "model.id=Qwen/Qwen3-30B-A3B").TokenTimes(); ok {
		t.Error("the weights that experts read depend on the batch")
	}
	d.Hardware.BwPeakTBs = 0
	if _, ok := d.TokenTimes(); ok {
		t.Error("no bandwidth: got a range")
	}
}

func TestRanksBehindABalancer(t *testing.T) {
	for _, c := range []struct {
		set            []string
		gpus           int64
		ranks, servers int64
	}{
		{nil, 1, 1, 1},
		{[]string{"data_parallel_size=4", "tensor_parallel_size=2"}, 8, 4, 4},
		{[]string{"data_parallel_size=4", "vllm.api_server_count=1"}, 4, 4, 1},
		{[]string{"data_parallel_size=4", "vllm.data_parallel_external_lb=true"}, 4, 1, 1},
		{[]string{"data_parallel_size=4", "vllm.data_parallel_rank=0"}, 4, 1, 1},
		{[]string{"data_parallel_size=4", "vllm.data_parallel_hybrid_lb=true", "vllm.data_parallel_size_local=2"}, 4, 2, 2},
		{[]string{"data_parallel_size=4", "vllm.data_parallel_start_rank=0", "vllm.data_parallel_size_local=4"}, 4, 4, 4},
		{[]string{"data_parallel_size=4", "vllm.data_parallel_size_local=2"}, 4, 4, 4},
	} {
		d := settings(t, c.set...)
		if ranks, servers := d.Balanced(); ranks != c.ranks || servers != c.servers || d.GPUs() != c.gpus {
			t.Errorf("%v: got %d ranks, %d servers, %d GPUs, want %d, %d, %d", c.set, ranks, servers, d.GPUs(), c.ranks, c.servers, c.gpus)
		}
	}
}

// TestExchangeOfHiddenStates recomputes 60 us of latency and bytes for 8 tokens in each of the layers with experts.
func TestExchangeOfHiddenStates(t *testing.T) {
	moe := func(set ...string) *Deployment {
		d := settings(t, append([]string{"model.id=Qwen/Qwen3-30B-A3B", "data_parallel_size=4"}, set...)...)
		d.Hardware.InterconnectLatencyUs = 3
		d.Hardware.InterconnectBandwidthGBs = 900
		return d
	}
	d := moe()
	m := &d.Model
	us := func(received float64) float64 {
		return 2 * float64(m.NumMoELayers) * (3 + received*0.75*float64(m.HiddenSize)*2/450e3)
	}
	if got, want := d.ExchangeUs(8), us(8); math.Abs(got-want) > 1e-9 || m.NumMoELayers != 48 || m.HiddenSize != 2048 {
		t.Errorf("all-gather: got %g us, want %g", got, want)
	}
	if got, want := moe("vllm.all2all_backend=deepep_low_latency").ExchangeUs(8), us(8); math.Abs(got-want) > 1e-9 {
		t.Errorf("all-to-all to four ranks: got %g us, want %g", got, want)
	}
	many := moe("vllm.all2all_backend=pplx")
	many.DP = 16
	if got, want := many.ExchangeUs(16), 2*48*(3+8*15.0/16*2048*2/450e3); math.Abs(got-want) > 1e-9 {
		t.Errorf("all-to-all to 8 of 16 ranks: got %g us, want %g", got, want)
	}
	// DeepSeek-V3 has three dense layers before its 58 with experts, so that its fields for equal layers are incomplete.
	unlike := moe("model.id=deepseek-ai/DeepSeek-V3")
	if got, want := unlike.ExchangeUs(8), 2*58*(3+8*0.75*7168*2/450e3); math.Abs(got-want) > 1e-9 || unlike.Model.NumMoELayers == 58 {
		t.Errorf("unlike layers: got %g us, want %g", got, want)
	}
	unlike.DP = 16
	unlike.Engine.Keep("all2all_backend", "deepep_low_latency")
	if got, want := unlike.ExchangeUs(32), 2*58*(3+2*8*15.0/16*7168*2/450e3); math.Abs(got-want) > 1e-9 {
		t.Errorf("unlike layers, all-to-all to 8 of 16 ranks: got %g us, want %g", got, want)
	}
	if settings(t, "data_parallel_size=4").ExchangeUs(8) != 0 || settings(t, "model.id=Qwen/Qwen3-30B-A3B").ExchangeUs(8) != 0 {
		t.Error("without experts or ranks nothing is exchanged")
	}
}

// TestDrafters: a draft model reads its own weights k times, EAGLE and MTP a layer and the head, n-grams nothing.
func TestDrafters(t *testing.T) {
	plain := settings(t)
	layer := (plain.Model.WeightBytes() - 2*128256*4096*2) / 32
	head := 128256 * 4096 * 2.0
	for _, c := range []struct {
		config string
		bytes  float64
		passes int64
	}{
		{`{"method":"ngram","num_speculative_tokens":3}`, 0, 0},
		{`{"method":"eagle","num_speculative_tokens":3}`, layer + head, 3},
		{`{"method":"eagle","num_speculative_tokens":3,"parallel_drafting":true}`, layer + head, 1},
	} {
		d := settings(t, "vllm.speculative_config="+c.config)
		us, passes := d.DrafterUs()
		if want := c.bytes / (d.Hardware.BwPeakTBs * 1e6); math.Abs(us-want) > 1e-6*want || passes != c.passes {
			t.Errorf("%s: got %g us, %d passes, want %g, %d", c.config, us, passes, want, c.passes)
		}
		own := d.WithoutDrafts()
		if s, _ := own.Engine.Speculation(); s != nil || own.Engine.SpeculativeDecoding || d.Engine.Extra["speculative_config"] == nil {
			t.Errorf("%s: without drafts: got %v", c.config, own.Engine.Extra)
		}
		if own.Engine.IsAsync() != d.Engine.IsAsync() {
			t.Errorf("%s: without drafts the scheduling is async %t, want as before", c.config, own.Engine.IsAsync())
		}
	}
	if plain.WithoutDrafts() != plain || plain.Plain(false) != plain {
		t.Error("a server without drafts is itself")
	}
}

func TestPlainDeployments(t *testing.T) {
	moe := settings(t, "model.id=Qwen/Qwen3-30B-A3B", "data_parallel_size=2", "pipeline_parallel_size=2", "vllm.enable_expert_parallel=true",
		`vllm.kv_transfer_config={"kv_connector":"NixlConnector","kv_role":"kv_both"}`)
	layered, summed := moe.Plain(true), moe.Plain(false)
	if layered.PP != 1 || layered.DP != 2 || !layered.Engine.ExpertParallel || layered.Engine.Extra["kv_transfer_config"] != nil {
		t.Errorf("sums over layers: got pp %d, dp %d, %v", layered.PP, layered.DP, layered.Engine.Extra)
	}
	if summed.PP != 1 || summed.DP != 1 || summed.Engine.ExpertParallel || moe.DP != 2 || moe.Engine.Extra["kv_transfer_config"] == nil {
		t.Errorf("others: got dp %d, experts %t", summed.DP, summed.Engine.ExpertParallel)
	}
}

// TestCommandLines has one of each form, and what run.yaml gets from it.
func TestCommandLines(t *testing.T) {
	read := func(name string) ([]byte, error) {
		if name != "c.yaml" {
			return nil, errors.New("no such file")
		}
		return []byte("max-num-seqs: 32\nmodel_tag: other/model\nblock-size: 32\nno-such: 1\n"), nil
	}
	for _, c := range []struct {
		line string
		want map[string]any
	}{
		{"vllm serve a/b --max-num-seqs 8 --no-enable-prefix-caching -tp 2 | tee log", map[string]any{"model.id": "a/b", "vllm.max_num_seqs": int64(8),
			"vllm.enable_prefix_caching": false, "tensor_parallel_size": int64(2)}},
		{"vllm serve a/b --max-num-seqs 8; echo", map[string]any{"vllm.max_num_seqs": int64(8)}},
		{"python -m vllm.entrypoints.openai.api_server --model a/b --max-model-len=8k", map[string]any{"model.id": "a/b", "vllm.max_model_len": int64(8000)}},
		{"bash -c 'vllm serve a/b --enforce-eager'", map[string]any{"model.id": "a/b", "vllm.enforce_eager": true}},
		{"docker run -e OTEL_SPAN_EVENT_COUNT_LIMIT=99 vllm/vllm-openai:v0.11.0 --model a/b", map[string]any{"model.id": "a/b", "vllm.version": "0.11.0",
			"tracing.otel_span_event_count_limit": int64(99)}},
		{"vllm serve a/b --config c.yaml --block-size 64", map[string]any{"model.id": "a/b", "vllm.max_num_seqs": int64(32), "vllm.block_size": int64(64)}},
		{"vllm serve a/b --speculative-config.method ngram --speculative-config.num_speculative_tokens 3", map[string]any{
			"vllm.speculative_config": map[string]any{"method": "ngram", "num_speculative_tokens": int64(3)}}},
		{"vllm serve a/b --cudagraph-capture-sizes 1 2 4 --max-num-seqs 5", map[string]any{"vllm.cudagraph_capture_sizes": "1 2 4", "vllm.max_num_seqs": int64(5)}},
		{"vllm serve a/b --api-key secret", map[string]any{"vllm.api_key": nil}},
		{"vllm serve a/b --max-model-len auto", map[string]any{"vllm.max_model_len": nil}},
		{"vllm serve a/b --no-such x --max-num-seqs 7", map[string]any{"vllm.max_num_seqs": int64(7), "vllm.no_such": nil}},
		{"vllm serve --no-such a/b", map[string]any{"model.id": "a/b"}},
		{"vllm serve a/b --no-such", map[string]any{"model.id": "a/b", "vllm.no_such": nil}},
		{"vllm serve --no-such x a/b", map[string]any{"model.id": "a/b"}},
		{"vllm serve a/b -O3", map[string]any{"vllm.optimization_level": int64(3)}},
		{`vllm serve a/b --kv-transfer-config '{"kv_connector":"OffloadingConnector","kv_connector_extra_config":{"num_cpu_blocks":50}}'`,
			map[string]any{"vllm.cpu_offloading": true, "vllm.kv_blocks_total_cpu": int64(50)}},
		{`vllm serve a/b --kv-transfer-config '{"kv_connector":"NixlConnector"}'`, map[string]any{"vllm.cpu_offloading": nil}},
	} {
		d, err := FromCommandLine(c.line, read)
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		for path, want := range c.want {
			if got := d.Get(path); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %s: got %v, want %v", c.line, path, got, want)
			}
		}
	}
	for line, want := range map[string]string{
		"echo hello":                              "want one that runs",
		"vllm serve a/b c/d":                      "want a flag",
		"vllm serve a/b --max-num-seqs many":      "want a whole number",
		"vllm serve a/b --block-size 7":           "block-size",
		"vllm serve a/b 'x":                       "open quote",
		"vllm serve a/b --speculative-config '{'": "speculative-config",
	} {
		if d, err := FromCommandLine(line, read); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v, want %q", line, d, err, want)
		}
	}
	d, err := FromCommandLine("LMCACHE_CHUNK_SIZE=5 vllm serve a/b --max-num-seq 8 --config none.yaml", read)
	if err != nil {
		t.Fatal(err)
	}
	found := d.Findings(nil)
	for i, want := range []string{"LMCACHE_CHUNK_SIZE", "did you mean --max-num-seqs?", "none.yaml"} {
		if i >= len(found) || found[i].Code != UnknownFlag || !strings.Contains(found[i].Message, want) {
			t.Fatalf("findings: got %v, want one with %q", found, want)
		}
	}
}

func TestDefaultsByDevice(t *testing.T) {
	for _, c := range []struct {
		device, version string
		set             map[string]any
		seqs, tokens    any
	}{
		{"L4", "0.24.0", nil, int64(256), int64(2048)},
		{"A100", "0.24.0", nil, int64(256), int64(2048)},
		{"H100", "0.24.0", nil, int64(1024), int64(8192)},
		{"B200", "0.27.0", nil, int64(1024), int64(8192)},
		{"B200", "0.28.0", nil, int64(1024), int64(16384)},
		{"H200", "0.28.0", nil, int64(1024), int64(8192)},
		{"L4", "0.24.0", map[string]any{"vllm.performance_mode": "throughput"}, int64(512), int64(4096)},
		{"L4", "0.24.0", map[string]any{"vllm.max_num_batched_tokens": int64(100)}, int64(100), int64(100)},
		{"L4", "0.24.0", map[string]any{"vllm.max_model_len": int64(5000), "vllm.enable_chunked_prefill": false}, int64(256), int64(5000)},
		{"L4", "0.24.0", map[string]any{"vllm.max_model_len": int64(5000)}, int64(256), int64(2048)},
		{"no such device", "0.24.0", nil, nil, nil},
	} {
		d := NewDraft()
		d.Set("hardware.name", c.device)
		d.Set("vllm.version", c.version)
		for path, v := range c.set {
			d.Set(path, v)
		}
		d.FillDefaults()
		if seqs, tokens := d.Get("vllm.max_num_seqs"), d.Get("vllm.max_num_batched_tokens"); seqs != c.seqs || tokens != c.tokens {
			t.Errorf("%s, %s, %v: got %v and %v, want %v and %v", c.device, c.version, c.set, seqs, tokens, c.seqs, c.tokens)
		}
	}
}

// TestBlocksOfALog: 1,600 tokens are 100 blocks, one of which is the null block.
func TestBlocksOfALog(t *testing.T) {
	d := NewDraft()
	d.kvTokens = 1600
	d.CountKVBlocks(nil)
	if got := d.Get("vllm.kv_blocks_total_gpu"); got != int64(99) {
		t.Errorf("got %v, want 99", got)
	}
	d = NewDraft()
	d.kvTokens = 1600
	d.Set("vllm.block_size", int64(32))
	d.CountKVBlocks(nil)
	if got := d.Get("vllm.kv_blocks_total_gpu"); got != int64(49) {
		t.Errorf("blocks of 32: got %v, want 49", got)
	}
	d.Set("vllm.kv_blocks_total_gpu", int64(7))
	d.CountKVBlocks(nil)
	if got := d.Get("vllm.kv_blocks_total_gpu"); got != int64(7) {
		t.Errorf("stated: got %v, want 7", got)
	}
}

// TestLogAgainstRunYAML: each setting that differs is named, and what cannot be compared is not.
func TestLogAgainstRunYAML(t *testing.T) {
	dep := settings(t, "vllm.kv_blocks_total_gpu=1000", "tensor_parallel_size=2")
	for _, c := range []struct {
		path  string
		value any
		agree bool
	}{
		{"model.id", "other/Meta-Llama-3.1-8B", true},
		{"model.id", "other/model", false},
		{"model.id", "/models/x", true},
		{"model.id", "./models", true},
		{"model.dtype", "bfloat16", true},
		{"model.dtype", "float32", false},
		{"model.dtype", "no dtype", true},
		{"model.kv_cache_dtype", "auto", true},
		{"model.kv_cache_dtype", "fp8", false},
		{"hardware.name", "H100-SXM-80GB", true},
		{"hardware.name", "A100-SXM-80GB", false},
		{"tensor_parallel_size", int64(2), true},
		{"tensor_parallel_size", int64(1), false},
		{"pipeline_parallel_size", int64(2), false},
		{"data_parallel_size", int64(2), false},
		{"vllm.version", "0.24.3", true},
		{"vllm.version", "0.25.0", false},
		{"vllm.version", "0.1.dev1", true},
		{"vllm.max_model_len", int64(8191), false},
		{"vllm.max_num_seqs", int64(63), false},
		{"vllm.max_num_batched_tokens", int64(2047), false},
		{"vllm.enable_chunked_prefill", false, false},
		{"vllm.enable_prefix_caching", false, false},
		{"vllm.block_size", int64(32), false},
		{"vllm.gpu_memory_utilization", 0.5, false},
		{"vllm.kv_blocks_total_gpu", int64(1001), true},
		{"vllm.kv_blocks_total_gpu", int64(900), false},
		{"vllm.async_scheduling", false, false},
		{"vllm.scheduling_policy", "priority", false},
		{"vllm.quantization", "fp8", false},
		{"vllm.speculative_config", map[string]any{"method": "ngram"}, false},
		{"vllm.enable_expert_parallel", true, false},
		{"vllm.long_prefill_token_threshold", int64(512), false},
		{"vllm.max_num_partial_prefills", int64(1), true},
		{"vllm.max_num_partial_prefills", int64(2), false},
	} {
		d := NewDraft()
		d.Set(c.path, c.value)
		unlike := d.Against(dep)
		if got := len(unlike) == 0; got != c.agree || !got && unlike[0].Setting != c.path {
			t.Errorf("%s %v: got %v", c.path, c.value, unlike)
		}
	}
	args := NewDraft() // settings that are not among the arguments have vLLM's default
	args.hasArgs = true
	priority := settings(t, "vllm.scheduling_policy=priority", "vllm.gpu_memory_utilization=0.5")
	if unlike := NewDraft().Against(priority); len(unlike) > 0 {
		t.Errorf("without arguments: got %v", unlike)
	}
	var keys []string
	for _, u := range args.Against(priority) {
		keys = append(keys, u.Setting)
	}
	if !slices.Equal(keys, []string{"vllm.gpu_memory_utilization", "vllm.scheduling_policy"}) {
		t.Errorf("defaults: got %v", keys)
	}
	// Asynchronous scheduling and a CPU tier have to be among the arguments of a release that has neither by default.
	for _, c := range []struct{ version, given, want string }{
		{"0.11.0", "'seed': 1", "vllm.async_scheduling vllm.cpu_offloading"},
		{"0.11.0", "'async_scheduling': True, 'kv_transfer_config': {'kv_connector': 'OffloadingConnector'}", "vllm.kv_transfer_config"},
		{"0.15.1", "'seed': 1, 'kv_offloading_size': 4.0", "vllm.kv_offloading_size"},
	} {
		log, err := FromLog(strings.NewReader("non-default args: {'model': 'm', "+c.given+"}\nInitializing a V1 LLM engine (v"+c.version+") with config: model='m'\n"), "log")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range log.Against(settings(t, "vllm.version="+c.version, "vllm.async_scheduling=true", "vllm.cpu_offloading=true",
			"vllm.kv_blocks_total_gpu=1000", "vllm.kv_blocks_total_cpu=1000", "hardware.pcie_bandwidth_gb_s=50")) {
			if strings.Contains(u.Setting, "async") || strings.Contains(u.Setting, "offload") || strings.Contains(u.Setting, "transfer") {
				got = append(got, u.Setting)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s with %s: got %q, want %q", c.version, c.given, got, c.want)
		}
	}
	given := settings(t, "vllm.quantization=fp8", "vllm.long_prefill_token_threshold=512", "vllm.kv_cache_memory_bytes=1000000000")
	log, err := FromLog(strings.NewReader("non-default args: {'model': 'm', 'gpu_memory_utilization': 0.92}\n"+
		"Initializing a V1 LLM engine (v0.24.0) with config: model='m', quantization=None, max_seq_len=8192\n"), "log")
	if err != nil {
		t.Fatal(err)
	}
	keys = nil
	for _, u := range log.Against(given) {
		if strings.Contains(u.Sentence, "which is the default") {
			keys = append(keys, u.Setting)
		}
	}
	if !slices.Equal(keys, []string{"vllm.quantization", "vllm.kv_cache_memory_bytes", "vllm.long_prefill_token_threshold"}) {
		t.Errorf("given and not logged: got %v", keys)
	}
}

func TestComposedRecordings(t *testing.T) {
	for provenance, want := range map[string]bool{"step times Composed from kernels": true, "a server": false, "": false} {
		if got := (&Deployment{Provenance: provenance}).IsComposed(); got != want {
			t.Errorf("%q: got %t", provenance, got)
		}
	}
}

func TestGraphSizesOfDevices(t *testing.T) {
	for device, want := range map[string]int64{"H100": 512, "B200": 1024} {
		d := settings(t, "hardware.name="+device, "vllm.version=0.28.0", "vllm.max_num_seqs=2048", "vllm.max_num_batched_tokens=4096")
		sizes := d.GraphSizes()
		if got := sizes[len(sizes)-1]; got != want {
			t.Errorf("%s: got %d, want %d", device, got, want)
		}
	}
}

// TestRanksThatAreSimulated: 1,024 at most, and ranks or stages, not both.
func TestRanksThatAreSimulated(t *testing.T) {
	for _, c := range []struct {
		dp, pp int64
		ok     bool
	}{{1024, 1, true}, {1025, 1, false}, {2, 2, false}, {1, 2, true}} {
		d := settings(t)
		d.DP, d.PP = c.dp, c.pp
		if err := d.CheckSimulated(); (err == nil) != c.ok {
			t.Errorf("dp %d, pp %d: got %v", c.dp, c.pp, err)
		}
	}
}

func TestKeysOfTheSectionVLLM(t *testing.T) {
	keys := vllmKeys()
	if !slices.Contains(keys, "max_num_seqs") || !slices.Contains(keys, "kv_blocks_total_gpu") || slices.Contains(keys, "TFlopsPeak") ||
		slices.Contains(keys, "mamba_cache_dtype") {
		t.Errorf("got %v", keys)
	}
}

// TestUnlike: settings that a command line and a log state differently, in other words or not at all.
func TestUnlike(t *testing.T) {
	log := func(args string) string {
		return "vLLM API server version 0.11.0\nnon-default args: {" + args + "}\n" +
			"Initializing a V1 LLM engine (v0.11.0) with config: model='org/m', dtype=torch.bfloat16, max_seq_len=4096, tensor_parallel_size=2\n"
	}
	for line, want := range map[string][]string{
		"vllm serve org/m":    nil,
		"vllm serve ./copy":   nil, // a path may be of any model
		"vllm serve /m/org/m": nil,
		"vllm serve org/m -tp 2 --dtype auto --max-model-len 4096 --kv-cache-dtype auto": nil,
		"docker run vllm/vllm-openai:v0.11.0 org/m":                                      nil,
		"docker run vllm/vllm-openai:v0.9.1 org/m":                                       {"vllm.version: the log says 0.11.0, the line 0.9.1, which is taken"},
		"vllm serve other/n -tp 4 --dtype float32 --max-num-seqs 8": {
			"model.dtype: the log says bfloat16, the line float32, which is taken",
			"model.id: the log says org/m, the line other/n, which is taken",
			"tensor_parallel_size: the log says 2, the line 4, which is taken",
			"vllm.max_num_seqs: the log says 16, the line 8, which is taken",
		},
		"vllm serve org/m --quantization fp8 --long-prefill-token-threshold 64": {
			"vllm.long_prefill_token_threshold: the log says 32, the line 64, which is taken"},
		"vllm serve org/m --speculative-config '{\"method\": \"ngram\"}' --port 8001": nil,
	} {
		commandLine, err := FromCommandLine(line, nil)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		logged, err := FromLog(strings.NewReader(log("'max_num_seqs': 16, 'long_prefill_token_threshold': 32, 'port': 8000, "+
			"'speculative_config': {'method': 'eagle'}")), "log")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, one := range commandLine.Unlike(logged, "the line", "the log") {
			got = append(got, one.Sentence)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}
