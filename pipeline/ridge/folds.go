package ridge

import (
	"cmp"
	"fmt"
	"slices"
)

// sequence is the rows of one run in time order, cut into blocks.
type sequence struct {
	config, run int32
	rows        []int32
	bounds      []int // Folds+2 cut points, first 0; nil: too few rows for folds
}

// sequences are the runs of d, cut into Folds+1 contiguous blocks, the first
// n%blocks one longer; a finding for each run with fewer rows than blocks.
func sequences(d *Data, o Options) ([]sequence, []Finding) {
	list := runsOf(d, allRows(d.Len()))
	var found []Finding
	for k := range list {
		s := &list[k]
		s.bounds = blockBounds(len(s.rows), o.Folds+1)
		if s.bounds == nil {
			found = append(found, Finding{
				Code: TooFewRows, Config: s.config, Run: s.run,
				Message: fmt.Sprintf("%d rows, want at least %d: left out of the folds", len(s.rows), o.Folds+1),
			})
		}
	}
	return list, found
}

// runsOf groups the given rows by (configuration, run) in sorted order and sorts
// each by time, ties by row.
func runsOf(d *Data, rows []int32) []sequence {
	var list []sequence
	for len(rows) > 0 {
		config, run := d.Config[rows[0]], d.run(int(rows[0]))
		n := 1
		for n < len(rows) && d.Config[rows[n]] == config && d.run(int(rows[n])) == run {
			n++
		}
		k := place(&list, config, run)
		list[k].rows = append(list[k].rows, rows[:n]...)
		rows = rows[n:]
	}
	slices.SortFunc(list, func(a, b sequence) int {
		return cmp.Or(cmp.Compare(a.config, b.config), cmp.Compare(a.run, b.run))
	})
	for k := range list {
		sortByTime(d, list[k].rows)
	}
	return list
}

// place is the position of the sequence of (config, run), appended if new.
func place(list *[]sequence, config, run int32) int {
	k := slices.IndexFunc(*list, func(s sequence) bool { return s.config == config && s.run == run })
	if k < 0 {
		k = len(*list)
		*list = append(*list, sequence{config: config, run: run})
	}
	return k
}

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

// blockBounds are the cut points of n rows in k blocks; nil when n < k.
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

// trainEnd is where fold j stops training: the end of block j less the embargo,
// which never takes more than half.
func (s *sequence) trainEnd(j, embargo int) int {
	end := s.bounds[j+1]
	return end - min(embargo, end/2)
}

// Fold is one forward split: nothing in Train is later than Test in its run.
type Fold struct{ Train, Test []int32 }

// Folds lists the rows of each forward fold: per run, blocks 0..j less the
// embargo train and block j+1 validates. Runs with fewer rows than blocks are
// left out with a finding; an error when none is left.
func Folds(d *Data, o Options, embargo int) ([]Fold, []Finding, error) {
	seqs, found := sequences(d, o)
	if len(found) == len(seqs) {
		return nil, found, &Error{TooFewRows, "no run has enough rows for the folds"}
	}
	folds := make([]Fold, o.Folds)
	for j := range folds {
		for _, s := range seqs {
			if s.bounds == nil {
				continue
			}
			folds[j].Train = append(folds[j].Train, s.rows[:s.trainEnd(j, embargo)]...)
			folds[j].Test = append(folds[j].Test, s.rows[s.bounds[j+1]:s.bounds[j+2]]...)
		}
	}
	return folds, found, nil
}
