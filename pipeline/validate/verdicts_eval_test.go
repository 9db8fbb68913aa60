package validate_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// TestEvalVerdicts prints the verdicts of the demo, the composed and the real runs for each
// purpose, fitted together and every run alone, with the distances of the hold-out, what
// chance reaches, those of the whole phase, and why a run does not pass. Few hold-outs decide:
// their 47 to 264 requests are one stretch of load.
func TestEvalVerdicts(t *testing.T) {
	repo.NeedEval(t)
	for _, set := range []struct {
		name                 string
		leastSteps, leastSim int
	}{{demo, 2, 0}, {"composed", 15, 3}, {"real_vllm_cpu", 0, 0}} {
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

// checkHeldOut: no configuration passes beside a hold-out at or over a threshold.
func checkHeldOut(t *testing.T, v *result.Validation) {
	t.Helper()
	for i := range v.Configs {
		c := &v.Configs[i]
		if v.VerdictFor(coeff.PurposeReplay, c.Scope).Verdict != coeff.VerdictPass {
			continue
		}
		for _, r := range judgedEntries(v, c) {
			for _, m := range []*result.Metric{r.Metrics.TTFT, r.Metrics.ITL, r.Metrics.E2E} {
				if m != nil && (m.KSD >= 0.15 || m.MedianRelErrPaired != nil && *m.MedianRelErrPaired >= 0.2) {
					t.Errorf("%s passes replay beside a hold-out of %s with KS %.3f", c.Scope, r.ID, m.KSD)
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
