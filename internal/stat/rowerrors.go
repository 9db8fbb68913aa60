package stat

// This file has the errors of predictions over rows: MAPE, bias and skill.

import (
	"math"
	"slices"
)

// minTargetUs is the |y| below which a row has no relative error.
const minTargetUs = 1

// Rows are measured times and their predictions, in us.
type Rows struct {
	Y       []float64
	Pred    []float64 // NaN: unknown
	Steps   []float64 // engine steps that a row covers; nil: 1
	Const   []float64 // predictions of the best constant; nil or NaN: unknown
	Floor   []float64 // predictions of the nearest rows; nil or NaN: unknown
	Outlier []bool    // rows that the largest error excludes; nil: none
}

// Errors has the errors of predictions on a set of rows; NaN without a row.
type Errors struct {
	Rows     int // rows with a prediction
	Excluded int // of these, rows with |y| < 1 us, which have no relative error

	MAPE      float64 // mean of |pred - y|/|y|
	MAPEConst float64 // that of the best constant
	MAPEFloor float64 // that of the nearest rows, where they are known
	Skill     float64 // see Skill
	MedianAPE float64
	P95APE    float64
	WAPE      float64 // sum |pred - y| / sum |y|
	Bias      float64 // sum(pred - y) / sum y
	RMSEUs    float64
	MAEUs     float64 // mean of |pred - y|, us
	// MaxErrorRatio is the largest |pred - y| over the median y, without outliers unless
	// they are many.
	MaxErrorRatio  float64
	FarErrorRatio  float64 // the same as farErrorRatio counts it
	Outliers       int
	LargestOutlier float64 // their largest |pred - y| over the median y
}

// outlierShare is the largest share of rows that the largest error may exclude (spec#outliers).
const outlierShare = 0.01

// HasFewOutliers reports whether the largest error may exclude the outliers.
func (e *Errors) HasFewOutliers() bool { return float64(e.Outliers) <= outlierShare*float64(e.Rows) }

// Errors returns the errors of the predictions of the rows for which keep is true (nil: all). Rows
// without a prediction do not count.
func (r *Rows) Errors(keep func(i int) bool) Errors {
	nan := math.NaN()
	e := Errors{
		MAPE: nan, MAPEConst: nan, MAPEFloor: nan, Skill: nan, MedianAPE: nan, P95APE: nan,
		WAPE: nan, Bias: nan, RMSEUs: nan, MAEUs: nan, MaxErrorRatio: nan, FarErrorRatio: nan, LargestOutlier: nan,
	}
	var sumAbs, sumDiff, sumY, sumAbsY, squares, largest, outlier float64
	n := r.countKept(keep)
	ape := make([]float64, 0, n)
	targets := make([]float64, 0, n)
	for i, y := range r.Y {
		if keep != nil && !keep(i) || math.IsNaN(r.Pred[i]) {
			continue
		}
		d := r.Pred[i] - y
		e.Rows++
		sumAbs += math.Abs(d)
		sumDiff += d
		squares += d * d
		sumY += y
		sumAbsY += math.Abs(y)
		if r.Outlier != nil && r.Outlier[i] {
			e.Outliers++
			outlier = math.Max(outlier, math.Abs(d))
		} else {
			largest = math.Max(largest, math.Abs(d))
		}
		targets = append(targets, y)
		if math.Abs(y) < minTargetUs { // no relative error
			e.Excluded++
			continue
		}
		ape = append(ape, math.Abs(d/y))
	}
	if e.Rows == 0 {
		return e
	}
	e.WAPE = sumAbs / sumAbsY
	e.Bias = sumDiff / sumY
	e.RMSEUs = math.Sqrt(squares / float64(e.Rows))
	e.MAEUs = sumAbs / float64(e.Rows)
	slices.Sort(targets)
	median := Quantile(targets, 0.5)
	if e.Outliers > 0 {
		e.LargestOutlier = outlier / median
	}
	if !e.HasFewOutliers() {
		largest = math.Max(largest, outlier)
	}
	e.MaxErrorRatio = largest / median
	e.FarErrorRatio = r.farErrorRatio(keep, median, e.HasFewOutliers())
	e.MAPE = Mean(ape)
	slices.Sort(ape)
	e.MedianAPE = Quantile(ape, 0.5)
	e.P95APE = Quantile(ape, 0.95)
	e.MAPEConst = r.mape(r.Const, keep)
	e.MAPEFloor = r.mape(r.Floor, keep)
	e.Skill = skill(e.MAPE, e.MAPEConst, e.MAPEFloor)
	return e
}

// nearShare is the share of its own time below which the error of a row does not count over the median of all rows.
const nearShare = 0.4

// farErrorRatio returns the largest error of the rows for which keep is true (nil: all) over the median y, without
// outliers if asked to leave them out. An error of less than 0.4 of the row's own time, the shorter of the measured and
// the predicted one, counts over that time where it is above the median: a step with a long prompt takes as long as
// fifty others, and is not far off when it scatters by a few percent.
func (r *Rows) farErrorRatio(keep func(i int) bool, median float64, withoutOutliers bool) float64 {
	var largest float64
	for i, y := range r.Y {
		if keep != nil && !keep(i) || math.IsNaN(r.Pred[i]) {
			continue
		}
		if withoutOutliers && r.Outlier != nil && r.Outlier[i] {
			continue
		}
		size := math.Abs(r.Pred[i] - y)
		over := median
		if own := math.Min(math.Abs(y), math.Abs(r.Pred[i])); size < nearShare*own {
			over = math.Max(over, own)
		}
		largest = math.Max(largest, size/over)
	}
	return largest
}

// mape returns the mean absolute percentage error of the predictions pred, which are other ones
// than r.Pred, as a share.
func (r *Rows) mape(pred []float64, keep func(i int) bool) float64 {
	var sum float64
	n := 0
	for i := range pred {
		if y := r.Y[i]; (keep == nil || keep(i)) && !math.IsNaN(pred[i]) && math.Abs(y) >= minTargetUs {
			sum += math.Abs((pred[i] - y) / y)
			n++
		}
	}
	return sum / float64(n)
}

// skill returns 1 - (mape - floor)/(constant - floor): 1 at the noise floor, 0 at the error of the
// best constant; NaN if that is not above the floor.
func skill(mape, constant, floor float64) float64 {
	if !(constant > floor) {
		return math.NaN()
	}
	return 1 - (mape-floor)/(constant-floor)
}

// BestConstant returns the time per step, us, that minimises the mean absolute percentage error of
// the rows for which keep is true (nil: all), if each row is predicted by this time times its
// steps: the median of y/steps weighted by steps/|y|. It returns NaN without rows.
func (r *Rows) BestConstant(keep func(i int) bool) float64 {
	n := r.countKept(keep)
	level := make([]float64, 0, n)
	weight := make([]float64, 0, n)
	for i, y := range r.Y {
		if (keep == nil || keep(i)) && math.Abs(y) >= minTargetUs {
			level = append(level, y/r.steps(i))
			weight = append(weight, r.steps(i)/math.Abs(y))
		}
	}
	return WeightedMedian(level, weight)
}

// countKept returns the number of rows for which keep is true, so that memory for them is allocated
// once.
func (r *Rows) countKept(keep func(i int) bool) int {
	if keep == nil {
		return len(r.Y)
	}
	n := 0
	for i := range r.Y {
		if keep(i) {
			n++
		}
	}
	return n
}

// steps returns the number of engine steps that row i covers.
func (r *Rows) steps(i int) float64 {
	if r.Steps == nil {
		return 1
	}
	return r.Steps[i]
}
