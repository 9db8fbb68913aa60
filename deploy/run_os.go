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

// leads reports that a name in run.yaml leads out of its folder, by itself or through links.
func leads(dir, name string) bool {
	real := func(path string) string {
		if to, err := filepath.EvalSymlinks(path); err == nil {
			path = to
		}
		path, _ = filepath.Abs(path)
		return path
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	rel, err := filepath.Rel(real(dir), real(name))
	return err != nil || !filepath.IsLocal(rel)
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
