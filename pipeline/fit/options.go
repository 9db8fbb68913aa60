package fit

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Recipes (spec#recipe).
const (
	Relative = "relative"
	Frozen   = "frozen"
)

// Priors of the time-like coefficients.
const (
	PriorZero     = "zero"
	PriorRoofline = "roofline" // 1e6 us/s: the hardware's peak
	PriorLibrary  = "library"  // the sums of each deployment's measured kernels, with their covariance; spec 1.2 or 1.3
)

// Options decide a fit. The zero value of a field is its default unless said otherwise.
type Options struct {
	Spec         features.Version // default 1.1, or 1.3 where a deployment needs it
	Recipe       string           // default: relative for 1.1, frozen for 1.0
	BetaTarget   string           // default: cadence for 1.1, duration for 1.0
	AlphaTargets []string         // default: overhead, admission, egress for 1.1, queue for 1.0
	Objective    string           // within | cross | minimax; empty: within for one or two configurations, else cross
	Split        float64          // training share of each phase, (0, 1]; default 0.8
	Lag          *int             // nil: measured per run
	Prior        string           // zero (default), roofline, library, or a coefficient file of version 1.2 with a covariance
	// Library gives the sets of Prior library in place of LibraryFor; nil: that.
	Library       func(*deploy.Deployment) (*coeff.Set, error)
	Bootstraps    int      // block bootstrap draws; default 500, at least 50
	Seed          int64    // 0 is seed 0; 1 in DefaultOptions
	RefitAll      bool     // refit with the chosen lambda, gamma and lag on all rows
	Models        []string // default blackbox, roofline, trained-physics
	Without       []string // run ids to leave out
	KeepSaturated bool     // do not exclude saturated runs
	MaxRows       int      // rows of steps learned from, at most; 0: all of them
	Workers       int      // 0: all cores; never changes a result
	// Rows receives the rows behind the fit, once they are final; may be nil.
	Rows func(*Dump) error

	OneConfig bool // all runs have one configuration: none is left out
	BetaOnly  bool // rows and coverage of the step time are all that is needed
}

// Default are the options of spec 1.1.
func DefaultOptions() Options {
	o, _ := Options{Seed: 1, MaxRows: rows.DefaultMaxRows}.Resolve()
	return o
}

// BareOptions are DefaultOptions but for what depends on the spec version: recipe,
// targets and models are filled in by Resolve.
func BareOptions() Options {
	d := DefaultOptions()
	return Options{Split: d.Split, Bootstraps: d.Bootstraps, Seed: d.Seed, MaxRows: d.MaxRows}
}

// PriorOpen reports that nobody asked for a prior, nor for what a library's prior does not go with:
// whoever knows the deployments may choose it (spec#prior-default).
func (o *Options) PriorOpen() bool {
	usual := (o.Recipe == "" || o.Recipe == Relative) && (o.BetaTarget == "" || o.BetaTarget == coeff.Cadence)
	return usual && o.Prior == "" && o.Spec == ""
}

// Table is the options of a fit as flags and as recorded.
func (o *Options) Table() option.Table {
	return option.Table{
		option.String("spec", &o.Spec, "feature specification `VERSION`: 1.0, 1.1, 1.2, 1.3 or experimental, "+
			"with +principal-components behind all but 1.0 (default: 1.2 with a library's prior, 1.3 for unlike layers, else 1.1)").Recorded(),
		option.String("recipe", &o.Recipe, "`RECIPE`: relative or frozen (default: relative with 1.1, frozen with 1.0)").Recorded(),
		option.String("beta-target", &o.BetaTarget, "step time `TARGET`: cadence or duration (default: cadence with 1.1)").Recorded(),
		option.List("alpha-target", &o.AlphaTargets, "delay `TARGET`: overhead, admission, egress or queue (repeatable)").Recorded(),
		option.String("objective", &o.Objective, "what chooses lambda, `OBJECTIVE`: within, cross or minimax").Recorded(),
		option.Real("split", &o.Split, "training `SHARE` of each phase").Recorded(),
		o.lagOption().Recorded(),
		option.String("prior", &o.Prior,
			"`PRIOR` of step-time coefficients: zero, roofline, library or a coefficient file (the last two: spec 1.2 or 1.3; default: library "+
				"for dense models on GPUs that it knows, else zero)").Recorded(),
		option.Whole("bootstraps", &o.Bootstraps, "block bootstrap `DRAWS` of the intervals").Recorded(),
		option.Whole("seed", &o.Seed, "`SEED` of bootstrap, noise and sampling").Recorded(),
		option.Switch("refit-all", &o.RefitAll, "refit with the chosen lambda, gamma and lag on all rows").Recorded(),
		option.List("model", &o.Models, "other parameterisation `NAME` on the same rows: blackbox, trained-physics, roofline, "+
			"linear3 (repeatable; default the first three)").Recorded(),
		option.List("without", &o.Without, "leave this run `ID` out (repeatable)").Recorded(),
		option.Switch("keep-saturated", &o.KeepSaturated, "fit saturated runs too").Recorded(),
		option.Whole("max-rows", &o.MaxRows, "learn from `N` rows of steps at most, evenly chosen; 0: from all").Recorded().
			Unless(strconv.Itoa(rows.DefaultMaxRows)),
		option.Whole("workers", &o.Workers, "`N` workers; 0 uses every core"),
	}
}

// lagOption is the lag, -1 where it is measured.
func (o *Options) lagOption() option.Option {
	opt := option.Whole("lag", new(-1), "`STEPS` between schedule() and execution; -1 measures it per run")
	opt.Set = func(v any) error {
		lag := int(v.(int64))
		switch {
		case lag >= 0:
			o.Lag = &lag
		case lag == -1:
			o.Lag = nil
		default:
			return option.Misusef("lag: got %d, want 0, 1, 2 or -1", lag)
		}
		return nil
	}
	opt.Values = func() []string {
		if o.Lag == nil {
			return nil
		}
		return []string{strconv.Itoa(*o.Lag)}
	}
	return opt
}

// Command is the `command` of fit.json: the stage and every option that can
// change its numbers (spec#documents).
func (o Options) Command() (string, error) {
	o, err := o.Resolve()
	return o.Table().Command("fit"), err
}

// MinBootstraps is the smallest useful number of draws for a 95 % interval.
const MinBootstraps = 50

// Resolve fills defaults and checks ranges.
func (o Options) Resolve() (Options, error) {
	if setDefault(&o.Prior, PriorZero); o.FromSets() && (o.Spec == "" || o.Spec == features.V11) {
		o.Spec = features.V12 // the version of such sets
	}
	if o.Spec == "" {
		o.Spec = features.V11
	}
	if err := features.CheckVersion(o.Spec); err != nil {
		return o, err
	}
	old := o.Spec == features.V10
	if old {
		setDefault(&o.Recipe, Frozen)
	}
	setDefault(&o.Recipe, Relative)
	setDefault(&o.BetaTarget, rows.DefaultBetaTarget(o.Spec))
	if len(o.AlphaTargets) == 0 {
		o.AlphaTargets = []string{coeff.Admission, coeff.Egress, coeff.Overhead}
		if old {
			o.AlphaTargets = []string{coeff.Queue}
		}
	}
	if o.Models == nil {
		o.Models = []string{Blackbox, Roofline, TrainedPhysics}
	}
	for _, list := range []*[]string{&o.AlphaTargets, &o.Models, &o.Without} { // the order in which they are recorded
		*list = slices.Clone(*list)
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	if o.Split == 0 {
		o.Split = rows.DefaultSplit
	}
	if o.Bootstraps == 0 {
		o.Bootstraps = 500
	}
	return o, o.check()
}

func (o Options) check() error {
	bad := func(name string, got any, want string) error {
		return trace.Errorf(rows.BadOption, "%s: got %v, want %s", name, got, want)
	}
	switch {
	case o.Recipe != Relative && o.Recipe != Frozen:
		return bad("recipe", o.Recipe, "relative or frozen")
	case o.BetaTarget != coeff.Cadence && o.BetaTarget != coeff.Duration:
		return bad("beta-target", o.BetaTarget, "cadence or duration")
	case !(o.Split > 0 && o.Split <= 1):
		return bad("split", o.Split, "a share in (0, 1]")
	case o.FromSets() && o.Prior != PriorLibrary && !isSetFile(o.Prior):
		return bad("prior", strconv.Quote(o.Prior), "zero, roofline, library or a coefficient file")
	case o.FromSets() && o.Spec == features.V10:
		return bad("prior", o.Prior, "zero or roofline with spec 1.0")
	case o.FromSets() && o.Recipe == Frozen:
		return bad("prior", o.Prior, "zero or roofline with the frozen recipe")
	case o.Bootstraps < MinBootstraps:
		return bad("bootstraps", o.Bootstraps, fmt.Sprintf("at least %d", MinBootstraps))
	case o.Lag != nil && (*o.Lag < 0 || *o.Lag > 2):
		return bad("lag", *o.Lag, "0, 1 or 2")
	}
	switch ridge.Objective(o.Objective) {
	case ridge.Auto, ridge.Within, ridge.Cross, ridge.Minimax:
	default:
		return bad("objective", o.Objective, "within, cross or minimax")
	}
	known := []string{coeff.Overhead, coeff.Admission, coeff.Egress, coeff.Queue}
	for _, t := range o.AlphaTargets {
		if !slices.Contains(known, t) {
			return bad("alpha-target", t, "overhead, admission, egress or queue")
		}
	}
	for _, m := range o.Models {
		if !slices.Contains([]string{Blackbox, Roofline, TrainedPhysics, Linear3}, m) {
			return bad("model", m, "blackbox, trained-physics, roofline or linear3")
		}
	}
	return rows.CheckMaxRows(o.MaxRows)
}

// Others reports whether a model is asked for that has rows of its own.
func (o *Options) Others() bool {
	return slices.ContainsFunc(o.Models, func(name string) bool { return name != Roofline })
}

// FromSets reports whether the prior is a coefficient set.
func (o *Options) FromSets() bool { return o.Prior != PriorZero && o.Prior != PriorRoofline }

func isSetFile(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.Mode().IsRegular()
}

// Record is what the document says of the options.
func (o Options) Record() result.FitOptions {
	r := result.FitOptions{
		Spec: string(o.Spec), Recipe: o.Recipe, BetaTarget: o.BetaTarget, Objective: o.Objective, Split: o.Split,
		Seed: o.Seed, Bootstraps: o.Bootstraps, RefitAll: o.RefitAll, Prior: o.Prior, Without: append([]string{}, o.Without...),
	}
	if o.MaxRows != rows.DefaultMaxRows {
		r.MaxRows = &o.MaxRows
	}
	return r
}

// Source is one run to fit.
type Source struct {
	ID         string
	Deployment deploy.Deployment
	Load       func() (*trace.Run, error)
	// Slices visits a recording too long for Load in slices that are valid during the visit; nil: Load has all of it.
	Slices func(visit func(*trace.Run) error) error
	// Most is how many rows of a target the run can have at most; 0: unknown, it counts for none.
	Most int64
	// Stride: one row in so many is learned from (Options.MaxRows); up to 1: all.
	Stride int
	// Judge says why a run counts as saturated (empty when it does not) and which
	// spans of it do; nil: nothing is saturated.
	Judge func(*trace.Run) (reason string, spans []rows.Span)
	// Rows is a folder where the rows of the run stand, made of the same recording under the
	// same options; "": they are made.
	Rows string
}

func setDefault(s *string, v string) {
	if *s == "" {
		*s = v
	}
}

// Without leaves out the named runs; a name without a run is an error.
func Without(sources []Source, names []string) ([]Source, error) {
	for _, name := range names {
		k := slices.IndexFunc(sources, func(s Source) bool { return s.ID == name })
		if k < 0 {
			return nil, trace.Errorf(rows.BadOption, "--without: no run %q", name).WithHint("blis-train inspect OUT names the runs")
		}
		sources = slices.Delete(sources, k, k+1)
	}
	return sources, nil
}

// RowsLearned decides how many rows of each source are learned from; a warning says that some are left out.
func RowsLearned(sources []Source, maxRows int) []trace.Finding {
	var most []int64
	var configs []string
	for i := range sources {
		most = append(most, sources[i].Most)
		configs = append(configs, sources[i].Deployment.Config())
	}
	strides, found := rows.Strides(most, configs, maxRows)
	for i := range sources {
		sources[i].Stride = strides[i]
	}
	return found
}

// Names of the other parameterisations.
const (
	Blackbox       = "blackbox"
	TrainedPhysics = "trained-physics"
	Roofline       = "roofline"
	// Linear3 is the iteration of the three-parameter queueing models: a constant, the
	// tokens computed and the KV tokens read. It is fitted when asked for.
	Linear3 = "linear3"
)

// Dump is the rows of a fit at the chosen gamma, after cleaning: step-time
// tables first, then each alpha target, runs in sorted order.
type Dump struct {
	Tables []*rows.Table
	Spec   features.Version
	Phases map[string][]deploy.Phase
}

// Write makes rows.parquet in dir.
func (d *Dump) Write(dir string) error {
	return rows.WriteParquet(dir, d.Tables, d.names, func(run string) []deploy.Phase { return d.Phases[run] })
}

func (d *Dump) names(t *rows.Table) []string {
	if t.Target == coeff.Cadence || t.Target == coeff.Duration {
		return features.Names(features.BetaFeatures(d.Spec))
	}
	return features.Names(features.AlphaFeatures(d.Spec))
}

// Codes of a fit.
const (
	CodeNoRows    trace.Code = "no_rows"
	CodeFewRows   trace.Code = "few_rows"
	NotConverged  trace.Code = "not_converged"
	NotIdentified trace.Code = "not_identified"
	AtLimit       trace.Code = "at_limit"
	Implausible   trace.Code = "implausible_value"
	absorbs       trace.Code = "absorbs_something_else"
	LagUncertain  trace.Code = "lag_uncertain"
	ModelSkipped  trace.Code = "model_skipped"
)

// Run is one run as rows, its recording released.
type Run struct {
	runFacts
	Src      Source
	Contexts string      // where those of a logged pass come from; empty for steps of the fork
	Spans    []rows.Span // saturated parts of a run that is not
	Beta     *rows.Table
	Alpha    map[string]*rows.Table // per alpha target
	Frozen   *rows.Table            // 1.0 duration-free comparison: 1.0 features on the cadence
	Covered  *result.Covered
	Coverage rows.Coverage // of the steps; with BetaOnly

	kept    int         // beta rows
	largest string      // reason for which there are none
	steps   *rows.Steps // for rows under other bases; rebuilt by Again
	space   *features.Space
}

// runFacts is what the document of a fit says of a run whatever its rows: what stored rows and Gram
// files carry beside them.
type runFacts struct {
	Config     string               `json:"config"`
	Deployment deploy.Deployment    `json:"deployment"`
	Lag        result.RunLag        `json:"lag"`
	Evidence   []result.LagEvidence `json:"lag_evidence"`
	Audit      result.TargetAudit   `json:"target_audit"`
	Quality    result.StepQuality   `json:"steps"`
	Findings   []trace.Finding      `json:"findings"`
	Reason     string               `json:"reason"` // why it takes no part; empty when used
	Saturated  bool                 `json:"saturated"`
	WallNs     int64                `json:"wall_ns"` // latest wall-clock stamp
	Lengths    lengths              `json:"requests"`
}

// describeRuns fills the runs and configurations of the document; ids are those of the runs.
func describeRuns(out *result.Fit, ids []string, runs []*runFacts) {
	var latest int64
	sums := map[string]*lengths{}
	for i, r := range runs {
		latest = max(latest, r.WallNs)
		out.Runs = append(out.Runs, result.FitRun{ID: ids[i], Config: r.Config, Used: r.Reason == "", Saturated: r.Saturated,
			Reason: r.Reason, Steps: r.Quality, Findings: r.Findings})
		if r.Reason != "" {
			continue
		}
		k := slices.IndexFunc(out.Configs, func(c result.FitConfig) bool { return c.Key == r.Config })
		if k < 0 {
			k, sums[r.Config] = len(out.Configs), &lengths{}
			out.Configs = append(out.Configs, result.FitConfig{Key: r.Config, Label: r.Deployment.Label(), Deployment: r.Deployment})
		}
		out.Configs[k].Runs = append(out.Configs[k].Runs, ids[i])
		sums[r.Config].add(r.Lengths)
	}
	out.TrainingDate = DateOf(latest)
	named := map[string]int{}
	for _, c := range out.Configs {
		named[c.Label]++
	}
	for k := range out.Configs {
		c := &out.Configs[k]
		if named[c.Label] > 1 {
			c.Label = c.Key // two configurations never have one label
		}
		c.MeanPromptTokens, c.MeanOutputTokens = sums[c.Key].means()
	}
}

// lengths are the number of finished requests and the sums of their prompt and output tokens.
type lengths [3]int64

func (l *lengths) add(o lengths) {
	for k, v := range o {
		l[k] += v
	}
}

// means are the mean prompt and output, nil without requests.
func (l *lengths) means() (prompt, output *float64) {
	n := float64(l[0])
	return result.OrNull(float64(l[1]) / n), result.OrNull(float64(l[2]) / n)
}

func lengthsOf(run *trace.Run) lengths {
	var l lengths
	for i := range run.Requests {
		if r := &run.Requests[i]; run.AsksFor(r) && r.Success.Or(false) && r.PromptTokens.OK && r.OutputTokens.OK {
			l.add(lengths{1, r.PromptTokens.V, r.OutputTokens.V})
		}
	}
	logged := run.Aggregate != nil && l[0] == 0
	for i := range run.Observed {
		if r := &run.Observed[i]; logged && r.Success.Or(false) && r.PromptTokens.OK && r.OutputTokens.OK {
			l.add(lengths{1, r.PromptTokens.V, r.OutputTokens.V})
		}
	}
	return l
}

// Load loads one run, rebuilds its batches, measures its lag and audits its
// targets: all that comes before rows.
func Load(src Source, o Options) (*Run, *rows.Steps, *features.Space, error) {
	return loadSlice(src, o, nil)
}

// loadSlice is Load; a slice has lag and audit of the slices before it.
func loadSlice(src Source, o Options, before *Run) (*Run, *rows.Steps, *features.Space, error) {
	run, err := src.Load()
	if err != nil {
		return nil, nil, nil, err
	}
	p := &Run{Src: src, Alpha: map[string]*rows.Table{}, runFacts: runFacts{Config: src.Deployment.Config(), Deployment: src.Deployment,
		WallNs: LatestWall(run), Lengths: lengthsOf(run)}}
	if src.Judge != nil {
		p.judge(run, o)
	}
	rate := src.Deployment.Tracing.JourneySampleRate
	p.Covered = coveredBy(run, p.Spans, rate.OK && rate.V < 1)
	steps, err := rows.Rebuild(run, &src.Deployment, o.Spec)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("run %s: %w", src.ID, err)
	}
	p.Quality = steps.Quality.StepQuality
	p.Findings = append(p.Findings, steps.Findings...)
	space, err := features.New(o.Spec, &src.Deployment)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("run %s: %w", src.ID, err)
	}
	if before != nil {
		p.Lag = before.Lag
		return p, steps, space, nil
	}
	if err := p.chooseLag(steps, space, o); err != nil {
		return nil, nil, nil, fmt.Errorf("run %s: lag: %w", src.ID, err)
	}
	p.Audit = steps.Audit(space)
	return p, steps, space, nil
}

