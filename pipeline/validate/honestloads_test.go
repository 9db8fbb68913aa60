package validate_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
)

// servedLoads are loads of a simulated server whose recordings are honest, however regular the load is.
var servedLoads = map[string]string{
	"constant rate":     "requests: %d\narrivals: {kind: constant, rate_rps: 8}\nprompt: {kind: uniform, min: 1, max: 30}\noutput: {kind: uniform, min: 1, max: 120}\n",
	"equal bursts":      "requests: %d\narrivals: {kind: bursts, burst: 20, every_s: 3}\nprompt: {kind: lognormal, mean: 600, sigma: 1, min: 4, max: 7000}\noutput: {kind: lognormal, mean: 60, sigma: 0.8, min: 1, max: 400}\n",
	"equal in turn":     "requests: %d\narrivals: {kind: closed, clients: 16, think_ms: 0}\nprompt: {kind: constant, value: 512}\noutput: {kind: constant, value: 32}\n",
	"short answers":     "requests: %d\narrivals: {kind: poisson, rate_rps: 10}\nprompt: {kind: uniform, min: 20, max: 400}\noutput: {kind: uniform, min: 2, max: 8}\n",
	"first tokens only": "requests: %d\narrivals: {kind: poisson, rate_rps: 20}\nprompt: {kind: constant, value: 100}\noutput: {kind: constant, value: 1}\n",
	"uneven arrivals":   "requests: %d\narrivals: {kind: gamma, rate_rps: 12, cv: 3}\nprompt: {kind: lognormal, mean: 300, sigma: 0.8, min: 4, max: 4096}\noutput: {kind: constant, value: 64}\n",
	"shared prefixes":   "requests: %d\narrivals: {kind: poisson, rate_rps: 10}\nprompt: {kind: uniform, min: 600, max: 4000}\noutput: {kind: uniform, min: 5, max: 100}\nprefix: {groups: 4, tokens: 512, share: 0.7}\n",
	"long prompts":      "requests: %d\narrivals: {kind: poisson, rate_rps: 2}\nprompt: {kind: uniform, min: 5000, max: 8000}\noutput: {kind: uniform, min: 5, max: 100}\n",
	"one client":        "requests: %d\narrivals: {kind: closed, clients: 1, think_ms: 50}\nprompt: {kind: uniform, min: 10, max: 2000}\noutput: {kind: uniform, min: 1, max: 50}\n",
	"clients that wait": "requests: %d\narrivals: {kind: closed, clients: 48, think_ms: 200, ramp_s: 5}\nprompt: {kind: lognormal, mean: 900, sigma: 0.7, min: 4, max: 6000}\noutput: {kind: uniform, min: 1, max: 120}\n",
}

// servers are settings of the demo's server, replaced in its run.yaml: KEY VALUE, in turn.
var servers = map[string][]string{
	"asynchronous":         nil,
	"synchronous":          {"async_scheduling", "false"},
	"no prefix caching":    {"enable_prefix_caching", "false"},
	"8 in a batch":         {"max_num_seqs", "8", "max_num_batched_tokens", "512"},
	"a small cache":        {"kv_blocks_total_gpu", "1200", "async_scheduling", "false"},
	"a small cache, async": {"kv_blocks_total_gpu", "1200"},
	"whole prompts":        {"enable_chunked_prefill", "false", "async_scheduling", "false"},
	"by priority":          {"scheduling_policy", "priority"},
	"vLLM 0.24":            {"version", "0.24.0"},
	"blocks of 32":         {"block_size", "32", "kv_blocks_total_gpu", "36878"},
	"a CPU tier":           {"cpu_offloading", "true", "kv_blocks_total_cpu", "20000", "kv_blocks_total_gpu", "1500"},
}

// recordServed returns the honest recording of a load of n requests by the demo's server with other settings.
func recordServed(t *testing.T, settings []string, load string, n int) *honest {
	t.Helper()
	demo := filepath.Join(repo.Root(t), "testdata", "traces", "demo", "b200-llama-3.1-8b-tp1")
	dir := filepath.Join(t.TempDir(), "served")
	repo.Write(t, repo.Read(t, demo, "config.json"), dir, "config.json")
	lines := strings.Split(strings.Replace(string(repo.Read(t, demo, "run.yaml")), "traces.jsonl.zst", "trace.jsonl", 1), "\n")
	for i := 0; i < len(settings); i += 2 {
		key := "  " + settings[i] + ":"
		for k, line := range lines {
			if strings.HasPrefix(line, key) {
				lines[k] = key + " " + settings[i+1]
			}
		}
	}
	repo.Write(t, strings.Join(lines, "\n"), dir, "run.yaml")
	repo.Write(t, "", dir, "trace.jsonl")
	dep, err := deploy.LoadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	set, err := fit.LibraryFor(dep)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := sim.NewPhysics(set, dep)
	if err != nil {
		t.Fatal(err)
	}
	_, generator, err := workload.Read(fmt.Appendf(nil, load, n), "load.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sent, err := generator.Generate(1)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "trace.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	dump, err := sim.NewDump(file, nil, dep, sent.Requests, sim.DefaultDumpOptions(dep))
	if err != nil {
		t.Fatal(err)
	}
	cfg := sim.DefaultConfig(dep, steps)
	scatter := []sim.Quantile{{Q: 0, Ratio: 0.97}, {Q: 1, Ratio: 1.03}}
	cfg.Noise = &sim.Noise{Decode: scatter, Prefill: scatter, Mixed: scatter}
	res, err := sim.Run(cfg, sent.Requests, dump)
	if err != nil {
		t.Fatal(err)
	}
	if err := dump.Close(res.Steps); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return honestRuns(t, traced, dir)[0]
}

// checkServed fails the test if the recording of a load, traced or by its clients, violates an identity.
func checkServed(t *testing.T, server, load string, n int) {
	t.Helper()
	h := recordServed(t, servers[server], servedLoads[load], n)
	for _, seen := range []*honest{h, asClients(h)} {
		got := seen.inspect(t, nil)
		if violated := violations(&got); len(violated) > 0 {
			t.Errorf("%s, %s, %s: an honest recording violates %v: %v", server, load, seen.kind, violated, got.Findings)
		}
	}
}

// TestHonestLoads: loads on a grid of time, answers of a few tokens and blocks that are copied contradict nothing.
func TestHonestLoads(t *testing.T) {
	checkServed(t, "asynchronous", "short answers", 120)
	checkServed(t, "asynchronous", "equal bursts", 60)
	checkServed(t, "synchronous", "constant rate", 60)
	checkServed(t, "a CPU tier", "one client", 60)
}

// TestEvalHonestLoads: no load on any of the servers has a recording that violates an identity.
func TestEvalHonestLoads(t *testing.T) {
	repo.NeedEval(t)
	for server := range servers {
		for load := range servedLoads {
			checkServed(t, server, load, 300)
		}
	}
	fmt.Printf("%d servers, %d loads\n", len(servers), len(servedLoads))
}
