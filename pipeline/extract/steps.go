package extract

// This file writes the tables of steps and snapshots of one engine while its spans are read. A step
// has a BATCH_SUMMARY (the step itself) and, if it was sampled, a snapshot of each request that ran in
// it.

import (
	"cmp"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
	"github.com/blis-train/blis-train/vllm"
)

// sortRows sorts the steps and snapshots of a span by step. They nearly always are sorted, so they are
// compared with their neighbours first.
func sortRows(r *otlp.StepRows) {
	byID := func(a, b trace.Step) int { return cmp.Compare(a.ID, b.ID) }
	byStep := func(a, b trace.Snapshot) int { return cmp.Compare(a.StepID, b.StepID) }
	for i := 1; i < len(r.Steps); i++ { // slices.IsSortedFunc would copy each row
		if r.Steps[i].ID < r.Steps[i-1].ID {
			stat.SortStable(r.Steps, byID)
			break
		}
	}
	for i := 1; i < len(r.Snaps); i++ {
		if r.Snaps[i].StepID < r.Snaps[i-1].StepID {
			stat.SortStable(r.Snaps, byStep)
			break
		}
	}
}

// nextStep removes the rows of the lowest step id from sorted rows and returns them with the id: its
// summaries (several if a span repeats it, none if it was lost) and its snapshots. ok is false when none
// are left.
func nextStep(r *otlp.StepRows) (step otlp.StepRows, id int64, ok bool) {
	switch {
	case len(r.Steps) > 0 && len(r.Snaps) > 0:
		id = min(r.Steps[0].ID, r.Snaps[0].StepID)
	case len(r.Steps) > 0:
		id = r.Steps[0].ID
	case len(r.Snaps) > 0:
		id = r.Snaps[0].StepID
	default:
		return step, 0, false
	}
	steps, snaps := 0, 0
	for steps < len(r.Steps) && r.Steps[steps].ID == id {
		steps++
	}
	for snaps < len(r.Snaps) && r.Snaps[snaps].StepID == id {
		snaps++
	}
	step = otlp.StepRows{Steps: r.Steps[:steps], Snaps: r.Snaps[:snaps]}
	r.Steps = r.Steps[steps:]
	r.Snaps = r.Snaps[snaps:]
	return step, id, true
}

// stepTables writes the tables of steps and snapshots of one engine while its spans are read. Spans
// arrive in the order of steps, except for exports that were retried. The rows of these wait in
// late and are merged at the end.
type stepTables struct {
	dir    string
	format table.Format
	acc    *source.Account
	at     source.Place // the place that drops of repeated rows name
	steps  *table.Writer[trace.Step]
	snaps  *table.Writer[trace.Snapshot]
	last   otlp.StepRows                 // rows of the latest step, which may continue in the next span
	lastID int64                         // id of that step
	any    bool                          // last has rows
	late   *source.Sorter[otlp.StepRows] // rows whose step had been written when they arrived
	isLate bool                          // late has rows
	mem    *source.Memory
	sightings
	strays bool // some snapshots are of requests without a core span
	out    stepOutput

	stated vllm.Engine // settings in run.yaml
}

// stepOutput are the figures of the steps of an engine, and what of them contradicts run.yaml.
type stepOutput struct {
	steps     result.ExtractSteps
	orphans   int64            // snapshots without a summary of their step
	conflicts int64            // summaries of one step with different stamps
	kept      int64            // records: summaries and snapshots
	blocks    blockFits        // snapshots that agree with block_size
	beyond    enginelog.Limits // steps beyond the limits of run.yaml (max_num_seqs and others)
}

// newStepTables returns the two tables of steps, not yet opened.
func newStepTables(dir string, format table.Format, acc *source.Account, at source.Place,
	mem *source.Memory) (*stepTables, error) {
	m := &stepTables{
		dir:       dir,
		format:    format,
		acc:       acc,
		at:        at,
		mem:       mem,
		sightings: newSightings(mem),
		late:      source.NewSorter[otlp.StepRows](mem),
	}
	return m, m.create()
}

// create opens the tables of steps and of snapshots for writing.
func (m *stepTables) create() (err error) {
	if m.steps, err = table.Create[trace.Step](m.dir, table.Steps, m.format); err == nil {
		m.snaps, err = table.Create[trace.Snapshot](m.dir, table.Snapshots, m.format)
	}
	return err
}

// addSpan adds the sorted rows of one span. A step is written when the next one begins, so its last
// step waits in m.last.
func (m *stepTables) addSpan(rows *otlp.StepRows) error {
	rest := *rows
	for {
		step, id, ok := nextStep(&rest)
		switch {
		case !ok: // copy the last rows, because the caller reuses them
			m.last = otlp.StepRows{Steps: slices.Clone(m.last.Steps), Snaps: slices.Clone(m.last.Snaps)}
			return nil
		case m.any && id < m.lastID: // of a span whose export was retried
			m.isLate = true
			if err := m.late.Put(id, &step); err != nil {
				return err
			}
			continue
		case m.any && id == m.lastID: // a step whose events were divided between two spans
			m.last = otlp.StepRows{Steps: slices.Concat(m.last.Steps, step.Steps),
				Snaps: slices.Concat(m.last.Snaps, step.Snaps)}
			continue
		case m.any:
			if err := m.writeStep(m.last, m.lastID); err != nil {
				return err
			}
		}
		m.last = step
		m.lastID = id
		m.any = true
	}
}

