package library

// This file looks up the times of collectives between GPUs: all-reduce, all-gather, reduce-scatter.

import (
	"fmt"
)

// collective returns the time of a collective over bytes, among so many GPUs, from the table of that
// name. The tables of NCCL and of vLLM's own all-reduce differ in their columns: dtype names the one that
// has the data type, how the one that has the operation or the backend, which must be value.
func (g *GPU) collective(name, dtype, how, value string, gpus int64) (curve, found, error) {
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

// collectiveRows is collective from the rows of the table, without the memory of earlier look-ups.
func (g *GPU) collectiveRows(name, dtype, how, value string, gpus int64) (curve, found, error) {
	t, err := g.needTable(name)
	if err != nil {
		return curve{}, found{}, err
	}
	conditions := []where{hasWord(dtype, bf16, "half", "float16"), hasWord(how, value), equals("num_gpus", gpus)}
	series := t.pickSeries(conditions...)
	source := found{Table: name, Version: t.Version}
	// More GPUs than were measured take the rows of the most: each of n GPUs in a ring sends (n-1)/n of the
	// bytes.
	ring := 1.0
	groups := t.values(t.pickSeries(conditions[:2]...), "num_gpus") // the numbers of GPUs that were measured
	if len(series) == 0 && len(groups) > 0 && gpus > groups[len(groups)-1] {
		measured := groups[len(groups)-1]
		series = t.pickSeries(conditions[0], conditions[1], equals("num_gpus", measured))
		ring = float64(gpus-1) / float64(gpus) * float64(measured) / float64(measured-1)
		source.Reached = Substituted
		source.Note = fmt.Sprintf("%d GPUs as one node of %d", gpus, measured)
	}
	if len(series) == 0 {
		return curve{}, found{}, g.missingRows(t, conditions...)
	}
	times, kernel := t.curveOf(series)
	source.Kernel = kernel
	for i := range times.x {
		times.x[i] *= 2 // elements of two bytes
	}
	return times.envelope().scaled(ring), source, nil
}
