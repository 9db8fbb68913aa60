package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/autoscale"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

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
