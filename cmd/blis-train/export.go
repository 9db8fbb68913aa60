package main

// This file is the command export, which writes coefficients in the format of another program.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/autoscale"
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/library/build"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/predictor"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// exportCommand returns the command export.
func exportCommand() *cli.Command {
	o := pipeline.DefaultExportOptions()
	groups := []group{{name: "export", options: o.Flags()}}
	return newCommand(&cli.Command{
		Name:      "export",
		ArgsUsage: "fit.json|queue.json|predictor.json",
		Usage:     "write coefficients in the format a consumer loads",
		Description: "native is the coefficient file itself; every other format comes with FILE" +
			export.SidecarSuffix + ",\n" +
			"which holds the provenance that the format has no place for. docs/formats.md describes them.\n\n" + formatHelp() + `
Example:
   blis-train export --format blis-scenario --config LABEL out/fit.json -o scenario.yaml
   blis-train export --format wva-4p --option version=v0.4.2 out/queue.json -o va.yaml`,
		Flags: slices.Concat(groups[0].options, []cli.Flag{
			&cli.StringFlag{Name: "coefficients",
				Usage: "with --deployment: coefficient `FILE|library` in place of a fit (default: library)"},
			&cli.StringFlag{Name: "deployment",
				Usage: "export the coefficients of --coefficients for this run.yaml `FILE` or run folder, without a fit"},
			&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Destination: &o.Out, Usage: "`FILE` to write"},
		}),
	}, groups, func(c *cli.Context, con *console) error { return runExport(c, con, &o) })
}

// fitFormats returns the writers of all formats that are made from fit.json: those of packages
// export, autoscale and library/build.
func fitFormats() []export.Writer {
	return slices.Concat(export.Writers(), autoscale.Writers(), build.Writers())
}

// predictorSettings are the options of the formats that are made from predictor.json.
var predictorSettings = map[export.Format][]export.Setting{
	predictor.FormatXGBoost: {{Key: "model", Usage: "FOREST, trees, or a quantile: trees-q50, trees-q90, trees-q99",
		Default: "trees"}},
	predictor.FormatBulk: {{Key: "bucket-rows",
		Usage:   "ROWS of a bucket at most; the server's own limit is the default",
		Default: fmt.Sprint(predictor.ServerBucketRows), Number: true, Least: 1}},
}

// readers are the programs that load each format, for the help. Formats that are missing here have a note of their
// own (export.Writer.Note).
var readers = map[export.Format]string{
	export.FormatNative:       "coefficients.yaml itself, which simulate, check, the Go and the Python package read",
	export.FormatRegistryHost: "BLIS: entries of its registry for the host's work",
	export.FormatScenario:     "BLIS with its latency kernel: a scenario and the registry's set of coefficients",
	export.FormatKEDA:         "KEDA: a ScaledObject that scales by tokens in flight",
	export.FormatEPP:          "llm-d's router: the configuration of its endpoint picker",
	export.FormatCard:         "people: a page of Markdown to commit beside the file",
	"wva-4p":                  "llm-d's workload-variant-autoscaler: a VariantAutoscaling",
	"inferno-models":          "llm-inferno's optimizer: model-data.json",
	"vllm-sim":                "vllm-simulated-model: config.json",
	"aic-fpm":                 "AIConfigurator and AISimulate: times of forward passes",
}

// formatHelp returns the part of the help that lists the formats, by the document from which they
// are made, with their options.
func formatHelp() string {
	var b strings.Builder
	line := func(f export.Format, note string, settings []export.Setting) {
		fmt.Fprintf(&b, "   %s\n", strings.TrimSuffix(string(f)+": "+note, ": "))
		for _, s := range settings {
			fmt.Fprintf(&b, "      %s: %s\n", s.Key, s.Usage)
		}
	}
	b.WriteString("Formats of fit.json, each with its --option keys; all but native also have version, of their " +
		"reader:\n")
	line(export.FormatNative, readers[export.FormatNative], nil)
	for _, w := range fitFormats() {
		line(w.Format, cmp.Or(w.Note, readers[w.Format]), w.Settings)
	}
	b.WriteString("Formats of queue.json:\n")
	for _, f := range autoscale.Formats {
		line(f, "", autoscale.SettingsOf(f))
	}
	b.WriteString("Formats of predictor.json:\n")
	for _, f := range predictor.Formats {
		line(export.Format(f), "", predictorSettings[export.Format(f)])
	}
	return b.String()
}

