package library

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// attention binds the two attention tables.
func (b *binder) attention() error {
	kv := bf16
	if b.m.BytesPerKV == 1 {
		kv = fp8
	}
	key := attentionKey{kv, b.m.HeadDim, b.m.NumHeads / b.tp, max(1, b.m.NumKVHeads/b.tp)}
	ctx, ratio, err := b.t.heads(b.t.context, contextFile, key)
	if err != nil {
		return err
	}
	b.s.context = ctx.slice(ratio)
	gen, ratio, err := b.t.heads(b.t.generation, generationFile, key)
	if err != nil {
		return err
	}
	b.s.generation, b.s.generationRatio = *gen, ratio
	if b.s.rules == Engine { // nor the KV cache of many layers
		perToken := 1e3 * 2 * float64(key.kvHeads*key.headDim) * b.m.BytesPerKV / (ratio * b.t.bandwidth)
		b.s.generation.rows = slices.Clone(gen.rows)
		for i, requests := range gen.x {
			b.s.generation.rows[i] = gen.rows[i].atLeast(func(context float64) float64 { return requests * context * perToken })
		}
	}
	return nil
}

// slice is the curve at one value of the grid's first size.
func (g *grid) slice(x float64) curve {
	var ys []float64
	for i := range g.rows {
		ys = append(ys, g.rows[i].x...)
	}
	ys = distinct(ys)
	out := curve{x: ys, y: make([]float64, len(ys))}
	for i, y := range ys {
		out.y[i] = g.at(x, y)
	}
	return out
}

// heads finds the grid of heads per GPU. B requests of Hq query and Hkv KV
// heads are B r requests of Hq/r and Hkv/r, so a table that stops at 8 KV heads
// or lacks their number serves multiples; between measured numbers of query
// heads of equal KV heads times are linear.
func (t *Tables) heads(table map[attentionKey]*grid, file string, key attentionKey) (*grid, float64, error) {
	var dtypes []string
	var sizes, kvs []int64
	for k := range table {
		dtypes = append(dtypes, k.kvDType)
		if k.kvDType == key.kvDType {
			sizes = append(sizes, k.headDim)
		}
		if k.kvDType == key.kvDType && k.headDim == key.headDim {
			kvs = append(kvs, k.kvHeads)
		}
	}
	if len(sizes) == 0 {
		return nil, 0, t.noDType(file, "kv_cache_dtype", key.kvDType, dtypes)
	}
	if len(kvs) == 0 {
		return nil, 0, trace.Errorf(noRows, "%s: head_dim: got no %d, want one of %v", t.paths[file], key.headDim, distinct(sizes))
	}
	kvs = distinct(kvs)
	for i := len(kvs) - 1; i >= 0; i-- {
		if kv := kvs[i]; key.kvHeads%kv == 0 && key.heads%(key.kvHeads/kv) == 0 {
			r := key.kvHeads / kv
			if g := t.queryHeads(table, attentionKey{key.kvDType, key.headDim, key.heads / r, kv}); g != nil {
				return g, float64(r), nil
			}
		}
	}
	return nil, 0, trace.Errorf(noRows, "%s: head_dim %d: got no rows for %d query and %d KV heads per GPU, nearest %s",
		t.paths[file], key.headDim, key.heads, key.kvHeads, nearestHeads(table, key))
}

// queryHeads is the grid of the key, or one linear between its neighbours with
// the same KV heads; nil beyond them.
func (t *Tables) queryHeads(table map[attentionKey]*grid, key attentionKey) *grid {
	if g := table[key]; g != nil {
		return g
	}
	var hs []int64
	for k := range table {
		if k.kvDType == key.kvDType && k.headDim == key.headDim && k.kvHeads == key.kvHeads {
			hs = append(hs, k.heads)
		}
	}
	hs = distinct(hs)
	i, _ := slices.BinarySearch(hs, key.heads)
	if i == 0 || i == len(hs) {
		return nil
	}
	lo, hi := key, key
	lo.heads, hi.heads = hs[i-1], hs[i]
	w := float64(key.heads-lo.heads) / float64(hi.heads-lo.heads)
	return mixGrids(table[lo], table[hi], w)
}

// mixGrids is (1-w) a + w b on the points both have.
func mixGrids(a, b *grid, w float64) *grid {
	out := &grid{}
	for i, x := range a.x {
		j, ok := slices.BinarySearch(b.x, x)
		if !ok {
			continue
		}
		c := curve{}
		for k, y := range a.rows[i].x {
			if l, ok := slices.BinarySearch(b.rows[j].x, y); ok {
				c.x, c.y = append(c.x, y), append(c.y, float64((1-w)*a.rows[i].y[k])+float64(w*b.rows[j].y[l]))
			}
		}
		if len(c.x) > 0 {
			out.x, out.rows = append(out.x, x), append(out.rows, c)
		}
	}
	return out
}

