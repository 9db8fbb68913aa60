package main

// This file is the command validate, which replays recordings with fitted coefficients.

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
)

// acceptedVerdicts returns the verdicts that the flags accept besides a pass.
func acceptedVerdicts(c *cli.Context) coeff.Accept {
	return coeff.Accept{Asked: c.String("for") != "", Insufficient: c.Bool("allow-insufficient"),
		Any: c.Bool("ignore-verdict")}
}

// completeValidate sets in the options of a validation the gates of pipeline.yaml and the functions
// to which it reports.
func (con *console) completeValidate(o *pipeline.ValidateOptions) {
	o.Special = con.special
	o.Config = con.settings.record
	o.Progress = con.progress()
	o.Warn = con.warn
	o.Changed = con.setChanges
	for name, limit := range con.settings.gates {
		if _, given := o.Thresholds[name]; !given { // by --gate
			o.SetThreshold(name, limit, con.settings.record.File.Name)
		}
	}
}

// listGates prints the gates with their thresholds, for --gate list.
func listGates(con *console) error {
	if con.json {
		return con.document(gate.All())
	}
	var rows []cells
	for _, t := range gate.All() {
		rows = append(rows, cells{t.Name, t.Op, t.Threshold, t.Compares, t.Reason})
	}
	con.show("gates", cells{"name", "op", "threshold", "what is compared", "why"}, rows)
	con.infof("the clause of a gate is its name with dashes: %s#gate-beta-mape", result.Book)
	return nil
}

// validateCommand returns the command validate.
func validateCommand() *cli.Command {
	o := pipeline.DefaultValidateOptions()
	groups := []group{{name: "validate", options: o.Flags()}}
	return newCommand(&cli.Command{
		Name:      "validate",
		ArgsUsage: "OUT",
		Usage:     "replay the traces with fitted coefficients and compare",
		Description: `Compares predicted step times with recorded ones, and simulates the recorded requests of every phase three
times: plain, which decides the gates; with noise; and following the machine's drift in speed. Runs that the
fit did not use are test runs. Writes validation.json and report.html; exits 3 unless the verdict is pass.

Example:
   blis-train validate --fit out/fit.json out`,
		Flags: slices.Concat(
			flagsOf(groups, "steps-only", "noise", "overhead-us", "idle-delays", "shared-prefix-tokens", "gate", "for", "split", "workers",
				"fit",
				"coefficients", "figures", "baseline", "force"),
			verdictFlags(), ciFlags(),
			[]cli.Flag{
				resultsFlag(&o.Out), configFlag(), ledgerFlag(), verboseFlag(),
			}),
	}, groups, func(c *cli.Context, con *console) error { return runValidate(c, con, &o) })
}

// runValidate validates the fit of an extracted folder, and returns an error if the verdict is not
// accepted.
func runValidate(c *cli.Context, con *console, o *pipeline.ValidateOptions) error {
	par.LeanHeap()
	if o.ListGates {
		return listGates(con)
	}
	if c.NArg() != 1 {
		return usagef("validate: got %d arguments, want one extracted folder", c.NArg())
	}
	if c.Bool("steps-only") {
		if err := goesWith(c, "a replay", "noise", "overhead-us", "idle-delays"); err != nil {
			return err
		}
	}
	if err := con.configure(c, c.String("config"), c.Args().Slice()); err != nil {
		return err
	}
	if err := con.checkSummary(c); err != nil {
		return err
	}
	defer con.flushWarnings()
	con.completeValidate(o)
	val, fit, err := pipeline.Validate(c.Context, c.Args().First(), *o)
	if err != nil {
		return err
	}
	out := cmp.Or(o.Out, c.Args().First())
	use := o.Use(c.Args().First())
	con.showValidation(val, fit, out, cmp.Or(use, filepath.Join(out, folder.CoefficientsFile)))
	if err := con.writeVerdict(c, report.Input{Fit: fit, Validation: val, Use: use}); err != nil {
		return err
	}
	ledger := c.String("ledger")
	judged := filepath.Join(out, folder.ValidationFile)
	if err := con.appendLedger(ledger, "validate", val.Header, fit, val, judged); err != nil {
		return err
	}
	if err := con.document(val); err != nil {
		return err
	}
	return verdictError(c, con, val)
}

// verdictError returns an error with exit status 3 for a verdict that the flags do not accept
// (spec#exit-status); nil for others.
func verdictError(c *cli.Context, con *console, val *result.Validation) error {
	text := fmt.Sprintf("verdict for %s: %s", val.For, val.Verdict)
	switch val.Verdict {
	case coeff.VerdictFail:
		n, failed := failedGates(report.Decisive(val))
		text += fmt.Sprintf(": %d %s failed (%s)", n, plural(n, "gate", "gates"), strings.Join(failed, "; "))
	case coeff.VerdictNotApplicable:
		text += ": these data have nothing to decide it by"
	case coeff.VerdictInsufficient:
		text += ": " + strings.Join(report.Undecided(report.Decisive(val)), "; ")
	default:
		con.infof("%s%s", text, loosenedText(val))
		return nil
	}
	if !acceptedVerdicts(c).Takes(val.Verdict) {
		return gatef("%s", text)
	}
	con.message("info", text)
	return nil
}

// loosenedText returns words for the number of gates that passed only by a threshold looser than
// the default; "" if there is none.
func loosenedText(val *result.Validation) string {
	n := 0
	for _, f := range val.Warnings {
		if f.Code == gate.Loosened {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of them loosened", n)
}

// failedGates returns the number of failed gates and a sentence for each name of a gate. If it
// failed in several scopes, the sentence has the value of the first.
func failedGates(gates []result.Gate) (n int, sentences []string) {
	first := map[string]result.Gate{} // by name, the first that failed
	times := map[string]int{}         // by name, in how many scopes it failed
	var names []string
	for _, g := range gates {
		if g.Pass == nil || *g.Pass {
			continue
		}
		n++
		if times[g.Name] == 0 {
			names = append(names, g.Name)
			first[g.Name] = g
		}
		times[g.Name]++
	}
	const most = 4
	for i, name := range names {
		if i == most {
			sentences = append(sentences, fmt.Sprintf("and %d more", len(names)-most))
			break
		}
		g := first[name]
		if times[name] > 1 {
			name = fmt.Sprintf("%s in %d scopes, the first", name, times[name])
		}
		value, want := gateWords(g)
		sentences = append(sentences, fmt.Sprintf("%s %s, want %s", name, value, want))
	}
	return n, sentences
}

// plainSigns replaces the report's typographic signs by those of ASCII.
var plainSigns = strings.NewReplacer("\u00a0", " ", "\u2212", "-")

// gateWords returns what a gate measured and what it wants, in the words of the report.
func gateWords(g result.Gate) (value, want string) {
	return plainSigns.Replace(report.GateFigure(&g)), g.Op + " " + plainSigns.Replace(report.GateThreshold(g))
}

// diagnosisLines returns the diagnoses with their scope, each sentence once: with one configuration
// the scope "all" has the same diagnoses.
func diagnosisLines(val *result.Validation) []string {
	said := map[string]bool{}
	var out []string
	for _, d := range val.Diagnoses {
		if !said[d.Sentence] {
			said[d.Sentence] = true
			out = append(out, d.Scope+": "+d.Sentence)
		}
	}
	return out
}

// plural returns the word for n things.
func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
