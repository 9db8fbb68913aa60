// Package repo finds the repository and what lies beside it, for tests.
package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Root is the repository's root, above the folder the test runs in.
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

// Shared is a path under ../shared, beside the repository; the test is skipped
// where it is absent.
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

// Eval says that slow evaluations are wanted (make eval).
func Eval() bool { return os.Getenv(evalVariable) != "" }

// Sets are data sets under ../shared/data: the first of names, with slow evaluations
// all of them.
func Sets(names ...string) []string {
	if Eval() {
		return names
	}
	return names[:1]
}

// NeedEval skips a slow evaluation that nobody asked for.
func NeedEval(t testing.TB) {
	t.Helper()
	if !Eval() {
		t.Skipf("skipped: slow evaluation; %s=1 runs it", evalVariable)
	}
}

// BLIS is the blis binary on PATH; the test is skipped where there is none.
func BLIS(t testing.TB) string {
	t.Helper()
	name, err := exec.LookPath("blis")
	if err != nil {
		t.Skip("skipped: no blis binary on PATH")
	}
	return name
}

// Read is the content of the file whose path the parts join to.
func Read(t testing.TB, parts ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Write makes the file whose path the parts join to, and its folder, or replaces it.
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
