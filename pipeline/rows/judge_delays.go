package rows

// This file computes the errors of predicted delays: of single requests, of means over 10 s, and by
// regime.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
)

// windowNs is the length of the windows whose mean delays are compared, as in an operator's
// dashboard.
const windowNs = int64(10e9)

// Delays compares predictions of one delay around the engine (an alpha target) with the
// measurements.
type Delays struct {
	groups [][]*Sample
	consts []bestConstants // by group
	near   [][]float64     // by group, of every judged row: nearestRows, once Errors needs it
}

// longUs is the delay from which a request counts as one that was held up.
const longUs = 1e6

// bestConstants are the constants in us that predict the training rows, and their window means,
// best. The documents compare predictions with them.
type bestConstants struct{ row, window float64 }

// JudgeDelays returns the groups with the best constants of each. All samples have one target.
func JudgeDelays(groups [][]*Sample) *Delays {
	d := &Delays{groups: groups}
	for _, group := range groups {
		var single, means stat.Rows
		for _, s := range group {
			// The constants are those of the training rows, whichever part is judged.
			part := &Sample{Table: s.Table, Pred: s.Table.Y, Part: Training}
			if s.Part == Whole { // a run that nothing was trained on
				part.Part = Whole
			}
			part.eachJudged(func(i int) { single.Y = append(single.Y, s.Table.Y[i]) })
			appendWindowMeans(&means, part, math.NaN(), true)
		}
		d.consts = append(d.consts, bestConstants{row: single.BestConstant(nil), window: means.BestConstant(nil)})
	}
	return d
}

// appendWindowMeans appends the means over 10-second windows of a sample's judged rows, counted
// from the first of them. constUs is the best constant for a window; outliers asks for the outliers too.
func appendWindowMeans(to *stat.Rows, s *Sample, constUs float64, outliers bool) {
	t := s.Table
	var y, pred, n float64
	var first, window int64
	flush := func() {
		if n > 0 {
			to.Y = append(to.Y, y/n)
			to.Pred = append(to.Pred, pred/n)
			to.Const = append(to.Const, constUs)
		}
		y = 0
		pred = 0
		n = 0
	}
	started := false
	s.eachJudged(func(i int) {
		if !started {
			started, first = true, t.TimeNs[i]
		}
		if number := (t.TimeNs[i] - first) / windowNs; number != window {
			flush()
			window = number
		}
		if outliers || !s.Table.IsOutlier(i) {
			y += t.Y[i]
			pred += s.Pred[i]
			n += 1
		}
	})
	flush()
}

// delayRows are judged rows of one delay.
type delayRows struct {
	stat.Rows
	near    []float64 // prediction from the nearest rows; NaN where unknown
	regimes []Regime
}

