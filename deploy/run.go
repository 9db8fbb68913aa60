package deploy

// This file loads a run folder: run.yaml, the model's config.json and the datasheets in it.

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// RunFile is the name of a run directory's description.
const RunFile = "run.yaml"

// hardwareFile is the name of a file of datasheets beside run.yaml, which override the built-in
// ones.
const hardwareFile = "hardware.json"

// minimalRunYAML is the shortest run.yaml that loads beside a config.json: the settings that cannot
// be guessed. All others have vLLM's own default (see docs/run-yaml.md).
const minimalRunYAML = "{model: {config: config.json}, hardware: {name: H100}, " +
	"vllm: {version: 0.15.1, max_num_seqs: 256, max_num_batched_tokens: 8192}}"

// LoadRun returns the deployment that dir/run.yaml and the model's config.json it names describe.
// Each set is one "key.path=value" that supplies or overrides a field, such as
// "vllm.max_num_seqs=128"; if they supply all required fields, run.yaml may be absent. Unknown
// keys, wrong types and impossible values are trace.SyntaxErrors with file, line and column, those of set are
// bad_setting; one error lists all missing fields. With an error the result is nil, or has only a name.
func LoadRun(dir string, set ...string) (*Deployment, error) {
	return LoadRunFile(filepath.Join(dir, RunFile), set...)
}

// LoadRunFile does what LoadRun does for a description of another name; file names in it are
// relative to its folder.
func LoadRunFile(name string, set ...string) (*Deployment, error) {
	dir := filepath.Dir(name)
	return loadRun(files.DirFS(dir), filepath.Base(name), dir, set)
}

// LoadSettings does what LoadRun does without a file: the settings supply everything.
func LoadSettings(set ...string) (*Deployment, error) {
	return loadRun(embed.FS{}, SettingsName, "", set)
}

// SettingsName is used in errors of LoadSettings in place of the file name of other deployments.
const SettingsName = "settings"

// loadRun reads the file base of the folder dir, which fsys has.
func loadRun(fsys fs.FS, base, dir string, set []string) (*Deployment, error) {
	doc := &document{Reader: files.Reader{File: filepath.Join(dir, base), Code: badRunYAML}}
	root, exists, err := doc.parseFile(fsys, base)
	if err != nil {
		return nil, err
	}
	if err := applySettings(root, set); err != nil {
		return nil, err
	}
	doc.ownSheets(fsys, dir)
	f := doc.read(root)
	d := &f.dep
	d.Name = cmp.Or(d.Name, folderName(dir))
	if !doc.Section(root, "").Has("files") {
		d.Files, d.FoundFiles = findFiles(fsys), true
	}
	if doc.Err == nil && len(doc.missing) == 0 {
		doc.loadModel(fsys, dir, f)
		doc.checkDeployment(d)
	}
	if _, err := fs.Stat(fsys, "run.yml"); err == nil && !exists {
		return nil, &trace.SyntaxError{File: doc.File, Code: missingRunYAML, Msg: "no such file", Hint: "rename run.yml beside it to run.yaml"}
	}
	if err := doc.asError(exists); err != nil {
		if base != SettingsName {
			err = settingError(err, set)
		}
		return &Deployment{Name: d.Name}, err
	}
	if exists {
		d.Read = append(d.Read, doc.File)
	}
	if !f.configIsBuiltIn {
		d.Read = append(d.Read, joinName(dir, f.config))
	}
	if doc.drafts != "" {
		d.Read = append(d.Read, doc.drafts)
	}
	if doc.sheets != nil {
		d.Read = append(d.Read, joinName(dir, hardwareFile))
	}
	return d, nil
}

// parseFile returns the document's top mapping, an empty one for an absent file.
func (d *document) parseFile(fsys fs.FS, base string) (root *yaml.Node, exists bool, err error) {
	root = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	text, err := readLimited(fsys, base)
	if errors.Is(err, fs.ErrNotExist) {
		return root, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", d.File, err)
	}
	node, err := files.ParseYAML(text, d.File)
	if e := (*trace.SyntaxError)(nil); errors.As(err, &e) {
		e.Code, e.Hint = badRunYAML, cmp.Or(e.Hint, "run.yaml is one document of UTF-8 text, indented with blanks and not with tabs")
		return nil, true, e
	}
	if !files.IsNull(node) {
		root = node
	}
	return root, true, nil
}

// asError returns the first error, or one error for all missing keys.
func (d *document) asError(exists bool) error {
	if d.Err != nil {
		return d.Err
	}
	if len(d.missing) == 0 {
		return nil
	}
	code := badRunYAML
	what := "missing "
	do := ", or add as in "
	if !exists {
		code = missingRunYAML
		what = "no such file, and missing "
		do = ", or write "
	}
	return &trace.SyntaxError{File: d.File, Code: code, Msg: what + strings.Join(d.missing, ", "),
		Hint: "blis-train init --from-cmdline 'vllm serve ...' -o " + d.File + do + minimalRunYAML}
}

