package deploy

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestDoubtsKVCache: a simulation warns of more KV blocks than the device has memory for, and of an estimated cache without room
// for one request of max_model_len. What is stated and fits, or is estimated and suffices, passes.
func TestDoubtsKVCache(t *testing.T) {
	const vllm = "vllm: {version: 0.15.1, max_num_seqs: 64, max_num_batched_tokens: 2048"
	for _, c := range []struct{ engine, want string }{
		{vllm + ", max_model_len: 8192}", ""},
		{vllm + ", kv_blocks_total_gpu: 20000}", ""},
		{vllm + ", kv_blocks_total_gpu: 200000}", "got 200000 blocks, want at most"},
		{vllm + ", max_model_len: 131072, gpu_memory_utilization: 0.3}", "one request of max_model_len 131,072 needs 8,192: lower"},
		{vllm + ", max_model_len: 131072, kv_blocks_total_gpu: 100}", ""}, // as stated it has started
		{vllm + ", gpu_memory_utilization: 0.1}", ""},                     // no room at all is an error of the simulation
	} {
		dir := t.TempDir()
		repo.Write(t, string(repo.Read(t, "..", "testdata", "traces", "demo", "b200-llama-3.1-8b-tp1", "config.json")), dir, "config.json")
		repo.Write(t, "name: a\nmodel: {config: config.json}\nhardware: {name: H100}\n"+c.engine+"\n", dir, RunFile)
		d, err := LoadRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		got := d.DoubtsKVCache()
		if (len(got) > 0) != (c.want != "") || len(got) > 0 && (got[0].Code != noSuchKVCache || !strings.Contains(got[0].Message, c.want)) {
			t.Errorf("%s: got %v, want %q", c.engine, got, c.want)
		}
		for _, f := range d.AssumedInSimulation() { // replays of recordings say nothing of it
			if f.Code == noSuchKVCache {
				t.Errorf("%s: got %v of a replay", c.engine, f)
			}
		}
	}
}
