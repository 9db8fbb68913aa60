package export

// This file reads a model as BLIS's catalog does: as the primitives that BLIS's kernel mode prices.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/model"
)

// catalogModel is a model of BLIS's catalog, release 0.2.1. Only the catalog's derive_graph.py makes
// the graphs that the kernel mode reads, so a name that the catalog lacks cannot be simulated.
type catalogModel struct {
	name                  string
	layers, hidden, vocab int64
	routed, topK          int64  // routed experts of a layer, and of them those a token takes; 0: no experts
	weights               string // format of the weights, which decides at which rate matrix products run
	// Formats of the matrices that the graph gives one of their own; empty: weights.
	experts, attention, recurrent string
	// noShared is set if the graph lacks the shared experts that the model has.
	noShared bool
	// unpriced is what the kernel mode's formula here has no term for; empty: nothing.
	unpriced string
}

// Reasons why a graph of the catalog cannot be projected.
const (
	selectsTokens = "attention that selects tokens with an index"
	splitsExperts = "experts in two groups behind latent projections"
	notRead       = "a graph whose primitives have not been compared with the model"
)

// catalogModels are the models of the catalog.
var catalogModels = []catalogModel{
	{name: "codellama-34b-instruct-hf", layers: 48, hidden: 8192, vocab: 32000, weights: "bf16"},
	{name: "deepseek-v2-lite", layers: 27, hidden: 2048, vocab: 102400, routed: 64, topK: 6, weights: "bf16"},
	{name: "deepseek-v3", layers: 61, hidden: 7168, vocab: 129280, routed: 256, topK: 8, weights: "fp8"},
	{name: "deepseek-v4-pro", unpriced: selectsTokens},
	{name: "glm-5", unpriced: selectsTokens},
	{name: "glm-5.2", unpriced: selectsTokens},
	{name: "glm-5.2-fp8", unpriced: selectsTokens},
	{name: "glm-5.3", unpriced: selectsTokens},
	{name: "glm-5.3-flash", unpriced: selectsTokens},
	{name: "gpt-oss-120b", layers: 36, hidden: 2880, vocab: 201088, routed: 128, topK: 4, weights: "bf16", experts: "mxfp4"},
	{name: "inkling", unpriced: notRead},
	{name: "kimi-k2.5", layers: 61, hidden: 7168, vocab: 163840, routed: 384, topK: 8, weights: "int4", attention: "bf16"},
	{name: "kimi-k3", unpriced: notRead},
	{name: "llama-2-70b-hf", layers: 80, hidden: 8192, vocab: 32000, weights: "fp16"},
	{name: "llama-2-7b-hf", layers: 32, hidden: 4096, vocab: 32000, weights: "fp16"},
	{name: "llama-3.1-70b-instruct", layers: 80, hidden: 8192, vocab: 128256, weights: "bf16"},
	{name: "llama-3.1-8b-instruct", layers: 32, hidden: 4096, vocab: 128256, weights: "bf16"},
	{name: "llama-4-scout-17b-16e-instruct-fp8-dynamic", layers: 48, hidden: 5120, vocab: 202048, routed: 16, topK: 1, weights: "fp8", noShared: true},
	{name: "minimax-m2.5", layers: 62, hidden: 3072, vocab: 200064, routed: 256, topK: 8, weights: "fp8"},
	{name: "minimax-m2.7", layers: 62, hidden: 3072, vocab: 200064, routed: 256, topK: 8, weights: "fp8"},
	{name: "minimax-m3", unpriced: selectsTokens},
	{name: "mistral-nemo-instruct-2407", layers: 40, hidden: 5120, vocab: 131072, weights: "bf16"},
	{name: "mixtral-8x22b-v0.1", layers: 56, hidden: 6144, vocab: 32000, routed: 8, topK: 2, weights: "bf16"},
	{name: "mixtral-8x7b-v0.1", layers: 32, hidden: 4096, vocab: 32000, routed: 8, topK: 2, weights: "bf16"},
	{name: "nemotron-3-ultra-550b-a55b-bf16", unpriced: splitsExperts},
	{name: "nemotron-3-ultra-550b-a55b-nvfp4", unpriced: splitsExperts},
	{name: "nemotron-3.5-lightning-30b-a3b-bf16", layers: 52, hidden: 2688, vocab: 131072, routed: 128, topK: 6, weights: "bf16"},
	{name: "nemotron-3.5-lightning-30b-a3b-nvfp4", layers: 52, hidden: 2688, vocab: 131072, routed: 128, topK: 6, weights: "bf16", experts: "nvfp4", recurrent: "fp8"},
	{name: "qwen2.5-7b-instruct", layers: 28, hidden: 3584, vocab: 152064, weights: "bf16"},
	{name: "qwen3-14b", layers: 40, hidden: 5120, vocab: 151936, weights: "bf16"},
	{name: "qwen3-30b-a3b", layers: 48, hidden: 2048, vocab: 151936, routed: 128, topK: 8, weights: "bf16"},
	{name: "qwen3.5-397b-a17b", layers: 60, hidden: 4096, vocab: 248320, routed: 512, topK: 10, weights: "bf16"},
	{name: "yi-34b", layers: 60, hidden: 7168, vocab: 64000, weights: "bf16"},
}

