package sim

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// Blocks is the number of GPU KV blocks without the null block: what cfg or
// the deployment says, else an estimate from the memory left beside the
// weights (no activation memory is subtracted):
//
//	(memory_gb*1e9*utilisation*tp - weight bytes) / (block_size * 2*L*max(kv heads, tp)*head dim*bytes) - 1
func Blocks(cfg *Config) (int64, error) {
	d := cfg.Deployment
	if cfg.KVBlocks > 0 {
		return cfg.KVBlocks, nil
	}
	if d.Engine.KVBlocksGPU.OK && d.Engine.KVBlocksGPU.V > 0 {
		return d.Engine.KVBlocksGPU.V, nil
	}
	m, tp := &d.Model, float64(max(1, d.TP))
	kvDim := float64(max(m.NumKVHeads, d.TP) * m.HeadDim)
	block := float64(d.Engine.BlockSize) * 2 * float64(m.NumLayers) * kvDim * m.BytesPerKV
	free := d.Hardware.MemoryGB*1e9*d.Engine.GPUMemoryUtilization*tp - weightBytes(d.Model.NumLayers, cfg)
	n := math.Floor(free/block) - 1
	if !(n >= 1) {
		return 0, trace.Errorf(CodeNoKVBlocks, "KV blocks: got %g from %g GB at utilisation %g, want >= 1", n, d.Hardware.MemoryGB, d.Engine.GPUMemoryUtilization).WithHint("set vllm.kv_blocks_total_gpu in run.yaml or give --kv-blocks")
	}
	return int64(n), nil
}

// weightBytes is all weights of the model, embedding and head included.
func weightBytes(layers int64, cfg *Config) float64 {
	m := &cfg.Deployment.Model
	h, q := float64(m.HiddenSize), float64(m.NumHeads*m.HeadDim)
	kv := float64(m.NumKVHeads * m.HeadDim)
	attn := float64(layers) * 2 * h * (q + kv)
	dense := float64(layers-m.NumMoELayers) * float64(m.NumMLPProj) * h * float64(m.IntermediateSize)
	moe := float64(m.NumMoELayers) * float64(m.NumMLPProj) * h * (float64(m.NumExperts*m.MoEIntermediateSize) + float64(m.SharedExpertSize))
	return (attn+dense+moe)*m.BytesPerWeight + 2*h*float64(m.VocabSize)*m.BytesPerLMHead
}
