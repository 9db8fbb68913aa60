package validate

import (
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Source is one run to judge. Load is called once for the steps and once for
// the replay, possibly from another goroutine.
type Source struct {
	ID       string
	Training bool   // its recordings were part of the fit
	Informs  string // why its replay decides nothing; empty: it decides
	Most     int64  // rows of a target it can have at most; 0: unknown, it counts for none
	Config   string // key of its configuration
	Stride   int    // one row in so many is judged; 0: Run decides for all sources
	Load     func() (*trace.Run, *deploy.Deployment, error)
	// Steps and Replay are folders of StoreSteps and StoreReplay under the same options, in
	// place of that work; "": it is done.
	Steps, Replay string
}

// Options decide a validation. The zero value of a field is its default unless said otherwise.
type Options struct {
	Split      float64  // training share of each phase, (0, 1]; default 0.8
	StepsOnly  bool     // no replay
	Seed       int64    // of the noise; 0 is seed 0, 1 in DefaultOptions
	Noise      bool     // make the two noisy replays too
	OverheadUs *float64 // constant in place of the overhead alpha, us
	IdleDelays bool     // measure constant overhead and egress from requests that met an idle server
	EgressUs   *float64 // constant in place of the egress alpha, us
	// SharedPrefix is how many leading prompt tokens the requests of a run share
	// whose recording does not say what they share (stock spans, client files).
	SharedPrefix int64
	Thresholds   map[string]float64 // gate name -> threshold
	// ThresholdsFrom says who set a threshold, for the documents; "option" by default.
	ThresholdsFrom map[string]string
	For            string      // the purpose that decides: steps, replay, waits, transfer or all; empty: see spec#verdict
	Recipe         rows.Recipe // of the cleaning; default: that of the coefficients
	MaxRows        int         // rows of steps judged, at most; 0: all of them, -1: as many as the fit learns from
	Workers        int         // 0: all cores; never changes a result

	// Latency replaces the coefficients' step time in replays; nil: physics.
	Latency     func(*deploy.Deployment) (sim.Model, error)
	LatencyName string

	Progress trace.Progress // may be nil
}

// fitsRows in place of a number of rows: that of the fit.
const fitsRows = -1

// DefaultOptions are those of the command line.
func DefaultOptions() Options {
	return Options{Split: rows.DefaultSplit, Seed: 1, Noise: true, MaxRows: fitsRows}
}

// Check refuses options out of their range.
func (o Options) Check() error { _, err := o.resolve(); return err }

func (o Options) resolve() (Options, error) {
	if o.Split == 0 {
		o.Split = rows.DefaultSplit
	}
	if o.LatencyName == "" {
		o.LatencyName = "physics"
	}
	switch {
	case !(o.Split > 0 && o.Split <= 1):
		return o, trace.Errorf(rows.BadOption, "--split: got %g, want a share in (0, 1]", o.Split)
	case o.For != "" && !CheckPurpose(o.For):
		return o, trace.Errorf(rows.BadOption, "--for: got %q, want %s or %s", o.For, strings.Join(coeff.Purposes, ", "), coeff.PurposeAll)
	case o.SharedPrefix < 0:
		return o, trace.Errorf(rows.BadOption, "--shared-prefix-tokens: got %d tokens, want >= 0", o.SharedPrefix)
	case o.OverheadUs != nil && !(*o.OverheadUs >= 0 && *o.OverheadUs < 1e9):
		return o, trace.Errorf(rows.BadOption, "--overhead-us: got %g us, want >= 0 and < 1e9", *o.OverheadUs)
	case o.EgressUs != nil && !(*o.EgressUs >= 0 && *o.EgressUs < 1e9):
		return o, trace.Errorf(rows.BadOption, "--egress-us: got %g us, want >= 0 and < 1e9", *o.EgressUs)
	}
	if o.MaxRows != fitsRows {
		if err := rows.CheckMaxRows(o.MaxRows); err != nil {
			return o, err
		}
	}
	return o, CheckThresholds(o.Thresholds)
}

func (o *Options) recipe(set string, v features.Version) rows.Recipe {
	switch {
	case o.Recipe != "":
		return o.Recipe
	case set != "":
		return rows.Recipe(set)
	case v == features.V10:
		return rows.Frozen
	}
	return rows.Relative
}
