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

// addMixer adds the operators of a mixer that a number of layers, times, have. Latent and sparse attention (x.Index) have
// rows that include the projections; of other mixers these are linear layers of their own.
func (b *binder) addMixer(x *model.Mixer, times float64) {
	switch x.Kind {
	case model.GQA:
		if x.Index != nil {
			b.addModule("msa", x, times)
			return
		}
		b.addLinears(x.Linears, x.KVHeads, times)
		b.addAttention(x, times)
	case model.MLA:
		if x.Index != nil {
			b.addModule("dsa", x, times)
			return
		}
		b.addModule("mla", x, times)
	case model.Compressed:
		b.addCompressed(x, times)
	case model.Delta:
		b.addLinears(x.Linears, x.KVHeads, times)
		b.addDelta(x, times)
	case model.Mamba1, model.Mamba2, model.Lightning:
		b.addLinears(x.Linears, x.KVHeads, times)
		b.addRecurrence(x, times)
	case model.LinearOnly:
		b.addLinears(x.Linears, x.KVHeads, times)
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
	// read returns the time of reading a context's keys and values from memory, which the KV cache of many layers
	// takes at least: a repeated measurement of one layer may find them in the GPU's cache.
	perToken := 1e6 * float64(onGPU.kvHeads*(x.DimK+x.DimV)) * b.m.KVBytes / b.g.Bandwidth
	read := func(context float64) float64 {
		if x.Window > 0 {
			context = min(context, float64(x.Window))
		}
		return context * perToken
	}
	launch, one := chunkTimes(prefill.curveAt(ratio), x.Window, read)
	op := Operator{Name: "attention_prefill", Count: times, Shape: shape, DType: onGPU.kvDType, found: source}
	b.addPrefill(op, launch, one)
	decode, ratio, source, err := b.g.attention("generation_attention", onGPU)
	if b.fails(err) {
		return
	}
	whole := b.g.wholeSequences(&onGPU, &decode, ratio, source.Kernel)
	if x.Sink {
		source.Note = strings.TrimPrefix(source.Note+"; attention sinks are in no table", "; ")
	}
	b.addOperator(Operator{
		Name:    "attention_decode",
		Count:   times,
		Shape:   shape,
		DType:   onGPU.kvDType,
		found:   source,
		depends: onDecodes,
		us: func(in *state) float64 {
			us := max(in.decodes*read(in.context), decode.usAt(in.decodes*ratio, in.context))
			if whole != nil {
				us = max(us, whole.leastUs(in))
			}
			return us
		},
	})
	queries := float64(onGPU.query * x.DimK) // values of a token
	keys := float64(onGPU.kvHeads * x.DimK)
	b.addMoved("rope", times, 2*(queries+keys)*b.m.DTypeBytes) // read and written
	b.addMoved("kv_write", times, float64(onGPU.kvHeads*(x.DimK+x.DimV))*(b.m.DTypeBytes+b.m.KVBytes))
	if b.d.Model.ModelType == "minimax_m2" {
		// Queries and keys are normalised over all heads of all GPUs (vllm/model_executor/layers/mamba/linear_attn.py:
		// MiniMaxText01RMSNormTP.forward_qk()): two casts, from 2 bytes a value to float32 and back, and an all-reduce
		// of two float32 variances a token.
		b.addMoved("qk_norm_cast", 2*times, (queries+keys)*(2+4))
		if b.tp > 1 {
			b.addAllReduce("qk_norm_reduce", times, 2*4, false)
		}
	}
}

// addPrefill adds op, attention of prompt chunks; one(n, v) is the time in us of a chunk of n tokens behind v
// cached ones, of which launch is the fixed part. All chunks of a step are taken to be as long as the mean
// one. vLLM passes them to one variable-length kernel, so launch counts only once.
func (b *binder) addPrefill(op Operator, launch float64, one func(n, v float64) float64) {
	op.depends = onPrefills
	op.us = func(in *state) float64 {
		us := one(in.chunk, in.cached)
		return us + (in.prefills-1)*max(0, us-launch)
	}
	b.addOperator(op)
}

// chunkTimes returns a function of the time of a chunk of n tokens behind v cached ones, derived
// from that of whole prompts, c, by the number of query and key pairs; the time is at least that of
// reading the cache. launch is the time of the shortest prompt.
func chunkTimes(c curve, window int64, read func(context float64) float64) (launch float64, one func(n, v float64) float64) {
	one = func(n, v float64) float64 {
		us := c.usAt(n, 2)
		if v > 0 {
			wholePrompt := c.usAt(v+n, 2)
			ofPairs := pairs(v, n, float64(window)) / pairs(0, v+n, float64(window))
			us = max(us, read(v+n), wholePrompt*ofPairs)
		}
		return us
	}
	return c.y[0], one
}

// pairs returns the number of query and key pairs of n tokens behind v cached ones, where each
// attends to the last window tokens (0: to all).
func pairs(v, n, window float64) float64 {
	full := n*v + n*(n+1)/2
	switch {
	case window == 0 || v+n <= window:
		return full
	case v >= window: // every token sees exactly the window
		return n * window
	}
	// The first untilFull tokens see all before them, the rest exactly the window.
	untilFull := window - v
	return untilFull*v + untilFull*(untilFull+1)/2 + (n-untilFull)*window
}

// addModule adds attention whose rows include the projections, from the tables NAME_context_module
// and NAME_generation_module: mla (latent), dsa (latent, DeepSeek's sparse) or msa (grouped heads, sparse).
func (b *binder) addModule(name string, x *model.Mixer, times float64) {
	q := model.Quant{} // of the output projection, taken for all projections
	for i := range x.Linears {
		if x.Linears[i].Placement == model.ShardedIn {
			q = x.Linears[i].Quant
		}
	}
	dtype := b.dtypes(&q)[0]
	gemmType := hasWord("gemm_type", dtype)
	of := []where{hasWord("kv_cache_dtype", b.cacheType()), gemmType, equals("num_heads", x.Heads/b.tp)}
	if name == "dsa" { // the two models that were measured differ in the width of a head without its positional part
		measured := "deepseek-ai/DeepSeek-V3.2"
		if x.DimK-x.Rope == 192 {
			measured = "zai-org/GLM-5"
		}
		of = append(of, hasWord("model", measured))
	}
	// The rows of mla have no column for the latent widths: all are of DeepSeek-V3's.
	if want := [3]int64{512, 64, 192}; name == "mla" && [3]int64{x.KVRank, x.Rope, x.DimK} != want {
		b.fails(trace.Errorf(NoRows, "%s, table mla_context_module: kv_lora_rank, qk_rope_head_dim, head width: got %d, %d, %d, want %v: "+
			"those of DeepSeek-V3", b.g.Hardware, x.KVRank, x.Rope, x.DimK, want))
		return
	}
	shape := fmt.Sprintf("%d heads, latent %d", x.Heads/b.tp, x.KVRank)
	// One table for each phase, prompts and decodes; rows of bfloat16 serve where the dtype has none.
	var grids [2]grid
	var founds [2]found
	for i, phase := range []string{"context", "generation"} {
		t, err := b.g.needTable(name + "_" + phase + "_module")
		if b.fails(err) {
			return
		}
		conditions := of
		if phase == "context" {
			conditions = also(of, equals("step", 0)) // nothing cached
		}
		series := t.pickSeries(conditions...)
		founds[i] = found{Table: t.Name, Version: t.Version}
		if len(series) == 0 {
			like := slices.Clone(conditions)
			like[slices.IndexFunc(like, func(w where) bool { return w.column == gemmType.column })] = hasWord(gemmType.column, bf16)
			series = t.pickSeries(like...)
			founds[i] = founds[i].substituted("%s, from bfloat16", dtype)
		}
		if len(series) == 0 {
			b.fails(b.g.missingRows(t, conditions...))
			return
		}
		grids[i], founds[i].Kernel = t.gridOf(series, "batch_size")
		// These rows, except those of B200 without sparse attention, timed the launches of the module's many kernels.
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
	op := Operator{Name: name + "_prefill", Count: times, Shape: shape, DType: dtype, found: founds[0]}
	b.addPrefill(op, launch, one)
	b.addOperator(Operator{
		Name:    name + "_decode",
		Count:   times,
		Shape:   shape,
		DType:   dtype,
		found:   founds[1],
		depends: onDecodes,
		us:      func(in *state) float64 { return grids[1].usAt(in.decodes, in.context) },
	})
}

// farCached is the number of cached tokens up to which DeepSeek-V4's rows have chunks of all sizes.
const farCached = 4096

// addCompressed adds DeepSeek-V4's attention with its projections, from the rows of
// DeepSeek-V4-Flash (64 heads) and -Pro (128 heads). Its layers are of two kinds, by how many tokens an
// entry of the cache has: compressed sparse attention (csa, 4 tokens) and heavily compressed attention
// (hca, 128).
func (b *binder) addCompressed(x *model.Mixer, times float64) {
	name := "dsv4_hca"
	if x.Ratio == 4 {
		name = "dsv4_csa"
	}
	dtype := b.dtypes(&x.Linears[0].Quant)[0]
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
		if far > 0 && n == 32768 { // the largest chunk; series are by ascending step, and the last one counts
			slope = max(0, Us(s.Q[0])-near.usAt(farCached, n)) / (far * n)
		}
	}
	shape := fmt.Sprintf("%d heads of %d, window %d, ratio %d", x.Heads/b.tp, x.DimK, x.Window, x.Ratio)
	op := Operator{Name: name + "_prefill", Count: times, Shape: shape, DType: dtype, found: founds[0]}
	b.addPrefill(op, near.rows[0].y[0], func(n, v float64) float64 {
		return near.usAt(min(v, farCached), n) + slope*n*max(0, v-farCached)
	})
	decode, _ := tables[1].gridOf(series[1], "batch_size")
	b.addOperator(Operator{
		Name:    name + "_decode",
		Count:   times,
		Shape:   shape,
		DType:   dtype,
		found:   founds[1],
		depends: onDecodes,
		us:      func(in *state) float64 { return decode.usAt(in.decodes, in.context) },
	})
	b.addUnjudged("DeepSeek-V4's attention is launch-bound in its rows")
}

// addConnections adds DeepSeek-V4's hyper-connections, which mix four streams of hidden states before
// (pre) and after (post) each mixer and FFN. A row has the time of both sites of a layer together.
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
		b.addOperator(Operator{
			Name:  "mhc_" + op,
			Count: layers,
			Shape: fmt.Sprintf("4 streams of %d, two sites", b.m.Hidden),
			DType: bf16,
			found: found{Table: t.Name, Kernel: kernel, Version: t.Version},
			us:    func(in *state) float64 { return c.usAt(in.run, 1) },
		})
	}
}

