package enginelog

// This file writes passes as tables while they are read, one table for each life of each engine.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Scopes under which extract.json counts what was read.
const (
	scopeLog = "vllm.log" // lines of a log, of other engines too
	scopeFPM = FPMSchema  // forward-pass metrics (FPM): a record of each pass, as Dynamo's trace has them
)

// Events of scopeLog.
const (
	eventPass  = "iterations"
	eventOther = "other lines" // those without a pass: no record, statistics, or a copy that another rank wrote
	eventRates = "statistics beyond the limit"
)

// Lives writes passes as tables while they are read: one table for each life of each engine core,
// rank or producer (spec#wire-lives). A life ends when the index of passes starts again, because
// then the engine has restarted.
type Lives struct {
	Statistics []Statistics
	Drafts     DraftCounts // of all engines, as the logs count them
	Beyond     Limits      // passes that run.yaml rules out
	Encoders   int64       // passes that also ran a multimodal encoder

	acc    *source.Account
	stage  string // folder of the tables
	format table.Format

	names  []source.Input     // of the files that are being read
	open   map[string][]*Life // by form and engine: lives that a pass may continue, the last written to at the end
	passes map[string]int64   // number of passes so far, by form and engine
	lives  []*Life            // all of them, in the order in which they began until Close sorts them
	joins  int                // tables that join has begun
}

// Statistics are what an engine's log states every ten seconds.
type Statistics struct {
	Engine      string
	HitFrac     float64          // hits of the prefix cache per queried token of the engine's last 1000 requests
	PromptRate  float64          // tokens/s since the line before
	OutputRate  float64          // tokens/s
	Waiting     int64            // requests
	KVUsage     float64          // share of the KV cache in use
	StampNs     trace.Opt[int64] // as that of a pass
	StampStepNs int64            // its resolution
	StampWall   bool             // it counts from 1970 UTC; else local time from the start of the year
}

// Life is one uninterrupted count of passes of one engine: from one start of it to its end.
type Life struct {
	Engine string // engine core, rank or producer
	Rows   int64  // passes
	Dir    string // of its table

	Missing  int64        // passes that are not in the log, between the first and the last
	FirstGap source.Place // of the pass behind the first of them

	Stamped   int64        // passes with a stamp
	Backwards int64        // passes stamped more than a second before the one before
	FirstBack source.Place // the first of them

	key    string          // its form and engine
	first  trace.Iteration // its first pass
	begin  source.Place    // of the first pass
	gaps   []indexRange    // of at least leastRestart passes, the first mostGaps
	isLate bool            // its first pass was written before passes of the process that had been read

	last     passRecord // not yet written: the next may complete it (completePass)
	out      *table.Writer[trace.Iteration]
	process  string       // that wrote its first line (passRecord.Process)
	lastPass int64        // value of Lives.passes at its last pass
	held     []passRecord // of one other rank since the life's last pass: copies, or passes of a restarted engine (hold)
}

// NewLives returns a collector of lives (the passes of one engine run each) that writes tables
// below the folder stage.
func NewLives(acc *source.Account, stage string, format table.Format) *Lives {
	return &Lives{
		acc:    acc,
		stage:  stage,
		format: format,
		open:   map[string][]*Life{},
		passes: map[string]int64{},
	}
}

// Logs reads the lines of servers' logs.
func (c *Lives) Logs(ctx context.Context, in []source.Input, how source.Options) error {
	c.names = in
	how.AnyText = true
	return source.Stream(ctx, in, how, newLogDecoder, c.addBatch)
}

// Passes reads traces of forward passes.
func (c *Lives) Passes(ctx context.Context, in []source.Input, how source.Options) error {
	for len(in) > 0 { // files of one form that follow each other are read by all workers at once
		format := passTraceOf(&in[0], how)
		n := 1
		for n < len(in) && passTraceOf(&in[n], how) == format {
			n++
		}
		c.names = in[:n]
		if err := source.Stream(ctx, c.names, how, format.Read, c.addBatch); err != nil {
			return err
		}
		in = in[n:]
	}
	return nil
}

