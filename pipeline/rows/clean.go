package rows

import (
	"encoding/binary"
	"maps"
	"math"
	"math/bits"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/trace"
)

// Recipe selects cleaning and fitting (spec#recipe).
type Recipe string

// The recipes.
const (
	Relative Recipe = "relative"
	Frozen   Recipe = "frozen"
)

// outlierFactor and outlierShare: times the median, and what a cell may lose (spec#outliers).
const (
	outlierFactor = 5
	outlierShare  = 0.2
)

// cell is where a target is compared with its like: a configuration, and in the
// relative recipe a regime of it.
type cell struct {
	Config string
	Regime Regime
}

// Limit is the longest time per step that is no outlier in a cell of tables of one target.
type Limit struct {
	cell
	MaxUs float64
	Rows  int // of the cell
}

// Clean drops outliers (spec#outliers) from the training rows of tables of one target and marks those of the hold-out: rows whose
// time per step is more than 5 times the median of their configuration (frozen)
// or of their configuration and regime (relative), pooled over the tables.
// Overhead tables are left alone. It returns a many_outliers finding for
// every cell that lost more than 20 % and more than one row.
func Clean(tables []*Table, recipe Recipe) []trace.Finding {
	return CleanTo(tables, LimitsOf(tables, recipe), recipe, false)
}

// LimitsOf are those of the tables' cells, in order of first appearance.
func LimitsOf(tables []*Table, recipe Recipe) []Limit {
	out, at := cellsOf(tables, recipe)
	times := make([][]float64, len(out)) // per step
	for k, t := range tables {
		for i := range t.Kept {
			c := at[k][t.Regime[i]]
			times[c] = append(times[c], t.Y[i]/t.Steps[i])
		}
	}
	for c := range out {
		out[c].MaxUs = outlierFactor * stat.Median(times[c])
	}
	return out
}

// CleanTo is Clean with limits that are known; rows of a cell that has none stay. judged: every row
// judges, and none trains.
func CleanTo(tables []*Table, limits []Limit, recipe Recipe, judged bool) []trace.Finding {
	at := make(map[cell]int, len(limits))
	for k, l := range limits {
		at[l.cell] = k
	}
	gone := make([]int, len(limits))
	for _, t := range tables {
		if t.Target == coeff.Overhead {
			continue
		}
		marks := make([]StressSet, t.Kept) // in a column of its own: copies of the table may share theirs
		copy(marks, t.Sets)
		t.Sets = marks
		t.Filter(codeOutlier, func(i int) bool {
			k, known := at[t.cellOf(i, recipe)]
			if !known || t.Y[i]/t.Steps[i] <= limits[k].MaxUs {
				return true
			}
			gone[k]++
			if judged || t.HoldOut != nil && t.HoldOut[i] {
				t.Sets[i] |= Outlier
				return true
			}
			return false
		})
		t.check()
	}
	return tooMany(limits, gone)
}

func (t *Table) cellOf(i int, recipe Recipe) cell {
	if recipe == Frozen {
		return cell{Config: t.Config}
	}
	return cell{t.Config, t.Regime[i]}
}

// cellsOf are the cells of the tables with their numbers of rows, in order of first appearance, and
// for every table which of them its regimes belong to.
func cellsOf(tables []*Table, recipe Recipe) (out []Limit, at [][]int) {
	seen := make(map[cell]int)
	for _, t := range tables {
		var of []int
		for i := range t.Kept {
			for len(of) <= int(t.Regime[i]) {
				of = append(of, -1)
			}
			if k := of[t.Regime[i]]; k >= 0 {
				out[k].Rows++
				continue
			}
			c := t.cellOf(i, recipe)
			k, known := seen[c]
			if !known {
				k = len(out)
				seen[c], out = k, append(out, Limit{cell: c})
			}
			of[t.Regime[i]] = k
			out[k].Rows++
		}
		at = append(at, of)
	}
	return out, at
}

