package rows

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
}

// bestConstants are the constants in us that predict the training rows, and their window means,
// best. The documents compare predictions with them.
type bestConstants struct{ row, window float64 }

// JudgeDelays computes the best constants of each group. All samples have one target.
func JudgeDelays(groups [][]*Sample) *Delays {
	d := &Delays{groups: groups}
	for _, group := range groups {
		var single, means stat.Rows
		for _, s := range group {
			part := &Sample{Table: s.Table, Pred: s.Table.Y, Part: Training}
			if s.Part == Whole {
				part.Part = Whole
			}
			part.eachJudged(func(i int) { single.Y = append(single.Y, s.Table.Y[i]) })
			appendWindowMeans(&means, part, math.NaN(), true)
		}
		d.consts = append(d.consts, bestConstants{single.BestConstant(nil), means.BestConstant(nil)})
	}
	return d
}

// appendWindowMeans appends the means over 10-second windows of a sample's judged rows, counted
// from the first of them. constUs is the best constant for a window.
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
		if w := (t.TimeNs[i] - first) / windowNs; w != window {
			flush()
			window = w
		}
		if outliers || !s.Table.IsOutlier(i) {
			y += t.Y[i]
			pred += s.Pred[i]
			n += 1
		}
	})
	flush()
}

// Errors returns the errors of the samples for which keep is true (nil: all), nil without judged
// rows. For admission the largest error is that of the window means, which is what an operator
// sees.
func (d *Delays) Errors(keep func(*Sample) bool) *result.TargetErrors {
	var single, means, usual stat.Rows // usual: without outliers
	var regimes []Regime
	target := ""
	for g, group := range d.groups {
		for _, s := range group {
			if keep != nil && !keep(s) {
				continue
			}
			target = s.Table.Target
			s.eachJudged(func(i int) {
				regimes = append(regimes, s.Table.Regime[i])
				single.Y = append(single.Y, s.Table.Y[i])
				single.Pred = append(single.Pred, s.Pred[i])
				single.Const = append(single.Const, d.consts[g].row)
				single.Outlier = append(single.Outlier, s.Table.IsOutlier(i))
			})
			appendWindowMeans(&means, s, d.consts[g].window, true)
			appendWindowMeans(&usual, s, d.consts[g].window, false)
		}
	}
	e, w := single.Errors(nil), means.Errors(nil)
	if e.Rows == 0 {
		return nil
	}
	num := result.OrNull
	out := &result.TargetErrors{
		Rows: e.Rows, MAPE: num(e.MAPE), WAPE: num(e.WAPE), MAEUs: num(e.MAEUs), Bias: num(e.Bias), MAPEConst: num(e.MAPEConst),
		MaxErrorRatio: num(e.MaxErrorRatio), Outliers: e.Outliers, LargestOutlier: num(e.LargestOutlier),
		Windows: w.Rows, MAPEWindow10s: num(w.MAPE), ConstWindow: num(w.MAPEConst), MedianPredUs: num(stat.Median(single.Pred)),
	}
	if target == coeff.Admission {
		if e.HasFewOutliers() {
			w = usual.Errors(nil)
		}
		out.MaxErrorRatio = num(w.MaxErrorRatio)
	}
	if target != coeff.Egress {
		for _, regime := range []Regime{Idle, Waiting} {
			if e := single.Errors(func(i int) bool { return regimes[i] == regime }); e.Rows > 0 {
				out.Regimes = append(out.Regimes, result.RegimeErrors{Regime: regime.String(), Rows: e.Rows, MAPE: num(e.MAPE),
					MAPEConst: num(e.MAPEConst), WAPE: num(e.WAPE), Bias: num(e.Bias)})
			}
		}
	}
	return out
}

// Intervals returns how well predictions agree with the bounds of an interval target, over the
// judged rows of the samples for which keep is true (nil: all) and with the weights of the interval
// fit; nil without judged rows.
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
