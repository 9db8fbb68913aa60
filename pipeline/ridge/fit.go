package ridge

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
)

// Fit is one solution and what certifies it.
type Fit struct {
	Lambda     float64
	Beta       []float64 // coefficients, beta_j = gamma_j*ybar/s_j
	Gamma      []float64 // typical share of the target each term explains
	Scale      []float64 // s_j; 0 for an all-zero column
	YBar       float64   // us
	W          float64   // sum of weights
	Active     []bool    // non-zero or free terms
	Objective  float64
	Cert       Certificate
	DF         float64   // effective degrees of freedom
	DFTerm     []float64 // their share per term, 0 outside the active set
	PriorShare []float64 // lambda*d/(1+lambda*d); NaN for an all-zero column
}

// Certificate is half the gradient of the objective at the answer, with respect
// to gamma: a minimum has none on active terms and a non-negative one on terms
// held at zero.
type Certificate struct {
	MinZero   float64 // smallest gradient over zero terms; NaN without one
	MaxActive float64 // largest |gradient| over active terms
}

// certTol is the tolerance of the gradient (spec#certificate).
const certTol = 1e-8

// OK reports whether the certificate holds.
func (c Certificate) OK() bool { return !(c.MinZero < -certTol) && c.MaxActive <= certTol }

// Solve fits one lambda on a Gram of balanced weights.
func Solve(g *Gram, lambda float64, o Options) (Fit, error) {
	s := newSolver(g.P, &o)
	s.load(g, 0)
	s.cold()
	s.solve(lambda)
	return s.fit(lambda)
}

// FitRows fits one lambda on the given rows with one weight per row of d; rows
// nil: all. W, s and ybar are those of the rows.
func FitRows(d *Data, w []float64, rows []int32, lambda float64, o Options) (Fit, error) {
	return Solve(OfRows(d, w, rows, o.Threads()), lambda, o)
}

// fit reports the last solution in full.
func (s *solver) fit(lambda float64) (Fit, error) {
	f := Fit{
		Lambda: lambda, YBar: s.ybar, W: s.w, Objective: s.objective(lambda),
		Beta: make([]float64, s.p), Gamma: make([]float64, s.p), Scale: make([]float64, s.p),
		Active: make([]bool, s.p), PriorShare: make([]float64, s.p),
	}
	s.beta(f.Beta)
	copy(f.Gamma, s.gamma)
	copy(f.Scale, s.scale)
	for j := range s.p {
		f.Active[j] = !s.zero[j] && (s.gamma[j] != 0 || s.o.IsFree(j))
		f.PriorShare[j] = math.NaN()
		if !s.zero[j] {
			ld := lambda * s.penalty(j, j)
			f.PriorShare[j] = ld / (1 + ld)
		}
	}
	f.Cert = s.certificate(lambda)
	f.DFTerm = s.degrees(lambda, f.Active)
	for _, v := range f.DFTerm {
		f.DF += v
	}
	if s.err != nil {
		return f, &Error{CertificateFailed, s.err.Error()}
	}
	if !f.Cert.OK() {
		return f, &Error{CertificateFailed, fmt.Sprintf(
			"gradient on zero terms: got %v, on active terms %v, want >= -1e-8 and <= 1e-8", f.Cert.MinZero, f.Cert.MaxActive)}
	}
	return f, nil
}

// certificate reads the gradient at the last solution, under a strong prior with
// a covariance relative to it.
func (s *solver) certificate(lambda float64) Certificate {
	c := Certificate{MinZero: math.NaN()}
	unit := 1.0
	for j := 0; s.prec != nil && j < s.p; j++ {
		unit = math.Max(unit, lambda*s.prec[j*s.p+j]*math.Max(1, math.Abs(s.prior[j])))
	}
	for j := range s.p {
		switch {
		case s.zero[j]:
		case s.gamma[j] != 0 || s.o.IsFree(j):
			c.MaxActive = math.Max(c.MaxActive, math.Abs(s.grad[j]))
		case !(c.MinZero < s.grad[j]):
			c.MinZero = s.grad[j]
		}
	}
	c.MaxActive = c.MaxActive / unit
	c.MinZero = c.MinZero / unit
	return c
}

