package library

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Names in the tables.
const (
	bf16      = "bfloat16"
	fp8       = "fp8"
	allReduce = "all_reduce"
	allGather = "all_gather"
	graph     = "graph"
	eager     = "eager"
)

// What a kernel that is in no table is charged.
const (
	movedShare = 0.8   // of the memory bandwidth
	launchMs   = 0.002 // per kernel
)

// Stepper is a GPU's tables bound to one deployment: one curve per kernel. It
// is immutable and safe to share.
type Stepper struct {
	rules      Rules
	layers     int64
	tp         int64
	capability int64
	symmetric  bool
	graphs     deploy.GraphSizes

	linear          []linearPart
	moved           []movedPart
	head            curve
	context         curve // over tokens, one prompt
	generation      grid  // over requests x generationRatio and context
	generationRatio float64

	reductions                       float64 // all-reduces per step
	graph, eager, ncclReduce, gather curve
	fused                            *deploy.AllReduce // nil when the engine does not fuse
	fusedMax                         float64           // B
	hiddenBytes                      float64           // B per token of an activation
	vocabBytes                       float64           // B per sequence of logits
	msPerByte                        float64           // of moved parts
}

// linearPart is a measured kernel whose time depends on the tokens of the step.
type linearPart struct {
	part  part
	times float64
	ms    curve
}

// movedPart is a kernel charged by its bytes.
type movedPart struct {
	part          part
	times         float64
	bytesPerToken float64 // of one GPU
}

// For binds the tables to a deployment. Codes: kernel_rows_missing,
// unknown_kernel_rules and those of deploy.Deployment.Check.
func (t *Tables) For(d *deploy.Deployment, rules Rules) (*Stepper, error) {
	if err := rules.Check(); err != nil {
		return nil, err
	}
	if err := d.Check(); err != nil {
		return nil, err
	}
	if err := d.CheckSupported(); err != nil {
		return nil, err
	}
	b := binder{t: t, d: d, m: &d.Model, tp: d.TP, s: &Stepper{rules: rules, layers: d.Model.NumLayers, tp: d.TP, capability: t.capability,
		symmetric: hasSymmetricMemory(&d.Engine), graphs: d.GraphSizes()}}
	b.s.msPerByte = 1e3 / (movedShare * d.Hardware.BwPeakTBs * 1e12)
	b.s.hiddenBytes = float64(d.Model.HiddenSize) * d.Model.BytesPerActivation
	b.s.vocabBytes = float64(d.Model.VocabSize) * d.Model.BytesPerActivation
	for _, part := range []func() error{b.layers, b.attention, b.experts, b.collectives} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	b.movedParts()
	return b.s, nil
}

type binder struct {
	t  *Tables
	d  *deploy.Deployment
	m  *deploy.Model
	tp int64
	s  *Stepper
}

// weightDType is the tables' name of the linear layers' dtype.
func weightDType(m *deploy.Model) string {
	switch {
	case m.BytesPerWeight == m.BytesPerActivation:
		return bf16 // 16-bit types take the same time
	case m.LinearCompute == fp8:
		return fp8
	}
	return fmt.Sprintf("int%g_wo", 8*m.BytesPerWeight)
}

// layers binds the linear layers and the head.
func (b *binder) layers() error {
	m, tp := b.m, b.tp
	q, kv := m.NumHeads*m.HeadDim/tp, max(m.NumKVHeads, tp)*m.HeadDim/tp
	dense, moe := float64(m.NumLayers-b.moeLayers()), float64(b.moeLayers())
	all, dtype := float64(m.NumLayers), weightDType(m)
	up := m.NumMLPProj - 1
	shapes := []struct {
		part  part
		times float64
		dtype string
		n, k  int64
	}{
		{qkv, all, dtype, q + 2*kv, m.HiddenSize},
		{oProj, all, dtype, m.HiddenSize, q},
		{gateUp, dense, dtype, up * m.IntermediateSize / tp, m.HiddenSize},
		{down, dense, dtype, m.HiddenSize, m.IntermediateSize / tp},
		{router, moe, bf16, m.NumExperts, m.HiddenSize},
		{sharedExpert, moe, dtype, up * m.SharedExpertSize / tp, m.HiddenSize},
		{sharedExpert, moe, dtype, m.HiddenSize, m.SharedExpertSize / tp},
	}
	for _, s := range shapes {
		if s.times == 0 || s.n == 0 || s.k == 0 {
			continue
		}
		ms, err := b.linear(s.dtype, s.n, s.k)
		if err != nil {
			return err
		}
		b.s.linear = append(b.s.linear, linearPart{s.part, s.times, ms})
	}
	var err error
	b.s.head, err = b.linear(bf16, (m.VocabSize+tp-1)/tp, m.HiddenSize)
	return err
}

