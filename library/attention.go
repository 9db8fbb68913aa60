package library

// This file looks up the times of attention kernels by heads, width, window and cache type.

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

// attention returns the grid of times over requests and tokens for the heads h, from the attention table of
// that name. B requests of Hq query and Hkv KV heads take as long as B*r requests of Hq/r and Hkv/r heads; r is
// the ratio that is returned, by which the caller multiplies its requests. So a table that stops at 8 KV heads, or
// lacks their number, serves multiples. Between measured numbers of query heads with equal KV heads times are linear.
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

// attentionRows is attention from the rows of the table, without the memory of earlier look-ups.
func (g *GPU) attentionRows(name string, h heads) (grid, float64, found, error) {
	t, err := g.needTable(name)
	if err != nil {
		return grid{}, 0, found{}, err
	}
	source := found{Table: name, Version: t.Version}
	conditions := []where{hasWord("kv_cache_dtype", h.kvDType), equals("head_dim", h.dim), equals("window_size", h.window)}
	series := t.pickSeries(conditions...)
	if len(series) == 0 {
		return g.likeAttention(t, h)
	}
	// From the largest number of KV heads down: the first that divides the wanted one serves, at ratio
	// times the batch.
	kvCounts := t.values(series, "num_key_value_heads")
	for at := len(kvCounts) - 1; at >= 0; at-- {
		kvHeads := kvCounts[at]
		if h.kvHeads%kvHeads != 0 || h.query%(h.kvHeads/kvHeads) != 0 {
			continue
		}
		ratio := h.kvHeads / kvHeads
		sameKV := t.pickSeries(also(conditions, equals("num_key_value_heads", kvHeads))...)
		query := h.query / ratio // heads to look up
		fewer, more, share, scale := between(t.values(sameKV, "num_heads"), query)
		// Fewer query heads than any row has cannot be derived. More than any row has are scaled, but only if
		// no smaller number of KV heads, for which fewer query heads are looked up, is left to try.
		if query < fewer || scale > 1 && at > 0 {
			continue
		}
		pick := func(queryHeads int64) grid {
			series := t.pickSeries(also(conditions, equals("num_key_value_heads", kvHeads), equals("num_heads", queryHeads))...)
			times, kernel := t.gridOf(series, "batch_size")
			source.Kernel = kernel
			return times
		}
		out := pick(fewer)
		if share > 0 {
			out = mixGrids(out, pick(more), float64(query-fewer)/float64(more-fewer))
			source.Reached = Interpolated
		}
		if scale > 1 {
			source.Reached = Substituted
			source.Note = fmt.Sprintf("%d query heads, scaled from %d", query, fewer)
			for i := range out.rows {
				out.rows[i] = out.rows[i].scaled(scale)
			}
		}
		return out, float64(ratio), source, nil
	}
	return grid{}, 0, source, g.missingRows(t, append(conditions, equals("num_heads", h.query), equals("num_key_value_heads", h.kvHeads))...)
}

// likeAttention returns the grid for a window, a head width or a cache dtype that a table lacks,
// derived from full attention, from the next wider head, or from a bfloat16 cache. It changes one
// property and looks up again, which changes the next one if that is missing too.
func (g *GPU) likeAttention(t *Table, h heads) (out grid, ratio float64, source found, err error) {
	like := h
	note := ""
	dims := t.values(t.pickSeries(hasWord("kv_cache_dtype", h.kvDType), equals("window_size", 0)), "head_dim")
	i, isMeasured := slices.BinarySearch(dims, h.dim)
	switch {
	case len(dims) == 0 && h.kvDType != bf16:
		like.kvDType = bf16
		note = "a bfloat16 cache"
	case len(dims) == 0 || h.window == 0 && isMeasured:
		return grid{}, 0, source, g.missingRows(t, hasWord("kv_cache_dtype", h.kvDType), equals("head_dim", h.dim), equals("window_size", h.window))
	case h.window > 0:
		like.window = 0
		note = "full attention"
	default:
		like.dim = dims[min(i, len(dims)-1)]
		note = fmt.Sprintf("heads of %d", like.dim)
	}
	out, ratio, source, err = g.attention(t.Name, like)
	out.rows = slices.Clone(out.rows) // those of the look-up are shared
	// Wider heads take longer in proportion. A window saves the pairs outside it in prefill, and the
	// entries outside it in decodes.
	for i, row := range out.rows {
		out.rows[i] = row.scaled(max(1, float64(h.dim)/float64(like.dim)))
		if like.window == h.window {
			continue
		}
		window := float64(h.window)
		out.rows[i] = curveOver(row.x, func(x float64) float64 {
			if strings.HasPrefix(t.Name, "context") { // a prompt of x tokens; otherwise decodes behind x tokens
				return max(row.y[0], row.usAt(x, 2)*pairs(0, x, window)/pairs(0, x, 0))
			}
			return row.usAt(min(x, window), 1)
		})
	}
	return out, ratio, source.substituted("heads of %d, window %d, %s cache, from %s", h.dim, h.window, h.kvDType, note), err
}

// mixGrids returns (1-w) a + w b at the points that both have.
func mixGrids(a, b grid, w float64) grid {
	out := grid{byRequests: a.byRequests}
	for i, x := range a.x {
		j, ok := slices.BinarySearch(b.x, x)
		if !ok {
			continue
		}
		c := curve{}
		for k, y := range a.rows[i].x {
			if inB, ok := slices.BinarySearch(b.rows[j].x, y); ok {
				c.x = append(c.x, y)
				c.y = append(c.y, (1-w)*a.rows[i].y[k]+w*b.rows[j].y[inB])
			}
		}
		if len(c.x) > 0 {
			out.x = append(out.x, x)
			out.rows = append(out.rows, c)
		}
	}
	return out
}
