package pipeline

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Filter chooses runs by id.
type Filter struct {
	Only    []string // globs; none: every run
	Exclude []string // globs
}

// Table is the filter as flags.
func (f *Filter) Table() option.Table {
	return option.Table{
		option.List("only", &f.Only, "run ids to use, `GLOB` (repeatable)"),
		option.List("exclude", &f.Exclude, "run ids to leave out, `GLOB` (repeatable)"),
	}
}

func (f *Filter) check() error {
	for _, glob := range slices.Concat(f.Only, f.Exclude) {
		if _, err := path.Match(glob, ""); err != nil {
			return option.Misusef("--only, --exclude: got %q, want a glob over run ids such as 'h100-*'", glob)
		}
	}
	return nil
}

func anyMatches(globs []string, id string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { ok, _ := path.Match(g, id); return ok })
}

// tellIdle tells warn, unless nil, of the globs that no run has.
func (f *Filter) tellIdle(ids []string, warn func([]trace.Finding)) {
	for _, glob := range slices.Concat(f.Only, f.Exclude) {
		if warn != nil && !slices.ContainsFunc(ids, func(id string) bool { return anyMatches([]string{glob}, id) }) {
			warn([]trace.Finding{trace.Findingf(extract.CodeNoRuns, "--only, --exclude: no run is named %q; there are %s", glob, firstIDs(ids))})
		}
	}
}

// Rejected lists the runs of an extracted folder that the filter leaves out; that
// it leaves none is an error. warn, unless nil, hears of globs without a run.
func (f *Filter) Rejected(ext *result.Extract, warn func([]trace.Finding)) ([]string, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	var out, all []string
	for i := range ext.Runs {
		id := ext.Runs[i].ID
		all = append(all, id)
		if anyMatches(f.Exclude, id) || len(f.Only) > 0 && !anyMatches(f.Only, id) {
			out = append(out, id)
		}
	}
	if len(out) > 0 && len(out) == len(all) {
		return nil, trace.Errorf(extract.CodeNoRuns, "--only and --exclude leave no run; there are %s", firstIDs(all))
	}
	f.tellIdle(all, warn)
	return out, nil
}

// firstIDs names the first few runs and counts the rest.
func firstIDs(ids []string) string {
	const most = 8
	if n := len(ids) - most; n > 0 {
		return strings.Join(ids[:most], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(ids, ", ")
}

// ExtractOptions decide an extraction.
type ExtractOptions struct {
	extract.Options
	Filter
	Special bool                  // read pipes and devices given as inputs
	Warn    func([]trace.Finding) // gets the findings that no document holds; may be nil
}

// DefaultExtractOptions are those of the command line but for Out, which has none.
func DefaultExtractOptions() ExtractOptions {
	o := ExtractOptions{Options: extract.DefaultOptions()}
	o.ToolVersion, o.Batches = folder.ToolVersion, Batches
	return o
}

// Table is the options of the stage as flags and as recorded.
func (o *ExtractOptions) Table() option.Table {
	return append(o.Options.Table(), o.Filter.Table()...)
}

// Discover finds the runs of folders, parents of folders, globs and dumps.
func Discover(inputs []string, o *ExtractOptions) ([]extract.RunDir, error) {
	if err := o.Filter.check(); err != nil {
		return nil, err
	}
	for _, input := range inputs {
		if err := files.CheckInput(input, o.Special); err != nil {
			return nil, err
		}
	}
	runs, err := extract.Discover(inputs, o.Only, o.Exclude, o.Set...)
	if err == nil && len(o.Only)+len(o.Exclude) > 0 {
		if all, err := extract.Discover(inputs, nil, nil, o.Set...); err == nil {
			o.tellIdle(idsOf(all), o.Warn)
		}
	}
	coded, ok := errors.AsType[*trace.Error](err)
	if !ok {
		return runs, err
	}
	switch coded.Code {
	case deploy.BadSetting:
		return nil, option.Misusef("--set: %s", coded.Msg)
	case extract.CodeNoRuns:
		if all, err := extract.Discover(inputs, nil, nil, o.Set...); err == nil {
			return nil, trace.Errorf(extract.CodeNoRuns, "--only and --exclude leave no run; there are %s", firstIDs(idsOf(all)))
		}
	}
	return nil, err
}

func idsOf(runs []extract.RunDir) (ids []string) {
	return stat.Map(runs, func(r extract.RunDir) string { return r.ID })
}

// Extract turns recordings into o.Out/tables and o.Out/extract.json. When more of
// a run is unreadable than o.MaxBadFrac everything is written all the same, and the
// error stands beside the document.
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

// discovered checks the options and finds the runs.
func discovered(inputs []string, o *ExtractOptions) ([]extract.RunDir, error) {
	if o.Out == "" {
		return nil, option.Misusef("missing -o OUT")
	}
	if err := o.Check(); err != nil {
		return nil, &option.Misuse{Msg: err.Error()}
	}
	return Discover(inputs, o)
}

// extractRuns extracts to o.Out, which is ours.
func extractRuns(ctx context.Context, runs []extract.RunDir, o ExtractOptions) (*result.Extract, error) {
	defer extract.BoundMemory()()
	return extract.Run(ctx, runs, o.Options)
}