// Make makes every table the fit needs of one run.
func Make(src Source, o Options, gammas []float64) (*Run, error) {
	if src.Rows != "" {
		return restore(src)
	}
	return makeParts(src, o, gammas, func(q *Run) error { q.steps = nil; return nil })
}

// makePart makes the tables of a slice, or of a run that has none.
func makePart(src Source, o Options, gammas []float64, before *Run) (*Run, error) {
	p, steps, space, err := loadSlice(src, o, before)
	if err != nil {
		return nil, err
	}
	if o.BetaOnly {
		p.Coverage = steps.Coverage()
	}
	if a := steps.Run.Aggregate; a != nil {
		p.Contexts = a.Contexts
	}
	if a := steps.Run.Aggregate; a != nil && a.Refused != nil && p.Reason == "" {
		p.Reason = strings.TrimPrefix(a.Refused.Msg, "run "+src.ID+": ") + "; " + a.Refused.Hint
		p.Findings = append(p.Findings, trace.Findingf(a.Refused.Code, "%s; %s", a.Refused.Msg, a.Refused.Hint))
	}
	if p.Reason != "" && (!p.Saturated || steps.Run.Aggregate != nil || !steps.Preempts()) {
		return p, nil
	}
	if err := p.tables(steps, space, o, gammas); err != nil {
		return nil, fmt.Errorf("run %s: %w", src.ID, err)
	}
	code, n := p.Beta.Largest("no step summaries")
	p.kept, p.largest = p.Beta.Kept, fmt.Sprintf("%s (%d of %d candidates)", code, n, p.Beta.Read)
	p.steps, p.space = withoutRequests(steps), space
	return p, nil
}

