package fit

// selection_eval_test.go compares how lambda and the form of the step time are selected, and what the
// factors of runs make right, on the hold-out of every real and composed recording.

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/reconstruct/logged"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// stepRule is a way to fit the step time.
type stepRule struct {
	name    string
	each    bool // each block of time is held out in turn, else forward folds
	minimum bool // the lambda of the smallest error, else the largest within one standard error
	forms   bool // the form is chosen too
	factors runFactors
}

// runFactors is what the factors of a run make right.
type runFactors int

const (
	ofNothing runFactors = iota // there are none
	ofSums                      // the sums of its decode steps and of its others
	ofBlocks                    // of a run fitted alone the sum of a typical block of time
)

var stepRules = []stepRule{
	{"forward folds, one standard error", false, false, false, ofSums}, // the rule before decision 30
	{"forward folds, minimum", false, true, false, ofSums},
	{"blocks, one standard error", true, false, false, ofSums},
	{"blocks, minimum", true, true, false, ofSums},
	{"blocks, minimum, forms", true, true, true, ofSums},
	{"blocks, minimum, forms, typical block", true, true, true, ofBlocks}, // the default
	{"blocks, one standard error, forms, typical block", true, false, true, ofBlocks},
	{"blocks, minimum, forms, no factors", true, true, true, ofNothing},
}

// Positions in stepRules.
const (
	ruleBefore  = 0
	ruleDefault = 5
	ruleOneSE   = 6
	ruleNoSums  = 7
)

// heldOut are the errors of one recording's hold-out under every rule.
type heldOut struct {
	group, run string
	mape, bias []float64
	blocks     [][]errorBlock // the same MAPEs in pieces, by rule
}

// errorBlock is the absolute relative errors of consecutive rows of one run.
type errorBlock struct {
	sum, rows float64
}

// blockRows is the number of consecutive rows whose errors are resampled together: errors of the real
// machines correlate over up to as many.
const blockRows = 120

// TestEvalSelection fits every recording alone under each rule. The hold-out takes part in no choice.
func TestEvalSelection(t *testing.T) {
	repo.NeedEval(t)
	var all []heldOut
	for _, set := range []struct{ group, dir string }{
		{"composed", "composed"}, {"real CPU", "real_vllm_cpu"}, {"step summaries", "real_step_summaries"},
		{"stock", "real_vllm_stock"}, {"stock", "real_vllm_stock2/dp2"}, {"stock", "real_vllm_stock2/prefix-growth"},
		{"stock", "real_vllm_stock2/spec-ngram"},
	} {
		for _, src := range SourcesOf(t, repo.Shared(t, filepath.Join("data", set.dir))) {
			if h := heldOutErrors(t, set.group, []Source{src}); h != nil {
				all = append(all, *h)
			}
		}
	}
	for _, name := range []string{"demo", "real"} {
		sources := SourcesOf(t, filepath.Join(repo.Root(t), "testdata", "traces", name))
		all = append(all, *heldOutErrors(t, name+", pooled", sources))
	}
	if len(all) < 30 {
		t.Errorf("%d recordings, want 30", len(all))
	}
	groups := []string{"all"}
	for _, h := range all {
		if !slices.Contains(groups, h.group) {
			groups = append(groups, h.group)
		}
	}
	fmt.Printf("hold-out MAPE %% (mean |bias| %%) of the step time, %d recordings\n", len(all))
	for _, group := range groups {
		part := slices.DeleteFunc(slices.Clone(all), func(h heldOut) bool { return group != "all" && h.group != group })
		fmt.Printf("%s: %d\n", group, len(part))
		for k, rule := range stepRules {
			mape, bias := columns(part, k)
			before, _ := columns(part, ruleBefore)
			lo, mean, hi := differenceInterval(mape, before)
			if len(part) == 1 { // over the blocks of time of the one recording
				lo, hi = blockInterval(part[0].blocks[k], part[0].blocks[ruleBefore])
			}
			fmt.Printf("  %-48s median %5.2f mean %5.2f (%4.2f), difference from the first %+.2f in [%+.2f, %+.2f]\n", rule.name,
				100*stat.Median(mape), 100*stat.Mean(mape), 100*stat.Mean(bias), 100*mean, 100*lo, 100*hi)
			if k == ruleDefault && lo > 0 {
				t.Errorf("%s: worse than before by %.2f %% in [%.2f, %.2f]", group, 100*mean, 100*lo, 100*hi)
			}
		}
	}
	before, _ := columns(all, ruleBefore)
	now, bias := columns(all, ruleDefault)
	var gain []float64
	better := 0
	for i := range now {
		gain = append(gain, before[i]-now[i])
		if now[i] < before[i] {
			better++
		}
	}
	fmt.Printf("the default is better than the first on %d of %d recordings, in the median by %.2f\n", better, len(all), 100*stat.Median(gain))
	if !(stat.Median(gain) > 0) {
		t.Errorf("worse than before on most recordings, in the median by %.4f", -stat.Median(gain))
	}
	if oneSE, _ := columns(all, ruleOneSE); stat.Mean(oneSE) < stat.Mean(now) {
		t.Errorf("one standard error: mean %.4f, minimum %.4f", stat.Mean(oneSE), stat.Mean(now))
	}
	if _, without := columns(all, ruleNoSums); stat.Mean(without) < stat.Mean(bias) {
		t.Errorf("bias without factors %.4f, with %.4f", stat.Mean(without), stat.Mean(bias))
	}
}

