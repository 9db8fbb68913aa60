package fit

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Constants of the weights (spec#weights), us per step.
const (
	EpsBetaUs      = 50
	EpsAlphaUs     = 1000
	EpsAdmissionUs = 1e6
)

// RooflinePrior is the coefficient of a time-like term at the hardware's peak (spec#peaks), us/s.
const RooflinePrior = 1e6

// FeatureTerms are the terms of a physics model over the given number of configurations.
func FeatureTerms(fs []features.Feature, configs int, prior string) []Term {
	out := make([]Term, len(fs))
	for j := range fs {
		f := &fs[j]
		out[j] = Term{Name: f.Name, Unit: f.CoefficientUnit(), penalty: f.PenaltyIn(configs), free: f.Free, Prompt: f.Prompt, IsTime: f.IsTime()}
		if prior == PriorRoofline && f.IsTime() {
			out[j].prior = RooflinePrior
		}
	}
	return out
}

// AlphaTerms are the terms of a delay over the given number of configurations.
// Their seconds are nominal: a delay is host work, so neither a prior at the
// hardware's peak nor a utilisation has a meaning.
func AlphaTerms(fs []features.Feature, configs int) []Term {
	out := FeatureTerms(fs, configs, PriorZero)
	for j := range out {
		out[j].IsTime = false
	}
	return out
}

// BasisTerms are the non-negative terms of a basis. The constant of a fit over
// several configurations is penalised like the bias.
func BasisTerms(name string, configs int) []Term {
	list, constant := features.BlackboxBeta, 0
	switch name {
	case TrainedPhysics:
		list = features.TrainedPhysicsBeta()
		constant = features.PerStep
	case Linear3:
		list = linear3Terms
	}
	out := stat.Map(list, func(t features.Term) Term {
		return Term{Name: t.Name, Unit: t.Unit, penalty: 1, PerUs: t.Unit == "dimensionless"}
	})
	if configs > 1 && name == TrainedPhysics {
		out[constant].penalty = 100
	}
	out[constant].Constant = name == Linear3
	return out
}

// NominalTerm is the time-like term whose second is nominal, not the hardware's.
const NominalTerm = "fixed_step_overhead"

// Term is one column of a linear model, for ridge and for people.
type Term struct {
	Name, Unit string
	penalty    float64
	free       bool
	IsTime     bool    // value in seconds: 1e6/coefficient is a utilisation
	PerUs      bool    // value in us at peak: 1/coefficient is a utilisation
	Prompt     bool    // mostly work on prompt tokens
	Constant   bool    // 1 in every row: one configuration's level shows it, its variation cannot
	prior      float64 // prior coefficient
}

// RidgeOptions are the options of a model over the given terms.
func RidgeOptions(terms []Term, epsUs float64, o Options) ridge.Options {
	ro := ridge.DefaultOptions(len(terms))
	ro.EpsUs = epsUs
	ro.Free = make([]bool, len(terms))
	ro.Prior = make([]float64, len(terms))
	for j, t := range terms {
		ro.Penalty[j], ro.Free[j], ro.Prior[j] = t.penalty, t.free, t.prior
	}
	ro.Objective = ridge.Objective(o.Objective)
	ro.Workers = o.Workers
	ro.Draws = o.Bootstraps
	ro.Seed = uint64(o.Seed)
	return ro
}

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
	s.Train = s.Data
	if !refitAll {
		s.Train = s.Data.Subset(s.Pool.Train)
	}
	s.Weights = ridge.Weights(s.Train, s.Opt)
	var err error
	if s.Fit, s.Polish, err = ridge.FitPublished(s.Train, s.Weights, sel.Lambda, s.Opt); err != nil {
		return err
	}
	s.Pred = ridge.Predict(s.Data, s.Fit.Beta)
	return nil
}

// solveFrozen is the frozen recipe on the training rows.
func (s *Solved) solveFrozen(variant int) error {
	s.Variant = variant
	s.Data = s.Pool.Data.With(variant)
	s.Train = s.Data.Subset(s.Pool.Train)
	f, err := s.Train.FitFrozen(s.Opt)
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
	return stat.Map(s.Terms, func(t Term) string { return t.Name })
}

