package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/autoscale"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func queueCommand() *cli.Command {
	return &cli.Command{
		Usage: "calibrate the queueing models autoscalers size with, and use them",
		Description: "Inputs are folders that extract has written, benchmark sweeps (GuideLLM's JSON or CSV, or folders of\n" +
			"them), or the queue.json of an earlier command. Results go to OUT/queue.json and OUT/windows.parquet.\n\n" +
			"Example:\n   blis-train queue fit out -o out --window 20s --min-requests 10",
		Subcommands: []*cli.Command{queueFitCommand(), queueValidateCommand(), queueSizeCommand(), queueAllocateCommand()},
	}
}

// stepFlag is the limit of a step, which sweeps and comparisons have.
const stepFlag = "max-num-batched-tokens"

// Flags of queue commands that mean something for one kind of input only.
var (
	sweepFlags  = []string{"max-num-seqs", stepFlag, "model", "accelerator", "acc-count", "loads", "ttft"}
	windowFlags = []string{"window", "hop", "min-requests", "semantics", "only", "exclude"}
)

// flavourFlag and holdOutFlag are those of commands that fit, and flavourFlag of those that judge a fit.
func flavourFlag() cli.Flag {
	return &cli.StringFlag{Name: "flavour", Value: string(autoscale.DefaultOptions().Flavour),
		Usage: "queueing `MODEL`: wva-4p, wva-3p, inferno-3p or corrected"}
}

func holdOutFlag() cli.Flag {
	return &cli.Float64Flag{Name: "hold-out", Value: autoscale.DefaultOptions().HoldOut,
		Usage: "last `SHARE` of the windows that scores are made on"}
}

// queueFlags are those of commands that read recordings or sweeps.
func queueFlags() []cli.Flag {
	d := autoscale.DefaultOptions()
	return []cli.Flag{
		outFlag("`FOLDER` of queue.json and windows.parquet"),
		&cli.DurationFlag{Name: "window", Value: time.Duration(d.Cut.WindowNs), Usage: "length of a window, `TIME` such as 60s"},
		&cli.DurationFlag{Name: "hop", Usage: "`TIME` from window to window; default the window"},
		&cli.IntFlag{Name: "min-requests", Value: d.Cut.MinRequests, Usage: "windows of fewer `REQUESTS` are dropped"},
		&cli.StringFlag{Name: "semantics", Value: string(d.Cut.Semantics),
			Usage: "means over requests by `EVENT`: arrival, or prometheus (completions, as vLLM's histograms)"},
		&cli.Float64Flag{Name: "queue-ratio", Value: d.QueueRatio,
			Usage: "waiting room over seats, `RATIO`: 10 in workload-variant-autoscaler, 1 in model-trainer"},
		&cli.IntFlag{Name: "max-num-seqs", Value: d.Sweep.MaxBatch, Usage: "sweeps: `SEATS` of the server"},
		&cli.IntFlag{Name: stepFlag, Value: d.Sweep.MaxBatchedTokens, Usage: "sweeps: `TOKENS` of a step"},
		&cli.StringFlag{Name: "model", Usage: "sweeps: `ID` of the model"},
		&cli.StringFlag{Name: "accelerator", Usage: "sweeps: `NAME` of the hardware"},
		&cli.Int64Flag{Name: "acc-count", Value: d.Sweep.AccCount, Usage: "sweeps: `N` devices of one replica"},
		&cli.IntFlag{Name: "loads", Usage: "sweeps: the `N` lightest benchmarks of each; 0 takes all (model-trainer: 7)"},
		&cli.StringFlag{Name: "ttft", Value: "median", Usage: "sweeps: `STATISTIC` of TTFT that is fitted: median or mean"},
		&cli.IntFlag{Name: "workers", Usage: "`N` workers; 0 uses every core"},
		&cli.BoolFlag{Name: "force", Usage: "accept an output folder that holds foreign files"},
	}
}