// columns are the MAPEs and the absolute biases under one rule.
func columns(all []heldOut, rule int) (mape, bias []float64) {
	for _, h := range all {
		mape = append(mape, h.mape[rule])
		bias = append(bias, math.Abs(h.bias[rule]))
	}
	return mape, bias
}

// differenceInterval is the mean of a-b over recordings with its 95 % bootstrap interval.
func differenceInterval(a, b []float64) (lo, mean, hi float64) {
	rng := rand.New(rand.NewPCG(1, 2))
	draws := make([]float64, 2000)
	for k := range draws {
		for range a {
			i := rng.IntN(len(a))
			draws[k] += (a[i] - b[i]) / float64(len(a))
		}
	}
	slices.Sort(draws)
	for i := range a {
		mean += (a[i] - b[i]) / float64(len(a))
	}
	return stat.Quantile(draws, 0.025), mean, stat.Quantile(draws, 0.975)
}

// blockInterval is the 95 % bootstrap interval, over blocks of the same rows, of the MAPE a above b.
func blockInterval(a, b []errorBlock) (lo, hi float64) {
	rng := rand.New(rand.NewPCG(3, 4))
	draws := make([]float64, 2000)
	for k := range draws {
		var difference, rows float64
		for range a {
			i := rng.IntN(len(a))
			difference += a[i].sum - b[i].sum
			rows += a[i].rows
		}
		draws[k] = difference / rows
	}
	slices.Sort(draws)
	return stat.Quantile(draws, 0.025), stat.Quantile(draws, 0.975)
}

// errorBlocks divides the errors of the hold-out into blocks. The predictions are the model's own.
func errorBlocks(s *Solved) []errorBlock {
	var blocks []errorBlock
	var run int32
	for k, i := range s.Pool.Hold {
		last := len(blocks) - 1
		if k == 0 || s.Data.Run[i] != run || blocks[last].rows == blockRows {
			blocks = append(blocks, errorBlock{})
			run = s.Data.Run[i]
			last++
		}
		blocks[last].sum += math.Abs(s.Pred[i]-s.Data.Y[i]) / s.Data.Y[i]
		blocks[last].rows++
	}
	return blocks
}

// leastHeldOut is the number of hold-out rows from which a recording is compared.
const leastHeldOut = 20

