package library

// This file looks up the times of linear layers (matrix products) by dtype and shape.

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
)

// DTypes of the tables.
const (
	bf16     = "bfloat16"
	fp8      = "fp8"       // one scale a tensor
	fp8Block = "fp8_block" // one scale a block of weights
	nvfp4    = "nvfp4"
)

// bytesOf returns the bytes of a weight of one of the tables' dtypes, without scales.
func bytesOf(dtype string) float64 {
	switch dtype {
	case bf16:
		return 2
	case fp8, fp8Block, "int8", "int8_wo":
		return 1
	}
	return 0.5
}

// gemm returns the time of a layer of n outputs and k inputs over tokens: log-log in n and k
// between measured sizes, proportional beyond them. It is at least the time of reading the weights
// from memory: a repeated measurement may find small weights in the GPU's cache, a step of many
// layers does not.
//
// Rows of narrower weights that take longer than allowedUs of bfloat16's are lowered to it.
func (g *GPU) gemm(dtype string, n, k int64) (curve, found, error) {
	type key struct {
		dtype string
		n, k  int64
	}
	l := g.lookedUp(key{dtype, n, k}, func() (l lookup) {
		l.curve, l.found, l.err = g.gemmRows(dtype, n, k)
		if l.err != nil || dtype == bf16 || l.found.unlike {
			return l
		}
		// Narrower weights must not take longer than bfloat16's.
		plain, _, err := g.gemmRows(bf16, n, k)
		if err != nil {
			return l
		}
		most := 0.0
		for i, x := range l.curve.x {
			if us, plainUs := l.curve.y[i], plain.usAt(x, 1); us > allowedUs(plainUs) {
				most = max(most, us/plainUs)
			}
		}
		if most == 0 {
			return l
		}
		own := l.curve
		l.curve = curveOver(own.x, func(x float64) float64 { return min(own.usAt(x, 1), allowedUs(plain.usAt(x, 1))) })
		l.found.rows = &own
		l.found.Contradicted = most
		l.found.Reached = Substituted
		l.found.rank = ofOther // the time now also rests on bfloat16's rows
		note := fmt.Sprintf("rows take up to %.1f times those of bfloat16: lowered to %.1f times", most, replaceBeyond)
		l.found.Note = strings.TrimPrefix(l.found.Note+"; "+note, "; ")
		return l
	})
	return l.curve, l.found, l.err
}

// gemmRows is gemm from the rows as they were measured.
func (g *GPU) gemmRows(dtype string, n, k int64) (curve, found, error) {
	t, err := g.needTable("gemm")
	if err != nil {
		return curve{}, found{}, err
	}
	all := t.pickSeries(hasWord("gemm_dtype", dtype))
	// A dtype without rows is derived from bfloat16, or int8 from fp8, which multiplies 8 bits too.
	if len(all) == 0 {
		like := bf16
		if dtype == "int8" && len(t.pickSeries(hasWord("gemm_dtype", fp8))) > 0 {
			like = fp8
		}
		if like == dtype || dtype == bf16 {
			return curve{}, found{}, g.missingRows(t, hasWord("gemm_dtype", dtype), equals("n", n), equals("k", k))
		}
		times, source, err := g.gemmRows(like, n, k)
		times = times.lighter(bytesOf(dtype)/bytesOf(like), func(float64) float64 { return 1 })
		source.rank = byBytes
		return times, source.substituted("%s, from %s by the bytes of its weights", dtype, like), err
	}
	// Blend the measured shapes around n x k, log-log. part is the position between two measured sizes, times how
	// many times larger than the largest measured size the layer is.
	n0, n1, partN, timesN := between(t.values(all, "n"), n)
	k0, k1, partK, timesK := between(t.values(all, "k"), k)
	source := found{Table: t.Name, Version: t.Version}
	var cornerCurves []curve
	var weights []float64
	corners := []struct {
		n, k   int64
		weight float64
	}{
		{n0, k0, (1 - partN) * (1 - partK)},
		{n0, k1, (1 - partN) * partK},
		{n1, k0, partN * (1 - partK)},
		{n1, k1, partN * partK},
	}
	for _, at := range corners {
		if at.weight == 0 {
			continue
		}
		series := t.pickSeries(hasWord("gemm_dtype", dtype), equals("n", at.n), equals("k", at.k))
		scale := 1.0
		if len(series) == 0 { // a corner that is not measured: proportional in k from the next smaller that is
			measured := t.values(t.pickSeries(hasWord("gemm_dtype", dtype), equals("n", at.n)), "k")
			i, _ := slices.BinarySearch(measured, at.k)
			k := measured[max(0, i-1)]
			series = t.pickSeries(hasWord("gemm_dtype", dtype), equals("n", at.n), equals("k", k))
			source.Reached = Beyond
			scale = float64(at.k) / float64(k)
		}
		times, kernel := t.curveOf(series)
		cornerCurves = append(cornerCurves, times.envelope().scaled(scale))
		weights = append(weights, at.weight)
		source.Kernel = kernel
	}
	if len(cornerCurves) > 1 {
		source.Reached = max(source.Reached, Interpolated)
	}
	if timesN*timesK > 1 {
		source.Reached = Beyond
	}
	times := blend(cornerCurves, weights).scaled(timesN * timesK)
	// Rows that timed the launch in place of the kernel are replaced where fp8 is faster.
	if dtype != bf16 && dtype != fp8 && g.isLaunchBound(t, dtype) {
		if other, _, err := g.gemm(fp8, n, k); err == nil {
			source.Note = "launch-bound: at most the fp8 row + 1 us"
			source.rank = ofOther
			measured := times
			times = curveOver(measured.x, func(x float64) float64 { return min(measured.usAt(x, 1), other.usAt(x, 1)+1) })
		}
	}
	// No layer takes less than reading its weights from memory.
	readUs := 1e6 * float64(n*k) * bytesOf(dtype) / g.Bandwidth
	for i := range times.y {
		times.y[i] = max(times.y[i], readUs)
	}
	return times, source, nil
}

// isLaunchBound reports whether the rows of a dtype's small layers contain the time to launch the
// kernel, not that of the kernel itself: whether the median layer of few tokens takes five times as long
// as bfloat16's, though it reads fewer bytes.
func (g *GPU) isLaunchBound(t *Table, dtype string) bool {
	typical := func(dtype string) float64 {
		var us []float64
		for _, s := range t.pickSeries(hasWord("gemm_dtype", dtype)) {
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

// between returns the measured neighbours of v, the position t in [0, 1] of v between them on a log
// scale, and how many times larger than the largest v is (1 if it is not).
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