func queueOptions(c *cli.Context) (autoscale.Options, error) {
	o := autoscale.DefaultOptions()
	o.Workers = c.Int("workers")
	if c.IsSet("flavour") {
		o.Flavour = autoscale.Flavour(c.String("flavour"))
	}
	if c.IsSet("hold-out") {
		o.HoldOut = c.Float64("hold-out")
	}
	o.Cut.WindowNs, o.Cut.HopNs = c.Duration("window").Nanoseconds(), c.Duration("hop").Nanoseconds()
	if o.Cut.HopNs == 0 {
		o.Cut.HopNs = o.Cut.WindowNs
	}
	o.Cut.MinRequests, o.Cut.Semantics = c.Int("min-requests"), autoscale.Semantics(c.String("semantics"))
	o.QueueRatio = c.Float64("queue-ratio")
	o.Sweep = autoscale.SweepOptions{
		MaxBatch: c.Int("max-num-seqs"), MaxBatchedTokens: c.Int(stepFlag), Model: c.String("model"),
		Accelerator: c.String("accelerator"),
		AccCount:    c.Int64("acc-count"), Loads: c.Int("loads"), Mean: c.String("ttft") == "mean",
	}
	if s := c.String("ttft"); s != "mean" && s != "median" {
		return o, usagef("--ttft: got %q, want median or mean", s)
	}
	if err := o.Check(); err != nil {
		return o, &usageError{msg: err.Error()}
	}
	return o, nil
}

func queueFitCommand() *cli.Command {
	return &cli.Command{
		Name: "fit", Usage: "physical parameters from steps, effective ones from latencies", ArgsUsage: "OUT|SWEEP...",
		Description: "Physical parameters are a regression of step times on tokens computed and KV tokens read, with the hardware's\n" +
			"limits beside them. Effective ones are what the queueing model needs to give the latencies of the windows;\n" +
			"directions that the windows do not show stay at the physical values. With --track the tuners of\n" +
			"workload-variant-autoscaler and model-tuner run as they are, and a filter with measured noise and a refit over the\n" +
			"last ten windows beside the batch fit: windows.parquet has every estimate with its covariance, innovation and verdict.\n\n" +
			"Example:\n   blis-train queue fit out -o out --window 20s --min-requests 10\n" +
			"   blis-train queue fit testdata/sweeps/llama-3.1-8b.csv -o sweep --flavour inferno-3p --loads 7 --queue-ratio 1",
		Flags: flags(queueFlags(), []cli.Flag{flavourFlag(), holdOutFlag(), &cli.BoolFlag{Name: "track",
			Usage: "also say what online tuners would have estimated, window by window"}}, filterFlags(), talkFlags()),
		Action: runQueueFit,
	}
}

// runQueueFit fits every server, and follows each over time with --track.
func runQueueFit(c *cli.Context) error {
	verb, more := "fit", (func(*autoscale.Calibrated, *autoscale.Options) []autoscale.WindowRow)(nil)
	if c.Bool("track") {
		verb, more = "fit --track", autoscale.Track
	}
	con, err := newConsole(c)
	if err != nil {
		return err
	}
	o, err := queueOptions(c)
	if err != nil {
		return err
	}
	if c.NArg() == 0 {
		return usagef("queue fit: got no argument, want an extracted folder or a sweep")
	}
	if err := con.claim(c.String("out"), c.Bool("force") || c.String("out") == c.Args().First()); err != nil {
		return err
	}
	doc := newQueueDoc(con, verb, &o)
	servers, err := queueInputs(c, con, c.Args().Slice(), doc, &o)
	if err != nil {
		return err
	}
	fitted, rows, err := autoscale.FitQueues(c.Context, servers, &o, more)
	if err != nil {
		return err
	}
	for _, f := range fitted {
		doc.Servers = append(doc.Servers, f.Doc)
	}
	if err := autoscale.WriteRows(c.String("out"), rows); err != nil {
		return err
	}
	return finishFit(c, con, doc)
}

func newQueueDoc(con *console, verb string, o *autoscale.Options) *autoscale.Queue {
	return &autoscale.Queue{Header: con.header(autoscale.CommandLine(verb, o)), Flavour: string(o.Flavour), Options: o.Record(),
		Servers: []autoscale.QueueServer{}, Warnings: []trace.Finding{}}
}

