package identity

// This file compares the KV cache blocks and the memory that run.yaml and the engine state with what
// requests and steps need. A reading (identity.go) has what was compared, how much of it contradicts, and
// a sentence.

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Tolerances of blocks and memory.
const (
	blockSlack    = 2    // blocks a request may differ by
	usageSlack    = 0.01 // of kv_usage_ratio
	memorySlack   = 0.05 // of the memory that weights, activations and cache may take together
	poolTolerance = 0.15 // between the recorded cache and that estimated from memory
	gib           = 1 << 30
)

// hasPlainBlocks reports whether a request of n tokens has ceil(n / block size) blocks: one kind of
// cache for all layers.
func (f *facts) hasPlainBlocks() bool {
	pool, ok := f.dep.Model.Layers().KVPool(f.dep.Parallel(), f.dep.Engine.BlockSize)
	return ok && len(pool.Groups) == 1 && pool.Groups[0].Block == f.dep.Engine.BlockSize
}

// lookaheadBlocks returns how many more blocks a request may have than its tokens need: those of the
// drafts that its next step verifies, and one that its next token begins.
func (f *facts) lookaheadBlocks() int64 {
	return 1 + (f.lookaheadTokens()+f.dep.Engine.BlockSize-1)/max(1, f.dep.Engine.BlockSize)
}

// blocksOfContext compares the blocks of each snapshot with its tokens. largest is in blocks.
func blocksOfContext(f *facts) reading {
	c := &f.snapshot
	if !f.hasPlainBlocks() {
		return notChecked("the model has several kinds of cache")
	}
	if c.blocks == 0 {
		return notChecked("no snapshots")
	}
	r := reading{checked: c.blocks, violated: c.blocksOff, largest: c.worstOff}
	r.broken = float64(r.violated) > mostOffSteps*float64(r.checked)
	r.sentence = fmt.Sprintf("%d of %d snapshots hold other blocks than ceil(tokens / %d), by up to %.0f: block_size is another, or the counts were "+
		"changed", r.violated, r.checked, f.dep.Engine.BlockSize, r.largest)
	return r
}

// usedBlocks compares the blocks that a step has in use with those of its requests. largest is in blocks.
//
// With a CPU tier finished requests hold their blocks until these are copied, so that more may be in use.
func usedBlocks(f *facts) reading {
	if f.run.Aggregate != nil || len(f.run.Steps) == 0 {
		return notChecked("no step summaries")
	}
	mostBlocks := int64(0) // of a request; 0: not known
	if most := f.dep.MaxModelLen(); most.OK && f.hasPlainBlocks() && !f.dep.Engine.CPUOffloading {
		mostBlocks = most.V/f.dep.Engine.BlockSize + f.lookaheadBlocks() + blockSlack
	}
	var r reading
	note := "" // what is wrong in the last step that is
	for i := range f.run.Steps {
		s := &f.run.Steps[i]
		if s.BlocksTotal <= 0 {
			continue
		}
		r.checked++
		used := float64(s.BlocksTotal - s.BlocksFree)
		off := math.Abs(used/float64(s.BlocksTotal) - s.KVUsage)
		switch {
		case s.BlocksFree < 0 || s.BlocksFree > s.BlocksTotal || off > usageSlack:
			r.violated++
			r.largest = math.Max(r.largest, off*float64(s.BlocksTotal))
			note = "kv_usage_ratio is not 1 - free / total"
		case s.ScheduledTokens > 0 && used < float64(s.NumPrefillReqs+s.NumDecodeReqs) && !f.dep.Engine.PrefixCaching:
			r.violated++
			r.largest = math.Max(r.largest, float64(s.NumPrefillReqs+s.NumDecodeReqs)-used)
			note = "fewer blocks are in use than requests run"
		case mostBlocks > 0 && used > float64(blockSlack+(int64(s.RunningDepth)+int64(s.WaitingDepth))*mostBlocks):
			r.violated++
			r.largest = math.Max(r.largest, used-float64(int64(s.RunningDepth)*mostBlocks))
			note = "more blocks are in use than requests of max_model_len tokens take"
		}
	}
	c := &f.snapshot
	r.broken = float64(r.violated) > mostOffSteps*float64(r.checked)
	r.checked += c.usedSteps
	r.violated += c.usedOff
	r.largest = math.Max(r.largest, c.worstUsed)
	if float64(c.usedOff) > mostOffSteps*float64(c.usedSteps) {
		r.broken = true
		note = "the blocks in use are not those that the snapshots of all running requests hold"
	}
	r.sentence = fmt.Sprintf("in %d of %d comparisons %s, by up to %.0f blocks", r.violated, r.checked, note, r.largest)
	return r
}

