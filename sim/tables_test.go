package sim

import (
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim/kernels"
)

// BenchmarkTables: 100,000 mixed requests with the sums of kernels beside the linear model; bind is what a deployment costs once.
func BenchmarkTables(b *testing.B) {
	d := testkit.Llama8B()
	d.Hardware, _ = deploy.Datasheet("H100")
	b.Run("bind", func(b *testing.B) {
		for b.Loop() {
			if _, err := kernels.Bound(d, kernels.Options{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	step, err := kernels.Bound(d, kernels.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for _, rate := range []struct {
		name string
		rps  float64
	}{{"low", 5}, {"medium", 25}, {"high", 40}} {
		b.Run("linear/"+rate.name, func(b *testing.B) { benchSteps(b, rate.rps, nil) })
		b.Run("tables/"+rate.name, func(b *testing.B) {
			benchSteps(b, rate.rps, func(c *Config) {
				c.Latency = NewTables(step, kernels.Learned().On(d.Hardware.Name))
			})
		})
	}
}
