package main

// This file is the command queue, which calibrates the queueing models of autoscalers.

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/autoscale"
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// stepFlag is the flag for the largest number of tokens in a step, which sweeps and comparisons
// need.
const stepFlag = "max-num-batched-tokens"

// Flags of queue commands that mean something for one kind of input only.
var (
	sweepFlags  = []string{"max-num-seqs", stepFlag, "model", "accelerator", "acc-count", "loads", "ttft"}
	windowFlags = []string{"window", "hop", "min-requests", "semantics", "only", "exclude"}
)

// queueCommand returns the command queue.
func queueCommand() *cli.Command {
	return newParent(&cli.Command{
		Name:  "queue",
		Usage: "calibrate the queueing models autoscalers size with, and use them",
		Description: `Inputs are folders that extract has written, benchmark sweeps (GuideLLM's JSON or CSV, or folders of
them), or the queue.json of an earlier command. Results go to OUT/queue.json and OUT/windows.parquet.

Example:
   blis-train queue fit out -o out --window 20s --min-requests 10`,
		Subcommands: []*cli.Command{queueFitCommand(), queueValidateCommand(), queueSizeCommand(),
			queueAllocateCommand()},
	})
}

// queueFitCommand returns the command queue fit.
func queueFitCommand() *cli.Command {
	q := newQueueInputs()
	return newCommand(&cli.Command{
		Name:      "fit",
		ArgsUsage: "OUT|SWEEP...",
		Usage:     "physical parameters from steps, effective ones from latencies",
		Description: `Physical parameters are a regression of step times on tokens computed and KV tokens read, printed with the hardware's
limits. Effective ones are what the queueing model needs to give the latencies of the windows;
combinations of parameters that the windows do not determine stay at the physical values. --track also runs the tuners
of workload-variant-autoscaler and model-tuner unchanged, a filter with measured noise, and a refit over the last ten
windows: windows.parquet has every estimate with its covariance, innovation and verdict.
Exit status 3 when the verdict of a server is fail, 1 when no server has parameters; queue.json is written.

Example:
   blis-train queue fit out -o out --window 20s --min-requests 10
   blis-train queue fit testdata/sweeps/llama-3.1-8b.csv -o sweep --flavour inferno-3p --loads 7 --queue-ratio 1`,
		Flags: slices.Concat(q.flags(), []cli.Flag{
			&cli.Float64Flag{Name: "hold-out", Destination: &q.options.HoldOut, Value: q.options.HoldOut,
				Usage: "hold out the last `SHARE` of the windows and compute the scores on it"},
			&cli.BoolFlag{Name: "track",
				Usage: "also compute what online tuners would have estimated, window by window"},
		}),
	}, nil, func(c *cli.Context, con *console) error { return runQueueFit(c, con, q) })
}

// queueValidateCommand returns the command queue validate.
func queueValidateCommand() *cli.Command {
	q := newQueueInputs()
	return newCommand(&cli.Command{
		Name:      "validate",
		ArgsUsage: "QUEUE.json OUT|SWEEP...",
		Usage:     "score the parameters of queue.json on other recordings",
		Description: fmt.Sprintf(`Scores the parameters on windows they were not fitted to, next to a constant and the simulator with
the same parameters.
Exit status 3 when TTFT is off by more than %.0f %% or ITL by more than %.0f %% (WAPE).

Example:
   blis-train queue validate monday/queue.json tuesday -o check --window 20s --min-requests 10`,
			100*autoscale.MaxTTFTWape, 100*autoscale.MaxITLWape),
		Flags: slices.Concat(q.flags(), []cli.Flag{
			&cli.StringFlag{Name: "server",
				Usage: "take the parameters of this server, `ID` (default: the one with the recording's id)"},
			&cli.IntFlag{Name: "simulate", Value: 2000, Usage: "simulate `REQUESTS` for each window; 0: none"},
		}),
	}, nil, func(c *cli.Context, con *console) error { return runQueueValidate(c, con, q) })
}

