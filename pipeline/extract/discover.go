package extract

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// RunDir is one run folder found on the command line.
type RunDir struct {
	ID         string
	Dir        string // as opened
	Folder     string // relative to the given RUNDIR or PARENT; "." for a RUNDIR
	Deployment *deploy.Deployment
	Files      []string // explicit dumps instead of run.yaml's `files.traces`; nil: those
	Stored     []Stored // inputs whose parts were read before, with folders as opened
	Bad        error    // what is wrong with run.yaml; then Deployment has a name at most
}

// Discover finds the run folders that args name: a RUNDIR holds a run.yaml, a
// PARENT is searched to any depth, a glob stands for what it matches, and a
// file or "-" is a dump whose run.yaml is beside it or replaced by set
// ("key.path=value", see deploy.LoadRun). The result is sorted by id, with runs that
// are Bad, unless all are. An empty result and two equal ids are errors, also where
// case alone tells them apart; only and exclude are globs over ids.
func Discover(args, only, exclude []string, set ...string) ([]RunDir, error) {
	dirs, err := findRuns(args)
	if err != nil {
		return nil, err
	}
	var out []RunDir
	var bad []Failed
	for _, d := range dirs {
		name := d.Folder // of a run.yaml that says none
		if d.Deployment, d.Bad = deploy.LoadRun(d.Dir, set...); d.Deployment != nil {
			name = d.Deployment.Name
		}
		if trace.CodeOf(d.Bad) == deploy.BadSetting {
			return nil, d.Bad
		}
		d.ID = runID(name, d.Dir)
		keep, err := selected(d.ID, only, exclude)
		if err != nil {
			return nil, err
		}
		if keep {
			out = append(out, d)
		}
		if keep && d.Bad != nil {
			bad = append(bad, Failed{d.ID, d.Bad})
		}
	}
	if len(out) == 0 {
		return nil, trace.Errorf(CodeNoRuns, "no run folder (one with a %s) in %s", deploy.RunFile, strings.Join(args, ", ")).
			WithHint("blis-train init --from-cmdline 'vllm serve ...' -o RUNDIR/run.yaml")
	}
	if len(bad) == len(out) {
		return nil, LeftOut(bad, len(out))
	}
	stat.SortStable(out, func(a, b RunDir) int { return cmp.Compare(a.ID, b.ID) })
	return out, uniqueIDs(out)
}

// uniqueIDs refuses two runs of one id, or of ids that differ by case only, which are one folder
// on many file systems.
func uniqueIDs(runs []RunDir) error {
	first := map[string]*RunDir{}
	for i := range runs {
		r := &runs[i]
		key := strings.ToLower(r.ID)
		switch other := first[key]; {
		case other == nil:
			first[key] = r
		case other.Dir == r.Dir:
			return trace.Errorf(codeDuplicateRunID, "got the run folder %s and dumps in it (%s), want one or the other", r.Dir,
				strings.Join(append(other.Files, r.Files...), ", "))
		case other.ID == r.ID:
			return trace.Errorf(codeDuplicateRunID, "run id %q is used by %s and %s", r.ID, other.Dir, r.Dir).WithHint(otherName)
		default:
			return trace.Errorf(codeDuplicateRunID, "run ids %q of %s and %q of %s differ by case only", other.ID, other.Dir, r.ID, r.Dir).
				WithHint(otherName)
		}
	}
	return nil
}

const otherName = "change `name` in one run.yaml, or use --exclude"

// findRuns lists the run folders below args, each once.
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

func isDir(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.IsDir()
}

// expandArg is the argument itself, or what it matches as a glob.
func expandArg(arg string) ([]string, error) {
	if arg == "-" {
		return []string{arg}, nil
	}
	if _, err := os.Stat(arg); err == nil {
		return []string{arg}, nil
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

// runsBelow is dir itself when it has a run.yaml or dumps, else every folder
// below it that has a run.yaml.
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
	w := &folderWalk{root: root, top: dir, seen: map[string]bool{root: true}}
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
	if len(w.found) == 0 && bareDump(dir) {
		return []RunDir{{Dir: dir, Folder: "."}}, nil // LoadRun lists what is missing
	}
	return w.found, nil
}

// folderWalk finds run folders below another, each once: first where they are, then
// behind links. A link to a folder that holds the whole is not followed.
type folderWalk struct {
	root, top string // as resolved, as named
	seen      map[string]bool
	links     []string // to folders, still to be followed
	found     []RunDir
}

func (w *folderWalk) walk(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), ".."): // the folders behind a Kubernetes mount, whose names change
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

// enter walks a folder unless it has been walked, or holds the whole.
func (w *folderWalk) enter(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if real, err = filepath.Abs(real); err != nil {
		return err
	}
	if w.seen[real] || strings.HasPrefix(w.root, strings.TrimSuffix(real, string(filepath.Separator))+string(filepath.Separator)) {
		return nil
	}
	w.seen[real] = true
	return w.walk(path)
}

func exists(p string) bool {
	_, err := os.Stat(p)
	return err == nil
}

// bareDump reports whether a folder without run.yaml holds something that
// looks like a dump.
func bareDump(dir string) bool {
	for _, pattern := range []string{"*.json*", "*.pb*", "config.json"} {
		if m, _ := filepath.Glob(filepath.Join(dir, pattern)); len(m) > 0 {
			return true
		}
	}
	return false
}

var idChars = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// runID is the name of run.yaml restricted to [A-Za-z0-9._-], else the folder's name.
func runID(name, dir string) string {
	if id := strings.Trim(idChars.ReplaceAllString(name, "-"), "-."); id != "" {
		return id
	}
	abs, _ := filepath.Abs(dir)
	if id := strings.Trim(idChars.ReplaceAllString(filepath.Base(abs), "-"), "-."); id != "" {
		return id
	}
	return "run"
}

