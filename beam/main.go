// Command blis-train-beam has an Apache Beam runner do the tasks of a plan: the work of
// `blis-train run` on one machine's cores (Prism, in this process), or on a cluster (Flink,
// Spark, Dataflow, any portable runner). Runners schedule; what a task does, and what is
// made of the receipts, is package pipeline's, so that the results are those of the main
// program byte for byte. Beam carries ids of tasks and receipts and no data.
//
//	blis-train-beam run RUNDIR|PARENT|GLOB|gs://...|s3://... -o DIR [--runner prism|universal|flink|spark|dataflow] [Beam's flags]
//
// One pipeline a pass: Create(ids) -> Reshuffle -> ParDo(task) -> GroupByKey(one key) ->
// manifest. DIR and recordings in files must be seen by all workers under the same names.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/log"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/shard"
	"github.com/blis-train/blis-train/trace"
)

// Exit codes are those of blis-train (spec#exit-status).
const (
	exitFailed = 1
	exitUsage  = 2
	exitGate   = 3
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(execute(ctx, os.Args[1:], os.Stderr))
}

// call is what the command line asks for.
type call struct {
	dir    string
	part   int64 // bytes
	inputs []string
	o      pipeline.RunOptions
	talk   io.Writer
}

// execute is the whole of it; it returns the exit code.
func execute(ctx context.Context, args []string, talk io.Writer) int {
	c, err := readCall(args, talk)
	if err == nil {
		log.SetupLogging("warn", "text") // what runners say of each pass is not ours to say
		beam.Init()                      // a worker of a cluster goes no further
		err = c.work(ctx)
	}
	var misuse *option.Misuse
	var gate *gateFailed
	switch {
	case err == nil:
		return 0
	case errors.As(err, &gate):
		fmt.Fprintln(talk, err)
		return exitGate
	}
	fmt.Fprintln(talk, "error:", err)
	if errors.As(err, &misuse) {
		return exitUsage
	}
	return exitFailed
}

// readCall reads the command line: flags of the stages as in `blis-train run`, those of Beam,
// and names of recordings in between.
func readCall(args []string, talk io.Writer) (*call, error) {
	c := &call{o: pipeline.DefaultRunOptions(), talk: talk}
	c.o.Done = c.done
	set := flag.CommandLine
	set.StringVar(&c.dir, "o", "", "`FOLDER` of plan, tasks, receipts and results, seen by all workers")
	set.Int64Var(&c.part, "part-bytes", shard.DefaultPartBytes, "read longer uncompressed inputs in parts of `N` bytes; 0: whole")
	for _, stage := range c.o.Flags() {
		for _, f := range stage {
			if set.Lookup(f.Names()[0]) != nil { // of an earlier stage
				continue
			}
			if err := f.Apply(set); err != nil {
				return nil, err
			}
		}
	}
	if len(args) > 0 && args[0] == "run" {
		args = args[1:]
	}
	for {
		if err := set.Parse(args); err != nil {
			return nil, err
		}
		if set.NArg() == 0 {
			break
		}
		c.inputs, args = append(c.inputs, set.Arg(0)), set.Args()[1:]
	}
	return c, nil
}

// gateFailed is a verdict that is no pass.
type gateFailed struct{ purpose, verdict string }

func (e *gateFailed) Error() string { return fmt.Sprintf("verdict for %s: %s", e.purpose, e.verdict) }

// work makes the plan unless there is one, and has passes done until none is open.
func (c *call) work(ctx context.Context) error {
	if c.dir == "" {
		return option.Misusef("missing -o FOLDER")
	}
	dir, err := filepath.Abs(c.dir)
	if err != nil {
		return err
	}
	if _, err := shard.ReadPlan(c.dir); errors.Is(err, fs.ErrNotExist) {
		_, local, err := newMirror(ctx, c.inputs, dir, c.part)
		if err != nil {
			return err
		}
		if _, err := shard.MakePlan(local, c.dir, c.part, c.o); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	c.o.Extract.Warn = func(found []trace.Finding) {
		for _, f := range found {
			fmt.Fprintf(c.talk, "warning: %s: %s\n", f.Code, f.Message)
		}
	}
	for {
		par.LeanHeap() // rows of all runs
		got, err := shard.Collect(ctx, dir, c.o)
		if err != nil {
			return err
		}
		if len(got.Open) == 0 {
			return passed(got.Validation)
		}
		fmt.Fprintf(c.talk, "pass %s: %d of %d tasks done\n", got.Pass, got.Done, got.Done+len(got.Open))
		if err := runPass(ctx, dir, got.Pass, got.Open, c.talk); err != nil {
			return err
		}
	}
}

func passed(v *result.Validation) error {
	if v.Verdict == coeff.VerdictPass || v.Verdict == coeff.VerdictInsufficient {
		return nil
	}
	return &gateFailed{v.For, v.Verdict}
}

// done says that a document is written.
func (c *call) done(doc any) {
	switch d := doc.(type) {
	case *result.Extract:
		fmt.Fprintf(c.talk, "extracted %d runs, %.1f MB\n", len(d.Runs), float64(d.Totals.BytesRead)/1e6)
	case *result.Fit:
		fmt.Fprintf(c.talk, "fitted %d configurations\n", len(d.Configs))
	case *result.Validation:
		fmt.Fprintf(c.talk, "verdict for %s: %s\n", d.For, d.Verdict)
	}
}
