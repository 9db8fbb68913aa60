package deploy

// This file estimates how many KV blocks vLLM allocates on a device.

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"strings"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Device memory that is neither weights nor KV cache. The figures are an estimate from the start-up
// logs of real servers ("Model loading took", "Available KV cache memory"); the KV cache of four of
// them is estimated within 4 %.
const (
	gib             = 1 << 30
	contextBytes    = gib / 2. // CUDA context, NCCL buffers, captured graphs of up to defaultGraphs sizes
	graphBytes      = gib / 4. // the part of contextBytes that --enforce-eager saves; not measured
	defaultGraphs   = 51       // sizes that are captured up to 512 tokens; each further one takes as much
	activationBytes = 2        // per activation value in flight
	logitBytes      = 4 + 4    // fp32 logits and their sampling copy
	hiddenCopies    = 3        // residual, normed and projected hidden states alive at once
)

// usableShare returns the memory that the driver reports, relative to the nominal capacity in GiB,
// as PyTorch prints it ("GPU 0 has a total capacity of 79.18 GiB"): H100 79.2 of 80, H200 139.8 of
// 141, B200 178.35 of 180, RTX PRO 6000 94.97 of 96. GDDR cards reserve more for error correction
// or firmware.
func (h *Hardware) usableShare() float64 {
	switch h.Name {
	case "L40S-48GB":
		return 44.40 / 48
	case "RTX-4090-24GB":
		return 23.52 / 24
	}
	return 0.99
}

// KVBlocks returns the size of the GPU KV cache in blocks: as stated, otherwise the estimate from
// memory, in which case estimated is true.
func (d *Deployment) KVBlocks() (blocks int64, estimated bool, err error) {
	if d.Engine.KVBlocksGPU.OK && d.Engine.KVBlocksGPU.V > 0 {
		return d.Engine.KVBlocksGPU.V, false, nil
	}
	blocks, err = d.EstimateKVBlocks()
	return blocks, true, err
}

// NoRoomError is an error of a KV cache for which the weights leave too little memory, as of
// [Deployment.EstimateKVBlocks] where not one block fits. Err has the code bad_hardware, as other failures of the
// estimate.
type NoRoomError struct{ Err error }

// Error returns the text of the wrapped error.
func (e *NoRoomError) Error() string { return e.Err.Error() }

// Unwrap returns the error with the code and the hint.
func (e *NoRoomError) Unwrap() error { return e.Err }

// EstimateKVBlocks returns the number of KV blocks as vLLM derives it at start
// (vllm/v1/worker/gpu_worker.py: Worker.determine_available_memory()): memory x utilization, less weights,
// less the activations of a full step, divided by the bytes of a block.
// It is the least over the stages of a pipeline, without the null block. Code: bad_hardware if the
// memory is unknown or the model does not fit, the latter as a [NoRoomError].
func (d *Deployment) EstimateKVBlocks() (int64, error) {
	if !(d.Hardware.MemoryGB > 0) {
		return 0, trace.Errorf(BadHardware, "hardware memory_gb: got %g, want > 0 to estimate the KV cache", d.Hardware.MemoryGB).
			WithHint("give vllm.kv_blocks_total_gpu as the server printed it (num_gpu_blocks - 1)")
	}
	// Memory that is neither weights nor activations: the CUDA context, buffers and captured graphs.
	other := contextBytes + graphBytes*max(0, float64(len(d.GraphSizes()))/defaultGraphs-1)
	if !d.Engine.CapturesGraphs() {
		other -= graphBytes
	}
	// What vLLM may use of a device, less what each stage of the pipeline has there.
	budget := d.Hardware.MemoryGB * gib * d.Hardware.usableShare() * d.Engine.GPUMemoryUtilization
	layers, p := d.Model.Layers(), d.Parallel()
	sizes := d.Model.Sizes
	if n := int64(len(layers.Layers)); p.PP > n && sizes == nil {
		return 0, trace.Errorf(vllm.BadKnobs, "pipeline_parallel_size: got %d, want at most the model's %d layers", p.PP, n)
	}
	// Bytes of a draft model's weights, and of its part of a block.
	drafts, draftBlock, _ := d.drafter()
	if p.MTP && len(layers.MTP) > 0 { // the stages hold the model's own
		drafts, draftBlock = 0, 0
	}
	blocks := math.Inf(1) // the least of the stages
	weights := 0.0        // of the stage with the least, for the error
	left := 0.0
	for i, stage := range layers.Stages(p) {
		switch {
		case sizes != nil:
			stage.WeightBytes = sizes.WeightBytesPerGPU
		case i == 0:
			stage.WeightBytes += d.encoderBytes()
		}
		stage.WeightBytes += d.expertPadding(&stage.Decoder, p)
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
		return 0, &NoRoomError{trace.Errorf(BadHardware, "KV cache: got %.1f GiB left of %.1f GiB, want room for one block (weights %.1f GiB per device)",
			left/gib, budget/gib, weights/gib).WithHint("give vllm.kv_blocks_total_gpu, or a larger tensor_parallel_size")}
	}
	return int64(math.Min(blocks, vllm.MaxKVBlocks)), nil
}