func tooMany(limits []Limit, gone []int) []trace.Finding {
	var out []trace.Finding
	for k, l := range limits {
		if float64(gone[k]) > max(1, outlierShare*float64(l.Rows)) {
			out = append(out, trace.Findingf(codeManyOutliers, "%s %s: %d of %d rows are outliers", l.Config, l.Regime, gone[k], l.Rows))
		}
	}
	return out
}

// spikeHistory is how many rows a median needs before it may drop one.
const spikeHistory = 10

// median is the running median of the last spikeWindow values: a ring of them
// and the same values sorted.
type median struct {
	ring   []float64
	oldest int
	sorted []float64
}

// isSpike reports whether v exceeds 10 times the median of the previous 101
// values (of those there are, from 10 on), and remembers v. Spikes are
// remembered too, so that a lasting change of level stops being one.
func (m *median) isSpike(v float64) bool {
	n := len(m.sorted)
	spike := n >= spikeHistory && v > spikeFactor*(m.sorted[(n-1)/2]+m.sorted[n/2])/2
	m.push(v)
	return spike
}

func (m *median) push(v float64) {
	if len(m.ring) < spikeWindow {
		m.ring = append(m.ring, v)
	} else {
		old := m.ring[m.oldest]
		m.ring[m.oldest] = v
		m.oldest = (m.oldest + 1) % spikeWindow
		at, _ := slices.BinarySearch(m.sorted, old)
		m.sorted = slices.Delete(m.sorted, at, at+1)
	}
	at, _ := slices.BinarySearch(m.sorted, v)
	m.sorted = slices.Insert(m.sorted, at, v)
}

// Bounds of the noise floor.
const (
	floorMinRows = 50
	floorMaxRows = 20_000
)

// nearestRows is what the nearest rows say the judged rows of a group should be:
// the median time per step of the 10 nearest other rows of the group, trained on
// or not, times the row's steps. Distance is Euclidean on x_j/steps/s_j, s_j the
// weighted root mean square of the column, as the estimator scales it; ties go to
// the earlier row. A group of more than 20,000 rows is evenly thinned first. NaN
// for rows outside the thinned set, and for all rows of a group of fewer than 50.
func nearestRows(group []*Sample, workers int) []float64 {
	type place struct {
		sample      *Sample
		row, judged int32 // judged: position among the judged rows; -1: not one of them
	}
	judged := 0
	all := make([]place, 0, stat.Sum(group, func(s *Sample) int { return s.Table.Kept }))
	for _, s := range group {
		for i := range s.Table.Kept {
			p := place{s, int32(i), -1}
			if s.Judges(i) {
				p.judged = int32(judged)
				judged++
			}
			all = append(all, p)
		}
	}
	answer := slices.Repeat([]float64{math.NaN()}, judged)
	if len(all) < floorMinRows {
		return answer
	}
	all = stat.Thin(all, floorMaxRows)
	d := &ridge.Data{P: group[0].Table.P, Config: make([]int32, len(all))}
	for _, p := range all {
		t := p.sample.Table
		d.X = append(d.X, t.Row(int(p.row))...)
		d.Y = append(d.Y, t.Y[p.row])
		d.Steps = append(d.Steps, t.Steps[p.row])
		d.Factor = append(d.Factor, t.Factor[p.row])
		d.Regime = append(d.Regime, int32(t.Regime[p.row]))
	}
	near := neighbours(d)
	par.Each(workers, len(all), func(_, k int) {
		if j := all[k].judged; j >= 0 {
			answer[j] = near.Median(k) * d.Steps[k]
		}
	})
	return answer
}

// neighbours are the rows at their scaled features per step; columns that are the
// same everywhere add nothing to a distance.
func neighbours(d *ridge.Data) *stat.Neighbours {
	scale, _ := ridge.OfRows(d, ridge.Weights(d, ridge.DefaultOptions(d.P)), nil, 1).Scale()
	var columns []int
	for j := range d.P {
		for i := range d.Len() {
			if d.Row(i)[j]/d.Steps[i] != d.Row(0)[j]/d.Steps[0] {
				columns = append(columns, j)
				break
			}
		}
	}
	var points, level []float64
	for i, y := range d.Y {
		level = append(level, y/d.Steps[i])
		for _, j := range columns {
			points = append(points, d.Row(i)[j]/d.Steps[i]/scale[j])
		}
	}
	return stat.NewNeighbours(points, len(columns), level)
}

