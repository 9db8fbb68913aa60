package extract

// This file gives finished tables and documents their final names. A crash at any point leaves only
// files that a later call recognises as this program's own and removes or replaces.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Names in the output folder.
const (
	tablesDir    = "tables"
	rejectedName = "rejected.jsonl"
	documentName = "extract.json"
	stagePrefix  = ".stage-blis-train-"
)

// halfWritten matches the temporary files of our documents that an interrupted files.Write leaves.
var halfWritten = regexp.MustCompile(`^(\.extract-cache\.json|\.manifest\.json|(extract|fit|validation|inspect|simulation)\.json|` +
	`rejected\.jsonl|coefficients\.yaml|report\.html)\.tmp[0-9a-f]{8}$`)

// cleanStages removes the temporary folders and files that an interrupted call left in an output
// folder. Nothing else is removed.
func cleanStages(out string) error {
	tables := filepath.Join(out, tablesDir)
	if there, err := isFolder(tables); err != nil || !there {
		return errors.Join(err, cleanHalves(out))
	}
	entries, err := os.ReadDir(tables)
	if err != nil {
		return err
	}
	err = cleanHalves(out)
	for _, e := range entries {
		switch {
		case !e.IsDir():
		case strings.HasPrefix(e.Name(), stagePrefix):
			err = errors.Join(err, os.RemoveAll(filepath.Join(tables, e.Name())))
		case strings.HasPrefix(e.Name(), runPrefix):
			err = errors.Join(err, cleanHalves(filepath.Join(tables, e.Name())))
		}
	}
	return err
}

