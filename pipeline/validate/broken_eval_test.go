package validate_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// breakage is one thing done to a run or to the coefficients fitted to it, the purpose that
// must fail, and the cause that may be named; otherwise it must be unknown.
type breakage struct {
	run, what string
	pooled    bool // coefficients of all runs together, else of this one
	purpose   string
	cause     string
	mentions  string // what the sentence or the term says when the cause is named
	set       func(*coeff.Set)
	dep       func(*deploy.Deployment)
	record    func(*trace.Run)
}

// brokenOnPurpose are forty breakages of the composed runs, four of each kind.
func brokenOnPurpose(sets map[string]*coeff.Set, fits map[string]*result.Fit) []breakage {
	var all []breakage
	for k, run := range []string{"a100-llama-3.1-8b-tp1", "h100-llama-3.1-8b-tp1", "h100-qwen2.5-14b-tp2", "b200-codellama-34b-tp1"} {
		all = append(all, termTimes3(run, heaviest(sets[run].SpecVersion, fits[run], k%2)))
	}
	for _, run := range []string{"a100-llama-3.1-8b-tp1", "h100-qwen2.5-14b-tp2", "a100-qwen2.5-14b-tp1", "h100-mixtral-8x7b-tp2"} {
		all = append(all, otherLag(run, sets[run].PipelineLag[run].Lag))
	}
	for _, run := range []string{"h100-codellama-34b-tp1", "h100-codellama-34b-tp2"} { // the two that fill their cache
		all = append(all, halfTheBlocks(run, false), halfTheBlocks(run, true))
	}
	for k, d := range [][2]string{{"a100-llama-3.1-8b-tp1", "H100"}, {"h100-llama-2-70b-tp4", "A100"}, {"h100-qwen2.5-14b-tp1", "B200"},
		{"b200-llama-3.1-8b-tp1", "A100"}} {
		all = append(all, otherDevice(d[0], d[1], k%2 == 1))
	}
	for _, run := range []string{"a100-qwen2.5-14b-tp1", "h100-llama-3.1-8b-tp1", "b200-llama-2-70b-tp2", "h100-codellama-34b-tp1"} {
		all = append(all, shuffled(run), drifting(run))
		if run == "h100-codellama-34b-tp1" { // which decides nothing: chance alone reaches the thresholds
			run = "h100-qwen2.5-14b-tp1"
		}
		all = append(all, otherKnob(run, "max_num_seqs"), otherKnob(run, "max_num_batched_tokens"))
	}
	for k, run := range []string{"a100-qwen2.5-14b-tp1", "h100-qwen2.5-14b-tp2", "b200-llama-3.1-8b-tp1", "h100-codellama-34b-tp1"} {
		third := termTimes(run, heaviest(sets[run].SpecVersion, fits[run], k%2), 1./3)
		all = append(all, third, otherFigures(run))
	}
	return all
}

// drifting doubles every interval of the last eighth of the steps.
func drifting(run string) breakage {
	b := driftAt(run, 7./8, 1, 2)
	b.what = "machine slower for a while"
	return b
}

// otherKnob is a limit of the scheduler at a quarter of what the server had: its batches are others.
func otherKnob(run, knob string) breakage {
	return breakage{run: run, what: knob + " / 4", purpose: coeff.PurposeReplay, cause: result.CauseScheduler, mentions: knob,
		dep: func(d *deploy.Deployment) {
			if knob == "max_num_seqs" {
				d.Engine.MaxNumSeqs /= 4
			} else {
				d.Engine.MaxNumBatchedTokens /= 4
			}
		}}
}

// otherFigures are a data sheet with a third of the bandwidth and arithmetic.
func otherFigures(run string) breakage {
	return breakage{run: run, what: "data sheet / 3", purpose: coeff.PurposeSteps, cause: result.CauseHardware, mentions: "hardware",
		dep: func(d *deploy.Deployment) {
			d.Hardware.BwPeakTBs = d.Hardware.BwPeakTBs / 3
			d.Hardware.TFlopsPeak = d.Hardware.TFlopsPeak / 3
		}}
}

