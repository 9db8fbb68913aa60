package autoscale

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkTrack is 10,000 windows through each tracker, N = 64.
func BenchmarkTrack(b *testing.B) {
	w := multiLoad(b, Inferno3P, 10_000, constant(truth[Inferno3P]), 0.03, rand.New(rand.NewPCG(22, 20)))
	for _, run := range []struct {
		name string
		of   func() []Step
	}{
		{"replica", func() []Step { return Replica(w, modelTuner()) }},
		{"robust", func() []Step { return Robust(w, defaultRobust(Inferno3P)) }},
		{"sliding", func() []Step { return Sliding(w, Inferno3P, nil) }},
	} {
		b.Run(run.name, func(b *testing.B) {
			for range b.N {
				if len(run.of()) != len(w) {
					b.Fatal("windows lost")
				}
			}
			b.ReportMetric(float64(len(w))*float64(b.N)/b.Elapsed().Seconds(), "windows/s")
		})
	}
}

// BenchmarkFit is a batch fit of 128 points at N = 256.
func BenchmarkFit(b *testing.B) {
	for _, f := range []Flavour{Inferno3P, Corrected} {
		b.Run(string(f), func(b *testing.B) {
			w := multiLoad(b, f, 128, constant(truth[f]), 0.03, rand.New(rand.NewPCG(22, 21)))
			for i := range w {
				w[i].Limits.MaxBatch, w[i].Limits.Queue = 256, 256
			}
			for range b.N {
				if _, err := Fit(w, defaultFit(f)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
