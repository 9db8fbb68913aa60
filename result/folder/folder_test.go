package folder

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// filesIn returns the paths of all files and folders below dir, sorted.
func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if rel, _ := filepath.Rel(dir, path); rel != "." {
			all = append(all, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// TestClaimLocksAFolder: a folder that is made is locked until release, which removes it and its made
// parents while they are empty.
func TestClaimLocksAFolder(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "a", "b")
	release, err := Claim(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Claim(dir, true); err == nil || !strings.Contains(err.Error(), dir+": another blis-train is writing there") ||
		trace.HintOf(err) != "wait for it, or choose another folder with -o" {
		t.Errorf("claimed twice: got %v", err)
	}
	release()
	if got := filesIn(t, top); len(got) != 0 {
		t.Errorf("after the release of an empty folder: got %q", got)
	}
	if release, err = Claim(dir, false); err != nil {
		t.Fatal(err)
	}
	repo.Write(t, "{}", dir, FitFile)
	release()
	if got := filesIn(t, top); !slices.Equal(got, []string{"a", "a/b", "a/b/fit.json"}) {
		t.Errorf("after the release of a folder with a file: got %q", got)
	}
	if release, err = Claim(dir, false); err != nil {
		t.Fatal("a folder with an own file: ", err)
	}
	if err := os.Remove(filepath.Join(dir, FitFile)); err != nil {
		t.Fatal(err)
	}
	release()
	if got := filesIn(t, top); !slices.Equal(got, []string{"a", "a/b"}) {
		t.Errorf("folders that Claim did not make: got %q", got)
	}
}

// TestClaimRefuses: a missing name, a file, and a folder with files of other programs, of which the
// first three by name are listed and which --force accepts.
func TestClaimRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"d", "c", "b", "a", FitFile, "x.tmp1"} {
		repo.Write(t, "", dir, name)
	}
	var misuse *option.Misuse
	if _, err := Claim(dir, false); !errors.As(err, &misuse) || misuse.Msg != dir+": the output folder holds files that blis-train did not write (a, b, c)" ||
		misuse.Hint != "choose another folder, or add --force to write there all the same" {
		t.Errorf("foreign files: got %v", err)
	}
	release, err := Claim(dir, true)
	if err != nil {
		t.Fatal("foreign files with --force: ", err)
	}
	release()
	for name, want := range map[string]string{"": "missing -o OUT", filepath.Join(dir, "a"): ": got a file, want an output folder"} {
		if _, err := Claim(name, false); !errors.As(err, &misuse) || !strings.HasSuffix(misuse.Msg, want) {
			t.Errorf("%q: got %v", name, err)
		}
	}
	for _, own := range []string{"rows.parquet", "figures"} {
		linked := t.TempDir()
		if err := os.Symlink(t.TempDir(), filepath.Join(linked, own)); err != nil {
			t.Skip("no links: ", err)
		}
		if _, err := Claim(linked, true); err == nil || !strings.Contains(err.Error(), own) {
			t.Errorf("a link under the name %s: got %v", own, err)
		}
	}
}

