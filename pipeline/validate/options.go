package validate

// This file has the options of a validation, with their defaults and checks. flags.go makes flags of them.

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Options decide a validation. The zero value of a field is its default unless a comment has another.
type Options struct {
	Split      float64  // training share of each phase, (0, 1]; default 0.8
	StepsOnly  bool     // no replay
	Unreplayed string   // with StepsOnly: why a recording that should be replayed is not, so that the replay stays undecided
	Seed       int64    // of the noise; 0 is seed 0, 1 in DefaultOptions
	Noise      string   // residual: make the two noisy replays too; none or empty: do not
	OverheadUs *float64 // constant in place of the overhead alpha, us
	IdleDelays bool     // measure constant overhead and egress from requests that met an idle server
	EgressUs   *float64 // constant in place of the egress alpha, us
	// SharedPrefix is how many leading prompt tokens all requests of a run share, where its recording does
	// not show it (stock spans, client files); 0 states that they share nothing, nil states nothing. It goes
	// before what run.yaml states.
	SharedPrefix *int64
	Thresholds   map[string]float64 // by gate
	// ThresholdsFrom names, by gate, the option or file that set a threshold; "option" by default.
	ThresholdsFrom map[string]string
	ListGates      bool   // --gate list: the caller prints the gates and validates nothing
	For            string // purpose that decides: steps, replay, waits, transfer or all; empty: see spec#verdict
	MaxRows        int    // rows of steps judged, at most; 0: all of them, -1: as many as the fit uses
	Workers        int    // 0: all cores; never changes a result
	// Latency is the step time of replays: physics (that of the coefficients, the default) or roofline.
	Latency  string
	Progress trace.Progress // may be nil
}

const (
	noiseResidual   = "residual"
	latencyPhysics  = "physics"
	latencyRoofline = "roofline"
	fitsRows        = -1 // MaxRows: as many as the fit uses
)

// DefaultOptions returns the options that the command line has by default.
func DefaultOptions() Options {
	return Options{Split: rows.DefaultSplit, Seed: 1, Noise: noiseResidual, Latency: latencyPhysics, MaxRows: fitsRows}
}

// Check returns an error for options out of their range.
func (o Options) Check() error {
	_, err := o.resolve()
	return err
}

// resolve returns the options with defaults set, and an error for one out of range.
func (o Options) resolve() (Options, error) {
	if o.Split == 0 {
		o.Split = rows.DefaultSplit
	}
	if o.Latency == "" {
		o.Latency = latencyPhysics
	}
	switch {
	case !(o.Split > 0 && o.Split <= 1):
		return o, trace.Errorf(rows.BadOption, "--split: got %g, want a share in (0, 1]", o.Split)
	case o.For != "" && !gate.IsPurpose(o.For):
		return o, option.Misusef("--for: got %q, want %s or %s", o.For, strings.Join(coeff.Purposes, ", "), coeff.PurposeAll)
	case o.Noise != "" && o.Noise != noiseResidual && o.Noise != "none":
		return o, option.Misusef("--noise: got %q, want residual or none", o.Noise)
	case o.Latency != latencyPhysics && o.Latency != latencyRoofline:
		return o, option.Misusef("--latency: got %q, want physics or roofline", o.Latency)
	case o.SharedPrefix != nil && *o.SharedPrefix < 0:
		return o, trace.Errorf(rows.BadOption, "--shared-prefix-tokens: got %d tokens, want >= 0", *o.SharedPrefix)
	}
	if err := checkDelay("--overhead-us", o.OverheadUs); err != nil {
		return o, err
	}
	if err := checkDelay("--egress-us", o.EgressUs); err != nil {
		return o, err
	}
	if o.MaxRows != fitsRows {
		if err := rows.CheckMaxRows(o.MaxRows); err != nil {
			return o, err
		}
	}
	_, err := gate.NewRules(o.Thresholds)
	return o, err
}

// checkDelay returns an error for a delay out of range.
func checkDelay(flag string, us *float64) error {
	const longestUs = 1e9
	if us != nil && !(*us >= 0 && *us < longestUs) {
		return trace.Errorf(rows.BadOption, "%s: got %g us, want >= 0 and < 1e9", flag, *us)
	}
	return nil
}

// checkSplit returns an error for a hold-out that was part of the fit: the training share may not
// be smaller than the fit's.
func checkSplit(fit *result.Fit, split float64) error {
	if fit == nil || split >= fit.Options.Split {
		return nil
	}
	return trace.Errorf(rows.BadOption, "--split: got %g, want at least the fit's %g: the coefficients have seen the rest", split,
		fit.Options.Split).
		WithHint(fmt.Sprintf("set split: %g under fit in --config FILE and fit again", split))
}

// RowsJudged sets the stride of each source so that as many rows are validated as the options
// allow: by default as many as were fitted. It returns a warning with the number of rows that are
// not validated.
func RowsJudged(fit *result.Fit, sources []Source, o Options) []trace.Finding {
	limit := o.MaxRows
	if limit == fitsRows {
		limit = rows.DefaultMaxRows
		if fit != nil {
			limit = rows.RecordedMaxRows(fit.Options.MaxRows)
		}
	}
	most := make([]int64, len(sources))
	configs := make([]string, len(sources))
	for i, s := range sources {
		most[i] = s.Most
		configs[i] = s.Config
	}
	strides, found := rows.Strides(most, configs, limit)
	for i := range sources {
		sources[i].Stride = strides[i]
	}
	return found
}

// SetThreshold sets the threshold of a gate; from is the option or file that did so.
func (o *Options) SetThreshold(gate string, limit float64, from string) {
	if o.Thresholds == nil {
		o.Thresholds = map[string]float64{}
		o.ThresholdsFrom = map[string]string{}
	}
	o.Thresholds[gate] = limit
	o.ThresholdsFrom[gate] = from
}

// Command returns the `command` of validation.json: the stage and every option that
// can change its numbers (spec#documents).
func (o Options) Command() string {
	if r, err := o.resolve(); err == nil {
		o = r
	}
	return option.Command("validate", o.Flags())
}
