package library

// This file adds the operators of a layer's FFN to a plan: dense, shared and routed experts, and the
// exchange of tokens between ranks.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/model"
)

// sharedStreamTokens is the number of tokens up to which vLLM runs shared experts in a stream of
// their own, at the same time as the routed ones (vllm/envs.py:
// VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD).
const sharedStreamTokens = 256

// isShared reports whether a matrix belongs to shared experts.
func isShared(l model.Linear) bool { return strings.Contains(l.Name, "shared_expert") }

// isFloatGate reports whether a matrix is a router that the engine multiplies in float32
// (vllm/model_executor/models/minimax_m2.py: MiniMaxM2MoE).
func (b *binder) isFloatGate(l *model.Linear) bool {
	return strings.HasPrefix(b.d.Model.ModelType, "minimax_m2") && strings.HasSuffix(l.Name, ".gate")
}

// The time of a router in float32: no table has it. A multiplication on the cores that are not for matrices takes
// floatGateUs for 2 tokens, 6,144 inputs and 128 experts on B200, as kernel timings say (vllm-project/vllm, pull request
// 44343: cuBLAS); with few tokens each output is one sum over the inputs, so that the time grows with their number
// alone. With many tokens the rate counts, floatShare of the peak.
const (
	floatGateUs     = 13.6
	floatGateInputs = 6144
	floatShare      = 0.8
)

// floatRate returns the FLOP/s in float32 without tensor cores, by the datasheets' ratios to dense bfloat16 with them.
func (g *GPU) floatRate() float64 {
	switch {
	case g.SM >= 100 && g.SM < 120: // B200, B300, GB200, GB300
		return g.FLOPS / 30
	case g.SM == 80 || g.SM == 90: // A100, H100, H200
		return g.FLOPS / 15
	}
	return g.FLOPS / 4 // workstation and inference GPUs
}

// addFloatGate adds a router in float32 of n experts and k inputs: the cast of its input and the multiplication.
func (b *binder) addFloatGate(n, k int64, times float64) {
	b.addMoved("gate_cast", times, float64(k)*(b.m.DTypeBytes+4))
	perToken := 1e6 * 2 * float64(n*k) / (floatShare * b.g.floatRate())
	least := floatGateUs * float64(k) / floatGateInputs
	b.addOperator(Operator{
		Name:  "gate",
		Count: times,
		Shape: fmt.Sprintf("n %d, k %d", n, k),
		DType: "float32",
		found: found{Reached: Analytic},
		us:    func(in *state) float64 { return max(least, in.run*perToken) },
	})
}

// addFFN adds a dense MLP or routed experts, with the router and shared experts beside them, which times
// layers have.
func (b *binder) addFFN(x *model.FFN, times float64) {
	// Linear layers, without routers in float32 and shared experts; addLinears leaves out the routed ones.
	isOther := func(l model.Linear) bool { return isShared(l) || b.isFloatGate(&l) }
	b.addLinears(slices.DeleteFunc(slices.Clone(x.Linears), isOther), 0, times)
	for i := range x.Linears {
		if l := &x.Linears[i]; b.isFloatGate(l) {
			b.addFloatGate(l.Rows, l.Columns, times)
		}
	}
	// Shared experts, which take no time of their own where they run beside the routed ones.
	firstShared := len(b.s.Operators)
	b.addLinears(slices.DeleteFunc(slices.Clone(x.Linears), func(l model.Linear) bool { return !isShared(l) }), 0, times)
	for i := range b.s.Operators[firstShared:] {
		op := &b.s.Operators[firstShared+i]
		alone := op.us
		op.Note = cmp.Or(op.Note, "at the same time as the routed experts up to 256 tokens")
		op.us = func(in *state) float64 {
			if in.run <= sharedStreamTokens {
				return 0
			}
			return alone(in)
		}
	}
	// An activation reads the outputs of gate and up and writes the input of down: three values of each column, two
	// without a gate.
	addActivation := func(width int64) {
		if width > 0 {
			b.addMoved("activation", times, float64(max(2, x.Projections)*width/b.tp)*b.m.DTypeBytes)
		}
	}
	if x.Kind != model.Experts {
		if x.Kind == model.Dense {
			addActivation(x.Width)
		}
		return
	}
	addActivation(x.SharedWidth)
	addActivation(x.BesideWidth)
	// Without expert parallelism each expert is divided among the GPUs of all ranks, with it whole experts are
	// (vllm/model_executor/layers/fused_moe/config.py: FusedMoEParallelConfig.make()).
	gpus := b.tp * b.ranks
	shape := expertShape{
		hidden:      b.m.Hidden,
		inter:       x.Width,
		topK:        x.TopK,
		experts:     x.Experts,
		tp:          gpus,
		ep:          1,
		projections: max(2, x.Projections),
		capability:  b.g.SM,
		load:        b.o.Load,
		backend:     backendOf(b.d),
		raw:         b.o.RawExperts,
	}
	if x.Latent > 0 { // the experts' own, smaller width of a token
		shape.hidden = x.Latent
	}
	if b.d.Engine.ExpertParallel {
		shape.tp = 1
		shape.ep = gpus
	}
	for i := range x.Linears {
		if x.Linears[i].Placement == model.ByExpert {
			shape.dtypes = b.dtypes(&x.Linears[i].Quant)
		}
	}
	curve, source, err := b.g.experts(shape)
	if b.fails(err) {
		return
	}
	// The scores of all experts in float32, and the hidden state read and written.
	b.addMoved("routing", times, float64(4*x.Experts)+2*float64(shape.hidden)*b.m.DTypeBytes)
	b.addOperator(Operator{
		Name:  "experts",
		Count: times,
		Shape: fmt.Sprintf("%d of %d experts, %d x %d, tp %d, ep %d, %s", x.TopK, x.Experts, shape.hidden, x.Width, shape.tp, shape.ep, shape.load),
		DType: shape.dtypes[0],
		Kind:  Experts,
		found: source,
		us: func(in *state) float64 {
			us := curve.usAt(in.routed, 1)
			if shape.raw {
				return us
			}
			return max(us, b.g.expertsReadUs(&shape, in.routed))
		},
	})
	if b.ranks > 1 {
		b.addExchange(&shape, times)
	}
}

