package library

// This file names the family of a deployment: what is validated together because it runs the same
// kernels.

import (
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/model"
)

// backendOf returns the kernels of experts that the engine is set to use (--moe-backend); "" for its own choice.
func backendOf(d *deploy.Deployment) string {
	name, _ := d.Engine.Extra["moe_backend"].(string)
	return strings.TrimPrefix(name, "auto")
}

// family returns the name of the family that a deployment is validated with, so that deployments of one
// family run the same kernels: the kind of FFN and the dtype of its weights, the kinds of attention, EP for
// --enable-expert-parallel, the expert kernels of --moe-backend, and the GPU. dtype is that of the
// experts, else of the layers of a dense FFN that are divided among GPUs by their input.
func family(d *deploy.Deployment, m *model.Decoder) (name, dtype string) {
	kind := "dense"
	var attention []string
	for i := range m.Layers {
		if x := m.Layers[i].Mixer; x != nil {
			name := string(x.Kind)
			if x.Index != nil {
				name += " sparse"
			}
			if x.Window > 0 {
				name += " window"
			}
			attention = append(attention, name)
		}
		f := m.Layers[i].FFN
		if f == nil {
			continue
		}
		for j := range f.Linears {
			l := &f.Linears[j]
			if routed := l.Placement == model.ByExpert; routed || kind == "dense" && l.Placement == model.ShardedIn {
				dtype = dtypesOf(&l.Quant)[0]
				if routed {
					kind = "experts"
				}
			}
		}
	}
	out := kind + " " + dtype + ", " + strings.Join(distinct(attention), " and ")
	if d.Engine.ExpertParallel {
		out += ", EP"
	}
	if backend := backendOf(d); backend != "" && kind == "experts" { // other kernels
		out += ", " + backend
	}
	return out + ", " + d.Hardware.Name, dtype
}
