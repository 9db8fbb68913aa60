package deploy_test

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// TestFiguresOfADevice: figures at their limits pass, those beyond are errors that name them.
func TestFiguresOfADevice(t *testing.T) {
	for name, c := range map[string]struct {
		change func(d *deploy.Deployment)
		want   string
	}{
		"whole":         {func(d *deploy.Deployment) {}, ""},
		"no device":     {func(d *deploy.Deployment) { d.TP = 0 }, "tensor_parallel_size: got 0"},
		"most devices":  {func(d *deploy.Deployment) { d.TP = vllm.MaxDevices }, ""},
		"more":          {func(d *deploy.Deployment) { d.TP = vllm.MaxDevices + 1 }, "tensor_parallel_size: got"},
		"no arithmetic": {func(d *deploy.Deployment) { d.Hardware.TFlopsPeak = 0 }, "TFlopsPeak"},
		"the most": {func(d *deploy.Deployment) {
			d.Hardware.TFlopsPeak, d.Hardware.BwPeakTBs, d.Hardware.TFlopsFP8 = 1e15, 1e15, 1e15
		}, ""},
		"too much":           {func(d *deploy.Deployment) { d.Hardware.BwPeakTBs = 1.01e15 }, "BwPeakTBs"},
		"no fp8":             {func(d *deploy.Deployment) { d.Hardware.TFlopsFP8 = 0 }, ""},
		"negative fp8":       {func(d *deploy.Deployment) { d.Hardware.TFlopsFP8 = -1 }, "hardware TFlopsFP8: got -1"},
		"too much fp8":       {func(d *deploy.Deployment) { d.Hardware.TFlopsFP8 = 1.01e15 }, "hardware TFlopsFP8"},
		"a whole link":       {func(d *deploy.Deployment) { d.Hardware.PCIeEfficiency = 1 }, ""},
		"more than that":     {func(d *deploy.Deployment) { d.Hardware.PCIeEfficiency = 1.01 }, "pcie_efficiency: got 1.01"},
		"none of it":         {func(d *deploy.Deployment) { d.Hardware.PCIeEfficiency = 0 }, "pcie_efficiency: got 0"},
		"no link":            {func(d *deploy.Deployment) { d.Hardware.InterconnectBandwidthGBs = 0 }, ""},
		"no link of two":     {func(d *deploy.Deployment) { d.TP, d.Hardware.InterconnectBandwidthGBs = 2, 0 }, "interconnect_bandwidth_gb_s: got 0"},
		"no PCIe":            {func(d *deploy.Deployment) { d.Hardware.PCIeBandwidthGBs = 0 }, ""},
		"no PCIe to offload": {func(d *deploy.Deployment) { d.Engine.CPUOffloading, d.Hardware.PCIeBandwidthGBs = true, 0 }, "pcie_bandwidth_gb_s: got 0"},
		"latency":            {func(d *deploy.Deployment) { d.Hardware.InterconnectLatencyUs = 1e15 }, ""},
		"negative latency":   {func(d *deploy.Deployment) { d.Hardware.InterconnectLatencyUs = -1 }, "interconnect_latency_us: got -1"},
		"endless latency":    {func(d *deploy.Deployment) { d.Hardware.InterconnectLatencyUs = math.Inf(1) }, "interconnect_latency_us"},
	} {
		d := testkit.Llama8B()
		d.Hardware.PCIeBandwidthGBs, d.Hardware.PCIeEfficiency, d.Hardware.InterconnectBandwidthGBs = 64, 0.75, 900
		d.Engine.KVBlocksGPU = trace.Some(int64(100))
		c.change(d)
		err := d.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// TestSupportedStepTimes: what specs 1.1 and 1.2 do not cover, just at and just beyond each limit.
func TestSupportedStepTimes(t *testing.T) {
	experts := func(change func(d *deploy.Deployment)) func(d *deploy.Deployment) {
		return func(d *deploy.Deployment) {
			m := &d.Model
			m.NumExperts, m.TopK, m.MoEIntermediateSize, m.NumMoELayers = 8, 2, 512, 4
			change(d)
		}
	}
	for name, c := range map[string]struct {
		change func(d *deploy.Deployment)
		want   string
	}{
		"whole":                      {func(d *deploy.Deployment) {}, ""},
		"heads":                      {func(d *deploy.Deployment) { d.TP = 3 }, "want a divisor of 32 attention heads"},
		"a multiple of the KV heads": {func(d *deploy.Deployment) { d.TP = 16 }, ""},
		"neither":                    {func(d *deploy.Deployment) { d.Model.NumKVHeads, d.TP = 6, 4 }, "want a divisor or a multiple of 6 KV heads"},
		"no head":                    {func(d *deploy.Deployment) { d.Model.HeadDim = 0 }, "head_dim: got 0"},
		"experts":                    {experts(func(d *deploy.Deployment) {}), ""},
		"experts in every layer":     {experts(func(d *deploy.Deployment) { d.Model.NumMoELayers = d.Model.NumLayers }), ""},
		"experts in one layer":       {experts(func(d *deploy.Deployment) { d.Model.NumMoELayers = 1 }), ""},
		"experts in no layer":        {experts(func(d *deploy.Deployment) { d.Model.NumMoELayers = 0 }), "num_moe_layers: got 0, want 1..32"},
		"experts in more layers":     {experts(func(d *deploy.Deployment) { d.Model.NumMoELayers = 33 }), "num_moe_layers: got 33, want 1..32"},
		"experts of no width":        {experts(func(d *deploy.Deployment) { d.Model.MoEIntermediateSize = 0 }), "expert widths: got 0 routed and 0 shared"},
		"experts of width 1":         {experts(func(d *deploy.Deployment) { d.Model.MoEIntermediateSize = 1 }), ""},
		"a negative shared width":    {experts(func(d *deploy.Deployment) { d.Model.SharedExpertSize = -1 }), "expert widths: got 512 routed and -1 shared"},
		"offloaded":                  {func(d *deploy.Deployment) { d.Engine.CPUOffloading, d.Engine.KVBlocksGPU = true, trace.Some(int64(1)) }, ""},
		"offloaded, no blocks":       {func(d *deploy.Deployment) { d.Engine.CPUOffloading, d.Engine.KVBlocksGPU = true, trace.Opt[int64]{} }, "kv_blocks_total_gpu"},
	} {
		d := testkit.Llama8B()
		c.change(d)
		layered, err := d.CheckStepTimes()
		own := d.CheckSupported()
		if (own == nil) != (c.want == "") || own != nil && !strings.Contains(own.Error(), c.want) || own == nil && (layered || err != nil) {
			t.Errorf("%s: got %v, %v, %v, want %q", name, own, layered, err, c.want)
		}
	}
}

// TestExpertsOfADenseModel: step times of a dense model with expert parallelism, which vLLM refuses, are covered by no spec.
func TestExpertsOfADenseModel(t *testing.T) {
	d := testkit.Llama8B()
	d.Engine.ExpertParallel = true
	if layered, err := d.CheckStepTimes(); err == nil || layered {
		t.Errorf("got %v, %v, want an error", layered, err)
	}
	if err := d.CheckLayers(); trace.CodeOf(err) != vllm.BadKnobs || !strings.Contains(err.Error(), model.NoExperts) {
		t.Errorf("got %v, want %q", err, model.NoExperts)
	}
}

// TestWhatIsAssumed: warnings about what no measurement supports, each where it applies alone.
func TestWhatIsAssumed(t *testing.T) {
	codes := func(d *deploy.Deployment, words string) (n int) {
		for _, f := range d.AssumedInSimulation() {
			if strings.Contains(f.Message, words) {
				n++
			}
		}
		return n
	}
	for words, change := range map[string]func(d *deploy.Deployment){
		"KV blocks estimated from memory":          func(d *deploy.Deployment) { d.Engine.KVBlocksGPU = trace.Opt[int64]{} },
		"is newer than 0.33, the newest whose":     func(d *deploy.Deployment) { d.Engine.VLLMVersion = "0.34.0" },
		"which is no release number":               func(d *deploy.Deployment) { d.Engine.VLLMVersion = "main" },
		"only its vendor's rates are known":        func(d *deploy.Deployment) { d.Hardware, _ = deploy.Datasheet("MI300X") },
		"vLLM computes in float16 there":           func(d *deploy.Deployment) { d.Hardware, _ = deploy.Datasheet("T4") },
		"the 2 pipeline stages are taken as equal": func(d *deploy.Deployment) { d.PP = 2 },
		"positions of config.json: vLLM refuses it": func(d *deploy.Deployment) {
			d.Model.MaxPositionEmbeddings, d.Engine.MaxModelLen = 100, trace.Some(int64(101))
		},
		"no server with prefill apart from decode was": func(d *deploy.Deployment) {
			d.Engine.Extra = map[string]any{"kv_transfer_config": map[string]any{"kv_connector": "NixlConnector", "kv_role": "kv_both"}}
		},
	} {
		d := testkit.Llama8B()
		d.Engine.VLLMVersion = "0.33.0"
		d.Engine.KVBlocksGPU = trace.Some(int64(1000))
		d.Engine.MaxModelLen = trace.Some(int64(100))
		if d.Hardware.Name == "" {
			d.Hardware, _ = deploy.Datasheet("H100")
		}
		if got := codes(d, words); got != 0 {
			t.Errorf("%q is assumed of a plain server", words)
		}
		if change(d); codes(d, words) != 1 {
			t.Errorf("%q: got %v", words, d.AssumedInSimulation())
		}
	}
	long := testkit.Llama8B()
	long.Model.MaxPositionEmbeddings, long.Engine.MaxModelLen = 100, trace.Some(int64(101))
	long.Engine.Extra = map[string]any{"hf_overrides": map[string]any{}}
	if got := codes(long, "positions of config.json"); got != 0 {
		t.Errorf("overridden positions: got %v", long.AssumedInSimulation())
	}
}

// TestSumsOfADeployment: what a coefficient file states of a configuration, and changes of speculation.
func TestSumsOfADeployment(t *testing.T) {
	d := testkit.Llama8B()
	s := d.LayerSums()
	if !reflect.DeepEqual(s.Work, d.Model.Layers().Work(d.Parallel())) || s.ExpertLoad != 1 || s.Judged != "unjudged" || !strings.HasSuffix(s.Family, ", "+d.Hardware.Name) || len(s.KV.Groups) != 1 || !reflect.DeepEqual(s.GraphTokens, d.GraphSizes()) {
		t.Errorf("got %+v", s)
	}
	if d.Reaches() != nil {
		t.Errorf("layers that are alike: got %v", d.Reaches())
	}
	d.Engine.Extra = map[string]any{"speculative_config": map[string]any{"method": "ngram"}}
	own := d.WithSpeculation("num_speculative_tokens", int64(3))
	if got := own.Engine.Extra["speculative_config"]; !reflect.DeepEqual(got, map[string]any{"method": "ngram", "num_speculative_tokens": int64(3)}) || len(d.Engine.Extra["speculative_config"].(map[string]any)) != 1 {
		t.Errorf("got %v", got)
	}
	for name, want := range map[string]int64{"B300": 103, "NVIDIA B200": 100, "H100-SXM-80GB": 90, "H200": 90, "GH200": 90, "A100": 0} {
		if got := (&deploy.Hardware{Name: name}).Capability(); got != want {
			t.Errorf("%s: got %d, want %d", name, got, want)
		}
	}
	if graph, eager := deploy.AllReduceOf("none", 2); graph != nil || eager != nil || deploy.FusedAllReduceOf("none", 4) != nil {
		t.Error("an unknown device has curves")
	}
	d = testkit.Llama8B()
	d.Model.ID, d.Hardware.Name, d.TP, d.DP = "org/name", "X", 2, 3
	if got := d.Label(); got != "name X tp2" {
		t.Errorf("got %s", got)
	}
	d.Model.NumExperts = 8
	d.Engine.ExpertParallel = true
	if got := d.Label(); got != "name X tp2 dp3 ep" {
		t.Errorf("got %s", got)
	}
	if d.DP = 1; d.Label() != "name X tp2 ep" || !d.SpreadsExperts() {
		t.Errorf("got %s", d.Label())
	}
	if d.Engine.ExpertParallel = false; d.SpreadsExperts() {
		t.Error("one rank spreads experts")
	}
}
