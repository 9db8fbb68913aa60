package library

import (
	"fmt"
)

// collective returns the time of a collective over bytes, among so many GPUs. dtype and how are the
// columns that have the data type and the operation or backend, which must be value.
func (g *GPU) collective(name, dtype, how string, value string, gpus int64) (curve, found, error) {
	type key struct {
		name, dtype, how, value string
		gpus                    int64
	}
	l := g.lookedUp(key{name, dtype, how, value, gpus}, func() (l lookup) {
		l.curve, l.found, l.err = g.collectiveRows(name, dtype, how, value, gpus)
		return l
	})
	return l.curve, l.found, l.err
}

func (g *GPU) collectiveRows(name, dtype, how string, value string, gpus int64) (curve, found, error) {
	t, err := g.needTable(name)
	if err != nil {
		return curve{}, found{}, err
	}
	of := []where{hasWord(dtype, bf16, "half", "float16"), hasWord(how, value), equals("num_gpus", gpus)}
	series := t.pickSeries(of...)
	f := found{Table: name, Version: t.Version}
	ring := 1.0
	if most := t.values(t.pickSeries(of[:2]...), "num_gpus"); len(series) == 0 && len(most) > 0 && gpus > most[len(most)-1] {
		n := most[len(most)-1] // each GPU of a ring sends (n-1)/n of the bytes
		series = t.pickSeries(of[0], of[1], equals("num_gpus", n))
		ring = float64(gpus-1) / float64(gpus) * float64(n) / float64(n-1)
		f.Reached = Substituted
		f.Note = fmt.Sprintf("%d GPUs as one node of %d", gpus, n)
	}
	if len(series) == 0 {
		return curve{}, found{}, g.missingRows(t, of...)
	}
	c, kernel := t.curveOf(series)
	f.Kernel = kernel
	for i := range c.x {
		c.x[i] *= 2 // elements of two bytes
	}
	return c.envelope().scaled(ring), f, nil
}