// queueSizeCommand returns the command queue size.
func queueSizeCommand() *cli.Command {
	o := autoscale.SizeOptions{Seed: 1}
	return newCommand(&cli.Command{
		Name:      "size",
		ArgsUsage: "QUEUE.json",
		Usage:     "the largest rate of one replica that meets targets",
		Description: `Targets are means, as the autoscalers' are. --simulate runs the simulator at the rate found, with the same
parameters, and prints its means and 95th percentiles.

Example:
   blis-train queue size out/queue.json -o sized --ttft-ms 500 --itl-ms 60 --simulate 20000`,
		Flags: []cli.Flag{
			queueOutFlag(),
			&cli.Float64Flag{Name: "ttft-ms", Destination: &o.Targets.TTFTMs, DefaultText: "none",
				Usage: "target mean TTFT, `MS`"},
			&cli.Float64Flag{Name: "itl-ms", Destination: &o.Targets.ITLMs, DefaultText: "none", Usage: "target mean ITL, `MS`"},
			&cli.Float64Flag{Name: "tps", Destination: &o.Targets.TPS, DefaultText: "none",
				Usage: "output `TOKENS` per second to be served by as many replicas as it takes"},
			&cli.BoolFlag{Name: "emulate", Destination: &o.Targets.Emulate,
				Usage: "with --tps: use 0.9 of the rate range, as the autoscalers' queue analyzer does"},
			&cli.IntFlag{Name: "concurrency", Destination: &o.Concurrency, DefaultText: "the server's own",
				Usage: "find the smallest max_num_seqs, up to `N`, that serves 99 % of what N serves within the targets"},
			&cli.Float64Flag{Name: "prompt-tokens", Destination: &o.Prompt, DefaultText: "those of the windows",
				Usage: "mean prompt `TOKENS`"},
			&cli.Float64Flag{Name: "output-tokens", Destination: &o.Output, DefaultText: "those of the windows",
				Usage: "mean output `TOKENS`"},
			&cli.IntFlag{Name: "simulate", Destination: &o.Requests,
				Usage: "simulate `REQUESTS` at the rate found; 0: none"},
			&cli.Uint64Flag{Name: "seed", Destination: &o.Seed, Value: o.Seed, Usage: "`SEED` of the simulation"},
			workersFlag(&o.Workers), forceFlag(),
		},
	}, nil, func(c *cli.Context, con *console) error { return runQueueSize(c, con, o) })
}

// queueAllocateCommand returns the command queue allocate.
func queueAllocateCommand() *cli.Command {
	return newCommand(&cli.Command{
		Name:      "allocate",
		ArgsUsage: "QUEUE.json PROBLEM.yaml",
		Usage:     "replicas for a fleet, as the autoscalers allocate",
		Description: `Sizes every server of the problem on every accelerator that queue.json has its model on, and allocates: by
priority, largest regret first, then the saturation policy. For up to ten servers it also finds the optimum.
docs/queueing.md shows a problem.

Example:
   blis-train queue allocate out/queue.json problem.yaml -o plan`,
		Flags: []cli.Flag{queueOutFlag(), forceFlag()},
	}, nil, runQueueAllocate)
}

// queueOutFlag returns -o of commands that write queue.json alone.
func queueOutFlag() cli.Flag { return outFlag("`FOLDER` of queue.json") }

// queueInputs has the options of the queue commands that read recordings or sweeps.
type queueInputs struct {
	options autoscale.Options
	window  time.Duration   // length of a window of requests
	hop     time.Duration   // from the start of one window to the next; 0: window
	ttft    string          // statistic of TTFT in a sweep: median or mean; "": depends on the file
	filter  pipeline.Filter // --only and --exclude
}

// newQueueInputs returns the defaults.
func newQueueInputs() *queueInputs {
	q := &queueInputs{options: autoscale.DefaultOptions()}
	q.window = time.Duration(q.options.Cut.WindowNs)
	return q
}

