package export

// This file writes a BLIS catalog of models.

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// catalogOf returns the files of a BLIS catalog of the models: for each a config.json with the keys
// that BLIS reads, and the sizes on which the step time was projected, and a model.yaml
// (blis-schemas docs/reference/model.md@1b9f636).
func catalogOf(cfgs []result.FitConfig) ([]File, error) {
	var out []File
	for i := range cfgs {
		m := cfgs[i].Deployment.Model.AsBLISReads()
		folder := ".catalog/models/" + slug(model.Name(m.ID)) + "/"
		if slices.ContainsFunc(out, func(f File) bool { return strings.HasPrefix(f.Suffix, folder) }) {
			continue
		}
		doc := map[string]any{
			"model_type":          m.ModelType,
			"num_hidden_layers":   m.NumLayers,
			"hidden_size":         m.HiddenSize,
			"num_attention_heads": m.NumHeads,
			"num_key_value_heads": m.NumKVHeads,
			"head_dim":            m.HeadDim,
			"vocab_size":          m.VocabSize,
			"intermediate_size":   m.IntermediateSize,
			"hidden_act":          "silu",
			"torch_dtype":         "bfloat16",
		}
		if m.BytesPerActivation == 4 {
			doc["torch_dtype"] = "float32"
		}
		if m.BytesPerWeight != m.BytesPerActivation {
			doc["quantization_config"] = map[string]any{"quant_method": "compressed-tensors",
				"bits": 8 * m.BytesPerWeight}
		}
		if m.MaxPositionEmbeddings > 0 {
			doc["max_position_embeddings"] = m.MaxPositionEmbeddings
		}
		if m.IsMoE() {
			doc["num_local_experts"] = m.NumExperts
			doc["num_experts_per_tok"] = m.TopK
			doc["moe_intermediate_size"] = m.MoEIntermediateSize
			doc["shared_expert_intermediate_size"] = m.SharedExpertSize
			if step := m.NumLayers/m.NumMoELayers - 1; step > 0 { // dense layers after each MoE layer
				doc["interleave_moe_layer_step"] = step
				doc["intermediate_size_mlp"] = m.IntermediateSize
			}
			// The number of MoE layers that BLIS computes from the step has to be the model's.
			if m.NumMoELayers != m.NumLayers/(m.NumLayers/m.NumMoELayers) {
				return nil, trace.Errorf(BadEntry,
					"%s: got experts in %d of %d layers, want them in all layers or in every n-th: BLIS reads no "+
						"other layout", cfgs[i].Label, m.NumMoELayers, m.NumLayers).
					WithHint("state model.config in run.yaml")
			}
		}
		config, err := result.Marshal(doc)
		if err != nil {
			return nil, err
		}
		card, err := yaml.Marshal(map[string]any{"name": slug(model.Name(m.ID)), "source": map[string]string{
			"provider": "huggingface", "repo": m.ID, "revision": "main"}})
		if err != nil {
			return nil, err
		}
		out = append(out,
			File{Suffix: folder + "config.json", Data: config},
			File{Suffix: folder + "model.yaml", Data: card})
	}
	return out, nil
}
