package deploy

import (
	"cmp"
	_ "embed"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// CheckTables refuses what tables of kernels know nothing of: settings of [vllm.Limits] but whole experts per GPU and what the schedule plays,
// and shards that vLLM does not load.
func (d *Deployment) CheckTables() error {
	for _, h := range vllm.Reached(d.setting, d.Model.IsMoE()) {
		if h.Refused && !h.Simulated && h.Key != "enable_expert_parallel" {
			return trace.Errorf(h.Code, "%s: %s is not modelled", h.Got, h.What).WithHint(h.Next)
		}
	}
	return cmp.Or(d.Model.CheckKnown(), d.Model.Shipped().Loads(d.Parallel()))
}

// Sums are what a coefficient file says of a configuration beside its layers (spec#layer-sums): all that the formulas of 1.3 read
// of them, so that an evaluator need not walk them.
type Sums struct {
	model.Work
	KV          model.KVPool    `json:"kv_pool"` // of the first pipeline stage
	GraphTokens vllm.GraphSizes `json:"cuda_graph_tokens"`
	ExpertLoad  float64         `json:"expert_load"` // tokens of the busiest rank's experts over the mean: 1, uniform routing, is assumed
	Family      string          `json:"family"`      // kinds of layers and device: what is judged together
	Judged      string          `json:"judged"`      // by what; or unjudged
}

// LayerSums are those of the deployment, unjudged.
func (d *Deployment) LayerSums() *Sums {
	layers := d.Model.Layers()
	s := &Sums{Work: layers.Work(d.Parallel()), GraphTokens: d.GraphSizes(), ExpertLoad: 1, Judged: "unjudged",
		Family: layers.InWords() + ", " + d.Hardware.Name}
	s.KV, _ = layers.KVPool(d.Parallel(), d.Engine.BlockSize)
	return s
}

// Reaches are those of the deployment's attention beside the full one; none for equal layers.
func (d *Deployment) Reaches() []model.Reach {
	if d.Model.Layered == nil {
		return nil
	}
	return new(d.Model.Layered.Work(d.Parallel())).Reaches()
}
