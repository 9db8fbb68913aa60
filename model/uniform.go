package model

// This file describes a model of equal layers by a few numbers, and the other way round: the layers
// that follow from these numbers.

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// describe fills the model's fields from its layers. Where all layers are alike (full grouped-query
// attention with a dense MLP or experts), the fields describe the model, as the specifications up
// to 1.2 need; otherwise m.Layered does.
func (c *hfConfig) describe(m *Model, d *Decoder, opts Options) {
	m.MaxPositionEmbeddings = c.positions()
	before := *m     // without what whyNotFlat fills in
	size := int64(0) // of the smallest window or chunk, tokens; 0: none
	for i := range d.Layers {
		if x := d.Layers[i].Mixer; x != nil && x.Window+x.Chunk > 0 && (size == 0 || x.Window+x.Chunk < size) {
			size = x.Window + x.Chunk
		}
	}
	longest := opts.MaxModelLen // that a request can be
	if !longest.OK && m.MaxPositionEmbeddings > 0 {
		longest = trace.Some(m.MaxPositionEmbeddings)
	}
	beyond := size > 0 && !(longest.OK && longest.V <= size) // a window that can be active (spec#model-window)
	if why := d.whyNotFlat(m, beyond && !opts.AssumeFullAttention); why != "" {
		*m = before
		m.Layered = d
		m.summarise()
		return
	}
	if beyond {
		m.Warnings = append(m.Warnings, fullAttentionAssumed)
	}
	if m.NumMoELayers == m.NumLayers { // experts in every layer: a width that nothing has
		m.IntermediateSize = cmp.Or(c.countOr("intermediate_size_mlp"),
			c.countOr("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"), m.IntermediateSize)
	}
}

// summarise sets the fields that a model of unlike layers has too.
func (m *Model) summarise() {
	d := m.Layered
	m.NumLayers = int64(len(d.Layers))
	m.HiddenSize = d.Hidden
	m.VocabSize = d.Vocab
	m.Tied = d.Tied
	m.BytesPerActivation = d.DTypeBytes
	m.BytesPerKV = d.KVBytes
}

// whyNotFlat fills the fields of m for a model of equal layers, and returns the reason when fields
// cannot describe this one. windows is whether attention windows can be active, because
// max_model_len exceeds them.
func (d *Decoder) whyNotFlat(m *Model, windows bool) (why string) {
	m.NumLayers = int64(len(d.Layers))
	m.HiddenSize = d.Hidden
	m.VocabSize = d.Vocab
	m.Tied = d.Tied
	m.BytesPerActivation = d.DTypeBytes
	m.BytesPerKV = d.KVBytes
	m.BytesPerLMHead = float64(d.Head.Quant.Bits) / 8
	for i := range d.Layers {
		l := &d.Layers[i]
		if why = l.notUniform(m, windows); why != "" {
			return fmt.Sprintf("layer %d: got %s", i, why)
		}
		if l.FFN.Kind == Experts {
			m.NumMoELayers++
		}
		m.NumMLPProj = l.FFN.Projections
		l.everyLinear(func(x *Linear) { why = cmp.Or(why, m.linearWidth(x)) })
		if why != "" {
			return "quantization: got " + why
		}
	}
	m.IntermediateSize = cmp.Or(m.IntermediateSize, m.MoEIntermediateSize)
	m.BytesPerParam = m.BytesPerWeight
	return ""
}

// linearWidth sets the model's bytes per weight and arithmetic of linear layers from one matrix. If an
// earlier matrix set other ones, it returns the reason why the model is not uniform. The router of
// experts may differ.
func (m *Model) linearWidth(x *Linear) string {
	b, compute := float64(x.Quant.Bits)/8, "native"
	if x.Quant.ActivationBits == 8 && strings.HasPrefix(x.Quant.Algorithm, "fp8") {
		compute = "fp8"
	}
	switch {
	case x.Placement == Replicated: // the router
		return ""
	case x.Quant.ActivationBits < 8:
		return fmt.Sprintf("activations of %d bit", x.Quant.ActivationBits)
	case m.BytesPerWeight != 0 && (b != m.BytesPerWeight || compute != m.LinearCompute):
		return fmt.Sprintf("%s at %g bytes a weight and others at %g", x.Name, b, m.BytesPerWeight)
	}
	m.BytesPerWeight, m.LinearCompute = b, compute
	return ""
}

// WhyLayered returns the reason why specifications up to 1.2 cannot describe the model, "" where they
// can.
func (m *Model) WhyLayered() string {
	if m.Layered == nil {
		return ""
	}
	return cmp.Or(m.Layered.whyNotFlat(&Model{}, true), "layers")
}

