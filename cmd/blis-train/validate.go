package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// accepted is what the flags take beside a pass.
func accepted(c *cli.Context) coeff.Accept {
	return coeff.Accept{Asked: c.String("for") != "", Insufficient: c.Bool("allow-insufficient"), Any: c.Bool("ignore-verdict")}
}

// completeValidate adds to the options of a validation the gates of pipeline.yaml, and where it
// reports to.
func (con *console) completeValidate(o *pipeline.ValidateOptions) {
	o.Special = con.special
	o.Config = con.settings.record
	o.Progress = con.progress()
	o.Warn = con.warn
	o.Changed = con.changed
	for name, limit := range con.settings.gates {
		if _, given := o.Thresholds[name]; !given { // by --gate
			o.SetThreshold(name, limit, con.settings.record.File.Name)
		}
	}
}

// listGates answers --gate list.
func listGates(con *console) error {
	if con.json {
		return con.document(gate.All())
	}
	var rows []cells
	for _, t := range gate.All() {
		rows = append(rows, cells{t.Name, t.Op, t.Threshold, t.Compares, t.Reason})
	}
	con.show("gates", cells{"name", "op", "threshold", "what is compared", "why"}, rows)
	con.sayf("the clause of a gate is its name with dashes: %s#gate-beta-mape", result.Book)
	return nil
}

func validateCommand() *cli.Command {
	o := pipeline.DefaultValidateOptions()
	groups := []group{{"validate", o.Flags()}}
	return newCommand(&cli.Command{
		Name:      "validate",
		ArgsUsage: "OUT",
		Usage:     "replay the traces with fitted coefficients and compare",
		Description: `Compares predicted steps with recorded ones and replays every phase through the simulator:
plain (the replay that gates decide on), with noise, and drift-corrected. Runs that the fit did not use are test runs.
Writes validation.json and report.html; exit status 3 when a gate fails.

Example:
   blis-train validate --fit out/fit.json out`,
		Flags: slices.Concat(
			flagsOf(groups, "steps-only", "noise", "overhead-us", "idle-delays", "gate", "for", "split", "workers", "fit",
				"coefficients", "figures", "baseline", "force"),
			verdictFlags(), ciFlags(),
			[]cli.Flag{
				&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Destination: &o.Out,
					Usage: "`FOLDER` of the results (default: OUT itself)"},
				configFlag(), ledgerFlag(), verboseFlag(),
			}),
	}, groups, func(c *cli.Context, con *console) error { return runValidate(c, con, &o) })
}

func runValidate(c *cli.Context, con *console, o *pipeline.ValidateOptions) error {
	par.LeanHeap()
	if o.ListGates {
		return listGates(con)
	}
	if c.NArg() != 1 {
		return usagef("validate: got %d arguments, want one extracted folder", c.NArg())
	}
	if err := con.configure(c, c.String("config"), c.Args().Slice()); err != nil {
		return err
	}
	if err := con.checkSummary(c); err != nil {
		return err
	}
	defer con.release()
	con.completeValidate(o)
	val, fit, err := pipeline.Validate(c.Context, c.Args().First(), *o)
	if err != nil {
		return err
	}
	out := cmp.Or(o.Out, c.Args().First())
	con.judged(val, fit, out)
	if err := con.tellCI(c, val, fit); err != nil {
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
	return exitFor(c, con, val)
}

// exitFor turns the judgement into the exit code (spec#exit-status).
func exitFor(c *cli.Context, con *console, val *result.Validation) error {
	said := fmt.Sprintf("verdict for %s: %s", val.For, val.Verdict)
	switch val.Verdict {
	case coeff.VerdictFail:
		n, failed := failedGates(report.Decisive(val))
		said += fmt.Sprintf(": %d %s failed (%s)", n, plural(n, "gate", "gates"), strings.Join(failed, "; "))
	case coeff.VerdictNotApplicable:
		said += ": these data hold nothing to judge it by"
	case coeff.VerdictInsufficient:
		said += ": " + strings.Join(report.Undecided(report.Decisive(val)), "; ")
	default:
		con.sayf("%s%s", said, loosenedText(val))
		return nil
	}
	if !accepted(c).Takes(val.Verdict) {
		return gatef("%s", said)
	}
	con.line("info", said)
	return nil
}

// loosenedText says how many gates passed by a threshold looser than the default.
func loosenedText(val *result.Validation) string {
	n := stat.Count(val.Warnings, func(f trace.Finding) bool { return f.Code == gate.Loosened })
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of them loosened", n)
}

// failedGates counts the failed gates and names each with its value,
// the first one's where several scopes fail.
func failedGates(gates []result.Gate) (n int, sentences []string) {
	first := map[string]result.Gate{}
	times := map[string]int{}
	var names []string
	for _, g := range gates {
		if g.Pass == nil || *g.Pass {
			continue
		}
		if n++; times[g.Name] == 0 {
			names, first[g.Name] = append(names, g.Name), g
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

// plainSigns replaces the report's typographic signs.
var plainSigns = strings.NewReplacer("\u00a0", " ", "\u2212", "-")

// gateWords are what a gate measured and what it wants, as the report prints them.
func gateWords(g result.Gate) (value, want string) {
	return plainSigns.Replace(report.GateValue(g.Name, g.Value)), g.Op + " " + plainSigns.Replace(report.GateThreshold(g))
}

// diagnosisLines are the diagnoses with their scope, each sentence once: with one
// configuration "all" says the same again.
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

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
