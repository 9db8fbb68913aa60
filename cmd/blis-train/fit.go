package main

// This file is the command fit, which fits coefficients to extracted tables or load levels.

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// fitCommand returns the command fit.
func fitCommand() *cli.Command {
	o := pipeline.DefaultFitOptions()
	var grams []string
	groups := []group{{name: "fit", options: o.Flags()}}
	return newCommand(&cli.Command{
		Name:      "fit",
		ArgsUsage: "OUT",
		Usage:     "fit coefficients to extracted tables",
		Description: `Reads OUT/tables and OUT/extract.json, measures how many steps lie between scheduling and execution,
fits step time and delays, and writes fit.json and coefficients.yaml. A fit from requests or load levels
is validated at once, as by validate: it also writes validation.json and report.html, and exits with
status 3 when a gate fails or there are too few data to decide the gates. A fit that was validated is
replaced with --force only.

Example:
   blis-train fit out --prior zero
   blis-train fit out --save-gram site-a.gram
   blis-train fit --from-gram site-a.gram site-b.gram -o pooled`,
		Flags: slices.Concat(
			flagsOf(groups, "spec", "prior", "bootstraps", "model", "without", "workers", "from", "search",
				"holdout", "shared-prefix-tokens", "save-gram",
				"force", "only", "exclude"),
			verdictFlags(),
			[]cli.Flag{
				&cli.GenericFlag{Name: "from-gram", Value: option.List(&grams),
					Usage: "fit the sums in this Gram `FILE` in place of OUT (repeatable, or as arguments); needs -o"},
				&cli.StringFlag{Name: "deployment",
					Usage: "run.yaml `FILE` of the server that --from points were measured on"},
				resultsFlag(&o.Out), configFlag(), ledgerFlag(), verboseFlag(),
			}),
	}, groups, func(c *cli.Context, con *console) error { return runFit(c, con, &o, grams) })
}

// runFit fits coefficients to the folder in the argument, to the files of --from-gram or to tables
// of load levels, and prints the fit. grams are the files of --from-gram.
func runFit(c *cli.Context, con *console, o *pipeline.FitOptions, grams []string) error {
	var err error
	par.LeanHeap()
	if len(grams) == 0 && o.From != fit.FromPoints.Name && c.NArg() != 1 {
		return usagef("fit: got %d arguments, want one extracted folder", c.NArg())
	}
	if err := con.configure(c, c.String("config"), c.Args().Slice()); err != nil {
		return err
	}
	defer con.flushWarnings()
	o.Special = con.special
	o.Config = con.settings.record
	o.Progress = con.progress()
	o.Warn = con.warn
	if err := refuseUnused(c, o.From, len(grams) > 0); err != nil {
		return err
	}
	if err := keepJudged(c, o, len(grams) > 0); err != nil {
		return err
	}
	// Fit to load levels, to saved sums, or to the extracted tables.
	var doc *result.Fit
	if o.From == fit.FromPoints.Name {
		doc, err = fitPoints(c, *o)
	} else if len(grams) > 0 {
		doc, err = pipeline.FitGrams(c.Context, append(grams, c.Args().Slice()...), *o)
	} else {
		doc, err = pipeline.Fit(c.Context, c.Args().First(), *o)
	}
	if err != nil {
		return err
	}
	// A fit without step times is validated at once, because its evidence is the requests themselves. Of
	// the others print the command that comes next.
	showFit(con, doc)
	in := c.Args().First()
	out := cmp.Or(o.Out, in)
	if doc.Requests != nil {
		return con.judgeFit(c, doc, in, out, o)
	}
	if con.brief {
		con.configurations(report.Input{Fit: doc})
		con.flushWarnings()
	}
	switch own := filepath.Clean(in) == filepath.Clean(out); {
	case !con.brief:
	case len(grams) > 0: // nothing there to replay
		con.infof("next: blis-train check %s", files.Word(filepath.Join(out, folder.CoefficientsFile)))
	case own:
		con.infof("next: blis-train validate %s", files.Word(out))
	default:
		con.infof("next: blis-train validate %s --fit %s -o %s", files.Word(in),
			files.Word(filepath.Join(out, folder.FitFile)), files.Word(out))
	}
	if err := con.appendLedger(c.String("ledger"), "fit", doc.Header, doc, nil,
		filepath.Join(out, folder.CoefficientsFile)); err != nil {
		return err
	}
	return con.document(doc)
}