// heaviest is the name of the time-like term with the rank-th largest share of the prediction.
func heaviest(version features.Version, f *result.Fit, rank int) string {
	var names []string
	var shares []float64
	for j, feature := range features.BetaFeatures(version) {
		if c := f.Beta.Coefficients[j]; feature.IsTime() && c.Share != nil && c.Identified == coeff.Within {
			names = append(names, c.Name)
			shares = append(shares, -*c.Share)
		}
	}
	return names[stat.Order(shares)[rank]]
}

func termTimes3(run, term string) breakage { return termTimes(run, term, 3) }

func termTimes(run, term string, factor float64) breakage {
	return breakage{run: run, what: fmt.Sprintf("%s x%.2g", term, factor), purpose: coeff.PurposeSteps, cause: result.CauseModelError,
		mentions: term,
		set: func(s *coeff.Set) {
			for j := range s.Beta {
				if s.Beta[j].Name == term {
					s.Beta[j].Value *= factor
				}
			}
		}}
}

// otherLag breaks the steps.
func otherLag(run string, lag int) breakage {
	return breakage{run: run, what: fmt.Sprintf("lag %d for %d", 1-lag, lag), purpose: coeff.PurposeSteps, cause: result.CauseLag,
		mentions: fmt.Sprintf("a lag of %d", lag),
		set:      func(s *coeff.Set) { s.PipelineLag = map[string]coeff.RunLag{run: {Lag: 1 - lag, Measured: true}} }}
}

func halfTheBlocks(run string, pooled bool) breakage {
	return breakage{run: run, pooled: pooled, what: "KV blocks x0.5", purpose: coeff.PurposeReplay, cause: result.CauseScheduler,
		mentions: "KV blocks",
		dep:      func(d *deploy.Deployment) { d.Engine.KVBlocksGPU = trace.Some(d.Engine.KVBlocksGPU.V / 2) }}
}

func otherDevice(run, device string, pooled bool) breakage {
	return breakage{run: run, pooled: pooled, what: "device " + device, purpose: coeff.PurposeSteps, cause: result.CauseHardware,
		mentions: "hardware",
		dep:      func(d *deploy.Deployment) { d.Hardware, _ = deploy.Datasheet(device) }}
}

// shuffled deals the intervals between steps out at random: nothing the tool knows is the cause.
func shuffled(run string) breakage {
	return breakage{run: run, what: "targets shuffled", purpose: coeff.PurposeSteps,
		record: func(r *trace.Run) {
			rng := rand.New(rand.NewPCG(7, 7))
			gaps := make([]int64, 0, len(r.Steps))
			for i := 1; i < len(r.Steps); i++ {
				gaps = append(gaps, r.Steps[i].TsStartNs-r.Steps[i-1].TsStartNs)
			}
			rng.Shuffle(len(gaps), func(a, b int) { gaps[a], gaps[b] = gaps[b], gaps[a] })
			respace(r, gaps)
		}}
}

// respace starts each step the given interval after the one before.
func respace(r *trace.Run, gaps []int64) {
	for i, at := 1, r.Steps[0].TsStartNs; i < len(r.Steps); i++ {
		at += gaps[i-1]
		r.Steps[i].TsEndNs += at - r.Steps[i].TsStartNs
		r.Steps[i].TsStartNs = at
	}
}

// driftAt stretches the intervals of a part of the run.
func driftAt(run string, lo, hi, factor float64) breakage {
	return breakage{run: run, what: fmt.Sprintf("speed /%g from %g to %g", factor, lo, hi), purpose: coeff.PurposeSteps,
		cause: result.CauseMachineDrift, mentions: "speed",
		dep: func(d *deploy.Deployment) { d.Provenance = "" },
		record: func(r *trace.Run) {
			n := len(r.Steps)
			var gaps []int64
			for i := 1; i < n; i++ {
				gap := r.Steps[i].TsStartNs - r.Steps[i-1].TsStartNs
				if x := float64(i) / float64(n); x >= lo && x < hi {
					gap = int64(float64(gap) * factor)
				}
				gaps = append(gaps, gap)
			}
			respace(r, gaps)
		}}
}

