package main

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

// namespace is that of our metrics.
const namespace = "blis-train"

// runPass has the tasks of a pass done, one element each.
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

// watch says now and then how far a pass is, until the result is called.
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

// sayCounters prints what the workers counted.
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

// doTask does one task; elements are its id and the folder of its files.
type doTask struct {
	Dir  string
	far  *mirror // of objects; nil: recordings are files
	once sync.Once
	err  error
}

func (f *doTask) ProcessElement(ctx context.Context, id string, emit func(string)) error {
	if f.once.Do(func() { f.far, f.err = readMirror(f.Dir) }); f.err != nil {
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

// entryFile is what a task that reads recordings writes of them.
const entryFile = "entry.json"

// count adds what of its inputs a task that is done read, kept and dropped by reason to the metrics.
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

// closePass writes the manifest when every receipt of the pass is there.
type closePass struct {
	Dir, Pass string
}

func (f *closePass) ProcessElement(_ int, _ func(*string) bool) error {
	_, err := shard.Job{Dir: f.Dir}.State(f.Pass)
	return err
}
