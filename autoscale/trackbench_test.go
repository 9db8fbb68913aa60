package autoscale

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkTrack is 10,000 windows through each tracker, N = 64.
func BenchmarkTrack(b *testing.B) {
	w := multiLoad(b, inferno3P, 10_000, constant(truth[inferno3P]), 0.03, rand.New(rand.NewPCG(22, 20)))
	for _, run := range []struct {
		name string
		of   func() []step
	}{
		{"replica", func() []step { return Replica(w, modelTuner()) }},
		{"robust", func() []step { return Robust(w, defaultRobust(inferno3P)) }},
		{"sliding", func() []step { return sliding(w, inferno3P, nil) }},
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
	for _, f := range []Flavour{inferno3P, corrected} {
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
