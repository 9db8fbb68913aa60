package rows

// This file writes training rows as rows.parquet, for other tools.

import (
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// tableName is the table of `fit --dump-rows`, in the folder of the fit.
const tableName = "rows"

// DumpRow is one training row on disk, with everything needed to fit with other tools.
type DumpRow struct {
	Run       string             `col:"run_id" doc:"engine run"`
	Config    string             `col:"config" doc:"configuration key"`
	Target    string             `col:"target" doc:"cadence, duration, overhead, admission, egress or queue"`
	Lag       int64              `col:"lag" unit:"steps" doc:"schedule-to-execution lag applied"`
	TimeNs    int64              `col:"time_ns" unit:"ns" doc:"start of the interval, or arrival; monotonic"`
	FirstStep int64              `col:"first_step" doc:"first step whose features are summed; the joined step of alpha rows"`
	LastStep  int64              `col:"last_step" doc:"last step whose features are summed"`
	Steps     float64            `col:"steps" unit:"steps" doc:"engine steps the row covers"`
	Request   trace.Opt[string]  `col:"core_id" doc:"alpha rows: the request"`
	Phase     trace.Opt[string]  `col:"phase" doc:"phase of run.yaml; null outside all"`
	Regime    string             `col:"regime" doc:"decode, prefill or mixed; alpha: idle or waiting"`
	Source    string             `col:"source" doc:"where the features come from: rich, journey, approximate, lag_approximate"`
	YUs       float64            `col:"y_us" unit:"us" doc:"target; overhead: the upper bound"`
	LoUs      trace.Opt[float64] `col:"lo_us" unit:"us" doc:"overhead: lower bound"`
	HiUs      trace.Opt[float64] `col:"hi_us" unit:"us" doc:"overhead: upper bound"`
	Exact     trace.Opt[bool]    `col:"exact" doc:"overhead: the value is known"`
	Factor    float64            `col:"factor" doc:"weight factor: 0.5 for a row that preempts, else 1"`
	HoldOut   bool               `col:"hold_out" doc:"last part of its phase: not used for training"`
	FloorUs   float64            `col:"floor_us" unit:"us" doc:"time to read the weights, summed over the row's steps"`
	Names     []string           `col:"feature_names" doc:"names of the features, in order"`
	X         []float64          `col:"features" doc:"features summed over the row's steps; s or dimensionless"`
}

// WriteParquet writes the rows of the tables, in order, as rows.parquet in dir. names returns the
// feature names of a table, phases the phases of a run (nil: none).
func WriteParquet(dir string, tables []*Table, names func(t *Table) []string,
	phases func(run string) []deploy.Phase) error {
	w, err := table.Create[DumpRow](dir, tableName, table.Parquet)
	if err != nil {
		return err
	}
	for _, t := range tables {
		columns := names(t)
		runPhases := phases(t.Run)
		for i := range t.Kept {
			if err := w.Append(t.dumpRow(i, slices.Clone(t.Row(i)), columns, runPhases)); err != nil {
				w.Abort()
				return err
			}
		}
	}
	return w.Close()
}

// dumpRow returns row i in the form of rows.parquet.
func (t *Table) dumpRow(i int, x []float64, names []string, phases []deploy.Phase) DumpRow {
	r := DumpRow{
		Run:       t.Run,
		Config:    t.Config,
		Target:    t.Target,
		Lag:       int64(t.Lag),
		TimeNs:    t.TimeNs[i],
		FirstStep: t.FirstStep[i],
		LastStep:  t.LastStep[i],
		Steps:     t.Steps[i],
		Regime:    t.Regime[i].String(),
		Source:    t.Tag[i].String(),
		YUs:       t.Y[i],
		Factor:    t.Factor[i],
		HoldOut:   t.HoldOut[i],
		FloorUs:   t.FloorUs[i],
		Names:     names,
		X:         x,
	}
	if p := t.Phase[i]; p >= 0 && int(p) < len(phases) {
		r.Phase = trace.Some(phases[p].Name)
	}
	if t.Exact != nil {
		r.LoUs = trace.Some(t.Lo[i])
		r.HiUs = trace.Some(t.Hi[i])
		r.Exact = trace.Some(t.Exact[i])
	}
	if t.ID != nil {
		r.Request = trace.Some(t.ID[i])
	}
	return r
}
