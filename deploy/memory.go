package deploy

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// What a device's memory holds beside weights and KV cache. The figures were
// read off the start-up logs of real servers ("Model loading took", "Available
// KV cache memory"): four of them are met within 4 %. It is an estimate.
const (
	gib             = 1 << 30
	contextBytes    = gib / 2. // CUDA context, NCCL buffers, captured graphs
	graphBytes      = gib / 4. // of these the graphs, which --enforce-eager saves; not measured
	activationBytes = 2        // per activation value in flight
	logitBytes      = 4 + 4    // fp32 logits and their sampling copy
	hiddenCopies    = 3        // residual, normed and projected hidden states alive at once
)

// usableShare is what the driver reports of the nominal capacity in GiB, as
// PyTorch prints it ("GPU 0 has a total capacity of 79.18 GiB"): H100 79.2 of
// 80, H200 139.8 of 141, B200 178.35 of 180, RTX PRO 6000 94.97 of 96. GDDR
// cards keep some for error correction or firmware.
func (h *Hardware) usableShare() float64 {
	switch h.Name {
	case "L40S-48GB":
		return 44.40 / 48
	case "RTX-4090-24GB":
		return 23.52 / 24
	}
	return 0.99
}

// KVBlocks returns the GPU KV cache's size in blocks: as stated, else the
// estimate from memory, and says which.
func (d *Deployment) KVBlocks() (blocks int64, estimated bool, err error) {
	if d.Engine.KVBlocksGPU.OK && d.Engine.KVBlocksGPU.V > 0 {
		return d.Engine.KVBlocksGPU.V, false, nil
	}
	blocks, err = d.EstimateKVBlocks()
	return blocks, true, err
}

// EstimateKVBlocks derives the KV cache's blocks as vLLM does at start: memory
// x utilisation, less weights, less the activations of a full step, divided by
// a block's bytes; the least over the stages of a pipeline, without the null block. Code: bad_hardware
// when the memory is unknown or the model does not fit.
func (d *Deployment) EstimateKVBlocks() (int64, error) {
	if !(d.Hardware.MemoryGB > 0) {
		return 0, trace.Errorf(BadHardware, "hardware memory_gb: got %g, want > 0 to estimate the KV cache", d.Hardware.MemoryGB).
			WithHint("give vllm.kv_blocks_total_gpu as the server printed it (num_gpu_blocks - 1)")
	}
	other := contextBytes
	if d.Engine.Extra["enforce_eager"] == true {
		other -= graphBytes
	}
	budget := float64(d.Hardware.MemoryGB * gib * d.Hardware.usableShare() * d.Engine.GPUMemoryUtilization)
	layers, p := d.Model.Layers(), d.Parallel()
	if n := int64(len(layers.Layers)); p.PP > n {
		return 0, trace.Errorf(BadKnobs, "pipeline_parallel_size: got %d, want at most the model's %d layers", p.PP, n)
	}
	blocks, weights, left := math.Inf(1), 0.0, 0.0
	for i, stage := range layers.stages(p) {
		free := budget - stage.weights - d.stepBytes() - other
		if bytes, ok := number(d.Engine.Extra["kv_cache_memory_bytes"]); ok && bytes > 0 {
			free = bytes // wins over gpu_memory_utilization
		}
		pool, ok := stage.decoder.KVPool(p, d.Engine.BlockSize)
		if !ok && i == 0 && p.PP == 1 {
			return 0, trace.Errorf(BadHardware, "KV cache: got layers that keep no entries of tokens, or none that can be laid out in equal pages").
				WithHint("give vllm.kv_blocks_total_gpu as the server printed it (num_gpu_blocks - 1)")
		}
		if n := math.Floor(free/pool.BlockBytes) - 1; ok && n < blocks {
			blocks, weights, left = n, stage.weights, free
		}
	}
	if !(blocks >= 1) {
		return 0, trace.Errorf(BadHardware, "KV cache: got %.1f GiB left of %.1f GiB, want room for one block (weights %.1f GiB per device)",
			left/gib, budget/gib, weights/gib).WithHint("give vllm.kv_blocks_total_gpu, or a larger tensor_parallel_size")
	}
	return int64(math.Min(blocks, MaxKVBlocks)), nil
}

// mostReads is how many times reading the weights a token may take before its unit is questionable.
const mostReads = 1000

// TokenTimesUs is the range that the time of an output token can lie in, us: from reading half the weights (precisions
// are not always stated) to a thousand times reading them all. ok is false where the weights read depend on the batch
// or the bandwidth is not known.
func (d *Deployment) TokenTimesUs() (least, most float64, ok bool) {
	bandwidth := d.Hardware.BwPeakTBs * 1e6 * float64(d.TP) // B/us
	if !(bandwidth > 0) || d.Model.IsMoE() {
		return 0, 0, false
	}
	readUs := d.Model.WeightBytes() / bandwidth
	return readUs / 2, mostReads * readUs, true
}

// WeightBytes returns the bytes of every weight of the model, embedding and LM
// head included.
func (m *Model) WeightBytes() float64 { return m.Layers().WeightBytes() }

// stepBytes are the activations of the largest step on one device.
func (d *Deployment) stepBytes() float64 {
	m, tp, widths := d.Model.Layers(), float64(d.TP), 0.0
	for i := range m.Layers {
		if f := m.Layers[i].FFN; f != nil {
			widths = math.Max(widths, f.widths())
		}
	}
	if d.Model.Layered == nil { // as stated, where all layers have experts
		widths = math.Max(widths, float64(d.Model.NumMLPProj*d.Model.IntermediateSize))
	}
	perToken := float64(hiddenCopies*float64(m.Hidden)) + widths/tp
	logits := float64(min(d.Engine.MaxNumSeqs, d.Engine.MaxNumBatchedTokens)) * float64(m.Vocab) * logitBytes
	return float64(activationBytes*float64(d.Engine.MaxNumBatchedTokens)*perToken) + logits/tp
}

// KVBlockBytes is what one KV block takes on one device, B, all layers; 0 for a model without a KV cache.
func (d *Deployment) KVBlockBytes() float64 {
	pool, _ := d.Model.Layers().KVPool(d.Parallel(), d.Engine.BlockSize)
	return pool.BlockBytes
}
