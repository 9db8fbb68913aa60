package library

// This file adds the linear layers to a plan, fused as vLLM fuses them, and the LM head.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/model"
)

// dtypesOf returns the tables' names for the way a matrix is multiplied, the likeliest first: mxfp4 weights are
// multiplied in 16 or in 8 bits, which the GPU's kernel decides.
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
	rows      float64 // outputs, on one GPU
	columns   int64   // inputs, on one GPU
	quant     model.Quant
	times     float64 // in a step
	placement model.Placement
	isOut     bool // its input is sharded: an output projection, which is not fused
	isApart   bool // of shared experts, or replicated: fused with its like only
}

// canFuse reports whether two groups run as one kernel.
func (g *linearGroup) canFuse(o *linearGroup) bool {
	return !g.isOut && !o.isOut && o.columns == g.columns && o.quant == g.quant && o.times == g.times &&
		o.isApart == g.isApart && (!g.isApart || o.placement == g.placement)
}

// addLinears adds the matrices of a mixer or an FFN, which times layers have, as layers of the gemm table; those of
// routed experts are left out. Matrices that read the same input are fused, as in vLLM
// (vllm/model_executor/layers/linear.py: QKVParallelLinear, MergedColumnParallelLinear). kvHeads is 0 for an FFN.
func (b *binder) addLinears(ls []model.Linear, kvHeads int64, times float64) {
	var groups []linearGroup
	for i := range ls {
		linear := &ls[i]
		if linear.Placement == model.ByExpert || linear.Rows == 0 || linear.Columns == 0 {
			continue
		}
		short := linear.Name[strings.LastIndex(linear.Name, ".")+1:]
		group := linearGroup{
			names:     []string{short},
			rows:      float64(linear.Rows),
			columns:   linear.Columns,
			quant:     linear.Quant,
			times:     times * float64(max(1, linear.Count)),
			placement: linear.Placement,
			isOut:     linear.Placement == model.ShardedIn,
			isApart:   strings.Contains(linear.Name, "shared_expert") || linear.Placement == model.Replicated,
		}
		switch {
		case group.isOut:
			group.columns = max(1, linear.Columns/b.tp)
		case linear.Placement == model.Sharded:
			group.rows /= float64(b.tp)
		case linear.Placement == model.KVSharded: // with fewer KV heads than ranks each rank has a whole one
			group.rows *= float64(max(1, kvHeads/b.tp)) / float64(max(1, kvHeads))
		}
		same := slices.IndexFunc(groups, func(o linearGroup) bool { return group.canFuse(&o) })
		if same >= 0 {
			groups[same].names = append(groups[same].names, short)
			groups[same].rows += group.rows
			continue
		}
		groups = append(groups, group)
	}
	for _, group := range groups {
		// Rows of the other dtypes include the quantization of the input, as a fused all-reduce does.
		if b.dtypes(&group.quant)[0] == nvfp4 && (group.isOut || b.fused.most == 0) {
			b.addMoved("quantize", group.times, float64(group.columns)*(b.m.DTypeBytes+bytesOf(nvfp4)))
		}
		b.addLinear(strings.Join(group.names, "+"), &group.quant, int64(group.rows), group.columns, group.times)
		isAttentionOutput := group.isOut && kvHeads > 0
		op := &b.s.Operators[len(b.s.Operators)-1] // that of addLinear; after an error the plan is not used
		if op.DType == fp8 && b.g.SM >= blackwell {
			b.s.chosenFP8 += op.Count
		}
		hasQuantization := op.DType == fp8 && op.rank < byBytes // rows of fp8, not derived from bfloat16's
		if hasQuantization && !isAttentionOutput && b.d.Engine.FusesQuantization() {
			b.quantizedBefore(op, float64(group.columns))
		}
	}
}

// blackwell is the compute capability x 10 from which vLLM multiplies fp8 weights of one scale a tensor with FlashInfer
// (vllm/model_executor/layers/quantization/utils/w8a8_utils.py, Fp8LinearOp; 0.11).
const blackwell = 100

// leastOfRows is the least share of the rows' time that is left without the quantization.
const leastOfRows = 0.5

// quantizedBefore takes the kernel that quantizes the input of k values out of an fp8 layer's time: a launch, and the
// bytes that it reads and writes. In the engine the compiled norm or activation before the layer writes fp8 values;
// only attention's output has no such kernel behind it.
func (b *binder) quantizedBefore(op *Operator, k float64) {
	perToken := k * (b.m.DTypeBytes + bytesOf(fp8)) * b.usByte
	without := func(rows func(in *state) float64) func(in *state) float64 {
		return func(in *state) float64 {
			us := rows(in)
			return max(leastOfRows*us, us-launchUs-in.run*perToken)
		}
	}
	op.us = without(op.us)
	if op.measured != nil {
		op.measured = without(op.measured)
	}
	op.Note = strings.TrimPrefix(op.Note+"; without the quantization of the input", "; ")
}

// addLinear adds one layer of n outputs and k inputs.
func (b *binder) addLinear(name string, q *model.Quant, n, k int64, times float64) {
	dtype := b.dtypes(q)[0]
	layer, source, err := b.g.gemm(dtype, max(1, n), k)
	if b.fails(err) {
		return
	}
	op := Operator{
		Name:  name,
		Count: times,
		Shape: fmt.Sprintf("n %d, k %d", n, k),
		DType: dtype,
		found: source,
		us:    func(in *state) float64 { return layer.usAt(in.run, 1) },
	}
	if source.rows != nil {
		op.measured = func(in *state) float64 { return source.rows.usAt(in.run, 1) }
	}
	b.addOperator(op)
}

// addHead adds the LM head over the sampled sequences, the gather of the ranks' logits
// (vllm/model_executor/layers/logits_processor.py: LogitsProcessor._gather_logits()), and sampling.
func (b *binder) addHead() {
	// The vocabulary is padded to 64 (vllm/model_executor/layers/vocab_parallel_embedding.py: pad_vocab_size()) and
	// divided among the ranks.
	vocab := (b.m.Vocab + 63) / 64 * 64
	n := (vocab + b.tp - 1) / b.tp
	dtype := b.dtypes(&b.m.Head.Quant)[0]
	head, source, err := b.g.gemm(dtype, n, b.m.Hidden)
	if b.fails(err) {
		return
	}
	b.addOperator(Operator{
		Name:    "lm_head",
		Count:   1,
		Shape:   fmt.Sprintf("n %d, k %d", n, b.m.Hidden),
		DType:   dtype,
		found:   source,
		depends: onSequences,
		us:      func(in *state) float64 { return head.usAt(in.sequences, 1) },
	})
	if b.tp > 1 {
		gather, source, err := b.g.collective("nccl", "nccl_dtype", "op_name", "all_gather", b.tp)
		if b.fails(err) {
			return
		}
		bytes := float64(b.m.Vocab) * b.m.DTypeBytes
		b.addOperator(Operator{
			Name:    "logits_gather",
			Count:   1,
			Shape:   fmt.Sprintf("%.0f B per sequence", bytes),
			Kind:    Collective,
			found:   source,
			depends: onSequences,
			us:      func(in *state) float64 { return gather.usAt(in.sequences*bytes, 1) },
		})
	}
	perSequence := 2 * 4 * float64(b.m.Vocab) * b.usByte // two passes over logits in float32
	b.addOperator(Operator{
		Name:    "sampling",
		Count:   1,
		Shape:   "two passes over the logits",
		found:   found{Reached: Analytic},
		depends: onSequences,
		us:      func(in *state) float64 { return in.sequences*perSequence + samplingUs },
	})
}