func nearestHeads(table map[attentionKey]*grid, key attentionKey) string {
	best, text := math.Inf(1), ""
	for k := range table {
		if k.kvDType != key.kvDType || k.headDim != key.headDim {
			continue
		}
		d := math.Abs(stat.Log(float64(k.heads)/float64(key.heads))) + math.Abs(stat.Log(float64(k.kvHeads)/float64(key.kvHeads)))
		s := fmt.Sprintf("%d and %d", k.heads, k.kvHeads)
		if d < best || d == best && s < text {
			best, text = d, s
		}
	}
	return text
}

// prefillMs is the attention of one chunk of c tokens behind v cached ones, in
// one layer. Tables without rows for cached tokens give the whole prompt's time
// times the chunk's share of its pairs. An engine hands all chunks of a step to
// one variable-length kernel, so that only the first pays the launch: the
// table's time of a single token.
func (s *Stepper) prefillMs(c, v float64, first bool) float64 {
	end := v + c
	ms := s.context.at(end, 2)
	if v > 0 {
		ms *= (float64(end*end) - float64(v*v)) / (end * end)
	}
	if s.rules == Engine && !first {
		ms = max(0, ms-s.context.y[0])
	}
	return ms
}

// experts binds the fused experts.
func (b *binder) experts() error {
	if b.moeLayers() == 0 {
		return nil
	}
	m := b.m
	want := moeKey{weightDType(m), m.HiddenSize, m.MoEIntermediateSize, m.TopK, m.NumExperts, b.tp, 1, distribution}
	if c := b.t.moe[want]; c != nil {
		b.s.linear = append(b.s.linear, linearPart{experts, float64(b.moeLayers()), *b.s.rules.clean(c)})
		return nil
	}
	return b.t.noExperts(want)
}

func (t *Tables) noExperts(want moeKey) error {
	path := t.paths[moeFile]
	if path == "" {
		return trace.Errorf(noRows, "%s: GPU %s: got no %s, want it for a mixture of experts", t.dir, t.GPU, moeFile)
	}
	var dtypes, distributions []string
	var tps []int64
	best, nearest := math.Inf(1), moeKey{}
	for k := range t.moe {
		dtypes = append(dtypes, k.dtype)
		shape := want
		shape.tp, shape.distribution = k.tp, k.distribution
		if k == shape {
			tps = append(tps, k.tp)
			if k.tp == want.tp {
				distributions = append(distributions, k.distribution)
			}
		}
		if k.dtype != want.dtype {
			continue
		}
		if d := k.distance(want); d < best || d == best && k.text() < nearest.text() {
			best, nearest = d, k
		}
	}
	switch {
	case !slices.Contains(dtypes, want.dtype):
		return t.noDType(moeFile, "moe_dtype", want.dtype, dtypes)
	case len(distributions) > 0:
		return trace.Errorf(noRows, "%s: %s: got no distribution %q, want %s", path, want.text(), want.distribution,
			trace.OneOf(distinct(distributions)))
	case len(tps) > 0:
		return trace.Errorf(noRows, "%s: moe_tp_size: got no %d for %s, want one of %v", path, want.tp, want.text(), distinct(tps))
	}
	return trace.Errorf(noRows, "%s: got no rows for %s, nearest %s", path, want.text(), nearest.text())
}

func (k moeKey) text() string {
	return fmt.Sprintf("hidden_size %d, inter_size %d, topk %d of %d experts", k.hidden, k.inter, k.topK, k.experts)
}

