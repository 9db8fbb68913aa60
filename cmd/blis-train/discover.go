package main

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/shown"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// discover finds the run folders of args, as --only, --exclude and --set say.
func discover(c *cli.Context, args []string) ([]extract.RunDir, error) {
	only, exclude, set := c.StringSlice("only"), c.StringSlice("exclude"), c.StringSlice("set")
	if err := checkGlobs(only, exclude); err != nil {
		return nil, err
	}
	for _, arg := range args {
		if err := files.CheckInput(arg, c.Bool("allow-special")); err != nil {
			return nil, err
		}
	}
	runs, err := extract.Discover(args, only, exclude, set...)
	var coded *trace.Error
	if !errors.As(err, &coded) {
		return runs, err
	}
	switch coded.Code {
	case deploy.BadSetting:
		return nil, &usageError{msg: "--set: " + coded.Msg}
	case extract.CodeNoRuns:
		if all, err := extract.Discover(args, nil, nil, set...); err == nil {
			return nil, trace.Errorf(extract.CodeNoRuns, "--only and --exclude leave no run; there are %s", idsOf(all))
		}
	}
	return nil, err
}

func idsOf(runs []extract.RunDir) string {
	var ids []string
	for _, r := range runs {
		ids = append(ids, r.ID)
	}
	return firstIDs(ids)
}

// firstIDs names the first few runs and counts the rest.
func firstIDs(ids []string) string {
	const most = 8
	if n := len(ids) - most; n > 0 {
		return strings.Join(ids[:most], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(ids, ", ")
}

// filterFlags are --only and --exclude alone, for commands that read tables.
func filterFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "only", Usage: "run ids to use, `GLOB` (repeatable)"},
		&cli.StringSliceFlag{Name: "exclude", Usage: "run ids to leave out, `GLOB` (repeatable)"},
	}
}

func checkGlobs(only, exclude []string) error {
	for _, glob := range slices.Concat(only, exclude) {
		if _, err := path.Match(glob, ""); err != nil {
			return usagef("--only, --exclude: got %q, want a glob over run ids such as 'h100-*'", glob)
		}
	}
	return nil
}

// leftOut lists the runs of an extracted folder that --only and --exclude
// reject; that they leave none is an error.
func leftOut(c *cli.Context, ext *result.Extract) ([]string, error) {
	only, exclude := c.StringSlice("only"), c.StringSlice("exclude")
	if err := checkGlobs(only, exclude); err != nil {
		return nil, err
	}
	matches := func(globs []string, id string) bool {
		return slices.ContainsFunc(globs, func(g string) bool { ok, _ := path.Match(g, id); return ok })
	}
	var out, all []string
	for i := range ext.Runs {
		id := ext.Runs[i].ID
		all = append(all, id)
		if matches(exclude, id) || len(only) > 0 && !matches(only, id) {
			out = append(out, id)
		}
	}
	if len(out) > 0 && len(out) == len(all) {
		return nil, trace.Errorf(extract.CodeNoRuns, "--only and --exclude leave no run; there are %s", firstIDs(all))
	}
	return out, nil
}

// dryRunDoc is what --dry-run --json prints.
type dryRunDoc struct {
	SchemaVersion string     `json:"schema_version"`
	Runs          []foundRun `json:"runs"`
}

type foundRun struct {
	ID     string `json:"id"`
	Folder string `json:"folder"`
}

// listRuns answers --dry-run.
func listRuns(con *console, runs []extract.RunDir) error {
	doc := dryRunDoc{SchemaVersion: result.SchemaVersion, Runs: []foundRun{}}
	for _, r := range runs {
		doc.Runs = append(doc.Runs, foundRun{r.ID, r.Dir})
		if !con.json {
			fmt.Fprintf(con.out, "%s\t%s\n", shown.Line(r.ID), shown.Line(r.Dir))
		}
	}
	return con.document(doc)
}
