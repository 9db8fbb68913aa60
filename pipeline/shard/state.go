package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// MaxFailures is how often a task may fail before it is a failure of the job.
const MaxFailures = 3

// State is how far a pass is.
type State struct {
	Pass     string
	Names    []string   // of the tasks, in order
	Receipts []*Receipt // by task, in order; nil for an open one
	Open     []string   // ids of tasks that are not done, in order
	Failed   int        // failure receipts of open tasks
	Bad      []error    // by task, in order; why one of a run folder, which is neither open nor done, failed for good
	Findings []trace.Finding
}

// Done reports that every task of the pass has its receipt, or will never have one.
func (s *State) Done() bool { return len(s.Open) == 0 }

// State reads the receipts of a pass and checks that the files they name are there, as long as
// they were; Verify reads them. The manifest is written when no receipt is missing. Errors: two
// receipts that differ for one task; one that failed more than MaxFailures times, or last for a
// reason that is in what it reads, unless it reads one run folder: others go on.
func (j Job) State(pass string) (*State, error) {
	list, err := j.list(pass)
	if err != nil {
		return nil, err
	}
	found, err := j.receipts()
	if err != nil {
		return nil, err
	}
	s := &State{Pass: pass, Receipts: make([]*Receipt, len(list)), Bad: make([]error, len(list))}
	isWhole := true
	for i, task := range list {
		var failed []string
		if s.Receipts[i], failed, err = s.receiptOf(j, task.ID, found[task.ID]); err != nil {
			return nil, err
		}
		s.Names = append(s.Names, task.Name)
		if s.Receipts[i] != nil {
			continue
		}
		isWhole, s.Failed, s.Bad[i] = false, s.Failed+len(failed), j.failure(failed)
		switch {
		case s.Bad[i] == nil:
			s.Open = append(s.Open, task.ID)
		case pass != passParse && pass != passTables:
			return nil, s.Bad[i]
		}
	}
	if !isWhole {
		return s, nil
	}
	return s, j.write(manifestsDir, pass, s.Receipts)
}

// receipts are the receipts' names by task: first of work done, then of failures.
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

// receiptOf is the receipt of a task, nil without a whole one, and the names of those of its failures.
func (s *State) receiptOf(j Job, id string, names []string) (good *Receipt, failed []string, err error) {
	for _, name := range names {
		if strings.HasPrefix(name, id+"."+failedPrefix) {
			failed = append(failed, name)
			continue
		}
		r, err := j.receipt(name)
		if err == nil {
			err = j.check(r, true)
		}
		if err != nil {
			s.Findings = append(s.Findings, trace.Findingf(codeResultDamaged, "%s: %v", j.path(receiptsDir, name), err))
			continue
		}
		if good != nil {
			return nil, nil, trace.Errorf(codeReceiptsDiffer, "task %s was done twice with different files: %s", id, different(j, good, r))
		}
		good = r
	}
	return good, failed, nil
}

// receipt reads a receipt; its name says what its text must be.
func (j Job) receipt(name string) (*Receipt, error) {
	text, err := files.Read(j.path(receiptsDir, name), maxText, false)
	if err != nil {
		return nil, err
	}
	r := &Receipt{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("got no receipt: %w", err)
	}
	if want, err := r.name(); err != nil || want+".json" != name {
		return nil, fmt.Errorf("got the text of %s.json: the file was changed", want)
	}
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

// different names the first file in which two receipts differ, and both folders.
func different(j Job, a, b *Receipt) string {
	what := "their lists of files"
	for _, f := range a.Files {
		if !slices.Contains(b.Files, f) {
			what = f.Name
			break
		}
	}
	return fmt.Sprintf("%s in %s and %s", what, j.path(dataDir, a.Folder), j.path(dataDir, b.Folder))
}

// failure is the error of a task that failed too often, or once and for good; nil: it may be tried again.
func (j Job) failure(names []string) error {
	if len(names) == 0 {
		return nil
	}
	last := names[len(names)-1]
	f := Failure{}
	text, err := files.Read(j.path(receiptsDir, last), maxText, false)
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	switch {
	case err != nil && len(names) <= MaxFailures: // half-written: it counts
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", j.path(receiptsDir, last), err)
	case f.Refused != "":
		return fmt.Errorf("%s %s: %w", f.Task.Pass, f.Task.Name, &trace.Error{Code: f.Refused, Msg: f.Reason, Hint: f.Hint})
	case len(names) <= MaxFailures:
		return nil
	}
	return trace.Errorf(codeTaskFailed, "%s %s failed %d times, last: %s (all of it in %s)", f.Task.Pass, f.Task.Name, len(names), f.Error,
		j.path(receiptsDir, last)).WithHint(fmt.Sprintf("do it here to see why: blis-train task %s %s", j.Dir, f.Task.ID()))
}

// Garbage lists what no pass needs: half-done folders, folders and receipts of tasks that
// no pass has, folders without a receipt, receipts that are damaged, failures of tasks that
// were done in the end. A task under way has a half-done folder too.
func (j Job) Garbage() ([]string, error) {
	wanted, err := j.offered()
	if err != nil {
		return nil, err
	}
	found, err := j.receipts()
	if err != nil {
		return nil, err
	}
	var garbage []string
	folders := map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		var failed []string
		done := false
		for _, name := range found[id] {
			if strings.HasPrefix(name, id+"."+failedPrefix) {
				failed = append(failed, j.path(receiptsDir, name))
				continue
			}
			r, err := j.receipt(name)
			if err != nil || !wanted[id] {
				garbage = append(garbage, j.path(receiptsDir, name))
				continue
			}
			folders[r.Folder], done = true, true
		}
		if done || !wanted[id] {
			garbage = append(garbage, failed...)
		}
	}
	entries, err := os.ReadDir(j.path(dataDir))
	for _, e := range entries {
		if !folders[e.Name()] {
			garbage = append(garbage, j.path(dataDir, e.Name()))
		}
	}
	return garbage, err
}

// offered are the tasks of every pass.
func (j Job) offered() (map[string]bool, error) {
	entries, err := os.ReadDir(j.path(passesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: got no plan: %w", j.Dir, err)
	}
	out := map[string]bool{}
	for _, e := range entries {
		list, err := j.list(strings.TrimSuffix(e.Name(), filepath.Ext(e.Name())))
		if err != nil {
			return nil, err
		}
		for _, task := range list {
			out[task.ID] = true
		}
	}
	return out, err
}

// Done is how many of the tasks have left a receipt, which nobody has read yet.
func (j Job) Done(ids []string) (n int, err error) {
	found, err := j.receipts()
	for _, id := range ids {
		if slices.ContainsFunc(found[id], func(name string) bool { return !strings.HasPrefix(name, id+"."+failedPrefix) }) {
			n++
		}
	}
	return n, err
}
