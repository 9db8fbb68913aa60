package coeff

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
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
	RankUs         flow[float64] `yaml:"rank_us"`          // per step and further tensor-parallel rank
	SyncStepUs     flow[float64] `yaml:"sync_step_us"`     // per step of an engine without asynchronous scheduling, on top
	SyncSequenceUs flow[float64] `yaml:"sync_sequence_us"` // per sequence of such a step, on top
}

// ExpectedError is how far predictions were off where the library had not been
// corrected; ratios.
type ExpectedError struct {
	TPOTMape   float64 `yaml:"tpot_mape"`
	TTFTMedian float64 `yaml:"ttft_median"`
	Points     int     `yaml:"points"`          // measured points behind the two
	OnGPU      bool    `yaml:"measured_on_gpu"` // false: measured on other GPUs only
}

// Slots of the step time that host work belongs to.
const (
	slotSequences    = 6 // batch_utilization
	slotBias         = 16
	sequencesPerUnit = 256
)

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
			return trace.Errorf(badCoefficientFile, "library.host.%s: got %v, want a time in us and its standard error, both >= 0", v.name, v.pair)
		}
	}
	return finite("library.expected_error", l.Expected.TPOTMape, l.Expected.TTFTMedian)
}

// withHost is the set with its library's host work on one deployment in the
// bias and the term of sequences, and none left to add.
func (s *Set) withHost(d *deploy.Deployment) *Set {
	if s.Library == nil || s.SpecVersion == features.V10 {
		return s
	}
	h := s.Library.Host
	ranks, sync := float64(d.TP-1), 1.0
	if d.Engine.IsAsync() {
		sync = 0
	}
	on, l := *s, *s.Library
	l.Host = HostWork{RankUs: []float64{0, 0}, SyncStepUs: []float64{0, 0}, SyncSequenceUs: []float64{0, 0}}
	on.Library, on.Beta = &l, slices.Clone(s.Beta)
	on.Beta[slotBias-1].Value += float64(ranks*h.RankUs[0]) + float64(sync*h.SyncStepUs[0])
	on.Beta[slotSequences-1].Value += float64(sequencesPerUnit * sync * h.SyncSequenceUs[0])
	if s.Covariance != nil {
		on.Covariance = slices.Clone(s.Covariance)
		for _, add := range []struct {
			slot     int
			variance float64
		}{
			{slotBias, square(ranks*h.RankUs[1]) + square(sync*h.SyncStepUs[1])},
			{slotSequences, square(sequencesPerUnit * sync * h.SyncSequenceUs[1])},
		} {
			on.Covariance[add.slot-1] = slices.Clone(on.Covariance[add.slot-1])
			on.Covariance[add.slot-1][add.slot-1] += add.variance
		}
	}
	for _, slot := range []int{slotBias, slotSequences} {
		on.Beta[slot-1].forgetIntervals()
	}
	return &on
}

func square(v float64) float64 { return float64(v * v) }
