package library

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Kind says which correction an operator's time takes.
type Kind uint8

// The kinds.
const (
	Compute Kind = iota
	Experts
	Collective
	numKinds
)

// Operator is one line of the plan of a step: a kernel of one shape and how often it runs.
type Operator struct {
	Name         string
	Count        float64 // in a step
	Shape, DType string
	Kind         Kind
	found

	depends driver
	us      func(in *state) float64 // of one run
}

// driver is what of a batch an operator's time depends on.
type driver uint8

const (
	onTokens driver = iota // padded to the captured sizes
	onSequences
	onDecodes
	onPrefills
)

// What a kernel that is in no table is charged.
const (
	movedShare = 0.8 // of the memory bandwidth
	launchUs   = 2   // per kernel
	samplingUs = 30
)

// Options are what a configuration does not say.
type Options struct {
	// GPU has the tables; nil: the embedded ones of the deployment's hardware.
	GPU *GPU
	// Decoder is the model as layers; nil: as the deployment's model says.
	Decoder *model.Decoder
	// Load is how tokens spread over experts, as the tables name it: balanced, power_law_1.01, power_law_1.2.
	Load string
	// RawExperts takes the rows of experts as they are, also where more tokens took less.
	RawExperts bool
	// BF16 takes all weights for bfloat16.
	BF16 bool
}

// DefaultLoad is skewed: routers trained for balance are.
const DefaultLoad = "power_law_1.2"

// Step is a GPU's tables bound to one deployment. It is immutable and safe to share.
type Step struct {
	GPU       *GPU
	Family    string // what is judged together
	DType     string // of experts, else of dense layers
	Operators []Operator
	Layers    float64  // mixers and ffns, halved
	TP, Ranks int64    // Ranks: engines that spread experts, in lockstep
	Unjudged  []string // why no measurement judges the deployment, whatever its family

	graphs vllm.GraphSizes
	sync   bool    // the engine schedules synchronously
	small  float64 // kernels in no table
}

type binder struct {
	g      *GPU
	d      *deploy.Deployment
	m      *model.Decoder
	tp     int64
	ranks  int64
	o      Options
	s      *Step
	usByte float64 // of moved parts
	failed error
}

// Bind makes the plan of a deployment's step, one line per operator. Codes: kernel_rows_missing, and those of deploy.
func (g *GPU) Bind(d *deploy.Deployment, o Options) (*Step, error) {
	o.Load = cmp.Or(o.Load, DefaultLoad)
	m := cmp.Or(o.Decoder, d.Model.Decoder)
	if m == nil {
		m = d.Model.Layers()
	}
	ranks := int64(1) // engines of a dense model know nothing of each other
	if d.Model.IsMoE() {
		ranks = max(1, d.DP)
	}
	b := &binder{g: g, d: d, m: m, tp: d.TP, ranks: ranks, o: o, usByte: 1e6 / (movedShare * d.Hardware.BwPeakTBs * 1e12),
		s: &Step{GPU: g, TP: d.TP, Ranks: ranks, graphs: d.GraphSizes(), sync: !d.Engine.IsAsync()}}
	if d.PP > 1 {
		return nil, trace.Errorf(NoRows, "pipeline_parallel_size: got %d, want 1: no table holds what passes between stages", d.PP)
	}
	if b.s.Family, b.s.DType = family(d, m); d.TP*ranks > 8 {
		b.s.Unjudged = append(b.s.Unjudged, "no table knows the network between more than 8 GPUs")
	}
	if ranks > 1 {
		b.s.Unjudged = append(b.s.Unjudged, "data-parallel attention was never compared with a server")
	}
	if b.s.graphs == nil {
		b.s.Unjudged = append(b.s.Unjudged, "no server without CUDA graphs was measured")
	}
	b.moved("embedding", 1, float64(2*m.Hidden)*m.DTypeBytes)
	halves := 0.0
	for _, c := range counted(m.Layers, func(l *model.Layer) *model.Mixer { return l.Mixer }) {
		b.mixer(c.part, c.times)
		halves += c.times
	}
	for _, c := range counted(m.Layers, func(l *model.Layer) *model.FFN { return l.FFN }) {
		b.ffn(c.part, c.times)
		halves += c.times
	}
	b.s.Layers = halves / 2
	b.norms(halves + 1)
	if l := &m.Layers[0]; l.Mixer != nil && l.Mixer.Kind == model.Compressed {
		b.connections(halves / 2)
	}
	b.allReduce("all_reduce", halves+1, float64(m.Hidden)*m.DTypeBytes, true)
	b.head()
	fused, _ := d.FusedAllReduce()
	for _, op := range b.s.Operators {
		if op.Reached == Analytic && !(op.Name == "norm" && fused != nil) {
			b.s.small += op.Count
		}
	}
	return b.s, b.failed
}

