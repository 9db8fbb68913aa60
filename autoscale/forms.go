package autoscale

import (
	"bytes"
	"fmt"
	"strconv"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/result"
)

// variantAutoscaling is the resource of llmd.ai/v1alpha1 as workload-variant-autoscaler
// v0.0.1 to v0.4.2 define it (api/v1alpha1/variantautoscaling_types.go). SLOClassRef is
// there up to v0.0.5, spec.variantCost from v0.0.5.
type variantAutoscaling struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Spec       spec     `yaml:"spec"`
}

// metadata of a resource.
type metadata struct {
	Name   string            `yaml:"name"`
	Labels map[string]string `yaml:"labels"`
}

// spec of a VariantAutoscaling.
type spec struct {
	ModelID     string     `yaml:"modelID"`
	SLOClassRef *configRef `yaml:"sloClassRef,omitempty"`
	Profile     profile    `yaml:"modelProfile"`
	VariantCost string     `yaml:"variantCost,omitempty"` // cents per replica and hour
}

// configRef names a key of a configMap.
type configRef struct {
	Name string `yaml:"name"`
	Key  string `yaml:"key"`
}

// profile lists what a model runs on.
type profile struct {
	Accelerators []Accelerator `yaml:"accelerators"`
}

// Accelerator is a model on one accelerator.
type Accelerator struct {
	Acc          string   `yaml:"acc"`
	AccCount     int64    `yaml:"accCount"`
	PerfParms    perfParm `yaml:"perfParms"`
	MaxBatchSize int64    `yaml:"maxBatchSize"`
}

// perfParm holds the four parameters as strings, in ms, as the CRD wants them.
type perfParm struct {
	Decode  map[string]string `yaml:"decodeParms"`
	Prefill map[string]string `yaml:"prefillParms"`
}

// wvaReadBy says who reads a VariantAutoscaling with parameters.
const wvaReadBy = "workload-variant-autoscaler v0.0.1 to v0.4.2; v0.5.0 removed these fields from the CRD"

// WVA writes resources as one multi-document file, each under its comment lines.
func WVA(resources []*variantAutoscaling, comments [][]string) ([]byte, error) {
	var buf bytes.Buffer
	for i, r := range resources {
		if i > 0 {
			buf.WriteString("---\n")
		}
		fmt.Fprintf(&buf, "# Read by %s.\n", wvaReadBy)
		for _, line := range comments[i] {
			fmt.Fprintf(&buf, "# %s\n", files.Line(line))
		}
		enc := yaml.NewEncoder(&buf)
		enc.SetIndent(2)
		if err := enc.Encode(r); err != nil {
			return nil, err
		}
		if err := enc.Close(); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), nil
}

// modelData is llm-inferno's model-data.json (optimizer-light pkg/config/types.go@77615bd).
type modelData struct {
	Models []modelEntry `json:"models"`
}

// modelEntry is one model on one accelerator. PerfParms has the name ServiceParms inside
// workload-variant-autoscaler; one of the two is there.
type modelEntry struct {
	Name         string `json:"name"`
	Acc          string `json:"acc"`
	AccCount     int64  `json:"accCount"`
	MaxBatchSize int64  `json:"maxBatchSize"`
	// AtTokens is the mean output length behind MaxBatchSize: the optimizer scales the
	// batch by AtTokens over the load's mean output length.
	AtTokens     int64  `json:"atTokens"`
	PerfParms    *parms `json:"perfParms,omitempty"`
	ServiceParms *parms `json:"serviceParms,omitempty"`
}

// parms are ms, ms per computed token and ms per KV token read.
type parms struct {
	Alpha float64 `json:"alpha"`
	Beta  float64 `json:"beta"`
	Gamma float64 `json:"gamma"`
}

// infernoReadBy says who reads model-data.json.
const infernoReadBy = "llm-inferno optimizer-light and control-loop (2026): iteration ms = alpha + beta*computed tokens + gamma*KV " +
	"tokens read"

// Inferno writes model-data.json.
func Inferno(models []modelEntry) ([]byte, error) { return result.Marshal(modelData{Models: models}) }

// exact prints a number so that reading it gives the same number.
func exact(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
