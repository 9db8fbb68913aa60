package main

// This file is the command predictor, which trains latency predictors for routers.

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/predictor"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// predictorCommand returns the command predictor.
func predictorCommand() *cli.Command {
	return newParent(&cli.Command{
		Name:  "predictor",
		Usage: "train latency predictors on traces, next to the physics",
		Description: `TTFT and TPOT per request, from what a router can know when it decides. docs/predictor.md.

Example:
   blis-train predictor fit testdata/traces/real -o out`,
		Subcommands: []*cli.Command{predictorRowsCommand(), predictorFitCommand(), predictorEvaluateCommand()},
	})
}

// predictorRowsCommand returns the command predictor rows.
func predictorRowsCommand() *cli.Command {
	o := predictor.DefaultOptions()
	return newCommand(&cli.Command{
		Name:      "rows",
		ArgsUsage: "OUT",
		Usage:     "make one row per request at its decision time",
		Description: `Reads OUT/tables and OUT/extract.json and writes tables/run=ID/predictor_rows.parquet and
predictor_rows.json: rows + drops = requests.

Example:
   blis-train predictor rows out --features llmd --staleness-us 50000`,
		Flags: append(o.Flags(), resultsFlag(nil), forceFlag(), workersFlag(nil)),
	}, nil, func(c *cli.Context, con *console) error { return runPredictorRows(c, con, o) })
}

// extractionFlags returns the options of an extraction, for commands that extract run folders
// themselves.
func extractionFlags(o *pipeline.ExtractOptions) []cli.Flag {
	return append(option.Only(o.Flags(), "only", "exclude", "workers", "force"), dryRunFlag())
}

// predictorFitCommand returns the command predictor fit.
func predictorFitCommand() *cli.Command {
	rows := predictor.DefaultOptions()
	train := predictor.DefaultTrainOptions()
	extraction := pipeline.DefaultExtractOptions()
	return newCommand(&cli.Command{
		Name:      "fit",
		ArgsUsage: "OUT|RUNDIR...",
		Usage:     "train the trees a router loads, and score them on held-out rows",
		Description: `Reads OUT/tables and OUT/predictor_rows.json (made first when missing or made with other options; run folders
are extracted and fitted first, with -o) and writes predictor.json, predictor_scores.json and report.html
(predictor.html where validate has written report.html). Exits with status 3, after writing them, when the verdict for a
router is fail.

Example:
   blis-train predictor fit testdata/traces/real -o out`,
		Flags: slices.Concat(
			[]cli.Flag{
				&cli.StringFlag{Name: "fit",
					Usage: "fit.json or coefficient `FILE` of the physics, or none (default: OUT/fit.json)"},
				&cli.StringFlag{Name: "weights", Destination: &train.Weights, Value: train.Weights,
					Usage: "`WEIGHTS` of the stratified sample: natural, flat or sqrt"},
				&cli.StringFlag{Name: "bucket-rows", Destination: &train.BucketRows, Value: train.BucketRows,
					Usage: "at most this many `ROWS` in a bucket of the stratified sample: a number, none, or " +
						"auto: 500, 2000 or none, whichever does best on later training rows"},
				&cli.Uint64Flag{Name: "seed", Destination: &train.Seed, Value: train.Seed,
					Usage: "`SEED` of samples, trees and draws"},
				resultsFlag(nil),
			},
			rows.Flags(),
			extractionFlags(&extraction)),
	}, nil, func(c *cli.Context, con *console) error {
		train.Workers = extraction.Workers
		return runPredictorFit(c, con, rows, train, extraction)
	})
}

// predictorEvaluateCommand returns the command predictor evaluate.
func predictorEvaluateCommand() *cli.Command {
	var rows predictor.Options // its Shared alone: the predictor has the other options
	extraction := pipeline.DefaultExtractOptions()
	return newCommand(&cli.Command{
		Name:      "evaluate",
		ArgsUsage: "OUT|RUNDIR...",
		Usage:     "score a finished predictor on runs it was not trained on",
		Description: `Makes rows of the runs with the predictor's own options and writes predictor_scores.json and report.html.
Exits with status 3, after writing them, when the verdict for a router is fail.

Example:
   blis-train predictor evaluate --predictor out/predictor.json newruns -o judged`,
		Flags: slices.Concat(
			[]cli.Flag{
				&cli.StringFlag{Name: "predictor", Usage: "predictor.json `FILE`"},
				&cli.StringFlag{Name: "fit", Value: "none",
					Usage: "fit.json or coefficient `FILE` of the physics, or none"},
			},
			option.Only(rows.Flags(), "shared-prefix-tokens"),
			[]cli.Flag{outFlag("`FOLDER` of the results")},
			extractionFlags(&extraction)),
	}, nil, func(c *cli.Context, con *console) error { return runPredictorEvaluate(c, con, rows.Shared, extraction) })
}