// heldOutErrors fits sources under every rule; nil where they cannot be fitted or too few rows are
// held out.
func heldOutErrors(t *testing.T, group string, sources []Source) *heldOut {
	t.Helper()
	sources = slices.Clone(sources)
	for i := range sources {
		load := sources[i].Load
		d := sources[i].Deployment
		sources[i].Load = func() (*trace.Run, error) {
			run, err := load()
			if err != nil {
				return nil, err
			}
			return run, logged.Fill(run, &d)
		}
		if group == "stock" {
			sources[i].Deployment = *d.WithoutDrafts()
		}
	}
	o := stepsOnly()
	o.KeepSaturated = true
	f, err := newFitter(t.Context(), sources, o, nil)
	if err != nil {
		fmt.Printf("  %s: not fitted: %v\n", sources[0].ID, err)
		return nil
	}
	rows.Clean(tablesOf(f.used, func(p *Run) *rows.Table { return p.Beta }), rows.Relative)
	p := Pooled(tablesOf(f.used, func(p *Run) *rows.Table { return p.Beta }), []float64{features.DefaultGamma})
	h := &heldOut{group: group, run: sources[0].ID}
	if len(p.Hold) < leastHeldOut {
		return nil
	}
	for _, rule := range stepRules {
		s := &Solved{Pool: p, Terms: featureTerms(features.BetaFeatures(f.o.Spec), len(p.Configs), f.o.Prior)}
		s.Opt = ridgeOptions(s.Terms, EpsBetaUs, f.o)
		s.Opt.EmbargoRows = embargo(1)
		s.Opt.EachBlock = rule.each
		s.Opt.SmallestWithin = rule.minimum
		var sels []ridge.Selection
		if rule.forms {
			sels, err = s.chooseForm(0)
		} else {
			sels, err = ridge.Select(p.TrainData(), s.Opt)
		}
		if err != nil {
			fmt.Printf("  %s: %v\n", h.run, err)
			return nil
		}
		if err := s.SolveRelative(0, &sels[0], false); err != nil {
			t.Fatal(err)
		}
		switch rule.factors {
		case ofSums:
			byRun := totalsByRun(s)
			poolFactors(s, p.Configs, byRun, runFactorLogs(byRun), &result.Model{})
		case ofBlocks:
			ApplyDeploymentFactors(s, p.Configs, &result.Model{})
		}
		var m result.Model
		s.Judge(&m, false, 0)
		h.mape = append(h.mape, *m.Holdout.MAPE)
		h.bias = append(h.bias, *m.Holdout.Bias)
		h.blocks = append(h.blocks, errorBlocks(s))
	}
	fmt.Printf("  %-16s %-46s before %5.2f / %+5.1f, default %5.2f / %+5.1f\n", group, h.run, 100*h.mape[ruleBefore],
		100*h.bias[ruleBefore], 100*h.mape[ruleDefault], 100*h.bias[ruleDefault])
	return h
}

// recipeCase is a fit whose recipe is chosen.
type recipeCase struct {
	name    string
	sources []Source
	split   float64 // training share
}

// fewRows is a training share that leaves much to the prior: some 300 rows.
const fewRows = 0.15

