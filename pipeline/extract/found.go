package extract

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// kind is what a file turned out to be by its content.
type kind uint8

const (
	kindOther   kind = iota
	kindLog          // lines of a vLLM log
	kindPasses       // dynamo.fpm.trace.v1
	kindClient       // the result of a load client
	kindSilent       // a vLLM log whose beginning holds no iteration
	kindMetrics      // an answer of /metrics
	kindBroken       // cut, or not to be unpacked
	kindEmpty
)

// unread is a file of the run folder that nothing reads, and why.
type unread struct {
	source.Input
	why  string
	lost bool // a recording stood there: it counts as a record that cannot be read
}

// found adds what run.yaml does not name: server logs, forward-pass traces and
// results of clients in the run folder, known by their content. Where run.yaml
// names files of a kind, those are the ones. Every other file with the name of a recording is
// said to be unread.
func (d *RunDir) found(s *inputSet) error {
	named := d.Deployment.Files.Iterations
	in, err := d.inputs("iterations", named)
	if err != nil {
		return err
	}
	for i := range in {
		k, _ := contentOf(&in[i])
		if k != kindPasses {
			k = kindLog
		}
		s.put(k, in[i])
		d.compare(s, k, &in[i])
	}
	if d.Files != nil {
		s.sortOut()
		return nil
	}
	clients := len(d.Deployment.Files.ClientRequests) == 0
	rest, err := d.unnamed(s)
	if err != nil {
		return err
	}
	var silent []source.Input
	for i := range rest {
		k, why := contentOf(&rest[i])
		isClient := k == kindClient
		name := path.Base(rest[i].Name)
		d.compare(s, k, &rest[i])
		switch {
		case isClient && !clients || (k == kindLog || k == kindPasses) && len(named) > 0:
			s.unread = append(s.unread, unread{rest[i], "run.yaml names recordings of its kind, and not this one", false})
		case k == kindSilent && len(s.traces)+len(named) > 0: // its spans are read
			silent = append(silent, rest[i])
		case s.put(k, rest[i]):
		case recordingName.MatchString(name) && (k == kindBroken || k == kindEmpty || !describes.MatchString(name)):
			s.unread = append(s.unread, unread{rest[i], why, k == kindBroken})
		}
	}
	if len(s.clients) > 0 {
		s.logs = append(s.logs, silent...)
	}
	s.logs, s.passes, s.clients = inReadingOrder(s.logs), inSegments(s.passes), inReadingOrder(s.clients)
	return nil
}

// compare names what the start of a server's log says of the engine and run.yaml otherwise.
func (d *RunDir) compare(s *inputSet, k kind, in *source.Input) {
	if k != kindLog && k != kindSilent {
		return
	}
	src, _ := source.Open(in, nil, source.Limits{MaxLine: logBytes, MaxExpansion: 1 << 14})
	if src == nil {
		return
	}
	defer src.Close()
	if draft, err := deploy.FromLog(io.LimitReader(src.R, startBytes), in.Name); err == nil {
		for _, unlike := range draft.Against(d.Deployment) {
			s.contradicted = append(s.contradicted, trace.Findingf(source.CodeRunContradicted, "%s: %s", in.Name, unlike))
		}
	}
}

// sortOut puts files given as dumps that are something else where they belong.
func (s *inputSet) sortOut() {
	given := s.traces
	s.traces = nil
	for i := range given {
		k := kindOther
		if given[i].Path != "-" && !isPipe(given[i].Path) {
			k, _ = contentOf(&given[i])
		}
		if !s.put(k, given[i]) {
			s.traces = append(s.traces, given[i])
		}
	}
	s.passes = inSegments(s.passes)
}

// put takes a file for what it is; false for one of no use.
func (s *inputSet) put(k kind, in source.Input) bool {
	switch k {
	case kindLog, kindSilent:
		s.logs = append(s.logs, in)
	case kindPasses:
		s.passes = append(s.passes, in)
	case kindClient:
		s.clients = append(s.clients, in)
	case kindMetrics:
		s.metrics = append(s.metrics, in)
	default:
		return false
	}
	return true
}

func isPipe(path string) bool {
	st, err := os.Stat(path)
	return err != nil || !st.Mode().IsRegular()
}

// skipped are files of a run folder that are no recording, by name.
var skipped = regexp.MustCompile(`^(\.|run\.yaml$|config\.json$|hardware\.json$|tokenizer|README|` +
	`.*\.(md|parquet|arrow|safetensors|png|html|py|sh)$)`)

// recordingName matches what recordings are called, also rotated or packed; describes, documents
// about one that may lie beside it.
var (
	recordingName = regexp.MustCompile(`(?i)\.(jsonl?|ndjson|csv|log|prom|pb)([.-][0-9T:-]+)?(\.gz|\.zst)*$`)
	describes     = regexp.MustCompile(`(?i)^(readme|notes?|about|machine|host|system|hardware|environment|env|versions?|params|args|` +
		`settings|meta(data)?|license|vocab|special_tokens_map|added_tokens|chat_template|.*config|.*\.index)\b.*\.json`)
)

// unnamed lists the files of the run folder that are no input yet.
func (d *RunDir) unnamed(s *inputSet) ([]source.Input, error) {
	entries, err := os.ReadDir(d.Dir)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, k := range s.kinds() {
		for _, f := range k.list {
			used[filepath.Clean(f.Path)] = true
		}
	}
	for _, p := range d.Deployment.Read {
		used[filepath.Clean(p)] = true
	}
	var out []source.Input
	for _, e := range entries {
		path := filepath.Join(d.Dir, e.Name())
		if used[path] || skipped.MatchString(e.Name()) || isPipe(path) {
			continue
		}
		out = append(out, source.Input{Path: path, Name: d.relative(path)})
	}
	return out, nil
}