// runPredictorRows makes the rows (one per request) of the extracted folder in the argument.
func runPredictorRows(c *cli.Context, con *console, o predictor.Options) error {
	if c.NArg() != 1 {
		return usagef("predictor rows: got %d arguments, want one extracted folder", c.NArg())
	}
	if err := o.Check(); err != nil {
		return err
	}
	in := c.Args().First()
	out := cmp.Or(c.String("out"), in)
	ext, err := extractedInput(c, con, in, out)
	if err != nil {
		return err
	}
	doc, err := makeRows(c, con, in, out, ext, o)
	if err != nil {
		return err
	}
	return con.document(doc)
}

// makeRows makes the rows of every run, prints how many were dropped and why, and returns their
// document.
func makeRows(c *cli.Context, con *console, in, out string, ext *result.Extract,
	o predictor.Options) (*predictor.RowsDocument, error) {
	doc, err := predictor.MakeRows(c.Context, in, out, ext, o, con.header(predictor.RowsCommand(o)), c.Int("workers"))
	if err != nil {
		return nil, err
	}
	if err := folder.WriteDocument(filepath.Join(out, predictor.RowsFile), doc); err != nil {
		return nil, err
	}
	if err := doc.Check(); err != nil {
		return nil, err
	}
	var rows []cells
	total, requests := 0, 0
	for _, r := range doc.Runs {
		con.warn(r.Warnings)
		a := r.Agreement
		agree := "-"
		if a.Rows > 0 {
			agree = fmt.Sprintf("%d of %d (%d between steps, %d inside schedule(), %d other)", a.Equal, a.Rows,
				a.Between, a.Inside, a.Other)
		}
		rows = append(rows, cells{r.ID, r.Requests, r.Rows, report.Reasons(r.Dropped), agree, percent(r.PrefixGap)})
		total += r.Rows
		requests += r.Requests
	}
	con.table("rows at the decision (requests = rows + dropped)", cells{"run", "requests", "rows", "dropped by reason",
		"step and journey state agree", "index - actual score"}, rows)
	con.infof("predictor rows: %d rows of %d requests in %d %s", total, requests, len(doc.Runs),
		plural(len(doc.Runs), "run", "runs"))
	return doc, nil
}

// runPredictorFit trains the predictor on the rows of the folders in the arguments, scores it and
// writes its files. ro are the options of the rows, o those of the training.
func runPredictorFit(c *cli.Context, con *console, ro predictor.Options, o predictor.TrainOptions,
	extraction pipeline.ExtractOptions) error {
	if c.NArg() == 0 {
		return usagef("predictor fit: got no argument, want an extracted folder, or run folders and -o")
	}
	if err := o.Check(); err != nil {
		return usagef("%v", err)
	}
	if err := ro.Check(); err != nil {
		return err
	}
	in, out, ext, err := predictorInput(c, con, extraction)
	if err != nil || ext == nil {
		return err
	}
	made, err := rowsFor(c, con, in, out, ext, ro)
	if err != nil {
		return err
	}
	physics, name, err := predictorPhysics(c, con, in, &o)
	if err != nil {
		return err
	}
	data := predictor.Inputs{ExtractDir: in, Extract: ext, RowsDir: out, Rows: made, Physics: physics}
	scores, p, err := predictor.Fit(c.Context, &data, o, con.header(predictor.FitCommand(made, name, o)))
	path := filepath.Join(out, folder.PredictorFile)
	if err != nil {
		// A predictor of an earlier call must not stay beside the rows of this one.
		if stale := os.Remove(path); !errors.Is(stale, fs.ErrNotExist) {
			err = errors.Join(err, stale)
		}
		return err
	}
	if err := folder.WriteDocument(path, p); err != nil {
		return err
	}
	if err := con.writeScores(out, scores); err != nil {
		return err
	}
	return judgePredictor(con, scores.Verdict)
}