// recipeCases are recordings whose kernels the library has, mixtures of experts apart: alone, with few
// rows, and several configurations of one GPU or one model together.
func recipeCases(t *testing.T) []recipeCase {
	t.Helper()
	isCovered := func(src Source) bool {
		_, err := LibraryFor(&src.Deployment)
		return err == nil && !src.Deployment.Model.IsMoE()
	}
	cases := []recipeCase{{name: "demo", split: rows.DefaultSplit, sources: SourcesOf(t, filepath.Join(repo.Root(t), "testdata", "traces", "demo"))}}
	together := map[string][]Source{}
	for _, set := range []string{"composed", "real_step_summaries", "smoke60"} {
		for _, src := range SourcesOf(t, repo.Shared(t, "data", set)) {
			if !isCovered(src) {
				continue
			}
			cases = append(cases, recipeCase{name: src.ID, split: rows.DefaultSplit, sources: []Source{src}})
			if set != "composed" {
				continue
			}
			cases = append(cases, recipeCase{name: src.ID + ", few rows", split: fewRows, sources: []Source{src}})
			gpu, model, _ := strings.Cut(src.ID, "-")
			model = model[:strings.LastIndex(model, "-")]
			together[gpu] = append(together[gpu], src)
			together[model] = append(together[model], src)
		}
	}
	wrong := [][2]string{{"a100", "h100"}, {"h100", "a100"}, {"b200", "a100"}}
	for _, gpus := range wrong {
		for _, src := range together[gpus[0]] {
			src.Deployment.Hardware = together[gpus[1]][0].Deployment.Hardware
			cases = append(cases,
				recipeCase{name: src.ID + ", described as " + gpus[1], split: rows.DefaultSplit, sources: []Source{src}},
				recipeCase{name: src.ID + ", described as " + gpus[1] + ", few rows", split: fewRows, sources: []Source{src}})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(together)) {
		cases = append(cases, recipeCase{name: name + ", together", split: rows.DefaultSplit, sources: together[name]})
	}
	return cases
}

// TestEvalRecipes fits every case with the library's prior and without one, and compares the recipe
// that cross-validation chooses with the errors on the hold-out.
func TestEvalRecipes(t *testing.T) {
	repo.NeedEval(t)
	fmt.Println("recipes: cross-validated error %, hold-out MAPE % / bias %")
	right := 0
	var chosenMAPE, libraryMAPE, zeroMAPE []float64
	for _, c := range recipeCases(t) {
		o := stepsOnly()
		o.KeepSaturated = true
		o.Spec = features.V12
		o.Prior = PriorLibrary
		o.Split = c.split
		choice, err := ChooseRecipe(t.Context(), c.sources, o, nil)
		if err != nil {
			fmt.Printf("  %s: %v\n", c.name, err)
			continue
		}
		var mape [2]float64
		line := ""
		chosen := 0
		for k, s := range choice.Scores {
			own := o
			own.Prior = s.Prior
			own.Spec = features.Version(s.Spec)
			st, err := FitStepTime(t.Context(), c.sources, own)
			if err != nil {
				t.Fatal(err)
			}
			ApplyDeploymentFactors(st.Model, st.Model.Pool.Configs, &result.Model{})
			var m result.Model
			st.Model.Judge(&m, false, 0)
			mape[k] = *m.Holdout.MAPE
			line += fmt.Sprintf(" %s %5.2f, %5.2f / %+.1f;", s.Prior, 100**s.RelErr, 100*mape[k], 100**m.Holdout.Bias)
			if s.Chosen {
				chosen = k
			}
		}
		if mape[chosen] <= mape[1-chosen] {
			right++
		}
		libraryMAPE = append(libraryMAPE, mape[0])
		zeroMAPE = append(zeroMAPE, mape[1])
		chosenMAPE = append(chosenMAPE, mape[chosen])
		fmt.Printf("  %-46s%s chosen %s\n", c.name, line, choice.Scores[chosen].Prior)
	}
	fmt.Printf("  %d fits: the choice has the smaller hold-out error in %d; mean library %.2f, zero %.2f, chosen %.2f\n",
		len(chosenMAPE), right, 100*stat.Mean(libraryMAPE), 100*stat.Mean(zeroMAPE), 100*stat.Mean(chosenMAPE))
	if len(chosenMAPE) < 30 {
		t.Errorf("%d fits, want 30", len(chosenMAPE))
	}
	if stat.Mean(chosenMAPE) > math.Min(stat.Mean(libraryMAPE), stat.Mean(zeroMAPE))+0.001 {
		t.Error("the choice is worse than one recipe for all")
	}
}
