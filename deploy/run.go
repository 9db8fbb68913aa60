package deploy

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
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
	code := badRunYAML
	what := "missing "
	do := ", or add as in "
	if !exists {
		code = missingRunYAML
		what = "no such file, and missing "
		do = ", or write "
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

// readLimited reads a file of a description.
func readLimited(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return files.ReadBounded(f, name, model.MaxFileSize)
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
		return files.Read(name, model.MaxFileSize, false)
	}
	clean := filepath.ToSlash(filepath.Clean(name))
	if strings.HasPrefix(clean, "../") {
		return files.Read(filepath.Join(dir, name), model.MaxFileSize, false)
	}
	return readLimited(fsys, clean)
}

// modelSection is the model part of run.yaml before config.json is read.
type modelSection struct {
	opts   model.Options
	config string
	at     *yaml.Node
	sizes  model.StatedSizes

	builtIn bool // the configuration is one of [Models]

	prefixesStated bool // enable_prefix_caching stands in run.yaml
}

// deployment reads every section; the model is loaded afterwards.
func (d *document) deployment(root *yaml.Node) (*Deployment, modelSection) {
	top := d.sectionOf(root, "")
	dep := &Deployment{
		Name:       top.text("name", ""),
		Provenance: top.text("provenance", ""),
		TP:         top.atLeast("tensor_parallel_size", 1, "devices").Or(1),
		PP:         top.atLeast("pipeline_parallel_size", 1, "devices").Or(1),
		DP:         top.atLeast("data_parallel_size", 1, "engines").Or(1),
	}
	model := d.modelPart(top.sub("model"))
	dep.Hardware = d.hardware(top.sub("hardware"))
	dep.Engine = d.engine(top.sub("vllm"), &model)
	dep.Tracing = d.tracing(top.sub("tracing"))
	dep.Phases = d.phases(top)
	dep.Workload = top.free("workload")
	dep.Files = d.files(top.sub("files"))
	top.done()
	return dep, model
}

func (d *document) modelPart(s *section) modelSection {
	m := modelSection{
		opts: model.Options{
			ID:                  s.text("id", ""),
			DType:               s.valueType("dtype", "", model.DTypeBytes, "auto, float32, float16, bfloat16 or an fp8 name"),
			KVCacheDType:        s.valueType("kv_cache_dtype", "auto", model.KVTypeBytes, "auto, bfloat16, float16, float32, fp8* or nvfp4"),
			NumMLPProj:          s.atLeast("n_mlp_proj", 1, "projections"),
			AssumeFullAttention: s.boolean("assume_full_attention").Or(false),
			Assume:              s.text("assume", ""),
		},
		at: s.find("config"),
	}
	m.config = s.text("config", "")
	m.sizes.WeightBytesPerGPU = s.within("weight_bytes_per_gpu", "B", 0, maxRate).V
	m.sizes.BytesPerBlock = s.within("bytes_per_block", "B", 0, maxRate).V
	if id, known := model.BuiltInID(m.opts.ID); known && m.config == "" {
		m.opts.ID, m.builtIn = id, true
	}
	s.require(m.config != "" || m.builtIn, "config")
	s.done()
	return m
}