// poolSize compares the recorded number of blocks with run.yaml. largest is in blocks.
func poolSize(f *facts) reading {
	stated := f.dep.Engine.KVBlocksGPU
	if f.run.Aggregate != nil || len(f.run.Steps) == 0 || !stated.OK {
		return notChecked("run.yaml does not state kv_blocks_total_gpu, or no step summaries have it")
	}
	var r reading
	for i := range f.run.Steps {
		s := &f.run.Steps[i]
		r.checked++
		if off := math.Abs(float64(s.BlocksTotal - stated.V)); off > 1 { // the null block
			r.violated++
			r.largest = math.Max(r.largest, off)
		}
	}
	r.broken = float64(r.violated) > mostOffSteps*float64(r.checked)
	r.sentence = fmt.Sprintf("%d of %d steps have another kv_blocks_total than the %d of run.yaml, by up to %.0f", r.violated, r.checked, stated.V,
		r.largest)
	return r
}

// recordedBlocks returns the size of the cache as it was recorded, else as run.yaml states it; 0:
// neither.
func (f *facts) recordedBlocks() int64 {
	if len(f.run.Steps) > 0 && f.run.Aggregate == nil {
		return f.run.Steps[0].BlocksTotal
	}
	return f.dep.Engine.KVBlocksGPU.V
}

// hasOtherBlocks reports whether the blocks are those of a run.yaml whose number or size of blocks the files
// contradict. What the memory holds is then no evidence about the other settings.
func (f *facts) hasOtherBlocks() bool {
	isOfRun := len(f.run.Steps) == 0 || f.run.Aggregate != nil
	return isOfRun && slices.ContainsFunc(f.Findings, func(w trace.Finding) bool {
		return w.Code == source.CodeRunContradicted && (w.Setting == "vllm.kv_blocks_total_gpu" || w.Setting == "vllm.block_size")
	})
}

// memory compares the cache with the memory of the named device. largest is the ratio of the memory that is taken to
// the budget.
func memory(f *facts) reading {
	if f.hasOtherBlocks() {
		return notChecked("run.yaml states other blocks than the files")
	}
	blocks := f.recordedBlocks()
	h := &f.dep.Hardware
	if blocks <= 0 || !(h.MemoryGB > 0) {
		return notChecked("the size of the KV cache, or memory_gb of the device, is not known")
	}
	pool, ok := f.dep.Model.Layers().KVPool(f.dep.Parallel(), f.dep.Engine.BlockSize)
	if !ok || !(pool.BlockBytes > 0) {
		return notChecked("the bytes of a block of this model are not known")
	}
	cache := float64(blocks) * pool.BlockBytes
	weights := f.dep.Model.Layers().WeightBytesPerGPU(f.dep.Parallel())
	budget := h.MemoryGB * gib
	taken := cache + weights
	if f.isGPU() {
		budget *= f.dep.Engine.GPUMemoryUtilization
		if fits, err := f.dep.EstimateKVBlocks(); err == nil { // what the weights, activations and the runtime leave
			taken = budget + (float64(blocks)-float64(fits))*pool.BlockBytes
		}
	}
	r := reading{checked: 1, largest: taken / budget}
	if r.largest > 1+memorySlack {
		r.violated = 1
		r.broken = true
	}
	r.sentence = fmt.Sprintf("%d blocks of the KV cache take %.3g GB and the weights %.3g GB on each GPU, with activations %.3g times the %.3g GB that %s "+
		"gives at gpu_memory_utilization %g: hardware, tensor_parallel_size, model or dtype in run.yaml is wrong", blocks, cache/1e9, weights/1e9, r.largest,
		budget/1e9, h.Name, f.dep.Engine.GPUMemoryUtilization)
	return r
}

