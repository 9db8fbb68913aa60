package deploy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// everyLinear calls each for every matrix of the decoder, those of multi-token prediction left out.
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

// smallParams is the parameters that are no matrix: of the layers, around them, and of the last norm.
func (d *Decoder) smallParams() int64 {
	return d.Small + stat.Sum(d.Layers, func(l Layer) int64 { return l.smallParams() })
}

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

// TotalParams is all parameters: a tied table counts once; multi-token prediction and encoders do not count.
func (d *Decoder) TotalParams() int64 {
	n := d.smallParams()
	d.everyLinear(func(l *Linear) { n += l.Params() })
	return n
}

// ActiveParams is the parameters a token passes: the head, the experts it takes, and not the embedding, which is looked up.
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

// WeightBytes is what all weights take as shipped, unsharded.
func (d *Decoder) WeightBytes() float64 {
	b := smallBytes * float64(d.smallParams())
	d.everyLinear(func(l *Linear) { b += l.Bytes() })
	return b
}

// states are what the mixer keeps on one GPU of t tensor-parallel, at b bytes a cached value (spec#model-cache).
func (m *Mixer) states(b float64, t int64) []State {
	var out []State
	if m.Index != nil && !m.Index.Shared && m.Kind != Compressed {
		bytes := indexBytes(m.Index.Dim)
		if m.Index.Unit > 1 {
			bytes = float64(m.Index.Dim) * min(b, 2) // MiniMax-M3 keeps index keys in the cache's type
		}
		out = append(out, State{Kind: TokenState, Bytes: bytes})
	}
	share := func(heads int64) float64 { return float64(max(heads, t)) / float64(t) }
	switch m.Kind {
	case GQA:
		if m.SharesKV {
			return nil
		}
		s := State{Kind: TokenState, Bytes: share(m.KVHeads) * float64(m.DimK+m.DimV) * b}
		if s.Window = m.Window + m.Chunk; s.Window > 0 {
			s.Kind = WindowState
		}
		return append(out, s)
	case MLA:
		return append(out, State{Kind: TokenState, Bytes: float64(m.KVRank+m.Rope) * b})
	case Compressed:
		return m.compressedStates(b)
	case Delta, Mamba1, Mamba2, Lightning:
		return []State{{Kind: RecurrentState, Bytes: m.RecurrentBytes(float64(t))}}
	}
	return nil
}

// indexBytes is a token's key of an index, whatever the cache's type: fp8, and a scale of 4 B for 128 values.
func indexBytes(dim int64) float64 { return float64(dim) + float64(4*float64(dim)/128) }

// compressedStates are DeepSeek-V4's: a window in every layer, an entry per Ratio tokens, and what the compressor has not
// finished: fp32 values and gates of Overlap x Ratio tokens.
func (m *Mixer) compressedStates(b float64) []State {
	entry := m.entryBytes(b)
	out := []State{{Kind: WindowState, Bytes: entry, Window: m.Window}}
	if m.Ratio == 0 {
		return out
	}
	pending := func(dim int64) float64 { return float64(float64(2*m.Overlap()*dim*4) * float64(m.Overlap()*m.Ratio)) }
	held := pending(m.DimK)
	if m.Index != nil {
		entry += indexBytes(m.Index.Dim)
		held += pending(m.Index.Dim)
	}
	return append(out, State{Kind: CompressedState, Bytes: entry, Ratio: m.Ratio}, State{Kind: RecurrentState, Bytes: held})
}

// entryBytes is an entry of DeepSeek-V4's cache: keys that serve as values.
func (m *Mixer) entryBytes(b float64) float64 {
	if b < 2 {
		return float64(m.DimK + m.Rope + 8) // fp8_ds_mla: the positional part in 16 bit, and scales
	}
	return float64(m.DimK) * b
}

// RecurrentBytes is the state of one request on one of t GPUs: the convolution's last taps and the recurrence's.
func (m *Mixer) RecurrentBytes(t float64) float64 {
	values := float64(m.Heads * m.DimV * m.DimK)
	switch m.Kind {
	case Mamba1, Mamba2:
		values = float64(m.Heads * m.DimV * m.StateSize)
	}
	conv := 0.0
	if m.Conv > 0 {
		conv = float64(m.convWidth()) * float64(m.Conv-1) * m.ConvBytes
	}
	return (float64(values*m.StateBytes) + conv) / t
}

