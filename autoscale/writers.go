package autoscale

import "github.com/blis-train/blis-train/pipeline/export"

// Options of single formats.
var (
	version  = export.Setting{Key: "version", Usage: "VERSION of the autoscaler, such as v0.4.2; one that does not read the file is refused"}
	name     = export.Setting{Key: "name", Usage: "PREFIX of the Kubernetes resources", Default: "blis-train"}
	sloName  = export.Setting{Key: "slo-class-name", Usage: "CONFIGMAP that sloClassRef names", Default: "premium-slo"}
	sloKey   = export.Setting{Key: "slo-class-key", Usage: "KEY in it; default the model id"}
	unitCost = export.Setting{Key: "unit-cost", Usage: "CENTS per device and hour", Default: "0", Number: true}
	physical = export.Setting{Key: "physical", Usage: "true: physical parameters in place of the effective ones", Default: "false",
		OneOf: []string{"true", "false"}}
	parmsKey = export.Setting{Key: "key", Usage: "KEY of the parameters, perfParms or serviceParms", Default: "perfParms",
		OneOf: []string{"perfParms", "serviceParms"}}
	namespace = export.Setting{Key: "namespace", Usage: "NAMESPACE of the model's pods"}
	ttftMs    = export.Setting{Key: "ttft-ms", Usage: "target mean TTFT, MS; default that of queue size", Default: "0", Number: true}
	itlMs     = export.Setting{Key: "itl-ms", Usage: "target mean ITL, MS; default that of queue size", Default: "0", Number: true}
)

// Writers are the formats that are made of a fit.
func Writers() []export.Writer {
	return []export.Writer{
		{Format: QueueWVA4P, Settings: []export.Setting{version, name, sloName, sloKey}, Write: wva},
		{Format: InfernoModels, Settings: []export.Setting{version}, Write: inferno},
	}
}

// SettingsOf are the options of a format that is made of queue.json.
func SettingsOf(f export.Format) []export.Setting {
	return map[export.Format][]export.Setting{
		QueueWVA4P:     {version, name, sloName, sloKey, unitCost, physical},
		InfernoModels:  {version, parmsKey, physical},
		TunerConfig:    {version, physical},
		TunerCalibrate: {version},
		wvaslo:         {version, name, namespace, ttftMs, itlMs},
	}[f]
}

// oneConfigHint stands beside configurations that the reader cannot tell apart.
const oneConfigHint = "choose one with --config LABEL, or write all of them with --force %s"
