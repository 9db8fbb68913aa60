package fit

// This file writes the sums of a run's rows to a Gram file (fit --save-gram), and joins such files. A
// fit from them (gramfit.go) needs no recording.

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Keys of a Gram file's meta. Common ones must agree between files. The facts of a run (gramRun, as
// JSON) have the key metaRunPrefix + its id.
const (
	metaSpec      = "spec_version"
	metaFeatures  = "feature_set"
	metaRecipe    = "recipe"
	metaTarget    = "beta_target"
	metaSplit     = "split"
	metaSchema    = "table_schema"
	metaRunPrefix = "run/"
)

// commonMeta are the keys that must agree, in the order they are compared.
var commonMeta = []string{metaSpec, metaFeatures, metaRecipe, metaTarget, metaSplit, metaSchema}

// gramRun is what a Gram file has of one run in addition to its sums: the facts that a fit reports
// but cannot compute from sums.
type gramRun struct {
	runFacts
	Lags [reconstruct.Lags]gramLagFigures `json:"lags"` // by lag, because a fit may ask for another than the measured one
}

// gramLagFigures are the figures of one run's rows at one lag.
type gramLagFigures struct {
	Read    int            `json:"read"` // rows
	Kept    int            `json:"kept"`
	Dropped map[string]int `json:"dropped"` // rows by code
	Min     []float64      `json:"feature_min"`
	Max     []float64      `json:"feature_max"`
	Within  []*float64     `json:"within_share"` // by feature, the share of its variation that is within the run; null for a column of zeros
	// BelowFloor is the message of a warning, see tableBelowFloor; empty if there is none.
	BelowFloor string `json:"below_floor"`
}

// metaOf returns the metadata that all files fitted together must share, under the given options.
func metaOf(o Options) map[string]string {
	return map[string]string{
		metaSpec:     string(o.Spec),
		metaFeatures: features.SetOf(o.Spec).Hash,
		metaRecipe:   o.Recipe,
		metaTarget:   o.BetaTarget,
		metaSplit:    fmt.Sprint(o.Split),
		metaSchema:   table.SchemaVersion,
	}
}

// VersionOf returns the version of the features whose sums a Gram file has; "" for a version that this program does
// not know.
func VersionOf(f *ridge.File) features.Version {
	v := features.Version(f.Meta[metaSpec])
	if features.BetaFeatures(v) == nil {
		return ""
	}
	return v
}

// Save returns the sums over the step-time rows of the given runs: for each run one unnormalised
// Gram for each regime, fold segment, lag (0, 1, 2) and gamma, and one of the hold-out for each
// regime, lag and gamma. Rows are cleaned run by run, so that the sums of a run do not depend on
// the other runs, and any split of the runs over files merges to the same bits.
func Save(ctx context.Context, sources []Source, o Options, progress trace.Progress) (ridge.File, error) {
	o, err := o.Resolve()
	if err != nil {
		return ridge.File{}, err
	}
	if o.Recipe != Relative {
		return ridge.File{},
			trace.Errorf(rows.BadOption, "--save-gram: got recipe %s, want relative: the frozen recipe has no sums per cell", o.Recipe)
	}
	if sources, err = Without(append([]Source{}, sources...), o.Without); err != nil {
		return ridge.File{}, err
	}
	files := make([]ridge.File, len(sources))
	err = par.Try(ctx, o.Workers, len(sources), func(i int) (err error) {
		files[i], err = gramsOf(ctx, sources[i], o)
		return err
	}, func(done int) { progress.Report("grams", int64(done), int64(len(sources)), "runs") })
	if err != nil {
		return ridge.File{}, err
	}
	return mergeGrams(files)
}

// gramsOf returns the Gram file of one run. Its sets are ordered by lag, then by gamma, the training
// part before the hold-out; gramFit.cellsAt reads them by this order.
func gramsOf(ctx context.Context, src Source, o Options) (ridge.File, error) {
	f := ridge.File{Meta: metaOf(o), Runs: []string{src.ID}, Configs: []string{src.Deployment.Config()}}
	for r := rows.Decode; r <= rows.Mixed; r++ {
		f.Regimes = append(f.Regimes, r.String())
	}
	p, steps, space, err := Load(ctx, src, o)
	if err != nil {
		return f, err
	}
	info := gramRun{runFacts: p.runFacts}
	for lag := range reconstruct.Lags {
		tables, err := lagTables(p, steps, space, lag, o)
		if err != nil {
			return f, err
		}
		for g, t := range tables {
			train, hold, err := gramCells(t, features.Gammas()[g], lag, o)
			if err != nil {
				return f, fmt.Errorf("run %s: %w", src.ID, err)
			}
			f.Sets = append(f.Sets, train, hold)
		}
		base := tables[slices.Index(features.Gammas(), features.DefaultGamma)]
		info.Lags[lag] = lagFigures(base, o)
	}
	text, err := json.Marshal(info)
	f.Meta[metaRunPrefix+src.ID] = string(text)
	return f, err
}

// lagTables returns the cleaned rows of one run at one lag (steps from schedule() to the interval
// that the execution fills), a table for each gamma.
func lagTables(p *Run, steps *rows.Steps, space *features.Space, lag int, o Options) ([]*rows.Table, error) {
	t, err := steps.Beta(space, rows.Options{Target: o.BetaTarget, Lag: lag, Gammas: features.Gammas(), Split: o.Split,
		Saturated: p.Spans, Preempting: true})
	if err != nil {
		return nil, err
	}
	rows.Clean([]*rows.Table{t}, rows.Relative)
	var tables []*rows.Table
	for _, gamma := range features.Gammas() {
		tables = append(tables, t.At(gamma))
	}
	return tables, nil
}