// writeStep writes the rows of one step. Its snapshots are orphans if it has no summary.
func (m *stepTables) writeStep(rows otlp.StepRows, id int64) error {
	snaps, err := m.dropRepeated(rows.Snaps, id)
	if err != nil {
		return err
	}
	for i := range snaps {
		snaps[i].Orphan = len(rows.Steps) == 0
	}
	m.out.kept += int64(len(snaps))
	if len(rows.Steps) == 0 {
		m.out.orphans += int64(len(snaps))
	} else if err := m.writeSummary(rows.Steps, len(snaps)); err != nil {
		return err
	}
	return m.snaps.Append(snaps...)
}

// writeSummary writes the BATCH_SUMMARY of a step, the first if there are several. snaps is the
// number of snapshots of the step.
func (m *stepTables) writeSummary(all []trace.Step, snaps int) error {
	step := &all[0]
	figures := &m.out.steps
	for _, s := range all[1:] {
		if s.TsStartNs != step.TsStartNs {
			m.out.conflicts++
		}
		m.acc.Drop(source.CodeDuplicate, 1, m.at, "summary of step %d", s.ID)
	}
	m.out.kept++
	if figures.LastID.OK {
		figures.Missing += step.ID - figures.LastID.V - 1
	} else {
		figures.FirstID = trace.Some(step.ID)
	}
	figures.LastID = trace.Some(step.ID)
	figures.Summaries++
	if snaps > 0 {
		figures.WithSnapshots++
	}
	step.NumSnapshots = int32(int64(snaps))
	m.out.beyond.See(int64(step.RunningDepth), int64(step.ScheduledTokens), step.BlocksTotal)
	return m.steps.Append(*step)
}

// dropRepeated returns the first snapshot of each request in a step, drops the others, and stores
// the sightings. It reuses the memory of the list.
func (m *stepTables) dropRepeated(list []trace.Snapshot, id int64) ([]trace.Snapshot, error) {
	if len(list) > 0 { // a step without snapshots changes nothing
		m.before, m.now = m.now, m.before[:0] // swapped to reuse the memory of both
		m.lists++
		if m.lists%forgetAfter == 0 {
			if err := m.forget(m.lists - forgetAfter); err != nil {
				return nil, err
			}
		}
	}
	guess := 0 // where in m.before the request of the next snapshot is likely to be
	kept := 0
	for i := range list {
		s := &list[i]
		var o *owner
		o, guess = m.ownerOf(s.CoreID, guess)
		if o.last == id {
			m.acc.Drop(source.CodeDuplicate, 1, m.at, "snapshot of %s in step %d", s.CoreID, id)
			continue
		}
		o.last = id
		o.list = m.lists
		if m.lists%16 == 1 { // every 16th step is enough to compare block sizes
			m.out.blocks.addSnapshot(s, max(1, m.stated.BlockSize))
		}
		o.sight(s)
		m.now = append(m.now, o)
		if kept < i {
			list[kept] = *s
		}
		kept++
	}
	return list[:kept], nil
}

// close writes the last step, merges the late rows, and gives the tables their names.
func (m *stepTables) close() error {
	if m.any {
		if err := m.writeStep(m.last, m.lastID); err != nil {
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
	m.acc.Keep(m.out.kept) // only now: mergeLate counts anew
	m.before = nil
	m.now = nil
	return m.forget(m.lists + 1) // every request
}

// finish completes both tables.
func (m *stepTables) finish() error {
	if err := m.steps.Close(); err != nil {
		return err
	}
	return m.snaps.Close()
}

// abort removes the unfinished tables. After close it does nothing.
func (m *stepTables) abort() {
	m.steps.Abort()
	m.snaps.Abort()
}

// mergeLate writes the tables once more from the rows that were written and those that came late,
// sorted by step. The figures of the engine, and what the first snapshots show, are counted anew.
func (m *stepTables) mergeLate() error {
	early := filepath.Join(m.dir, ".early")
	if err := os.MkdirAll(early, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(early)
	for _, name := range []string{table.Steps, table.Snapshots} {
		file := name + "." + string(m.format)
		if err := os.Rename(filepath.Join(m.dir, file), filepath.Join(early, file)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	m.out = stepOutput{beyond: enginelog.LimitsOf(&m.stated)}
	m.sightings = newSightings(m.mem)
	if err := m.create(); err != nil {
		return err
	}
	defer m.abort()
	mem := &source.Memory{Dir: m.mem.Dir, Limit: m.mem.Limit}
	defer mem.Close()
	all := source.NewSorter[otlp.StepRows](mem) // rows of one step keep the order in which they are added
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
	var step otlp.StepRows
	stepID := int64(minStep)
	err := all.Rows(func(id int64, rows *otlp.StepRows) error {
		if id != stepID {
			if err := m.writeStep(step, stepID); err != nil {
				return err
			}
			step.Steps = step.Steps[:0]
			step.Snaps = step.Snaps[:0]
			stepID = id
		}
		step.Steps = append(step.Steps, rows.Steps...)
		step.Snaps = append(step.Snaps, rows.Snaps...)
		return nil
	})
	if err == nil {
		err = m.writeStep(step, stepID)
	}
	return errors.Join(err, m.finish())
}

// fileRows returns an iterator over the rows of a table; it has none if the file is missing.
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
