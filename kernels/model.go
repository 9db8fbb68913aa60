package kernels

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
)

// decoderOf is a model of equal layers as a list of layers.
func decoderOf(m *deploy.Model) *deploy.Decoder {
	plain := deploy.Quant{BytesPerWeight: 2, ActivationBits: 16}
	q := deploy.Quant{BytesPerWeight: m.BytesPerWeight, ActivationBits: 16}
	switch {
	case m.LinearCompute == fp8:
		q.Algorithm, q.ActivationBits = fp8, 8
	case m.BytesPerWeight < 2:
		q.Algorithm = fmt.Sprintf("int%g", 8*m.BytesPerWeight)
	}
	linear := func(name string, rows, columns int64, at deploy.Placement, q deploy.Quant) deploy.Linear {
		return deploy.Linear{Name: name, Rows: rows, Columns: columns, Count: 1, Placement: at, Quant: q}
	}
	mlp := func(prefix string, width int64) []deploy.Linear {
		up := linear(prefix+"up_proj", width, m.HiddenSize, deploy.Sharded, q)
		ls := []deploy.Linear{up, linear(prefix+"down_proj", m.HiddenSize, width, deploy.ShardedIn, q)}
		if m.NumMLPProj == 3 {
			up.Name = prefix + "gate_proj"
			ls = slices.Insert(ls, 0, up)
		}
		return ls
	}
	width := m.NumHeads * m.HeadDim
	mixer := &deploy.Mixer{Kind: deploy.GQA, Heads: m.NumHeads, KVHeads: m.NumKVHeads, DimK: m.HeadDim, DimV: m.HeadDim,
		Linears: []deploy.Linear{linear("q_proj", width, m.HiddenSize, deploy.Sharded, q),
			linear("k_proj", m.NumKVHeads*m.HeadDim, m.HiddenSize, deploy.KVSharded, q),
			linear("v_proj", m.NumKVHeads*m.HeadDim, m.HiddenSize, deploy.KVSharded, q),
			linear("o_proj", m.HiddenSize, width, deploy.ShardedIn, q)}}
	dense := &deploy.FFN{Kind: deploy.Dense, Width: m.IntermediateSize, Projections: m.NumMLPProj, Linears: mlp("", m.IntermediateSize)}
	d := &deploy.Decoder{Vocab: m.VocabSize, Hidden: m.HiddenSize, KVBytes: m.BytesPerKV, DTypeBytes: m.BytesPerActivation}
	d.Head = linear("lm_head", m.VocabSize, m.HiddenSize, deploy.Sharded, plain)
	experts := &deploy.FFN{Kind: deploy.Experts, Width: m.MoEIntermediateSize, Projections: m.NumMLPProj, Experts: m.NumExperts,
		TopK: m.TopK, SharedWidth: m.SharedExpertSize}
	if m.IsMoE() {
		routed := linear("experts", m.NumMLPProj*m.MoEIntermediateSize, m.HiddenSize, deploy.ByExpert, q)
		routed.Count, routed.Active = m.NumExperts, m.TopK
		experts.Linears = []deploy.Linear{linear("gate", m.NumExperts, m.HiddenSize, deploy.Replicated, plain), routed}
		if m.SharedExpertSize > 0 {
			experts.Linears = append(experts.Linears, mlp("shared_expert.", m.SharedExpertSize)...)
		}
	}
	for i := range m.NumLayers {
		l := deploy.Layer{Mixer: mixer, FFN: dense}
		if m.IsMoE() && i >= m.NumLayers-m.NumMoELayers {
			l.FFN = experts
		}
		d.Layers = append(d.Layers, l)
	}
	return d
}

// family names what decides how well a step is known: the kind of ffn and its dtype, the kinds of attention, whole experts per
// GPU, and the GPU.
func family(d *deploy.Deployment, m *deploy.Decoder) (name, dtype string) {
	kind := "dense"
	var attention []string
	for i := range m.Layers {
		if x := m.Layers[i].Mixer; x != nil {
			name := string(x.Kind)
			if x.Index != nil {
				name += " sparse"
			}
			if x.Window > 0 {
				name += " window"
			}
			attention = append(attention, name)
		}
		f := m.Layers[i].FFN
		if f == nil {
			continue
		}
		for j := range f.Linears {
			l := &f.Linears[j]
			if routed := l.Placement == deploy.ByExpert; routed || kind == "dense" && l.Placement == deploy.ShardedIn {
				dtype = dtypesOf(&l.Quant)[0]
				if routed {
					kind = "experts"
				}
			}
		}
	}
	out := kind + " " + dtype + ", " + strings.Join(distinct(attention), " and ")
	if d.Engine.ExpertParallel {
		out += ", EP"
	}
	return out + ", " + d.Hardware.Name, dtype
}
