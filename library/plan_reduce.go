package library

// This file adds the all-reduces of tensor parallelism to a plan, with the algorithm that vLLM chooses
// by their size.

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/deploy"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// customMaxBytes is the size from which vLLM does not use its custom all-reduce kernel, on any GPU
// (vllm/distributed/device_communicators/custom_all_reduce.py, max_size: inputs must be smaller
// than 8 MiB).
const customMaxBytes = 8 * mib

// reduceLimit has the sizes in bytes at which vLLM changes its algorithm: the custom kernel reduces tensors below
// custom, symmetric memory those up to symmetric, NCCL larger ones.
type reduceLimit struct{ custom, symmetric float64 }

// reduceLimits are vLLM's sizes by compute capability x 10, then by number of GPUs
// (vllm/distributed/device_communicators/all_reduce_utils.py, commit 00d618aa:
// CUSTOM_ALL_REDUCE_MAX_SIZES and SYMM_MEM_ALL_REDUCE_MAX_SIZES). Capabilities that are missing here have
// no symmetric memory.
var reduceLimits = map[int64]map[int64]reduceLimit{
	90:  {2: {64 * mib, 64 * mib}, 4: {32 * mib, 32 * mib}, 6: {512 * kib, 64 * mib}, 8: {256 * kib, 64 * mib}},
	100: {2: {2 * mib, 8 * mib}, 4: {2 * mib, 32 * mib}, 6: {mib, 128 * mib}, 8: {mib, 128 * mib}},
	103: {2: {4 * mib, 4 * mib}, 4: {4 * mib, 32 * mib}, 6: {8 * mib, 32 * mib}, 8: {4 * mib, 64 * mib}},
}

// symmetricSince is the first vLLM release that reduces over symmetric memory by default (VLLM_ALLREDUCE_USE_SYMM_MEM;
// vllm-project/vllm pull requests 20759, 24111 and 24696).
var symmetricSince = [2]int{0, 11}

// fusedReduce is the kernel that reduces, adds the residual and normalises.
type fusedReduce struct {
	most  float64           // bytes up to which the engine uses it; 0: never
	curve *deploy.AllReduce // nil: no time is published, and that of the all-reduce alone counts
	note  string            // the kernel whose times are used for it
}

// fusedReduce returns the fused kernel (all-reduce and norm in one) of the deployment. The
// published times are of B200. The other GPUs of compute capability 10 have the same links and get
// the same times. On Hopper the time of the all-reduce alone is used, because the norm that is
// saved costs more than what the fused kernel adds.
func (b *binder) fusedReduce() fusedReduce {
	f := fusedReduce{most: b.d.FusedAllReduceBytes()}
	if f.most == 0 {
		return f
	}
	f.curve = deploy.FusedAllReduceOf(b.d.Hardware.Name, b.tp)
	switch {
	case f.curve != nil:
	case b.g.SM >= 100:
		f.curve = deploy.FusedAllReduceOf("B200", b.tp)
		f.note = ", with the times of B200"
	default:
		f.note = ", with the times of the all-reduce alone"
	}
	return f
}