// shuffledBy deals with another seed.
func shuffledBy(run string, seed uint64) breakage {
	b := shuffled(run)
	b.record = func(r *trace.Run) {
		rng := rand.New(rand.NewPCG(seed, 17))
		gaps := make([]int64, 0, len(r.Steps))
		for i := 1; i < len(r.Steps); i++ {
			gaps = append(gaps, r.Steps[i].TsStartNs-r.Steps[i-1].TsStartNs)
		}
		rng.Shuffle(len(gaps), func(a, b int) { gaps[a], gaps[b] = gaps[b], gaps[a] })
		respace(r, gaps)
	}
	return b
}

// knobBy is a limit by another factor.
func knobBy(run, knob string, by int64) breakage {
	b := otherKnob(run, knob)
	b.what = fmt.Sprintf("%s / %d", knob, by)
	b.dep = func(d *deploy.Deployment) {
		if knob == "max_num_seqs" {
			d.Engine.MaxNumSeqs /= by
		} else {
			d.Engine.MaxNumBatchedTokens /= by
		}
	}
	return b
}

// other changes the deployment.
func other(run, what, purpose, cause, mentions string, dep func(*deploy.Deployment)) breakage {
	return breakage{run: run, what: what, purpose: purpose, cause: cause, mentions: mentions, dep: dep}
}

// otherFaults are eighteen things done to each of six runs.
func otherFaults(sets map[string]*coeff.Set, fits map[string]*result.Fit) []breakage {
	var all []breakage
	for k, run := range []string{"a100-llama-3.1-8b-tp2", "a100-llama-2-70b-tp4", "b200-llama-2-70b-tp2", "h100-llama-2-70b-tp4",
		"h100-mixtral-8x7b-tp2", "b200-qwen2.5-14b-tp2"} {
		term := func(rank int) string { return heaviest(sets[run].SpecVersion, fits[run], rank) }
		all = append(all, termTimes(run, term(k%3), 2), termTimes(run, term((k+1)%3), 0.5), termTimes(run, term(k%2), 5))
		all = append(all, otherLag(run, sets[run].PipelineLag[run].Lag))
		all = append(all, driftAt(run, 0.4, 0.6, 1.6), driftAt(run, 0.8, 1, 1.5), driftAt(run, 0, 0.5, 0.6))
		all = append(all, shuffledBy(run, uint64(k)+100))
		all = append(all, knobBy(run, "max_num_seqs", 2), knobBy(run, "max_num_seqs", 8), knobBy(run, "max_num_batched_tokens", 8))
		all = append(all, otherFigures(run))
		all = append(all, other(run, "TP x2", coeff.PurposeSteps, result.CauseHardware, "", func(d *deploy.Deployment) { d.TP *= 2 }))
		all = append(all, other(run, "chunked prefill flipped", coeff.PurposeReplay, result.CauseScheduler, "",
			func(d *deploy.Deployment) { d.Engine.ChunkedPrefill = !d.Engine.ChunkedPrefill }))
		all = append(all, other(run, "prefix caching flipped", coeff.PurposeReplay, result.CauseScheduler, "",
			func(d *deploy.Deployment) { d.Engine.PrefixCaching = !d.Engine.PrefixCaching }))
		all = append(all, other(run, "KV blocks / 3", coeff.PurposeReplay, result.CauseScheduler, "KV blocks",
			func(d *deploy.Deployment) { d.Engine.KVBlocksGPU = trace.Some(d.Engine.KVBlocksGPU.V / 3) }))
		all = append(all, other(run, "bandwidth x2", coeff.PurposeSteps, result.CauseHardware, "",
			func(d *deploy.Deployment) { d.Hardware.BwPeakTBs *= 2 }))
		all = append(all, otherDevice(run, []string{"L40S", "H200", "A100"}[k%3], false))
	}
	return all
}

