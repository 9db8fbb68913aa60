package rows

// This file computes the errors of predicted step times, by run, regime, batch size and stress set.

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
)

// Judged selects the rows of a sample that predictions are compared with.
type Judged uint8

// The parts.
const (
	HoldOut  Judged = iota // the last rows of each phase, which were not trained on
	Training               // the rows that were trained on
	Whole                  // all rows, of a run that was not trained on
)

// Sample is the rows of one run with the predictions for them.
type Sample struct {
	Table *Table
	Pred  []float64 // us, one per row
	Beta  []float64 // the coefficients behind Pred on the run's device; step times only
	Part  Judged
}

// Judges reports whether row i is one that predictions are compared with.
func (s *Sample) Judges(i int) bool {
	return s.Part == Whole || s.Table.HoldOut[i] == (s.Part == HoldOut)
}

// eachJudged visits the judged rows.
func (s *Sample) eachJudged(visit func(i int)) {
	for i := range s.Table.Kept {
		if s.Judges(i) {
			visit(i)
		}
	}
}

// StepErrors compares predicted step times with measured ones.
type StepErrors struct {
	samples []*Sample
	from    []int     // position in refs of the first judged row of each sample; last, the number of all
	refs    []ref     // of the judged rows
	rows    stat.Rows // the judged rows
}

// ref is the index of a sample and of a row in it.
type ref struct{ sample, row int32 }

