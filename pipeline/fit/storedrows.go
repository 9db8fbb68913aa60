package fit

// This file stores the rows of a run in a folder and reads them back, so that one process can make the
// rows and another can fit them.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

// Files of a stored run: its facts as JSON, the tables of the fit, and the tables of each other model.
const (
	storedRun   = "run.json"
	storedRows  = "rows.bin"
	storedOther = "rows.%s.bin"
)

// stored is a run without its tables and its source.
type stored struct {
	runFacts
	Contexts string               `json:"contexts"`
	Spans    []rows.Span          `json:"spans"`
	Covered  *result.Covered      `json:"covered"`
	Blocks   []result.CrossBlocks `json:"blocks"`
	Tables   []string             `json:"tables"` // names of those in storedRows, in order
}

// Names of tables; the others are those of alpha targets.
const (
	betaTable   = "beta"
	frozenTable = "frozen"
)

// StoreRows makes the rows of a run, in the basis of the fit and in those of the other models, and
// writes them slice by slice to dir. A fit with the same options (those of TakingPart) reads them
// if [Source.Rows] names dir.
func StoreRows(ctx context.Context, src Source, o Options, dir string) error {
	var names []string
	w := tableWriters{dir: dir, files: map[string]*rows.TableWriter{}}
	err := w.add(storedRows)
	if err != nil {
		return err
	}
	// The tables of each slice are written and dropped, so that one slice at a time is in memory.
	p, err := makeParts(ctx, src, o, features.Gammas(), func(q *Run) error {
		add := func(name string, t *rows.Table) {
			if t != nil && err == nil {
				names = append(names, name)
				err = w.add(storedRows, t)
			}
		}
		add(betaTable, q.Beta)
		add(frozenTable, q.Frozen)
		for _, target := range o.AlphaTargets {
			add(target, q.Alpha[target])
		}
		q.Beta = nil
		q.Frozen = nil
		q.Alpha = nil
		if err == nil && q.steps != nil && o.Others() {
			err = w.addOthers(q, o)
		}
		q.steps = nil
		return err
	})
	if err = errors.Join(err, w.close()); err != nil {
		return err
	}
	return files.WriteJSON(filepath.Join(dir, storedRun), stored{
		runFacts: p.runFacts,
		Contexts: p.Contexts,
		Spans:    p.Spans,
		Covered:  p.Covered,
		Blocks:   p.Blocks,
		Tables:   names,
	})
}

// tableWriters append tables to files of a folder.
type tableWriters struct {
	dir   string
	files map[string]*rows.TableWriter
}

// add appends tables to a file, which it creates if it is new.
func (w *tableWriters) add(name string, tables ...*rows.Table) (err error) {
	f, known := w.files[name]
	if !known {
		if f, err = rows.CreateTables(filepath.Join(w.dir, name)); err != nil {
			return err
		}
		w.files[name] = f
	}
	for _, t := range tables {
		err = errors.Join(err, f.Encode(t))
	}
	return err
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

// close closes all files.
func (w *tableWriters) close() (err error) {
	for _, f := range w.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// restore returns the run that StoreRows wrote to src.Rows.
func restore(src Source) (*Run, error) {
	var s stored
	if err := files.ReadJSON(filepath.Join(src.Rows, storedRun), &s); err != nil {
		return nil, err
	}
	p := &Run{
		Src:      src,
		runFacts: s.runFacts,
		Contexts: s.Contexts,
		Spans:    s.Spans,
		Covered:  s.Covered,
		Blocks:   s.Blocks,
		Alpha:    map[string]*rows.Table{},
	}
	p.Deployment = src.Deployment // complete; run.json has only what JSON keeps of it
	n, err := rows.RestoreTables(filepath.Join(src.Rows, storedRows), func(i int, t *rows.Table) {
		if i >= len(s.Tables) {
			return
		}
		name := s.Tables[i]
		switch name {
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

// restoreOther returns the stored rows of another model; nil if there are none.
func (p *Run) restoreOther(model string) (all *rows.Table, err error) {
	name := filepath.Join(p.Src.Rows, fmt.Sprintf(storedOther, model))
	_, err = rows.RestoreTables(name, func(_ int, t *rows.Table) { all = joinTables(all, t) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return all, err
}
