package ridge

// This file cuts runs into blocks of time for cross-validation.

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

// Sequence is the rows of one run in time order, with the cuts between its fold blocks.
type Sequence struct {
	Config, Run int32
	Rows        []int32 // indices in the data
	bounds      []int   // Folds+2 cut points in Rows, first 0; nil: too few rows for folds
}

// Sequences returns the rows of d grouped into runs, each divided into Folds+1 contiguous blocks of
// n/(Folds+1) rows, the first ones one row longer if there is a rest. A run with fewer rows than
// blocks gets a finding and is not divided.
func Sequences(d *Data, o Options) ([]Sequence, []Finding) {
	list := runsOf(d, d.AllRows())
	var found []Finding
	for k := range list {
		s := &list[k]
		s.bounds = blockBounds(len(s.Rows), o.Folds+1)
		if s.bounds == nil {
			found = append(found, Finding{
				Code: TooFewRows, Config: s.Config, Run: s.Run,
				Message: fmt.Sprintf("%d rows, want at least %d: left out of the folds", len(s.Rows), o.Folds+1),
			})
		}
	}
	return list, found
}

// runsOf returns the given rows grouped by configuration and run, in sorted order, each group
// sorted by time, rows of equal time by index.
func runsOf(d *Data, rows []int32) []Sequence {
	var list []Sequence
	for len(rows) > 0 {
		config := d.Config[rows[0]]
		run := d.RunOf(int(rows[0]))
		n := 1
		for n < len(rows) && d.Config[rows[n]] == config && d.RunOf(int(rows[n])) == run {
			n++
		}
		k := place(&list, config, run)
		list[k].Rows = append(list[k].Rows, rows[:n]...)
		rows = rows[n:]
	}
	stat.SortStable(list, func(a, b Sequence) int {
		return cmp.Or(cmp.Compare(a.Config, b.Config), cmp.Compare(a.Run, b.Run))
	})
	for k := range list {
		sortByTime(d, list[k].Rows)
	}
	return list
}

// place returns the index of the sequence of a configuration's run in list, appended if new.
func place(list *[]Sequence, config, run int32) int {
	k := slices.IndexFunc(*list, func(s Sequence) bool { return s.Config == config && s.Run == run })
	if k < 0 {
		k = len(*list)
		*list = append(*list, Sequence{Config: config, Run: run})
	}
	return k
}

// sortByTime sorts rows by time, rows of equal time by index; without times the order stays.
func sortByTime(d *Data, rows []int32) {
	if d.Time == nil {
		return
	}
	byTime := func(a, b int32) int {
		return cmp.Or(cmp.Compare(d.Time[a], d.Time[b]), cmp.Compare(a, b))
	}
	if !slices.IsSortedFunc(rows, byTime) {
		slices.SortFunc(rows, byTime)
	}
}

// blockBounds returns the k+1 cut points of n rows in k blocks; nil when n < k.
func blockBounds(n, k int) []int {
	if n < k {
		return nil
	}
	out := make([]int, k+1)
	for b := range k {
		out[b+1] = out[b] + n/k
		if b < n%k {
			out[b+1]++
		}
	}
	return out
}

// trainEnd returns the row at which fold j stops training: the end of block j less the embargo,
// which never drops more than half of the training rows.
func (s *Sequence) trainEnd(j, embargo int) int {
	end := s.bounds[j+1]
	return end - min(embargo, end/2)
}

// Fold is one forward split, as indices of rows: nothing in Train is later than Test in its run.
type Fold struct{ Train, Test []int32 }

// Folds returns the rows of each forward fold: in every run, fold j trains on blocks 0 to j less
// the embargo and validates on block j+1. Runs with fewer rows than blocks are excluded with a
// finding; it is an error when no run is left.
func Folds(d *Data, o Options) ([]Fold, []Finding, error) {
	seqs, found := Sequences(d, o)
	if len(found) == len(seqs) {
		return nil, found, &Error{Code: TooFewRows, Msg: "no run has enough rows for the folds"}
	}
	folds := make([]Fold, o.Folds)
	for j := range folds {
		for _, s := range seqs {
			if s.bounds == nil {
				continue
			}
			folds[j].Train = append(folds[j].Train, s.Rows[:s.trainEnd(j, o.EmbargoRows)]...)
			folds[j].Test = append(folds[j].Test, s.Rows[s.bounds[j+1]:s.bounds[j+2]]...)
		}
	}
	return folds, found, nil
}
