package main

// This file is the command features, which explains the prediction of one recorded step.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/simulate"
	"github.com/blis-train/blis-train/trace"
)

// featuresCommand returns the command features.
func featuresCommand() *cli.Command {
	return newCommand(&cli.Command{
		Name:      "features",
		ArgsUsage: "OUT",
		Usage:     "explain one step: inputs, every feature with its formula, the prediction per term",
		Description: `Reads the extracted tables of one run and shows how the step's feature vector is computed.
With a coefficient file it adds what each term contributes to the prediction, and what was measured.

Example:
   blis-train features out --run gqa-async --step 100`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "run", Usage: "run `ID` (needed where there are several runs)"},
			&cli.Int64Flag{Name: "step", Usage: "id of the step, `N`"},
			&cli.StringFlag{Name: "coefficients",
				Usage: "coefficient `FILE|library` of the contributions (default: OUT/coefficients.yaml, or else the library " +
					"where it has the run's GPU)"},
			&cli.StringFlag{Name: "spec",
				Usage: "feature specification `VERSION`: 1.0, 1.1, 1.2, 1.3 or experimental (default: the " +
					"coefficient file's, else 1.3 for models with unlike layers and 1.1 for others)"},
		},
	}, nil, runFeatures)
}

// runFeatures prints how the features of the step --step are computed, and what each contributes to
// the prediction.
func runFeatures(c *cli.Context, con *console) error {
	if c.NArg() != 1 {
		return usagef("features: got %d arguments, want one extracted folder", c.NArg())
	}
	if !c.IsSet("step") {
		return usagef("features: missing --step N")
	}
	set, err := con.featuresSet(c)
	if err != nil {
		return err
	}
	ext, err := readExtract(con, c.Args().First())
	if err != nil {
		return err
	}
	run, err := pickRun(ext, c.String("run"))
	if err != nil {
		return err
	}
	version, err := featuresVersion(c.String("spec"), set, run.Deployment)
	if err != nil {
		return err
	}
	doc, err := pipeline.ExplainStep(c.Args().First(), run, c.Int64("step"), version, set)
	if err != nil {
		return err
	}
	showFeatures(con, doc)
	return con.document(doc)
}

// featuresSet returns the coefficient file of --coefficients or, without it, that of the folder, or else the
// library's coefficients for the run. It returns nil if another version of the specification is asked for, or
// if the library has no coefficients for the run.
func (con *console) featuresSet(c *cli.Context) (*coeff.Set, error) {
	name := c.String("coefficients")
	if name != "" && name != simulate.LibraryWord {
		set, _, err := con.loadSet(name)
		return set, err
	}
	asked := c.String("spec")
	fitted := filepath.Join(c.Args().First(), "coefficients.yaml")
	if _, err := os.Stat(fitted); err == nil && name == "" {
		set, _, err := con.loadSet(fitted)
		if err != nil || asked == "" || asked == string(set.SpecVersion) {
			con.infof("coefficients: %s", fitted)
			return set, err
		}
	}
	if name == "" && asked != "" && asked != string(features.V12) { // the library's coefficients are of 1.2
		return nil, nil
	}
	ext, err := readExtract(con, c.Args().First())
	if err != nil {
		return nil, err
	}
	run, err := pickRun(ext, c.String("run"))
	if err != nil {
		return nil, err
	}
	if _, err := library.Bound(run.Deployment, library.Options{}); err != nil && name == "" {
		return nil, nil
	}
	set, _, err := con.loadSetFor(name, run.Deployment)
	return set, err
}

// featuresVersion returns the version of the specification: the one asked for, which must be that
// of the coefficients, else that of the coefficients, else the default of the deployment.
func featuresVersion(asked string, set *coeff.Set, d *deploy.Deployment) (features.Version, error) {
	switch {
	case asked == "" && set == nil:
		return features.DefaultVersion(d), nil
	case asked == "":
		return set.SpecVersion, nil
	}
	v := features.Version(asked)
	if err := features.CheckVersion(v); err != nil {
		return "", usagef("--spec: %v", err)
	}
	if set != nil && set.SpecVersion != v {
		return "", usagef("--spec: got %s, but the coefficients are for %s", v, set.SpecVersion)
	}
	return v, nil
}

// pickRun returns the run with the id. Without an id there must be exactly one run.
func pickRun(ext *result.Extract, id string) (*result.ExtractRun, error) {
	var ids []string
	for i := range ext.Runs {
		if r := &ext.Runs[i]; r.ID == id || id == "" && len(ext.Runs) == 1 {
			return r, nil
		}
		ids = append(ids, ext.Runs[i].ID)
	}
	if len(ids) == 0 {
		return nil, trace.Hinted(errors.New("the folder has no run"), "blis-train extract writes runs into it")
	}
	if id == "" {
		return nil, usagef("features: missing --run ID, one of %s", strings.Join(ids, ", "))
	}
	err := trace.Errorf("", "no run %q in the folder, want one of %s", id, strings.Join(ids, ", "))
	if s := files.Nearest(id, ids); s != "" {
		return nil, err.WithHint(fmt.Sprintf("did you mean --run %s?", s))
	}
	return nil, err.WithHint(fmt.Sprintf("give --run %s, for instance; extract.json has what each run is of", files.Word(ids[0])))
}

// showFeatures prints the batch of a step, the inputs, the constants and the features.
func showFeatures(con *console, doc *pipeline.StepExplanation) {
	e := doc.Explanation
	var members []cells
	for _, m := range doc.Members {
		members = append(members, cells{m.Request, m.Phase, m.Computed, m.Prompt, m.New})
	}
	con.table(fmt.Sprintf("run %s, step %d: batch (%s)", doc.Run, doc.Step, doc.Source),
		cells{"request", "phase", "computed", "prompt", "new"}, members)
	con.table("inputs", cells{"name", "value", "unit"}, quantityRows(e.Inputs, false))
	con.table("constants of spec "+string(e.SpecVersion), cells{"name", "value", "unit", "derived"},
		quantityRows(e.Constants, true))
	var rs []cells
	for _, f := range e.Features {
		value := fmt.Sprintf("%.6g %s", f.Value, strings.TrimPrefix(f.Unit, "1"))
		if f.BoundHit {
			value += " (bound)"
		}
		rs = append(rs, cells{f.Slot, f.Name, strings.TrimSpace(value), number(f.Coefficient),
			optional(f.ContributionUs, 1, "%.1f"),
			twoLines{f.Formula, "= " + f.Numbers}})
	}
	for _, f := range e.Factors {
		rs = append(rs, cells{"", f.Name, fmt.Sprintf("%.6g", f.Value), "", fmt.Sprintf("%.1f", f.AddedUs), ""})
	}
	con.table("features", cells{"slot", "name", "value", "coefficient", "us", "formula"}, rs)
	con.table("step time", cells{"", "us"}, []cells{
		{"physical floor W/Bw", micros(e.FloorUs)}, {"predicted", micros(e.PredictionUs)},
		{fmt.Sprintf("measured (lag %d)", *doc.Lag), micros(doc.MeasuredUs)}})
	con.warn(doc.Warnings)
}

// quantityRows returns the rows of a table of quantities; derived adds the formula.
func quantityRows(qs []features.Quantity, derived bool) []cells {
	var rs []cells
	for _, q := range qs {
		row := cells{q.Name, fmt.Sprintf("%.8g", q.Value), q.Unit}
		if derived {
			row = append(row, q.Formula)
		}
		rs = append(rs, row)
	}
	return rs
}
