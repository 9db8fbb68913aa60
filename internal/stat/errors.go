package stat

import (
	"math"
	"slices"
)

// minTargetUs is the |y| under which a row has no relative error.
const minTargetUs = 1

// Rows are targets with what is predicted of them, us.
type Rows struct {
	Y, Pred []float64
	Steps   []float64 // engine steps a row covers; nil: 1
	Const   []float64 // predictions of the best constant; nil or NaN: unknown
	Floor   []float64 // predictions of the nearest rows; nil or NaN: unknown
}

// Errors are the errors of predictions on a set of rows; NaN where no row tells.
type Errors struct {
	Rows     int // rows with a prediction
	Excluded int // of these, rows with |y| < 1 us: left out of the relative errors

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
	// MaxErrorRatio is the largest |pred - y| over the median y.
	MaxErrorRatio float64
}

// Errors compares the predictions with the targets on the rows keep says yes to
// (nil: all). Rows without a prediction (NaN) do not count.
func (r *Rows) Errors(keep func(i int) bool) Errors {
	nan := math.NaN()
	e := Errors{
		MAPE: nan, MAPEConst: nan, MAPEFloor: nan, Skill: nan, MedianAPE: nan, P95APE: nan,
		WAPE: nan, Bias: nan, RMSEUs: nan, MAEUs: nan, MaxErrorRatio: nan,
	}
	var sumAbs, sumDiff, sumY, sumAbsY, squares, largest float64
	n := r.count(keep)
	ape, targets := make([]float64, 0, n), make([]float64, 0, n)
	for i, y := range r.Y {
		if keep != nil && !keep(i) || math.IsNaN(r.Pred[i]) {
			continue
		}
		d := r.Pred[i] - y
		e.Rows++
		sumAbs, sumDiff, squares = sumAbs+math.Abs(d), sumDiff+d, squares+float64(d*d)
		sumY, sumAbsY = sumY+y, sumAbsY+math.Abs(y)
		largest = math.Max(largest, math.Abs(d))
		targets = append(targets, y)
		if math.Abs(y) < minTargetUs {
			e.Excluded++
			continue
		}
		ape = append(ape, math.Abs(d/y))
	}
	if e.Rows == 0 {
		return e
	}
	e.WAPE, e.Bias, e.RMSEUs = sumAbs/sumAbsY, sumDiff/sumY, math.Sqrt(squares/float64(e.Rows))
	e.MAEUs = sumAbs / float64(e.Rows)
	slices.Sort(targets)
	e.MaxErrorRatio = largest / Quantile(targets, 0.5)
	e.MAPE = Mean(ape)
	slices.Sort(ape)
	e.MedianAPE, e.P95APE = Quantile(ape, 0.5), Quantile(ape, 0.95)
	e.MAPEConst, e.MAPEFloor = r.mape(r.Const, keep), r.mape(r.Floor, keep)
	e.Skill = skill(e.MAPE, e.MAPEConst, e.MAPEFloor)
	return e
}

// mape is the mean absolute percentage error of other predictions of the rows.
func (r *Rows) mape(pred []float64, keep func(i int) bool) float64 {
	var sum float64
	n := 0
	for i := range pred {
		if y := r.Y[i]; (keep == nil || keep(i)) && !math.IsNaN(pred[i]) && math.Abs(y) >= minTargetUs {
			sum, n = sum+math.Abs((pred[i]-y)/y), n+1
		}
	}
	return sum / float64(n)
}

// skill is 1 - (mape - floor)/(constant - floor): 1 at the noise floor, 0 at the
// best constant; NaN when the two leave nothing to explain.
func skill(mape, constant, floor float64) float64 {
	if !(constant > floor) {
		return math.NaN()
	}
	return 1 - (mape-floor)/(constant-floor)
}

// BestConstant is the target per step that minimises the mean absolute
// percentage error of the rows keep says yes to (nil: all) when every row is
// predicted by it times its steps: the median of y/steps weighted by steps/|y|.
// NaN without rows.
func (r *Rows) BestConstant(keep func(i int) bool) float64 {
	n := r.count(keep)
	level, weight := make([]float64, 0, n), make([]float64, 0, n)
	for i, y := range r.Y {
		if (keep == nil || keep(i)) && math.Abs(y) >= minTargetUs {
			level, weight = append(level, y/r.steps(i)), append(weight, r.steps(i)/math.Abs(y))
		}
	}
	return WeightedMedian(level, weight)
}

// count is how many rows keep says yes to: memory for them is allocated once.
func (r *Rows) count(keep func(i int) bool) int {
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

func (r *Rows) steps(i int) float64 {
	if r.Steps == nil {
		return 1
	}
	return r.Steps[i]
}