// queueInputs reads the arguments: extracted folders give a server a run, all sweep files
// together one server.
func queueInputs(c *cli.Context, con *console, args []string, doc *autoscale.Queue,
	o *autoscale.Options) ([]*autoscale.Server, error) {
	var servers []*autoscale.Server
	var sweeps []string
	for _, a := range args {
		if _, err := os.Stat(filepath.Join(a, extractFile)); err != nil {
			sweeps = append(sweeps, a)
			continue
		}
		ext, err := readExtract(con, a)
		if err != nil {
			return nil, err
		}
		without, err := con.leftOut(c, ext)
		if err != nil {
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

// finishFit is finishQueue after the servers were fitted or judged.
func finishFit(c *cli.Context, con *console, doc *autoscale.Queue) error {
	for _, s := range doc.Servers {
		if s.Reason != "" {
			con.line("warning", s.ID+": "+s.Reason)
		}
		con.warn(s.Findings)
	}
	return finishQueue(c, con, doc, "parameters", "scores", "tracks")
}

func queueValidateCommand() *cli.Command {
	return &cli.Command{
		Name: "validate", Usage: "judge the parameters of queue.json on other recordings", ArgsUsage: "QUEUE.json OUT|SWEEP...",
		Description: fmt.Sprintf("Scores the parameters on windows they have not seen, beside a constant and the simulator with\n"+
			"the same parameters.\n"+
			"Exit 3 when TTFT is off by more than %.0f %% or ITL by more than %.0f %% (WAPE).\n\n", 100*autoscale.MaxTTFTWape,
			100*autoscale.MaxITLWape) +
			"Example:\n   blis-train queue validate monday/queue.json tuesday -o check --window 20s --min-requests 10",
		Flags: flags(queueFlags(), []cli.Flag{
			flavourFlag(),
			&cli.StringFlag{Name: "server", Usage: "take the parameters of this server, `ID`; default the one with the recording's id"},
			&cli.IntFlag{Name: "simulate", Value: 2000, Usage: "`REQUESTS` simulated for each window; 0: none"},
		}, filterFlags(), talkFlags()),
		Action: withConsole(runQueueValidate),
	}
}

func runQueueValidate(c *cli.Context, con *console) error {
	if c.NArg() < 2 {
		return usagef("queue validate: got %d arguments, want a queue.json and an extracted folder or a sweep", c.NArg())
	}
	fitted, in, err := con.readQueue(c.Args().First())
	if err != nil {
		return err
	}
	o, err := queueOptions(c)
	if err != nil {
		return err
	}
	if o.Flavour = autoscale.Flavour(fitted.Flavour); c.IsSet("flavour") && c.String("flavour") != fitted.Flavour {
		return usagef("--flavour: got %q, want %q: the parameters are of that one", c.String("flavour"), fitted.Flavour)
	}
	if err := con.claim(c.String("out"), c.Bool("force")); err != nil {
		return err
	}
	doc := newQueueDoc(con, "validate", &o)
	doc.Inputs = append(doc.Inputs, in)
	servers, err := queueInputs(c, con, c.Args().Tail(), doc, &o)
	if err != nil {
		return err
	}
	if doc.Servers, err = autoscale.ValidateQueues(c.Context, fitted, servers, c.String("server"), &o, c.Int("simulate")); err != nil {
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
			return gatef("%s: the parameters miss TTFT by more than %.0f %% or ITL by more than %.0f %%", s.ID, 100*autoscale.MaxTTFTWape,
				100*autoscale.MaxITLWape)
		}
	}
	if !judged {
		return gatef("no window of any server could be judged")
	}
	return nil
}

func queueSizeCommand() *cli.Command {
	return &cli.Command{
		Name: "size", Usage: "the largest rate of one replica that meets targets", ArgsUsage: "QUEUE.json",
		Description: "Targets are means, as the autoscalers' are. --simulate runs the simulator at the rate found, with the same\n" +
			"parameters, and prints what it says of means and 95th percentiles there.\n\n" +
			"Example:\n   blis-train queue size out/queue.json -o sized --ttft-ms 500 --itl-ms 60 --simulate 20000",
		Flags: flags([]cli.Flag{
			outFlag("`FOLDER` of queue.json"),
			&cli.Float64Flag{Name: "ttft-ms", Usage: "target mean TTFT, `MS`; 0: none"},
			&cli.Float64Flag{Name: "itl-ms", Usage: "target mean ITL, `MS`; 0: none"},
			&cli.Float64Flag{Name: "tps", Usage: "target `TOKENS` per second; as in the autoscalers it leaves 0.9 of the range"},
			&cli.Float64Flag{Name: "prompt-tokens", Usage: "mean prompt `TOKENS`; 0: of the windows"},
			&cli.Float64Flag{Name: "output-tokens", Usage: "mean output `TOKENS`; 0: of the windows"},
			&cli.IntFlag{Name: "simulate", Usage: "`REQUESTS` simulated at the rate; 0: none"},
			&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "`SEED` of the simulation"},
			&cli.IntFlag{Name: "workers", Usage: "`N` workers; 0 uses every core"},
			&cli.BoolFlag{Name: "force", Usage: "accept an output folder that holds foreign files"},
		}, talkFlags()),
		Action: func(c *cli.Context) error {
			o := autoscale.SizeOptions{
				Targets: autoscale.Targets{TTFTMs: c.Float64("ttft-ms"), ITLMs: c.Float64("itl-ms"), TPS: c.Float64("tps")},
				Prompt:  c.Float64("prompt-tokens"), Output: c.Float64("output-tokens"), Requests: c.Int("simulate"), Seed: c.Uint64("seed"),
				Workers: c.Int("workers"),
			}
			command := fmt.Sprintf("queue size --itl-ms %g --output-tokens %g --prompt-tokens %g --seed %d --simulate %d --tps %g --ttft-ms %g",
				o.Targets.ITLMs, o.Output, o.Prompt, o.Seed, o.Requests, o.Targets.TPS, o.Targets.TTFTMs)
			return useQueue(c, command, 1, func(_ *console, doc *autoscale.Queue) error { return autoscale.SizeQueues(c.Context, doc, o) })
		},
	}
}

func queueAllocateCommand() *cli.Command {
	return &cli.Command{
		Name: "allocate", Usage: "replicas for a fleet, as the autoscalers allocate", ArgsUsage: "QUEUE.json PROBLEM.yaml",
		Description: "Sizes every server of the problem on every accelerator that queue.json has its model on, and allocates: by\n" +
			"priority, largest regret first, then the saturation policy. The optimum stands beside it for up to ten servers.\n" +
			"docs/queueing.md shows a problem.\n\n" +
			"Example:\n   blis-train queue allocate out/queue.json problem.yaml -o plan",
		Flags: flags([]cli.Flag{
			outFlag("`FOLDER` of queue.json"), &cli.BoolFlag{Name: "force", Usage: "accept an output folder that holds foreign files"},
		}, talkFlags()),
		Action: func(c *cli.Context) error {
			return useQueue(c, "queue allocate", 2, func(con *console, doc *autoscale.Queue) error {
				data, in, err := con.readInput(c.Args().Get(1))
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
		},
	}
}

// useQueue reads queue.json, lets the command add to it, and writes and shows the result.
func useQueue(c *cli.Context, command string, args int, add func(*console, *autoscale.Queue) error) error {
	con, err := newConsole(c)
	if err != nil {
		return err
	}
	if c.NArg() != args {
		return usagef("%s: got %d arguments, want %s", c.Command.FullName(), c.NArg(), c.Command.ArgsUsage)
	}
	doc, in, err := con.readQueue(c.Args().First())
	if err != nil {
		return err
	}
	if err := con.claim(c.String("out"), c.Bool("force")); err != nil {
		return err
	}
	doc.Header, doc.Warnings = con.header(command), []trace.Finding{}
	doc.Inputs = append(doc.Inputs, in)
	if err := add(con, doc); err != nil {
		return err
	}
	for i, plan := range []*autoscale.QueuePlan{doc.Plan, doc.Optimum} {
		if plan != nil && len(plan.Unserved) > 0 {
			con.line("warning", fmt.Sprintf("%s plan: no capacity for %s", []string{"greedy", "optimum"}[i], strings.Join(plan.Unserved, ", ")))
		}
	}
	return finishQueue(c, con, doc, "sizes", "plan")
}

// readQueue reads a queue.json.
func (con *console) readQueue(path string) (*autoscale.Queue, result.Input, error) {
	_, in, err := con.readInput(path)
	if err != nil {
		return nil, in, err
	}
	doc := &autoscale.Queue{}
	return doc, in, con.readDoc(path, doc)
}

// finishQueue writes a document and its page, and shows the sections named.
func finishQueue(c *cli.Context, con *console, doc *autoscale.Queue, shown ...string) error {
	if err := writeDoc(filepath.Join(c.String("out"), queueFile), doc); err != nil {
		return err
	}
	html, sections, err := autoscale.Page(doc)
	if err == nil {
		err = files.Write(filepath.Join(c.String("out"), folder.QueuePage), html)
	}
	if err != nil {
		return err
	}
	con.tables(sections, shown...)
	con.warn(doc.Warnings)
	return con.document(doc)
}
