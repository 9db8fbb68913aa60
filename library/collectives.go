package library

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

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
