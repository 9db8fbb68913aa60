package main

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
)

func fitCommand() *cli.Command {
	return &cli.Command{
		Name:      "fit",
		Usage:     "fit coefficients to extracted tables",
		ArgsUsage: "OUT",
		Description: "Reads OUT/tables and OUT/extract.json, measures the lag, fits step time and delays,\n" +
			"and writes fit.json and coefficients.yaml.\n\n" +
			"Example:\n   blis-train fit out --objective cross\n   blis-train fit out --save-gram site-a.gram\n   blis-train fit --from-gram site-a.gram site-b.gram -o pooled",
		Flags: flags(fitFlags(), gramFlags(), []cli.Flag{
			outFlag("`FOLDER` of the results (default: OUT itself)"), configFlag(), ledgerFlag(),
			&cli.BoolFlag{Name: "force", Usage: "accept an output folder that holds foreign files"},
			&cli.IntFlag{Name: "workers", Usage: "`N` workers; 0 uses every core"},
		}, filterFlags(), talkFlags()),
		Action: runFit,
	}
}

// fitFlags are the options of a fit; run has them too.
func fitFlags() []cli.Flag {
	d := fit.DefaultOptions()
	return []cli.Flag{
		&cli.StringFlag{Name: "spec", Value: string(d.Spec), Usage: "feature specification `VERSION`: 1.0, 1.1 or 1.2"},
		&cli.StringFlag{Name: "recipe", Usage: "`RECIPE`: relative or frozen (default: relative with 1.1, frozen with 1.0)"},
		&cli.StringFlag{Name: "beta-target", Usage: "step time `TARGET`: cadence or duration (default: cadence with 1.1)"},
		&cli.StringSliceFlag{Name: "alpha-target", Usage: "delay `TARGET`: overhead, admission, egress or queue (repeatable)"},
		&cli.StringFlag{Name: "objective", Usage: "what chooses lambda, `OBJECTIVE`: within, cross or minimax"},
		&cli.Float64Flag{Name: "split", Value: d.Split, Usage: "training `SHARE` of each phase"},
		&cli.IntFlag{Name: "lag", Value: -1, Usage: "`STEPS` between schedule() and execution; -1 measures it per run"},
		&cli.StringFlag{Name: "prior", Value: d.Prior, Usage: "`PRIOR` of time-like coefficients: zero or roofline"},
		&cli.IntFlag{Name: "bootstraps", Value: d.Bootstraps, Usage: "block bootstrap `DRAWS` of the intervals"},
		&cli.Int64Flag{Name: "seed", Value: d.Seed, Usage: "`SEED` of bootstrap, noise and sampling"},
		&cli.BoolFlag{Name: "refit-all", Usage: "refit with the chosen lambda, gamma and lag on all rows"},
		&cli.StringSliceFlag{Name: "model", Usage: "other parameterisation `NAME` on the same rows: blackbox, trained-physics, roofline, linear3 (repeatable; default the first three)"},
		&cli.StringSliceFlag{Name: "without", Usage: "leave this run `ID` out (repeatable)"},
		&cli.BoolFlag{Name: "keep-saturated", Usage: "fit saturated runs too"},
	}
}

func fitOptions(c *cli.Context) (fit.Options, error) {
	o := fit.Options{
		Spec: features.Version(c.String("spec")), Recipe: c.String("recipe"), BetaTarget: c.String("beta-target"),
		AlphaTargets: c.StringSlice("alpha-target"), Objective: c.String("objective"), Split: c.Float64("split"),
		Prior: c.String("prior"), Bootstraps: c.Int("bootstraps"), Seed: c.Int64("seed"), RefitAll: c.Bool("refit-all"),
		Models: c.StringSlice("model"), Without: c.StringSlice("without"), KeepSaturated: c.Bool("keep-saturated"),
		Workers: c.Int("workers"),
	}
	if len(o.Models) == 0 {
		o.Models = nil
	}
	if lag := c.Int("lag"); lag >= 0 {
		o.Lag = &lag
	} else if lag != -1 {
		return o, usagef("--lag: got %d, want 0, 1, 2 or -1", lag)
	}
	o, err := o.Resolve()
	if err != nil {
		return o, &usageError{msg: err.Error()}
	}
	return o, nil
}

