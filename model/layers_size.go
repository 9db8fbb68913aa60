package model

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
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
func indexBytes(dim int64) float64 { return float64(dim) + 4*float64(dim)/128 }

// compressedStates are DeepSeek-V4's: a window in every layer, an entry per Ratio tokens, and what the compressor has not
// finished: fp32 values and gates of Overlap x Ratio tokens.
func (m *Mixer) compressedStates(b float64) []State {
	entry := m.entryBytes(b)
	out := []State{{Kind: WindowState, Bytes: entry, Window: m.Window}}
	if m.Ratio == 0 {
		return out
	}
	pending := func(dim int64) float64 { return float64(2*m.Overlap()*dim*4) * float64(m.Overlap()*m.Ratio) }
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
	return (values*m.StateBytes + conv) / t
}

// Parallel is how a model is spread: vLLM's --tensor-parallel-size, --pipeline-parallel-size, --data-parallel-size and
// --enable-expert-parallel; and what else decides what a GPU holds.
type Parallel struct {
	TP, PP, DP int64
	Experts    bool
	Redundant  int64        // experts of a layer that EPLB holds twice
	OneGroup   bool         // --disable-hybrid-kv-cache-manager: windows and chunks keep all their tokens
	Drafts     int64        // tokens that a verify scores beside the first: recurrences keep a state for each
	MTP        bool         // the model's own multi-token prediction drafts: its layers are loaded
	NoPrefixes bool         // no prefix caching: recurrences keep no cached state
	Release    vllm.Release // of vLLM; zero: the newest
	Block      int64        // --block-size; 0: vLLM's own
	PlainCache bool         // DeepSeek-V4's attention takes a 16-bit cache: FlashInfer's does, vLLM's own choice does not
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

// BytesPerGPU is what one matrix takes on one GPU.
func (p Parallel) BytesPerGPU(l *Linear, m *Mixer) float64 {
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

// Stage is the layers that one GPU of a pipeline holds, as a decoder of its own, and what it loads.
type Stage struct {
	Decoder     Decoder
	WeightBytes float64 // bytes
}

// Stages cuts the decoder as vLLM does (spec#model-placement).
func (d *Decoder) Stages(p Parallel) []Stage {
	out := []Stage{}
	first := int64(0)
	whole := d.Layers
	if p.MTP {
		whole = slices.Concat(whole, d.MTP)
	}
	for s, n := range stages(int64(len(d.Layers)), p.PP) {
		own := *d
		own.whole = whole
		own.Layers = d.Layers[first : first+n]
		last := int64(s) == p.PP-1
		if own.MTP = nil; last {
			own.Layers = whole[first:]
		}
		b := 0.0
		for _, l := range own.Layers {
			b += smallBytes * float64(l.smallParams())
			l.everyLinear(func(x *Linear) { b += p.BytesPerGPU(x, l.Mixer) })
		}
		if s == 0 {
			b += p.BytesPerGPU(&d.Embedding, nil)
			for i := range d.PerLayer {
				b += p.BytesPerGPU(&d.PerLayer[i], nil)
			}
		}
		if last {
			b += smallBytes * float64(d.Small)
		}
		if last && !(d.Tied && p.PP == 1) {
			b += p.BytesPerGPU(&d.Head, nil)
		}
		out, first = append(out, Stage{own, b}), first+n
	}
	return out
}

// WeightBytesPerGPU is what the fullest GPU loads.
func (d *Decoder) WeightBytesPerGPU(p Parallel) (most float64) {
	for _, s := range d.Stages(p) {
		most = max(most, s.WeightBytes)
	}
	return most
}

// Loads says why vLLM would refuse to load the model so, in its own terms; nil when it would not.
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
		if err := d.Layers[i].loads(p); err != nil {
			return err
		}
	}
	return nil
}

func loadError(key string, got int64, want string) error {
	return trace.Errorf(vllm.BadKnobs, "%s: got %d, want %s", key, got, want).WithHint("vLLM does not load the model so: choose another size")
}

func (l *Layer) loads(p Parallel) error {
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
			err = x.loads(p, l)
		}
	})
	return err
}

