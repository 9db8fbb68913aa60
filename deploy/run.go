package deploy

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// RunFile is the name of a run directory's description.
const RunFile = "run.yaml"

// hardwareFile is the name of datasheets beside run.yaml; they go before the
// built-in ones.
const hardwareFile = "hardware.json"

// minimalRunYAML is the shortest run.yaml that loads beside a config.json: what
// cannot be guessed. Everything else has vLLM's own default (see docs/run-yaml.md).
const minimalRunYAML = "{model: {config: config.json}, hardware: {name: H100}, " +
	"vllm: {version: 0.15.1, max_num_seqs: 256, max_num_batched_tokens: 8192}}"

// LoadRun reads dir/run.yaml and the model's config.json it names. Each set is
// one "key.path=value" that supplies or overrides a field, such as
// "vllm.max_num_seqs=128"; with the required ones given, run.yaml itself may be
// absent. Unknown keys, wrong types and impossible values are
// trace.SyntaxErrors with file, line and column; all missing fields are listed
// in one error. Beside an error the result is nil or has a name alone.
func LoadRun(dir string, set ...string) (*Deployment, error) {
	return LoadRunFile(filepath.Join(dir, RunFile), set...)
}

// LoadRunFile is LoadRun for a description of another name; file names in it
// are relative to its folder.
func LoadRunFile(name string, set ...string) (*Deployment, error) {
	dir := filepath.Dir(name)
	return loadRun(files.DirFS(dir), filepath.Base(name), dir, set)
}

// LoadSettings is LoadRun without a file: the settings are all there is.
func LoadSettings(set ...string) (*Deployment, error) {
	return loadRun(embed.FS{}, "settings", "", set)
}

func loadRun(fsys fs.FS, base, dir string, set []string) (*Deployment, error) {
	doc := &document{file: filepath.Join(dir, base)}
	root, exists, err := doc.parse(fsys, base)
	if err != nil {
		return nil, err
	}
	if err := override(root, set); err != nil {
		return nil, err
	}
	doc.ownSheets(fsys, dir)
	d, model := doc.deployment(root)
	d.Name = cmp.Or(d.Name, folderName(dir))
	if !doc.sectionOf(root, "").present("files") {
		d.Files, d.FoundFiles = findFiles(fsys), true
	}
	if doc.err == nil && len(doc.missing) == 0 {
		doc.model(fsys, dir, d, model)
		doc.check(d)
	}
	if _, err := fs.Stat(fsys, "run.yml"); err == nil && !exists {
		return nil, &trace.SyntaxError{File: doc.file, Code: missingRunYAML, Msg: "no such file", Hint: "rename run.yml beside it to run.yaml"}
	}
	if err := doc.result(exists); err != nil {
		return &Deployment{Name: d.Name}, err
	}
	if exists {
		d.Read = append(d.Read, doc.file)
	}
	if !model.builtIn {
		d.Read = append(d.Read, joinName(dir, model.config))
	}
	if doc.drafts != "" {
		d.Read = append(d.Read, doc.drafts)
	}
	if doc.sheets != nil {
		d.Read = append(d.Read, joinName(dir, hardwareFile))
	}
	return d, nil
}

// parse returns the document's top mapping; an absent file is an empty one.
func (d *document) parse(fsys fs.FS, base string) (root *yaml.Node, exists bool, err error) {
	root = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	text, err := readLimited(fsys, base)
	if errors.Is(err, fs.ErrNotExist) {
		return root, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", d.file, err)
	}
	node, err := files.ParseYAML(text, d.file)
	if e := (*trace.SyntaxError)(nil); errors.As(err, &e) {
		e.Code, e.Hint = badRunYAML, cmp.Or(e.Hint, "run.yaml is one document of UTF-8 text, indented with blanks and not with tabs")
		return nil, true, e
	}
	if !isNull(node) {
		root = resolve(node)
	}
	return root, true, nil
}

// result turns what went wrong into one error.
func (d *document) result(exists bool) error {
	if d.err != nil {
		return d.err
	}
	if len(d.missing) == 0 {
		return nil
	}
	code, what, do := badRunYAML, "missing ", ", or add as in "
	if !exists {
		code, what, do = missingRunYAML, "no such file, and missing ", ", or write "
	}
	return &trace.SyntaxError{File: d.file, Code: code, Msg: what + strings.Join(d.missing, ", "),
		Hint: "blis-train init --from-cmdline 'vllm serve ...' -o " + d.file + do + minimalRunYAML}
}

