package pipeline

// This file is the stage fit: tables to coefficients.

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// FitOptions are the options of the fit of a folder.
type FitOptions struct {
	fit.Options
	Filter
	From     string   // name of fit.FromSteps or another kind; "": steps where there are any
	Search   string   // of a fit from requests, after its passes: requestfit.Search...
	Holdout  []string // runs that a fit from requests is validated on and does not use
	Form     string   // FormPhysics | FormTrained
	Budget   string   // time for a search; it is counted in simulated steps, see stepsPerSecond; "": no limit
	Shared   *int64   // first prompt tokens that all requests share, for recordings that do not state it; nil: not stated
	Out      string   // folder of the results; "": that of the tables
	SaveGram string   // also write the rows' sums to this file; "": do not
	DumpRows bool     // also write rows.parquet
	Force    bool     // accept a folder of results that holds foreign files
	Special  bool     // read pipes and devices given as files
	Config   *result.Config
	Warn     func([]trace.Finding) // called with warnings that are in no document; may be nil
	Progress trace.Progress
}

// Forms of the coefficients that a fit from requests writes.
const (
	FormPhysics = "physics"
	FormTrained = "trained-physics" // also in BLIS's terms
)

// DefaultFitOptions returns the options that the command line has by default.
func DefaultFitOptions() FitOptions {
	return FitOptions{Options: fit.BareOptions(), Search: requestfit.SearchNone, Form: FormPhysics}
}

// Command returns the recorded command line: the stage and every option that can change
// its numbers (spec#documents).
func (o FitOptions) Command() (string, error) {
	var err error
	o.Options, err = o.Resolve()
	return option.Command("fit", o.Flags()), err
}

// ResolveFor sets the defaults of options that are not set, among them the library's prior if the
// library covers the runs of ext (spec#prior-default), and checks the ranges of all. ext is nil if
// there are no runs.
func (o *FitOptions) ResolveFor(ext *result.Extract) (err error) {
	if ext != nil && o.Spec == "" && slices.Contains([]string{"", fit.PriorZero, fit.PriorRoofline, fit.PriorLibrary}, o.Prior) {
		o.Spec = layeredVersion(ext, o.Without)
	}
	// Gram files of several places have to agree in their version, so the library is no default.
	if ext != nil && o.PriorOpen() && o.SaveGram == "" && libraryKnows(o.Workers, ext, o.Without) {
		o.Prior = fit.PriorLibrary
	}
	if o.Options, err = o.Options.Resolve(); err != nil {
		return &option.Misuse{Msg: err.Error()}
	}
	return nil
}

// check returns an error for invalid options, before anything is read.
func (o FitOptions) check() error {
	if err := errors.Join(o.ResolveFor(nil), o.checkValues()); err != nil || o.From == "" {
		return err
	}
	_, err := o.KindFor(&result.Extract{})
	return err
}

// checkValues returns an error for the first option with an invalid value.
func (o *FitOptions) checkValues() error {
	searches := []string{requestfit.SearchNone, requestfit.SearchNelderMead, requestfit.SearchSPSA, requestfit.SearchCMAES}
	if !slices.Contains(searches, o.Search) {
		return trace.Errorf(rows.BadOption, "--search: got %q, want one of %s", o.Search, strings.Join(searches, ", "))
	}
	if o.Form != FormPhysics && o.Form != FormTrained {
		return trace.Errorf(rows.BadOption, "--form: got %q, want %s or %s", o.Form, FormPhysics, FormTrained)
	}
	kinds := []string{"", fit.FromSteps.Name, fit.FromRequests.Name, fit.FromPoints.Name}
	if !slices.Contains(kinds, o.From) {
		return trace.Errorf(rows.BadOption, "--from: got %q, want steps, requests or points", o.From)
	}
	_, err := o.budgetSteps()
	return err
}

// stepsPerSecond converts --budget to simulated steps. It is the least that one core simulates in a
// second. Counting steps rather than time gives the same result on every machine.
const stepsPerSecond = 500_000

// budgetSteps returns the budget in simulated steps; 0 is no limit.
func (o *FitOptions) budgetSteps() (int64, error) {
	if o.Budget == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(o.Budget)
	if err != nil || d <= 0 {
		return 0, trace.Errorf(rows.BadOption, "--budget: got %q, want a time above 0, as 60s", o.Budget)
	}
	return max(1, int64(d.Seconds()*stepsPerSecond)), nil
}