// model loads config.json into dep.
func (d *document) model(fsys fs.FS, dir string, dep *Deployment, m modelSection) {
	text, quant := model.BuiltInConfig(m.opts.ID)
	var err error
	if m.builtIn {
		m.config = m.opts.ID + "/config.json"
		m.at = &yaml.Node{}
	}
	for _, name := range []string{m.config, model.QuantConfigName(m.config)} {
		if m.at.Line > 0 && leads(dir, name) { // none in what was typed
			d.fail(m.at, model.MissingConfig, "copy it into the folder, or give its path: --set model.config=PATH",
				"model.config: got %q, which leads out of the run folder", name)
			return
		}
	}
	if m.builtIn {
		m.opts.QuantConfig = quant
	} else if text, err = readBeside(fsys, dir, m.config); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("no such file")
		}
		d.fail(m.at, model.MissingConfig, "put the model's Hugging Face config.json there", "model.config: got %q: %v", m.config, err)
		return
	}
	m.opts.MaxModelLen = dep.Engine.MaxModelLen
	if !m.builtIn {
		m.opts.QuantConfig, err = readBeside(fsys, dir, model.QuantConfigName(m.config))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.fail(m.at, model.MissingConfig, "mend it, or take it away", "%s: %v", model.QuantConfigName(m.config), err)
		return
	}
	loaded, err := model.Load(bytes.NewReader(text), joinName(dir, m.config), m.opts)
	if e := (*trace.SyntaxError)(nil); errors.As(err, &e) && e.Code == model.UnsupportedModel && m.sizes.WeightBytesPerGPU > 0 &&
		(dep.Engine.KVBlocksGPU.OK || m.sizes.BytesPerBlock > 0) {
		m.sizes.Why = e.Msg
		loaded = model.Model{ID: cmp.Or(m.opts.ID, "unknown"), Sizes: &m.sizes}
		err = nil
	}
	if err != nil {
		d.err = err
		return
	}
	loaded.ID = cmp.Or(loaded.ID, loaded.ModelType)
	dep.Model = loaded
	d.drafter(fsys, dir, dep)
	if e := &dep.Engine; !m.prefixesStated && loaded.Layered != nil && !e.IsSince(statePrefixesSince) {
		w := loaded.Layered.Work(dep.Parallel())
		e.PrefixCaching = w.StateDecodeFLOPs == 0
	}
}

// drafter reads the model that drafts: a built-in one, or that of the config.json that speculative_config names, by itself or
// with its folder. One that is not there stays unknown.
func (d *document) drafter(fsys fs.FS, dir string, dep *Deployment) {
	s, err := dep.Engine.Speculation()
	if err != nil || s == nil || s.Method != "draft_model" || s.Model == "" {
		return
	}
	opts, name := model.Options{ID: s.Model}, s.Model
	id, known := model.BuiltInID(s.Model)
	text, quant := model.BuiltInConfig(id)
	if opts.QuantConfig = quant; !known {
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
		d.err = err
		return
	}
	if dep.Drafter = &m; !known {
		d.drafts = joinName(dir, name)
	}
}

// statePrefixesSince is the first release that caches prefixes of recurrent states unless told otherwise: off in 0.24, on in 0.26.
var statePrefixesSince = vllm.Release{0, 25}

func (d *document) hardware(s *section) Hardware {
	h := Hardware{Name: s.text("name", ""), PCIeEfficiency: DefaultPCIeEfficiency, InterconnectLatencyUs: DefaultLatencyUs}
	if sheet, known := d.datasheet(h.Name); known {
		h = sheet
	}
	numbers := []struct {
		key, unit string
		lo, hi    float64
		at        *float64
	}{
		// upper bounds far above any device: they catch a value in another unit
		{"TFlopsPeak", "1e12 FLOP/s", 0, 1e5, &h.TFlopsPeak},
		{"TFlopsFP8", "1e12 FLOP/s", 0, 1e5, &h.TFlopsFP8},
		{"BwPeakTBs", "1e12 B/s", 0, 1e3, &h.BwPeakTBs},
		{"memory_gb", "1e9 B", 0, 1e5, &h.MemoryGB},
		{"pcie_bandwidth_gb_s", "1e9 B/s", 0, 1e4, &h.PCIeBandwidthGBs},
		{"pcie_efficiency", "of the bandwidth", 0, 1, &h.PCIeEfficiency},
		{"interconnect_bandwidth_gb_s", "1e9 B/s", 0, 1e5, &h.InterconnectBandwidthGBs},
		{"interconnect_latency_us", "us", 0, 1e5, &h.InterconnectLatencyUs},
	}
	for _, n := range numbers {
		if v := s.within(n.key, n.unit, n.lo, n.hi); v.OK {
			*n.at = v.V
		}
	}
	s.done()
	if h.TFlopsPeak == 0 && h.BwPeakTBs == 0 && h.Name != "" && d.err == nil {
		d.fail(s.find("name"), unknownHardware, "known: "+datasheetNames(),
			"hardware.name: got %q, want a built-in datasheet, or TFlopsPeak and BwPeakTBs beside it", h.Name)
	}
	s.require(h.TFlopsPeak != 0 || h.Name != "", "name (or hardware.TFlopsPeak)")
	if h.Name == "" {
		h.Name = "unnamed"
		s.require(h.BwPeakTBs != 0 || h.TFlopsPeak == 0, "BwPeakTBs")
	}
	return h
}

