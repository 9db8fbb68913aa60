package ridge

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// gramFormat names the file layout; another layout is another name.
const gramFormat = "blis-train gram 1"

// File is a set of cells with the names behind their labels. Numbers are
// written so that they read back bit for bit.
type File struct {
	Meta    map[string]string // opaque to this package; the caller refuses what does not fit
	Configs []string          // name of each configuration label
	Runs    []string          // name of each run label
	Regimes []string          // name of each regime label
	Sets    []*Cells          // one per (variant, lag)
}

// gramWire and the types behind it are the wire forms: field order is the file's order.
type gramWire struct {
	Format  string            `json:"format"`
	Meta    map[string]string `json:"meta"`
	Configs []string          `json:"configs"`
	Runs    []string          `json:"runs"`
	Regimes []string          `json:"regimes"`
	Sets    []setWire         `json:"sets"`
}

type setWire struct {
	P       int        `json:"features"`
	EpsUs   float64    `json:"eps_us"`
	Folds   int        `json:"folds"`
	Gamma   float64    `json:"gamma"`
	Lag     int        `json:"lag"`
	Embargo int        `json:"embargo_rows"`
	Cells   []cellWire `json:"cells"`
}

type cellWire struct {
	Config int32     `json:"config"`
	Run    int32     `json:"run"`
	Regime int32     `json:"regime"`
	Block  int32     `json:"block"`
	From   int32     `json:"from"`
	N      int64     `json:"rows"`
	W      float64   `json:"w"`
	Q      float64   `json:"wyy"`
	B      []float64 `json:"wxy"`
	G      []float64 `json:"wxx"` // upper triangle by rows
}

// Write writes f as one JSON document.
func Write(w io.Writer, f File) error {
	out := gramWire{Format: gramFormat, Meta: f.Meta, Configs: f.Configs, Runs: f.Runs, Regimes: f.Regimes}
	for _, c := range f.Sets {
		set := setWire{P: c.P, EpsUs: c.EpsUs, Folds: c.Folds, Gamma: c.Gamma, Lag: c.Lag, Embargo: c.Embargo}
		for i := range c.List {
			set.Cells = append(set.Cells, toWire(&c.List[i]))
		}
		out.Sets = append(out.Sets, set)
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		return fmt.Errorf("write gram: %w", err)
	}
	return nil
}

func toWire(c *Cell) cellWire {
	g := &c.Gram
	out := cellWire{c.Config, c.Run, c.Regime, c.Block, c.From, g.N, g.W, g.Q, g.B, nil}
	for i := range g.P {
		out.G = append(out.G, g.G[i*g.P+i:(i+1)*g.P]...)
	}
	return out
}

// Read reads what Write wrote. Unknown keys, labels without a name and
// sums of the wrong length are errors.
func Read(r io.Reader) (File, error) {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	var in gramWire
	if err := dec.Decode(&in); err != nil {
		return File{}, fmt.Errorf("read gram: %w", err)
	}
	if in.Format != gramFormat {
		return File{}, fmt.Errorf("read gram: format: got %q, want %q", in.Format, gramFormat)
	}
	f := File{Meta: in.Meta, Configs: in.Configs, Runs: in.Runs, Regimes: in.Regimes}
	for s, set := range in.Sets {
		c := &Cells{P: set.P, EpsUs: set.EpsUs, Folds: set.Folds, Gamma: set.Gamma, Lag: set.Lag, Embargo: set.Embargo}
		for k := range set.Cells {
			cell, err := fromWire(&set.Cells[k], set.P)
			if err == nil {
				err = f.checkLabels(cell.CellKey)
			}
			if err != nil {
				return File{}, fmt.Errorf("read gram: set %d cell %d: %w", s, k, err)
			}
			c.List = append(c.List, cell)
		}
		f.Sets = append(f.Sets, c)
	}
	return f, nil
}

