package pipeline

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace/table"
)

// TestScalarsOfARefit: two numbers deviate by their difference over the larger one, and anything else without a measure.
func TestScalarsOfARefit(t *testing.T) {
	for _, c := range []struct {
		a, b      string
		tolerance float64
		relative  float64
		tolerable bool
	}{
		{"bias", "bias", 0, 0, true}, {"100", "100.0", 0, 0, true},
		{"100", "80", 0.2, 0.2, true}, {"100", "80", 0.19, 0.2, false}, {"-80", "100", 2, 1.8, true}, {"0", "5", 1, 1, true},
		{"100", "bias", 9, math.Inf(1), false}, {"bias", "100", 9, math.Inf(1), false}, {"bias", "slope", 9, math.Inf(1), false},
	} {
		d := deviation{tolerable: true}
		d.addScalars(c.a, c.b, c.tolerance)
		if math.Abs(d.relative-c.relative) > 1e-12 || d.tolerable != c.tolerable {
			t.Errorf("%s and %s: got %+v, want %g, %v", c.a, c.b, d, c.relative, c.tolerable)
		}
	}
	d := deviation{tolerable: true}
	d.addScalars("100", "50", 0.1)
	if d.addScalars("100", "99", 0.1); d.relative != 0.5 || d.tolerable {
		t.Errorf("the larger of two deviations: got %+v", d)
	}
}

// TestStepsWithDrafts: only the steps of logged iterations, without summaries of steps, have no draft model.
func TestStepsWithDrafts(t *testing.T) {
	dep := testkit.Llama8B()
	dep.Engine.SpeculativeDecoding = true
	for _, c := range []struct {
		iterations, steps int64
		without           bool
	}{{1, 0, true}, {1, 1, false}, {0, 0, false}, {0, 1, false}} {
		r := &result.ExtractRun{Deployment: dep, Tables: map[string]int64{table.Iterations: c.iterations, table.Steps: c.steps}}
		if got := stepsOn(r); (got != dep) != c.without || got.Engine.SpeculativeDecoding == c.without {
			t.Errorf("%d iterations and %d steps: got a draft model %v", c.iterations, c.steps, got.Engine.SpeculativeDecoding)
		}
	}
}

// TestWrittenExports: characters that would reorder the text after them are escaped in text and left in tables; files may be in
// folders; if one of them is a link nothing is written.
func TestWrittenExports(t *testing.T) {
	const reorders = "a: \"x\u202ey\"\n"
	const escaped = "a: \"x\\u202ey\"\n"
	name := filepath.Join(t.TempDir(), "out")
	files := func() *export.Output {
		return &export.Output{Files: []export.File{{Suffix: ".yaml", Data: []byte(reorders)}, {Suffix: ".parquet", Data: []byte(reorders)}, {Suffix: "-parts/b.json", Data: []byte("{}\n")}}}
	}
	got, err := WriteExport(name, export.FormatCard, files())
	if err != nil || got.Format != export.FormatCard || len(got.Files) != 3 {
		t.Fatalf("got %+v, %v", got, err)
	}
	for i, want := range map[string]string{".yaml": escaped, ".parquet": reorders, "-parts/b.json": "{}\n"} {
		text, err := os.ReadFile(name + i)
		if err != nil || string(text) != want {
			t.Errorf("%s: got %q, %v, want %q", i, text, err, want)
		}
	}
	for i, want := range []result.Input{folder.InputOf("out.yaml", []byte(escaped)), folder.InputOf("out.parquet", []byte(reorders)), folder.InputOf("out-parts/b.json", []byte("{}\n"))} {
		if got.Files[i] != want {
			t.Errorf("got %+v, want %+v", got.Files[i], want)
		}
	}
	other := filepath.Join(t.TempDir(), "out")
	if err := os.Mkdir(other+".parquet", 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := WriteExport(other, export.FormatCard, files()); err == nil || got != nil {
		t.Errorf("a folder in place of a file: got %+v, %v", got, err)
	}
	if _, err := os.Stat(other + ".yaml"); err == nil {
		t.Error("a file was written before the others were checked")
	}
}

// TestFoldersThatStagesWriteTo: a stage may write beside what it reads, where other files are, and needs --force for another folder
// with such files. Here nothing was extracted, so that it ends there.
func TestFoldersThatStagesWriteTo(t *testing.T) {
	in, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{in, other} {
		if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const foreign, unread = "holds files that blis-train did not write (notes.txt)", folder.ExtractFile
	for name, c := range map[string]struct {
		out   string
		force bool
		want  string
	}{
		"beside the input": {"", false, unread},
		"the input itself": {in, false, unread},
		"another folder":   {other, false, foreign},
		"another by force": {other, true, unread},
		"a folder to make": {filepath.Join(t.TempDir(), "new"), false, unread},
		"a file":           {filepath.Join(other, "notes.txt"), true, "want an output folder"},
	} {
		f := DefaultFitOptions()
		f.Out, f.Force = c.out, c.force
		if doc, err := Fit(context.Background(), in, f); doc != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("fit, %s: got %v, want %q", name, err, c.want)
		}
		v := DefaultValidateOptions()
		v.Out, v.Force = c.out, c.force
		if val, doc, err := Validate(context.Background(), in, v); val != nil || doc != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("validate, %s: got %v, want %q", name, err, c.want)
		}
	}
}

// TestWhatInspectWrites: the inspection of a folder is written where an output folder is named, and an error writes nothing.
func TestWhatInspectWrites(t *testing.T) {
	in := t.TempDir()
	for _, c := range []struct {
		name, text string
		fails      bool
	}{{"an extraction without runs", "", false}, {"a damaged one", "{", true}} {
		file := filepath.Join(in, folder.ExtractFile)
		if c.text == "" {
			if err := folder.WriteDocument(file, &result.Extract{Header: folder.Header("extract", nil), Runs: []result.ExtractRun{}}); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, out := range []string{"", filepath.Join(t.TempDir(), "out")} {
			o := DefaultInspectOptions()
			o.Extract.Out = out
			doc, err := Inspect(context.Background(), []string{in}, o)
			if (err != nil) != c.fails || (doc == nil) != c.fails {
				t.Errorf("%s: got %+v, %v", c.name, doc, err)
			}
			_, missing := os.Stat(filepath.Join(out, folder.InspectFile))
			if wants := out != "" && !c.fails; (missing == nil) != wants {
				t.Errorf("%s, output %q: written %v", c.name, out, missing == nil)
			}
		}
	}
}
