package fit

// This file makes command-line flags of the options of a fit. Options recorded here become part of the
// `command` of fit.json (Options.Command).

import (
	"errors"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/rows"
)

// Flags returns the options of a fit as flags; fit.json records those that can change it.
func (o *Options) Flags() []cli.Flag {
	return []cli.Flag{
		option.Recorded(&cli.StringFlag{Name: "spec", Destination: (*string)(&o.Spec), Value: string(o.Spec),
			Usage: "feature specification `VERSION`: 1.0, 1.1, 1.2, 1.3 or experimental, all but 1.0 also with +principal-components " +
				"(default: 1.2 with a library's prior, 1.3 for models with unlike layers, else 1.1)"}),
		option.Recorded(&cli.StringFlag{Name: "recipe", Destination: &o.Recipe, Value: o.Recipe,
			Usage: "cleaning and weighting `RECIPE`: relative or frozen (default: frozen with spec 1.0, else relative)"}),
		option.Recorded(&cli.StringFlag{Name: "beta-target", Destination: &o.BetaTarget, Value: o.BetaTarget,
			Usage: "step time that is fitted, `TARGET`: cadence or duration (default: duration with spec 1.0, else cadence)"}),
		option.Recorded(&cli.GenericFlag{Name: "alpha-target", Value: option.List(&o.AlphaTargets),
			Usage: "delay that is fitted, `TARGET`: overhead, admission, egress or queue (repeatable; default: queue with spec 1.0, " +
				"else the other three)"}),
		option.Recorded(&cli.StringFlag{Name: "objective", Destination: &o.Objective, Value: o.Objective,
			Usage: "cross-validation error that chooses lambda, `OBJECTIVE`: within, cross or minimax (default: within for one or two " +
				"configurations, else cross)"}),
		option.RecordedUnless(SelectMinimum, &cli.StringFlag{Name: "selection", Destination: &o.Selection, Value: o.Selection,
			Usage: "lambda of the step time within one or two configurations, `RULE`: minimum of the cross-validation error, or " +
				"one-standard-error, the largest lambda within one standard error of it (default: minimum)"}),
		option.Recorded(&cli.Float64Flag{Name: "split", Destination: &o.Split, Value: o.Split,
			Usage: "training `SHARE` of each phase, above 0 and at most 1"}),
		option.Recorded(&cli.GenericFlag{Name: "lag", Value: &lagValue{&o.Lag},
			Usage: "`STEPS` between schedule() and execution: 0, 1 or 2; -1 measures it for each run"}),
		option.Recorded(&cli.StringFlag{Name: "prior", Destination: &o.Prior, Value: o.Prior,
			Usage: "what the step-time coefficients are drawn to, `PRIOR`: library (measured kernels), roofline, zero, or a coefficient " +
				"file; library and files need spec 1.2 or 1.3 (default: library or zero, whichever predicts held-out steps " +
				"better, for dense models on GPUs with kernel tables; zero for others)"}),
		option.Recorded(&cli.IntFlag{Name: "bootstraps", Destination: &o.Bootstraps, Value: o.Bootstraps,
			Usage: "`DRAWS` of the block bootstrap that gives the intervals, at least 50"}),
		option.Recorded(&cli.Int64Flag{Name: "seed", Destination: &o.Seed, Value: o.Seed,
			Usage: "`SEED` of bootstrap, noise and sampling"}),
		option.Recorded(&cli.BoolFlag{Name: "refit-all", Destination: &o.RefitAll, Value: o.RefitAll,
			Usage: "fit all measurements again with the chosen lambda, gamma and lag"}),
		option.Recorded(&cli.GenericFlag{Name: "model", Value: option.List(&o.Models),
			Usage: "for comparison, also fit the step-time model of this `NAME`: blackbox, trained-physics, roofline or linear3 " +
				"(repeatable; default: the first three)"}),
		option.Recorded(&cli.GenericFlag{Name: "without", Value: option.List(&o.Without),
			Usage: "hold out the run of this `ID` (repeatable)"}),
		option.Recorded(&cli.BoolFlag{Name: "keep-saturated", Destination: &o.KeepSaturated, Value: o.KeepSaturated,
			Usage: "also fit runs of a saturated server"}),
		option.RecordedUnless(strconv.Itoa(rows.DefaultMaxRows), &cli.IntFlag{Name: "max-rows", Destination: &o.MaxRows, Value: o.MaxRows,
			Usage: "fit at most `N` measured steps, evenly chosen; 0: all"}),
		&cli.IntFlag{Name: "workers", Destination: &o.Workers, Value: o.Workers,
			Usage: "`N` workers; 0: every core"},
	}
}

// lagValue is the value of --lag: -1 has the lag measured.
type lagValue struct{ lag **int }

// String returns the lag; "-1" if it is not set.
func (v *lagValue) String() string {
	if v.lag == nil || *v.lag == nil {
		return "-1"
	}
	return strconv.Itoa(**v.lag)
}

// Set sets the lag.
func (v *lagValue) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		return errors.New("want a whole number")
	}
	if n < -1 {
		return errors.New("want 0, 1, 2 or -1")
	}
	*v.lag = nil
	if n >= 0 {
		*v.lag = &n
	}
	return nil
}

// Values are recorded: none where the lag is measured.
func (v *lagValue) Values() []string {
	if *v.lag == nil {
		return nil
	}
	return []string{v.String()}
}
