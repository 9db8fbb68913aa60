package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// BenchmarkSimLayers: 100,000 requests on models of unlike layers, in turns with the same requests on a model of equal layers. All steps
// take 10 ms and no cache is full, so that both play the same steps: ratio is the median over pairs of runs of 10,000 requests.
func BenchmarkSimLayers(b *testing.B) {
	reqs := mixed(10_000, 25)
	once := func(spec features.Version, model string) (time.Duration, int64) {
		d := testkit.Llama8B()
		if model != "" {
			of, err := deploy.LoadSettings("model.id="+model, "hardware.name=H100", "tensor_parallel_size=1", "vllm.version=0.15.1",
				"vllm.max_num_seqs=256", "vllm.max_num_batched_tokens=8192")
			if err != nil {
				b.Fatal(err)
			}
			d.Model = of.Model
		}
		d.Engine.KVBlocksGPU, d.Engine.MaxModelLen = trace.Some(int64(200_000)), trace.Some(int64(8192))
		set := &coeff.Set{SpecVersion: spec, Beta: features.NewCoefficients(features.BetaFeatures(spec))}
		for i := range set.Beta {
			if set.Beta[i].Name == "bias" {
				set.Beta[i].Value = 1e4
			}
		}
		m, err := NewPhysics(set, d)
		if err != nil {
			b.Fatal(err)
		}
		at := time.Now()
		res, err := Run(DefaultConfig(d, m), reqs, nil)
		if err != nil {
			b.Fatal(err)
		}
		return time.Since(at), res.Steps
	}
	for _, c := range []struct {
		name, model string
		spec        features.Version
	}{{"equal/1.2", "", features.V12}, {"equal/1.3", "", features.V13}, {"hybrid60", "Qwen/Qwen3.5-397B-A17B", features.V13},
		{"window36", "openai/gpt-oss-120b", features.V13}, {"sparse61", "deepseek-ai/DeepSeek-V3.2", features.V13}} {
		b.Run(c.name, func(b *testing.B) {
			var ratios []float64
			for b.Loop() {
				for range 10 {
					own, steps := once(c.spec, c.model)
					today, same := once(features.V11, "")
					if ratios = append(ratios, own.Seconds()/today.Seconds()); steps != same {
						b.Fatalf("%d steps, want %d", steps, same)
					}
				}
			}
			slices.Sort(ratios)
			b.ReportMetric(stat.Quantile(ratios, 0.5), "ratio")
		})
	}
}
