package pipeline

import (
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
)

// TestUnlikeLayersAskForTheirSpec: models that older specifications cannot say are fitted with 1.3, whatever prior is asked for by name.
func TestUnlikeLayersAskForTheirSpec(t *testing.T) {
	for _, id := range []string{"deepseek-ai/DeepSeek-V4-Flash", "openai/gpt-oss-120b", "deepseek-ai/DeepSeek-V3.2"} {
		d, err := deploy.LoadSettings("model.id="+id, "hardware.name=H200", "vllm.version=0.24.0", "tensor_parallel_size=8",
			"vllm.max_num_seqs=256", "vllm.max_num_batched_tokens=8192")
		if err != nil {
			t.Fatal(err)
		}
		for _, prior := range []string{"", fit.PriorZero, fit.PriorRoofline, fit.PriorLibrary} {
			o := FitOptions{Options: fit.Options{Prior: prior}}
			err := o.ResolveFor(&result.Extract{Runs: []result.ExtractRun{{ID: "run", Deployment: d}}})
			if err != nil || o.Spec != features.V13 {
				t.Errorf("%s, prior %q: got spec %q, %v, want 1.3", id, prior, o.Spec, err)
			}
		}
	}
}
