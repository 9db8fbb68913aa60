package coeff

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// Library is what a set of the library says about itself: coefficients of one
// GPU and one kind of weights for any model, made from published kernel times and
// corrected by measured servers. Nil for sets that were fitted to traces.
type Library struct {
	Version string `yaml:"version"` // of the library: the day of its newest input
	Weights string `yaml:"weights"` // bf16 | fp8
	MoE     bool   `yaml:"moe"`     // mixtures of experts; else dense models
	Rules   string `yaml:"kernel_rules"`
	// Host is what differs between the deployments of one GPU; Set.On adds it.
	Host HostWork `yaml:"host"`
	// Expected are the errors on measured groups that the correction had not seen.
	Expected ExpectedError `yaml:"expected_error"`
}

// HostWork is time of the host that no term of a step holds, each with its
// standard error.
type HostWork struct {
	RankUs         []float64 `yaml:"rank_us"`          // per step and further tensor-parallel rank
	SyncStepUs     []float64 `yaml:"sync_step_us"`     // per step of an engine without asynchronous scheduling, on top
	SyncSequenceUs []float64 `yaml:"sync_sequence_us"` // per sequence of such a step, on top
}

// ExpectedError is how far predictions were off where the library had not been
// corrected; ratios.
type ExpectedError struct {
	TPOTMape   float64 `yaml:"tpot_mape"`
	TTFTMedian float64 `yaml:"ttft_median"`
	Points     int     `yaml:"points"`          // measured points behind the two
	OnGPU      bool    `yaml:"measured_on_gpu"` // false: measured on other GPUs only
}

func (l *Library) check() error {
	if l == nil {
		return nil
	}
	h := &l.Host
	for _, v := range []struct {
		name string
		pair []float64
	}{{"rank_us", h.RankUs}, {"sync_step_us", h.SyncStepUs}, {"sync_sequence_us", h.SyncSequenceUs}} {
		if len(v.pair) != 2 || !(v.pair[0] >= 0) || !(v.pair[1] >= 0) || math.IsInf(v.pair[0], 0) || math.IsInf(v.pair[1], 0) {
			return trace.Errorf(BadFile, "library.host.%s: got %v, want a time in us and its standard error, both >= 0", v.name, v.pair)
		}
	}
	return finite("library.expected_error", l.Expected.TPOTMape, l.Expected.TTFTMedian)
}
