package autoscale

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/trace"
)

// Formats lists them in the order help shows them.
var Formats = []export.Format{QueueWVA4P, InfernoModels, TunerConfig, TunerCalibrate, wvaslo}

// reader describes the consumer of a file: its name, its first and last version that reads the file, and
// its queueing models.
type reader struct {
	Format   export.Format
	Consumer string
	Since    string // first version; empty: all
	Until    string // first version that no longer takes it; empty: none known
	Why      string // what happened at Until
	Instead  string // what to do about it
	Flavours []Flavour
	Note     string
}

//go:embed readers.yaml
var readersYAML []byte

// known are the readers of the files, as docs/contracts/autoscaler.yaml has them, read at the commits named there, and the
// options of single formats.
var known = files.Embedded[struct {
	Readers []reader
	Options map[string]export.Setting
	Of      map[export.Format][]string // options by format that is made of a fit
	Queue   map[export.Format][]string // the same of queue.json
}](readersYAML, "readers.yaml")

// readerOf returns the reader of a format.
func readerOf(f export.Format) *reader {
	all := known().Readers
	return &all[slices.IndexFunc(all, func(r reader) bool { return r.Format == f })]
}

// CheckVersion returns an error if a version of the consumer does not read the format. An empty version
// stands for any.
func (r *reader) CheckVersion(version string) error {
	if version == "" {
		return nil
	}
	v, err := releaseOf(version)
	if err != nil {
		return err
	}
	since, _ := releaseOf(r.Since)
	until, _ := releaseOf(r.Until)
	switch {
	case r.Until != "" && slices.Compare(v, until) >= 0:
		return trace.Errorf(unknownFormat, "%s: %s %s does not read it: %s", r.Format, r.Consumer, version, r.Why).WithHint(r.Instead)
	case r.Since != "" && slices.Compare(v, since) < 0:
		return trace.Errorf(unknownFormat, "%s: %s reads it from %s on, got %s", r.Format, r.Consumer, r.Since, version)
	}
	return nil
}

// CheckFlavour returns an error if the consumer cannot use parameters of a queueing model.
func (r *reader) CheckFlavour(f Flavour) error {
	if slices.Contains(r.Flavours, f) {
		return nil
	}
	return trace.Errorf(unknownFormat, "%s: got parameters of %s, want %s, the model of its reader (%s)", r.Format, f,
		trace.OneOf(r.Flavours),
		r.Consumer).
		WithHint("blis-train queue fit --flavour " + string(r.Flavours[0]))
}

// releaseOf splits v1.2.3; a suffix such as -rc.1 counts as the release.
func releaseOf(version string) ([]int, error) {
	text, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-")
	out := []int{0, 0, 0}
	parts := strings.Split(text, ".")
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || i > 2 {
			return nil, trace.Errorf(unknownFormat, "--option version: got %q, want one like v0.4.2", version)
		}
		out[i] = n
	}
	return out, nil
}

// settings are the options of those names.
func settings(keys []string) (out []export.Setting) {
	for _, key := range keys {
		one := known().Options[key]
		one.Key = key
		out = append(out, one)
	}
	return out
}

// Writers are the formats that are made of a fit.
func Writers() []export.Writer {
	all := []export.Writer{
		{Format: QueueWVA4P, Write: wva},
		{Format: InfernoModels, Write: lineWriter(InfernoModels, infernoReadBy, Inferno)},
		{Format: vllmSim, Write: lineWriter(vllmSim, "lionelvillard/vllm-simulated-model 02b4cb9, config.json: step ms = base + prompt tokens + "+
			"sequences + context", simulatedModel)},
	}
	for i := range all {
		all[i].Settings = settings(known().Of[all[i].Format])
	}
	return all
}

// SettingsOf are the options of a format that is made of queue.json.
func SettingsOf(f export.Format) []export.Setting { return settings(known().Queue[f]) }

// oneConfigHint is the hint for configurations that the reader cannot distinguish.
const oneConfigHint = "choose one with --config LABEL, or write all of them with --force %s"
