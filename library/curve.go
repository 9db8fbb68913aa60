package library

// This file has measured times as functions of one size (curve) or two (grid): interpolation between
// the measured sizes, and continuation beyond them.

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

// curve is a measured time over one size: y us at ascending x.
type curve struct{ x, y []float64 }

// usAt returns the time at size x: linear between measured sizes, constant below the first, and
// beyond the last growing like x to the given power: 1, or 2 for the attention of prompts, whose work
// grows like the square of their length.
func (c *curve) usAt(x, power float64) float64 {
	points := len(c.x)
	switch {
	case x <= c.x[0]:
		return c.y[0]
	case x > c.x[points-1]:
		times := x / c.x[points-1]
		if power == 2 {
			times *= times
		}
		return c.y[points-1] * times
	}
	i, exact := slices.BinarySearch(c.x, x)
	if exact {
		return c.y[i]
	}
	part := (x - c.x[i-1]) / (c.x[i] - c.x[i-1])
	return c.y[i-1] + part*(c.y[i]-c.y[i-1])
}

// usOnLine returns what usAt does, except that beyond the last point the curve continues with the
// slope of its last two points.
func (c *curve) usOnLine(x float64) float64 {
	points := len(c.x)
	if x <= c.x[points-1] || points < 2 {
		return c.usAt(x, 1)
	}
	slope := (c.y[points-1] - c.y[points-2]) / (c.x[points-1] - c.x[points-2])
	return c.y[points-1] + max(0, slope)*(x-c.x[points-1])
}

// grid is a measured time over two sizes: for each value of the first one curve over the second.
type grid struct {
	x          []float64
	rows       []curve
	byRequests bool // the first size is a number of requests
}

// usAt returns the time, us, at the sizes x (of the row) and y (within it): linear in both, beyond the
// end of a row as usInRow does, and proportional to x beyond the last row.
func (g *grid) usAt(x, y float64) float64 {
	rows := len(g.x)
	i, exact := slices.BinarySearch(g.x, x)
	switch {
	case exact:
		return g.usInRow(i, y)
	case i == 0:
		return g.usInRow(0, y)
	case i == rows:
		return g.usInRow(rows-1, y) * x / g.x[rows-1]
	}
	part := (x - g.x[i-1]) / (g.x[i] - g.x[i-1])
	lo := g.usInRow(i-1, y)
	hi := g.usInRow(i, y)
	return lo + part*(hi-lo)
}

// usInRow returns the time, us, at size y of a row. Rows of many requests end early, where the memory of the GPU was
// full. Beyond its end a row continues with its last slope, which one disturbed measurement can spoil. So the time is
// kept within a factor of replaceBeyond of that of the next smaller row which was measured there, in proportion to the
// requests.
func (g *grid) usInRow(i int, y float64) float64 {
	ends := func(k int) float64 { return g.rows[k].x[len(g.rows[k].x)-1] }
	us := g.rows[i].usOnLine(y)
	if i == 0 || y <= ends(i) || !g.byRequests {
		return us
	}
	reaches := i - 1
	for reaches > 0 && ends(reaches) < y {
		reaches--
	}
	inProportion := g.rows[reaches].usOnLine(y) * g.x[i] / g.x[reaches]
	return min(max(us, inProportion/replaceBeyond), allowedUs(inProportion))
}

// curveAt returns the curve over the second size at one value of the first.
func (g *grid) curveAt(x float64) curve {
	return curveOver(sizesOf(g.rows), func(y float64) float64 { return g.usAt(x, y) })
}

// curveOver returns the values of a function at some sizes as a curve.
func curveOver(xs []float64, us func(x float64) float64) curve {
	c := curve{x: xs, y: make([]float64, len(xs))}
	for i, x := range xs {
		c.y[i] = us(x)
	}
	return c
}

// sizesOf returns the sizes of all curves, ascending.
func sizesOf(cs []curve) []float64 {
	var xs []float64
	for _, c := range cs {
		xs = append(xs, c.x...)
	}
	return distinct(xs)
}

// blend returns the weighted geometric mean of curves, on the union of their sizes. The weights add up to 1.
func blend(cs []curve, weights []float64) curve {
	if len(cs) == 1 {
		return cs[0]
	}
	return curveOver(sizesOf(cs), func(x float64) float64 {
		sum := 0.0
		for j := range cs {
			sum += weights[j] * math.Log(cs[j].usAt(x, 1))
		}
		return math.Exp(sum)
	})
}

