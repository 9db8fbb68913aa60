package model

// This file computes the weights of a model, whole and on each GPU, and whether vLLM can divide it so.

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// everyLinear calls each for every matrix of the decoder except those of multi-token prediction. A
// tied head is the embedding and not visited again.
func (d *Decoder) everyLinear(each func(l *Linear)) {
	each(&d.Embedding)
	if !d.Tied {
		each(&d.Head)
	}
	for i := range d.PerLayer {
		each(&d.PerLayer[i])
	}
	for i := range d.Layers {
		d.Layers[i].everyLinear(each)
	}
}

// everyLinear calls each for every matrix of the layer.
func (l *Layer) everyLinear(each func(l *Linear)) {
	if l.Mixer != nil {
		for i := range l.Mixer.Linears {
			each(&l.Mixer.Linears[i])
		}
	}
	if l.FFN != nil {
		for i := range l.FFN.Linears {
			each(&l.FFN.Linears[i])
		}
	}
}

// smallParams returns the number of parameters that are not in matrices: norms, biases,
// convolutions, sinks.
func (d *Decoder) smallParams() int64 {
	n := d.Small
	for i := range d.Layers {
		n += d.Layers[i].smallParams()
	}
	return n
}

// smallParams returns the number of parameters of the layer that are not in matrices.
func (l *Layer) smallParams() int64 {
	n := l.Small
	if l.Mixer != nil {
		n += l.Mixer.Small
	}
	if l.FFN != nil {
		n += l.FFN.Small
	}
	return n
}

// TotalParams returns the number of parameters. A tied table counts once; multi-token prediction
// and encoders do not count.
func (d *Decoder) TotalParams() int64 {
	n := d.smallParams()
	d.everyLinear(func(l *Linear) { n += l.Params() })
	return n
}

// ActiveParams returns the number of parameters that a token is multiplied with: the head and the
// experts it is routed to included, the embedding not, because it is looked up.
func (d *Decoder) ActiveParams() int64 {
	n := d.smallParams()
	d.everyLinear(func(l *Linear) { n += l.ActiveParams() })
	if !d.Tied {
		n -= d.Embedding.Params()
	}
	if len(d.PerLayer) > 0 {
		n -= d.PerLayer[0].Params()
	}
	return n
}

// WeightBytes returns the bytes of all weights as shipped, unsharded.
func (d *Decoder) WeightBytes() float64 {
	b := smallBytes * float64(d.smallParams())
	d.everyLinear(func(l *Linear) { b += l.Bytes() })
	return b
}

// Parallel states how a model is sharded (vLLM's --tensor-parallel-size, --pipeline-parallel-size,
// --data-parallel-size and --enable-expert-parallel), with the other settings that decide what a
// GPU has in memory.
type Parallel struct {
	TP, PP, DP int64
	Experts    bool         // whole experts on each GPU, in place of a part of each
	Redundant  int64        // experts of a layer of which EPLB has two copies
	OneGroup   bool         // --disable-hybrid-kv-cache-manager: windows and chunks keep all their tokens
	Drafts     int64        // draft tokens of a verify: recurrences keep a state for each
	MTP        bool         // the model's own multi-token prediction drafts: its layers are loaded
	NoPrefixes bool         // no prefix caching: recurrences keep no cached state
	Release    vllm.Release // of vLLM; zero: the newest
	Block      int64        // --block-size; 0: vLLM's own
	PlainCache bool         // DeepSeek-V4's attention backend takes a 16-bit cache: FlashInfer's does, vLLM's default does not
}

// share returns the part of a matrix that one GPU has (spec#model-placement); kv is the number of
// key heads of its mixer.
func (p Parallel) share(l *Linear, kv int64) float64 {
	tp, ranks := float64(p.TP), float64(p.TP*p.DP)
	switch l.Placement {
	case Sharded, ShardedIn:
		return 1 / tp
	case KVSharded:
		return max(1/tp, 1/float64(kv))
	case ByExpert:
		if p.Experts {
			return math.Ceil(float64(l.Count+p.Redundant)/ranks) / float64(l.Count)
		}
		return 1 / ranks
	}
	return 1
}

