// Package describe says in a document and in words what a solved model is worth: intervals,
// what its rows tell apart, and warnings.
package fit

import (
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Model fills what every fitted model reports: choice, coefficients with
// intervals, identifiability, counts.
func Model(s *Solved, m Selections, o *OptionsOptions, name, target string) *result.Model {
	out := &result.Model{
		Name: name, SpecVersion: string(o.Spec), Recipe: o.Recipe, Target: target,
		Lambda: result.OrNull(s.Fit.Lambda), GammaEMA: result.OrNull(s.Pool.Gammas[s.Variant]), DFEff: result.OrNull(s.Fit.DF),
		Warnings: append([]trace.Finding{}, s.Findings...), NullDirections: []string{}, Loco: []result.Loco{}, Grid: []result.GridPoint{},
	}
	if m.Rel != nil {
		out.Grid = GridPoints(m.Rel)
		sel := m.Rel[s.Variant]
		out.FoldFingerprints = sel.Grid[sel.Index].Fingerprints
		out.NestedCross = result.OrNull(sel.NestedMean())
		out.Certificate = &result.Certificate{MinZeroGradient: result.OrNull(s.Fit.Cert.MinZero), MaxActiveGradient: s.Fit.Cert.MaxActive,
			OK: s.Fit.Cert.OK()}
	}
	if s.Frozen != nil {
		out.Grid = FrozenGrid(m.Frozen, s.Pool.Gammas)
		out.FoldFingerprints = s.Frozen.Grid[s.Frozen.Index].Fingerprints
	}
	if p := s.Polish; p != nil {
		out.Reweighting = &result.Reweighting{Passes: p.Passes, BiasBefore: p.BiasLS, BiasAfter: p.Bias, Kept: p.Kept}
	}
	out.Rows = RowCounts(s.Pool.Tables)
	out.Rows.Holdout = len(s.Pool.Hold)
	coefficients(s, o, out)
	boundHits(s, out)
	rowGuidance(s, out)
	return out
}

// Evidence is what the rows say about the terms of a solved model. It comes
// from rows, or from Gram matrices alone.
type Evidence struct {
	Tags   []ridge.Identification
	Conf   *ridge.Confidence // nil: no intervals
	Diag   ridge.Diagnosis
	Lo, Hi []float64 // range of each feature on training rows
	Share  []float64 // mean share of the prediction; NaN where unknown
}

// coefficients fills values, intervals and identifiability.
func coefficients(s *Solved, o *OptionsOptions, out *result.Model) {
	e := Evidence{Tags: ridge.Identify(ridge.WithinVariation(s.Train, s.Weights)), Diag: DiagnoseRows(s, o.Workers), Share: meanShares(s)}
	for j, t := range s.Terms {
		if t.Constant && len(s.Pool.Configs) == 1 {
			e.Tags[j] = ridge.IdentifiedWithin
		}
	}
	e.Conf = Confidence(s, e.Tags, o)
	e.Lo, e.Hi = rows.Ranges(s.Pool.Tables)
	e.Describe(s.Terms, s.Fit, len(s.Pool.Configs), out)
}

// Describe puts the coefficients of a fit and the warnings about them into out.
func (e *Evidence) Describe(terms []Term, fit ridge.Fit, configs int, out *result.Model) {
	out.ConditionNumber = result.OrNull(e.Diag.Condition)
	var outside []string
	for j, t := range terms {
		c := result.Coefficient{
			Coefficient: coeff.Coefficient{
				Name: t.Name, Value: fit.Beta[j], Unit: t.Unit, Identified: string(e.Tags[j]), Range: &[2]float64{e.Lo[j], e.Hi[j]},
			},
			VIF: result.OrNull(e.Diag.VIF[j]), Share: result.OrNull(e.Share[j]), ImpliedUtilisation: utilisation(&t, fit.Beta[j]),
		}
		if fit.PriorShare != nil {
			c.PriorShare = result.OrNull(fit.PriorShare[j])
		}
		if fit.DFTerm != nil {
			c.DF = result.OrNull(fit.DFTerm[j])
		}
		if e.Conf != nil {
			setInterval(&c.Coefficient, e.Conf.Terms[j], e.Conf.Posterior)
		}
		if ci := c.EstimateCI95; ci != nil && (c.Value < ci[0] || c.Value > ci[1]) {
			outside = append(outside, t.Name)
		}
		c.NotLearned = t.IsTime && (c.Value == 0 || e.Tags[j] == ridge.PriorOnly)
		out.Coefficients = append(out.Coefficients, c)
		out.Warnings = append(out.Warnings, termFindings(&t, c, configs)...)
	}
	if len(outside) > 0 {
		out.Warnings = append(out.Warnings, trace.Findingf(AtLimit,
			"%s: the penalty or the reweighting moved the value outside the 95 %% interval of the estimate", strings.Join(outside, ", ")))
	}
	if e.Conf != nil {
		out.Covariance = square(e.Conf.Covariance, len(terms))
	}
	if err := e.Diag.Err; err != nil {
		out.Warnings = append(out.Warnings, trace.Findingf(NotIdentified, "what the rows tell apart is not known: %v", err))
	}
	for _, g := range e.Diag.Null {
		sentence := NullSentence(terms, g, configs)
		out.NullDirections = append(out.NullDirections, sentence)
		out.Warnings = append(out.Warnings, trace.Finding{Code: NotIdentified, Message: sentence})
	}
}

// setInterval gives a coefficient the interval of its value and, where the value is not
// the posterior mean, the estimate without penalty with its own (spec#value-interval).
// Nothing where the rows do not say, or say nothing finite.
func setInterval(c *coeff.Coefficient, t ridge.Interval, posterior bool) {
	if t.Method == ridge.FromNothing || result.OrNull(t.Lo) == nil || result.OrNull(t.Hi) == nil {
		return
	}
	lo, hi := t.Holding(c.Value)
	c.CI95 = &[2]float64{lo, hi}
	if !posterior {
		c.Estimate, c.EstimateCI95 = result.OrNull(t.Center), &[2]float64{t.Lo, t.Hi}
	}
}

// utilisation is 1e6/coefficient for seconds-like terms (spec#utilisation).
func utilisation(t *Term, value float64) *float64 {
	switch {
	case value <= 0:
		return nil
	case t.IsTime:
		return result.OrNull(RooflinePrior / value)
	case t.PerUs:
		return result.OrNull(1 / value)
	}
	return nil
}

// termFindings are the findings about one coefficient.
func termFindings(t *Term, c result.Coefficient, configs int) []trace.Finding {
	var out []trace.Finding
	if u := c.ImpliedUtilisation; u != nil && *u > 1 && t.Name != NominalTerm {
		out = append(out, trace.Findingf(Implausible, "%s: %.3g %s means %.0f %% of the hardware's peak", t.Name, c.Value,
			c.Unit, 100**u))
	}
	if c.Identified != string(ridge.IdentifiedWithin) && c.Range[1] > 0 && configs > 1 {
		out = append(out, trace.Findingf(NotIdentified, "%s does not vary inside any configuration: its value is %s", t.Name,
			c.Identified))
	}
	if c.NotLearned && c.Range[1] > 0 {
		out = append(out, trace.Findingf(NotIdentified, "%s is %s at %.3g: these data say nothing about its cost", t.Name, c.Identified,
			c.Value))
	}
	return out
}

// Confidence is nil for recipes without block weights.
func Confidence(s *Solved, tags []ridge.Identification, o *OptionsOptions) *ridge.Confidence {
	opt := ridge.BootstrapOptions{Draws: o.Bootstraps, Level: 0.95, Seed: uint64(o.Seed)}
	switch {
	case s.Frozen != nil:
		return nil
	case s.Censored != nil:
		c := ridge.Blocks(ridge.OfIntervals(s.Train, s.Weights, *s.Censored, s.Opt), tags, s.Opt, opt)
		return &c
	case s.Opt.Posterior:
		c := ridge.Posterior(s.Train, s.Fit, s.Opt, opt)
		return &c
	}
	c := ridge.Rows(s.Train, s.Fit, tags, s.Opt, opt)
	return &c
}

// DiagnoseRows examines the training rows of a solved model.
func DiagnoseRows(s *Solved, workers int) ridge.Diagnosis {
	return DiagnoseGram(ridge.OfRows(s.Train, s.Weights, nil, workers), s.Fit)
}

// DiagnoseGram examines a Gram at a fit made with other weights or without scales.
func DiagnoseGram(g *ridge.Gram, fit ridge.Fit) ridge.Diagnosis {
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

// RelErr is sqrt of the weighted relative squared error of the hold-out.
func RelErr(s *Solved, workers int) float64 {
	if len(s.Pool.Hold) == 0 {
		return math.NaN()
	}
	hold := s.Data.Subset(s.Pool.Hold)
	return math.Sqrt(ridge.OfRows(hold, ridge.Weights(hold, s.Opt), nil, workers).Score(s.Fit.Beta))
}

// meanShares are the terms' mean shares of the prediction on training rows.
func meanShares(s *Solved) []float64 {
	sum := make([]float64, len(s.Terms))
	var total float64
	rows := s.Train.Reader()
	for i := range s.Train.Len() {
		for j, x := range rows.Row(i) {
			sum[j] += float64(x * s.Fit.Beta[j])
			total += float64(x * s.Fit.Beta[j])
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

// RowCounts adds up what tables read, kept and dropped.
func RowCounts(tables []*rows.Table) result.RowCounts {
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

// boundHits counts rows at the bound of a feature (spec#bound-hits).
func boundHits(s *Solved, out *result.Model) {
	out.BoundHits = []result.BoundHit{}
	hits := make([]int, len(s.Terms))
	read := 0
	for _, t := range s.Pool.Tables {
		read += t.Read
		for j, n := range t.Hits {
			hits[j] += n
		}
	}
	for j, n := range hits {
		if n == 0 {
			continue
		}
		h := result.BoundHit{Name: s.Terms[j].Name, Rows: n, Share: float64(n) / float64(read)}
		out.BoundHits = append(out.BoundHits, h)
		if h.Share > 0.001 {
			out.Warnings = append(out.Warnings, trace.Findingf(AtLimit, "%s: %d of %d rows hit its bound (%.2g %%)", h.Name, n, read,
				100*h.Share))
		}
	}
}

// rowGuidance warns about configurations with little data.
func rowGuidance(s *Solved, out *result.Model) {
	want := guidanceAlpha
	if out.Name == "beta" {
		want = GuidanceBeta
	}
	counts := make([]int, len(s.Pool.Configs))
	for _, c := range s.Train.Config {
		counts[c]++
	}
	for c, n := range counts {
		if n < want {
			out.Warnings = append(out.Warnings, FewRows(out.Name, s.Pool.Configs[c], n, want))
		}
	}
}