// Layers returns the model as a list of layers, over which features, memory and simulator add up
// (spec#model-layers). Equal layers are made from the model's fields, without norms and biases.
func (m *Model) Layers() *Decoder {
	if m.Layered != nil {
		return m.Layered
	}
	bits := int64(8 * m.BytesPerWeight)
	ofLinears := Quant{BytesPerWeight: m.BytesPerWeight, Bits: bits, ActivationBits: 16}
	plain := Quant{BytesPerWeight: m.BytesPerActivation, Bits: int64(8 * m.BytesPerActivation), ActivationBits: 16}
	switch {
	case m.LinearCompute == "fp8":
		ofLinears.Algorithm, ofLinears.ActivationBits = "fp8", 8
	case m.BytesPerWeight < m.BytesPerActivation:
		ofLinears.Algorithm = fmt.Sprintf("int%d", bits)
	}
	hidden := m.HiddenSize
	queries := m.NumHeads * m.HeadDim
	keys := m.NumKVHeads * m.HeadDim
	matrix := func(name string, rows, columns int64, at Placement, quant Quant) Linear {
		return Linear{Name: name, Rows: rows, Columns: columns, Count: 1, Placement: at, Quant: quant}
	}
	mlp := func(width int64) []Linear {
		up := (m.NumMLPProj - 1) * width // with the gate, if there is one
		return []Linear{matrix("up_proj", up, hidden, Sharded, ofLinears), matrix("down_proj", hidden, width, ShardedIn, ofLinears)}
	}
	// One layer with attention and a dense MLP, as often as the model has layers.
	attention := &Mixer{
		Kind:    GQA,
		Heads:   m.NumHeads,
		KVHeads: m.NumKVHeads,
		DimK:    m.HeadDim,
		DimV:    m.HeadDim,
		Linears: []Linear{
			matrix("q_proj", queries, hidden, Sharded, ofLinears),
			matrix("k_proj", keys, hidden, KVSharded, ofLinears),
			matrix("v_proj", keys, hidden, KVSharded, ofLinears),
			matrix("o_proj", hidden, queries, ShardedIn, ofLinears),
		},
	}
	dense := &FFN{Kind: Dense, Width: m.IntermediateSize, Projections: m.NumMLPProj, Linears: mlp(m.IntermediateSize)}
	layer := Layer{Mixer: attention, FFN: dense}
	decoder := &Decoder{
		Vocab:      m.VocabSize,
		Hidden:     hidden,
		Tied:       m.Tied,
		KVBytes:    m.BytesPerKV,
		DTypeBytes: m.BytesPerActivation,
		Embedding:  matrix(embeddingName, m.VocabSize, hidden, Sharded, plain),
		Head:       matrix(headName, m.VocabSize, hidden, Sharded, plain),
	}
	decoder.Head.Quant.BytesPerWeight = m.BytesPerLMHead
	if m.Decoder != nil {
		decoder.MTP = m.Decoder.MTP
	}
	for range m.NumLayers {
		decoder.Layers = append(decoder.Layers, layer)
	}
	// The last layers have experts in place of the MLP.
	if m.IsMoE() {
		width := m.MoEIntermediateSize
		experts := &FFN{Kind: Experts, Width: width, Projections: m.NumMLPProj, Experts: m.NumExperts, TopK: m.TopK, SharedWidth: m.SharedExpertSize,
			Linears: []Linear{matrix("gate", m.NumExperts, hidden, Replicated, plain)}}
		for _, expert := range mlp(width) {
			expert.Name = "experts." + expert.Name
			expert.Placement = ByExpert
			expert.Count = m.NumExperts
			expert.Active = m.TopK
			experts.Linears = append(experts.Linears, expert)
		}
		if m.SharedExpertSize > 0 {
			experts.Linears = append(experts.Linears, mlp(m.SharedExpertSize)...)
		}
		for i := m.NumLayers - min(m.NumMoELayers, m.NumLayers); i < m.NumLayers; i++ {
			decoder.Layers[i].FFN = experts
		}
	}
	return decoder
}

// notUniform sets the fields that earlier layers have not set, or returns the reason when the layer
// differs from them.
func (l *Layer) notUniform(m *Model, windows bool) string {
	mixer, ffn := l.Mixer, l.FFN
	switch {
	case mixer == nil:
		return "no attention"
	case ffn == nil || ffn.Kind == LinearFFN:
		return "no MLP"
	case mixer.Kind != GQA || mixer.Index != nil || windows && mixer.Window+mixer.Chunk > 0:
		return l.Kind() + " attention"
	case mixer.Gate != "" || mixer.KEqV || mixer.SharesKV || mixer.DimK != mixer.DimV:
		return "gated, shared or uneven keys and values"
	case ffn.Latent > 0 || ffn.BesideWidth > 0:
		return "experts with a latent width, or an MLP beside them"
	}
	for _, dimension := range []struct {
		field *int64
		value int64
	}{
		{field: &m.NumHeads, value: mixer.Heads},
		{field: &m.NumKVHeads, value: mixer.KVHeads},
		{field: &m.HeadDim, value: mixer.DimK},
	} {
		if *dimension.field != 0 && *dimension.field != dimension.value {
			return "heads unlike those of earlier layers"
		}
		*dimension.field = dimension.value
	}
	width := &m.IntermediateSize
	if ffn.Kind == Experts {
		width = &m.MoEIntermediateSize
		m.NumExperts = ffn.Experts
		m.TopK = ffn.TopK
		m.SharedExpertSize = ffn.SharedWidth
	}
	if *width != 0 && *width != ffn.Width {
		return "a width unlike that of earlier layers"
	}
	*width = ffn.Width
	return ""
}

// Shipped returns the decoder layers: with the quantization of the checkpoint if config.json was read,
// otherwise those that follow from the model's uniform values.
func (m *Model) Shipped() *Decoder {
	if m.Layered == nil && m.Decoder != nil {
		return m.Decoder
	}
	return m.Layers()
}
