package extract

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// This file keeps the manifest: the list, in the folder of one run's tables, of the files that this
// program wrote. Only those are ever removed or replaced.

const manifestName = ".manifest.json"

// manifest is the content of that file. While files are being replaced it lists the old and the new
// ones.
type manifest struct {
	Files []result.Input `json:"files"`
}

// readManifest returns the manifest of a folder. If it is missing or damaged, no file of the folder
// counts as written by this program.
func readManifest(dir string) manifest {
	var m manifest
	b, err := files.ReadAll(filepath.Join(dir, manifestName))
	if err == nil && trace.UnmarshalJSON(b, &m) != nil {
		return manifest{}
	}
	return m
}

// write replaces the manifest of a folder.
func (m *manifest) write(dir string) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return files.Write(filepath.Join(dir, manifestName), append(b, '\n'))
}

// names reports whether the manifest lists a file of the name. The file may have another content
// since; wrote compares that too.
func (m *manifest) names(name string) bool {
	return slices.ContainsFunc(m.Files, func(f result.Input) bool { return f.Name == name })
}

// wrote reports whether a file still has the content that the manifest lists.
func (m *manifest) wrote(dir, name string) bool {
	return slices.ContainsFunc(m.Files, func(f result.Input) bool {
		return f.Name == name && sameFile(filepath.Join(dir, name), f)
	})
}

// sameFile reports whether there is a regular file with the size and hash of want. Its size is
// compared first, because hashing reads the whole file.
func sameFile(path string, want result.Input) bool {
	st, err := os.Lstat(path)
	if err != nil || !st.Mode().IsRegular() || st.Size() != want.Bytes {
		return false
	}
	in, err := inputOf(path, want.Name)
	return err == nil && in == want
}

// tableFiles returns the tables of a folder by name, with their hashes.
func tableFiles(dir string) ([]result.Input, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := []result.Input{}
	for _, e := range entries {
		if !table.IsFile(e.Name()) {
			continue
		}
		in, err := inputOf(filepath.Join(dir, e.Name()), e.Name())
		if err != nil {
			return nil, err
		}
		out = append(out, in)
	}
	return out, nil
}
