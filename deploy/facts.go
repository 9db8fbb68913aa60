package deploy

import (
	"cmp"
	"math"
	"strings"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// What follows from a description without being written in it. Every package asks
// here, so that a fit, a replay and a simulation of one run.yaml agree.

// Assumed says what a fit or a simulation takes for granted: what is not modelled
// ([Deployment.NotModelled]), and what the description does not state and nothing
// else decides: async_assumed.
func (d *Deployment) Assumed() []trace.Finding {
	e, out := &d.Engine, d.NotModelled()
	if _, known := vllm.ParseRelease(e.VLLMVersion); known || e.AsyncScheduling.OK || e.AsyncExcluded() != "" {
		return out
	}
	return append(out, trace.Findingf(asyncAssumed,
		"%s: vllm.version %q is no release number; asynchronous scheduling is taken as on, the default since vLLM %d.%d, and the "+
			"scheduler's rules are those of the newest one", d.Name, e.VLLMVersion, vllm.AsyncSchedulingSince[0], vllm.AsyncSchedulingSince[1]))
}

// newestCompared is the newest release whose scheduler the simulator was compared with.
var newestCompared = vllm.Release{0, 33}

// AssumedInSimulation is [Deployment.Assumed] and what only a simulation rests
// on: kv_blocks_assumed where the size of the KV cache was estimated.
func (d *Deployment) AssumedInSimulation() []trace.Finding {
	one := *d.Plain(false)
	one.DP = 1 // every rank is simulated
	out := append(one.Assumed(), d.estimated()...)
	switch v, known := d.Engine.Release(); {
	case !known && d.Engine.AsyncScheduling.OK: // else said there
		out = append(out, trace.Findingf(asyncAssumed,
			"%s: vllm.version %q is no release number; the scheduler's rules are those of the newest one", d.Name, d.Engine.VLLMVersion))
	case known && newestCompared.Before(v):
		out = append(out, trace.Findingf(vllm.NotModelled, "%s: vllm.version %s is newer than %d.%d, the newest whose scheduler was compared; its "+
			"rules are taken", d.Name, d.Engine.VLLMVersion, newestCompared[0], newestCompared[1]))
	}
	if n, estimated, err := d.KVBlocks(); err == nil && estimated {
		out = append(out, trace.Findingf(kvBlocksAssumed, "%s: %s KV blocks estimated from memory", d.Name, trace.Thousands(n)))
	}
	return out
}

// MaxModelLen returns the longest sequence in tokens, prompt and output
// together: as stated, else the model's position limit, as vLLM takes it;
// unknown where the model has none.
func (d *Deployment) MaxModelLen() trace.Opt[int64] {
	if positions := d.Model.MaxPositionEmbeddings; !d.Engine.MaxModelLen.OK && positions > 0 {
		return trace.Some(positions)
	}
	return d.Engine.MaxModelLen
}

// LongestSequence returns the longest sequence the engine can hold in tokens:
// [Deployment.MaxModelLen], and no more than the KV cache has room for. Unknown
// where neither is known.
func (d *Deployment) LongestSequence() trace.Opt[int64] {
	n := d.MaxModelLen()
	if blocks, _, err := d.KVBlocks(); err == nil {
		u := d.KVUnits()
		return trace.Some(min(n.Or(math.MaxInt64), max(1, blocks/u.Blocks-u.Side(n.Or(vllm.MaxTokens)))*u.Block))
	}
	return n
}

// Seats returns how many sequences of the given length run at a time: the
// engine's seats, and no more than the KV cache has room for; at least 1.
func (d *Deployment) Seats(tokens float64) int64 {
	n := d.Engine.MaxNumSeqs
	if blocks, _, err := d.KVBlocks(); err == nil {
		u := d.KVUnits()
		n = min(n, int64(float64(blocks/u.Blocks)/(math.Ceil(tokens/float64(u.Block))+float64(u.Side(int64(tokens))))))
	}
	return max(1, n)
}

// IsComposed reports whether the recording was put together from measured kernels
// and never ran as a server (`provenance` of run.yaml says so): its noise is drawn,
// and no machine could have been quieter.
func (d *Deployment) IsComposed() bool {
	return strings.Contains(strings.ToLower(d.Provenance), "composed")
}

// GPUs are those of all ranks and stages.
func (d *Deployment) GPUs() int64 {
	p := d.Parallel()
	return p.TP * p.PP * p.DP
}

// GraphSizes are those of the stated release: 1, 2, 4, multiples of 8 below 256 and of 16
// from there, up to twice the seats times the tokens of a verify, 512 (1024) and the token
// budget; from 0.29 on also those of uniform decode batches. Simulator and kernel tables
// ask here alike.
func (d *Deployment) GraphSizes() vllm.GraphSizes {
	name := aliasKey(d.Hardware.Name)
	return d.Engine.GraphSizes(strings.Contains(name, "b200") || strings.Contains(name, "b300"))
}

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
	if !d.Engine.CapturesGraphs() {
		other -= graphBytes
	}
	budget := d.Hardware.MemoryGB * gib * d.Hardware.usableShare() * d.Engine.GPUMemoryUtilization
	layers, p := d.Model.Layers(), d.Parallel()
	sizes := d.Model.Sizes
	if n := int64(len(layers.Layers)); p.PP > n && sizes == nil {
		return 0, trace.Errorf(vllm.BadKnobs, "pipeline_parallel_size: got %d, want at most the model's %d layers", p.PP, n)
	}
	drafts, draftBlock, _ := d.drafter()
	if p.MTP && len(layers.MTP) > 0 { // the stages hold the model's own
		drafts, draftBlock = 0, 0
	}
	blocks := math.Inf(1)
	weights := 0.0
	left := 0.0
	for _, stage := range layers.Stages(p) {
		if sizes != nil {
			stage.WeightBytes = sizes.WeightBytesPerGPU
		}
		free := budget - stage.WeightBytes - drafts - d.stepBytes() - other
		if bytes, ok := vllm.Number(d.Engine.Extra["kv_cache_memory_bytes"]); ok && bytes > 0 {
			free = bytes // wins over gpu_memory_utilization
		}
		pool, ok := stage.Decoder.KVPool(p, d.Engine.BlockSize)
		if sizes != nil && sizes.BytesPerBlock > 0 {
			pool = model.KVPool{BlockBytes: sizes.BytesPerBlock}
			ok = true
		}
		if n := math.Floor(free/(pool.BlockBytes+draftBlock)) - 1; ok && n < blocks {
			blocks = n
			weights = stage.WeightBytes
			left = free
		}
	}
	if math.IsInf(blocks, 1) {
		return 0, trace.Errorf(BadHardware, "KV cache: got layers that keep no entries of tokens, or pages of a vLLM that was not read (%s)",
			cmp.Or(d.Engine.VLLMVersion, "unknown")).WithHint("give vllm.kv_blocks_total_gpu as the server printed it (num_gpu_blocks - 1)")
	}
	if !(blocks >= 1) {
		return 0, trace.Errorf(BadHardware, "KV cache: got %.1f GiB left of %.1f GiB, want room for one block (weights %.1f GiB per device)",
			left/gib, budget/gib, weights/gib).WithHint("give vllm.kv_blocks_total_gpu, or a larger tensor_parallel_size")
	}
	return int64(math.Min(blocks, vllm.MaxKVBlocks)), nil
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

// stepBytes are the activations of the largest step on one device.
func (d *Deployment) stepBytes() float64 {
	m := d.Model.Layers()
	tp := float64(d.TP)
	widths := 0.0
	for i := range m.Layers {
		if f := m.Layers[i].FFN; f != nil {
			widths = math.Max(widths, f.Widths())
		}
	}
	if d.Model.Layered == nil { // as stated, where all layers have experts
		widths = math.Max(widths, float64(d.Model.NumMLPProj*d.Model.IntermediateSize))
	}
	perToken := hiddenCopies*float64(m.Hidden) + widths/tp
	logits := float64(min(d.Engine.MaxNumSeqs, d.Engine.MaxNumBatchedTokens)) * float64(m.Vocab) * logitBytes
	return activationBytes*float64(d.Engine.MaxNumBatchedTokens)*perToken + logits/tp
}

// KVBytes is what the blocks of a request of n tokens take on one device, B, all layers; 0 for a model without a KV cache.
func (d *Deployment) KVBytes(n int64) float64 {
	pool, _ := d.Model.Layers().KVPool(d.Parallel(), d.Engine.BlockSize)
	return float64(pool.RequestBlocks(n, 1)) * pool.BlockBytes
}

// KVUnits is the KV pool as the simulator plays it.
func (d *Deployment) KVUnits() model.KVUnits {
	return d.Model.KVUnits(d.Parallel(), d.Engine.BlockSize)
}