// codeOf maps ridge's codes to ours.
var codeOf = map[string]trace.Code{
	ridge.TooFewRows: CodeFewRows, ridge.LambdaAtEdge: AtLimit, ridge.FoldsNotDistinct: CodeFewRows,
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

// Selections scores the grid of one model for every gamma.
type Selections struct {
	Rel    []ridge.Selection // relative recipe
	Frozen []ridge.FrozenFit // Frozen recipe
}

// scores are what gamma is chosen by (spec#gamma-choice); the frozen recipe has one score a gamma.
func (m Selections) scores(gammas []float64) []ridge.Selection {
	if m.Rel != nil {
		return m.Rel
	}
	out := make([]ridge.Selection, len(m.Frozen))
	for g, f := range m.Frozen {
		score := f.Grid[f.Index].Score
		out[g] = ridge.Selection{Gamma: gammas[g], Grid: []ridge.Point{{Within: score, FoldScores: []float64{score}}}}
	}
	return out
}

// Choose scores the grid of a plain (not interval) target.
func (s *Solved) Choose(recipe, name string) (m Selections, err error) {
	train := s.Pool.TrainData()
	if recipe == Relative {
		m.Rel, err = ridge.Select(train, s.Opt)
		if err != nil {
			return m, fmt.Errorf("%s: %w", name, err)
		}
		return m, nil
	}
	for g := range s.Pool.Gammas {
		fit, err := train.With(g).FitFrozen(s.Opt)
		if err != nil {
			return m, fmt.Errorf("%s: %w", name, err)
		}
		m.Frozen = append(m.Frozen, fit)
	}
	return m, nil
}

// SolveAt solves a plain target at a gamma.
func (s *Solved) SolveAt(m Selections, gamma int, refitAll bool) error {
	if m.Rel != nil {
		s.Findings = append(s.Findings, s.Pool.Words(m.Rel[gamma].Findings)...)
		return s.SolveRelative(gamma, &m.Rel[gamma], refitAll)
	}
	if err := s.solveFrozen(gamma); err != nil {
		return err
	}
	s.Findings = append(s.Findings, s.Pool.Words(s.Frozen.Findings)...)
	if s.Frozen.Overfitted {
		s.Findings = append(s.Findings, trace.Findingf(CodeFewRows, "effective degrees of freedom %.2f over %d configurations",
			s.Frozen.DF, len(s.Pool.Configs)))
	}
	return nil
}

// linear3Terms are those of the three-parameter queueing models' iteration:
//
//	step_us = alpha + beta * tokens computed + gamma * KV tokens read
//
// A sequence with c tokens in KV of which n are new this step computes n and
// reads c + n.
var linear3Terms = []features.Term{
	{Name: "alpha", Unit: "us/step", Doc: "constant"},
	{Name: "beta", Unit: "us/token", Doc: "tokens computed in the step, prefill and decode"},
	{Name: "gamma", Unit: "us/token", Doc: "KV tokens read: the context of every sequence, its new tokens included"},
}

// Deployments says what every configuration and deployment of the fit needs
// on top of the common coefficients (docs/decisions/0009), and applies it to the
// predictions. label is the deployment behind each configuration label. Runs of one deployment differ, since a machine is not always
// equally fast: what they say is pooled twice, around 1 by deployment and around
// its deployment by configuration, and shrunk by how much runs of one deployment
// differ from each other.
func Deployments(s *Solved, label []string, out *result.Model) {
	if s.Frozen != nil {
		return
	}
	byRun := totalsByRun(s)
	deployments := newGroups(byRun, func(t *runTotals) string { return label[t.config] })
	configs := newGroups(byRun, func(t *runTotals) string { return s.Pool.Configs[t.config] })
	ofDeployment := make([][2]float64, len(deployments.names))
	ofConfig := make([][2]float64, len(configs.names))
	for k := range 2 {
		logs := make([]float64, len(byRun))
		for r := range byRun {
			if byRun[r].rows > 0 {
				logs[r] = byRun[r].logs()[k]
			}
		}
		spread := deployments.variance(logs)
		around := deployments.pool(logs, spread)
		for r, g := range deployments.of {
			if g >= 0 {
				logs[r] -= around[g]
			}
		}
		for g, v := range around {
			ofDeployment[g][k] = v
		}
		for g, v := range configs.pool(logs, spread) {
			ofConfig[g][k] = v + around[deployments.of[configs.members[g][0]]]
		}
	}
	for g, name := range deployments.names {
		out.DeploymentFactors = append(out.DeploymentFactors, factorEntry(name, "", ofDeployment[g], byRun, deployments.members[g]))
	}
	for g, name := range configs.names {
		deployment := deployments.names[deployments.of[configs.members[g][0]]]
		out.DeploymentFactors = append(out.DeploymentFactors, factorEntry(deployment, name, ofConfig[g], byRun, configs.members[g]))
	}
	stat.SortStable(out.DeploymentFactors, func(a, b result.DeploymentFactor) int { return strings.Compare(a.Name(), b.Name()) })
	s.ScaleBy(out.DeploymentFactors)
}

func factorEntry(deployment, config string, logs [2]float64, byRun []runTotals, members []int) result.DeploymentFactor {
	d := result.DeploymentFactor{Deployment: deployment, Config: config, Factor: math.Exp(logs[0]),
		Prompt: math.Exp(logs[1] - logs[0]), Runs: len(members)}
	for _, r := range members {
		d.Rows += byRun[r].rows
	}
	return d
}

// groups are runs by name, in order of first appearance; runs without training
// rows are in none.
type groups struct {
	names   []string
	members [][]int // positions of runs, by group
	of      []int   // group of each run, -1: none
}

func newGroups(byRun []runTotals, name func(*runTotals) string) groups {
	var g groups
	for r := range byRun {
		k := -1
		if byRun[r].rows > 0 {
			n := name(&byRun[r])
			if k = slices.Index(g.names, n); k < 0 {
				k = len(g.names)
				g.names = append(g.names, n)
				g.members = append(g.members, nil)
			}
			g.members[k] = append(g.members[k], r)
		}
		g.of = append(g.of, k)
	}
	return g
}

func (g *groups) values(v []float64, k int) []float64 {
	return stat.Map(g.members[k], func(r int) float64 { return v[r] })
}

// variance of the values around the median of their group, by the mean distance:
// a recording from a slow hour weighs less than in a mean square. 0 when no group
// has two.
func (g *groups) variance(v []float64) float64 {
	var away float64
	n, freedom := 0, 0
	for k := range g.names {
		own := g.values(v, k)
		if len(own) < 2 {
			continue
		}
		centre := stat.Median(own)
		for _, x := range own {
			away += math.Abs(x - centre)
		}
		n, freedom = n+len(own), freedom+len(own)-1
	}
	if freedom == 0 {
		return 0
	}
	mean := away / float64(n)
	return math.Pi / 2 * mean * mean * float64(n) / float64(freedom) // pi/2: variance over squared mean distance of a normal distribution
}

// pool is the median of every group, shrunk towards 0: by spread/n against the
// variance of the medians that spread does not explain (random effects). Without
// a spread, and for one group, medians stand as they are. The median of runs
// keeps one recording from a slow hour from setting the pace of all.
func (g *groups) pool(v []float64, spread float64) []float64 {
	out := make([]float64, len(g.names))
	var between float64
	for k := range g.names {
		out[k] = stat.Median(g.values(v, k))
		between += (out[k]*out[k] - spread/float64(len(g.members[k]))) / float64(len(g.names))
	}
	if spread == 0 || len(g.names) == 1 {
		return out
	}
	between = math.Max(0, between)
	for k := range out {
		out[k] *= between / (between + spread/float64(len(g.members[k])))
	}
	return out
}

// leastShare is the smallest factor of prompt work relative to the rest that one
// run's rows are believed to show; below it, too few of its steps hold prompts.
const leastShare = 0.2

// runTotals are the measured and predicted times of one run's training rows, us:
// [0] of decode steps, [1] of steps with prompts.
type runTotals struct {
	config       int32
	rows         int
	y            [2]float64
	rest, prompt [2]float64 // predicted by the terms that are not, and are, prompt work
}

// totalsByRun adds up the training rows of every run, in order of run labels; a saturated run has none here.
func totalsByRun(s *Solved) []runTotals {
	out := make([]runTotals, len(s.Pool.Runs))
	saturated := make([]bool, len(s.Pool.Runs))
	for r := range saturated {
		saturated[r] = s.Pool.saturated(int32(r))
	}
	for i, r := range s.Train.Run {
		if saturated[r] {
			continue
		}
		t, k := &out[r], 0
		if s.Train.Regime[i] != int32(rows.Decode) {
			k = 1
		}
		rest, prompt := splitPrompt(s, s.Train.Row(i))
		t.config = s.Train.Config[i]
		t.rows++
		t.y[k] += s.Train.Y[i]
		t.rest[k] += rest
		t.prompt[k] += prompt
	}
	return out
}

// splitPrompt is the prediction of a row by the terms of prompt work and by the others, us.
func splitPrompt(s *Solved, x []float64) (rest, prompt float64) {
	for j, v := range x {
		if s.Terms[j].Prompt {
			prompt += v * s.Fit.Beta[j]
		} else {
			rest += v * s.Fit.Beta[j]
		}
	}
	return rest, prompt
}

// factors are what the run takes relative to the prediction: all for every term,
// and more on top for prompt work, such that the predicted time of its decode
// steps and that of its other steps each add up to the measured one. Where the
// run cannot tell the two apart more is 1 and all makes the whole add up.
func (t *runTotals) factors() (all, more float64) {
	if det := t.rest[0]*t.prompt[1] - t.rest[1]*t.prompt[0]; det > 0 {
		all = (t.y[0]*t.prompt[1] - t.y[1]*t.prompt[0]) / det
		work := (t.rest[0]*t.y[1] - t.rest[1]*t.y[0]) / det
		if all > 0 && work > leastShare*all {
			return all, work / all
		}
	}
	if pred := t.rest[0] + t.rest[1] + t.prompt[0] + t.prompt[1]; pred > 0 {
		return (t.y[0] + t.y[1]) / pred, 1
	}
	return 1, 1
}

// logs are the logarithms of the factors of every term that is not prompt work,
// and of those that are.
func (t *runTotals) logs() [2]float64 {
	all, more := t.factors()
	return [2]float64{math.Log(all), math.Log(all * more)}
}

// factorPrior is how many configurations at factor 1 stand behind every
// device: a device seen in one configuration keeps half of what that one says.
const factorPrior = 1

// Devices is what each device needs on top of the common coefficients: the
// mean over its configurations of the median log ratio y/prediction, shrunk
// towards 0, exponentiated (partial pooling). Configuration without takes no part.
// Nil when there is only one device: a common factor is the coefficients' own.
func Devices(d *ridge.Data, pred []float64, hw []string, without int32) []result.HardwareFactor {
	logs := make([][]float64, len(hw))
	for i, c := range d.Config {
		if c != without && d.Y[i] > 0 && pred[i] > 0 {
			logs[c] = append(logs[c], math.Log(d.Y[i]/pred[i]))
		}
	}
	var out []result.HardwareFactor
	for c, v := range logs {
		if len(v) == 0 {
			continue
		}
		k := slices.IndexFunc(out, func(h result.HardwareFactor) bool { return h.Hardware == hw[c] })
		if k < 0 {
			k = len(out)
			out = append(out, result.HardwareFactor{Hardware: hw[c]})
		}
		out[k].Factor += stat.Median(v)
		out[k].Configs++
	}
	if len(out) < 2 {
		return nil
	}
	for k := range out {
		out[k].Factor = math.Exp(out[k].Factor / float64(out[k].Configs+factorPrior))
	}
	stat.SortStable(out, func(a, b result.HardwareFactor) int { return strings.Compare(a.Hardware, b.Hardware) })
	return out
}

// OfDevice is a device's factor, 1 for a device without one.
func OfDevice(factors []result.HardwareFactor, hardware string) float64 {
	for _, h := range factors {
		if h.Hardware == hardware {
			return h.Factor
		}
	}
	return 1
}

// Scaled is pred times factor.
func Scaled(pred []float64, factor float64) []float64 {
	return stat.Map(pred, func(v float64) float64 { return v * factor })
}
