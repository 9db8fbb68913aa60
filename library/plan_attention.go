package library

// This file adds the operators of a layer's mixer to a plan: attention of every kind, recurrences, and
// the kernels around them.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
)

// addMixer adds the operators of a mixer.
func (b *binder) addMixer(x *model.Mixer, times float64) {
	module := map[model.MixerKind]string{model.GQA: "msa", model.MLA: "dsa"}[x.Kind]
	rest, ok := map[model.MixerKind]func(x *model.Mixer, times float64){model.GQA: b.addAttention, model.Delta: b.addDelta,
		model.LinearOnly: func(*model.Mixer, float64) {}, model.Mamba1: b.addRecurrence, model.Mamba2: b.addRecurrence,
		model.Lightning: b.addRecurrence}[x.Kind]
	switch {
	case x.Index != nil && module != "":
		b.addModule(module, x, times)
	case x.Kind == model.MLA:
		b.addModule("mla", x, times)
	case x.Kind == model.Compressed:
		b.addCompressed(x, times)
	case ok:
		b.addLinears(x.Linears, x.KVHeads, times)
		rest(x, times)
	default:
		b.fails(trace.Errorf(NoRows, "%s: got no table of a %s layer, want one of attention, mla, dsa, msa, gdn, kda", b.g.Hardware, x.Kind).
			WithHint("simulate with --latency-model roofline"))
	}
}

// cacheType returns the tables' name of the KV cache's dtype.
func (b *binder) cacheType() string {
	if b.m.KVBytes <= 1 {
		return fp8
	}
	return bf16
}

// addAttention adds attention with grouped heads: prefill, decode, rotary embedding and cache writes.
func (b *binder) addAttention(x *model.Mixer, times float64) {
	onGPU := heads{kvDType: b.cacheType(), dim: x.DimK, window: x.Window, query: x.Heads / b.tp, kvHeads: max(1, x.KVHeads/b.tp)}
	shape := fmt.Sprintf("%d heads of %d, %d kv", onGPU.query, onGPU.dim, onGPU.kvHeads)
	if x.Window > 0 {
		shape += fmt.Sprintf(", window %d", x.Window)
	}
	prefill, ratio, source, err := b.g.attention("context_attention", onGPU)
	if b.fails(err) {
		return
	}
	perToken := 1e6 * float64(onGPU.kvHeads*(x.DimK+x.DimV)) * b.m.KVBytes / b.g.Bandwidth
	read := func(context float64) float64 { // the KV cache of many layers is read from memory
		if x.Window > 0 {
			context = min(context, float64(x.Window))
		}
		return context * perToken
	}
	launch, one := chunkTimes(prefill.curveAt(ratio), x.Window, read)
	b.addPrefill("attention_prefill", shape, onGPU.kvDType, times, launch, source, one)
	decode, ratio, source, err := b.g.attention("generation_attention", onGPU)
	if b.fails(err) {
		return
	}
	whole := b.g.wholeSequences(&onGPU, &decode, ratio, source.Kernel)
	if x.Sink {
		source.Note = strings.TrimPrefix(source.Note+"; attention sinks are in no table", "; ")
	}
	b.addOperator(Operator{Name: "attention_decode", Count: times, Shape: shape, DType: onGPU.kvDType, found: source, depends: onDecodes,
		us: func(in *state) float64 {
			us := max(in.decodes*read(in.context), decode.usAt(in.decodes*ratio, in.context))
			if whole != nil {
				us = max(us, whole.leastUs(in))
			}
			return us
		}})
	q := float64(onGPU.query * x.DimK)
	kv := float64(onGPU.kvHeads * x.DimK)
	b.addMoved("rope", times, 2*(q+kv)*b.m.DTypeBytes)
	b.addMoved("kv_write", times, float64(onGPU.kvHeads*(x.DimK+x.DimV))*(b.m.DTypeBytes+b.m.KVBytes))
	if b.d.Model.ModelType == "minimax_m2" { // Q and K are normalised over all heads of all GPUs, in fp32
		b.addMoved("qk_norm_cast", 2*times, 2*(q+kv)*3)
		if b.tp > 1 {
			b.addAllReduce("qk_norm_reduce", times, 8, false)
		}
	}
}

