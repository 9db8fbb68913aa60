package fit

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

// Files of a stored run: what is no table, the tables of the fit, those of one other model.
const (
	storedRun   = "run.json"
	storedRows  = "rows.bin"
	storedOther = "rows.%s.bin"
)

// stored is a run but for its tables and what its source tells.
type stored struct {
	runFacts
	Contexts string          `json:"contexts"`
	Spans    []rows.Span     `json:"spans"`
	Covered  *result.Covered `json:"covered"`
	Tables   []string        `json:"tables"` // names of those in storedRows, in order
}

// Names of tables; the others are those of alpha targets.
const (
	betaTable   = "beta"
	frozenTable = "frozen"
)

// StoreRows makes the rows of a run as a fit with options of TakingPart does, and its rows under every
// other basis, and writes them, slice by slice, to a folder that [Source.Rows] may name in such a fit.
func StoreRows(src Source, o Options, dir string) error {
	var names []string
	w := tableWriters{dir: dir}
	err := w.open(storedRows)
	if err != nil {
		return err
	}
	p, err := makeParts(src, o, features.Gammas(), func(q *Run) error {
		add := func(name string, t *rows.Table) {
			if t != nil && err == nil {
				names, err = append(names, name), w.add(storedRows, t)
			}
		}
		add(betaTable, q.Beta)
		add(frozenTable, q.Frozen)
		for _, target := range o.AlphaTargets {
			add(target, q.Alpha[target])
		}
		q.Beta, q.Frozen, q.Alpha = nil, nil, nil
		if err == nil && q.steps != nil && o.Others() {
			err = w.addOthers(q, o)
		}
		q.steps = nil
		return err
	})
	if err = errors.Join(err, w.close()); err != nil {
		return err
	}
	return files.WriteJSON(filepath.Join(dir, storedRun), stored{p.runFacts, p.Contexts, p.Spans, p.Covered, names})
}

// tableWriters append tables to files of a folder.
type tableWriters struct {
	dir   string
	names []string
	files []*os.File
	bufs  []*bufio.Writer
}

func (w *tableWriters) open(name string) error {
	f, err := os.Create(filepath.Join(w.dir, name))
	if err != nil {
		return err
	}
	w.names, w.files, w.bufs = append(w.names, name), append(w.files, f), append(w.bufs, bufio.NewWriterSize(f, 1<<18))
	return nil
}

func (w *tableWriters) add(name string, t *rows.Table) error {
	if !slices.Contains(w.names, name) {
		if err := w.open(name); err != nil {
			return err
		}
	}
	return t.Store(w.bufs[slices.Index(w.names, name)])
}

// addOthers makes and adds the tables of the other models.
func (w *tableWriters) addOthers(q *Run, o Options) error {
	for _, name := range o.Models {
		t, err := q.OtherTable(name, o)
		if err == nil && t != nil {
			err = w.add(fmt.Sprintf(storedOther, name), t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *tableWriters) close() error {
	var errs []error
	for i, f := range w.files {
		errs = append(errs, w.bufs[i].Flush(), f.Close())
	}
	return errors.Join(errs...)
}

// restore reads the run that StoreRows wrote to src.Rows.
func restore(src Source) (*Run, error) {
	var s stored
	if err := files.ReadJSON(filepath.Join(src.Rows, storedRun), &s); err != nil {
		return nil, err
	}
	p := &Run{Src: src, runFacts: s.runFacts, Contexts: s.Contexts, Spans: s.Spans, Covered: s.Covered, Alpha: map[string]*rows.Table{}}
	p.Deployment = src.Deployment
	n, err := rows.RestoreTables(filepath.Join(src.Rows, storedRows), func(i int, t *rows.Table) {
		if i >= len(s.Tables) {
			return
		}
		switch name := s.Tables[i]; name {
		case betaTable:
			p.Beta = joinTables(p.Beta, t)
		case frozenTable:
			p.Frozen = joinTables(p.Frozen, t)
		default:
			p.Alpha[name] = joinTables(p.Alpha[name], t)
		}
	})
	if err != nil || n != len(s.Tables) {
		return nil, errors.Join(err, fmt.Errorf("%s: got %d tables, want %d", src.Rows, n, len(s.Tables)))
	}
	return p, nil
}

// restoreOther reads the rows under another basis; nil where there are none.
func (p *Run) restoreOther(model string) (all *rows.Table, err error) {
	name := filepath.Join(p.Src.Rows, fmt.Sprintf(storedOther, model))
	_, err = rows.RestoreTables(name, func(_ int, t *rows.Table) { all = joinTables(all, t) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return all, err
}
