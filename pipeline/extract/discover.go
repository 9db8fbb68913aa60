package extract

// This file finds run folders: those with a run.yaml in the folders, globs and files of the command
// line.

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// RunDir is one run folder found on the command line.
type RunDir struct {
	ID         string
	Dir        string // as opened
	Folder     string // relative to the given RUNDIR or PARENT; "." for a RUNDIR
	Deployment *deploy.Deployment
	Files      []string // dumps given on the command line, in place of `files.traces` of run.yaml; nil for none
	Stored     []Stored // inputs whose parts were decoded before, with their folders as opened
	Bad        error    // the error of loading run.yaml; Deployment then has only a name
}

// Find returns the run folders in the folders that args name, with their run.yaml loaded. A folder
// with a run.yaml is a run folder. Other folders are searched to any depth, and a glob is replaced
// by its matches. A file, or "-" for standard input, is a dump: its run.yaml is the one in its
// folder, or is replaced by set ("key.path=value", see deploy.LoadRun). The result is sorted by id
// and includes runs that are Bad. Code of the error if there is no run folder: no_runs.
func Find(args []string, set ...string) ([]RunDir, error) {
	dirs, err := findRuns(args)
	if err != nil {
		return nil, err
	}
	for i := range dirs {
		d := &dirs[i]
		d.Deployment, d.Bad = deploy.LoadRun(d.Dir, set...)
		if trace.CodeOf(d.Bad) == deploy.BadSetting {
			return nil, d.Bad
		}
		// The error is about a folder that the user did not name, so it starts with the file that was.
		if d.Bad != nil && len(d.Files) > 0 && !exists(filepath.Join(d.Dir, deploy.RunFile)) {
			d.Bad = fmt.Errorf("%s: %w", d.Files[0], d.Bad)
		}
		if d.Bad == nil {
			readProfile(d)
		}
		name := d.Folder // for a run.yaml without a name
		if d.Deployment != nil {
			name = d.Deployment.Name
		}
		d.ID = runID(name, d.Dir)
	}
	if len(dirs) == 0 {
		return nil, trace.Errorf(CodeNoRuns, "no run folder (one with a %s) in %s", deploy.RunFile,
			strings.Join(args, ", ")).
			WithHint("blis-train init --from-cmdline 'vllm serve ...' -o RUNDIR/run.yaml")
	}
	stat.SortStable(dirs, func(a, b RunDir) int { return cmp.Compare(a.ID, b.ID) })
	return dirs, nil
}

// readProfile sets the number of tokens that the prompts of a run share at their beginning from the
// GuideLLM scenario in its folder, where run.yaml states nothing of it (spec#shared-prompts). The
// scenario then counts as an input of the deployment.
func readProfile(d *RunDir) {
	path := filepath.Join(d.Dir, clients.ProfileFile)
	client := &d.Deployment.Client
	if client.SharedPrefixTokens.OK || !exists(path) {
		return
	}
	text, err := files.ReadAll(path)
	if err != nil {
		return // nothing is stated
	}
	if client.SharedPrefixTokens = clients.ProfilePrefix(text); client.SharedPrefixTokens.OK {
		d.Deployment.Read = append(d.Deployment.Read, path)
	}
}

// Select returns the runs whose id the globs only and exclude accept. The result is empty if they
// match no run. It is an error if all selected runs are Bad, and if two of them have one id, or ids
// that differ in case only.
func Select(runs []RunDir, only, exclude []string) ([]RunDir, error) {
	var out []RunDir
	var bad []Failed
	for _, d := range runs {
		isSelected, err := selectsID(d.ID, only, exclude)
		if err != nil {
			return nil, err
		}
		if !isSelected {
			continue
		}
		out = append(out, d)
		if d.Bad != nil {
			bad = append(bad, Failed{d.ID, d.Bad})
		}
	}
	if len(out) > 0 && len(bad) == len(out) {
		return nil, FailedRuns(bad, len(out))
	}
	return out, checkIDs(out)
}

// Discover returns run folders as Find does, all of them.
func Discover(args []string, set ...string) ([]RunDir, error) {
	runs, err := Find(args, set...)
	if err != nil {
		return nil, err
	}
	return Select(runs, nil, nil)
}