// formatBytes are the bytes of a weight by format, as BLIS's catalog counts them: without scales.
var formatBytes = map[string]float64{
	"bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "int4": 0.5, "mxfp4": 0.5, "nvfp4": 0.5,
}

// catalogPart is a part of the catalog: peaks in 1e12 FLOP/s by format, 0 for one that the part does
// not multiply, and in 1e12 bytes/s (hardware/*.yaml at b20b7f1, 09194da and aef7480). The efficiencies of the
// kernel mode are shares of them.
type catalogPart struct {
	bf16, fp8, fp4 float64 // 1e12 FLOP/s
	memory         float64 // 1e12 bytes/s
	node           int64   // GPUs of a node
}

// catalogParts are the parts by name.
var catalogParts = map[string]catalogPart{
	"a100-sxm":    {bf16: 312, memory: 2.039, node: 8},
	"b200":        {bf16: 2250, fp8: 4500, fp4: 9000, memory: 7.7, node: 8},
	"b300":        {bf16: 2250, fp8: 4500, fp4: 14000, memory: 7.75, node: 8},
	"gb300":       {bf16: 2500, fp8: 5000, fp4: 15000, memory: 8, node: 4},
	"gb200-nvl72": {bf16: 2500, fp8: 5000, fp4: 10000, memory: 8, node: 4},
	"h100":        {bf16: 989.5, fp8: 1979, memory: 3.35, node: 8},
	"h200":        {bf16: 989.5, fp8: 1979, memory: 4.8, node: 8},
	"l40s":        {bf16: 362.05, fp8: 733, memory: 0.864, node: 8},
}

// products returns the rate at which a part multiplies matrices of a format, in 1e12 FLOP/s, and the
// format in the names of its coefficients (blis-latency-kernel new.go: dtypeFit at 0515d1b).
func (p catalogPart) products(format string) (rate float64, of string) {
	switch {
	case (format == "nvfp4" || format == "mxfp4") && p.fp4 > 0:
		return p.fp4, "nvfp4"
	case formatBytes[format] < 2 && format != "int4" && p.fp8 > 0:
		return p.fp8, "fp8"
	}
	return p.bf16, "bf16"
}

// catalogName returns the name in BLIS's catalog of a model: the stated one, or else its own in lower
// case, without the publisher's name in front if the catalog omits it.
func catalogName(stated, id string) string {
	if stated != "" {
		return stated
	}
	name := slug(model.Name(id))
	if short := strings.TrimPrefix(name, "nvidia-"); inCatalog(short) != nil {
		return short
	}
	return name
}

// inCatalog returns the catalog's model of that name; nil if it has none.
func inCatalog(name string) *catalogModel {
	for i := range catalogModels {
		if catalogModels[i].name == name {
			return &catalogModels[i]
		}
	}
	return nil
}

// shapeOf returns the sizes of a model in an entry of the catalog without a name.
func shapeOf(m *model.Model) catalogModel {
	c := catalogModel{layers: m.NumLayers, hidden: m.HiddenSize, vocab: m.VocabSize}
	for _, layer := range m.Layers().Layers {
		if f := layer.FFN; f != nil && f.Kind == model.Experts {
			c.routed = f.Experts
			c.topK = f.TopK
		}
	}
	return c
}

// sizes returns the sizes that isLike compares, for an error.
func (c *catalogModel) sizes() string {
	text := fmt.Sprintf("%d layers of %d", c.layers, c.hidden)
	if c.routed > 0 {
		text += fmt.Sprintf(" with %d of %d experts", c.topK, c.routed)
	}
	return text
}

// isLike reports whether the layers of two entries have the same sizes.
func (c *catalogModel) isLike(o *catalogModel) bool {
	return c.layers == o.layers && c.hidden == o.hidden && c.routed == o.routed && c.topK == o.topK
}

