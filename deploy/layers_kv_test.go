package deploy

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestKVPoolMeetsLogs lays out the caches of servers whose start-up logs are public: Qwen3.6-35B-A3B of vLLM 0.24.0
// (noonghunna/club-3090 #612 and #652, fp8 cache, 5.98 and 6.01 GiB) and Qwen3.5-27B of 0.19.0 (vllm-project/vllm #40691).
func TestKVPoolMeetsLogs(t *testing.T) {
	for _, c := range []struct {
		model, kv     string
		gib           float64
		blocks        int64 // where the log counts them
		version       string
		maxLen        int64
		block, perReq int64
		tokens, slack int64
	}{
		{"Qwen--Qwen3.5-35B-A3B", "fp8", 5.98, 0, "0.24.0", 131072, 2096, 69, 567978, 0},
		{"Qwen--Qwen3.5-35B-A3B", "fp8", 6.01, 0, "0.24.0", 131072, 2096, 69, 569878, 0},
		{"Qwen--Qwen3.5-27B", "auto", 0, 1487, "0.19.0", 32768, 784, 0, 290864, 3},
	} {
		d, err := ReadDecoderFile(filepath.Join(repo.Shared(t, "data", "models_hf"), c.model+"_config.json"), ModelOptions{KVCacheDType: c.kv})
		if err != nil {
			t.Fatal(err)
		}
		pool, ok := d.KVPool(Parallel{TP: 1, PP: 1, DP: 1}, defaultBlockSize)
		if !ok || len(pool.Groups) != 4 || pool.Groups[0].Block != c.block {
			t.Fatalf("%s: got %+v, want 4 groups of blocks of %d", c.model, pool, c.block)
		}
		blocks := c.blocks
		if blocks == 0 {
			blocks = pool.Blocks(c.gib * gib)
		}
		if n := pool.RequestBlocks(c.maxLen, 1); c.perReq > 0 && n != c.perReq {
			t.Errorf("%s: got %d blocks a request, want %d", c.model, n, c.perReq)
		}
		if n := pool.BlocksOf(c.tokens, c.maxLen, 1, c.version); n > blocks || n < blocks-c.slack {
			t.Errorf("%s: got %d blocks of %d tokens as logged, want %d, at most %d less", c.model, n, c.tokens, blocks, c.slack)
		}
	}
}

// TestKVPoolWithDrafts lays out the cache of servers that draft with the model's own multi-token prediction, whose start-up logs are
// public (noonghunna/club-3090 #294 and #295: Qwen3.6-27B over 2 GPUs, fp8 cache, mtp with 3 drafts, max_model_len 262144; the log
// adds 3 padding layers: groups of 17, as with one layer of prediction). A request keeps a state for itself, each draft and its
// latest cached point.
func TestKVPoolWithDrafts(t *testing.T) {
	name := filepath.Join(repo.Shared(t, "data", "models_hf"), "Qwen--Qwen3.5-27B_config.json")
	d, err := ReadDecoderFile(name, ModelOptions{KVCacheDType: "fp8"})
	if err != nil {
		t.Fatal(err)
	}
	p := Parallel{TP: 2, PP: 1, DP: 1, Drafts: 3, MTP: true}
	pool, ok := d.KVPool(p, defaultBlockSize)
	if last := pool.Groups[len(pool.Groups)-1]; !ok || len(pool.Groups) != 4 || last.Block != 1600 || last.Layers != 17 {
		t.Fatalf("got %+v, want 4 groups, the last of 17 layers in blocks of 1600", pool)
	}
	if n := pool.RequestBlocks(262144, 1); n != 164+3*5 {
		t.Errorf("got %d blocks a request, want 179", n)
	}
	for tokens, want := range map[int64]int64{620944: 424, 622408: 425} {
		if n := pool.BlocksOf(tokens, 262144, 1, "0.24.0"); n != want {
			t.Errorf("%d tokens: got %d blocks, want %d", tokens, n, want)
		}
	}
	without := Parallel{TP: 2, PP: 1, DP: 1, NoPrefixes: true}
	if pool, _ := d.KVPool(without, defaultBlockSize); pool.RequestBlocks(1, 1) != 1+3 || pool.Groups[0].Layers != 16 {
		t.Errorf("got %+v, want a state for each group of 16 layers", pool)
	}
}

