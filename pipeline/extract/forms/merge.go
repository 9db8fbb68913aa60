package forms

import (
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Collector merges the copies of TP workers and keeps the events in order.
type Collector struct {
	names  []source.Input
	acc    *source.Account
	events *source.Sorter[trace.KVEvent]
	open   map[kvKey]*kvCopy
	copies map[int64]*kvCopy // by sequence number of the first copy
	n      int64
}

// kvKey is what the copies of one transfer share (spec#wire-kv-copies).
type kvKey struct {
	kind, request, src, dst string
	id, blocks, step        int64
}

type kvCopy struct {
	n       int64
	success bool
}

func NewCollector(names []source.Input, acc *source.Account, mem *source.Memory) *Collector {
	return &Collector{names: names, acc: acc, events: source.NewSorter[trace.KVEvent](mem), open: map[kvKey]*kvCopy{},
		copies: map[int64]*kvCopy{}}
}

func (k *Collector) Add(p *source.Parsed[*kvEvents]) error {
	a := k.acc
	name := k.names[p.Batch.File].Name
	p.Account(a, name)
	for _, bad := range p.Records.Bad {
		a.Read++
		a.Drop(source.CodeBadRecord, 1, source.Place{File: name, Line: bad.Line}, "KV event %s", bad.What)
	}
	for i := range p.Records.Rows {
		k.names[p.Batch.File].Gave++
		if err := k.event(&p.Records.Rows[i], name); err != nil {
			return err
		}
	}
	return a.Err
}

// kvRanges are the limits of what KV events say (spec#value-limits).
var kvRanges = trace.RangesOf[trace.KVEvent]()

func (k *Collector) event(ev *trace.KVEvent, name string) error {
	k.acc.Read++
	if why := kvRanges.Check(ev); why != "" {
		k.acc.Drop(source.CodeBadRecord, 1, source.Place{File: name, Line: ev.Line}, "%s: %s", ev.Kind, why)
		return nil
	}
	if ev.Kind == "TransferInitiated" || ev.Kind == "TransferCompleted" {
		key := kvKey{ev.Kind, ev.RequestID.V, ev.SrcMedium.V, ev.DstMedium.V, ev.TransferID.V, ev.BlockCount.V, ev.Step.V}
		if c, ok := k.open[key]; ok {
			c.n++
			c.success = c.success && ev.Success.V
			k.acc.Drop(source.CodeDuplicate, 1, source.Place{File: name, Line: ev.Line}, "%s of transfer %d", ev.Kind, ev.TransferID.V)
			return nil
		}
		c := &kvCopy{1, ev.Success.V}
		k.open[key] = c
		k.copies[k.n] = c
	}
	k.acc.Keep(1)
	k.n++
	return k.events.Put(k.n-1, ev)
}

// Write streams the events that mine accepts into their table.
func (k *Collector) Write(w *table.Writer[trace.KVEvent], mine func(*trace.KVEvent) bool) error {
	return k.events.Rows(func(seq int64, ev *trace.KVEvent) error {
		if c := k.copies[seq]; c != nil {
			ev.Copies = c.n
			if ev.Success.OK {
				ev.Success.V = c.success
			}
		}
		if !mine(ev) {
			return nil
		}
		return w.Append(*ev)
	})
}
