package pipeline

// This file has the command-line flags of the stages.

import (
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/pipeline/validate"
)

// Flags returns the filter as flags. Documents do not record these; they record the runs that were
// used.
func (f *Filter) Flags() []cli.Flag {
	return []cli.Flag{
		&cli.GenericFlag{Name: "only", Value: option.List(&f.Only),
			Usage: "use only the runs whose id matches `GLOB` (repeatable)"},
		&cli.GenericFlag{Name: "exclude", Value: option.List(&f.Exclude),
			Usage: "do not use the runs whose id matches `GLOB` (repeatable)"},
	}
}

// Flags returns the options of the stage as flags.
func (o *ExtractOptions) Flags() []cli.Flag {
	return append(o.Options.Flags(), o.Filter.Flags()...)
}

// Flags returns the options of the stage as flags; fit.json records those that can change it.
func (o *FitOptions) Flags() []cli.Flag {
	return slices.Concat(o.LearningFlags(), o.fileFlags(), []cli.Flag{forceFlag(&o.Force)}, o.Filter.Flags())
}

// fileFlags returns the flags of files that are written beside the fit.
func (o *FitOptions) fileFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "save-gram", Destination: &o.SaveGram, Value: o.SaveGram,
			Usage: "also write the sums over all measurements (Gram matrices) to `FILE`, to be merged and fitted elsewhere by --from-gram"},
		&cli.BoolFlag{Name: "dump-rows", Destination: &o.DumpRows, Value: o.DumpRows,
			Usage: "also write OUT/rows.parquet: every measurement of the fit with its features"},
	}
}

// LearningFlags returns the flags that decide the coefficients.
func (o *FitOptions) LearningFlags() []cli.Flag {
	return append(o.Options.Flags(),
		option.Recorded(&cli.StringFlag{Name: "from", Destination: &o.From, Value: o.From,
			Usage: "fit to `EVIDENCE`: steps, requests (of clients, without step traces) or points (CSV tables of load levels) " +
				"(default: steps where any are traced, else requests)"}),
		option.RecordedUnless(requestfit.SearchNone, &cli.StringFlag{Name: "search", Destination: &o.Search, Value: o.Search,
			Usage: "of a fit from requests: refine its result by a `SEARCH`: none, nelder-mead, spsa or cmaes"}),
		option.Recorded(&cli.GenericFlag{Name: "holdout", Value: option.List(&o.Holdout),
			Usage: "of a fit from requests: leave out the run with this `ID`, and validate on it (repeatable)"}),
		option.RecordedUnless(FormPhysics, &cli.StringFlag{Name: "form", Destination: &o.Form, Value: o.Form,
			Usage: "`FORM` of the result of a fit from requests: physics, or trained-physics, which also writes BLIS's 3+11 coefficients"}),
		option.Recorded(&cli.StringFlag{Name: "budget", Destination: &o.Budget, Value: o.Budget,
			Usage: "`TIME` of a fit from requests, such as 60s; its passes and its search end after as many simulated steps " +
				"(500,000 a second)"}),
		option.Recorded(&cli.GenericFlag{Name: "shared-prefix-tokens", Value: option.Count(&o.Shared), Usage: validate.SharedPrefixUsage}))
}

// Flags returns the options of the stage as flags; validation.json records those that can change it.
func (o *ValidateOptions) Flags() []cli.Flag {
	all := append(o.Options.Flags(),
		&cli.StringFlag{Name: "fit", Destination: &o.Fit, Value: o.Fit,
			Usage: "`FILE` of the fit to validate (default: OUT/fit.json)"},
		&cli.StringFlag{Name: "coefficients", Destination: &o.Coefficients, Value: o.Coefficients,
			Usage: "validate this coefficient `FILE` in place of the fit's own coefficients"},
		&cli.StringFlag{Name: "figures", Destination: &o.Figures, Value: o.Figures,
			Usage: "also write every figure of the report as SVG to `DIR`"},
		&cli.StringFlag{Name: "baseline", Destination: &o.Baseline, Value: o.Baseline,
			Usage: "print what changed since `OLD`: a validation.json, a coefficient file, or a folder with either"},
		forceFlag(&o.Force),
	)
	option.Plain(option.Find(all, "split")).(*cli.Float64Flag).DefaultText = "the fit's"
	option.Plain(option.Find(all, "max-rows")).(*cli.IntFlag).DefaultText = "the fit's"
	return all
}

