package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/shown"
	"github.com/blis-train/blis-train/pipeline/export/compare"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "say whether a coefficient file fits a deployment",
		ArgsUsage: "coefficients.yaml",
		Description: "Without --against only the file itself is judged. One line a mismatch; exit 3 when\nthere is one.\n\n" +
			"Example:\n   blis-train check coefficients.yaml --against run.yaml",
		Flags: flags([]cli.Flag{
			&cli.StringFlag{Name: "against", Usage: "`run.yaml` (or the folder that holds it) of the deployment"},
		}, talkFlags()),
		Action: func(c *cli.Context) error {
			con, err := newConsole(c)
			if err != nil {
				return err
			}
			if c.NArg() != 1 {
				return usagef("check: got %d arguments, want one coefficient file", c.NArg())
			}
			return check(con, c.Args().First(), c.String("against"))
		},
	}
}

// checkDoc is what check --json prints.
type checkDoc struct {
	SchemaVersion string          `json:"schema_version"`
	File          result.Input    `json:"file"`
	Against       *string         `json:"against"`
	SpecVersion   string          `json:"spec_version"`
	Compatible    bool            `json:"compatible"`
	Replayable    bool            `json:"replayable"`
	Gates         map[string]int  `json:"gates"` // pass, fail, null
	Mismatches    []trace.Finding `json:"mismatches"`
}

func check(con *console, file, against string) error {
	set, in, err := con.loadSet(file)
	if err != nil {
		return err
	}
	doc := checkDoc{SchemaVersion: result.SchemaVersion, File: in, SpecVersion: string(set.SpecVersion), Gates: gateCounts(set), Mismatches: []trace.Finding{}}
	var d *deploy.Deployment
	if against != "" {
		if d, err = loadDeployment(against); err != nil {
			return err
		}
		doc.Against = &against
	}
	found, err := compare.Check(set, d, vectorizer(set))
	if err != nil {
		return err
	}
	doc.Mismatches = append(doc.Mismatches, found...)
	doc.Compatible, doc.Replayable = len(found) == 0, true
	for _, f := range found {
		doc.Replayable = doc.Replayable && f.Code != compare.NotReplayable
		if !con.json {
			fmt.Fprintf(con.out, "%s: %s\n", f.Code, shown.Line(f.Message))
		}
	}
	if err := con.document(doc); err != nil {
		return err
	}
	if !doc.Compatible {
		return gatef("%s: %d %s", file, len(found), plural(len(found), "mismatch", "mismatches"))
	}
	if !con.json && !con.quiet {
		fmt.Fprintln(con.out, shown.Line(compatibleLine(file, set, d)))
	}
	return nil
}

func compatibleLine(file string, set *coeff.Set, d *deploy.Deployment) string {
	g := gateCounts(set)
	gates := "not validated"
	if len(set.Gates) > 0 {
		gates = fmt.Sprintf("gates %d passed, %d failed, %d undecided", g["pass"], g["fail"], g["null"])
	}
	s := fmt.Sprintf("%s: spec %s, replayable, %s", file, set.SpecVersion, gates)
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