func (k moeKey) distance(o moeKey) float64 {
	sum := 0.0
	for _, p := range [][2]int64{{k.hidden, o.hidden}, {k.inter, o.inter}, {k.topK, o.topK}, {k.experts, o.experts}, {k.tp, o.tp},
		{k.ep, o.ep}} {
		sum += math.Abs(stat.Log(float64(p[0]) / float64(max(1, p[1]))))
	}
	return sum
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// customMaxBytes is the size from which vLLM's custom all-reduce kernel is not
// used any more, whatever the GPU (vllm/distributed/device_communicators/
// custom_all_reduce.py, max_size: inputs must be smaller than 8 MiB).
const customMaxBytes = 8 * mib

// reduceLimits are vLLM's sizes by compute capability x 10 and number of GPUs
// (vllm/distributed/device_communicators/all_reduce_utils.py, commit 00d618aa:
// CUSTOM_ALL_REDUCE_MAX_SIZES and SYMM_MEM_ALL_REDUCE_MAX_SIZES): the custom
// kernel below the first, symmetric memory up to the second, NCCL above.
// Capabilities that are not here have no symmetric memory.
var reduceLimits = map[int64]map[int64][2]float64{
	90:  {2: {64 * mib, 64 * mib}, 4: {32 * mib, 32 * mib}, 6: {512 * kib, 64 * mib}, 8: {256 * kib, 64 * mib}},
	100: {2: {2 * mib, 8 * mib}, 4: {2 * mib, 32 * mib}, 6: {mib, 128 * mib}, 8: {mib, 128 * mib}},
	103: {2: {4 * mib, 4 * mib}, 4: {4 * mib, 32 * mib}, 6: {8 * mib, 32 * mib}, 8: {4 * mib, 64 * mib}},
}

// symmetricSince is the first vLLM release that reduces over symmetric memory
// by default (VLLM_ALLREDUCE_USE_SYMM_MEM; vllm-project/vllm pull requests
// 20759, 24111 and 24696).
var symmetricSince = [2]int{0, 11}

// Ways a tensor is reduced over the GPUs of a group.
const (
	wayCustom    = "custom kernel"
	waySymmetric = "symmetric memory"
	wayNCCL      = "NCCL"
)

// way is how vLLM reduces a tensor of the given size.
func way(capability, gpus int64, bytes float64, symmetric bool) string {
	limits, ok := reduceLimits[capability][gpus]
	custom := float64(customMaxBytes)
	if ok && symmetric {
		custom = min(custom, limits[0])
	}
	switch {
	case bytes < custom:
		return wayCustom
	case ok && symmetric && bytes <= limits[1]:
		return waySymmetric
	}
	return wayNCCL
}

// collectives binds what the GPUs of a group exchange.
func (b *binder) collectives() error {
	if b.tp == 1 {
		return nil
	}
	b.s.reductions = float64(2 * b.m.NumLayers)
	if b.s.rules == Engine {
		b.s.reductions++ // the embedding's
		b.s.fused, b.s.fusedMax = b.d.FusedAllReduce()
	}
	for _, c := range []struct {
		to    *curve
		table map[reduceKey]*curve
		file  string
		how   string
	}{
		{&b.s.graph, b.t.allReduce, allReduceFile, graph}, {&b.s.eager, b.t.allReduce, allReduceFile, eager},
		{&b.s.ncclReduce, b.t.nccl, ncclFile, allReduce}, {&b.s.gather, b.t.nccl, ncclFile, allGather},
	} {
		found := c.table[reduceKey{c.how, b.tp}]
		if found == nil {
			var have []int64
			for k := range c.table {
				if k.how == c.how {
					have = append(have, k.gpus)
				}
			}
			return trace.Errorf(noRows, "%s: %s, num_gpus: got no %d, want one of %v", b.t.paths[c.file], c.how, b.tp, distinct(have))
		}
		*c.to = *b.s.rules.clean(found)
	}
	return nil
}

// hasSymmetricMemory reports whether the engine's release reduces over
// symmetric memory by default.
func hasSymmetricMemory(e *deploy.Engine) bool {
	v, ok := e.Release()
	return !ok || v[0] > symmetricSince[0] || v[0] == symmetricSince[0] && v[1] >= symmetricSince[1]
}

// collectives adds what the GPUs of the group exchange.
func (s *Stepper) collectives(p *parts, tokens, seqs float64, captured bool) {
	if s.tp == 1 {
		return
	}
	bytes, one := tokens*s.hiddenBytes, s.reduceMs(tokens, captured)
	p[AllReduce] = s.reductions * one
	if s.fused != nil && bytes <= s.fusedMax { // all but the embedding's, with the norms in them
		p[AllReduce], p[norm] = one+(s.reductions-1)*s.fused.Us(bytes)/1e3, 0
	}
	if s.rules == Engine {
		p[logitsGather] = s.gather.at(seqs*s.vocabBytes, 1)
	}
}

// reduceMs is one all-reduce of the activations of so many tokens. The
// published table of vLLM's all-reduce was measured through the engine's own
// dispatch (its collector calls tensor_model_parallel_all_reduce:
// collector/network/collect_all_reduce.py of AIConfigurator), so that it holds
// whichever way the engine takes at a size; what the engine hands to NCCL is
// in NCCL's own table.
func (s *Stepper) reduceMs(tokens float64, captured bool) float64 {
	bytes := tokens * s.hiddenBytes
	switch {
	case s.rules == Composed || s.Way(tokens) != wayNCCL && captured:
		return s.graph.at(bytes, 1)
	case s.Way(tokens) == wayNCCL:
		return s.ncclReduce.at(bytes, 1)
	}
	return s.eager.at(bytes, 1)
}

// Way is how the engine reduces the activations of so many tokens.
func (s *Stepper) Way(tokens float64) string {
	return way(s.capability, s.tp, tokens*s.hiddenBytes, s.symmetric)
}