// check applies the rules of both spec versions to the whole; those of 1.1 alone
// wait for whoever uses 1.1.
func (d *document) check(dep *Deployment) {
	if d.err != nil {
		return
	}
	var coded *trace.Error
	if errors.As(dep.Check(), &coded) {
		d.err = &trace.SyntaxError{File: d.file, Code: coded.Code, Msg: coded.Msg, Hint: coded.Hint}
	}
}

// override applies "key.path=value" settings to the document's tree.
func override(root *yaml.Node, set []string) error {
	for _, s := range set {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" || root.Kind != yaml.MappingNode {
			return trace.Errorf(BadSetting, "setting %q: want key=value, such as vllm.max_num_seqs=128", s)
		}
		node, err := files.ParseYAML([]byte(value), key)
		if node == nil || err != nil {
			return trace.Errorf(BadSetting, "setting %s: got %q, want a YAML value", key, value)
		}
		node.Line, node.Column = 0, 0
		if err := setPath(root, strings.Split(key, "."), node); err != nil {
			return trace.Errorf(BadSetting, "setting %s: %v", key, err)
		}
	}
	return nil
}

func setPath(node *yaml.Node, keys []string, value *yaml.Node) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("%q stands below a value, want a mapping", keys[0])
	}
	for i := 0; i < len(node.Content); i += 2 {
		if node.Content[i].Value != keys[0] {
			continue
		}
		if len(keys) == 1 {
			node.Content[i+1] = value
			return nil
		}
		if isNull(node.Content[i+1]) {
			node.Content[i+1] = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		}
		return setPath(resolve(node.Content[i+1]), keys[1:], value)
	}
	child := value
	if len(keys) > 1 {
		child = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	}
	node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: keys[0]}, child)
	if len(keys) > 1 {
		return setPath(child, keys[1:], value)
	}
	return nil
}

// folderName is the run's name when run.yaml gives none.
func folderName(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return filepath.Base(dir)
}

// recordingName matches the usual names, what logrotate makes of them
// (traces.json.2.gz, traces.json-20260920) and compressed ones.
var recordingName = regexp.MustCompile(`^(kv_events\.(?:jsonl|msgpack)|client_requests\.jsonl|traces(?:-.*)?\.jsonl?|.*\.pb)` +
	`(?:\.\d{1,6}|-\d{8}(?:-?\d{1,10})?)?(?:\.gz|\.zst)*$`)

// findFiles lists the recordings of a folder by their usual names (spec#wire-files).
func findFiles(fsys fs.FS) Files {
	var f Files
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return f
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		m := recordingName.FindStringSubmatch(e.Name())
		switch {
		case m == nil:
		case strings.HasPrefix(m[1], "kv_events."):
			f.KVEvents = append(f.KVEvents, e.Name())
		case m[1] == "client_requests.jsonl":
			f.ClientRequests = append(f.ClientRequests, e.Name())
		default:
			f.Traces = append(f.Traces, e.Name())
		}
	}
	return f
}

// maxDescription is far above any run.yaml, config.json or hardware.json.
const maxDescription = 16 << 20

// readLimited reads a file of a description.
func readLimited(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return files.ReadBounded(f, name, maxDescription)
}

// leads reports that a name in run.yaml leads out of its folder, by itself or through links.
func leads(dir, name string) bool {
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	rel, err := filepath.Rel(unlinked(dir), unlinked(name))
	return err != nil || !filepath.IsLocal(rel)
}

// unlinked is a path without links, as far as it exists.
func unlinked(path string) string {
	path, _ = filepath.Abs(path)
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(unlinked(parent), filepath.Base(path))
	}
	return path
}

// readBeside reads a file named in run.yaml: relative to its folder, or, for
// absolute names and names that climb out of it, from the disk.
func readBeside(fsys fs.FS, dir, name string) ([]byte, error) {
	if filepath.IsAbs(name) {
		return files.Read(name, maxDescription, false)
	}
	clean := filepath.ToSlash(filepath.Clean(name))
	if strings.HasPrefix(clean, "../") {
		return files.Read(filepath.Join(dir, name), maxDescription, false)
	}
	return readLimited(fsys, clean)
}