// Parallel is how a model is spread: vLLM's --tensor-parallel-size, --pipeline-parallel-size, --data-parallel-size and
// --enable-expert-parallel; and what else decides what a GPU holds.
type Parallel struct {
	TP, PP, DP int64
	Experts    bool
	Redundant  int64 // experts of a layer that EPLB holds twice
	OneGroup   bool  // --disable-hybrid-kv-cache-manager: windows and chunks keep all their tokens
	Drafts     int64 // tokens that a verify scores beside the first: recurrences keep a state for each
	MTP        bool  // the model's own multi-token prediction drafts: its layers are loaded
	NoPrefixes bool  // no prefix caching: recurrences keep no cached state
}

// share is the part of a matrix that one GPU holds (spec#model-placement); kv is the key heads of its mixer.
func (p Parallel) share(l *Linear, kv int64) float64 {
	t, ranks := float64(p.TP), float64(p.TP*p.DP)
	switch l.Placement {
	case Sharded, ShardedIn:
		return 1 / t
	case KVSharded:
		return max(1/t, 1/float64(kv))
	case ByExpert:
		if p.Experts {
			return math.Ceil(float64(l.Count+p.Redundant)/ranks) / float64(l.Count)
		}
		return 1 / ranks
	}
	return 1
}

// vocabPadding is what vLLM rounds the rows of embedding and head up to.
const vocabPadding = 64