// addPrefill adds attention of prompt chunks; one(n, v) is the time of a chunk of n tokens behind v
// cached ones. vLLM passes all chunks of a step to one variable-length kernel, so launch, the fixed
// part of that time, counts only once.
func (b *binder) addPrefill(name, shape, dtype string, times, launch float64, f found, one func(n, v float64) float64) {
	b.addOperator(Operator{
		Name: name, Count: times, Shape: shape, DType: dtype, found: f, depends: onPrefills,
		us: func(in *state) float64 {
			us := one(in.chunk, in.cached)
			return us + (in.prefills-1)*max(0, us-launch)
		},
	})
}

// chunkTimes returns a function of the time of a chunk of n tokens behind v cached ones, derived
// from that of whole prompts, c, by the number of query and key pairs; the time is at least that of
// reading the cache. launch is the time of the shortest prompt.
func chunkTimes(c curve, window int64, read func(context float64) float64) (launch float64, one func(n, v float64) float64) {
	return c.y[0], func(n, v float64) float64 {
		us := c.usAt(n, 2)
		if v > 0 {
			us = max(us, read(v+n), c.usAt(v+n, 2)*pairs(v, n, float64(window))/pairs(0, v+n, float64(window)))
		}
		return us
	}
}

// pairs returns the number of query and key pairs of n tokens behind v cached ones, where each
// attends to the last window tokens (0: to all).
func pairs(v, n, window float64) float64 {
	full := n*v + n*(n+1)/2
	switch {
	case window == 0 || v+n <= window:
		return full
	case v >= window:
		return n * window
	}
	// The first untilFull tokens see all before them, the rest exactly the window.
	untilFull := window - v
	return untilFull*v + untilFull*(untilFull+1)/2 + (n-untilFull)*window
}

// addModule adds attention whose rows include the projections, from the tables NAME_context_module
// and NAME_generation_module.
func (b *binder) addModule(name string, x *model.Mixer, times float64) {
	q := model.Quant{}
	for i := range x.Linears {
		if x.Linears[i].Placement == model.ShardedIn {
			q = x.Linears[i].Quant
		}
	}
	dtype := b.dtypes(&q)[0]
	of := []where{hasWord("kv_cache_dtype", b.cacheType()), hasWord("gemm_type", dtype), equals("num_heads", x.Heads/b.tp)}
	if name == "dsa" {
		measured := "deepseek-ai/DeepSeek-V3.2"
		if x.DimK-x.Rope == 192 {
			measured = "zai-org/GLM-5"
		}
		of = append(of, hasWord("model", measured))
	}
	if want := [3]int64{512, 64, 192}; name == "mla" && [3]int64{x.KVRank, x.Rope, x.DimK} != want {
		b.fails(trace.Errorf(NoRows, "%s, table mla_context_module: kv_lora_rank, qk_rope_head_dim, head width: got %d, %d, %d, want %v: "+
			"those of DeepSeek-V3", b.g.Hardware, x.KVRank, x.Rope, x.DimK, want))
		return
	}
	shape := fmt.Sprintf("%d heads, latent %d", x.Heads/b.tp, x.KVRank)
	var grids [2]grid
	var founds [2]found
	// One table for each phase; rows of bfloat16 serve where the dtype has none.
	for i, phase := range []string{"context", "generation"} {
		t, err := b.g.needTable(name + "_" + phase + "_module")
		if b.fails(err) {
			return
		}
		conditions := of
		if phase == "context" {
			conditions = append(of[:len(of):len(of)], equals("step", 0))
		}
		series := t.pickSeries(conditions...)
		founds[i] = found{Table: t.Name, Version: t.Version}
		if len(series) == 0 {
			like := slices.Clone(conditions)
			like[1] = hasWord("gemm_type", bf16)
			series = t.pickSeries(like...)
			founds[i] = founds[i].substituted("%s, from bfloat16", dtype)
		}
		if len(series) == 0 {
			b.fails(b.g.missingRows(t, conditions...))
			return
		}
		grids[i], founds[i].Kernel = t.gridOf(series, "batch_size")
		if name == "dsa" || !strings.HasPrefix(b.g.Hardware, "B200") {
			founds[i].Note = cmp.Or(founds[i].Note, "launch-bound")
			founds[i].rank = max(founds[i].rank, ofOther)
			b.s.Unjudged = append(b.s.Unjudged, t.Name+" is launch-bound")
		}
	}
	for i := range grids[0].rows {
		grids[0].rows[i] = grids[0].rows[i].envelope()
	}
	// Reading the latent cache bounds a chunk from below.
	latent := 1e6 * float64(x.KVRank+x.Rope) * b.m.KVBytes / b.g.Bandwidth
	launch, one := chunkTimes(grids[0].curveAt(1), 0, func(context float64) float64 { return context * latent })
	b.addPrefill(name+"_prefill", shape, dtype, times, launch, founds[0], one)
	b.addOperator(Operator{Name: name + "_decode", Count: times, Shape: shape, DType: dtype, found: founds[1], depends: onDecodes,
		us: func(in *state) float64 { return grids[1].usAt(in.decodes, in.context) }})
}

