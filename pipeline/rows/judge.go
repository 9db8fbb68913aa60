package rows

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
)

// Judged says which rows of a sample judge.
type Judged uint8

// The parts.
const (
	HoldOut  Judged = iota // the last rows of each phase, which trained nothing
	Training               // the others
	Whole                  // all: the run trained nothing
)

// Sample is the rows of one run with what is predicted of them.
type Sample struct {
	Table *Table
	Pred  []float64 // us, one per row
	Beta  []float64 // the coefficients behind Pred on the run's device; step times only
	Part  Judged
}

// Judges reports whether row i judges the predictions.
func (s *Sample) Judges(i int) bool {
	return s.Part == Whole || s.Table.HoldOut[i] == (s.Part == HoldOut)
}

// each visits the judged rows.
func (s *Sample) each(visit func(i int)) {
	for i := range s.Table.Kept {
		if s.Judges(i) {
			visit(i)
		}
	}
}

// Steps judges predicted step times.
type StepErrors struct {
	samples []*Sample
	from    []int     // first judged row of each sample, and the number of all
	refs    []ref     // of the judged rows
	rows    stat.Rows // the judged rows
}

// ref is a row of a sample.
type ref struct{ sample, row int32 }

// JudgeSteps takes the judged rows of all groups. The noise floor costs a search
// for the nearest rows and is left unknown unless asked for.
func JudgeSteps(groups [][]*Sample, floor bool, workers int) *StepErrors {
	s := &StepErrors{from: []int{0}}
	s.reserve(groups)
	for _, group := range groups {
		constUs := constantPerStep(group)
		for _, sample := range group {
			t := sample.Table
			sample.each(func(i int) {
				s.refs = append(s.refs, ref{int32(len(s.samples)), int32(i)})
				s.rows.Y = append(s.rows.Y, t.Y[i])
				s.rows.Pred = append(s.rows.Pred, sample.Pred[i])
				s.rows.Const, s.rows.Outlier = append(s.rows.Const, constUs*t.Steps[i]), append(s.rows.Outlier, t.IsOutlier(i))
			})
			s.samples = append(s.samples, sample)
			s.from = append(s.from, len(s.refs))
		}
		if floor {
			s.rows.Floor = append(s.rows.Floor, nearestRows(group, workers)...)
		}
	}
	return s
}

// reserve allocates the judged rows of all groups.
func (s *StepErrors) reserve(groups [][]*Sample) {
	n := 0
	for _, group := range groups {
		for _, sample := range group {
			sample.each(func(int) { n++ })
		}
	}
	s.refs = make([]ref, 0, n)
	s.rows.Y = make([]float64, 0, n)
	s.rows.Pred = make([]float64, 0, n)
	s.rows.Const = make([]float64, 0, n)
	s.rows.Outlier = make([]bool, 0, n)
}

// bestConstant is the time per step that predicts the group's training rows best.
func constantPerStep(group []*Sample) float64 {
	n := stat.Sum(group, func(s *Sample) int { return s.Table.Kept })
	all := stat.Rows{Y: make([]float64, 0, n), Steps: make([]float64, 0, n)}
	for _, s := range group {
		for i := range s.Table.Kept {
			if s.Part == Whole || !s.Table.HoldOut[i] {
				all.Y = append(all.Y, s.Table.Y[i])
				all.Steps = append(all.Steps, s.Table.Steps[i])
			}
		}
	}
	return all.BestConstant(nil)
}

// Errors are those of the judged rows of a group or of one sample of it; of all
// groups when none is named. Nil without rows.
func (s *StepErrors) Errors(group ...*Sample) *result.Errors { return s.errors(group, nil) }

// span is where the judged rows of neighbouring samples stand; of none: all rows.
func (s *StepErrors) span(group []*Sample) (lo, hi int) {
	if len(group) == 0 {
		return 0, len(s.refs)
	}
	k := slices.Index(s.samples, group[0])
	return s.from[k], s.from[k+len(group)]
}

// errors are those of the rows keep says yes to (nil: all).
func (s *StepErrors) errors(of []*Sample, keep func(t *Table, i int) bool) *result.Errors {
	lo, hi := s.span(of)
	part := stat.Rows{Y: s.rows.Y[lo:hi], Pred: s.rows.Pred[lo:hi], Const: s.rows.Const[lo:hi], Outlier: s.rows.Outlier[lo:hi]}
	if s.rows.Floor != nil {
		part.Floor = s.rows.Floor[lo:hi]
	}
	e := part.Errors(func(k int) bool {
		r := s.refs[lo+k]
		return keep == nil || keep(s.samples[r.sample].Table, int(r.row))
	})
	if e.Rows == 0 {
		return nil
	}
	return document(e)
}