// exchangeTables names the tables of all-to-all back ends, which send tokens to their experts and
// back.
var exchangeTables = map[string]string{"deepep_low_latency": "wideep_deepep_ll", "deepep_high_throughput": "wideep_deepep_normal"}

// exchangeSMs is the number of multiprocessors that the exchange of long batches uses
// (deep_ep.Buffer.num_sms).
const exchangeSMs = 20

// addExchange adds the tokens that ranks exchange before (dispatch) and after (combine) the experts. By default
// every rank gathers all tokens and reduces its own
// (vllm/distributed/device_communicators/all2all.py: AgRsAll2AllManager).
func (b *binder) addExchange(s *expertShape, times float64) {
	backend, _ := b.d.Engine.Extra["all2all_backend"].(string)
	table := exchangeTables[backend]
	for _, way := range []struct{ name, nccl string }{{"dispatch", "all_gather"}, {"combine", "reduce_scatter"}} {
		op := Operator{Name: way.name, Count: times, Kind: Collective}
		if table == "" {
			c, f, err := b.g.collective("nccl", "nccl_dtype", "op_name", way.nccl, b.ranks)
			if b.fails(err) {
				return
			}
			bytes := float64(s.hidden) * b.m.DTypeBytes
			if backend != "" && backend != "allgather_reducescatter" && backend != "naive" {
				f.Reached = Substituted
				f.Note = backend + " is in no table"
			}
			op.Shape = fmt.Sprintf("%s of %.0f B per token over %d ranks", way.nccl, bytes, b.ranks)
			op.found = f
			op.us = func(in *state) float64 { return c.usAt(in.all*bytes, 1) }
		} else {
			t, err := b.g.needTable(table + "_" + way.name)
			if b.fails(err) {
				return
			}
			conditions := []where{equals("node_num", 1), equals("hidden_size", s.hidden), equals("num_topk", s.topK), equals("num_experts", s.experts)}
			if t.Column("dispatch_sms") >= 0 {
				conditions = append(conditions, equals("dispatch_sms", exchangeSMs), equals("combine_sms", exchangeSMs))
			}
			series := t.pickSeries(conditions...)
			if len(series) == 0 {
				b.fails(b.g.missingRows(t, conditions...))
				return
			}
			c, kernel := t.curveOf(series)
			op.Shape = fmt.Sprintf("%s over %d ranks", backend, b.ranks)
			op.found = found{Table: t.Name, Kernel: kernel, Version: t.Version, Note: "measured within one node"}
			op.us = func(in *state) float64 { return c.usAt(in.run, 1) }
		}
		b.addOperator(op)
	}
}
