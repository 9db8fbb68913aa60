// Package repo finds the repository and the folder next to it, for tests.
package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Root returns the repository's root, above the folder the test runs in.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above the test")
	return ""
}

// Shared returns a path under ../shared, beside the repository. It skips the test where the path
// does not exist.
func Shared(t testing.TB, parts ...string) string {
	t.Helper()
	name := filepath.Join(append([]string{filepath.Dir(Root(t)), "shared"}, parts...)...)
	if _, err := os.Stat(name); err != nil {
		t.Skipf("skipped: no %s beside the repository", filepath.Join(append([]string{"shared"}, parts...)...))
	}
	return name
}

// evalVariable turns the slow evaluations on.
const evalVariable = "BLIS_TRAIN_EVAL"

// Eval reports whether slow evaluations shall run (make eval).
func Eval() bool { return os.Getenv(evalVariable) != "" }

// Sets returns the data sets under ../shared/data that a test uses: the first of names, with slow
// evaluations all of them.
func Sets(names ...string) []string {
	if Eval() {
		return names
	}
	return names[:1]
}

// NeedEval skips a slow evaluation unless Eval is true.
func NeedEval(t testing.TB) {
	t.Helper()
	if !Eval() {
		t.Skipf("skipped: slow evaluation; %s=1 runs it", evalVariable)
	}
}

// BLIS returns the path of the blis binary. It skips the test where there is none on PATH.
func BLIS(t testing.TB) string {
	t.Helper()
	name, err := exec.LookPath("blis")
	if err != nil {
		t.Skip("skipped: no blis binary on PATH")
	}
	return name
}

// Read returns the content of the file whose path the parts join to.
func Read(t testing.TB, parts ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Write writes the file whose path the parts join to, and creates its folder.
func Write[T string | []byte](t testing.TB, data T, parts ...string) {
	t.Helper()
	name := filepath.Join(parts...)
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		err = os.WriteFile(name, []byte(data), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