func runFit(c *cli.Context) error {
	con, err := newConsole(c)
	if err != nil {
		return err
	}
	if len(c.StringSlice("from-gram")) > 0 {
		return runFromGram(c, con)
	}
	if c.NArg() != 1 {
		return usagef("fit: got %d arguments, want one extracted folder", c.NArg())
	}
	if con.settings, err = applyConfig(c, con, c.String("config"), "fit"); err != nil {
		return err
	}
	o, err := fitOptions(c)
	if err != nil {
		return err
	}
	in := c.Args().First()
	out := c.String("out")
	if out == "" {
		out = in
	}
	if err := con.claim(out, c.Bool("force") || out == in); err != nil {
		return err
	}
	ext, err := readExtract(con, in)
	if err != nil {
		return err
	}
	rejected, err := leftOut(c, ext)
	if err != nil {
		return err
	}
	o.Without = appendNew(o.Without, rejected...)
	if c.Bool("dump-rows") {
		o.Rows = func(d *fit.Dump) error { return d.Write(out) }
	}
	doc, err := doFit(c, con, in, out, ext, o)
	if err != nil {
		return err
	}
	if err := saveGram(c, con, in, ext, o); err != nil {
		return err
	}
	showFit(con, doc)
	if err := con.appendLedger(c.String("ledger"), "fit", doc.Header, doc, nil, filepath.Join(out, coefficientsFile)); err != nil {
		return err
	}
	return con.document(doc)
}

// appendNew appends what the list does not hold.
func appendNew(list []string, names ...string) []string {
	for _, name := range names {
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// readExtract reads extract.json of an output folder and compares the tables with it.
func readExtract(con *console, dir string) (*result.Extract, error) {
	ext := &result.Extract{}
	if err := readDoc(filepath.Join(dir, extractFile), ext); err != nil {
		hint := fmt.Sprintf("blis-train extract RUNDIR -o %s", dir)
		if runs, _ := extract.Discover([]string{dir}, nil, nil); len(runs) > 0 {
			hint = fmt.Sprintf("%s holds recordings: blis-train extract %s -o OUT", dir, dir)
		}
		return nil, &hinted{err, hint}
	}
	warnings, err := extract.CheckTables(dir, ext)
	con.warn(warnings)
	return ext, err
}

// doFit fits the tables in `in` and writes fit.json and coefficients.yaml to out.
func doFit(c *cli.Context, con *console, in, out string, ext *result.Extract, o fit.Options) (*result.Fit, error) {
	command, err := pipeline.FitCommand(o)
	if err != nil {
		return nil, err
	}
	doc, err := pipeline.Fit(c.Context, in, ext, o, con.header(command), con.progress())
	if err != nil {
		return nil, err
	}
	if err := writeDoc(filepath.Join(out, fitFile), doc); err != nil {
		return nil, err
	}
	return doc, writeArtifact(filepath.Join(out, coefficientsFile), doc, nil)
}

func writeArtifact(path string, doc *result.Fit, v *result.Validation) error {
	b, err := pipeline.Artifact(doc, v)
	if err != nil {
		return err
	}
	return files.Write(path, b)
}

// header starts a document, with the pipeline.yaml of the command.
func (con *console) header(command string) result.Header {
	h := result.NewHeader(toolVersion, command)
	h.Config = con.settings.record
	return h
}

// showFit prints the fit for people.
func showFit(con *console, doc *result.Fit) {
	con.table("target and lag audit", table.Row{"run", "duration p50 us", "cadence p50 us", "floor us", "sched-queued p50/p90 us", "queued-arrived p50/p90 us", "lag", "lag evidence (MAPE at 0/1/2)", "known steps"}, auditRows(doc))
	con.table("rows (read = kept + dropped)", table.Row{"run", "read", "kept", "dropped by reason"}, rowRows(doc))
	con.table("step-time coefficients", table.Row{"term", "value", "95 % interval", "unit", "identified", "share", "utilisation"}, coefficientRows(doc.Beta))
	con.table("step-time errors on the hold-out", table.Row{"run", "regime", "rows", "MAPE", "constant", "floor", "skill", "bias"}, cellRows(doc))
	con.table("leave one configuration out", table.Row{"configuration", "rows", "MAPE", "constant", "frozen 1.0", "bias"}, locoRows(doc.Beta))
	con.table("delays", table.Row{"target", "rows", "inside", "informative", "MAPE", "WAPE", "10 s windows", "constant", "replay"}, alphaRows(doc))
	con.table("other parameterisations", table.Row{"model", "hold-out MAPE", "bias", "leave-one-out median", "worst"}, modelRows(doc))
	con.warnAll(doc)
	con.sayf("fit: %d of %d runs, %d %s, lambda %s, gamma %s", used(doc), len(doc.Runs), len(doc.Configs), plural(len(doc.Configs), "configuration", "configurations"), number(doc.Beta.Lambda), number(doc.Beta.GammaEMA))
}

func used(doc *result.Fit) int {
	n := 0
	for _, r := range doc.Runs {
		if r.Used {
			n++
		}
	}
	return n
}
