package rows

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
)

// windowNs is the length of the windows whose means an operator sees.
const windowNs = int64(10e9)

// Delays judges the predictions of one delay around the engine (an alpha target).
type Delays struct {
	groups [][]*Sample
	consts []constants // by group
}

// constants predict the training rows and their window means best, us.
type constants struct{ row, window float64 }

// NewDelays takes samples of one target.
func NewDelays(groups [][]*Sample) *Delays {
	d := &Delays{groups: groups}
	for _, group := range groups {
		var single, means stat.Rows
		for _, s := range group {
			part := &Sample{Table: s.Table, Pred: s.Table.Y, Part: Training}
			if s.Part == Whole {
				part.Part = Whole
			}
			part.each(func(i int) { single.Y = append(single.Y, s.Table.Y[i]) })
			addWindows(&means, part, math.NaN())
		}
		d.consts = append(d.consts, constants{single.BestConstant(nil), means.BestConstant(nil)})
	}
	return d
}

// addWindows appends the means over 10-second windows of a sample's judged rows,
// counted from the first of them; windows of two runs never mix.
func addWindows(to *stat.Rows, s *Sample, constUs float64) {
	t := s.Table
	var y, pred, n float64
	var first, window int64
	flush := func() {
		if n > 0 {
			to.Y, to.Pred, to.Const = append(to.Y, y/n), append(to.Pred, pred/n), append(to.Const, constUs)
		}
		y, pred, n = 0, 0, 0
	}
	started := false
	s.each(func(i int) {
		if !started {
			started, first = true, t.TimeNs[i]
		}
		if w := (t.TimeNs[i] - first) / windowNs; w != window {
			flush()
			window = w
		}
		y, pred, n = y+t.Y[i], pred+s.Pred[i], n+1
	})
	flush()
}

// Errors are those of the samples keep says yes to (nil: all), nil without judged
// rows. For admission, what an operator sees is the window: its largest error
// replaces that of the rows.
func (d *Delays) Errors(keep func(*Sample) bool) *result.TargetErrors {
	var single, means stat.Rows
	target := ""
	for g, group := range d.groups {
		for _, s := range group {
			if keep != nil && !keep(s) {
				continue
			}
			target = s.Table.Target
			s.each(func(i int) {
				single.Y, single.Pred = append(single.Y, s.Table.Y[i]), append(single.Pred, s.Pred[i])
				single.Const = append(single.Const, d.consts[g].row)
			})
			addWindows(&means, s, d.consts[g].window)
		}
	}
	e, w := single.Errors(nil), means.Errors(nil)
	if e.Rows == 0 {
		return nil
	}
	num := result.OrNull
	out := &result.TargetErrors{
		Rows: e.Rows, MAPE: num(e.MAPE), WAPE: num(e.WAPE), MAEUs: num(e.MAEUs), Bias: num(e.Bias), MAPEConst: num(e.MAPEConst),
		MaxErrorRatio: num(e.MaxErrorRatio),
		Windows:       w.Rows, MAPEWindow10s: num(w.MAPE), ConstWindow: num(w.MAPEConst), MedianPredUs: num(stat.Median(single.Pred)),
	}
	if target == Admission {
		out.MaxErrorRatio = num(w.MaxErrorRatio)
	}
	return out
}

// Intervals are the figures of an interval target, nil without judged rows: how
// the judged rows of the samples keep says yes to (nil: all) meet their bounds,
// with the weights of the interval fit.
func (d *Delays) Intervals(keep func(*Sample) bool) *result.IntervalErrors {
	data, bounds := &ridge.Data{P: 1}, ridge.Bounds{}
	var pred []float64
	for g, group := range d.groups {
		for _, s := range group {
			if keep != nil && !keep(s) {
				continue
			}
			t := s.Table
			s.each(func(i int) {
				data.Y, data.Factor = append(data.Y, t.Y[i]), append(data.Factor, t.Factor[i])
				data.Config, data.Regime = append(data.Config, int32(g)), append(data.Regime, int32(t.Regime[i]))
				bounds.Lo, bounds.Hi = append(bounds.Lo, t.Lo[i]), append(bounds.Hi, t.Hi[i])
				pred = append(pred, s.Pred[i])
			})
		}
	}
	if len(pred) == 0 {
		return nil
	}
	e := ridge.EvaluateCensored(data, bounds, ridge.CensoredWeights(data, ridge.DefaultOptions(1)), pred)
	missed := 0.0
	for i, p := range pred {
		missed += bounds.Distance(i, p)
	}
	mae := missed / float64(len(pred))
	slices.Sort(pred)
	num := result.OrNull
	return &result.IntervalErrors{
		Rows: e.Rows, ExactRows: e.Exact, InformativeRows: e.Informative, InsideShare: num(e.Inside), MedianWidthUs: num(e.MedianWidth),
		WeightedDistance: num(e.Distance), MAEUs: num(mae), ExactWAPE: num(e.ExactWAPE), MedianPredUs: num(stat.Quantile(pred, 0.5)),
	}
}
