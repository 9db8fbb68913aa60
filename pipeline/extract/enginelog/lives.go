package enginelog

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Scopes under which extract.json counts what was read.
const (
	scopeLog = "vllm.log"
	scopeFPM = FPMSchema
)

// Lives writes iterations as tables while they are read, one for each life
// of each engine core, rank or producer: an index that starts again in a later
// record is another life.
type Lives struct {
	names    []source.Input
	acc      *source.Account
	stage    string
	format   table.Format
	open     map[string][]*Life // by engine, the one last written to last
	seen     map[string]int64   // passes
	lives    []*Life
	HitRates []HitRate
	Beyond   Limits
}

// Life is one uninterrupted count of one engine.
type Life struct {
	Engine string
	Rows   int64
	Dir    string // of its table
	last   row    // not yet written: the next may tell of it
	out    *table.Writer[trace.Iteration]

	process string // that wrote its lines
	at      int64  // pass of its engine that was its last

	Missing  int64        // iterations between the first and the last
	FirstGap source.Place // behind the first of them

	Backwards int64        // iterations that are stamped over a second before the one before
	FirstBack source.Place // the first of them
}

// NewLives writes below stage.
func NewLives(acc *source.Account, stage string, format table.Format) *Lives {
	return &Lives{acc: acc, stage: stage, format: format, open: map[string][]*Life{}, seen: map[string]int64{}}
}

// Logs reads the lines of vLLM's logs.
func (c *Lives) Logs(ctx context.Context, in []source.Input, how source.Options) error {
	c.names, how.AnyText = in, true
	return source.Stream(ctx, in, how, newLogDecoder, c.add)
}

// Passes reads the lines of dynamo.fpm.trace.v1.
func (c *Lives) Passes(ctx context.Context, in []source.Input, how source.Options) error {
	c.names = in
	return source.Stream(ctx, in, how, newFPMDecoder, c.add)
}

// add takes the result of one batch.
func (c *Lives) add(p *source.Parsed[*Iterations]) error {
	in := &c.names[p.Batch.File]
	p.Account(c.acc, in.Name)
	r := p.Records
	if r.Other > 0 {
		c.acc.Scope(scopeLog, "other lines", r.Other)
	}
	for _, b := range r.Bad {
		c.acc.Read++
		c.acc.Drop(source.CodeUnreadable, 1, source.Place{File: in.Name, Line: b.Line}, "got a torn iteration: %s", b.What)
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		row.File = in.Name
		key := row.Form + " " + row.Engine
		life := c.lifeOf(key, row)
		if in.Gave++; row.Rate.OK || life != nil && row.Form == trace.IterationSGLang && row.Process != life.process {
			c.acc.Scope(scopeLog, "other lines", 1) // hit rates, and copies by other tensor-parallel ranks
			if row.Rate.OK {
				c.HitRates = append(c.HitRates, HitRate{Engine: row.Engine, Frac: row.Rate.V})
			}
			continue
		}
		c.acc.Read++
		scope := scopeLog
		if row.Form == trace.IterationFPM {
			scope = scopeFPM
		}
		c.acc.Scope(scope, "iterations", 1)
		if err := c.row(key, life, row); err != nil {
			return err
		}
	}
	return c.acc.Err
}

// iterationRanges are the limits of what logs and forward-pass traces say (spec#value-limits).
var iterationRanges = trace.RangesOf[trace.Iteration]()

// lifeOf is the count of an engine that a pass goes on: of those that servers in one file have at the
// same time the one whose next pass it is, else that of the process that wrote it, else the last.
func (c *Lives) lifeOf(key string, row *row) (best *Life) {
	fits := func(l *Life) (n int) {
		if row.Index == l.last.Index+1 {
			n = 2
		}
		if row.Process == l.process {
			n++
		}
		return n
	}
	for i, l := range c.open[key] {
		if isLast := i == len(c.open[key])-1; (isLast || c.seen[key]-l.at < farBack) && (best == nil || fits(l) >= fits(best)) {
			best = l
		}
	}
	return best
}