// KindFor returns the kind of evidence from which a folder is fitted: the requested one, else steps
// if any run has them. Options that do not apply to it are an error.
func (o *FitOptions) KindFor(ext *result.Extract) (fit.Kind, error) {
	kind := fit.FromSteps
	switch o.From {
	case fit.FromPoints.Name:
		return kind, &option.Misuse{Msg: "--from points: goes with fit and tables of load levels only",
			Hint: "blis-train fit --from points LEVELS.csv --deployment run.yaml -o OUT"}
	case fit.FromRequests.Name:
		kind = fit.FromRequests
	case "":
		hasSteps := func(r result.ExtractRun) bool { return r.Tables[table.Steps] > 0 || r.Tables[table.Iterations] > 0 }
		if len(ext.Runs) > 0 && !slices.ContainsFunc(ext.Runs, hasSteps) {
			kind = fit.FromRequests
		}
	}
	return kind, errors.Join(o.checkValues(), o.checkApplies(kind))
}

// checkApplies returns an error for an option that does not apply to the evidence.
func (o *FitOptions) checkApplies(kind fit.Kind) error {
	simulated := kind.Name == fit.FromRequests.Name || kind.Name == fit.FromPoints.Name
	if simulated && (o.Spec == features.V10 || o.Recipe == fit.Frozen || o.BetaTarget == coeff.Duration) {
		return option.Misusef("--spec %s, keys recipe: %s and beta-target: %s: go with a fit from steps only", o.Spec, o.Recipe, o.BetaTarget)
	}
	// An option counts as given if its value is not the default.
	usual := DefaultFitOptions()
	if err := usual.ResolveFor(nil); err != nil {
		return err
	}
	defaults := usual.Flags()
	for i, flag := range o.Flags() {
		if slices.Equal(option.Values(flag), option.Values(defaults[i])) {
			continue
		}
		if err := kind.Refusal(flag.Names()[0]); err != nil {
			return err
		}
	}
	return nil
}

// Fit fits coefficients to the tables of an extracted folder, writes fit.json and coefficients.yaml
// to o.Out, and returns the fit.
func Fit(ctx context.Context, in string, o FitOptions) (*result.Fit, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.Out = cmp.Or(o.Out, in)
	release, err := folder.Claim(o.Out, o.Force || files.Same(o.Out, in))
	if err != nil {
		return nil, err
	}
	defer release()
	t, err := ReadTables(in, o.Warn)
	if err != nil {
		return nil, err
	}
	rejected, err := o.Rejected(t.Extract, o.Warn)
	if err != nil {
		return nil, err
	}
	for _, id := range rejected {
		if !slices.Contains(o.Without, id) {
			o.Without = append(o.Without, id)
		}
	}
	return fitAndWrite(ctx, t, o)
}

// fitAndWrite fits coefficients to tables and writes what Fit writes to o.Out, which the caller has
// locked (folder.Claim).
func fitAndWrite(ctx context.Context, t Tables, o FitOptions) (*result.Fit, error) {
	if o.DumpRows {
		o.Rows = func(d *fit.Dump) error { return d.Write(o.Out) }
	}
	doc, err := FitDocument(ctx, t, t.FitSources(), o)
	if err != nil {
		return nil, err
	}
	if err := WriteFit(ctx, doc, o); err != nil {
		return nil, err
	}
	return doc, o.saveGram(ctx, t)
}

// FitDocument returns the fit of tables, as Fit writes it. sources are the runs of t; some may have
// rows that were made elsewhere.
func FitDocument(ctx context.Context, t Tables, sources []fit.Source, o FitOptions) (*result.Fit, error) {
	isOpen := o.PriorOpen() // asked before ResolveFor, which sets the prior
	if err := o.ResolveFor(t.Extract); err != nil {
		return nil, err
	}
	kind, err := o.KindFor(t.Extract)
	if err != nil {
		return nil, err
	}
	// What the fit learns from: the times of requests, or steps. Without a stated prior the fit from steps
	// compares the recipes and takes the best.
	var evidence fit.Evidence
	var recipes []result.RecipeScore
	switch {
	case kind.Name == fit.FromRequests.Name:
		if evidence, err = t.requests(o); err != nil {
			return nil, err
		}
	case isOpen && o.Prior == fit.PriorLibrary:
		choice, err := fit.ChooseRecipe(ctx, sources, o.Options, o.Progress)
		if err != nil {
			return nil, err
		}
		o.Options = choice.Options
		recipes = choice.Scores
		evidence = choice.Steps
	default:
		evidence = fit.Steps{Sources: sources}
	}
	command, err := o.Command()
	if err != nil {
		return nil, err
	}
	doc, err := t.learn(ctx, evidence, o.Options, folder.Header(command, o.Config), o.Progress)
	if err != nil {
		return nil, err
	}
	doc.Recipes = recipes
	doc.Warnings = append(doc.Warnings, fit.CompareUncalibrated(recipes)...)
	return doc, nil
}

