package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/blis-train/blis-train/autoscale"
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/result"
)

var updateExamples = flag.Bool("update-examples", false, "rewrite docs/examples")

const examplesDir = "../../docs/examples"

// exampleSets are the fits in docs/examples: the data they are made of and the
// exports of each, as the page's commands say.
var exampleSets = []struct {
	dir, data string
	exports   []exampleExport
}{
	{"composed", "composed", []exampleExport{
		{export.FormatNative, folder.CoefficientsFile, false}, {export.FormatBLIS, "defaults.yaml", true},
		{autoscale.QueueWVA4P, "variantautoscaling.yaml", true}, {autoscale.InfernoModels, "model-data.json", true},
	}},
	{"real", "real_vllm_cpu", []exampleExport{{export.FormatNative, folder.CoefficientsFile, false}}},
}

type exampleExport struct {
	format export.Format
	name   string
	force  bool
}

// The committed examples load: native files strictly and back into
// the same bytes, sidecars strictly and against their schema.
func TestExamplesLoad(t *testing.T) {
	schema := compileSchema(t, "export-provenance")
	for _, set := range exampleSets {
		path := filepath.Join(examplesDir, set.dir, folder.CoefficientsFile)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := coeff.Load(bytes.NewReader(data), path, features.CheckSet)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := folder.SetBytes(s); err != nil || !bytes.Equal(again, data) {
			t.Errorf("%s: saving what was loaded gives other bytes (%v)", path, err)
		}
		for _, e := range set.exports {
			if e.format == export.FormatNative {
				continue
			}
			checkSidecar(t, schema, filepath.Join(examplesDir, set.dir, e.name), e.format)
		}
	}
}

func checkSidecar(t *testing.T, schema *jsonschema.Schema, path string, format export.Format) {
	t.Helper()
	if st, err := os.Stat(path); err != nil || st.Size() == 0 {
		t.Fatalf("%s: %v", path, err)
	}
	data, err := os.ReadFile(path + export.SidecarSuffix)
	if err != nil {
		t.Fatal(err)
	}
	var side export.Sidecar
	if err := result.Read(data, &side); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	if side.Format != string(format) || len(side.Values) == 0 || len(side.FitInputs) == 0 {
		t.Errorf("%s: format %q, %d values, %d inputs", path, side.Format, len(side.Values), len(side.FitInputs))
	}
	if err := schema.Validate(jsonValue(t, data)); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}

// Every line of a ledger follows its schema, and the schemas refuse
// what is not theirs.
func TestLedgerAndSidecarSchemas(t *testing.T) {
	ledger, sidecar := compileSchema(t, "ledger"), compileSchema(t, "export-provenance")
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	fit := artifactFit()
	if err := (&console{}).appendLedger(path, "fit", fit.Header, fit, nil, ""); err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := ledger.Validate(jsonValue(t, line)); err != nil {
		t.Error(err)
	}
	if err := ledger.Validate(jsonValue(t, bytes.Replace(line, []byte(`"stage":"fit"`), []byte(`"stage":"cook"`), 1))); err == nil {
		t.Error("the ledger schema accepts an unknown stage")
	}
	if err := sidecar.Validate(jsonValue(t, line)); err == nil {
		t.Error("the sidecar schema accepts a ledger line")
	}
}

func jsonValue(t *testing.T, data []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func compileSchema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	path := filepath.Join("..", "..", "docs", "schema", name+".schema.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(path, jsonValue(t, data)); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEvalExamples runs the page's commands on the shared data and compares
// every example byte for byte.
func TestEvalExamples(t *testing.T) {
	repo.NeedEval(t)
	for _, set := range exampleSets {
		data := filepath.Join("..", "..", "..", "shared", "data", set.data)
		if _, err := os.Stat(data); err != nil {
			t.Skipf("no data: %v", err)
		}
		out := filepath.Join(t.TempDir(), "out")
		if rc, _, stderr := call("run", data, "-o", out, "--quiet"); rc != exitOK && rc != exitGate {
			t.Fatalf("run %s: exit %d: %s", set.data, rc, stderr)
		}
		for _, e := range set.exports {
			path := filepath.Join(t.TempDir(), e.name)
			args := []string{"export", "--format", string(e.format), filepath.Join(out, folder.FitFile), "-o", path, "--quiet", "--ignore-verdict"}
			if e.force {
				args = append(args, "--force", "poor_projection,unlearned_value")
			}
			if rc, _, stderr := call(args...); rc != exitOK {
				t.Fatalf("%v: exit %d: %s", args, rc, stderr)
			}
			compareExample(t, filepath.Dir(path), filepath.Join(examplesDir, set.dir))
		}
	}
}

func compareExample(t *testing.T, made, committed string) {
	t.Helper()
	files, err := os.ReadDir(made)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		got, err := os.ReadFile(filepath.Join(made, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(committed, f.Name())
		if *updateExamples {
			if err := os.WriteFile(target, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(target)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: differs from what its command writes (%v)", target, err)
		}
	}
}
