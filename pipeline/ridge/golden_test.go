package ridge_test

import (
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/ridge"
)

// goldenFolder is the repository's copy of the reference fits unless
// BLIS_TRAIN_GOLDEN_RIDGE names another folder.
func goldenFolder() string {
	if dir := os.Getenv("BLIS_TRAIN_GOLDEN_RIDGE"); dir != "" {
		return dir
	}
	return filepath.Join("testdata", "golden")
}

type goldenFile struct {
	Name    string
	Rows    int
	Options struct {
		Features    int
		Penalty     []float64 `json:"penalty_factor"`
		FreeSign    []int     `json:"free_sign"`
		Prior       []float64 `json:"prior_beta"`
		EpsUs       float64   `json:"eps_us"`
		EmbargoRows int       `json:"embargo_rows"`
		MinCellRows int       `json:"min_cell_rows"`
		Folds       int
		Lambdas     []float64
	}
	Tolerance struct {
		Objective float64 `json:"objective_relative"`
		Pred      float64 `json:"prediction_relative"`
		Score     float64 `json:"score_relative"`
		KKT       float64 `json:"kkt"`
		IRLSPred  float64 `json:"irls_prediction_relative"`
	}
	Weights     []float64 `json:"weights_first_5"`
	WeightTotal float64   `json:"weight_total"`
	S           []float64
	YBar        float64
	Fits        []goldenFit
	Grid        []struct {
		Lam        float64
		FoldScores []float64 `json:"fold_scores"`
		Mean       float64
		Loco       map[string]float64
		LocoMean   *float64 `json:"loco_mean"`
	}
	SelectedMin   float64  `json:"selected_min"`
	OneSE         float64  `json:"one_se"`
	SelectedOneSE float64  `json:"selected_one_se"`
	SelectedCross *float64 `json:"selected_cross"`
	NestedLoco    map[string]struct {
		Lam   float64
		Inner float64 `json:"inner_mean"`
		Outer float64
	} `json:"nested_loco"`
	Within map[string][]*float64 `json:"within_config_variation"`
	IRLS   struct {
		Lam         float64
		Passes      int
		Predictions []float64 `json:"predictions_first_5"`
		MAPE        map[string]float64
		Bias        float64
		BiasLS      float64 `json:"bias_ls"`
		Kept        bool
	}
	Frozen struct {
		Grid []struct {
			Lam      float64
			MeanRMSE float64 `json:"mean_rmse"`
		}
		BestLam float64   `json:"best_lam"`
		Beta    []float64 `json:"coefficients"`
		DF      float64   `json:"df_eff"`
	}
}

type goldenFit struct {
	Lam         float64
	Beta, Gamma []float64
	Objective   float64
	KKTMinZero  *float64 `json:"kkt_min_zero"`
	KKTMax      float64  `json:"kkt_max_active"`
	DF          float64  `json:"df_eff"`
	Active      []int
	PriorShare  []*float64 `json:"prior_share"`
	MAPE        map[string]float64
	Predictions []float64 `json:"predictions_first_5"`
}

type goldenCase struct {
	want    goldenFile
	d       *ridge.Data
	o       ridge.Options
	configs []string
}

func loadGolden(t *testing.T, path string) goldenCase {
	t.Helper()
	b := repo.Read(t, path)
	var c goldenCase
	if err := json.Unmarshal(b, &c.want); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	base := path[:len(path)-len(".expected.json")]
	c.d, c.configs = readRows(t, base+".csv", c.want.Options.Features)
	w := c.want.Options
	c.o = ridge.Options{
		Penalty: w.Penalty, Prior: w.Prior, EpsUs: w.EpsUs, Lambdas: w.Lambdas, MinCellRows: w.MinCellRows,
		Folds: w.Folds, EmbargoRows: w.EmbargoRows, Free: make([]bool, w.Features), Workers: 2,
	}
	for _, j := range w.FreeSign {
		c.o.Free[j-1] = true
	}
	return c
}

