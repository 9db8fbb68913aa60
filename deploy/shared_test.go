package deploy

import (
	"os"
	"path/filepath"
	"testing"
)

// sharedDir finds the data sets beside the repository, or skips.
func sharedDir(t testing.TB, parts ...string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			name := filepath.Join(append([]string{filepath.Dir(dir), "shared"}, parts...)...)
			if _, err := os.Stat(name); err == nil {
				return name
			}
			break
		}
	}
	t.Skipf("no %s beside the repository", filepath.Join(append([]string{"shared"}, parts...)...))
	return ""
}