func fromWire(w *cellWire, p int) (Cell, error) {
	if p < 1 || len(w.B) != p || len(w.G) != p*(p+1)/2 {
		return Cell{}, fmt.Errorf("got %d and %d sums, want %d and %d", len(w.B), len(w.G), p, p*(p+1)/2)
	}
	g := New(p)
	g.N, g.W, g.Q = w.N, w.W, w.Q
	copy(g.B, w.B)
	k := 0
	for i := range p {
		for j := i; j < p; j++ {
			g.G[i*p+j], g.G[j*p+i] = w.G[k], w.G[k]
			k++
		}
	}
	return Cell{CellKey{w.Config, w.Run, w.Regime, w.Block, w.From}, *g}, nil
}

func (f *File) checkLabels(k CellKey) error {
	in := func(label int32, names []string) bool { return label >= 0 && int(label) < len(names) }
	if !in(k.Config, f.Configs) || !in(k.Run, f.Runs) || !in(k.Regime, f.Regimes) {
		return fmt.Errorf("labels: got config %d run %d regime %d, want names for each", k.Config, k.Run, k.Regime)
	}
	return nil
}

// Merge joins files over other runs: names are united in sorted order,
// cells are relabelled and put in order of (configuration, run), so that any
// split of the runs over files gives the same sums. Every file needs the same
// sets in the same order (features, eps, folds, gamma, lag); a run in two files
// is an error. Meta is that of the first file.
func Merge(files ...File) (File, error) {
	out := File{Meta: files[0].Meta}
	for k, f := range files {
		out.Configs, out.Runs, out.Regimes = append(out.Configs, f.Configs...), append(out.Runs, f.Runs...), append(out.Regimes, f.Regimes...)
		for _, run := range f.Runs {
			for _, other := range files[:k] {
				if slices.Contains(other.Runs, run) {
					return out, fmt.Errorf("merge grams: run %q is in two files, want one", run)
				}
			}
		}
	}
	out.Configs, out.Runs, out.Regimes = union(out.Configs), union(out.Runs), union(out.Regimes)
	for s, first := range files[0].Sets {
		set := *first
		set.List = nil
		for _, f := range files {
			if err := f.sameSet(s, first, len(files[0].Sets)); err != nil {
				return out, err
			}
			set.List = append(set.List, f.relabelled(s, &out)...)
		}
		slices.SortStableFunc(set.List, func(a, b Cell) int {
			if a.Config != b.Config {
				return int(a.Config - b.Config)
			}
			return int(a.Run - b.Run)
		})
		out.Sets = append(out.Sets, &set)
	}
	return out, nil
}

func union(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

func (f *File) sameSet(s int, want *Cells, n int) error {
	if len(f.Sets) != n {
		return fmt.Errorf("merge grams: got %d sets, want %d", len(f.Sets), n)
	}
	c := f.Sets[s]
	if c.P != want.P || c.EpsUs != want.EpsUs || c.Folds != want.Folds || c.Gamma != want.Gamma || c.Lag != want.Lag {
		return fmt.Errorf("merge grams: set %d: got %d features eps %v folds %d gamma %v lag %d, want %d, %v, %d, %v, %d",
			s, c.P, c.EpsUs, c.Folds, c.Gamma, c.Lag, want.P, want.EpsUs, want.Folds, want.Gamma, want.Lag)
	}
	return nil
}

func (f *File) relabelled(s int, to *File) []Cell {
	label := func(name string, names []string) int32 {
		k, _ := slices.BinarySearch(names, name)
		return int32(k)
	}
	cells := slices.Clone(f.Sets[s].List)
	for i := range cells {
		k := &cells[i].CellKey
		k.Config = label(f.Configs[k.Config], to.Configs)
		k.Run = label(f.Runs[k.Run], to.Runs)
		k.Regime = label(f.Regimes[k.Regime], to.Regimes)
	}
	return cells
}

// WithoutRun drops every cell of a run, by name; an error when it has none.
func (f *File) WithoutRun(name string) error {
	k := slices.Index(f.Runs, name)
	if k < 0 {
		return fmt.Errorf("gram: no run %q, want one of %q", name, f.Runs)
	}
	for s, c := range f.Sets {
		f.Sets[s] = c.Without(int32(k))
	}
	return nil
}
