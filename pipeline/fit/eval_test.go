package fit

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

// evaluation skips a slow evaluation unless it is asked for.
func evaluation(t *testing.T, set string) []Source {
	t.Helper()
	repo.NeedEval(t)
	return SourcesOf(t, repo.Shared(t, "data", set))
}

// stepsOnly are the options of a fit that is looked at for its step times.
func stepsOnly() Options {
	o := Quick()
	o.AlphaTargets = []string{coeff.Overhead}
	return o
}

func pct(v *float64) string {
	if v == nil {
		return "    -"
	}
	return fmt.Sprintf("%5.2f", 100**v)
}

// Hold-out MAPE on pure-decode rows of the real H100 step summaries.
func TestEvalRealStepSummaries(t *testing.T) {
	limits := map[string]float64{"20260217-202857-llama-2-70b-tp4-general": 0.050, "20260217-203421-llama-2-70b-hf-tp4-codegen": 0.025}
	fmt.Println("real step summaries, each run fitted alone, pure-decode hold-out, MAPE %")
	seen := 0
	for _, src := range evaluation(t, "real_step_summaries") {
		doc := fitted(t, []Source{src}, stepsOnly())
		for _, c := range doc.Beta.Cells {
			if c.Regime != rows.Decode.String() || c.Bucket != "" {
				continue
			}
			seen++
			fmt.Printf("  %-46s rows read %d kept %d, hold-out %d: fit %s constant %s floor %s (limit %.1f)\n", src.ID, doc.Beta.Rows.Read,
				doc.Beta.Rows.Kept, c.Rows, pct(c.MAPE), pct(c.MAPEConst), pct(c.MAPEFloor), 100*limits[src.ID])
			if limit, known := limits[src.ID]; !known || c.MAPE == nil || *c.MAPE > limit {
				t.Errorf("%s: MAPE %s %%, want at most %.1f %%", src.ID, pct(c.MAPE), 100*limit)
			}
		}
	}
	if seen != len(limits) {
		t.Errorf("%d runs judged, want %d", seen, len(limits))
	}
}

// reference are the figures of data/real_vllm_cpu/README.md: hold-out MAPE of the
// rough linear model (last 20 % of each phase) and of the rough 1.1 recipe (last
// 20 % of the run), and leave-one-run-out; NaN where it has none.
var reference = map[string][3]float64{
	"cpu-gqa-low": {.157, .150, .13}, "cpu-gqa-medium": {.242, .255, .20}, "cpu-gqa-async": {.103, .100, .13},
	"cpu-async-long":  {.213, .201, .20},
	"cpu-gqa-nochunk": {.262, .241, .24}, "cpu-gqa-prefix": {.238, .209, .21}, "cpu-gqa-preempt": {.171, math.NaN(), math.NaN()},
	"cpu-mha-mixed": {.160, .164, .14},
	"cpu-mha-long":  {.225, .229, .26}, "cpu-moe-medium": {.185, .163, .27}, "cpu-gqa-tp2": {.240, .221, .40},
}

// driftLimit is the signed error of a block from which drift explains a miss:
// the machine runs faster or slower than in the training part (spec#drift).
const driftLimit = 0.1

