package validate

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

// Run is cut in three, so that runs may be judged by many processes: StoreSteps of each,
// OutlierLimits of them all, StoreReplay of each, and Run on what those two wrote.

// Files of a stored run: what is no table, the tables, the replay.
const (
	storedSteps  = "steps.json"
	storedTables = "steps.bin"
	storedReplay = "replay.json"
)

// replayed are the entries of a run and, by scope of a gate, what its requests waited for.
type replayed struct {
	Entries []result.ValidationRun `json:"entries"`
	Starved map[string]starved     `json:"starved"`
}

// StoreSteps makes the rows of one run as Run does and writes them to a folder that
// Source.Steps may name.
func StoreSteps(ctx context.Context, set *coeff.Set, fit *result.Fit, src Source, o Options, dir string) error {
	j, err := newJob(ctx, set, fit, []Source{src}, o)
	if err == nil {
		err = j.each(ctx, "steps", j.loadSteps)
	}
	if err != nil {
		return err
	}
	t := j.all[0]
	err = files.WriteJSON(filepath.Join(dir, storedSteps), t.stored)
	if err != nil || t.beta == nil {
		return err
	}
	w, err := rows.CreateTables(filepath.Join(dir, storedTables))
	if err != nil {
		return err
	}
	for _, t := range append([]*rows.Table{t.beta}, t.alpha...) {
		err = errors.Join(err, w.Encode(t))
	}
	return errors.Join(err, w.Close())
}

func restoreSteps(src *Source, set *coeff.Set) (*judgedRun, error) {
	t := &judgedRun{id: src.ID, informs: src.Informs, training: src.Training}
	if err := files.ReadJSON(filepath.Join(src.Steps, storedSteps), &t.stored); err != nil {
		return nil, err
	}
	t.under(set)
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

// OutlierLimits are those over all runs, whose steps are stored.
func OutlierLimits(ctx context.Context, set *coeff.Set, fit *result.Fit, sources []Source, o Options) ([]Limits, error) {
	j, err := newJob(ctx, set, fit, sources, o)
	if err == nil {
		err = j.each(ctx, "limits", func(i int) error {
			if err := j.loadSteps(i); err != nil || j.all[i].beta == nil {
				return err
			}
			for _, t := range append([]*rows.Table{j.all[i].beta}, j.all[i].alpha...) {
				*t = rows.Table{Config: t.Config, Target: t.Target, Kept: t.Kept, Y: t.Y, Steps: t.Steps, Regime: t.Regime} // limits are of times
			}
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	return j.limits(), nil
}

// StoreReplay replays one run, whose steps are stored, as Run does and writes the result to
// a folder that Source.Replay may name; limits are those of all runs.
func StoreReplay(ctx context.Context, set *coeff.Set, fit *result.Fit, src Source, o Options, limits []Limits, dir string) error {
	j, err := newJob(ctx, set, fit, []Source{src}, o)
	if err == nil {
		err = j.each(ctx, "steps", j.loadSteps)
	}
	if err == nil {
		err = j.clean(limits)
	}
	if err == nil {
		err = j.each(ctx, "replay", func(i int) error { return j.replay(ctx, i) })
	}
	if err != nil {
		return err
	}
	return files.WriteJSON(filepath.Join(dir, storedReplay), replayed{j.entries[0], j.all[0].starved})
}

func restoreReplay(dir string) ([]result.ValidationRun, map[string]starved, error) {
	var r replayed
	err := files.ReadJSON(filepath.Join(dir, storedReplay), &r)
	return r.Entries, r.Starved, err
}