// CheckKVBlocks returns an error for a KV cache of more blocks than a device has memory for beside the weights, where
// both sizes are known. It is for servers that do not run yet: what a recording states did run. Code: bad_hardware.
func (d *Deployment) CheckKVBlocks(blocks int64) error {
	all := *d // with all of the memory, for steps of one token
	all.Engine.GPUMemoryUtilization = 1
	all.Engine.MaxNumSeqs = 1
	all.Engine.MaxNumBatchedTokens = 1
	all.Engine.Extra = maps.Clone(d.Engine.Extra)
	delete(all.Engine.Extra, "kv_cache_memory_bytes")
	most, err := all.EstimateKVBlocks()
	_, hasNoRoom := errors.AsType[*NoRoomError](err)
	if err != nil && !hasNoRoom { // the memory or the layers are not known
		return nil
	}
	if blocks <= most {
		return nil
	}
	return trace.Errorf(BadHardware, "KV cache: got %d blocks, want at most %d: a device has %g GiB for weights and cache", blocks, most, d.Hardware.MemoryGB).
		WithHint("lower --num-gpu-blocks-override or --kv-cache-memory-bytes, or raise --tp")
}

// encoderBytes returns the bytes of weights of an encoder of images on each GPU. The ranks share its matrices, except with
// --mm-encoder-tp-mode data. vLLM does not load it where the server takes text alone
// (vllm/model_executor/models/interfaces.py: _mark_tower_model).
func (d *Deployment) encoderBytes() float64 {
	e := &d.Engine
	limits, hasLimits := e.Extra["limit_mm_per_prompt"].(map[string]any)
	isTextAlone := hasLimits && len(limits) > 0
	for _, limit := range limits {
		n, isNumber := vllm.Number(limit)
		isTextAlone = isTextAlone && isNumber && n == 0
	}
	if isTextAlone || e.Extra["language_model_only"] == true {
		return 0
	}
	bytes := float64(d.Model.EncoderParams) * d.Model.BytesPerActivation
	if e.Extra["mm_encoder_tp_mode"] == "data" {
		return bytes
	}
	return bytes / float64(max(1, d.TP))
}

// expertPadding returns the bytes by which vLLM's padding of MXFP4 experts enlarges the weights on one
// GPU.
func (d *Deployment) expertPadding(m *model.Decoder, p model.Parallel) (bytes float64) {
	backend, _ := d.Engine.Extra["moe_backend"].(string)
	for i := range m.Layers {
		f := m.Layers[i].FFN
		if f == nil || f.Kind != model.Experts {
			continue
		}
		width := f.Width
		if !p.Experts {
			width = max(1, width/(p.TP*max(1, p.DP)))
		}
		hidden, padded := vllm.PaddedExperts(backend, d.Hardware.Capability(), m.Hidden, width)
		more := float64(hidden*padded)/float64(m.Hidden*width) - 1
		for j := range f.Linears {
			if l := &f.Linears[j]; l.Placement == model.ByExpert && strings.Contains(strings.ToLower(l.Quant.Algorithm), "mxfp4") {
				bytes += more * p.BytesPerGPU(l, nil)
			}
		}
	}
	return bytes
}

// stepBytes returns the bytes of activations of the largest step on one device: those of its tokens in the widest
// layer, and the logits of its sequences.
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

// KVBytes returns the bytes of a request of n tokens in the KV cache of one device, over all layers and
// in whole blocks; 0 for a model without a KV cache.
func (d *Deployment) KVBytes(n int64) float64 {
	pool, _ := d.Model.Layers().KVPool(d.Parallel(), d.Engine.BlockSize)
	return float64(pool.RequestBlocks(n, 1)) * pool.BlockBytes
}

// KVUnits returns the KV pool in the form that the simulator uses.
func (d *Deployment) KVUnits() model.KVUnits {
	return d.Model.KVUnits(d.Parallel(), d.Engine.BlockSize)
}

// drafter returns estimates of what a drafter (the model of speculative decoding) adds on each GPU:
// the bytes of weights that one pass reads, the bytes of a KV block, and the number of sequential
// passes in a step; zeros without a drafter on the GPU. EAGLE and MTP are estimated as one layer of
// the model and its LM head.
func (d *Deployment) drafter() (weights, block float64, passes int64) {
	speculation, err := d.Engine.Speculation()
	if err != nil || speculation == nil {
		return 0, 0, 0
	}
	passes = speculation.Tokens
	if speculation.Parallel {
		passes = 1
	}
	p := d.Parallel()
	p.PP = 1
	p.MTP = false
	p.Drafts = 0
	drafter, share := d.Drafter, 1.0
	switch {
	case drafter != nil && speculation.Method == "draft_model":
		p.TP = cmp.Or(speculation.TP, p.TP)
		weights = drafter.Layers().WeightBytesPerGPU(p)
	case speculation.IsEagle():
		drafter = &d.Model
		share = 1 / float64(max(1, drafter.NumLayers))
		layers := drafter.Layers()
		table := p.BytesPerGPU(&layers.Embedding, nil)
		head, around := table, table // a tied table is one
		if !layers.Tied {
			head = p.BytesPerGPU(&layers.Head, nil)
			around += head
		}
		weights = (layers.WeightBytesPerGPU(p)-around)*share + head
	default:
		return 0, 0, 0
	}
	pool, _ := drafter.Layers().KVPool(p, d.Engine.BlockSize)
	return weights, pool.BlockBytes * share, passes
}

// DrafterUs estimates the time of one drafter pass in us as the time to read its weights, and returns
// the number of passes in a step; zeros without a drafter on the GPU.
func (d *Deployment) DrafterUs() (passUs float64, passes int64) {
	weights, _, passes := d.drafter()
	if !(d.Hardware.BwPeakTBs > 0) {
		return 0, 0
	}
	return weights / (d.Hardware.BwPeakTBs * 1e6), passes
}
