package deploy

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// What follows from a description without being written in it. Every package asks
// here, so that a fit, a replay and a simulation of one run.yaml agree.

// asyncSchedulingSince is the first vLLM version that schedules asynchronously
// unless told otherwise (release notes of v0.14.0, "Breaking Changes").
var asyncSchedulingSince = [2]int{0, 14}

// IsAsync reports whether the engine schedules asynchronously: as stated, else
// as vLLM decides for its version. A version that cannot be read counts as the
// newest; [Deployment.Assumed] says so.
func (e *Engine) IsAsync() bool {
	if e.AsyncScheduling.OK {
		return e.AsyncScheduling.V
	}
	v, known := parseVersion(e.VLLMVersion)
	return (!known || !less(v, asyncSchedulingSince)) && e.asyncExcluded() == ""
}

// asyncExcluded names what makes vLLM switch asynchronous scheduling off when
// nobody asked for it, "" for nothing: the executor Ray, the CPU back end and
// drafters that it cannot overlap (vllm/config/vllm.py of 0.15.1 to 0.33.0).
func (e *Engine) asyncExcluded() string {
	switch {
	case e.Extra["distributed_executor_backend"] == "ray":
		return "the executor ray"
	case e.Extra["device"] == "cpu" || strings.HasSuffix(e.VLLMVersion, "+cpu"):
		return "the CPU back end"
	}
	if s, err := e.Speculation(); err == nil && s != nil && !s.IsEagle() {
		if since, ok := asyncDraftersSince[s.Method]; !ok || !e.IsSince(since) {
			return "drafts by " + s.Method
		}
	}
	return ""
}

// asyncDraftersSince is the first release that schedules asynchronously with drafters
// other than EAGLE and MTP; n-gram from 0.33 on with model runner V2, its default.
var asyncDraftersSince = map[string][2]int{"ngram_gpu": {0, 19}, "dspark": {0, 26}, "dflash": {0, 23}, "draft_model": {0, 28},
	"ngram": {0, 33}}

// Assumed says what a fit or a simulation takes for granted: what is not modelled
// ([Deployment.NotModelled]), and what the description does not state and nothing
// else decides: async_assumed.
func (d *Deployment) Assumed() []trace.Finding {
	e, out := &d.Engine, d.NotModelled()
	if _, known := parseVersion(e.VLLMVersion); known || e.AsyncScheduling.OK || e.asyncExcluded() != "" {
		return out
	}
	return append(out, trace.Findingf(asyncAssumed,
		"%s: vllm.version %q is no release number; asynchronous scheduling is taken as on, the default since vLLM %d.%d, and the "+
			"scheduler's rules are those of the newest one", d.Name, e.VLLMVersion, asyncSchedulingSince[0], asyncSchedulingSince[1]))
}

