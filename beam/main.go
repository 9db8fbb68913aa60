// Command blis-train-beam lets an Apache Beam runner do the tasks of a plan: the work of
// `blis-train run` on one machine's cores (Prism, in this process), or on a cluster (Flink,
// Spark, Dataflow, any portable runner). The runner only schedules: package shard does the tasks
// and collects their receipts, so the results are those of the main program, byte for byte. Beam
// transports the ids of tasks and the names of their folders, and no data.
//
//	blis-train-beam run RUNDIR|PARENT|GLOB|gs://...|s3://... -o DIR [--runner prism|universal|flink|spark|dataflow] [Beam's flags]
//
// Each pass of the plan is one Beam pipeline (pass.go): Create(ids) -> Reshuffle -> ParDo(task) ->
// GroupByKey(one key) -> manifest. All workers must have DIR, and recordings that are files, under the
// same names; of objects in buckets each worker fetches what its tasks read (mirror.go).
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

// call is a call of the command: its arguments and flags.
type call struct {
	dir    string              // the folder of the plan
	part   int64               // length of the parts in which long inputs are read, bytes
	inputs []string            // run folders, patterns and addresses of objects
	o      pipeline.RunOptions // of the stages
	talk   io.Writer           // for progress, warnings and errors
}

// execute does what the arguments ask for, prints an error, and returns the exit code.
func execute(ctx context.Context, args []string, talk io.Writer) int {
	c, err := readCall(args, talk)
	if err == nil {
		log.SetupLogging("warn", "text") // without the runners' own lines about each pass
		beam.Init()                      // in a worker of a cluster it serves the runner and does not return
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

// readCall reads the command line: flags of the stages as in `blis-train run`, those of Beam, and
// recordings. The package flag stops at the first argument that is no flag, so it is called again
// after each recording.
func readCall(args []string, talk io.Writer) (*call, error) {
	c := &call{o: pipeline.DefaultRunOptions(), talk: talk}
	c.o.Done = c.done
	set := flag.CommandLine // Beam has added its flags to it
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
		c.inputs = append(c.inputs, set.Arg(0))
		args = set.Args()[1:]
	}
	return c, nil
}

// gateFailed is the error for a verdict that exits with exitGate.
type gateFailed struct{ purpose, verdict string }

// Error returns the verdict and its purpose.
func (e *gateFailed) Error() string { return fmt.Sprintf("verdict for %s: %s", e.purpose, e.verdict) }

// work makes the plan unless the folder has one, and then runs pass after pass until no task is open.
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
		par.LeanHeap() // Collect reads the rows of all runs
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

// passed returns a gateFailed unless the verdict is a pass or lacks data.
func passed(v *result.Validation) error {
	if v.Verdict == coeff.VerdictPass || v.Verdict == coeff.VerdictInsufficient {
		return nil
	}
	return &gateFailed{purpose: v.For, verdict: v.Verdict}
}

// done prints a line about a document that was written.
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
