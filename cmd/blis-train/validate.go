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
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/report"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/trace"
)

// accepted is what the flags take beside a pass.
func accepted(c *cli.Context) coeff.Accept {
	return coeff.Accept{Asked: c.String("for") != "", Insufficient: c.Bool("allow-insufficient"), Any: c.Bool("ignore-verdict")}
}

// validateOptions are the defaults with what pipeline.yaml says about gates.
func (con *console) validateOptions() pipeline.ValidateOptions {
	o := pipeline.DefaultValidateOptions()
	o.Special, o.Config, o.Progress = con.special, con.settings.record, con.progress()
	o.Warn, o.Changed = con.warn, con.changed
	for name, limit := range con.settings.gates {
		o.SetThreshold(name, limit, con.settings.record.File.Name)
	}
	return o
}

// listGates answers --gate list.
func listGates(c *cli.Context, con *console) (bool, error) {
	if !slices.Equal(c.StringSlice("gate"), []string{"list"}) {
		return false, nil
	}
	if con.json {
		return true, con.document(validate.Defaults())
	}
	var rows []cells
	for _, t := range validate.Defaults() {
		rows = append(rows, cells{t.Name, t.Op, t.Limit, t.Doc, t.Source})
	}
	con.show("gates", cells{"name", "op", "threshold", "what is compared", "why"}, rows)
	con.sayf("the clause of a gate is its name with dashes: %s#gate-beta-mape", result.Book)
	return true, nil
}

func runValidate(c *cli.Context, con *console) error {
	par.LeanHeap()
	if done, err := listGates(c, con); done || err != nil {
		return err
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
	o := con.validateOptions()
	o.Out = c.String("out")
	if err := con.setOptions(c, o.Table()); err != nil {
		return err
	}
	val, fit, err := pipeline.Validate(c.Context, c.Args().First(), o)
	if err != nil {
		return err
	}
	out := cmp.Or(o.Out, c.Args().First())
	con.judged(val, fit, out)
	if err := con.tellCI(c, val, fit); err != nil {
		return err
	}
	ledger, judged := c.String("ledger"), filepath.Join(out, folder.ValidationFile)
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
	n := stat.Count(val.Warnings, func(f trace.Finding) bool { return f.Code == validate.GateLoosened })
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of them loosened", n)
}

// failedGates counts the failed gates and names each with its value,
// the first one's where several scopes fail.
func failedGates(gates []result.Gate) (n int, sentences []string) {
	first, times := map[string]result.Gate{}, map[string]int{}
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