func (b *binder) moeLayers() int64 {
	if b.m.IsMoE() {
		return b.m.NumMoELayers
	}
	return 0
}

// linear is the curve of an n x k layer over tokens: log-linear in n and k
// between measured columns, proportional beyond them.
func (b *binder) linear(dtype string, n, k int64) (curve, error) {
	t := b.t
	var ns, ks []int64
	var dtypes []string
	for key := range t.gemm {
		if key.dtype == dtype {
			ns, ks = append(ns, key.n), append(ks, key.k)
		}
		dtypes = append(dtypes, key.dtype)
	}
	if len(ns) == 0 {
		return curve{}, t.noDType(gemmFile, "gemm_dtype", dtype, dtypes)
	}
	ns, ks = distinct(ns), distinct(ks)
	n0, n1, tn, sn := between(ns, n)
	k0, k1, tk, sk := between(ks, k)
	var cs []*curve
	var weights []float64
	for _, at := range []struct {
		n, k int64
		w    float64
	}{{n0, k0, (1 - tn) * (1 - tk)}, {n0, k1, (1 - tn) * tk}, {n1, k0, tn * (1 - tk)}, {n1, k1, tn * tk}} {
		if at.w == 0 {
			continue
		}
		c := t.gemm[gemmKey{dtype, at.n, at.k}]
		if c == nil {
			return curve{}, trace.Errorf(badTable, "%s: dtype %s: got no column n %d, k %d, want it for a layer of n %d, k %d",
				t.paths[gemmFile], dtype, at.n, at.k, n, k)
		}
		cs, weights = append(cs, b.s.rules.clean(c)), append(weights, at.w)
	}
	c := blend(cs, weights).scaled(sn * sk)
	if b.s.rules == Engine { // a repeated measurement may find small weights in the cache, a step of many layers cannot
		bytes := float64(n*k) * dtypeBytes(dtype)
		c = c.atLeast(func(float64) float64 { return 1e3 * bytes / t.bandwidth })
	}
	return c, nil
}

func dtypeBytes(dtype string) float64 {
	if dtype == bf16 {
		return 2
	}
	return 1
}

// between finds the measured neighbours of v, v's place between them on a log
// scale and, beyond the largest, how much larger it is.
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
	return lo, hi, stat.Log(float64(v)/float64(lo)) / stat.Log(float64(hi)/float64(lo)), 1
}

func distinct[T cmp.Ordered](vs []T) []T {
	slices.Sort(vs)
	return slices.Compact(vs)
}

func (t *Tables) noDType(file, column, dtype string, have []string) error {
	return trace.Errorf(noRows, "%s: %s: got no %q, want one of %s", t.paths[file], column, dtype, strings.Join(distinct(have), ", "))
}

// movedParts are the kernels no table holds, by the bytes one GPU moves.
func (b *binder) movedParts() {
	m, tp := b.m, float64(b.tp)
	a, layers := m.BytesPerActivation, float64(m.NumLayers)
	q := float64(m.NumHeads*m.HeadDim) / tp
	kv := float64(max(m.NumKVHeads, b.tp)*m.HeadDim) / tp
	hidden := float64(m.HiddenSize)
	dense, moe := layers-float64(b.moeLayers()), float64(b.moeLayers())
	b.s.moved = []movedPart{
		// read and write the hidden state and the residual
		{norm, 2 * layers, 4 * hidden * a},
		{rope, layers, 2 * (q + kv) * a},
	}
	if dense > 0 {
		b.s.moved = append(b.s.moved, movedPart{activation, dense, float64(m.NumMLPProj) * float64(m.IntermediateSize) / tp * a})
	}
	if moe > 0 && m.SharedExpertSize > 0 {
		b.s.moved = append(b.s.moved, movedPart{activation, moe, float64(m.NumMLPProj) * float64(m.SharedExpertSize) / tp * a})
	}
	if b.s.rules == Engine {
		b.s.moved = append(b.s.moved, movedPart{kvWrite, layers, 2 * kv * (a + m.BytesPerKV)},
			movedPart{embedding, 1, 2 * hidden * a}, movedPart{norm, 1, 4 * hidden * a})
	}
}