// addBatch adds the passes of one batch of lines. Torn lines count as dropped records; lines with
// statistics, and copies that other ranks wrote, are no records, but show that the file is an engine's log (Input.Gave).
func (c *Lives) addBatch(p *source.Parsed[*passLines]) error {
	in := &c.names[p.Batch.File]
	p.Account(c.acc, in.Name)
	if p.Records.Other > 0 {
		c.acc.Scope(scopeLog, eventOther, p.Records.Other)
	}
	for _, b := range p.Records.Bad {
		c.acc.Read++
		at := source.Place{File: in.Name, Line: b.Line}
		c.acc.Drop(source.CodeUnreadable, 1, at, "got a torn iteration: %s", b.What)
	}
	for i := range p.Records.Rows {
		r := &p.Records.Rows[i]
		r.File = in.Name
		in.Gave++
		switch {
		case r.Drafts.Drafted > 0:
			c.acc.Scope(scopeLog, eventOther, 1)
			c.Drafts.Drafted += r.Drafts.Drafted
			c.Drafts.Accepted += r.Drafts.Accepted
			continue
		case r.HitRate.OK:
			c.acc.Scope(scopeLog, eventOther, 1)
			if len(c.Statistics) < mostStatistics {
				c.Statistics = append(c.Statistics, Statistics{
					Engine: r.Engine, HitFrac: r.HitRate.V, PromptRate: r.PromptRate, OutputRate: r.OutputRate, Waiting: r.QueuedContext.V, KVUsage: r.KVUsage.V,
					StampNs: r.StampNs, StampStepNs: r.StampStepNs.V, StampWall: r.StampWall,
				})
			} else {
				c.acc.Scope(scopeLog, eventRates, 1)
			}
			continue
		}
		key := r.Form + " " + r.Engine
		life := c.findLife(key, r)
		var err error
		if life != nil && r.Form == trace.IterationSGLang && r.Process != life.process {
			err = c.hold(key, life, r)
		} else {
			err = c.countPass(key, life, r)
		}
		if err != nil {
			return err
		}
	}
	return c.acc.Err // the first error of writing a dropped record (--why-rejected), which Drop keeps
}

// countPass counts a pass as read and adds it to its life (addPass).
func (c *Lives) countPass(key string, life *Life, r *passRecord) error {
	if life != nil {
		c.dropHeld(life)
	}
	scope := scopeLog
	if r.Form == trace.IterationFPM {
		scope = scopeFPM
	}
	c.acc.Scope(scope, eventPass, 1)
	c.acc.Read++
	return c.addPass(key, life, r)
}

// hold takes a line of SGLang that another tensor-parallel rank wrote than the one whose lines make the life. Any
// rank may write first; all log the same passes, so the others' lines are copies. An engine that restarted may log
// under another rank, however: with fewer ranks the life's own may not exist any more. A rank that writes
// leastRestart passes after the life's last one, while the life's rank writes none, is of a restarted engine: its
// passes begin a new life.
func (c *Lives) hold(key string, life *Life, r *passRecord) error {
	last := &life.last.Iteration
	haveStamps := r.StampNs.OK && last.StampNs.OK && r.StampWall == last.StampWall
	isLater := haveStamps && r.StampNs.V-last.StampNs.V > r.StampStepNs.V+1e9 // ranks do not write at exactly the same time
	if !isLater || len(life.held) > 0 && life.held[0].Process != r.Process {
		c.acc.Scope(scopeLog, eventOther, 1)
		return nil
	}
	life.held = append(life.held, *r)
	if len(life.held) < leastRestart {
		return nil
	}
	passes := life.held
	life.held = nil
	var restarted *Life // nil until one of the passes was possible
	for i := range passes {
		if err := c.countPass(key, restarted, &passes[i]); err != nil {
			return err
		}
		if newest := c.open[key][len(c.open[key])-1]; newest != life {
			restarted = newest
		}
	}
	return nil
}

// dropHeld counts the lines that the life holds as copies.
func (c *Lives) dropHeld(life *Life) {
	if n := len(life.held); n > 0 {
		c.acc.Scope(scopeLog, eventOther, int64(n))
		life.held = nil
	}
}

