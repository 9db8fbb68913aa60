package extract

import (
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/trace/table"
)

// spanKey identifies a span (OTLP: trace id and span id together).
type spanKey struct {
	trace [16]byte
	span  [8]byte
}

// collector gathers the spans of one run folder in input order.
type collector struct {
	names    []input
	acc      *account
	mem      *memory
	stage    string // folder of the tables while they are written
	format   table.Format
	seen     map[spanKey]uint64
	cores    []*core
	byID     map[string]int32
	apis     []*api
	engines  []*engine
	order    int64
	pack     packing
	journeys *spool // journey events by core
	offsets  offsetSample
	maxWall  int64
}

func newCollector(names []input, acc *account, mem *memory, format table.Format) *collector {
	return &collector{names: names, acc: acc, mem: mem, stage: mem.dir, format: format, seen: map[spanKey]uint64{}, byID: map[string]int32{}, pack: newPacking(), journeys: mem.spool()}
}

// engineDir is where the tables of the n-th engine found are written.
func (c *collector) engineDir(n int) string { return filepath.Join(c.stage, strconv.Itoa(n)) }

// tablesDir is where the tables of an engine, as partition numbers them, stand.
func (c *collector) tablesDir(engine int) string {
	if len(c.engines) == 0 {
		return c.engineDir(0)
	}
	return c.engines[engine].tables.dir
}

// finishSteps completes the tables of steps and snapshots.
func (c *collector) finishSteps() error {
	for _, e := range c.engines {
		if err := e.tables.close(); err != nil {
			return err
		}
	}
	c.snapped()
	return nil
}

// snapped tells requests what their snapshots say.
func (c *collector) snapped() {
	for at, k := range c.cores {
		if c.byID[k.id] != int32(at) {
			continue
		}
		for _, e := range c.engines {
			if o := e.tables.owners[k.id]; o != nil && o.isSeen {
				k.snap = o
				break
			}
		}
	}
}

// close gives up what is still being written.
func (c *collector) close() {
	for _, e := range c.engines {
		e.tables.abort()
	}
	c.mem.close()
}

func (c *collector) at(s *span) place { return place{file: c.names[s.file].name, line: s.line} }

// add takes the result of one batch.
func (c *collector) add(p *parsed) error {
	c.acc.take(p, c.names[p.batch.file].name)
	for _, s := range p.msg.spans {
		if err := c.span(s); err != nil {
			return err
		}
	}
	return c.acc.err
}

// span takes one span.
func (c *collector) span(s *span) error {
	c.order++
	a := c.acc
	a.seen(s)
	if s.class == classForeign {
		a.drop(CodeForeignScope, 1+s.events(), c.at(s), "span %q of scope %q", s.name, s.scope)
		return nil
	}
	if s.farTime {
		a.drop(CodeBadAttribute, 1+s.events(), c.at(s), "%s: a time of more than 63 bits", s.name)
		return nil
	}
	key := spanKey{s.traceID, s.spanID}
	if first, dup := c.seen[key]; dup {
		code := CodeDuplicate
		if first != s.hash {
			code = CodeConflict
		}
		a.duplicates++
		a.drop(code, 1+s.events(), c.at(s), "span %x of trace %x (%s)", s.spanID, s.traceID, s.name)
		return nil
	}
	c.seen[key] = s.hash
	a.lostEvents += s.droppedEvents
	for _, n := range s.others {
		a.drop(CodeUnknownEvent, 1, c.at(s), "event %q in %s", n, s.name)
	}
	for _, f := range s.faults {
		a.drop(f.code, 1, c.at(s), "%s", f.msg)
	}
	c.maxWall = max(c.maxWall, s.endNs)
	switch s.class {
	case classCore:
		return c.core(s, key)
	case classStep:
		return c.steps(s)
	}
	c.api(s, key)
	return nil
}

// offsetSample estimates wall - monotonic from journey events: at most 4096 of
// them, evenly thinned as more arrive.
type offsetSample struct {
	vals  []int64
	n     int64
	every int64
}

func (o *offsetSample) add(v int64) {
	if o.every == 0 {
		o.every = 1
	}
	if o.n%o.every == 0 {
		if len(o.vals) == 4096 {
			for i := range 2048 {
				o.vals[i] = o.vals[2*i]
			}
			o.vals = o.vals[:2048]
			o.every *= 2
		}
		if o.n%o.every == 0 {
			o.vals = append(o.vals, v)
		}
	}
	o.n++
}

// median and spread (90th - 10th percentile) of a sample; ok is false when it is empty.
func (o *offsetSample) stats() (median, spread int64, ok bool) {
	if len(o.vals) == 0 {
		return 0, 0, false
	}
	v := slices.Clone(o.vals)
	slices.Sort(v)
	at := func(p float64) int64 { return v[int(math.Round(p*float64(len(v)-1)))] }
	return at(0.5), at(0.9) - at(0.1), true
}
