package sim

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
)

// mixed is n requests at the given rate: log-normal prompts around 300 tokens,
// outputs around 120, every fourth with a shared prefix.
func mixed(n int, perSecond float64) []Request {
	rng := rand.New(rand.NewPCG(1, 2))
	reqs := make([]Request, n)
	at := 0.0
	for i := range reqs {
		at += rng.ExpFloat64() / perSecond * 1e6
		reqs[i] = Request{
			ArrivalUs: int64(at), PromptTokens: clamp(math.Exp(5.7+rng.NormFloat64()), 4, 4000),
			OutputTokens: clamp(math.Exp(4.8+0.8*rng.NormFloat64()), 1, 1000), MaxTokens: 1024,
		}
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
	set := testkit.Planted()
	b.ReportAllocs()
	var steps, tokens, peak int64
	for b.Loop() {
		d := testkit.Llama8B()
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

// BenchmarkSimSteps: 100,000 mixed requests through the 1.1 physics at three loads.
func BenchmarkSimSteps(b *testing.B) {
	b.Run("low", func(b *testing.B) { benchSteps(b, 5, nil) })
	b.Run("medium", func(b *testing.B) { benchSteps(b, 25, nil) })
	b.Run("high", func(b *testing.B) { benchSteps(b, 40, nil) })
	b.Run("medium/prefix", func(b *testing.B) {
		benchSteps(b, 25, func(c *Config) { c.Deployment.Engine.PrefixCaching = true })
	})
	b.Run("medium/gradient", func(b *testing.B) {
		benchSteps(b, 25, func(c *Config) { c.Gradient, c.Restarts = true, true })
	})
	b.Run("medium/async", func(b *testing.B) { benchSteps(b, 25, func(c *Config) { c.Async = true }) })
}
