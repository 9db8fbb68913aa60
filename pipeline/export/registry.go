package export

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
)

// regSet is the registry's CoefficientSet (schema v0.2.2). Field order is the
// order in the file.
type regSet struct {
	Kind         string                `yaml:"kind"`
	Name         string                `yaml:"name"`
	Coefficients []map[string]regEntry `yaml:"coefficients"`
}

type regEntry struct {
	Value      float64     `yaml:"value"`
	Units      string      `yaml:"units"`
	Method     string      `yaml:"method"`
	Fitted     bool        `yaml:"fitted"`
	Scope      regScope    `yaml:"scope,flow"`
	CI95       []float64   `yaml:"ci95,omitempty,flow"`
	Sources    []regSource `yaml:"sources,omitempty"`
	Rationale  string      `yaml:"rationale,omitempty"`
	CopiedFrom string      `yaml:"copied_from,omitempty"`
}

type regScope struct {
	Hardware []string `yaml:"hardware,omitempty"`
	Model    []string `yaml:"model,omitempty"`
	TP       []int64  `yaml:"tp,omitempty"`
}

type regSource struct {
	Kind string `yaml:"kind"`
	Cite string `yaml:"cite"`
	Role string `yaml:"role"`
}

// registryCite names the data exactly: the fit by hash (its sidecar lists every
// input), how many runs, where they came from, and the error on rows that were
// not fitted.
func registryCite(src Source) string {
	runs := 0
	for _, r := range src.Fit.Runs {
		if r.Used {
			runs++
		}
	}
	prov := map[string]bool{}
	for _, c := range src.Fit.Configs {
		if p := c.Deployment.Provenance; p != "" {
			prov[p] = true
		}
	}
	s := fmt.Sprintf("blis-train %s, fit.json sha256 %s, %d runs", src.Fit.ToolVersion, src.FitInput.SHA256, runs)
	if len(prov) > 0 {
		s += " (" + strings.Join(slices.Sorted(maps.Keys(prov)), "; ") + ")"
	}
	if m := modelNamed(src.Fit, blisModel); m != nil && m.Holdout != nil && m.Holdout.MAPE != nil {
		s += fmt.Sprintf("; hold-out rows, not fitted: step-time MAPE %.4f over %d rows", *m.Holdout.MAPE, m.Holdout.Rows)
	}
	return s
}

// registryScope is what the fit covers, each dimension sorted.
func registryScope(cfgs []result.FitConfig) regScope {
	hw, model, tp := map[string]bool{}, map[string]bool{}, map[int64]bool{}
	for _, c := range cfgs {
		hw[registryChip(c.Deployment.Hardware.Name)] = true
		model[deploy.ModelName(c.Deployment.Model.ID)] = true
		tp[c.Deployment.TP] = true
	}
	s := regScope{Hardware: slices.Sorted(maps.Keys(hw)), Model: slices.Sorted(maps.Keys(model))}
	for n := range tp {
		s.TP = append(s.TP, n)
	}
	slices.Sort(s.TP)
	return s
}

// registryChips are the registry's names of the parts our datasheets call otherwise.
var registryChips = map[string]string{
	"A100-SXM-80GB": "a100-sxm", "H100-SXM-80GB": "h100", "H200-SXM-141GB": "h200",
	"B200-SXM-180GB": "b200", "L40S-48GB": "l40s",
}

// registryChip is the catalog name of a part, in lower case.
func registryChip(name string) string {
	if chip, ok := registryChips[name]; ok {
		return chip
	}
	return strings.ToLower(strings.ReplaceAll(name, " ", "-"))
}
