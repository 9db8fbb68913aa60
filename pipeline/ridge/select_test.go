package ridge

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
)

func mustSelect(t *testing.T, d *Data, o Options) []Selection {
	t.Helper()
	s, err := Select(d, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// withVariants gives the rare column two other decays.
func withVariants(d *Data) *Data {
	for g, f := range []float64{1, .5, .2} {
		col := make([]float64, d.Len())
		for i := range col {
			col[i] = d.Row(i)[ColRare] * math.Pow(f, float64(i%3))
		}
		d.Variants = append(d.Variants, Variant{Gamma: float64(g+1) / 50, Cols: []int{ColRare}, Values: [][]float64{col}})
	}
	return d
}

// Two rules for one configuration: the largest lambda within one standard error of the best score, and the best.
func TestRulesWithinOneStandardError(t *testing.T) {
	for want, o := range map[int]Options{3: {}, 2: {SmallestWithin: true}} {
		s := Selection{Configs: []int32{0}}
		for k, within := range []float64{5, 2.2, 2, 2.1, 9} {
			s.Grid = append(s.Grid, Point{Lambda: float64(k), Within: within, SE: 0.3})
		}
		if s.choose(&o); s.Index != want || s.Lambda != float64(want) {
			t.Errorf("%+v: got %d, want %d", o, s.Index, want)
		}
	}
}

// TestGramRouteIsTheDirectRoute: fold and left-out scores from cells that went
// through a file equal a sum over rows to 1e-10, also without one run.
func TestGramRouteIsTheDirectRoute(t *testing.T) {
	s := ThreeConfigs(11)
	s.O.EmbargoRows = 7
	cut, _, err := s.D.Cut(s.O)
	if err != nil {
		t.Fatal(err)
	}
	read := throughFile(t, File{
		Meta: map[string]string{"features": "1.1"}, Configs: []string{"a", "b", "c"}, Runs: []string{"r0", "r1", "r2"},
		Regimes: []string{"x", "y", "z"}, Sets: cut,
	})
	compareDirect(t, s.D, read.Sets[0], s.O)
	if err := read.WithoutRun("r1"); err != nil {
		t.Fatal(err)
	}
	var rest []int32
	for i, c := range s.D.Config {
		if c != 1 {
			rest = append(rest, int32(i))
		}
	}
	compareDirect(t, s.D.Subset(rest), read.Sets[0], s.O)
}

func throughFile(t *testing.T, f File) File {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, f); err != nil {
		t.Fatal(err)
	}
	first := b.String()
	out, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := Write(&again, out); err != nil || again.String() != first {
		t.Fatalf("reading and writing changed the file (%v)", err)
	}
	return out
}

// compareDirect scores cells and, row by row, the data they stand for.
func compareDirect(t *testing.T, d *Data, c *Cells, o Options) {
	t.Helper()
	sel, err := c.Select(o)
	if err != nil {
		t.Fatal(err)
	}
	w := Weights(d, o)
	folds, _, err := Folds(d, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range sel.Grid {
		for j, f := range folds {
			Near(t, "fold score", p.FoldScores[j:j+1], []float64{directScore(t, d, w, f.Train, f.Test, p.Lambda, o)}, 1e-10)
		}
		for k, c := range d.Configs() {
			var in, out []int32
			for i, l := range d.Config {
				if l == c {
					out = append(out, int32(i))
				} else {
					in = append(in, int32(i))
				}
			}
			Near(t, "left out", p.Loco[k:k+1], []float64{directScore(t, d, w, in, out, p.Lambda, o)}, 1e-10)
		}
	}
}

func directScore(t *testing.T, d *Data, w []float64, train, test []int32, lambda float64, o Options) float64 {
	t.Helper()
	fit, err := FitRows(d, w, train, lambda, o)
	if err != nil {
		t.Fatal(err)
	}
	var scores []float64
	for _, c := range d.Configs() {
		var miss, all float64
		for _, i := range test {
			if d.Config[i] == c {
				r := d.Y[i] - Dot(d.Row(int(i)), fit.Beta)
				miss += w[i] * r * r
				all += w[i] * d.Y[i] * d.Y[i]
			}
		}
		if all > 0 {
			scores = append(scores, miss/all)
		}
	}
	return stat.Mean(scores)
}

func TestSameBitsForAnyNumberOfWorkers(t *testing.T) {
	s := ThreeConfigs(12)
	withVariants(s.D)
	var want string
	for _, workers := range []int{1, 2, 8} {
		s.O.Workers = workers
		sel := mustSelect(t, s.D, s.O)
		d := s.D.With(1)
		w := Weights(d, s.O)
		fit, err := FitRows(d, w, nil, sel[1].Lambda, s.O)
		if err != nil {
			t.Fatal(err)
		}
		polish, err := Reweight(d, w, fit, s.O)
		if err != nil {
			t.Fatal(err)
		}
		conf := d.Confidence(fit, Identify(d.WithinVariation(w)), s.O)
		got := fmt.Sprintf("%x %x %x", fmt.Sprint(sel), fmt.Sprint(polish), fmt.Sprint(conf))
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("%d workers: other bits than with 1", workers)
		}
	}
}

// TestLargeRunsSumInChunks crosses the chunk size with 1, 2 and 8 workers.
func TestLargeRunsSumInChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	n := 2*ChunkRows + 100
	d := &Data{P: 2, X: make([]float64, 2*n), Y: make([]float64, n)}
	w := make([]float64, n)
	var direct float64
	for i := range n {
		d.X[2*i], d.X[2*i+1], d.Y[i], w[i] = 1, rng.Float64(), rng.Float64(), rng.Float64()
		direct += w[i] * d.X[2*i+1] * d.Y[i]
	}
	want := OfRows(d, w, nil, 1)
	Near(t, "sum", want.B[1:], []float64{direct}, 1e-12)
	for _, workers := range []int{2, 8} {
		if got := OfRows(d, w, nil, workers); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d workers: other bits than with 1", workers)
		}
	}
}