// poolOfMemory compares the cache with the one that the engine would have allocated in the memory. A larger one is
// impossible. A smaller one may have been set by hand, so that it contradicts the description only if another
// description, wrong in one point, gives the recorded size. largest is the ratio of the two.
func poolOfMemory(f *facts) reading {
	if f.hasOtherBlocks() {
		return notChecked("run.yaml states other blocks than the files")
	}
	blocks := f.recordedBlocks()
	if !f.isGPU() {
		return notChecked("%s is not a device of the library: how its engine sizes the cache is not known", f.dep.Hardware.Name)
	}
	if blocks <= 0 {
		return notChecked("the size of the KV cache is not recorded")
	}
	if f.dep.Model.Sizes != nil {
		return notChecked("run.yaml states the sizes of the model")
	}
	if v, ok := vllm.Number(f.dep.Engine.Extra["kv_cache_memory_bytes"]); ok && v > 0 {
		return notChecked("run.yaml sets kv_cache_memory_bytes")
	}
	want, err := f.dep.EstimateKVBlocks()
	if err != nil {
		return reading{checked: 1, violated: 1, largest: math.Inf(1), broken: true,
			sentence: fmt.Sprintf("the engine has %d blocks where none would fit: %v", blocks, err)}
	}
	// Compare with the size that vLLM would have chosen, and name what could have made it another.
	ratio := float64(blocks) / float64(want)
	r := reading{checked: 1, largest: ratio}
	if math.Abs(ratio-1) <= poolTolerance {
		// Small weights: twice their bytes may change the cache by less than the tolerance.
		if ratio < 1-poolTolerance/2 && f.fitsWiderWeights(blocks) {
			r.violated = 1
			r.broken = true
			r.effect = result.IdentityNamed
			r.sentence = fmt.Sprintf("the engine has %d blocks of the KV cache, %.3g times the %d that %s leaves beside weights of %g bytes with tp %d, and weights of "+
				"twice the bytes give this size: dtype or quantization in run.yaml may be wrong", blocks, ratio, want, f.dep.Hardware.Name,
				f.dep.Model.BytesPerWeight, f.dep.TP)
		}
		return r
	}
	other := f.otherPool(blocks)
	if ratio < 1 && other == "" {
		return notChecked("the engine has %d blocks, %.3g of what the memory holds: their number may have been set by hand", blocks, ratio)
	}
	r.violated = 1
	r.broken = true
	r.sentence = fmt.Sprintf("the engine has %d blocks of the KV cache, %.3g times the %d that %s leaves beside the weights with tp %d", blocks, ratio,
		want, f.dep.Hardware.Name, f.dep.TP)
	if other == "" {
		other = "hardware, tensor_parallel_size, model, dtype or gpu_memory_utilization in run.yaml is wrong"
	}
	r.sentence += ": " + other
	return r
}

// widen gives the weights of a model so many times the bytes, up to 16 bits, above which vLLM has none. The head
// may have 16 bits already, because quantization leaves it as it is.
func widen(m *model.Model, times float64) {
	m.BytesPerWeight = math.Min(2, times*m.BytesPerWeight)
	m.BytesPerLMHead = math.Max(m.BytesPerLMHead, math.Min(2, times*m.BytesPerLMHead))
}

// fitsWiderWeights reports whether weights of twice the bytes give the number of blocks within a fifth of the tolerance.
func (f *facts) fitsWiderWeights(blocks int64) bool {
	if f.dep.Model.BytesPerWeight >= 2 || f.dep.Model.Layered != nil {
		return false
	}
	d := *f.dep
	widen(&d.Model, 2)
	want, err := d.EstimateKVBlocks()
	return err == nil && math.Abs(float64(blocks)/float64(want)-1) <= poolTolerance/5
}

