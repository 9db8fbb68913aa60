package library

// This file compares plans of models that nobody published, so that orders hold for those to come.

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/repo"
)

// quantizations are the forms in which checkpoints state the type of their weights; nil: as torch_dtype says.
var quantizations = []map[string]any{
	nil,
	nil,
	{"quant_method": "fp8", "activation_scheme": "dynamic"},
	{"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": []int{128, 128}},
	{"quant_method": "modelopt", "quant_algo": "FP8"},
	{"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16},
	{"quant_method": "awq", "bits": 4, "group_size": 128},
}

// randomModel returns a configuration with heads, widths and experts off the sizes of the tables.
func randomModel(r *rand.Rand) map[string]any {
	pick := func(ns ...int) int { return ns[r.IntN(len(ns))] }
	kvHeads := pick(1, 2, 3, 4, 5, 6, 7, 8, 8, 10, 12, 16, 20, 32)
	config := map[string]any{
		"model_type":              "llama",
		"num_hidden_layers":       2 + r.IntN(60),
		"hidden_size":             128 * (4 + r.IntN(125)),
		"num_attention_heads":     kvHeads * pick(1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 12, 16, 29),
		"num_key_value_heads":     kvHeads,
		"head_dim":                pick(48, 64, 80, 96, 112, 128, 128, 128, 160, 192, 256, 512),
		"intermediate_size":       128 * (4 + r.IntN(300)),
		"vocab_size":              1000 + r.IntN(260000),
		"max_position_embeddings": 131072,
		"torch_dtype":             "bfloat16",
	}
	switch r.IntN(4) {
	case 0:
		config["model_type"] = "qwen3"
		config["use_sliding_window"] = true
		config["sliding_window"] = pick(128, 512, 1000, 1024, 4096)
		config["max_window_layers"] = 1
	case 1, 2:
		experts := pick(8, 16, 24, 32, 60, 64, 72, 96, 128, 160, 192, 256, 320, 384, 512)
		config["model_type"] = "qwen3_moe"
		config["num_experts"] = experts
		config["num_experts_per_tok"] = min(experts, pick(1, 2, 4, 6, 8, 8, 10, 12, 22))
		config["moe_intermediate_size"] = 128 * (2 + r.IntN(100))
	}
	if q := quantizations[r.IntN(len(quantizations))]; q != nil {
		config["quantization_config"] = q
	}
	return config
}

// compareRandom compares the plans of a random model.
func compareRandom(t *testing.T, dir string, seed int, gpus []*GPU, tps []int64) []comparison {
	text, err := json.Marshal(randomModel(rand.New(rand.NewPCG(uint64(seed), 7))))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, fmt.Sprintf("%d.json", seed))
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	list, _ := compareOrders(t, string(text), "model.config="+file, gpus, tps)
	for _, c := range list {
		if c.ratio() > mostOutOfOrder {
			t.Errorf("seed %d, %d x %s, %s, %s: got %.0f us, %s takes %.0f: %s", seed, c.tp, c.gpu, c.batch, c.operator, c.us, c.relation,
				c.leastUs, c.model)
		}
	}
	return list
}

// TestOrdersOfRandomModels: models with heads, widths and experts between and beyond those of the tables, of which some had
// rows that end early or rest on a better GPU's.
func TestOrdersOfRandomModels(t *testing.T) {
	var gpus []*GPU
	for _, g := range GPUs() {
		if strings.HasPrefix(g.Hardware, "A100") || strings.HasPrefix(g.Hardware, "H200") {
			gpus = append(gpus, g)
		}
	}
	n := 0
	dir := t.TempDir()
	for _, seed := range []int{1048} {
		n += len(compareRandom(t, dir, seed, gpus, []int64{1, 2}))
	}
	if n < 50 {
		t.Errorf("got %d comparisons", n)
	}
}

// TestEvalOrdersOfRandomModels is TestOrdersOfRandomModels over many models, all GPUs and parallel sizes.
func TestEvalOrdersOfRandomModels(t *testing.T) {
	repo.NeedEval(t)
	const models = 400
	var mu sync.Mutex
	all, answered := 0, 0
	dir := t.TempDir()
	err := par.Try(context.Background(), 0, models, func(seed int) error {
		list := compareRandom(t, dir, 1000+seed, GPUs(), []int64{1, 2, 4, 8, 16})
		mu.Lock()
		defer mu.Unlock()
		all += len(list)
		if len(list) > 0 {
			answered++
		}
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d comparisons of %d of %d models", all, answered, models)
	if answered < models/2 {
		t.Errorf("%d of %d models have rows on some GPU", answered, models)
	}
}
