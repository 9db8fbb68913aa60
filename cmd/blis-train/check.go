package main

// This file is the command check: does a coefficient file fit a deployment, and can it be made again
// from its inputs?

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
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// checkCommand returns the command check.
func checkCommand() *cli.Command {
	var set []string
	return newCommand(&cli.Command{
		Name:      "check",
		ArgsUsage: "coefficients.yaml",
		Usage:     "check that a coefficient file fits a deployment, or can be reproduced",
		Description: `Without --against only the file itself is checked. Prints one line per mismatch and exits with status 3
if there is any; of a deployment it was trained on, batches larger than those recorded are a warning.
The files it was made from are compared by digest where they are found in its folder or below --data.
With --refit the runs below --data, found by the hash of their run.yaml, are extracted and fitted again with
the recorded options, and the bytes compared; gates are taken from the file, since validate wrote them.

Example:
   blis-train check coefficients.yaml --against run.yaml
   blis-train check out/coefficients.yaml --data testdata/traces/real --refit`,
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "against", Usage: "`run.yaml` (or the folder that holds it) of the deployment"},
			&cli.StringFlag{Name: "data",
				Usage: "`PARENT` of the run folders it was made from (default: its own folder)"},
			&cli.StringFlag{Name: "for",
				Usage: "`PURPOSE` that the file must have passed: steps, replay, waits, transfer or all (default: " +
					"the one its validation decided by)"},
			&cli.BoolFlag{Name: "refit",
				Usage: "fit the recorded inputs again and compare the bytes; exit 3 when they differ"},
			&cli.GenericFlag{Name: "set", Value: option.Settings(&set),
				Usage: "with --refit: what overrode run.yaml when the file was made, `KEY.PATH=VALUE` (repeatable)"},
			&cli.IntFlag{Name: "workers", Usage: "with --refit: `N` workers; 0: every core"},
		}, verdictFlags()),
	}, nil, func(c *cli.Context, con *console) error { return runCheck(c, con, set) })
}

// runCheck checks a coefficient file (checkFile, or checkRefit with --refit). It returns an error
// if the file does not fit, or if its verdict for the purpose of --for is not accepted. set has the
// values of --set.
func runCheck(c *cli.Context, con *console, set []string) error {
	if c.NArg() != 1 {
		return usagef("check: got %d arguments, want one coefficient file", c.NArg())
	}
	if c.Bool("refit") {
		return checkRefit(c, con, set)
	}
	if err := goesWith(c, "--refit", "set", "workers"); err != nil {
		return err
	}
	if p := c.String("for"); p != "" && !gate.IsPurpose(p) {
		return usagef("check: --for: got %q, want %s or %s", p, strings.Join(coeff.Purposes, ", "), coeff.PurposeAll)
	}
	found, err := checkFile(con, c.Args().First(), c.String("against"), c.String("data"))
	if err != nil {
		return err
	}
	purpose := cmp.Or(c.String("for"), found.ValidatedFor)
	accept := acceptedVerdicts(c)
	v := found.VerdictFor(purpose)
	if v == "" && accept.Asked && !accept.Any {
		return gatef("%s: verdict for %s: not validated", c.Args().First(), purpose)
	}
	if !accept.Takes(v) {
		return gatef("%s: verdict for %s: %s", c.Args().First(), purpose, v)
	}
	return nil
}

// checkRefit makes the coefficient file again from its recorded inputs and compares the bytes. It
// returns an error with exit status 3 if they differ. overrides are the values of --set.
func checkRefit(c *cli.Context, con *console, overrides []string) error {
	if c.String("data") == "" {
		return usagef("check --refit: missing --data PARENT")
	}
	if err := goesWith(c, "a check without --refit", "against", "for", "allow-insufficient",
		"ignore-verdict"); err != nil {
		return err
	}
	file := c.Args().First()
	set, _, err := con.loadSet(file)
	if err != nil {
		return err
	}
	doc, err := pipeline.Refit(c.Context, file, set, pipeline.RefitOptions{
		Data:     c.String("data"),
		Set:      overrides,
		Workers:  c.Int("workers"),
		Special:  con.special,
		Progress: con.progress(),
	})
	if err != nil {
		return err
	}
	if err := con.document(doc); err != nil {
		return err
	}
	return con.showRefit(file, doc)
}

