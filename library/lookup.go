package library

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Reached is how a time was found.
type Reached uint8

// From the surest on.
const (
	Measured     Reached = iota // the table has the shape
	Interpolated                // between measured shapes
	Beyond                      // past the largest measured shape, in proportion
	Substituted                 // another row, scaled
	Analytic                    // in no table: bytes and launches
)

// String is the word in tables.
func (r Reached) String() string {
	return [...]string{"measured", "interpolated", "beyond", "substituted", "analytic"}[r]
}

// found is a curve or a grid and where it is from.
type found struct {
	Table, Kernel, Version string
	Reached                Reached
	Note                   string
	unlike                 bool // the rows are of another kernel: no judgement covers it
}

// where is one condition on a column of a table: a value, a word, or any of some words.
type where struct {
	column string
	value  int64
	words  []string
}

func is(column string, value int64) where        { return where{column: column, value: value} }
func named(column string, words ...string) where { return where{column: column, words: words} }
func (w where) text() string {
	if w.words != nil {
		return w.column + " " + strings.Join(w.words, " or ")
	}
	return fmt.Sprintf("%s %d", w.column, w.value)
}

// pick are the series whose keys meet all conditions. A column that the table lacks is met by 0.
func (t *Table) pick(conditions ...where) []*Series {
	type check struct {
		at     int
		values []int64
	}
	var checks []check
	for _, w := range conditions {
		at := t.Column(w.column)
		if at < 0 {
			if w.words == nil && w.value != 0 {
				return nil
			}
			continue
		}
		values := []int64{w.value}
		if w.words != nil {
			values = stat.Map(w.words, t.Columns[at].Word)
		}
		checks = append(checks, check{at, values})
	}
	var out []*Series
next:
	for i := range t.Series {
		for _, c := range checks {
			if !slices.Contains(c.values, t.Series[i].Key[c.at]) {
				continue next
			}
		}
		out = append(out, &t.Series[i])
	}
	return out
}

// tornShare of the largest size of a table is where a series ends at least; one that ends before broke off as it was measured.
const tornShare = 1. / 16

// whole leaves out series that broke off: beyond them nothing grows in proportion.
func (t *Table) whole(series []*Series) []*Series {
	last := func(s *Series) int64 { return s.X[len(s.X)-1] }
	most := int64(0)
	for i := range t.Series {
		most = max(most, last(&t.Series[i]))
	}
	return stat.Filter(series, func(s *Series) bool { return float64(last(s)) >= tornShare*float64(most) })
}

// curveOf merges series into one curve and names its kernels.
func (t *Table) curveOf(series []*Series) (curve, string) {
	at := t.Column("kernel_source")
	var rows []row
	var kernels []string
	for _, s := range series {
		source := int64(0)
		if at >= 0 {
			source = s.Key[at]
			kernels = append(kernels, t.Columns[at].Words[source])
		}
		for j, x := range s.X {
			rows = append(rows, row{x, source, Us(s.Q[j])})
		}
	}
	return merged(rows), strings.Join(distinct(kernels), ", ")
}

// gridOf merges series into a grid over a column of the keys.
func (t *Table) gridOf(series []*Series, column string) (grid, string) {
	at := t.Column(column)
	by := map[int64][]*Series{}
	var xs []int64
	for _, s := range series {
		by[s.Key[at]] = append(by[s.Key[at]], s)
		xs = append(xs, s.Key[at])
	}
	g, names := grid{}, []string(nil)
	for _, x := range distinct(xs) {
		c, name := t.curveOf(by[x])
		g.x = append(g.x, float64(x))
		g.rows = append(g.rows, c)
		names = append(names, name)
	}
	return g, strings.Join(distinct(names), ", ")
}

// values are those of a column in series, sorted.
func (t *Table) values(series []*Series, column string) []int64 {
	at := t.Column(column)
	return distinct(stat.Map(series, func(s *Series) int64 { return s.Key[at] }))
}

// need is a table that must be there.
func (g *GPU) need(name string) (*Table, error) {
	t, err := g.Table(name)
	if t == nil && err == nil {
		err = trace.Errorf(NoRows, "%s: got no table %s, want it", g.Hardware, name)
	}
	return t, err
}