// otherPool returns the first description, wrong in one point, that gives the recorded number of
// blocks within a third of the tolerance; empty for none.
func (f *facts) otherPool(blocks int64) string {
	fits := func(change func(*deploy.Deployment)) bool {
		d := *f.dep
		change(&d)
		want, err := d.EstimateKVBlocks()
		return err == nil && math.Abs(float64(blocks)/float64(want)-1) <= poolTolerance/3
	}
	wider := func(kv, weights float64) func(*deploy.Deployment) { // times the bytes of the values of each
		return func(d *deploy.Deployment) {
			d.Model.BytesPerKV *= kv
			widen(&d.Model, weights)
		}
	}
	var other string
	try := func(what string, change func(*deploy.Deployment)) {
		if other == "" && fits(change) {
			other = what
		}
	}
	// Other data types, then other numbers of GPUs, then other GPUs: the first that fits is named.
	if f.dep.Model.Layered == nil {
		if f.dep.Model.BytesPerKV < 2 {
			try("kv_cache_dtype in run.yaml may be wrong: values of twice the bytes give this size", wider(2, 1))
		}
		if f.dep.Model.BytesPerWeight < 2 {
			try("dtype or quantization in run.yaml may be wrong: weights of twice the bytes give this size", wider(1, 2))
			if f.dep.Model.BytesPerKV < 2 {
				try("dtype or quantization, and kv_cache_dtype, in run.yaml may be wrong: twice the bytes give this size", wider(2, 2))
			}
		}
		if f.dep.Model.BytesPerWeight < 1 {
			try("dtype or quantization in run.yaml may be wrong: weights of 16 bits give this size", wider(1, 4))
		}
	}
	// Most models have heads of hidden_size / num_attention_heads, which config.json need not state.
	if m := &f.dep.Model; m.Layered == nil && m.NumHeads > 0 && m.HiddenSize%m.NumHeads == 0 && m.HeadDim != m.HiddenSize/m.NumHeads {
		usual := m.HiddenSize / m.NumHeads
		try(fmt.Sprintf("head_dim of the model may be wrong: %d, hidden_size / num_attention_heads, gives this size", usual),
			func(d *deploy.Deployment) { d.Model.HeadDim = usual })
	}
	for times := int64(2); times <= 8 && f.dep.Model.NumKVHeads*times <= f.dep.Model.NumHeads; times *= 2 {
		try(fmt.Sprintf("num_key_value_heads of the model may be wrong: %d give this size", f.dep.Model.NumKVHeads*times),
			func(d *deploy.Deployment) { d.Model.NumKVHeads *= times })
	}
	for tp := int64(1); tp <= 8; tp *= 2 {
		if tp != f.dep.TP {
			try(fmt.Sprintf("tensor_parallel_size in run.yaml may be wrong: %d gives this size", tp), func(d *deploy.Deployment) { d.TP = tp })
		}
	}
	for _, h := range deploy.Datasheets() {
		if h.Name != f.dep.Hardware.Name && h.MemoryGB != f.dep.Hardware.MemoryGB {
			try(fmt.Sprintf("hardware in run.yaml may be wrong: the memory of %s gives this size", h.Name), func(d *deploy.Deployment) { d.Hardware = h })
		}
	}
	return other
}

// computeType checks that an activation in run.yaml has at least 16 bits. vLLM computes in no smaller type: its --dtype
// has none of 8 bits, and quantization gives 8 bits to weights, not to what the layers pass on. largest is the bytes of
// one.
func computeType(f *facts) reading {
	bytes := f.dep.Model.BytesPerActivation
	r := reading{checked: 1, largest: bytes}
	if bytes > 0 && bytes < 2 {
		r.violated = 1
		r.broken = true
	}
	r.sentence = fmt.Sprintf("run.yaml gives the model a dtype of %g bytes, and vLLM has none below 16 bits: weights of 8 bits are stated by the model's "+
		"quantization_config or by vllm.quantization", bytes)
	return r
}