func selected(id string, only, exclude []string) (bool, error) {
	match := func(globs []string) (bool, error) {
		for _, g := range globs {
			ok, err := path.Match(g, id)
			if err != nil || ok {
				return ok, err
			}
		}
		return false, nil
	}
	if out, err := match(exclude); err != nil || out {
		return false, err
	}
	if len(only) == 0 {
		return true, nil
	}
	return match(only)
}

// traces lists the trace dumps of the run in reading order.
func (d *RunDir) traces() ([]source.Input, error) {
	if d.Files != nil {
		var in []source.Input
		for _, f := range d.Files {
			name := filepath.Base(f)
			if f == "-" {
				name = "-"
			}
			set, _ := rotation(name)
			in = append(in, source.Input{Path: f, Name: name, Asked: set, IsPipe: true})
		}
		return inReadingOrder(in), nil
	}
	return d.inputs("traces", d.Deployment.Files.Traces)
}

// inputs resolves names and globs of run.yaml against the run folder; a folder
// stands for every file below it (a group_by tree).
func (d *RunDir) inputs(kind string, patterns []string) ([]source.Input, error) {
	var in []source.Input
	seen := map[string]bool{}
	for _, p := range patterns {
		full := p
		if !filepath.IsAbs(p) {
			full = filepath.Join(d.Dir, filepath.FromSlash(p))
		}
		matches := []string{full}
		if !exists(full) {
			var err error
			if matches, err = filepath.Glob(full); err != nil {
				return nil, fmt.Errorf("%s: %w", p, err)
			}
		}
		if len(matches) == 0 {
			return nil, (&trace.Error{Code: codeNoInput, Msg: fmt.Sprintf("%s: %q matches no file", filepath.Join(d.Dir, deploy.RunFile),
				p)}).WithHint("correct `files` in run.yaml")
		}
		for _, m := range matches {
			files, err := filesOf(m)
			if err != nil {
				return nil, err
			}
			if len(files) == 0 {
				return nil, trace.Errorf(codeNoInput, "%s: %q is a folder without files", filepath.Join(d.Dir, deploy.RunFile), p).
					WithHint("correct `files` in run.yaml")
			}
			for _, f := range files {
				if !seen[f] {
					seen[f] = true
					in = append(in, source.Input{Path: f, Name: d.relative(f), Asked: d.asked(kind, p)})
				}
			}
		}
	}
	return inReadingOrder(in), nil
}

// asked is what run.yaml says of a file; "" when it was found by its name.
func (d *RunDir) asked(kind, pattern string) string {
	if d.Deployment.FoundFiles {
		return ""
	}
	return fmt.Sprintf("files.%s: %q", kind, pattern)
}

func filesOf(p string) ([]string, error) {
	if !isDir(p) {
		return []string{p}, nil
	}
	var out []string
	err := filepath.WalkDir(p, func(q string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, q)
		}
		return err
	})
	return out, err
}

// relative names a file relative to the given RUNDIR or PARENT.
func (d *RunDir) relative(file string) string {
	rel, err := filepath.Rel(d.Dir, file)
	if err != nil || strings.HasPrefix(rel, "..") {
		rel = filepath.Base(file)
	}
	return path.Join(d.Folder, filepath.ToSlash(rel))
}

// rotated matches the backups of a rotated set: of older collectors
// (traces-2022-09-14T05-02-14.173.json) and newer ones (...-size.json), and of
// logrotate (traces.json.2.gz, the higher the older, or traces.json-20260920).
var (
	rotated     = regexp.MustCompile(`^(.*)-(\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}\.\d{3})(?:-[a-z]+)?(\.[^/]*)$`)
	rotatedNum  = regexp.MustCompile(`^(.*\.(?:jsonl?|pb|log|txt|out))\.(\d{1,6})((?:\.(?:gz|zst))?)$`)
	rotatedDate = regexp.MustCompile(`^(.*\.(?:jsonl?|pb|log|txt|out))-(\d{8}(?:-?\d{1,10})?)((?:\.(?:gz|zst))?)$`)
	packedName  = regexp.MustCompile(`\.(?:gz|zst)$`)
)

// rotation is the set a file belongs to and what sorts it there; the live file
// comes last.
func rotation(name string) (set, at string) {
	if m := rotated.FindStringSubmatch(name); m != nil {
		return packedName.ReplaceAllString(m[1]+m[3], ""), m[2]
	}
	if m := rotatedDate.FindStringSubmatch(name); m != nil {
		return m[1], m[2]
	}
	if m := rotatedNum.FindStringSubmatch(name); m != nil {
		n, _ := strconv.Atoi(m[2])
		return m[1], fmt.Sprintf("%07d", 9_999_999-n)
	}
	return packedName.ReplaceAllString(name, ""), "live"
}

// inReadingOrder sorts files by set, backups by time before the live file, and
// marks the files that the next one may continue.
func inReadingOrder(in []source.Input) []source.Input {
	type key struct{ set, at string }
	keys := map[string]key{}
	for _, f := range in {
		set, at := rotation(f.Name)
		keys[f.Name] = key{set, at}
	}
	stat.SortStable(in, func(a, b source.Input) int {
		ka, kb := keys[a.Name], keys[b.Name]
		return cmp.Or(cmp.Compare(ka.set, kb.set), cmp.Compare(ka.at, kb.at))
	})
	for i := range in {
		in[i].Joins = i+1 < len(in) && keys[in[i].Name].set == keys[in[i+1].Name].set
	}
	return in
}
