package deploy

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/blis-train/blis-train/trace"
)

// TestNothingUnsupportedPassesInSilence: every knob that no step time covers is told
// with its code and the next step, and what is refused is refused with that code.
func TestNothingUnsupportedPassesInSilence(t *testing.T) {
	on := map[string]string{"pipeline_parallel_size": "pipeline_parallel_size=2", "data_parallel_size": "data_parallel_size=2",
		"enable_expert_parallel": "vllm.enable_expert_parallel=true", "speculative_config": "vllm.speculative_config={method: ngram}",
		"decode_context_parallel_size":  "vllm.decode_context_parallel_size=2",
		"prefill_context_parallel_size": "vllm.prefill_context_parallel_size=2",
		"kv_transfer_config":            "vllm.kv_transfer_config={kv_connector: NixlConnector}",
		"ec_transfer_config":            "vllm.ec_transfer_config={ec_connector: x}", "cpu_offload_gb": "vllm.cpu_offload_gb=1.5",
		"offload_group_size": "vllm.offload_group_size=2", "enable_dbo": "vllm.enable_dbo=true", "ubatch_size": "vllm.ubatch_size=2",
		"runner": "vllm.runner=pooling", "task": "vllm.task=embed", "enable_lora": "vllm.enable_lora=true",
		"lora_modules": "vllm.lora_modules=[a=b]", "limit_mm_per_prompt": "vllm.limit_mm_per_prompt={image: 2}",
		"scheduler_cls": "vllm.scheduler_cls=mine", "max_num_partial_prefills": "vllm.max_num_partial_prefills=2",
		"num_scheduler_steps": "vllm.num_scheduler_steps=8", "nnodes": "vllm.nnodes=2",
		"hf_overrides": "vllm.hf_overrides={num_hidden_layers: 2}"}
	experts := strings.Replace(llamaConfig, `"llama"`, `"mixtral", "num_local_experts": 8, "num_experts_per_tok": 2`, 1)
	for _, l := range limits {
		fsys := fstest.MapFS{"run.yaml": {Data: []byte(minimalRunYAML)}, "config.json": {Data: []byte(llamaConfig)}}
		if l.Code == UnsupportedEngine {
			fsys["config.json"].Data = []byte(experts)
		}
		d, err := loadRunFS(fsys, "run.yaml", on[l.Key], "vllm.version=unknown")
		if err != nil {
			t.Errorf("%s: %v", l.Key, err)
			continue
		}
		found := d.NotModelled()
		if len(found) != 1 || found[0].Code != l.Code || !strings.Contains(found[0].Message, l.Next) {
			t.Errorf("%s: got %v, want one %s with the next step %q", l.Key, found, l.Code, l.Next)
		}
		err = d.CheckSupported()
		if l.Refused != (err != nil) || l.Refused && syntaxCode(err) != l.Code {
			t.Errorf("%s: got %v, want refused %v", l.Key, err, l.Refused)
		}
		if l.Refused && hintOf(err) != l.Next {
			t.Errorf("%s: got hint %q, want %q", l.Key, hintOf(err), l.Next)
		}
	}
	clean, err := loadRunFS(fstest.MapFS{"run.yaml": {Data: []byte(minimalRunYAML)}, "config.json": {Data: []byte(llamaConfig)}}, "run.yaml",
		"vllm.kv_transfer_config={kv_connector: OffloadingConnector}", "vllm.enable_dbo=false", "vllm.enforce_eager=true")
	if err != nil || len(clean.NotModelled()) > 0 || clean.CheckSupported() != nil {
		t.Errorf("got %v, %v for a deployment that is modelled", err, clean.NotModelled())
	}
}

func hintOf(err error) string {
	if e, ok := err.(*trace.Error); ok {
		return e.Hint
	}
	return ""
}

// TestOtherAttentionIsRefusedWhateverIsSaid: following the hint about MLP projections
// does not lead past the layers that are no attention.
func TestOtherAttentionIsRefusedWhateverIsSaid(t *testing.T) {
	for _, key := range otherAttention {
		text := strings.Replace(llamaConfig, `"llama"`, `"qwen3_next", "`+key+`": 4`, 1)
		_, err := LoadModel(strings.NewReader(text), "config.json", ModelOptions{NumMLPProj: trace.Some(int64(3)), AssumeFullAttention: true})
		if syntaxCode(err) != unsupportedModel {
			t.Errorf("%s: got %v, want %s", key, err, unsupportedModel)
		}
	}
	for config, want := range map[string]string{`"vision_config": {}`: "vision_config", `"novel_gate": 2`: ""} {
		text := strings.Replace(llamaConfig, "{", "{"+config+", ", 1)
		m, err := LoadModel(strings.NewReader(text), "config.json", ModelOptions{})
		if err != nil || len(m.NotModelled()) != 1 || strings.Join(m.Encoders, "") != want {
			t.Errorf("%s: got %v, %v", config, err, m.NotModelled())
		}
	}
}