// DateOf is the UTC date of a wall-clock stamp; empty without one.
func DateOf(wallNs int64) string {
	if wallNs <= 0 {
		return ""
	}
	return time.Unix(0, wallNs).UTC().Format(time.DateOnly)
}

// LatestWall is the latest wall-clock stamp of a run; 0 without one.
func LatestWall(run *trace.Run) int64 {
	var latest int64
	for i := range run.Requests {
		latest = max(latest, run.Requests[i].EndWallNs.Or(0))
	}
	for i := range run.Steps {
		latest = max(latest, run.Steps[i].WallNs)
	}
	return latest
}

// judge leaves a saturated run out, and of other runs their saturated spans. A slice is a span.
func (p *Run) judge(run *trace.Run, o Options) {
	if run.Slice != nil {
		p.judgeSlice(run, o)
		return
	}
	reason, spans := p.Src.Judge(run)
	p.Saturated = reason != ""
	if p.Saturated {
		p.Findings = append(p.Findings, trace.Findingf(rows.Saturated, "%s: %s", p.Src.ID, reason))
	}
	if o.KeepSaturated {
		return
	}
	if p.Saturated {
		p.Reason = "saturated: " + reason
		spans = []rows.Span{{StartNs: math.MinInt64, EndNs: math.MaxInt64}}
	}
	p.Spans = spans
}

