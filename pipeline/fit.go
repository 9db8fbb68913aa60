package pipeline

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// FitOptions decide the fit of a folder.
type FitOptions struct {
	fit.Options
	Filter
	From     string   // FromSteps | FromRequests; "": steps where there are any
	Search   string   // of a fit from requests, after its passes: learn.Search...
	Holdout  []string // runs that a fit from requests is judged by and does not see
	Form     string   // FormPhysics | FormTrained
	Budget   string   // time of a search, as a number of simulated steps; "": none
	Shared   int64    // first prompt tokens that requests share where nothing says so
	Out      string   // folder of the results; "": that of the tables
	SaveGram string   // also write the rows' sums to this file; "": do not
	DumpRows bool     // also write rows.parquet
	Force    bool     // accept a folder of results that holds foreign files
	Special  bool     // read pipes and devices given as Gram files
	Config   *result.Config
	Warn     func([]trace.Finding) // called with warnings that no document holds; may be nil
	Progress trace.Progress
}

// DefaultFitOptions are those of the command line.
func DefaultFitOptions() FitOptions {
	return FitOptions{Options: fit.BareOptions(), Search: requestfit.SearchNone, Form: FormPhysics}
}

// Command is the recorded command line: the stage and every option that can change
// its numbers (spec#documents).
func (o FitOptions) Command() (string, error) {
	var err error
	o.Options, err = o.Resolve()
	return option.Command("fit", o.Flags()), err
}

// ResolveFor fills in what nobody asked for, the library's prior where it knows the runs of ext
// (spec#prior-default), and checks ranges. ext is nil where there are none.
func (o *FitOptions) ResolveFor(ext *result.Extract) (err error) {
	if ext != nil && o.Spec == "" && slices.Contains([]string{"", fit.PriorZero, fit.PriorRoofline, fit.PriorLibrary}, o.Prior) {
		o.Spec = layeredVersion(ext, o.Without)
	}
	// Sums of several places must agree in their version: no library for them.
	if ext != nil && o.PriorOpen() && o.SaveGram == "" && libraryKnows(ext, o.Without) {
		o.Prior = fit.PriorLibrary
	}
	if o.Options, err = o.Options.Resolve(); err != nil {
		return &option.Misuse{Msg: err.Error()}
	}
	return nil
}

// check refuses mistakes before anything is read.
func (o FitOptions) check() error {
	if err := errors.Join(o.ResolveFor(nil), o.checkRequests()); err != nil || o.From == "" {
		return err
	}
	_, err := o.FromRequests(&result.Extract{})
	return err
}

