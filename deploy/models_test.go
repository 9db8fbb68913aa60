package deploy

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestBuiltInModels: the models in the binary are those of the collected configurations, to the key; -update packs them anew.
func TestBuiltInModels(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repo.Shared(t, "data", "models_hf"), "*_config.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var text bytes.Buffer
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(filepath.Base(name) + "\t")
		if err := json.Compact(&text, plainJSON(data)); err != nil {
			t.Fatal(name, err)
		}
		text.WriteByte('\n')
	}
	if *update {
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		w.Write(text.Bytes())
		w.Close()
		if err := os.WriteFile("models.gz", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != len(builtIn()) {
		t.Errorf("%d files are built in, want %d", len(builtIn()), len(lines))
	}
	for _, line := range lines {
		if name, config, _ := strings.Cut(line, "\t"); string(builtIn()[name]) != config {
			t.Errorf("%s differs from what is built in: go test ./deploy -run TestBuiltInModels -update", name)
		}
	}
}

// TestEveryBuiltInModelIsADeployment: by its name alone, whatever its layers.
func TestEveryBuiltInModelIsADeployment(t *testing.T) {
	for _, id := range Models() {
		d, err := LoadSettings("model.id="+id, "hardware.name=B200", "vllm.version=0.24.0", "vllm.max_num_seqs=256",
			"vllm.max_num_batched_tokens=8192")
		if err != nil || d.Model.Decoder == nil || d.Model.ID != id || len(d.Read) > 0 {
			t.Errorf("%s: got %+v, %v", id, d, err)
		}
	}
}

// TestModelNames: any case, without the publisher, and the nearest for a slip.
func TestModelNames(t *testing.T) {
	if id, ok := ModelNamed("qwen3-32b"); !ok || id != "Qwen/Qwen3-32B" {
		t.Errorf("got %q", id)
	}
	if id, ok := ModelNamed("meta-llama/Llama-3.1-8B-Instruct"); !ok || id != "meta-llama/Meta-Llama-3.1-8B" {
		t.Errorf("got %q", id)
	}
	if _, ok := ModelNamed("Qwen3"); ok || !slices.Contains(Models(), "openai/gpt-oss-120b") {
		t.Error("Qwen3 is a model, or gpt-oss is none")
	}
	if err := NoSuchModel("Qwen/Qwen3-23B"); !strings.Contains(err.Error(), "Qwen3-23B") {
		t.Error(err)
	}
}
