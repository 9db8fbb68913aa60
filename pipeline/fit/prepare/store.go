package prepare

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/blis-train/blis-train/pipeline/fit/options"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Files of a stored run: what is no table, the tables of the fit, those of one other model.
const (
	storedRun   = "run.json"
	storedRows  = "rows.bin"
	storedOther = "rows.%s.bin"
)

// stored is a run but for its tables and what its source tells.
type stored struct {
	Reason    string               `json:"reason"`
	Saturated bool                 `json:"saturated"`
	Contexts  string               `json:"contexts"`
	Spans     []rows.Span          `json:"spans"`
	Quality   result.StepQuality   `json:"quality"`
	Findings  []trace.Finding      `json:"findings"`
	Lag       result.RunLag        `json:"lag"`
	Evidence  []result.LagEvidence `json:"evidence"`
	Audit     result.TargetAudit   `json:"audit"`
	WallNs    int64                `json:"wall_ns"`
	Lengths   Lengths              `json:"lengths"`
	Covered   *result.Covered      `json:"covered"`
	Tables    []string             `json:"tables"` // names of those in storedRows, in order
}

// Names of tables; the others are those of alpha targets.
const (
	betaTable   = "beta"
	frozenTable = "frozen"
)

// Store writes the run, and its rows under every other basis, to a folder that
// [options.Source.Rows] may name.
func (p *Run) Store(dir string, o options.Options) error {
	s := stored{p.Reason, p.Saturated, p.Contexts, p.Spans, p.Quality, p.Findings, p.Lag, p.Evidence, p.Audit, p.WallNs, p.Lengths,
		p.Covered, nil}
	var tables []*rows.Table
	add := func(name string, t *rows.Table) {
		if t != nil {
			s.Tables, tables = append(s.Tables, name), append(tables, t)
		}
	}
	add(betaTable, p.Beta)
	add(frozenTable, p.Frozen)
	for _, target := range o.AlphaTargets {
		add(target, p.Alpha[target])
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, storedRun), text, 0o666), storeTables(dir, storedRows, tables)); err != nil {
		return err
	}
	if p.Reason != "" || !o.Others() {
		return nil
	}
	p.Beta, p.Frozen, p.Alpha = nil, nil, nil
	if err := p.Again(o); err != nil {
		return err
	}
	for _, name := range o.Models {
		t, err := p.OtherTable(name, o)
		if err == nil && t != nil {
			err = storeTables(dir, fmt.Sprintf(storedOther, name), []*rows.Table{t})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func storeTables(dir, name string, tables []*rows.Table) error {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<18)
	for _, t := range tables {
		if err == nil {
			err = t.Store(w)
		}
	}
	return errors.Join(err, w.Flush(), f.Close())
}

// restore reads the run that Store wrote to src.Rows.
func restore(src options.Source) (*Run, error) {
	text, err := os.ReadFile(filepath.Join(src.Rows, storedRun))
	if err != nil {
		return nil, err
	}
	var s stored
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(src.Rows, storedRun), err)
	}
	p := &Run{Src: src, Config: src.Deployment.Config(), Reason: s.Reason, Saturated: s.Saturated, Contexts: s.Contexts, Spans: s.Spans,
		Quality: s.Quality, Findings: s.Findings, Lag: s.Lag, Evidence: s.Evidence, Audit: s.Audit, Alpha: map[string]*rows.Table{},
		WallNs: s.WallNs, Lengths: s.Lengths, Covered: s.Covered}
	tables, err := restoreTables(src.Rows, storedRows)
	if err != nil || len(tables) != len(s.Tables) {
		return nil, errors.Join(err, fmt.Errorf("%s: got %d tables, want %d", src.Rows, len(tables), len(s.Tables)))
	}
	for i, name := range s.Tables {
		switch name {
		case betaTable:
			p.Beta = tables[i]
		case frozenTable:
			p.Frozen = tables[i]
		default:
			p.Alpha[name] = tables[i]
		}
	}
	return p, nil
}

// restoreOther reads the rows under another basis; nil where there are none.
func (p *Run) restoreOther(model string) (*rows.Table, error) {
	tables, err := restoreTables(p.Src.Rows, fmt.Sprintf(storedOther, model))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || len(tables) != 1 {
		return nil, errors.Join(err, fmt.Errorf("%s: got %d tables of %s, want 1", p.Src.Rows, len(tables), model))
	}
	return tables[0], nil
}

func restoreTables(dir, name string) ([]*rows.Table, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []*rows.Table
	for r := bufio.NewReaderSize(f, 1<<18); ; {
		if _, err := r.Peek(1); err == io.EOF {
			return out, nil
		}
		t, err := rows.RestoreTable(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		out = append(out, t)
	}
}