// vocabPadding: vLLM rounds the rows of embedding and head up to a multiple of this.
const vocabPadding = 64

// BytesPerGPU returns the bytes of one matrix of mixer m (nil: of none) on one GPU.
func (p Parallel) BytesPerGPU(l *Linear, m *Mixer) float64 {
	whole := *l    // with the rows that vLLM adds
	kv := int64(1) // key heads
	if l.Name == embeddingName || l.Name == headName {
		whole.Rows = (l.Rows + vocabPadding - 1) / vocabPadding * vocabPadding
	}
	if m != nil {
		kv = m.KVHeads
		if m.Kind == Mamba2 && l.Placement == Sharded && m.StateGroups%p.TP != 0 {
			whole.Rows += 2 * (p.TP - m.StateGroups) * m.StateSize // groups are copied until there is one for each rank
		}
	}
	return whole.Bytes() * p.share(l, kv)
}

// layersPerStage returns the numbers of layers of the pipeline stages, as vLLM splits n layers over
// pp stages (vllm/distributed/utils.py: get_pp_indices()): the remainder goes to the stages before
// the last.
func layersPerStage(n, pp int64) []int64 {
	out := make([]int64, pp)
	for i := range out {
		out[i] = n / pp
	}
	for i := range n % pp { // from the stage before the last downwards; the last stage never gets one
		out[pp-2-i]++
	}
	return out
}

// Stage is the part of a pipeline that one GPU runs, as a decoder of its own.
type Stage struct {
	Decoder     Decoder
	WeightBytes float64 // bytes
}

// Stages returns the pipeline stages of the decoder, as vLLM divides it (spec#model-placement).
func (d *Decoder) Stages(p Parallel) []Stage {
	out := []Stage{}
	first := int64(0) // layer of the stage
	whole := d.Layers
	if p.MTP { // the last stage has its layers too
		whole = slices.Concat(whole, d.MTP)
	}
	for stage, layers := range layersPerStage(int64(len(d.Layers)), p.PP) {
		ofStage := *d
		ofStage.whole = whole
		ofStage.Layers = d.Layers[first : first+layers]
		last := int64(stage) == p.PP-1
		ofStage.MTP = nil
		if last {
			ofStage.Layers = whole[first:]
		}
		bytes := 0.0
		for _, l := range ofStage.Layers {
			bytes += smallBytes * float64(l.smallParams())
			l.everyLinear(func(x *Linear) { bytes += p.BytesPerGPU(x, l.Mixer) })
		}
		if stage == 0 {
			bytes += p.BytesPerGPU(&d.Embedding, nil)
			for i := range d.PerLayer {
				bytes += p.BytesPerGPU(&d.PerLayer[i], nil)
			}
		}
		if last {
			bytes += smallBytes * float64(d.Small)
		}
		if last && !(d.Tied && p.PP == 1) { // on another stage than the embedding a tied head is a copy
			bytes += p.BytesPerGPU(&d.Head, nil)
		}
		out = append(out, Stage{Decoder: ofStage, WeightBytes: bytes})
		first += layers
	}
	return out
}

// WeightBytesPerGPU returns the bytes of weights on the GPU that has most.
func (d *Decoder) WeightBytesPerGPU(p Parallel) (most float64) {
	for _, s := range d.Stages(p) {
		most = max(most, s.WeightBytes)
	}
	return most
}

// Loads returns an error if vLLM does not load the model with the parallel sizes and block size of p.
func (d *Decoder) Loads(p Parallel) error {
	if n := int64(len(d.Layers)); p.PP > n {
		return loadError("pipeline_parallel_size", p.PP, fmt.Sprintf("at most %d layers", n))
	}
	if l := &d.Layers[0]; l.Mixer != nil && l.Mixer.Kind == Compressed {
		switch {
		case p.Block%256 != 0 && p.Block != vllm.DefaultBlockSize:
			return loadError("block_size", p.Block, "a multiple of 256 tokens")
		case p.Block != 0 && d.KVBytes >= 2 && !p.PlainCache:
			return trace.Errorf(vllm.BadKnobs, "kv_cache_dtype: got %g bytes a value, want fp8: DeepSeek-V4's attention takes no other", d.KVBytes).
				WithHint("leave --kv-cache-dtype out, or on Blackwell take --attention-backend FLASHINFER_MLA_SPARSE_DSV4")
		}
	}
	for i := range d.Layers {
		if err := d.Layers[i].checkShards(p); err != nil {
			return err
		}
	}
	return nil
}