// showRefit prints how the new fit of a coefficient file agrees with it. It returns an error with exit status 3 if
// the two differ.
func (con *console) showRefit(file string, doc *pipeline.RefitResult) error {
	switch {
	case doc.Identical:
		con.infof("identical: %d bytes, sha256 %s", doc.File.Bytes, doc.File.SHA256)
		return nil
	case doc.Equal:
		con.infof("equal: made on %s, this is %s; numbers differ by at most %.1g relative",
			doc.RecordedOn, doc.Platform, *doc.LargestDeviation)
		return nil
	}
	for _, d := range doc.Differences {
		con.message("info", d)
	}
	return gatef("%s: not reproduced", file)
}

// checkDoc is what check --json prints.
type checkDoc struct {
	SchemaVersion string         `json:"schema_version"`
	File          result.Input   `json:"file"`
	Against       *string        `json:"against"` // the path of --against; nil: not given
	SpecVersion   string         `json:"spec_version"`
	Compatible    bool           `json:"compatible"` // no mismatches
	Replayable    bool           `json:"replayable"` // the file has an overhead, the delay before the engine, that a replay may add
	Gates         map[string]int `json:"gates"`      // how many: pass, fail, null
	// Purposes are the verdicts by purpose that the file states; empty if it was not validated.
	Purposes   []coeff.PurposeVerdict `json:"purposes"`
	Mismatches []trace.Finding        `json:"mismatches"`
	Inputs     export.Inputs          `json:"inputs"` // the files it was made from
}

// checkFile checks a coefficient file, its inputs below data and, if against names a deployment,
// that the file fits it. It prints a line for each mismatch and returns the coefficients.
func checkFile(con *console, file, against, data string) (*coeff.Set, error) {
	set, in, err := con.loadSet(file)
	if err != nil {
		return nil, err
	}
	doc := checkDoc{SchemaVersion: result.SchemaVersion, File: in, SpecVersion: string(set.SpecVersion),
		Gates: gateCounts(set)}
	doc.Mismatches = []trace.Finding{}
	doc.Purposes = append([]coeff.PurposeVerdict{}, set.Purposes...)
	var d *deploy.Deployment
	if against != "" {
		if d, err = loadDeployment(against); err != nil {
			return nil, err
		}
		doc.Against = &against
	}
	// Mismatches of the coefficients with the deployment, then with the files they were made from.
	// beyond are warnings, such as batches larger than those recorded.
	found, beyond, err := export.Check(set, d, vectorizer(set))
	if err != nil {
		return nil, err
	}
	con.warn(beyond)
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
	for _, f := range beyond {
		doc.Replayable = doc.Replayable && f.Code != export.NotReplayable
	}
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
		line := compatibleLine(file, set, d, doc.Replayable)
		if there := inputs.Verified + inputs.Changed; there > 0 {
			line += fmt.Sprintf("; %d of %d inputs are there and unchanged", inputs.Verified, there+inputs.Absent)
		}
		fmt.Fprintln(con.out, files.Line(line))
	}
	return set, nil
}

// compatibleLine returns the line for a file without a mismatch: its specification, its gates, its
// verdicts by purpose and the deployment d that it fits; d may be nil.
func compatibleLine(file string, set *coeff.Set, d *deploy.Deployment, isReplayable bool) string {
	g := gateCounts(set)
	validated := "not validated"
	if len(set.Gates) > 0 {
		validated = fmt.Sprintf("gates %d passed, %d failed, %d undecided", g["pass"], g["fail"], g["null"])
	}
	for _, p := range coeff.Purposes {
		if v := set.VerdictFor(p); v != "" {
			validated += fmt.Sprintf(", %s %s", p, v)
		}
	}
	replayable := "replayable"
	if !isReplayable {
		replayable = "replayable with --overhead-us"
	}
	s := fmt.Sprintf("%s: spec %s, %s, %s", file, set.SpecVersion, replayable, validated)
	if d != nil {
		s += fmt.Sprintf("; fits %s on %s, tp %d", d.Model.ID, d.Hardware.Name, d.TP)
	}
	return s
}

// gateCounts returns the number of gates in a file by their result: pass, fail and null (no
// result).
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
