package validate

import (
	"math"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
)

// minTargetUs: rows with a smaller |target| are left out of relative errors and
// counted (01 Q-1).
const minTargetUs = 1

// scored are rows with their predictions, us.
type scored struct {
	y, pred, steps []float64
	constUs        []float64 // the best constant's prediction of each row; nil without
}

func (s *scored) add(y, pred, steps float64) {
	s.y, s.pred, s.steps = append(s.y, y), append(s.pred, pred), append(s.steps, steps)
}

// errors are the figures of 03 section 5 but the floor and the skill.
func (s *scored) errors() *result.Errors {
	e := &result.Errors{}
	var ape []float64
	var apeConst, sumErr, sumAbs, sumY, sumSq, maxErr float64
	var targets []float64
	for i, y := range s.y {
		if math.Abs(y) < minTargetUs {
			e.Excluded++
			continue
		}
		d := s.pred[i] - y
		ape = append(ape, math.Abs(d)/math.Abs(y))
		if s.constUs != nil {
			apeConst += math.Abs(s.constUs[i]-y) / math.Abs(y)
		}
		sumErr, sumAbs, sumY, sumSq = sumErr+d, sumAbs+math.Abs(d), sumY+y, sumSq+d*d
		maxErr = math.Max(maxErr, math.Abs(d))
		targets = append(targets, y)
	}
	e.Rows = len(ape)
	if e.Rows == 0 {
		return e
	}
	n := float64(e.Rows)
	o := stat.Sorted(ape)
	e.MAPE, e.MedianAPE, e.P95APE = finite(stat.Mean(ape)), finite(stat.Quantile(o, 0.5)), finite(stat.Quantile(o, 0.95))
	e.Bias, e.WAPE = finite(sumErr/sumY), finite(sumAbs/sumY)
	e.RMSEUs, e.MaxErrorRatio = finite(math.Sqrt(sumSq/n)), finite(maxErr/stat.Median(targets))
	if s.constUs != nil {
		e.MAPEConst = finite(apeConst / n)
	}
	return e
}

// withFloor adds the noise floor and the skill against the constant.
func withFloor(e *result.Errors, floor *float64) *result.Errors {
	e.MAPEFloor = floor
	if floor == nil || e.MAPE == nil || e.MAPEConst == nil || *e.MAPEConst <= *floor {
		return e
	}
	e.Skill = finite(1 - (*e.MAPE-*floor)/(*e.MAPEConst-*floor))
	return e
}

// bestConstant is the value per engine step that minimises MAPE: the median of
// y/steps weighted by steps/y. 0 without rows.
func bestConstant(y, steps []float64) float64 {
	var v, w []float64
	total := 0.0
	for i := range y {
		if y[i] < minTargetUs {
			continue
		}
		v, w = append(v, y[i]/steps[i]), append(w, steps[i]/y[i])
		total += steps[i] / y[i]
	}
	half := 0.0
	for _, i := range stat.Order(v) {
		half += w[i]
		if half >= total/2 {
			return v[i]
		}
	}
	return 0
}

// intervalErrors are T-7's figures of hold-out rows; u is the upper bound.
func intervalErrors(lo, hi, pred []float64, exact []bool) *result.IntervalErrors {
	const informativeUs = 3000
	e := &result.IntervalErrors{Rows: len(lo)}
	var widths []float64
	inside, open := 0, 0
	var absErr, sumExact, dist float64
	for i := range lo {
		if lo[i] > 0 || hi[i] < informativeUs {
			e.InformativeRows++
		}
		d := math.Max(0, math.Max(lo[i]-pred[i], pred[i]-hi[i]))
		dist += d * d
		if exact[i] {
			e.ExactRows++
			absErr, sumExact = absErr+math.Abs(pred[i]-hi[i]), sumExact+hi[i]
			continue
		}
		widths = append(widths, hi[i]-lo[i])
		open++
		if d == 0 {
			inside++
		}
	}
	e.InsideShare = share(inside, open)
	if len(widths) > 0 {
		e.MedianWidthUs = finite(stat.Median(widths))
	}
	if e.ExactRows > 0 && sumExact > 0 {
		e.ExactWAPE = finite(absErr / sumExact)
	}
	if e.Rows > 0 {
		const scaleUs = 1000 // ybar of T-7
		e.WeightedDistance = finite(dist / float64(e.Rows) / (scaleUs * scaleUs))
		e.MedianPredUs = finite(stat.Median(pred))
	}
	return e
}

// windowNs is the length of the windows whose means an admission controller sees.
const windowNs = int64(10e9)

// windows are the means of y and pred over 10-second windows of one run.
type windows struct{ y, pred []float64 }

// add appends the windows of rows in time order; windows of two runs never mix.
func (w *windows) add(timeNs []int64, y, pred []float64) {
	for i := 0; i < len(timeNs); {
		j, sumY, sumP := i, 0.0, 0.0
		window := (timeNs[i] - timeNs[0]) / windowNs
		for j < len(timeNs) && (timeNs[j]-timeNs[0])/windowNs == window {
			sumY, sumP = sumY+y[j], sumP+pred[j]
			j++
		}
		n := float64(j - i)
		w.y, w.pred = append(w.y, sumY/n), append(w.pred, sumP/n)
		i = j
	}
}

// targetErrors are the figures of admission, egress and queue rows. The constants
// are those of the training rows: perRow for rows, perWindow for window means. For
// admission, what an operator sees is the window: its largest error replaces the
// rows' one (01 ).
func targetErrors(s *scored, w *windows, perRow, perWindow float64, byWindow bool) *result.TargetErrors {
	s.constUs = constant(len(s.y), perRow)
	e := s.errors()
	out := &result.TargetErrors{
		Rows: e.Rows, MAPE: e.MAPE, WAPE: e.WAPE, MAPEConst: e.MAPEConst, Bias: e.Bias,
		MaxErrorRatio: e.MaxErrorRatio, Windows: len(w.y),
	}
	if len(s.pred) > 0 {
		out.MedianPredUs = finite(stat.Median(s.pred))
	}
	ws := scored{y: w.y, pred: w.pred, steps: constant(len(w.y), 1), constUs: constant(len(w.y), perWindow)}
	if we := ws.errors(); we.Rows > 0 {
		out.MAPEWindow10s, out.ConstWindow = we.MAPE, we.MAPEConst
		if byWindow {
			out.MaxErrorRatio = we.MaxErrorRatio
		}
	}
	return out
}

func constant(n int, v float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = v
	}
	return out
}
