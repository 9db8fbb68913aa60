package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// What a fit learns from (spec#request-level).
const (
	FromSteps    = "steps"    // step traces
	FromRequests = "requests" // what clients or stock spans say of requests
	FromPoints   = "points"   // means of load levels
)

// Forms of what a fit from requests writes.
const (
	FormPhysics = "physics"
	FormTrained = "trained-physics" // also in BLIS's terms
)

// stepsPerSecond is what a second of --budget is worth, simulated steps: what one core
// does at least. Counting steps, not time, gives the same bytes on every machine.
const stepsPerSecond = 500_000

// writeForm writes the form asked for beside coefficients.yaml: what Export makes of
// fit.json.
func (o *FitOptions) writeForm(ctx context.Context) error {
	if o.Form != FormTrained {
		return nil
	}
	e := DefaultExportOptions()
	e.Format, e.Out, e.Validation = export.FormatBLIS, filepath.Join(o.Out, folder.BLISFile), "none"
	in := filepath.Join(o.Out, folder.FitFile)
	_, err := Export(ctx, in, e)
	var refused *trace.Error
	if errors.As(err, &refused) {
		return refused.WithHint("the fit itself is written; blis-train export " + in + " --format blis-defaults has --config and --force")
	}
	return err
}

// checkRequests refuses options of a fit from requests or points that cannot be.
func (o *FitOptions) checkRequests() error {
	if !slices.Contains(searches, o.Search) {
		return trace.Errorf(rows.BadOption, "--search: got %q, want one of %s", o.Search, strings.Join(searches, ", "))
	}
	if o.Form != FormPhysics && o.Form != FormTrained {
		return trace.Errorf(rows.BadOption, "--form: got %q, want %s or %s", o.Form, FormPhysics, FormTrained)
	}
	if !slices.Contains([]string{"", FromSteps, FromRequests, FromPoints}, o.From) {
		return trace.Errorf(rows.BadOption, "--from: got %q, want %s, %s or %s", o.From, FromSteps, FromRequests, FromPoints)
	}
	_, err := o.steps()
	return err
}

// onlyRequests and onlySteps are the options that only a fit of the kind makes something of.
var (
	onlyRequests = []string{"search", "holdout", "form", "budget"}
	onlySteps    = []string{"save-gram", "dump-rows", "try-amendments", "refit-all", "lag", "objective", "model", "alpha-target", "max-rows"}
)

// unused refuses options that this kind of fit would not look at.
func (o *FitOptions) unused(requests bool) error {
	others, of, hint := onlyRequests, FromRequests, "a run that --without leaves out of a fit from steps is a test run of validate"
	if requests {
		others, of, hint = onlySteps, FromSteps, ""
		if o.Spec == features.V10 || o.Recipe == fit.Frozen || o.BetaTarget == coeff.Duration {
			return option.Misusef("--spec %s, keys recipe: %s and beta-target: %s: go with a fit from steps only", o.Spec, o.Recipe, o.BetaTarget)
		}
	}
	d := DefaultFitOptions()
	if err := d.ResolveFor(nil); err != nil {
		return err
	}
	usual := d.Table()
	for i, opt := range o.Table() {
		if slices.Contains(others, opt.Name) && !slices.Equal(opt.Values(), usual[i].Values()) {
			if opt.Name != "holdout" {
				hint = ""
			}
			return &option.Misuse{Msg: fmt.Sprintf("%s: goes with a fit from %s only", opt.Name, of), Hint: hint}
		}
	}
	return nil
}

// steps are those of the budget; 0: no limit.
func (o *FitOptions) steps() (int64, error) {
	if o.Budget == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(o.Budget)
	if err != nil || d <= 0 {
		return 0, trace.Errorf(rows.BadOption, "--budget: got %q, want a time above 0, as 60s", o.Budget)
	}
	return max(1, int64(d.Seconds()*stepsPerSecond)), nil
}

// searches of a fit from requests.
var searches = []string{learn.SearchNone, learn.SearchNelderMead, learn.SearchSPSA, learn.SearchCMAES}

// FromRequests reports what a folder is fitted from: what was asked for, else
// steps where any run has them.
func (o *FitOptions) FromRequests(ext *result.Extract) (bool, error) {
	requests := o.From == FromRequests
	if o.From == FromPoints {
		return false, &option.Misuse{Msg: "--from points: goes with fit and tables of load levels only",
			Hint: "blis-train fit --from points LEVELS.csv --deployment run.yaml -o OUT"}
	}
	if o.From == "" {
		requests = len(ext.Runs) > 0
		for i := range ext.Runs {
			t := ext.Runs[i].Tables
			requests = requests && t[table.Steps] == 0 && t[table.Iterations] == 0
		}
	}
	return requests, errors.Join(o.checkRequests(), o.unused(requests))
}

