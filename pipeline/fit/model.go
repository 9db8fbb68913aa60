package fit

import (
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/ridge/bootstrap"
	"github.com/blis-train/blis-train/pipeline/ridge/cells"
	"github.com/blis-train/blis-train/pipeline/ridge/gram"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

var nan = math.NaN()

// model fills what every fitted model reports: choice, coefficients with
// intervals, identifiability, counts.
func (f *fitter) model(s *solved, m modelSelections, name, target string) (*result.Model, error) {
	out := &result.Model{
		Name: name, SpecVersion: string(f.o.Spec), Recipe: f.o.Recipe, Target: target,
		Lambda: num(s.fit.Lambda), GammaEMA: num(f.gammas[f.gamma]), DFEff: num(s.fit.DF),
		Warnings: append([]trace.Finding{}, s.findings...), NullDirections: []string{}, Loco: []result.Loco{}, Grid: []result.GridPoint{},
	}
	if m.rel != nil {
		out.Grid = gridPoints(m.rel)
		sel := m.rel[f.gamma]
		out.FoldFingerprints = sel.Grid[sel.Index].Fingerprints
		out.NestedCross = num(sel.NestedMean())
		out.Certificate = &result.Certificate{MinZeroGradient: num(s.fit.Cert.MinZero), MaxActiveGradient: s.fit.Cert.MaxActive, OK: s.fit.Cert.OK()}
	}
	if s.frozen != nil {
		out.Grid = frozenGrid(m.frozen, f.gammas)
		out.FoldFingerprints = s.frozen.Grid[s.frozen.Index].Fingerprints
	}
	if p := s.polish; p != nil {
		out.Reweighting = &result.Reweighting{Passes: p.Passes, BiasBefore: p.BiasLS, BiasAfter: p.Bias, Kept: p.Kept}
	}
	out.Rows = countRows(s.pool.tables)
	out.Rows.Holdout = len(s.pool.hold)
	f.coefficients(s, out)
	f.boundHits(s, out)
	f.rowGuidance(s, out)
	return out, nil
}

// evidence is what the rows say about the terms of a solved model. It comes
// from rows, or from Gram matrices alone.
type evidence struct {
	tags   []ridge.Identification
	conf   *bootstrap.Confidence // nil: no intervals
	diag   ridge.Diagnosis
	lo, hi []float64 // range of each feature on training rows
	share  []float64 // mean share of the prediction; NaN where unknown
}

// coefficients fills values, intervals and identifiability.
func (f *fitter) coefficients(s *solved, out *result.Model) {
	e := evidence{tags: ridge.Identify(ridge.WithinVariation(s.train, s.weights)), diag: f.diagnose(s), share: meanShares(s)}
	for j, t := range s.terms {
		if t.constant && len(s.pool.configs) == 1 {
			e.tags[j] = ridge.IdentifiedWithin
		}
	}
	e.conf = f.confidence(s, e.tags)
	e.lo, e.hi = rows.Ranges(s.pool.tables)
	e.describe(s.terms, s.fit, len(s.pool.configs), out)
}

// describe puts the coefficients of a fit and every doubt about them into out.
func (e *evidence) describe(terms []term, fit ridge.Fit, configs int, out *result.Model) {
	out.ConditionNumber = num(e.diag.Condition)
	var outside []string
	for j, t := range terms {
		c := result.Coefficient{
			Coefficient: coeff.Coefficient{
				Name: t.name, Value: fit.Beta[j], Unit: t.unit, Identified: string(e.tags[j]), Range: &[2]float64{e.lo[j], e.hi[j]},
			},
			VIF: num(e.diag.VIF[j]), Share: num(e.share[j]), ImpliedUtilisation: t.utilisation(fit.Beta[j]),
		}
		if fit.PriorShare != nil {
			c.PriorShare = num(fit.PriorShare[j])
		}
		if fit.DFTerm != nil {
			c.DF = num(fit.DFTerm[j])
		}
		if e.conf != nil {
			c.CI95 = interval95(e.conf.Terms[j])
		}
		if ci := c.CI95; ci != nil && (c.Value < ci[0] || c.Value > ci[1]) {
			outside = append(outside, t.name)
		}
		c.NotLearned = t.isTime && (c.Value == 0 || e.tags[j] == ridge.PriorOnly)
		out.Coefficients = append(out.Coefficients, c)
		out.Warnings = append(out.Warnings, t.doubts(c, configs)...)
	}
	if len(outside) > 0 {
		out.Warnings = append(out.Warnings, trace.Findingf(EstimateOutside, "%s: the penalty or the reweighting moved the value outside its 95 %% interval", strings.Join(outside, ", ")))
	}
	if e.conf != nil {
		out.Covariance = square(e.conf.Covariance, len(terms))
	}
	for _, g := range e.diag.Null {
		sentence := nullSentence(terms, g, configs)
		out.NullDirections = append(out.NullDirections, sentence)
		out.Warnings = append(out.Warnings, trace.Finding{Code: Unidentifiable, Message: sentence})
	}
}

// interval95 is null where the rows do not say, or say nothing finite.
func interval95(t bootstrap.Interval) *[2]float64 {
	if t.Method == bootstrap.FromNothing || num(t.Lo) == nil || num(t.Hi) == nil {
		return nil
	}
	return &[2]float64{t.Lo, t.Hi}
}

// utilisation is 1e6/coefficient for seconds-like terms (03 section 5).
func (t *term) utilisation(value float64) *float64 {
	switch {
	case value <= 0:
		return nil
	case t.isTime:
		return num(rooflinePrior / value)
	case t.perUs:
		return num(1 / value)
	}
	return nil
}

// doubts are the findings about one coefficient.
func (t *term) doubts(c result.Coefficient, configs int) []trace.Finding {
	var out []trace.Finding
	if u := c.ImpliedUtilisation; u != nil && *u > 1 && t.name != nominalTerm {
		out = append(out, trace.Findingf(UtilisationAbove1, "%s: %.3g %s means %.0f %% of the hardware's peak", t.name, c.Value, c.Unit, 100**u))
	}
	if c.Identified != string(ridge.IdentifiedWithin) && c.Range[1] > 0 && configs > 1 {
		out = append(out, trace.Findingf(ConstantInConfigs, "%s does not vary inside any configuration: its value is %s", t.name, c.Identified))
	}
	if c.NotLearned && c.Range[1] > 0 {
		out = append(out, trace.Findingf(NotLearned, "%s is %s at %.3g: these data say nothing about its cost", t.name, c.Identified, c.Value))
	}
	return out
}

// nominalTerm is the time-like term whose second is nominal, not the hardware's.
const nominalTerm = "fixed_step_overhead"

// confidence is nil for recipes without block weights.
func (f *fitter) confidence(s *solved, tags []ridge.Identification) *bootstrap.Confidence {
	opt := bootstrap.Options{Draws: f.o.Bootstraps, Level: 0.95, Seed: uint64(f.o.Seed)}
	switch {
	case s.frozen != nil:
		return nil
	case s.censored != nil:
		c := bootstrap.Blocks(bootstrap.OfIntervals(s.train, s.weights, *s.censored, s.opt), tags, s.opt, opt)
		return &c
	}
	c := bootstrap.Rows(s.train, s.fit, tags, s.opt, opt)
	return &c
}

func (f *fitter) diagnose(s *solved) ridge.Diagnosis {
	return diagnose(gram.OfRows(s.train, s.weights, nil, f.o.Workers), s.fit)
}

// diagnose examines a Gram at a fit made with other weights or none of V-3's scales.
func diagnose(g *gram.Gram, fit ridge.Fit) ridge.Diagnosis {
	if fit.Scale == nil {
		fit.Scale, fit.YBar = g.Scale()
		fit.W = g.W
		fit.Gamma = make([]float64, g.P)
		for j, b := range fit.Beta {
			fit.Gamma[j] = b * fit.Scale[j] / fit.YBar
		}
	} else {
		fit.W = g.W
		fit.Scale, _ = g.Scale()
	}
	return ridge.Diagnose(g, fit)
}

// relErr is sqrt of the weighted relative squared error of the hold-out.
func (f *fitter) relErr(s *solved) float64 {
	if len(s.pool.hold) == 0 {
		return nan
	}
	hold := s.data.Subset(s.pool.hold)
	return math.Sqrt(gram.OfRows(hold, cells.Weights(hold, s.opt), nil, f.o.Workers).Score(s.fit.Beta))
}

// meanShares are the terms' mean shares of the prediction on training rows.
func meanShares(s *solved) []float64 {
	sum := make([]float64, len(s.terms))
	var total float64
	for i := range s.train.Len() {
		for j, x := range s.train.Row(i) {
			sum[j] += x * s.fit.Beta[j]
			total += x * s.fit.Beta[j]
		}
	}
	for j := range sum {
		sum[j] /= total
	}
	return sum
}

func square(v []float64, p int) [][]float64 {
	out := make([][]float64, p)
	for j := range out {
		out[j] = v[j*p : (j+1)*p]
	}
	return out
}

// countRows adds up what tables read, kept and dropped.
func countRows(tables []*rows.Table) result.RowCounts {
	out := result.RowCounts{Dropped: map[string]int{}, ByRun: []result.RunRows{}, ByRegime: []result.RegimeRows{}}
	for _, t := range tables {
		r := result.RunRows{Run: t.Run, Read: t.Read, Kept: t.Kept, Dropped: map[string]int{}}
		for _, c := range t.Dropped {
			r.Dropped[string(c.Code)] += c.N
			out.Dropped[string(c.Code)] += c.N
		}
		out.Read += t.Read
		out.Kept += t.Kept
		out.ByRun = append(out.ByRun, r)
		countRegimes(&out, t)
	}
	return out
}

func countRegimes(out *result.RowCounts, t *rows.Table) {
	for i := range t.Kept {
		name := t.Regime[i].String()
		k := slices.IndexFunc(out.ByRegime, func(r result.RegimeRows) bool { return r.Config == t.Config && r.Regime == name })
		if k < 0 {
			k = len(out.ByRegime)
			out.ByRegime = append(out.ByRegime, result.RegimeRows{Config: t.Config, Regime: name})
		}
		out.ByRegime[k].Rows++
		out.ByRegime[k].Steps += int(t.Steps[i])
	}
}

// boundHits reports F-6 per feature.
func (f *fitter) boundHits(s *solved, out *result.Model) {
	out.BoundHits = []result.BoundHit{}
	hits := make([]int, len(s.terms))
	read := 0
	for _, t := range s.pool.tables {
		read += t.Read
		for j, n := range t.Hits {
			hits[j] += n
		}
	}
	for j, n := range hits {
		if n == 0 {
			continue
		}
		h := result.BoundHit{Name: s.terms[j].name, Rows: n, Share: float64(n) / float64(read)}
		out.BoundHits = append(out.BoundHits, h)
		if h.Share > 0.001 {
			out.Warnings = append(out.Warnings, trace.Findingf(BoundHits, "%s: %d of %d rows hit its bound (%.2g %%)", h.Name, n, read, 100*h.Share))
		}
	}
}

// rowGuidance warns about configurations with little data (01 V-11).
func (f *fitter) rowGuidance(s *solved, out *result.Model) {
	want := guidanceAlpha
	if out.Name == "beta" {
		want = guidanceBeta
	}
	counts := make([]int, len(s.pool.configs))
	for _, c := range s.train.Config {
		counts[c]++
	}
	for c, n := range counts {
		if n < want {
			out.Warnings = append(out.Warnings, fewRows(out.Name, s.pool.configs[c], n, want))
		}
	}
}

func fewRows(model, config string, n, want int) trace.Finding {
	return trace.Findingf(FewRows, "%s: %s has %d training rows, guidance is %d", model, config, n, want)
}
