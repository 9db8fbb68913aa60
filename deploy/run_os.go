package deploy

import (
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
)

// maxDescription is far above any run.yaml, config.json or hardware.json.
const maxDescription = 16 << 20

// readLimited reads a file of a description.
func readLimited(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return files.ReadBounded(f, name, maxDescription)
}

// readBeside reads a file named in run.yaml: relative to its folder, or, for
// absolute names and names that climb out of it, from the disk.
func readBeside(fsys fs.FS, dir, name string) ([]byte, error) {
	if filepath.IsAbs(name) {
		return files.Read(name, maxDescription, false)
	}
	clean := filepath.ToSlash(filepath.Clean(name))
	if strings.HasPrefix(clean, "../") {
		return files.Read(filepath.Join(dir, name), maxDescription, false)
	}
	return readLimited(fsys, clean)
}