// missing says what a table lacks and which row is nearest: the series with the most conditions met, then the nearest values.
func (g *GPU) missing(t *Table, conditions ...where) error {
	best, nearest := math.Inf(1), ""
	for i := range t.Series {
		far, text := 0.0, []string(nil)
		for _, w := range conditions {
			at := t.Column(w.column)
			if at < 0 {
				continue
			}
			v := t.Series[i].Key[at]
			if words := t.Columns[at].Words; words != nil {
				if !slices.Contains(w.words, words[v]) {
					far += 10
				}
				text = append(text, w.column+" "+words[v])
				continue
			}
			far += math.Abs(math.Log(float64(1+v) / float64(1+w.value)))
			text = append(text, fmt.Sprintf("%s %d", w.column, v))
		}
		if far < best {
			best, nearest = far, strings.Join(text, ", ")
		}
	}
	want := stat.Map(conditions, where.text)
	return trace.Errorf(NoRows, "%s, table %s: got no rows of %s, nearest %s", g.Hardware, t.Name, strings.Join(want, ", "), nearest).
		WithHint("give tables of your own with --library FILE, or simulate with --latency-model roofline")
}

// DTypes in the tables.
const (
	bf16     = "bfloat16"
	fp8      = "fp8"
	fp8Block = "fp8_block"
	nvfp4    = "nvfp4"
)

// bytesOf is a weight's bytes.
func bytesOf(dtype string) float64 {
	switch dtype {
	case bf16:
		return 2
	case fp8, fp8Block, "int8", "int8_wo":
		return 1
	}
	return 0.5
}

// as says that rows of another kernel stand for what a table has none of.
func (f found) as(format string, args ...any) found {
	f.Reached, f.Note, f.unlike = Substituted, fmt.Sprintf(format, args...), true
	return f
}

// gemm is the curve of an n x k layer over tokens: log-log in n and k between measured columns, proportional beyond them.
// Weights are read from memory: a repeated measurement may find small ones in the cache, a step of many layers cannot.
func (g *GPU) gemm(dtype string, n, k int64) (curve, found, error) {
	t, err := g.need("gemm")
	if err != nil {
		return curve{}, found{}, err
	}
	all := t.pick(named("gemm_dtype", dtype))
	if len(all) == 0 {
		like := bf16
		if dtype == "int8" && len(t.pick(named("gemm_dtype", fp8))) > 0 {
			like = fp8
		}
		if like == dtype || dtype == bf16 {
			return curve{}, found{}, g.missing(t, named("gemm_dtype", dtype), is("n", n), is("k", k))
		}
		c, f, err := g.gemm(like, n, k)
		c = c.lighter(bytesOf(dtype)/bytesOf(like), func(float64) float64 { return 1 })
		return c, f.as("%s, from %s by the bytes of its weights", dtype, like), err
	}
	ns, ks := t.values(all, "n"), t.values(all, "k")
	n0, n1, tn, sn := between(ns, n)
	k0, k1, tk, sk := between(ks, k)
	f := found{Table: t.Name, Version: t.Version}
	var cs []curve
	var weights []float64
	for _, at := range []struct {
		n, k int64
		w    float64
	}{{n0, k0, (1 - tn) * (1 - tk)}, {n0, k1, (1 - tn) * tk}, {n1, k0, tn * (1 - tk)}, {n1, k1, tn * tk}} {
		if at.w == 0 {
			continue
		}
		series := t.pick(named("gemm_dtype", dtype), is("n", at.n), is("k", at.k))
		far := 1.0
		if len(series) == 0 { // the largest corner is not measured: proportional in k from the largest that is
			most := t.values(t.pick(named("gemm_dtype", dtype), is("n", at.n)), "k")
			i, _ := slices.BinarySearch(most, at.k)
			k := most[max(0, i-1)]
			series = t.pick(named("gemm_dtype", dtype), is("n", at.n), is("k", k))
			f.Reached = Beyond
			far = float64(at.k) / float64(k)
		}
		c, kernel := t.curveOf(series)
		cs = append(cs, c.envelope().scaled(far))
		weights = append(weights, at.w)
		f.Kernel = kernel
	}
	if len(cs) > 1 {
		f.Reached = max(f.Reached, Interpolated)
	}
	if sn*sk > 1 {
		f.Reached = Beyond
	}
	c := blend(cs, weights).scaled(sn * sk)
	if dtype != bf16 && dtype != fp8 && g.launchBound(t, dtype) {
		if other, _, err := g.gemm(fp8, n, k); err == nil {
			f.Note = "launch-bound: at most the fp8 row + 1 us"
			c = curve{c.x, stat.Map(c.x, func(x float64) float64 { return min(c.at(x, 1), other.at(x, 1)+1) })}
		}
	}
	us := 1e6 * float64(n*k) * bytesOf(dtype) / g.Bandwidth
	for i := range c.y {
		c.y[i] = max(c.y[i], us)
	}
	return c, f, nil
}

