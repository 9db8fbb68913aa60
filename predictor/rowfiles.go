package predictor

// This file writes and reads the tables of rows.

import (
	"context"
	"math"
	"os"
	"path/filepath"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// RowsFile is the name of the document of the rows in an output folder.
const RowsFile = folder.PredictorRows

// RowsCommand returns the `command` of predictor_rows.json.
func RowsCommand(o Options) string { return option.Command("predictor rows", o.Flags()) }

// MakeRows makes the rows of every run of the output folder out, writes them to tables/run=<id> of
// dest, each run's table as soon as it is made, and returns their document.
func MakeRows(ctx context.Context, out, dest string, ext *result.Extract, o Options, h result.Header,
	workers int) (*RowsDocument, error) {
	doc := &RowsDocument{
		Header:   h,
		Options:  o,
		Runs:     make([]runAccount, len(ext.Runs)),
		Warnings: []trace.Finding{},
	}
	doc.Inputs = ext.Inputs
	if err := o.checkShares(ext.Runs); err != nil {
		return nil, err
	}
	err := par.Try(ctx, workers, len(ext.Runs), func(i int) error {
		r := &ext.Runs[i]
		run, err := table.Read(table.RunDir(out, r.ID),
			table.Requests, table.JourneyEvents, table.Steps, table.ObservedRequests)
		if err != nil {
			return err
		}
		src := source{Run: run, Deployment: r.Deployment}
		var reason string
		if reason, src.Saturated = rows.JudgeLoad(run, r.Deployment); reason != "" {
			src.Saturated = []rows.Span{{StartNs: math.MinInt64, EndNs: math.MaxInt64}}
		}
		made, err := Build(src, o)
		if err != nil {
			return err
		}
		doc.Runs[i] = predictorRun(r, made)
		return writePredictorRows(table.RunDir(dest, r.ID), made.Rows)
	}, func(int) {})
	return doc, err
}

// writePredictorRows replaces the table of rows in a run's folder. If there are no rows it removes
// the table.
func writePredictorRows(dir string, list []Row) error {
	if err := os.Remove(filepath.Join(dir, Table+"."+string(table.Parquet))); err != nil && !os.IsNotExist(err) {
		return err
	}
	if len(list) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return table.Write(dir, Table, table.Parquet, list)
}

// predictorRun returns the counts of a run for the document.
func predictorRun(r *result.ExtractRun, made *Result) runAccount {
	out := runAccount{
		ID:        r.ID,
		Config:    r.Deployment.Config(),
		Requests:  made.Requests,
		Rows:      len(made.Rows),
		Dropped:   map[string]int{},
		Agreement: made.Agreement,
		Warnings:  append([]trace.Finding{}, made.Warnings...),
	}
	for reason, n := range made.Dropped {
		out.Dropped[string(reason)] = n
	}
	var gaps []float64
	for i := range made.Rows {
		if a, b := made.Rows[i].PrefixScoreIndex, made.Rows[i].PrefixScoreActual; a.OK && b.OK {
			gaps = append(gaps, math.Abs(a.V-b.V))
		}
	}
	if len(gaps) > 0 {
		mean := 0.0
		for _, gap := range gaps {
			mean += gap / float64(len(gaps))
		}
		out.PrefixGap = &mean
	}
	return out
}

// readPredictorRows returns the rows of one run.
func readPredictorRows(out, id string) ([]Row, error) {
	c, err := table.Open[Row](table.RunDir(out, id), Table)
	if err != nil {
		return nil, err
	}
	return c.All()
}