// part is a mixer or an ffn and in how many layers it stands.
type part[T any] struct {
	part  *T
	times float64
}

// counted are the distinct halves of layers, in order of appearance.
func counted[T any](layers []model.Layer, half func(*model.Layer) *T) []part[T] {
	at := map[string]int{}
	var out []part[T]
	for i := range layers {
		h := half(&layers[i])
		if h == nil {
			continue
		}
		key, err := json.Marshal(h)
		if err != nil {
			panic("kernels: " + err.Error())
		}
		k, ok := at[string(key)]
		if !ok {
			k = len(out)
			at[string(key)] = k
			out = append(out, part[T]{part: h})
		}
		out[k].times++
	}
	return out
}

// fails keeps the first error.
func (b *binder) fails(err error) bool {
	b.failed = cmp.Or(b.failed, err)
	return err != nil
}

func (b *binder) add(op Operator) {
	if op.unlike {
		b.s.Unjudged = stat.AppendNew(b.s.Unjudged, "no measured "+op.Table+" of this kind")
	}
	b.s.Operators = append(b.s.Operators, op)
}

// moved is a kernel charged by the bytes a token moves.
func (b *binder) moved(name string, times, bytesPerToken float64) {
	if times == 0 {
		return
	}
	perToken := bytesPerToken * b.usByte
	b.add(Operator{Name: name, Count: times, Shape: fmt.Sprintf("%.0f B per token", bytesPerToken), found: found{Reached: Analytic},
		us: func(in *state) float64 { return in.run*perToken + launchUs }})
}

// norms read and write the hidden state and the residual; a fused all-reduce holds them.
func (b *binder) norms(times float64) {
	fused, most := b.d.FusedAllReduce()
	bytes := float64(b.m.Hidden) * b.m.DTypeBytes
	perToken := 4 * bytes * b.usByte
	b.add(Operator{Name: "norm", Count: times, Shape: fmt.Sprintf("%.0f B per token", 4*bytes), found: found{Reached: Analytic},
		us: func(in *state) float64 {
			if fused != nil && in.run*bytes <= most {
				return 0
			}
			return in.run*perToken + launchUs
		}})
}

// DTypes are the tables' names of how a matrix is multiplied, the likeliest first.
func dtypesOf(q *model.Quant) []string {
	switch a := strings.ToLower(q.Algorithm); {
	case a == "":
		return []string{bf16}
	case strings.Contains(a, "nvfp4") && q.ActivationBits == 4:
		return []string{nvfp4}
	case strings.Contains(a, "mxfp4") && q.ActivationBits == 8:
		return []string{"w4a8_mxfp4_mxfp8", "w4a16_mxfp4"}
	case strings.Contains(a, "mxfp4"):
		return []string{"w4a16_mxfp4", "w4a8_mxfp4_mxfp8"}
	case strings.Contains(a, "block"), strings.Contains(a, "fp8") && q.BytesPerWeight > 1:
		return []string{fp8Block}
	case strings.Contains(a, "fp8"):
		return []string{fp8}
	case q.ActivationBits == 16 && q.BytesPerWeight < 1:
		return []string{"int4_wo"}
	case q.ActivationBits == 16 && a == "int8":
		return []string{"int8_wo"}
	}
	return []string{q.Algorithm}
}

func (b *binder) dtypes(q *model.Quant) []string {
	if b.o.BF16 {
		return []string{bf16}
	}
	return dtypesOf(q)
}

// DTypeOf is the tables' name, and AIConfigurator's, of how a matrix is multiplied.
func DTypeOf(q *model.Quant) string { return dtypesOf(q)[0] }

// group is what several matrices that read the same input are: one kernel.
type group struct {
	names      []string
	rows       float64 // of one GPU
	columns    int64
	quant      model.Quant
	times      float64
	placement  model.Placement
	out, apart bool
}

