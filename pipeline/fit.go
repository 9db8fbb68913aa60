package pipeline

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/coeff/library"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/fit/amend"
	"github.com/blis-train/blis-train/pipeline/fit/grams"
	"github.com/blis-train/blis-train/pipeline/fit/options"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/pipeline/ridge/cells"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
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
	Amend    bool     // also try every amendment of the specification
	Force    bool     // accept a folder of results that holds foreign files
	Special  bool     // read pipes and devices given as Gram files
	Config   *result.Config
	Warn     func([]trace.Finding) // hears what stands in no document; nil: nobody
	Progress trace.Progress
	doubts   doubts
	open     bool              // nobody asked for a prior
	rows     map[string]string // by run: the folder of its rows, where tasks made them
	tables   map[string]string // by run: the folder of its tables, where it is not that of the others
}

// dir is the folder of a run's tables.
func (o *FitOptions) dir(in, run string) string { return cmp.Or(o.tables[run], in) }

// DefaultFitOptions are those of the command line.
func DefaultFitOptions() FitOptions {
	return FitOptions{Options: fit.BareOptions(), Search: learn.SearchNone, Form: FormPhysics}
}

// Table is the options of the stage as flags and as recorded.
func (o *FitOptions) Table() option.Table {
	return slices.Concat(o.learning(), option.Table{
		option.String("save-gram", &o.SaveGram, "also write the rows' sums to `FILE`, to be merged and fitted elsewhere"),
		option.Switch("dump-rows", &o.DumpRows, "also write rows.parquet: every row of the fit with its features"),
		option.Switch("try-amendments", &o.Amend, "also try every amendment of the specification on these rows, each alone"),
		option.Switch("force", &o.Force, "accept an output folder that holds foreign files"),
	}, o.Filter.Table())
}

// learning are the options that decide coefficients.
func (o *FitOptions) learning() option.Table {
	return append(o.Options.Table(),
		option.String("from", &o.From,
			"what to learn from: steps, requests, or points (CSV tables of load levels; default: steps where any are traced)").Recorded(),
		option.String("search", &o.Search, "`SEARCH` of the learned directions after a fit from requests: none, nelder-mead, spsa or cmaes").
			Recorded().Unless(learn.SearchNone),
		option.List("holdout", &o.Holdout, "run `ID` that a fit from requests does not see and is judged by (repeatable)").Recorded(),
		option.String("form", &o.Form, "`FORM` of a fit from requests: physics, or trained-physics, which also writes BLIS's 3+11 coefficients").
			Recorded().Unless(FormPhysics),
		option.String("budget", &o.Budget, "`TIME` of a fit from requests, as 60s: its passes and its search end at as many simulated steps "+
			"(500,000 a second)").Recorded(),
		option.Whole("shared-prefix-tokens", &o.Shared,
			"first `N` prompt tokens that requests share where the recording does not say").Recorded().Unless("0"))
}

// Command is the recorded command line: the stage and every option that can change
// its numbers (spec#documents).
func (o FitOptions) Command() (string, error) {
	var err error
	o.Options, err = o.Resolve()
	return o.Table().Command("fit"), err
}

// resolved checks the options of the fit itself.
func (o *FitOptions) resolved() (err error) {
	o.open = o.PriorOpen() && o.SaveGram == "" // sums of several places must agree in their version
	if o.Options, err = o.Options.Resolve(); err != nil {
		return &option.Misuse{Msg: err.Error()}
	}
	return nil
}

// Fit fits the tables of an extracted folder and writes fit.json and
// coefficients.yaml to o.Out.
func Fit(ctx context.Context, in string, o FitOptions) (*result.Fit, error) {
	if err := o.resolved(); err != nil {
		return nil, err
	}
	if o.Out == "" {
		o.Out = in
	}
	release, err := folder.Claim(o.Out, o.Force || o.Out == in)
	if err != nil {
		return nil, err
	}
	defer release()
	o.doubts.tell = o.Warn
	ext, err := folder.ReadExtract(in, o.doubts.add)
	if err != nil {
		return nil, err
	}
	rejected, err := o.Rejected(ext, o.Warn)
	if err != nil {
		return nil, err
	}
	for _, id := range rejected {
		if !slices.Contains(o.Without, id) {
			o.Without = append(o.Without, id)
		}
	}
	doc, err := fitFolder(ctx, in, ext, o)
	if err != nil {
		return nil, err
	}
	return doc, o.writeForm(ctx)
}