// checkIDs returns an error for two runs with one id, and for ids that differ in case only, because on
// many file systems they would name the same folder.
func checkIDs(runs []RunDir) error {
	first := map[string]*RunDir{}
	for i := range runs {
		r := &runs[i]
		key := strings.ToLower(r.ID)
		switch other := first[key]; {
		case other == nil:
			first[key] = r
		case other.Dir == r.Dir:
			return trace.Errorf(codeDuplicateRunID,
				"got the run folder %s and dumps in it (%s), want one or the other", r.Dir,
				strings.Join(append(other.Files, r.Files...), ", "))
		case other.ID == r.ID:
			return trace.Errorf(codeDuplicateRunID, "run id %q is used by %s and %s", r.ID, other.Dir,
				r.Dir).WithHint(otherName)
		default:
			return trace.Errorf(codeDuplicateRunID,
				"run ids %q of %s and %q of %s differ by case only", other.ID, other.Dir, r.ID, r.Dir).
				WithHint(otherName)
		}
	}
	return nil
}

const otherName = "change `name` in one run.yaml, or use --exclude"

// findRuns returns the run folders below args, each once. All arguments that are files or "-" (the
// standard input) are together one more run, in the folder of the first of them.
func findRuns(args []string) ([]RunDir, error) {
	var dirs []RunDir
	var files []string
	seen := map[string]bool{}
	for _, arg := range args {
		matches, err := expandArg(arg)
		if err != nil {
			return nil, err
		}
		for _, m := range matches {
			if m == "-" || !isDir(m) {
				files = append(files, m)
				continue
			}
			found, err := runsBelow(m)
			if err != nil {
				return nil, err
			}
			for _, d := range found {
				if abs, _ := filepath.Abs(d.Dir); !seen[abs] {
					seen[abs] = true
					dirs = append(dirs, d)
				}
			}
		}
	}
	if len(files) > 0 {
		dir := "."
		if files[0] != "-" {
			dir = filepath.Dir(files[0])
		}
		dirs = append(dirs, RunDir{Dir: dir, Folder: ".", Files: files})
	}
	return dirs, nil
}

// isDir reports whether there is a folder at the path.
func isDir(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.IsDir()
}

// expandArg returns the argument if it is a file or folder, or else the matches of it as a glob.
func expandArg(arg string) ([]string, error) {
	if arg == "-" {
		return []string{arg}, nil
	}
	_, err := os.Stat(arg)
	if err == nil {
		return []string{arg}, nil
	}
	if _, isLink := os.Lstat(arg); isLink == nil { // one that leads nowhere, or to itself
		return nil, err
	}
	matches, err := filepath.Glob(arg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", arg, err)
	}
	if len(matches) == 0 {
		return nil, trace.Errorf(CodeNoRuns, "%s: no such file or folder", arg)
	}
	return matches, nil
}

// runsBelow returns dir itself if it has a run.yaml, and otherwise every folder below it that has
// one. A folder that has dumps but no run.yaml is returned too, so that deploy.LoadRun explains
// what is missing.
func runsBelow(dir string) ([]RunDir, error) {
	if exists(filepath.Join(dir, deploy.RunFile)) {
		return []RunDir{{Dir: dir, Folder: "."}}, nil
	}
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	w := &folderWalk{root: root, top: dir, visited: map[string]bool{root: true}}
	if err := w.walk(dir); err != nil {
		return nil, err
	}
	for len(w.links) > 0 {
		next := w.links[0]
		w.links = w.links[1:]
		if err := w.enter(next); err != nil {
			return nil, err
		}
	}
	if len(w.found) == 0 && hasDump(dir) {
		return []RunDir{{Dir: dir, Folder: "."}}, nil
	}
	return w.found, nil
}

// folderWalk finds the run folders below a folder, each once. It visits real folders before
// symbolic links to folders, so that a run gets the shortest name, and does not follow links to
// folders that contain the root.
type folderWalk struct {
	root    string          // the given folder, absolute and with links resolved
	top     string          // the given folder as given
	visited map[string]bool // by absolute path with links resolved
	links   []string        // to folders, still to be followed
	found   []RunDir
}

