package deploy

import (
	"io/fs"
	"path/filepath"
	"testing"
)

func TestEveryRunOfTheDataSetsLoads(t *testing.T) {
	root := sharedDir(t, "data")
	n := 0
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != RunFile {
			return err
		}
		d, err := LoadRun(filepath.Dir(name))
		if err != nil {
			t.Errorf("%v", err)
			return nil
		}
		if err := d.Check(); err != nil {
			t.Errorf("%s: %v", d.Name, err)
		}
		if err := d.CheckSupported(); err != nil {
			t.Errorf("%s: %v", d.Name, err)
		}
		n++
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
