package features

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
)

var updatePython = flag.Bool("update-python", false, "rewrite the formulas of the Python package")

// pythonFormulas is what the Python package evaluates.
func pythonFormulas() ([]byte, error) {
	type feature struct {
		Slot    int     `json:"slot"`
		Name    string  `json:"name"`
		Bound   float64 `json:"bound"`
		Prompt  bool    `json:"prompt"`
		Unit    string  `json:"unit"` // of its coefficient
		Formula string  `json:"formula"`
	}
	type derived struct {
		Name    string `json:"name"`
		Unit    string `json:"unit"`
		Formula string `json:"formula"`
	}
	type version struct {
		Hash      string    `json:"hash"` // feature_set.hash of a coefficient file
		Constants []derived `json:"constants"`
		Beta      []feature `json:"beta"`
		Alpha     []feature `json:"alpha"`
	}
	doc := struct {
		Model          []string            `json:"model"`
		Hardware       []string            `json:"hardware"`
		DefaultLatency float64             `json:"default_latency_us"`
		StepInputs     []string            `json:"step_inputs"`
		QueueInputs    []string            `json:"queue_inputs"`
		Versions       map[Version]version `json:"versions"`
	}{DefaultLatency: deploy.DefaultLatencyUs, StepInputs: []string{}, QueueInputs: []string{}, Versions: map[Version]version{}}
	where := &doc.Model
	for _, q := range slices.Concat(modelConstants, settingConstants) {
		switch q.name {
		case "TFlopsPeak":
			where = &doc.Hardware
		case "tp":
			where = nil
		}
		if where != nil {
			*where = append(*where, q.name)
		}
	}
	for _, f := range stepFields {
		doc.StepInputs = append(doc.StepInputs, f.name)
	}
	for _, f := range queueFields {
		doc.QueueInputs = append(doc.QueueInputs, f.name)
	}
	list := func(fs []Feature) (out []feature) {
		for _, f := range fs {
			out = append(out, feature{f.Slot, f.Name, f.Bound, f.Prompt, f.CoefficientUnit(), f.Formula})
		}
		return out
	}
	for v, quantities := range map[Version][]constant{
		V10: constants10,
		V11: constants11,
		V12: slices.Concat(constants11, constants12),
		V13: slices.Concat(reduceConstants13, sharedWith13(constants11)),
	} {
		of := version{Hash: SetOf(v).Hash, Beta: list(BetaFeatures(v)), Alpha: list(AlphaFeatures(v))}
		for _, q := range quantities {
			if q.formula != "" {
				of.Constants = append(of.Constants, derived{q.name, q.unit, q.formula})
			}
		}
		doc.Versions[v] = of
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err := enc.Encode(doc)
	return b.Bytes(), err
}

// TestPython: the Python package holds these formulas and the schema of coefficient files, and with them gives the golden vectors of both versions, of
// models, of batches and of the preemption average.
func TestPython(t *testing.T) {
	want, err := pythonFormulas()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join("..", "..", "python")
	path := filepath.Join(root, "blis_train_coefficients", "formulas.json")
	if *updatePython {
		repo.Write(t, want, path)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s is stale (%v): go test ./pipeline/features -run TestPython -update-python", path, err)
	}
	schema := repo.Read(t, "..", "..", "docs", "schema", "coefficients.schema.json")
	path = filepath.Join(root, "blis_train_coefficients", "coefficients.schema.json")
	if *updatePython {
		repo.Write(t, schema, path)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, schema) {
		t.Fatalf("%s is stale (%v): go test ./pipeline/features -run TestPython -update-python", path, err)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("skipped: no python3 on PATH")
	}
	names, err := filepath.Glob(filepath.Join("testdata", "features_golden*.json"))
	if err != nil {
		t.Fatal(err)
	}
	names = append(names, filepath.Join("..", "rows", "testdata", "sourcing_golden.json"))
	if name := os.Getenv("BLIS_TRAIN_GOLDEN"); name != "" {
		names = []string{name}
	}
	out, err := exec.Command(python, append([]string{"-B", filepath.Join(root, "tests", "golden.py")}, names...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(strings.TrimSpace(string(out)))
}
