package ridge

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

// gram.go holds rows and what a quadratic loss knows of them: a Data, its Gram
// matrix, and the one order in which rows are summed.

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
	g.W += c * o.W
	g.Q += c * o.Q
	for j, v := range o.B {
		g.B[j] += c * v
	}
	for k, v := range o.G {
		g.G[k] += c * v
	}
}

// AddRow adds one row with weight w.
func (g *Gram) AddRow(w float64, x []float64, y float64) {
	g.N++
	g.W += float64(w)
	g.Q += w * y * y
	for j, v := range x {
		if v == 0 {
			continue
		}
		g.B[j] += w * v * y
		for k, u := range x {
			g.G[j*g.P+k] += w * v * u
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
		lin += b * g.B[i]
		quad += b * Dot(g.G[i*g.P:(i+1)*g.P], beta)
	}
	return math.Max(0, g.Q-2*lin+quad)
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
		s += v * beta[j]
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

// Data is a set of rows. Slices have one entry per row; X has P.
type Data struct {
	P      int
	X      []float64 // row-major, len(Y) x P; of a Subset the rows of the whole
	Y      []float64 // target, us
	Steps  []float64 // StepsOf a row covers; nil: 1
	Factor []float64 // down-weighting p of a row, 0..1; nil: 1
	Config []int32   // configuration label >= 0
	Regime []int32   // regime label >= 0
	Run    []int32   // RunOf label >= 0, unique over configurations; nil: one run per configuration
	Time   []int64   // order inside a run, ties by row; nil: row order

	// Variants are alternatives of some columns (another EMA constant changes
	// only the columns fed by the EMA). Empty: X alone.
	Variants []Variant

	place []int32 // of each row in X; nil: the same
}

// Variant replaces columns of X. Values[k][i] is row i of column Cols[k].
type Variant struct {
	Gamma  float64 // label
	Cols   []int
	Values [][]float64
}

// Len is the number of rows.
func (d *Data) Len() int { return len(d.Y) }

// Row is x of row i, not to be written.
func (d *Data) Row(i int) []float64 {
	at := d.offset(i)
	return d.X[at : at+d.P]
}

// offset is where row i begins in X.
func (d *Data) offset(i int) int {
	if d.place != nil {
		i = int(d.place[i])
	}
	return i * d.P
}

// StepsOf is how many steps row i covers.
func (d *Data) StepsOf(i int) float64 {
	if d.Steps == nil {
		return 1
	}
	return d.Steps[i]
}

// FactorOf is the down-weighting of row i.
func (d *Data) FactorOf(i int) float64 {
	if d.Factor == nil {
		return 1
	}
	return d.Factor[i]
}

// factors are those of all rows.
func (d *Data) factors() []float64 {
	out := make([]float64, d.Len())
	for i := range out {
		out[i] = d.FactorOf(i)
	}
	return out
}

// RunOf is the run of row i.
func (d *Data) RunOf(i int) int32 {
	if d.Run == nil {
		return d.Config[i]
	}
	return d.Run[i]
}

// Subset is the given rows, in the given order, variants included. X is shared:
// it is most of the data.
func (d *Data) Subset(rows []int32) *Data {
	out := &Data{P: d.P, X: d.X, place: append(make([]int32, 0, len(rows)), rows...)}
	if d.place != nil {
		out.place = pick(d.place, rows)
	}
	out.Y, out.Steps, out.Factor = pick(d.Y, rows), pick(d.Steps, rows), pick(d.Factor, rows)
	out.Config, out.Regime, out.Run = pick(d.Config, rows), pick(d.Regime, rows), pick(d.Run, rows)
	out.Time = pick(d.Time, rows)
	for _, v := range d.Variants {
		w := Variant{Gamma: v.Gamma, Cols: v.Cols}
		for _, col := range v.Values {
			w.Values = append(w.Values, pick(col, rows))
		}
		out.Variants = append(out.Variants, w)
	}
	return out
}

func pick[T any](v []T, rows []int32) []T {
	if v == nil {
		return nil
	}
	return stat.Map(rows, func(i int32) T { return v[i] })
}

// With is the data with variant k's columns in place and no variants left. It
// copies X only when a column differs; the other slices are shared.
func (d *Data) With(k int) *Data {
	out := *d
	out.Variants = nil
	if k >= len(d.Variants) || d.same(d.Variants[k]) {
		return &out
	}
	out.X = make([]float64, 0, d.Len()*d.P)
	out.place = nil
	v := d.Variants[k]
	for i := range d.Len() {
		out.X = append(out.X, d.Row(i)...)
		for c, j := range v.Cols {
			out.X[i*d.P+j] = v.Values[c][i]
		}
	}
	return &out
}

// gamma is the label of variant k, 0 without variants.
func (d *Data) gamma(k int) float64 {
	if k >= len(d.Variants) {
		return 0
	}
	return d.Variants[k].Gamma
}

// same reports whether X already holds a variant's columns.
func (d *Data) same(v Variant) bool {
	for i := range d.Len() {
		x := d.Row(i)
		for c, j := range v.Cols {
			if x[j] != v.Values[c][i] {
				return false
			}
		}
	}
	return true
}

// Configs lists the configuration labels present, ascending.
func (d *Data) Configs() []int32 { return Distinct(d.Config) }

// Distinct are the labels, ascending, each once.
func Distinct(v []int32) []int32 {
	out := make([]int32, 0, 8)
	last := int32(-1)
	for _, c := range v {
		if c == last {
			continue
		}
		last = c
		if k, ok := slices.BinarySearch(out, c); !ok {
			out = slices.Insert(out, k, c)
		}
	}
	return out
}

// BaseOf is max(y, eps*steps), the size a row's error is measured against.
func (d *Data) BaseOf(i int, epsUs float64) float64 {
	return math.Max(d.Y[i], epsUs*d.StepsOf(i))
}

// Predict is x.beta of every row.
func Predict(d *Data, beta []float64) []float64 {
	out := make([]float64, d.Len())
	for i := range out {
		out[i] = Dot(d.Row(i), beta)
	}
	return out
}
