package main

import (
	"bytes"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/predictor"
	"github.com/blis-train/blis-train/trace"
)

// runPredictorExport writes a predictor.json in a router's format.
func runPredictorExport(c *cli.Context, con *console, o pipeline.ExportOptions) error {
	if err := o.ResolveFor(predictorSettings[o.Format]); err != nil {
		return err
	}
	format := string(o.Format)
	path := c.Args().First()
	if stageOf(path) != "predictor" {
		return trace.Hinted(fmt.Errorf("%s: got another document, want a predictor.json", path), "blis-train predictor fit OUT writes one")
	}
	p, in, err := con.loadPredictor(path)
	if err != nil {
		return err
	}
	out := &export.Output{}
	switch format {
	case predictor.FormatXGBoost:
		docs, warnings, err := predictor.ExportXGBoost(&p.Document, o.Settings["model"])
		if err != nil {
			return err
		}
		out.Warnings = warnings
		for _, d := range docs {
			out.Files = append(out.Files, export.File{Suffix: "." + d.Target + ".json", Data: d.Data})
		}
	case predictor.FormatBulk:
		var b bytes.Buffer
		if err := predictor.ExportBulk(&b, filepath.Dir(path), &p.Document); err != nil {
			return err
		}
		out.Files = []export.File{{Data: b.Bytes()}}
	}
	out, err = predictor.Sidecar(&p.Document, in, format, o.Command).Beside(out.Warnings, out.Files...)
	if err != nil {
		return err
	}
	got, err := pipeline.WriteExport(c.String("out"), export.Format(format), out)
	if err != nil {
		return err
	}
	return showExport(con, c.String("out"), got)
}
