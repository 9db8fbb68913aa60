package validate

import (
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
)

// scope is a set of runs judged together: the training runs of one
// configuration, or one test run.
type scope struct {
	name, config string
	seen, test   bool
	runs         []*taught
	constUs      float64 // best constant per step, once asked for
}

// scopes groups the runs that may be judged: saturated ones are left out.
// Training configurations come first, in order of their first run, then test runs.
func scopes(all []*taught, label func(config string) string) []*scope {
	var train, test []*scope
	at := map[string]*scope{}
	for _, t := range all {
		if t.sat.Run.Saturated || t.beta == nil {
			continue
		}
		config := t.dep.Config()
		if !t.training {
			test = append(test, &scope{name: t.id, config: config, seen: t.seen, test: true, runs: []*taught{t}})
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

// constant is the best constant per step of a scope: of its training rows, or of
// all rows of a test run.
func (s *scope) constant() float64 {
	if s.constUs == 0 {
		s.constUs = s.bestConstant()
	}
	return s.constUs
}

func (s *scope) bestConstant() float64 {
	var y, steps []float64
	for _, t := range s.runs {
		for i := range t.beta.Kept {
			if s.test || !t.beta.HoldOut[i] {
				y, steps = append(y, t.beta.Y[i]), append(steps, t.beta.Steps[i])
			}
		}
	}
	return bestConstant(y, steps)
}

// scoreSteps are the tested rows of a scope, or those keep says yes to.
func (s *scope) scoreSteps(constUs float64, keep func(t *taught, i int) bool) *scored {
	out := &scored{constUs: []float64{}}
	for _, t := range s.runs {
		for i := range t.beta.Kept {
			if !t.tested(t.beta, i) || keep != nil && !keep(t, i) {
				continue
			}
			out.add(t.beta.Y[i], t.pred[i], t.beta.Steps[i])
			out.constUs = append(out.constUs, constUs*t.beta.Steps[i])
		}
	}
	return out
}

// errors fills the document's entry of the scope.
func (s *scope) errors(set *coeff.Set, o *Options) result.ConfigErrors {
	c := result.ConfigErrors{Scope: s.name, Config: s.config, Runs: []string{}, Seen: s.seen, TestRun: s.test}
	for _, t := range s.runs {
		c.Runs = append(c.Runs, t.id)
	}
	steps := s.scoreSteps(s.constant(), nil)
	if len(steps.y) > 0 {
		c.Steps = withFloor(steps.errors(), s.floor(o))
		c.TargetOverFloor = s.overFloor()
	}
	c.BoundHits = s.boundHits()
	c.Alpha = s.alphaErrors(set)
	return c
}

// floor asks the caller's nearest-neighbour estimate of the noise, if any.
func (s *scope) floor(o *Options) *float64 {
	if o.Floor == nil {
		return nil
	}
	var tables []*rows.Table
	for _, t := range s.runs {
		tables = append(tables, t.beta)
	}
	return o.Floor(tables, s.test)
}

// overFloor is the median tested target per step over the median physical floor (01 T-4).
func (s *scope) overFloor() *float64 {
	var y, floor []float64
	for _, t := range s.runs {
		for i := range t.beta.Kept {
			if t.tested(t.beta, i) && t.beta.FloorUs[i] > 0 {
				y, floor = append(y, t.beta.Y[i]/t.beta.Steps[i]), append(floor, t.beta.FloorUs[i]/t.beta.Steps[i])
			}
		}
	}
	if len(y) == 0 {
		return nil
	}
	return finite(stat.Median(y) / stat.Median(floor))
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
	return share(slices.Max(append(hits, 0)), read)
}

// alphaErrors judges every alpha target of the set on the tested rows.
func (s *scope) alphaErrors(set *coeff.Set) *result.AlphaErrors {
	out := &result.AlphaErrors{}
	for _, m := range set.Alpha {
		p := alphaRows{target: m.Target}
		for _, t := range s.runs {
			if a := t.alphaTable(m.Target); a != nil {
				p.add(t, a, t.set.AlphaModel(m.Target))
			}
		}
		p.fill(out)
	}
	return out
}

func (t *taught) alphaTable(target string) *rows.Table {
	for _, a := range t.alpha {
		if a.Target == target {
			return a
		}
	}
	return nil
}

// alphaRows are the tested rows of one target, and the training rows the
// constants come from.
type alphaRows struct {
	target       string
	test         scored
	lo, hi, pred []float64
	exact        []bool
	testWindows  windows
	trainY       []float64
	trainWindows windows
}

func (p *alphaRows) add(t *taught, a *rows.Table, m *coeff.AlphaModel) {
	values := coeff.Values(m.Coefficients)
	var at, trainAt []int64
	var y, pred, trainY []float64
	for i := range a.Kept {
		v := max(0, dot(values, a.Row(i)))
		if !t.tested(a, i) || !t.training {
			trainAt, trainY = append(trainAt, a.TimeNs[i]), append(trainY, a.Y[i])
		}
		if !t.tested(a, i) {
			continue
		}
		at, y, pred = append(at, a.TimeNs[i]), append(y, a.Y[i]), append(pred, v)
		p.test.add(a.Y[i], v, 1)
		if a.Lo != nil {
			p.lo, p.hi, p.pred = append(p.lo, a.Lo[i]), append(p.hi, a.Hi[i]), append(p.pred, v)
			p.exact = append(p.exact, a.Exact[i])
		}
	}
	p.trainY = append(p.trainY, trainY...)
	p.testWindows.add(at, y, pred)
	p.trainWindows.add(trainAt, trainY, trainY)
}

func (p *alphaRows) fill(out *result.AlphaErrors) {
	if len(p.test.y) == 0 {
		return
	}
	if p.target == coeff.Overhead {
		out.Overhead = intervalErrors(p.lo, p.hi, p.pred, p.exact)
		return
	}
	perRow := bestConstant(p.trainY, constant(len(p.trainY), 1))
	perWindow := bestConstant(p.trainWindows.y, constant(len(p.trainWindows.y), 1))
	e := targetErrors(&p.test, &p.testWindows, perRow, perWindow, p.target == coeff.Admission)
	switch p.target {
	case coeff.Admission:
		out.Admission = e
	case coeff.Egress:
		out.Egress = e
	case coeff.Queue:
		out.Queue = e
	}
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// cells are the step errors of one run by regime, then by stress set (01 V-11).
func (s *scope) cells(t *taught) []result.Cell {
	one := &scope{config: s.config, test: s.test, runs: []*taught{t}}
	constUs := s.constant()
	out := []result.Cell{}
	for r := rows.Decode; r <= rows.Mixed; r++ {
		e := one.scoreSteps(constUs, func(t *taught, i int) bool { return t.beta.Regime[i] == r }).errors()
		if e.Rows > 0 {
			out = append(out, result.Cell{Run: t.id, Config: s.config, Regime: r.String(), Errors: *e})
		}
	}
	for _, set := range rows.StressSets {
		e := one.scoreSteps(constUs, func(t *taught, i int) bool { return t.beta.Sets[i]&set.Set != 0 }).errors()
		if e.Rows > 0 {
			out = append(out, result.Cell{Run: t.id, Config: s.config, Set: set.Name, Errors: *e})
		}
	}
	return out
}

// configLabels names each configuration: model, hardware and tp where that is
// unique among the runs, else the whole key.
func configLabels(all []*taught) func(string) string {
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
