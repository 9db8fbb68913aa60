package shard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
)

// File is one file that a task wrote, its name with slashes, below the task's folder.
type File = result.Input

// Receipt says that a task is done (spec#scale-out). Two processes that do the same task
// write the same receipt: it holds no time and no place.
type Receipt struct {
	Task   string `json:"task"`
	Folder string `json:"folder"` // of the files, below data
	Files  []File `json:"files"`  // by name
}

// Failure says that a task was tried and is not done.
type Failure struct {
	Task  Task   `json:"task"` // whole, so that it can be done again elsewhere
	Error string `json:"error"`
	Stack string `json:"stack,omitempty"` // of a panic
	// What the task reads cannot give what it should, as Error says under this code: nobody tries again.
	Refused trace.Code `json:"refused,omitempty"`
	Reason  string     `json:"reason,omitempty"` // Error without the code
	Hint    string     `json:"hint,omitempty"`
}

// Path is where a file of the receipt stands.
func (j Job) Path(r *Receipt, name string) string {
	return filepath.Join(j.Folder(r.Folder), filepath.FromSlash(name))
}

// Folder is where the folder of a receipt stands.
func (j Job) Folder(name string) string { return j.path(dataDir, name) }

// Do does a task: do writes files into a folder of its own, which get their names when all
// are complete. An error or a panic of do leaves a failure receipt; that of a context that
// ended does not.
func (j Job) Do(ctx context.Context, t *Task, do func(dir string) error) (*Receipt, error) {
	id := t.ID()
	if err := errors.Join(files.Folder(j.path(dataDir)), files.Folder(j.path(receiptsDir))); err != nil {
		return nil, err
	}
	dir, remove, err := files.Temporary(j.path(dataDir), halfPrefix+id+"-")
	if err != nil {
		return nil, err
	}
	defer remove()
	if err := guarded(func() error { return do(dir) }); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, errors.Join(err, j.fail(t, id, err))
	}
	r := &Receipt{Task: id}
	if r.Files, err = filesBelow(dir); err != nil {
		return nil, err
	}
	list, err := json.Marshal(r.Files)
	if err != nil {
		return nil, err
	}
	r.Folder = id + "-" + shortHash(list)
	if err := j.publish(dir, r); err != nil {
		return nil, err
	}
	name, err := r.name()
	if err != nil {
		return nil, err
	}
	return r, j.write(receiptsDir, name, r)
}

// halfPrefix begins the names of folders in which a task is being done.
const halfPrefix = ".half-"

// publish gives the folder its name, unless a twin was faster and its files are whole.
func (j Job) publish(dir string, r *Receipt) error {
	to := j.path(dataDir, r.Folder)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	err := os.Rename(dir, to)
	if err == nil || j.check(r, false) == nil {
		return nil
	}
	if _, missing := os.Stat(to); missing != nil {
		return err // what stands in the way is no folder of a twin
	}
	if err := os.RemoveAll(to); err != nil { // damaged: the name says what must be in it
		return err
	}
	return os.Rename(dir, to)
}

// name is the receipt's file without its ending: the task and a hash of the text.
func (r *Receipt) name() (string, error) {
	b, err := json.Marshal(r)
	return r.Task + "." + shortHash(b), err
}

// PanicError is a panic of a task.
type PanicError struct {
	Value any
	Stack string
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Reading does work that reads the folders and verifies them meanwhile: what was made of
// damaged files counts for nothing. Errors: those of Verify before those of the work.
func (j Job) Reading(folders []string, work func() error) error {
	verified := make(chan error, 1)
	go func() { verified <- j.Verify(folders) }()
	err := guarded(work)
	if damaged := <-verified; damaged != nil {
		return damaged
	}
	return err
}

// guarded turns a panic into an error.
func guarded(do func() error) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case *par.Panic:
			err = &PanicError{v.Value, string(v.Stack)}
		default:
			err = &PanicError{v, string(debug.Stack())}
		}
	}()
	return do()
}

// fail writes a failure receipt under a name of its own.
func (j Job) fail(t *Task, id string, why error) error {
	f := Failure{Task: *t, Error: why.Error()}
	if p := (*PanicError)(nil); errors.As(why, &p) {
		f.Stack = p.Stack
	}
	if e := (*trace.Error)(nil); errors.As(why, &e) && e.Code != codeResultDamaged {
		f.Refused, f.Reason, f.Hint = e.Code, e.Msg, e.Hint
	}
	for n := 1; ; n++ {
		name := j.path(receiptsDir, fmt.Sprintf("%s.%s%d.json", id, failedPrefix, n))
		out, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		enc := json.NewEncoder(out)
		enc.SetIndent("", " ")
		return errors.Join(enc.Encode(f), out.Close())
	}
}

// failedPrefix begins the second part of the name of a failure receipt.
const failedPrefix = "failed-"

// filesBelow lists the regular files of a folder by name.
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
	slices.SortFunc(out, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	return out, err
}

// check reports what is wrong with files of a receipt, all of them or those named; nil: they
// have the size, and unless sized their content, that was written.
func (j Job) check(r *Receipt, sized bool, names ...string) error {
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
		if !sized && got == want {
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

// Verify reads files of folders that tasks wrote, all of them or those named: whoever uses
// them checks them, so that nobody reads everything. Where one is not what was written the
// receipt goes, so that the task is open again. Errors: result_damaged.
func (j Job) Verify(folders []string, names ...string) error {
	found, err := j.receipts()
	if err != nil {
		return err
	}
	return par.Try(context.Background(), 0, len(folders), func(i int) error {
		id := folders[i][:strings.LastIndex(folders[i], "-")]
		for _, name := range found[id] {
			r, err := j.receipt(name)
			if err != nil || r.Folder != folders[i] {
				continue
			}
			if err = j.check(r, false, names...); err == nil {
				return nil
			}
			return errors.Join(trace.Errorf(codeResultDamaged, "%v; task %s is open again", err, id), os.Remove(j.path(receiptsDir, name)))
		}
		return trace.Errorf(codeResultDamaged, "%s: no receipt names it any more", j.Folder(folders[i]))
	}, nil)
}