// walk looks through a folder that has not been visited.
func (w *folderWalk) walk(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."): // snapshots, checkpoints, waste bins; of a Kubernetes volume what is behind its links
		case e.Name() == deploy.RunFile && !isDir(path):
			rel, err := filepath.Rel(w.top, dir)
			if err != nil {
				return err
			}
			w.found = append(w.found, RunDir{Dir: dir, Folder: filepath.ToSlash(rel)})
		case e.IsDir():
			if err := w.enter(path); err != nil {
				return err
			}
		case e.Type()&fs.ModeSymlink != 0 && isDir(path):
			w.links = append(w.links, path)
		}
	}
	return nil
}

// enter walks a folder unless it was walked before, or contains the root.
func (w *folderWalk) enter(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if real, err = filepath.Abs(real); err != nil {
		return err
	}
	const separator = string(filepath.Separator)
	containsRoot := strings.HasPrefix(w.root, strings.TrimSuffix(real, separator)+separator)
	if w.visited[real] || containsRoot {
		return nil
	}
	w.visited[real] = true
	return w.walk(path)
}

// WithoutRunFile returns the dumps in folders below args that are not read because no run.yaml
// is beside or above them: one file of each such folder, with its path. Hidden folders, symbolic links and what this
// program wrote are left out. found are the run folders below args.
func WithoutRunFile(args []string, found []RunDir) (passed []string) {
	isRun := map[string]bool{}
	for i := range found {
		isRun[filepath.Clean(found[i].Dir)] = true
	}
	for _, arg := range args {
		if isRun[filepath.Clean(arg)] || !isDir(arg) {
			continue
		}
		// A folder that cannot be read has no files to name here; Find reports it.
		_ = filepath.WalkDir(arg, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil || !e.IsDir():
				return nil
			case isRun[path], path != arg && strings.HasPrefix(e.Name(), "."):
				return fs.SkipDir
			}
			if dump := firstDump(path); dump != "" {
				passed = append(passed, dump)
			}
			return nil
		})
	}
	return passed
}

// firstDump returns the path of the first file of a folder with the name of a dump; "" without one.
func firstDump(dir string) string {
	for _, pattern := range []string{"*.jsonl*", "*.pb*"} {
		matches, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, m := range matches {
			if !folder.IsOwn(filepath.Base(m)) && !isDir(m) {
				return m
			}
		}
	}
	return ""
}

// exists reports whether there is anything at the path.
func exists(p string) bool {
	_, err := os.Stat(p)
	return err == nil
}

// hasDump reports whether a folder has a file with the name of a dump, or the config.json of a model,
// so that it may be a run folder whose run.yaml is missing.
func hasDump(dir string) bool {
	for _, pattern := range []string{"*.json*", "*.pb*", "config.json"} {
		if m, _ := filepath.Glob(filepath.Join(dir, pattern)); len(m) > 0 {
			return true
		}
	}
	return false
}

var idChars = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// runID returns a run id made from a name: characters other than A-Z, a-z, 0-9, '.', '_' and '-'
// are replaced, and a long name is shortened. A name without allowed characters is replaced by that of the folder.
func runID(name, dir string) string {
	abs, _ := filepath.Abs(dir)
	for _, from := range []string{name, filepath.Base(abs)} {
		if id := strings.Trim(idChars.ReplaceAllString(from, "-"), "-."); id != "" {
			return files.ShortName(id)
		}
	}
	return "run"
}

// selectsID reports whether the globs only and exclude select an id. Without globs in only they select
// every id that is not excluded.
func selectsID(id string, only, exclude []string) (bool, error) {
	isExcluded, err := matchesAny(exclude, id)
	if err != nil || isExcluded {
		return false, err
	}
	if len(only) == 0 {
		return true, nil
	}
	return matchesAny(only, id)
}

// matchesAny reports whether one of the globs matches an id.
func matchesAny(globs []string, id string) (bool, error) {
	for _, glob := range globs {
		matches, err := path.Match(glob, id)
		if err != nil || matches {
			return matches, err
		}
	}
	return false, nil
}