// merged are matrices that vLLM multiplies together with others: queries with keys and values, gates with what they gate.
var merged = regexp.MustCompile(`self_attn\.q_proj$|gate_up_proj$|in_proj_\w+$`)

// loads checks that shards are equal, and hold whole blocks of scales.
func (l *Linear) loads(p Parallel, in *Layer) error {
	rows := l.Rows
	columns := l.Columns
	parts := p.TP
	key, size := "tensor_parallel_size", p.TP
	switch l.Placement {
	case ByExpert:
		if parts = p.TP * p.DP; p.Experts {
			return nil
		}
		if p.DP > 1 {
			key = "tensor_parallel_size x data_parallel_size"
		}
		if size = in.FFN.Width; columns == in.FFN.Width { // down
			columns /= parts
		} else {
			rows = in.FFN.Width / parts
		}
	case Sharded:
		if rows /= parts; in.Mixer == nil || in.Mixer.Kind != Mamba2 {
			size = l.Rows
		}
	case ShardedIn:
		columns, size = columns/parts, columns
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
		rows = 0 // what vLLM multiplies together may end within a block
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
				c.WindowBytes += s.Bytes * float64(s.Window)
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

// Sizes are what a model comes to, as inspect --model prints it. Bytes of a cached value are 2 where the name does not say
// otherwise; window and state bytes are those of one request.
type Sizes struct {
	TotalParams          float64  `json:"total_params"`
	ActiveParams         float64  `json:"active_params"`
	MTPParams            float64  `json:"mtp_params"` // of multi-token prediction, in none of the other figures
	WeightBytes          float64  `json:"weight_bytes"`
	WeightBytesPerGPU    float64  `json:"weight_bytes_per_gpu"`
	KVBytesPerToken      float64  `json:"kv_bytes_per_token"`         // whole model, 16 bit
	KVBytesPerTokenShip  float64  `json:"kv_bytes_per_token_shipped"` // whole model, in the type that vLLM's auto takes
	KVBytesPerTokenGPU   float64  `json:"kv_bytes_per_token_per_gpu"` // so, on one GPU
	StateBytesPerRequest float64  `json:"state_bytes_per_request"`
	StateBytesGPU        float64  `json:"state_bytes_per_request_per_gpu"`
	WindowBytes          float64  `json:"window_bytes_per_request"`
	BytesPerKV           float64  `json:"bytes_per_kv"`
	KV                   *KVPool  `json:"kv_pool,omitempty"` // on one GPU, at --block-size 16
	Summary              string   `json:"layers_in_words"`
	Layers               []Folded `json:"layers"`
	Defaulted            []string `json:"defaulted"`
	Warnings             []string `json:"warnings"`
}

// Folded is a kind of layer, and how many layers are of it.
type Folded struct {
	Count   int      `json:"count"`
	First   int      `json:"first"` // index of the first of them, from 0
	Mixer   string   `json:"mixer"`
	FFN     string   `json:"ffn"`
	Params  float64  `json:"params"` // of one layer
	Weights []string `json:"weights"`
}

// kinds are the different layers, in the order of their first, and which of them each layer is.
func (d *Decoder) kinds() (kinds []*Layer, order []int) {
	order = make([]int, len(d.Layers))
	for i := range d.Layers {
		l := &d.Layers[i]
		k := slices.IndexFunc(kinds, func(kind *Layer) bool { return *kind == *l || reflect.DeepEqual(kind, l) })
		if k < 0 {
			k, kinds = len(kinds), append(kinds, l)
		}
		order[i] = k
	}
	return kinds, order
}

// counted is how many layers are of kind k.
func counted(order []int, k int) (n int) {
	return stat.Count(order, func(kind int) bool { return kind == k })
}

// Fold groups equal layers, in the order of their first.
func (d *Decoder) Fold() []Folded {
	var out []Folded
	kinds, order := d.kinds()
	for k, l := range kinds {
		f := Folded{Count: counted(order, k), First: slices.Index(order, k), Mixer: l.mixerWords(), FFN: l.ffnWords(),
			Params: float64(l.smallParams()), Weights: []string{}}
		l.everyLinear(func(x *Linear) {
			f.Params += float64(x.Params())
			f.Weights = append(f.Weights, cmp.Or(x.Quant.Algorithm, fmt.Sprintf("%g-byte", x.Quant.BytesPerWeight)))
		})
		slices.Sort(f.Weights)
		f.Weights = slices.Compact(f.Weights)
		out = append(out, f)
	}
	return out
}

type plainDecoder Decoder

// MarshalJSON writes the decoder with its layers folded.
func (d *Decoder) MarshalJSON() ([]byte, error) {
	own := plainDecoder(*d)
	own.Kinds, own.Order = d.kinds()
	return json.Marshal(&own)
}

// UnmarshalJSON reads what MarshalJSON writes; unknown keys are errors.
func (d *Decoder) UnmarshalJSON(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode((*plainDecoder)(d)); err != nil {
		return err
	}
	if len(d.Order) == 0 || len(d.Order) > maxLayers {
		return fmt.Errorf("layers.order: got %d layers, want 1 to %d", len(d.Order), maxLayers)
	}
	for i, k := range d.Order {
		if k < 0 || k >= len(d.Kinds) || d.Kinds[k] == nil {
			return fmt.Errorf("layers.order[%d]: got %d, want one of %d kinds", i, k, len(d.Kinds))
		}
		d.Layers = append(d.Layers, *d.Kinds[k])
	}
	d.Kinds, d.Order = nil, nil
	return nil
}

func (l *Layer) mixerWords() string {
	m := l.Mixer
	switch {
	case m == nil:
		return "none"
	case m.Kind == LinearOnly:
		return "one matrix"
	case m.Kind == MLA:
		return fmt.Sprintf("%s %d heads, latent %d + %d", l.Kind(), m.Heads, m.KVRank, m.Rope)
	case m.Kind == Mamba1 || m.Kind == Mamba2:
		return fmt.Sprintf("%s %d x %d, state %d", l.Kind(), m.Heads, m.DimV, m.StateSize)
	case m.Window+m.Chunk > 0:
		return fmt.Sprintf("%s %d: %d heads, %d kv x %d", l.Kind(), m.Window+m.Chunk, m.Heads, m.KVHeads, m.DimK)
	}
	return fmt.Sprintf("%s %d heads, %d kv x %d", l.Kind(), m.Heads, m.KVHeads, m.DimK)
}

func (l *Layer) ffnWords() string {
	f := l.FFN
	switch {
	case f == nil:
		return "none"
	case f.Kind == LinearFFN:
		return "one matrix"
	case f.Kind == Dense:
		return fmt.Sprintf("dense %d", f.Width)
	}
	words := fmt.Sprintf("moe %d of %d x %d", f.TopK, f.Experts, f.Width)
	if f.SharedWidth > 0 {
		words += fmt.Sprintf(", shared %d", f.SharedWidth)
	}
	if f.BesideWidth > 0 {
		words += fmt.Sprintf(", dense %d beside", f.BesideWidth)
	}
	if f.Latent > 0 {
		words += fmt.Sprintf(", latent %d", f.Latent)
	}
	return words
}

// Sizes adds up the model; it is an error when vLLM would not load it so spread.
func (d *Decoder) Sizes(p Parallel) (*Sizes, error) {
	for _, n := range []struct {
		name string
		n    int64
	}{{"tensor_parallel_size", p.TP}, {"pipeline_parallel_size", p.PP}, {"data_parallel_size", p.DP}} {
		if n.n < 1 || n.n > vllm.MaxDevices {
			return nil, loadError(n.name, n.n, fmt.Sprintf("1 to %d", vllm.MaxDevices))
		}
	}
	if err := d.Loads(p); err != nil {
		return nil, err
	}
	if p.Experts && !d.hasExperts() {
		return nil, trace.Errorf(vllm.BadKnobs, "%s", NoExperts).WithHint("vLLM refuses it too")
	}
	full := d.Cache(2, 1)
	gpu := d.Cache(d.KVBytes, p.TP)
	var kv *KVPool
	if pool, ok := d.KVPool(p, vllm.DefaultBlockSize); ok {
		kv = &pool
	}
	mtp := Decoder{Tied: true, Layers: d.MTP}
	return &Sizes{KV: kv, MTPParams: float64(mtp.TotalParams()),
		TotalParams: float64(d.TotalParams()), ActiveParams: float64(d.ActiveParams()),
		WeightBytes: d.WeightBytes(), WeightBytesPerGPU: d.WeightBytesPerGPU(p), KVBytesPerToken: full.BytesPerToken,
		KVBytesPerTokenShip: d.Cache(d.KVBytes, 1).BytesPerToken,
		KVBytesPerTokenGPU:  gpu.BytesPerToken, StateBytesPerRequest: full.StateBytes, StateBytesGPU: gpu.StateBytes,
		WindowBytes: full.WindowBytes,
		BytesPerKV:  d.KVBytes, Summary: d.InWords(), Layers: d.Fold(), Defaulted: append([]string{}, d.Defaulted...),
		Warnings: append([]string{}, d.Warnings...)}, nil
}

// KVGroup is layers that share a table of blocks: every group draws its own blocks of one pool (spec#kv-groups).
type KVGroup struct {
	Kind   StateKind `json:"kind"`
	Window int64     `json:"window,omitempty"` // tokens; 0: all
	Chunk  bool      `json:"chunk,omitempty"`  // Window is a chunk
	Layers int64     `json:"layers"`           // of the group; the last of a kind may have fewer
	Block  int64     `json:"block"`            // tokens of a block
	States int64     `json:"states,omitempty"` // recurrent: blocks of a request
}

// KVPool is the cache of one GPU as vLLM lays it out.
type KVPool struct {
	Groups     []KVGroup `json:"groups"`
	BlockBytes float64   `json:"block_bytes"` // of a block of the pool, in all layers that share it
}

// layerCache is what one layer caches.
type layerCache struct {
	kind   StateKind
	window int64
	chunk  bool
	bytes  float64 // of a token, or of a request
}

// KVPool lays out the cache as vLLM's manager does: layers of one kind of state form groups, cut to the size of the smallest
// kind (of the largest, when that is less than 1.5 times it); pages are made equal by larger blocks, and padded. blockSize is
// --block-size. ok is false for models that cache nothing, and for DeepSeek-V4 of releases that were not read.
func (d *Decoder) KVPool(p Parallel, blockSize int64) (pool KVPool, ok bool) {
	count := map[layerCache]int64{}
	layers := d.Layers
	if p.MTP {
		layers = slices.Concat(layers, d.MTP)
	}
	states := 2 + p.Drafts
	if p.NoPrefixes {
		states--
	}
	for i := range layers {
		m := layers[i].Mixer
		if m == nil || m.SharesKV {
			continue
		}
		if m.Kind == Compressed {
			return d.packed(layers, p, blockSize)
		}
		var c layerCache
		for _, s := range m.states(d.KVBytes, p.TP) { // an index lies in the page of its layer
			c.kind = s.Kind
			c.window = max(c.window, s.Window)
			c.chunk = m.Chunk > 0
			c.bytes += s.Bytes
			if m.Conv > 0 {
				c.bytes += float64(m.convWidth()) * float64(p.Drafts) * m.ConvBytes / float64(p.TP) // a tap for each draft
			}
		}
		if p.OneGroup && c.kind == WindowState {
			c.kind = TokenState
			c.window = 0
			c.chunk = false
		}
		if c.kind != "" {
			count[c]++
		}
	}
	kinds := slices.SortedFunc(maps.Keys(count), func(a, b layerCache) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.window, b.window), cmp.Compare(a.bytes, b.bytes))
	})
	if len(kinds) == 0 {
		return pool, false
	}
	least, most := count[kinds[0]], count[kinds[0]]
	for _, c := range kinds {
		least = min(least, count[c])
		most = max(most, count[c])
	}
	size := least
	if float64(most) < 1.5*float64(least) {
		size = most
	}
	page, blockSize := d.page(kinds, blockSize)
	for _, c := range kinds {
		for left := count[c]; left > 0; left -= size {
			g := KVGroup{Kind: c.kind, Window: c.window, Chunk: c.chunk, Layers: min(size, left), Block: blockSize}
			if g.States = states; c.kind != RecurrentState {
				g.States = 0
				g.Block = max(blockSize, int64(page/c.bytes)/blockSize*blockSize)
			}
			pool.Groups = append(pool.Groups, g)
		}
	}
	pool.BlockBytes = float64(size) * page
	return pool, true
}

