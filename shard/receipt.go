package shard

// This file has the receipts that tasks leave, by which their results are trusted.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// File is one file that a task wrote. Its name is relative to the task's folder, with slashes.
type File = result.Input

// Receipt is the record of a finished task (spec#scale-out). It has no time and no host, so that
// two processes that do the same task write the same receipt.
type Receipt struct {
	Task   string `json:"task"`
	Folder string `json:"folder"` // of the files, below data
	Files  []File `json:"files"`  // sorted by name
}

// Failure is the record of a failed attempt at a task.
type Failure struct {
	Task  Task   `json:"task"` // the whole task, so that it can be tried on another machine
	Error string `json:"error"`
	Stack string `json:"stack,omitempty"` // of a panic
	// Refused is the code of an error in the task's inputs; empty for other failures. Trying again
	// would give the same error, so the task is not retried.
	Refused trace.Code `json:"refused,omitempty"`
	Reason  string     `json:"reason,omitempty"` // Error without the code
	Hint    string     `json:"hint,omitempty"`
}

// Path returns the path of a file of the receipt.
func (j Job) Path(r *Receipt, name string) string {
	return filepath.Join(j.Folder(r.Folder), filepath.FromSlash(name))
}

// Folder returns the path of a receipt's folder.
func (j Job) Folder(name string) string { return j.path(dataDir, name) }

// name returns the name of the receipt's file without extension: the task's id and a hash of the
// receipt.
func (r *Receipt) name() (string, error) {
	b, err := json.Marshal(r)
	return r.Task + "." + shortHash(b), err
}

// filesBelow returns the regular files of a folder and the folders in it, sorted by name.
func filesBelow(dir string) ([]File, error) {
	out := []File{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		f := File{Name: filepath.ToSlash(rel)}
		f.Bytes, f.SHA256, err = files.Hash(p)
		out = append(out, f)
		return err
	})
	stat.SortStable(out, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	return out, err
}

// checkFiles returns an error unless the files of a receipt, all or those named, have their
// recorded sizes and, unless sizeOnly is set, hashes.
func (j Job) checkFiles(r *Receipt, sizeOnly bool, names ...string) error {
	for _, want := range r.Files {
		if len(names) > 0 && !slices.Contains(names, want.Name) {
			continue
		}
		name := j.Path(r, want.Name)
		st, err := os.Stat(name)
		if err != nil {
			return err
		}
		got := File{Name: want.Name, Bytes: st.Size(), SHA256: want.SHA256}
		if !sizeOnly && got == want { // a file of another size need not be read
			got.Bytes, got.SHA256, err = files.Hash(name)
		}
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s: got %d bytes with SHA-256 %s, want %d with %s", name, got.Bytes, got.SHA256, want.Bytes, want.SHA256)
		}
	}
	return nil
}

// Verify returns an error if files in folders that tasks wrote, all or those named, are damaged.
// Each stage verifies the files it uses, so that no stage has to read everything. The receipt of a
// damaged folder is removed, which makes its task open again. Code: result_damaged.
func (j Job) Verify(ctx context.Context, folders []string, names ...string) error {
	found, err := j.receipts()
	if err != nil {
		return err
	}
	return par.Try(ctx, 0, len(folders), func(i int) error {
		id := folders[i][:strings.LastIndex(folders[i], "-")] // a folder is named ID-DIGEST
		for _, name := range found[id] {
			r, err := j.receipt(name)
			if err != nil || r.Folder != folders[i] {
				continue
			}
			if err = j.checkFiles(r, false, names...); err == nil {
				return nil
			}
			return errors.Join(trace.Errorf(codeResultDamaged, "%v; task %s is open again", err, id), os.Remove(j.path(receiptsDir, name)))
		}
		return trace.Errorf(codeResultDamaged, "%s: no receipt names it any more", j.Folder(folders[i]))
	}, nil)
}

// receipts returns the names of receipts by task id, of finished work and of failures, which are named
// ID.DIGEST.json and ID.failed-NUMBER.json.
func (j Job) receipts() (map[string][]string, error) {
	entries, err := os.ReadDir(j.path(receiptsDir))
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for _, e := range entries {
		parts := strings.Split(e.Name(), ".")
		if len(parts) == 3 && parts[2] == "json" {
			found[parts[0]] = append(found[parts[0]], e.Name())
		}
	}
	return found, nil
}

// receipt returns a receipt. The name of its file contains a hash of its content, by which a change
// is noticed.
func (j Job) receipt(name string) (*Receipt, error) {
	text, err := files.Read(j.path(receiptsDir, name), maxText, false)
	if err != nil {
		return nil, err
	}
	r := &Receipt{}
	if err := trace.UnmarshalJSON(text, r); err != nil {
		return nil, fmt.Errorf("not a receipt: %w", err)
	}
	if want, err := r.name(); err != nil || want+".json" != name {
		return nil, fmt.Errorf("got the text of %s.json: the file was changed", want)
	}
	// Names come from a file that others may write: they must lie below the task's folder.
	hash, isOurs := strings.CutPrefix(r.Folder, r.Task+"-")
	isOurs = isOurs && CheckID(r.Task) == nil && filepath.Base(hash) == hash && filepath.IsLocal(r.Folder)
	for _, f := range r.Files {
		isOurs = isOurs && filepath.IsLocal(filepath.FromSlash(f.Name))
	}
	if !isOurs {
		return nil, fmt.Errorf("got files of %q, want those below its folder of %s", r.Folder, dataDir)
	}
	return r, nil
}

// firstDifference returns the name of the first file in which two receipts differ, and both
// folders.
func firstDifference(j Job, a, b *Receipt) string {
	what := "their lists of files"
	for _, f := range a.Files {
		if !slices.Contains(b.Files, f) {
			what = f.Name
			break
		}
	}
	return fmt.Sprintf("%s in %s and %s", what, j.path(dataDir, a.Folder), j.path(dataDir, b.Folder))
}
