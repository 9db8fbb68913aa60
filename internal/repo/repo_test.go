package repo

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// stopped is a test that remembers how it was stopped.
type stopped struct {
	testing.TB
	how string
}

func (s *stopped) Helper()                  {}
func (s *stopped) Fatal(args ...any)        { s.stop("fatal") }
func (s *stopped) Skip(args ...any)         { s.stop("skip") }
func (s *stopped) Skipf(f string, a ...any) { s.stop("skip: " + fmt.Sprintf(f, a...)) }
func (s *stopped) stop(how string)          { s.how = how; panic(s) }
func howItStops(t *testing.T, run func(testing.TB)) (how string) {
	s := &stopped{TB: t}
	defer func() {
		if r := recover(); r != nil && r != any(s) {
			panic(r)
		}
		how = s.how
	}()
	run(s)
	return s.how
}

// TestRoot: the root is the nearest folder above the test that has a go.mod, and a folder outside a
// module has none.
func TestRoot(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(dir, "a", "b")
	Write(t, "module outer", dir, "go.mod")
	Write(t, "module inner", dir, "a", "go.mod")
	Write(t, []byte("text"), inner, "file")
	if got := string(Read(t, inner, "file")); got != "text" {
		t.Errorf("got %q", got)
	}
	t.Chdir(inner)
	if got := Root(t); got != filepath.Join(dir, "a") {
		t.Errorf("got %s", got)
	}
	t.Chdir(dir)
	if got := Root(t); got != dir {
		t.Errorf("got %s", got)
	}
	if err := os.Remove(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatal(err)
	}
	if how := howItStops(t, func(tb testing.TB) { Root(tb) }); how != "fatal" {
		t.Errorf("outside a module: got %q", how)
	}
}

// TestShared: a path beside the repository is found, and one that does not exist skips the test and
// names it.
func TestShared(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "tree")
	Write(t, "module m", root, "go.mod")
	Write(t, "x", dir, "shared", "data", "run.json")
	t.Chdir(root)
	if got := Shared(t, "data", "run.json"); string(Read(t, got)) != "x" {
		t.Errorf("got %s", got)
	}
	for _, c := range []struct {
		run  func(testing.TB)
		want string
	}{
		{func(tb testing.TB) { Shared(tb, "data", "other") }, "skip: skipped: no shared/data/other beside the repository"},
		{func(tb testing.TB) { Read(tb, root, "nothing") }, "fatal"},
		{func(tb testing.TB) { Write(tb, "x", root, "go.mod", "below a file") }, "fatal"},
		{func(tb testing.TB) { Write(tb, "x", root) }, "fatal"},
	} {
		if how := howItStops(t, c.run); filepath.ToSlash(how) != c.want {
			t.Errorf("got %q, want %q", how, c.want)
		}
	}
}

// TestSlowEvaluations: they run with a non-empty variable alone, and then with every data set.
func TestSlowEvaluations(t *testing.T) {
	t.Setenv("BLIS_TRAIN_EVAL", "")
	if how := howItStops(t, NeedEval); Eval() || how != "skip: skipped: slow evaluation; BLIS_TRAIN_EVAL=1 runs it" {
		t.Errorf("off: got %t and %q", Eval(), how)
	}
	if got := Sets("a", "b"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("off: got %q", got)
	}
	t.Setenv("BLIS_TRAIN_EVAL", "1")
	if how := howItStops(t, NeedEval); !Eval() || how != "" {
		t.Errorf("on: got %t and %q", Eval(), how)
	}
	if got := Sets("a", "b"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("on: got %q", got)
	}
}

// TestBLIS: the binary is looked up on PATH, and the test is skipped where there is none.
func TestBLIS(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if how := howItStops(t, func(tb testing.TB) { BLIS(tb) }); how != "skip" {
		t.Errorf("got %q", how)
	}
	for _, name := range []string{"blis", "blis.exe"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got := BLIS(t); filepath.Dir(got) != dir {
		t.Errorf("got %s", got)
	}
}
