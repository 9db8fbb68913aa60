package deploy

import (
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// TestTimesOfReductions: linear between 100, 200 and 400 bytes, of 10, 14 and 30 us; constant below, proportional above.
func TestTimesOfReductions(t *testing.T) {
	var a AllReduce
	if err := a.UnmarshalJSON([]byte("[[100,10],[200,14],[400,30]]")); err != nil || !reflect.DeepEqual(a, AllReduce{[]float64{100, 200, 400}, []float64{10, 14, 30}}) {
		t.Fatalf("got %+v, %v", a, err)
	}
	for bytes, want := range map[float64]float64{1: 10, 100: 10, 150: 12, 200: 14, 300: 22, 400: 30, 800: 60} {
		if got := a.Us(bytes); math.Abs(got-want) > 1e-12 {
			t.Errorf("%g bytes: got %g us, want %g", bytes, got, want)
		}
	}
	if graph, eager := AllReduceOf("abacus", 2); graph != nil || eager != nil {
		t.Error("an unknown device has curves")
	}
	if err := a.UnmarshalJSON([]byte("{}")); err == nil {
		t.Error("an object is no list of sizes")
	}
}

// TestLinksOverPCIe: of the built-in devices with kernel tables two have no NVLink.
func TestLinksOverPCIe(t *testing.T) {
	for name, want := range map[string]bool{"A100": false, "H100": false, "H200": false, "B200": false, "B300": false, "GB200": false, "GB300": false,
		"GH200": false, "MI300X": false, "L40S": true, "RTX-PRO-6000": true, "H100-PCIe": true, "L4": true, "T4": true} {
		if h, ok := Datasheet(name); !ok || h.LinksOverPCIe() != want {
			t.Errorf("%s: got %t, want %t", name, !want, want)
		}
	}
}

// TestEstimatesAreNamed: what a simulation takes for granted, with its figures. 1000 tokens of 4096 values in bfloat16 go to and
// from the other rank in each of 32 layers: 4.096 MB at 50 GB/s take 81.92 us, with 7 us of latency 88.92.
func TestEstimatesAreNamed(t *testing.T) {
	experts := []string{"model.id=mistralai/Mixtral-8x7B-v0.1", "vllm.enable_expert_parallel=true", "data_parallel_size=2", "hardware.interconnect_latency_us=7", "hardware.interconnect_bandwidth_gb_s=100"}
	for _, c := range []struct {
		name string
		set  []string
		want string
	}{
		{"nothing", nil, ""},
		{"experts of one engine", []string{experts[0], experts[1], "tensor_parallel_size=2"}, ""}, // was measured: see Trust
		{"stages", []string{"pipeline_parallel_size=2"}, "the 2 pipeline stages are taken as equal parts of a step"},
		{"ranks with experts", experts, "exchange between ranks (5691 us for 1000 tokens) from the datasheet's link"},
		{"prefill apart from decode", []string{"vllm.kv_transfer_config={kv_connector: NixlConnector, kv_role: kv_both}"}, "no server with prefill apart from decode was compared"},
		{"LMCache", []string{"vllm.kv_transfer_config={kv_connector: LMCacheConnectorV1, kv_role: kv_both}"}, "no server with LMCache was compared"},
	} {
		found := settings(t, c.set...).Estimates()
		if c.want == "" {
			if len(found) != 0 {
				t.Errorf("%s: got %v", c.name, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Code != vllm.NotModelled || !strings.Contains(found[0].Message, c.want) {
			t.Errorf("%s: got %v, want %q", c.name, found, c.want)
		}
	}
	d := settings(t, experts...)
	if got, want := d.ExchangeUs(1000), 2*32*(7+81.92); math.Abs(got-want) > 1e-6 {
		t.Errorf("got %g us, want %g", got, want)
	}
	d.Engine.Keep("all2all_backend", "deepep_low_latency") // a token goes to two of two ranks, from the rank that has it
	if got, want := d.ExchangeUs(1000), 2*32*(7+81.92); math.Abs(got-want) > 1e-6 {
		t.Errorf("to two experts: got %g us, want %g", got, want)
	}
	d.DP = 4 // 1000 / 4 x 2 tokens, three quarters of them of other ranks
	if got, want := d.ExchangeUs(1000), 2*32*(7+500*0.75*8192/50e3); math.Abs(got-want) > 1e-6 {
		t.Errorf("to two of four ranks: got %g us, want %g", got, want)
	}
	d.DP = 1
	if got := d.ExchangeUs(1000); got != 0 {
		t.Errorf("one rank: got %g us", got)
	}
}

// TestRunsThatAreRefused: what is wrong in run.yaml, in words.
func TestRunsThatAreRefused(t *testing.T) {
	const good = "model: {id: meta-llama/Llama-3.1-8B}\nhardware: {name: H100}\ntensor_parallel_size: 1\nvllm: {version: \"0.24.0\", max_num_seqs: 64, max_num_batched_tokens: 2048}\n"
	for _, c := range []struct{ text, want string }{
		{good, ""},
		{good + "phases: [{name: a, start_ns: 1, end_ns: 2}]\n", ""},
		{good + "phases: [{name: a, start_ns: 1, end_ns: 3}, {name: a, start_ns: 3, end_ns: 4}]\n", `phase "a": got the name twice`},
		{good + "phases: [{start_ns: 1, end_ns: 2}]\n", "phases[]: want name, start_ns and end_ns"},
		{good + "phases: [{name: a, end_ns: 2}]\n", "phases[]: want name, start_ns and end_ns"},
		{good + "phases: [{name: a, start_ns: 2, end_ns: 2}]\n", `phase "a": got end_ns 2, want > start_ns 2`},
		{good + "phases: [{name: a, start_ns: 1, end_ns: 3}, {name: b, start_ns: 3, end_ns: 4}]\n", ""},
		{strings.Replace(good, "H100", "2xH100", 1), `got "2xH100"`},
		{strings.Replace(good, "name: H100", "name: H1", 1), `got "H1"`},
	} {
		path := filepath.Join(t.TempDir(), "run.yaml")
		repo.Write(t, c.text, path)
		_, err := LoadRunFile(path)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.text, err, c.want)
		}
		if strings.Contains(c.text, "2xH100") && !strings.Contains(trace.HintOf(err), "name one device, and give their number as the tensor-parallel size") {
			t.Errorf("got the hint %q", trace.HintOf(err))
		}
	}
	dir := t.TempDir()
	repo.Write(t, good, dir, "run.yml")
	if _, err := LoadRun(dir); trace.CodeOf(err) != missingRunYAML || trace.HintOf(err) != "rename run.yml beside it to run.yaml" {
		t.Errorf("got %v (%s)", err, trace.HintOf(err))
	}
	for want, v := range map[string]any{"null": nil, `"0.10"`: "0.10", "0.5": 0.5, "7": int64(7), "true": true, "[1, 2]": []int{1, 2}, "{a: 1}": map[string]any{"a": 1}} {
		if got := scalar(v); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
	d := settings(t, "vllm.cpu_offloading=true", "vllm.kv_blocks_total_gpu=100")
	if err := d.checkOffload(); err != nil {
		t.Errorf("got %v", err)
	}
	d.Engine.KVBlocksGPU = trace.Opt[int64]{}
	if err := d.checkOffload(); trace.CodeOf(err) != vllm.BadKnobs || !strings.Contains(err.Error(), "kv_blocks_total_gpu: got ") {
		t.Errorf("got %v", err)
	}
	layers := d.Model.Layers()
	d.Model.Layered = layers
	if err := d.checkOffload(); trace.CodeOf(err) != vllm.UnsupportedEngine || !strings.Contains(err.Error(), "cpu_offloading: got true with layers whose caches differ, want false") {
		t.Errorf("got %v", err)
	}
}

// TestSequencesInTheCache: 100 blocks of 16 tokens: sequences up to 1600 tokens, or as the model allows; and how many run at once.
func TestSequencesInTheCache(t *testing.T) {
	for _, c := range []struct {
		blocks, longest int64
		want            string
	}{{100, 8192, "1600 5 1"}, {1000, 8192, "8192 52 2"}, {1, 8192, "16 1 1"}, {100_000, 500, "500 64 64"}} {
		d := settings(t, fmt.Sprint("vllm.kv_blocks_total_gpu=", c.blocks), fmt.Sprint("vllm.max_model_len=", c.longest))
		if got := fmt.Sprint(d.LongestSequence().V, d.Seats(290), d.Seats(8000)); got != c.want {
			t.Errorf("%d blocks, sequences up to %d: got %s, want %s", c.blocks, c.longest, got, c.want)
		}
	}
}

// TestLimitsOfKeys: each number of run.yaml at the ends of its range, and beyond them.
func TestLimitsOfKeys(t *testing.T) {
	for _, c := range []struct{ key, least, below, most, above string }{
		{"hardware.TFlopsPeak", "0.1", "0", "100000", "100001"},
		{"hardware.TFlopsFP8", "0", "-1", "100000", "100001"},
		{"hardware.BwPeakTBs", "0.1", "0", "1000", "1001"},
		{"hardware.memory_gb", "0", "-1", "100000", "100001"},
		{"hardware.pcie_bandwidth_gb_s", "0", "-1", "10000", "10001"},
		{"hardware.pcie_efficiency", "0.1", "0", "1", "1.1"},
		{"hardware.interconnect_bandwidth_gb_s", "0", "-1", "100000", "100001"},
		{"hardware.interconnect_latency_us", "0", "-1", "100000", "100001"},
		{"model.weight_bytes_per_gpu", "0", "-1", "1e15", "1.1e15"},
		{"model.bytes_per_block", "0", "-1", "1e15", "1.1e15"},
		{"model.n_mlp_proj", "1", "0", "3", ""},
		{"tensor_parallel_size", "1", "0", "8", ""},
		{"pipeline_parallel_size", "1", "0", "32", ""},
		{"data_parallel_size", "1", "0", "8", ""},
		{"vllm.max_model_len", "1", "0", "2147483648", "2147483649"},
		{"vllm.max_num_seqs", "1", "0", "1048576", "1048577"},
		{"vllm.max_num_batched_tokens", "64", "0", "2147483648", "2147483649"},
		{"vllm.block_size", "1", "0", "65536", "65537"},
		{"vllm.gpu_memory_utilization", "0.5", "-0.1", "1", "1.1"},
		{"vllm.kv_blocks_total_gpu", "1", "0", "16777216", "16777217"},
		{"vllm.kv_blocks_total_cpu", "0", "-1", "16777216", "16777217"},
		{"vllm.long_prefill_token_threshold", "0", "-1", "2147483648", "2147483649"},
		{"tracing.journey_tracing_sample_rate", "0", "-0.1", "1", "1.1"},
		{"tracing.step_tracing_closure_interval", "1", "0", "100", ""},
		{"tracing.otel_span_event_count_limit", "1", "0", "100000", ""},
	} {
		base := []string{"model.id=meta-llama/Llama-3.1-8B", "hardware.name=H100", "vllm.version=0.24.0", "vllm.max_num_seqs=64", "vllm.max_num_batched_tokens=2048", "vllm.kv_blocks_total_gpu=5000"}
		for value, isGood := range map[string]bool{c.least: true, c.most: true, c.below: false, c.above: false} {
			if value == "" {
				continue
			}
			own := append(base[:len(base):len(base)], c.key+"="+value)
			if c.key == "vllm.max_num_seqs" && isGood {
				own = append(own, "vllm.max_num_batched_tokens=1048576")
			}
			_, err := LoadSettings(own...)
			name := c.key[strings.LastIndexByte(c.key, '.')+1:]
			if (err == nil) != isGood || err != nil && !strings.Contains(err.Error(), name) {
				t.Errorf("%s=%s: got %v, want accepted: %t", c.key, value, err, isGood)
			}
		}
	}
}