// findLife returns the life of an engine that a pass continues; nil if there is none. If several
// servers write to one file, it prefers the life whose last index is one below that of the pass,
// then a life of the same process, then the life last written to. A life to which none of the
// engine's latest leastRestart passes belongs is no candidate, unless it is the last written to.
func (c *Lives) findLife(key string, r *passRecord) *Life {
	score := func(l *Life) int {
		points := 0
		if r.Index == l.last.Index+1 { // counts for more than the process
			points += 2
		}
		if r.Process == l.process {
			points++
		}
		return points
	}
	var best *Life
	for i, l := range c.open[key] {
		isLast := i == len(c.open[key])-1
		isCurrent := c.passes[key]-l.lastPass < leastRestart
		if (isLast || isCurrent) && (best == nil || score(l) >= score(best)) { // of equal ones the later
			best = l
		}
	}
	return best
}

// iterationRanges are the limits of what logs and forward-pass traces state (spec#value-limits).
var iterationRanges = trace.RangesOf[trace.Iteration]()

const (
	leastPassUs  = 1    // any pass of a model takes longer
	stampSlackUs = 60e6 // by which a pass may seem longer than the time between two stamps: lines wait in buffers

	// leastRestart is how many passes back the index of a record without a stamp must lie to be
	// that of an engine that started again, and how many passes another rank must write alone (hold).
	leastRestart = 64
)

// Limits of what a log makes this program keep in memory.
const (
	mostLives      = 1024    // each has an open table
	mostStatistics = 1 << 18 // a server logs one in ten seconds, so of a month
)

// addPass adds a pass to life (the result of findLife for key), or to a new life if that is nil or if the
// pass does not continue it. A pass that repeats an earlier one, or is impossible, is dropped.
func (c *Lives) addPass(key string, life *Life, r *passRecord) error {
	if r.Index == unnumbered { // the engine does not number its passes, so the lines are counted
		r.Index = 0
		if life != nil {
			r.Index = life.last.Index + 1
		}
	}
	at := source.Place{File: r.File, Line: r.Line}
	if why := checkPass(life, r); why != "" {
		c.acc.Drop(source.CodeBadRecord, 1, at, "iteration %d: %s", r.Index, why)
		return nil
	}
	if r.Form == trace.IterationLog {
		c.Beyond.See(r.ContextReqs+r.GenerationReqs, r.ContextTokens+r.GenerationTokens)
	}
	if life != nil {
		isOtherProcess := r.Process != "" && life.process != "" && r.Process != life.process
		switch { // another process, or an index that starts again, begins a new life
		case isOtherProcess && r.Index != life.last.Index+1:
			life = nil
		case r.Index > life.last.Index: // the next pass, or a later one if passes are missing
		case isRestart(&life.last.Iteration, &r.Iteration):
			life = nil
		case c.isLatePart(key, &life.last, r):
			life = nil
		default: // the same pass once more, or one that came late
			c.acc.Drop(source.CodeDuplicate, 1, at, "iteration %d of engine %s after %d", r.Index, r.Engine,
				life.last.Index)
			return nil
		}
	}
	switch {
	case life != nil:
		completePass(&life.last, r)
	case len(c.lives) >= mostLives:
		c.acc.Drop(source.CodeBadRecord, 1, at, "iteration %d of engine %s: got more than %d engines and restarts in one run",
			r.Index, r.Engine, mostLives)
		return nil
	default:
		var err error
		if life, err = c.newLife(key, r, at); err != nil {
			return err
		}
	}
	// The life moves to the end of the list, as the last written to.
	c.open[key] = append(slices.DeleteFunc(c.open[key], func(l *Life) bool { return l == life }), life)
	c.passes[key]++
	life.lastPass = c.passes[key]
	if err := life.append(r, at); err != nil {
		return err
	}
	c.acc.Keep(1)
	if r.EncoderInputs.V > 0 || r.EncoderOutputs.V > 0 {
		c.Encoders++
	}
	if r.StampNs.OK {
		life.Stamped++
	}
	return nil
}