// FitTables returns the fit of the runs of an output folder from their steps. It writes nothing.
func FitTables(ctx context.Context, in string, ext *result.Extract, o fit.Options, h result.Header,
	progress trace.Progress) (*result.Fit, error) {
	t := Tables{Extract: ext, Dir: in}
	return t.learn(ctx, fit.Steps{Sources: t.FitSources()}, o, h, progress)
}

// BootstrapTables fits the tables of an output folder with the specification, recipe and targets of
// a set. It returns the coefficients with their block-bootstrap intervals, by the names that
// export.Diff uses: "beta" for the step time, and the target of each alpha model (a delay outside
// the steps). warn gets the findings of extract.ReadDocument.
func BootstrapTables(ctx context.Context, in string, set *coeff.Set, seed int64, warn func([]trace.Finding),
	progress trace.Progress) (map[string][]result.Coefficient, error) {
	ext, err := extract.ReadDocument(in, warn)
	if err != nil {
		return nil, err
	}
	o, err := fit.Options{
		Spec:         set.SpecVersion,
		Recipe:       set.Recipe,
		BetaTarget:   set.BetaTarget,
		AlphaTargets: set.AlphaTargets(),
		Models:       []string{},
		Seed:         seed,
		MaxRows:      fit.BareOptions().MaxRows,
	}.Resolve()
	if err != nil {
		return nil, err
	}
	doc, err := FitTables(ctx, in, ext, o, result.NewHeader(folder.ToolVersion, "diff"), progress)
	if err != nil {
		return nil, fmt.Errorf("bootstrap on %s: %w", in, err)
	}
	out := map[string][]result.Coefficient{"beta": doc.Beta.Coefficients}
	for i := range doc.Alpha {
		out[doc.Alpha[i].Target] = doc.Alpha[i].Coefficients
	}
	return out, nil
}

// requests returns the requests and load levels of the tables as evidence for a fit.
func (t *Tables) requests(o FitOptions) (requestfit.Requests, error) {
	evidence := requestfit.Requests{Holdout: o.Holdout, Search: o.Search, SharedPrefix: o.Shared}
	var err error
	evidence.MaxSteps, err = o.budgetSteps()
	for i := range t.Runs {
		r := &t.Runs[i]
		evidence.Runs = append(evidence.Runs, requestfit.Run{
			ID:         r.ID,
			Deployment: r.Deployment,
			Load:       func() (*trace.Run, error) { return table.ReadLean(t.runDir(r.ID)) },
		})
	}
	return evidence, err
}

// learn returns the fit of the evidence, completed with the header, inputs and warnings. The inputs
// are those of the extraction, the files that the numbers come from.
func (t *Tables) learn(ctx context.Context, evidence fit.Evidence, o fit.Options, h result.Header,
	progress trace.Progress) (*result.Fit, error) {
	doc, err := evidence.Fit(ctx, o, progress)
	if err != nil {
		return nil, err
	}
	doc.Header = h
	doc.Inputs = t.Inputs
	doc.Warnings = joinFindings(t.Warnings, doc.Warnings)
	if evidence.Kind().Name != fit.FromSteps.Name {
		return doc, nil
	}
	for i := range t.Runs {
		if t.Runs[i].Tables[table.Points] > 0 {
			doc.Warnings = append(doc.Warnings, requestfit.LevelsIgnored(t.Runs[i].ID, "its steps are fitted, not its load levels"))
		}
	}
	return doc, nil
}

// FitGrams fits coefficients to Gram files, the sums over measurements that [Fit] saved elsewhere.
// It writes what Fit writes, and returns the fit.
func FitGrams(ctx context.Context, names []string, o FitOptions) (*result.Fit, error) {
	if o.Out == "" {
		return nil, option.Misusef("fit: --from-gram needs -o OUT")
	}
	checked := o // before anything is read
	if err := errors.Join(checked.ResolveFor(nil), checked.checkApplies(fit.FromGrams)); err != nil {
		return nil, err
	}
	release, err := folder.Claim(o.Out, o.Force)
	if err != nil {
		return nil, err
	}
	defer release()
	grams, inputs, err := readGrams(names, o.Special)
	if err != nil {
		return nil, err
	}
	if o.Spec == "" && len(grams) > 0 {
		o.Spec = fit.VersionOf(&grams[0])
	}
	if err := o.ResolveFor(nil); err != nil {
		return nil, err
	}
	command, err := o.Command()
	if err != nil {
		return nil, err
	}
	t := Tables{Extract: &result.Extract{Header: result.Header{Inputs: inputs}}}
	h := folder.Header(command+" --from-gram", o.Config)
	doc, err := t.learn(ctx, fit.Grams{Files: grams}, o.Options, h, o.Progress)
	if err != nil {
		return nil, err
	}
	return doc, WriteFit(ctx, doc, o)
}

