package autoscale

// This file is the table of the formats of autoscalers' files: which consumer reads them, in which
// versions, and the options of each.

import (
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/trace"
)

// Formats are the formats of queue.json, in the order of the help text.
var Formats = []export.Format{QueueWVA4P, InfernoModels, TunerConfig, TunerCalibrate, wvaSLO}

// reader describes the consumer of a format: its name, the versions that read the format, and its
// queueing models.
type reader struct {
	Format   export.Format
	Consumer string
	Since    string    // first version that reads the format; empty: all do
	Until    string    // first version that no longer reads it; empty: none known
	Why      string    // why it no longer reads it
	Instead  string    // what the user can do instead
	Flavours []Flavour // queueing models whose parameters it takes; empty for formats that are made only of a fit
	Note     string
}

// readers are the consumers of the files, as docs/contracts/autoscaler.yaml has them, read at the commits named there.
var readers = []reader{
	{
		Format:   QueueWVA4P,
		Consumer: "workload-variant-autoscaler",
		Since:    "v0.0.1",
		Until:    "v0.5.0",
		Flavours: []Flavour{wvA4P},
		Why: "v0.5.0 removed spec.modelProfile and with it decodeParms and prefillParms from the CRD; " +
			"its parameters live in the controller's memory alone, learned online",
		Instead: "--format inferno-models is for llm-inferno's optimizer, --format wva-slo writes the targets that " +
			"v0.6.0 and later read; v0.4.2 is the last version that reads parameters",
	},
	{
		Format:   InfernoModels,
		Consumer: "llm-inferno control-loop, optimizer-light",
		Flavours: []Flavour{inferno3P, wvA3P},
		Note:     "inferno-3p for queue-analysis v0.7 and later, wva-3p before and with --option key=serviceParms",
	},
	{
		Format:   TunerConfig,
		Consumer: "llm-inferno model-tuner",
		Flavours: []Flavour{inferno3P, wvA3P},
	},
	{
		Format:   TunerCalibrate,
		Consumer: "llm-inferno model-tuner, POST /calibrate",
		Flavours: []Flavour{wvA4P, wvA3P, inferno3P, corrected},
		Note:     "operating points, no parameters: the tuner fits them itself",
	},
	{
		Format:   wvaSLO,
		Consumer: "workload-variant-autoscaler",
		Since:    "v0.6.0",
		Until:    "v0.9.1",
		Flavours: []Flavour{wvA4P, wvA3P, inferno3P, corrected},
		Note:     "targets, no parameters",
		Why:      "v0.9.0 is its last release",
		Instead:  "--format keda-token-aware of a fit",
	},
	{
		Format:   vllmSim,
		Consumer: "vllm-simulated-model",
	},
}

// readerOf returns the reader of a format.
func readerOf(f export.Format) *reader {
	return &readers[slices.IndexFunc(readers, func(r reader) bool { return r.Format == f })]
}

// Options of the formats.
var (
	versionSetting = export.Setting{
		Key:   "version",
		Usage: "VERSION of the autoscaler, such as v0.4.2; one that does not read the file is refused",
	}
	nameSetting = export.Setting{
		Key:     "name",
		Usage:   "PREFIX of the Kubernetes resources",
		Default: "blis-train",
	}
	sloClassNameSetting = export.Setting{
		Key:     "slo-class-name",
		Usage:   "CONFIGMAP that sloClassRef names",
		Default: "premium-slo",
	}
	sloClassKeySetting = export.Setting{
		Key:   "slo-class-key",
		Usage: "KEY in it; default the model id",
	}
	unitCostSetting = export.Setting{
		Key:     "unit-cost",
		Usage:   "CENTS per device and hour, for spec.variantCost; without it the field is missing",
		Default: "0",
		Number:  true,
	}
	physicalSetting = export.Setting{
		Key:     "physical",
		Usage:   "true: physical parameters in place of the effective ones",
		Default: "false",
		OneOf:   []string{"true", "false"},
	}
	parametersKeySetting = export.Setting{
		Key:     "key",
		Usage:   "KEY of the parameters, perfParms or serviceParms",
		Default: "perfParms",
		OneOf:   []string{"perfParms", "serviceParms"},
	}
	namespaceSetting = export.Setting{
		Key:   "namespace",
		Usage: "NAMESPACE of the model's pods",
		Label: true,
	}
	ttftSetting = export.Setting{
		Key:     "ttft-ms",
		Usage:   "target mean TTFT, MS; default that of queue size",
		Default: "0",
		Number:  true,
	}
	itlSetting = export.Setting{
		Key:     "itl-ms",
		Usage:   "target mean ITL, MS; default that of queue size",
		Default: "0",
		Number:  true,
	}
)

// CheckVersion returns an error if a version of the consumer does not read the format. An empty version
// means any.
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
		return trace.Errorf(unknownFormat, "%s: %s %s does not read it: %s", r.Format, r.Consumer, version,
			r.Why).WithHint(r.Instead)
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

// releaseOf splits a version such as v1.2.3 into its numbers. A suffix such as -rc.1 is ignored.
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

// Writers returns the formats that are made of a fit (fit.json).
func Writers() []export.Writer {
	const simulatedModelReadBy = "lionelvillard/vllm-simulated-model 02b4cb9, config.json: step ms = base + prompt tokens + " +
		"sequences + context"
	return []export.Writer{
		{
			Format:   QueueWVA4P,
			Write:    wva,
			Settings: []export.Setting{versionSetting, nameSetting, sloClassNameSetting, sloClassKeySetting},
		},
		{
			Format:   InfernoModels,
			Write:    lineWriter(InfernoModels, infernoReadBy, Inferno),
			Settings: []export.Setting{versionSetting},
		},
		{
			Format: vllmSim,
			Write:  lineWriter(vllmSim, simulatedModelReadBy, simulatedModel),
		},
	}
}

// SettingsOf returns the options of a format that is made of queue.json.
func SettingsOf(f export.Format) []export.Setting {
	switch f {
	case QueueWVA4P:
		return []export.Setting{
			versionSetting,
			nameSetting,
			sloClassNameSetting,
			sloClassKeySetting,
			unitCostSetting,
			physicalSetting,
		}
	case InfernoModels:
		return []export.Setting{versionSetting, parametersKeySetting, physicalSetting}
	case TunerConfig:
		return []export.Setting{versionSetting, physicalSetting}
	case TunerCalibrate:
		return []export.Setting{versionSetting}
	case wvaSLO:
		return []export.Setting{versionSetting, nameSetting, namespaceSetting, ttftSetting, itlSetting}
	}
	return nil
}

// oneConfigHint is the hint for configurations that the reader of the file cannot distinguish; %s
// is the code for --force.
const oneConfigHint = "choose one with --config LABEL, or write all of them with --force %s"

// The formats of autoscalers' files.
const (
	QueueWVA4P     export.Format = "wva-4p"
	InfernoModels  export.Format = "inferno-models"
	vllmSim        export.Format = "vllm-sim"
	TunerConfig    export.Format = "tuner-config"
	TunerCalibrate export.Format = "tuner-calibrate"
	wvaSLO         export.Format = "wva-slo"
)