// launchBound reports whether a dtype's small layers take what the host takes to launch them, not what the kernel does.
func (g *GPU) launchBound(t *Table, dtype string) bool {
	typical := func(dtype string) float64 {
		var us []float64
		for _, s := range t.pick(named("gemm_dtype", dtype)) {
			if s.Key[t.Column("n")] > 1024 || s.Key[t.Column("k")] > 4096 {
				continue
			}
			for j, x := range s.X {
				if x <= 64 {
					us = append(us, Us(s.Q[j]))
				}
			}
		}
		return stat.Median(us)
	}
	return typical(dtype) > 5*typical(bf16)
}

// between finds the measured neighbours of v, v's place between them on a log scale and, beyond the largest, how much larger it is.
func between(sorted []int64, v int64) (lo, hi int64, t, scale float64) {
	i, exact := slices.BinarySearch(sorted, v)
	last := sorted[len(sorted)-1]
	switch {
	case exact:
		return v, v, 0, 1
	case i == 0:
		return sorted[0], sorted[0], 0, 1
	case i == len(sorted):
		return last, last, 0, float64(v) / float64(last)
	}
	lo, hi = sorted[i-1], sorted[i]
	return lo, hi, math.Log(float64(v)/float64(lo)) / math.Log(float64(hi)/float64(lo)), 1
}

// heads are what one GPU attends with.
type heads struct {
	kv                          string // dtype of the cache
	dim, window, query, kvHeads int64
}

// attention is the grid over requests and tokens of an attention table. B requests of Hq query and Hkv KV heads are B r requests
// of Hq/r and Hkv/r (ratio), so a table that stops at 8 KV heads or lacks their number serves multiples; between measured numbers
// of query heads of equal KV heads times are linear.
func (g *GPU) attention(name string, h heads) (grid, float64, found, error) {
	t, err := g.need(name)
	if err != nil {
		return grid{}, 0, found{}, err
	}
	f := found{Table: name, Version: t.Version}
	of := []where{named("kv_cache_dtype", h.kv), is("head_dim", h.dim), is("window_size", h.window)}
	all := t.pick(of...)
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
		same := t.pick(append(of[:3:3], is("num_key_value_heads", kv))...)
		n0, n1, w, scale := between(t.values(same, "num_heads"), h.query/r)
		if h.query/r < n0 || scale > 1 && i > 0 {
			continue
		}
		pick := func(n int64) grid {
			c, kernel := t.gridOf(t.pick(append(of[:3:3], is("num_key_value_heads", kv), is("num_heads", n))...), "batch_size")
			f.Kernel = kernel
			return c
		}
		out := pick(n0)
		if w > 0 {
			out = mixGrids(out, pick(n1), float64(h.query/r-n0)/float64(n1-n0))
			f.Reached = Interpolated
		}
		if scale > 1 {
			f.Reached, f.Note = Substituted, fmt.Sprintf("%d query heads, scaled from %d", h.query/r, n0)
			for i := range out.rows {
				out.rows[i] = out.rows[i].scaled(scale)
			}
		}
		return out, float64(r), f, nil
	}
	return grid{}, 0, f, g.missing(t, append(of, is("num_heads", h.query), is("num_key_value_heads", h.kvHeads))...)
}