// TestEvalBrokenOnPurpose fits composed runs alone, breaks one thing and validates: the right
// purpose fails, and the diagnosis names the cause or says unknown.
func TestEvalBrokenOnPurpose(t *testing.T) {
	repo.NeedEval(t)
	named, right, _, cured, n := diagnosed(t, brokenOnPurpose)
	// h100-mixtral-8x7b-tp2 with another lag is within every threshold: its steps are off by 9 %, and its largest error
	// is 2.99 of the allowed 3. Steps that are as good as that pass.
	if right < n-1 || named < 28 || n != 40 || cured < 12 {
		t.Errorf("got %d named right and %d without a wrong one of %d, want 28 and 39 of 40", named, right, n)
	}
}

// TestEvalOtherFaults does as many other things to other runs, some of which break nothing: no wrong cause is named.
func TestEvalOtherFaults(t *testing.T) {
	repo.NeedEval(t)
	named, _, wrong, _, n := diagnosed(t, otherFaults)
	if wrong > 0 || named < 55 {
		t.Errorf("got %d named right and %d wrong of %d, want at least 55 and none", named, wrong, n)
	}
}

// diagnosed breaks and validates the cases and counts what they name, prints the table, and how many causes were applied.
func diagnosed(t *testing.T, casesOf func(map[string]*coeff.Set, map[string]*result.Fit) []breakage) (named, right, wrong, cured, n int) {
	t.Helper()
	out, ext := extracted(t, "composed")
	sets := map[string]*coeff.Set{}
	fits := map[string]*result.Fit{}
	deps := map[string]*deploy.Deployment{}
	var err error
	for i, run := range ext.Runs {
		one := *ext
		one.Runs = ext.Runs[i : i+1]
		f := fitted(t, out, &one, 0.8)
		if sets[run.ID], err = fit.Native(f, nil); err != nil {
			t.Fatal(err)
		}
		fits[run.ID], deps[run.ID] = f, run.Deployment
	}
	fits[""] = fitted(t, out, ext, 0.8)
	if sets[""], err = fit.Native(fits[""], nil); err != nil {
		t.Fatal(err)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "run\tcoefficients\tbroken\tmust fail\tsteps\treplay\tcause named\t\tsentence\tfailed gates")
	cases := casesOf(sets, fits)
	for _, b := range cases {
		of := b.run
		if b.pooled {
			of = ""
		}
		v := b.validate(t, out, sets[of], fits[of], deps[b.run], nil)
		ok := b.judge(v)
		for _, d := range v.Diagnoses {
			if cure := cureOf(&d); cure != nil && !math.IsNaN(gateValue(v, "beta_mape", d.Scope)) {
				checkCure(t, b.run+", "+b.what, &d, v, b.validate(t, out, sets[of], fits[of], deps[b.run], cure))
				cured++
			}
		}
		right += count(ok)
		wrong += count(b.misnamed(v))
		named += count(ok && (b.cause == "" || slices.ContainsFunc(v.Diagnoses, func(d result.Diagnosis) bool { return d.Cause == b.cause })))
		cause, sentence := "-", ""
		if len(v.Diagnoses) > 0 {
			cause = v.Diagnoses[0].Cause
			sentence = v.Diagnoses[0].Sentence
		}
		whose := map[bool]string{true: "pooled", false: "its own"}[b.pooled]
		fmt.Fprintln(w, strings.Join([]string{b.run, whose, b.what, b.purpose, v.VerdictFor(coeff.PurposeSteps, coeff.ScopeAll).Verdict,
			v.VerdictFor(coeff.PurposeReplay, coeff.ScopeAll).Verdict, cause, map[bool]string{true: "right", false: "WRONG"}[ok], sentence,
			strings.Join(failedNames(v), ",")}, "\t"))
	}
	w.Flush()
	fmt.Printf("named right: %d of %d, nothing wrong: %d, a wrong cause named: %d, %d causes applied\n", named, len(cases), right, wrong,
		cured)
	return named, right, wrong, cured, len(cases)
}

