package extract

import (
	"cmp"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
	"github.com/blis-train/blis-train/vllm"
)

// sortRows puts rows in step order, as they nearly always are.
func sortRows(r *otlp.StepRows) {
	byID := func(a, b trace.Step) int { return cmp.Compare(a.ID, b.ID) }
	byStep := func(a, b trace.Snapshot) int { return cmp.Compare(a.StepID, b.StepID) }
	if !slices.IsSortedFunc(r.Steps, byID) {
		slices.SortStableFunc(r.Steps, byID)
	}
	if !slices.IsSortedFunc(r.Snaps, byStep) {
		slices.SortStableFunc(r.Snaps, byStep)
	}
}

// nextStep cuts the rows of the lowest step id off sorted rows; ok is false at the end.
func nextStep(r *otlp.StepRows) (g otlp.StepRows, id int64, ok bool) {
	switch {
	case len(r.Steps) > 0 && len(r.Snaps) > 0:
		id = min(r.Steps[0].ID, r.Snaps[0].StepID)
	case len(r.Steps) > 0:
		id = r.Steps[0].ID
	case len(r.Snaps) > 0:
		id = r.Snaps[0].StepID
	default:
		return g, 0, false
	}
	i, j := 0, 0
	for i < len(r.Steps) && r.Steps[i].ID == id {
		i++
	}
	for j < len(r.Snaps) && r.Snaps[j].StepID == id {
		j++
	}
	g = otlp.StepRows{Steps: r.Steps[:i], Snaps: r.Snaps[:j]}
	r.Steps, r.Snaps = r.Steps[i:], r.Snaps[j:]
	return g, id, true
}

// stepTables writes the steps and snapshots of one engine while they are read,
// in step order. Spans arrive in that order, but for exports that were retried
// later: their rows wait in late and are merged in at the end.
type stepTables struct {
	dir    string
	format table.Format
	acc    *source.Account
	at     source.Place // where a repeated row is reported
	steps  *table.Writer[trace.Step]
	snaps  *table.Writer[trace.Snapshot]
	held   otlp.StepRows // the last step: the next span may add to it
	heldID int64
	any    bool
	late   *source.Sorter[otlp.StepRows] // rows whose step was written already when they arrived
	isLate bool
	mem    *source.Memory
	sightings
	strays bool // some snapshots are of requests without a core span
	out    stepOutput

	stated vllm.Engine // as run.yaml says
}

// stepOutput is what writing the steps of an engine found out.
type stepOutput struct {
	steps     result.ExtractSteps
	orphans   int64
	conflicts int64
	kept      int64
	blocks    blockFits
	beyond    enginelog.Limits
}

func newStepTables(dir string, format table.Format, acc *source.Account, at source.Place, mem *source.Memory) (*stepTables, error) {
	m := &stepTables{dir: dir, format: format, acc: acc, at: at, mem: mem, sightings: newSightings(mem), late: source.NewSorter[otlp.StepRows](mem)}
	return m, m.create()
}

func (m *stepTables) create() (err error) {
	if m.steps, err = table.Create[trace.Step](m.dir, table.Steps, m.format); err == nil {
		m.snaps, err = table.Create[trace.Snapshot](m.dir, table.Snapshots, m.format)
	}
	return err
}

// add takes the rows of one span, sorted.
func (m *stepTables) add(rows *otlp.StepRows) error {
	left := *rows
	for {
		g, id, ok := nextStep(&left)
		switch {
		case !ok:
			m.held = otlp.StepRows{Steps: slices.Clone(m.held.Steps), Snaps: slices.Clone(m.held.Snaps)}
			return nil
		case m.any && id < m.heldID:
			m.isLate = true
			if err := m.late.Put(id, &g); err != nil {
				return err
			}
			continue
		case m.any && id == m.heldID:
			m.held = otlp.StepRows{Steps: slices.Concat(m.held.Steps, g.Steps), Snaps: slices.Concat(m.held.Snaps, g.Snaps)}
			continue
		case m.any:
			if err := m.write(m.held, m.heldID); err != nil {
				return err
			}
		}
		m.held = g
		m.heldID = id
		m.any = true
	}
}

// write writes the rows of one step.
func (m *stepTables) write(g otlp.StepRows, id int64) error {
	snaps, err := m.snapshots(g.Snaps, id)
	if err != nil {
		return err
	}
	for i := range snaps {
		snaps[i].Orphan = len(g.Steps) == 0
	}
	m.out.kept += int64(len(snaps))
	if len(g.Steps) == 0 {
		m.out.orphans += int64(len(snaps))
	} else if err := m.summary(g.Steps, len(snaps)); err != nil {
		return err
	}
	return m.snaps.Append(snaps...)
}

