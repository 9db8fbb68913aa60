package extract

import (
	"path/filepath"
	"strconv"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// spanKey identifies a span (OTLP: trace id and span id together).
type spanKey struct {
	Trace [16]byte
	Span  [8]byte
}

// collector gathers the spans of one run folder in input order.
type collector struct {
	names    []source.Input
	acc      *source.Account
	mem      *source.Memory
	stage    string // folder of the tables while they are written
	format   table.Format
	seen     spanSet
	cores    []core           // in the order of their first span
	byID     map[digest]int32 // cores by id; the last of equal ones
	ids      texts            // of cores
	apis     []api
	engines  []*engine
	order    int64
	noIDs    int64 // spans without a span id
	pack     packing
	journeys *source.Spool // journey events by core
	offsets  source.Sample // wall - monotonic, of journey events
	clocks   map[clockKey]*source.Stamps
	wall     source.Stamps // of spans and their events
	stepIDs  source.Stamps // as journeys say them
	observed []trace.ObservedRequest

	stated deploy.Engine // as run.yaml says
}

// dir is where the tables of the n-th engine found are written.
func (c *collector) dir(n int) string { return filepath.Join(c.stage, strconv.Itoa(n)) }

// Runs is how many engine runs there are.
func (c *collector) Runs() int { return max(1, len(c.engines)) }

// Clock is the offset wall - monotonic of the requests' events, ns.
func (c *collector) Clock() (median, spread int64, ok bool) { return c.offsets.Spread() }

// Close gives up what is still being written.
func (c *collector) Close() {
	for _, e := range c.engines {
		e.tables.abort()
	}
	c.mem.Close()
}

func (c *collector) at(s *tracedSpan) source.Place {
	return source.Place{File: c.names[s.File].Name, Line: s.Line}
}

// core is one engine request as collected: what every one of them holds in memory. The rest
// waits as a coreRow.
type core struct {
	id     text
	row    int64 // where its coreRow stands
	snap   int64 // where the sighting of its snapshots stands; -1 for none
	snapBy int32 // the engine of the sighting
	engine int32
	api    int32 // -1 for none
	link   linkWay
}

// api is one llm_request span of the API process, or a stock span; the rest waits as an apiRow.
type api struct {
	row      int64
	engine   int32
	isLinked bool
	isStock  bool
}

// linkWay is how a core span found its API span.
type linkWay uint8

const (
	linkNone linkWay = iota
	linkParent
	linkPrefix
)

func (w linkWay) String() string { return [...]string{"none", "parent", "prefix"}[w] }

// engine is one life of one engine: an uninterrupted sequence of step ids.
type engine struct {
	resource  uint64
	stretches []stretch // its spans, by step id
	lastFirst int64     // first step of its last span
	lastOrder int64     // position of the step span that came last in the input
	order     int64     // position of the one that came first
	begin     int64     // where the run begins in the input
	minNs     int64
	maxNs     int64
	tables    *stepTables
	spans     int64
}
