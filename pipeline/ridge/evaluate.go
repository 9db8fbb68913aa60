package ridge

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/stat"
)

// minTargetUs is the |y| under which a row has no relative error.
const minTargetUs = 1

// Errors are the errors of predictions on a set of rows; NaN where no row counts.
type Errors struct {
	Rows      int
	Small     int     // rows with |y| < 1 us, left out of the relative figures
	MAPE      float64 // mean |y - pred|/|y|
	WAPE      float64 // sum |y - pred|/sum |y|
	MedianAPE float64
	P95APE    float64 // smallest APE that at least 95 % of the rows do not exceed
	Bias      float64 // sum(pred - y)/sum y
	RMSE      float64 // us
	MaxAbs    float64 // us
	MedianY   float64 // us
}

// Evaluate compares predictions with targets on the rows keep says yes to (nil: all).
func Evaluate(y, pred []float64, keep func(i int) bool) Errors {
	e := Errors{MAPE: math.NaN(), WAPE: math.NaN(), MedianAPE: math.NaN(), P95APE: math.NaN(), Bias: math.NaN(), RMSE: math.NaN(), MaxAbs: math.NaN(), MedianY: math.NaN()}
	var abs, diff, sumY, sumAbsY, square, largest float64
	var apes, ys []float64
	for i, v := range y {
		if keep != nil && !keep(i) || math.IsNaN(pred[i]) {
			continue
		}
		r := pred[i] - v
		e.Rows++
		abs, diff, square = abs+math.Abs(r), diff+r, square+r*r
		sumY, sumAbsY = sumY+v, sumAbsY+math.Abs(v)
		largest = math.Max(largest, math.Abs(r))
		ys = append(ys, v)
		if math.Abs(v) < minTargetUs {
			e.Small++
			continue
		}
		apes = append(apes, math.Abs(r/v))
	}
	if e.Rows == 0 {
		return e
	}
	e.WAPE, e.Bias = abs/sumAbsY, diff/sumY
	e.RMSE, e.MaxAbs, e.MedianY = math.Sqrt(square/float64(e.Rows)), largest, stat.Median(ys)
	if len(apes) > 0 {
		e.MAPE = stat.Mean(apes)
		slices.Sort(apes)
		e.MedianAPE = stat.Median(apes)
		e.P95APE = apes[int(math.Ceil(0.95*float64(len(apes))))-1]
	}
	return e
}

// Skill is 1 - (mape - floor)/(constant - floor): 1 at the noise floor, 0 at the
// best constant; NaN when the two leave no room.
func Skill(mape, constant, floor float64) float64 {
	if !(constant > floor) {
		return math.NaN()
	}
	return 1 - (mape-floor)/(constant-floor)
}