// newestCompared is the newest release whose scheduler the simulator was compared with.
var newestCompared = [2]int{0, 33}

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
	case known && less(newestCompared, v):
		out = append(out, trace.Findingf(notModelled, "%s: vllm.version %s is newer than %d.%d, the newest whose scheduler was compared; its "+
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
	return longest(d.Engine.MaxModelLen, d.Model.MaxPositionEmbeddings)
}

func longest(stated trace.Opt[int64], positions int64) trace.Opt[int64] {
	if !stated.OK && positions > 0 {
		return trace.Some(positions)
	}
	return stated
}

// LongestSequence returns the longest sequence the engine can hold in tokens:
// [Deployment.MaxModelLen], and no more than the KV cache has room for. Unknown
// where neither is known.
func (d *Deployment) LongestSequence() trace.Opt[int64] {
	n := d.MaxModelLen()
	if blocks, _, err := d.KVBlocks(); err == nil {
		u := d.KVUnits()
		return trace.Some(min(n.Or(math.MaxInt64), max(1, blocks/u.Blocks-u.Side(n.Or(maxTokens)))*u.Block))
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

// Releases that changed which CUDA graphs are captured (vllm/config/vllm.py, _set_cudagraph_sizes).
var (
	budgetGraphSince   = [2]int{0, 23} // max_num_batched_tokens itself, where it is the cap
	largerGraphsSince  = [2]int{0, 28} // 1024 tokens on compute capability 10.x
	decodeGraphsSince  = [2]int{0, 29} // sizes of uniform decode batches: requests times tokens of a verify
	mostGraphTokens    = int64(512)
	mostGraphTokens100 = int64(1024)
)

// IsSince reports whether the stated release is v or later; one that cannot be read is the newest.
func (e *Engine) IsSince(v [2]int) bool {
	at, known := e.Release()
	return !known || !less(at, v)
}

// decodeTokens are the query tokens of one request that decodes: one and its drafts.
func (e *Engine) decodeTokens() int64 {
	k, _ := number(e.dict("speculative_config")["num_speculative_tokens"])
	return 1 + max(0, int64(math.Min(k, 1<<20)))
}

// GPUs are those of all ranks and stages.
func (d *Deployment) GPUs() int64 {
	p := d.Parallel()
	return p.TP * p.PP * p.DP
}

// GraphSizes are the numbers of tokens that CUDA graphs are captured for, ascending.
type GraphSizes []int64

// GraphSizes are those of the stated release: 1, 2, 4, multiples of 8 below 256 and of 16
// from there, up to twice the seats times the tokens of a verify, 512 (1024) and the token
// budget; from 0.29 on also those of uniform decode batches. Simulator and kernel tables
// ask here alike.
func (d *Deployment) GraphSizes() GraphSizes {
	e := &d.Engine
	if !e.capturesGraphs() {
		return nil
	}
	query := e.decodeTokens()
	largest := mostGraphTokens
	name := aliasKey(d.Hardware.Name)
	if e.IsSince(largerGraphsSince) && (strings.Contains(name, "b200") || strings.Contains(name, "b300")) { // compute capability 10.x
		largest = mostGraphTokens100
	}
	if sizes := e.statedGraphs(); len(sizes) > 0 {
		return stat.Filter(sizes, func(n int64) bool { return n <= e.MaxNumBatchedTokens || e.MaxNumBatchedTokens <= 0 })
	}
	most := min(largest, 2*e.MaxNumSeqs*query)
	budget := e.MaxNumBatchedTokens
	n, stated := number(e.graphSetting("max_cudagraph_capture_size"))
	if stated = stated && n >= 1; stated {
		most = int64(n)
	}
	budget = cmp.Or(max(0, budget), most)
	var sizes GraphSizes
	if e.Extra["performance_mode"] == "interactivity" {
		for n := range min(most, budget, 32) {
			sizes = append(sizes, n+1)
		}
	}
	sizes = sizes.grid(min(most, budget), 1)
	if budget <= most && e.IsSince(budgetGraphSince) {
		sizes = append(sizes, budget)
	}
	if e.IsSince(decodeGraphsSince) && !stated {
		for query, seats := range e.decodeTiers(query) {
			seats = min(seats, largest)
			sizes = sizes.grid(min(seats, min(most, budget)/query), query)
			if seats*query <= min(most, budget) {
				sizes = append(sizes, seats*query)
			}
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// decodeTiers are the seats of uniform decode batches by the tokens of a request: one tier, or those of
// num_speculative_tokens_per_batch_size.
func (e *Engine) decodeTiers(query int64) map[int64]int64 {
	s, err := e.Speculation()
	if err != nil || s == nil || s.ByBatchSize == nil {
		return map[int64]int64{query: e.MaxNumSeqs}
	}
	tiers := map[int64]int64{}
	for n := range e.MaxNumSeqs {
		tiers[1+s.TokensFor(n+1)] = n + 1
	}
	return tiers
}

// capturesGraphs reports whether any step runs in a CUDA graph (vllm/config/vllm.py): without compilation only those do that
// hold a whole step.
func (e *Engine) capturesGraphs() bool {
	mode, _ := e.graphSetting("cudagraph_mode").(string)
	mode = strings.ToUpper(mode)
	most, isStated := number(e.graphSetting("max_cudagraph_capture_size"))
	if e.Extra["enforce_eager"] == true || mode == "NONE" || e.graphSetting("use_cudagraph") == false || isStated && most < 1 {
		return false
	}
	isPlain := false
	for key, compiled := range map[string]float64{"optimization_level": 1, "level": 3, "mode": 3} {
		level, ok := number(e.graphSetting(key))
		isPlain = isPlain || ok && level < compiled
	}
	return !isPlain || mode == "FULL" || mode == "FULL_DECODE_ONLY"
}

// graphSetting is a flag that may also stand in compilation_config.
func (e *Engine) graphSetting(key string) any {
	if v := e.Extra[key]; v != nil {
		return v
	}
	return e.dict("compilation_config")[key]
}

// statedGraphs are the sizes of --cudagraph-capture-sizes (to 0.12 --cuda-graph-sizes), none where it is not given.
func (e *Engine) statedGraphs() (sizes GraphSizes) {
	list, _ := e.graphSetting("cudagraph_capture_sizes").([]any)
	before, _ := e.graphSetting("cuda_graph_sizes").([]any)
	for _, v := range slices.Concat(list, before) {
		if n, ok := number(v); ok && n >= 1 && n <= maxTokens {
			sizes = append(sizes, int64(n))
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// grid appends 1, 2, 4, multiples of 8 below 256 and of 16 from there, up to most, each times query.
func (g GraphSizes) grid(most, query int64) GraphSizes {
	for n := int64(1); n <= most; {
		g = append(g, n*query)
		switch {
		case n < 4:
			n *= 2
		case n < 8:
			n = 8
		case n < 256:
			n += 8
		default:
			n += 16
		}
	}
	return g
}

// Tokens is the size that a step of so many tokens is padded to. Larger steps run as they
// are: captured is false.
func (g GraphSizes) Tokens(tokens float64) (padded float64, captured bool) {
	at, _ := slices.BinarySearch(g, trace.Int(math.Ceil(tokens)))
	if at == len(g) {
		return tokens, false
	}
	return float64(g[at]), true
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
	if !d.Engine.capturesGraphs() {
		other -= graphBytes
	}
	budget := d.Hardware.MemoryGB * gib * d.Hardware.usableShare() * d.Engine.GPUMemoryUtilization
	layers, p := d.Model.Layers(), d.Parallel()
	sizes := d.Model.Sizes
	if n := int64(len(layers.Layers)); p.PP > n && sizes == nil {
		return 0, trace.Errorf(BadKnobs, "pipeline_parallel_size: got %d, want at most the model's %d layers", p.PP, n)
	}
	drafts, draftBlock, _ := d.drafter()
	if p.MTP && len(layers.MTP) > 0 { // the stages hold the model's own
		drafts, draftBlock = 0, 0
	}
	blocks := math.Inf(1)
	weights := 0.0
	left := 0.0
	for _, stage := range layers.stages(p) {
		if sizes != nil {
			stage.weights = sizes.WeightBytesPerGPU
		}
		free := budget - stage.weights - drafts - d.stepBytes() - other
		if bytes, ok := number(d.Engine.Extra["kv_cache_memory_bytes"]); ok && bytes > 0 {
			free = bytes // wins over gpu_memory_utilization
		}
		pool, ok := stage.decoder.KVPool(p, d.Engine.BlockSize)
		if sizes != nil && sizes.BytesPerBlock > 0 {
			pool = KVPool{BlockBytes: sizes.BytesPerBlock}
			ok = true
		}
		if n := math.Floor(free/(pool.BlockBytes+draftBlock)) - 1; ok && n < blocks {
			blocks = n
			weights = stage.weights
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
	m := d.Model.Layers()
	tp := float64(d.TP)
	widths := 0.0
	for i := range m.Layers {
		if f := m.Layers[i].FFN; f != nil {
			widths = math.Max(widths, f.widths())
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