// farCached is the number of cached tokens up to which DeepSeek-V4's rows have chunks of all sizes.
const farCached = 4096

// addCompressed adds DeepSeek-V4's attention with its projections, from the rows of
// DeepSeek-V4-Flash (64 heads) and -Pro (128 heads).
func (b *binder) addCompressed(x *model.Mixer, times float64) {
	name := "dsv4_hca"
	dtype := b.dtypes(&x.Linears[0].Quant)[0]
	if x.Ratio == 4 {
		name = "dsv4_csa"
	}
	conditions := []where{equals("num_heads", x.Heads/b.tp), equals("tp_size", b.tp)}
	isFlash := x.Heads == 64 && b.m.Hidden == 4096
	isPro := x.Heads == 128 && b.m.Hidden == 7168
	if !isFlash && !isPro {
		conditions = append(conditions, equals("hidden_size", b.m.Hidden)) // of which there are no rows: the error names it
	}
	var tables [2]*Table
	var series [2][]*Series
	var founds [2]found
	for i, phase := range []string{"_context_module", "_generation_module"} {
		t, err := b.g.needTable(name + phase)
		if b.fails(err) {
			return
		}
		tables[i] = t
		series[i] = t.pickSeries(conditions...)
		if len(series[i]) == 0 {
			b.fails(b.g.missingRows(t, conditions...))
			return
		}
		founds[i] = found{Table: t.Name, Version: t.Version, Kernel: t.Columns[t.Column("kernel_source")].Words[0], Note: "launch-bound"}
		if x.Ratio == 0 {
			founds[i] = founds[i].substituted("a window alone, from entries of 128 tokens")
		} else if dtype != fp8Block || b.cacheType() != fp8 {
			founds[i] = founds[i].substituted("%s with a %s cache, from fp8_block with fp8", dtype, b.cacheType())
		}
	}
	// Rows of prefill are by tokens before the chunk (step). Up to farCached they form a grid; beyond
	// it the time grows linearly, by the slope of the largest chunks.
	step := tables[0].Column("step")
	batch := tables[0].Column("batch_size")
	var alone, within []*Series // chunks alone in their step; of them those behind up to farCached tokens
	for _, s := range series[0] {
		if s.Key[batch] != 1 {
			continue
		}
		alone = append(alone, s)
		if s.Key[step] <= farCached {
			within = append(within, s)
		}
	}
	near, _ := tables[0].gridOf(within, "step")
	for i := range near.rows {
		near.rows[i] = near.rows[i].envelope()
	}
	slope := 0.0 // us per token and cached token beyond farCached
	for _, s := range alone {
		n := float64(s.X[0])
		far := float64(s.Key[step] - farCached)
		if far > 0 && n == 32768 {
			slope = max(0, Us(s.Q[0])-near.usAt(farCached, n)) / (far * n)
		}
	}
	shape := fmt.Sprintf("%d heads of %d, window %d, ratio %d", x.Heads/b.tp, x.DimK, x.Window, x.Ratio)
	b.addPrefill(name+"_prefill", shape, dtype, times, near.rows[0].y[0], founds[0], func(n, v float64) float64 {
		return near.usAt(min(v, farCached), n) + slope*n*max(0, v-farCached)
	})
	decode, _ := tables[1].gridOf(series[1], "batch_size")
	b.addOperator(Operator{Name: name + "_decode", Count: times, Shape: shape, DType: dtype, found: founds[1], depends: onDecodes,
		us: func(in *state) float64 { return decode.usAt(in.decodes, in.context) }})
	b.addUnjudged("DeepSeek-V4's attention is launch-bound in its rows")
}