func document(e stat.Errors) *result.Errors {
	num := result.OrNull
	return &result.Errors{
		Rows: e.Rows, Excluded: e.Excluded, MAPE: num(e.MAPE), MAPEConst: num(e.MAPEConst), MAPEFloor: num(e.MAPEFloor),
		Skill: num(e.Skill), Bias: num(e.Bias), WAPE: num(e.WAPE), MedianAPE: num(e.MedianAPE), P95APE: num(e.P95APE),
		RMSEUs: num(e.RMSEUs), MaxErrorRatio: num(e.MaxErrorRatio), Outliers: e.Outliers, LargestOutlier: num(e.LargestOutlier),
	}
}

// Cells are the errors of a sample's judged rows by regime, each followed by its
// batch sizes when they are asked for.
func (s *StepErrors) Cells(of *Sample, batches bool) []result.Cell {
	var out []result.Cell
	for r := Decode; r <= Mixed; r++ {
		cell := result.Cell{Run: of.Table.Run, Config: of.Table.Config, Regime: r.String()}
		one := []*Sample{of}
		out = s.addCell(out, cell, one, func(t *Table, i int) bool { return t.Regime[i] == r })
		for k := 0; batches && k <= len(batchTops); k++ {
			cell.Bucket = batchName(k)
			out = s.addCell(out, cell, one, func(t *Table, i int) bool { return t.Regime[i] == r && batchBucket(t.Batch[i]) == k })
		}
	}
	return out
}

// StressCells are the errors of the judged rows in each stress set, of one sample
// or of all when none is named.
func (s *StepErrors) StressCells(of ...*Sample) []result.Cell {
	var out []result.Cell
	for _, set := range StressSets {
		cell := result.Cell{Set: set.Name}
		if len(of) == 1 {
			cell.Run = of[0].Table.Run
			cell.Config = of[0].Table.Config
		}
		out = s.addCell(out, cell, of, func(t *Table, i int) bool { return t.Sets[i]&set.Set != 0 })
	}
	return out
}

func (s *StepErrors) addCell(to []result.Cell, c result.Cell, of []*Sample, keep func(t *Table, i int) bool) []result.Cell {
	e := s.errors(of, keep)
	if e == nil {
		return to
	}
	c.Errors = *e
	return append(to, c)
}

// batchTops are the upper ends of the batch buckets, requests per step.
var batchTops = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}

func batchBucket(batch float64) int {
	for k, top := range batchTops {
		if batch <= top {
			return k
		}
	}
	return len(batchTops)
}

func batchName(k int) string {
	switch {
	case k == len(batchTops):
		return fmt.Sprintf("> %g", batchTops[k-1])
	case k < 2:
		return fmt.Sprintf("%g", batchTops[k])
	}
	return fmt.Sprintf("%g-%g", batchTops[k-1]+1, batchTops[k])
}

// windowNs is the length of the windows whose means an operator sees.
const windowNs = int64(10e9)

// Delays judges the predictions of one delay around the engine (an alpha target).
type Delays struct {
	groups [][]*Sample
	consts []constants // by group
}

// constants predict the training rows and their window means best, us.
type constants struct{ row, window float64 }

// JudgeDelays takes samples of one target.
func JudgeDelays(groups [][]*Sample) *Delays {
	d := &Delays{groups: groups}
	for _, group := range groups {
		var single, means stat.Rows
		for _, s := range group {
			part := &Sample{Table: s.Table, Pred: s.Table.Y, Part: Training}
			if s.Part == Whole {
				part.Part = Whole
			}
			part.each(func(i int) { single.Y = append(single.Y, s.Table.Y[i]) })
			addWindows(&means, part, math.NaN(), true)
		}
		d.consts = append(d.consts, constants{single.BestConstant(nil), means.BestConstant(nil)})
	}
	return d
}

// addWindows appends the means over 10-second windows of a sample's judged rows,
// counted from the first of them; windows of two runs never mix.
func addWindows(to *stat.Rows, s *Sample, constUs float64, outliers bool) {
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
	s.each(func(i int) {
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

// Errors are those of the samples keep says yes to (nil: all), nil without judged
// rows. For admission, what an operator sees is the window: its largest error
// replaces that of the rows.
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
			s.each(func(i int) {
				regimes = append(regimes, s.Table.Regime[i])
				single.Y = append(single.Y, s.Table.Y[i])
				single.Pred = append(single.Pred, s.Pred[i])
				single.Const, single.Outlier = append(single.Const, d.consts[g].row), append(single.Outlier, s.Table.IsOutlier(i))
			})
			addWindows(&means, s, d.consts[g].window, true)
			addWindows(&usual, s, d.consts[g].window, false)
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

// Intervals are the figures of an interval target, nil without judged rows: how
// the judged rows of the samples keep says yes to (nil: all) meet their bounds,
// with the weights of the interval fit.
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
			s.each(func(i int) {
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
