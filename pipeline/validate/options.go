package validate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/rows"
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
	Levels   []result.LevelHoldout // what its replay is judged by in place of requests; nil: requests
	// Steps and Replay are folders of StoreSteps and StoreReplay under the same options, in
	// place of that work; "": it is done.
	Steps, Replay string
}

// Options decide a validation. The zero value of a field is its default unless said otherwise.
type Options struct {
	Split      float64  // training share of each phase, (0, 1]; default 0.8
	StepsOnly  bool     // no replay
	Seed       int64    // of the noise; 0 is seed 0, 1 in DefaultOptions
	Noise      string   // residual: make the two noisy replays too; none or empty: do not
	OverheadUs *float64 // constant in place of the overhead alpha, us
	IdleDelays bool     // measure constant overhead and egress from requests that met an idle server
	EgressUs   *float64 // constant in place of the egress alpha, us
	// SharedPrefix is how many leading prompt tokens the requests of a run share
	// whose recording does not say what they share (stock spans, client files).
	SharedPrefix int64
	Thresholds   map[string]float64 // gate name -> threshold
	// ThresholdsFrom says who set a threshold, for the documents; "option" by default.
	ThresholdsFrom map[string]string
	For            string // the purpose that decides: steps, replay, waits, transfer or all; empty: see spec#verdict
	MaxRows        int    // rows of steps judged, at most; 0: all of them, -1: as many as the fit learns from
	Workers        int    // 0: all cores; never changes a result

	// Latency is the step time of replays: physics (that of the coefficients, the default) or roofline.
	Latency string

	Progress trace.Progress // may be nil
}

// fitsRows in place of a number of rows: that of the fit.
const fitsRows = -1

// DefaultOptions are those of the command line.
func DefaultOptions() Options {
	return Options{Split: rows.DefaultSplit, Seed: 1, Noise: "residual", Latency: "physics", MaxRows: fitsRows}
}

// Check refuses options out of their range.
func (o Options) Check() error { _, err := o.resolve(); return err }

func (o Options) resolve() (Options, error) {
	if o.Split == 0 {
		o.Split = rows.DefaultSplit
	}
	if o.Latency == "" {
		o.Latency = "physics"
	}
	switch {
	case !(o.Split > 0 && o.Split <= 1):
		return o, trace.Errorf(rows.BadOption, "--split: got %g, want a share in (0, 1]", o.Split)
	case o.For != "" && !CheckPurpose(o.For):
		return o, option.Misusef("--for: got %q, want %s or %s", o.For, strings.Join(coeff.Purposes, ", "), coeff.PurposeAll)
	case o.Noise != "" && o.Noise != "residual" && o.Noise != "none":
		return o, option.Misusef("--noise: got %q, want residual or none", o.Noise)
	case o.Latency != "physics" && o.Latency != "roofline":
		return o, option.Misusef("--latency: got %q, want physics or roofline", o.Latency)
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

// recipe is that of the cleaning: of the coefficients.
func recipe(set string, v features.Version) rows.Recipe {
	switch {
	case set != "":
		return rows.Recipe(set)
	case v == features.V10:
		return rows.Frozen
	}
	return rows.Relative
}

// Table is the options of a validation as flags and as recorded.
func (o *Options) Table() option.Table {
	return option.Table{
		option.Switch("steps-only", &o.StepsOnly, "no replay: teacher-forced errors only").Recorded(),
		option.String("noise", &o.Noise, "noisy replays beside the plain one, `KIND`: residual or none").Recorded().Unless("residual"),
		option.Maybe("overhead-us", &o.OverheadUs,
			"constant overhead in `US` in place of the overhead coefficients; -1: those").Recorded(),
		option.Maybe("egress-us", &o.EgressUs, "constant egress in `US`; -1: the egress coefficients").Recorded(),
		option.Switch("idle-delays", &o.IdleDelays, "take overhead and egress from requests that met an idle server").Recorded(),
		option.Whole("shared-prefix-tokens", &o.SharedPrefix,
			"first `N` prompt tokens that requests share where the recording does not say").Recorded().Unless("0"),
		option.String("latency", &o.Latency, "step time `MODEL` of the replay: physics or roofline").Recorded().Unless("physics"),
		o.gateOption().Recorded(),
		option.String("for", &o.For, "the `PURPOSE` that decides: steps, replay, waits, transfer or all (default: replay; steps where "+
			"nothing is replayed)").Recorded(),
		option.Real("split", &o.Split, "training `SHARE` of each phase, at least the fit's (its default)").Recorded(),
		option.Whole("max-rows", &o.MaxRows, "judge `N` rows of steps at most, evenly chosen; 0: all; -1: as many as the fit").Recorded().
			Unless(strconv.Itoa(fitsRows)),
		option.Whole("seed", &o.Seed, "`SEED` of the noise").Recorded(),
		option.Whole("workers", &o.Workers, "`N` workers; 0 uses every core"),
	}
}

// gateOption adds thresholds to those that are there.
func (o *Options) gateOption() option.Option {
	return option.Option{
		Name:  "gate",
		Usage: "threshold of a gate, `NAME=VALUE` (repeatable); list prints every gate with threshold and source", Default: []string(nil),
		Set: func(v any) error {
			for _, g := range v.([]string) {
				name, text, ok := strings.Cut(g, "=")
				limit, err := strconv.ParseFloat(text, 64)
				if !ok || err != nil {
					return option.Misusef("--gate: got %q, want NAME=VALUE", g)
				}
				o.SetThreshold(name, limit, "--gate")
			}
			return nil
		},
		Values: func() []string {
			return stat.Map(slices.Sorted(maps.Keys(o.Thresholds)), func(name string) string {
				return fmt.Sprintf("%s=%g", name, o.Thresholds[name])
			})
		},
	}
}

// SetThreshold sets the threshold of a gate and who did so.
func (o *Options) SetThreshold(gate string, limit float64, from string) {
	if o.Thresholds == nil {
		o.Thresholds, o.ThresholdsFrom = map[string]float64{}, map[string]string{}
	}
	o.Thresholds[gate], o.ThresholdsFrom[gate] = limit, from
}

// Command is the `command` of validation.json: the stage and every option that
// can change its numbers (spec#documents).
func (o Options) Command() string {
	if r, err := o.resolve(); err == nil {
		o = r
	}
	return o.Table().Command("validate")
}