// degrees is the diagonal of (G + lambda D)^-1 G over the active terms.
func (s *solver) degrees(lambda float64, active []bool) []float64 {
	out := make([]float64, s.p)
	var idx []int
	for j, a := range active {
		if a {
			idx = append(idx, j)
		}
	}
	m := len(idx)
	l := make([]float64, m*m)
	for r, j := range idx {
		for c, k := range idx[:r+1] {
			l[r*m+c] = s.g[j*s.p+k] + lambda*s.penalty(j, k)
		}
	}
	if stat.Cholesky(l, m) < m {
		return out
	}
	col := make([]float64, m)
	for c, k := range idx {
		for r, j := range idx {
			col[r] = s.g[j*s.p+k]
		}
		stat.CholeskySolve(l, m, col)
		out[k] = col[c]
	}
	return out
}

// Fingerprint names a coefficient set by its exact bits.
func Fingerprint(beta []float64) string {
	h := fnv.New64a()
	var b [8]byte
	for _, v := range beta {
		u := math.Float64bits(v)
		for k := range b {
			b[k] = byte(u >> (8 * k))
		}
		h.Write(b[:])
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// Sequence is the rows of one run in time order, cut into blocks.
type Sequence struct {
	Config, Run int32
	Rows        []int32
	bounds      []int // Folds+2 cut points, first 0; nil: too few rows for folds
}

// Sequences are the runs of d, cut into Folds+1 contiguous blocks, the first
// n%blocks one longer; a finding for each run with fewer rows than blocks.
func Sequences(d *Data, o Options) ([]Sequence, []Finding) {
	list := runsOf(d, d.AllRows())
	var found []Finding
	for k := range list {
		s := &list[k]
		s.bounds = BlockBounds(len(s.Rows), o.Folds+1)
		if s.bounds == nil {
			found = append(found, Finding{
				Code: TooFewRows, Config: s.Config, Run: s.Run,
				Message: fmt.Sprintf("%d rows, want at least %d: left out of the folds", len(s.Rows), o.Folds+1),
			})
		}
	}
	return list, found
}

// runsOf groups the given rows by (configuration, run) in sorted order and sorts
// each by time, ties by row.
func runsOf(d *Data, rows []int32) []Sequence {
	var list []Sequence
	for len(rows) > 0 {
		config := d.Config[rows[0]]
		run := d.RunOf(int(rows[0]))
		n := 1
		for n < len(rows) && d.Config[rows[n]] == config && d.RunOf(int(rows[n])) == run {
			n++
		}
		k := place(&list, config, run)
		list[k].Rows = append(list[k].Rows, rows[:n]...)
		rows = rows[n:]
	}
	slices.SortStableFunc(list, func(a, b Sequence) int {
		return cmp.Or(cmp.Compare(a.Config, b.Config), cmp.Compare(a.Run, b.Run))
	})
	for k := range list {
		sortByTime(d, list[k].Rows)
	}
	return list
}

// place is the position of the sequence of (config, run), appended if new.
func place(list *[]Sequence, config, run int32) int {
	k := slices.IndexFunc(*list, func(s Sequence) bool { return s.Config == config && s.Run == run })
	if k < 0 {
		k = len(*list)
		*list = append(*list, Sequence{Config: config, Run: run})
	}
	return k
}

func sortByTime(d *Data, rows []int32) {
	if d.Time == nil {
		return
	}
	byTime := func(a, b int32) int {
		return cmp.Or(cmp.Compare(d.Time[a], d.Time[b]), cmp.Compare(a, b))
	}
	if !slices.IsSortedFunc(rows, byTime) {
		slices.SortFunc(rows, byTime)
	}
}

// BlockBounds are the cut points of n rows in k blocks; nil when n < k.
func BlockBounds(n, k int) []int {
	if n < k {
		return nil
	}
	out := make([]int, k+1)
	for b := range k {
		out[b+1] = out[b] + n/k
		if b < n%k {
			out[b+1]++
		}
	}
	return out
}

// trainEnd is where fold j stops training: the end of block j less the embargo,
// which never takes more than half.
func (s *Sequence) trainEnd(j, embargo int) int {
	end := s.bounds[j+1]
	return end - min(embargo, end/2)
}

// Fold is one forward split: nothing in Train is later than Test in its run.
type Fold struct{ Train, Test []int32 }

// Folds lists the rows of each forward fold: per run, blocks 0..j less the
// embargo train and block j+1 validates. Runs with fewer rows than blocks are
// left out with a finding; an error when none is left.
func Folds(d *Data, o Options) ([]Fold, []Finding, error) {
	seqs, found := Sequences(d, o)
	if len(found) == len(seqs) {
		return nil, found, &Error{Code: TooFewRows, Msg: "no run has enough rows for the folds"}
	}
	folds := make([]Fold, o.Folds)
	for j := range folds {
		for _, s := range seqs {
			if s.bounds == nil {
				continue
			}
			folds[j].Train = append(folds[j].Train, s.Rows[:s.trainEnd(j, o.EmbargoRows)]...)
			folds[j].Test = append(folds[j].Test, s.Rows[s.bounds[j+1]:s.bounds[j+2]]...)
		}
	}
	return folds, found, nil
}

// FrozenPoint is one lambda of the frozen grid.
type FrozenPoint struct {
	Lambda       float64
	FoldRMSE     []float64 // unweighted, us
	Mean         float64
	Score        float64 // mean over folds of RMSE/sd(y), for the choice of gamma
	Fingerprints []string
}

// FrozenFit is the frozen recipe's outcome: plain ridge on raw features, bias
// penalised, no sign constraint.
type FrozenFit struct {
	Grid       []FrozenPoint
	Index      int
	Lambda     float64
	Beta       []float64 // fitted on all rows at Lambda
	DF         float64   // sum s^2/(s^2+lambda) over the singular values of sqrt(W)X
	Overfitted bool      // DF over configurations > 0.1
	Findings   []Finding
}

// FitFrozen is the recipe of the 1.0 text (spec#frozen-recipe): beta = (X'WX + lambda I)^-1 X'Wy with W the row factors,
// lambda by the smallest mean root mean squared error over forward folds.
func (d *Data) FitFrozen(o Options) (FrozenFit, error) {
	o.Lambdas = []float64{.001, .01, .1, 1, 10, 100}
	o.EmbargoRows = 0
	folds, found, err := Folds(d, o)
	if err != nil {
		return FrozenFit{}, err
	}
	w := d.factors()
	f := FrozenFit{Findings: found, Grid: make([]FrozenPoint, len(o.Lambdas))}
	if err := f.score(d, o, w, folds); err != nil {
		return FrozenFit{}, err
	}
	f.Lambda = f.Grid[f.Index].Lambda
	all := OfRows(d, w, nil, o.Threads())
	if f.Beta, err = frozenSolve(all, f.Lambda); err != nil {
		return FrozenFit{}, err
	}
	if f.DF, err = frozenDF(all, f.Lambda); err != nil {
		return FrozenFit{}, err
	}
	f.Overfitted = f.DF/float64(len(d.Configs())) > 0.1
	return f, nil
}

func (f *FrozenFit) score(d *Data, o Options, w []float64, folds []Fold) error {
	for k, lambda := range o.Lambdas {
		f.Grid[k].Lambda = lambda
	}
	for _, fold := range folds {
		g := OfRows(d, w, fold.Train, o.Threads())
		sd := deviation(d.Y, fold.Test)
		for k := range f.Grid {
			p := &f.Grid[k]
			beta, err := frozenSolve(g, p.Lambda)
			if err != nil {
				return err
			}
			rmse := math.Sqrt(squares(d, fold.Test, beta) / float64(len(fold.Test)))
			p.FoldRMSE = append(p.FoldRMSE, rmse)
			p.Score += rmse / sd / float64(len(folds))
			p.Fingerprints = append(p.Fingerprints, Fingerprint(beta))
		}
	}
	for k := range f.Grid {
		f.Grid[k].Mean = stat.Mean(f.Grid[k].FoldRMSE)
		if f.Grid[k].Mean <= f.Grid[f.Index].Mean {
			f.Index = k
		}
	}
	return nil
}

func squares(d *Data, rows []int32, beta []float64) float64 {
	var ss float64
	for _, i := range rows {
		e := d.Y[i] - Dot(d.Row(int(i)), beta)
		ss += e * e
	}
	return ss
}

// deviation is the standard deviation of y over the rows.
func deviation(y []float64, rows []int32) float64 {
	var m, ss float64
	for _, i := range rows {
		m += y[i] / float64(len(rows))
	}
	for _, i := range rows {
		ss += (y[i] - m) * (y[i] - m)
	}
	return math.Sqrt(ss / float64(len(rows)))
}

// frozenSolve is (G + lambda I)^-1 g, by Cholesky or by eigenvalues when the
// factorisation fails.
func frozenSolve(g *Gram, lambda float64) ([]float64, error) {
	p := g.P
	a := make([]float64, p*p)
	copy(a, g.G)
	for j := range p {
		a[j*p+j] += lambda
	}
	beta := append([]float64(nil), g.B...)
	if stat.Cholesky(a, p) == p {
		stat.CholeskySolve(a, p, beta)
		return beta, nil
	}
	values, vectors, err := Eigen(Symmetric(g.G, p))
	if err != nil {
		return nil, err
	}
	clear(beta)
	for k, e := range values {
		var proj float64
		for j := range p {
			proj += vectors.At(j, k) * g.B[j]
		}
		for j := range p {
			beta[j] += vectors.At(j, k) * proj / (math.Max(e, 0) + lambda)
		}
	}
	return beta, nil
}

func frozenDF(g *Gram, lambda float64) (float64, error) {
	values, _, err := Eigen(Symmetric(g.G, g.P))
	if err != nil {
		return 0, err
	}
	var df float64
	for _, e := range values {
		if e > 0 {
			df += e / (e + lambda)
		}
	}
	return df, nil
}

// Objective says which score chooses lambda.
type Objective string

// The objectives. Auto is Within for one or two configurations, else Cross.
const (
	Auto    Objective = ""
	Within  Objective = "within"  // mean forward-fold score, one-standard-error rule
	Cross   Objective = "cross"   // mean score of configurations left out
	Minimax Objective = "minimax" // worst score of configurations left out
)

// Options are the choices of a fit that do not come from its rows.
type Options struct {
	Penalty []float64 // d_j > 0, one per column
	// Precision takes the place of Penalty: the inverse covariance of the coefficients about Prior, symmetric and
	// positive definite, row-major. The penalty is then lambda (beta-prior)' Precision (beta-prior), and a column
	// without data takes what the others say of it. Interval fits do not read it.
	Precision   []float64
	Posterior   bool      // Precision is what was known before these rows: the answer is the posterior mean
	Free        []bool    // terms without sign constraint; nil: none
	Prior       []float64 // PriorOf coefficients; nil: 0
	EpsUs       float64   // floor of the weights' denominator per step, us, > 0
	Lambdas     []float64 // penalty grid, ascending, > 0
	MinCellRows int       // a regime with fewer rows joins the largest of its configuration
	Folds       int       // forward folds; blocks are one more
	EmbargoRows int       // training rows of a run dropped before a validation block
	Objective   Objective
	// SmallestWithin takes the smallest Within in place of the largest lambda within
	// one standard error of it.
	SmallestWithin bool
	// SpreadUs is the spread of the target about x.beta that interval fits expect,
	// us; 0: none, an interval pulls from outside only.
	SpreadUs float64
	// Anchor are coefficients known up to a factor: interval fits take the multiple
	// of them that meets their rows best as their prior, in place of Prior; nil: Prior.
	Anchor []float64
	// AnchorTight holds that multiple near 1, us^2: see Bounds.Multiple; 0: not at all.
	AnchorTight float64
	Draws       int // of the block bootstrap of intervals
	Seed        uint64
	SkipNested  bool // leave Selection.Nested nil: no fits with two configurations left out
	Workers     int  // goroutines; 0: all processors. Never changes a result
}

// DefaultLambdas is the grid 1e-6, 3e-6, ..., 0.3, 1.
func DefaultLambdas() []float64 {
	return []float64{1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1}
}

// DefaultOptions are the options for p columns, all signed, penalty 1, no prior.
func DefaultOptions(p int) Options {
	o := Options{Penalty: make([]float64, p), EpsUs: 50, Lambdas: DefaultLambdas(), MinCellRows: 20, Folds: 5, Draws: 500, Seed: 1}
	for j := range o.Penalty {
		o.Penalty[j] = 1
	}
	return o
}

// IsFree reports a term without a sign constraint.
func (o *Options) IsFree(j int) bool { return o.Free != nil && o.Free[j] }

// PriorOf is the prior of a term, 0 without one.
func (o *Options) PriorOf(j int) float64 {
	if o.Prior == nil {
		return 0
	}
	return o.Prior[j]
}

// Threads is how many goroutines to use.
func (o *Options) Threads() int { return par.Workers(o.Workers) }

// Finding codes and error codes of this package. The caller owns their words.
const (
	TooFewRows           = "too_few_rows"           // a run has fewer rows than blocks
	LambdaAtEdge         = "lambda_at_edge"         // the chosen lambda is the first or last of the grid
	FoldsNotDistinct     = "folds_not_distinct"     // two folds have one coefficient set
	IntervalNotConverged = "interval_not_converged" // 10,000 passes without a certificate
	CertificateFailed    = "certificate_failed"     // the gradient at the answer is not that of a minimum
)

// Finding is a coded warning that does not stop a fit.
type Finding struct {
	Code    string
	Message string
	Config  int32 // configuration it is about, -1: none
	Run     int32 // run it is about, -1: none
}

// Error is a coded failure.
type Error struct {
	Code string
	Msg  string
}

// Error is the code and the message.
func (e *Error) Error() string { return "ridge: " + e.Code + ": " + e.Msg }
