package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
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
	if refused, ok := errors.AsType[*trace.Error](err); ok {
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
	onlySteps    = []string{"save-gram", "dump-rows", "refit-all", "lag", "objective", "model", "alpha-target", "max-rows"}
)

// unused refuses options that this kind of fit would not look at.
func (o *FitOptions) unused(requests bool) error {
	others := onlyRequests
	of := FromRequests
	hint := "a run that --without leaves out of a fit from steps is a test run of validate"
	if requests {
		others = onlySteps
		of = FromSteps
		hint = ""
		if o.Spec == features.V10 || o.Recipe == fit.Frozen || o.BetaTarget == coeff.Duration {
			return option.Misusef("--spec %s, keys recipe: %s and beta-target: %s: go with a fit from steps only", o.Spec, o.Recipe, o.BetaTarget)
		}
	}
	d := DefaultFitOptions()
	if err := d.ResolveFor(nil); err != nil {
		return err
	}
	usual := d.Flags()
	for i, f := range o.Flags() {
		name := f.Names()[0]
		if slices.Contains(others, name) && !slices.Equal(option.Values(f), option.Values(usual[i])) {
			if name != "holdout" {
				hint = ""
			}
			return &option.Misuse{Msg: fmt.Sprintf("%s: goes with a fit from %s only", name, of), Hint: hint}
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
var searches = []string{requestfit.SearchNone, requestfit.SearchNelderMead, requestfit.SearchSPSA, requestfit.SearchCMAES}

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
	f := &requestFit{o: o, of: map[*requestfit.Load]string{}}
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
func (f *requestFit) fit(ctx context.Context, prior *requestfit.Prior) (*result.Fit, error) {
	lo := requestfit.DefaultOptions()
	lo.Seed = f.o.Seed
	lo.Workers = f.o.Workers
	lo.Search = f.o.Search
	lo.Holdout = f.held
	var err error
	if lo.Steps, err = f.o.steps(); err != nil {
		return nil, err
	}
	if err := f.leaveFull(prior); err != nil {
		return nil, err
	}
	start := time.Now()
	got, err := requestfit.Fit(ctx, f.loads, prior, lo)
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
	g, err := gainOf(f.held, got.Set, prior.Set)
	if err != nil {
		return nil, err
	}
	f.warn = append(f.warn, g.finding()...)
	doc, err := f.document(got)
	if err != nil {
		return nil, err
	}
	doc.Requests.StepsPerSecond = float64(got.Level.SimulatedSteps) / seconds
	if f.loads[0].Point != nil {
		doc.Requests.Levels, err = f.levelHoldout(ctx, prior, got.Set, lo)
	}
	if err != nil || len(f.o.Holdout) == 0 {
		return doc, err
	}
	for _, l := range f.held {
		if l.Point != nil {
			continue
		}
		one, err := heldOut(l, got.Set)
		if err != nil {
			return nil, err
		}
		doc.Requests.Holdout = append(doc.Requests.Holdout, *one)
	}
	return doc, nil
}

// heldOut are the errors of a set on a load that it has not seen.
func heldOut(l *requestfit.Load, set *coeff.Set) (*result.RequestHoldout, error) {
	got, err := l.Predict(set)
	if err != nil {
		return nil, err
	}
	var real, simulated [3][]float64
	for i := range got {
		a := &l.Seen[i]
		b := &got[i]
		steps := float64(l.Requests[i].OutputTokens - 1)
		for k, v := range [3][2]float64{{a.TTFTUs, b.TTFTUs}, {a.SpanUs / steps, b.SpanUs / steps}, {a.E2EUs, b.E2EUs}} {
			if v[0] > 0 && v[1] > 0 {
				real[k], simulated[k] = append(real[k], v[0]/1e3), append(simulated[k], v[1]/1e3)
			}
		}
	}
	m := func(k int) *result.Metric { return validate.Compare(real[k], simulated[k], true) }
	return &result.RequestHoldout{Name: l.Name, Requests: len(l.Requests), Metrics: result.Metrics{TTFT: m(0), ITL: m(1), E2E: m(2)}}, nil
}

// noGain is the code of a fit that does not predict what it has not seen nearer than its prior.
const noGain trace.Code = "no_gain"

// gain compares what was learned with the prior on requests that neither has seen: the median errors of E2E, and where 95 % of
// their difference lie as blocks of consecutive requests, drawn in pairs, have it.
type gain struct{ learned, prior, low, high float64 }

func gainOf(held []*requestfit.Load, learned, prior *coeff.Set) (gain, error) {
	var x, y []float64
	for _, l := range held {
		a, err := l.Predict(learned)
		b, errPrior := l.Predict(prior)
		if err = errors.Join(err, errPrior); err != nil {
			return gain{}, err
		}
		for i, seen := range l.Seen { // none of a load level
			if off, before := math.Abs(a[i].E2EUs/seen.E2EUs-1), math.Abs(b[i].E2EUs/seen.E2EUs-1); off >= 0 && before >= 0 {
				x, y = append(x, off), append(y, before)
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 0xb10c))
	draws := make([]float64, 1000)
	block := int(math.Ceil(math.Sqrt(float64(len(x)))))
	for d := range draws {
		var a, b []float64
		for len(a) < len(x) {
			from := rng.IntN(len(x) - block + 1)
			a = append(a, x[from:from+block]...)
			b = append(b, y[from:from+block]...)
		}
		draws[d] = stat.Median(a) - stat.Median(b)
	}
	slices.Sort(draws)
	return gain{stat.Median(x), stat.Median(y), stat.Quantile(draws, 0.025), stat.Quantile(draws, 0.975)}, nil
}

// finding says where what was learned is not nearer than the prior beyond chance.
func (g gain) finding() []trace.Finding {
	if !(g.high >= 0) {
		return nil
	}
	return []trace.Finding{trace.Findingf(noGain, "E2E of the held-out requests is off by %.1f %% with what was learned, by %.1f %% with the "+
		"prior, medians; 95 %% of the difference lie between %+.1f and %+.1f points", 100*g.learned, 100*g.prior, 100*g.low, 100*g.high)}
}

// requestFit is one fit from requests under way.
type requestFit struct {
	o     FitOptions
	dep   *deploy.Deployment
	key   string // of the one configuration
	runs  []result.FitRun
	loads []*requestfit.Load
	held  []*requestfit.Load // what judges: runs held out, or the same, of which only the last arrivals count
	warn  []trace.Finding
	of    map[*requestfit.Load]string // runs of load levels

	wallNs int64 // latest wall-clock stamp
}

// besideRequests is why load levels are not fitted.
const besideRequests = "requests teach; load levels beside them do not"

// levelFolds is in how many parts load levels are left out, one after the other.
const levelFolds = 5

// levelHoldout predicts every load level with coefficients that never saw it: those held out with
// the answer, else each fifth with a fit of the others.
func (f *requestFit) levelHoldout(ctx context.Context, prior *requestfit.Prior, set *coeff.Set, o requestfit.Options) ([]result.LevelHoldout, error) {
	var out []result.LevelHoldout
	add := func(l *requestfit.Load, set *coeff.Set) error {
		got, err := l.PredictPoint(set)
		out = append(out, result.LevelHoldout{Run: f.of[l], Name: l.Name, TTFTMs: result.OrNull(l.Point.TTFTMs), TPOTMs: l.Point.TPOTMs,
			PredictedTTFTMs: result.OrNull(got.TTFTMs), PredictedTPOTMs: result.OrNull(got.TPOTMs)})
		return err
	}
	for _, l := range f.held {
		if l.Point != nil {
			if err := add(l, set); err != nil {
				return nil, err
			}
		}
	}
	if len(out) > 0 || len(f.loads) < 2 {
		return out, nil
	}
	sets := make([]*coeff.Set, min(levelFolds, len(f.loads)))
	for k := range sets {
		var others []*requestfit.Load
		for i, l := range f.loads {
			if i%len(sets) != k {
				others = append(others, l)
			}
		}
		got, err := requestfit.Fit(ctx, others, prior, o)
		if err != nil {
			return nil, err
		}
		sets[k] = got.Set
	}
	for i, l := range f.loads {
		if err := add(l, sets[i%len(sets)]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// read makes the loads of all runs; those of the first configuration with an
// unsaturated run are fitted.
func (f *requestFit) read(t Tables) error {
	for _, id := range f.o.Holdout {
		if !slices.ContainsFunc(t.Runs, func(r result.ExtractRun) bool { return r.ID == id }) {
			return trace.Errorf(rows.BadOption, "--holdout: got %q, want the id of a run of this folder", id)
		}
	}
	for i := range t.Runs {
		r := &t.Runs[i]
		run, err := table.ReadLean(t.runDir(r.ID))
		if err != nil {
			return err
		}
		out := result.FitRun{ID: r.ID, Config: r.Deployment.Config(), Findings: []trace.Finding{}}
		if v := loadVerdicts(run, r.Deployment).Run; v.Saturated {
			out.Saturated, out.Reason = true, rows.HitText(v.Checks)
			what := "it is left out; the key keep-saturated: true learns from it"
			if f.o.KeepSaturated {
				what = "it teaches all the same (keep-saturated)"
			}
			f.warn = append(f.warn, trace.Findingf(rows.Saturated, "run %s: saturated, %s: %s", r.ID, out.Reason, what))
		}
		switch {
		case slices.Contains(f.o.Without, r.ID):
			out.Reason = "left out (--without)"
		case out.Saturated && !f.o.KeepSaturated:
		case f.key != "" && f.key != out.Config:
			return trace.Errorf(rows.BadOption, "fit --from requests: got run %s of %s beside runs of %s, want one configuration", r.ID, out.Config,
				f.key).WithHint("leave it out with --without " + r.ID + ", or fit it into a folder of its own")
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
	if len(f.loads) == 0 && slices.ContainsFunc(f.runs, func(r result.FitRun) bool { return r.Saturated }) {
		return trace.Errorf(requestfit.NothingMeasured, "fit --from requests: got saturated runs alone, want one that the server kept up with").
			WithHint("the key keep-saturated: true in pipeline.yaml, --config FILE, learns from them all the same; replays of them decide nothing")
	}
	if len(f.loads) == 0 {
		return trace.Errorf(requestfit.NothingMeasured, "fit --from requests: got no request with a time in %d runs", len(t.Runs)).
			WithHint("blis-train inspect says what each run holds")
	}
	f.requestsOnly()
	return nil
}

// requestsOnly leaves load levels out where there are requests, and says so.
func (f *requestFit) requestsOnly() {
	isLevel := func(l *requestfit.Load) bool { return l.Point != nil }
	if !slices.ContainsFunc(f.loads, isLevel) || !slices.ContainsFunc(f.loads, func(l *requestfit.Load) bool { return !isLevel(l) }) {
		return
	}
	f.loads = slices.DeleteFunc(f.loads, isLevel)
	f.held = slices.DeleteFunc(f.held, isLevel)
	for _, id := range f.of {
		for i := range f.runs {
			if r := &f.runs[i]; r.ID == id && r.Used {
				r.Used, r.Reason = false, besideRequests
				f.warn = append(f.warn, levelsBeside(r.ID, besideRequests))
			}
		}
	}
}

// levelsBeside says that the load levels of a run teach nothing, and how they would.
func levelsBeside(id, why string) trace.Finding {
	return trace.Findingf(clients.CodeClientFile, "run %s: %s; blis-train fit --from points TABLE.csv --deployment run.yaml -o OUT fits them",
		id, why)
}

// take adds the loads of one run. One held out judges; of the others, where none is,
// the last arrivals do.
func (f *requestFit) take(run *trace.Run, dep *deploy.Deployment, out *result.FitRun) error {
	loads, findings := clientLoads(run, dep, f.o.KeepSaturated, f.o.Shared)
	f.wallNs = max(f.wallNs, fit.LatestWall(run))
	if len(loads) == 0 && len(run.Points) > 0 {
		return f.takeLevels(run.Points, dep, out)
	}
	out.Findings = append(out.Findings, findings...)
	if len(run.Points) > 0 {
		f.warn = append(f.warn, levelsBeside(out.ID, besideRequests))
	}
	if len(loads) == 0 {
		out.Reason = "no request with a time"
		return nil
	}
	f.dep, f.key = dep, out.Config
	if slices.Contains(f.o.Holdout, out.ID) {
		f.held = append(f.held, loads...)
		out.Reason = "held out (--holdout)"
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

// takeLevels adds load levels.
func (f *requestFit) takeLevels(points []trace.LoadPoint, dep *deploy.Deployment, out *result.FitRun) error {
	f.dep, f.key, out.Used = dep, out.Config, !slices.Contains(f.o.Holdout, out.ID)
	to := &f.loads
	if !out.Used {
		to, out.Reason = &f.held, "held out (--holdout)"
	}
	for i := range points {
		l, err := levelLoad(&points[i], dep)
		if err != nil {
			return err
		}
		f.warn = append(f.warn, overrun(&points[i])...)
		f.of[l], *to = out.ID, append(*to, l)
	}
	return nil
}

// prior is the one asked for, or the library where it knows the device, else the
// roofline.
func (f *requestFit) prior() (*requestfit.Prior, error) {
	switch f.o.Prior {
	case fit.PriorRoofline:
		return requestfit.Roofline(f.dep), nil
	case fit.PriorZero, fit.PriorLibrary:
		set, err := fit.LibraryFor(f.dep)
		if err == nil {
			return &requestfit.Prior{Name: fit.PriorLibrary, Set: set}, nil
		}
		if f.o.Prior == fit.PriorLibrary {
			return nil, err
		}
		return requestfit.Roofline(f.dep), nil
	}
	r, err := files.Open(f.o.Prior, false)
	if err != nil {
		return nil, trace.Errorf(rows.BadOption, "--prior: got %q, want roofline, library or a coefficient file (%v)", f.o.Prior, err)
	}
	set, err := coeff.Load(r, f.o.Prior, features.CheckSet)
	return &requestfit.Prior{Name: f.o.Prior, Set: set}, errors.Join(err, r.Close())
}

// document is the fit in the form every consumer of a fit reads.
func (f *requestFit) document(got *requestfit.Learned) (*result.Fit, error) {
	doc, err := requestfit.Document(got.Set, f.dep)
	if err != nil {
		return nil, err
	}
	o := &f.o.Options
	doc.Options = result.FitOptions{Spec: string(got.Set.SpecVersion), Recipe: got.Set.Recipe, BetaTarget: got.Set.BetaTarget, Split: o.Split,
		Seed: o.Seed, Prior: got.Level.Prior, Without: append([]string{}, o.Without...)}
	prompts := 0.0
	outputs := 0.0
	n := 0.0
	for _, l := range f.loads {
		for i := range l.Requests {
			prompts += float64(l.Requests[i].PromptTokens)
			outputs += float64(l.Requests[i].OutputTokens)
			n += 1
		}
	}
	doc.Configs[0].MeanPromptTokens, doc.Configs[0].MeanOutputTokens = result.OrNull(prompts/n), result.OrNull(outputs/n)
	doc.Runs, doc.TrainingDate = f.runs, fit.DateOf(f.wallNs) // not the prior's
	for i := range f.runs {
		if f.runs[i].Used {
			doc.Configs[0].Runs = append(doc.Configs[0].Runs, f.runs[i].ID)
		}
	}
	doc.Warnings = append([]trace.Finding{}, f.warn...)
	doc.Requests = got.Level
	return doc, nil
}

// FitPoints learns the coefficients of one deployment from load levels: what
// benchmarks printed of each, in any form that sweep reads. It writes what Fit
// writes. Codes: unknown_client_file, bad_points, those of the prior
// and the simulator.
func FitPoints(ctx context.Context, tables []string, dep *deploy.Deployment, o FitOptions) (*result.Fit, error) {
	if o.Out == "" {
		return nil, option.Misusef("fit: --from points needs -o OUT")
	}
	if err := errors.Join(o.ResolveFor(nil), o.checkRequests(), o.unused(true)); err != nil {
		return nil, err
	}
	release, err := folder.Claim(o.Out, o.Force)
	if err != nil {
		return nil, err
	}
	defer release()
	ext := &result.Extract{Header: folder.Header("fit --from points", o.Config), Runs: []result.ExtractRun{{ID: "levels", Folder: ".",
		Deployment: dep, Scopes: []result.ScopeCount{}, Examples: []result.Example{}, Warnings: []trace.Finding{}, Engine: result.ExtractEngine{
			InstanceID: "1", VLLMVersion: dep.Engine.VLLMVersion, Model: dep.Model.ID, Hardware: dep.Hardware.Name, TP: dep.TP}}}}
	r := &ext.Runs[0]
	var points []trace.LoadPoint
	for _, name := range tables {
		data, in, err := folder.ReadInput(name, o.Special)
		if err != nil {
			return nil, err
		}
		file, err := clients.ReadLevels(bytes.NewReader(data), in.Name)
		if err != nil {
			return nil, pathed(err, name)
		}
		r.Warnings = append(r.Warnings, file.Findings...)
		for i := range file.Levels {
			p := file.Levels[i].LoadPoint()
			if _, err := requestfit.LevelOf(&p, dep); err != nil {
				return nil, pathed(err, name)
			}
			points = append(points, p)
		}
		ext.Inputs = append(ext.Inputs, in)
		r.Files = append(r.Files, result.ExtractFile{Input: in, Kind: "client_requests"})
	}
	t := Tables{Extract: ext, Dir: o.Out, Warnings: r.Warnings}
	if err := t.writeLevels(points, o.Force); err != nil {
		return nil, err
	}
	command, err := o.Command()
	if err != nil {
		return nil, err
	}
	doc, err := fitRequests(ctx, t, folder.Header(command, o.Config), o)
	if err != nil {
		return nil, err
	}
	doc.Warnings = joined(t.Warnings, doc.Warnings)
	return doc, WriteFit(ctx, doc, o)
}

// writeLevels writes the levels as the table of the one run, and extract.json: what reads
// extracted folders reads them.
func (t *Tables) writeLevels(points []trace.LoadPoint, force bool) error {
	stage, remove, err := files.Temporary(t.Dir, ".stage-levels-")
	if err != nil {
		return err
	}
	defer remove()
	r := &t.Runs[0]
	dir := table.RunDir(stage, t.Runs[0].ID)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if err := table.Write(dir, table.Points, table.Parquet, points); err != nil {
		return err
	}
	_, in, err := folder.ReadInput(filepath.Join(dir, table.Points+"."+string(table.Parquet)), false)
	if err != nil {
		return err
	}
	n := int64(len(points))
	r.TableFiles = []result.Input{in}
	r.Tables = map[string]int64{table.Points: n}
	r.Records = result.Records{Read: n, Kept: n, Dropped: map[string]int64{}}
	t.Totals.Records = r.Records
	t.Totals.Tables = r.Tables
	if err := (&extract.Entry{Results: t.Runs}).Adopt(stage, extract.Options{Out: t.Dir, Force: force}); err != nil {
		return err
	}
	return folder.WriteDocument(filepath.Join(t.Dir, folder.ExtractFile), t.Extract)
}

// pathed is an error in a file as its reader was given it: readers know base names.
func pathed(err error, path string) error {
	if at := (*trace.SyntaxError)(nil); errors.As(err, &at) && at.File == filepath.Base(path) {
		at.File = path
	}
	return err
}

// levelLoad is a load level under the harness that it states or is taken to have had.
func levelLoad(l *trace.LoadPoint, d *deploy.Deployment) (*requestfit.Load, error) {
	p, err := requestfit.LevelOf(l, d)
	if err != nil {
		return nil, err
	}
	reqs, err := p.Requests(p.Harness())
	return &requestfit.Load{Name: l.Name, Tier: tierPoints, Deployment: p.Deployment, Requests: reqs,
		Point: &requestfit.Point{TTFTMs: p.TTFTMs, TPOTMs: p.TPOTMs}}, err
}

// keptUp is the share of an offered rate below which a server was overrun.
const keptUp = 0.8

// overrun warns of a level whose arrivals the server could not keep up with.
func overrun(l *trace.LoadPoint) []trace.Finding {
	if !l.OfferedRPS.OK || !l.RateRPS.OK || l.Clients.OK || l.RateRPS.V >= keptUp*l.OfferedRPS.V {
		return nil
	}
	return []trace.Finding{trace.Findingf(rows.Saturated, "%s: served %.3g of %.3g requests/s: the level teaches how long it was "+
		"recorded as well as what a step costs", l.Name, l.RateRPS.V, l.OfferedRPS.V)}
}

// leaveFull leaves out the load levels that say that the KV cache is larger than stated.
func (f *requestFit) leaveFull(prior *requestfit.Prior) error {
	var left []*requestfit.Load
	for _, l := range f.loads {
		ttft, full, err := l.Full(prior)
		if err != nil {
			return err
		}
		if !full {
			left = append(left, l)
			continue
		}
		f.warn = append(f.warn, trace.Findingf(requestfit.ReplayUnlike, "%s: left out: the simulated server runs out of KV blocks (TTFT %.4g ms), "+
			"the measured one did not (%.4g ms); is its KV cache of another type or size?", l.Name, ttft, l.Point.TTFTMs))
	}
	f.loads = left
	return nil
}

// Load levels to choose from: tokens of prompts and answers, clients of a closed loop
// (spec#point-plan).
var (
	gridPrompts = []int64{128, 1024, 4096}
	gridOutputs = []int64{128, 1024}
	gridClients = []int{1, 4, 16, 64}
)

// planPoints are the n load levels of a deployment that would teach most together, the
// most telling first.
func planPoints(ctx context.Context, dep *deploy.Deployment, n int) ([]result.PlannedPoint, error) {
	f := &requestFit{dep: dep, o: DefaultFitOptions()}
	if err := f.o.ResolveFor(nil); err != nil {
		return nil, err
	}
	prior, err := f.prior()
	if err != nil {
		return nil, err
	}
	var grid []result.PlannedPoint
	var loads []*requestfit.Load
	longest := dep.MaxModelLen()
	for _, prompt := range gridPrompts {
		for _, output := range gridOutputs {
			for _, clients := range gridClients {
				if longest.OK && prompt+output > longest.V || int64(clients) > dep.Engine.MaxNumSeqs {
					continue
				}
				p := requestfit.Level{Deployment: dep, InputTokens: prompt, OutputTokens: output, Concurrency: clients}
				reqs, err := p.Requests(p.Harness())
				if err != nil {
					return nil, err
				}
				grid = append(grid, result.PlannedPoint{InputTokens: prompt, OutputTokens: output, Clients: clients})
				loads = append(loads, &requestfit.Load{Deployment: dep, Requests: reqs})
			}
		}
	}
	if len(loads) == 0 {
		return nil, nil
	}
	chosen, err := requestfit.Choose(ctx, loads, prior, n, requestfit.DefaultOptions())
	if err != nil {
		return nil, err
	}
	return stat.Map(chosen, func(i int) result.PlannedPoint { return grid[i] }), nil
}
