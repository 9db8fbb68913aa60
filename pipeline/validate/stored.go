package validate

// This file stores the parts of a validation, so that many processes can share it: StoreSteps for each
// run, OutlierLimits over all of them, StoreReplay for each run, and Run on what those wrote.

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

// Files of a stored run.
const (
	storedSteps  = "steps.json" // type stored
	storedTables = "steps.bin"  // beta, then the alpha targets
	storedReplay = "replay.json"
)

// storedEntries are the entries of a run and, by scope of a gate, the requests that waited for KV blocks.
type storedEntries struct {
	Entries []result.ValidationRun     `json:"entries"`
	Starved map[string]starvedRequests `json:"starved"`
}

// StoreSteps makes the rows of one run as Run does and writes them to a folder that Source.Steps may name.
func StoreSteps(ctx context.Context, set *coeff.Set, fit *result.Fit, src Source, o Options, dir string) error {
	j, err := newJob(ctx, set, fit, []Source{src}, o)
	if err != nil {
		return err
	}
	if err := j.each(ctx, "steps", func(i int) error { return j.loadSteps(ctx, i) }); err != nil {
		return err
	}
	t := j.runs[0]
	// A run without rows (t.beta is nil), such as one of requests or load levels alone, has no storedTables.
	err = files.WriteJSON(filepath.Join(dir, storedSteps), t.stored)
	if err != nil || t.beta == nil {
		return err
	}
	w, err := rows.CreateTables(filepath.Join(dir, storedTables))
	if err != nil {
		return err
	}
	for _, table := range append([]*rows.Table{t.beta}, t.alpha...) {
		err = errors.Join(err, w.Encode(table))
	}
	return errors.Join(err, w.Close())
}

// restoreSteps returns the run whose rows StoreSteps wrote. It does not check that they were made with this set, for
// these options and by this program: the folder is an output of an earlier task of the same plan (package shard), whose
// tasks name their inputs by content and refuse another build.
func restoreSteps(src *Source, set *coeff.Set) (*judgedRun, error) {
	t := &judgedRun{id: src.ID, informs: src.Informs, capped: src.Capped, levels: src.Levels, training: src.Training}
	if err := files.ReadJSON(filepath.Join(src.Steps, storedSteps), &t.stored); err != nil {
		return nil, err
	}
	t.useCoefficients(set) // needs the deployment that was just read; a run without tables needs it too
	path := filepath.Join(src.Steps, storedTables)
	if _, err := os.Stat(path); os.IsNotExist(err) {
		return t, nil
	}
	_, err := rows.RestoreTables(path, func(i int, table *rows.Table) {
		if i == 0 {
			t.beta = table
		} else {
			t.alpha = append(t.alpha, table)
		}
	})
	return t, err
}

// OutlierLimits returns the limits beyond which a row is an outlier, over the rows of all runs,
// which StoreSteps has stored.
func OutlierLimits(ctx context.Context, set *coeff.Set, fit *result.Fit, sources []Source, o Options) ([]Limits, error) {
	j, err := newJob(ctx, set, fit, sources, o)
	if err != nil {
		return nil, err
	}
	err = j.each(ctx, "limits", func(i int) error {
		if err := j.loadSteps(ctx, i); err != nil || j.runs[i].beta == nil {
			return err
		}
		for _, table := range append([]*rows.Table{j.runs[i].beta}, j.runs[i].alpha...) {
			keepTimes(table)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return j.limits(), nil
}

// keepTimes frees what the limits of outliers do not need: features above all.
func keepTimes(t *rows.Table) {
	*t = rows.Table{
		Config: t.Config,
		Target: t.Target,
		Kept:   t.Kept,
		Y:      t.Y,
		Steps:  t.Steps,
		Regime: t.Regime,
	}
}

// StoreReplay replays one run, whose steps are stored, as Run does and writes the result to a folder that
// Source.Replay may name. limits are those of all runs.
func StoreReplay(ctx context.Context, set *coeff.Set, fit *result.Fit, src Source, o Options, limits []Limits, dir string) error {
	j, err := newJob(ctx, set, fit, []Source{src}, o)
	if err != nil {
		return err
	}
	if err := j.each(ctx, "steps", func(i int) error { return j.loadSteps(ctx, i) }); err != nil {
		return err
	}
	if err := j.clean(limits); err != nil {
		return err
	}
	if err := j.each(ctx, "replay", func(i int) error { return j.replay(ctx, i) }); err != nil {
		return err
	}
	return files.WriteJSON(filepath.Join(dir, storedReplay), storedEntries{Entries: j.entries[0], Starved: j.runs[0].starved})
}

// restoreReplay returns the entries that StoreReplay wrote.
func restoreReplay(dir string) ([]result.ValidationRun, map[string]starvedRequests, error) {
	var s storedEntries
	err := files.ReadJSON(filepath.Join(dir, storedReplay), &s)
	return s.Entries, s.Starved, err
}