// linears adds the matrices of a mixer or an ffn as layers of the table. Those that read the same input are fused, as vLLM does.
func (b *binder) linears(ls []model.Linear, kvHeads int64, times float64) {
	var groups []group
	for i := range ls {
		l := &ls[i]
		if l.Placement == model.ByExpert || l.Rows == 0 || l.Columns == 0 {
			continue
		}
		short := l.Name[strings.LastIndex(l.Name, ".")+1:]
		g := group{names: []string{short}, rows: float64(l.Rows), columns: l.Columns, quant: l.Quant, times: times * float64(max(1, l.Count)),
			out: l.Placement == model.ShardedIn, apart: strings.Contains(l.Name,
				"shared_expert") || l.Placement == model.Replicated, placement: l.Placement}
		switch {
		case g.out:
			g.columns = max(1, l.Columns/b.tp)
		case l.Placement == model.Sharded:
			g.rows /= float64(b.tp)
		case l.Placement == model.KVSharded:
			g.rows *= float64(max(1, kvHeads/b.tp)) / float64(max(1, kvHeads))
		}
		k := slices.IndexFunc(groups, func(o group) bool {
			return !g.out && !o.out && o.columns == g.columns && o.quant == g.quant && o.times == g.times && o.apart == g.apart &&
				(!g.apart || o.placement == g.placement)
		})
		if k >= 0 {
			groups[k].names = append(groups[k].names, short)
			groups[k].rows += g.rows
			continue
		}
		groups = append(groups, g)
	}
	fused, _ := b.d.FusedAllReduce()
	for _, g := range groups {
		if b.dtypes(&g.quant)[0] == nvfp4 && (g.out || fused == nil) { // rows of the other dtypes hold it; so does a fused all-reduce
			b.moved("quantize", g.times, float64(g.columns)*(b.m.DTypeBytes+bytesOf(nvfp4)))
		}
		b.linear(strings.Join(g.names, "+"), &g.quant, int64(g.rows), g.columns, g.times)
	}
}

// linear is one layer of n outputs and k inputs.
func (b *binder) linear(name string, q *model.Quant, n, k int64, times float64) {
	dtype := b.dtypes(q)[0]
	c, f, err := b.g.gemm(dtype, max(1, n), k)
	if b.fails(err) {
		return
	}
	b.add(Operator{Name: name, Count: times, Shape: fmt.Sprintf("n %d, k %d", n, k), DType: dtype, found: f,
		us: func(in *state) float64 { return c.at(in.run, 1) }})
}

// mixer adds what lets tokens see earlier ones.
func (b *binder) mixer(x *model.Mixer, times float64) {
	module := map[model.MixerKind]string{model.GQA: "msa", model.MLA: "dsa"}[x.Kind]
	rest, ok := map[model.MixerKind]func(x *model.Mixer, times float64){model.GQA: b.attend, model.Delta: b.delta,
		model.LinearOnly: func(*model.Mixer, float64) {}, model.Mamba1: b.recurrence, model.Mamba2: b.recurrence,
		model.Lightning: b.recurrence}[x.Kind]
	switch {
	case x.Index != nil && module != "":
		b.module(module, x, times)
	case x.Kind == model.MLA:
		b.module("mla", x, times)
	case x.Kind == model.Compressed:
		b.compressed(x, times)
	case ok:
		b.linears(x.Linears, x.KVHeads, times)
		rest(x, times)
	default:
		b.fails(trace.Errorf(NoRows, "%s: got no table of a %s layer, want one of attention, mla, dsa, msa, gdn, kda", b.g.Hardware, x.Kind).
			WithHint("simulate with --latency-model roofline"))
	}
}

// cacheType is the tables' name of the KV cache's dtype.
func (b *binder) cacheType() string {
	if b.m.KVBytes <= 1 {
		return fp8
	}
	return bf16
}

// attend adds attention with grouped heads: prefill, decode, rotary embedding and cache writes.
func (b *binder) attend(x *model.Mixer, times float64) {
	h := heads{kv: b.cacheType(), dim: x.DimK, window: x.Window, query: x.Heads / b.tp, kvHeads: max(1, x.KVHeads/b.tp)}
	shape := fmt.Sprintf("%d heads of %d, %d kv", h.query, h.dim, h.kvHeads)
	if x.Window > 0 {
		shape += fmt.Sprintf(", window %d", x.Window)
	}
	ctx, ratio, f, err := b.g.attention("context_attention", h)
	if b.fails(err) {
		return
	}
	perToken := 1e6 * float64(h.kvHeads*(x.DimK+x.DimV)) * b.m.KVBytes / b.g.Bandwidth
	read := func(context float64) float64 { // the KV cache of many layers is read from memory
		if x.Window > 0 {
			context = min(context, float64(x.Window))
		}
		return context * perToken
	}
	launch, one := attended(ctx.slice(ratio), x.Window, read)
	b.prefill("attention_prefill", shape, h.kv, times, launch, f, one)
	gen, ratio, f, err := b.g.attention("generation_attention", h)
	if b.fails(err) {
		return
	}
	if x.Sink {
		f.Note = strings.TrimPrefix(f.Note+"; attention sinks are in no table", "; ")
	}
	b.add(Operator{Name: "attention_decode", Count: times, Shape: shape, DType: h.kv, found: f, depends: onDecodes,
		us: func(in *state) float64 { return max(in.decodes*read(in.context), gen.at(in.decodes*ratio, in.context)) }})
	q := float64(h.query * x.DimK)
	kv := float64(h.kvHeads * x.DimK)
	b.moved("rope", times, 2*(q+kv)*b.m.DTypeBytes)
	b.moved("kv_write", times, float64(h.kvHeads*(x.DimK+x.DimV))*(b.m.DTypeBytes+b.m.KVBytes))
	if b.d.Model.ModelType == "minimax_m2" { // Q and K are normalised over all heads of all GPUs, in fp32
		b.moved("qk_norm_cast", 2*times, 2*(q+kv)*3)
		if b.tp > 1 {
			b.allReduce("qk_norm_reduce", times, 8, false)
		}
	}
}