// tables makes the beta table and the alpha tables, thinned.
func (p *Run) tables(steps *rows.Steps, space *features.Space, o Options, gammas []float64) error {
	var err error
	p.Beta, err = steps.Beta(space, rows.Options{Target: o.BetaTarget, Lag: p.Lag.Lag, Gammas: gammas, Split: o.Split, Saturated: p.Spans,
		Preempting: true, Stride: p.Src.Stride, Slim: o.Rows == nil})
	if err != nil {
		return err
	}
	if o.BetaOnly {
		return nil
	}
	for _, target := range o.AlphaTargets {
		p.Alpha[target], err = steps.Alpha(space, rows.Options{Target: target, Gammas: gammas, Split: o.Split, Saturated: p.Spans,
			Stride: p.Src.Stride})
		if err != nil {
			return err
		}
	}
	// says which bases the deployment has no form of
	for _, name := range o.Models {
		if _, err := Vectorizer(name, space); err != nil {
			p.Findings = append(p.Findings, trace.Findingf(ModelSkipped, "%s: %s: %v", p.Src.ID, name, err))
		}
	}
	if o.Spec.Base() != features.V10 {
		p.tables10(steps, o)
	}
	return nil
}

// tables10 makes the rows with 1.0 features for the comparison in
// leave-one-configuration-out.
func (p *Run) tables10(steps *rows.Steps, o Options) {
	var err error
	if o.OneConfig {
		err = p.refused10(steps)
	} else {
		p.Frozen, err = p.frozenTable(steps, o)
	}
	if err != nil {
		p.Findings = append(p.Findings, trace.Findingf(ModelSkipped, "%s: %v", p.Src.ID, err))
	}
}

