package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
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
		return true, con.document(gate.All())
	}
	var rows []cells
	for _, t := range gate.All() {
		rows = append(rows, cells{t.Name, t.Op, t.Threshold, t.Compares, t.Reason})
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

func runCheck(c *cli.Context, con *console) error {
	if c.NArg() != 1 {
		return usagef("check: got %d arguments, want one coefficient file", c.NArg())
	}
	if c.Bool("refit") {
		return refit(c, con)
	}
	if err := goesWith(c, "--refit", "set", "workers"); err != nil {
		return err
	}
	if p := c.String("for"); p != "" && !gate.IsPurpose(p) {
		return usagef("check: --for: got %q, want %s or %s", p, strings.Join(coeff.Purposes, ", "), coeff.PurposeAll)
	}
	set, err := check(con, c.Args().First(), c.String("against"), c.String("data"))
	if err != nil {
		return err
	}
	purpose := cmp.Or(c.String("for"), set.ValidatedFor)
	if v := set.VerdictFor(purpose); !accepted(c).Takes(v) {
		return gatef("%s: verdict for %s: %s", c.Args().First(), purpose, v)
	}
	return nil
}

// refit answers check --refit: the file made again from its recorded inputs.
func refit(c *cli.Context, con *console) error {
	if c.String("data") == "" {
		return usagef("check --refit: missing --data PARENT")
	}
	if err := goesWith(c, "a check without --refit", "against", "for", "allow-insufficient", "ignore-verdict"); err != nil {
		return err
	}
	file := c.Args().First()
	set, _, err := con.loadSet(file)
	if err != nil {
		return err
	}
	doc, err := pipeline.Refit(c.Context, file, set, pipeline.RefitOptions{Data: c.String("data"), Set: listOf(c, settingFlag),
		Workers: c.Int("workers"), Special: con.special, Progress: con.progress()})
	if err != nil {
		return err
	}
	if err := con.document(doc); err != nil {
		return err
	}
	switch {
	case doc.Identical:
		con.sayf("identical: %d bytes, sha256 %s", doc.File.Bytes, doc.File.SHA256)
		return nil
	case doc.Equal:
		con.sayf("equal: made on %s, this is %s; numbers differ by at most %.1g relative", doc.RecordedOn, doc.Platform, *doc.LargestDeviation)
		return nil
	}
	for _, d := range doc.Differences {
		con.line("info", d)
	}
	return gatef("%s: not reproduced", file)
}

// checkDoc is what check --json prints.
type checkDoc struct {
	SchemaVersion string         `json:"schema_version"`
	File          result.Input   `json:"file"`
	Against       *string        `json:"against"`
	SpecVersion   string         `json:"spec_version"`
	Compatible    bool           `json:"compatible"`
	Replayable    bool           `json:"replayable"`
	Gates         map[string]int `json:"gates"` // pass, fail, null
	// Purposes are the verdicts that travel with the file; empty: not validated.
	Purposes   []coeff.PurposeVerdict `json:"purposes"`
	Mismatches []trace.Finding        `json:"mismatches"`
	Inputs     export.Inputs          `json:"inputs"` // the files it was made from
}

func check(con *console, file, against, data string) (*coeff.Set, error) {
	set, in, err := con.loadSet(file)
	if err != nil {
		return nil, err
	}
	doc := checkDoc{SchemaVersion: result.SchemaVersion, File: in, SpecVersion: string(set.SpecVersion), Gates: gateCounts(set)}
	doc.Mismatches = []trace.Finding{}
	doc.Purposes = append([]coeff.PurposeVerdict{}, set.Purposes...)
	var d *deploy.Deployment
	if against != "" {
		if d, err = loadDeployment(against); err != nil {
			return nil, err
		}
		doc.Against = &against
	}
	found, err := export.Check(set, d, vectorizer(set))
	if err != nil {
		return nil, err
	}
	if data != "" {
		if _, err := os.ReadDir(data); err != nil {
			return nil, fmt.Errorf("--data: %w", err)
		}
	}
	inputs, changed, err := export.CheckInputs(set.Inputs, cmp.Or(data, filepath.Dir(file)))
	if err != nil {
		return nil, err
	}
	found = append(found, changed...)
	doc.Mismatches = append(doc.Mismatches, found...)
	doc.Inputs = inputs
	doc.Compatible = len(found) == 0
	doc.Replayable = true
	for _, f := range found {
		doc.Replayable = doc.Replayable && f.Code != export.NotReplayable
		if !con.json {
			fmt.Fprintf(con.out, "%s: %s\n", f.Code, files.Line(f.Message))
		}
	}
	if err := con.document(doc); err != nil {
		return nil, err
	}
	if !doc.Compatible {
		return nil, gatef("%s: %d %s", file, len(found), plural(len(found), "mismatch", "mismatches"))
	}
	if !con.json && !con.quiet {
		line := compatibleLine(file, set, d)
		if there := inputs.Verified + inputs.Changed; there > 0 {
			line += fmt.Sprintf("; %d of %d inputs are there and unchanged", inputs.Verified, there+inputs.Absent)
		}
		fmt.Fprintln(con.out, files.Line(line))
	}
	return set, nil
}

func compatibleLine(file string, set *coeff.Set, d *deploy.Deployment) string {
	g := gateCounts(set)
	judged := "not validated"
	if len(set.Gates) > 0 {
		judged = fmt.Sprintf("gates %d passed, %d failed, %d undecided", g["pass"], g["fail"], g["null"])
	}
	for _, p := range coeff.Purposes {
		if v := set.VerdictFor(p); v != "" {
			judged += fmt.Sprintf(", %s %s", p, v)
		}
	}
	s := fmt.Sprintf("%s: spec %s, replayable, %s", file, set.SpecVersion, judged)
	if d != nil {
		s += fmt.Sprintf("; fits %s on %s, tp %d", d.Model.ID, d.Hardware.Name, d.TP)
	}
	return s
}

func gateCounts(set *coeff.Set) map[string]int {
	n := map[string]int{"pass": 0, "fail": 0, "null": 0}
	for _, g := range set.Gates {
		switch {
		case g.Pass == nil:
			n["null"]++
		case *g.Pass:
			n["pass"]++
		default:
			n["fail"]++
		}
	}
	return n
}

// loadDeployment reads a run.yaml, or the one in a folder.
func loadDeployment(path string, set ...string) (*deploy.Deployment, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return deploy.LoadRun(path, set...)
	}
	return deploy.LoadRunFile(path, set...)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
