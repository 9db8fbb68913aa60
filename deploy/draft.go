package deploy

// This file holds and writes a run.yaml that is assembled from a command line or a log.

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Draft is a run.yaml that is assembled from command lines and logs. Values are stored by path
// ("vllm.max_num_seqs").
type Draft struct {
	values map[string]any    // int64, float64, bool, string, list or mapping; nil: unknown, with a note
	notes  map[string]string // comments beside values that were derived or assumed, by path

	findings []trace.Finding // settings that were omitted, with the reason
	refused  error           // the first flag with a value that vLLM does not start with
	unknown  []string        // flags of the command line that no release has, without dashes
	isOthers bool            // the command line is of a program that has flags of its own beside vLLM's

	// From a log:

	longest  int64 // max_seq_len of the engine's configuration line; 0: no such line
	kvTokens int64 // size of the KV cache in tokens; 0: not printed
	isCPU    bool  // the engine runs on a CPU
	hasArgs  bool  // the log prints the arguments that differ from vLLM's defaults

	isUnquantized bool // the engine's configuration line states quantization=None
}

// NewDraft returns an empty draft.
func NewDraft() *Draft { return &Draft{values: map[string]any{}, notes: map[string]string{}} }

// Set stores a value at a path of run.yaml.
func (d *Draft) Set(path string, value any) { d.SetNoted(path, value, "") }

// SetNoted stores a value with a comment that is written beside it.
func (d *Draft) SetNoted(path string, value any, note string) {
	d.values[path] = value
	d.notes[path] = note
}

// Settings returns the values as "path=value", sorted: the form that [LoadSettings] takes.
func (d *Draft) Settings() (set []string) {
	for _, path := range slices.Sorted(maps.Keys(d.values)) {
		if v := d.values[path]; v != nil {
			set = append(set, path+"="+scalar(v))
		}
	}
	return set
}

// Get returns the value under a path, nil when there is none.
func (d *Draft) Get(path string) any { return d.values[path] }

// addFinding adds a finding, unless there is an equal one.
func (d *Draft) addFinding(f trace.Finding) {
	if !slices.Contains(d.findings, f) {
		d.findings = append(d.findings, f)
	}
}

// Findings returns warnings about what the draft omits (unknown_flag, unknown_hardware) and what of
// it is not modelled (the codes of [vllm.Limits]). m is the model, nil if its config.json is not
// known.
func (d *Draft) Findings(m *model.Model) []trace.Finding {
	out := slices.Clone(d.findings)
	version, _ := d.Get("vllm.version").(string)
	if v, ok := vllm.ParseRelease(version); ok && vllm.NewestFlags().Before(v) {
		out = append(out, trace.Findingf(UnknownFlag, "vLLM %s is newer than the flags this version knows: those of %s are taken", version,
			vllm.NewestFlags()))
	}
	get := func(flag string) any { return d.Get(pathOfFlag(flag)) }
	for _, h := range vllm.Reached(get, m != nil && m.IsMoE()) {
		out = append(out, h.Finding())
	}
	name, _ := d.Get("hardware.name").(string)
	_, builtIn := Datasheet(name)
	if d.isCPU && builtIn {
		out = append(out, trace.Findingf(unknownHardware, "hardware.name says %s and the log is of vLLM's CPU back end; name the CPU, with "+
			"hardware.TFlopsPeak and hardware.BwPeakTBs", name))
	}
	if name != "" && !builtIn && d.Get("hardware.TFlopsPeak") == nil {
		out = append(out, trace.Findingf(unknownHardware, "hardware.name: got %q, which has no built-in datasheet; fill in its rates, or name one of %s",
			name, datasheetNames()))
	}
	out = append(out, unmeasuredDevice(name)...)
	if m != nil {
		out = append(out, m.NotModelled()...)
	}
	return out
}

// DropUnknown removes the flags that the draft's vLLM version does not have. Call it after all
// sources are merged, because one may have the flag and another the version.
func (d *Draft) DropUnknown() {
	version, _ := d.Get("vllm.version").(string)
	for _, key := range d.otherFlags(vllmKeys()) {
		if !isServeFlag(key, version) {
			delete(d.values, "vllm."+key)
			d.unknownFlag("--"+strings.ReplaceAll(key, "_", "-"), key, version)
		}
	}
}

