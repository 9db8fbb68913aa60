package shard

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
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

// Folders of a job.
const (
	tasksDir     = "tasks"
	passesDir    = "passes"
	dataDir      = "data"
	receiptsDir  = "receipts"
	manifestsDir = "manifests"
)

var jobDirs = []string{tasksDir, passesDir, dataDir, receiptsDir, manifestsDir}

// hashDigits is how much of a SHA-256 stands in a name, hexadecimal digits.
const hashDigits = 16

// maxText is far above any task, receipt or manifest, bytes.
const maxText = 4 << 30

// Job is a folder of tasks and what was made of them.
type Job struct{ Dir string }

// Task is one piece of work.
type Task struct {
	Pass string          `json:"pass"` // of letters
	Name string          `json:"name"` // for people
	Spec json.RawMessage `json:"spec"` // what the pass's function reads
}

// NewTask is a task of a pass; spec is what its function reads, as JSON.
func NewTask(pass, name string, spec any) (Task, error) {
	b, err := json.Marshal(spec)
	return Task{Pass: pass, Name: name, Spec: b}, err
}

// text is the task as it stands in its file.
func (t *Task) text() []byte {
	b, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("shard: task %s: %v", t.Name, err)) // NewTask made the only part that could fail
	}
	return append(b, '\n')
}

// ID names the task, its receipts and its files: the pass and a hash of the text.
func (t *Task) ID() string { return t.Pass + "-" + shortHash(t.text()) }

func shortHash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])[:hashDigits]
}

func (j Job) path(elem ...string) string { return filepath.Join(append([]string{j.Dir}, elem...)...) }

// Offer writes the tasks of a pass, in order. Tasks that were offered before keep their
// receipts.
func (j Job) Offer(pass string, tasks []Task) error {
	for _, dir := range jobDirs {
		if err := files.Folder(j.path(dir)); err != nil {
			return err
		}
	}
	list := make([]listed, len(tasks))
	for i := range tasks {
		list[i] = listed{tasks[i].ID(), tasks[i].Name}
	}
	there, err := names(j.path(tasksDir))
	if err != nil {
		return err
	}
	old, err := j.list(pass)
	isOld := err == nil && slices.Equal(old, list)
	for i := range tasks {
		if isOld && there[list[i].ID+".json"] {
			continue
		}
		if err := files.Write(j.path(tasksDir, list[i].ID+".json"), tasks[i].text()); err != nil {
			return err
		}
	}
	if isOld {
		return nil
	}
	return j.write(passesDir, pass, list)
}

// names are those in a folder.
func names(dir string) (map[string]bool, error) {
	entries, err := os.ReadDir(dir)
	return stat.Keyed(entries, func(e os.DirEntry) (string, bool) { return e.Name(), true }), err
}

// taskID is what scripts hand to programs, and paths are made of: a pass and a hash, or its beginning.
var taskID = regexp.MustCompile(`^[a-z]+(-[0-9a-f]{0,16})?$`)

// CheckID refuses what is no id of a task and no beginning of one. Code: task_failed.
func CheckID(id string) error {
	if taskID.MatchString(id) {
		return nil
	}
	return trace.Errorf(codeTaskFailed, "got %q, want the id of a task, as tables-0a1b2c3d4e5f6071", id)
}

// listed is a task in the list of its pass.
type listed struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// write writes a JSON document of the job.
func (j Job) write(dir, name string, doc any) error {
	b, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		return err
	}
	return files.Write(j.path(dir, name+".json"), append(b, '\n'))
}

// Task reads the task with an id, or with the only id that begins so.
func (j Job) Task(id string) (*Task, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	text, err := files.Read(j.path(tasksDir, id+".json"), maxText, false)
	if errors.Is(err, fs.ErrNotExist) {
		whole, err := j.complete(id)
		if err != nil {
			return nil, err
		}
		return j.Task(whole)
	}
	if err != nil {
		return nil, err
	}
	t := &Task{}
	if err := trace.UnmarshalJSON(text, t); err != nil {
		return nil, fmt.Errorf("%s: %w", j.path(tasksDir, id+".json"), err)
	}
	if t.ID() != id {
		return nil, trace.Errorf(codeTaskFailed, "%s: got the text of task %s: the file was changed", j.path(tasksDir, id+".json"), t.ID())
	}
	return t, nil
}

// complete is the only id that begins with prefix.
func (j Job) complete(prefix string) (string, error) {
	entries, err := os.ReadDir(j.path(tasksDir))
	if err != nil {
		return "", trace.Hinted(err, "blis-train plan RUN... -o "+j.Dir)
	}
	var found []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".json"); ok && strings.HasPrefix(id, prefix) {
			found = append(found, id)
		}
	}
	if len(found) != 1 {
		return "", trace.Errorf(codeTaskFailed, "%s: got task %q, which %d of its %d tasks begin with, want one", j.Dir, prefix, len(found),
			len(entries)).WithHint("blis-train collect " + j.Dir + " prints the ids of open tasks")
	}
	return found[0], nil
}

// list is the tasks of a pass, in order.
func (j Job) list(pass string) ([]listed, error) {
	text, err := files.Read(j.path(passesDir, pass+".json"), maxText, false)
	if err != nil {
		return nil, err
	}
	var list []listed
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", j.path(passesDir, pass+".json"), err)
	}
	for _, t := range list {
		if err := CheckID(t.ID); err != nil {
			return nil, fmt.Errorf("%s: %w", j.path(passesDir, pass+".json"), err)
		}
	}
	return list, nil
}
