package library

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/model"
)

// dtypesOf returns the tables' names for the way a matrix is multiplied, the likeliest first.
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

// dtypes returns what dtypesOf does, or bfloat16 if the options ask for it.
func (b *binder) dtypes(q *model.Quant) []string {
	if b.o.BF16 {
		return []string{bf16}
	}
	return dtypesOf(q)
}

// DTypeOf returns the tables' name, which is also AIConfigurator's, for the way a matrix is
// multiplied.
func DTypeOf(q *model.Quant) string { return dtypesOf(q)[0] }

// linearGroup is a set of matrices that read the same input and run as one kernel.
type linearGroup struct {
	names     []string
	rows      float64 // on one GPU
	columns   int64
	quant     model.Quant
	times     float64
	placement model.Placement
	isOut     bool // its input is sharded: an output projection, which is not fused
	isApart   bool // of shared experts, or replicated: fused with its like only
}

// canFuse reports whether two groups run as one kernel.
func (g *linearGroup) canFuse(o *linearGroup) bool {
	return !g.isOut && !o.isOut && o.columns == g.columns && o.quant == g.quant && o.times == g.times &&
		o.isApart == g.isApart && (!g.isApart || o.placement == g.placement)
}

// addLinears adds the matrices of a mixer or an FFN as layers of the gemm table. Matrices that read
// the same input are fused, as in vLLM.
func (b *binder) addLinears(ls []model.Linear, kvHeads int64, times float64) {
	var groups []linearGroup
	for i := range ls {
		l := &ls[i]
		if l.Placement == model.ByExpert || l.Rows == 0 || l.Columns == 0 {
			continue
		}
		short := l.Name[strings.LastIndex(l.Name, ".")+1:]
		g := linearGroup{
			names:     []string{short},
			rows:      float64(l.Rows),
			columns:   l.Columns,
			quant:     l.Quant,
			times:     times * float64(max(1, l.Count)),
			placement: l.Placement,
			isOut:     l.Placement == model.ShardedIn,
			isApart:   strings.Contains(l.Name, "shared_expert") || l.Placement == model.Replicated,
		}
		switch {
		case g.isOut:
			g.columns = max(1, l.Columns/b.tp)
		case l.Placement == model.Sharded:
			g.rows /= float64(b.tp)
		case l.Placement == model.KVSharded:
			g.rows *= float64(max(1, kvHeads/b.tp)) / float64(max(1, kvHeads))
		}
		k := slices.IndexFunc(groups, func(o linearGroup) bool { return g.canFuse(&o) })
		if k >= 0 {
			groups[k].names = append(groups[k].names, short)
			groups[k].rows += g.rows
			continue
		}
		groups = append(groups, g)
	}
	for _, g := range groups {
		// Rows of the other dtypes include the quantization of the input, as a fused all-reduce does.
		if b.dtypes(&g.quant)[0] == nvfp4 && (g.isOut || b.fused.most == 0) {
			b.addMoved("quantize", g.times, float64(g.columns)*(b.m.DTypeBytes+bytesOf(nvfp4)))
		}
		b.addLinear(strings.Join(g.names, "+"), &g.quant, int64(g.rows), g.columns, g.times)
	}
}

// addLinear adds one layer of n outputs and k inputs.
func (b *binder) addLinear(name string, q *model.Quant, n, k int64, times float64) {
	dtype := b.dtypes(q)[0]
	c, f, err := b.g.gemm(dtype, max(1, n), k)
	if b.fails(err) {
		return
	}
	op := Operator{
		Name:  name,
		Count: times,
		Shape: fmt.Sprintf("n %d, k %d", n, k),
		DType: dtype,
		found: f,
		us:    func(in *state) float64 { return c.usAt(in.run, 1) },
	}
	if f.rows != nil {
		op.measured = func(in *state) float64 { return f.rows.usAt(in.run, 1) }
	}
	b.addOperator(op)
}

// addHead adds the LM head over the sampled sequences, the gather of the logits, and sampling.
func (b *binder) addHead() {
	vocab := (b.m.Vocab + 63) / 64 * 64
	n := (vocab + b.tp - 1) / b.tp
	dtype := b.dtypes(&b.m.Head.Quant)[0]
	c, f, err := b.g.gemm(dtype, n, b.m.Hidden)
	if b.fails(err) {
		return
	}
	b.addOperator(Operator{Name: "lm_head", Count: 1, Shape: fmt.Sprintf("n %d, k %d", n, b.m.Hidden), DType: dtype, found: f,
		depends: onSequences, us: func(in *state) float64 { return c.usAt(in.sequences, 1) }})
	if b.tp > 1 {
		gather, f, err := b.g.collective("nccl", "nccl_dtype", "op_name", "all_gather", b.tp)
		if b.fails(err) {
			return
		}
		bytes := float64(b.m.Vocab) * b.m.DTypeBytes
		b.addOperator(Operator{Name: "logits_gather", Count: 1, Shape: fmt.Sprintf("%.0f B per sequence", bytes), Kind: Collective, found: f,
			depends: onSequences, us: func(in *state) float64 { return gather.usAt(in.sequences*bytes, 1) }})
	}
	perSequence := 2 * 4 * float64(b.m.Vocab) * b.usByte
	b.addOperator(Operator{Name: "sampling", Count: 1, Shape: "two passes over the logits", found: found{Reached: Analytic}, depends: onSequences,
		us: func(in *state) float64 { return in.sequences*perSequence + samplingUs }})
}