// prefill adds attention of prompt chunks: one is the time of n tokens behind v cached ones. An engine hands all chunks of a step to one
// variable-length kernel, so that only the first pays the launch.
func (b *binder) prefill(name, shape, dtype string, times, launch float64, f found, one func(n, v float64) float64) {
	b.add(Operator{Name: name, Count: times, Shape: shape, DType: dtype, found: f, depends: onPrefills, us: func(in *state) float64 {
		us := one(in.chunk, in.cached)
		return us + (in.prefills-1)*max(0, us-launch)
	}})
}

// attended is the time of a chunk from that of whole prompts, by the pairs of queries and keys; read is that of the cache.
func attended(c curve, window int64, read func(context float64) float64) (launch float64, one func(n, v float64) float64) {
	return c.y[0], func(n, v float64) float64 {
		us := c.at(n, 2)
		if v > 0 {
			us = max(us, read(v+n), c.at(v+n, 2)*pairs(v, n, float64(window))/pairs(0, v+n, float64(window)))
		}
		return us
	}
}

// pairs are the query and key pairs of n tokens behind v cached ones, each seeing the last window tokens; 0: all.
func pairs(v, n, window float64) float64 {
	full := n*v + n*(n+1)/2
	switch {
	case window == 0 || v+n <= window:
		return full
	case v >= window:
		return n * window
	}
	a := window - v
	return a*v + a*(a+1)/2 + (n-a)*window
}

// module adds attention whose rows hold the projections.
func (b *binder) module(name string, x *model.Mixer, times float64) {
	q := model.Quant{}
	for i := range x.Linears {
		if x.Linears[i].Placement == model.ShardedIn {
			q = x.Linears[i].Quant
		}
	}
	dtype := b.dtypes(&q)[0]
	of := []where{named("kv_cache_dtype", b.cacheType()), named("gemm_type", dtype), is("num_heads", x.Heads/b.tp)}
	if name == "dsa" {
		model := "deepseek-ai/DeepSeek-V3.2"
		if x.DimK-x.Rope == 192 {
			model = "zai-org/GLM-5"
		}
		of = append(of, named("model", model))
	}
	if want := [3]int64{512, 64, 192}; name == "mla" && [3]int64{x.KVRank, x.Rope, x.DimK} != want {
		b.fails(trace.Errorf(NoRows, "%s, table mla_context_module: kv_lora_rank, qk_rope_head_dim, head width: got %d, %d, %d, want %v: "+
			"those of DeepSeek-V3", b.g.Hardware, x.KVRank, x.Rope, x.DimK, want))
		return
	}
	shape := fmt.Sprintf("%d heads, latent %d", x.Heads/b.tp, x.KVRank)
	var grids [2]grid
	var founds [2]found
	for i, phase := range []string{"context", "generation"} {
		t, err := b.g.need(name + "_" + phase + "_module")
		if b.fails(err) {
			return
		}
		conditions := of
		if phase == "context" {
			conditions = append(of[:len(of):len(of)], is("step", 0))
		}
		series := t.pick(conditions...)
		founds[i] = found{Table: t.Name, Version: t.Version}
		if like := slices.Clone(conditions); len(series) == 0 {
			like[1] = named("gemm_type", bf16)
			series = t.pick(like...)
			founds[i] = founds[i].as("%s, from bfloat16", dtype)
		}
		if len(series) == 0 {
			b.fails(b.g.missing(t, conditions...))
			return
		}
		grids[i], founds[i].Kernel = t.gridOf(series, "batch_size")
		if name == "dsa" || !strings.HasPrefix(b.g.Hardware, "B200") {
			founds[i].Note = cmp.Or(founds[i].Note, "launch-bound")
			b.s.Unjudged = append(b.s.Unjudged, t.Name+" is launch-bound")
		}
	}
	for i := range grids[0].rows {
		grids[0].rows[i] = grids[0].rows[i].envelope()
	}
	latent := 1e6 * float64(x.KVRank+x.Rope) * b.m.KVBytes / b.g.Bandwidth
	launch, one := attended(grids[0].slice(1), 0, func(context float64) float64 { return context * latent })
	b.prefill(name+"_prefill", shape, dtype, times, launch, founds[0], one)
	b.add(Operator{Name: name + "_decode", Count: times, Shape: shape, DType: dtype, found: founds[1], depends: onDecodes,
		us: func(in *state) float64 { return grids[1].at(in.decodes, in.context) }})
}

