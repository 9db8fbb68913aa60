package main

import (
	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
)

// exportQueue writes a queueing calibration in the format of an autoscaler.
func exportQueue(c *cli.Context, con *console, o pipeline.ExportOptions) error {
	doc, in, err := con.readQueue(c.Args().First())
	if err != nil {
		return err
	}
	if o.Key != "perfParms" && o.Key != "serviceParms" {
		return usagef("--key: got %q, want perfParms or serviceParms", o.Key)
	}
	out, err := export.Queue(doc, in, o.Format, o.QueueOptions)
	if err != nil {
		return err
	}
	got, err := pipeline.WriteExport(o.Out, o.Format, out)
	if err != nil {
		return err
	}
	return showExport(con, o.Out, got)
}