func TestRowOrderIsIrrelevant(t *testing.T) {
	s := ThreeConfigs(13)
	want := mustSelect(t, s.D, s.O)
	shuffled := s.D.AllRows()
	rand.New(rand.NewPCG(5, 5)).Shuffle(len(shuffled), func(a, b int) { shuffled[a], shuffled[b] = shuffled[b], shuffled[a] })
	if got := mustSelect(t, s.D.Subset(shuffled), s.O); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Error("selection depends on the order of the rows")
	}
}

// TestVariantsShareSums: a variant scored together with others equals the same
// columns scored alone.
func TestVariantsShareSums(t *testing.T) {
	s := ThreeConfigs(14)
	withVariants(s.D)
	together := mustSelect(t, s.D, s.O)
	for v := range s.D.Variants {
		alone := mustSelect(t, s.D.With(v), s.O)[0]
		for i, p := range alone.Grid {
			Near(t, "fold scores", together[v].Grid[i].FoldScores, p.FoldScores, 1e-10)
			Near(t, "left out", together[v].Grid[i].Loco, p.Loco, 1e-10)
		}
	}
}

// TestMergedGramsAreThePooledGram for any split of the runs over files.
func TestMergedGramsAreThePooledGram(t *testing.T) {
	s := ThreeConfigs(15)
	names := []string{"a", "b", "c"}
	file := func(configs ...int32) File {
		var rows []int32
		f := File{Regimes: []string{"x", "y", "z"}}
		for _, c := range configs {
			f.Configs = append(f.Configs, names[c])
			f.Runs = append(f.Runs, "run-"+names[c])
		}
		for i, c := range s.D.Config {
			if slices.Contains(configs, c) {
				rows = append(rows, int32(i))
			}
		}
		d := s.D.Subset(rows)
		for i, c := range d.Config {
			d.Config[i] = int32(slices.Index(configs, c))
		}
		cells, _, err := d.Cut(s.O)
		if err != nil {
			t.Fatal(err)
		}
		f.Sets = cells
		return f
	}
	want := fmt.Sprint(mustSelect(t, s.D, s.O)[0])
	for _, split := range [][]File{{file(0, 1, 2)}, {file(2), file(0, 1)}, {file(1), file(2), file(0)}} {
		merged, err := Merge(split...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := merged.Sets[0].Select(s.O)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%d files: other bits than the pooled rows", len(split))
		}
	}
	if _, err := Merge(file(0), file(0, 1)); err == nil {
		t.Error("a run in two files was accepted")
	}
}

