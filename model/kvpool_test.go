package model

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/vllm"
)

// TestKVPoolMeetsLogs lays out the caches of servers whose start-up logs are public: Qwen3.6-35B-A3B of vLLM 0.24.0
// (noonghunna/club-3090 #612 and #652, fp8 cache, 5.98 and 6.01 GiB) and Qwen3.5-27B of 0.19.0 (vllm-project/vllm #40691).
const gib = 1 << 30

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
		d, err := ReadDecoderFile(filepath.Join(repo.Shared(t, "data", "models_hf"), c.model+"_config.json"), Options{KVCacheDType: c.kv})
		if err != nil {
			t.Fatal(err)
		}
		pool, ok := d.KVPool(Parallel{TP: 1, PP: 1, DP: 1}, vllm.DefaultBlockSize)
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
	d, err := ReadDecoderFile(name, Options{KVCacheDType: "fp8"})
	if err != nil {
		t.Fatal(err)
	}
	p := Parallel{TP: 2, PP: 1, DP: 1, Drafts: 3, MTP: true}
	pool, ok := d.KVPool(p, vllm.DefaultBlockSize)
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
	if pool, _ := d.KVPool(without, vllm.DefaultBlockSize); pool.RequestBlocks(1, 1) != 1+3 || pool.Groups[0].Layers != 16 {
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
		d, err := ReadDecoderFile(filepath.Join(repo.Shared(t, "data", "models_hf"), c.model+"_config.json"), Options{})
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
		if two := d.Stages(Parallel{TP: 1, PP: 2, DP: 1, MTP: true}); len(two[0].Decoder.Layers)+len(two[1].Decoder.Layers) != len(d.Layers)+1 {
			t.Errorf("%s: the last stage does not hold the layer of prediction", c.model)
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
		d, err := ReadDecoderFile(filepath.Join(repo.Shared(t, "data", "models_hf"), model+"_config.json"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		pool, ok := d.KVPool(Parallel{TP: 1, PP: 1, DP: 1}, vllm.DefaultBlockSize)
		if last := len(pool.Groups) - 1; !ok || last+1 != want.groups || pool.Groups[last].Block != want.block {
			t.Errorf("%s: got %+v, want %d groups, the last of blocks of %d", model, pool, want.groups, want.block)
		}
	}
}

// TestPlacement weighs a GPU of a tensor-parallel group against formulas worked out by hand.
func TestPlacement(t *testing.T) {
	d, err := ReadDecoder([]byte(llamaWith(`"vocab_size":100`)), nil, "config.json", Options{})
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