// catalogHint names the models of the catalog with layers and vocabulary of the same sizes, or all of
// them.
func catalogHint(m *model.Model) string {
	var alike, all []string
	own := shapeOf(m)
	for i := range catalogModels {
		c := &catalogModels[i]
		all = append(all, c.name)
		if c.isLike(&own) && c.vocab == own.vocab {
			alike = append(alike, c.name)
		}
	}
	if len(alike) > 0 {
		return "--option model=" + strings.Join(alike, " or model=") + " has layers of the same sizes"
	}
	return "--option model=NAME, one of " + strings.Join(all, ", ")
}

// servedAs returns the entry as the deployment serves it, with the value of engine.quantization that
// the scenario then needs; empty for the checkpoint's own format. got and want say in what else the
// formats differ.
func (c catalogModel) servedAs(d *model.Decoder) (served catalogModel, quantization, got, want string) {
	mixers, ffns := weightQuants(d)
	hasOneFormat := c.experts == "" && c.attention == "" && c.recurrent == ""
	isFP8 := func(q model.Quant) bool { return strings.HasPrefix(q.Algorithm, "fp8") }
	if hasOneFormat && formatBytes[c.weights] == 2 && isFP8(mixers) && isFP8(ffns) {
		c.weights = "fp8"
		return c, "fp8", "", ""
	}
	for _, x := range []struct {
		of     string
		quant  model.Quant // as served
		format string      // of the entry
	}{
		{of: "attention", quant: mixers, format: c.attention},
		{of: "feed-forward matrices", quant: ffns, format: c.experts},
	} {
		format := cmp.Or(x.format, c.weights)
		if bits := int64(8 * formatBytes[format]); x.quant.Bits != 0 && x.quant.Bits != bits {
			return c, "", fmt.Sprintf("%s of %d bits", x.of, x.quant.Bits), fmt.Sprintf("%d (%s)", bits, format)
		}
	}
	return c, "", "", ""
}

// weightQuants returns how the weights of attention and of the widest feed-forward matrices are stored:
// those of experts where the model has any. The zero value stands for a model without them.
func weightQuants(d *model.Decoder) (mixers, ffns model.Quant) {
	hasExperts := false // ffns are those of experts, which no other layer replaces
	for i := range d.Layers {
		if m := d.Layers[i].Mixer; m != nil && (m.Kind == model.GQA || m.Kind == model.MLA) && mixers.Bits == 0 {
			mixers = m.Linears[len(m.Linears)-1].Quant
		}
		f := d.Layers[i].FFN
		if f == nil || hasExperts || f.Kind == model.Dense && ffns.Bits != 0 {
			continue
		}
		for _, x := range f.Linears {
			if f.Kind == model.Dense || x.Placement == model.ByExpert {
				ffns = x.Quant
				hasExperts = f.Kind == model.Experts
				break
			}
		}
	}
	return mixers, ffns
}

// catalogGraph has the sums over a model's layers that the kernel mode computes a step from.
type catalogGraph struct {
	layers   float64 // of the stack
	blocks   float64 // mixers and FFNs; each has an all-reduce behind it
	matrices float64 // parameters that every token is multiplied with
	bytes    float64 // of those parameters
	// Of routed experts, summed over the layers with one expert each: their parameters and bytes, and how many each layer has and a token takes.
	routed, routedBytes, experts, topK float64
	normBytes                          float64 // that norms read and write for a token

	attending float64        // layers with attention
	headWidth float64        // query heads times the width of a cached head, all layers with full attention
	windows   []windowLayers // the layers with windows
	// cachedBytes are those of a token of context that the layers without a window read on one rank.
	cachedBytes float64
	decodeNames string // what the names of the decode coefficients end in: _mla for latent attention

	recurrent      float64 // layers with a recurrent state
	recurrentNames string  // what the names of their coefficients end in
}

// windowLayers are the layers whose attention reaches within one window.
type windowLayers struct {
	reach     int // position in the sums of a batch
	headWidth float64
}

// graphOf returns the sums of a deployment's model, or the reason why the kernel mode's formula has no
// term for a layer of it. A layer has the matrices that derive_graph.py gives it: neither routers nor
// the input projections of recurrent layers, and three matrices for each expert.
func (c catalogModel) graphOf(d *deploy.Deployment) (g *catalogGraph, unpriced string) {
	g = &catalogGraph{}
	dec := d.Model.Layers()
	for i := range dec.Layers {
		g.layers++
		if m := dec.Layers[i].Mixer; m != nil {
			if why := g.addMixer(c, d, m, float64(dec.Hidden)); why != "" {
				return nil, why
			}
		}
		if f := dec.Layers[i].FFN; f != nil {
			if why := g.addFFN(c, f, float64(dec.Hidden)); why != "" {
				return nil, why
			}
		}
	}
	g.addMatrices(float64(dec.Vocab*dec.Hidden), c.weights) // the head, once
	// The kernel mode divides the bytes of a token in all caches by all layers of the stack, also by those that
	// have no cache (kernel.go at 070f510).
	g.cachedBytes *= g.attending / g.layers
	return g, ""
}