// farCached is up to how many cached tokens the rows of DeepSeek-V4's chunks hold chunks of all sizes.
const farCached = 4096

// compressed adds DeepSeek-V4's attention with its projections, by rows of DeepSeek-V4-Flash and -Pro.
func (b *binder) compressed(x *model.Mixer, times float64) {
	name := "dsv4_hca"
	dtype := b.dtypes(&x.Linears[0].Quant)[0]
	if x.Ratio == 4 {
		name = "dsv4_csa"
	}
	of := []where{is("num_heads", x.Heads/b.tp), is("tp_size", b.tp)} // -Flash has 64 heads, -Pro 128
	if b.m.Hidden != map[int64]int64{64: 4096, 128: 7168}[x.Heads] {
		of = append(of, is("hidden_size", b.m.Hidden))
	}
	var tables [2]*Table
	var series [2][]*Series
	var f [2]found
	for i, phase := range []string{"_context_module", "_generation_module"} {
		t, err := b.g.need(name + phase)
		if b.fails(err) {
			return
		}
		if tables[i], series[i] = t, t.pick(of...); len(series[i]) == 0 {
			b.fails(b.g.missing(t, of...))
			return
		}
		f[i] = found{Table: t.Name, Version: t.Version, Kernel: t.Columns[t.Column("kernel_source")].Words[0], Note: "launch-bound"}
		if x.Ratio == 0 {
			f[i] = f[i].as("a window alone, from entries of 128 tokens")
		} else if dtype != fp8Block || b.cacheType() != fp8 {
			f[i] = f[i].as("%s with a %s cache, from fp8_block with fp8", dtype, b.cacheType())
		}
	}
	step := tables[0].Column("step")
	batch := tables[0].Column("batch_size")
	one := stat.Filter(series[0], func(s *Series) bool { return s.Key[batch] == 1 })
	near, _ := tables[0].gridOf(stat.Filter(one, func(s *Series) bool { return s.Key[step] <= farCached }), "step")
	for i := range near.rows {
		near.rows[i] = near.rows[i].envelope()
	}
	slope := 0.0 // us per token and cached token beyond
	for _, s := range one {
		if n, far := float64(s.X[0]), float64(s.Key[step]-farCached); far > 0 && n == 32768 {
			slope = max(0, Us(s.Q[0])-near.at(farCached, n)) / (far * n)
		}
	}
	shape := fmt.Sprintf("%d heads of %d, window %d, ratio %d", x.Heads/b.tp, x.DimK, x.Window, x.Ratio)
	b.prefill(name+"_prefill", shape, dtype, times, near.rows[0].y[0], f[0], func(n, v float64) float64 {
		return near.at(min(v, farCached), n) + slope*n*max(0, v-farCached)
	})
	decode, _ := tables[1].gridOf(series[1], "batch_size")
	b.add(Operator{Name: name + "_decode", Count: times, Shape: shape, DType: dtype, found: f[1], depends: onDecodes,
		us: func(in *state) float64 { return decode.at(in.decodes, in.context) }})
	b.s.Unjudged = stat.AppendNew(b.s.Unjudged, "DeepSeek-V4's attention is launch-bound in its rows")
}

// connections are DeepSeek-V4's hyper-connections around mixers and ffns: a row holds both of a layer.
func (b *binder) connections(layers float64) {
	t, err := b.g.need("mhc_module")
	if b.fails(err) {
		return
	}
	for _, op := range []string{"pre", "post"} {
		of := []where{named("op_name", op), is("hidden_size", b.m.Hidden)}
		series := t.pick(of...)
		if len(series) == 0 {
			b.fails(b.g.missing(t, of...))
			return
		}
		c, kernel := t.curveOf(series)
		c = c.envelope()
		b.add(Operator{Name: "mhc_" + op, Count: layers, Shape: fmt.Sprintf("4 streams of %d, two sites", b.m.Hidden), DType: bf16,
			found: found{Table: t.Name, Kernel: kernel, Version: t.Version}, us: func(in *state) float64 { return c.at(in.run, 1) }})
	}
}

