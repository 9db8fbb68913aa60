package tables

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/pipeline/extract/account"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/pipeline/extract/spool"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// spanKey identifies a span (OTLP: trace id and span id together).
type spanKey struct {
	trace [16]byte
	span  [8]byte
}

// Collector gathers the spans of one run folder in input order.
type Collector struct {
	names    []source.Input
	acc      *account.Account
	mem      *spool.Memory
	stage    string // folder of the tables while they are written
	format   table.Format
	seen     map[spanKey]uint64
	cores    []*core
	byID     map[string]int32
	apis     []*api
	engines  []*engine
	order    int64
	noIDs    int64 // spans without a span id
	pack     packing
	journeys *spool.Spool // journey events by core
	offsets  offsetSample
	observed []trace.ObservedRequest
}

func New(names []source.Input, acc *account.Account, mem *spool.Memory, format table.Format) *Collector {
	return &Collector{names: names, acc: acc, mem: mem, stage: mem.Dir, format: format, seen: map[spanKey]uint64{}, byID: map[string]int32{},
		pack: newPacking(mem), journeys: mem.Spool()}
}

// dir is where the tables of the n-th engine found are written.
func (c *Collector) dir(n int) string { return filepath.Join(c.stage, strconv.Itoa(n)) }

// Runs is how many engine runs there are.
func (c *Collector) Runs() int { return max(1, len(c.engines)) }

// Clock is the offset wall - monotonic of the requests' events, ns.
func (c *Collector) Clock() (median, spread int64, ok bool) { return c.offsets.stats() }

// Close gives up what is still being written.
func (c *Collector) Close() {
	for _, e := range c.engines {
		e.tables.abort()
	}
	c.mem.Close()
}

func (c *Collector) at(s *otlp.Span) account.Place {
	return account.Place{File: c.names[s.File].Name, Line: s.Line}
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

// core is one engine request as collected.
type core struct {
	id        string
	key       spanKey
	parent    [8]byte
	hasParent bool
	link      linkWay
	file      int32
	engine    int32
	apiIndex  int32 // -1 for none
	resource  uint64
	order     int64 // position of the span in the input
	line      int64
	lastNs    int64 // last event, monotonic
	schedNs   int64 // first SCHEDULED
	schedStep int64
	lastStep  int64  // step of the last event
	row       int64  // where its packed row stands, see packing.events
	snap      *owner // what snapshots say, nil for nothing
}

// api is one llm_request span of the API process, or a stock span.
type api struct {
	key     spanKey
	id      string
	order   int64
	line    int64
	kept    int64
	file    int32
	engine  int32
	hasID   bool
	linked  bool
	isStock bool
	row     int64 // where its packed trace.Request stands
}

// linkWay is how a core span found its API span.
type linkWay uint8

const (
	linkNone linkWay = iota
	linkParent
	linkPrefix
)

func (w linkWay) String() string { return [...]string{"none", "parent", "prefix"}[w] }

// packing holds the codecs of what waits, and where it waits.
type packing struct {
	rows   *table.Codec[trace.Request]
	events *table.Codec[trace.JourneyEvent]
	cores  *spool.Shelf // of core spans: hashes of a request's journey events, then its row
	apis   *spool.Shelf // of API spans: its row
	hashes []uint64     // of the journey events of the core span at hand, to find repeated ones
	buf    []byte
	spool  spool.Rows
}

func newPacking(mem *spool.Memory) packing {
	return packing{rows: table.NewCodec[trace.Request](), events: table.NewCodec[trace.JourneyEvent](), cores: mem.Shelf(), apis: mem.Shelf()}
}

// putCore keeps a core span's row and the hashes at hand.
func (p *packing) putCore(r *trace.Request) (at int64, err error) {
	p.buf = binary.AppendUvarint(p.buf[:0], uint64(len(p.hashes)))
	for _, h := range p.hashes {
		p.buf = binary.LittleEndian.AppendUint64(p.buf, h)
	}
	p.buf = p.rows.Append(p.buf, r)
	return p.cores.Put(p.buf)
}

// getCore reads a core span's row into a zero one, and its hashes.
func (p *packing) getCore(at int64, r *trace.Request, str *spool.Interner) error {
	row, err := p.cores.Get(at)
	if err != nil {
		return err
	}
	n, k := binary.Uvarint(row)
	p.hashes = p.hashes[:0]
	for row = row[k:]; n > 0; n, row = n-1, row[8:] {
		p.hashes = append(p.hashes, binary.LittleEndian.Uint64(row))
	}
	return p.rows.Decode(row, r, str.Get)
}

// getAPI reads an API span's row into a zero one.
func (p *packing) getAPI(at int64, r *trace.Request, str *spool.Interner) error {
	row, err := p.apis.Get(at)
	if err != nil {
		return err
	}
	return p.rows.Decode(row, r, str.Get)
}

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
