package pipeline

import (
	"bytes"
	"flag"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/internal/repo"
)

var update = flag.Bool("update", false, "rewrite testdata/traces/planted")

// exampleRun is the run.yaml of the planted example.
var exampleRun = strings.Replace(plantedRun, "name: run1\n",
	"name: planted\nprovenance: planted, not measured; a simulated server with known step times, scattered by 2 %\n", 1)

// TestPlantedExample: testdata/traces/planted is what the planted server and `vllm bench serve` record of 300 prompts
// at 4 requests a second. -update writes it.
func TestPlantedExample(t *testing.T) {
	dir, dep := plantedDir(t)
	load := stockLoad
	load.n = 300
	load.output = 40
	load.outputSpread = 0.6
	recording := recordPlanted(t, dep, load)
	example := filepath.Join(repo.Root(t), "testdata", "traces", "planted")
	for name, text := range map[string]string{
		"server.log.zst": recording.log,
		"bench.json.zst": writeVLLMBench(recording.view(recordedAs{usage: true}), recordedAs{}),
		"run.yaml":       exampleRun,
		"config.json":    string(repo.Read(t, dir, "config.json")),
	} {
		isPacked := strings.HasSuffix(name, ".zst")
		if *update {
			if isPacked {
				text = string(packed(t, text))
			}
			repo.Write(t, text, example, name)
			continue
		}
		have := repo.Read(t, example, name)
		if isPacked {
			have = unpacked(t, have)
		}
		if string(have) != text {
			t.Errorf("%s is not what the planted server records (-update writes it)", name)
		}
	}
}

func packed(t *testing.T, text string) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll([]byte(text), nil)
}

func unpacked(t *testing.T, b []byte) []byte {
	t.Helper()
	r, err := zstd.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