// fitRequests fits the runs of tables from their requests; options are resolved.
func fitRequests(ctx context.Context, t Tables, h result.Header, o FitOptions) (*result.Fit, error) {
	f := &requestFit{o: o}
	if err := f.read(t); err != nil {
		return nil, err
	}
	prior, err := f.prior()
	if err != nil {
		return nil, err
	}
	doc, err := f.fit(ctx, prior)
	if err != nil {
		return nil, err
	}
	doc.Header, doc.Inputs = h, t.Inputs
	return doc, nil
}

// fit learns from the loads.
func (f *requestFit) fit(ctx context.Context, prior *learn.Prior) (*result.Fit, error) {
	lo := learn.DefaultOptions()
	lo.Seed, lo.Workers, lo.Search, lo.Holdout = f.o.Seed, f.o.Workers, f.o.Search, f.held
	var err error
	if lo.Steps, err = f.o.steps(); err != nil {
		return nil, err
	}
	if err := f.leaveFull(prior); err != nil {
		return nil, err
	}
	start := time.Now()
	got, err := learn.Fit(ctx, f.loads, prior, lo)
	if err != nil {
		return nil, err
	}
	seconds := time.Since(start).Seconds()
	for _, l := range f.loads {
		more, err := l.Unlike(got.Set)
		if err != nil {
			return nil, err
		}
		f.warn = append(f.warn, more...)
	}
	doc, err := f.document(got)
	if err == nil {
		doc.Requests.StepsPerSecond = float64(got.Steps) / seconds
	}
	if err != nil || len(f.o.Holdout) == 0 {
		return doc, err
	}
	for _, l := range f.held {
		one, err := heldOut(l, got.Set)
		if err != nil {
			return nil, err
		}
		doc.Requests.Holdout = append(doc.Requests.Holdout, *one)
	}
	return doc, nil
}

// heldOut are the errors of a set on a load that it has not seen.
func heldOut(l *learn.Load, set *coeff.Set) (*result.RequestHoldout, error) {
	got, err := l.Predict(set)
	if err != nil {
		return nil, err
	}
	out := &result.RequestHoldout{Name: l.Name, Requests: len(l.Requests)}
	for _, v := range []struct {
		to **result.Metric
		of func(m *sim.Measured, outputs int64) float64
	}{
		{&out.Metrics.TTFT, func(m *sim.Measured, _ int64) float64 { return m.TTFTUs }},
		{&out.Metrics.ITL, func(m *sim.Measured, outputs int64) float64 { return m.SpanUs / float64(outputs-1) }},
		{&out.Metrics.E2E, func(m *sim.Measured, _ int64) float64 { return m.E2EUs }},
	} {
		var real, simulated []float64
		for i := range got {
			n := l.Requests[i].OutputTokens
			a, b := v.of(&l.Seen[i], n), v.of(&got[i], n)
			if a > 0 && b > 0 {
				real, simulated = append(real, a/1e3), append(simulated, b/1e3)
			}
		}
		*v.to = validate.Compare(real, simulated, true)
	}
	return out, nil
}

// requestFit is one fit from requests under way.
type requestFit struct {
	o     FitOptions
	dep   *deploy.Deployment
	key   string // of the one configuration
	runs  []result.FitRun
	loads []*learn.Load
	held  []*learn.Load // what judges: runs held out, or the same, of which only the last arrivals count
	warn  []trace.Finding
}

// read makes the loads of all runs; those of the first configuration with an
// unsaturated run are fitted.
func (f *requestFit) read(t Tables) error {
	if err := f.knows(t.Extract); err != nil {
		return err
	}
	for i := range t.Runs {
		r := &t.Runs[i]
		run, err := table.ReadLean(t.runDir(r.ID))
		if err != nil {
			return err
		}
		out := result.FitRun{ID: r.ID, Config: r.Deployment.Config(), Findings: []trace.Finding{}}
		out.Reason, _ = rows.JudgeLoad(run, r.Deployment)
		out.Saturated = out.Reason != ""
		switch {
		case slices.Contains(f.o.Without, r.ID):
			out.Reason = "left out (--without)"
		case out.Saturated && !f.o.KeepSaturated:
		case f.key != "" && f.key != out.Config:
			return trace.Errorf(rows.BadOption, "fit --from requests: got runs of %s and of %s, want one configuration", f.dep.Label(),
				r.Deployment.Label()).WithHint("leave the others out with --without, or fit them into folders of their own")
		default:
			if err := f.take(run, r.Deployment, &out); err != nil {
				return err
			}
		}
		f.runs = append(f.runs, out)
	}
	if len(f.loads) == 0 && len(f.held) > 0 {
		return trace.Errorf(rows.BadOption, "--holdout: got every run with a request, want one at least to learn from")
	}
	if len(f.loads) == 0 {
		return trace.Errorf(learn.NothingMeasured, "fit --from requests: got no request with a time in %d runs", len(t.Runs)).
			WithHint("blis-train inspect says what each run holds")
	}
	return nil
}

