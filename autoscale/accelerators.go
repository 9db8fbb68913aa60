package autoscale

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	llm "github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
)

// resourceName is a DNS-1123 name.
func resourceName(prefix, modelID string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(prefix+"-"+llm.Name(modelID)))
	return strings.Trim(name, "-.")
}

// accelerator is how the autoscalers name what a configuration runs on: both
// key a model's performance by this name, so a model may have one entry each.
type accelerator struct {
	name  string
	count int64 // units of it per replica
}

// accelerators names the devices of the configurations. A device has its short name, with one unit
// for each rank: "H100" x 2. If a model runs on several numbers of one device, all but the single
// one become units of their own, "2xH100" x 1, which the reader must define as an accelerator of
// that multiplicity.
func accelerators(cfgs []result.FitConfig) ([]accelerator, []export.Refusal) {
	type key struct{ model, name string }
	counts := map[key]map[int64]bool{}
	plain := make([]accelerator, len(cfgs))
	for i, c := range cfgs {
		d := c.Deployment
		plain[i] = accelerator{shortName(d.Hardware.Name), max(1, d.TP) * max(1, d.PP)}
		k := key{d.Model.ID, plain[i].name}
		if counts[k] == nil {
			counts[k] = map[int64]bool{}
		}
		counts[k][plain[i].count] = true
	}
	var out []export.Refusal
	first := map[string]string{}
	for i, c := range cfgs {
		a := &plain[i]
		if len(counts[key{c.Deployment.Model.ID, a.name}]) > 1 && a.count > 1 {
			*a = accelerator{fmt.Sprintf("%dx%s", a.count, a.name), 1}
		}
		id := c.Deployment.Model.ID + "\x00" + a.name
		if other, ok := first[id]; ok {
			out = append(out, export.Refusal{Code: export.BadEntry,
				Sentence: fmt.Sprintf("%s and %s would both be %q of one model; the reader keeps the last", other,
					c.Label, a.name)})
			continue
		}
		first[id] = c.Label
	}
	return plain, out
}

// shortName is the device's name as clusters label it: "H100" of "H100-SXM-80GB".
func shortName(hw string) string {
	if name, ok := deploy.SpelledBy(deploy.Cluster, hw); ok {
		return name
	}
	name, _, _ := strings.Cut(hw, "-")
	return name
}

// renamedNote is the remark about a device whose name in the file differs from that of run.yaml.
func renamedNote(a accelerator, c result.FitConfig) string {
	if n := max(1, c.Deployment.TP) * max(1, c.Deployment.PP); a.count != n {
		return fmt.Sprintf("%s stands for %d x %s", a.name, n, shortName(c.Deployment.Hardware.Name))
	}
	return ""
}