// Fit fits the tables of an extracted folder and writes fit.json and
// coefficients.yaml to o.Out.
func Fit(ctx context.Context, in string, o FitOptions) (*result.Fit, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.Out = cmp.Or(o.Out, in)
	release, err := folder.Claim(o.Out, o.Force || o.Out == in)
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

// fitAndWrite fits tables and writes what Fit writes to o.Out, which is ours.
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

// FitDocument is the fit of tables, as Fit writes it. sources are the runs of t; some may have rows
// that were made elsewhere.
func FitDocument(ctx context.Context, t Tables, sources []fit.Source, o FitOptions) (*result.Fit, error) {
	if err := o.ResolveFor(t.Extract); err != nil {
		return nil, err
	}
	command, err := o.Command()
	if err != nil {
		return nil, err
	}
	requests, err := o.FromRequests(t.Extract)
	if err != nil {
		return nil, err
	}
	h := folder.Header(command, o.Config)
	if requests {
		doc, err := fitRequests(ctx, t, h, o)
		if err == nil {
			doc.Warnings = joined(t.Warnings, doc.Warnings)
		}
		return doc, err
	}
	return t.fitSteps(ctx, sources, o.Options, h, o.Progress)
}

// FitTables fits the runs of an output folder from their steps and writes nothing.
func FitTables(ctx context.Context, in string, ext *result.Extract, o fit.Options, h result.Header,
	progress trace.Progress) (*result.Fit, error) {
	t := Tables{Extract: ext, Dir: in}
	return t.fitSteps(ctx, t.FitSources(), o, h, progress)
}

// fitSteps fits the sources, runs of t. The header's inputs are those of the extraction: the
// files the numbers come from.
func (t *Tables) fitSteps(ctx context.Context, sources []fit.Source, o fit.Options, h result.Header,
	progress trace.Progress) (*result.Fit, error) {
	doc, err := fit.Fit(ctx, sources, o, progress)
	if err != nil {
		return nil, err
	}
	doc.Header = h
	doc.Inputs = t.Inputs
	doc.Warnings = joined(t.Warnings, doc.Warnings)
	for i := range t.Runs {
		if t.Runs[i].Tables[table.Points] > 0 {
			doc.Warnings = append(doc.Warnings, levelsBeside(t.Runs[i].ID, "steps teach; load levels beside them do not"))
		}
	}
	return doc, nil
}

// layeredVersion is 1.3 where a run of a fit needs it, else "" (spec#default-version).
func layeredVersion(ext *result.Extract, without []string) features.Version {
	for i := range ext.Runs {
		r := &ext.Runs[i]
		if r.Deployment != nil && !slices.Contains(without, r.ID) && features.DefaultVersion(r.Deployment) == features.V13 {
			return features.V13
		}
	}
	return ""
}

// libraryKnows reports that there are kernel tables for all runs of a fit, and that their models are
// dense (spec#prior-default).
func libraryKnows(ext *result.Extract, without []string) bool {
	known := false
	for i := range ext.Runs {
		r := &ext.Runs[i]
		if r.Deployment == nil || slices.Contains(without, r.ID) {
			continue
		}
		if _, err := library.Bound(r.Deployment, library.Options{}); err != nil || r.Deployment.Model.IsMoE() {
			return false
		}
		known = true
	}
	return known
}

// WriteFit writes fit.json, coefficients.yaml without gates and the form asked for to o.Out.
func WriteFit(ctx context.Context, doc *result.Fit, o FitOptions) error {
	if err := folder.WriteDocument(filepath.Join(o.Out, folder.FitFile), doc); err != nil {
		return err
	}
	if err := writeCoefficients(o.Out, doc, nil); err != nil {
		return err
	}
	return o.writeForm(ctx)
}

func writeCoefficients(out string, doc *result.Fit, v *result.Validation) error {
	b, err := CoefficientFile(doc, v)
	if err != nil {
		return err
	}
	return files.Write(filepath.Join(out, folder.CoefficientsFile), b)
}

// saveGram writes the sums of the same runs under the same options.
func (o *FitOptions) saveGram(ctx context.Context, t Tables) error {
	if o.SaveGram == "" {
		return nil
	}
	if err := o.ResolveFor(nil); err != nil {
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

// FitGrams fits the sums of other places in place of tables: Gram files that
// [Fit] saved. It writes what Fit writes.
func FitGrams(ctx context.Context, names []string, o FitOptions) (*result.Fit, error) {
	switch {
	case o.SaveGram != "" || o.DumpRows:
		return nil, option.Misusef("fit: --from-gram has no rows to save")
	case o.Out == "":
		return nil, option.Misusef("fit: --from-gram needs -o OUT")
	}
	if err := o.ResolveFor(nil); err != nil {
		return nil, err
	}
	release, err := folder.Claim(o.Out, o.Force)
	if err != nil {
		return nil, err
	}
	defer release()
	sums, inputs, err := readGrams(names, o.Special)
	if err != nil {
		return nil, err
	}
	doc, err := fit.FromGrams(ctx, sums, o.Options)
	if err != nil {
		return nil, err
	}
	command, err := o.Command()
	if err != nil {
		return nil, err
	}
	doc.Header = folder.Header(command+" --from-gram", o.Config)
	doc.Inputs = inputs
	return doc, WriteFit(ctx, doc, o)
}

// readGrams reads Gram files and describes them as inputs, by base name.
func readGrams(names []string, special bool) ([]ridge.File, []result.Input, error) {
	var grams []ridge.File
	inputs := []result.Input{}
	for _, name := range names {
		b, in, err := folder.ReadInput(name, special)
		if err != nil {
			return nil, nil, err
		}
		g, err := ridge.Read(bytes.NewReader(b))
		if err != nil {
			return nil, nil, trace.Hinted(fmt.Errorf("%s: %w", name, err), "blis-train fit OUT --save-gram FILE writes such files")
		}
		grams = append(grams, g)
		inputs = append(inputs, in)
	}
	return grams, inputs, nil
}