// TestForwardFolds: nothing is trained on its future, blocks partition, the
// embargo takes at most half, runs are cut one by one.
func TestForwardFolds(t *testing.T) {
	d := &Data{P: 1}
	for i := range 100 {
		d.X, d.Y = append(d.X, 1), append(d.Y, 1)
		d.Config = append(d.Config, 0)
		d.Regime = append(d.Regime, 0)
		d.Run = append(d.Run, int32(i%2))
		d.Time = append(d.Time, int64(1000-i))
	}
	o := DefaultOptions(1)
	for _, embargo := range []int{0, 3, 1000} {
		o.EmbargoRows = embargo
		folds, _, err := Folds(d, o)
		if err != nil {
			t.Fatal(err)
		}
		for j, f := range folds {
			for run := range int32(2) {
				train := ofRun(d, f.Train, run)
				test := ofRun(d, f.Test, run)
				blocks := blockBounds(50, 6)
				end := blocks[j+1]
				if want := end - min(embargo, end/2); len(train) != want {
					t.Errorf("embargo %d fold %d: %d training rows, want %d", embargo, j, len(train), want)
				}
				if len(test) != blocks[j+2]-blocks[j+1] {
					t.Errorf("fold %d: %d validation rows, want %d", j, len(test), blocks[j+2]-blocks[j+1])
				}
				if slices.Max(train)+int64(min(embargo, end/2)) >= slices.Min(test)+int64(embargo) && embargo == 0 {
					t.Errorf("fold %d run %d: trains up to %d, validates from %d", j, run, slices.Max(train), slices.Min(test))
				}
			}
		}
	}
}

func ofRun(d *Data, rows []int32, run int32) []int64 {
	var out []int64
	for _, i := range rows {
		if d.Run[i] == run {
			out = append(out, d.Time[i])
		}
	}
	return out
}

func TestTooFewRows(t *testing.T) {
	s := ThreeConfigs(16)
	rows := s.D.AllRows()[:605] // five rows of configuration 2
	sel := mustSelect(t, s.D.Subset(rows), s.O)
	if f := sel[0].Findings; len(f) == 0 || f[0].Code != TooFewRows || f[0].Config != 2 {
		t.Errorf("findings: got %v, want %s for configuration 2", f, TooFewRows)
	}
	if _, err := Select(s.D.Subset(rows[600:]), s.O); err == nil {
		t.Error("want an error when no run has enough rows")
	}
}