// flags returns the options as flags.
func (q *queueInputs) flags() []cli.Flag {
	o := &q.options
	return append([]cli.Flag{
		outFlag("`FOLDER` of queue.json and windows.parquet"),
		&cli.DurationFlag{Name: "window", Destination: &q.window, Value: q.window,
			Usage: "length of a window, `TIME` such as 60s"},
		&cli.DurationFlag{Name: "hop", Destination: &q.hop, DefaultText: "the window",
			Usage: "`TIME` from the start of one window to the next"},
		&cli.IntFlag{Name: "min-requests", Destination: &o.Cut.MinRequests, Value: o.Cut.MinRequests,
			Usage: "drop windows of fewer `REQUESTS`"},
		&cli.StringFlag{Name: "semantics", Destination: (*string)(&o.Cut.Semantics), Value: string(o.Cut.Semantics),
			Usage: "put a request into the window of its `EVENT`: arrival, or prometheus (completion, as in " +
				"vLLM's histograms)"},
		&cli.Float64Flag{Name: "queue-ratio", Destination: &o.QueueRatio, Value: o.QueueRatio,
			Usage: "waiting requests at most, as a `RATIO` to max_num_seqs: 10 in workload-variant-autoscaler, 1 " +
				"in model-trainer"},
		&cli.IntFlag{Name: "max-num-seqs", Destination: &o.Sweep.MaxBatch, Value: o.Sweep.MaxBatch,
			Usage: "sweeps: the server's --max-num-seqs, `N`"},
		&cli.IntFlag{Name: stepFlag, Destination: &o.Sweep.MaxBatchedTokens, Value: o.Sweep.MaxBatchedTokens,
			Usage: "sweeps: the server's --max-num-batched-tokens, `N`"},
		&cli.StringFlag{Name: "model", Destination: &o.Sweep.Model, Usage: "sweeps: `ID` of the model"},
		&cli.StringFlag{Name: "accelerator", Destination: &o.Sweep.Accelerator,
			Usage: "sweeps: `NAME` of the hardware"},
		&cli.Int64Flag{Name: "acc-count", Destination: &o.Sweep.AccCount, Value: o.Sweep.AccCount,
			Usage: "sweeps: `N` devices of one replica"},
		&cli.IntFlag{Name: "loads", Destination: &o.Sweep.Loads,
			Usage: "sweeps: use the `N` lightest benchmarks of each; 0: all (model-trainer: 7)"},
		&cli.StringFlag{Name: "ttft", Destination: &q.ttft,
			Usage: "sweeps: `STATISTIC` of TTFT that is fitted: median or mean (default: mean of a table with " +
				"ttft_ms_mean, else median)"},
		workersFlag(&o.Workers), forceFlag(),
		&cli.StringFlag{Name: "flavour", Destination: (*string)(&o.Flavour), Value: string(o.Flavour),
			Usage: "queueing `MODEL`: wva-4p, wva-3p, inferno-3p or corrected"},
	}, q.filter.Flags()...)
}

// wantAboveZero returns an error for a flag that is set to 0, which must not count as none: who wants none leaves the flag
// out.
func wantAboveZero(c *cli.Context, names ...string) error {
	for _, name := range names {
		isZero := false
		switch v := c.Value(name).(type) {
		case float64:
			isZero = v == 0
		case int:
			isZero = v == 0
		case time.Duration:
			isZero = v == 0
		}
		if c.IsSet(name) && isZero {
			return &option.Misuse{Msg: fmt.Sprintf("--%s: got %v, want more than 0", name, c.Value(name)),
				Hint: "leave --" + name + " out for its default"}
		}
	}
	return nil
}

// resolve sets the options that depend on several flags, and checks all.
func (q *queueInputs) resolve() error {
	o := &q.options
	o.Cut.WindowNs = q.window.Nanoseconds()
	o.Cut.HopNs = cmp.Or(q.hop, q.window).Nanoseconds()
	switch q.ttft {
	case "":
	case "mean":
		o.Sweep.Mean = true
	case "median":
		o.Sweep.Median = true
	default:
		return usagef("--ttft: got %q, want median or mean", q.ttft)
	}
	if err := o.Check(); err != nil {
		return usagef("%v", err)
	}
	return nil
}

// runQueueFit fits the parameters of every server and, with --track, also computes what online
// tuners would have estimated.
func runQueueFit(c *cli.Context, con *console, q *queueInputs) error {
	verb := "fit"
	var track func(*autoscale.Calibrated, *autoscale.Options) []autoscale.WindowRow // nil: no tracks
	if c.Bool("track") {
		verb = "fit --track"
		track = autoscale.Track
	}
	if err := cmp.Or(wantAboveZero(c, "window", "hop"), q.resolve()); err != nil {
		return err
	}
	o := &q.options
	if c.NArg() == 0 {
		return usagef("queue fit: got no argument, want an extracted folder or a sweep")
	}
	if err := con.claimFolder(c.String("out"), c.Bool("force") || c.String("out") == c.Args().First()); err != nil {
		return err
	}
	doc := newQueueDoc(con, verb, o)
	servers, err := q.read(c, con, c.Args().Slice(), doc)
	if err != nil {
		return err
	}
	fitted, rows, err := autoscale.FitQueues(c.Context, servers, o, track)
	if err != nil {
		return err
	}
	for _, f := range fitted {
		doc.Servers = append(doc.Servers, f.Doc)
	}
	if err := autoscale.WriteRows(c.String("out"), rows); err != nil {
		return err
	}
	if err := finishFit(c, con, doc); err != nil {
		return err
	}
	return judgeFit(con, doc)
}