// likeAttention is attention whose window, width or dtype of the cache a table has not: of full attention, of the next wider head, of a
// bfloat16 cache.
func (g *GPU) likeAttention(t *Table, h heads) (out grid, ratio float64, f found, err error) {
	like, note := h, ""
	dims := t.values(t.pick(named("kv_cache_dtype", h.kv), is("window_size", 0)), "head_dim")
	i, isMeasured := slices.BinarySearch(dims, h.dim)
	switch {
	case len(dims) == 0 && h.kv != bf16:
		like.kv, note = bf16, "a bfloat16 cache"
	case len(dims) == 0 || h.window == 0 && isMeasured:
		return grid{}, 0, f, g.missing(t, named("kv_cache_dtype", h.kv), is("head_dim", h.dim), is("window_size", h.window))
	case h.window > 0:
		like.window, note = 0, "full attention"
	default:
		like.dim = dims[min(i, len(dims)-1)]
		note = fmt.Sprintf("heads of %d", like.dim)
	}
	out, ratio, f, err = g.attention(t.Name, like)
	for i, c := range out.rows {
		out.rows[i] = c.scaled(max(1, float64(h.dim)/float64(like.dim)))
		if like.window == h.window {
			continue
		}
		w := float64(h.window)
		out.rows[i] = curve{c.x, stat.Map(c.x, func(x float64) float64 {
			if strings.HasPrefix(t.Name, "context") {
				return max(c.y[0], c.at(x, 2)*pairs(0, x, w)/pairs(0, x, 0))
			}
			return c.at(min(x, w), 1)
		})}
	}
	return out, ratio, f.as("heads of %d, window %d, %s cache, from %s", h.dim, h.window, h.kv, note), err
}

// mixGrids is (1-w) a + w b on the points both have.
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

// shape is what one layer's routed experts are.
type shape struct {
	dtypes                       []string // that can serve the checkpoint, the likeliest first
	hidden, inter, topK, experts int64
	tp, ep                       int64
	load                         string // how tokens spread over experts
	backend                      string // that the engine is told to use; "": as measured
	raw                          bool   // as measured, also where more tokens took less
}

// experts is the curve over tokens of one layer's fused experts: the exact shape, a missing moe_tp_size scaled from the nearest.
func (g *GPU) experts(s shape) (curve, found, error) {
	t, err := g.need("moe")
	if err != nil {
		return curve{}, found{}, err
	}
	of := func(dtype string, more ...where) []where {
		return append([]where{named("moe_dtype", dtype), is("hidden_size", s.hidden), is("inter_size", s.inter), is("topk", s.topK),
			is("num_experts", s.experts), is("moe_ep_size", s.ep), named("distribution", s.load)}, more...)
	}
	pick := func(dtype string, more ...where) []*Series { return t.whole(t.pick(of(dtype, more...)...)) }
	f := found{Table: t.Name, Version: t.Version}
	like, from, ok := t.likeExperts(s)
	if ok && s.backend != "" {
		return like, from, nil
	}
	for _, dtype := range s.dtypes {
		series := pick(dtype)
		if len(series) == 0 {
			continue
		}
		tps := t.values(series, "moe_tp_size")
		tp := slices.MinFunc(tps, func(a, b int64) int { return cmp.Compare(max(a-s.tp, s.tp-a), max(b-s.tp, s.tp-b)) })
		c, kernel := t.curveOf(pick(dtype, is("moe_tp_size", tp)))
		if f.Kernel = kernel; tp != s.tp {
			f.Reached, f.Note = Substituted, fmt.Sprintf("moe_tp_size %d, scaled from %d", s.tp, tp)
		}
		if !s.raw {
			c = c.envelope()
		}
		return c.scaled(float64(tp) / float64(s.tp)), f, nil
	}
	if ok {
		return like, from, nil
	}
	wide := s
	if wide.dtypes = []string{bf16}; s.dtypes[0] == bf16 {
		return curve{}, f, g.missing(t, of(bf16, is("moe_tp_size", s.tp))...)
	}
	c, f, err := g.experts(wide)
	each := float64(s.topK) / float64(s.experts) // of an expert by a token
	touched := func(x float64) float64 { return (1 - math.Pow(1-each, x)) / each }
	return c.lighter(bytesOf(s.dtypes[0])/2, touched), f.as("%s, from bfloat16 by the bytes of its weights", s.dtypes[0]), err
}

