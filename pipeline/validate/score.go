package validate

import (
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

func termNames(set *coeff.Set) []string {
	names := make([]string, len(set.Beta))
	for j := range set.Beta {
		names[j] = set.Beta[j].Name
	}
	return names
}

// scope is a set of runs judged together: the training runs of one
// configuration, or one test run.
type scope struct {
	name, config string
	seen, test   bool
	runs         []*judgedRun
}

// scopes groups the runs that may be judged: saturated ones are left out.
// Training configurations come first, in order of their first run, then test runs.
func scopes(all []*judgedRun, label func(config string) string) []*scope {
	var train, test []*scope
	at := map[string]*scope{}
	for _, t := range all {
		if t.sat.Run.Saturated || t.beta == nil {
			continue
		}
		config := t.dep.Config()
		if !t.training {
			test = append(test, &scope{name: t.id, config: config, seen: t.seen, test: true, runs: []*judgedRun{t}})
			continue
		}
		s := at[config]
		if s == nil {
			s = &scope{name: label(config), config: config, seen: true}
			at[config] = s
			train = append(train, s)
		}
		s.runs = append(s.runs, t)
	}
	return append(train, test...)
}

// scores are the rows of all scopes with what is predicted of them.
type scores struct {
	steps   *rows.ScoreSteps
	targets []string
	delays  []*rows.Delays // by target
}

func newScores(groups []*scope, set *coeff.Set, workers int) *scores {
	var steps [][]*rows.Sample
	for _, s := range groups {
		var group []*rows.Sample
		for _, t := range s.runs {
			group = append(group, t.steps())
		}
		steps = append(steps, group)
	}
	j := &scores{steps: rows.NewSteps(steps, true, workers)}
	for _, m := range set.Alpha {
		var delays [][]*rows.Sample
		for _, s := range groups {
			var group []*rows.Sample
			for _, t := range s.runs {
				if d := t.delays(m.Target); d != nil {
					group = append(group, d)
				}
			}
			delays = append(delays, group)
		}
		j.targets, j.delays = append(j.targets, m.Target), append(j.delays, rows.NewDelays(delays))
	}
	return j
}

// config fills the document's entry of a scope.
func (j *scores) config(s *scope) result.ConfigErrors {
	c := result.ConfigErrors{Scope: s.name, Config: s.config, Runs: []string{}, Seen: s.seen, TestRun: s.test}
	var group []*rows.Sample
	for _, t := range s.runs {
		c.Runs, group = append(c.Runs, t.id), append(group, t.steps())
	}
	if c.Steps = j.steps.Errors(group...); c.Steps != nil {
		c.TargetOverFloor = s.overFloor()
	}
	c.BoundHits = s.boundHits()
	c.Alpha = j.alphaErrors(s.runs)
	return c
}

// alphaErrors judges every alpha target on the tested rows of the given runs.
func (j *scores) alphaErrors(runs []*judgedRun) *result.AlphaErrors {
	out := &result.AlphaErrors{}
	for k, target := range j.targets {
		d := j.delays[k]
		in := func(s *rows.Sample) bool {
			return slices.ContainsFunc(runs, func(t *judgedRun) bool { return t.delays(target) == s })
		}
		switch target {
		case coeff.Overhead:
			out.Overhead = d.Intervals(in)
		case coeff.Admission:
			out.Admission = d.Errors(in)
		case coeff.Egress:
			out.Egress = d.Errors(in)
		case coeff.Queue:
			out.Queue = d.Errors(in)
		}
	}
	return out
}

// overFloor is the median tested target per step over the median physical floor (spec#target-audit).
func (s *scope) overFloor() *float64 {
	var y, floor []float64
	for _, t := range s.runs {
		for i := range t.beta.Kept {
			if t.sample.Judges(i) && t.beta.FloorUs[i] > 0 {
				y, floor = append(y, t.beta.Y[i]/t.beta.Steps[i]), append(floor, t.beta.FloorUs[i]/t.beta.Steps[i])
			}
		}
	}
	if len(y) == 0 {
		return nil
	}
	return result.OrNull(stat.Median(y) / stat.Median(floor))
}

// boundHits is the largest share of candidate rows over the slots.
func (s *scope) boundHits() *float64 {
	hits, read := []int(nil), 0
	for _, t := range s.runs {
		if hits == nil {
			hits = make([]int, len(t.beta.Hits))
		}
		for j, n := range t.beta.Hits {
			hits[j] += n
		}
		read += t.beta.Kept + t.beta.DroppedFor(features.FeatureOutOfRange)
	}
	if read == 0 {
		return nil
	}
	return result.Share(slices.Max(append(hits, 0)), read)
}

// configLabels names each configuration: model, hardware and tp where that is
// unique among the runs, else the whole key.
func configLabels(all []*judgedRun) func(string) string {
	label, count := map[string]string{}, map[string]int{}
	for _, t := range all {
		key := t.dep.Config()
		if _, ok := label[key]; !ok {
			label[key] = t.dep.Label()
			count[t.dep.Label()]++
		}
	}
	return func(key string) string {
		if l := label[key]; count[l] == 1 {
			return l
		}
		return key
	}
}
