package deploy

// This file states what the kernel tables need to know of a deployment.

import (
	"cmp"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// CheckTables returns an error for a deployment whose steps are not sums of measured kernels: one
// that reaches a refused [vllm.Limits], except those for whole experts on a GPU and for what the
// schedule models, or one that vLLM does not load.
func (d *Deployment) CheckTables() error {
	for _, h := range vllm.Reached(d.setting, d.Model.IsMoE()) {
		if h.Refused && !h.Simulated && h.Key != "enable_expert_parallel" {
			return trace.Errorf(h.Code(), "%s: %s is not modelled", h.Got, h.What).WithHint(h.Next)
		}
	}
	return cmp.Or(d.Model.CheckKnown(), d.Model.Shipped().Loads(d.Parallel()))
}

// Sums are the sums over layers that a coefficient file has for each configuration (spec#layer-sums):
// all inputs of the formulas of spec 1.3, so that a program can evaluate those without the layers.
type Sums struct {
	model.Work
	KV          model.KVPool    `json:"kv_pool"` // of the first pipeline stage
	GraphTokens vllm.GraphSizes `json:"cuda_graph_tokens"`
	ExpertLoad  float64         `json:"expert_load"` // load of the busiest rank's experts over the mean; 1: uniform routing
	Family      string          `json:"family"`      // kinds of layers and device, which are validated together
	Judged      string          `json:"judged"`      // how the family's times were validated; "unjudged": not at all
}

// LayerSums returns the sums of the deployment, marked as not validated.
func (d *Deployment) LayerSums() *Sums {
	layers := d.Model.Layers()
	s := &Sums{
		Work:        layers.Work(d.Parallel()),
		GraphTokens: d.GraphSizes(),
		ExpertLoad:  1,
		Judged:      "unjudged",
		Family:      layers.InWords() + ", " + d.Hardware.Name,
	}
	s.KV, _ = layers.KVPool(d.Parallel(), d.Engine.BlockSize)
	return s
}

// Reaches returns the limited reaches of the model's attention, that is the different numbers of tokens that a query
// can see (windows, chunks, indexes); none where all layers are alike.
func (d *Deployment) Reaches() []model.Reach {
	if d.Model.Layered == nil {
		return nil
	}
	return new(d.Model.Layered.Work(d.Parallel())).Reaches()
}