// bytesPerGPU is what one matrix takes on one GPU.
func (p Parallel) bytesPerGPU(l *Linear, m *Mixer) float64 {
	whole, kv := *l, int64(1)
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

// stages splits n layers over pp stages as vLLM does: what is left over goes to the stages before the last.
func stages(n, pp int64) []int64 {
	out := make([]int64, pp)
	for i := range out {
		out[i] = n / pp
	}
	for i := int64(0); i < n%pp; i++ {
		out[((pp-2-i)%pp+pp)%pp]++
	}
	return out
}

// stage is the layers that one GPU of a pipeline holds, as a decoder of its own, and what it loads.
type stage struct {
	decoder Decoder
	weights float64 // bytes
}

// stages cuts the decoder as vLLM does (spec#model-placement).
func (d *Decoder) stages(p Parallel) []stage {
	out, first := []stage{}, int64(0)
	for s, n := range stages(int64(len(d.Layers)), p.PP) {
		own := *d
		own.Layers = d.Layers[first : first+n]
		last := int64(s) == p.PP-1
		if own.MTP = nil; last && p.MTP {
			own.Layers = slices.Concat(own.Layers, d.MTP)
		}
		b := 0.0
		for _, l := range own.Layers {
			b += float64(smallBytes * float64(l.smallParams()))
			l.everyLinear(func(x *Linear) { b += p.bytesPerGPU(x, l.Mixer) })
		}
		if s == 0 {
			b += p.bytesPerGPU(&d.Embedding, nil)
			for i := range d.PerLayer {
				b += p.bytesPerGPU(&d.PerLayer[i], nil)
			}
		}
		if last {
			b += float64(smallBytes * float64(d.Small))
		}
		if last && !(d.Tied && p.PP == 1) {
			b += p.bytesPerGPU(&d.Head, nil)
		}
		out, first = append(out, stage{own, b}), first+n
	}
	return out
}

// WeightBytesPerGPU is what the fullest GPU loads.
func (d *Decoder) WeightBytesPerGPU(p Parallel) (most float64) {
	for _, s := range d.stages(p) {
		most = max(most, s.weights)
	}
	return most
}

// Loads says why vLLM would refuse to load the model so, in its own terms; nil when it would not.
func (d *Decoder) Loads(p Parallel) error {
	if n := int64(len(d.Layers)); p.PP > n {
		return loadError("pipeline_parallel_size", p.PP, fmt.Sprintf("at most %d layers", n))
	}
	for i := range d.Layers {
		if err := d.Layers[i].loads(p); err != nil {
			return err
		}
	}
	return nil
}

func loadError(key string, got int64, want string) error {
	return trace.Errorf(BadKnobs, "%s: got %d, want %s", key, got, want).WithHint("vLLM does not load the model so: choose another size")
}

func (l *Layer) loads(p Parallel) error {
	if m := l.Mixer; m != nil {
		kv := m.KVHeads
		switch {
		case m.Heads%p.TP != 0 && m.Kind != Mamba1:
			return loadError("tensor_parallel_size", p.TP, fmt.Sprintf("a divisor of %d heads", m.Heads))
		case m.Kind == GQA && kv%p.TP != 0 && p.TP%kv != 0:
			return loadError("tensor_parallel_size", p.TP, fmt.Sprintf("a divisor or a multiple of %d KV heads", kv))
		case m.Kind == Delta && kv%p.TP != 0:
			return loadError("tensor_parallel_size", p.TP, fmt.Sprintf("a divisor of %d key heads", kv))
		}
	}
	var err error
	l.everyLinear(func(x *Linear) {
		if err == nil {
			err = x.loads(p, l)
		}
	})
	return err
}

// loads checks that a shard holds whole blocks of scales.
func (l *Linear) loads(p Parallel, in *Layer) error {
	rows, columns, parts := l.Rows, l.Columns, p.TP
	key := "tensor_parallel_size"
	switch l.Placement {
	case ByExpert:
		if parts = p.TP * p.DP; p.Experts {
			return nil
		}
		if p.DP > 1 {
			key = "tensor_parallel_size x data_parallel_size"
		}
		if columns == in.FFN.Width { // down
			columns /= parts
		} else {
			rows = in.FFN.Width / parts
		}
	case Sharded:
		rows /= parts
	case ShardedIn:
		columns /= parts
	case KVSharded:
		rows /= min(parts, in.Mixer.KVHeads)
	default:
		return nil
	}
	block := l.Quant.Block
	if strings.Contains(l.Quant.Algorithm, "fp4") { // vLLM pads them
		return nil
	}
	if parts > 1 && (block[0] > 1 && rows%block[0] != 0 && rows < l.Rows || block[1] > 0 && columns%block[1] != 0 && columns < l.Columns) {
		return loadError(key, parts, fmt.Sprintf("shards of %s in whole blocks of %d x %d (%s): they are %d x %d", l.Name, block[0], block[1],
			l.Quant.Algorithm, rows, columns))
	}
	return nil
}

// Cache is what one request keeps on one GPU.
type Cache struct {
	BytesPerToken  float64 // of what every token adds to
	WindowPerToken float64 // of what the last tokens add to
	WindowBytes    float64 // of full windows
	StateBytes     float64 // of one size per request
}

// Cache sums the states of all layers on one GPU of t tensor-parallel, at b bytes a cached value.
func (d *Decoder) Cache(b float64, t int64) Cache {
	var c Cache
	for i := range d.Layers {
		if d.Layers[i].Mixer == nil {
			continue
		}
		for _, s := range d.Layers[i].Mixer.states(b, t) {
			switch s.Kind {
			case TokenState:
				c.BytesPerToken += s.Bytes
			case CompressedState:
				c.BytesPerToken += s.Bytes / float64(s.Ratio)
			case WindowState:
				c.WindowPerToken += s.Bytes
				c.WindowBytes += float64(s.Bytes * float64(s.Window))
			case RecurrentState:
				c.StateBytes += s.Bytes
			}
		}
	}
	return c
}

// Kind names the layer's mixer in a word: "gqa", "window", "sparse-mla", "v4-csa", "gdn", or "ffn-only".
func (l *Layer) Kind() string {
	m := l.Mixer
	switch {
	case m == nil:
		return "ffn-only"
	case m.Kind == Compressed:
		return map[int64]string{0: "v4-window", 4: "v4-csa", 128: "v4-hca"}[m.Ratio]
	case m.Index != nil:
		return "sparse-" + string(m.Kind)
	case m.Kind == Delta:
		return m.Form
	case m.Window > 0:
		return "window"
	case m.Chunk > 0:
		return "chunk"
	}
	return string(m.Kind)
}

// InWords counts the layers by kind, in the order of their names: "gqa:18 window:18".
func (d *Decoder) InWords() string {
	count := map[string]int{}
	for i := range d.Layers {
		count[d.Layers[i].Kind()]++
	}
	words := stat.Map(slices.Sorted(maps.Keys(count)), func(kind string) string { return fmt.Sprintf("%s:%d", kind, count[kind]) })
	return strings.Join(words, " ")
}
