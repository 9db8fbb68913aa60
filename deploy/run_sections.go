package deploy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/trace"
)

// modelSection is the model part of run.yaml before config.json is read.
type modelSection struct {
	opts   ModelOptions
	config string
	at     *yaml.Node
	sizes  StatedSizes

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
		opts: ModelOptions{
			ID:                  s.text("id", ""),
			DType:               s.valueType("dtype", "", dtypeBytes, "auto, float32, float16, bfloat16 or an fp8 name"),
			KVCacheDType:        s.valueType("kv_cache_dtype", "auto", kvTypeBytes, "auto, bfloat16, float16, float32, fp8* or nvfp4"),
			NumMLPProj:          s.atLeast("n_mlp_proj", 1, "projections"),
			AssumeFullAttention: s.boolean("assume_full_attention").Or(false),
			Assume:              s.text("assume", ""),
		},
		at: s.find("config"),
	}
	m.config = s.text("config", "")
	m.sizes.WeightBytesPerGPU = s.within("weight_bytes_per_gpu", "B", 0, maxRate).V
	m.sizes.BytesPerBlock = s.within("bytes_per_block", "B", 0, maxRate).V
	if id, known := ModelNamed(m.opts.ID); known && m.config == "" {
		m.opts.ID, m.builtIn = id, true
	}
	s.require(m.config != "" || m.builtIn, "config")
	s.done()
	return m
}

// model loads config.json into dep.
func (d *document) model(fsys fs.FS, dir string, dep *Deployment, m modelSection) {
	text, quant := configs(m.opts.ID)
	var err error
	if m.builtIn {
		m.config, m.at = m.opts.ID+"/config.json", &yaml.Node{}
	}
	for _, name := range []string{m.config, QuantConfigName(m.config)} {
		if m.at.Line > 0 && leads(dir, name) { // none in what was typed
			d.fail(m.at, missingConfig, "copy it into the folder, or give its path: --set model.config=PATH",
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
		d.fail(m.at, missingConfig, "put the model's Hugging Face config.json there", "model.config: got %q: %v", m.config, err)
		return
	}
	m.opts.MaxModelLen = dep.Engine.MaxModelLen
	if !m.builtIn {
		m.opts.QuantConfig, err = readBeside(fsys, dir, QuantConfigName(m.config))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.fail(m.at, missingConfig, "mend it, or take it away", "%s: %v", QuantConfigName(m.config), err)
		return
	}
	model, err := LoadModel(bytes.NewReader(text), joinName(dir, m.config), m.opts)
	if e := (*trace.SyntaxError)(nil); errors.As(err, &e) && e.Code == unsupportedModel && m.sizes.WeightBytesPerGPU > 0 &&
		(dep.Engine.KVBlocksGPU.OK || m.sizes.BytesPerBlock > 0) {
		m.sizes.Why = e.Msg
		model, err = Model{ID: cmp.Or(m.opts.ID, "unknown"), Sizes: &m.sizes}, nil
	}
	if err != nil {
		d.err = err
		return
	}
	model.ID = cmp.Or(model.ID, model.ModelType)
	dep.Model = model
	d.drafter(fsys, dir, &dep.Engine)
	if e := &dep.Engine; !m.prefixesStated && model.Layered != nil && !e.IsSince(statePrefixesSince) {
		w := model.Layered.Work(dep.Parallel())
		e.PrefixCaching = w.StateDecodeFLOPs == 0
	}
}

// drafter reads the model that drafts: a built-in one, or that of the config.json that speculative_config names, by itself or
// with its folder. One that is not there stays unknown.
func (d *document) drafter(fsys fs.FS, dir string, e *Engine) {
	s, err := e.Speculation()
	if err != nil || s == nil || s.Method != "draft_model" || s.Model == "" {
		return
	}
	opts, name := ModelOptions{ID: s.Model}, s.Model
	id, known := ModelNamed(s.Model)
	text, quant := configs(id)
	if opts.QuantConfig = quant; !known {
		if filepath.Ext(name) != ".json" {
			name = filepath.Join(name, "config.json")
		}
		if text, err = readBeside(fsys, dir, name); err != nil {
			return
		}
		opts.QuantConfig, _ = readBeside(fsys, dir, QuantConfigName(name))
	}
	m, err := LoadModel(bytes.NewReader(text), joinName(dir, name), opts)
	if err != nil {
		d.err = err
		return
	}
	if e.Draft = &m; !known {
		d.drafts = joinName(dir, name)
	}
}

// statePrefixesSince is the first release that caches prefixes of recurrent states unless told otherwise: off in 0.24, on in 0.26.
var statePrefixesSince = [2]int{0, 25}

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
		start, end := s.atLeast("start_ns", 0, "ns"), s.atLeast("end_ns", 0, "ns")
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
