package model

// This file describes the layers and sizes of a model for people and documents, and has the JSON form of a Decoder, in
// which equal layers are written once.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Kind returns one word for the layer's mixer, such as "gqa", "window", "sparse-mla", "v4-csa" or "gdn"; "ffn-only" for a
// layer without one.
func (l *Layer) Kind() string {
	m := l.Mixer
	switch {
	case m == nil:
		return "ffn-only"
	case m.Kind == Compressed:
		// DeepSeek-V4 alone: by how many tokens have one entry in the cache, compressed sparse or highly compressed
		// attention; 0: a window and no entries. The reader refuses other ratios.
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

// InWords returns the number of layers of each kind, sorted by name: "gqa:18 window:18".
func (d *Decoder) InWords() string {
	count := map[string]int{}
	for i := range d.Layers {
		count[d.Layers[i].Kind()]++
	}
	var words []string
	for _, kind := range slices.Sorted(maps.Keys(count)) {
		words = append(words, fmt.Sprintf("%s:%d", kind, count[kind]))
	}
	return strings.Join(words, " ")
}

// Sizes are a model's sizes as inspect --model prints them. A cached value has 2 bytes where the field's
// name or comment does not state another width; window and state bytes are those of one request. Figures of one GPU are
// of all layers: inspect has one pipeline stage. With several, weights are of the stage that has most, and caches still
// of all layers.
type Sizes struct {
	TotalParams          float64  `json:"total_params"`
	ActiveParams         float64  `json:"active_params"`
	MTPParams            float64  `json:"mtp_params"` // of multi-token prediction, in none of the other figures
	WeightBytes          float64  `json:"weight_bytes"`
	WeightBytesPerGPU    float64  `json:"weight_bytes_per_gpu"`
	KVBytesPerToken      float64  `json:"kv_bytes_per_token"`         // whole model, 16 bit
	KVBytesPerTokenShip  float64  `json:"kv_bytes_per_token_shipped"` // whole model, in the type of vLLM's kv_cache_dtype auto
	KVBytesPerTokenGPU   float64  `json:"kv_bytes_per_token_per_gpu"` // in that type, on one GPU
	StateBytesPerRequest float64  `json:"state_bytes_per_request"`
	StateBytesGPU        float64  `json:"state_bytes_per_request_per_gpu"`
	WindowBytes          float64  `json:"window_bytes_per_request"`
	BytesPerKV           float64  `json:"bytes_per_kv"`
	KV                   *KVPool  `json:"kv_pool,omitempty"` // on one GPU, at --block-size 16
	Summary              string   `json:"layers_in_words"`
	Layers               []Folded `json:"layers"`
	Defaulted            []string `json:"defaulted"` // keys that config.json does not have, with the values taken (Decoder.Defaulted)
	Warnings             []string `json:"warnings"`
}

// Folded describes a set of equal layers.
type Folded struct {
	Count   int      `json:"count"`
	First   int      `json:"first"` // index of the first of them, from 0
	Mixer   string   `json:"mixer"`
	FFN     string   `json:"ffn"`
	Params  float64  `json:"params"`  // of one layer
	Weights []string `json:"weights"` // names of the quantizations of its matrices, or their width where not quantized: "fp8", "2-byte"
}

// kinds returns the different layers in the order of their first appearance, and for each layer the
// index of its kind.
func (d *Decoder) kinds() (kinds []*Layer, order []int) {
	order = make([]int, len(d.Layers))
	for i := range d.Layers {
		l := &d.Layers[i]
		k := slices.IndexFunc(kinds, func(kind *Layer) bool { return *kind == *l || reflect.DeepEqual(kind, l) })
		if k < 0 {
			k = len(kinds)
			kinds = append(kinds, l)
		}
		order[i] = k
	}
	return kinds, order
}

// countOfKind returns the number of layers of kind k.
func countOfKind(order []int, k int) int {
	n := 0
	for _, kind := range order {
		if kind == k {
			n++
		}
	}
	return n
}

// Fold returns the layers with equal ones grouped, in the order of their first appearance.
func (d *Decoder) Fold() []Folded {
	var out []Folded
	kinds, order := d.kinds()
	for k, l := range kinds {
		f := Folded{Count: countOfKind(order, k), First: slices.Index(order, k), Mixer: l.mixerWords(), FFN: l.ffnWords(),
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

// plainDecoder is a Decoder without its methods, which json would call again.
type plainDecoder Decoder

// MarshalJSON returns the decoder as JSON with its layers folded.
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
	d.Kinds = nil // only of documents
	d.Order = nil
	return nil
}

// mixerWords returns a description of the mixer for people: "gqa 32 heads, 8 kv x 128",
// "window 1024: 8 heads, 4 kv x 256", "mla 128 heads, latent 512 + 64", "mamba2 128 x 64, state 128".
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
	case m.Window > 0 || m.Chunk > 0: // one of the two, in tokens
		return fmt.Sprintf("%s %d: %d heads, %d kv x %d", l.Kind(), cmp.Or(m.Window, m.Chunk), m.Heads, m.KVHeads, m.DimK)
	}
	return fmt.Sprintf("%s %d heads, %d kv x %d", l.Kind(), m.Heads, m.KVHeads, m.DimK)
}

// ffnWords returns a description of the FFN for people: "dense 14336", or
// "moe 8 of 256 x 2048, shared 2048" with the experts of a token, all experts and their width.
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

// Sizes returns the model's sizes when it is sharded as p, or an error when vLLM would not load it
// so.
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
	const bytesPerValue, oneGPU = 2, 1
	full := d.Cache(bytesPerValue, oneGPU)
	gpu := d.Cache(d.KVBytes, p.TP)
	var kv *KVPool
	if pool, ok := d.KVPool(p, vllm.DefaultBlockSize); ok {
		kv = &pool
	}
	mtp := Decoder{Tied: true, Layers: d.MTP} // without an embedding and a head: those of the model serve it too
	return &Sizes{
		TotalParams:          float64(d.TotalParams()),
		ActiveParams:         float64(d.ActiveParams()),
		MTPParams:            float64(mtp.TotalParams()),
		WeightBytes:          d.WeightBytes(),
		WeightBytesPerGPU:    d.WeightBytesPerGPU(p),
		KVBytesPerToken:      full.BytesPerToken,
		KVBytesPerTokenShip:  d.Cache(d.KVBytes, oneGPU).BytesPerToken,
		KVBytesPerTokenGPU:   gpu.BytesPerToken,
		StateBytesPerRequest: full.StateBytes,
		StateBytesGPU:        gpu.StateBytes,
		WindowBytes:          full.WindowBytes,
		BytesPerKV:           d.KVBytes,
		KV:                   kv,
		Summary:              d.InWords(),
		Layers:               d.Fold(),
		Defaulted:            append([]string{}, d.Defaulted...),
		Warnings:             append([]string{}, d.Warnings...),
	}, nil
}
