package deploy

// This file finds the recordings of a run folder by their usual names.

import (
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/model"
)

// folderName returns the name of a run whose run.yaml states none.
func folderName(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return filepath.Base(dir)
}

// recordingName matches the usual names of recordings, also rotated by logrotate (traces.json.2.gz,
// traces.json-20260920) and compressed.
var recordingName = regexp.MustCompile(`^(kv_events\.(?:jsonl|msgpack)|client_requests\.jsonl|traces(?:-.*)?\.jsonl?|.*\.pb)` +
	`(?:\.\d{1,6}|-\d{8}(?:-?\d{1,10})?)?(?:\.gz|\.zst)*$`)

// findFiles returns the recordings of a folder by their usual names (spec#wire-files).
func findFiles(fsys fs.FS) Files {
	var f Files
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return f
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		m := recordingName.FindStringSubmatch(e.Name())
		switch {
		case m == nil:
		case strings.HasPrefix(m[1], "kv_events."):
			f.KVEvents = append(f.KVEvents, e.Name())
		case m[1] == "client_requests.jsonl":
			f.ClientRequests = append(f.ClientRequests, e.Name())
		default:
			f.Traces = append(f.Traces, e.Name())
		}
	}
	return f
}

// readLimited returns a file of a deployment's folder, of at most model.MaxFileSize bytes.
func readLimited(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return files.ReadBounded(f, name, model.MaxFileSize)
}

// leadsOut reports whether a file named in run.yaml lies outside its folder, after links are
// resolved.
func leadsOut(dir, name string) bool {
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	rel, err := filepath.Rel(unlinked(dir), unlinked(name))
	return err != nil || !filepath.IsLocal(rel)
}

// unlinked returns a path with its links resolved; its last elements need not exist.
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

// readBeside returns a file named in run.yaml: relative to its folder, or from the disk for
// absolute names and names that start with "..".
func readBeside(fsys fs.FS, dir, name string) ([]byte, error) {
	if filepath.IsAbs(name) {
		return files.Read(name, model.MaxFileSize, false)
	}
	clean := filepath.ToSlash(filepath.Clean(name))
	if strings.HasPrefix(clean, "../") {
		return files.Read(filepath.Join(dir, name), model.MaxFileSize, false)
	}
	return readLimited(fsys, clean)
}

// joinName returns a file name for messages.
func joinName(dir, name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(dir, name)
}