// checkPass returns a description of what is impossible about a pass; "" if nothing is: its values, its
// time, and, after another pass of its life (nil: there is none), a time longer than that between the
// stamps of both.
func checkPass(life *Life, r *passRecord) string {
	if why := iterationRanges.Check(&r.Iteration); why != "" {
		return why
	}
	hasTokens := r.ContextTokens+r.GenerationTokens > 0 && !r.Dummy
	if r.Form == trace.IterationLog && hasTokens && r.ElapsedUs < leastPassUs {
		return fmt.Sprintf("elapsed: got %.3g us, want at least %d for a pass with tokens", r.ElapsedUs, leastPassUs)
	}
	if life == nil || !r.StampNs.OK || !life.last.StampNs.OK || r.StampWall != life.last.StampWall {
		return ""
	}
	sinceUs := float64(r.StampNs.V-life.last.StampNs.V)/1000 + stampSlackUs
	if r.ElapsedUs > max(sinceUs, stampSlackUs) { // stamps may run backwards
		return fmt.Sprintf("elapsed: got %.6g s, want at most %.6g s, which is a minute more than since the one before",
			r.ElapsedUs/1e6, sinceUs/1e6)
	}
	return ""
}

// isRestart reports whether a pass whose index does not follow that of the last pass is the first
// pass of a restarted engine, as opposed to a repeated or late record. A restart takes seconds, and
// a copy has the stamp of the original. Without stamps the index decides: a restarted engine counts from
// 0, and a late record is not far behind.
func isRestart(last, next *trace.Iteration) bool {
	if last.StampNs.OK && next.StampNs.OK && last.StampWall == next.StampWall {
		return next.StampNs.V >= last.StampNs.V+1e9
	}
	return next.Index == 0 || last.Index-next.Index >= leastRestart
}

// newLife opens the table of a life that begins with the pass r at a place, and returns the life.
func (c *Lives) newLife(key string, r *passRecord, at source.Place) (*Life, error) {
	life := &Life{
		Engine:  r.Engine,
		Dir:     filepath.Join(c.stage, "iterations."+strconv.Itoa(len(c.lives))),
		process: r.Process,
		key:     key,
		first:   r.Iteration,
		begin:   at,
		isLate: slices.ContainsFunc(c.open[key], func(l *Life) bool {
			return l.process == r.Process && isEarlier(&r.Iteration, &l.last.Iteration)
		}),
	}
	var err error
	life.out, err = table.Create[trace.Iteration](life.Dir, table.Iterations, c.format)
	if err != nil {
		return nil, err
	}
	c.lives = append(c.lives, life)
	return life, nil
}

// append writes the pass before and stores this one (at a place) as the last, because the next record may
// complete it. It counts stamps that run backwards and passes that are missing.
func (l *Life) append(r *passRecord, at source.Place) error {
	if l.Rows > 0 {
		if isEarlier(&r.Iteration, &l.last.Iteration) {
			if l.Backwards == 0 {
				l.FirstBack = at
			}
			l.Backwards++
		}
		if gap := r.Index - l.last.Index - 1; gap > 0 {
			if l.Missing == 0 {
				l.FirstGap = at
			}
			l.Missing += gap
			if gap >= leastRestart && len(l.gaps) < mostGaps {
				l.gaps = append(l.gaps, indexRange{l.last.Index, r.Index})
			}
		}
		if err := l.out.Append(l.last.Iteration); err != nil {
			return err
		}
	}
	l.last = *r
	l.Rows++
	return nil
}

// Close writes the last passes, closes the tables and returns the lives, in the order of engine,
// then time.
func (c *Lives) Close() ([]*Life, error) {
	stat.SortStable(c.lives, compareEngines)
	for _, l := range c.lives {
		c.dropHeld(l)
		if err := errors.Join(l.out.Append(l.last.Iteration), l.out.Close()); err != nil {
			return nil, err
		}
	}
	if err := c.joinParts(); err != nil {
		return nil, err
	}
	return c.lives, nil
}

// compareEngines compares the names of the lives' engines, by length first, so that engine 10 comes after engine 9.
func compareEngines(a, b *Life) int {
	return cmp.Or(cmp.Compare(len(a.Engine), len(b.Engine)), cmp.Compare(a.Engine, b.Engine))
}

// Abort discards the tables that are being written.
func (c *Lives) Abort() {
	for _, l := range c.lives {
		l.out.Abort()
	}
}

// Empty reports that no pass was read.
func (c *Lives) Empty() bool { return len(c.lives) == 0 }
