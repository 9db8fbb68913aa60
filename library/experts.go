package library

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// experts binds the fused experts.
func (b *binder) experts() error {
	if b.moeLayers() == 0 {
		return nil
	}
	m := b.m
	want := moeKey{weightDType(m), m.HiddenSize, m.MoEIntermediateSize, m.TopK, m.NumExperts, b.tp, 1, distribution}
	if c := b.t.moe[want]; c != nil {
		b.s.linear = append(b.s.linear, linearPart{experts, float64(b.moeLayers()), *b.s.rules.clean(c)})
		return nil
	}
	return b.t.noExperts(want)
}

func (t *Tables) noExperts(want moeKey) error {
	path := t.paths[moeFile]
	if path == "" {
		return trace.Errorf(noRows, "%s: GPU %s: got no %s, want it for a mixture of experts", t.dir, t.GPU, moeFile)
	}
	var dtypes, distributions []string
	var tps []int64
	best, nearest := math.Inf(1), moeKey{}
	for k := range t.moe {
		dtypes = append(dtypes, k.dtype)
		shape := want
		shape.tp, shape.distribution = k.tp, k.distribution
		if k == shape {
			tps = append(tps, k.tp)
			if k.tp == want.tp {
				distributions = append(distributions, k.distribution)
			}
		}
		if k.dtype != want.dtype {
			continue
		}
		if d := k.distance(want); d < best || d == best && k.text() < nearest.text() {
			best, nearest = d, k
		}
	}
	switch {
	case !slices.Contains(dtypes, want.dtype):
		return t.noDType(moeFile, "moe_dtype", want.dtype, dtypes)
	case len(distributions) > 0:
		return trace.Errorf(noRows, "%s: %s: got no distribution %q, want %s", path, want.text(), want.distribution,
			trace.OneOf(distinct(distributions)))
	case len(tps) > 0:
		return trace.Errorf(noRows, "%s: moe_tp_size: got no %d for %s, want one of %v", path, want.tp, want.text(), distinct(tps))
	}
	return trace.Errorf(noRows, "%s: got no rows for %s, nearest %s", path, want.text(), nearest.text())
}

func (k moeKey) text() string {
	return fmt.Sprintf("hidden_size %d, inter_size %d, topk %d of %d experts", k.hidden, k.inter, k.topK, k.experts)
}

func (k moeKey) distance(o moeKey) float64 {
	sum := 0.0
	for _, p := range [][2]int64{{k.hidden, o.hidden}, {k.inter, o.inter}, {k.topK, o.topK}, {k.experts, o.experts}, {k.tp, o.tp},
		{k.ep, o.ep}} {
		sum += math.Abs(stat.Log(float64(p[0]) / float64(max(1, p[1]))))
	}
	return sum
}