// gramCells returns the sums of a table's training rows and of its hold-out. gamma and lag are those of
// the table.
func gramCells(t *rows.Table, gamma float64, lag int, o Options) (train, hold *ridge.Cells, err error) {
	opt := ridgeOptions(featureTerms(features.BetaFeatures(o.Spec), 1, PriorZero), EpsBetaUs, o)
	opt.Workers = 1
	opt.EmbargoRows = embargo(1)
	empty := ridge.Cells{P: len(opt.Penalty), EpsUs: opt.EpsUs, Folds: opt.Folds, Gamma: gamma, Lag: lag}
	train = new(empty)
	train.Embargo = opt.EmbargoRows
	hold = new(empty)
	if t.Kept == 0 {
		return train, hold, nil
	}
	p := Pooled([]*rows.Table{t}, nil)
	hold.List = cellsOutsideFolds(p.Data, p.Hold, opt)
	if len(p.Train) <= opt.Folds { // too few for the folds: ridge.Data.Cut would refuse them
		train.List = cellsOutsideFolds(p.Data, p.Train, opt)
		return train, hold, nil
	}
	cells, _, err := p.TrainData().Cut(opt)
	if err != nil {
		return nil, nil, err
	}
	train.List = cells[0].List
	return train, hold, nil
}

// cellsOutsideFolds returns the sums over the listed rows of d, one cell for each regime. No fold trains or
// validates on them (ridge.CellKey). Weights are not balanced, because the balance depends on the other runs of a
// fit, and a Gram file has one run.
func cellsOutsideFolds(d *ridge.Data, list []int32, o ridge.Options) []ridge.Cell {
	w := d.Unbalanced(o)
	var out []ridge.Cell
	for regime := int32(rows.Decode); regime <= int32(rows.Mixed); regime++ {
		var own []int32
		for _, i := range list {
			if d.Regime[i] == regime {
				own = append(own, i)
			}
		}
		if len(own) > 0 {
			key := ridge.CellKey{Regime: regime, Block: -1, From: ridge.Never}
			out = append(out, ridge.Cell{CellKey: key, Gram: *ridge.OfRows(d, w, own, 1)})
		}
	}
	return out
}

// lagFigures returns the row counts, feature ranges and variation within the run, of cleaned rows.
func lagFigures(t *rows.Table, o Options) gramLagFigures {
	out := gramLagFigures{Read: t.Read, Kept: t.Kept, Dropped: map[string]int{}}
	for _, c := range t.Dropped {
		out.Dropped[string(c.Code)] += c.N
	}
	out.Min, out.Max = rows.Ranges([]*rows.Table{t})
	if t.Kept == 0 {
		return out
	}
	p := Pooled([]*rows.Table{t}, nil)
	if len(p.Train) == 0 {
		return out
	}
	train := p.TrainData()
	opt := ridgeOptions(featureTerms(features.BetaFeatures(o.Spec), 1, PriorZero), EpsBetaUs, o)
	for _, v := range train.WithinVariation(ridge.Weights(train, opt))[0] { // [0]: of the only configuration
		out.Within = append(out.Within, result.OrNull(v))
	}
	if found := tableBelowFloor(t, o.BetaTarget); found != nil {
		out.BelowFloor = found.Message
	}
	return out
}

// mergeGrams joins the Gram files of different runs. It returns an error if their common metadata
// differ.
func mergeGrams(files []ridge.File) (ridge.File, error) {
	if len(files) == 0 {
		return ridge.File{}, trace.Errorf(rows.BadOption, "--from-gram: got no file, want one or more")
	}
	meta := map[string]string{}
	for _, f := range files {
		if err := sameMeta(files[0].Meta, f.Meta); err != nil {
			return ridge.File{}, err
		}
		for _, k := range slices.Sorted(maps.Keys(f.Meta)) {
			meta[k] = f.Meta[k]
		}
	}
	out, err := ridge.Merge(files...)
	if err != nil {
		return out, gramRefusal("%v", err)
	}
	out.Meta = meta
	return out, nil
}

// sameMeta returns an error if two files were made from other features or under other options.
func sameMeta(want, got map[string]string) error {
	for _, k := range commonMeta {
		if want[k] != got[k] {
			return gramRefusal("%s: got %q, want %q", k, got[k], want[k])
		}
	}
	return nil
}

// gramRefusal returns an error about Gram files that cannot be used together.
func gramRefusal(format string, args ...any) error {
	return trace.Errorf(features.WrongFeatureSet, "gram: "+format,
		args...).WithHint("save the Gram files again with one version and one set of options: blis-train fit OUT --save-gram FILE")
}

// withoutRuns removes runs by name from the sums and the metadata.
func withoutRuns(f *ridge.File, names []string) error {
	for _, name := range names {
		if _, known := f.Meta[metaRunPrefix+name]; !known {
			return trace.Errorf(rows.BadOption, "--without: no run %q in the Gram files", name)
		}
		if err := f.WithoutRun(name); err != nil {
			return trace.Errorf(rows.BadOption, "--without: %v", err)
		}
		delete(f.Meta, metaRunPrefix+name)
	}
	return nil
}
