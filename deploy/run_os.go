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
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	rel, err := filepath.Rel(unlinked(dir), unlinked(name))
	return err != nil || !filepath.IsLocal(rel)
}

// unlinked is a path without links, as far as it exists.
func unlinked(path string) string {
	path, _ = filepath.Abs(path)
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(unlinked(parent), filepath.Base(path))
	}
	return path
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