// Real CPU runs fitted alone, against floor and reference figures.
func TestEvalRealCPUHoldout(t *testing.T) {
	o := stepsOnly()
	o.KeepSaturated = true // the reference figures hold such a run
	var ours, first, ours2, second []float64
	fmt.Println("real CPU runs, each fitted alone: hold-out MAPE %")
	for _, src := range evaluation(t, "real_vllm_cpu") {
		reason, _ := judged(t, src)
		doc, err := Fit(context.Background(), []Source{src}, o, nil)
		if err != nil {
			fmt.Printf("  %-16s not fitted: %v\n", src.ID, err)
			continue
		}
		h := doc.Beta.Holdout
		var worst float64
		for _, d := range doc.Beta.Drift {
			if math.Abs(d.Bias) > math.Abs(worst) {
				worst = d.Bias
			}
		}
		verdict := "not judged: no floor"
		if h.MAPEFloor != nil {
			switch {
			case reason != "":
				verdict = "not judged: saturated"
			case *h.MAPE <= 1.5**h.MAPEFloor:
				verdict = "within 1.5 x floor"
			case math.Abs(worst) > driftLimit:
				verdict = "drift explains the rest"
			default:
				verdict = "FAIL"
				t.Errorf("%s: MAPE %s %% above 1.5 x floor %s %% without drift", src.ID, pct(h.MAPE), pct(h.MAPEFloor))
			}
		}
		fmt.Printf("  %-16s rows %4d: fit %s constant %s floor %s bias %s, worst block %+5.1f %%: %s\n", src.ID, h.Rows, pct(h.MAPE),
			pct(h.MAPEConst), pct(h.MAPEFloor), pct(h.Bias), 100*worst, verdict)
		if r, known := reference[src.ID]; known {
			ours = append(ours, *h.MAPE)
			first = append(first, r[0])
			if !math.IsNaN(r[1]) {
				ours2 = append(ours2, *h.MAPE)
				second = append(second, r[1])
			}
		}
	}
	beats(t, "hold-out, all runs of the first table", ours, stat.Median(first))
	beats(t, "hold-out, all runs of the second table", ours2, stat.Median(second))
}

// referenceLoo is the median that folder's README states; that of its rounded
// list is 0.205.
const referenceLoo = 0.21

// mostLoo is the limit of ours. It was below the reference's (20.9 %) while steps with long prompts were dropped
// as spikes, as the reference drops them; now they are judged (docs/decisions/0010-cadence-spikes.md).
const mostLoo = 0.225

// beats prints and asserts that a median over runs is below the reference's.
func beats(t *testing.T, what string, ours []float64, b float64) {
	t.Helper()
	a := stat.Median(ours)
	fmt.Printf("  %s: median of %d runs %.2f %%, reference %.2f %%\n", what, len(ours), 100*a, 100*b)
	if !(a < b) || len(ours) < 10 {
		t.Errorf("%s: median %.4f of %d runs does not beat the reference %.4f", what, a, len(ours), b)
	}
}

func judged(t *testing.T, src Source) (string, []rows.Span) {
	t.Helper()
	run, err := src.Load()
	if err != nil {
		t.Fatal(err)
	}
	return src.Judge(run)
}

// Every listed run predicted from all other unsaturated runs, as
// validate scores it: with the factors of the runs the fit has seen. The common
// coefficients alone are printed beside it.
func TestEvalRealCPULeaveOneRunOut(t *testing.T) {
	all := evaluation(t, "real_vllm_cpu")
	var common, validated, theirs []float64
	fmt.Println("real CPU runs, each predicted from all others: MAPE % of all its rows")
	for _, src := range all {
		r, known := reference[src.ID]
		if !known || math.IsNaN(r[2]) {
			continue
		}
		o := stepsOnly()
		o.Without = []string{src.ID}
		doc := fitted(t, all, o)
		y, plain, pred := predictRun(t, src, doc)
		e := (&stat.Rows{Y: y, Pred: plain}).Errors(nil)
		v := (&stat.Rows{Y: y, Pred: pred}).Errors(nil)
		common = append(common, e.MAPE)
		validated = append(validated, v.MAPE)
		theirs = append(theirs, r[2])
		fmt.Printf("  %-16s rows %4d: %5.2f (bias %+5.1f), common coefficients %5.2f (bias %+5.1f), reference %5.2f\n", src.ID, v.Rows,
			100*v.MAPE, 100*v.Bias, 100*e.MAPE, 100*e.Bias, 100*r[2])
	}
	fmt.Printf("  common coefficients: median %.2f %%; reference: stated median %.0f %%, of its list %.1f %%\n",
		100*stat.Median(common), 100*referenceLoo, 100*stat.Median(theirs))
	fmt.Printf("  leave one run out: median of %d runs %.2f %%\n", len(validated), 100*stat.Median(validated))
	if median := stat.Median(validated); !(median < mostLoo) || len(validated) < 10 {
		t.Errorf("leave one run out: median %.4f of %d runs, want below %.3f of 10", median, len(validated), mostLoo)
	}
}