// addConnections adds DeepSeek-V4's hyper-connections around mixers and FFNs. A row has the time of
// both in a layer.
func (b *binder) addConnections(layers float64) {
	t, err := b.g.needTable("mhc_module")
	if b.fails(err) {
		return
	}
	for _, op := range []string{"pre", "post"} {
		of := []where{hasWord("op_name", op), equals("hidden_size", b.m.Hidden)}
		series := t.pickSeries(of...)
		if len(series) == 0 {
			b.fails(b.g.missingRows(t, of...))
			return
		}
		c, kernel := t.curveOf(series)
		c = c.envelope()
		b.addOperator(Operator{Name: "mhc_" + op, Count: layers, Shape: fmt.Sprintf("4 streams of %d, two sites", b.m.Hidden), DType: bf16,
			found: found{Table: t.Name, Kernel: kernel, Version: t.Version}, us: func(in *state) float64 { return c.usAt(in.run, 1) }})
	}
}

// addDelta adds the convolution and the recurrence of a gated delta rule. The times of the kernels
// of a phase add up.
func (b *binder) addDelta(x *model.Mixer, times float64) {
	t, err := b.g.needTable(x.Form)
	if b.fails(err) {
		return
	}
	conditions := []where{equals("num_k_heads", max(1, x.KVHeads/b.tp)), equals("num_v_heads", max(1, x.Heads/b.tp)), equals("d_model", b.m.Hidden)}
	b.s.Unjudged = append(b.s.Unjudged, x.Form+" layers were compared with no server")
	shape := fmt.Sprintf("%d key heads, %d value heads", max(1, x.KVHeads/b.tp), max(1, x.Heads/b.tp))
	for _, phase := range []string{"context", "generation"} {
		series := t.pickSeries(append(conditions[:3:3], hasWord("phase", phase))...)
		if len(series) == 0 {
			b.fails(b.g.missingRows(t, append(conditions, hasWord("phase", phase))...))
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
				continue // a kernel that later releases replaced by the packed one
			}
			f := found{Table: t.Name, Kernel: name, Version: t.Version}
			g, _ := t.gridOf(kernels[k], "batch_size")
			op := Operator{Name: x.Form + "_" + phase, Count: times, Shape: shape, DType: bf16, found: f, depends: onDecodes,
				us: func(in *state) float64 { return g.curveAt(in.decodes).y[0] }}
			if phase == "context" {
				alone := g.curveAt(1)
				b.addPrefill(op.Name, shape, bf16, times, alone.y[0], f, func(n, _ float64) float64 { return alone.usAt(n, 1) })
				continue
			}
			b.addOperator(op)
		}
	}
}

// addRecurrence adds a state space, for which no table has rows, by the bytes it moves: the state
// of each request, and the inputs and outputs of a token.
func (b *binder) addRecurrence(x *model.Mixer, times float64) {
	b.s.Unjudged = append(b.s.Unjudged, string(x.Kind)+" layers are in no table")
	perRequest := 2 * x.RecurrentBytes(float64(b.tp)) * b.usByte
	b.addOperator(Operator{Name: "state", Count: times, Shape: fmt.Sprintf("%d heads of %d, state %d", x.Heads, x.DimV, x.StateSize),
		found: found{Reached: Analytic}, depends: onSequences,
		us: func(in *state) float64 { return in.sequences*perRequest + launchUs }})
	b.addMoved("scan", times, float64(4*x.Heads*x.DimV/b.tp)*b.m.DTypeBytes)
}
