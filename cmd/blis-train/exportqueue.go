package main

import (
	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
)

// queueExportFlags are what exports of a queue.json can say.
func queueExportFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "consumer-version",
			Usage: "`VERSION` of the autoscaler, such as v0.4.2; one that does not read the file is refused"},
		&cli.StringFlag{Name: "key", Value: "perfParms", Usage: "inferno-models: `KEY` of the parameters, perfParms or serviceParms"},
		&cli.StringFlag{Name: "namespace", Usage: "wva-slo: `NAMESPACE` of the model's pods"},
		&cli.Float64Flag{Name: "unit-cost", Usage: "wva-4p: `CENTS` per device and hour"},
		&cli.Float64Flag{Name: "ttft-ms", Usage: "wva-slo: target mean TTFT, `MS`; default that of queue size"},
		&cli.Float64Flag{Name: "itl-ms", Usage: "wva-slo: target mean ITL, `MS`; default that of queue size"},
		&cli.BoolFlag{Name: "physical", Usage: "queue.json: physical parameters in place of the effective ones"},
	}
}

// exportQueue writes a queueing calibration in the format of an autoscaler.
func exportQueue(c *cli.Context, con *console, o pipeline.ExportOptions) error {
	format, err := export.ParseFormat(string(o.Format))
	if err == nil {
		err = o.Check()
	}
	if err != nil {
		return &usageError{msg: err.Error()}
	}
	doc, in, err := con.readQueue(c.Args().First())
	if err != nil {
		return err
	}
	if k := c.String("key"); k != "perfParms" && k != "serviceParms" {
		return usagef("--key: got %q, want perfParms or serviceParms", k)
	}
	out, err := export.Queue(doc, in, format, export.QueueOptions{
		Options: o.Options, Version: c.String("consumer-version"), Key: c.String("key"), Namespace: c.String("namespace"),
		UnitCost: c.Float64("unit-cost"),
		TTFTMs:   c.Float64("ttft-ms"), ITLMs: c.Float64("itl-ms"), Physical: c.Bool("physical"),
	})
	if err != nil {
		return err
	}
	got, err := pipeline.WriteExport(o.Out, format, out)
	if err != nil {
		return err
	}
	return showExport(con, o.Out, got)
}