// predictorInput returns the extracted folder (in), the folder of the results (out) and extract.json. If the
// arguments are run folders, it extracts them into out and fits coefficients first. ext is nil after a dry run.
func predictorInput(c *cli.Context, con *console, extraction pipeline.ExtractOptions) (in, out string,
	ext *result.Extract, err error) {
	in = c.Args().First()
	if isExtracted(c) {
		out = cmp.Or(c.String("out"), in)
		ext, err = extractedInput(c, con, in, out)
		return in, out, ext, err
	}
	if out = c.String("out"); out == "" {
		if _, err := extract.Discover(c.Args().Slice()); hasNoRuns(err) && c.NArg() == 1 {
			_, err := readExtract(con, in)
			return "", "", nil, err
		}
		return "", "", nil, usagef("missing -o OUT")
	}
	ext, err = extractFor(c, con, out, extraction)
	isFiltered := len(extraction.Only)+len(extraction.Exclude) > 0
	if hasNoRuns(err) && c.NArg() == 1 && !isFiltered { // an extracted folder was meant
		_, err = readExtract(con, in)
		return "", "", nil, err
	}
	if ext == nil || err != nil {
		return "", "", nil, err
	}
	f := pipeline.DefaultFitOptions()
	f.Progress = con.progress()
	_, err = pipeline.Fit(c.Context, out, f)
	// Client files and stock spans have no steps: the trees are trained without physics.
	if coded, ok := errors.AsType[*trace.Error](err); ok && coded.Code == fit.CodeNoRows {
		con.warn([]trace.Finding{{Code: coded.Code, Message: coded.Msg}})
		err = nil
	}
	if err == nil {
		err = con.claimFolder(out, true)
	}
	return out, out, ext, err
}

// hasNoRuns reports whether an extraction failed because there was nothing to extract.
func hasNoRuns(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || trace.CodeOf(err) == extract.CodeNoRuns
}

// isExtracted reports whether the one argument is an extracted folder.
func isExtracted(c *cli.Context) bool {
	_, err := os.Stat(filepath.Join(c.Args().First(), folder.ExtractFile))
	return err == nil && c.NArg() == 1
}

// extractedInput returns extract.json of an extracted folder, after it has locked the folder of the
// results, out.
func extractedInput(c *cli.Context, con *console, in, out string) (*result.Extract, error) {
	if err := goesWith(c, "run folders", "only", "exclude", "dry-run"); err != nil {
		return nil, err
	}
	if err := con.claimFolder(out, c.Bool("force") || out == in); err != nil {
		return nil, err
	}
	return readExtract(con, in)
}

// extractFor extracts the run folders in the arguments. It returns nil after a dry run.
func extractFor(c *cli.Context, con *console, out string, o pipeline.ExtractOptions) (*result.Extract, error) {
	con.completeExtract(c, &o)
	if c.Bool("dry-run") {
		return nil, listRuns(con, c.Args().Slice(), o)
	}
	o.Out = out
	return pipeline.Extract(c.Context, c.Args().Slice(), o)
}

// rowsFor returns the document of a folder's rows. It makes the rows if there are none that were
// made with these options and this version of the tool.
func rowsFor(c *cli.Context, con *console, in, out string, ext *result.Extract,
	o predictor.Options) (*predictor.RowsDocument, error) {
	doc := &predictor.RowsDocument{}
	err := con.readDoc(filepath.Join(out, predictor.RowsFile), doc)
	switch {
	case errors.Is(err, fs.ErrNotExist): // none yet
	case err != nil:
		return nil, err
	case doc.Command == predictor.RowsCommand(o) && doc.ToolVersion == folder.ToolVersion &&
		slices.Equal(doc.Inputs, ext.Inputs):
		return doc, doc.Check()
	}
	return makeRows(c, con, in, out, ext, o)
}

