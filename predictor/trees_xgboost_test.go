package predictor

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

type dataset struct {
	name    string
	columns [][]float64
	y       []float64
}

// datasets are five made of known functions: additive, interacting, stepped,
// multiplicative with heavy tails, and mostly noise.
func datasets(n int) []dataset {
	rng := rand.New(rand.NewPCG(10, 1))
	make5 := func(name string, p int, f func(x []float64) float64) dataset {
		d := dataset{name: name, columns: columnsOf(rng, n, p), y: make([]float64, n)}
		for i := range d.y {
			d.y[i] = f(row(d.columns, i))
		}
		return d
	}
	return []dataset{
		make5("additive", 6, func(x []float64) float64 { return 2*x[0] + x[1] - 3*x[2] + 0.5*rng.NormFloat64() }),
		make5("friedman", 10, func(x []float64) float64 {
			return 10*math.Sin(math.Pi*x[0]*x[2]) + 20*(x[4]-0.5)*(x[4]-0.5) + 2*x[1] + x[3] + rng.NormFloat64()
		}),
		make5("stepped", 5, func(x []float64) float64 {
			y := rng.NormFloat64()
			if x[0] > 0.5 && x[1] >= 3 {
				y += 10
			}
			if x[2] > 0.2 {
				y -= 4
			}
			return y
		}),
		make5("heavy", 8, func(x []float64) float64 { return math.Log(math.Exp(3*x[0]+x[1]) * (1 + rng.ExpFloat64()*x[2])) }),
		make5("noise", 13, func(x []float64) float64 { return 0.3*x[0] + rng.NormFloat64() }),
	}
}

// The hold-out loss of our trees is within 2 % of XGBoost's with the same
// settings, for a mean and for a quantile. Draws of rows and columns differ, so
// the losses cannot be equal.
func TestEvalXGBoostHoldOut(t *testing.T) {
	repo.NeedEval(t)
	for _, interpreter := range repo.XGBoosts(t) {
		for _, d := range datasets(12_000) {
			for _, q := range []float64{0, 0.9} {
				o := defaultBoost()
				if q > 0 {
					o.Loss, o.Quantile = pinballLoss, q
				}
				cut := len(d.y) * 2 / 3
				ours := holdOut(t, d, o, cut)
				version, theirs := peer(t, interpreter, d, o, cut)
				ratio := ours / theirs
				t.Logf("XGBoost %s, %s, quantile %g: hold-out loss %.5f here, %.5f there, ratio %.4f", version, d.name, q, ours, theirs, ratio)
				if ratio > 1.02 || ratio < 0.9 {
					t.Errorf("%s, quantile %g: got %.4f of XGBoost's hold-out loss, want at most 1.02 and no miracle", d.name, q, ratio)
				}
			}
		}
	}
}

func part(columns [][]float64, lo, hi int) [][]float64 {
	out := make([][]float64, len(columns))
	for c := range columns {
		out[c] = columns[c][lo:hi]
	}
	return out
}

func holdOut(t *testing.T, d dataset, o boostOptions, cut int) float64 {
	_, e := grown(t, part(d.columns, 0, cut), d.y[:cut], nil, o)
	loss := 0.0
	for i := cut; i < len(d.y); i++ {
		r := d.y[i] - e.Margin(row(d.columns, i))
		if o.Loss == squared {
			loss += r * r
		} else {
			loss += math.Max(o.Quantile*r, (o.Quantile-1)*r)
		}
	}
	return loss / float64(len(d.y)-cut)
}

func peer(t *testing.T, interpreter string, d dataset, o boostOptions, cut int) (version string, loss float64) {
	t.Helper()
	folder := t.TempDir()
	write := func(name string, v any) {
		var b bytes.Buffer
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var train, test []float64
	for i := range d.y {
		if i < cut {
			train = append(train, row(d.columns, i)...)
		} else {
			test = append(test, row(d.columns, i)...)
		}
	}
	write("train.x", train)
	write("test.x", test)
	write("train.y", d.y[:cut])
	write("test.y", d.y[cut:])
	q := 0.0
	if o.Loss == pinballLoss {
		q = o.Quantile
	}
	settings, _ := json.Marshal(map[string]any{"columns": len(d.columns), "quantile": q, "depth": o.Depth, "rate": o.Rate,
		"rows": o.RowFrac, "cols": o.ColFrac, "lambda": o.Lambda, "alpha": o.Alpha,
		"min_child": o.MinChild, "seed": o.Seed, "trees": o.Trees})
	if err := os.WriteFile(filepath.Join(folder, "settings.json"), settings, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(interpreter, "testdata/xgboost_train.py", folder)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", interpreter, err)
	}
	var got struct {
		Version string  `json:"version"`
		Loss    float64 `json:"loss"`
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%s: %v in %q", interpreter, err, out)
	}
	return got.Version, got.Loss
}