// runExport writes the document in the argument (fit.json, queue.json or predictor.json), or the
// coefficients for --deployment, in the format of --format.
func runExport(c *cli.Context, con *console, o *pipeline.ExportOptions) error {
	if c.NArg() > 1 || c.NArg() == 0 && c.String("deployment") == "" {
		return usagef("export: got %d arguments, want one fit.json, or --deployment run.yaml", c.NArg())
	}
	if c.NArg() == 1 && (c.IsSet("coefficients") || c.IsSet("deployment")) {
		document := folder.FitFile
		switch folder.StageOf(c.Args().First()) {
		case "queue":
			document = folder.QueueFile
		case "predictor":
			document = folder.PredictorFile
		}
		return usagef("export: --coefficients, --deployment: got %s as well, want one of them", document)
	}
	if err := con.configure(c, "", c.Args().Slice()); err != nil {
		return err
	}
	o.Special = con.special
	o.Writers = fitFormats()
	if o.Out == "" {
		return usagef("export: missing -o FILE")
	}
	// The format decides for predictors, the document for queueing calibrations.
	ofPredictor := slices.Contains(predictor.Formats, string(o.Format))
	ofQueue := c.NArg() == 1 && folder.StageOf(c.Args().First()) == "queue"
	if ofPredictor || ofQueue {
		if err := goesWith(c, "a fit.json or --deployment", "prompt-tokens", "output-tokens"); err != nil {
			return err
		}
	}
	switch {
	case ofPredictor:
		return runPredictorExport(c, con, *o)
	case ofQueue:
		return exportQueue(c, con, *o)
	case c.NArg() == 0:
		return con.exportSet(c, *o)
	}
	got, err := pipeline.Export(c.Context, c.Args().First(), *o)
	if err != nil {
		return err
	}
	return showExport(con, o.Out, got)
}

// exportQueue writes a queueing calibration (queue.json) in the format of an autoscaler. It returns
// an error if the document's verdict does not allow it.
func exportQueue(c *cli.Context, con *console, o pipeline.ExportOptions) error {
	if err := o.ResolveFor(autoscale.SettingsOf(o.Format)); err != nil {
		return err
	}
	doc, in, err := readAs[autoscale.Queue](con, c.Args().First())
	if err != nil {
		return err
	}
	verdict, why := doc.VerdictOf(o.Config)
	if err := o.Judge("an autoscaler", cmp.Or(o.Config, coeff.ScopeAll), verdict, why); err != nil {
		return err
	}
	out, err := autoscale.Calibration(doc, in, o.Format, o.Options)
	if err != nil {
		return err
	}
	return con.writeExport(o, out)
}

// writeExport writes the files of an export and prints their names.
func (con *console) writeExport(o pipeline.ExportOptions, out *export.Output) error {
	got, err := pipeline.WriteExport(o.Out, o.Format, out)
	if err != nil {
		return err
	}
	return showExport(con, o.Out, got)
}

// exportDoc is what export --json prints.
type exportDoc struct {
	SchemaVersion string          `json:"schema_version"`
	Format        export.Format   `json:"format"`
	Files         []result.Input  `json:"files"`
	Warnings      []trace.Finding `json:"warnings"`

	Projections []export.Projected `json:"projections,omitempty"` // blis-defaults: one a configuration
}

// showExport prints the files of an export and, for blis-defaults, how well its terms describe the
// model.
func showExport(con *console, path string, got *pipeline.ExportResult) error {
	doc := exportDoc{SchemaVersion: result.SchemaVersion, Format: got.Format, Warnings: got.Output.Warnings,
		Files:       got.Files,
		Projections: got.Output.Projections}
	if doc.Warnings == nil {
		doc.Warnings = []trace.Finding{}
	}
	con.warn(doc.Warnings)
	var rows []cells
	for i, f := range got.Output.Files {
		rows = append(rows, cells{path + f.Suffix, got.Files[i].Bytes, got.Files[i].SHA256[:12]})
	}
	con.table("Exported "+string(got.Format), cells{"file", "bytes", "sha256"}, rows)
	con.table("How well BLIS's terms reproduce the coefficients: mean error of step times (in brackets that of their "+
		"sum); latencies simulated with BLIS's terms over those with the coefficients",
		cells{"configuration", "file", "all", "decode", "mixed", "prefill",
			"TTFT / ITL / E2E by load"}, projectionRows(path, doc.Projections))
	return con.document(doc)
}

// projectionRows returns the rows of the table of blis-defaults: the errors of the steps, and the
// ratio of simulated latencies with its terms to those with the model.
func projectionRows(path string, all []export.Projected) []cells {
	var rows []cells
	for _, p := range all {
		row := cells{p.Label, path + p.File}
		for _, e := range p.Errors {
			row = append(row, percent(e.MAPE)+optional(e.Bias, 100, " (%+.1f)"))
		}
		var loads []string
		for _, l := range p.Loads {
			loads = append(loads,
				fmt.Sprintf("%.2f / %.2f / %.2f at %.0f %%", l.TTFTRatio, l.ITLRatio, l.E2ERatio, 100*l.LoadFrac))
		}
		rows = append(rows, append(row, strings.Join(loads, ", ")))
	}
	return rows
}