// cleanHalves removes half-written documents in a folder.
func cleanHalves(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.Type().IsRegular() && halfWritten.MatchString(e.Name()) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// invalidate removes extract.json before tables change, so that no later stage reads it together with
// tables that it does not describe.
func invalidate(out string) error {
	err := os.Remove(filepath.Join(out, documentName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// writeDocument removes the tables of runs that are not part of this call, then writes the cache
// (fresh; old is that of the call before), rejected.jsonl and, last, extract.json: with it the output
// folder is complete. What was removed, and what of others was left, is noted in doc for the user.
func writeDocument(out string, doc *result.Extract, fresh, old *cache, rejects *rejects) error {
	tidied, err := removeRuns(out, func(id string) bool { return doc.Run(id) != nil })
	if err != nil {
		return err
	}
	if fresh.Rejected, err = rejects.sum(); err != nil {
		return err
	}
	cached, err := json.Marshal(fresh)
	if err != nil {
		return err
	}
	text, err := result.Marshal(doc)
	if err != nil {
		return err
	}
	// A rejected.jsonl of an earlier call does not describe this one. It is removed unless somebody
	// changed it.
	if path := filepath.Join(out, rejectedName); rejects == nil && old != nil && old.Rejected != nil &&
		sameFile(path, *old.Rejected) {
		if err := os.Remove(path); err != nil {
			return err
		}
		tidied.removed = append(tidied.removed, path+" (of an earlier call)")
	}
	if err := files.Write(filepath.Join(out, cacheName), append([]byte(sumOf(cached)+"\n"), cached...)); err != nil {
		return err
	}
	if err := rejects.close(); err != nil {
		return err
	}
	if err := files.Write(filepath.Join(out, documentName), text); err != nil {
		return err
	}
	doc.Removed = tidied.removed
	doc.Left = tidied.left
	return nil
}

// isFolder reports whether there is a folder of that name. A link or a file of that name is an error,
// because this program never writes one there.
func isFolder(dir string) (there bool, err error) {
	st, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case st.Mode()&fs.ModeSymlink != 0:
		return false, trace.Errorf(CodeNotOurs, "%s: got a symbolic link, want a folder: links are not followed", dir).
			WithHint("choose another output folder")
	case !st.IsDir():
		return false, trace.Errorf(CodeNotOurs, "%s: got a file, want a folder",
			dir).WithHint("choose another output folder")
	}
	return true, nil
}

// publish gives the finished tables of a run their final names. A new folder appears whole. In an
// existing folder the manifest is extended first, so that after a crash it lists all files that this
// program wrote.
func publish(from, to string, tables []result.Input, force bool) error {
	fresh := manifest{Files: tables}
	there, err := isFolder(to)
	if err != nil {
		return err
	}
	if !there {
		if err := fresh.write(from); err != nil {
			return err
		}
		return os.Rename(from, to) // all files at once
	}
	old := readManifest(to)
	for _, f := range tables {
		if _, err := os.Lstat(filepath.Join(to, f.Name)); err == nil && !old.names(f.Name) && !force {
			return trace.Errorf(CodeNotOurs, "%s: this file was not written here by this program",
				filepath.Join(to, f.Name)).
				WithHint("choose another output folder, or replace it with --force")
		}
	}
	both := manifest{Files: slices.Concat(old.Files, tables)}
	if err := both.write(to); err != nil {
		return err
	}
	for _, f := range tables {
		if err := os.Rename(filepath.Join(from, f.Name), filepath.Join(to, f.Name)); err != nil {
			return err
		}
	}
	for _, f := range old.Files { // tables that this call did not write again, as of another format
		if !fresh.names(f.Name) && both.wrote(to, f.Name) {
			if err := os.Remove(filepath.Join(to, f.Name)); err != nil {
				return err
			}
		}
	}
	return fresh.write(to)
}

// tidying lists, for the user, what of earlier calls was removed from the output folder, and what was
// left because this program did not write it, or somebody changed it.
type tidying struct{ removed, left []string }

// removeRuns removes the tables of runs that are not part of this call, which keep tells by their ids:
// files whose content is the one that this program wrote, and then empty folders. It returns what it
// removed and what it left.
func removeRuns(out string, keep func(id string) bool) (t tidying, err error) {
	entries, err := os.ReadDir(filepath.Join(out, tablesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	for _, e := range entries {
		id, isRun := strings.CutPrefix(e.Name(), runPrefix)
		switch {
		case isRun && keep(id):
			t.listForeign(filepath.Join(out, tablesDir, e.Name()),
				readManifest(filepath.Join(out, tablesDir, e.Name())))
		case isRun && e.IsDir():
			if err := t.removeRun(filepath.Join(out, tablesDir, e.Name())); err != nil {
				return t, err
			}
		case e.Name() != manifestName:
			t.left = append(t.left, filepath.Join(out, tablesDir, e.Name()))
		}
	}
	return t, nil
}

// runPrefix begins the name of the folder of a run's tables; its id follows (table.RunDir).
const runPrefix = "run="

// listForeign lists the files of a folder that are not in its manifest and are therefore left.
func (t *tidying) listForeign(dir string, m manifest) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.left = append(t.left, dir)
		return
	}
	for _, e := range entries {
		if e.Name() != manifestName && !m.names(e.Name()) {
			t.left = append(t.left, filepath.Join(dir, e.Name()))
		}
	}
}

// removeRun removes the files in the manifest of one run's folder, and the folder if it is empty
// then. Files that were changed since they were written are left and stay in the manifest.
func (t *tidying) removeRun(dir string) error {
	m := readManifest(dir)
	var changed manifest // files that somebody has changed
	removed := 0
	for _, f := range m.Files {
		path := filepath.Join(dir, f.Name)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if !m.wrote(dir, f.Name) {
			changed.Files = append(changed.Files, f)
			t.left = append(t.left, path)
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		removed++
	}
	t.listForeign(dir, m)
	if removed > 0 {
		t.removed = append(t.removed, fmt.Sprintf("%s (%d tables of an earlier call)", dir, removed))
	}
	if len(changed.Files) > 0 {
		return changed.write(dir)
	}
	if len(m.Files) > 0 {
		os.Remove(filepath.Join(dir, manifestName))
	}
	os.Remove(dir) // fails, as it should, if other files are left
	return nil
}