// judgeFit prints the verdict of each server with the gate that decided. It returns an error if no server has any
// parameters, and one with exit status 3 if the verdict of a server is fail.
func judgeFit(con *console, doc *autoscale.Queue) error {
	hasParameters := false
	failed := ""
	for i := range doc.Servers {
		s := &doc.Servers[i]
		hasParameters = hasParameters || len(s.Effective)+len(s.Physical) > 0
		if s.Verdict == nil {
			continue
		}
		line := fmt.Sprintf("%s: verdict for an autoscaler: %s", s.ID, s.Verdict.Verdict)
		if why := s.Verdict.Deciding(); why != "" {
			line += " (" + why + ")"
		}
		if s.Verdict.Verdict == coeff.VerdictFail && failed == "" {
			failed = line // printed as the error
			continue
		}
		con.infof("%s", line)
	}
	switch {
	case len(doc.Servers) > 0 && !hasParameters:
		return trace.Hinted(errors.New("nothing was fitted: no server has parameters"), "the warnings above say why")
	case failed != "":
		return gatef("%s", failed)
	}
	return nil
}

// newQueueDoc returns an empty queue.json of a command.
func newQueueDoc(con *console, verb string, o *autoscale.Options) *autoscale.Queue {
	return &autoscale.Queue{Header: con.header(autoscale.CommandLine(verb, o)), Flavour: string(o.Flavour),
		Options: o.Record(),
		Servers: []autoscale.QueueServer{}, Warnings: []trace.Finding{}}
}

// read returns the servers in the arguments: one for each run of an extracted folder, and one for
// all sweep files together.
func (q *queueInputs) read(c *cli.Context, con *console, args []string, doc *autoscale.Queue) ([]*autoscale.Server,
	error) {
	o := &q.options
	var servers []*autoscale.Server
	var sweeps []string
	for _, a := range args {
		if _, err := os.Stat(filepath.Join(a, folder.ExtractFile)); err != nil {
			sweeps = append(sweeps, a)
			continue
		}
		ext, err := readExtract(con, a)
		if err != nil {
			return nil, err
		}
		without, err := q.filter.Rejected(ext, con.warn)
		if err != nil {
			return nil, err
		}
		if err := autoscale.ReadTwice(doc.Inputs, ext.Inputs); err != nil {
			return nil, err
		}
		doc.Inputs = append(doc.Inputs, ext.Inputs...)
		some, err := autoscale.RunServers(c.Context, a, ext, without, o, con.progress())
		if err != nil {
			return nil, err
		}
		servers = append(servers, some...)
	}
	if len(sweeps) == 0 {
		return servers, goesWith(c, "sweeps", sweepFlags...)
	}
	if len(sweeps) == len(args) {
		if err := goesWith(c, "extracted folders", windowFlags...); err != nil {
			return nil, err
		}
	}
	s, inputs, err := autoscale.SweepServer(sweeps, con.readInput, o)
	if err != nil {
		return nil, err
	}
	doc.Inputs = append(doc.Inputs, inputs...)
	return append(servers, s), nil
}

// finishFit prints the warnings of the servers, writes the document and prints its tables.
func finishFit(c *cli.Context, con *console, doc *autoscale.Queue) error {
	for _, s := range doc.Servers {
		if s.Reason != "" {
			con.message("warning", s.ID+": "+s.Reason)
		}
		con.warn(s.Findings)
	}
	return finishQueue(c, con, doc, "parameters", "scores", "tracks")
}

// runQueueValidate scores the parameters of a queue.json on other recordings or sweeps.
func runQueueValidate(c *cli.Context, con *console, q *queueInputs) error {
	if c.NArg() < 2 {
		return usagef("queue validate: got %d arguments, want a queue.json and an extracted folder or a sweep",
			c.NArg())
	}
	if n := c.Int("simulate"); n < 0 {
		return usagef("--simulate: got %d requests, want >= 0", n)
	}
	fitted, in, err := readAs[autoscale.Queue](con, c.Args().First())
	if err != nil {
		return err
	}
	if err := cmp.Or(wantAboveZero(c, "window", "hop"), q.resolve()); err != nil {
		return err
	}
	o := &q.options
	if c.IsSet("flavour") && string(o.Flavour) != fitted.Flavour {
		return usagef("--flavour: got %q, want %q: the parameters are of that one", o.Flavour, fitted.Flavour)
	}
	o.Flavour = autoscale.Flavour(fitted.Flavour)
	if err := con.claimFolder(c.String("out"), c.Bool("force")); err != nil {
		return err
	}
	doc := newQueueDoc(con, "validate", o)
	doc.Inputs = append(doc.Inputs, in)
	servers, err := q.read(c, con, c.Args().Tail(), doc)
	if err != nil {
		return err
	}
	doc.Warnings = append(doc.Warnings, autoscale.SeenBefore(fitted, doc.Inputs)...)
	if doc.Servers, err = autoscale.ValidateQueues(c.Context, fitted, servers, c.String("server"), o,
		c.Int("simulate")); err != nil {
		return err
	}
	if err := finishFit(c, con, doc); err != nil {
		return err
	}
	judged := false
	for i := range doc.Servers {
		s := &doc.Servers[i]
		judged = judged || s.Reason == ""
		if s.Reason == "" && !autoscale.Passed(s) {
			return gatef("%s: the parameters miss TTFT by more than %.0f %% or ITL by more than %.0f %%", s.ID,
				100*autoscale.MaxTTFTWape,
				100*autoscale.MaxITLWape)
		}
	}
	if !judged {
		return gatef("no window of any server could be judged")
	}
	return nil
}

