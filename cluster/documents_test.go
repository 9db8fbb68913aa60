package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/simulate"
)

const (
	// onL4 is a deployment whose steps take the datasheet's roofline.
	onL4 = "model: {id: meta-llama/Llama-3.1-8B}\nhardware: {name: L4}\nvllm: {version: 0.24.0, max_num_seqs: 8, max_num_batched_tokens: 512, " +
		"max_model_len: 400, kv_blocks_total_gpu: 90, enable_prefix_caching: true}\n"
	// threeClasses is a load of three service classes with prefixes that groups share.
	threeClasses = `requests: 60
arrivals: {kind: poisson, rate_rps: 30}
prompt: {kind: uniform, min: 40, max: 200}
output: {kind: uniform, min: 3, max: 12}
prefix: {groups: 3, tokens: 32, share: 0.7}
classes: [{name: critical, share: 1, ttft_ms: 400}, {name: standard, share: 1, ttft_ms: 500}, {name: sheddable, share: 1, ttft_ms: 300}]
`
	// predictiveGateway admits what its own simulation of the engines finds in time.
	predictiveGateway = `instances: [{count: 2}, {count: 1, set: [vllm.max_num_seqs=4]}]
snapshot_refresh_us: 10000
admission: {policy: predictive, eps: {standard: 0.1}, floor: 0.05}
routing: {policy: weighted, scorers: "prefix-affinity:4,queue-depth:3"}
scheduler: priority-fcfs
retry: backoff
goodput_slo_targets: {standard: {ttft_ms: 450, e2e_ms: 5000}}
shadow_share: 0.5
`
)

// TestClusterDocument compares every figure of a simulated cluster.
func TestClusterDocument(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"run.yaml": onL4, "load.yaml": threeClasses, "cluster.yaml": predictiveGateway} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Options: simulate.DefaultOptions(), File: filepath.Join(dir, "cluster.yaml")}
	o.Deployment = dir
	o.Workload = filepath.Join(dir, "load.yaml")
	o.Model = simulate.ModelRoofline
	o.Replications = 2
	o.Out = filepath.Join(dir, "out")
	doc, err := Simulate(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Document(t, "simulation", doc, "platform", "tool_version", "inputs", "command")
}

// TestGroupsOfInstances: each group has the deployment of the command line or its own, found beside the cluster's file, and
// its own settings on top.
func TestGroupsOfInstances(t *testing.T) {
	dir := t.TempDir()
	seqs := func(n int) string {
		return strings.Replace(onL4, "max_num_seqs: 8", fmt.Sprintf("max_num_seqs: %d", n), 1)
	}
	repo.Write(t, seqs(8), dir, "run.yaml")
	repo.Write(t, seqs(16), dir, "large", "run.yaml")
	repo.Write(t, strings.Replace(onL4, "max_num_seqs: 8", "max_num_seqs: 8, block_size: 32", 1), dir, "blocks", "run.yaml")
	repo.Write(t, threeClasses, dir, "load.yaml")
	for text, want := range map[string]string{
		"{count: 1}, {count: 2, deployment: large}, {count: 1, deployment: large, set: [vllm.max_num_seqs=5]}, {count: 1, set: [vllm.max_num_seqs=4]}": "8 16 5 4",
		"{count: 1, deployment: blocks}": "bad_cluster_spec: instances: got blocks of 16 and of 32 tokens, want one size for the gateway's index",
		"{count: 1, set: [x=1]}":         `bad_cluster_spec: instances: setting x: unknown key "x", want one of docs/run-yaml.md`,
	} {
		repo.Write(t, "instances: ["+text+"]\n", dir, "cluster.yaml")
		o := Options{Options: simulate.DefaultOptions(), File: filepath.Join(dir, "cluster.yaml")}
		o.Deployment, o.Workload, o.Model, o.Out = dir, filepath.Join(dir, "load.yaml"), simulate.ModelRoofline, filepath.Join(dir, "out")
		s := &simulation{o: &o}
		if _, err := s.readSpec(); err != nil {
			t.Fatal(err)
		}
		var err error
		if s.Simulation, err = simulate.New(context.Background(), &o.Options); err != nil {
			t.Fatal(err)
		}
		err = s.loadFiles()
		var got []string
		for _, g := range s.groups {
			got = append(got, fmt.Sprint(g.Deployment.Engine.MaxNumSeqs))
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %s, want %s", text, strings.Join(got, " "), want)
		}
	}
}
