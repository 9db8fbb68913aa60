package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// readBeside reads a file named in run.yaml: relative to its folder, or, for
// absolute names and names that climb out of it, from the disk.
func readBeside(fsys fs.FS, dir, name string) ([]byte, error) {
	if filepath.IsAbs(name) {
		return os.ReadFile(name)
	}
	clean := filepath.ToSlash(filepath.Clean(name))
	if strings.HasPrefix(clean, "../") {
		return os.ReadFile(filepath.Join(dir, name))
	}
	return fs.ReadFile(fsys, clean)
}
