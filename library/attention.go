package library

import (
	"fmt"
	"slices"
	"strings"
)

// heads describes the attention heads of one GPU.
type heads struct {
	kvDType string // of the cache
	dim     int64
	window  int64 // tokens; 0: full attention
	query   int64
	kvHeads int64
}

// attention returns the grid over requests and tokens for these heads, from an attention table. B
// requests of Hq query and Hkv KV heads take as long as B*r requests of Hq/r and Hkv/r heads; r is
// the ratio that is returned. So a table that stops at 8 KV heads, or lacks their number, serves
// multiples. Between measured numbers of query heads with equal KV heads times are linear.
func (g *GPU) attention(name string, h heads) (grid, float64, found, error) {
	type key struct {
		name string
		h    heads
	}
	l := g.lookedUp(key{name, h}, func() (l lookup) {
		l.grid, l.ratio, l.found, l.err = g.attentionRows(name, h)
		return l
	})
	return l.grid, l.ratio, l.found, l.err
}

func (g *GPU) attentionRows(name string, h heads) (grid, float64, found, error) {
	t, err := g.needTable(name)
	if err != nil {
		return grid{}, 0, found{}, err
	}
	f := found{Table: name, Version: t.Version}
	of := []where{hasWord("kv_cache_dtype", h.kvDType), equals("head_dim", h.dim), equals("window_size", h.window)}
	all := t.pickSeries(of...)
	if len(all) == 0 {
		return g.likeAttention(t, h)
	}
	kvs := t.values(all, "num_key_value_heads")
	for i := len(kvs) - 1; i >= 0; i-- {
		kv := kvs[i]
		if h.kvHeads%kv != 0 || h.query%(h.kvHeads/kv) != 0 {
			continue
		}
		r := h.kvHeads / kv
		same := t.pickSeries(append(of[:3:3], equals("num_key_value_heads", kv))...)
		n0, n1, w, scale := between(t.values(same, "num_heads"), h.query/r)
		if h.query/r < n0 || scale > 1 && i > 0 {
			continue
		}
		pick := func(n int64) grid {
			c, kernel := t.gridOf(t.pickSeries(append(of[:3:3], equals("num_key_value_heads", kv), equals("num_heads", n))...), "batch_size")
			f.Kernel = kernel
			return c
		}
		out := pick(n0)
		if w > 0 {
			out = mixGrids(out, pick(n1), float64(h.query/r-n0)/float64(n1-n0))
			f.Reached = Interpolated
		}
		if scale > 1 {
			f.Reached = Substituted
			f.Note = fmt.Sprintf("%d query heads, scaled from %d", h.query/r, n0)
			for i := range out.rows {
				out.rows[i] = out.rows[i].scaled(scale)
			}
		}
		return out, float64(r), f, nil
	}
	return grid{}, 0, f, g.missingRows(t, append(of, equals("num_heads", h.query), equals("num_key_value_heads", h.kvHeads))...)
}

// likeAttention returns the grid for a window, a head width or a cache dtype that a table lacks,
// derived from full attention, from the next wider head, or from a bfloat16 cache.
func (g *GPU) likeAttention(t *Table, h heads) (out grid, ratio float64, f found, err error) {
	like := h
	note := ""
	dims := t.values(t.pickSeries(hasWord("kv_cache_dtype", h.kvDType), equals("window_size", 0)), "head_dim")
	i, isMeasured := slices.BinarySearch(dims, h.dim)
	switch {
	case len(dims) == 0 && h.kvDType != bf16:
		like.kvDType = bf16
		note = "a bfloat16 cache"
	case len(dims) == 0 || h.window == 0 && isMeasured:
		return grid{}, 0, f, g.missingRows(t, hasWord("kv_cache_dtype", h.kvDType), equals("head_dim", h.dim), equals("window_size", h.window))
	case h.window > 0:
		like.window = 0
		note = "full attention"
	default:
		like.dim = dims[min(i, len(dims)-1)]
		note = fmt.Sprintf("heads of %d", like.dim)
	}
	out, ratio, f, err = g.attention(t.Name, like)
	out.rows = slices.Clone(out.rows)
	for i, c := range out.rows {
		out.rows[i] = c.scaled(max(1, float64(h.dim)/float64(like.dim)))
		if like.window == h.window {
			continue
		}
		w := float64(h.window)
		out.rows[i] = curveOver(c.x, func(x float64) float64 {
			if strings.HasPrefix(t.Name, "context") {
				return max(c.y[0], c.usAt(x, 2)*pairs(0, x, w)/pairs(0, x, 0))
			}
			return c.usAt(min(x, w), 1)
		})
	}
	return out, ratio, f.substituted("heads of %d, window %d, %s cache, from %s", h.dim, h.window, h.kvDType, note), err
}

// mixGrids returns (1-w) a + w b at the points that both have.
func mixGrids(a, b grid, w float64) grid {
	out := grid{}
	for i, x := range a.x {
		j, ok := slices.BinarySearch(b.x, x)
		if !ok {
			continue
		}
		c := curve{}
		for k, y := range a.rows[i].x {
			if l, ok := slices.BinarySearch(b.rows[j].x, y); ok {
				c.x = append(c.x, y)
				c.y = append(c.y, (1-w)*a.rows[i].y[k]+w*b.rows[j].y[l])
			}
		}
		if len(c.x) > 0 {
			out.x = append(out.x, x)
			out.rows = append(out.rows, c)
		}
	}
	return out
}