// DefaultMaxRows is how many rows a fit learns from at most, and a validation judges (spec#max-rows).
const DefaultMaxRows = 500_000

// leastMaxRows is the least that may be asked for: every piece of every fold needs rows.
const leastMaxRows = 1000

// CheckMaxRows refuses a number of rows that nothing can be learned from; 0 is all of them.
func CheckMaxRows(n int) error {
	if n != 0 && n < leastMaxRows {
		return trace.Errorf(BadOption, "--max-rows: got %d, want 0 for all rows or at least %d", n, leastMaxRows)
	}
	return nil
}

// RecordedMaxRows is the number of rows that a document of a fit names; nil: it was the default.
func RecordedMaxRows(n *int) int {
	if n == nil {
		return DefaultMaxRows
	}
	return *n
}

// Strides are one row of how many stays of each of several runs, which have a configuration and may have so many
// rows, so that no more than maxRows stay: a configuration with few rows keeps them all, the others as many as each
// other. Where that leaves rows out a warning says so; maxRows 0 leaves out none.
func Strides(most []int64, configs []string, maxRows int) (strides []int, found []trace.Finding) {
	of := map[string]int64{}
	for i, n := range most {
		of[configs[i]] += n
	}
	left, level := int64(maxRows), int64(0)
	for i, n := range slices.Sorted(maps.Values(of)) {
		level = max(1, left/int64(len(of)-i))
		left -= min(n, level)
	}
	strides = make([]int, len(most))
	var all, kept int64
	for i, n := range most {
		if strides[i] = 1; maxRows > 0 {
			strides[i] = int(max(1, (of[configs[i]]+level-1)/level))
		}
		all, kept = all+n, kept+n/int64(strides[i])
	}
	if kept < all {
		found = append(found, trace.Findingf(codeRowsThinned, "about %d rows, evenly chosen, of up to %d: the key max-rows takes more, 0 all",
			kept, all))
	}
	return strides, found
}

// IsThinned reports whether rows were left out.
func (t *Table) IsThinned() bool { return t.DroppedFor(codeRowsThinned) > 0 }

// stays reports whether a row is among the one in stride that stays (spec#max-rows): the hash of its time, of 2^64
// values, falls into the first of stride parts. It depends on the time alone: the same steps stay in every table of a
// run, however it was cut, and of two strides the longer one's rows are among those of the shorter. A stride up to 1
// keeps all.
func stays(ns int64, stride int) bool {
	if stride <= 1 {
		return true
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(ns))
	part, _ := bits.Mul64(xxh3.Hash(b[:]), uint64(stride))
	return part == 0
}

// dropUncertain adds up the planned chunks and takes back those that rest on uncertain
// steps: the chunk sizes of a prompt that runs in several steps are certain
// only if every one of them is. Taking one back makes its steps unknown, which
// may make another uncertain, hence the rounds; each ends with fewer plans.
func (p *plan) dropUncertain() {
	uncertain := make([]int32, len(p.summary)) // smallest index of a life with unknown prefill
	for u := range uncertain {
		uncertain[u] = math.MaxInt32
	}
	for i := range p.lives {
		p.tally(i, uncertain)
	}
	for changed := true; changed; {
		changed = false
		for i := range p.lives {
			if l := &p.lives[i]; l.upTo != nil && l.t > l.s && p.isUncertain(i, uncertain) {
				p.takeBack(i, uncertain)
				changed = true
			}
		}
	}
}

// tally adds the planned chunks of life i, or marks its steps as uncertain.
func (p *plan) tally(i int, uncertain []int32) {
	l := &p.lives[i]
	switch {
	case l.broken != "":
	case l.noPrefill != "":
		p.block(l.s, l.t, l.noPrefill)
		p.mark(i, uncertain)
	default:
		p.book(l, 1)
	}
}