// predictorPhysics returns the coefficients for the step times of the physical predictor, and the
// name of their file; nil if there are none, with the reason in o.
func predictorPhysics(c *cli.Context, con *console, in string, o *predictor.TrainOptions) (*predictor.Coefficients,
	string, error) {
	path := c.String("fit")
	if path == "none" {
		o.PhysicsReason = "--fit none"
		return nil, "", nil
	}
	if path == "" {
		path = filepath.Join(in, folder.FitFile)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			o.PhysicsReason = "there is no " + folder.FitFile + " beside the rows; blis-train fit makes one"
			return nil, "", nil
		}
	}
	if folder.StageOf(path) == "" { // a coefficient file
		set, _, err := con.loadSet(path)
		return &predictor.Coefficients{Name: filepath.Base(path), Set: set}, filepath.Base(path), err
	}
	doc := &result.Fit{}
	if err := con.readDoc(path, doc); err != nil {
		return nil, "", err
	}
	set, err := fit.Native(doc, nil)
	return &predictor.Coefficients{Name: filepath.Base(path), Set: set, Fit: doc}, filepath.Base(path), err
}

// writeScores writes the scores and their report, and prints them.
func (con *console) writeScores(out string, scores *predictor.Scores) error {
	if err := folder.WriteDocument(filepath.Join(out, folder.ScoresFile), scores); err != nil {
		return err
	}
	name := folder.ReportFile
	if _, err := os.Stat(filepath.Join(out, folder.ValidationFile)); err == nil {
		name = folder.PredictorPage // report.html is validate's here
	}
	html, sections, err := predictor.Page(scores)
	if err == nil {
		err = files.Write(filepath.Join(out, name), html)
	}
	if err != nil {
		return err
	}
	con.warn(scores.Warnings)
	con.showTables(sections)
	return con.document(scores)
}

// judgePredictor prints the verdict of a predictor with the gates that led to it. It returns an error with exit status 3
// if the verdict is fail.
func judgePredictor(con *console, v *coeff.Judgement) error {
	text := "verdict for a router: " + v.Verdict
	if why := v.Failed(); len(why) > 0 {
		text += ": " + strings.Join(why, "; ")
	}
	switch v.Verdict {
	case coeff.VerdictFail:
		return gatef("%s", text)
	case coeff.VerdictInsufficient:
		con.message("info", text)
	default:
		con.infof("%s", text)
	}
	return nil
}

// runPredictorEvaluate scores a finished predictor on the folders in the arguments. shared are the
// values of --shared-prefix-tokens.
func runPredictorEvaluate(c *cli.Context, con *console, shared []string, extraction pipeline.ExtractOptions) error {
	switch {
	case c.NArg() == 0:
		return usagef("predictor evaluate: got no argument, want an extracted folder or run folders")
	case c.String("predictor") == "":
		return usagef("predictor evaluate: missing --predictor predictor.json")
	case c.String("out") == "":
		return usagef("missing -o OUT")
	}
	p, head, err := readAs[predictor.Document](con, c.String("predictor"))
	if err != nil {
		return err
	}
	in, out := c.Args().First(), c.String("out")
	var ext *result.Extract
	if isExtracted(c) {
		ext, err = extractedInput(c, con, in, out)
	} else {
		if ext, err = extractFor(c, con, out, extraction); ext != nil && err == nil {
			err = con.claimFolder(out, true)
		}
		in = out
	}
	if err != nil || ext == nil {
		return err
	}
	ro := p.Options.Rows                                 // only what requests share is the caller's
	ro.Target = cmp.Or(ro.Target, predictor.TargetToken) // where the file states none
	ro.Shared = append([]string{}, shared...)
	if err := ro.Check(); err != nil {
		return err
	}
	made, err := rowsFor(c, con, in, out, ext, ro)
	if err != nil {
		return err
	}
	o := predictor.DefaultTrainOptions()
	o.Workers = c.Int("workers")
	o.Seed = p.Options.Seed
	physics, name, err := predictorPhysics(c, con, in, &o)
	if err != nil {
		return err
	}
	h := con.header("predictor evaluate --fit " + name + " --predictor " + head.Name)
	h.Inputs = append(h.Inputs, head)
	data := predictor.Inputs{ExtractDir: in, Extract: ext, RowsDir: out, Rows: made, Physics: physics}
	scores, err := predictor.Evaluate(c.Context, &data, p, o, h)
	if err != nil {
		return err
	}
	if err := con.writeScores(out, scores); err != nil {
		return err
	}
	return judgePredictor(con, scores.Verdict)
}
