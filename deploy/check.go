package deploy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// IsMoE reports whether the model has routed experts; one expert is dense (spec#model-moe).
func (m *Model) IsMoE() bool {
	return m.NumExperts >= 2 || m.Layered != nil && m.Layered.hasExperts()
}

func (d *Decoder) hasExperts() bool {
	return slices.ContainsFunc(d.Layers, func(l Layer) bool { return l.FFN != nil && l.FFN.Kind == Experts })
}

// Check applies the rules of both spec versions (spec#deployment-checks). Codes:
// bad_model, bad_hardware, bad_knobs, bad_tp, bad_top_k.
func (d *Deployment) Check() error {
	for _, check := range []func() error{d.Model.check, d.checkHardware, d.Engine.check} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// known refuses a model of stated sizes, whose steps nothing can say.
func (m *Model) known() error {
	if m.Sizes == nil {
		return nil
	}
	return trace.Errorf(unsupportedModel, "model %s: its sizes are stated, its layers are not known (%s), want layers", m.ID, m.Sizes.Why).
		WithHint("memory, admission and recordings go on; step times need model.assume, or a family that is known")
}

func (m *Model) check() error {
	if m.Layered != nil {
		if len(m.Layered.Layers) == 0 || m.Layered.Hidden <= 0 || m.Layered.Vocab <= 0 || !(m.Layered.KVBytes > 0 && m.Layered.DTypeBytes > 0) {
			return trace.Errorf(BadModel, "model layers: got %d layers, hidden size %d, vocabulary %d, %g B a cached value, want all > 0",
				len(m.Layered.Layers), m.Layered.Hidden, m.Layered.Vocab, m.Layered.KVBytes)
		}
		return nil
	}
	if m.Sizes != nil {
		return nil
	}
	dims := []struct {
		name  string
		value int64
	}{
		{"num_hidden_layers", m.NumLayers}, {"hidden_size", m.HiddenSize}, {"num_attention_heads", m.NumHeads},
		{"num_key_value_heads", m.NumKVHeads}, {"intermediate_size", m.IntermediateSize},
		{"vocab_size", m.VocabSize}, {"n_mlp_proj", m.NumMLPProj},
	}
	for _, dim := range dims {
		if dim.value <= 0 || dim.value > maxDimension {
			return trace.Errorf(BadModel, "model %s: got %d, want 1 to %d", dim.name, dim.value, maxDimension)
		}
	}
	if !(m.BytesPerParam > 0) {
		return trace.Errorf(BadModel, "model bytes_per_param: got %g, want > 0 B", m.BytesPerParam)
	}
	if m.IsMoE() && (m.TopK < 1 || m.TopK > m.NumExperts) {
		return trace.Errorf(BadModel, "model top_k: got %d, want 1..%d experts", m.TopK, m.NumExperts)
	}
	return nil
}

func (d *Deployment) checkHardware() error {
	if d.TP < 1 || d.TP > maxDevices {
		return trace.Errorf(BadKnobs, "tensor_parallel_size: got %d, want 1 to %d", d.TP, maxDevices)
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

// maxRate is far above any datasheet and below overflow.
const maxRate = 1e15

func isPositive(v float64) bool { return v > 0 && v <= maxRate }

// Upper bounds of knobs: far above any server, and low enough that products of
// blocks, tokens and sequences stay exact.
const (
	maxDevices   = 1 << 16
	maxSeqs      = 1 << 20
	maxTokens    = 1 << 31
	maxBlockSize = 1 << 16
	MaxKVBlocks  = 1 << 24 // five times what eight B200 hold of a model of 100 M parameters in blocks of one token
)

func (e *Engine) checkBounds() error {
	for _, k := range []struct {
		name       string
		value, max int64
	}{{"max_num_batched_tokens", e.MaxNumBatchedTokens, maxTokens}, {"max_num_seqs", e.MaxNumSeqs, maxSeqs},
		{"block_size", e.BlockSize, maxBlockSize},
		{"max_model_len", e.MaxModelLen.V, maxTokens}, {"kv_blocks_total_gpu", e.KVBlocksGPU.V, MaxKVBlocks},
		{"kv_blocks_total_cpu", e.KVBlocksCPU, MaxKVBlocks}, {"long_prefill_token_threshold", e.LongPrefillThreshold, maxTokens}} {
		if k.value > k.max {
			return trace.Errorf(BadKnobs, "%s: got %d, want at most %d", k.name, k.value, k.max)
		}
	}
	return nil
}

func (e *Engine) check() error {
	if e.MaxNumBatchedTokens <= 0 {
		return trace.Errorf(BadKnobs, "max_num_batched_tokens: got %d, want > 0 tokens", e.MaxNumBatchedTokens).
			WithHint("give --max-num-batched-tokens as the server printed it at start")
	}
	if e.MaxNumSeqs <= 0 {
		return trace.Errorf(BadKnobs, "max_num_seqs: got %d, want > 0 requests", e.MaxNumSeqs).WithHint("give --max-num-seqs")
	}
	if e.BlockSize <= 0 {
		return trace.Errorf(BadKnobs, "block_size: got %d, want > 0 tokens", e.BlockSize).WithHint("give --block-size")
	}
	if e.KVBlocksGPU.OK && e.KVBlocksGPU.V < 0 || e.KVBlocksCPU < 0 {
		return trace.Errorf(BadKnobs, "kv_blocks_total: got %d on GPU and %d on CPU, want >= 0 blocks", e.KVBlocksGPU.V, e.KVBlocksCPU)
	}
	return e.checkBounds()
}

// Parallel is how the deployment spreads its model.
func (d *Deployment) Parallel() Parallel {
	e := &d.Engine
	p := Parallel{TP: max(1, d.TP), PP: max(1, d.PP), DP: max(1, d.DP), Experts: e.ExpertParallel, Redundant: e.redundantExperts(),
		OneGroup: e.Extra["disable_hybrid_kv_cache_manager"] == true, NoPrefixes: !e.PrefixCaching}
	p.Release, _ = e.Release()
	backend := strings.ToUpper(fmt.Sprint(e.Extra["attention_backend"], e.Extra["attention_config"]))
	p.Block, p.PlainCache = e.BlockSize, strings.Contains(backend, "FLASHINFER_MLA_SPARSE_DSV4")
	if s, err := e.Speculation(); err == nil && s != nil {
		p.Drafts, p.MTP = s.Tokens, s.Method == "mtp"
	}
	return p
}

// CheckStepTimes is nil where a specification can say the deployment's steps: those up to 1.2, else (layered) 1.3.
func (d *Deployment) CheckStepTimes() (layered bool, err error) {
	if err = d.CheckSupported(); err == nil {
		return false, nil
	}
	if own := d.CheckLayers(); own == nil || d.Model.Layered != nil {
		return true, own
	}
	return false, err
}

// shipped is the model's layers with their quantization, where config.json was read.
func (m *Model) shipped() *Decoder {
	if m.Layered == nil && m.Decoder != nil {
		return m.Decoder
	}
	return m.Layers()
}

// CheckLayers applies the rules of spec 1.3 alone (spec#supported): what vLLM would load, with attention within a few
// reaches. Codes: those of [Limits] that are refused, bad_knobs, bad_model.
func (d *Deployment) CheckLayers() error {
	if err := d.refused(true); err != nil {
		return err
	}
	layers := d.Model.shipped()
	if err := layers.Loads(d.Parallel()); err != nil {
		return err
	}
	if w := layers.Work(d.Parallel()); len(w.Reaches()) > MaxReaches {
		return trace.Errorf(BadModel, "model layers: got attention of %d windows and indexes, want at most %d", len(w.Reaches()), MaxReaches)
	}
	return d.checkOffload()
}

func (d *Deployment) checkOffload() error {
	switch e := &d.Engine; {
	case e.CPUOffloading && d.Model.Layered != nil:
		return trace.Errorf(UnsupportedEngine, "cpu_offloading: got true with layers whose caches differ, want false").
			WithHint("blocks of such models are not alike on both sides; trace a server without the CPU tier")
	case e.CPUOffloading && e.KVBlocksGPU.Or(0) <= 0:
		return trace.Errorf(BadKnobs, "kv_blocks_total_gpu: got %s, want > 0 blocks with cpu_offloading", optInt(e.KVBlocksGPU))
	}
	return nil
}

// CheckSupported applies the rules of specs 1.1 and 1.2 alone (spec#supported). Codes: those
// of [Limits] that are refused, tp_heads, tp_kv_heads, bad_model, bad_knobs, unsupported_model.
func (d *Deployment) CheckSupported() error {
	if err := d.refused(false); err != nil {
		return err
	}
	m := &d.Model
	if why := m.WhyLayered(); why != "" {
		return trace.Errorf(unsupportedModel, "model %s: %s, want full grouped-query attention and an MLP or experts, alike in all layers",
			m.ID, why).WithHint("spec 1.3 adds up unlike layers: --spec 1.3")
	}
	switch {
	case m.NumHeads%d.TP != 0:
		return trace.Errorf(BadKnobs, "tensor_parallel_size: got %d, want a divisor of %d attention heads", d.TP, m.NumHeads)
	case m.NumKVHeads%d.TP != 0 && d.TP%m.NumKVHeads != 0:
		return trace.Errorf(BadKnobs, "tensor_parallel_size: got %d, want a divisor or a multiple of %d KV heads", d.TP, m.NumKVHeads)
	case m.HeadDim <= 0:
		return trace.Errorf(BadModel, "model head_dim: got %d, want > 0", m.HeadDim)
	case m.IsMoE() && (m.NumMoELayers < 1 || m.NumMoELayers > m.NumLayers):
		return trace.Errorf(BadModel, "model num_moe_layers: got %d, want 1..%d", m.NumMoELayers, m.NumLayers)
	case m.IsMoE() && (m.MoEIntermediateSize <= 0 || m.SharedExpertSize < 0):
		return trace.Errorf(BadModel, "model expert widths: got %d routed and %d shared, want > 0 and >= 0", m.MoEIntermediateSize,
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
	return allPositive(BadModel, "model", " B", rate{"bytes_per_weight", m.BytesPerWeight}, rate{"bytes_per_kv", m.BytesPerKV},
		rate{"bytes_per_activation", m.BytesPerActivation}, rate{"bytes_per_lm_head", m.BytesPerLMHead})
}

// rate is a named figure that must be positive.
type rate struct {
	name  string
	value float64
}

func allPositive(code trace.Code, of, unit string, rates ...rate) error {
	for _, r := range rates {
		if !isPositive(r.value) {
			return trace.Errorf(code, "%s %s: got %g, want > 0%s", of, r.name, r.value, unit)
		}
	}
	return nil
}

// Codes of run.yaml and what stands beside it, of loading models and of checking deployments.
const (
	missingRunYAML  trace.Code = "missing_run_yaml"
	badRunYAML      trace.Code = "bad_run_yaml"
	unknownKey      trace.Code = "unknown_key"
	BadSetting      trace.Code = "bad_setting"
	missingConfig   trace.Code = "missing_config"
	unknownHardware trace.Code = "unknown_hardware"
	badCommandLine  trace.Code = "bad_command_line"
	UnknownFlag     trace.Code = "unknown_flag"
	asyncAssumed    trace.Code = "async_assumed"
	kvBlocksAssumed trace.Code = "kv_blocks_assumed"

	BadModel             trace.Code = "bad_model"
	unsupportedModel     trace.Code = "unsupported_model"
	architectureAssumed  trace.Code = "architecture_assumed"
	fullAttentionAssumed trace.Code = "full_attention_assumed"

	BadHardware       trace.Code = "bad_hardware"
	BadKnobs          trace.Code = "bad_knobs"
	UnsupportedEngine trace.Code = "unsupported_engine"
	notModelled       trace.Code = "not_modelled"
)

// optInt prints an optional count for a message.
func optInt(o trace.Opt[int64]) string {
	if !o.OK {
		return "none"
	}
	return strconv.FormatInt(o.V, 10)
}
