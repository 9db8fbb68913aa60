package fit

// This file describes a solved model as fit.json has it: coefficients with intervals and
// identifiability, numbers of rows, and the warnings about them.

import (
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Model returns the part of fit.json that all linear models have: the chosen hyperparameters, the
// coefficients with intervals and identifiability, and the numbers of rows.
func Model(s *Solved, m Selections, o *Options, name, target string) *result.Model {
	out := &result.Model{
		Name:           name,
		SpecVersion:    string(o.Spec),
		Recipe:         o.Recipe,
		Target:         target,
		Lambda:         result.OrNull(s.Fit.Lambda),
		GammaEMA:       result.OrNull(s.Pool.Gammas[s.Variant]),
		DFEff:          result.OrNull(s.Fit.DF),
		Warnings:       ofModel(name, s.Findings),
		NullDirections: []string{},
		Loco:           []result.Loco{},
		Grid:           []result.GridPoint{},
	}
	if m.Rel != nil {
		out.Grid = GridPoints(m.Rel)
		sel := m.Rel[s.Variant]
		out.FoldFingerprints = sel.Grid[sel.Index].Fingerprints
		out.NestedCross = result.OrNull(sel.NestedMean())
		out.Certificate = certificateOf(&s.Fit)
	}
	if s.Frozen != nil {
		out.Grid = FrozenGrid(m.Frozen, s.Pool.Gammas)
		out.FoldFingerprints = s.Frozen.Grid[s.Frozen.Index].Fingerprints
	}
	if p := s.Polish; p != nil {
		out.Reweighting = &result.Reweighting{
			Passes:     p.Passes,
			BiasBefore: result.OrNull(p.BiasLS),
			BiasAfter:  result.OrNull(p.Bias),
			Kept:       p.Kept,
		}
	}
	out.Rows = RowCounts(s.Pool.Tables)
	out.Rows.Holdout = len(s.Pool.Hold)
	describeCoefficients(s, o, out)
	if m.Rel != nil {
		setFoldSpreads(out, &m.Rel[s.Variant])
	}
	warnRepeatedFolds(out)
	countBoundHits(s, out)
	warnFewRows(s, out)
	if name != "beta" { // several models have these terms
		out.Warnings = ofModel(name, out.Warnings)
	}
	return out
}

// ofModel returns findings about a model with its name before each sentence that does not begin with it.
func ofModel(name string, found []trace.Finding) []trace.Finding {
	named := []trace.Finding{}
	for _, f := range found {
		if prefix := name + ": "; !strings.HasPrefix(f.Message, prefix) {
			f.Message = prefix + f.Message
		}
		named = append(named, f)
	}
	return named
}

// certificateOf returns the solver's certificate (that no change of a coefficient lowers the loss)
// in the form of fit.json.
func certificateOf(fit *ridge.Fit) *result.Certificate {
	return &result.Certificate{
		MinZeroGradient:   result.OrNull(fit.Cert.MinZero),
		MaxActiveGradient: fit.Cert.MaxActive,
		OK:                fit.Cert.OK(),
	}
}

// setFoldSpreads sets the smallest and largest value of every coefficient over the
// folds (spec#fold-spread).
func setFoldSpreads(out *result.Model, sel *ridge.Selection) {
	for j := range out.Coefficients {
		lo, hi := math.Inf(1), math.Inf(-1)
		for _, beta := range sel.FoldBetas {
			lo = math.Min(lo, beta[j])
			hi = math.Max(hi, beta[j])
		}
		if lo <= hi {
			out.Coefficients[j].FoldSpread = &[2]float64{lo, hi}
		}
	}
}

// termEvidence is what the data show about the terms of a solved model. It is
// computed from rows or from Gram matrices alone.
type termEvidence struct {
	Tags   []string          // result.Coefficient.Identified of each term
	Conf   *ridge.Confidence // nil: no intervals
	Diag   ridge.Diagnosis
	Lo, Hi []float64 // range of each feature on training rows
	Share  []float64 // mean share of the prediction; NaN if unknown
	// Longest is the largest target of one step or wait, us; 0 for Gram matrices.
	Longest float64
}

// describeCoefficients sets the values, intervals and identifiability of a model
// solved from rows.
func describeCoefficients(s *Solved, o *Options, out *result.Model) {
	e := termEvidence{
		Tags:  ridge.Identify(s.Train.WithinVariation(s.Weights)),
		Diag:  DiagnoseRows(s, o.Workers),
		Share: meanShares(s),
	}
	// Identify looks for variation inside a configuration. A constant has none, but the rows of a single
	// configuration determine it all the same.
	for j, t := range s.Terms {
		if t.Constant && len(s.Pool.Configs) == 1 {
			e.Tags[j] = coeff.Within
		}
	}
	e.Conf = Confidence(s, e.Tags)
	e.Lo, e.Hi = rows.Ranges(s.Pool.Tables)
	for _, t := range s.Pool.Tables {
		for _, us := range perStep(t, t.Y) {
			e.Longest = max(e.Longest, us)
		}
	}
	e.Describe(s.Terms, s.Fit, len(s.Pool.Configs), out)
}

// mostOfLongest limits intervals (spec#confidence): a term at its largest feature
// value contributes at most this many times the longest target.
const mostOfLongest = 2

// Describe sets the coefficients, their covariance and the condition number of a fit to `configs`
// configurations, and appends the warnings about them.
func (e *termEvidence) Describe(terms []Term, fit ridge.Fit, configs int, out *result.Model) {
	out.ConditionNumber = result.OrNull(e.Diag.Condition)
	var outside []string // terms whose published value lies outside the interval of their estimate
	for j, t := range terms {
		c := result.Coefficient{
			Coefficient: coeff.Coefficient{
				Name:       t.Name,
				Value:      fit.Beta[j],
				Unit:       t.Unit,
				Identified: e.Tags[j],
				Range:      &[2]float64{e.Lo[j], e.Hi[j]},
			},
			VIF:                result.OrNull(e.Diag.VIF[j]),
			Share:              result.OrNull(e.Share[j]),
			ImpliedUtilisation: impliedUtilisation(&t, fit.Beta[j]),
		}
		if fit.PriorShare != nil {
			c.PriorShare = result.OrNull(fit.PriorShare[j])
		}
		if fit.DFTerm != nil {
			c.DF = result.OrNull(fit.DFTerm[j])
		}
		if e.Conf != nil {
			interval := e.Conf.Terms[j]
			// A term that is nearly always 0 can have an interval of any width. It is cut where the term alone
			// would be twice the longest target. From Gram matrices Longest is not known (0) and nothing is cut.
			most := mostOfLongest * e.Longest / e.Hi[j]
			if most > 0 && !math.IsInf(most, 1) {
				interval.Lo = max(-most, min(interval.Lo, most))
				interval.Hi = max(-most, min(interval.Hi, most))
				interval.Center = max(-most, min(interval.Center, most))
			}
			setInterval(&c.Coefficient, interval, e.Conf.Posterior)
		}
		if ci := c.EstimateCI95; ci != nil && (c.Value < ci[0] || c.Value > ci[1]) {
			outside = append(outside, t.Name)
		}
		c.NotLearned = t.IsTime && (c.Value == 0 || e.Tags[j] == coeff.PriorOnly)
		out.Coefficients = append(out.Coefficients, c)
		out.Warnings = append(out.Warnings, termFindings(&t, c, configs, out.Name == "beta")...)
	}
	if len(outside) > 0 {
		out.Warnings = append(out.Warnings, trace.Finding{Code: AtLimit, Message: report.OutsideInterval(outside)})
	}
	if e.Conf != nil {
		p := len(terms)
		for j := range p {
			out.Covariance = append(out.Covariance, e.Conf.Covariance[j*p:(j+1)*p])
		}
	}
	if err := e.Diag.Err; err != nil {
		out.Warnings = append(out.Warnings, trace.Finding{Code: NotIdentified, Message: report.SeparationFailed(err)})
	}
	for _, g := range e.Diag.Null {
		sentence := notSeparated(terms, g)
		out.NullDirections = append(out.NullDirections, sentence)
		out.Warnings = append(out.Warnings, trace.Finding{Code: NotIdentified, Message: sentence})
	}
}

// setInterval sets the interval of a coefficient's value. If the value is not a
// posterior mean, it also sets the estimate without penalty and the interval of that
// (spec#value-interval). It sets nothing if the interval is not finite.
func setInterval(c *coeff.Coefficient, t ridge.Interval, posterior bool) {
	if t.Method == ridge.FromNothing || result.OrNull(t.Lo) == nil || result.OrNull(t.Hi) == nil {
		return
	}
	lo, hi := t.Holding(c.Value)
	c.CI95 = &[2]float64{lo, hi}
	if posterior {
		c.CI95Given = coeff.GivenPrior
	} else {
		c.Estimate = result.OrNull(t.Center)
		c.EstimateCI95 = &[2]float64{t.Lo, t.Hi}
	}
}

// impliedUtilisation returns the share of the hardware's peak at which the work of a term
// would run (spec#utilisation); nil for terms that are not times at peak.
func impliedUtilisation(t *Term, value float64) *float64 {
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

// Confidence returns the intervals of a solved model; nil for the frozen recipe, which has no
// weights by block.
func Confidence(s *Solved, tags []string) *ridge.Confidence {
	switch {
	case s.Frozen != nil:
		return nil
	case s.Censored != nil:
		return new(ridge.Blocks(s.Censored.Blocks(s.Train, s.Weights, s.Opt), tags, s.Opt))
	case s.Opt.Posterior:
		return new(s.Train.Posterior(s.Fit, s.Opt))
	}
	return new(s.Train.Confidence(s.Fit, tags, s.Opt))
}

// DiagnoseRows returns diagnostics of the training rows of a solved model.
func DiagnoseRows(s *Solved, workers int) ridge.Diagnosis {
	return DiagnoseGram(ridge.OfRows(s.Train, s.Weights, nil, workers), s.Fit)
}

// DiagnoseGram returns diagnostics of a Gram matrix (sums of products of rows) at a fit. Scales are
// those of the Gram matrix, because the fit may have used other weights or, in the frozen recipe, no
// scales; then Gamma, the coefficients in units of the scales, is computed here as well.
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
	return g.Diagnose(fit)
}

// meanShares returns the terms' mean shares of the prediction on training rows.
func meanShares(s *Solved) []float64 {
	sum := make([]float64, len(s.Terms))
	var total float64
	for i := range s.Train.Len() {
		for j, x := range s.Train.Row(i) {
			sum[j] += x * s.Fit.Beta[j]
			total += x * s.Fit.Beta[j]
		}
	}
	for j := range sum {
		sum[j] /= total
	}
	return sum
}

// noRowCounts returns row counts without nil fields, which fit.json would write as null.
func noRowCounts() result.RowCounts {
	return result.RowCounts{
		Dropped:  map[string]int{},
		ByRun:    []result.RunRows{},
		ByRegime: []result.RegimeRows{},
	}
}

// RowCounts returns the sums of the rows that the tables read, kept and dropped.
func RowCounts(tables []*rows.Table) result.RowCounts {
	out := noRowCounts()
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

// countRegimes adds the kept rows of a table by configuration and regime.
func countRegimes(out *result.RowCounts, t *rows.Table) {
	for i := range t.Kept {
		name := t.Regime[i].String()
		k := slices.IndexFunc(out.ByRegime, func(r result.RegimeRows) bool {
			return r.Config == t.Config && r.Regime == name
		})
		if k < 0 {
			k = len(out.ByRegime)
			out.ByRegime = append(out.ByRegime, result.RegimeRows{Config: t.Config, Regime: name})
		}
		out.ByRegime[k].Rows++
		out.ByRegime[k].Steps += int(t.Steps[i])
	}
}

// mostBoundHits is the share of rows at the bound of a feature above which the fit warns. The gate
// bound_hits of validate fails above ten times as many.
const mostBoundHits = 0.001

// countBoundHits counts the rows in which a feature was larger than its bound, and which were dropped
// for that (spec#bound-hits).
func countBoundHits(s *Solved, out *result.Model) {
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
		if h.Share > mostBoundHits {
			out.Warnings = append(out.Warnings, trace.Finding{Code: AtLimit, Message: report.AtFeatureBound(h.Name, n, read)})
		}
	}
}