// likeExperts is the curve of a kernel that was measured on experts of another shape: of the nearest in size and number with weights of the
// dtype, else of as many bits, at equal tokens per expert, in proportion to the weights.
func (t *Table) likeExperts(s shape) (c curve, f found, ok bool) {
	at := func(one *Series, column string) float64 { return float64(one.Key[t.Column(column)]) }
	word := func(one *Series, column string) string {
		i := t.Column(column)
		return t.Columns[i].Words[one.Key[i]]
	}
	size := float64(s.experts * s.hidden * s.inter)
	far := func(one *Series) (out [2]float64) {
		if s.backend == "" && !slices.Contains(s.dtypes, word(one, "moe_dtype")) {
			out[0] = 1
		}
		n := at(one, "num_experts")
		out[1] = math.Abs(math.Log(n*at(one, "hidden_size")*at(one, "inter_size")/size)) + math.Abs(math.Log(n/float64(s.experts)))
		return out
	}
	all := t.whole(t.pick(is("moe_ep_size", s.ep), is("moe_tp_size", s.tp), named("distribution", s.load)))
	all = stat.Filter(all, func(one *Series) bool {
		return strings.Contains(word(one, "kernel_source"), s.backend) && bytesOf(word(one, "moe_dtype")) == bytesOf(s.dtypes[0])
	})
	if len(all) == 0 {
		return c, f, false
	}
	first := slices.MinFunc(all, func(a, b *Series) int { x, y := far(a), far(b); return slices.Compare(x[:], y[:]) })
	best := far(first)
	experts := at(first, "num_experts")
	topK := at(first, "topk")
	hidden := at(first, "hidden_size")
	inter := at(first, "inter_size")
	f = found{Table: t.Name, Version: t.Version}
	c, f.Kernel = t.curveOf(stat.Filter(all, func(one *Series) bool {
		return far(one) == best && at(one, "num_experts") == experts && at(one, "topk") == topK
	}))
	tokens := topK / experts * float64(s.experts) / float64(s.topK)
	c = curve{stat.Map(c.x, func(x float64) float64 { return x * tokens }), c.y}.envelope().scaled(size / (experts * hidden * inter))
	if best != [2]float64{} {
		f = f.as("scaled from %.0f experts of %.0f x %.0f, %s", experts, hidden, inter, word(first, "moe_dtype"))
		f.unlike = s.backend == "" // what an engine is told to use was compared so
	}
	return c, f, true
}

// collective is the curve over bytes of a collective among GPUs.
func (g *GPU) collective(name, dtype, how string, value string, gpus int64) (curve, found, error) {
	t, err := g.need(name)
	if err != nil {
		return curve{}, found{}, err
	}
	of := []where{named(dtype, bf16, "half", "float16"), named(how, value), is("num_gpus", gpus)}
	series := t.pick(of...)
	f := found{Table: name, Version: t.Version}
	ring := 1.0
	if most := t.values(t.pick(of[:2]...), "num_gpus"); len(series) == 0 && len(most) > 0 && gpus > most[len(most)-1] {
		n := most[len(most)-1] // a GPU of a ring sends (n-1)/n of the bytes
		series = t.pick(of[0], of[1], is("num_gpus", n))
		ring = float64(gpus-1) / float64(gpus) * float64(n) / float64(n-1)
		f.Reached, f.Note = Substituted, fmt.Sprintf("%d GPUs as one node of %d", gpus, n)
	}
	if len(series) == 0 {
		return curve{}, found{}, g.missing(t, of...)
	}
	c, kernel := t.curveOf(series)
	f.Kernel = kernel
	bytes := stat.Map(c.x, func(x float64) float64 { return 2 * x })
	return curve{bytes, c.y}.envelope().scaled(ring), f, nil
}

// curve is a measured time over one size: us at ascending x.
type curve struct{ x, y []float64 }

// at is linear between measured sizes; below the first it is the first. Beyond the last it
// grows like x to the given power from there.
func (c *curve) at(x, power float64) float64 {
	n := len(c.x)
	switch {
	case x <= c.x[0]:
		return c.y[0]
	case x > c.x[n-1]:
		r := x / c.x[n-1]
		if power == 2 {
			r *= r
		}
		return c.y[n-1] * r
	}
	i, exact := slices.BinarySearch(c.x, x)
	if exact {
		return c.y[i]
	}
	t := (x - c.x[i-1]) / (c.x[i] - c.x[i-1])
	return c.y[i-1] + t*(c.y[i]-c.y[i-1])
}

