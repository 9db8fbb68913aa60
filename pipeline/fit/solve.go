package fit

import (
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/ridge/cells"
	"github.com/blis-train/blis-train/pipeline/ridge/cv"
	"github.com/blis-train/blis-train/pipeline/ridge/gram"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// term is one column of a linear model, for ridge and for people.
type term struct {
	name, unit string
	penalty    float64
	free       bool
	isTime     bool    // value in seconds: 1e6/coefficient is a utilisation
	perUs      bool    // value in us at peak: 1/coefficient is a utilisation
	prompt     bool    // mostly work on prompt tokens
	constant   bool    // 1 in every row: one configuration's level shows it, its variation cannot
	prior      float64 // prior coefficient
}

// solved is a fitted linear model on a pool: what every result.Model is made from.
type solved struct {
	terms    []term
	pool     *pool
	opt      ridge.Options
	variant  int
	sel      *cv.Selection // nil for the frozen recipe and for fixed coefficients
	frozen   *cv.FrozenFit // frozen recipe
	fit      ridge.Fit     // what is published
	polish   *ridge.Polish
	censored *ridge.CensoredFit // interval targets
	weights  []float64          // V-2 weights of the training rows
	data     *gram.Data         // all rows, chosen variant
	train    *gram.Data         // training rows, chosen variant
	pred     []float64          // of every row of data
	on       [][]float64        // coefficients by configuration; nil: those of fit everywhere
	findings []trace.Finding
}

// ridgeOptions are the options of a model over the given terms.
func ridgeOptions(terms []term, epsUs float64, o Options) ridge.Options {
	ro := ridge.DefaultOptions(len(terms))
	ro.EpsUs = epsUs
	ro.Free = make([]bool, len(terms))
	ro.Prior = make([]float64, len(terms))
	for j, t := range terms {
		ro.Penalty[j], ro.Free[j], ro.Prior[j] = t.penalty, t.free, t.prior
	}
	ro.Objective = ridge.Objective(o.Objective)
	ro.Workers = o.Workers
	return ro
}

// solveRelative fits the chosen variant at the selection's lambda and polishes.
func (s *solved) solveRelative(variant int, sel *cv.Selection, refitAll bool) error {
	s.variant, s.sel = variant, sel
	s.data = s.pool.data.With(variant)
	rows := s.pool.train
	if refitAll {
		rows = nil
	}
	s.train = s.data
	if rows != nil {
		s.train = s.data.Subset(rows)
	}
	s.weights = cells.Weights(s.train, s.opt)
	ls, err := ridge.FitRows(s.train, s.weights, nil, sel.Lambda, s.opt)
	if err != nil {
		return err
	}
	p, err := ridge.Reweight(s.train, s.weights, ls, s.opt)
	if err != nil {
		return err
	}
	s.polish, s.fit = &p, p.Best()
	s.pred = gram.Predict(s.data, s.fit.Beta)
	return nil
}

// solveFrozen is the frozen recipe on the training rows.
func (s *solved) solveFrozen(variant int) error {
	s.variant = variant
	s.data = s.pool.data.With(variant)
	s.train = s.data.Subset(s.pool.train)
	f, err := cv.Frozen(s.train, s.opt)
	if err != nil {
		return err
	}
	s.frozen = &f
	s.fit = ridge.Fit{Lambda: f.Lambda, Beta: f.Beta, DF: f.DF}
	s.weights = s.train.Factor
	s.pred = gram.Predict(s.data, f.Beta)
	return nil
}

// gridPoints is the selection's grid for every gamma.
func gridPoints(sels []cv.Selection) []result.GridPoint {
	var out []result.GridPoint
	for _, s := range sels {
		for _, p := range s.Grid {
			out = append(out, result.GridPoint{Lambda: p.Lambda, GammaEMA: s.Gamma, Within: num(p.Within), Cross: num(p.Cross), SE: num(p.SE)})
		}
	}
	return out
}

// frozenGrid is the same for the frozen recipe: its score is RMSE in us.
func frozenGrid(fits []cv.FrozenFit, gammas []float64) []result.GridPoint {
	var out []result.GridPoint
	for g, f := range fits {
		for _, p := range f.Grid {
			out = append(out, result.GridPoint{Lambda: p.Lambda, GammaEMA: gammas[g], Within: num(p.Mean)})
		}
	}
	return out
}

// num is short for what every figure of the document goes through.
func num(v float64) *float64 { return result.OrNull(v) }

// names of the terms, in order.
func (s *solved) names() []string {
	out := make([]string, len(s.terms))
	for j, t := range s.terms {
		out[j] = t.name
	}
	return out
}

// codeOf maps ridge's codes to ours.
var codeOf = map[string]trace.Code{
	ridge.TooFewRows: TooFewRows, ridge.LambdaAtEdge: LambdaEdge, ridge.FoldsNotDistinct: FoldsRepeat,
	ridge.IntervalNotConverged: NoInterval, ridge.CertificateFailed: CertificateFails,
}

// words turns ridge's findings into ours, with names for labels.
func (p *pool) words(found []ridge.Finding) []trace.Finding {
	var out []trace.Finding
	for _, f := range found {
		msg := f.Message
		switch {
		case f.Run >= 0 && int(f.Run) < len(p.runs):
			msg = "run " + p.runs[f.Run] + ": " + msg
		case f.Config >= 0 && int(f.Config) < len(p.configs):
			msg = "configuration " + p.configs[f.Config] + ": " + msg
		}
		out = append(out, trace.Finding{Code: codeOf[f.Code], Message: msg})
	}
	return out
}