// knows refuses runs held out that are not there.
func (f *requestFit) knows(ext *result.Extract) error {
	for _, id := range f.o.Holdout {
		if !slices.ContainsFunc(ext.Runs, func(r result.ExtractRun) bool { return r.ID == id }) {
			return trace.Errorf(rows.BadOption, "--holdout: got %q, want the id of a run of this folder", id)
		}
	}
	return nil
}

// take adds the loads of one run. One held out judges; of the others, where none is,
// the last arrivals do.
func (f *requestFit) take(run *trace.Run, dep *deploy.Deployment, out *result.FitRun) error {
	loads, findings := clientLoads(run, dep, f.o.KeepSaturated, f.o.Shared)
	out.Findings = append(out.Findings, findings...)
	if len(loads) == 0 && len(run.Points) > 0 {
		out.Used, f.dep, f.key = true, dep, out.Config
		for i := range run.Points {
			if err := f.level(&run.Points[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if len(loads) == 0 {
		out.Reason = "no request with a time"
		return nil
	}
	f.dep, f.key = dep, out.Config
	if slices.Contains(f.o.Holdout, out.ID) {
		f.held, out.Reason = append(f.held, loads...), "held out (--holdout)"
		return nil
	}
	out.Used = true
	if len(f.o.Holdout) > 0 {
		f.loads = append(f.loads, loads...)
		return nil
	}
	for _, l := range loads {
		if later := l.Later(f.o.Split); later.IsMeasured() {
			f.held = append(f.held, later)
		}
		f.loads = append(f.loads, l.Before(f.o.Split))
	}
	return nil
}

// prior is the one asked for, or the library where it knows the device, else the
// roofline.
func (f *requestFit) prior() (*learn.Prior, error) {
	switch f.o.Prior {
	case fit.PriorRoofline:
		return learn.Roofline(), nil
	case fit.PriorZero, fit.PriorLibrary:
		set, name, err := coeff.LibraryFor(f.dep)
		if err == nil {
			return &learn.Prior{Name: "library/" + name, Set: set}, nil
		}
		if f.o.Prior == fit.PriorLibrary {
			return nil, err
		}
		return learn.Roofline(), nil
	}
	r, err := os.Open(f.o.Prior)
	if err != nil {
		return nil, trace.Errorf(rows.BadOption, "--prior: got %q, want roofline, library or a coefficient file (%v)", f.o.Prior, err)
	}
	set, err := coeff.Load(r, f.o.Prior, features.CheckSet)
	return &learn.Prior{Name: f.o.Prior, Set: set}, errors.Join(err, r.Close())
}

// document is the fit in the form every consumer of a fit reads.
func (f *requestFit) document(got *learn.Learned) (*result.Fit, error) {
	doc, err := learn.Document(got.Set, f.dep)
	if err != nil {
		return nil, err
	}
	o := &f.o.Options
	doc.Options = result.FitOptions{Spec: string(got.Set.SpecVersion), Recipe: got.Set.Recipe, BetaTarget: got.Set.BetaTarget, Split: o.Split,
		Seed: o.Seed, Prior: got.Prior, Without: append([]string{}, o.Without...)}
	doc.Runs = f.runs
	for i := range f.runs {
		if f.runs[i].Used {
			doc.Configs[0].Runs = append(doc.Configs[0].Runs, f.runs[i].ID)
		}
	}
	doc.Warnings = append([]trace.Finding{}, f.warn...)
	doc.Requests = requestLevel(f.loads, got)
	return doc, nil
}

// requestLevel is what stands in fit.json of a fit from requests alone.
func requestLevel(loads []*learn.Load, got *learn.Learned) *result.RequestLevel {
	r := &result.RequestLevel{Prior: got.Prior, Objective: got.Objective, NoiseFloor: got.Floor, SpanErrorFrac: result.OrNull(got.SpanError),
		TTFTErrorFrac: result.OrNull(got.TTFTError), Evaluations: got.Calls,
		SimulatedSteps: got.Steps, Loads: []result.RequestLoad{}, Passes: []result.RequestPass{}, Directions: []result.LearnedDirection{}}
	if u := got.Scatter; u != nil {
		scatter := result.RequestScatter(*u)
		r.Scatter = &scatter
	}
	for _, l := range loads {
		r.Loads = append(r.Loads, result.RequestLoad{Name: l.Name, Tier: l.Tier, Requests: len(l.Requests)})
	}
	for _, p := range got.Passes {
		r.Passes = append(r.Passes, result.RequestPass(p))
	}
	for i := range got.Directions {
		d := &got.Directions[i]
		r.Directions = append(r.Directions, result.LearnedDirection{Terms: d.Terms, LearnedFrac: d.Learned, Learned: d.IsLearned(),
			Needs: d.Needs()})
	}
	return r
}