// addAllReduce adds all-reduces of bytesPerToken over the tensor-parallel group, as many as times in a
// step. activations: they are followed by a norm, with which they may be fused.
//
// The published table of vLLM's all-reduce was measured through the engine's own dispatch (its
// collector calls tensor_model_parallel_all_reduce: collector/network/collect_all_reduce.py of
// AIConfigurator). So it is right for every algorithm that vLLM chooses, up to the largest size of
// symmetric memory; above that size NCCL's own table is used.
//
// The collector's eager rows contain a copy of the input that no engine makes (input_tensor.clone()),
// and for small sizes the time of the host's launch. Outside of graphs the rows of graphs count, with the
// copy into a registered buffer that the custom kernel needs there
// (vllm/distributed/device_communicators/custom_all_reduce.py, all_reduce: registered=False).
//
// vLLM has no custom kernel for more than two GPUs that are connected over PCIe alone, and with
// --disable-custom-all-reduce (the same file, CustomAllreduce.__init__: fully_connected).
func (b *binder) addAllReduce(name string, times, bytesPerToken float64, activations bool) {
	if b.tp == 1 {
		return
	}
	graph, source, err := b.g.collective("custom_allreduce", "allreduce_dtype", "backend", "vllm_graph", b.tp)
	eager, _, errEager := b.g.collective("custom_allreduce", "allreduce_dtype", "backend", "vllm_eager", b.tp)
	nccl, ofNCCL, errNCCL := b.g.collective("nccl", "nccl_dtype", "op_name", "all_reduce", b.tp)
	if b.fails(cmp.Or(err, errEager, errNCCL)) {
		return
	}
	isOverPCIe := b.tp > 2 && b.d.Hardware.LinksOverPCIe()
	if isOverPCIe {
		// Both tables have measured NCCL then, which has only one time: the lesser, at every size.
		both := []curve{graph, nccl}
		nccl = curveOver(sizesOf(both), func(bytes float64) float64 { return min(graph.usAt(bytes, 1), nccl.usAt(bytes, 1)) })
	}
	// The fused kernel is not disabled; where it has no times of its own, it keeps those of the engine's own kernel.
	isDisabled := b.d.Engine.Extra["disable_custom_all_reduce"] == true && !(activations && b.fused.most > 0 && b.fused.curve == nil)
	// The engine's own kernels serve one node, and above two GPUs only those that NVLink connects.
	onlyNCCL := source.Reached == Substituted || isOverPCIe || isDisabled
	if onlyNCCL {
		graph = nccl
		eager = nccl
		source = ofNCCL
	}
	limit, hasLimit := reduceLimits[b.g.SM][b.tp]
	ncclFrom := float64(customMaxBytes) // the size from which only NCCL reduces
	if hasLimit && b.d.Engine.IsSince(symmetricSince) {
		ncclFrom = max(limit.custom, limit.symmetric)
		source.Note = cmp.Or(source.Note, fmt.Sprintf("symmetric memory above %.0f KiB: the lesser of its table and NCCL", limit.custom/kib))
	}
	customBelow := float64(customMaxBytes) // the size below which the custom kernel reduces
	switch {
	case onlyNCCL:
		customBelow = 0
	case hasLimit:
		customBelow = min(customBelow, limit.custom)
	}
	one := func(in *state) float64 {
		bytes := in.run * bytesPerToken
		if bytes >= ncclFrom {
			return nccl.usAt(bytes, 1)
		}
		us := graph.usAt(bytes, 1)
		if !in.captured {
			if bytes < customBelow { // the copy into a registered buffer: read, written, launched
				us += 2*bytes*b.usByte + launchUs
			}
			us = min(us, eager.usAt(bytes, 1))
		}
		if !hasLimit || bytes <= limit.custom {
			return us
		}
		// Symmetric memory.
		return min(us, nccl.usAt(bytes, 1))
	}
	op := Operator{
		Name:  name,
		Count: times,
		Shape: fmt.Sprintf("%.0f B per token over %d GPUs", bytesPerToken, b.tp),
		Kind:  Collective,
		found: source,
		us:    one,
	}
	if fused := b.fused; activations && fused.most > 0 {
		// All but the one behind the embedding are fused, with the norms in them. The operator runs once, with the
		// time of all of them.
		op.Count = 1
		op.Note = strings.TrimPrefix(fmt.Sprintf("%s; fused with the norms up to %.0f MiB%s", op.Note, fused.most/mib, fused.note), "; ")
		op.us = func(in *state) float64 {
			bytes := in.run * bytesPerToken
			if bytes > fused.most || fused.curve == nil {
				return times * one(in)
			}
			return one(in) + (times-1)*fused.curve.Us(bytes)
		}
	}
	b.addOperator(op)
}