// datasheet finds a device in the folder's own hardware.json, then among the
// built-in ones.
func (d *document) datasheet(name string) (Hardware, bool) {
	for _, h := range d.sheets {
		if name != "" && aliasKey(h.Name) == aliasKey(name) {
			return h, true
		}
	}
	return Datasheet(name)
}

// ownSheets reads hardware.json of the folder, if there is one.
func (d *document) ownSheets(fsys fs.FS, dir string) {
	text, err := readLimited(fsys, hardwareFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		d.err = fmt.Errorf("read %s: %w", joinName(dir, hardwareFile), err)
		return
	}
	d.sheets, d.err = readDatasheets(bytes.NewReader(text), joinName(dir, hardwareFile))
}

func (d *document) tracing(s *section) Tracing {
	t := Tracing{
		JourneySampleRate: s.within("journey_tracing_sample_rate", "requests per request", 0, 1),
		StepSampleRate:    s.within("step_tracing_sample_rate", "steps per step", 0, 1),
		RichSubsampleRate: s.within("step_tracing_rich_subsample_rate", "steps per sampled step", 0, 1),
		ClosureInterval:   s.atLeast("step_tracing_closure_interval", 1, "steps"),
		EventCountLimit:   s.atLeast("otel_span_event_count_limit", 1, "events"),
		API:               s.text("api", ""),
		Published:         s.text("published", ""),
	}
	s.done()
	return t
}

func (d *document) files(s *section) Files {
	f := Files{Traces: s.names("traces"), KVEvents: s.names("kv_events"), ClientRequests: s.names("client_requests"),
		Iterations: s.names("iterations")}
	s.done()
	return f
}

func (d *document) phases(top *section) []Phase {
	list := top.find("phases")
	if list == nil {
		return nil
	}
	if list.Kind != yaml.SequenceNode {
		d.fail(list, badRunYAML, "", "phases: got %s, want a list", kindName(list))
		return nil
	}
	var phases []Phase
	for _, node := range list.Content {
		s := d.sectionOf(resolve(node), "phases[]")
		p := Phase{Name: s.text("name", ""), Load: s.oneOf("load", LoadOpen, LoadOpen, LoadClosed)}
		start := s.atLeast("start_ns", 0, "ns")
		end := s.atLeast("end_ns", 0, "ns")
		s.done()
		p.StartNs, p.EndNs = start.V, end.V
		switch {
		case p.Name == "" || !start.OK || !end.OK:
			d.fail(node, badRunYAML, "", "phases[]: want name, start_ns and end_ns")
		case p.EndNs <= p.StartNs:
			d.fail(node, badRunYAML, "", "phase %q: got end_ns %d, want > start_ns %d", p.Name, p.EndNs, p.StartNs)
		case len(phases) > 0 && p.StartNs < phases[len(phases)-1].EndNs:
			d.fail(node, badRunYAML, "", "phase %q: got start_ns %d, want >= %d, the end of phase %q", p.Name, p.StartNs,
				phases[len(phases)-1].EndNs, phases[len(phases)-1].Name)
		}
		phases = append(phases, p)
	}
	return phases
}

// joinName is a file name for messages.
func joinName(dir, name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(dir, name)
}
