package deploy

// This file refuses deployments that are impossible, and those that the step-time features do not
// cover.

import (
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Check returns an error for a deployment that is impossible under every spec version
// (spec#deployment-checks). Codes: bad_model, bad_hardware, bad_knobs, bad_tp, bad_top_k.
func (d *Deployment) Check() error {
	for _, check := range []func() error{d.Model.Check, d.checkHardware, d.Engine.Check} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkHardware returns an error for figures that no device has, or for missing ones that the
// settings need.
func (d *Deployment) checkHardware() error {
	if d.TP < 1 || d.TP > vllm.MaxDevices {
		return trace.Errorf(vllm.BadKnobs, "tensor_parallel_size: got %d, want 1 to %d", d.TP, vllm.MaxDevices)
	}
	h := &d.Hardware
	if err := allPositive(BadHardware, "hardware", "", rate{"TFlopsPeak", h.TFlopsPeak}, rate{"BwPeakTBs", h.BwPeakTBs}); err != nil {
		return err
	}
	if !(h.TFlopsFP8 >= 0) || h.TFlopsFP8 > maxRate {
		return trace.Errorf(BadHardware, "hardware TFlopsFP8: got %g, want >= 0 (0 = none)", h.TFlopsFP8)
	}
	if !(h.PCIeEfficiency > 0 && h.PCIeEfficiency <= 1) {
		return trace.Errorf(BadHardware, "hardware pcie_efficiency: got %g, want in (0, 1]", h.PCIeEfficiency)
	}
	if d.TP > 1 && !isPositive(h.InterconnectBandwidthGBs) {
		return trace.Errorf(BadHardware, "hardware interconnect_bandwidth_gb_s: got %g, want > 0 GB/s at tensor_parallel_size %d",
			h.InterconnectBandwidthGBs, d.TP)
	}
	if d.Engine.CPUOffloading && !isPositive(h.PCIeBandwidthGBs) {
		return trace.Errorf(BadHardware, "hardware pcie_bandwidth_gb_s: got %g, want > 0 GB/s with cpu_offloading", h.PCIeBandwidthGBs)
	}
	if !(h.InterconnectLatencyUs >= 0) || h.InterconnectLatencyUs > maxRate {
		return trace.Errorf(BadHardware, "hardware interconnect_latency_us: got %g, want >= 0 us", h.InterconnectLatencyUs)
	}
	return nil
}

// maxRate is far above the figures of any datasheet, and so low that the product of two does not
// overflow.
const maxRate = 1e15

// isPositive reports whether a rate is above 0 and at most maxRate.
func isPositive(v float64) bool { return v > 0 && v <= maxRate }

// CheckStepTimes returns nil where some spec version covers the deployment's step times: one up to
// 1.2, otherwise 1.3, for which layered is true.
func (d *Deployment) CheckStepTimes() (layered bool, err error) {
	if err = d.CheckSupported(); err == nil {
		return false, nil
	}
	if own := d.CheckLayers(); own == nil || d.Model.Layered != nil {
		return true, own
	}
	return false, err
}

// CheckLayers returns an error unless spec 1.3 covers the deployment (spec#supported): vLLM must
// load it, and its attention must have few different reaches. Codes: those of [vllm.Limits] that
// are refused, bad_knobs, bad_model.
func (d *Deployment) CheckLayers() error {
	if err := d.refuseLimits(true); err != nil {
		return err
	}
	if d.Engine.ExpertParallel && !d.Model.IsMoE() {
		return trace.Errorf(vllm.BadKnobs, "%s", model.NoExperts).WithHint("vLLM refuses it too")
	}
	layers := d.Model.Shipped()
	if err := layers.Loads(d.Parallel()); err != nil {
		return err
	}
	if w := layers.Work(d.Parallel()); len(w.Reaches()) > model.MaxReaches {
		return trace.Errorf(model.BadModel, "model layers: got attention of %d windows and indexes, want at most %d", len(w.Reaches()), model.MaxReaches)
	}
	return d.checkOffload()
}

// checkOffload returns an error for a CPU tier whose blocks are not known or not alike.
func (d *Deployment) checkOffload() error {
	switch e := &d.Engine; {
	case e.CPUOffloading && d.Model.Layered != nil:
		return trace.Errorf(vllm.UnsupportedEngine, "cpu_offloading: got true with layers whose caches differ, want false").
			WithHint("blocks of such models are not alike on both sides; trace a server without the CPU tier")
	case e.CPUOffloading && e.KVBlocksGPU.Or(0) <= 0:
		return trace.Errorf(vllm.BadKnobs, "kv_blocks_total_gpu: got %s, want > 0 blocks with cpu_offloading", vllm.OptInt(e.KVBlocksGPU))
	}
	return nil
}

// CheckSupported returns an error unless specs 1.1 and 1.2 cover the deployment (spec#supported).
// Codes: those of [vllm.Limits] that are refused, tp_heads, tp_kv_heads, bad_model, bad_knobs,
// unsupported_model.
func (d *Deployment) CheckSupported() error {
	if err := d.refuseLimits(false); err != nil {
		return err
	}
	m := &d.Model
	if why := m.WhyLayered(); why != "" {
		return trace.Errorf(model.UnsupportedModel, "model %s: %s, want full grouped-query attention and an MLP or experts, alike in all layers",
			m.ID, why).WithHint("spec 1.3 adds up unlike layers: --spec 1.3")
	}
	switch {
	case m.NumHeads%d.TP != 0:
		return trace.Errorf(vllm.BadKnobs, "tensor_parallel_size: got %d, want a divisor of %d attention heads", d.TP, m.NumHeads)
	case m.NumKVHeads%d.TP != 0 && d.TP%m.NumKVHeads != 0:
		return trace.Errorf(vllm.BadKnobs, "tensor_parallel_size: got %d, want a divisor or a multiple of %d KV heads", d.TP, m.NumKVHeads)
	case m.HeadDim <= 0:
		return trace.Errorf(model.BadModel, "model head_dim: got %d, want > 0", m.HeadDim)
	case m.IsMoE() && (m.NumMoELayers < 1 || m.NumMoELayers > m.NumLayers):
		return trace.Errorf(model.BadModel, "model num_moe_layers: got %d, want 1..%d", m.NumMoELayers, m.NumLayers)
	case m.IsMoE() && (m.MoEIntermediateSize <= 0 || m.SharedExpertSize < 0):
		return trace.Errorf(model.BadModel, "model expert widths: got %d routed and %d shared, want > 0 and >= 0", m.MoEIntermediateSize,
			m.SharedExpertSize)
	}
	if err := d.checkOffload(); err != nil {
		return err
	}
	if m.Decoder != nil {
		if err := m.Decoder.Loads(d.Parallel()); err != nil {
			return err
		}
	}
	return allPositive(model.BadModel, "model", " B", rate{"bytes_per_weight", m.BytesPerWeight}, rate{"bytes_per_kv", m.BytesPerKV},
		rate{"bytes_per_activation", m.BytesPerActivation}, rate{"bytes_per_lm_head", m.BytesPerLMHead})
}

// rate is a named figure that must be positive.
type rate struct {
	name  string
	value float64
}

// allPositive returns an error for the first figure that is not positive. of and unit are words of
// the message.
func allPositive(code trace.Code, of, unit string, rates ...rate) error {
	for _, r := range rates {
		if !isPositive(r.value) {
			return trace.Errorf(code, "%s %s: got %g, want > 0%s", of, r.name, r.value, unit)
		}
	}
	return nil
}

// Codes of run.yaml, of the files that it names and of what it does not state.
const (
	missingRunYAML  trace.Code = "missing_run_yaml"
	badRunYAML      trace.Code = "bad_run_yaml"      // no YAML, or a value that a key cannot have
	unknownKey      trace.Code = "unknown_key"       // of run.yaml
	BadSetting      trace.Code = "bad_setting"       // a key=value that cannot be applied
	unknownHardware trace.Code = "unknown_hardware"  // a device without a datasheet
	UnknownFlag     trace.Code = "unknown_flag"      // of `vllm serve`
	asyncAssumed    trace.Code = "async_assumed"     // the version is no release number
	kvBlocksAssumed trace.Code = "kv_blocks_assumed" // the KV cache is estimated from memory
	noSuchKVCache   trace.Code = "no_such_kv_cache"  // vLLM would not start with it
	VersionAssumed  trace.Code = "version_assumed"   // no log states the version
	BadHardware     trace.Code = "bad_hardware"      // figures that no device has, or too little memory
)