// loadError returns the error for a size with which vLLM does not load the model.
func loadError(key string, got int64, want string) error {
	return trace.Errorf(vllm.BadKnobs, "%s: got %d, want %s", key, got, want).WithHint("vLLM does not load the model so: choose another size")
}

// checkShards returns an error when heads, groups or matrices cannot be divided among the GPUs.
func (l *Layer) checkShards(p Parallel) error {
	if m := l.Mixer; m != nil {
		kv := m.KVHeads
		switch {
		case m.Heads%p.TP != 0 && m.Kind != Mamba1:
			return loadError("tensor_parallel_size", p.TP, fmt.Sprintf("a divisor of %d heads", m.Heads))
		case m.Kind == GQA && kv%p.TP != 0 && p.TP%kv != 0:
			return loadError("tensor_parallel_size", p.TP, fmt.Sprintf("a divisor or a multiple of %d KV heads", kv))
		case m.Kind == Mamba2 && m.StateGroups > 1 && m.StateGroups%p.TP != 0:
			return loadError("tensor_parallel_size", p.TP, fmt.Sprintf("a divisor of %d groups", m.StateGroups))
		case m.Kind == Delta && kv%p.TP != 0:
			return loadError("tensor_parallel_size", p.TP, fmt.Sprintf("a divisor of %d key heads", kv))
		}
	}
	var err error
	l.everyLinear(func(x *Linear) {
		if err == nil {
			err = x.checkShards(p, l)
		}
	})
	return err
}

// merged matches matrices that vLLM fuses with others: queries with keys and values, gates with up
// projections.
var merged = regexp.MustCompile(`self_attn\.q_proj$|gate_up_proj$|in_proj_\w+$`)

// checkShards returns an error unless the shards of the matrix are equal and consist of whole
// blocks of scales.
func (l *Linear) checkShards(p Parallel, in *Layer) error {
	rows := l.Rows // of a shard
	columns := l.Columns
	parts := p.TP // number of shards
	key := "tensor_parallel_size"
	size := p.TP // what has to be divisible by parts: a multiple of it, unless a case below has another
	switch l.Placement {
	case ByExpert:
		if p.Experts { // whole experts
			return nil
		}
		parts = p.TP * p.DP
		if p.DP > 1 {
			key = "tensor_parallel_size x data_parallel_size"
		}
		size = in.FFN.Width
		if columns == in.FFN.Width { // the down projection
			columns /= parts
		} else {
			rows = in.FFN.Width / parts
		}
	case Sharded:
		rows /= parts
		if in.Mixer == nil || in.Mixer.Kind != Mamba2 {
			size = l.Rows
		}
	case ShardedIn:
		size = columns
		columns /= parts
	case KVSharded:
		rows /= min(parts, in.Mixer.KVHeads)
	default:
		return nil
	}
	if size%parts != 0 {
		return loadError(key, parts, fmt.Sprintf("a divisor of the %d values of %s", size, l.Name))
	}
	block := l.Quant.Block
	if strings.Contains(l.Quant.Algorithm, "fp4") { // vLLM pads them
		return nil
	}
	if l.Placement == KVSharded || l.Placement == Sharded && merged.MatchString(l.Name) {
		rows = 0 // vLLM allows a shard of a fused matrix to end within a block
	}
	// A shard must not end within a block of scales.
	splitsRows := block[0] > 1 && rows%block[0] != 0 && rows < l.Rows
	splitsColumns := block[1] > 0 && columns%block[1] != 0 && columns < l.Columns
	if parts > 1 && (splitsRows || splitsColumns) {
		return loadError(key, parts, fmt.Sprintf("shards of %s in whole blocks of %d x %d (%s): they are %d x %d", l.Name, block[0], block[1],
			l.Quant.Algorithm, rows, columns))
	}
	return nil
}