// How much of a file is looked at: documents say what they are at the start, a
// log may print much before its first iteration.
const (
	headBytes  = 1 << 15
	logBytes   = 8 << 20
	startBytes = 1 << 20 // an engine's start
)

// Words that tell forms apart.
var (
	vllmWords = [][]byte{[]byte("vLLM API server version"), []byte("non-default args"), []byte("(EngineCore"), []byte("(APIServer"),
		[]byte("(ApiServer_"), []byte(": Avg prompt throughput: ")}
)

// contentOf looks at the beginning of a file, and says why it is of no use. Whoever names one
// that cannot be read hears more when it is read.
func contentOf(in *source.Input) (kind, string) {
	src, err := source.Open(in, nil, source.Limits{MaxLine: logBytes, MaxExpansion: 1 << 14})
	if src == nil {
		return kindBroken, fmt.Sprint(err)
	}
	defer src.Close()
	if e := source.AsSyntax(err); err != nil && (e == nil || e.Code != source.CodeNotOTLP) {
		return kindBroken, fmt.Sprint(err)
	}
	head, err := src.R.Peek(headBytes)
	head = bytes.Clone(head) // the search for iterations reads on
	body := bytes.TrimLeft(head, " \t\r\n\ufeff\x00")
	switch {
	case len(body) == 0 && err != nil && err != io.EOF:
		return kindBroken, fmt.Sprint(err)
	case len(body) == 0 && len(head) < headBytes:
		return kindEmpty, "it is empty, want a recording"
	case bytes.IndexByte(head, 0) >= 0:
		return kindOther, "it is binary"
	case (body[0] == '{' || body[0] == '[') && enginelog.IsPassTrace(body):
		return kindPasses, ""
	case bytes.Contains(head, []byte(`"resourceSpans"`)):
		return kindOther, "its spans are read where `files.traces` of run.yaml names it"
	case clients.IsClientFile(body):
		return kindClient, ""
	case enginelog.IsMetrics(body):
		return kindMetrics, ""
	case hasIteration(src.R):
		return kindLog, ""
	case slices.ContainsFunc(vllmWords, func(w []byte) bool { return bytes.Contains(head, w) }):
		return kindSilent, ""
	}
	if err := clients.RefuseForeign(in.Name, head); err != nil {
		return kindOther, strings.TrimPrefix(err.Msg, in.Name+": ") + ": " + err.Hint
	}
	if why := cutJSON(in); why != "" && (body[0] == '{' || body[0] == '[') {
		return kindBroken, why
	}
	return kindOther, "got " + clients.DescribeHead(body) + ", want a form of docs/formats.md"
}

// cutJSON says where the JSON of a file ends within a value; "" for one that does not, as far
// as it is looked at.
func cutJSON(in *source.Input) string {
	src, err := source.Open(in, nil, source.Limits{MaxLine: logBytes, MaxExpansion: 1 << 14})
	if src == nil {
		return fmt.Sprint(err)
	}
	defer src.Close()
	part := &io.LimitedReader{R: src.R, N: logBytes}
	dec := json.NewDecoder(part)
	for {
		var value json.RawMessage
		switch err := dec.Decode(&value); {
		case err == io.ErrUnexpectedEOF && part.N > 0:
			return fmt.Sprintf("its JSON ends within a value that begins behind byte %d, want the whole of it", dec.InputOffset())
		case err != nil:
			return ""
		}
	}
}

// hasIteration reads on until an iteration comes.
func hasIteration(r *bufio.Reader) bool {
	for read := 0; read < logBytes; {
		line, err := r.ReadSlice('\n')
		if enginelog.HasPass(line) {
			return true
		}
		if err != nil && err != bufio.ErrBufferFull {
			return false
		}
		read += len(line)
	}
	return false
}

// segment matches the parts of a forward-pass trace: <prefix>.<producer>.<n>.jsonl.gz.
var segment = regexp.MustCompile(`^(.*)\.(\d{1,12})\.jsonl(?:\.gz|\.zst)?$`)

// inSegments sorts the parts of each producer by number. A part ends with a
// whole record, or was cut.
func inSegments(in []source.Input) []source.Input {
	key := func(f *source.Input) (string, string) {
		if m := segment.FindStringSubmatch(f.Name); m != nil {
			return m[1], strings.Repeat("0", 12-len(m[2])) + m[2]
		}
		return f.Name, ""
	}
	slices.SortStableFunc(in, func(a, b source.Input) int {
		setA, atA := key(&a)
		setB, atB := key(&b)
		return strings.Compare(setA+"\x00"+atA, setB+"\x00"+atB)
	})
	for i := range in {
		in[i].Joins = false
	}
	return in
}

// refuseForeign refuses inputs that are exports of another tool.
func refuseForeign(in []source.Input) error {
	for i := range in {
		if in[i].Path == "-" || isPipe(in[i].Path) {
			continue
		}
		if err := clients.RefuseForeign(in[i].Name, beginning(&in[i])); err != nil {
			return err
		}
	}
	return nil
}

// beginning is the beginning of a file, unpacked; nothing of one that cannot be read.
func beginning(in *source.Input) []byte {
	src, _ := source.Open(in, nil, source.Limits{MaxLine: logBytes, MaxExpansion: 1 << 14})
	if src == nil {
		return nil
	}
	defer src.Close()
	head, _ := src.R.Peek(headBytes)
	return bytes.Clone(head)
}

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
