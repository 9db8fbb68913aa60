package extract

// This file resolves the names and globs under `files` in run.yaml, or on the command line, to input
// files.

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// traces returns the trace dumps of the run in reading order (spec#wire-files).
func (d *RunDir) traces() ([]source.Input, error) {
	if d.Files != nil {
		var in []source.Input
		for _, f := range d.Files {
			name := filepath.Base(f)
			if f == "-" {
				name = "-"
			}
			// Files of one rotated set were asked for together: one of them may have no record.
			set, _ := rotation(name)
			in = append(in, source.Input{Path: f, Name: name, Asked: set, IsPipe: true})
		}
		return inReadingOrder(in), nil
	}
	return d.inputs("traces", d.Deployment.Files.Traces)
}

// inputs returns the files that one key of run.yaml names (files.<kind>), by names and globs relative
// to the run folder, each once and in reading order. A folder is replaced by every file below it,
// because the group_by option of the OpenTelemetry collector's file exporter writes folders.
func (d *RunDir) inputs(kind string, patterns []string) ([]source.Input, error) {
	var in []source.Input
	seen := map[string]bool{}
	for _, p := range patterns {
		full := p
		if !filepath.IsAbs(p) {
			full = filepath.Join(d.Dir, filepath.FromSlash(p))
		}
		matches := []string{full}
		if !exists(full) { // a name with '*' or '[' may be that of a file
			var err error
			if matches, err = filepath.Glob(full); err != nil {
				return nil, fmt.Errorf("%s: %w", p, err)
			}
		}
		if len(matches) == 0 {
			return nil, trace.Errorf(codeNoInput, "%s: %q matches no file", filepath.Join(d.Dir, deploy.RunFile), p).
				WithHint("correct `files` in run.yaml")
		}
		for _, m := range matches {
			files, err := filesBelow(m)
			if err != nil {
				return nil, err
			}
			if len(files) == 0 {
				return nil, trace.Errorf(codeNoInput, "%s: %q is a folder without files",
					filepath.Join(d.Dir, deploy.RunFile), p).
					WithHint("correct `files` in run.yaml")
			}
			for _, f := range files {
				if !seen[f] {
					seen[f] = true
					in = append(in, source.Input{Path: f, Name: d.relative(f), Asked: d.asked(kind, p)})
				}
			}
		}
	}
	return inReadingOrder(in), nil
}

// asked returns the entry of run.yaml that named a file, in words for errors; "" if run.yaml has no
// `files`.
func (d *RunDir) asked(kind, pattern string) string {
	if d.Deployment.FoundFiles {
		return ""
	}
	return fmt.Sprintf("files.%s: %q", kind, pattern)
}

// filesBelow returns p itself, or for a folder every file below it.
func filesBelow(p string) ([]string, error) {
	if !isDir(p) {
		return []string{p}, nil
	}
	var out []string
	err := filepath.WalkDir(p, func(q string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, q)
		}
		return err
	})
	return out, err
}

// relative returns the name of a file relative to the RUNDIR or PARENT of the command line, as reports
// print it: without the paths of this machine, so of a file elsewhere only its base name.
func (d *RunDir) relative(file string) string {
	rel, err := filepath.Rel(d.Dir, file)
	if err != nil || strings.HasPrefix(rel, "..") {
		rel = filepath.Base(file)
	}
	return path.Join(d.Folder, filepath.ToSlash(rel))
}
