package pipeline

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/shard"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// pool does the tasks of a job in this process.
type pool struct {
	ctx      context.Context
	job      shard.Job
	workers  int
	runs     int // of engines: so many tasks hold recordings at a time, and no more
	progress trace.Progress
	mu       sync.Mutex
	fit      *result.Fit // that every judge reads
}

// do does the tasks of a pass; the error of the first that failed is that of the stage.
func (p *pool) do(pass string, ids []string) error {
	all := par.Workers(p.workers)
	many := max(1, min(all, len(ids), p.runs))
	return par.Try(p.ctx, many, len(ids), func(i int) error {
		t, err := p.job.Task(ids[i])
		if err == nil {
			_, err = doOne(p.ctx, p.job, t, all/many, p)
		}
		if bad := (*shard.PanicError)(nil); errors.As(err, &bad) {
			panic(&par.Panic{Value: bad.Value, Stack: []byte(bad.Stack)})
		}
		return err
	}, func(done int) { p.progress.Report(pass, int64(done), int64(len(ids)), "tasks") })
}

// readFit is readFit, once for all tasks of a pool: of a run there is one fit.
func (p *pool) readFit(dir string) (f *result.Fit, err error) {
	if p == nil {
		return readFit(dir)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fit != nil {
		return p.fit, nil
	}
	if f, err = readFit(dir); err == nil {
		p.fit = f
	}
	return f, err
}

// extractedTask is a task of the pass tables that Run did before it had a job.
type extractedTask struct {
	Build  string `json:"build"`
	Digest string `json:"digest"` // over the inputs
}

// begin is the job of a run whose folders were extracted to out, where its own is until it ends:
// their tables are those of tasks that are done. What a killed process did of it counts where it is whole.
func begin(ctx context.Context, entries []*extract.Entry, plan *Plan, o *RunOptions) (*collection, error) {
	job := shard.Job{Dir: filepath.Join(o.Extract.Out, folder.TasksDir), Alone: true}
	c := &collection{job: job, plan: plan, o: o, pool: &pool{ctx: ctx, job: job, workers: o.Extract.Workers, progress: o.Fit.Progress}}
	if st, err := os.Lstat(job.Dir); err == nil && !st.IsDir() {
		return nil, trace.Errorf(extract.CodeNotOurs, "%s: got a link or a file, want a folder or nothing", job.Dir).
			WithHint("remove it, or choose another folder with -o")
	}
	if err := job.Recover(); err != nil {
		return nil, err
	}
	var tasks []shard.Task
	for _, e := range entries {
		task, err := shard.NewTask(passTables, e.ID, extractedTask{plan.Build, e.Digest})
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task)
	}
	if err := job.Offer(passTables, tasks); err != nil {
		return nil, err
	}
	for i, e := range entries {
		r, err := job.Do(ctx, &tasks[i], func(dir string) error {
			return errors.Join(e.Adopt(o.Extract.Out, extract.Options{Out: dir}), writeEntry(dir, e))
		})
		if err != nil {
			return nil, err
		}
		c.extracted(e, r.Folder)
	}
	c.pool.runs = len(c.from)
	return c, nil
}

// end removes the job of a run.
func (c *collection) end() { os.RemoveAll(c.job.Dir) }