// readRows reads NAME.csv or NAME.csv.gz; labels are numbered in sorted order.
func readRows(t *testing.T, path string, p int) (*ridge.Data, []string) {
	t.Helper()
	records := readCSV(t, path)[1:]
	label := func(col int) ([]string, []int32) {
		var names []string
		for _, r := range records {
			names = append(names, r[col])
		}
		sorted := slices.Compact(slices.Sorted(slices.Values(names)))
		ids := make([]int32, len(names))
		for i, n := range names {
			k, _ := slices.BinarySearch(sorted, n)
			ids[i] = int32(k)
		}
		return sorted, ids
	}
	d := &ridge.Data{P: p}
	configs, ids := label(0)
	d.Config = ids
	_, d.Regime = label(2)
	for _, r := range records {
		d.Time = append(d.Time, int64(number(t, r[1])))
		d.Steps = append(d.Steps, number(t, r[3]))
		d.Y = append(d.Y, number(t, r[4]))
		for _, f := range r[5:] {
			d.X = append(d.X, number(t, f))
		}
	}
	return d, configs
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func readCSV(t *testing.T, path string) [][]string {
	t.Helper()
	var in io.Reader
	f, err := os.Open(path)
	in = f
	if errors.Is(err, fs.ErrNotExist) {
		if f, err = os.Open(path + ".gz"); err == nil {
			in, err = gzip.NewReader(f)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records, err := csv.NewReader(in).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// TestGolden compares fits, grids, choices, reweighting, variation and the
// frozen recipe with reference values at their stated tolerance.
func TestGolden(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(goldenFolder(), "*.expected.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no *.expected.json under %s: %v", goldenFolder(), err)
	}
	counts := map[string]int{}
	for _, path := range paths {
		c := loadGolden(t, path)
		t.Run(c.want.Name, func(t *testing.T) {
			if c.d.Len() != c.want.Rows {
				t.Fatalf("rows: got %d, want %d", c.d.Len(), c.want.Rows)
			}
			w := goldenWeights(t, c)
			counts["weights"]++
			counts["fits"] += goldenFits(t, c, w)
			counts["grid"] += goldenGrid(t, c)
			counts["folds"] += len(c.want.Grid) * c.want.Options.Folds
			counts["nested"] += len(c.want.NestedLoco)
			goldenIRLS(t, c, w)
			counts["irls"]++
			counts["variation"] += goldenVariation(t, c, w)
			counts["frozen"] += goldenFrozen(t, c)
		})
	}
	for _, kind := range []string{"weights", "fits", "grid", "folds", "nested", "irls", "variation", "frozen"} {
		fmt.Printf("golden: %d cases (%s)\n", counts[kind], kind)
		if counts[kind] == 0 && kind != "nested" {
			t.Errorf("no case of kind %s", kind)
		}
	}
}

func goldenWeights(t *testing.T, c goldenCase) []float64 {
	w := ridge.Weights(c.d, c.o)
	ridge.Near(t, "weights", w[:len(c.want.Weights)], c.want.Weights, 1e-10)
	var total float64
	for i, v := range w {
		total += v * c.d.Y[i] * c.d.Y[i]
	}
	ridge.Near(t, "weight total", []float64{total}, []float64{c.want.WeightTotal}, 1e-10)
	s, ybar := ridge.OfRows(c.d, w, nil, 1).Scale()
	ridge.Near(t, "s", s, c.want.S, 1e-10)
	ridge.Near(t, "ybar", []float64{ybar}, []float64{c.want.YBar}, 1e-10)
	return w
}

func goldenFits(t *testing.T, c goldenCase, w []float64) int {
	tol := c.want.Tolerance
	g := ridge.OfRows(c.d, w, nil, 2)
	for _, want := range c.want.Fits {
		got, err := ridge.Solve(g, want.Lam, c.o)
		if err != nil {
			t.Errorf("lambda %g: %v", want.Lam, err)
		}
		ridge.Near(t, "objective", []float64{got.Objective}, []float64{want.Objective}, tol.Objective)
		ridge.Near(t, "df_eff", []float64{got.DF}, []float64{want.DF}, 1e-6)
		ridge.Near(t, "predictions", ridge.Predict(c.d, got.Beta)[:len(want.Predictions)], want.Predictions, tol.Pred)
		if !slices.Equal(activeTerms(got), want.Active) {
			t.Errorf("lambda %g active: got %v, want %v", want.Lam, activeTerms(got), want.Active)
		}
		if got.Cert.MaxActive > tol.KKT {
			t.Errorf("lambda %g kkt active: got %g", want.Lam, got.Cert.MaxActive)
		}
		if min := orNaN(want.KKTMinZero); math.IsNaN(min) != math.IsNaN(got.Cert.MinZero) || math.Abs(min-got.Cert.MinZero) > tol.KKT {
			t.Errorf("lambda %g kkt zero: got %g, want %g", want.Lam, got.Cert.MinZero, min)
		}
		for j, share := range want.PriorShare {
			ridge.Near(t, "prior share", got.PriorShare[j:j+1], []float64{orNaN(share)}, 1e-12)
		}
		goldenMAPE(t, c, got.Beta, want.MAPE, 1e-6)
	}
	return len(c.want.Fits)
}

// goldenMAPE compares mean |y - pred|/max(y, eps*steps): the reference figures
// measure a row against the same size as its weight does.
func goldenMAPE(t *testing.T, c goldenCase, beta []float64, want map[string]float64, tol float64) {
	t.Helper()
	sum := make([]float64, len(c.configs))
	n := make([]float64, len(c.configs))
	for i, pred := range ridge.Predict(c.d, beta) {
		sum[c.d.Config[i]] += math.Abs(c.d.Y[i]-pred) / c.d.BaseOf(i, c.o.EpsUs)
		n[c.d.Config[i]]++
	}
	for k, name := range c.configs {
		ridge.Near(t, "mape of "+name, []float64{sum[k] / n[k]}, []float64{want[name]}, tol)
	}
}

func activeTerms(f ridge.Fit) []int {
	var out []int
	for j, a := range f.Active {
		if a {
			out = append(out, j+1)
		}
	}
	return out
}

func goldenGrid(t *testing.T, c goldenCase) int {
	tol := c.want.Tolerance.Score
	all, err := ridge.Select(c.d, c.o)
	if err != nil {
		t.Fatal(err)
	}
	s := all[0]
	for i, want := range c.want.Grid {
		got := s.Grid[i]
		ridge.Near(t, "fold scores", got.FoldScores, want.FoldScores, tol)
		ridge.Near(t, "mean", []float64{got.Within}, []float64{want.Mean}, tol)
		for k, name := range c.configs {
			if len(want.Loco) > 0 {
				ridge.Near(t, "loco "+name, got.Loco[k:k+1], []float64{want.Loco[name]}, tol)
			}
		}
		if want.LocoMean != nil {
			ridge.Near(t, "loco mean", []float64{got.Cross}, []float64{*want.LocoMean}, tol)
		}
	}
	ridge.Near(t, "one se", []float64{s.Grid[s.MinWithin].SE}, []float64{c.want.OneSE}, tol)
	chosen := []float64{s.Grid[s.MinWithin].Lambda, s.Grid[s.OneSE].Lambda, math.NaN()}
	if s.Cross >= 0 {
		chosen[2] = s.Grid[s.Cross].Lambda
	}
	ridge.Near(t, "chosen", chosen, []float64{c.want.SelectedMin, c.want.SelectedOneSE, orNaN(c.want.SelectedCross)}, 0)
	if len(s.Nested) != len(c.want.NestedLoco) {
		t.Errorf("nested: got %d, want %d", len(s.Nested), len(c.want.NestedLoco))
	}
	for k, n := range s.Nested {
		want := c.want.NestedLoco[c.configs[k]]
		ridge.Near(t, "nested lambda", []float64{n.Lambda}, []float64{want.Lam}, 0)
		ridge.Near(t, "nested", []float64{n.Inner, n.Outer}, []float64{want.Inner, want.Outer}, tol)
	}
	return len(c.want.Grid)
}

func goldenIRLS(t *testing.T, c goldenCase, w []float64) {
	want := c.want.IRLS
	ls, err := ridge.FitRows(c.d, w, nil, want.Lam, c.o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ridge.Reweight(c.d, w, ls, c.o)
	if err != nil {
		t.Fatal(err)
	}
	tol := c.want.Tolerance.IRLSPred
	ridge.Near(t, "irls predictions", ridge.Predict(c.d, got.Fit.Beta)[:len(want.Predictions)], want.Predictions, tol)
	ridge.Near(t, "irls bias", []float64{got.Bias, got.BiasLS}, []float64{want.Bias, want.BiasLS}, tol)
	goldenMAPE(t, c, got.Fit.Beta, want.MAPE, tol)
	if got.Kept != want.Kept || got.Passes != want.Passes {
		t.Errorf("irls: got kept %v after %d passes, want %v after %d", got.Kept, got.Passes, want.Kept, want.Passes)
	}
}

func goldenVariation(t *testing.T, c goldenCase, w []float64) int {
	shares := c.d.WithinVariation(w)
	n := 0
	for k, name := range c.configs {
		for j, want := range c.want.Within[name] {
			got, ref := shares[k][j], orNaN(want)
			if math.IsNaN(got) != math.IsNaN(ref) || math.Abs(got-ref) > 1e-10 {
				t.Errorf("variation %s term %d: got %g, want %g", name, j+1, got, ref)
			}
			n++
		}
	}
	return n
}

func goldenFrozen(t *testing.T, c goldenCase) int {
	want := c.want.Frozen
	got, err := c.d.FitFrozen(c.o)
	if err != nil {
		t.Fatal(err)
	}
	for k, p := range want.Grid {
		ridge.Near(t, "frozen rmse", []float64{got.Grid[k].Mean}, []float64{p.MeanRMSE}, c.want.Tolerance.Score)
	}
	ridge.Near(t, "frozen lambda", []float64{got.Lambda}, []float64{want.BestLam}, 0)
	ridge.Near(t, "frozen df", []float64{got.DF}, []float64{want.DF}, 1e-6)
	ridge.Near(t, "frozen predictions", ridge.Predict(c.d, got.Beta), ridge.Predict(c.d, want.Beta), c.want.Tolerance.Pred)
	return len(want.Grid)
}

func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// TestEigenOfWhatIsNotFinite: sums that overflowed are an error, not a panic.
func TestEigenOfWhatIsNotFinite(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for at := range 9 {
			a := mat.NewSymDense(3, []float64{2, 1, 0, 1, 2, 1, 0, 1, 2})
			a.SetSym(at/3, at%3, bad)
			if values, _, err := ridge.Eigen(a); !errors.Is(err, ridge.ErrEigen) {
				t.Errorf("entry %d is %v: got %v and error %v", at, bad, values, err)
			}
		}
	}
	if values, _, err := ridge.Eigen(mat.NewSymDense(2, []float64{2, 1, 1, 2})); err != nil || math.Abs(values[0]-1) > 1e-15 {
		t.Errorf("got %v, %v, want 1 and 3", values, err)
	}
}

// Values and vectors are those of LAPACK, of matrices with full rank and without, and the
// vectors turn the matrix back.
func TestEigenAsLAPACK(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for m := 1; m <= 30; m++ {
		for _, rank := range []int{m, (m + 1) / 2} {
			a := mat.NewSymDense(m, nil)
			for range rank {
				x := mat.NewVecDense(m, nil)
				for j := range m {
					x.SetVec(j, rng.NormFloat64()*math.Pow(10, float64(j%7)))
				}
				a.SymRankOne(a, 1, x)
			}
			values, vectors, err := ridge.Eigen(a)
			if err != nil {
				t.Fatal(err)
			}
			var want mat.EigenSym
			want.Factorize(a, false)
			top := values[m-1]
			for k, v := range want.Values(nil) {
				if math.Abs(values[k]-v) > 1e-14*top {
					t.Errorf("%d x %d, rank %d: eigenvalue %d is %g, LAPACK says %g", m, m, rank, k, values[k], v)
				}
			}
			var left, unit mat.Dense
			left.Mul(a, vectors)
			unit.Mul(vectors.T(), vectors)
			for r := range m {
				for k := range m {
					if off := math.Abs(left.At(r, k) - values[k]*vectors.At(r, k)); off > 1e-13*top {
						t.Errorf("%d x %d, rank %d: A*v is %g beside lambda*v", m, m, rank, off)
					}
					if one := unit.At(r, k); math.Abs(one-float64(min(1, max(0, 1-(r-k)*(r-k))))) > 1e-13 {
						t.Errorf("%d x %d, rank %d: vectors %d and %d have product %g", m, m, rank, r, k, one)
					}
				}
			}
		}
	}
}