// Errors returns the errors of the samples for which keep is true (nil: all), nil without validated
// rows. For admission the largest error is that of the window means, which is what an operator
// sees.
func (d *Delays) Errors(keep func(*Sample) bool) *result.TargetErrors {
	if d.near == nil {
		for _, group := range d.groups {
			d.near = append(d.near, nearestRows(group, 0))
		}
	}
	var single delayRows
	var means, usual stat.Rows // of windows; usual: without outliers
	target := ""
	for g, group := range d.groups {
		judged := 0 // index in d.near[g], which has the rows of all samples
		for _, s := range group {
			kept := keep == nil || keep(s)
			s.eachJudged(func(i int) {
				near := d.near[g][judged]
				judged++
				if !kept {
					return
				}
				single.near = append(single.near, near)
				single.regimes = append(single.regimes, s.Table.Regime[i])
				single.Y = append(single.Y, s.Table.Y[i])
				single.Pred = append(single.Pred, s.Pred[i])
				single.Const = append(single.Const, d.consts[g].row)
				single.Outlier = append(single.Outlier, s.Table.IsOutlier(i))
			})
			if kept {
				target = s.Table.Target
				appendWindowMeans(&means, s, d.consts[g].window, true)
				appendWindowMeans(&usual, s, d.consts[g].window, false)
			}
		}
	}
	errors, windows := single.Errors(nil), means.Errors(nil)
	if errors.Rows == 0 {
		return nil
	}
	num := result.OrNull
	out := &result.TargetErrors{
		Rows:           errors.Rows,
		MAPE:           num(errors.MAPE),
		MedianAPE:      num(errors.MedianAPE),
		WAPE:           num(errors.WAPE),
		MAEUs:          num(errors.MAEUs),
		Bias:           num(errors.Bias),
		MAPEConst:      num(errors.MAPEConst),
		MaxErrorRatio:  num(errors.MaxErrorRatio),
		Outliers:       errors.Outliers,
		LargestOutlier: num(errors.LargestOutlier),
		Windows:        windows.Rows,
		MAPEWindow10s:  num(windows.MAPE),
		ConstWindow:    num(windows.MAPEConst),
		MedianPredUs:   num(stat.Median(single.Pred)),
		MAPEFloor:      num(single.floor(nil)),
	}
	if target == coeff.Admission {
		if errors.HasFewOutliers() {
			windows = usual.Errors(nil)
		}
		out.MaxErrorRatio = num(windows.MaxErrorRatio)
	}
	if target == coeff.Egress { // no wait of the engine, so it has no regimes and nothing that is long
		return out
	}
	for _, regime := range []Regime{Idle, Waiting} {
		if errors := single.part(regime.String(), func(i int) bool { return single.regimes[i] == regime }); errors != nil {
			out.Regimes = append(out.Regimes, *errors)
		}
	}
	out.Long = single.part("long", func(i int) bool { return single.Y[i] >= longUs })
	return out
}

// part returns the errors of the rows that are in a part, nil without any.
func (r *delayRows) part(name string, in func(i int) bool) *result.RegimeErrors {
	e := r.Rows.Errors(in)
	if e.Rows == 0 {
		return nil
	}
	num := result.OrNull
	return &result.RegimeErrors{Regime: name, Rows: e.Rows, MAPE: num(e.MAPE), MAPEConst: num(e.MAPEConst), MAPEFloor: num(r.floor(in)),
		WAPE: num(e.WAPE), Bias: num(e.Bias)}
}

// floor returns the MAPE of the prediction from the nearest rows, NaN where it is unknown for all
// of them.
func (r *delayRows) floor(in func(i int) bool) float64 {
	nearest := stat.Rows{Y: r.Y, Pred: r.near}
	return nearest.Errors(func(i int) bool { return !math.IsNaN(r.near[i]) && (in == nil || in(i)) }).MAPE
}

// Intervals returns how well predictions agree with the bounds of an interval target, over the
// validated rows of the samples for which keep is true (nil: all) and with the weights of the
// interval fit; nil without such rows.
func (d *Delays) Intervals(keep func(*Sample) bool) *result.IntervalErrors {
	data := &ridge.Data{P: 1}
	bounds := ridge.Bounds{}
	var pred []float64
	for g, group := range d.groups {
		for _, s := range group {
			if keep != nil && !keep(s) {
				continue
			}
			t := s.Table
			s.eachJudged(func(i int) {
				data.Y = append(data.Y, t.Y[i])
				data.Factor = append(data.Factor, t.Factor[i])
				data.Config = append(data.Config, int32(g))
				data.Regime = append(data.Regime, int32(t.Regime[i]))
				bounds.Lo = append(bounds.Lo, t.Lo[i])
				bounds.Hi = append(bounds.Hi, t.Hi[i])
				pred = append(pred, s.Pred[i])
			})
		}
	}
	if len(pred) == 0 {
		return nil
	}
	e := bounds.Evaluate(data, ridge.CensoredWeights(data, ridge.DefaultOptions(1)), pred)
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