// predictRun is the target of every cleaned row of a run at its own lag and the
// fit's gamma, and what the common coefficients and the set as it holds on the
// run's deployment predict.
func predictRun(t *testing.T, src Source, doc *result.Fit) (y, common, pred []float64) {
	t.Helper()
	o, err := stepsOnly().Resolve()
	if err != nil {
		t.Fatal(err)
	}
	p, steps, space, err := Load(context.Background(), src, o)
	if err != nil {
		t.Fatal(err)
	}
	table, err := steps.Beta(space, rows.Options{Target: coeff.Cadence, Lag: p.Lag.Lag, Gamma: *doc.Beta.GammaEMA, Split: o.Split})
	if err != nil {
		t.Fatal(err)
	}
	rows.Clean([]*rows.Table{table}, rows.Relative)
	set := setOf(&doc.Beta)
	beta := coeff.Values(set.Beta)
	on := coeff.Values(features.On(set, &src.Deployment).Beta)
	for i := range table.Kept {
		y = append(y, table.Y[i])
		common = append(common, ridge.Dot(table.Row(i), beta))
		pred = append(pred, ridge.Dot(table.Row(i), on))
	}
	return y, common, pred
}

// setOf is the step-time part of the artifact of a fit.
func setOf(m *result.Model) *coeff.Set {
	set := &coeff.Set{SpecVersion: features.V11, HardwareFactors: map[string]float64{}, DeploymentFactors: map[string]float64{},
		PromptFactors: map[string]float64{}}
	for _, c := range m.Coefficients {
		set.Beta = append(set.Beta, coeff.Coefficient{Name: c.Name, Value: c.Value})
	}
	for _, h := range m.HardwareFactors {
		set.HardwareFactors[h.Hardware] = h.Factor
	}
	for _, d := range m.DeploymentFactors {
		set.DeploymentFactors[d.Name()], set.PromptFactors[d.Name()] = d.Factor, d.Prompt
	}
	return set
}

// Composed runs in one pooled fit, leave one configuration out, with
// what prior, factors and interval rows bring (docs/decisions/0009).
func TestEvalComposedLeaveOneConfigurationOut(t *testing.T) {
	sources := evaluation(t, "composed")
	doc := fitted(t, sources, stepsOnly())
	var frozen []float64
	fmt.Println("composed, one pooled fit: MAPE % of each configuration left out")
	for _, l := range doc.Beta.Loco {
		if l.MAPEFrozen10 != nil {
			frozen = append(frozen, *l.MAPEFrozen10)
		}
		fmt.Printf("  %-58s rows %4d: %s constant %s frozen 1.0 %s bias %s\n", l.Config, l.Rows, pct(l.MAPE), pct(l.MAPEConst),
			pct(l.MAPEFrozen10), pct(l.Bias))
	}
	fmt.Printf("  median %s worst %s (limits 8 and 12); without factors %s and %s; frozen 1.0 median %.1f worst %.1f\n",
		pct(doc.Beta.LocoMedian), pct(doc.Beta.LocoWorst),
		pct(doc.Beta.LocoPlain.Median), pct(doc.Beta.LocoPlain.Worst), 100*stat.Median(frozen), 100*slices.Max(frozen))
	if n := len(doc.Beta.Loco); n != 16 || *doc.Beta.LocoMedian > 0.08 || *doc.Beta.LocoWorst > 0.12 {
		t.Errorf("%d configurations, median %s %%, worst %s %%", n, pct(doc.Beta.LocoMedian), pct(doc.Beta.LocoWorst))
	}
	fmt.Println("composed, what each choice brings: median / worst without and with hardware factors, own hold-out, lambda")
	for _, v := range []struct {
		name   string
		change func(*Options)
		drop   bool
	}{
		{"the recipe", func(*Options) {}, false},
		{"prior at the roofline", func(o *Options) { o.Prior = PriorRoofline }, false},
		{"objective minimax", func(o *Options) { o.Objective = "minimax" }, false},
		{"objective within", func(o *Options) { o.Objective = "within" }, false},
		{"adjacent steps only, no interval rows", func(*Options) {}, true},
	} {
		o := stepsOnly()
		v.change(&o)
		m := pooled(t, sources, o, v.drop)
		plain := m.LocoPlain
		if plain == nil {
			plain = &result.LocoSummary{Median: m.LocoMedian, Worst: m.LocoWorst}
		}
		fmt.Printf("  %-40s %s / %s   %s / %s   %s   %g   rows %d\n", v.name, pct(plain.Median), pct(plain.Worst), pct(m.LocoMedian),
			pct(m.LocoWorst), pct(m.Holdout.MAPE), *m.Lambda, m.Rows.Kept)
	}
}

