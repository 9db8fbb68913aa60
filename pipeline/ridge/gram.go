package ridge

// gram.go holds rows and what a quadratic loss knows of them: a Data, its Gram
// matrix, and the one order in which rows are summed.

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
)

// Gram is what a weighted quadratic loss knows of its rows.
type Gram struct {
	P int       `json:"-"`
	N int64     `json:"rows"`
	W float64   `json:"w"`   // sum w
	Q float64   `json:"wyy"` // sum w y^2
	B []float64 `json:"wxy"` // sum w x y, P
	G []float64 `json:"wxx"` // sum w x x', P x P, both triangles; in a file the upper one
}

// New is the Gram of no rows.
func New(p int) *Gram {
	return &Gram{P: p, B: make([]float64, p), G: make([]float64, p*p)}
}

// AddScaled adds the rows of o with their weights times c.
func (g *Gram) AddScaled(c float64, o *Gram) {
	g.N += o.N
	g.W += float64(c * o.W)
	g.Q += float64(c * o.Q)
	for j, v := range o.B {
		g.B[j] += float64(c * v)
	}
	for k, v := range o.G {
		g.G[k] += float64(c * v)
	}
}

// AddRow adds one row with weight w.
func (g *Gram) AddRow(w float64, x []float64, y float64) {
	g.N++
	g.W += float64(w)
	g.Q += float64(w * y * y)
	for j, v := range x {
		if v == 0 {
			continue
		}
		g.B[j] += float64(w * v * y)
		for k, u := range x {
			g.G[j*g.P+k] += float64(w * v * u)
		}
	}
}

// Add adds the rows of o.
func (g *Gram) Add(o *Gram) { g.AddScaled(1, o) }

// SSE is sum w(y - x.beta)^2 = q - 2 beta'g + beta'G beta, never below 0.
func (g *Gram) SSE(beta []float64) float64 {
	var lin, quad float64
	for i, b := range beta {
		if b == 0 {
			continue
		}
		lin += float64(b * g.B[i])
		quad += float64(b * Dot(g.G[i*g.P:(i+1)*g.P], beta))
	}
	return math.Max(0, g.Q-float64(2*lin)+quad)
}

// Score is SSE/sum w y^2, the weighted relative squared error; NaN without targets.
func (g *Gram) Score(beta []float64) float64 {
	if g.Q <= 0 {
		return math.NaN()
	}
	return g.SSE(beta) / g.Q
}

// Scale is s_j = sqrt(sum w x_j^2/W) and ybar = sqrt(sum w y^2/W).
func (g *Gram) Scale() (s []float64, ybar float64) {
	s = make([]float64, g.P)
	for j := range s {
		s[j] = math.Sqrt(g.G[j*g.P+j] / g.W)
	}
	return s, math.Sqrt(g.Q / g.W)
}

// Dot is x.beta.
func Dot(x, beta []float64) float64 {
	var s float64
	for j, v := range x {
		s += float64(v * beta[j])
	}
	return s
}

// gramFormat names the file layout; another layout is another name.
const gramFormat = "blis-train gram 1"

// File is a set of cells with the names behind their labels: one JSON document, whose numbers
// read back bit for bit. Of a Gram it holds the upper triangle by rows.
type File struct {
	Format  string            `json:"format"`
	Meta    map[string]string `json:"meta"`    // opaque to this package; the caller refuses what does not fit
	Configs []string          `json:"configs"` // name of each configuration label
	Runs    []string          `json:"runs"`    // name of each run label
	Regimes []string          `json:"regimes"` // name of each regime label
	Sets    []*Cells          `json:"sets"`    // one per (variant, lag)
}

// Write writes f as one JSON document.
func Write(w io.Writer, f File) error {
	out := f
	out.Format, out.Sets = gramFormat, nil
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

// Read reads what Write wrote. Unknown keys, labels without a name and
// sums of the wrong length are errors.
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

// complete makes whole what a file holds of a cell over p columns.
func (c *Cell) complete(p int) error {
	if p < 1 || len(c.B) != p || len(c.G) != p*(p+1)/2 {
		return fmt.Errorf("got %d and %d sums, want %d and %d", len(c.B), len(c.G), p, p*(p+1)/2)
	}
	g, k := make([]float64, p*p), 0
	for i := range p {
		for j := i; j < p; j++ {
			g[i*p+j], g[j*p+i] = c.G[k], c.G[k]
			k++
		}
	}
	c.P, c.G = p, g
	return nil
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
