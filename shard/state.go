package shard

// This file finds which tasks of a pass are done, open or failed.

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// MaxFailures is how often a task may fail and be tried again. One more failure fails the job.
const MaxFailures = 3

// State is the progress of a pass.
type State struct {
	Pass     string
	Names    []string   // of the tasks, in order
	Receipts []*Receipt // by task, in order; nil where the task is not done
	Open     []string   // ids of tasks to be done, in order
	Failed   int        // failure receipts of open tasks
	Bad      []error    // by task, in order; nil, or why the task of a run folder failed for good: it is then neither open nor done
	Findings []trace.Finding
}

// Done reports whether no task of the pass is open: each is done or has failed for good.
func (s *State) Done() bool { return len(s.Open) == 0 }

// State returns the progress of a pass, after it has checked that the files named in receipts exist
// with the recorded sizes (Verify checks the content). It writes the manifest when no receipt is
// missing. It returns an error if a task has two different receipts, has failed more than
// MaxFailures times, or has failed because of its inputs. If that task is about a single run
// folder, there is no error, and the other run folders continue.
func (j Job) State(pass string) (*State, error) {
	list, err := j.tasksOf(pass)
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
		isWhole = false
		s.Failed += len(failed)
		s.Bad[i] = j.failure(failed)
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
	return s, j.writeJSON(manifestsDir, pass, s.Receipts)
}

// receiptOf returns the receipt of a task, nil unless it has one with intact files, and the names
// of its failure receipts.
func (s *State) receiptOf(j Job, id string, names []string) (good *Receipt, failed []string, err error) {
	for _, name := range names {
		if strings.HasPrefix(name, id+"."+failedPrefix) {
			failed = append(failed, name)
			continue
		}
		r, err := j.receipt(name)
		if err == nil {
			err = j.checkFiles(r, true)
		}
		if err != nil {
			s.Findings = append(s.Findings, trace.Findingf(codeResultDamaged, "%s: %v", j.path(receiptsDir, name), err))
			continue
		}
		if good != nil {
			return nil, nil, trace.Errorf(codeReceiptsDiffer, "task %s was done twice with different files: %s", id, firstDifference(j, good, r))
		}
		good = r
	}
	return good, failed, nil
}

// failure returns the error of a task that has failed too often or because of its inputs; nil if it may
// be tried again. names are its failure receipts.
func (j Job) failure(names []string) error {
	if len(names) == 0 {
		return nil
	}
	last := names[len(names)-1]
	f := Failure{}
	text, err := files.Read(j.path(receiptsDir, last), maxText, false)
	if err == nil {
		err = trace.UnmarshalJSON(text, &f)
	}
	switch {
	case err != nil && len(names) <= MaxFailures: // a half-written receipt counts as a failure
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