// validate breaks the thing and validates; cure, where not nil, changes the broken coefficients first.
func (b *breakage) validate(t *testing.T, out string, set *coeff.Set, f *result.Fit, dep *deploy.Deployment,
	cure func(*coeff.Set)) *result.Validation {
	t.Helper()
	broken, d := *set, *dep
	broken.Beta = slices.Clone(set.Beta)
	for _, change := range []func(*coeff.Set){b.set, cure} {
		if change != nil {
			change(&broken)
		}
	}
	if b.dep != nil {
		b.dep(&d)
	}
	source := validate.Source{ID: b.run, Training: true, Load: func() (*trace.Run, *deploy.Deployment, error) {
		run, err := table.ReadLean(table.RunDir(out, b.run))
		if err == nil && b.record != nil {
			b.record(run)
		}
		return run, &d, err
	}}
	o := validate.DefaultOptions()
	o.StepsOnly = b.purpose == coeff.PurposeSteps
	v, err := validate.Run(context.Background(), &broken, f, []validate.Source{source}, o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

var (
	oneTerm  = regexp.MustCompile(`(\w+) times ([\d.]+) removes`)
	hardware = regexp.MustCompile(`terms on prompts times ([\d.]+) and the others times ([\d.]+),`)
)

// cureOf is what the sentence of a diagnosis says would remove the error, as a change of coefficients; nil where it is another kind
// of change.
func cureOf(d *result.Diagnosis) func(*coeff.Set) {
	factor := func(text string) float64 {
		f, _ := strconv.ParseFloat(text, 64)
		return f
	}
	scale := func(of func(name string, isTime, prompt bool) float64) func(*coeff.Set) {
		return func(s *coeff.Set) {
			for j, f := range features.BetaFeatures(s.SpecVersion) {
				s.Beta[j].Value *= of(f.Name, f.IsTime(), f.Prompt)
			}
		}
	}
	if m := hardware.FindStringSubmatch(d.Sentence); d.Cause == result.CauseHardware && m != nil {
		return scale(func(_ string, isTime, prompt bool) float64 {
			switch {
			case !isTime:
				return 1
			case prompt:
				return factor(m[1])
			}
			return factor(m[2])
		})
	}
	if m := oneTerm.FindStringSubmatch(d.Sentence); d.Cause == result.CauseModelError && m != nil {
		return scale(func(name string, _, _ bool) float64 {
			if name == m[1] {
				return factor(m[2])
			}
			return 1
		})
	}
	return nil
}

// checkCure: with the cause applied the steps of the scope are better by a tenth or more.
func checkCure(t *testing.T, what string, d *result.Diagnosis, before, after *result.Validation) {
	t.Helper()
	was := gateValue(before, "beta_mape", d.Scope)
	is := gateValue(after, "beta_mape", d.Scope)
	fmt.Printf("applied: %s: %s: MAPE %.3f, was %.3f\n", what, d.Sentence, is, was)
	if !(is <= 0.9*was) {
		t.Errorf("%s: %s: applied, the MAPE is %.3f where it was %.3f", what, d.Sentence, is, was)
	}
}

func gateValue(v *result.Validation, name, scope string) float64 {
	for _, g := range v.Gates {
		if g.Name == name && g.Scope == scope && g.Value != nil {
			return *g.Value
		}
	}
	return math.NaN()
}

// judge: the purpose does not pass, one that fails through the replay alone leaves the steps
// standing, and every diagnosis names the cause or none.
func (b *breakage) judge(v *result.Validation) bool {
	steps := v.VerdictFor(coeff.PurposeSteps, coeff.ScopeAll).Verdict
	verdict := v.VerdictFor(b.purpose, coeff.ScopeAll).Verdict
	if verdict == coeff.VerdictPass || verdict == coeff.VerdictFail && len(v.Diagnoses) == 0 ||
		b.purpose == coeff.PurposeReplay && steps != coeff.VerdictPass {
		return false
	}
	return !b.misnamed(v)
}

// misnamed: a diagnosis names another cause than what was broken.
func (b *breakage) misnamed(v *result.Validation) bool {
	return slices.ContainsFunc(v.Diagnoses, func(d result.Diagnosis) bool {
		return d.Cause != result.CauseUnknown && d.Cause != result.CauseStreams && (d.Cause != b.cause || !strings.Contains(d.Sentence+" "+d.Term, b.mentions))
	})
}

func failedNames(v *result.Validation) []string {
	var out []string
	for _, g := range v.Gates {
		if g.Pass != nil && !*g.Pass && !slices.Contains(out, g.Name) {
			out = append(out, g.Name)
		}
	}
	return out
}

// TestEvalVerdicts prints the verdicts of the demo, the composed and the real runs for each
// purpose, fitted together and every run alone, with the distances of the hold-out, what
// chance reaches, those of the whole phase, and why a run does not pass. Few hold-outs decide:
// their 47 to 264 requests are one stretch of load.
func TestEvalVerdicts(t *testing.T) {
	repo.NeedEval(t)
	for _, set := range []struct {
		name                 string
		leastSteps, leastSim int
		// Of the composed runs together, bias judges each configuration: that of the mixture of experts fails, and
		// two have an interval around 4 %. Alone all 16 pass.
	}{{demo, 2, 2}, {"composed", 13, 9}, {"real_vllm_cpu", 0, 0}} {
		out, ext := extracted(t, set.name)
		for _, alone := range []bool{false, true} {
			var all []*result.Validation
			for i := range ext.Runs {
				if !alone && i > 0 {
					break
				}
				part := *ext
				if alone {
					part.Runs = ext.Runs[i : i+1]
				}
				v, f := validated(t, out, &part)
				all = append(all, v)
				applyCauses(t, v, f, out, &part)
			}
			fmt.Printf("\n%s, %s\n", set.name, map[bool]string{false: "pooled", true: "each run alone"}[alone])
			steps, sim, n := printVerdicts(all)
			for _, v := range all {
				if v != nil {
					checkHeldOut(t, v)
					checkCauses(t, v, set.name != "real_vllm_cpu")
				}
			}
			fmt.Printf("steps pass on %d, replay on %d of %d\n", steps, sim, n)
			if steps < set.leastSteps || sim < set.leastSim {
				t.Errorf("%s, alone %v: got steps %d, replay %d of %d, want at least %d and %d", set.name, alone, steps, sim, n, set.leastSteps,
					set.leastSim)
			}
		}
	}
}

// checkHeldOut: no configuration passes beside a replay at or over a threshold: distances beyond 5 % of the times and
// paired errors. The plain distance decides nothing, because times that are all alike are far apart within 1 %.
func checkHeldOut(t *testing.T, v *result.Validation) {
	t.Helper()
	for i := range v.Configs {
		c := &v.Configs[i]
		if v.VerdictFor(coeff.PurposeReplay, c.Scope).Verdict != coeff.VerdictPass {
			continue
		}
		for _, r := range judgedEntries(v, c) {
			for _, m := range []*result.Metric{r.Metrics.TTFT, r.Metrics.ITL, r.Metrics.E2E} {
				isOff := m != nil && (m.BeyondD != nil && *m.BeyondD >= 0.15 || m.MedianRelErrPaired != nil && *m.MedianRelErrPaired >= 0.2)
				if isOff {
					t.Errorf("%s passes replay beside one of %s that is off: KS %.3f", c.Scope, r.ID, m.KSD)
				}
			}
		}
	}
}

// checkCauses: a named cause removes a quarter of the error or more, a term acts in the regime
// it is blamed in, and what no machine ran has not drifted.
func checkCauses(t *testing.T, v *result.Validation, composed bool) {
	t.Helper()
	prompts := map[string]bool{}
	for _, f := range features.BetaFeatures(features.V11) {
		prompts[f.Name] = f.Prompt
	}
	for _, d := range v.Diagnoses {
		if _, removes, ok := strings.Cut(d.Sentence, " removes "); ok && d.Cause != result.CauseUnknown {
			var share float64
			if _, err := fmt.Sscanf(removes, "%f %%", &share); err != nil || share < 25 {
				t.Errorf("%s: got %s: %s", d.Scope, d.Cause, d.Sentence)
			}
		}
		if d.Regime == "decode" && prompts[d.Term] || composed && d.Cause == result.CauseMachineDrift {
			t.Errorf("%s: got %s, %s in %s steps: %s", d.Scope, d.Cause, d.Term, d.Regime, d.Sentence)
		}
	}
	for i := range v.Runs {
		if composed && slices.ContainsFunc(v.Runs[i].Findings, func(f trace.Finding) bool { return f.Code == "machine_drift" }) {
			t.Errorf("%s: a composed run is said to have drifted", v.Runs[i].ID)
		}
	}
}

// validated is the default fit and validation of extracted runs; nil where nothing can be
// fitted.
func validated(t *testing.T, out string, ext *result.Extract) (*result.Validation, *result.Fit) {
	t.Helper()
	f, err := fittedOf(out, ext, 0.8)
	if err != nil {
		fmt.Printf("%s: %v\n", ext.Runs[0].ID, err)
		return nil, nil
	}
	v, err := pipeline.ValidateTables(context.Background(), out, ext, f, validate.DefaultOptions(), result.Header{})
	if err != nil {
		t.Fatal(err)
	}
	return v, f
}

// applyCauses does what each printed reason says would remove the error: the coefficients changed, or the drift followed.
func applyCauses(t *testing.T, v *result.Validation, f *result.Fit, out string, ext *result.Extract) {
	t.Helper()
	if v == nil {
		return
	}
	for _, d := range v.Diagnoses {
		if cure := cureOf(&d); cure != nil {
			set, err := fit.Native(f, nil)
			if err != nil {
				t.Fatal(err)
			}
			cure(set)
			var sources []validate.Source
			for i := range ext.Runs {
				r := &ext.Runs[i]
				sources = append(sources, validate.Source{ID: r.ID, Training: true, Load: func() (*trace.Run, *deploy.Deployment, error) {
					run, err := table.ReadLean(table.RunDir(out, r.ID))
					return run, r.Deployment, err
				}})
			}
			o := validate.DefaultOptions()
			o.StepsOnly = true
			after, err := validate.Run(context.Background(), set, f, sources, o)
			if err != nil {
				t.Fatal(err)
			}
			checkCure(t, d.Scope, &d, v, after)
		}
		if d.Cause == result.CauseMachineDrift {
			checkFollowed(t, v, &d)
		}
	}
}

// checkFollowed: over the runs that a drift is named for,
// the E2E of requests replayed with the drift is nearer to the recorded one than without it.
func checkFollowed(t *testing.T, v *result.Validation, d *result.Diagnosis) {
	t.Helper()
	var plain, followed float64
	for i := range v.Runs {
		r := &v.Runs[i]
		inConfig := slices.ContainsFunc(v.Configs, func(c result.ConfigErrors) bool {
			return c.Scope == d.Scope && slices.Contains(c.Runs, r.ID)
		})
		named := d.Scope == coeff.ScopeAll || strings.HasPrefix(d.Scope, r.ID+"/") || inConfig
		if r.Metrics == nil || r.MetricsDrift == nil || !named {
			continue
		}
		if of, with := r.Metrics.E2E, r.MetricsDrift.E2E; of != nil && with != nil {
			plain += float64(r.Requests) * of.WassersteinMs
			followed += float64(r.Requests) * with.WassersteinMs
		}
	}
	fmt.Printf("applied: %s: %s: E2E distance %.3f of that without\n", d.Scope, d.Sentence, followed/plain)
	if !(followed < plain) {
		t.Errorf("%s: %s: applied, the E2E distance is %.3f times that without", d.Scope, d.Sentence, followed/plain)
	}
}

func printVerdicts(all []*result.Validation) (steps, sim, n int) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "run\tsteps\treplay\twaits\ttransfer\tphase\tn\t"+
		"TTFT\tby chance\tin-sample\tITL\tby chance\tin-sample\tE2E\tby chance\tin-sample\twhy")
	for _, v := range all {
		if v == nil {
			continue
		}
		for i := range v.Configs {
			c := &v.Configs[i]
			n++
			of := func(purpose string) string { return v.VerdictFor(purpose, c.Scope).Verdict }
			steps += count(of(coeff.PurposeSteps) == coeff.VerdictPass)
			sim += count(of(coeff.PurposeReplay) == coeff.VerdictPass)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s", strings.Join(c.Runs, ","), of(coeff.PurposeSteps), of(coeff.PurposeReplay),
				of(coeff.PurposeWaits), of(coeff.PurposeTransfer))
			for k, r := range judgedEntries(v, c) {
				if k > 0 {
					fmt.Fprint(w, "\t\t\t\t")
				}
				fmt.Fprintf(w, "\t%s\t%d\t%s", r.Phase+" "+r.Split.Kind, r.Requests, distances(v, r))
				if k == 0 {
					fmt.Fprintf(w, "\t%s", whyNot(v, c))
				}
				fmt.Fprintln(w)
			}
		}
	}
	w.Flush()
	return steps, sim, n
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// judgedEntries are the replays that decide for a configuration, else its first entry.
func judgedEntries(v *result.Validation, c *result.ConfigErrors) []*result.ValidationRun {
	var out []*result.ValidationRun
	for i := range v.Runs {
		r := &v.Runs[i]
		if slices.Contains(c.Runs, r.ID) && r.Metrics != nil && r.Judged() {
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		for i := range v.Runs {
			if slices.Contains(c.Runs, v.Runs[i].ID) {
				return []*result.ValidationRun{&v.Runs[i]}
			}
		}
	}
	return out
}

// distances are those of the hold-out, what chance reaches, and those of the whole phase.
func distances(v *result.Validation, r *result.ValidationRun) string {
	whole := &result.Metrics{}
	for i := range v.Runs {
		if w := &v.Runs[i]; w.ID == r.ID && w.Phase == r.Phase && w.Split.Kind == result.SplitInSample && w.Metrics != nil {
			whole = w.Metrics
		}
	}
	held := r.Metrics
	if held == nil {
		held = &result.Metrics{}
	}
	var cells []string
	for _, m := range [][2]*result.Metric{{held.TTFT, whole.TTFT}, {held.ITL, whole.ITL}, {held.E2E, whole.E2E}} {
		cells = append(cells, distance(m[0]), chance(m[0]), distance(m[1]))
	}
	return strings.Join(cells, "\t")
}

// whyNot lists the failed gates of steps and replay with their values, what is missing, and
// the diagnosis.
func whyNot(v *result.Validation, c *result.ConfigErrors) string {
	p := v.VerdictFor(coeff.PurposeReplay, c.Scope)
	var parts []string
	for _, g := range v.Gates {
		if slices.Contains(p.Failed, g.Name+" of "+g.Scope) && g.Value != nil {
			parts = append(parts, fmt.Sprintf("%s %.3g", g.Name, *g.Value))
		}
	}
	if p.Verdict == coeff.VerdictInsufficient && len(p.Missing) > 0 {
		parts = append(parts, p.Missing[0])
	}
	for _, d := range v.Diagnoses {
		id, _, _ := strings.Cut(strings.TrimSuffix(d.Scope, " (in-sample)"), "/")
		if d.Scope == c.Scope || slices.Contains(c.Runs, id) {
			parts = append(parts, "["+d.Cause+"] "+d.Sentence)
		}
	}
	return strings.Join(parts, "; ")
}