// TestChoice on grids made for the purpose: ties go to the larger lambda, one
// standard error, cross and minimax. The score is that of the objective at the chosen lambda, which is that of
// the chosen point.
func TestChoice(t *testing.T) {
	grid := func(scores ...float64) []Point {
		var out []Point
		for i, v := range scores {
			out = append(out, Point{Lambda: math.Pow(10, float64(i)), Within: v, SE: .1, Cross: v, Worst: -v})
		}
		return out
	}
	for _, c := range []struct {
		name    string
		grid    []Point
		configs int
		want    Objective
		index   int
		used    Objective
		score   float64
	}{
		{"tie", grid(1, 1, 3), 3, Auto, 1, Cross, 1},
		{"one standard error", grid(1, 1.05, 1.2), 2, Auto, 1, Within, 1.05},
		{"exactly one standard error", grid(1, 1.1, 1.2), 2, Auto, 1, Within, 1.1},
		{"beyond a bump", grid(1, 1.5, 1.05), 1, Within, 2, Within, 1.05},
		{"cross needs three", grid(1, 2, 3), 2, Cross, 0, Within, 1},
		{"minimax", grid(1, 3, 2), 3, Minimax, 1, Minimax, -3},
		{"minimax of two", grid(1, 3, 2), 2, Minimax, 1, Minimax, -3},
		{"minimax needs two", grid(1, 3, 2), 1, Minimax, 0, Within, 1},
	} {
		s := Selection{Grid: c.grid, Configs: make([]int32, c.configs)}
		s.choose(&Options{Objective: c.want})
		if s.Index != c.index || s.Objective != c.used || s.Score != c.score || s.Lambda != c.grid[c.index].Lambda {
			t.Errorf("%s: got %d by %s, score %g, lambda %g, want %d by %s, %g, %g", c.name, s.Index, s.Objective, s.Score, s.Lambda,
				c.index, c.used, c.score, c.grid[c.index].Lambda)
		}
	}
	smallest := Selection{Grid: grid(1, 1.05), Configs: make([]int32, 1)}
	smallest.choose(&Options{Objective: Within, SmallestWithin: true})
	if smallest.Index != 0 || smallest.Score != 1 {
		t.Errorf("the smallest within: got %d, score %g, want 0, 1", smallest.Index, smallest.Score)
	}
}

// The usual variant stands unless another is better by more than the standard error of their paired difference.
func TestChooseVariant(t *testing.T) {
	for _, c := range []struct {
		name   string
		scores [][]float64
		chosen int
		within []int
	}{
		{"equal", [][]float64{{1, 2}, {1, 2}, {1, 2}}, 1, []int{0, 1, 2}},
		{"one fold decides", [][]float64{{1, 9, 4}, {2, 9, 4}, {3, 10, 5}}, 1, []int{0, 1}},
		{"better in every fold", [][]float64{{1, 8, 3}, {2, 9.1, 4}, {3, 10, 5}}, 0, []int{0}},
		{"the usual is the best", [][]float64{{2, 3}, {1, 2.1}, {2, 3}}, 1, []int{1}},
	} {
		var sels []Selection
		for v, scores := range c.scores {
			sels = append(sels, Selection{Gamma: float64(v), Grid: []Point{{FoldScores: scores, Within: stat.Mean(scores)}}})
		}
		if chosen, within := ChooseVariant(sels, 1); chosen != c.chosen || !slices.Equal(within, c.within) {
			t.Errorf("%s: got %d of %v, want %d of %v", c.name, chosen, within, c.chosen, c.within)
		}
	}
}

func TestEqualFoldsHaveOneFingerprint(t *testing.T) {
	d := &Data{P: 1}
	for i := range 96 {
		d.X, d.Y = append(d.X, 1), append(d.Y, 64)
		d.Config = append(d.Config, 0)
		d.Regime = append(d.Regime, 0)
		d.Time = append(d.Time, int64(i))
	}
	distinct := func(sel Selection) int {
		prints := slices.Clone(sel.Grid[sel.Index].Fingerprints)
		slices.Sort(prints)
		return len(slices.Compact(prints))
	}
	sel := mustSelect(t, d, DefaultOptions(1))[0]
	if got := distinct(sel); got >= len(sel.Grid[0].Fingerprints) {
		t.Errorf("equal rows: got %d fingerprints in %d folds", got, len(sel.Grid[0].Fingerprints))
	}
	s := ThreeConfigs(17)
	sel = mustSelect(t, s.D, s.O)[0]
	if got := distinct(sel); got < len(sel.Grid[0].Fingerprints) {
		t.Errorf("distinct folds: got %d fingerprints in %d folds", got, len(sel.Grid[0].Fingerprints))
	}
}
