package library

import "testing"

// TestPricerTellsImbalancesApart: batches that differ only in how unevenly ranks' experts are loaded have times of their own.
func TestPricerTellsImbalancesApart(t *testing.T) {
	experts := Operator{Name: "experts", Count: 1, Kind: Experts, us: func(in *state) float64 { return in.routed }}
	p := handStep(experts).NewPricer()
	for _, c := range []struct{ imbalance, want float64 }{{1, 100}, {1.5, 150}, {1, 100}} {
		parts := p.Parts(&Batch{Tokens: 100, Sequences: 100, Decodes: 100, Imbalance: c.imbalance})
		if got := parts.Total(); got != c.want {
			t.Errorf("imbalance %g: got %g us, want %g", c.imbalance, got, c.want)
		}
	}
}

// TestLaunchUsIsOneValue: the sum is added up in one order, so that its last bits are the same each time.
func TestLaunchUsIsOneValue(t *testing.T) {
	s := Step{Layers: 61.1, expertLayers: 58.3, latentLayers: 61.7, chosenFP8: 122.9, decodesOnly: true, GPU: &GPU{Hardware: "x"}}
	c := &Corrections{Step: map[string][2]float64{
		"eager_layer_us": {100.1, 0.1}, "eager_experts_us": {0.7, 33.3}, "eager_latent_us": {1e-3, 1e3 / 3}, "eager_whole_us": {1e6 / 7, 0.9}, "eager_fp8_us": {47.53, 9.167},
	}}
	us, se := s.LaunchUs(c)
	for range 200 {
		if again, seAgain := s.LaunchUs(c); again != us || seAgain != se {
			t.Fatalf("got %v +- %v, then %v +- %v", us, se, again, seAgain)
		}
	}
}
