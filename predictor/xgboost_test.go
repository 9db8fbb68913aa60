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
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/internal/repo"
)

// ttft are llm-d's 13 columns of TTFT.
var ttft = []Column{{"is_queued", Int}, {"kv_cache_percentage", float}, {"input_token_length", Int}, {"num_request_waiting", Int},
	{"num_request_running", Int},
	{"prefill_tokens_in_flight", Int}, {"decode_tokens_in_flight", Int}, {"encoder_matched_size", Int}, {"encoder_input_size", Int},
	{"prefix_cache_score", float}, {"effective_input_tokens", float}, {"prefill_score_bucket", category}, {"pod_type_cat", category}}

// randomRow draws a row of the 13 columns.
func randomRow(rng *rand.Rand) []float64 {
	waiting := float64(rng.IntN(12))
	input := float64(1 + rng.IntN(4000))
	score := rng.Float64()
	if rng.IntN(3) == 0 {
		waiting = 0
	}
	queued := 0.0
	if waiting > 0 {
		queued = 1
	}
	return []float64{queued, rng.Float64(), input, waiting, float64(rng.IntN(60)), float64(rng.IntN(20_000)), float64(rng.IntN(90_000)), 0, 0,
		score, (1 - score) * input, math.Min(3, math.Floor(4*score)), 0}
}