// addDelta adds the convolution and the recurrence of a gated delta rule (gdn or kda, a table each): one
// operator for each kernel of each phase, so that their times add up.
func (b *binder) addDelta(x *model.Mixer, times float64) {
	t, err := b.g.needTable(x.Form)
	if b.fails(err) {
		return
	}
	keyHeads := max(1, x.KVHeads/b.tp)
	valueHeads := max(1, x.Heads/b.tp)
	b.s.Unjudged = append(b.s.Unjudged, x.Form+" layers were compared with no server")
	shape := fmt.Sprintf("%d key heads, %d value heads", keyHeads, valueHeads)
	for _, phase := range []string{"context", "generation"} {
		conditions := []where{equals("num_k_heads", keyHeads), equals("num_v_heads", valueHeads), equals("d_model", b.m.Hidden), hasWord("phase", phase)}
		series := t.pickSeries(conditions...)
		if len(series) == 0 {
			b.fails(b.g.missingRows(t, conditions...))
			return
		}
		at := t.Column("kernel_source")
		byKernel := map[int64][]*Series{}
		for _, s := range series {
			byKernel[s.Key[at]] = append(byKernel[s.Key[at]], s)
		}
		for _, k := range t.values(series, "kernel_source") {
			kernel := t.Columns[at].Words[k]
			if phase == "generation" && strings.Contains(kernel, "fused_recurrent_kda") && !strings.Contains(kernel, "packed") {
				continue // a kernel that later releases replaced by the packed one
			}
			name := x.Form + "_" + phase
			source := found{Table: t.Name, Kernel: kernel, Version: t.Version}
			phaseTimes, _ := t.gridOf(byKernel[k], "batch_size")
			if phase == "context" {
				alone := phaseTimes.curveAt(1)
				op := Operator{Name: name, Count: times, Shape: shape, DType: bf16, found: source}
				b.addPrefill(op, alone.y[0], func(n, _ float64) float64 { return alone.usAt(n, 1) })
				continue
			}
			b.addOperator(Operator{
				Name:    name,
				Count:   times,
				Shape:   shape,
				DType:   bf16,
				found:   source,
				depends: onDecodes,
				// A recurrence takes as long behind any context: the rows have one length.
				us: func(in *state) float64 { return phaseTimes.curveAt(in.decodes).y[0] },
			})
		}
	}
}

// addRecurrence adds a state space, for which no table has rows, by the bytes it moves: the state
// of each request, and the inputs and outputs of a token.
func (b *binder) addRecurrence(x *model.Mixer, times float64) {
	b.s.Unjudged = append(b.s.Unjudged, string(x.Kind)+" layers are in no table")
	perRequest := 2 * x.RecurrentBytes(float64(b.tp)) * b.usByte // read and written
	b.addOperator(Operator{
		Name:    "state",
		Count:   times,
		Shape:   fmt.Sprintf("%d heads of %d, state %d", x.Heads, x.DimV, x.StateSize),
		found:   found{Reached: Analytic},
		depends: onSequences,
		us:      func(in *state) float64 { return in.sequences*perRequest + launchUs },
	})
	b.addMoved("scan", times, float64(4*x.Heads*x.DimV/b.tp)*b.m.DTypeBytes)
}