// book adds (sign 1) or removes (-1) the planned chunks of a life.
func (p *plan) book(l *life, sign int64) {
	lo, hi := p.span(l.s, l.t)
	for u := lo; u < hi; u++ {
		p.prompts[u] += sign * (l.ran(u+p.first) - l.ran(u+p.first-1))
		p.running[u] += int32(sign)
	}
}

func (p *plan) mark(i int, uncertain []int32) {
	lo, hi := p.span(p.lives[i].s, p.lives[i].t)
	for u := lo; u < hi; u++ {
		uncertain[u] = min(uncertain[u], int32(i))
	}
}

// takeBack makes the prefill of life i unknown.
func (p *plan) takeBack(i int, uncertain []int32) {
	l := &p.lives[i]
	p.book(l, -1)
	l.noPrefill, l.upTo = prefillUnknown, nil
	p.block(l.s, l.t, prefillUnknown)
	p.mark(i, uncertain)
}

// isUncertain reports whether the chunks of life i rest on a step whose budget
// others may have used in an unknown way: a broken life ran there, an earlier
// scheduled prompt of unknown chunks did, or the summary contradicts. The last
// step takes what is left of the prompt whatever the others did.
func (p *plan) isUncertain(i int, uncertain []int32) bool {
	l := &p.lives[i]
	lo, hi := p.span(l.s, l.t)
	if hi-lo != l.t-l.s+1 {
		return true
	}
	for u := lo; u < hi; u++ {
		switch {
		case u < hi-1 && (p.blocked[u] == preemptedRequest || p.blocked[u] == inconsistentRequest || uncertain[u] < int32(i)):
			return true
		case p.summary[u] < 0 && p.confirm[u], p.blocked[u] == "" && p.summary[u] >= 0 && !p.agrees(int(u)):
			return true
		}
	}
	return false
}

// agrees compares the rebuilt batch of a step with its summary. Where the tails
// do not fit and their absence does, they did not run.
func (p *plan) agrees(u int) bool {
	s := &p.recorded[p.summary[u]]
	decodes := int64(p.decodes[u])
	if p.fits(u, s, decodes+int64(p.tails[u])) {
		p.noTail[u] = false
		return true
	}
	p.noTail[u] = p.tails[u] > 0 && p.fits(u, s, decodes)
	return p.noTail[u]
}

// fits compares totals. Up to firsts decodes may be labelled PREFILL with one
// token, since the first token was not processed yet.
func (p *plan) fits(u int, s *trace.Step, decodes int64) bool {
	mislabelled := s.NumPrefillReqs - int64(p.running[u])
	return s.ScheduledTokens == decodes+p.prompts[u] && s.NumPrefillReqs+s.NumDecodeReqs == decodes+int64(p.running[u]) &&
		mislabelled >= 0 && mislabelled <= int64(p.firsts[u]) && s.PrefillTokens-p.prompts[u] == mislabelled
}

// verdicts says for every step why the journeys do not tell its batch; empty
// where they do.
func (p *plan) verdicts() []Reason {
	why := make([]Reason, len(p.summary))
	copy(why, p.blocked)
	for u := range why {
		switch {
		case why[u] != "":
		case p.summary[u] < 0 && p.confirm[u], p.summary[u] >= 0 && !p.agrees(u) && p.confirm[u]:
			why[u] = unconfirmed
		case p.summary[u] >= 0 && !p.agrees(u):
			why[u] = contradicted
		}
	}
	p.guardGaps(why)
	return why
}

// guardGaps makes unrecorded steps next to a contradicted summary unknown: a
// request that is missing there is probably missing beside it.
func (p *plan) guardGaps(why []Reason) {
	var bad bool
	mark := func(u int) {
		if p.summary[u] >= 0 {
			bad = why[u] == contradicted
		} else if bad && why[u] == "" {
			why[u] = unconfirmed
		}
	}
	for u := range why {
		mark(u)
	}
	bad = false
	for u := len(why) - 1; u >= 0; u-- {
		mark(u)
	}
}
