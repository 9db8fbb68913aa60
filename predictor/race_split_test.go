package predictor

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

// Names of the race's splits: the first asks about the next minutes, the three of load
// about another load, run about another model, GPU or TP degree; random is a leak.
const (
	byTime   = "time"
	loadUp   = "load-up"
	loadDown = "load-down"
	loadGap  = "load-gap"
	byRun    = "run"
	random   = "random"
)

var splitNames = []string{byTime, loadUp, loadDown, loadGap, byRun, random}

const (
	randomShare  = 0.1 // of the rows, split random
	leastStages  = 3
	leastStage   = 20  // rows that make a stage
	leastRise    = 1.2 // highest over lowest rate of a unit's stages
	leastConfigs = 2
)

// fold is one training set and its test rows, places in a table.
type fold struct {
	name        string
	train, test []int
	hidden      []hidden
}

// split is one way to part the rows of a target.
type split struct {
	name    string
	reason  string // not formable
	folds   []fold
	dropped int
	groups  []string
}

// newSplit parts the rows (spec#predictor-splits).
func (a *rowSet) newSplit(name string, seed uint64) split {
	s := split{name: name}
	switch name {
	case byTime:
		f := fold{hidden: hiddenTails(a.runs)}
		f.train, f.test, s.dropped = a.byTime()
		s.folds = []fold{f}
	case loadUp, loadDown, loadGap:
		a.byLoad(&s)
	case byRun:
		a.byConfig(&s)
	case random:
		a.byHash(&s, seed)
	}
	for _, f := range s.folds {
		if s.reason == "" && (len(f.train) < leastPart || len(f.test) < leastPart) {
			s.reason = fmt.Sprintf("%d training and %d test rows, want %d of each", len(f.train), len(f.test), leastPart)
		}
	}
	if s.reason != "" {
		s.folds = nil
	}
	return s
}

// stage is a stretch of one run, or a whole run, at one load.
type stage struct {
	unit, name     string
	run            string
	rate           float64 // requests per second
	rows           []int
	startNs, endNs int64
	third          int // 0 low, 1 middle, 2 high
}

// stages are the load stages of every unit that has three or more at different
// rates: the stages of a run, else the runs of a configuration.
func (a *rowSet) stages() []stage {
	byRun := map[int]map[int64][]int{}
	for i, s := range a.samples {
		if byRun[s.run] == nil {
			byRun[s.run] = map[int64][]int{}
		}
		if s.row.Stage.OK {
			byRun[s.run][s.row.Stage.V] = append(byRun[s.run][s.row.Stage.V], i)
		}
	}
	var out []stage
	rest := map[string][]stage{} // whole runs by configuration
	var configs []string
	for run, r := range a.runs {
		var unit []stage
		for k := int64(0); len(unit) < len(byRun[run]) && k < 10_000; k++ {
			if rows := byRun[run][k]; rows != nil {
				unit = append(unit, a.newStage(r.ID, fmt.Sprintf("%s stage %d", r.ID, k), rows))
			}
		}
		if thirds(&unit) {
			out = append(out, unit...)
			continue
		}
		var whole []int
		for i, s := range a.samples {
			if s.run == run {
				whole = append(whole, i)
			}
		}
		if rest[r.Config] == nil {
			configs = append(configs, r.Config)
		}
		if len(whole) > 0 {
			rest[r.Config] = append(rest[r.Config], a.newStage(r.Config, r.ID, whole))
		}
	}
	for _, config := range configs {
		if unit := rest[config]; thirds(&unit) {
			out = append(out, unit...)
		}
	}
	return out
}

func (a *rowSet) newStage(unit, name string, rows []int) stage {
	first, last := a.samples[rows[0]].row.DecisionNs, a.samples[rows[len(rows)-1]].row.DecisionNs
	seconds := float64(last-first) / 1e9
	return stage{unit: unit, name: name, run: a.runs[a.samples[rows[0]].run].ID, rows: rows, startNs: first, endNs: last + 1,
		rate: float64(len(rows)-1) / math.Max(1e-9, seconds)}
}

// thirds ranks a unit's stages by rate; false when there are too few or all have
// about the same rate. Small stages are left out.
func thirds(unit *[]stage) bool {
	kept := slices.DeleteFunc(slices.Clone(*unit), func(s stage) bool { return len(s.rows) < leastStage })
	rates := make([]float64, len(kept))
	for k := range kept {
		rates[k] = kept[k].rate
	}
	order := stat.Order(rates)
	if len(kept) < leastStages || rates[order[len(order)-1]] < leastRise*rates[order[0]] {
		return false
	}
	for rank, k := range order {
		kept[k].third = rank * 3 / len(order)
	}
	*unit = kept
	return true
}

// byLoad holds a third of the stages out.
func (a *rowSet) byLoad(s *split) {
	stages := a.stages()
	if len(stages) == 0 {
		s.reason = "no run has three load stages at different rates, and no configuration three runs at different rates"
		return
	}
	out := map[string]int{loadDown: 0, loadGap: 1, loadUp: 2}[s.name]
	f := fold{}
	for _, st := range stages {
		if st.third == out {
			f.test = append(f.test, st.rows...)
			f.hidden = append(f.hidden, hidden{st.run, st.startNs, st.endNs})
			s.groups = append(s.groups, fmt.Sprintf("%s (%.3g/s)", st.name, st.rate))
		} else {
			f.train = append(f.train, st.rows...)
		}
	}
	slices.Sort(f.train)
	slices.Sort(f.test)
	s.folds = []fold{f}
}

// byConfig leaves one configuration out at a time.
func (a *rowSet) byConfig(s *split) {
	var configs []string
	rows := map[string][]int{}
	for i, x := range a.samples {
		c := a.runs[x.run].Config
		if rows[c] == nil {
			configs = append(configs, c)
		}
		rows[c] = append(rows[c], i)
	}
	configs = slices.DeleteFunc(configs, func(c string) bool { return len(rows[c]) < leastPart })
	if len(configs) < leastConfigs {
		s.reason = fmt.Sprintf("%d configuration with %d rows or more, want %d", len(configs), leastPart, leastConfigs)
		return
	}
	for _, c := range configs {
		f := fold{name: c, test: rows[c]}
		for i, x := range a.samples {
			if a.runs[x.run].Config != c {
				f.train = append(f.train, i)
			}
		}
		for _, r := range a.runs {
			if r.Config == c {
				f.hidden = append(f.hidden, hidden{r.ID, math.MinInt64, math.MaxInt64})
			}
		}
		s.folds = append(s.folds, f)
		s.groups = append(s.groups, c)
	}
}

// byHash takes a tenth of the rows by a hash of their ids.
func (a *rowSet) byHash(s *split, seed uint64) {
	f := fold{}
	for i, x := range a.samples {
		h := fnv.New64a()
		h.Write([]byte(a.runs[x.run].ID + "/" + x.row.RequestID))
		if stat.Draw(seed, h.Sum64()) < randomShare {
			f.test = append(f.test, i)
		} else {
			f.train = append(f.train, i)
		}
	}
	s.folds = []fold{f}
}