// TestClaimRemovesHalfWrittenFiles: files that a killed process was writing go, in the folder itself
// those of own names alone, and in tables/ and its runs all of them; deeper folders and other folders
// are not entered.
func TestClaimRemovesHalfWrittenFiles(t *testing.T) {
	dir := t.TempDir()
	keep := []string{"fit.json.tmp0123456", "fit.json.tmp0123456g", "foreign.json.tmp01234567", ".foreign-1.tmp",
		"tables/run=a/steps.parquet", "tables/run=a/deep/.steps-1.tmp", "rows/.rows-1.tmp"}
	gone := []string{"fit.json.tmp01234567", ".rows-12.tmp", "tables/.steps-1.tmp", "tables/run=a/.steps-34.tmp"}
	for _, name := range slices.Concat(keep, gone) {
		repo.Write(t, "", dir, name)
	}
	if err := os.Mkdir(filepath.Join(dir, "blis.yaml.tmp01234567"), 0o755); err != nil {
		t.Fatal(err)
	}
	release, err := Claim(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	release()
	left := filesIn(t, dir)
	for _, name := range append(keep, "blis.yaml.tmp01234567") {
		if !slices.Contains(left, name) {
			t.Errorf("%s was removed", name)
		}
	}
	for _, name := range gone {
		if slices.Contains(left, name) {
			t.Errorf("%s is left", name)
		}
	}
}

// TestDocuments: a document is read as it was written; a changed one warns and is read in any case; text
// that is no JSON is an error with line and column, and a document of another stage names that stage.
func TestDocuments(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FitFile)
	fit := testkit.ExampleFit()
	fit.Header = Header("fit --seed 7", &result.Config{File: result.Input{Name: "pipeline.yaml"}})
	if fit.Config.File.Name != "pipeline.yaml" || fit.ToolVersion != "0.1.0" {
		t.Errorf("got the header %+v", fit.Header)
	}
	if err := WriteDocument(path, fit); err != nil {
		t.Fatal(err)
	}
	var warnings []trace.Finding
	warn := func(f []trace.Finding) { warnings = append(warnings, f...) }
	var got result.Fit
	if err := ReadDocument(path, &got, warn); err != nil || got.Command != "fit --seed 7" || len(warnings) != 0 {
		t.Errorf("as written: got the command %q, %v and %v", got.Command, warnings, err)
	}
	if stage := StageOf(path); stage != "fit" {
		t.Errorf("got the stage %q", stage)
	}
	text := bytes.Replace(repo.Read(t, path), []byte("--seed 7"), []byte("--seed 8"), 1)
	if err := ParseDocument(path, text, &got, warn); err != nil || got.Command != "fit --seed 8" || len(warnings) != 1 ||
		warnings[0].Message != "fit.json was changed after it was written; its values are used as they stand" {
		t.Errorf("changed: got the command %q, %v and %v", got.Command, warnings, err)
	}
	if err := ParseDocument(path, text, &got, nil); err != nil {
		t.Error(err)
	}
	var other result.Validation
	if err := ReadDocument(path, &other, nil); err == nil || !strings.HasPrefix(err.Error(), path+": got a file that fit wrote: ") || trace.HintOf(err) == "" {
		t.Errorf("a fit read as a validation: got %v", err)
	}
	for _, c := range []struct{ text, want, hint string }{
		{"{\n \"a\": ]", "x.json:2:7: invalid character ']' looking for beginning of value", ""},
		{"  name: x", "x.json:1:3: got text that is no JSON object, want a document such as fit.json",
			"name the document itself: fit.json lies in the output folder of fit and run"},
	} {
		err := ParseDocument("x.json", []byte(c.text), &got, nil)
		var syntax *trace.SyntaxError
		if !errors.As(err, &syntax) || syntax.Error() != c.want || syntax.Hint != c.hint || syntax.Code != "bad_document" {
			t.Errorf("%q: got %v, hint %q", c.text, err, trace.HintOf(err))
		}
	}
	if err := ReadDocument(filepath.Join(dir, "missing"), &got, nil); err == nil {
		t.Error("a missing document was read")
	}
	if err := ParseDocument("x.json", []byte("[1]"), &got, nil); err == nil || !strings.HasPrefix(err.Error(), "x.json:1:1: ") {
		t.Errorf("got %v", err)
	}
	if err := WriteDocument(filepath.Join(dir, "nan.json"), map[string]any{"a": func() {}}); err == nil || !strings.Contains(err.Error(), "nan.json: ") {
		t.Errorf("a value without JSON: got %v", err)
	}
}

// TestInputs: an input is described by its base name, size and SHA-256, here that of "abc" in FIPS 180-2.
func TestInputs(t *testing.T) {
	dir := t.TempDir()
	repo.Write(t, "abc", dir, "in.txt")
	data, in, err := ReadInput(filepath.Join(dir, "in.txt"), false)
	want := result.Input{Name: "in.txt", Bytes: 3, SHA256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}
	if err != nil || string(data) != "abc" || in != want {
		t.Errorf("got %q, %+v and %v", data, in, err)
	}
	if data, in, err = ReadInput(filepath.Join(dir, "none"), false); err == nil || data != nil || in != (result.Input{}) {
		t.Errorf("a missing file: got %q, %+v and %v", data, in, err)
	}
}

