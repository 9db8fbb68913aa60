package vllm

// This file has defaults of vLLM that changed between releases.

import (
	"encoding/json"
	"strings"
)

// Releases that changed the default of the fused all-reduce (vllm/config/vllm.py:
// enable_allreduce_rms_fusion(), OPTIMIZATION_LEVEL_02).
var (
	fusedReduceSince    = Release{0, 17} // on by default: pull requests 34299 and 34392
	fusedReduceSM103    = Release{0, 19} // the whole family of compute capability 10: pull request 37755
	fusedReduceWithDP   = Release{0, 21} // also with data parallelism: pull request 41458
	quantizationSince   = Release{0, 10} // that compilation sees the quantization to fp8: pull request 19830
	defaultOptimization = 2.0            // --optimization-level
)

// FusesAllReduce reports whether the engine's compilation replaces an all-reduce, the residual
// addition and the RMSNorm behind it by one kernel of FlashInfer. The pass is on as stated
// (`fuse_allreduce_rms` of pass_config, `enable_fi_allreduce_fusion` before 0.13). Otherwise it is on
// from 0.17 for tensor parallelism on compute capabilities 9.0 and 10.0, without stages or, up to
// 0.20, data-parallel ranks. capability is that of the GPU times 10.
func (e *Engine) FusesAllReduce(tp, pp, dp, capability int64) bool {
	if tp < 2 {
		return false
	}
	for _, key := range []string{"fuse_allreduce_rms", "enable_fi_allreduce_fusion"} {
		if on, isStated := e.pass(key); isStated {
			return on
		}
	}
	if level, isStated := Number(e.graphSetting("optimization_level")); isStated && level < defaultOptimization {
		return false
	}
	if !e.compiles() {
		return false
	}
	hasKernel := capability == 90 || capability == 100 || capability == 103 && e.IsSince(fusedReduceSM103)
	return hasKernel && e.IsSince(fusedReduceSince) && pp == 1 && (dp == 1 || e.IsSince(fusedReduceWithDP))
}

// compiles reports whether the engine compiles the model: compilation mode 3, VLLM_COMPILE, which is the default.
func (e *Engine) compiles() bool {
	mode, isStated := Number(e.graphSetting("mode"))
	return !(isStated && mode < 3) && e.Extra["enforce_eager"] != true
}

// FusesQuantization reports whether the compiled kernel before a layer in fp8 writes its input in fp8: Inductor fuses
// the quantization with the norm or the activation before it (vllm/model_executor/layers/quantization/input_quant_fp8.py:
// QuantFP8.forward_native()), unless custom_ops switches the quantization kernel on.
func (e *Engine) FusesQuantization() bool {
	ops, _ := e.Object("compilation_config")["custom_ops"].([]any)
	for _, op := range ops {
		if op == "+quant_fp8" || op == "all" {
			return false
		}
	}
	return e.compiles() && e.IsSince(quantizationSince)
}

// pass returns a switch of compilation_config's pass_config, which may be a JSON text.
func (e *Engine) pass(key string) (on, isStated bool) {
	config := e.Object("compilation_config")
	if text, isText := e.Extra["compilation_config"].(string); isText && json.Unmarshal([]byte(text), &config) != nil {
		has := strings.Contains(text, key) // text that is no JSON names the pass
		return has, has
	}
	passes, _ := config["pass_config"].(map[string]any)
	on, isStated = passes[key].(bool)
	return on, isStated
}

// FusedReduceMaxBytes returns the size up to which vLLM uses the fused kernel
// (vllm/compilation/passes/fusion/allreduce_rms_fusion.py: FI_ALLREDUCE_FUSION_MAX_SIZE_MB), by
// compute capability times 10 and number of GPUs; 0 where it never does.
func FusedReduceMaxBytes(capability, tp int64) float64 {
	const mib = 1 << 20
	switch capability {
	case 90:
		return map[int64]float64{2: 64 * mib, 4: 2 * mib, 8: mib}[tp]
	case 100, 103:
		return map[int64]float64{2: 32 * mib, 4: 32 * mib, 8: 8 * mib}[tp]
	}
	return 0
}

// PaddedExperts returns the hidden size and the width of one GPU's part of an expert as vLLM
// allocates and multiplies them with MXFP4 weights
// (vllm/model_executor/layers/quantization/mxfp4.py: create_weights()): Marlin takes widths in
// multiples of 128 and hidden sizes in multiples of 256, TensorRT-LLM's kernels on compute capability
// 10 take both in multiples of 256, CUTLASS on 9.0 in multiples of 128; Triton's width in multiples
// of 64.
func PaddedExperts(backend string, capability, hidden, width int64) (paddedHidden, paddedWidth int64) {
	up := func(n, to int64) int64 { return (n + to - 1) / to * to }
	switch {
	case strings.Contains(backend, "marlin"):
		return up(hidden, 256), up(width, 128)
	case strings.Contains(backend, "cutlass") && capability == 90:
		return up(hidden, 128), up(width, 128)
	case strings.Contains(backend, "triton"), backend == "" && capability < 100:
		return hidden, up(width, 64)
	}
	return up(hidden, 256), up(width, 256)
}