// fitFolder fits and writes; options are resolved and the folder is ours.
func fitFolder(ctx context.Context, in string, ext *result.Extract, o FitOptions) (*result.Fit, error) {
	if o.DumpRows {
		o.Rows = func(d *fit.Dump) error { return d.Write(o.Out) }
	}
	if err := o.settle(ext); err != nil {
		return nil, err
	}
	command, err := o.Command()
	if err != nil {
		return nil, err
	}
	if o.Amend {
		command += " --try-amendments"
	}
	requests, err := o.fromRequests(ext)
	if err != nil {
		return nil, err
	}
	var doc *result.Fit
	if requests {
		doc, err = FitRequests(ctx, in, ext, o)
	} else {
		var sources []fit.Source
		for i := range ext.Runs {
			s := fitSource(o.dir(in, ext.Runs[i].ID), &ext.Runs[i])
			s.Rows = o.rows[s.ID]
			sources = append(sources, s)
		}
		doc, err = fitTables(ctx, sources, ext, o.Options, folder.Header(command, o.Config), o.Progress)
	}
	if err == nil && o.Amend && !requests {
		doc.Amendments, err = amend.TryEach(ctx, FitSources(in, ext), o.Options)
	}
	if err != nil {
		return nil, err
	}
	doc.Warnings = o.doubts.before(doc.Warnings)
	if err := writeFit(o.Out, doc); err != nil || requests {
		return doc, err
	}
	return doc, o.saveGram(ctx, in, ext)
}

// settle makes the choices that depend on the runs: the library's prior where nobody asked
// for one and the library knows them.
func (o *FitOptions) settle(ext *result.Extract) error {
	if !o.open || !libraryKnows(ext, o.Without) {
		return nil
	}
	o.Prior = options.PriorLibrary
	return o.resolved()
}

// FitTables fits the runs of an output folder and writes nothing. The header's
// inputs are those of the extraction: the files the numbers come from.
func FitTables(ctx context.Context, in string, ext *result.Extract, o fit.Options, h result.Header,
	progress trace.Progress) (*result.Fit, error) {
	return fitTables(ctx, FitSources(in, ext), ext, o, h, progress)
}

func fitTables(ctx context.Context, sources []fit.Source, ext *result.Extract, o fit.Options, h result.Header,
	progress trace.Progress) (*result.Fit, error) {
	doc, err := fit.Fit(ctx, sources, o, progress)
	if err != nil {
		return nil, err
	}
	h.Inputs = ext.Inputs
	doc.Header = h
	doc.Platform = result.AnyPlatform
	return doc, nil
}

// libraryKnows reports that one file of the library has all runs of a fit, and that it is one of dense
// models (spec#prior-default).
func libraryKnows(ext *result.Extract, without []string) bool {
	name := ""
	for i := range ext.Runs {
		r := &ext.Runs[i]
		if r.Deployment == nil || slices.Contains(without, r.ID) {
			continue
		}
		file, err := library.FileFor(r.Deployment)
		if err != nil || r.Deployment.Model.IsMoE() || name != "" && file != name {
			return false
		}
		name = file
	}
	return name != ""
}

// writeFit writes fit.json and coefficients.yaml without gates.
func writeFit(out string, doc *result.Fit) error {
	if err := folder.WriteDocument(filepath.Join(out, folder.FitFile), doc); err != nil {
		return err
	}
	return writeCoefficients(out, doc, nil)
}

func writeCoefficients(out string, doc *result.Fit, v *result.Validation) error {
	b, err := CoefficientFile(doc, v)
	if err != nil {
		return err
	}
	return files.Write(filepath.Join(out, folder.CoefficientsFile), b)
}

// saveGram writes the sums of the same runs under the same options.
func (o *FitOptions) saveGram(ctx context.Context, in string, ext *result.Extract) error {
	if o.SaveGram == "" {
		return nil
	}
	g, err := grams.Save(ctx, FitSources(in, ext), o.Options, o.Progress)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := cells.Write(&b, g); err != nil {
		return err
	}
	return files.Write(o.SaveGram, b.Bytes())
}

// FitGrams fits the sums of other places in place of tables: Gram files that
// [Fit] saved. It writes what Fit writes.
func FitGrams(ctx context.Context, names []string, o FitOptions) (*result.Fit, error) {
	switch {
	case o.SaveGram != "" || o.DumpRows || o.Amend:
		return nil, option.Misusef("fit: --from-gram has no rows to save or to try amendments on")
	case o.Out == "":
		return nil, option.Misusef("fit: --from-gram needs -o OUT")
	}
	if err := o.resolved(); err != nil {
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
	doc, err := grams.Fit(ctx, sums, o.Options)
	if err != nil {
		return nil, err
	}
	command, err := o.Command()
	if err != nil {
		return nil, err
	}
	doc.Header = folder.Header(command+" --from-gram", o.Config)
	doc.Platform = result.AnyPlatform
	doc.Inputs = inputs
	return doc, writeFit(o.Out, doc)
}

// readGrams reads Gram files and describes them as inputs, by base name.
func readGrams(names []string, special bool) ([]cells.File, []result.Input, error) {
	var grams []cells.File
	inputs := []result.Input{}
	for _, name := range names {
		b, in, err := folder.ReadInput(name, special)
		if err != nil {
			return nil, nil, err
		}
		g, err := cells.Read(bytes.NewReader(b))
		if err != nil {
			return nil, nil, trace.Hinted(fmt.Errorf("%s: %w", name, err), "blis-train fit OUT --save-gram FILE writes such files")
		}
		grams = append(grams, g)
		inputs = append(inputs, in)
	}
	return grams, inputs, nil
}