// TestLoadCoefficients: coefficients are read as they were saved, and fit.json in their place is an error that
// names the command that exports them.
func TestLoadCoefficients(t *testing.T) {
	dir := t.TempDir()
	set := testkit.PlantedOn(testkit.Llama8B())
	text, err := SetBytes(set)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, CoefficientsFile)
	repo.Write(t, text, path)
	got, in, err := LoadCoefficients(path, false)
	if err != nil || len(got.Beta) != 16 || got.Beta[5].Value != 60000 || in != InputOf(CoefficientsFile, text) {
		t.Errorf("got %+v, %+v and %v", got, in, err)
	}
	fit := filepath.Join(dir, FitFile)
	repo.Write(t, `{"command": "fit --seed 1"}`, fit)
	if _, _, err := LoadCoefficients(fit, false); err == nil || err.Error() != fit+": got a file that fit wrote, want a coefficient file" ||
		trace.HintOf(err) != "blis-train export "+fit+" -o coefficients.yaml" {
		t.Errorf("fit.json: got %v, hint %q", err, trace.HintOf(err))
	}
	repo.Write(t, `{"command": "validate"}`, fit)
	if _, _, err := LoadCoefficients(fit, false); err == nil || strings.Contains(err.Error(), "wrote") {
		t.Errorf("another document: got %v", err)
	}
	if _, in, err := LoadCoefficients(filepath.Join(dir, "none"), false); err == nil || in != (result.Input{}) {
		t.Errorf("a missing file: got %v", err)
	}
	for name, text := range map[string]string{"none.json": "", "x.yaml": "a: 1", "list.json": "[1]"} {
		if text != "" {
			repo.Write(t, text, dir, name)
		}
		if stage := StageOf(filepath.Join(dir, name)); stage != "" {
			t.Errorf("%s: got the stage %q", name, stage)
		}
	}
}

// TestErrorsOfDocuments: a document of an unknown program names no stage; YAML is read up to its own limit; a file that is
// larger, or no document of its kind, is an error with the path.
func TestErrorsOfDocuments(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.json")
	text := `{"schema_version": "1", "command": "", "nothing": 3}`
	repo.Write(t, text, path)
	var doc result.Fit
	if err := ReadDocument(path, &doc, nil); err == nil || !strings.HasPrefix(err.Error(), path+": ") || strings.Contains(err.Error(), "got a file that") {
		t.Errorf("got %v", err)
	}
	repo.Write(t, `{"schema_version": "1", "command": "size --x", "nothing": 3}`, path)
	if err := ReadDocument(path, &doc, nil); err == nil || !strings.HasPrefix(err.Error(), path+": got a file that size wrote: ") || trace.HintOf(err) != "the command's --help names the document it reads" {
		t.Errorf("got %v, hint %q", err, trace.HintOf(err))
	}
	if data, in, err := ReadYAML(path, false); err != nil || len(data) != int(in.Bytes) || in.Name != "x.json" {
		t.Errorf("got %+v, %v", in, err)
	}
	if _, _, err := ReadYAML(filepath.Join(dir, "none"), false); err == nil {
		t.Error("a missing file was read")
	}
	large := filepath.Join(dir, "large.yaml")
	f, err := os.Create(large)
	if err == nil {
		err = errors.Join(f.Truncate(files.MaxYAML+1), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, in, err := ReadYAML(large, false); trace.CodeOf(err) != files.TooLarge || in != (result.Input{}) {
		t.Errorf("got %+v, %v", in, err)
	}
	if err := os.Truncate(large, files.MaxYAML); err != nil {
		t.Fatal(err)
	}
	if _, in, err := ReadYAML(large, false); err != nil || in.Bytes != files.MaxYAML {
		t.Errorf("got %+v, %v", in, err)
	}
}