// addMatrices adds parameters that every token is multiplied with.
func (g *catalogGraph) addMatrices(parameters float64, format string) {
	g.matrices += parameters
	g.bytes += parameters * formatBytes[format]
}

// addMixer adds a layer's attention or recurrence with the norm before it, or returns what the formula
// lacks for it.
func (g *catalogGraph) addMixer(c catalogModel, d *deploy.Deployment, m *model.Mixer, hidden float64) string {
	heads := float64(m.Heads)
	keys := float64(m.DimK)
	values := float64(m.DimV)
	ranks := float64(max(1, d.TP))
	attention := cmp.Or(c.attention, c.weights)
	g.blocks++
	g.normBytes += normBytes * hidden
	switch {
	case m.Index != nil || m.Ratio > 0:
		return selectsTokens
	case m.Kind == model.GQA:
		shared := float64(m.KVHeads)
		g.addMatrices((heads*keys+shared*(keys+values)+heads*values)*hidden, attention)
		g.attending++
		at := slices.IndexFunc(d.Reaches(), func(r model.Reach) bool { return m.Window > 0 && r.Window == m.Window })
		if at >= 0 {
			g.addWindow(at, heads*keys)
			return ""
		}
		g.headWidth += heads * keys
		g.cachedBytes += max(shared/ranks, 1) * (keys + values) * d.Model.BytesPerKV
	case m.Kind == model.MLA:
		rank := float64(m.KVRank)
		latent := rank + float64(m.Rope)
		queries := heads * keys * hidden
		if q := float64(m.QRank); q > 0 {
			queries = q*hidden + heads*keys*q
			g.normBytes += normBytes * q
		}
		unrotated := keys - float64(m.Rope)
		g.addMatrices(queries+latent*hidden+heads*(unrotated+values)*rank+heads*values*hidden, attention)
		g.normBytes += normBytes * rank
		g.attending++
		g.headWidth += heads * latent
		g.cachedBytes += latent * d.Model.BytesPerKV // every rank has all of it
		g.decodeNames = "_mla"
	case m.Kind == model.Mamba2 || m.Kind == model.Delta && m.Form == "gdn":
		g.addMatrices(heads*values*hidden, cmp.Or(c.recurrent, c.weights))
		g.recurrent++
		g.recurrentNames = cmp.Or(m.Form, string(m.Kind))
	default:
		return fmt.Sprintf("layers of kind %s", m.Kind)
	}
	return ""
}

// normBytes are the bytes that a norm reads and writes for each value of a token.
const normBytes = 4

// addWindow adds a layer with attention within the window at that position in the sums of a batch.
func (g *catalogGraph) addWindow(at int, headWidth float64) {
	for i := range g.windows {
		if g.windows[i].reach == at {
			g.windows[i].headWidth += headWidth
			return
		}
	}
	g.windows = append(g.windows, windowLayers{reach: at, headWidth: headWidth})
}

// addFFN adds a layer's dense matrices or experts with the norm before them, or returns what the
// formula lacks for them.
func (g *catalogGraph) addFFN(c catalogModel, f *model.FFN, hidden float64) string {
	g.blocks++
	g.normBytes += normBytes * hidden
	switch {
	case f.Kind == model.Dense:
		g.addMatrices(3*float64(f.Width)*hidden, c.weights)
	case f.Kind != model.Experts || f.Latent > 0 || f.BesideWidth > 0:
		return splitsExperts
	case g.experts != 0 && (g.experts != float64(f.Experts) || g.topK != float64(f.TopK)):
		return "experts unlike those of earlier layers"
	default:
		format := cmp.Or(c.experts, c.weights)
		g.experts = float64(f.Experts)
		g.topK = float64(f.TopK)
		g.routed += 3 * float64(f.Width) * hidden
		g.routedBytes += 3 * float64(f.Width) * hidden * formatBytes[format]
		if !c.noShared {
			g.addMatrices(3*float64(f.SharedWidth)*hidden, format)
		}
	}
	return ""
}