// runPredictorExport writes a predictor.json in the format of a router.
func runPredictorExport(c *cli.Context, con *console, o pipeline.ExportOptions) error {
	if err := errors.Join(o.Whole(), o.ResolveFor(predictorSettings[o.Format])); err != nil {
		return err
	}
	format := string(o.Format)
	path := c.Args().First()
	if folder.StageOf(path) != "predictor" {
		return trace.Hinted(fmt.Errorf("%s: got another document, want a predictor.json", cmp.Or(path, "--deployment")),
			"blis-train predictor fit OUT writes one")
	}
	p, in, err := readAs[predictor.Document](con, path)
	if err != nil {
		return err
	}
	if p.Verdict != nil { // an older file was not judged
		if err := o.Judge("a router", coeff.ScopeAll, p.Verdict.Verdict, p.Verdict.Failed()); err != nil {
			return err
		}
	}
	out := &export.Output{}
	side := predictor.Sidecar(p, in, format, o.Command)
	switch format {
	case predictor.FormatXGBoost:
		docs, warnings, err := predictor.ExportXGBoost(p, o.Settings["model"])
		if err != nil {
			return err
		}
		out.Warnings = warnings
		for _, d := range docs {
			out.Files = append(out.Files, export.File{Suffix: "." + d.Target + ".json", Data: d.Data})
		}
	case predictor.FormatBulk:
		var b bytes.Buffer
		if side.Values, err = predictor.ExportBulk(&b, filepath.Dir(path), p,
			int(o.Settings.Float("bucket-rows"))); err != nil {
			return err
		}
		out.Files = []export.File{{Data: b.Bytes()}}
	}
	if out, err = side.OutputWith(out.Warnings, out.Files...); err != nil {
		return err
	}
	return con.writeExport(o, out)
}

// exportSet exports the coefficients of a file or of the library for one deployment, without a fit.
func (con *console) exportSet(c *cli.Context, o pipeline.ExportOptions) error {
	write, err := o.Resolve()
	if err != nil {
		return err
	}
	dep, err := loadDeployment(c.String("deployment"))
	if err != nil {
		return err
	}
	set, in, err := con.loadSetFor(c.String("coefficients"), dep)
	if err != nil {
		return err
	}
	var val *result.Validation // with the verdicts that the file has
	if len(set.Purposes) > 0 {
		val = &result.Validation{For: set.ValidatedFor}
	}
	for _, p := range set.Purposes {
		val.Purposes = append(val.Purposes, result.PurposeVerdict{PurposeVerdict: p})
	}
	judged, err := o.Judged(val)
	if err != nil {
		return err
	}
	found, _, err := export.Check(set, dep, nil)
	if err != nil {
		return err
	}
	out := &export.Output{Warnings: found}
	if o.Format == export.FormatNative {
		set := *features.On(set, dep)
		// Name the deployment in the file: there is no fit.json with it.
		if set.Library != nil && len(set.Configs) == 0 {
			set.Configs = []coeff.Config{coeff.ConfigOf(dep, []string{}, 0)}
		}
		data, err := folder.SetBytes(&set)
		if err != nil {
			return err
		}
		out.Files = []export.File{{Data: data}}
	} else {
		doc, err := requestfit.Document(set, dep)
		if err != nil {
			return err
		}
		doc.Header = result.NewHeader(folder.ToolVersion, "export --coefficients "+in.Name)
		doc.Inputs = []result.Input{in}
		src := export.Source{Fit: doc, FitInput: in, Warnings: found}
		// A verdict is of the deployments of the recordings, and says nothing of others.
		isOutside := slices.ContainsFunc(found, func(f trace.Finding) bool { return f.Code == coeff.OutsideTraining })
		if !isOutside {
			src.Judged = judged
		}
		pipeline.Predicts(&src, func() (*coeff.Set, error) { return set, nil })
		if set.Library != nil {
			// A zero of the library is its estimate, not a term that the recordings did not
			// identify. It is warned about.
			o.Force += ",unlearned_value"
			src.Library = set.Library.Version
		}
		if out, err = export.Export(src, write, o.Options); err != nil {
			return err
		}
		if err := o.TooFarOff(out); err != nil {
			return err
		}
	}
	return con.writeExport(o, out)
}
