package autoscale

// This file names devices as autoscalers do. They look up a model's performance by the name of an
// accelerator, so a model can have one entry for each name.

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	llm "github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
)

// longestName is the length of a Kubernetes resource's name (RFC 1123 subdomain).
const longestName = 253

// resourceName returns a valid name of a Kubernetes resource (RFC 1123 subdomain): prefix and the last
// part of the model's id in lower case, other characters replaced by "-". No part between dots
// begins or ends with "-".
func resourceName(prefix, modelID string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(prefix+"-"+llm.Name(modelID)))
	var parts []string
	for part := range strings.SplitSeq(name[:min(len(name), longestName)], ".") {
		if part = strings.Trim(part, "-"); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ".")
}

// accelerator is what one replica of a configuration runs on, as autoscalers name it.
type accelerator struct {
	name  string
	count int64 // units of the accelerator per replica
}

// accelerators returns the accelerator of each configuration, in order. A device has its short
// name, with one unit for each rank: "H100" x 2. If a model runs on several numbers of one device,
// those above one become accelerators of their own, "2xH100" x 1, which the user must define in the
// autoscaler. Configurations of one model that still have equal names are refusals, because the
// autoscaler would use only the last.
func accelerators(cfgs []result.FitConfig) ([]accelerator, []export.Refusal) {
	type key struct{ model, name string }
	counts := map[key]map[int64]bool{} // the numbers of one device on which a model runs
	plain := make([]accelerator, len(cfgs))
	for i, c := range cfgs {
		d := c.Deployment
		plain[i] = accelerator{name: shortName(d.Hardware.Name), count: max(1, d.TP) * max(1, d.PP)}
		k := key{d.Model.ID, plain[i].name}
		if counts[k] == nil {
			counts[k] = map[int64]bool{}
		}
		counts[k][plain[i].count] = true
	}
	var out []export.Refusal
	first := map[string]string{} // label of the first configuration with a model and accelerator
	for i, c := range cfgs {
		a := &plain[i]
		if len(counts[key{c.Deployment.Model.ID, a.name}]) > 1 && a.count > 1 {
			*a = accelerator{name: fmt.Sprintf("%dx%s", a.count, a.name), count: 1}
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

// shortName returns the name by which clusters label a device: "H100" for "H100-SXM-80GB". A device
// without such a label keeps its whole name.
func shortName(hw string) string {
	if name, ok := deploy.SpelledBy(deploy.Cluster, hw); ok {
		return name
	}
	return hw
}

// renamedNote returns a remark for an accelerator whose name in the file is that of several
// devices; "" otherwise.
func renamedNote(a accelerator, c result.FitConfig) string {
	if n := max(1, c.Deployment.TP) * max(1, c.Deployment.PP); a.count != n {
		return fmt.Sprintf("%s stands for %d x %s", a.name, n, shortName(c.Deployment.Hardware.Name))
	}
	return ""
}
