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
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// stepFlag is the limit of a step, which sweeps and comparisons have.
const stepFlag = "max-num-batched-tokens"

// Flags of queue commands that mean something for one kind of input only.
var (
	sweepFlags  = []string{"max-num-seqs", stepFlag, "model", "accelerator", "acc-count", "loads", "ttft"}
	windowFlags = []string{"window", "hop", "min-requests", "semantics", "only", "exclude"}
)

// queueFlags are those of commands that read recordings or sweeps.
func queueFlags(string) option.Table {
	d := autoscale.DefaultOptions()
	return append((&pipeline.Filter{}).Table(), defaults(map[string]any{"window": time.Duration(d.Cut.WindowNs),
		"min-requests": int64(d.Cut.MinRequests), "semantics": string(d.Cut.Semantics), "queue-ratio": d.QueueRatio,
		"max-num-seqs": int64(d.Sweep.MaxBatch), stepFlag: int64(d.Sweep.MaxBatchedTokens), "acc-count": d.Sweep.AccCount,
		"flavour": string(d.Flavour), "hold-out": d.HoldOut})...)
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
		Median: c.String("ttft") == "median",
	}
	if s := c.String("ttft"); s != "" && s != "mean" && s != "median" {
		return o, usagef("--ttft: got %q, want median or mean", s)
	}
	if err := o.Check(); err != nil {
		return o, usagef("%v", err)
	}
	return o, nil
}

// runQueueFit fits every server, and follows each over time with --track.
func runQueueFit(c *cli.Context, con *console) error {
	verb := "fit"
	more := (func(*autoscale.Calibrated, *autoscale.Options) []autoscale.WindowRow)(nil)
	if c.Bool("track") {
		verb, more = "fit --track", autoscale.Track
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
func queueInputs(c *cli.Context, con *console, args []string, doc *autoscale.Queue, o *autoscale.Options) ([]*autoscale.Server, error) {
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

// validateWords are the description of queue validate.
func validateWords() string {
	return fmt.Sprintf("Scores the parameters on windows they have not seen, beside a constant and the simulator with\n"+
		"the same parameters.\nExit 3 when TTFT is off by more than %.0f %% or ITL by more than %.0f %% (WAPE).\n\n", 100*autoscale.MaxTTFTWape,
		100*autoscale.MaxITLWape) + "Example:\n   blis-train queue validate monday/queue.json tuesday -o check --window 20s --min-requests 10"
}

func runQueueValidate(c *cli.Context, con *console) error {
	if c.NArg() < 2 {
		return usagef("queue validate: got %d arguments, want a queue.json and an extracted folder or a sweep", c.NArg())
	}
	fitted, in, err := readAs[autoscale.Queue](con, c.Args().First())
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

func runQueueSize(c *cli.Context, con *console) error {
	o := autoscale.SizeOptions{
		Targets: autoscale.Targets{TTFTMs: c.Float64("ttft-ms"), ITLMs: c.Float64("itl-ms"), TPS: c.Float64("tps"), Emulate: c.Bool("emulate")},
		Prompt:  c.Float64("prompt-tokens"), Output: c.Float64("output-tokens"), Requests: c.Int("simulate"), Seed: c.Uint64("seed"),
		Workers: c.Int("workers"), Concurrency: c.Int("concurrency"),
	}
	command := fmt.Sprintf("queue size --itl-ms %g --output-tokens %g --prompt-tokens %g --seed %d --simulate %d --tps %g --ttft-ms %g",
		o.Targets.ITLMs, o.Output, o.Prompt, o.Seed, o.Requests, o.Targets.TPS, o.Targets.TTFTMs)
	if o.Targets.Emulate {
		command += " --emulate"
	}
	if o.Concurrency > 0 {
		command += fmt.Sprint(" --concurrency ", o.Concurrency)
	}
	return useQueue(c, con, command, 1, func(doc *autoscale.Queue) error { return autoscale.SizeQueues(c.Context, doc, o) })
}

func runQueueAllocate(c *cli.Context, con *console) error {
	return useQueue(c, con, "queue allocate", 2, func(doc *autoscale.Queue) error {
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
}

// useQueue reads queue.json, lets the command add to it, and writes and shows the result.
func useQueue(c *cli.Context, con *console, command string, args int, add func(*autoscale.Queue) error) error {
	if c.NArg() != args {
		return usagef("%s: got %d arguments, want %s", fullName(c), c.NArg(), c.Command.ArgsUsage)
	}
	doc, in, err := readAs[autoscale.Queue](con, c.Args().First())
	if err != nil {
		return err
	}
	if err := con.claim(c.String("out"), c.Bool("force")); err != nil {
		return err
	}
	doc.Header = con.header(command)
	doc.Warnings = []trace.Finding{}
	doc.Inputs = append(doc.Inputs, in)
	if err := add(doc); err != nil {
		return err
	}
	for i, plan := range []*autoscale.QueuePlan{doc.Plan, doc.Optimum} {
		if plan != nil && len(plan.Unserved) > 0 {
			con.line("warning", fmt.Sprintf("%s plan: no capacity for %s", []string{"greedy", "optimum"}[i], strings.Join(plan.Unserved, ", ")))
		}
	}
	return finishQueue(c, con, doc, "sizes", "plan")
}

// finishQueue writes a document and its page, and shows the sections named.
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
	con.tables(sections, shown...)
	con.warn(doc.Warnings)
	return con.document(doc)
}