// delta adds the convolution and the recurrence of a gated delta rule: the kernels of each phase add up.
func (b *binder) delta(x *model.Mixer, times float64) {
	t, err := b.g.need(x.Form)
	if b.fails(err) {
		return
	}
	of := []where{is("num_k_heads", max(1, x.KVHeads/b.tp)), is("num_v_heads", max(1, x.Heads/b.tp)), is("d_model", b.m.Hidden)}
	b.s.Unjudged = append(b.s.Unjudged, x.Form+" layers were compared with no server")
	shape := fmt.Sprintf("%d key heads, %d value heads", max(1, x.KVHeads/b.tp), max(1, x.Heads/b.tp))
	for _, phase := range []string{"context", "generation"} {
		series := t.pick(append(of[:3:3], named("phase", phase))...)
		if len(series) == 0 {
			b.fails(b.g.missing(t, append(of, named("phase", phase))...))
			return
		}
		at := t.Column("kernel_source")
		kernels := map[int64][]*Series{}
		for _, s := range series {
			kernels[s.Key[at]] = append(kernels[s.Key[at]], s)
		}
		for _, k := range distinct(t.values(series, "kernel_source")) {
			name := t.Columns[at].Words[k]
			if phase == "generation" && strings.Contains(name, "fused_recurrent_kda") && !strings.Contains(name, "packed") {
				continue // of versions before
			}
			f := found{Table: t.Name, Kernel: name, Version: t.Version}
			g, _ := t.gridOf(kernels[k], "batch_size")
			op := Operator{Name: x.Form + "_" + phase, Count: times, Shape: shape, DType: bf16, found: f, depends: onDecodes,
				us: func(in *state) float64 { return g.slice(in.decodes).y[0] }}
			if phase == "context" {
				c := g.slice(1)
				b.prefill(op.Name, shape, bf16, times, c.y[0], f, func(n, _ float64) float64 { return c.at(n, 1) })
				continue
			}
			b.add(op)
		}
	}
}

// recurrence adds a state space, of which no table has rows, by what it moves: each request's state, and what goes in and out of a token.
func (b *binder) recurrence(x *model.Mixer, times float64) {
	b.s.Unjudged = append(b.s.Unjudged, string(x.Kind)+" layers are in no table")
	perRequest := 2 * x.RecurrentBytes(float64(b.tp)) * b.usByte
	b.add(Operator{Name: "state", Count: times, Shape: fmt.Sprintf("%d heads of %d, state %d", x.Heads, x.DimV, x.StateSize),
		found: found{Reached: Analytic}, depends: onSequences,
		us: func(in *state) float64 { return in.sequences*perRequest + launchUs }})
	b.moved("scan", times, float64(4*x.Heads*x.DimV/b.tp)*b.m.DTypeBytes)
}

// sharedStreamTokens is up to how many tokens vLLM runs shared experts in a stream of their own, beside the routed ones
// (vllm/envs.py: VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD).
const sharedStreamTokens = 256

func isShared(l model.Linear) bool { return strings.Contains(l.Name, "shared_expert") }

// ffn adds a dense MLP or routed experts.
func (b *binder) ffn(x *model.FFN, times float64) {
	b.linears(slices.DeleteFunc(slices.Clone(x.Linears), isShared), 0, times)
	first := len(b.s.Operators)
	b.linears(slices.DeleteFunc(slices.Clone(x.Linears), func(l model.Linear) bool { return !isShared(l) }), 0, times)
	for i := range b.s.Operators[first:] {
		op := &b.s.Operators[first+i]
		alone := op.us
		op.Note, op.us = cmp.Or(op.Note, "beside the routed experts up to 256 tokens"), func(in *state) float64 {
			if in.run <= sharedStreamTokens {
				return 0
			}
			return alone(in)
		}
	}
	act := func(width int64) {
		if width > 0 {
			b.moved("activation", times, float64(max(2, x.Projections)*width/b.tp)*b.m.DTypeBytes)
		}
	}
	if x.Kind != model.Experts {
		if x.Kind == model.Dense {
			act(x.Width)
		}
		return
	}
	act(x.SharedWidth)
	act(x.BesideWidth)
	gpus := b.tp * b.ranks
	s := shape{hidden: b.m.Hidden, inter: x.Width, topK: x.TopK, experts: x.Experts, tp: gpus, ep: 1, load: b.o.Load, raw: b.o.RawExperts}
	if x.Latent > 0 {
		s.hidden = x.Latent
	}
	s.backend = backendOf(b.d)
	if b.d.Engine.ExpertParallel {
		s.tp, s.ep = 1, gpus
	}
	for i := range x.Linears {
		if x.Linears[i].Placement == model.ByExpert {
			s.dtypes = b.dtypes(&x.Linears[i].Quant)
		}
	}
	c, f, err := b.g.experts(s)
	if b.fails(err) {
		return
	}
	b.moved("routing", times, float64(4*x.Experts)+2*float64(s.hidden)*b.m.DTypeBytes)
	b.add(Operator{Name: "experts", Count: times, Shape: fmt.Sprintf("%d of %d experts, %d x %d, tp %d, ep %d, %s", x.TopK, x.Experts,
		s.hidden, x.Width, s.tp, s.ep, s.load), DType: s.dtypes[0], Kind: Experts, found: f,
		us: func(in *state) float64 { return c.at(in.routed, 1) }})
	if b.ranks > 1 {
		b.exchange(&s, times)
	}
}