// judgeFit validates a fit from requests or load levels, writes its report, and returns an error if
// its verdict is not accepted. in is the extracted folder, out that of the results, of has the
// options of the fit.
func (con *console) judgeFit(c *cli.Context, doc *result.Fit, in, out string, of *pipeline.FitOptions) error {
	o := pipeline.DefaultValidateOptions()
	con.completeValidate(&o)
	o.Out = out
	o.Fit = filepath.Join(out, folder.FitFile)
	o.SharedPrefix = of.Shared
	o.Workers = of.Workers
	o.Seed = of.Seed
	if of.From == fit.FromPoints.Name {
		in = out // its tables are there
	}
	val, _, err := pipeline.Validate(c.Context, in, o)
	if err != nil {
		return err
	}
	con.showValidation(val, doc, out, filepath.Join(out, folder.CoefficientsFile))
	coefficients := filepath.Join(out, folder.CoefficientsFile)
	if err := con.appendLedger(c.String("ledger"), "fit", doc.Header, doc, val, coefficients); err != nil {
		return err
	}
	if err := con.document(doc); err != nil {
		return err
	}
	return verdictError(c, con, val)
}

// refuseUnused returns an error if a flag is set that has no meaning for what is fitted, also if it is set to
// its default. from is the value of --from; grams: sums of Gram files are fitted in place of recordings.
func refuseUnused(c *cli.Context, from string, grams bool) error {
	kind := fit.FromSteps
	refused := []string{"deployment"} // the recordings may decide between steps and requests
	switch {
	case grams:
		kind = fit.FromGrams
		refused = kind.Excludes
	case from == fit.FromPoints.Name:
		kind = fit.FromPoints
		refused = kind.Excludes
	}
	for _, name := range refused {
		if c.IsSet(name) {
			return kind.Refusal(name)
		}
	}
	return nil
}

// fitPoints fits coefficients to the tables of load levels in the arguments.
func fitPoints(c *cli.Context, o pipeline.FitOptions) (*result.Fit, error) {
	if c.NArg() == 0 || c.String("deployment") == "" {
		return nil, usagef("fit --from points: got %d tables and --deployment %q, want at least one CSV and a run.yaml", c.NArg(),
			c.String("deployment"))
	}
	dep, err := loadDeployment(c.String("deployment"))
	if err != nil {
		return nil, err
	}
	return pipeline.FitPoints(c.Context, c.Args().Slice(), dep, o)
}

// showRequests prints the result of a fit from requests: the passes over the simulator, and the
// errors on held-out requests.
func showRequests(con *console, doc *result.Fit) {
	r := doc.Requests
	var passes []cells
	for _, p := range r.Passes {
		passes = append(passes, cells{p.Name, number(&p.Objective), number(&p.Damping)})
	}
	con.table("passes: the objective of requests through the simulator", cells{"pass", "objective", "damping"}, passes)
	var heldOut []cells
	for _, h := range r.Holdout {
		row := cells{h.Name, h.Requests}
		for _, m := range []*result.Metric{h.Metrics.TTFT, h.Metrics.ITL, h.Metrics.E2E} {
			if m == nil {
				row = append(row, "-", "-")
				continue
			}
			row = append(row, number(&m.KSD), percent(m.MedianRelErrPaired))
		}
		heldOut = append(heldOut, row)
	}
	con.show("held out", cells{"load", "requests", "TTFT KS", "error", "ITL KS", "error", "E2E KS", "error"}, heldOut)
	next := ""
	learned := 0
	for _, d := range r.Directions {
		switch {
		case d.Learned:
			learned++
			con.infof("%s: %s", plural(len(d.Terms), "learned", "learned together"), strings.Join(d.Terms, ", "))
		case next == "" && d.Needs != "":
			next = d.Needs
		}
	}
	if next != "" {
		con.infof("one more could be learned from: %s", next)
	}
	requests := 0
	var tiers []string
	for _, l := range r.Loads {
		requests += l.Requests
		if !slices.Contains(tiers, l.Tier) {
			tiers = append(tiers, l.Tier)
		}
	}
	con.infof("fit: learned from %d %s of %d requests (%s): %d of %d directions, the others are the prior's (%s); "+
		"objective %s, of which jitter %s; %d evaluations, %d steps simulated, %.0f steps/s",
		len(r.Loads), plural(len(r.Loads), "load", "loads"), requests, strings.Join(tiers, ", "),
		learned, len(r.Directions), r.Prior, number(&r.Objective), number(&r.NoiseFloor),
		r.Evaluations, r.SimulatedSteps, r.StepsPerSecond)
	if g := r.Gain; g != nil {
		con.infof("E2E of the requests held out: %s error calibrated, %s uncalibrated, the prior alone (medians)", percent(&g.Calibrated),
			percent(&g.Uncalibrated))
	}
}

// keepJudged returns an error if a fit that was validated would be replaced, unless --force is given. Fits of Gram
// files and of points need -o, and replace nothing in the folder of their input.
func keepJudged(c *cli.Context, o *pipeline.FitOptions, fromGrams bool) error {
	in := c.Args().First()
	if fromGrams || o.From == fit.FromPoints.Name || o.Out != "" || o.Force {
		return nil
	}
	if _, err := os.Stat(filepath.Join(in, folder.ValidationFile)); err != nil {
		return nil
	}
	return &option.Misuse{
		Msg: fmt.Sprintf("fit: %s holds a validated fit (%s), which the new one would replace; got neither -o nor --force",
			in, folder.ValidationFile),
		Hint: "-o FOLDER keeps it, --force replaces it",
	}
}

