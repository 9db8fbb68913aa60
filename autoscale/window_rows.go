package autoscale

// This file is windows.parquet: every window of queue.json with the predictions of each estimator.

import (
	"math"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// windowsTable is the name of the table with the windows behind queue.json.
const windowsTable = "windows"

// WindowRow is a row of windows.parquet: one window with the prediction of one estimator. The
// prediction of an online estimator is that of the parameters it had before the window.
type WindowRow struct {
	Server    string             `col:"server" doc:"id in queue.json"`
	Window    int64              `col:"window" doc:"position among the server's kept windows"`
	Name      string             `col:"name" doc:"run, or sweep"`
	Phase     string             `col:"phase" doc:"phase of run.yaml, or the benchmark's strategy"`
	StartNs   int64              `col:"start_ns" unit:"ns" doc:"start, monotonic; 0 for a benchmark"`
	EndNs     int64              `col:"end_ns" unit:"ns" doc:"end, monotonic"`
	HoldOut   bool               `col:"hold_out" doc:"not fitted when scores were made"`
	Speed     trace.Opt[float64] `col:"machine_speed" doc:"measured over predicted step time, over its median in training windows; above 1 is slower"`
	Requests  int64              `col:"requests" doc:"behind the means"`
	RateRPS   float64            `col:"rate_rps" unit:"1/s" doc:"arrivals, or completions with --semantics prometheus"`
	Prompt    float64            `col:"prompt_tokens" unit:"tokens" doc:"mean"`
	Cached    float64            `col:"cached_tokens" unit:"tokens" doc:"mean"`
	Output    float64            `col:"output_tokens" unit:"tokens" doc:"mean"`
	PromptCV2 float64            `col:"prompt_cv2" doc:"variance / mean^2"`
	OutputCV2 float64            `col:"output_cv2" doc:"variance / mean^2"`
	TTFTMs    float64            `col:"ttft_ms" unit:"ms" doc:"measured mean over requests; of a sweep as --ttft says"`
	TTFTSeMs  trace.Opt[float64] `col:"ttft_se_ms" unit:"ms" doc:"standard error from five blocks of requests"`
	ITLMs     float64            `col:"itl_ms" unit:"ms" doc:"measured mean over tokens"`
	ITLSeMs   trace.Opt[float64] `col:"itl_se_ms" unit:"ms" doc:"standard error from five blocks of requests"`
	Estimator string             `col:"estimator" doc:"effective, physical, replica:..., robust or sliding"`
	Verdict   string             `col:"verdict" doc:"what an online estimator did with the window; empty for a fit"`
	TTFTPred  trace.Opt[float64] `col:"ttft_pred_ms" unit:"ms" doc:"with the parameters held before the window"`
	ITLPred   trace.Opt[float64] `col:"itl_pred_ms" unit:"ms" doc:"with the parameters held before the window"`
	NIS       trace.Opt[float64] `col:"nis" doc:"normalised innovation squared"`
	Names     []string           `col:"names" doc:"of the parameters"`
	X         []float64          `col:"x" unit:"ms" doc:"parameters after the window"`
	P         []float64          `col:"p" unit:"ms^2" doc:"their covariance, row by row; empty without one"`
}

// Rows returns the windows of a server with the predictions of its effective and physical
// parameters.
func (f *Calibrated) Rows(flavour Flavour) []WindowRow {
	var out []WindowRow
	for _, e := range []struct {
		name string
		x    []float64
	}{{estEffective, f.X}, {estPhysical, f.Physical.vector(flavour)}} {
		if e.x == nil {
			continue
		}
		for i := range f.Windows {
			r := f.measuredRow(i, flavour, e.name)
			r.X = e.x
			if ttft, itl, ok := predictWindow(flavour, &f.Windows[i], e.x, asSized); ok {
				r.TTFTPred = trace.Some(ttft)
				r.ITLPred = trace.Some(itl)
			}
			out = append(out, r)
		}
	}
	return out
}

// measuredRow returns the measured part of the row of window i.
func (f *Calibrated) measuredRow(i int, flavour Flavour, estimator string) WindowRow {
	w := &f.Windows[i]
	var speed trace.Opt[float64]
	if f.speed != nil {
		speed = trace.Some(f.speed[i])
	}
	known := func(v float64) trace.Opt[float64] { return trace.Opt[float64]{V: v, OK: v > 0} }
	return WindowRow{
		Server:    f.ID,
		Window:    int64(i),
		Name:      w.Name,
		Phase:     w.Phase,
		StartNs:   w.StartNs,
		EndNs:     w.EndNs,
		HoldOut:   i >= f.Split+f.Gap,
		Speed:     speed,
		Requests:  int64(w.Requests),
		RateRPS:   w.RateRPS,
		Prompt:    w.Shape.Prompt,
		Cached:    w.Shape.Cached,
		Output:    w.Shape.Output,
		PromptCV2: w.Shape.PromptCV2,
		OutputCV2: w.Shape.OutputCV2,
		TTFTMs:    w.TTFTMs,
		TTFTSeMs:  known(w.TTFTSeMs),
		ITLMs:     w.ITLMs,
		ITLSeMs:   known(w.ITLSeMs),
		Estimator: estimator,
		Names:     flavour.Parameters(),
	}
}

// stepRows returns the rows of an online estimator.
func (f *Calibrated) stepRows(flavour Flavour, estimator string, steps []step) []WindowRow {
	out := make([]WindowRow, len(steps))
	for k := range steps {
		s := &steps[k]
		r := f.measuredRow(s.Window, flavour, estimator)
		r.Verdict = string(s.Verdict)
		r.X = s.X
		r.NIS = trace.Opt[float64]{V: s.NIS, OK: !math.IsNaN(s.NIS)}
		if s.Innovation != [2]float64{} { // there was a prediction
			r.TTFTPred = trace.Some(r.TTFTMs - s.Innovation[0])
			r.ITLPred = trace.Some(r.ITLMs - s.Innovation[1])
		}
		for _, row := range s.P {
			r.P = append(r.P, row...)
		}
		out[k] = r
	}
	return out
}

// WriteRows writes windows.parquet in dir.
func WriteRows(dir string, rows []WindowRow) error {
	return table.Write(dir, windowsTable, table.Parquet, rows)
}