// WidestPagesSince is the first release in which a block of DeepSeek-V4's cache holds the widest table; before, each size of page has slots of
// its own (vllm/v1/core/kv_cache_utils.py; models/deepseek_v4).
var WidestPagesSince = vllm.Release{0, 27}

// packed lays out DeepSeek-V4's mixed pages: tables of blocks for the entries and index keys of all layers, their windows, and what
// compressors hold at either ratio. Tables of many layers are cut so that padding is least; a block holds the widest.
func (d *Decoder) packed(layers []Layer, p Parallel, blockSize int64) (pool KVPool, ok bool) {
	whole := d.whole
	if whole == nil {
		whole = layers
	}
	count := func(layers []Layer) [3]int64 { // that have a window, entries of 4 tokens, of 128
		of := func(ratio int64) int64 {
			return int64(stat.Count(layers, func(l Layer) bool { return l.Mixer != nil && l.Mixer.Ratio == ratio }))
		}
		return [3]int64{of(0) + of(4) + of(128), of(4), of(128)}
	}
	before := func(v vllm.Release) bool { return p.Release != vllm.Release{} && p.Release.Before(v) }
	i := slices.IndexFunc(whole, func(l Layer) bool { return l.Mixer != nil && l.Mixer.Index != nil })
	if i < 0 || before(vllm.Release{0, 20}) {
		return pool, false
	}
	at := whole[i].Mixer
	own := count(layers)
	all := count(whole)
	unit, indexUnit := int64(512), int64(512)
	if d.KVBytes < 2 { // fp8_ds_mla
		unit, indexUnit = 576, 576
	} else if before(vllm.Release{0, 25}) {
		indexUnit = 576
	}
	up := func(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
	blockSize = up(blockSize, 256)
	entry := int64(at.entryBytes(d.KVBytes))
	states := blockSize / 4
	page := up(states*entry, unit)
	index := up(states*int64(indexBytes(at.Index.Dim)), indexUnit)
	few := up(blockSize/128*entry, unit)
	values, least := all[:], all[1]
	if before(vllm.Release{0, 29}) || all[2] == 0 || all[1] == all[2] { // entries count in the cut only where they pair
		least = max(all[1], all[2])
		values = append(values, least)
	}
	size, padding := least, int64(math.MaxInt64)
	for n := least; n <= slices.Max(values); n++ {
		if pad := stat.Sum(values, func(v int64) int64 { return (n - v%n) % n }); pad <= padding {
			size, padding = n, pad
		}
	}
	var each [3]int64 // layers of a table on this stage
	for k, g := range []KVGroup{{Window: at.Window, Block: 64}, {Window: 8, Block: 4}, {Window: 128, Block: 8}} {
		n := max(1, up(all[k], size)/size)
		each[k] = up(own[k], n) / n
		if g.Kind, g.Layers = WindowState, each[k]; all[k] > 0 {
			pool.Groups = append(pool.Groups, slices.Repeat([]KVGroup{g}, int(n))...)
		}
	}
	pool.Groups = append(pool.Groups, KVGroup{Kind: TokenState, Layers: own[1] + own[2], Block: blockSize})
	held := up(64*at.DimK, unit) // fp32 values and gates: 8 tokens', or 4 tokens' in two entries
	bytes := max(own[1]*(page+index)+own[2]*few, each[0]*up(64*entry, unit), each[1]*(held+up(64*at.Index.Dim, unit)), each[2]*held)
	if before(WidestPagesSince) {
		most := max(own[1], each[0], each[1], each[2])
		if bytes = most*page + max(own[1], each[1])*index + own[2]*few; before(vllm.Release{0, 23}) { // as many of all sizes
			bytes = max(most, own[2]) * (page + index + few)
		}
	}
	pool.BlockBytes = float64(bytes)
	return pool, true
}

// page is the bytes of a layer's block, and the tokens of the widest layer's: with recurrent states a block holds as many
// tokens as a state is long, in whole kernel blocks (of 128 tokens for mla).
func (d *Decoder) page(kinds []layerCache, blockSize int64) (page float64, block int64) {
	token, state := 0.0, 0.0
	for _, c := range kinds {
		if c.kind == RecurrentState {
			state = max(state, c.bytes)
		} else {
			token = max(token, c.bytes)
		}
	}
	if state > 0 && token > 0 {
		if slices.ContainsFunc(d.Layers, func(l Layer) bool { return l.Mixer != nil && l.Mixer.Kind == MLA }) {
			blockSize = max(blockSize, 128)
		}
		blockSize *= int64(math.Ceil(state / (float64(blockSize) * token)))
	}
	return max(state, token*float64(blockSize)), blockSize
}

// Blocks is the pool's blocks in so many bytes, the null block included.
func (k KVPool) Blocks(bytes float64) int64 { return int64(bytes / k.BlockBytes) }

// RequestBlocks is the blocks that a request of n tokens needs while up to inFlight tokens are computed at once: all of them,
// those of a window or a chunk and one that it begins in, or states: for itself, each draft and its latest cached point (prefix
// caching of recurrent states: align).
func (k KVPool) RequestBlocks(n, inFlight int64) int64 {
	var blocks int64
	for _, g := range k.Groups {
		up := func(tokens int64) int64 { return (tokens + g.Block - 1) / g.Block }
		switch {
		case g.Kind == RecurrentState:
			blocks += g.States
		case g.Chunk:
			blocks += up(min(g.Window+inFlight, n)) + 1
		case g.Window > 0:
			blocks += up(min(g.Window-1+inFlight, n)) + 1
		default:
			blocks += up(n)
		}
	}
	return blocks
}

// KVUnits is the pool as the simulator plays it: a unit is one block of every full group, and holds Block tokens; windows,
// chunks and states take units of their own beside a request's tokens. Prefix hits are those of the full groups.
type KVUnits struct {
	Block  int64 // tokens
	Blocks int64 // of the pool in a unit
	rest   KVPool
}

// KVUnits are those of the model's pool with blocks of blockSize tokens; of equal layers a block is a unit.
func (m *Model) KVUnits(p Parallel, blockSize int64) KVUnits {
	u := KVUnits{Block: blockSize, Blocks: 1}
	if m.Layered == nil {
		return u
	}
	pool, _ := m.Layered.KVPool(p, u.Block)
	full := int64(0)
	for _, g := range pool.Groups {
		if g.Kind == TokenState {
			full, u.Block = full+1, g.Block
		} else {
			u.rest.Groups = append(u.rest.Groups, g)
		}
	}
	if u.Blocks = max(1, full); full == 0 && len(u.rest.Groups) > 0 {
		u.Block = vllm.MaxTokens // nothing grows with a request
	}
	return u
}

// Side is the units that a request takes beside its tokens until it has n of them.
func (u *KVUnits) Side(n int64) int64 { return (u.rest.RequestBlocks(n, 1) + u.Blocks - 1) / u.Blocks }

// BlocksOf is the pool's blocks, the null block included, where vLLM logs so many tokens ("GPU KV cache size"): up to 0.19 those of the
// smallest blocks of one group, so that less than a block for each group is missing; later as many requests of maxLen tokens as fit,
// in tokens.
func (k KVPool) BlocksOf(tokens, maxLen, inFlight int64, version string) int64 {
	if v, known := vllm.ParseRelease(version); maxLen == 0 || known && v.Before(requestTokensSince) {
		smallest := slices.MinFunc(k.Groups, func(a, b KVGroup) int { return cmp.Compare(a.Block, b.Block) }).Block
		return tokens / smallest * int64(len(k.Groups))
	}
	return (tokens*k.RequestBlocks(maxLen, inFlight) + maxLen - 1) / maxLen
}

// requestTokensSince is the first release whose log counts requests of max_model_len tokens (0.20 to 0.22 were not read).
var requestTokensSince = vllm.Release{0, 20}
