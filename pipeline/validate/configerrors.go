package validate

// This file groups the runs of a validation, the training runs by configuration and each test run
// alone, and gives every group its errors and gates.

import (
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

// scope is a set of runs judged together: the training runs of one configuration, or one test run.
type scope struct {
	name, config   string // as the gates name it, and the key of its configuration
	seen, test     bool   // its configuration was part of the fit; it is a test run
	runs           []*judgedRun
	isDriftFarther bool // replays that follow the drift curve are farther from the recording
}

// groupRuns returns the runs with steps that are not saturated, by configuration. Training
// configurations come first, in order of their first run, then test runs.
func groupRuns(all []*judgedRun, label func(config string) string) []*scope {
	var train, test []*scope
	byConfig := map[string]*scope{}
	for _, t := range all {
		if t.Saturation.Run.Saturated || t.beta == nil {
			continue
		}
		config := t.Deployment.Config()
		if !t.training {
			test = append(test, &scope{name: t.id, config: config, seen: t.seen, test: true, runs: []*judgedRun{t}})
			continue
		}
		s := byConfig[config]
		if s == nil {
			s = &scope{name: label(config), config: config, seen: true}
			byConfig[config] = s
			train = append(train, s)
		}
		s.runs = append(s.runs, t)
	}
	return append(train, test...)
}

// configLabels returns a function with the name of each configuration: model, hardware and tp if
// that is unique among the runs, else the whole key.
func configLabels(all []*judgedRun) func(string) string {
	label := map[string]string{}
	configs := map[string]int{} // by label
	for _, t := range all {
		key := t.Deployment.Config()
		if _, known := label[key]; !known {
			label[key] = t.Deployment.Label()
			configs[t.Deployment.Label()]++
		}
	}
	return func(key string) string {
		if l := label[key]; configs[l] == 1 {
			return l
		}
		return key
	}
}

// scores are the rows of all scopes with their predictions (spec#teacher-forced).
type scores struct {
	steps   *rows.StepErrors
	targets []string       // of the delays: coeff.Overhead, ...
	delays  []*rows.Delays // by target
}

// newScores returns what the errors of all groups have in common.
func newScores(groups []*scope, set *coeff.Set, workers int) *scores {
	var steps [][]*rows.Sample
	for _, g := range groups {
		var group []*rows.Sample
		for _, t := range g.runs {
			group = append(group, t.sample)
		}
		steps = append(steps, group)
	}
	scored := &scores{steps: rows.JudgeSteps(steps, true, workers)}
	for i := range set.Alpha {
		target := set.Alpha[i].Target
		var delays [][]*rows.Sample
		for _, g := range groups {
			var group []*rows.Sample
			for _, t := range g.runs {
				if d := t.delays(target); d != nil {
					group = append(group, d)
				}
			}
			delays = append(delays, group)
		}
		scored.targets = append(scored.targets, target)
		scored.delays = append(scored.delays, rows.JudgeDelays(delays))
	}
	return scored
}

// config returns the document's entry of a scope.
func (c *scores) config(g *scope) result.ConfigErrors {
	out := result.ConfigErrors{Scope: g.name, Config: g.config, Runs: []string{}, Seen: g.seen, TestRun: g.test}
	var samples []*rows.Sample
	for _, t := range g.runs {
		out.Runs = append(out.Runs, t.id)
		samples = append(samples, t.sample)
	}
	out.Steps = c.steps.Errors(samples...)
	if out.Steps != nil {
		out.TargetOverFloor = g.overFloor()
	}
	out.BoundHits = g.boundHits()
	out.Alpha = c.alphaErrors(g.runs)
	return out
}

// alphaErrors returns the errors of every alpha target on the judged rows of the given runs.
func (c *scores) alphaErrors(runs []*judgedRun) *result.AlphaErrors {
	out := &result.AlphaErrors{}
	for k, target := range c.targets {
		d := c.delays[k]
		isOfRuns := func(s *rows.Sample) bool {
			return slices.ContainsFunc(runs, func(t *judgedRun) bool { return t.delays(target) == s })
		}
		switch target {
		case coeff.Overhead:
			out.Overhead = d.Intervals(isOfRuns)
		case coeff.Admission:
			out.Admission = d.Errors(isOfRuns)
		case coeff.Egress:
			out.Egress = d.Errors(isOfRuns)
		case coeff.Queue:
			out.Queue = d.Errors(isOfRuns)
		}
	}
	return out
}

// overFloor returns the median judged step time over the median physical floor (spec#target-audit).
func (g *scope) overFloor() *float64 {
	var y, floor []float64
	for _, t := range g.runs {
		for i := range t.beta.Kept {
			if t.sample.Judges(i) && t.beta.FloorUs[i] > 0 {
				y = append(y, t.beta.Y[i]/t.beta.Steps[i])
				floor = append(floor, t.beta.FloorUs[i]/t.beta.Steps[i])
			}
		}
	}
	if len(y) == 0 {
		return nil
	}
	return result.OrNull(stat.Median(y) / stat.Median(floor))
}

// boundHits returns the largest share, over the features, of candidate rows whose feature is at its
// bound.
func (g *scope) boundHits() *float64 {
	var hits []int // by feature
	read := 0
	for _, t := range g.runs {
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
	most := 0
	for _, n := range hits {
		most = max(most, n)
	}
	return result.Share(most, read)
}
