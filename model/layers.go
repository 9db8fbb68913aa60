package model

// This file has the layers of a model as types: what each computes and stores, whatever family it is of.

import (
	"cmp"
	"slices"
)

// Decoder is a text decoder as the list of its layers (spec#model-layers). Vision and audio encoders are not part of it.
// Order counts: pipeline stages are runs of consecutive layers. Counts are those of the whole model, before any sharding.
type Decoder struct {
	Vocab     int64    `json:"vocab_size"`  // rows of the embedding and of the head
	Hidden    int64    `json:"hidden_size"` // width of the residual stream
	Tied      bool     `json:"tied,omitempty"`
	Embedding Linear   `json:"embedding"`
	Head      Linear   `json:"head"`                // of the same weights as the embedding when Tied; then it loads once
	PerLayer  []Linear `json:"per_layer,omitempty"` // Gemma's table of a vector for each layer, and its projection
	Layers    []Layer  `json:"-"`
	// Kinds are the different layers and Order which of them each layer is: in documents, in place of Layers.
	Kinds []*Layer `json:"kinds"`
	Order []int    `json:"order"`
	MTP   []Layer  `json:"mtp,omitempty"`   // multi-token-prediction layers; loaded only for speculative decoding
	Small int64    `json:"small,omitempty"` // parameters outside the layers that are no matrix: the last norm, learned positions
	// KVBytes is the bytes of a cached value: by --kv-cache-dtype, else the checkpoint's scheme, else the model's dtype.
	KVBytes float64 `json:"bytes_per_kv"`
	// DTypeBytes is the bytes of an activation, and of a weight that is not quantized.
	DTypeBytes float64 `json:"bytes_per_activation"`
	// Defaulted are values of keys that config.json does not state, from the family's configuration class.
	// Warnings are reasons why a size may be wrong.
	Defaulted []string `json:"defaulted,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`

	whole []Layer // of the model of which this is a stage
}

// Names of the tables in a checkpoint.
const (
	embeddingName = "embed_tokens"
	headName      = "lm_head"
)

// Layer has at most one mixer and one FFN: Nemotron-H alternates them, and architecture search
// drops some.
type Layer struct {
	Mixer *Mixer `json:"mixer,omitempty"`
	FFN   *FFN   `json:"ffn,omitempty"`
	Small int64  `json:"small,omitempty"` // parameters that are no matrix: norms around mixer and ffn
}

// MixerKind is the kind of a layer's mixer, the part in which a token attends to earlier ones.
type MixerKind string

// The mixers.
const (
	GQA        MixerKind = "gqa"       // attention with grouped key and value heads: full, window, chunk or sparse by Index
	MLA        MixerKind = "mla"       // multi-head latent attention (DeepSeek-V2); sparse with an Index
	Compressed MixerKind = "v4"        // DeepSeek-V4: a window, and an entry per Ratio tokens
	Mamba1     MixerKind = "mamba1"    // selective state space with a dt of rank DTRank
	Mamba2     MixerKind = "mamba2"    // state space with scalar decay per head
	Delta      MixerKind = "delta"     // gated delta rule: gdn or kda
	Lightning  MixerKind = "lightning" // linear attention with a fixed decay per head
	LinearOnly MixerKind = "linear"    // one matrix in the mixer's place
)

// Mixer is one attention, state-space or linear-attention block. Fields that its kind does not have
// are 0.
type Mixer struct {
	Kind    MixerKind `json:"kind"`
	Heads   int64     `json:"heads,omitempty"`    // query heads; heads of a state space; value heads of a delta rule
	KVHeads int64     `json:"kv_heads,omitempty"` // key and value heads; key heads of a delta rule
	DimK    int64     `json:"dim_k,omitempty"`    // width of a query or key head; nope + rope for mla
	DimV    int64     `json:"dim_v,omitempty"`    // width of a value head; of a head of a state space
	// A query attends to the last Window tokens, itself included, or those of its own chunk of
	// Chunk tokens; 0: all before it.
	Window int64 `json:"window,omitempty"`
	Chunk  int64 `json:"chunk,omitempty"`
	// QRank, KVRank, Rope: mla's latent widths and the positional part of a key. QRank 0: queries are not compressed.
	QRank  int64 `json:"q_rank,omitempty"`
	KVRank int64 `json:"kv_rank,omitempty"`
	Rope   int64 `json:"rope,omitempty"`
	// ORank, OGroups, Ratio: DeepSeek-V4's output projection and the tokens of a compressed entry (0: window alone).
	ORank   int64  `json:"o_rank,omitempty"`
	OGroups int64  `json:"o_groups,omitempty"`
	Ratio   int64  `json:"ratio,omitempty"`
	Index   *Index `json:"index,omitempty"`
	// StateSize, StateGroups, Conv, DTRank: N, groups of B and C, taps of the convolution and rank of dt (mamba, delta).
	StateSize   int64  `json:"state_size,omitempty"`
	StateGroups int64  `json:"state_groups,omitempty"`
	Conv        int64  `json:"conv,omitempty"`
	DTRank      int64  `json:"dt_rank,omitempty"`
	Form        string `json:"form,omitempty"` // delta: gdn or kda
	// StateBytes is the bytes of a value of the recurrent state; ConvBytes of the convolution's.
	StateBytes float64 `json:"state_bytes,omitempty"`
	ConvBytes  float64 `json:"conv_bytes,omitempty"`
	Gate       string  `json:"gate,omitempty"`      // of the output: a value for each head or each element
	Sink       bool    `json:"sink,omitempty"`      // a learned score for each head, which takes a part of the softmax
	SharesKV   bool    `json:"shares_kv,omitempty"` // reads an earlier layer's cache and writes none
	KEqV       bool    `json:"k_eq_v,omitempty"`    // keys serve as values: no value matrix, both cached
	// Linears are its matrices, Small its other parameters: norms, biases, convolutions, sinks.
	Linears []Linear `json:"linears,omitempty"`
	Small   int64    `json:"small,omitempty"`
}