func (c *Lives) row(key string, life *Life, row *row) error {
	if row.Index == unnumbered {
		if row.Index = 0; life != nil {
			row.Index = life.last.Index + 1
		}
	}
	if why := iterationRanges.Check(&row.Iteration); why != "" {
		c.acc.Drop(source.CodeBadRecord, 1, source.Place{File: row.File, Line: row.Line}, "iteration %d: %s", row.Index, why)
		return nil
	}
	if row.Form == trace.IterationLog && row.ElapsedUs < leastUs && row.ContextTokens+row.GenerationTokens > 0 && !row.Dummy {
		c.acc.Drop(source.CodeBadRecord, 1, source.Place{File: row.File, Line: row.Line}, "iteration %d: elapsed: got %.3g us, want at least "+
			"%d for a pass with tokens", row.Index, row.ElapsedUs, leastUs)
		return nil
	}
	if life != nil && row.StampNs.OK && life.last.StampNs.OK && row.StampWall == life.last.StampWall {
		if since := float64(row.StampNs.V-life.last.StampNs.V)/1000 + stampSlackUs; row.ElapsedUs > max(since, stampSlackUs) {
			c.acc.Drop(source.CodeBadRecord, 1, source.Place{File: row.File, Line: row.Line}, "iteration %d: elapsed: got %.6g s, want at most "+
				"%.6g s, which is a minute more than since the one before", row.Index, row.ElapsedUs/1e6, since/1e6)
			return nil
		}
	}
	if row.Form == trace.IterationLog {
		c.Beyond.See(row.ContextReqs+row.GenerationReqs, row.ContextTokens+row.GenerationTokens)
	}
	isOther := life != nil && row.Process != "" && life.process != "" && row.Process != life.process && row.Index != life.last.Index+1
	if isOther || life != nil && row.Index <= life.last.Index {
		if !isOther && !startsAgain(&life.last.Iteration, &row.Iteration) {
			c.acc.Drop(source.CodeDuplicate, 1, source.Place{File: row.File, Line: row.Line}, "iteration %d of engine %s after %d",
				row.Index, row.Engine, life.last.Index)
			return nil
		}
		life = nil
	}
	if life != nil {
		follow(&life.last, row)
	} else {
		life = &Life{Engine: row.Engine, process: row.Process, Dir: filepath.Join(c.stage, "iterations."+strconv.Itoa(len(c.lives)))}
		var err error
		if life.out, err = table.Create[trace.Iteration](life.Dir, table.Iterations, c.format); err != nil {
			return err
		}
		c.lives = append(c.lives, life)
	}
	c.open[key] = append(slices.DeleteFunc(c.open[key], func(l *Life) bool { return l == life }), life)
	c.seen[key]++
	life.at = c.seen[key]
	if late := life.last.StampNs.V - row.StampNs.V; life.Rows > 0 && row.StampNs.OK && life.last.StampNs.OK && late > row.StampStepNs.V+1e9 {
		if life.Backwards == 0 {
			life.FirstBack = source.Place{File: row.File, Line: row.Line}
		}
		life.Backwards++
	}
	if gap := row.Index - life.last.Index - 1; life.Rows > 0 && gap > 0 {
		if life.Missing == 0 {
			life.FirstGap = source.Place{File: row.File, Line: row.Line}
		}
		life.Missing += gap
	}
	if life.Rows > 0 {
		if err := life.out.Append(life.last.Iteration); err != nil {
			return err
		}
	}
	life.last = *row
	life.Rows++
	c.acc.Keep(1)
	return nil
}

// end writes the last pass and closes the table.
func (l *Life) end() error { return errors.Join(l.out.Append(l.last.Iteration), l.out.Close()) }

// leastUs is less than any pass of a model takes.
const leastUs = 1

// stampSlackUs is how much longer than the time between two stamps a pass may seem: lines wait
// in buffers.
const stampSlackUs = 60e6

// farBack is how many iterations back a record without stamps must lie to be
// that of a restart.
const farBack = 64

// startsAgain tells a restart from a record that stands twice or late: the
// engine needs seconds to start, a copy has the stamp of the original.
func startsAgain(last, next *trace.Iteration) bool {
	if last.StampNs.OK && next.StampNs.OK && last.StampWall == next.StampWall {
		return next.StampNs.V >= last.StampNs.V+1e9
	}
	return next.Index == 0 || last.Index-next.Index >= farBack
}

// Close ends the tables. The lives come in order of engine, then time.
func (c *Lives) Close() ([]*Life, error) {
	slices.SortStableFunc(c.lives, func(a, b *Life) int {
		return cmp.Or(cmp.Compare(len(a.Engine), len(b.Engine)), cmp.Compare(a.Engine, b.Engine))
	})
	for _, l := range c.lives {
		if err := l.end(); err != nil {
			return nil, err
		}
	}
	return c.lives, nil
}

// Abort gives up the tables that are still being written.
func (c *Lives) Abort() {
	for _, l := range c.lives {
		l.out.Abort()
	}
}

// Empty reports that no iteration was read.
func (c *Lives) Empty() bool { return len(c.lives) == 0 }

// HitRate is the hit rate of an engine's prefix cache as its log states it: hits per queried
// token of its last 1000 requests.
type HitRate struct {
	Engine string
	Frac   float64
}