// line is at for curves that grow with a constant slope beyond the table.
func (c *curve) line(x float64) float64 {
	n := len(c.x)
	if x <= c.x[n-1] || n < 2 {
		return c.at(x, 1)
	}
	slope := (c.y[n-1] - c.y[n-2]) / (c.x[n-1] - c.x[n-2])
	return c.y[n-1] + max(0, slope)*(x-c.x[n-1])
}

// grid is a measured time over two sizes: one curve over the second per value of the first.
type grid struct {
	x    []float64
	rows []curve
}

// at is linear in both sizes, each row with its own end; beyond the last row proportional to x.
func (g *grid) at(x, y float64) float64 {
	n := len(g.x)
	i, exact := slices.BinarySearch(g.x, x)
	switch {
	case exact:
		return g.rows[i].line(y)
	case i == 0:
		return g.rows[0].line(y)
	case i == n:
		return g.rows[n-1].line(y) * x / g.x[n-1]
	}
	t := (x - g.x[i-1]) / (g.x[i] - g.x[i-1])
	lo, hi := g.rows[i-1].line(y), g.rows[i].line(y)
	return lo + t*(hi-lo)
}

// slice is the curve at one value of the grid's first size.
func (g *grid) slice(x float64) curve {
	ys := sizesOf(g.rows)
	return curve{ys, stat.Map(ys, func(y float64) float64 { return g.at(x, y) })}
}

// sizesOf are the sizes of all curves, ascending.
func sizesOf(cs []curve) []float64 {
	return distinct(slices.Concat(stat.Map(cs, func(c curve) []float64 { return c.x })...))
}

// blend is the weighted geometric mean of curves, on the union of their sizes.
func blend(cs []curve, weights []float64) curve {
	if len(cs) == 1 {
		return cs[0]
	}
	xs := sizesOf(cs)
	return curve{xs, stat.Map(xs, func(x float64) float64 {
		sum := 0.0
		for j := range cs {
			sum += weights[j] * math.Log(cs[j].at(x, 1))
		}
		return math.Exp(sum)
	})}
}

// scaled is the curve with all times multiplied.
func (c curve) scaled(by float64) curve {
	return curve{c.x, stat.Map(c.y, func(y float64) float64 { return y * by })}
}

// lighter is a curve over tokens with that share of the weights' bytes, of which x tokens read as much as reads says beside what one does:
// what computes does so as before.
func (c curve) lighter(share float64, reads func(x float64) float64) curve {
	return curve{c.x, stat.Map(c.x, func(x float64) float64 {
		us := c.at(x, 1)
		return max(share*us+launchUs, us-(1-share)*reads(x)*c.y[0])
	})}
}

// envelope is the least time at which x or more was done: a kernel that does more in less
// time serves less as well, by padding, so that a measurement disturbed upwards does not count.
func (c curve) envelope() curve {
	y := slices.Clone(c.y)
	for i := len(y) - 2; i >= 0; i-- {
		y[i] = min(y[i], y[i+1])
	}
	return curve{c.x, y}
}

// row is one measured time of a curve.
type row struct {
	x      int64
	source int64 // kernel
	us     float64
}

// merged is one curve of the rows of a key: the median of a kernel's repeats, of the kernels the
// fastest, which is the one an engine would choose.
func merged(rows []row) curve {
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.x, b.x), cmp.Compare(a.source, b.source), cmp.Compare(a.us, b.us))
	})
	c := curve{}
	for i := 0; i < len(rows); {
		j := i
		for j < len(rows) && rows[j].x == rows[i].x && rows[j].source == rows[i].source {
			j++
		}
		us := (rows[(i+j-1)/2].us + rows[(i+j)/2].us) / 2
		if n := len(c.x); n > 0 && c.x[n-1] == float64(rows[i].x) {
			c.y[n-1] = min(c.y[n-1], us)
		} else {
			c.x = append(c.x, float64(rows[i].x))
			c.y = append(c.y, us)
		}
		i = j
	}
	return c
}