// exchangeTables are the kernels of an all-to-all back end that hand tokens to their experts and back.
var exchangeTables = map[string]string{"deepep_low_latency": "wideep_deepep_ll", "deepep_high_throughput": "wideep_deepep_normal"}

// exchangeSMs is how many multiprocessors the exchange of long batches takes (deep_ep.Buffer.num_sms).
const exchangeSMs = 20

// exchange adds what ranks send each other around the experts: by default every rank gathers all tokens and reduces its own.
func (b *binder) exchange(s *shape, times float64) {
	backend, _ := b.d.Engine.Extra["all2all_backend"].(string)
	table := exchangeTables[backend]
	for _, how := range [][2]string{{"all_gather", "dispatch"}, {"reduce_scatter", "combine"}} {
		op := Operator{Name: how[1], Count: times, Kind: Collective}
		if table == "" {
			c, f, err := b.g.collective("nccl", "nccl_dtype", "op_name", how[0], b.ranks)
			if b.fails(err) {
				return
			}
			bytes := float64(s.hidden) * b.m.DTypeBytes
			if backend != "" && backend != "allgather_reducescatter" && backend != "naive" {
				f.Reached = Substituted
				f.Note = backend + " is in no table"
			}
			op.Shape = fmt.Sprintf("%s of %.0f B per token over %d ranks", how[0], bytes, b.ranks)
			op.found = f
			op.us = func(in *state) float64 { return c.at(in.all*bytes, 1) }
		} else {
			t, err := b.g.need(table + "_" + how[1])
			if b.fails(err) {
				return
			}
			of := []where{is("node_num", 1), is("hidden_size", s.hidden), is("num_topk", s.topK), is("num_experts", s.experts)}
			if t.Column("dispatch_sms") >= 0 {
				of = append(of, is("dispatch_sms", exchangeSMs), is("combine_sms", exchangeSMs))
			}
			series := t.pick(of...)
			if len(series) == 0 {
				b.fails(b.g.missing(t, of...))
				return
			}
			c, kernel := t.curveOf(series)
			op.Shape = fmt.Sprintf("%s over %d ranks", backend, b.ranks)
			op.found = found{Table: t.Name, Kernel: kernel, Version: t.Version, Note: "measured within one node"}
			op.us = func(in *state) float64 { return c.at(in.run, 1) }
		}
		b.add(op)
	}
}

