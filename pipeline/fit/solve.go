package fit

import (
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Solved is a fitted linear model on a pool: what every result.Model is made from.
type Solved struct {
	Terms    []Term
	Pool     *Pool
	Opt      ridge.Options
	Variant  int
	Sel      *ridge.Selection // nil for the frozen recipe and for fixed coefficients
	Frozen   *ridge.FrozenFit // Frozen recipe
	Fit      ridge.Fit        // what is published
	Polish   *ridge.Polish
	Censored *ridge.CensoredFit // interval targets
	Weights  []float64          // of the training rows (spec#weights)
	Data     *ridge.Data        // all rows, chosen variant
	Train    *ridge.Data        // training rows, chosen variant
	Pred     []float64          // of every row of data
	on       [][]float64        // coefficients by configuration; nil: those of fit everywhere
	Findings []trace.Finding
}

// SolveRelative fits the chosen variant at the selection's lambda and polishes.
func (s *Solved) SolveRelative(variant int, sel *ridge.Selection, refitAll bool) error {
	s.Variant, s.Sel = variant, sel
	s.Data = s.Pool.Data.With(variant)
	rows := s.Pool.Train
	if refitAll {
		rows = nil
	}
	s.Train = s.Data
	if rows != nil {
		s.Train = s.Data.Subset(rows)
	}
	s.Weights = ridge.Weights(s.Train, s.Opt)
	ls, err := ridge.FitRows(s.Train, s.Weights, nil, sel.Lambda, s.Opt)
	if err != nil {
		return err
	}
	if s.Fit, s.Polish, err = Published(s.Train, s.Weights, ls, s.Opt); err != nil {
		return err
	}
	s.Pred = ridge.Predict(s.Data, s.Fit.Beta)
	return nil
}

// Published is what a least-squares fit with weights w becomes: the posterior mean with
// a prior of known precision (spec#posterior), else the fit after the reweighting passes
// (spec#reweighting) with how they went.
func Published(d *ridge.Data, w []float64, ls ridge.Fit, o ridge.Options) (ridge.Fit, *ridge.Polish, error) {
	if o.Posterior {
		fit, err := ridge.PosteriorMean(d, ls, o)
		return fit, nil, err
	}
	p, err := ridge.Reweight(d, w, ls, o)
	if err != nil {
		return ls, nil, err
	}
	return p.Best(), &p, nil
}

// solveFrozen is the frozen recipe on the training rows.
func (s *Solved) solveFrozen(variant int) error {
	s.Variant = variant
	s.Data = s.Pool.Data.With(variant)
	s.Train = s.Data.Subset(s.Pool.Train)
	f, err := ridge.Frozen(s.Train, s.Opt)
	if err != nil {
		return err
	}
	s.Frozen = &f
	s.Fit = ridge.Fit{Lambda: f.Lambda, Beta: f.Beta, DF: f.DF}
	s.Weights = s.Train.Factor
	s.Pred = ridge.Predict(s.Data, f.Beta)
	return nil
}

// GridPoints is the selection's grid for every gamma.
func GridPoints(sels []ridge.Selection) []result.GridPoint {
	var out []result.GridPoint
	for _, s := range sels {
		for _, p := range s.Grid {
			out = append(out, result.GridPoint{Lambda: p.Lambda, GammaEMA: s.Gamma, Within: result.OrNull(p.Within),
				Cross: result.OrNull(p.Cross), SE: result.OrNull(p.SE)})
		}
	}
	return out
}

// FrozenGrid is the same for the frozen recipe: its score is RMSE in us.
func FrozenGrid(fits []ridge.FrozenFit, gammas []float64) []result.GridPoint {
	var out []result.GridPoint
	for g, f := range fits {
		for _, p := range f.Grid {
			out = append(out, result.GridPoint{Lambda: p.Lambda, GammaEMA: gammas[g], Within: result.OrNull(p.Mean)})
		}
	}
	return out
}

// Names of the terms, in order.
func (s *Solved) Names() []string {
	out := make([]string, len(s.Terms))
	for j, t := range s.Terms {
		out[j] = t.Name
	}
	return out
}

// codeOf maps ridge's codes to ours.
var codeOf = map[string]trace.Code{
	ridge.TooFewRows: OptionsFewRows, ridge.LambdaAtEdge: AtLimit, ridge.FoldsNotDistinct: OptionsFewRows,
	ridge.IntervalNotConverged: NotConverged, ridge.CertificateFailed: NotConverged,
}

// Words turns ridge's findings into ours, with names for labels.
func (p *Pool) Words(found []ridge.Finding) []trace.Finding {
	var out []trace.Finding
	for _, f := range found {
		msg := f.Message
		switch {
		case f.Run >= 0 && int(f.Run) < len(p.Runs):
			msg = "run " + p.Runs[f.Run] + ": " + msg
		case f.Config >= 0 && int(f.Config) < len(p.Configs):
			msg = "configuration " + p.Configs[f.Config] + ": " + msg
		}
		out = append(out, trace.Finding{Code: codeOf[f.Code], Message: msg})
	}
	return out
}
