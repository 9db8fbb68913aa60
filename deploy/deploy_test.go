package deploy

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
)

const llamaConfig = `{"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
 "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16"}`

// llamaWith is the config.json of a Llama with other pairs.
func llamaWith(pairs string) string {
	base := map[string]string{"model_type": `"llama"`, "num_hidden_layers": "32", "hidden_size": "4096", "num_attention_heads": "32",
		"num_key_value_heads": "8", "intermediate_size": "14336", "vocab_size": "128256", "torch_dtype": `"bfloat16"`}
	out := []string{pairs}
	for _, key := range slices.Sorted(maps.Keys(base)) {
		if !strings.Contains(pairs, `"`+key+`"`) {
			out = append(out, fmt.Sprintf("%q:%s", key, base[key]))
		}
	}
	return "{" + strings.Join(out, ",\n") + "}"
}

// Every run beside the repository loads, or is refused with a code: others may
// be added.
func TestEveryRunOfTheDataSetsLoads(t *testing.T) {
	root := repo.Shared(t, "data")
	n := 0
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != RunFile {
			return err
		}
		d, err := LoadRun(filepath.Dir(name))
		if err == nil {
			n++
			if err = d.Check(); err == nil {
				err = d.CheckSupported()
			}
		}
		if err != nil {
			if trace.CodeOf(err) == "" {
				t.Errorf("%s: %v: no code", name, err)
			}
			t.Log(err)
			return nil
		}
		t.Log(d.Config(), d.Files)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		t.Error("no run.yaml found")
	}
	t.Logf("runs: %d", n)
}

// TestStatedSizes: a model of an unknown architecture has the memory that run.yaml states, and no step times.
func TestStatedSizes(t *testing.T) {
	dir := t.TempDir()
	repo.Write(t, llamaWith(`"model_type":"quasar","flux_width":3`), dir, "config.json")
	load := func(set ...string) (*Deployment, error) {
		return LoadRun(dir, append([]string{"model.config=config.json", "hardware.name=H100", "vllm.version=0.19.0", "vllm.max_num_seqs=64",
			"vllm.max_num_batched_tokens=2048"}, set...)...)
	}
	for _, set := range [][]string{nil, {"model.weight_bytes_per_gpu=16e9"}, {"model.bytes_per_block=2e6"}, {"vllm.kv_blocks_total_gpu=100"}} {
		if d, err := load(set...); err == nil {
			t.Errorf("%q: got %v, want a refusal", set, d.Model)
		}
	}
	for _, c := range []struct {
		set    []string
		blocks int64
	}{{[]string{"vllm.kv_blocks_total_gpu=1234"}, 1234}, {[]string{"model.bytes_per_block=2e6"}, 29998}, {[]string{"model.bytes_per_block=2e6",
		"vllm.kv_cache_memory_bytes=4000000000"}, 1999}} {
		d, err := load(append(c.set, "model.weight_bytes_per_gpu=16e9")...)
		if err != nil {
			t.Fatal(err)
		}
		n, _, err := d.KVBlocks()
		if err != nil || n != c.blocks {
			t.Errorf("%q: got %d blocks, %v, want %d", c.set, n, err, c.blocks)
		}
		if _, err := d.CheckStepTimes(); err == nil || d.CheckTables() == nil || len(d.NotModelled()) == 0 {
			t.Errorf("%q: step times are not refused, or not said", c.set)
		}
	}
	d, err := load("model.assume=llama")
	if err != nil {
		t.Fatal(err)
	}
	if said := fmt.Sprint(d.NotModelled()); !strings.Contains(said, "flux_width") || !strings.Contains(said, "as model.assume says") {
		t.Errorf("got %s, want the unknown key and the family taken", said)
	}
}
