package validate

// This file has the errors of predicted step times as a regression, so that the diagnosis can ask how
// much of them one more feature would explain.

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/rows"
)

const (
	residualRows = 20_000 // bounds the cost of a search; more rows are evenly thinned
	shortestUs   = 1      // a shorter step counts as one of this length in relative errors
)

// residuals are measured - predicted time of rows, us, each with a weight that makes it relative and every
// regime as heavy as the others.
type residuals struct {
	us, y, weight []float64     // by row: measured - predicted, measured (both us), and the weight
	regime        []rows.Regime // by row
	rows          [][]float64   // by row: its features
	all           *residuals    // of every row of the scope, the training rows too; nil in all itself
}

// residuals returns the residuals of the judged rows of a scope, with predictions by predict.
func (s *scope) residuals(predict func(*judgedRun, int) float64) *residuals {
	r := residualsOf(s.eachJudgedRow, predict)
	r.all = residualsOf(s.eachRow, predict)
	return r
}

// residualsOf returns the rows that each visits, with their predictions.
func residualsOf(each func(func(t *judgedRun, i int)), predict func(*judgedRun, int) float64) *residuals {
	var rowsOfRegime [rows.Mixed + 1]float64
	total := 0
	each(func(t *judgedRun, i int) {
		rowsOfRegime[t.beta.Regime[i]]++
		total++
	})
	every := max(1, total/residualRows)
	r := &residuals{}
	visited := 0
	each(func(t *judgedRun, i int) {
		visited++
		if visited%every != 0 {
			return
		}
		y := t.beta.Y[i]
		regime := t.beta.Regime[i]
		r.us = append(r.us, y-predict(t, i))
		r.y = append(r.y, y)
		r.regime = append(r.regime, regime)
		r.weight = append(r.weight, 1/(math.Max(y, shortestUs)*rowsOfRegime[regime]))
		r.rows = append(r.rows, slices.Clone(t.beta.Row(i)))
	})
	return r
}

// eachRow calls visit with every kept row of the scope.
func (s *scope) eachRow(visit func(t *judgedRun, i int)) {
	for _, t := range s.runs {
		for i := range t.beta.Kept {
			visit(t, i)
		}
	}
}

// eachJudgedRow calls visit with every row on which the scope is validated.
func (s *scope) eachJudgedRow(visit func(t *judgedRun, i int)) {
	s.eachRow(func(t *judgedRun, i int) {
		if t.sample.Judges(i) {
			visit(t, i)
		}
	})
}

// plainPrediction returns the prediction of row i, us.
func plainPrediction(t *judgedRun, i int) float64 { return t.pred[i] }

// driftPrediction returns the prediction of row i as the machine was then: times the drift factor
// over the run's median one, which leaves a bias of the model as it is. A curve that hardly swings
// changes nothing.
func driftPrediction(t *judgedRun, i int) float64 {
	if t.drift.swing() <= leastDriftSwing {
		return t.pred[i]
	}
	return t.drift.follow(t.pred[i], t.beta.TimeNs[i])
}

// column returns feature j of every row.
func (r *residuals) column(j int) []float64 {
	x := make([]float64, len(r.rows))
	for i, row := range r.rows {
		x[i] = row[j]
	}
	return x
}

// predicted returns the prediction of every row, us.
func (r *residuals) predicted() []float64 {
	out := make([]float64, len(r.us))
	for i, us := range r.us {
		out[i] = r.y[i] - us
	}
	return out
}

// isUniform reports whether the shorter and the longer half of every regime's steps, by their predictions, all differ
// from these by about the same share.
func (r *residuals) isUniform(share float64, predicted []float64) bool {
	for regime := range rows.Mixed + 1 {
		var of []int
		for i := range r.us {
			if r.regime[i] == regime {
				of = append(of, i)
			}
		}
		stat.SortStable(of, func(a, b int) int { return cmp.Compare(predicted[a], predicted[b]) })
		for _, half := range [][]int{of[:len(of)/2], of[len(of)/2:]} {
			if len(half) < fewestRows {
				continue
			}
			own := residuals{}
			var times []float64
			for _, i := range half {
				own.us = append(own.us, r.us[i])
				own.weight = append(own.weight, r.weight[i])
				times = append(times, predicted[i])
			}
			if math.Abs(own.bestChange(times)-share) > math.Max(sameSpeed*math.Abs(share), sameSpeedAbs) {
				return false
			}
		}
	}
	return true
}

// without returns the residuals once delta times x is added to the predictions.
func (r *residuals) without(delta float64, x []float64) []float64 {
	out := make([]float64, len(r.us))
	for i, us := range r.us {
		out[i] = us - delta*x[i]
	}
	return out
}

// loss returns the weighted absolute error once delta times x is added to the predictions; x nil:
// as they are.
func (r *residuals) loss(delta float64, x []float64) float64 {
	sum := 0.0
	for i, us := range r.us {
		if x != nil {
			us -= delta * x[i]
		}
		sum += r.weight[i] * math.Abs(us)
	}
	return sum
}

// constantLoss returns the loss of the best constant in place of the predictions.
func (r *residuals) constantLoss() float64 {
	sum := 0.0
	constant := stat.WeightedMedian(r.y, r.weight)
	for i, y := range r.y {
		sum += r.weight[i] * math.Abs(y-constant)
	}
	return sum
}

// meanError returns the mean relative error, every row weighing the same.
func (r *residuals) meanError() float64 {
	sum := 0.0
	for i, us := range r.us {
		sum += math.Abs(us) / math.Max(r.y[i], shortestUs)
	}
	return sum / float64(len(r.us))
}

// bestChange returns the delta with the least loss: the median of us/x weighted by weight*x; 0 when
// x is 0 everywhere.
func (r *residuals) bestChange(x []float64) float64 {
	var ratio, weight []float64
	for i := range x {
		if x[i] > 0 {
			ratio = append(ratio, r.us[i]/x[i])
			weight = append(weight, r.weight[i]*x[i])
		}
	}
	if len(ratio) == 0 {
		return 0
	}
	return stat.WeightedMedian(ratio, weight)
}

// regimeOfChange returns the regime in which changing a term (of feature x) by delta removes most of the
// error, and the bias of that regime, sum(prediction - y)/sum(y).
func (r *residuals) regimeOfChange(delta float64, x []float64) (regime rows.Regime, bias float64) {
	var removed, over, sumY [rows.Mixed + 1]float64
	for i, us := range r.us {
		ofRow := r.regime[i]
		over[ofRow] -= us
		sumY[ofRow] += r.y[i]
		removed[ofRow] += r.weight[i] * (math.Abs(us) - math.Abs(us-delta*x[i]))
	}
	for ofRow := range removed {
		if removed[ofRow] > removed[regime] {
			regime = rows.Regime(ofRow)
		}
	}
	if sumY[regime] == 0 {
		return regime, 0
	}
	return regime, over[regime] / sumY[regime]
}