// errEnough ends a visit of slices after the first.
var errEnough = errors.New("enough")

// MeasureLag is the lag of one run with its evidence, as a fit would use it.
func MeasureLag(src Source, o Options) (result.RunLag, []result.LagEvidence, error) {
	o, err := o.Resolve()
	if err != nil {
		return result.RunLag{}, nil, err
	}
	var p *Run
	err = parts(src, o, func(src Source) (err error) {
		if p, _, _, err = Load(src, o); err == nil {
			err = errEnough
		}
		return err
	})
	if !errors.Is(err, errEnough) {
		return result.RunLag{}, nil, err
	}
	return p.Lag, p.Evidence, nil
}

// parts visits a source slice by slice where it has slices, else as it is.
func parts(src Source, o Options, visit func(Source) error) error {
	if src.Slices == nil || o.BetaOnly {
		return visit(src)
	}
	return src.Slices(func(run *trace.Run) error {
		part := src
		part.Load = func() (*trace.Run, error) { return run, nil }
		part.Slices = nil
		return visit(part)
	})
}

// makeParts makes the tables of a run part by part. done is told of each part before it joins
// those before it, and may take its tables away.
func makeParts(src Source, o Options, gammas []float64, done func(*Run) error) (p *Run, err error) {
	err = parts(src, o, func(src Source) error {
		q, err := makePart(src, o, gammas, p)
		if err == nil {
			err = done(q)
		}
		if err != nil {
			return err
		}
		if p != nil {
			p.join(q)
		} else {
			p = q
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	p.Src = src
	if p.Reason == "" && p.kept == 0 {
		p.Reason = "no beta rows: " + p.largest
		p.Findings = append(p.Findings, trace.Findingf(CodeNoRows, "%s: %s", src.ID, p.Reason))
	}
	return p, nil
}

// join adds the next slice of the run.
func (p *Run) join(q *Run) {
	p.Saturated = p.Saturated && q.Saturated
	p.Spans = append(p.Spans, q.Spans...)
	p.Findings = append(p.Findings, q.Findings...)
	p.Quality.Join(q.Quality)
	p.Covered = Cover(p.Covered, q.Covered)
	p.Lengths.add(q.Lengths)
	p.WallNs = max(p.WallNs, q.WallNs)
	p.kept += q.kept
	p.Beta, p.Frozen = joinTables(p.Beta, q.Beta), joinTables(p.Frozen, q.Frozen)
	for target, t := range q.Alpha {
		p.Alpha[target] = joinTables(p.Alpha[target], t)
	}
}

// joinTables is the rows of a run and its next slice; either may be nil.
func joinTables(t, next *rows.Table) *rows.Table {
	if t == nil || next == nil {
		return orOther(t, next)
	}
	t.Join(next)
	return t
}

// otherParts makes the rows under another basis part by part.
func (p *Run) otherParts(name string, o Options) (all *rows.Table, err error) {
	err = parts(p.Src, o, func(src Source) error {
		q := &Run{Src: src, Spans: p.Spans, runFacts: runFacts{Lag: p.Lag}}
		if err := q.Again(o); err != nil {
			return err
		}
		t, err := q.OtherTable(name, o)
		all = joinTables(all, t)
		return err
	})
	return all, err
}

// judgeSlice drops the rows of a saturated slice, or of its saturated spans.
func (p *Run) judgeSlice(run *trace.Run, o Options) {
	asked, of := *run, run.Slice
	asked.Requests = nil
	for i := range run.Requests {
		if run.AsksFor(&run.Requests[i]) {
			asked.Requests = append(asked.Requests, run.Requests[i])
		}
	}
	reason, spans := p.Src.Judge(&asked)
	if p.Saturated = reason != ""; p.Saturated {
		spans = []rows.Span{{StartNs: of.FromNs, EndNs: of.ToNs}}
		p.Findings = append(p.Findings, trace.Findingf(rows.Saturated, "%s: from %s to %s s after its first step: %s", p.Src.ID,
			sinceStart(of, of.FromNs), sinceStart(of, of.ToNs), reason))
	}
	for _, s := range spans {
		if s = (rows.Span{StartNs: max(s.StartNs, of.FromNs), EndNs: min(s.EndNs, of.ToNs)}); s.StartNs < s.EndNs && !o.KeepSaturated {
			p.Spans = append(p.Spans, s)
		}
	}
}

// sinceStart is when a border of a slice lies, in seconds since the first step of the run.
func sinceStart(of *trace.Slice, ns int64) string {
	return fmt.Sprintf("%.0f", float64(min(max(ns, of.FirstNs), of.LastNs)-of.FirstNs)/1e9)
}