// Flags returns the flags of the stages extract, fit and validate, one list for each. Flags of several
// stages with the same name are one flag of a run. It validates its own fit, so it has no flags that name another.
func (o *RunOptions) Flags() [][]cli.Flag {
	return [][]cli.Flag{
		o.Extract.Flags(),
		append(o.Fit.LearningFlags(), o.Fit.fileFlags()...),
		option.Without(o.Validate.Flags(), "fit", "coefficients", "force"),
	}
}

// Flags returns the options of the stage as flags; inspect.json records the first two.
func (o *InspectOptions) Flags() []cli.Flag {
	return append(o.recordedFlags(), o.Extract.Flags()...)
}

// recordedFlags returns the flags that inspect.json records.
func (o *InspectOptions) recordedFlags() []cli.Flag {
	return []cli.Flag{
		option.Recorded(&cli.BoolFlag{Name: "identify", Destination: &o.Identify, Value: o.Identify,
			Usage: "also report which terms these data can tell apart, and which experiment would help most"}),
		option.RecordedUnless("0", &cli.IntFlag{Name: "points", Destination: &o.Points, Value: o.Points,
			Usage: "propose the `N` most informative load levels for each deployment, to be measured for fit --from points; 0: none"}),
	}
}

// Flags returns the options of the stage as flags; an export's sidecar records those that can
// change it.
func (o *ExportOptions) Flags() []cli.Flag {
	return []cli.Flag{
		option.Recorded(&cli.StringFlag{Name: "format", Aliases: []string{"f"}, Destination: (*string)(&o.Format), Value: string(o.Format),
			Usage: "`FORMAT` to write; docs/formats.md describes them"}),
		option.Recorded(&cli.GenericFlag{Name: "option", Value: option.List(&o.Given),
			Usage: "an option of the format, `KEY=VALUE` (repeatable)"}),
		&cli.StringFlag{Name: "validation", Destination: &o.Validation, Value: o.Validation,
			Usage: "validation.json with the gates, `FILE`, or none (default: the one beside fit.json)"},
		option.Recorded(&cli.StringFlag{Name: "for", Destination: &o.For, Value: o.For,
			Usage: "refuse the export unless the gates of this `PURPOSE` passed: steps, replay, waits, transfer or all " +
				"(default: the validation's own)"}),
		option.Recorded(&cli.BoolFlag{Name: "allow-insufficient", Destination: &o.Accept.Insufficient, Value: o.Accept.Insufficient,
			Usage: "also export when there are too few data to decide the gates"}),
		option.Recorded(&cli.BoolFlag{Name: "ignore-verdict", Destination: &o.Accept.Any, Value: o.Accept.Any,
			Usage: "export whatever the verdict"}),
		option.Recorded(&cli.StringFlag{Name: "force", Destination: &o.Force, Value: o.Force,
			Usage: "write values that the format's reader should not be given, by the `CODE` of the refusal; several with commas"}),
		option.Recorded(&cli.StringFlag{Name: "config", Destination: &o.Config, Value: o.Config,
			Usage: "export only this configuration, by `LABEL` or key; native, card and the predictors' formats have all"}),
		option.RecordedUnless("0", &cli.Float64Flag{Name: "prompt-tokens", Destination: &o.PromptTokens, Value: o.PromptTokens,
			Usage: "mean prompt length of the traffic, `TOKENS`; 0: that of the training requests"}),
		option.RecordedUnless("0", &cli.Float64Flag{Name: "output-tokens", Destination: &o.OutputTokens, Value: o.OutputTokens,
			Usage: "mean output length of the traffic, `TOKENS`; 0: that of the training requests"}),
	}
}

// forceFlag returns the flag --force of stages that write to an output folder.
func forceFlag(force *bool) cli.Flag {
	return &cli.BoolFlag{Name: "force", Destination: force, Value: *force,
		Usage: "accept an output folder that holds files of other programs"}
}