// TestPredictors weighs multi-token prediction: DeepSeek-V3's 685 B parameters on Hugging Face are 671 B and a layer with tables of its
// own, which vLLM shares; V4's published bytes are with it (160 and 865 GB).
func TestPredictors(t *testing.T) {
	for _, c := range []struct {
		model  string
		params float64 // 1e9, with the shared tables twice; 0: not published
		gb     float64 // 1e9 B
	}{{"deepseek-ai--DeepSeek-V3", 685, 0}, {"deepseek-ai--DeepSeek-V4-Flash", 0, 160}, {"deepseek-ai--DeepSeek-V4-Pro", 0, 865}} {
		d, err := ReadDecoderFile(filepath.Join(repo.Shared(t, "data", "models_hf"), c.model+"_config.json"), ModelOptions{})
		if err != nil {
			t.Fatal(err)
		}
		sizes, err := d.Sizes(Parallel{TP: 1, PP: 1, DP: 1})
		if err != nil {
			t.Fatal(err)
		}
		params := (sizes.TotalParams + sizes.MTPParams + float64(2*d.Vocab*d.Hidden)) / 1e9
		gb := d.WeightBytesPerGPU(Parallel{TP: 1, PP: 1, DP: 1, MTP: true}) / 1e9
		if len(d.MTP) != 1 || c.params > 0 && math.Abs(params/c.params-1) > 1e-3 || c.gb > 0 && math.Abs(gb/c.gb-1) > 5e-3 {
			t.Errorf("%s: got %d layers, %.2f B parameters, %.2f GB, want 1, %g, %g", c.model, len(d.MTP), params, gb, c.params, c.gb)
		}
		if two := d.stages(Parallel{TP: 1, PP: 2, DP: 1, MTP: true}); len(two[0].decoder.Layers)+len(two[1].decoder.Layers) != len(d.Layers)+1 {
			t.Errorf("%s: the last stage does not hold the layer of prediction", c.model)
		}
	}
}

// TestKVPoolMeetsBlocks compares the blocks of a logged size, printed to 0.01 GiB, with those that the log counts:
// Llama-3.1-8B on an RTX 3090 (vllm-project/vllm #10517), Qwen3.8-27B (of Qwen3.5-27B's shape) over 2 GPUs, fp8 cache
// (mitchross/talos-argocd-proxmox #1995), gpt-oss-120b (alvarobartt/hf-mem #60), and the first of two pipeline stages of
// DeepSeek-V2-Lite, whose 14 layers leave the fewest blocks (vllm-project/vllm #20665).
func TestKVPoolMeetsBlocks(t *testing.T) {
	const lite = `{"model_type":"deepseek_v2","num_hidden_layers":27,"hidden_size":2048,"num_attention_heads":16,"kv_lora_rank":512,
		"qk_rope_head_dim":64,"qk_nope_head_dim":128,"v_head_dim":128,"intermediate_size":10944,"moe_intermediate_size":1408,
		"n_routed_experts":64,"n_shared_experts":2,"num_experts_per_tok":6,"first_k_dense_replace":1,"vocab_size":102400,
		"torch_dtype":"bfloat16"}`
	one := Parallel{TP: 1, PP: 1, DP: 1}
	two := Parallel{TP: 2, PP: 1, DP: 1}
	for _, c := range []struct {
		model, kv string
		p         Parallel
		gib       float64
		blocks    int64 // as logged, or those of
		tokens    int64 // with requests of
		maxLen    int64
		version   string
		block     int64
	}{
		{"meta-llama--Meta-Llama-3.1-8B", "auto", one, 3.81, 1952, 0, 0, "0.6.4", 16},
		{"meta-llama--Meta-Llama-3.1-8B", "auto", one, 2.89, 1478, 0, 0, "0.6.4", 16},
		{"Qwen--Qwen3.5-27B", "fp8", two, 4.99, 208, 302921, 131072, "0.25.0", 1568},
		{"openai--gpt-oss-120b", "auto", one, 5.38, 0, 78384, 0, "0.19.0", 16},
		{lite, "auto", Parallel{TP: 2, PP: 2, DP: 1}, 12.13, 0, 807792, 0, "0.9.2", 16},
	} {
		var d *Decoder
		var err error
		if opts := (ModelOptions{KVCacheDType: c.kv}); strings.HasPrefix(c.model, "{") {
			d, err = ReadDecoder([]byte(c.model), nil, "config.json", opts)
		} else {
			d, err = ReadDecoderFile(filepath.Join(repo.Shared(t, "data", "models_hf"), c.model+"_config.json"), opts)
		}
		if err != nil {
			t.Fatal(err)
		}
		pool, ok := d.stages(c.p)[0].decoder.KVPool(c.p, defaultBlockSize)
		last := pool.Groups[len(pool.Groups)-1]
		if !ok || last.Block != c.block {
			t.Errorf("%s: got blocks of %d tokens, want %d", c.model, last.Block, c.block)
		}
		if n := pool.BlocksOf(c.tokens, c.maxLen, 1, c.version); c.blocks == 0 {
			c.blocks = n
		} else if c.tokens > 0 && n != c.blocks {
			t.Errorf("%s: got %d blocks of %d tokens as logged, want %d", c.model, n, c.tokens, c.blocks)
		}
		groups := int64(len(pool.Groups)) // a log before 0.20 rounds down to a block of each
		if lo, hi := pool.Blocks((c.gib-0.005)*gib), pool.Blocks((c.gib+0.005)*gib); c.blocks+groups-1 < lo || c.blocks > hi {
			t.Errorf("%s: got %d to %d blocks of %g GiB, want %d as logged", c.model, lo, hi, c.gib, c.blocks)
		}
	}
}