// ModelOptions returns the settings of the draft that change how its config.json is read.
func (d *Draft) ModelOptions() model.Options {
	text := func(path string) string {
		s, _ := d.Get(path).(string)
		return s
	}
	o := model.Options{
		ID:                 text("model.id"),
		DType:              text("model.dtype"),
		KVCacheDType:       text("model.kv_cache_dtype"),
		Quantization:       text("vllm.quantization"),
		MambaCacheDType:    text("vllm.mamba_cache_dtype"),
		MambaSSMCacheDType: text("vllm.mamba_ssm_cache_dtype"),
	}
	if n, ok := d.Get("vllm.max_model_len").(int64); ok {
		o.MaxModelLen = trace.Some(n)
	}
	return o
}

// Merge adds what d does not have of other: values with their notes, findings, whether the engine runs on a
// CPU, and the larger KV cache in tokens. What only the reader of one source needs (unknown and refused flags,
// remarks of a log) is not merged.
func (d *Draft) Merge(other *Draft) {
	for _, f := range other.findings {
		d.addFinding(f)
	}
	d.isCPU = d.isCPU || other.isCPU
	d.kvTokens = max(d.kvTokens, other.kvTokens)
	for path, value := range other.values {
		if d.values[path] == nil {
			d.SetNoted(path, value, other.notes[path])
		}
	}
}

// required returns the paths without which run.yaml does not load: those of every run, and the
// rates of a device that has no built-in datasheet.
func (d *Draft) required() []string {
	id, _ := d.Get("model.id").(string)
	_, hasModel := model.BuiltInID(id)
	name, _ := d.Get("hardware.name").(string)
	_, hasDatasheet := Datasheet(name)
	var list []string
	for _, section := range runKeys().sections {
		for _, k := range section.keys {
			isKnown := section.name == "model" && hasModel ||
				section.name == "hardware" && k.Name != "name" && (name == "" || hasDatasheet)
			if k.Required != "" && !isKnown {
				list = append(list, section.name+"."+k.Name)
			}
		}
	}
	return list
}

// Missing returns the required paths that have no value, in file order.
func (d *Draft) Missing() []string {
	return slices.DeleteFunc(d.required(), func(path string) bool { return d.values[path] != nil })
}

// Write writes the draft as run.yaml. Required keys without a value are written as null, with a
// comment that states what to fill in.
func (d *Draft) Write(w io.Writer) error {
	var b strings.Builder
	for _, section := range runKeys().sections {
		var keys []string
		for _, k := range section.keys {
			keys = append(keys, k.Name)
		}
		if section.name == "vllm" {
			keys = append(keys, d.otherFlags(keys)...)
		}
		lines := ""
		for _, key := range keys {
			lines += d.writtenLine(section.name, key)
		}
		if lines != "" && section.name != "" {
			b.WriteString(section.name + ":\n")
		}
		b.WriteString(lines)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// otherFlags returns the keys of the section vllm that are not among the known ones, sorted.
func (d *Draft) otherFlags(known []string) []string {
	var flags []string
	for _, path := range slices.Sorted(maps.Keys(d.values)) {
		if key, isVLLM := strings.CutPrefix(path, "vllm."); isVLLM && !slices.Contains(known, key) {
			flags = append(flags, key)
		}
	}
	return flags
}

// writtenLine returns "key: value  # note", or "" for a key that has neither and is not required.
func (d *Draft) writtenLine(section, key string) string {
	path, indent := key, ""
	if section != "" {
		path, indent = section+"."+key, "  "
	}
	value, note := d.values[path], d.notes[path]
	if value == nil && note == "" {
		if !slices.Contains(d.required(), path) {
			return ""
		}
		note = "required: " + runKeys().required[path]
	}
	line := indent + key + ": " + scalar(value)
	if note != "" {
		line += "  # " + note
	}
	return line + "\n"
}

// scalar returns a value on one line of YAML. Strings are quoted, so that versions stay strings.
func scalar(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return strconv.Quote(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case int64, bool:
		return fmt.Sprint(v)
	}
	var n yaml.Node
	if err := n.Encode(v); err != nil {
		return strconv.Quote(fmt.Sprint(v))
	}
	flowStyle(&n)
	text, err := yaml.Marshal(&n)
	if err != nil {
		return strconv.Quote(fmt.Sprint(v))
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

// flowStyle makes the lists and mappings of a value fit on one line.
func flowStyle(n *yaml.Node) {
	if n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode {
		n.Style = yaml.FlowStyle
	}
	for _, c := range n.Content {
		flowStyle(c)
	}
}
