package deploy

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/vllm"
)

// TestKVPoolMeetsBlocks compares the blocks of a logged size, printed to 0.01 GiB, with those that the log counts:
// Llama-3.1-8B on an RTX 3090 (vllm-project/vllm #10517), Qwen3.8-27B (of Qwen3.5-27B's shape) over 2 GPUs, fp8 cache
// (mitchross/talos-argocd-proxmox #1995), gpt-oss-120b (alvarobartt/hf-mem #60), and the first of two pipeline stages of
// DeepSeek-V2-Lite, whose 14 layers leave the fewest blocks (vllm-project/vllm #20665).
func TestKVPoolMeetsBlocks(t *testing.T) {
	const lite = `{"model_type":"deepseek_v2","num_hidden_layers":27,"hidden_size":2048,"num_attention_heads":16,"kv_lora_rank":512,
		"qk_rope_head_dim":64,"qk_nope_head_dim":128,"v_head_dim":128,"intermediate_size":10944,"moe_intermediate_size":1408,
		"n_routed_experts":64,"n_shared_experts":2,"num_experts_per_tok":6,"first_k_dense_replace":1,"vocab_size":102400,
		"torch_dtype":"bfloat16"}`
	one := model.Parallel{TP: 1, PP: 1, DP: 1}
	two := model.Parallel{TP: 2, PP: 1, DP: 1}
	for _, c := range []struct {
		model, kv string
		p         model.Parallel
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
		{lite, "auto", model.Parallel{TP: 2, PP: 2, DP: 1}, 12.13, 0, 807792, 0, "0.9.2", 16},
	} {
		var d *model.Decoder
		var err error
		if opts := (model.Options{KVCacheDType: c.kv}); strings.HasPrefix(c.model, "{") {
			d, err = model.ReadDecoder([]byte(c.model), nil, "config.json", opts)
		} else {
			d, err = model.ReadDecoderFile(filepath.Join(repo.Shared(t, "data", "models_hf"), c.model+"_config.json"), opts)
		}
		if err != nil {
			t.Fatal(err)
		}
		pool, ok := d.Stages(c.p)[0].Decoder.KVPool(c.p, vllm.DefaultBlockSize)
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

// TestShardsHoldWholeBlocks: vLLM does not load a checkpoint whose blocks of scales a tensor-parallel size would split.
func TestShardsHoldWholeBlocks(t *testing.T) {
	config := `{"model_type":"qwen3_moe","num_hidden_layers":94,"hidden_size":4096,"num_attention_heads":64,"num_key_value_heads":4,"head_dim":128,
		"intermediate_size":12288,"moe_intermediate_size":1536,"num_experts":128,"num_experts_per_tok":8,"vocab_size":151936,
		"torch_dtype":"bfloat16","quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}}`
	d, err := model.ReadDecoder([]byte(config), nil, "config.json", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p     model.Parallel
		loads bool
	}{{model.Parallel{TP: 4, PP: 1, DP: 1}, true}, {model.Parallel{TP: 8, PP: 1, DP: 1}, false}, {model.Parallel{TP: 8, PP: 1, DP: 1, Experts: true}, true},
		{model.Parallel{TP: 4, PP: 1, DP: 2}, false}, {model.Parallel{TP: 3, PP: 1, DP: 1}, false}, {model.Parallel{TP: 1, PP: 95, DP: 1}, false}} {
		if err := d.Loads(c.p); (err == nil) != c.loads {
			t.Errorf("%+v: got %v, want loads %v", c.p, err, c.loads)
		}
	}
	m, err := model.Load(strings.NewReader(config), "config.json", model.Options{})
	dep := Deployment{Model: m, TP: 8, PP: 1, DP: 1}
	if err != nil || dep.CheckSupported() == nil || dep.CheckTables() == nil || dep.CheckLayers() == nil {
		t.Errorf("got %v, %v, %v, %v at tp 8, want refusals", err, dep.CheckSupported(), dep.CheckTables(), dep.CheckLayers())
	}
	// Keys of 192 values end within a block of 128: vLLM multiplies them together with queries and values, and loads them.
	d, err = model.ReadDecoderFile(filepath.Join(repo.Shared(t, "data", "models_hf"), "XiaomiMiMo--MiMo-V2-Flash_config.json"), model.Options{})
	if err != nil || d.Loads(model.Parallel{TP: 8, PP: 1, DP: 1}) != nil {
		t.Errorf("got %v, %v, want MiMo at tp 8", err, d.Loads(model.Parallel{TP: 8, PP: 1, DP: 1}))
	}
	for config, p := range map[string]model.Parallel{
		`{"model_type":"nemotron_h","hybrid_override_pattern":"M-*-","hidden_size":4096,"num_attention_heads":32,"num_key_value_heads":8,
			"attention_head_dim":128,"intermediate_size":21504,"mamba_num_heads":128,"vocab_size":131072,"torch_dtype":"bfloat16"}`: {TP: 16, PP: 1, DP: 1},
		llamaWith(`"num_attention_heads":40,"num_key_value_heads":40,"hidden_size":5120,"intermediate_size":13696`): {TP: 5, PP: 1, DP: 1},
	} { // state-space groups that are not alike on all ranks, an MLP that does not divide
		d, err := model.ReadDecoder([]byte(config), nil, "config.json", model.Options{})
		if err != nil || d.Loads(p) == nil {
			t.Errorf("%s: got %v at tp %d, want a refusal", config, err, p.TP)
		}
	}
}

// A unit of the simulator is a block of every full group; windows and states take their own beside the tokens of a request.
func TestUnitsHoldWhatGroupsNeed(t *testing.T) {
	full := model.Layer{Mixer: &model.Mixer{Kind: model.GQA, Heads: 8, KVHeads: 8, DimK: 64, DimV: 64}}
	window := model.Mixer{}
	window = *full.Mixer
	window.Window = 128
	d := Deployment{TP: 1, Engine: vllm.Engine{BlockSize: 16}, Model: model.Model{Layered: &model.Decoder{KVBytes: 2}}}
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
		d, err := model.ReadDecoderFile(config, model.Options{KVCacheDType: c.kv})
		if err != nil {
			t.Fatal(err)
		}
		p := model.Parallel{TP: 8, PP: c.stages, DP: 1, MTP: c.mtp}
		p.Release, _ = vllm.ParseRelease(c.version)
		blocks, perReq := int64(math.MaxInt64), int64(0)
		for _, s := range d.Stages(p) {
			if pool, ok := s.Decoder.KVPool(p, c.block); ok {
				blocks = min(blocks, pool.Blocks(c.bytes))
				perReq = pool.RequestBlocks(c.maxLen, c.inFlight)
				if n := pool.BlocksOf(c.inTokens, c.maxLen, c.inFlight, c.version); n != c.blocks && !p.Release.Before(model.WidestPagesSince) {
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
