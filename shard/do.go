package shard

// This file does one task of a plan and publishes its result.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/trace"
)

// Do does a task and returns its receipt. The argument do writes the files of the result into a
// temporary folder. When they are complete, Do renames the folder to its final name and writes the
// receipt. If do returns an error or panics, Do writes a failure receipt, unless the context has
// ended.
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
	if err := withoutPanic(func() error { return do(dir) }); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, errors.Join(err, j.writeFailure(t, id, err))
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
	return r, j.writeJSON(receiptsDir, name, r)
}

// halfPrefix is the prefix of the temporary folders of tasks in progress.
const halfPrefix = ".half-"

// publish renames the folder to its final name. If another process finished the same task first and
// its files are intact, those are kept.
func (j Job) publish(dir string, r *Receipt) error {
	to := j.path(dataDir, r.Folder)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	err := os.Rename(dir, to)
	if err == nil || j.checkFiles(r, false) == nil {
		return nil
	}
	if _, missing := os.Stat(to); missing != nil {
		return err // the rename failed for another reason
	}
	// The folder exists but its files do not match the hash in its name: replace it.
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.Rename(dir, to)
}

// PanicError is a panic of a task.
type PanicError struct {
	Value any
	Stack string
}

// Error returns the value of the panic.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Reading calls work, which reads folders, and verifies the folders at the same time. If one of
// them is damaged it returns that error in place of the error of work.
func (j Job) Reading(ctx context.Context, folders []string, work func() error) error {
	verified := make(chan error, 1)
	go func() { verified <- j.Verify(ctx, folders) }()
	err := withoutPanic(work)
	if damaged := <-verified; damaged != nil {
		return damaged
	}
	return err
}

// withoutPanic calls do and returns a panic as an error.
func withoutPanic(do func() error) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case *par.Panic:
			err = &PanicError{Value: v.Value, Stack: string(v.Stack)}
		default:
			err = &PanicError{Value: v, Stack: string(debug.Stack())}
		}
	}()
	return do()
}

// writeFailure writes a failure receipt for the error why, under the first unused name.
func (j Job) writeFailure(t *Task, id string, why error) error {
	f := Failure{Task: *t, Error: why.Error()}
	if p := (*PanicError)(nil); errors.As(why, &p) {
		f.Stack = p.Stack
	}
	// An error with a code is of the task's inputs, and comes again. One about a damaged result of another
	// task does not: that task is open again.
	if e := (*trace.Error)(nil); errors.As(why, &e) && e.Code != codeResultDamaged {
		f.Refused = e.Code
		f.Reason = e.Msg
		f.Hint = e.Hint
	}
	for n := 1; ; n++ {
		name := j.path(receiptsDir, fmt.Sprintf("%s.%s%d.json", id, failedPrefix, n))
		out, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if errors.Is(err, fs.ErrExist) { // of an earlier failure, or of another process
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

// failedPrefix follows the task's id in a failure receipt's name: ID.failed-1.json.
const failedPrefix = "failed-"
