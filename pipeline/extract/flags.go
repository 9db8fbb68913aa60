package extract

import (
	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/option"
)

// This file has the command-line flags of an extraction.

// Flags returns the command-line flags that set the options. Those marked option.Recorded can change
// the extracted tables, so extract.json records their values.
func (o *Options) Flags() []cli.Flag {
	return []cli.Flag{
		option.Recorded(&cli.StringFlag{Name: "format", Destination: (*string)(&o.Format), Value: string(o.Format),
			Usage: "`FORMAT` of the tables: parquet or arrow"}),
		&cli.Float64Flag{Name: "max-bad-frac", Destination: &o.MaxBadFrac, Value: o.MaxBadFrac,
			Usage: "fail when more than this `SHARE` of a run's input (0 to 1) cannot be read; 0: fail at the " +
				"first loss"},
		option.Recorded(&cli.Int64Flag{Name: "max-line", Destination: &o.MaxLine, Value: o.MaxLine,
			Usage: "drop lines and messages longer than this many `BYTES`"}),
		option.Recorded(&cli.Int64Flag{Name: "max-expansion", Destination: &o.MaxExpansion, Value: o.MaxExpansion,
			Usage: "stop reading a compressed file that expands beyond both 64 MB and `N` times its size"}),
		&cli.Int64Flag{Name: "max-client-memory", Destination: &o.ClientMemory, Value: o.ClientMemory,
			Usage: "refuse a run whose clients' requests take more than this many `BYTES` of memory; a request " +
				"takes about 750, and 8 for each chunk of its answer"},
		option.Recorded(&cli.BoolFlag{Name: "split-engines", Destination: &o.SplitEngines, Value: o.SplitEngines,
			Usage: "accept several engines whose time stamps overlap, as runs ID.1, ID.2, ..."}),
		&cli.BoolFlag{Name: "why-rejected", Destination: &o.WhyRejected, Value: o.WhyRejected,
			Usage: "write every dropped record with its reason to OUT/rejected.jsonl"},
		option.Recorded(&cli.GenericFlag{Name: "set", Value: option.Settings(&o.Set),
			Usage: "set a field of run.yaml: `KEY.PATH=VALUE` (repeatable)"}),
		&cli.IntFlag{Name: "workers", Destination: &o.Workers, Value: o.Workers,
			Usage: "`N` workers; 0: every core"},
		&cli.BoolFlag{Name: "force", Destination: &o.Force, Value: o.Force,
			Usage: "extract again even when nothing changed, and accept an output folder that holds files of " +
				"other programs"},
	}
}
