package main

// This file is the Beam pipeline of one pass.

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/metrics"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/register"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/x/beamx"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/shard"
)

func init() {
	register.DoFn3x1[context.Context, string, func(string), error](&doTask{})
	register.DoFn2x1[int, func(*string) bool, error](&closePass{})
	register.Emitter1[string]()
	register.Iter1[string]()
}

// namespace is that of our metrics in Beam.
const namespace = "blis-train"

// runPass runs the pipeline of a pass: a task for each id, and at last its manifest. Reshuffle lets the
// runner distribute the ids, which are in one bundle otherwise. The group by one key makes closePass wait
// for all tasks.
func runPass(ctx context.Context, dir, pass string, ids []string, talk io.Writer) error {
	p, s := beam.NewPipelineWithRoot()
	tasks := beam.Reshuffle(s, beam.CreateList(s, ids))
	receipts := beam.ParDo(s.Scope(pass), &doTask{Dir: dir}, tasks)
	beam.ParDo0(s.Scope("manifest"), &closePass{Dir: dir, Pass: pass}, beam.GroupByKey(s, beam.AddFixedKey(s, receipts)))
	defer watch(shard.Job{Dir: dir}, pass, ids, talk)()
	res, err := beamx.RunWithMetrics(ctx, p)
	if err != nil {
		return fmt.Errorf("pass %s: %w", pass, err)
	}
	sayCounters(res, talk)
	return nil
}

// watch prints the progress of a pass every few seconds until stop is called. It counts receipts in the
// folder, because runners report nothing before the end.
func watch(job shard.Job, pass string, ids []string, talk io.Writer) (stop func()) {
	const every = 5 * time.Second
	tick := time.NewTicker(every)
	ended := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				if n, err := job.Done(ids); err == nil {
					fmt.Fprintf(talk, "pass %s: %d of %d tasks done\n", pass, n, len(ids))
				}
			}
		}
	})
	return func() {
		tick.Stop()
		close(ended)
		group.Wait()
	}
}

// sayCounters prints the metrics of the workers.
func sayCounters(res beam.PipelineResult, talk io.Writer) {
	if res == nil {
		return
	}
	found := res.Metrics().Query(func(r beam.MetricResult) bool { return r.Namespace() == namespace }).Counters()
	slices.SortFunc(found, func(a, b metrics.CounterResult) int { return cmp.Compare(a.Key.Name, b.Key.Name) })
	for _, c := range found {
		fmt.Fprintf(talk, "  %s %d\n", c.Key.Name, c.Result())
	}
}

// doTask is the DoFn that does a task: it takes the task's id and emits the folder of its files. Beam
// sends Dir to the workers; each reads the rest itself.
type doTask struct {
	Dir  string    // of the plan
	far  *mirror   // of objects in buckets; nil: recordings are files
	once sync.Once // reads far
	err  error     // of that
}

// ProcessElement fetches what the task reads of buckets, does the task and counts what it read.
func (f *doTask) ProcessElement(ctx context.Context, id string, emit func(string)) error {
	f.once.Do(func() { f.far, f.err = readMirror(f.Dir) })
	if f.err != nil {
		return f.err
	}
	if f.far != nil {
		task, err := shard.Job{Dir: f.Dir}.Task(id)
		if err != nil {
			return err
		}
		f.far.count = func(n int64) { beam.NewCounter(namespace, "fetched_bytes").Inc(ctx, n) }
		if err := f.far.prepare(ctx, task); err != nil {
			return err
		}
	}
	r, err := shard.DoTask(ctx, f.Dir, id, 0)
	if err != nil {
		return err
	}
	emit(r.Folder)
	return count(ctx, f.Dir, r)
}

// entryFile is the file in which a task of the pass tables writes its part of extract.json.
const entryFile = "entry.json"

// count adds to the metrics the bytes and lines that a task of the pass tables read, and the records that it
// kept and dropped, by reason.
func count(ctx context.Context, dir string, r *shard.Receipt) error {
	if !slices.ContainsFunc(r.Files, func(f shard.File) bool { return f.Name == entryFile }) {
		return nil
	}
	var e extract.Entry
	if err := files.ReadJSON(shard.Job{Dir: dir}.Path(r, entryFile), &e); err != nil {
		return err
	}
	add := func(name string, n int64) { beam.NewCounter(namespace, name).Inc(ctx, n) }
	add("bytes", e.Bytes)
	add("lines", e.Lines)
	for i := range e.Results {
		records := &e.Results[i].Records
		add("kept", records.Kept)
		for code, n := range records.Dropped {
			add("dropped_"+code, n)
		}
	}
	return nil
}

// closePass is the DoFn at the end of a pipeline: it checks the receipts of the pass and writes its manifest.
type closePass struct {
	Dir, Pass string
}

// ProcessElement ignores its elements: State reads the receipts themselves.
func (f *closePass) ProcessElement(_ int, _ func(*string) bool) error {
	_, err := shard.Job{Dir: f.Dir}.State(f.Pass)
	return err
}
