package shard

import (
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

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
