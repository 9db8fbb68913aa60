package kernels

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

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
	return c.y[i-1] + float64(t*(c.y[i]-c.y[i-1]))
}

// line is at for curves that grow with a constant slope beyond the table.
func (c *curve) line(x float64) float64 {
	n := len(c.x)
	if x <= c.x[n-1] || n < 2 {
		return c.at(x, 1)
	}
	slope := (c.y[n-1] - c.y[n-2]) / (c.x[n-1] - c.x[n-2])
	return c.y[n-1] + float64(max(0, slope)*(x-c.x[n-1]))
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
	return lo + float64(t*(hi-lo))
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
			sum += float64(weights[j] * stat.Log(cs[j].at(x, 1)))
		}
		return stat.Exp(sum)
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
		return max(float64(share*us)+launchUs, us-float64((1-share)*reads(x)*c.y[0]))
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
			c.x, c.y = append(c.x, float64(rows[i].x)), append(c.y, us)
		}
		i = j
	}
	return c
}
