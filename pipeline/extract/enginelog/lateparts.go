package enginelog

// This file puts the parts of a log that were joined in another order than they were written (`cat server.log*` has
// the newest first) into the order of their stamps.

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// mostGaps is how many gaps of at least leastRestart passes a life remembers.
const mostGaps = 4096

// indexRange is a range of indices of passes, without its ends.
type indexRange struct{ after, before int64 }

// isEarlier reports whether a pass has a stamp that is earlier than that of another, by more than lines of several
// threads may be exchanged: a second beyond the resolution of the stamp.
func isEarlier(r, than *trace.Iteration) bool {
	return r.StampNs.OK && than.StampNs.OK && r.StampWall == than.StampWall && than.StampNs.V-r.StampNs.V > r.StampStepNs.V+1e9
}

// mayHave reports whether a pass may be a copy of one of the life.
func (l *Life) mayHave(r *trace.Iteration) bool {
	if r.Index < l.first.Index || r.Index > l.last.Index || isEarlier(r, &l.first) || isEarlier(&l.last.Iteration, r) {
		return false
	}
	return !slices.ContainsFunc(l.gaps, func(g indexRange) bool { return r.Index > g.after && r.Index < g.before })
}

// isLatePart reports whether a pass whose index does not follow that of the last pass of its engine belongs to a part
// of the log that was written earlier, as opposed to a copy: its stamp is earlier, and no life has it.
func (c *Lives) isLatePart(key string, last *passRecord, r *passRecord) bool {
	return isEarlier(&r.Iteration, &last.Iteration) &&
		!slices.ContainsFunc(c.open[key], func(l *Life) bool { return l.mayHave(&r.Iteration) })
}

// joinParts joins the lives that are parts of one, and sorts those of each engine by their first stamp. The tables of
// the lives must be closed.
func (c *Lives) joinParts() error {
	isLate := func(l *Life) bool { return l.isLate }
	if !slices.ContainsFunc(c.lives, isLate) {
		return nil
	}
	for _, late := range slices.Clone(c.lives) {
		if !late.isLate {
			continue
		}
		for i, other := range c.lives {
			if other == late || other.key != late.key || other.process != late.process {
				continue
			}
			joined, err := c.join(late, other)
			if err != nil {
				return err
			}
			if joined != nil {
				c.lives[i] = joined
				c.lives = slices.DeleteFunc(c.lives, func(l *Life) bool { return l == late })
				break
			}
		}
	}
	stat.SortStable(c.lives, func(a, b *Life) int {
		return cmp.Or(compareEngines(a, b), cmp.Compare(a.first.StampNs.V, b.first.StampNs.V))
	})
	// Statistics of an engine are compared with those before them.
	stat.SortStable(c.Statistics, func(a, b Statistics) int { return cmp.Compare(a.StampNs.V, b.StampNs.V) })
	return nil
}

// join writes the passes of two lives in the order of their indices as one table, and returns its life. Passes that
// both have count as repeated. It returns nil if they are lives of an engine that was started again: passes of one
// index have different stamps, or a pass with a higher index has an earlier stamp.
func (c *Lives) join(a, b *Life) (*Life, error) {
	c.joins++
	joined := *b
	joined.Dir = filepath.Join(c.stage, fmt.Sprintf("iterations.joined.%d", c.joins))
	joined.isLate = a.isLate && b.isLate
	out, err := table.Create[trace.Iteration](joined.Dir, table.Iterations, c.format)
	if err != nil {
		return nil, err
	}
	defer out.Abort()
	rowsA, errA := table.Open[trace.Iteration](a.Dir, table.Iterations)
	rowsB, errB := table.Open[trace.Iteration](b.Dir, table.Iterations)
	if err := errors.Join(errA, errB); err != nil {
		return nil, err
	}
	defer rowsA.Close()
	defer rowsB.Close()
	hasA, hasB := rowsA.Next(), rowsB.Next()
	var last trace.Iteration
	copies := int64(0)
	for hasA || hasB {
		isCopy := hasA && hasB && rowsA.Row().Index == rowsB.Row().Index
		isOfA := hasA && (!hasB || rowsA.Row().Index < rowsB.Row().Index)
		var row trace.Iteration
		switch {
		case isOfA:
			row = *rowsA.Row()
		default:
			row = *rowsB.Row()
		}
		isRestarted := isCopy && (isEarlier(rowsA.Row(), &row) || isEarlier(&row, rowsA.Row()))
		if isRestarted || out.Rows() > 0 && isEarlier(&row, &last) {
			return nil, nil
		}
		if err := out.Append(row); err != nil {
			return nil, err
		}
		last = row
		if isCopy {
			copies++
		}
		if isOfA || isCopy {
			hasA = rowsA.Next()
		}
		if !isOfA {
			hasB = rowsB.Next()
		}
	}
	if err := errors.Join(rowsA.Err(), rowsB.Err(), out.Close()); err != nil {
		return nil, err
	}
	c.acc.Keep(-copies)
	c.acc.Drop(source.CodeDuplicate, copies, source.Place{File: a.begin.File, Line: a.begin.Line},
		"%d iterations of engine %s from here on that another part of the log has", copies, a.Engine)
	earlier, later := a, b
	if b.first.Index < a.first.Index {
		earlier, later = b, a
	}
	joined.first = earlier.first
	joined.begin = earlier.begin
	joined.Rows = out.Rows()
	joined.Stamped = a.Stamped + b.Stamped - copies
	joined.Backwards = a.Backwards + b.Backwards
	joined.FirstBack = cmp.Or(earlier.FirstBack, later.FirstBack)
	joined.Missing = last.Index - joined.first.Index + 1 - joined.Rows
	joined.FirstGap = source.Place{}
	if joined.Missing > 0 {
		joined.FirstGap = cmp.Or(earlier.FirstGap, later.FirstGap, later.begin)
	}
	return &joined, nil
}