// scaled returns the curve with all times multiplied.
func (c curve) scaled(by float64) curve {
	scaled := curve{x: c.x, y: slices.Clone(c.y)}
	for i := range scaled.y {
		scaled.y[i] *= by
	}
	return scaled
}

// lighter returns the curve over tokens of a layer whose weights have only a share of the bytes
// (spec#library-step). Only the time of the bytes that are not read is saved: the computation takes as
// long as before. The time of the smallest size, where reading decides, is taken as that of the weights
// which one token reads; reads(x) is how much of the weights x tokens read, relative to one token.
func (c curve) lighter(share float64, reads func(x float64) float64) curve {
	return curveOver(c.x, func(x float64) float64 {
		us := c.usAt(x, 1)
		return max(share*us+launchUs, us-(1-share)*reads(x)*c.y[0])
	})
}

// envelope returns the curve with each time lowered to the least time of any larger size. A kernel
// that does more in less time also serves x, by padding; so a measurement that was disturbed
// upwards does not count.
func (c curve) envelope() curve {
	y := slices.Clone(c.y)
	for i := len(y) - 2; i >= 0; i-- {
		y[i] = min(y[i], y[i+1])
	}
	return curve{x: c.x, y: y}
}

// repeatsDiffer is the ratio up to which repeats of one kernel and its choices by shape differ. A time that is longer than
// one of larger sizes by more was disturbed.
const repeatsDiffer = 1.2

// withoutDisturbed returns the grid with each time that is more than repeatsDiffer times that of sizes of which neither is
// smaller lowered to the least of those.
func (g grid) withoutDisturbed() grid {
	out := g
	out.rows = make([]curve, len(g.rows))
	var larger curve // the least times of this row's sizes and larger ones, of the rows above
	for i := len(g.rows) - 1; i >= 0; i-- {
		own := g.rows[i]
		least := own.envelope()
		if i+1 < len(g.rows) {
			for k, y := range least.x {
				if at, _ := slices.BinarySearch(larger.x, y); at < len(larger.x) {
					least.y[k] = min(least.y[k], larger.y[at])
				}
			}
		}
		row := curve{x: own.x, y: slices.Clone(own.y)}
		for k, us := range least.y {
			if row.y[k] > repeatsDiffer*us {
				row.y[k] = us
			}
		}
		out.rows[i] = row
		larger = least
	}
	return out
}

// raisedAt returns the curve with the time at one measured size raised to the straight line, on log scales, between
// its two neighbours; unchanged where x was not measured or is the first or last size.
func (c curve) raisedAt(x float64) curve {
	i, exact := slices.BinarySearch(c.x, x)
	if !exact || i == 0 || i == len(c.x)-1 {
		return c
	}
	t := math.Log(x/c.x[i-1]) / math.Log(c.x[i+1]/c.x[i-1])
	raised := curve{x: c.x, y: slices.Clone(c.y)}
	raised.y[i] = max(c.y[i], c.y[i-1]*math.Pow(c.y[i+1]/c.y[i-1], t))
	return raised
}

// row is one measured time of a curve.
type row struct {
	x      int64 // the size
	source int64 // the kernel: its index among the words of kernel_source
	us     float64
}

// mergeRows returns one curve of the rows of a key. Of the repeats of one kernel it uses the
// median, of several kernels the fastest, which an engine would choose.
func mergeRows(rows []row) curve {
	stat.SortStable(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.x, b.x), cmp.Compare(a.source, b.source), cmp.Compare(a.us, b.us))
	})
	merged := curve{}
	// Rows i to j are the repeats of one kernel at one size.
	for i := 0; i < len(rows); {
		j := i
		for j < len(rows) && rows[j].x == rows[i].x && rows[j].source == rows[i].source {
			j++
		}
		us := (rows[(i+j-1)/2].us + rows[(i+j)/2].us) / 2
		if points := len(merged.x); points > 0 && merged.x[points-1] == float64(rows[i].x) {
			merged.y[points-1] = min(merged.y[points-1], us)
		} else {
			merged.x = append(merged.x, float64(rows[i].x))
			merged.y = append(merged.y, us)
		}
		i = j
	}
	return merged
}
