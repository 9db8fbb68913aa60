package deploy

import (
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// Every run beside the repository loads, or is refused with a code: others may
// be added.
func TestEveryRunOfTheDataSetsLoads(t *testing.T) {
	root := repo.Shared(t, "data")
	n := 0
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != RunFile {
			return err
		}
		d, err := LoadRun(filepath.Dir(name))
		if err == nil {
			n++
			if err = d.Check(); err == nil {
				err = d.CheckSupported()
			}
		}
		if err != nil {
			if syntaxCode(err) == "" {
				t.Errorf("%s: %v: no code", name, err)
			}
			t.Log(err)
			return nil
		}
		t.Log(d.Config(), d.Files)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		t.Error("no run.yaml found")
	}
	t.Logf("runs: %d", n)
}
