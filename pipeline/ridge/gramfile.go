package ridge

// This file reads, writes and joins files of Gram matrices, from which a fit can be made where the rows
// are not.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

// gramFormat names the file layout; another layout is another name.
const gramFormat = "blis-train gram 1"

// File is a set of cells with the names of their labels, written as one JSON document whose numbers
// read back bit for bit. A Gram matrix is written as its upper triangle by rows.
type File struct {
	Format  string            `json:"format"`
	Meta    map[string]string `json:"meta"`    // opaque to this package; the caller refuses what does not fit
	Configs []string          `json:"configs"` // name of each configuration label
	Runs    []string          `json:"runs"`    // name of each run label
	Regimes []string          `json:"regimes"` // name of each regime label
	// Sets are sums of the same rows with other features: one for each lag (by how many steps the features are shifted
	// against the times) and each variant (Data.Variants: another smoothing factor, Cells.Gamma, of the features that are
	// moving averages).
	Sets []*Cells `json:"sets"`
}

// Write writes f as one JSON document.
func Write(w io.Writer, f File) error {
	out := f
	out.Format = gramFormat
	out.Sets = nil // copied below, so that the caller's matrices stay whole
	for _, c := range f.Sets {
		set := *c
		set.List = slices.Clone(c.List)
		for i := range set.List {
			g := &set.List[i].Gram
			var upper []float64
			for j := range g.P {
				upper = append(upper, g.G[j*g.P+j:(j+1)*g.P]...)
			}
			g.G = upper
		}
		out.Sets = append(out.Sets, &set)
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		return fmt.Errorf("write gram: %w", err)
	}
	return nil
}

// Read returns the file that Write wrote. Unknown keys, labels without a name and sums of the wrong
// length are errors.
func Read(r io.Reader) (File, error) {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	var f File
	if err := dec.Decode(&f); err != nil {
		return File{}, fmt.Errorf("read gram: %w", err)
	}
	if f.Format != gramFormat {
		return File{}, fmt.Errorf("read gram: format: got %q, want %q", f.Format, gramFormat)
	}
	for s, c := range f.Sets {
		for k := range c.List {
			err := c.List[k].complete(c.P)
			if err == nil {
				err = f.checkLabels(c.List[k].CellKey)
			}
			if err != nil {
				return File{}, fmt.Errorf("read gram: set %d cell %d: %w", s, k, err)
			}
		}
	}
	return f, nil
}

// complete rebuilds the full Gram matrix over p columns from the upper triangle that a file has.
func (c *Cell) complete(p int) error {
	if p < 1 || len(c.B) != p || len(c.G) != p*(p+1)/2 {
		return fmt.Errorf("got %d and %d sums, want %d and %d", len(c.B), len(c.G), p, p*(p+1)/2)
	}
	g := make([]float64, p*p)
	k := 0 // position in the triangle
	for i := range p {
		for j := i; j < p; j++ {
			g[i*p+j] = c.G[k]
			g[j*p+i] = c.G[k]
			k++
		}
	}
	c.P = p
	c.G = g
	return nil
}

// checkLabels returns an error when a label of the key has no name in the file.
func (f *File) checkLabels(k CellKey) error {
	in := func(label int32, names []string) bool { return label >= 0 && int(label) < len(names) }
	if !in(k.Config, f.Configs) || !in(k.Run, f.Runs) || !in(k.Regime, f.Regimes) {
		return fmt.Errorf("labels: got config %d run %d regime %d, want names for each", k.Config, k.Run, k.Regime)
	}
	return nil
}

// Merge returns files of different runs joined. Names are united in sorted order, cells are
// relabelled and sorted by configuration and run, so that the sums do not depend on how the runs
// were split into files. Every file needs the same sets in the same order: number of features, smallest time (eps) and
// number of blocks in time (folds) of the cross-validation, smoothing factor (gamma) and lag. A run in two files is an
// error, as is no file. Meta is that of the first file.
func Merge(files ...File) (File, error) {
	if len(files) == 0 {
		return File{}, errors.New("merge grams: got no file, want one or more")
	}
	out := File{Meta: files[0].Meta}
	for k, f := range files {
		out.Configs = append(out.Configs, f.Configs...)
		out.Runs = append(out.Runs, f.Runs...)
		out.Regimes = append(out.Regimes, f.Regimes...)
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
		// The cells of one run stay in their order, by time and regime (Cells): a run is in one file only.
		stat.SortStable(set.List, func(a, b Cell) int {
			if a.Config != b.Config {
				return int(a.Config - b.Config)
			}
			return int(a.Run - b.Run)
		})
		out.Sets = append(out.Sets, &set)
	}
	return out, nil
}

// union returns the names sorted, each once.
func union(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// sameSet returns an error when set s of the file was not cut like want, or the file does not have
// n sets.
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

// relabelled returns the cells of set s with the labels that their names have in the file to, whose
// names are sorted.
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

// WithoutRun drops every cell of the named run; an unknown name is an error. The name stays in Runs, because cells name
// their run by its position there; a name without cells does no harm.
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