// showFit prints the tables and warnings of a fit.
func showFit(con *console, doc *result.Fit) {
	if doc.Requests != nil {
		con.showSections(report.Input{Fit: doc}, "coefficients")
		showRequests(con, doc)
		con.warnAll(doc)
		return
	}
	con.showSections(report.Input{Fit: doc}, "data", "audit", "coefficients", "fit")
	con.warnAll(doc)
	used := 0
	for _, r := range doc.Runs {
		if r.Used {
			used++
		}
	}
	con.infof("fit: %s%d of %d runs, %d %s, %slambda %s%s",
		specWords(doc), used, len(doc.Runs), len(doc.Configs), plural(len(doc.Configs), "configuration",
			"configurations"),
		priorWords(doc), optional(doc.Beta.Lambda, 1, "%.2g"), gammaWords(&doc.Beta))
	if words := recipeWords(doc); words != "" {
		con.note("recipe: " + words)
	}
}

// recipeWords returns the cross-validated errors of the recipes (specification and prior) among
// which the data chose, the chosen one first; "" if a recipe was asked for.
func recipeWords(doc *result.Fit) string {
	var chosen string   // words of the chosen recipe
	var others []string // words of each other recipe
	uncalibrated := ""
	var chosenErr *float64
	for _, r := range doc.Recipes {
		if r.Chosen {
			chosenErr = r.RelErr
		}
	}
	for _, r := range doc.Recipes {
		if r.Uncalibrated != nil {
			uncalibrated = optional(r.Uncalibrated, 100, "; the library alone, uncalibrated: %.3g %%")
		}
		asChosen := "spec " + r.Spec + " without a prior"
		asOther := "spec " + r.Spec + " without it"
		if r.Prior == fit.PriorLibrary {
			asChosen = "library's prior"
			asOther = "with the library's prior"
		}
		errorWords := optional(r.RelErr, 100, "%.3g %%")
		if r.Chosen {
			chosen = fmt.Sprintf("%s, held-out error %s", asChosen, errorWords)
			continue
		}
		words := fmt.Sprintf("%s: %s", asOther, errorWords)
		if chosenErr != nil && r.RelErr != nil && *r.RelErr < *chosenErr {
			words += ", too small a gain to give up what the prior knows of other loads"
		}
		others = append(others, words)
	}
	if len(others) > 0 {
		chosen += " (" + strings.Join(others, ", ") + ")"
	}
	return chosen + uncalibrated
}

// specWords returns words for spec 1.3 and for the layers of the deployments that older
// specifications have no features for (spec#default-version); "" for other versions.
func specWords(doc *result.Fit) string {
	if !features.Layered(features.Version(doc.Beta.SpecVersion)) {
		return ""
	}
	for i := range doc.Configs {
		if err := doc.Configs[i].Deployment.CheckSupported(); err != nil {
			return fmt.Sprintf("spec %s (older ones have no features for %s); ", doc.Beta.SpecVersion,
				cmp.Or(doc.Configs[i].Deployment.Model.WhyLayered(),
					strings.TrimPrefix(err.Error(), "unsupported_engine: ")))
		}
	}
	return "spec " + doc.Beta.SpecVersion + "; "
}

// gammaWords returns gamma; "" if the measurements do not identify it, so that it is the default.
func gammaWords(m *result.Model) string {
	if m.GammaEMA == nil || m.GammaIdentified != nil && !*m.GammaIdentified {
		return ""
	}
	return ", gamma " + number(m.GammaEMA)
}

// priorWords returns the name of a prior that is a coefficient set, or the specification of a fit
// without a prior; "" for others.
func priorWords(doc *result.Fit) string {
	switch p := doc.Options.Prior; p {
	case fit.PriorRoofline:
		return ""
	case fit.PriorZero:
		if features.Layered(features.Version(doc.Beta.SpecVersion)) {
			return "" // specWords has it
		}
		return "spec " + doc.Beta.SpecVersion + " without a prior, "
	default:
		return "prior " + filepath.Base(p) + ", "
	}
}

// warnAll prints the warnings of the runs and of every model, each once.
func (con *console) warnAll(doc *result.Fit) {
	var all []trace.Finding
	for _, r := range doc.Runs {
		all = append(all, r.Findings...)
	}
	all = append(all, doc.AllWarnings()...)
	var unique []trace.Finding
	for _, f := range all {
		if !slices.Contains(unique, f) {
			unique = append(unique, f)
		}
	}
	con.deferWarnings(unique)
}