// summary writes the BATCH_SUMMARY of a step; the first of several stays.
func (m *stepTables) summary(all []trace.Step, snaps int) error {
	step, n := &all[0], &m.out.steps
	for _, s := range all[1:] {
		if s.TsStartNs != step.TsStartNs {
			m.out.conflicts++
		}
		m.acc.Drop(source.CodeDuplicate, 1, m.at, "summary of step %d", s.ID)
	}
	m.out.kept++
	if n.LastID.OK {
		n.Missing += step.ID - n.LastID.V - 1
	} else {
		n.FirstID = trace.Some(step.ID)
	}
	n.LastID = trace.Some(step.ID)
	n.Summaries++
	if snaps > 0 {
		n.WithSnapshots++
	}
	step.NumSnapshots = int64(snaps)
	m.out.beyond.See(step.RunningDepth, step.ScheduledTokens, step.BlocksTotal)
	return m.steps.Append(*step)
}

// snapshots drops repeated snapshots of a step (a request counts once) and
// notes what the others say about their requests.
func (m *stepTables) snapshots(list []trace.Snapshot, id int64) ([]trace.Snapshot, error) {
	if len(list) > 0 {
		m.before, m.now = m.now, m.before[:0]
		if m.lists++; m.lists%forgetAfter == 0 {
			if err := m.forget(m.lists - forgetAfter); err != nil {
				return nil, err
			}
		}
	}
	guess, kept := 0, list[:0]
	for i := range list {
		s := &list[i]
		o, at := m.owner(s.CoreID, guess)
		guess = at
		if o.last == id {
			m.acc.Drop(source.CodeDuplicate, 1, m.at, "snapshot of %s in step %d", s.CoreID, id)
			continue
		}
		o.last, o.list = id, m.lists
		if m.lists%16 == 1 {
			m.out.blocks.see(s, max(1, m.stated.BlockSize))
		}
		o.note(s)
		m.now = append(m.now, o)
		kept = list[:len(kept)+1]
		if len(kept) <= i {
			kept[len(kept)-1] = *s
		}
	}
	return kept, nil
}

// close writes what is left and gives the tables their names.
func (m *stepTables) close() error {
	if m.any {
		if err := m.write(m.held, m.heldID); err != nil {
			return err
		}
		m.any = false
	}
	if err := m.finish(); err != nil {
		return err
	}
	if m.isLate {
		if err := m.mergeLate(); err != nil {
			return err
		}
	}
	m.acc.Keep(m.out.kept)
	m.before, m.now = nil, nil
	return m.forget(m.lists + 1)
}

func (m *stepTables) finish() error {
	if err := m.steps.Close(); err != nil {
		return err
	}
	return m.snaps.Close()
}

// abort ends the writing; it is safe after close.
func (m *stepTables) abort() {
	m.steps.Abort()
	m.snaps.Abort()
}

// mergeLate writes the tables once more: what was written, merged with what
// came late. It starts the engine's figures anew.
func (m *stepTables) mergeLate() error {
	early := filepath.Join(m.dir, ".early")
	if err := os.MkdirAll(early, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(early)
	for _, name := range []string{table.Steps, table.Snapshots} {
		file := name + "." + string(m.format)
		if err := os.Rename(filepath.Join(m.dir, file), filepath.Join(early, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	m.out, m.sightings = stepOutput{}, newSightings(m.mem)
	if err := m.create(); err != nil {
		return err
	}
	defer m.abort()
	mem := &source.Memory{Dir: m.mem.Dir, Limit: m.mem.Limit}
	defer mem.Close()
	all := source.NewSorter[otlp.StepRows](mem) // of one step, what was written comes first
	for s, err := range fileRows[trace.Step](early, table.Steps, m.format) {
		if err == nil {
			err = all.Put(s.ID, &otlp.StepRows{Steps: []trace.Step{s}})
		}
		if err != nil {
			return err
		}
	}
	for s, err := range fileRows[trace.Snapshot](early, table.Snapshots, m.format) {
		if err == nil {
			err = all.Put(s.StepID, &otlp.StepRows{Snaps: []trace.Snapshot{s}})
		}
		if err != nil {
			return err
		}
	}
	if err := m.late.Rows(all.Put); err != nil {
		return err
	}
	var held otlp.StepRows // of step at
	at := int64(minStep)
	err := all.Rows(func(id int64, rows *otlp.StepRows) error {
		if id != at {
			if err := m.write(held, at); err != nil {
				return err
			}
			held.Steps = held.Steps[:0]
			held.Snaps = held.Snaps[:0]
			at = id
		}
		held.Steps = append(held.Steps, rows.Steps...)
		held.Snaps = append(held.Snaps, rows.Snaps...)
		return nil
	})
	if err == nil {
		err = m.write(held, at)
	}
	return errors.Join(err, m.finish())
}

// fileRows reads a table row by row; a missing one is empty.
func fileRows[T any](dir, name string, format table.Format) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		c, err := table.OpenFile[T](filepath.Join(dir, name+"."+string(format)))
		if err == nil {
			defer c.Close()
			for c.Next() {
				if !yield(*c.Row(), nil) {
					return
				}
			}
			err = c.Err()
		}
		var none T
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			yield(none, err)
		}
	}
}
