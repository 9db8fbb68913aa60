package deploy

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// TestDraftSettings: the settings of a draft by path, flags that a release does not have, and what of it changes how its
// config.json is read.
func TestDraftSettings(t *testing.T) {
	d := NewDraft()
	for path, v := range map[string]any{"vllm.version": "0.9.0", "vllm.no_such_flag": true, "model.id": "org/m", "model.dtype": "float16", "model.kv_cache_dtype": "fp8", "vllm.quantization": "awq",
		"vllm.mamba_cache_dtype": "float32", "vllm.mamba_ssm_cache_dtype": "bfloat16", "vllm.max_model_len": int64(4096), "vllm.max_num_seqs": nil} {
		d.Set(path, v)
	}
	set := d.Settings()
	if len(set) != 9 || !slices.IsSorted(set) || !slices.Contains(set, "vllm.max_model_len=4096") || !slices.Contains(set, `model.id="org/m"`) {
		t.Errorf("got %q", set)
	}
	o := d.ModelOptions()
	if o.ID != "org/m" || o.DType != "float16" || o.KVCacheDType != "fp8" || o.Quantization != "awq" || o.MambaCacheDType != "float32" || o.MambaSSMCacheDType != "bfloat16" || o.MaxModelLen != trace.Some(int64(4096)) {
		t.Errorf("got %+v", o)
	}
	d.DropUnknown()
	if d.Get("vllm.no_such_flag") != nil || d.Get("vllm.max_model_len") == nil {
		t.Errorf("got %q", d.Settings())
	}
	if f := d.Findings(nil); !slices.ContainsFunc(f, func(f trace.Finding) bool {
		return strings.HasPrefix(f.Message, "--no-such-flag is no flag of `vllm serve` 0.9 that this version knows")
	}) {
		t.Errorf("got %+v", f)
	}
	for name, want := range map[string]string{" NVIDIA H100 80GB HBM3 ": "H100-SXM-80GB", "Abacus 3000": ""} {
		d := NewDraft()
		d.setDevice(name)
		got, _ := d.Get("hardware.name").(string)
		if got != want || (len(d.findings) == 1) != (want == "") {
			t.Errorf("%s: got %q, %v", name, got, d.findings)
		}
	}
	for text, want := range map[string]any{"101": int64(100), "2": int64(1), "1": nil, "x": nil} {
		d := NewDraft()
		if d.setBlocks(text); d.Get("vllm.kv_blocks_total_gpu") != want {
			t.Errorf("%s blocks: got %v, want %v", text, d.Get("vllm.kv_blocks_total_gpu"), want)
		}
	}
	for flag, want := range map[string]string{"max-num-seqs": "vllm.max_num_seqs", "no-such-flag": "", "tensor-parallel-size": "tensor_parallel_size"} {
		if got := ServePath(flag); got != want {
			t.Errorf("--%s: got %q, want %q", flag, got, want)
		}
	}
}

// TestTransfers: a server gets the connector of disaggregated prefill unless it states one, and is then not simulated alone.
func TestTransfers(t *testing.T) {
	d := &Deployment{}
	if err := d.CheckAlone(); err != nil {
		t.Error(err)
	}
	d.Transfer()
	first := d.Engine.Extra["kv_transfer_config"]
	want := map[string]any{"kv_connector": vllm.PullConnector, "kv_role": "kv_both"}
	if !reflect.DeepEqual(first, want) {
		t.Errorf("got %v", first)
	}
	if err := d.CheckAlone(); trace.CodeOf(err) != vllm.UnsupportedEngine || !strings.Contains(err.Error(), "and one kind of engine, want prefill and decode instances") {
		t.Errorf("got %v", err)
	}
	own := &Deployment{}
	own.Engine.Keep("kv_transfer_config", map[string]any{"kv_connector": "mine"})
	if own.Transfer(); !reflect.DeepEqual(own.Engine.Extra["kv_transfer_config"], map[string]any{"kv_connector": "mine"}) {
		t.Errorf("got %v", own.Engine.Extra)
	}
	if name, ok := SpelledBy(Cluster, "H100-SXM-80GB"); name != "H100" || !ok {
		t.Errorf("got %q, %t", name, ok)
	}
	if name, ok := SpelledBy(AIConfigurator, "H100"); name != "h100_sxm" || !ok {
		t.Errorf("got %q, %t", name, ok)
	}
	if name, ok := SpelledBy(Cluster, "Abacus"); name != "" || ok {
		t.Errorf("got %q, %t", name, ok)
	}
	if names := BLISRegistry.Spelled(); !slices.Contains(names, "h100") || !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("got %q", names)
	}
	// 10 us up to 1 kB, in proportion between 1 and 3 kB and beyond 3 kB, which take 30 us.
	a := AllReduce{Bytes: []float64{1000, 3000}, TimeUs: []float64{10, 30}}
	for bytes, want := range map[float64]float64{0: 10, 1000: 10, 2000: 20, 2500: 25, 3000: 30, 6000: 60} {
		if got := a.Us(bytes); got != want {
			t.Errorf("%g bytes: got %g us, want %g", bytes, got, want)
		}
	}
}