// TestKVPoolGroups counts the groups of models that mix kinds of layers.
func TestKVPoolGroups(t *testing.T) {
	for model, want := range map[string]struct {
		groups int
		block  int64 // tokens of a block of the last group
	}{"openai--gpt-oss-120b": {2, 16}, "google--gemma-4-26B-A4B": {6, 16}, "Qwen--Qwen3.5-397B-A17B": {4, 2096},
		"deepseek-ai--DeepSeek-V3.2": {1, 16}, "Qwen--Qwen3-8B": {1, 16}, "meta-llama--Llama-4-Scout-17B-16E-Instruct": {4, 16}} {
		d, err := ReadDecoderFile(filepath.Join(repo.Shared(t, "data", "models_hf"), model+"_config.json"), ModelOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pool, ok := d.KVPool(Parallel{TP: 1, PP: 1, DP: 1}, defaultBlockSize)
		if last := len(pool.Groups) - 1; !ok || last+1 != want.groups || pool.Groups[last].Block != want.block {
			t.Errorf("%s: got %+v, want %d groups, the last of blocks of %d", model, pool, want.groups, want.block)
		}
	}
}

// TestShardsHoldWholeBlocks: vLLM does not load a checkpoint whose blocks of scales a tensor-parallel size would split.
func TestShardsHoldWholeBlocks(t *testing.T) {
	config := `{"model_type":"qwen3_moe","num_hidden_layers":94,"hidden_size":4096,"num_attention_heads":64,"num_key_value_heads":4,"head_dim":128,
		"intermediate_size":12288,"moe_intermediate_size":1536,"num_experts":128,"num_experts_per_tok":8,"vocab_size":151936,
		"torch_dtype":"bfloat16","quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}}`
	d, err := ReadDecoder([]byte(config), nil, "config.json", ModelOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p     Parallel
		loads bool
	}{{Parallel{TP: 4, PP: 1, DP: 1}, true}, {Parallel{TP: 8, PP: 1, DP: 1}, false}, {Parallel{TP: 8, PP: 1, DP: 1, Experts: true}, true},
		{Parallel{TP: 4, PP: 1, DP: 2}, false}, {Parallel{TP: 3, PP: 1, DP: 1}, false}, {Parallel{TP: 1, PP: 95, DP: 1}, false}} {
		if err := d.Loads(c.p); (err == nil) != c.loads {
			t.Errorf("%+v: got %v, want loads %v", c.p, err, c.loads)
		}
	}
	m, err := LoadModel(strings.NewReader(config), "config.json", ModelOptions{})
	dep := Deployment{Model: m, TP: 8, PP: 1, DP: 1}
	if err != nil || dep.CheckSupported() == nil || dep.CheckTables() == nil || dep.CheckLayers() == nil {
		t.Errorf("got %v, %v, %v, %v at tp 8, want refusals", err, dep.CheckSupported(), dep.CheckTables(), dep.CheckLayers())
	}
	// Keys of 192 values end within a block of 128: vLLM multiplies them together with queries and values, and loads them.
	d, err = ReadDecoderFile(filepath.Join(repo.Shared(t, "data", "models_hf"), "XiaomiMiMo--MiMo-V2-Flash_config.json"), ModelOptions{})
	if err != nil || d.Loads(Parallel{TP: 8, PP: 1, DP: 1}) != nil {
		t.Errorf("got %v, %v, want MiMo at tp 8", err, d.Loads(Parallel{TP: 8, PP: 1, DP: 1}))
	}
	for config, p := range map[string]Parallel{
		`{"model_type":"nemotron_h","hybrid_override_pattern":"M-*-","hidden_size":4096,"num_attention_heads":32,"num_key_value_heads":8,
			"attention_head_dim":128,"intermediate_size":21504,"mamba_num_heads":128,"vocab_size":131072,"torch_dtype":"bfloat16"}`: {TP: 16, PP: 1, DP: 1},
		llamaWith(`"num_attention_heads":40,"num_key_value_heads":40,"hidden_size":5120,"intermediate_size":13696`): {TP: 5, PP: 1, DP: 1},
	} { // state-space groups that are not alike on all ranks, an MLP that does not divide
		d, err := ReadDecoder([]byte(config), nil, "config.json", ModelOptions{})
		if err != nil || d.Loads(p) == nil {
			t.Errorf("%s: got %v at tp %d, want a refusal", config, err, p.TP)
		}
	}
}

// TestPlacement weighs a GPU of a tensor-parallel group against formulas worked out by hand.
func TestPlacement(t *testing.T) {
	d, err := ReadDecoder([]byte(llamaWith(`"vocab_size":100`)), nil, "config.json", ModelOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const h, kv, width, norms = 4096, 1024, 14336, 2 * 4096
	layer := func(t, kvShare float64) float64 { return (2*h*h+3*h*width)/t + 2*h*kv*kvShare + norms }
	for _, c := range []struct {
		p    Parallel
		want float64
	}{{Parallel{TP: 1, PP: 1, DP: 1}, 32*layer(1, 1) + 2*128*h + h}, {Parallel{TP: 4, PP: 1, DP: 1}, 32*layer(4, 0.25) + 2*128*h/4 + h},
		{Parallel{TP: 16, PP: 1, DP: 1}, 32*layer(16, 0.125) + 2*128*h/16 + h}, {Parallel{TP: 1, PP: 3, DP: 1}, 11*layer(1, 1) + 128*h}} {
		if got := d.WeightBytesPerGPU(c.p) / 2; math.Abs(got-c.want) > 1e-9*c.want {
			t.Errorf("%+v: got %.0f parameters a GPU, want %.0f", c.p, got, c.want)
		}
	}
}

// A unit of the simulator is a block of every full group; windows and states take their own beside the tokens of a request.
func TestUnitsHoldWhatGroupsNeed(t *testing.T) {
	full := Layer{Mixer: &Mixer{Kind: GQA, Heads: 8, KVHeads: 8, DimK: 64, DimV: 64}}
	window := Mixer{}
	window = *full.Mixer
	window.Window = 128
	d := Deployment{TP: 1, Engine: Engine{BlockSize: 16}, Model: Model{Layered: &Decoder{KVBytes: 2}}}
	for i := range 12 { // five windows to one full: groups of two layers
		l := full
		if i%6 != 5 {
			l.Mixer = &window
		}
		d.Model.Layered.Layers = append(d.Model.Layered.Layers, l)
	}
	pool, ok := d.Model.Layered.KVPool(d.Parallel(), 16)
	u := d.KVUnits()
	if !ok || len(pool.Groups) != 6 || u.Block != 16 || u.Blocks != 1 {
		t.Fatalf("got %+v and %+v, want a full group and five of windows", pool, u)
	}
	for _, n := range []int64{1, 16, 100, 128, 129, 5000} {
		if got, want := (n+15)/16+u.Side(n), pool.RequestBlocks(n, 1); got != want {
			t.Errorf("%d tokens: got %d units, want %d blocks", n, got, want)
		}
	}
}

// TestPackedPages compares the cache of DeepSeek-V4 with what vLLM's own functions (get_kv_cache_configs, get_kv_cache_capacity; run
// without a GPU on the specs that models/deepseek_v4 declares) made of so many bytes on each stage.
func TestPackedPages(t *testing.T) {
	for _, c := range []struct {
		version, model, kv       string
		block, stages            int64
		mtp                      bool
		bytes                    float64
		maxLen, inFlight         int64
		blocks, perReq, inTokens int64
	}{
		{"0.23.0", "Flash", "bfloat16", 256, 1, false, 12208444538, 8192, 2048, 7335, 890, 73278},
		{"0.24.0", "Flash", "fp8", 256, 1, false, 65530463518, 131072, 16384, 63029, 7194, 1285011},
		{"0.24.0", "Pro", "fp8", 256, 2, true, 12208444538, 8192, 2048, 16142, 890, 162851},
		{"0.26.0", "Pro", "bfloat16", 512, 3, true, 65530463518, 131072, 16384, 39272, 6938, 748503},
		{"0.27.0", "Flash", "fp8", 256, 2, true, 12208444538, 8192, 2048, 23291, 890, 214381},
		{"0.33.0", "Flash", "fp8", 256, 1, false, 12208444538, 8192, 2048, 12181, 890, 112119},
		{"0.33.0", "Flash", "bfloat16", 256, 1, true, 65530463518, 131072, 16384, 40956, 7194, 746203},
		{"0.33.0", "Flash", "fp8", 512, 3, true, 65530463518, 131072, 16384, 86515, 6938, 1634432},
		{"0.33.0", "Pro", "fp8", 256, 1, false, 65530463518, 131072, 16384, 45635, 7194, 831452},
		{"0.33.0", "Pro", "bfloat16", 512, 1, false, 12208444538, 8192, 2048, 2673, 874, 25054},
		{"0.33.0", "Pro", "fp8", 256, 2, true, 65530463518, 131072, 16384, 91160, 7194, 1660901},
		{"0.22.1", "Flash", "fp8", 256, 1, false, 40 << 30, 131072, 16384, 40835, 7194, 832528},
		{"0.20.2", "Pro", "fp8", 256, 2, false, 40 << 30, 131072, 16384, 56148, 7194, 1116249},
		{"0.22.0", "Flash", "fp8", 256, 1, false, 5.44 * gib, 13528, 16384, 5553, 5554, 0}, // vLLM #44376: its longest at 5.44 GiB, and
		{"0.22.0", "Flash", "fp8", 256, 1, false, 6.66 * gib, 30000, 16384, 6799, 6800, 0}, // 6.66 GiB needed (both to 0.01 GiB)
		{"0.19.1", "Flash", "fp8", 256, 1, false, 65530463518, 131072, 16384, math.MaxInt64, 0, 0},
	} {
		config := filepath.Join(repo.Shared(t, "data", "models_hf"), "deepseek-ai--DeepSeek-V4-"+c.model+"_config.json")
		d, err := ReadDecoderFile(config, ModelOptions{KVCacheDType: c.kv})
		if err != nil {
			t.Fatal(err)
		}
		p := Parallel{TP: 8, PP: c.stages, DP: 1, MTP: c.mtp}
		p.Release, _ = parseVersion(c.version)
		blocks, perReq := int64(math.MaxInt64), int64(0)
		for _, s := range d.stages(p) {
			if pool, ok := s.decoder.KVPool(p, c.block); ok {
				blocks = min(blocks, pool.Blocks(c.bytes))
				perReq = pool.RequestBlocks(c.maxLen, c.inFlight)
				if n := pool.BlocksOf(c.inTokens, c.maxLen, c.inFlight, c.version); n != c.blocks && !less(p.Release, widestSince) {
					t.Errorf("%+v: got %d blocks of the logged tokens", c, n)
				}
			}
		}
		if blocks != c.blocks || perReq != c.perReq {
			t.Errorf("%+v: got %d blocks, %d a request", c, blocks, perReq)
		}
		dep, err := LoadSettings("model.config="+config, "hardware.name=B200", "tensor_parallel_size=8", "vllm.version="+c.version,
			fmt.Sprintf("pipeline_parallel_size=%d", c.stages), "model.kv_cache_dtype="+c.kv, "vllm.max_num_seqs=256",
			"vllm.max_num_batched_tokens=8192", "vllm.attention_backend=FLASHINFER_MLA_SPARSE_DSV4",
			fmt.Sprintf("vllm.kv_cache_memory_bytes=%.0f", c.bytes))
		if err != nil {
			t.Fatal(err)
		}
		dep.Engine.BlockSize = c.block
		if n, err := dep.EstimateKVBlocks(); c.perReq > 0 && !c.mtp && n != c.blocks-1 || c.perReq == 0 && err == nil {
			t.Errorf("%+v: estimated %d blocks, %v", c, n, err)
		}
	}
}

// TestPagesThatDoNotLoad: DeepSeek-V4's blocks are of 256 tokens or multiples, and vLLM's own attention takes an fp8 cache alone.
func TestPagesThatDoNotLoad(t *testing.T) {
	for set, want := range map[string]string{"vllm.block_size=64": "block_size: got 64, want a multiple of 256 tokens",
		"vllm.block_size=512": "", "model.kv_cache_dtype=bfloat16": "kv_cache_dtype: got 2 bytes a value, want fp8",
		"model.kv_cache_dtype=fp8":                                    "",
		"vllm.attention_config={backend: FLASHINFER_MLA_SPARSE_DSV4}": ""} {
		d, err := LoadSettings("model.id=deepseek-ai/DeepSeek-V4-Flash", "hardware.name=B200", "tensor_parallel_size=8",
			"vllm.version=0.33.0", "vllm.max_num_seqs=256", "vllm.max_num_batched_tokens=8192", set)
		if err != nil {
			t.Fatal(set, err)
		}
		if err := d.CheckLayers(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", set, err, want)
		}
	}
}
