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
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/validate"
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
	return breakage{run: run, what: "machine slower for a while", purpose: coeff.PurposeSteps, cause: result.CauseMachineDrift,
		mentions: "speed",
		dep:      func(d *deploy.Deployment) { d.Provenance = "" },
		record: func(r *trace.Run) {
			n := len(r.Steps)
			var gaps []int64
			for i := 1; i < n; i++ {
				gap := r.Steps[i].TsStartNs - r.Steps[i-1].TsStartNs
				if i > 7*n/8 {
					gap *= 2
				}
				gaps = append(gaps, gap)
			}
			respace(r, gaps)
		}}
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
			d.Hardware.BwPeakTBs, d.Hardware.TFlopsPeak = d.Hardware.BwPeakTBs/3, d.Hardware.TFlopsPeak/3
		}}
}

// heaviest is the name of the time-like term with the rank-th largest share of the prediction.
func heaviest(version features.Version, f *result.Fit, rank int) string {
	var names []string
	var shares []float64
	for j, feature := range features.BetaFeatures(version) {
		if c := f.Beta.Coefficients[j]; feature.IsTime() && c.Share != nil && c.Identified == coeff.Within {
			names, shares = append(names, c.Name), append(shares, -*c.Share)
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
	if right < n || named < 28 || n != 40 || cured < 12 {
		t.Errorf("got %d named right and %d without a wrong one of %d, want 28 and 40 of 40", named, right, n)
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
	sets, fits := map[string]*coeff.Set{}, map[string]*result.Fit{}
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
			cause, sentence = v.Diagnoses[0].Cause, v.Diagnoses[0].Sentence
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
	was, is := gateValue(before, "beta_mape", d.Scope), gateValue(after, "beta_mape", d.Scope)
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
		return d.Cause != result.CauseUnknown && (d.Cause != b.cause || !strings.Contains(d.Sentence+" "+d.Term, b.mentions))
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
