package main

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func exportCommand() *cli.Command {
	def := export.DefaultOptions()
	return &cli.Command{
		Name:      "export",
		Usage:     "write coefficients in the format a consumer loads",
		ArgsUsage: "fit.json|queue.json|predictor.json",
		Description: "native is the artifact itself; every other format comes with FILE" + export.SidecarSuffix + ",\n" +
			"which holds the provenance that has no room in it. docs/formats.md describes them.\n\n" +
			"Example:\n   blis-train export --format blis-defaults out/fit.json -o defaults.yaml",
		Flags: flags([]cli.Flag{
			&cli.StringFlag{Name: "format", Aliases: []string{"f"}, Value: string(export.FormatNative), Usage: "`FORMAT`: " + formatNames()},
			outFlag("`FILE` to write"),
			&cli.StringFlag{Name: "validation", Usage: "validation.json with the gates, `FILE`; default the one beside fit.json, none for none"},
			&cli.BoolFlag{Name: "force", Usage: "write values the format's reader should not be given"},
			&cli.StringFlag{Name: "config", Usage: "only this configuration, by `LABEL` or key"},
			&cli.Float64Flag{Name: "prompt-tokens", Usage: "mean prompt length `TOKENS` the wva and inferno lines assume; 0: of the training requests"},
			&cli.Float64Flag{Name: "output-tokens", Usage: "mean output length `TOKENS` the wva and inferno lines assume; 0: of the training requests"},
			&cli.StringFlag{Name: "name", Value: def.Name, Usage: "`PREFIX` of the registry set and the Kubernetes resources"},
			&cli.StringFlag{Name: "model", Value: "trees", Usage: "predictor-xgboost: `FOREST`, trees, or a quantile: trees-q50, trees-q90, trees-q99"},
			&cli.StringFlag{Name: "slo-class-name", Value: def.SLOClassName, Usage: "wva: `CONFIGMAP` that sloClassRef names"},
			&cli.StringFlag{Name: "slo-class-key", Usage: "wva: `KEY` in it; default the model id"},
		}, queueExportFlags(), talkFlags()),
		Action: runExport,
	}
}

func formatNames() string {
	var names []string
	for _, f := range export.All() {
		names = append(names, string(f))
	}
	return strings.Join(append(names, pipeline.PredictorFormats...), ", ")
}

func runExport(c *cli.Context) error {
	con, err := newConsole(c)
	if err != nil {
		return err
	}
	if c.NArg() != 1 {
		return usagef("export: got %d arguments, want one fit.json", c.NArg())
	}
	if con.settings, err = applyConfig(c, con, "", "export"); err != nil {
		return err
	}
	if c.String("out") == "" {
		return usagef("export: missing -o FILE")
	}
	if name := c.String("format"); slices.Contains(pipeline.PredictorFormats, name) {
		return runPredictorExport(c, con, name)
	}
	format, err := export.ParseFormat(c.String("format"))
	if err != nil {
		return usagef("%v", err)
	}
	opt := export.Options{
		Force: c.Bool("force"), Config: c.String("config"), PromptTokens: c.Float64("prompt-tokens"), OutputTokens: c.Float64("output-tokens"),
		Name: c.String("name"), SLOClassName: c.String("slo-class-name"), SLOClassKey: c.String("slo-class-key"),
	}
	if err := opt.Check(); err != nil {
		return usagef("%v", err)
	}
	if err := export.CheckVersion(format, c.String("consumer-version")); err != nil {
		return err
	}
	if stageOf(c.Args().First()) == "queue" {
		return exportQueue(c, con, format, opt)
	}
	src, err := con.exportSource(c.Args().First(), c.String("validation"))
	if err != nil {
		return err
	}
	out, err := exportAs(src, format, opt)
	if err != nil {
		return err
	}
	return writeExport(con, c.String("out"), format, out)
}

// exportSource reads fit.json and the validation beside it.
func (con *console) exportSource(fitPath, valPath string) (export.Source, error) {
	data, in, err := con.readInput(fitPath)
	if err != nil {
		return export.Source{}, err
	}
	src := export.Source{Fit: &result.Fit{}, FitInput: in}
	if err := result.Read(bytes.NewReader(data), src.Fit); err != nil {
		return src, notOurs(fitPath, err)
	}
	beside := valPath == ""
	if beside {
		valPath = filepath.Join(filepath.Dir(fitPath), validationFile)
	}
	if valPath != "none" {
		val := &result.Validation{}
		switch err := readDoc(valPath, val); {
		case err == nil:
			src.Validation = val
		case beside && errors.Is(err, fs.ErrNotExist):
		default:
			return src, err
		}
	}
	src.Step = func(d deploy.Deployment) (export.StepTimer, error) {
		set, err := export.Native(src.Fit, nil)
		if err != nil {
			return nil, err
		}
		return newPhysics(set, d)
	}
	return src, nil
}

// exportAs makes the files of a format.
func exportAs(src export.Source, format export.Format, opt export.Options) (*export.Output, error) {
	if format != export.FormatNative {
		return export.Export(src, format, opt)
	}
	set, err := export.Native(src.Fit, src.Validation)
	if err != nil {
		return nil, err
	}
	data, err := setBytes(set)
	return &export.Output{Files: []export.File{{Data: data}}}, err
}

// exportDoc is what export --json prints.
type exportDoc struct {
	SchemaVersion string          `json:"schema_version"`
	Format        export.Format   `json:"format"`
	Files         []result.Input  `json:"files"`
	Warnings      []trace.Finding `json:"warnings"`
}

func writeExport(con *console, path string, format export.Format, out *export.Output) error {
	doc := exportDoc{SchemaVersion: result.SchemaVersion, Format: format, Warnings: out.Warnings, Files: []result.Input{}}
	if doc.Warnings == nil {
		doc.Warnings = []trace.Finding{}
	}
	con.warn(out.Warnings)
	var rows []table.Row
	for _, f := range out.Files {
		if err := files.Write(path+f.Suffix, f.Data); err != nil {
			return err
		}
		in := inputOf(filepath.Base(path+f.Suffix), f.Data)
		doc.Files = append(doc.Files, in)
		rows = append(rows, table.Row{path + f.Suffix, in.Bytes, in.SHA256[:12]})
	}
	con.table("Exported "+string(format), table.Row{"file", "bytes", "sha256"}, rows)
	return con.document(doc)
}
