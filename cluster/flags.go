package cluster

// This file has the command-line flags of simulations with several engines and of experiments.

import (
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/option"
)

// Flags returns the command-line flags of a simulation with several engines: those of one engine
// (simulate.Options), --cluster and --num-instances.
func (o *Options) Flags() []cli.Flag {
	return append(o.Options.Flags(),
		option.RecordedBase(&cli.StringFlag{
			Name:        "cluster",
			Destination: &o.File,
			Value:       o.File,
			Usage:       "simulate several engines behind one gateway, as `FILE` describes them (docs/clusters.md)",
		}),
		option.RecordedUnless("0", &cli.IntFlag{
			Name:        "num-instances",
			Destination: &o.Instances,
			Value:       o.Instances,
			Usage: "`N` engines behind one gateway; 0: as many as the cluster file has, or one engine " +
				"without a gateway",
		}))
}

// Flags returns the flags of `experiment isolation`. Flags that can change the result are recorded
// in experiment.json.
func (o *IsolationOptions) Flags() []cli.Flag {
	return []cli.Flag{
		option.Recorded(&cli.StringFlag{
			Name:        "preset",
			Destination: &o.Preset,
			Value:       o.Preset,
			Usage:       "experiment to run, `NAME`: " + presetNames(),
		}),
		option.Recorded(&cli.StringFlag{
			Name:        "workload",
			Destination: &o.Workload,
			Value:       o.Workload,
			Usage: "`FILE` of requests for preset workload (TraceV2, BLIS workload-spec 2, generators, traces) or " +
				"mooncake (JSON lines, or gzip of them)",
		}),
		option.Recorded(&cli.IntFlag{
			Name:        "seeds",
			Destination: &o.Seeds,
			Value:       o.Seeds,
			Usage:       "`N` seeds, the same ones for every configuration: 42, 123, 7777 first",
		}),
		option.RecordedUnless("8", &cli.IntFlag{
			Name:        "num-instances",
			Destination: &o.Instances,
			Value:       o.Instances,
			Usage:       "`N` engines",
		}),
		option.RecordedUnless(kindFitted, &cli.StringFlag{
			Name:        "controller",
			Destination: &o.Controller,
			Value:       o.Controller,
			Usage: "coefficients that the gateway predicts with, `KIND|FILE`: fitted (to a simulated calibration " +
				"run), same (those of the engines: an upper bound), or a coefficient file",
		}),
		option.Recorded(&cli.StringFlag{
			Name:        "plant",
			Destination: &o.Plant,
			Value:       o.Plant,
			Usage:       "coefficient `FILE` of the engines (default: the published blackbox coefficients)",
		}),
		option.Recorded(&cli.StringFlag{
			Name:        "deployment",
			Destination: &o.Deployment,
			Value:       o.Deployment,
			Usage:       "run.yaml `FILE` or run folder of the engines (default: Llama-3.1-8B on one H100)",
		}),
		option.Recorded(&cli.BoolFlag{
			Name:        "alone",
			Destination: &o.Alone,
			Value:       o.Alone,
			Usage:       "do not repeat the main comparison with other coefficients in the gateway",
		}),
		&cli.IntFlag{
			Name:        "workers",
			Destination: &o.Workers,
			Value:       o.Workers,
			Usage:       "`N` simulations at a time; 0: every core",
		},
		&cli.BoolFlag{
			Name:        "force",
			Destination: &o.Force,
			Value:       o.Force,
			Usage:       "accept an output folder that holds files of other programs",
		},
	}
}

// Flags returns the flags of `experiment optimise`. Flags that can change the result are recorded
// in optimise.json, some of them only if their value is not the default.
func (o *optimiseOptions) Flags() []cli.Flag {
	return append([]cli.Flag{
		option.Recorded(&cli.StringFlag{
			Name:        "policy",
			Destination: &o.Policy,
			Value:       o.Policy,
			Usage: "admission policy to tune, `NAME`: predictive-seed, slo-gated or probabilistic; the last " +
				"two are always tuned for comparison",
		}),
		option.Recorded(&cli.StringFlag{
			Name:        "method",
			Destination: &o.Method,
			Value:       o.Method,
			Usage:       "search `METHOD`: gp (Gaussian process), random or grid",
		}),
		option.RecordedUnless(strconv.Itoa(defaultStart), &cli.IntFlag{
			Name:        "start",
			Destination: &o.Start,
			Value:       o.Start,
			Usage:       "`N` simulations at random parameters before the Gaussian process chooses them",
		}),
		option.Recorded(&cli.IntFlag{
			Name:        "calls",
			Destination: &o.Calls,
			Value:       o.Calls,
			Usage:       "`N` simulations after those of --start",
		}),
		option.RecordedUnless(strconv.Itoa(defaultTrainSeeds), &cli.IntFlag{
			Name:        "train-seeds",
			Destination: &o.TrainSeeds,
			Value:       o.TrainSeeds,
			Usage:       "tune on `N` seeds, from 1",
		}),
		option.RecordedUnless(strconv.Itoa(defaultTestSeeds), &cli.IntFlag{
			Name:        "test-seeds",
			Destination: &o.TestSeeds,
			Value:       o.TestSeeds,
			Usage:       "compare the result on `N` other seeds, from 101",
		}),
	}, option.Without(o.IsolationOptions.Flags(), "seeds", "alone")...)
}