// checkDeployment applies the rules of all spec versions. The rules of one version are applied
// where that version is used.
func (d *document) checkDeployment(dep *Deployment) {
	if d.Err != nil {
		return
	}
	var coded *trace.Error
	if errors.As(dep.Check(), &coded) {
		d.Err = &trace.SyntaxError{File: d.File, Code: coded.Code, Msg: coded.Msg, Hint: coded.Hint}
	}
}

// loadModel reads the model's config.json, or the built-in one.
func (d *document) loadModel(fsys fs.FS, dir string, f *runFile) {
	var text []byte
	var err error
	if f.configIsBuiltIn {
		text, f.model.QuantConfig = model.BuiltInConfig(f.model.ID)
		f.config = f.model.ID + "/config.json"
	} else if text = d.readConfig(fsys, dir, f); d.Err != nil {
		return
	}
	f.model.MaxModelLen = f.dep.Engine.MaxModelLen
	loaded, err := model.Load(bytes.NewReader(text), joinName(dir, f.config), f.model)
	// A model whose layers are not known is accepted if run.yaml states the sizes that are needed of it.
	hasSizes := f.sizes.WeightBytesPerGPU > 0 && (f.dep.Engine.KVBlocksGPU.OK || f.sizes.BytesPerBlock > 0)
	if e := (*trace.SyntaxError)(nil); errors.As(err, &e) && e.Code == model.UnsupportedModel && hasSizes {
		f.sizes.Why = e.Msg
		loaded = model.Model{ID: cmp.Or(f.model.ID, "unknown"), Sizes: &f.sizes}
		err = nil
	}
	if err != nil {
		d.Err = err
		return
	}
	loaded.ID = cmp.Or(loaded.ID, loaded.ModelType)
	f.dep.Model = loaded
	d.loadDrafter(fsys, dir, &f.dep)
	// The default of prefix caching, on, is off for models with recurrent states before statePrefixesSince.
	if e := &f.dep.Engine; !f.prefixesStated && loaded.Layered != nil && !e.IsSince(statePrefixesSince) {
		w := loaded.Layered.Work(f.dep.Parallel())
		e.PrefixCaching = w.StateDecodeFLOPs == 0
	}
}

// readConfig returns the config.json that run.yaml names, and reads the hf_quant_config.json beside
// it if there is one.
func (d *document) readConfig(fsys fs.FS, dir string, f *runFile) (text []byte) {
	quantName := model.QuantConfigName(f.config)
	for _, name := range []string{f.config, quantName} {
		// A name given with --set has no line: the person who runs the command may name any file.
		if f.configAt.Line > 0 && leadsOut(dir, name) {
			d.Fail(f.configAt, model.MissingConfig, "copy it into the folder, or give its path: --set model.config=PATH",
				"model.config: got %q, which leads out of the run folder", name)
			return nil
		}
	}
	text, err := readBeside(fsys, dir, f.config)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("no such file")
		}
		d.Fail(f.configAt, model.MissingConfig, "put the model's Hugging Face config.json there", "model.config: got %q: %v", f.config, err)
		return nil
	}
	f.model.QuantConfig, err = readBeside(fsys, dir, quantName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.Fail(f.configAt, model.MissingConfig, "mend it, or take it away", "%s: %v", quantName, err)
	}
	return text
}

// loadDrafter reads the draft model of speculative_config: a built-in one, or the config.json or
// folder that it names. One that does not exist stays unknown.
func (d *document) loadDrafter(fsys fs.FS, dir string, dep *Deployment) {
	s, err := dep.Engine.Speculation()
	if err != nil || s == nil || s.Method != "draft_model" || s.Model == "" {
		return
	}
	opts, name := model.Options{ID: s.Model}, s.Model
	id, known := model.BuiltInID(s.Model)
	text, quant := model.BuiltInConfig(id)
	opts.QuantConfig = quant
	if !known {
		if filepath.Ext(name) != ".json" {
			name = filepath.Join(name, "config.json")
		}
		if text, err = readBeside(fsys, dir, name); err != nil {
			return
		}
		opts.QuantConfig, _ = readBeside(fsys, dir, model.QuantConfigName(name))
	}
	m, err := model.Load(bytes.NewReader(text), joinName(dir, name), opts)
	if err != nil {
		d.Err = err
		return
	}
	dep.Drafter = &m
	if !known {
		d.drafts = joinName(dir, name)
	}
}

// statePrefixesSince is the first release that caches prefixes of recurrent states by default: off
// in 0.24, on in 0.26.
var statePrefixesSince = vllm.Release{0, 25}

// ownSheets reads the folder's hardware.json if there is one.
func (d *document) ownSheets(fsys fs.FS, dir string) {
	text, err := readLimited(fsys, hardwareFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		d.Err = fmt.Errorf("read %s: %w", joinName(dir, hardwareFile), err)
		return
	}
	d.sheets, d.Err = readDatasheets(bytes.NewReader(text), joinName(dir, hardwareFile))
}
