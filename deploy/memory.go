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
	contextBytes    = gib / 2 // CUDA context, NCCL buffers, captured graphs
	activationBytes = 2       // per activation value in flight
	logitBytes      = 4 + 4   // fp32 logits and their sampling copy
	hiddenCopies    = 3       // residual, normed and projected hidden states alive at once
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
// a block's bytes on one device; without the null block. Code: bad_hardware
// when the memory is unknown or the model does not fit.
func (d *Deployment) EstimateKVBlocks() (int64, error) {
	if !(d.Hardware.MemoryGB > 0) {
		return 0, trace.Errorf(BadHardware, "hardware memory_gb: got %g, want > 0 to estimate the KV cache", d.Hardware.MemoryGB).
			WithHint("give vllm.kv_blocks_total_gpu as the server printed it (num_gpu_blocks - 1)")
	}
	tp := float64(d.TP)
	budget := float64(d.Hardware.MemoryGB * gib * d.Hardware.usableShare() * d.Engine.GPUMemoryUtilization)
	weights := (d.Model.WeightBytes() - d.otherRanks()) / tp
	free := budget - weights - d.stepBytes() - contextBytes
	if bytes, ok := number(d.Engine.Extra["kv_cache_memory_bytes"]); ok && bytes > 0 {
		free = bytes // wins over gpu_memory_utilization
	}
	blocks := math.Floor(free/d.kvBlockBytes()) - 1
	if !(blocks >= 1) {
		return 0, trace.Errorf(BadHardware, "KV cache: got %.1f GiB left of %.1f GiB, want room for one block (weights %.1f GiB per device)",
			free/gib, budget/gib, weights/gib).WithHint("give vllm.kv_blocks_total_gpu, or a larger tensor_parallel_size")
	}
	return int64(math.Min(blocks, MaxKVBlocks)), nil
}

// otherRanks are the bytes of the experts that other data-parallel ranks hold.
func (d *Deployment) otherRanks() float64 {
	m := &d.Model
	if !m.IsMoE() || d.DP < 2 {
		return 0
	}
	experts := float64(m.NumMoELayers) * float64(m.NumMLPProj) * float64(m.HiddenSize) * float64(m.NumExperts) * float64(m.MoEIntermediateSize)
	return experts * m.BytesPerWeight * (1 - 1/float64(d.DP))
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
func (m *Model) WeightBytes() float64 {
	l, h, hd := float64(m.NumLayers), float64(m.HiddenSize), float64(m.HeadDim)
	n, moe := float64(m.NumMLPProj), 0.0
	if m.IsMoE() {
		moe = float64(m.NumMoELayers)
	}
	attn := float64(l * 2 * h * hd * float64(m.NumHeads+m.NumKVHeads))
	dense := float64((l - moe) * n * h * float64(m.IntermediateSize))
	experts := float64(moe * n * h * (float64(float64(m.NumExperts)*float64(m.MoEIntermediateSize)) + float64(m.SharedExpertSize)))
	router := moe * h * float64(m.NumExperts)
	tables := h * float64(m.VocabSize)
	head := m.BytesPerLMHead
	if m.Decoder != nil && m.Decoder.Tied {
		head = 0 // one table is both
	}
	return float64((attn+dense+experts)*m.BytesPerWeight) + float64(router*m.BytesPerActivation) + float64(tables*(m.BytesPerActivation+head))
}

// stepBytes are the activations of the largest step on one device.
func (d *Deployment) stepBytes() float64 {
	m, tp := &d.Model, float64(d.TP)
	width := float64(m.IntermediateSize)
	if m.IsMoE() {
		width = math.Max(width, float64(m.TopK*m.MoEIntermediateSize+m.SharedExpertSize))
	}
	perToken := float64(hiddenCopies*float64(m.HiddenSize)) + float64(m.NumMLPProj)*width/tp
	logits := float64(min(d.Engine.MaxNumSeqs, d.Engine.MaxNumBatchedTokens)) * float64(m.VocabSize) * logitBytes
	return float64(activationBytes*float64(d.Engine.MaxNumBatchedTokens)*perToken) + logits/tp
}

// kvBlockBytes is one block's bytes on one device; KV heads are replicated
// when tp exceeds them.
func (d *Deployment) kvBlockBytes() float64 {
	m := &d.Model
	headsPerDevice := float64(max(m.NumKVHeads, d.TP)) / float64(d.TP)
	return 2 * float64(m.NumLayers) * headsPerDevice * float64(m.HeadDim) * m.BytesPerKV * float64(d.Engine.BlockSize)
}