// JudgeSteps returns the rows of all groups on which predictions are validated, with the
// predictions. The noise floor costs a search for the nearest rows; without floor it stays unknown.
func JudgeSteps(groups [][]*Sample, floor bool, workers int) *StepErrors {
	s := &StepErrors{from: []int{0}}
	s.reserve(groups)
	for _, group := range groups {
		constUs := constantPerStep(group)
		for _, sample := range group {
			t := sample.Table
			sample.eachJudged(func(i int) {
				s.refs = append(s.refs, ref{sample: int32(len(s.samples)), row: int32(i)})
				s.rows.Y = append(s.rows.Y, t.Y[i])
				s.rows.Pred = append(s.rows.Pred, sample.Pred[i])
				s.rows.Const = append(s.rows.Const, constUs*t.Steps[i])
				s.rows.Outlier = append(s.rows.Outlier, t.IsOutlier(i))
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
			sample.eachJudged(func(int) { n++ })
		}
	}
	s.refs = make([]ref, 0, n)
	s.rows.Y = make([]float64, 0, n)
	s.rows.Pred = make([]float64, 0, n)
	s.rows.Const = make([]float64, 0, n)
	s.rows.Outlier = make([]bool, 0, n)
}

// constantPerStep returns the time per step in us that predicts the group's training rows best.
func constantPerStep(group []*Sample) float64 {
	n := 0
	for _, s := range group {
		n += s.Table.Kept
	}
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

// Errors returns the errors of the judged rows of neighbouring samples, of all samples when none is
// named; nil without rows.
func (s *StepErrors) Errors(group ...*Sample) *result.Errors { return s.errorsWhere(group, nil) }

// rowRange returns the range in s.refs of neighbouring samples; all rows without samples.
func (s *StepErrors) rowRange(group []*Sample) (lo, hi int) {
	if len(group) == 0 {
		return 0, len(s.refs)
	}
	k := slices.Index(s.samples, group[0])
	return s.from[k], s.from[k+len(group)]
}

// errorsWhere returns the errors of those rows of the samples for which keep is true, or of all if
// it is nil; nil without rows.
func (s *StepErrors) errorsWhere(of []*Sample, keep func(t *Table, i int) bool) *result.Errors {
	lo, hi := s.rowRange(of)
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
	doc := errorsDocument(e)
	if keep == nil {
		doc.MAPEInterval, doc.BiasInterval = sampleIntervals(part)
	}
	return doc
}

// sampleIntervals returns the 95 % intervals of the MAPE and of the bias of rows in time order, run
// after run. A MAPE has no targets below 1 us.
func sampleIntervals(r stat.Rows) (mape, bias *[2]float64) {
	var relative, difference []float64
	for i, y := range r.Y {
		difference = append(difference, r.Pred[i]-y)
		if math.Abs(y) >= 1 {
			relative = append(relative, math.Abs(r.Pred[i]-y)/math.Abs(y))
		}
	}
	_, mapeLo, mapeHi := stat.TrimmedMean(relative, 0)
	_, biasLo, biasHi := stat.RatioOfSums(difference, r.Y)
	return result.Interval(mapeLo, mapeHi), result.Interval(biasLo, biasHi)
}

// errorsDocument returns errors in the form of the documents, with null for NaN.
func errorsDocument(e stat.Errors) *result.Errors {
	num := result.OrNull
	return &result.Errors{
		Rows: e.Rows, Excluded: e.Excluded, MAPE: num(e.MAPE), MAPEConst: num(e.MAPEConst), MAPEFloor: num(e.MAPEFloor),
		Skill: num(e.Skill), Bias: num(e.Bias), WAPE: num(e.WAPE), MedianAPE: num(e.MedianAPE), P95APE: num(e.P95APE),
		RMSEUs: num(e.RMSEUs), MaxErrorRatio: num(e.MaxErrorRatio), FarErrorRatio: num(e.FarErrorRatio),
		Outliers: e.Outliers, LargestOutlier: num(e.LargestOutlier),
	}
}

// Cells returns the errors of a sample's judged rows by regime, with batches each followed by its
// batch sizes.
func (s *StepErrors) Cells(of *Sample, batches bool) []result.Cell {
	var out []result.Cell
	for r := Decode; r <= Mixed; r++ {
		cell := result.Cell{Run: of.Table.Run, Config: of.Table.Config, Regime: r.String()}
		one := []*Sample{of}
		out = s.appendCell(out, cell, one, func(t *Table, i int) bool { return t.Regime[i] == r })
		for k := 0; batches && k <= len(batchTops); k++ {
			cell.Bucket = batchName(k)
			out = s.appendCell(out, cell, one, func(t *Table, i int) bool { return t.Regime[i] == r && batchBucket(t.Batch[i]) == k })
		}
	}
	return out
}

// StressCells returns the errors of the judged rows in each stress set, of one sample, or of all
// when none is named.
func (s *StepErrors) StressCells(of ...*Sample) []result.Cell {
	var out []result.Cell
	for _, set := range StressSets {
		cell := result.Cell{Set: set.Name}
		if len(of) == 1 {
			cell.Run = of[0].Table.Run
			cell.Config = of[0].Table.Config
		}
		out = s.appendCell(out, cell, of, func(t *Table, i int) bool { return t.Sets[i]&set.Set != 0 })
	}
	return out
}

// appendCell returns the list with a cell of the errors of the rows for which keep is true
// appended, unless there are none.
func (s *StepErrors) appendCell(to []result.Cell, c result.Cell, of []*Sample, keep func(t *Table, i int) bool) []result.Cell {
	e := s.errorsWhere(of, keep)
	if e == nil {
		return to
	}
	c.Errors = *e
	return append(to, c)
}

// batchTops are the upper ends of the batch buckets, requests per step.
var batchTops = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}

// batchBucket returns the index of the bucket of a batch size.
func batchBucket(batch float64) int {
	for k, top := range batchTops {
		if batch <= top {
			return k
		}
	}
	return len(batchTops)
}

// batchName returns the name of a bucket: "1", "3-4", "> 256".
func batchName(k int) string {
	switch {
	case k == len(batchTops):
		return fmt.Sprintf("> %g", batchTops[k-1])
	case k < 2:
		return fmt.Sprintf("%g", batchTops[k])
	}
	return fmt.Sprintf("%g-%g", batchTops[k-1]+1, batchTops[k])
}
