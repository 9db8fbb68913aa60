package autoscale

// This file runs the online estimators over the windows of a server and adds their results to the
// document.

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
)

// slidingEstimator is the name of the refit over the last windows, whose drift exports use.
const slidingEstimator = "sliding"

// run is one online estimator and its steps over a server's windows.
type run struct {
	name    string
	flavour Flavour
	as      observation // which TTFT of the flavour it compares with the windows
	steps   []step
}

// Track runs the online estimators over the windows of a fitted server in order of time: replicas
// of the autoscalers' tuners with their bugs, our own filter, and the refit over the last windows.
// It adds the results to the document and returns the rows of windows.parquet. The benchmarks of a
// sweep have no times and are used by load, one sweep after another.
func Track(f *Calibrated, o *Options) []WindowRow {
	if f.Reason != "" || len(f.Windows) == 0 {
		return nil
	}
	var rows []WindowRow
	for _, r := range f.estimatorRuns(o) {
		rows = append(rows, f.stepRows(r.flavour, r.name, r.steps)...)
		f.Doc.Tracks = append(f.Doc.Tracks, f.trackDoc(r))
		f.Doc.Scores = append(f.Doc.Scores, f.trackScores(r)...)
	}
	return rows
}

// estimatorRuns returns the estimators with their steps. A replica observes what its autoscaler's
// queueing model predicts.
func (f *Calibrated) estimatorRuns(o *Options) []run {
	var out []run
	replicas := []replicaOptions{wvaTuner, modelTuner}
	if o.Flavour == wvA4P {
		replicas = append(replicas, foundingTuner)
	}
	for _, replica := range replicas {
		out = append(out, run{
			name:    "replica:" + replica.Name,
			flavour: replica.Flavour,
			as:      asTuned,
			steps:   Replica(f.Windows, replica),
		})
	}
	robust := defaultRobust(o.Flavour)
	robust.Start = f.Physical.vector(o.Flavour)
	return append(out,
		run{name: "robust", flavour: o.Flavour, as: asSized, steps: Robust(f.Windows, robust)},
		run{name: slidingEstimator, flavour: o.Flavour, as: asSized, steps: sliding(f.Windows, o.Flavour, robust.Start)})
}

// trackDoc returns the result of an estimator in the form of the document.
func (f *Calibrated) trackDoc(r run) queueTrack {
	s := summarize(f.Windows, r.steps)
	last := r.steps[len(r.steps)-1]
	s.Estimator = r.name
	s.Flavour = string(r.flavour)
	s.Names = r.flavour.Parameters()
	s.Final = last.X
	s.Covariance = last.P
	s.Drift = medianDrift(r.steps)
	condition := r.condition(f.Windows)
	s.Condition = result.OrNull(condition)
	s.Verdict = trackVerdict(&s)
	if condition > maxCondition && s.Accepted > 0 { // consistent or not, its estimates mean little
		s.Verdict = fmt.Sprintf("the parameters are not identified: the loads of the windows do not tell all %d apart (condition number %.3g, at most "+
			"%g), so the estimates follow the first ones; %s", len(s.Names), condition, maxCondition, s.Verdict)
	}
	return s
}

// condition returns the condition number of the observations of all windows by log parameters, at the last
// estimate; +Inf if a direction of the parameters has no effect on them.
func (r *run) condition(windows []window) float64 {
	x := r.steps[len(r.steps)-1].X
	var rows []float64
	for i := range windows {
		observe := func(theta []float64) ([]float64, bool) {
			ttft, itl, _, ok := solveWindow(r.flavour, &windows[i], expsOf(theta), r.as)
			return []float64{ttft, itl}, ok
		}
		if _, h, failed := logJacobian(observe, logsOf(x)); failed == "" {
			rows = append(rows, h.RawMatrix().Data...)
		}
	}
	n := len(x)
	var svd mat.SVD
	if len(rows) == 0 || !svd.Factorize(mat.NewDense(len(rows)/n, n, rows), mat.SVDNone) {
		return math.Inf(1)
	}
	return condition(svd.Values(nil), n)
}

// medianDrift returns the median relative change of each parameter from one accepted window to the
// next; nil with fewer than two.
func medianDrift(steps []step) []float64 {
	var last []float64
	var moves [][]float64
	for i := range steps {
		s := &steps[i]
		if !s.Accepted() {
			continue
		}
		for j := range last {
			moves[j] = append(moves[j], math.Abs(s.X[j]/last[j]-1))
		}
		if last == nil {
			moves = make([][]float64, len(s.X))
		}
		last = s.X
	}
	var out []float64
	for _, m := range moves {
		if len(m) == 0 {
			return nil
		}
		out = append(out, stat.Median(m))
	}
	return out
}

// trackVerdict returns a sentence about the result of an estimator.
func trackVerdict(s *queueTrack) string {
	switch {
	case s.Accepted == 0:
		return "no window was accepted"
	case s.LockedOut >= lockedOut:
		return fmt.Sprintf("locked out: the last %d windows were all rejected", s.LockedOut)
	case s.MeanNIS == nil:
		return "a refit, no filter"
	case *s.MeanNIS < 1:
		return "underconfident: its noise is set too large"
	case *s.MeanNIS > 4:
		return "overconfident: its noise is set too small, or the model is off"
	}
	return "consistent"
}

// lockedOut is the number of rejections in a row that a correct gate causes once in a million runs.
const lockedOut = 4

// trackScores returns the scores of an estimator: of its predictions for each window from those
// before it, and for the hold-out from the parameters that it had at the end of the training
// windows.
func (f *Calibrated) trackScores(r run) []queueScore {
	out := []queueScore{scoreOf(r.name, oneAhead, evaluateAhead(f.Windows, r.steps))}
	if held := f.heldOut(); len(held) > 0 && f.Split > 0 {
		out = append(out, scoreOf(r.name, holdOut, evaluate(held, r.flavour, r.steps[f.Split-1].X, r.as)))
	}
	return out
}

// oneAhead is the set of all windows, each predicted from the windows before it.
const oneAhead = "one_ahead"
