package pipeline

// This file is the stage extract: recordings to tables.

import (
	"context"
	"errors"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// ExtractOptions are the options of an extraction.
type ExtractOptions struct {
	extract.Options
	Filter
	Special bool                  // read pipes and devices given as inputs
	Warn    func([]trace.Finding) // called with warnings that are in no document; may be nil
}

// DefaultExtractOptions returns the defaults of the command line. Out has none.
func DefaultExtractOptions() ExtractOptions {
	o := ExtractOptions{Options: extract.DefaultOptions()}
	o.ToolVersion = folder.ToolVersion
	o.Batches = Batches
	return o
}

// Discover returns the runs in folders, parents of folders, globs and dumps, without those that the
// filter rejects.
func Discover(inputs []string, o *ExtractOptions) ([]extract.RunDir, error) {
	if err := o.Filter.checkGlobs(); err != nil {
		return nil, err
	}
	for _, input := range inputs {
		if err := files.CheckInput(input, o.Special); err != nil {
			return nil, err
		}
	}
	all, err := extract.Find(inputs, o.Set...)
	if err != nil {
		if coded, ok := errors.AsType[*trace.Error](err); ok && coded.Code == deploy.BadSetting {
			return nil, &option.Misuse{Msg: "--set: " + coded.Msg, Hint: coded.Hint}
		}
		return nil, err
	}
	if o.Warn != nil {
		for _, file := range extract.WithoutRunFile(inputs, all) {
			o.Warn([]trace.Finding{trace.Findingf(extract.CodeNoRuns, "%s is not read: no %s is beside or above it", file, deploy.RunFile)})
		}
	}
	runs, err := extract.Select(all, o.Only, o.Exclude)
	if err != nil {
		return nil, err
	}
	if len(runs) == 0 {
		return nil, trace.Errorf(extract.CodeNoRuns, "--only and --exclude leave no run; there are %s", firstIDs(idsOf(all)))
	}
	if len(o.Only)+len(o.Exclude) > 0 {
		o.warnUnmatched(idsOf(all), o.Warn)
	}
	return runs, nil
}

// idsOf returns the ids of runs.
func idsOf(runs []extract.RunDir) []string {
	var ids []string
	for i := range runs {
		ids = append(ids, runs[i].ID)
	}
	return ids
}

// Extract turns recordings into o.Out/tables and o.Out/extract.json, and returns the document. If a
// larger share of a run than o.MaxBadFrac is unreadable, everything is still written, and the
// document is returned together with an error.
func Extract(ctx context.Context, inputs []string, o ExtractOptions) (*result.Extract, error) {
	runs, err := discovered(inputs, &o)
	if err != nil {
		return nil, err
	}
	release, err := folder.Claim(o.Out, o.Force)
	if err != nil {
		return nil, err
	}
	defer release()
	return extractRuns(ctx, runs, o)
}

// discovered checks the options and returns the runs of the inputs.
func discovered(inputs []string, o *ExtractOptions) ([]extract.RunDir, error) {
	if o.Out == "" {
		return nil, option.Misusef("missing -o OUT")
	}
	if err := o.Check(); err != nil {
		return nil, &option.Misuse{Msg: err.Error()}
	}
	return Discover(inputs, o)
}

// extractRuns extracts runs to o.Out, which the caller has claimed as an output folder.
func extractRuns(ctx context.Context, runs []extract.RunDir, o ExtractOptions) (*result.Extract, error) {
	defer extract.BoundMemory()()
	return extract.Run(ctx, runs, o.Options)
}