// runQueueSize finds the largest rate of one replica that meets the targets.
func runQueueSize(c *cli.Context, con *console, o autoscale.SizeOptions) error {
	if err := wantAboveZero(c, "ttft-ms", "itl-ms", "tps", "concurrency", "prompt-tokens", "output-tokens"); err != nil {
		return err
	}
	if o.Targets.TPS == 0 {
		if err := goesWith(c, "--tps", "emulate"); err != nil {
			return err
		}
	}
	if o.Requests == 0 {
		if err := goesWith(c, "--simulate", "seed"); err != nil {
			return err
		}
	}
	// The options in queue.json, by name, so that equal calls have equal documents.
	command := fmt.Sprintf("queue size --itl-ms %g --output-tokens %g --prompt-tokens %g --seed %d --simulate %d "+
		"--tps %g --ttft-ms %g",
		o.Targets.ITLMs, o.Output, o.Prompt, o.Seed, o.Requests, o.Targets.TPS, o.Targets.TTFTMs)
	if o.Targets.Emulate {
		command += " --emulate"
	}
	if o.Concurrency > 0 {
		command += fmt.Sprint(" --concurrency ", o.Concurrency)
	}
	return useQueue(c, con, command, 1, func(doc *autoscale.Queue) error {
		return autoscale.SizeQueues(c.Context, doc, o)
	})
}

// runQueueAllocate allocates replicas for the fleet in a problem file.
func runQueueAllocate(c *cli.Context, con *console) error {
	return useQueue(c, con, "queue allocate", 2, func(doc *autoscale.Queue) error {
		data, in, err := folder.ReadYAML(c.Args().Get(1), con.special)
		if err != nil {
			return err
		}
		doc.Inputs = append(doc.Inputs, in)
		problem, err := autoscale.ReadProblem(data, c.Args().Get(1))
		if err != nil {
			return err
		}
		return autoscale.AllocateQueues(doc, problem)
	})
}

// useQueue reads queue.json, calls add, which adds its result to the document, and writes and
// prints the document. args is the number of arguments that the command takes.
func useQueue(c *cli.Context, con *console, command string, args int, add func(*autoscale.Queue) error) error {
	if c.NArg() != args {
		return usagef("%s: got %d arguments, want %s", fullName(c), c.NArg(), c.Command.ArgsUsage)
	}
	doc, in, err := readAs[autoscale.Queue](con, c.Args().First())
	if err != nil {
		return err
	}
	if err := con.claimFolder(c.String("out"), c.Bool("force")); err != nil {
		return err
	}
	fittedTo := doc.Inputs // kept, because the parameters are
	doc.Header = con.header(command)
	doc.Warnings = []trace.Finding{}
	doc.Inputs = append(fittedTo, in)
	if err := add(doc); err != nil {
		return err
	}
	for _, p := range []struct {
		name string
		plan *autoscale.QueuePlan
	}{{"greedy", doc.Plan}, {"optimum", doc.Optimum}} {
		if p.plan == nil {
			continue
		}
		short := slices.DeleteFunc(slices.Clone(p.plan.Unserved), func(name string) bool {
			return slices.Contains(p.plan.NoOption, name)
		})
		if len(short) > 0 {
			con.message("warning", fmt.Sprintf("%s plan: no capacity for %s", p.name, strings.Join(short, ", ")))
		}
	}
	return finishQueue(c, con, doc, "sizes", "plan")
}

// finishQueue writes a document and its page, and prints the sections named in shown.
func finishQueue(c *cli.Context, con *console, doc *autoscale.Queue, shown ...string) error {
	if err := folder.WriteDocument(filepath.Join(c.String("out"), folder.QueueFile), doc); err != nil {
		return err
	}
	html, sections, err := autoscale.Page(doc)
	if err == nil {
		err = files.Write(filepath.Join(c.String("out"), folder.QueuePage), html)
	}
	if err != nil {
		return err
	}
	con.showTables(sections, shown...)
	con.warn(doc.Warnings)
	return con.document(doc)
}