// head adds the head over the sampled sequences, the logits' gather and sampling.
func (b *binder) head() {
	vocab := (b.m.Vocab + 63) / 64 * 64
	n := (vocab + b.tp - 1) / b.tp
	dtype := b.dtypes(&b.m.Head.Quant)[0]
	c, f, err := b.g.gemm(dtype, n, b.m.Hidden)
	if b.fails(err) {
		return
	}
	b.add(Operator{Name: "lm_head", Count: 1, Shape: fmt.Sprintf("n %d, k %d", n, b.m.Hidden), DType: dtype, found: f,
		depends: onSequences, us: func(in *state) float64 { return c.at(in.sequences, 1) }})
	if b.tp > 1 {
		gather, f, err := b.g.collective("nccl", "nccl_dtype", "op_name", "all_gather", b.tp)
		if b.fails(err) {
			return
		}
		bytes := float64(b.m.Vocab) * b.m.DTypeBytes
		b.add(Operator{Name: "logits_gather", Count: 1, Shape: fmt.Sprintf("%.0f B per sequence", bytes), Kind: Collective, found: f,
			depends: onSequences, us: func(in *state) float64 { return gather.at(in.sequences*bytes, 1) }})
	}
	perSequence := 2 * 4 * float64(b.m.Vocab) * b.usByte
	b.add(Operator{Name: "sampling", Count: 1, Shape: "two passes over the logits", found: found{Reached: Analytic}, depends: onSequences,
		us: func(in *state) float64 { return in.sequences*perSequence + samplingUs }})
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// customMaxBytes is the size from which vLLM's custom all-reduce kernel is not used any more, whatever the GPU
// (vllm/distributed/device_communicators/custom_all_reduce.py, max_size: inputs must be smaller than 8 MiB).
const customMaxBytes = 8 * mib

// reduceLimits are vLLM's sizes by compute capability x 10 and number of GPUs (vllm/distributed/device_communicators/
// all_reduce_utils.py, commit 00d618aa: CUSTOM_ALL_REDUCE_MAX_SIZES and SYMM_MEM_ALL_REDUCE_MAX_SIZES): the custom kernel below the
// first, symmetric memory up to the second, NCCL above. Capabilities that are not here have no symmetric memory.
var reduceLimits = map[int64]map[int64][2]float64{
	90:  {2: {64 * mib, 64 * mib}, 4: {32 * mib, 32 * mib}, 6: {512 * kib, 64 * mib}, 8: {256 * kib, 64 * mib}},
	100: {2: {2 * mib, 8 * mib}, 4: {2 * mib, 32 * mib}, 6: {mib, 128 * mib}, 8: {mib, 128 * mib}},
	103: {2: {4 * mib, 4 * mib}, 4: {4 * mib, 32 * mib}, 6: {8 * mib, 32 * mib}, 8: {4 * mib, 64 * mib}},
}

// symmetricSince is the first vLLM release that reduces over symmetric memory by default (VLLM_ALLREDUCE_USE_SYMM_MEM;
// vllm-project/vllm pull requests 20759, 24111 and 24696).
var symmetricSince = [2]int{0, 11}

// allReduce adds what the GPUs of a group sum. The published table of vLLM's all-reduce was measured through the engine's own
// dispatch (its collector calls tensor_model_parallel_all_reduce: collector/network/collect_all_reduce.py of AIConfigurator), so
// that it holds whichever way the engine takes up to the largest size of symmetric memory; above that size NCCL's own table does.
func (b *binder) allReduce(name string, times, bytesPerToken float64, activations bool) {
	if b.tp == 1 {
		return
	}
	graph, f, err := b.g.collective("custom_allreduce", "allreduce_dtype", "backend", "vllm_graph", b.tp)
	eager, _, errEager := b.g.collective("custom_allreduce", "allreduce_dtype", "backend", "vllm_eager", b.tp)
	nccl, between, errNCCL := b.g.collective("nccl", "nccl_dtype", "op_name", "all_reduce", b.tp)
	if b.fails(cmp.Or(err, errEager, errNCCL)) {
		return
	}
	if f.Reached == Substituted { // the engine's own kernels serve one node
		graph = nccl
		eager = nccl
		f = between
	}
	limits, ok := reduceLimits[b.g.SM][b.tp]
	most := float64(customMaxBytes)
	if ok && b.d.Engine.IsSince(symmetricSince) {
		most = max(limits[0], limits[1])
		f.Note = cmp.Or(f.Note, fmt.Sprintf("symmetric memory above %.0f KiB: the lesser of its table and NCCL", limits[0]/kib))
	}
	one := func(in *state) float64 {
		bytes := in.run * bytesPerToken
		c := &eager
		if in.captured {
			c = &graph
		}
		if bytes >= most {
			return nccl.at(bytes, 1)
		}
		if us := c.at(bytes, 1); !ok || bytes <= limits[0] {
			return us
		}
		return min(c.at(bytes, 1), nccl.at(bytes, 1))
	}
	op := Operator{Name: name, Count: times, Shape: fmt.Sprintf("%.0f B per token over %d GPUs", bytesPerToken, b.tp), Kind: Collective,
		found: f, us: one}
	if fused, fusedMost := b.d.FusedAllReduce(); activations && fused != nil { // all but the embedding's, with the norms in them
		op.Count, op.Note = 1, "fused with the norms up to "+fmt.Sprintf("%.0f MiB", fusedMost/mib)
		op.us = func(in *state) float64 {
			if bytes := in.run * bytesPerToken; bytes <= fusedMost {
				return one(in) + (times-1)*fused.Us(bytes)
			}
			return times * one(in)
		}
	}
	b.add(op)
}
