package sim

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// llama8b is Llama-3.1-8B on one H100 with vLLM's defaults.
func llama8b() *deploy.Deployment {
	return &deploy.Deployment{
		Model: deploy.Model{ID: "meta-llama/Llama-3.1-8B", ModelType: "llama", NumLayers: 32, HiddenSize: 4096, NumHeads: 32, NumKVHeads: 8, HeadDim: 128, IntermediateSize: 14336,
			VocabSize: 128256, NumMLPProj: 3, BytesPerParam: 2, BytesPerWeight: 2, BytesPerKV: 2, BytesPerActivation: 2, BytesPerLMHead: 2, LinearCompute: "native"},
		Hardware: deploy.Hardware{Name: "H100", TFlopsPeak: 989.5, TFlopsFP8: 1979, BwPeakTBs: 3.35, MemoryGB: 80, PCIeBandwidthGBs: 64, PCIeEfficiency: 0.75, InterconnectBandwidthGBs: 900, InterconnectLatencyUs: 10},
		TP:       1, PP: 1, DP: 1,
		Engine: deploy.Engine{VLLMVersion: "0.15.1", MaxModelLen: trace.Some(int64(8192)), MaxNumSeqs: 256, MaxNumBatchedTokens: 8192, ChunkedPrefill: true,
			BlockSize: 16, GPUMemoryUtilization: 0.9, KVBlocksGPU: trace.Some(int64(27678)), AsyncScheduling: trace.Some(false), SchedulingPolicy: "fcfs"},
	}
}

// planted is a physics set that costs what an H100 roughly does.
func planted() *coeff.Set {
	s := &coeff.Set{SpecVersion: features.V11, Beta: coeff.NewCoefficients(features.BetaFeatures(features.V11))}
	for i := range s.Beta {
		switch s.Beta[i].Name {
		case "prefill_linear_compute":
			s.Beta[i].Value = 1.6e6
		case "prefill_attention", "decode_attention", "kv_cache_read", "tp_communication":
			s.Beta[i].Value = 1.4e6
		case "decode_weight_load":
			s.Beta[i].Value = 1.3e6
		case "batch_utilization":
			s.Beta[i].Value = 900
		case "fixed_step_overhead":
			s.Beta[i].Value = 2e6
		}
	}
	return s
}

// mixed is n requests at the given rate: log-normal prompts around 300 tokens,
// outputs around 120, every fourth with a shared prefix.
func mixed(n int, perSecond float64) []Request {
	rng := rand.New(rand.NewPCG(1, 2))
	reqs := make([]Request, n)
	at := 0.0
	for i := range reqs {
		at += rng.ExpFloat64() / perSecond * 1e6
		reqs[i] = Request{ArrivalUs: int64(at), PromptTokens: clamp(math.Exp(5.7+rng.NormFloat64()), 4, 4000), OutputTokens: clamp(math.Exp(4.8+0.8*rng.NormFloat64()), 1, 1000), MaxTokens: 1024}
		if i%4 == 0 {
			reqs[i].Group, reqs[i].GroupTokens = uint64(1+i%64), min(128, reqs[i].PromptTokens)
		}
	}
	return reqs
}

func clamp(x float64, lo, hi int64) int64 { return min(hi, max(lo, int64(x))) }

func benchSteps(b *testing.B, rate float64, mutate func(*Config)) {
	const n = 100_000
	reqs := mixed(n, rate)
	set := planted()
	b.ReportAllocs()
	var steps, tokens, peak int64
	for b.Loop() {
		d := llama8b()
		m, err := NewPhysics(set, d)
		if err != nil {
			b.Fatal(err)
		}
		cfg := DefaultConfig(d, m)
		if mutate != nil {
			mutate(&cfg)
		}
		res, err := Run(cfg, reqs, nil)
		if err != nil {
			b.Fatal(err)
		}
		steps, tokens, peak = res.Steps, res.ScheduledTokens, res.PeakRunning
	}
	sec := b.Elapsed().Seconds() / float64(b.N)
	b.ReportMetric(float64(steps)/sec, "steps/s")
	b.ReportMetric(float64(n)/sec, "requests/s")
	b.ReportMetric(float64(tokens)/float64(steps), "tokens/step")
	b.ReportMetric(float64(peak), "peak_running")
}

// SimSteps: 100,000 mixed requests through the 1.1 physics at three loads.
func BenchmarkSimSteps(b *testing.B) {
	b.Run("low", func(b *testing.B) { benchSteps(b, 5, nil) })
	b.Run("medium", func(b *testing.B) { benchSteps(b, 25, nil) })
	b.Run("high", func(b *testing.B) { benchSteps(b, 40, nil) })
	b.Run("medium/prefix", func(b *testing.B) {
		benchSteps(b, 25, func(c *Config) { c.Deployment.Engine.PrefixCaching = true })
	})
	b.Run("medium/async", func(b *testing.B) { benchSteps(b, 25, func(c *Config) { c.Async = true }) })
}
