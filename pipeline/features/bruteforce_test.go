package features

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
)

// bruteModel is a model as testdata/layer_work.py reads it.
type bruteModel struct {
	Name   string          `json:"name"`
	TP     int64           `json:"tp"`
	DP     int64           `json:"dp"`
	EP     bool            `json:"ep"`
	Layers *deploy.Decoder `json:"layers"`
	space  *Space
}

// TestLayersAgainstBruteForce compares the work of 1.3 with testdata/layer_work.py, which goes over every layer, matrix, rank and
// query-key pair: 30 steps of each small model and of published ones whose layers are unlike. Without python3 (or
// BLIS_TRAIN_PYTHON) with numpy the small ones are held against what it said, which -update-python writes.
func TestLayersAgainstBruteForce(t *testing.T) {
	python := os.Getenv("BLIS_TRAIN_PYTHON")
	if python == "" {
		python = "python3"
	}
	models, fixture := bruteModels(t), filepath.Join("testdata", "layer_work.json")
	_, err := exec.Command(python, "-c", "import numpy").CombinedOutput()
	isKept := err != nil // what the script said of the small models
	if isKept {
		t.Logf("%s has no numpy: the small models against %s", python, fixture)
		models = models[:2*len(unlike)]
	}
	r := rand.New(rand.NewPCG(11, 1))
	var steps [][]trace.Chunk
	for len(steps) < 30 {
		var chunks []trace.Chunk
		for range 1 + r.IntN(6) {
			c := trace.Chunk{Computed: r.Int64N(2500), New: 1}
			if c.Prompt = c.Computed; r.IntN(3) == 0 {
				c.New = 1 + r.Int64N(300)
				c.Prompt += c.New
			}
			chunks = append(chunks, c)
		}
		steps = append(steps, chunks)
	}
	h := dense(1).Hardware
	given := map[string]any{"peak": h.TFlopsPeak * 1e12, "fast": h.TFlopsFP8 * 1e12, "bandwidth": h.BwPeakTBs * 1e12, "models": models}
	var lists [][][3]int64
	for _, s := range steps {
		var list [][3]int64
		for _, c := range s {
			list = append(list, [3]int64{c.Computed, c.Prompt, c.New})
		}
		lists = append(lists, list)
	}
	given["steps"] = lists
	text, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	if isKept {
		out, err = os.ReadFile(fixture)
	} else {
		cmd := exec.Command(python, "-B", filepath.Join("testdata", "layer_work.py"))
		cmd.Stdin = bytes.NewReader(text)
		out, err = cmd.Output()
	}
	var want [][][5]float64
	if err == nil {
		err = json.Unmarshal(out, &want)
	}
	if err != nil || len(want) != len(models) {
		t.Fatalf("got %d answers, %v, %.200s", len(want), err, out)
	}
	if *updatePython && !isKept {
		small, _ := json.Marshal(want[:2*len(unlike)])
		repo.Write(t, small, fixture)
	}
	worst := 0.0
	for i, m := range models {
		for k, chunks := range steps {
			in := m.space.Sum(chunks)
			x := beta(t, m.space, in)
			for j, got := range []float64{x[0], x[2] + x[16], x[1], x[3], x[4]} {
				off := math.Abs(got-want[i][k][j]) / math.Max(want[i][k][j], 1e-30)
				if worst = max(worst, off); off > 1e-9 && got+want[i][k][j] > 0 {
					t.Errorf("%s tp %d dp %d, step %d, %s: got %v s, want %v", m.Name, m.TP, m.DP, k,
						[]string{"linear", "weights", "prefill attention", "decode attention", "cache"}[j], got, want[i][k][j])
				}
			}
		}
	}
	t.Logf("%d models x %d steps: at most %.1g off", len(models), len(steps), worst)
}

// bruteModels are the small ones and, where they lie beside the repository, the published ones with unlike layers.
func bruteModels(t *testing.T) []*bruteModel {
	var out []*bruteModel
	add := func(name string, tp, dp int64, model deploy.Model) {
		d := dense(tp)
		d.Model = model
		if d.Model.IsMoE() {
			d.DP, d.Engine.ExpertParallel = dp, dp > 1
		}
		if sp, err := New(V13, d); err == nil {
			out = append(out, &bruteModel{name, tp, max(1, d.DP), d.Engine.ExpertParallel, d.Model.Layers(), sp})
		} else {
			t.Logf("%s tp %d: %v", name, tp, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unlike)) {
		for _, tp := range []int64{1, 2} {
			add(name, tp, tp, layered(t, name, tp).Model)
		}
	}
	files, _ := filepath.Glob(filepath.Join(repo.Root(t), "..", "shared", "data", "models_hf", "*_config.json"))
	for i, file := range files {
		config, err := os.ReadFile(file)
		if err != nil || len(config) == 0 {
			continue
		}
		quant, _ := os.ReadFile(deploy.QuantConfigName(file))
		model, err := deploy.LoadModel(bytes.NewReader(config), file, deploy.ModelOptions{QuantConfig: quant})
		if err == nil && model.Layered != nil && i%2 == 0 {
			add(filepath.Base(file), 4, 2, model)
		}
	}
	return out
}
