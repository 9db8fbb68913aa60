//go:build unix

package extract

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// A Kubernetes volume shows every file as a link into ..data, which is a link to a
// folder with a date: a run in it is one run, and a folder behind a link is a folder.
func TestRunsBelowFollowsLinksOnce(t *testing.T) {
	top := t.TempDir()
	put := func(dir string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		repo.Write(t, "", top, dir, "run.yaml")
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	put("in/mount/..2026_11_22")
	link("..2026_11_22", "in/mount/..data")
	link("..data/run.yaml", "in/mount/run.yaml")
	put("in/z")
	link("z", "in/a") // the folder itself is there: once, under its own name
	put("elsewhere/deep")
	link("../elsewhere", "in/far") // followed
	link(".", "in/self")
	link("..", "in/up") // holds the whole: not followed
	link("nowhere", "in/dangling")
	got, err := runsBelow(filepath.Join(top, "in"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"mount", "z", "far/deep"}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range want {
		if got[i].Folder != want[i] || got[i].Dir != filepath.Join(top, "in", filepath.FromSlash(want[i])) {
			t.Errorf("got %+v, want %s", got[i], want[i])
		}
	}
}
