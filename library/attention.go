package library

import (
	"fmt"
	"math"
	"slices"

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