// pooled is the step-time model of all sources, without interval rows if asked.
func pooled(t *testing.T, sources []Source, o Options, adjacentOnly bool) *result.Model {
	t.Helper()
	f, err := newFitter(context.Background(), sources, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if adjacentOnly {
		for _, p := range f.used {
			for _, table := range []*rows.Table{p.Beta, p.Frozen} {
				if table != nil {
					table.Filter("interval_row", func(i int) bool { return table.Steps[i] == 1 })
				}
			}
		}
	}
	return f.solveBeta(t)
}

// The measured lag follows async_scheduling wherever it is measurable.
func TestEvalLagFollowsScheduling(t *testing.T) {
	fmt.Println("lag: hold-out MAPE % on intervals with prefill at lag 0, 1, 2")
	measured := 0
	for _, set := range []string{"composed", "real_vllm_cpu"} {
		for _, src := range evaluation(t, set) {
			lag, evidence, err := MeasureLag(context.Background(), src, DefaultOptions())
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			if src.Deployment.Engine.IsAsync() {
				want = 1
			}
			verdict := "not_measurable"
			errs := ""
			n := 0
			for _, e := range evidence {
				errs = errs + pct(e.HoldoutMAPEPrefill) + " "
				n = e.N
				verdict = e.Verdict
			}
			fmt.Printf("  %-24s async %-5v intervals %4d: %s lag %d %s\n", src.ID, want == 1, n, errs, lag.Lag, verdict)
			if lag.Lag != want {
				t.Errorf("%s: lag %d, async_scheduling says %d", src.ID, lag.Lag, want)
			}
			if lag.Measured {
				measured++
			}
		}
	}
	fmt.Printf("  measured on %d runs\n", measured)
	if measured < 10 {
		t.Errorf("the lag is measured on %d runs only", measured)
	}
}

// priorFit is a fit of a run with the library's prior, its step times made by truth where that is given:
// times 3 % off, a tenth of that in common over blocks of 20 rows.
func priorFit(t *testing.T, src Source, seed uint64, truth func(l *libraryPrior, rng *rand.Rand) []float64) ([]float64, *result.Model) {
	t.Helper()
	o := stepsOnly()
	o.Spec, o.Prior = features.V12, PriorLibrary
	f, err := newFitter(t.Context(), []Source{src}, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	var beta []float64
	if truth != nil {
		if _, _, err := f.selectBeta(); err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(seed, 11))
		table := f.used[0].Beta
		for beta == nil || slices.ContainsFunc(table.Y, func(y float64) bool { return !(y > 50) }) {
			beta = truth(f.prior, rng)
			common := 0.0
			for i := range table.Y {
				if i%20 == 0 {
					common = 0.01 * rng.NormFloat64()
				}
				table.Y[i] = ridge.Dot(table.Row(i), beta) * math.Exp(common+0.03*rng.NormFloat64())
			}
		}
	}
	s, m, err := f.selectBeta()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SolveAt(m, f.gamma, false); err != nil {
		t.Fatal(err)
	}
	out, err := f.betaModel(s, m)
	if err != nil {
		t.Fatal(err)
	}
	return beta, out
}

// drawn is a truth of the prior without negative terms: a draw with one is repeated whole.
// Setting that term to 0 instead would move combinations of terms, which the prior knows
// better than each term, by up to five of its standard deviations.
func drawn(l *libraryPrior, rng *rand.Rand) []float64 {
	p := len(l.mean)
	root := slices.Clone(l.cov)
	stat.Cholesky(root, p)
	for {
		beta := slices.Clone(l.mean)
		for r := range p {
			z := rng.NormFloat64()
			for j := r; j < p; j++ {
				beta[j] += z * root[j*p+r]
			}
		}
		if slices.Min(beta) >= 0 {
			return beta
		}
	}
}

// Intervals with the library's prior: where the truth is drawn from it nothing is flagged; where it lies
// off it the terms are covered or the finding says so (spec#prior-contradicted). 40 fits a case.
func TestEvalPriorIntervals(t *testing.T) {
	repo.NeedEval(t)
	const fits = 40
	demo := SourcesOf(t, filepath.Join(repo.Root(t), "testdata", "traces", "demo"))
	_, other := priorFit(t, demo[0], 0, nil)
	posterior := coeff.Values(setOf(other).Beta)
	fmt.Println("library prior: fits flagged | terms covered in the others | fits with under 90 % of their terms covered, of those flagged")
	for _, c := range []struct {
		name  string
		src   Source
		truth func(*libraryPrior, *rand.Rand) []float64
	}{
		{"drawn from the prior", demo[0], drawn}, {"drawn from the prior, other run", demo[1], drawn},
		{"1.25 times the prior", demo[0], scaledPrior}, {"1.25 times the prior, other run", demo[1], scaledPrior},
		{"another run's posterior", demo[1], func(*libraryPrior, *rand.Rand) []float64 { return posterior }},
	} {
		flagged := 0
		covered := 0
		terms := 0
		below := 0
		caught := 0
		for seed := range uint64(fits) {
			truth, m := priorFit(t, c.src, seed, c.truth)
			flag := Has(m.Warnings, Implausible, "the data contradict the prior") || Has(m.Warnings, Implausible, "what the prior")
			in, of := 0, 0
			for j, k := range m.Coefficients {
				if k.CI95 != nil && k.Range[1] > 0 {
					of++
					if k.CI95[0] <= truth[j] && truth[j] <= k.CI95[1] {
						in++
					}
				}
			}
			if float64(in) < 0.9*float64(of) {
				below++
				if flag {
					caught++
				}
			}
			if flag {
				flagged++
			} else {
				covered, terms = covered+in, terms+of
			}
		}
		fmt.Printf("  %-32s %2d of %d | %d of %d | %d, %d\n", c.name, flagged, fits, covered, terms, below, caught)
		if slices.Contains([]string{"drawn from the prior", "drawn from the prior, other run"}, c.name) {
			if flagged > fits/20 {
				t.Errorf("%s: %d of %d flagged, want at most 5 %%", c.name, flagged, fits)
			}
		} else if 10*caught < 8*below {
			t.Errorf("%s: %d of %d fits with low coverage flagged, want 80 %%", c.name, caught, below)
		}
		if 10*covered < 9*terms {
			t.Errorf("%s: %d of %d terms covered, want 90 %%", c.name, covered, terms)
		}
	}
}

func scaledPrior(l *libraryPrior, _ *rand.Rand) []float64 {
	out := slices.Clone(l.mean)
	for j := range out {
		out[j] *= 1.25
	}
	return out
}