// readGrams returns Gram files, and their descriptions as inputs by base name.
func readGrams(names []string, special bool) ([]ridge.File, []result.Input, error) {
	var grams []ridge.File
	inputs := []result.Input{}
	for _, name := range names {
		b, in, err := folder.ReadInput(name, special)
		if err != nil {
			return nil, nil, err
		}
		var g ridge.File
		if err = trace.CheckMemory(b, &g); err == nil {
			g, err = ridge.Read(bytes.NewReader(b))
		}
		if err != nil {
			return nil, nil, trace.Hinted(fmt.Errorf("%s: %w", name, err), "blis-train fit OUT --save-gram FILE writes such files")
		}
		grams = append(grams, g)
		inputs = append(inputs, in)
	}
	return grams, inputs, nil
}

// saveGram writes the Gram file of the fitted runs under the same options.
func (o *FitOptions) saveGram(ctx context.Context, t Tables) error {
	if o.SaveGram == "" {
		return nil
	}
	if err := o.ResolveFor(t.Extract); err != nil {
		return err
	}
	g, err := fit.Save(ctx, t.FitSources(), o.Options, o.Progress)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := ridge.Write(&b, g); err != nil {
		return err
	}
	return files.Write(o.SaveGram, b.Bytes())
}

// layeredVersion returns version 1.3 of the feature space, whose features are sums over unlike layers, if it is the default
// for the deployment of any run of the fit, else "" (spec#default-version): all runs of a fit have one version. without has
// the ids of runs that are not fitted.
func layeredVersion(ext *result.Extract, without []string) features.Version {
	for i := range ext.Runs {
		r := &ext.Runs[i]
		if r.Deployment != nil && !slices.Contains(without, r.ID) && features.DefaultVersion(r.Deployment) == features.V13 {
			return features.V13
		}
	}
	return ""
}

// libraryKnows reports whether the library has kernel tables for all runs of a fit and all their
// models are dense (spec#prior-default). It does not end early when the program is interrupted: binding
// the tables of a run takes milliseconds.
func libraryKnows(workers int, ext *result.Extract, without []string) bool {
	var used []*result.ExtractRun
	for i := range ext.Runs {
		if r := &ext.Runs[i]; r.Deployment != nil && !slices.Contains(without, r.ID) {
			used = append(used, r)
		}
	}
	if slices.ContainsFunc(used, func(r *result.ExtractRun) bool { return r.Deployment.Model.IsMoE() }) {
		return false
	}
	errs := make([]error, len(used))
	par.Each(workers, len(used), func(_, i int) { _, errs[i] = library.Bound(used[i].Deployment, library.Options{}) })
	return errors.Join(errs...) == nil && len(used) > 0
}

// WriteFit writes fit.json, coefficients.yaml without gates, and the requested form to o.Out.
func WriteFit(ctx context.Context, doc *result.Fit, o FitOptions) error {
	err := par.Do(ctx, o.Workers,
		func() error { return folder.WriteDocument(filepath.Join(o.Out, folder.FitFile), doc) },
		func() error { return writeCoefficients(o.Out, doc, nil) },
	)
	if err != nil {
		return err
	}
	return o.writeForm(ctx)
}

// writeCoefficients writes coefficients.yaml of a fit, with the gates of a validation unless it is
// nil.
func writeCoefficients(out string, doc *result.Fit, v *result.Validation) error {
	b, err := coefficientFile(doc, v)
	if err != nil {
		return err
	}
	return files.Write(filepath.Join(out, folder.CoefficientsFile), b)
}

// writeForm writes the requested form, as Export makes it from fit.json, in addition to
// coefficients.yaml.
func (o *FitOptions) writeForm(ctx context.Context) error {
	if o.Form != FormTrained {
		return nil
	}
	e := DefaultExportOptions()
	e.Format = export.FormatBLIS
	e.Out = filepath.Join(o.Out, folder.BLISFile)
	e.Validation = "none"
	in := filepath.Join(o.Out, folder.FitFile)
	_, err := Export(ctx, in, e)
	if refused, ok := errors.AsType[*trace.Error](err); ok {
		return refused.WithHint("the fit itself is written; blis-train export " + in + " --format blis-defaults has --config and --force")
	}
	return err
}