// Index is the selection of tokens, or of blocks of Unit tokens, that sparse attention reads.
type Index struct {
	Heads  int64 `json:"heads"`
	Dim    int64 `json:"dim"`
	TopK   int64 `json:"topk"`             // units a query reads at most
	Unit   int64 `json:"unit"`             // tokens a unit holds
	Shared bool  `json:"shared,omitempty"` // uses an earlier layer's choice: no weights, no cache
}

// FFNKind is the kind of a layer's FFN.
type FFNKind string

// The ffns.
const (
	Dense     FFNKind = "dense"
	Experts   FFNKind = "moe"
	LinearFFN FFNKind = "linear"
)

// FFN is a dense MLP, routed experts, or one matrix in their place.
type FFN struct {
	Kind        FFNKind `json:"kind"`
	Width       int64   `json:"width"`                 // of a dense MLP or of one expert
	Projections int64   `json:"projections,omitempty"` // 3 gated (gate, up, down), 2 plain (up, down)
	Experts     int64   `json:"experts,omitempty"`
	TopK        int64   `json:"top_k,omitempty"`        // experts a token takes
	Latent      int64   `json:"latent,omitempty"`       // width the experts work in; 0: Hidden
	SharedWidth int64   `json:"shared_width,omitempty"` // total width of the shared experts
	BesideWidth int64   `json:"beside_width,omitempty"` // of a dense MLP in parallel with the experts (Gemma 4)
	// Linears are its matrices, Small its other parameters: biases, norms, the router's corrections.
	Linears []Linear `json:"linears,omitempty"`
	Small   int64    `json:"small,omitempty"`
}

// Placement is how a matrix is sharded, and so the part of it on one GPU (spec#model-placement), with t
// tensor-parallel and d data-parallel ranks.
type Placement string

// The placements.
const (
	Sharded    Placement = "rows"       // 1/t, by what comes out
	ShardedIn  Placement = "columns"    // 1/t, by what goes in: an all-reduce adds the parts
	KVSharded  Placement = "kv"         // max(1/t, 1/kv heads): a head is not split but copied
	Replicated Placement = "replicated" // 1
	ByExpert   Placement = "experts"    // 1/(t d): by width, or whole experts with expert parallelism
)

// Linear is a weight matrix, or Count equal ones, with quantization and placement.
type Linear struct {
	Name      string    `json:"name"`             // as in the checkpoint, behind the layer's: self_attn.q_proj
	Rows      int64     `json:"rows"`             // values out
	Columns   int64     `json:"columns"`          // values in
	Count     int64     `json:"count"`            // such matrices: the experts
	Active    int64     `json:"active,omitempty"` // of them a token passes; 0: all
	Bias      bool      `json:"bias,omitempty"`   // a bias of 16 bit for each row
	Placement Placement `json:"placement"`
	Quant     Quant     `json:"quant"`
}

// Quant is how a matrix is stored and multiplied.
type Quant struct {
	Algorithm      string  `json:"algorithm,omitempty"` // "": none
	BytesPerWeight float64 `json:"bytes_per_weight"`    // scales and zero points included
	Bits           int64   `json:"bits"`                // of a weight alone
	ActivationBits int64   `json:"activation_bits"`     // 16, 8 or 4: the rate it is computed at, never the weight's
	// Block is the rows and columns that share a scale; a shard has whole ones. 0: a tensor or a row.
	Block [2]int64 `json:"block,omitempty,omitzero"`
}

// params returns the parameters of n such matrices, biases included.
func (l *Linear) params(n int64) int64 {
	if l.Bias {
		return n * (l.Rows*l.Columns + l.Rows)
	}
	return n * l.Rows * l.Columns
}

// Params returns the parameters of all Count matrices, biases included.
func (l *Linear) Params() int64 { return l.params(l.Count) }

// ActiveParams returns the parameters that one token is multiplied with.
func (l *Linear) ActiveParams() int64 { return l.params(cmp.Or(l.Active, l.Count)) }

// Bytes returns the bytes of all Count matrices, unsharded, as stored and in memory.
func (l *Linear) Bytes() float64 {
	weights := l.Rows * l.Columns * l.Count
	return float64(weights)*l.Quant.BytesPerWeight + smallBytes*float64(l.Params()-weights)
}

// smallBytes is the bytes of a parameter outside the matrices (16 bit).
const smallBytes = 2

// StateKind is the kind of a cache, by how it grows with the tokens of a request.
type StateKind string

// The states.
const (
	TokenState      StateKind = "tokens"     // an entry per token
	WindowState     StateKind = "window"     // an entry per token of the last Window, or of the chunk
	CompressedState StateKind = "compressed" // an entry per Ratio tokens
	RecurrentState  StateKind = "recurrent"  // of one size per request
)

// State is one cache of a mixer, on one GPU.
type State struct {
	Kind StateKind `json:"kind"`
	// Bytes of an entry: per token, per Ratio tokens, or of the whole request for a recurrent one.
	Bytes  float64 `json:"bytes"`
	Ratio  int64   `json:"ratio,omitempty"`
	Window int64   `json:"window,omitempty"` // tokens
}

// hasExperts reports whether any layer has experts.
func (d *Decoder) hasExperts() bool {
	return slices.ContainsFunc(d.Layers, func(l Layer) bool { return l.FFN != nil && l.FFN.Kind == Experts })
}