// trained is a forest of logarithms of a made-up TTFT in ms, grown on 6,000 rows
// without the two categories.
func trained(t *testing.T, rng *rand.Rand) *forest.Forest {
	t.Helper()
	columns := make([][]float64, 11)
	y := make([]float64, 6000)
	for i := range y {
		x := randomRow(rng)
		for c := range columns {
			columns[c] = append(columns[c], x[c])
		}
		y[i] = math.Log(5 + 0.2*x[10] + 30*x[3]*x[1] + rng.ExpFloat64())
	}
	m, err := newMatrix(columns, MaxBins)
	if err != nil {
		t.Fatal(err)
	}
	r, err := growForest(m, y, nil, defaultBoost())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// rowsFor are n random rows, a third of them with values on thresholds of the
// forest, one float32 or one float64 below them.
func rowsFor(rng *rand.Rand, f *forest.Forest, n int) [][]float64 {
	type threshold struct {
		column int
		value  float32
	}
	var all []threshold
	for _, tree := range f.Trees {
		for _, node := range tree {
			if node.Feature != forest.Leaf {
				all = append(all, threshold{node.Feature, node.Value})
			}
		}
	}
	rows := make([][]float64, n)
	for i := range rows {
		rows[i] = randomRow(rng)
		for range i % 3 * 4 {
			at := all[rng.IntN(len(all))]
			v := float64(at.value)
			if ttft[at.column].Type == Int {
				v = math.Ceil(v)
			} else {
				v = []float64{v, math.Nextafter(v, 0), float64(math.Nextafter32(at.value, 0))}[rng.IntN(3)]
			}
			rows[i][at.column] = v
		}
	}
	return rows
}

// xgbPredict loads a model document in XGBoost and predicts rows.
func xgbPredict(t *testing.T, interpreter string, model []byte, rows [][]float64) (version string, y []float64) {
	t.Helper()
	folder := t.TempDir()
	var b bytes.Buffer
	for _, x := range rows {
		if err := binary.Write(&b, binary.LittleEndian, x); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range map[string][]byte{"model.json": model, "rows": b.Bytes()} {
		repo.Write(t, data, folder, name)
	}
	in := func(name string) string { return filepath.Join(folder, name) }
	cmd := exec.Command(interpreter, "testdata/xgboost_predict.py", in("model.json"), in("rows"), in("y"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", interpreter, err)
	}
	data := repo.Read(t, folder, "y")
	y = make([]float64, len(rows))
	if err := binary.Read(bytes.NewReader(data), binary.LittleEndian, y); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out)), y
}

// XGBoost predicts from our document what we predict from the forest, on 10,000
// rows of which many lie on thresholds, with llm-d's columns and categories.
func TestXGBoostPredictsTheSame(t *testing.T) {
	found := xgboosts(t)
	rng := rand.New(rand.NewPCG(1, 2))
	f := trained(t, rng)
	e, err := f.Compile(len(ttft))
	if err != nil {
		t.Fatal(err)
	}
	rows := rowsFor(rng, f, 10_000)
	var model bytes.Buffer
	if err := xgBoost(&model, f, ttft); err != nil {
		t.Fatal(err)
	}
	for _, interpreter := range found {
		version, y := xgbPredict(t, interpreter, model.Bytes(), rows)
		worst := 0.0
		for i, x := range rows {
			worst = math.Max(worst, math.Abs(y[i]/math.Exp(e.Margin(x))-1))
		}
		t.Logf("XGBoost %s: 10,000 rows, largest relative difference %.1e", version, worst)
		if !(worst < 1e-5) {
			t.Errorf("XGBoost %s: got a relative difference of %g, want below 1e-5", version, worst)
		}
	}
}

// base_score as a list, which versions from 3.1 on write, is silently misread by
// older ones; that is why the scalar is written, which all read.
func TestXGBoostBaseScoreForms(t *testing.T) {
	found := xgboosts(t)
	f := &forest.Forest{Base: math.Log(80), Trees: []forest.Tree{{{Feature: forest.Leaf, Value: 0}}}}
	var model bytes.Buffer
	if err := xgBoost(&model, f, []Column{{"a", float}}); err != nil {
		t.Fatal(err)
	}
	var doc map[string]map[string]any
	var rest map[string]any
	_ = json.Unmarshal(model.Bytes(), &rest)
	_ = json.Unmarshal(model.Bytes(), &doc) // "version" is a list and stays out
	if got := doc["learner"]["learner_model_param"].(map[string]any)["base_score"]; got != "8E+01" {
		t.Fatalf("base_score: got %v, want 8E+01", got)
	}
	list := bytes.Replace(model.Bytes(), []byte(`"8E+01"`), []byte(`"[8E+01]"`), 1)
	for _, interpreter := range found {
		version, y := xgbPredict(t, interpreter, model.Bytes(), [][]float64{{0}})
		if math.Abs(y[0]-80) > 1e-4 {
			t.Errorf("XGBoost %s: got %g from the scalar, want 80", version, y[0])
		}
		_, y = xgbPredict(t, interpreter, list, [][]float64{{0}})
		t.Logf("XGBoost %s reads the list as %g", version, y[0])
		if before31 := version < "3.1"; before31 == (math.Abs(y[0]-80) < 1e-4) {
			t.Errorf("XGBoost %s: got %g from the list, want 80 from 3.1 on only: the comment of XGBoost no longer holds", version, y[0])
		}
	}
}

func TestXGBoostRefuses(t *testing.T) {
	for want, f := range map[string]*forest.Forest{
		`tree 0 splits on the category "c"`: {Trees: []forest.Tree{{{Feature: 1, Value: 1}, {Feature: forest.Leaf}, {Feature: forest.Leaf}}}},
		"got column 2":                      {Trees: []forest.Tree{{{Feature: 2, Value: 1}, {Feature: forest.Leaf}, {Feature: forest.Leaf}}}},
		"base of the forest: got +Inf":      {Base: 1000},
	} {
		if err := xgBoost(&bytes.Buffer{}, f, []Column{{"a", float}, {"c", category}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// The document's form, without XGBoost: children, parents and default directions.
func TestXGBoostForm(t *testing.T) {
	var tree forest.Tree
	if err := tree.UnmarshalText([]byte("0<0.5 =-1 1<2 =3 =4")); err != nil {
		t.Fatal(err)
	}
	f := &forest.Forest{Trees: []forest.Tree{tree}}
	var b bytes.Buffer
	if err := xgBoost(&b, f, []Column{{"a", float}, {"n", Int}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"feature_names":["a","n"]`, `"feature_types":["float","int"]`, `"base_score":"1E+00"`,
		`"name":"reg:gamma"`, `"version":[2,0,0]`,
		`"left_children":[1,-1,3,-1,-1]`, `"right_children":[2,-1,4,-1,-1]`, `"parents":[2147483647,0,0,2,2]`, `"default_left":[1,0,1,0,0]`,
		`"split_conditions":[5E-01,-1E+00,2E+00,3E+00,4E+00]`, `"split_indices":[0,0,1,0,0]`, `"iteration_indptr":[0,1]`} {
		if !bytes.Contains(b.Bytes(), []byte(want)) {
			t.Errorf("got %s\nwant %s in it", b.Bytes(), want)
		}
	}
}

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
	for _, interpreter := range xgboosts(t) {
		for _, d := range datasets(12_000) {
			for _, q := range []float64{0, 0.9} {
				o := defaultBoost()
				o.Quantile = q
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
		if o.Quantile == 0 {
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
		repo.Write(t, b.Bytes(), folder, name)
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
	settings, _ := json.Marshal(map[string]any{"columns": len(d.columns), "quantile": o.Quantile, "depth": o.Depth, "rate": o.Rate,
		"rows": o.RowFrac, "cols": o.ColFrac, "lambda": o.Lambda, "alpha": o.Alpha,
		"min_child": o.MinChild, "seed": o.Seed, "trees": o.Trees})
	repo.Write(t, settings, folder, "settings.json")
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

// interpreters are the interpreters that can run check: those the environment
// variable lists (as PATH does), else python3. Each prints what check prints, its
// library's version. Without any the test is skipped with the reason.
func interpreters(t testing.TB, variable, check string) []string {
	t.Helper()
	list := filepath.SplitList(os.Getenv(variable))
	if len(list) == 0 {
		list = []string{"python3"}
	}
	var found []string
	for _, name := range list {
		out, err := exec.Command(name, "-c", check).CombinedOutput()
		text := bytes.TrimSpace(out)
		if err != nil {
			t.Logf("%s: not usable: %v: %s", name, err, text[max(0, len(text)-80):])
			continue
		}
		t.Logf("%s: %s", name, text)
		found = append(found, name)
	}
	if len(found) == 0 {
		t.Skipf("skipped: no Python that can run %q; %s names interpreters", check, variable)
	}
	return found
}

// xgboosts are the interpreters with XGBoost, numpy and pandas (BLIS_TRAIN_XGBOOST).
func xgboosts(t testing.TB) []string {
	t.Helper()
	return interpreters(t, "BLIS_TRAIN_XGBOOST", "import numpy, pandas, xgboost; print('XGBoost', xgboost.__version__)")
}
