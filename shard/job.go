package shard

// This file has the folder of a job, its tasks and what they left.

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
	"github.com/blis-train/blis-train/trace"
)

// Garbage returns the names of files and folders that no pass needs: temporary folders, folders and
// receipts of tasks that belong to no pass, folders without a receipt, damaged receipts, and
// failures of tasks that succeeded later. Temporary folders of tasks in progress are among them.
func (j Job) Garbage() ([]string, error) {
	wanted, err := j.offeredTasks()
	if err != nil {
		return nil, err
	}
	found, err := j.receipts()
	if err != nil {
		return nil, err
	}
	// Receipts: a task that succeeded no longer needs its failures, one that no pass has needs nothing.
	var garbage []string
	folders := map[string]bool{} // those that an intact receipt of a wanted task names
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

// offeredTasks returns the ids of the tasks of all passes.
func (j Job) offeredTasks() (map[string]bool, error) {
	entries, err := os.ReadDir(j.path(passesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: not the folder of a plan: %w", j.Dir, err)
	}
	out := map[string]bool{}
	for _, e := range entries {
		list, err := j.tasksOf(strings.TrimSuffix(e.Name(), filepath.Ext(e.Name())))
		if err != nil {
			return nil, err
		}
		for _, task := range list {
			out[task.ID] = true
		}
	}
	return out, err
}

// Done returns how many of the tasks have a receipt, without reading the receipts.
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

var jobDirs = []string{tasksDir, passesDir, dataDir, receiptsDir, manifestsDir} // the folders of a job

// hashDigits is the number of hexadecimal digits of a SHA-256 in names.
const hashDigits = 16

// maxText bounds the size of a task, receipt or manifest in bytes, far above any real one.
const maxText = 4 << 30

// Job is a folder of tasks and their results.
type Job struct{ Dir string }

// Task is one piece of work.
type Task struct {
	Pass string          `json:"pass"` // letters only
	Name string          `json:"name"` // for people
	Spec json.RawMessage `json:"spec"` // input of the pass's function
}

// NewTask returns a task of a pass. spec, written as JSON, is the input of the pass's function.
func NewTask(pass, name string, spec any) (Task, error) {
	b, err := json.Marshal(spec)
	return Task{Pass: pass, Name: name, Spec: b}, err
}

// text returns the content of the task's file.
func (t *Task) text() []byte {
	b, err := json.Marshal(t)
	if err != nil {
		// Only Spec can fail to encode, and NewTask has made it from a valid value.
		panic(fmt.Sprintf("shard: task %s: %v", t.Name, err))
	}
	return append(b, '\n')
}

// ID returns the id of the task, its receipts and its files: the pass and a hash of the task's
// text.
func (t *Task) ID() string { return t.Pass + "-" + shortHash(t.text()) }

// shortHash returns the first hashDigits digits of the SHA-256 of a text.
func shortHash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])[:hashDigits]
}

// path returns a path below the job's folder.
func (j Job) path(elem ...string) string { return filepath.Join(append([]string{j.Dir}, elem...)...) }

// Offer writes the tasks of a pass, in order, so that processes can do them. Tasks that were
// offered before keep their receipts.
func (j Job) Offer(pass string, tasks []Task) error {
	for _, dir := range jobDirs {
		if err := files.Folder(j.path(dir)); err != nil {
			return err
		}
	}
	list := make([]listed, len(tasks))
	for i := range tasks {
		list[i] = listed{ID: tasks[i].ID(), Name: tasks[i].Name}
	}
	there, err := fileNames(j.path(tasksDir))
	if err != nil {
		return err
	}
	old, err := j.tasksOf(pass)
	isOld := err == nil && slices.Equal(old, list) // the same tasks were offered before
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
	return j.writeJSON(passesDir, pass, list)
}

// fileNames returns the set of names in a folder.
func fileNames(dir string) (map[string]bool, error) {
	entries, err := os.ReadDir(dir)
	found := map[string]bool{}
	for _, e := range entries {
		found[e.Name()] = true
	}
	return found, err
}

// taskID matches an id, a pass and a hash, or the beginning of one. Ids come from scripts and
// become parts of paths, so nothing else is accepted.
var taskID = regexp.MustCompile(`^[a-z]+(-[0-9a-f]{0,16})?$`)

// CheckID returns an error for a text that is not an id of a task or the beginning of one. Code:
// task_failed.
func CheckID(id string) error {
	if taskID.MatchString(id) {
		return nil
	}
	return trace.Errorf(codeTaskFailed, "task id: got %q, want an id such as tables-0a1b2c3d4e5f6071", id)
}

// listed is a task's entry in the list of its pass.
type listed struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// writeJSON writes a document of the job.
func (j Job) writeJSON(dir, name string, doc any) error {
	b, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		return err
	}
	return files.Write(j.path(dir, name+".json"), append(b, '\n'))
}

// Task returns the task with an id, or with an id that begins so if there is only one.
func (j Job) Task(id string) (*Task, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	text, err := files.Read(j.path(tasksDir, id+".json"), maxText, false)
	if errors.Is(err, fs.ErrNotExist) {
		whole, err := j.completeID(id)
		if err != nil {
			return nil, err
		}
		return j.Task(whole)
	}
	if err != nil {
		return nil, err
	}
	t := &Task{}
	if err = trace.UnmarshalJSON(text, t); err != nil {
		return nil, fmt.Errorf("%s: %w", j.path(tasksDir, id+".json"), err)
	}
	if t.ID() != id {
		return nil, trace.Errorf(codeTaskFailed, "%s: got the text of task %s: the file was changed", j.path(tasksDir, id+".json"), t.ID())
	}
	return t, nil
}

// completeID returns the only id that begins with prefix; an error if there are several or none.
func (j Job) completeID(prefix string) (string, error) {
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
		return "", trace.Errorf(codeTaskFailed, "%s: got task %q, the beginning of %d of its %d task ids, want exactly one",
			j.Dir, prefix, len(found), len(entries)).WithHint("blis-train collect " + j.Dir + " prints the ids of open tasks")
	}
	return found[0], nil
}

// tasksOf returns the tasks of a pass, in order. Ids become parts of paths, so those of the file are
// checked.
func (j Job) tasksOf(pass string) ([]listed, error) {
	text, err := files.Read(j.path(passesDir, pass+".json"), maxText, false)
	if err != nil {
		return nil, err
	}
	var list []listed
	if err := trace.UnmarshalJSON(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", j.path(passesDir, pass+".json"), err)
	}
	for _, t := range list {
		if err := CheckID(t.ID); err != nil {
			return nil, fmt.Errorf("%s: %w", j.path(passesDir, pass+".json"), err)
		}
	}
	return list, nil
}
