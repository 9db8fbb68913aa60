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
	events *source.Spool
	open   map[kvKey]*kvCopy
	copies map[int64]*kvCopy // by sequence number of the first copy
	n      int64
	buf    source.Rows
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
	k := &Collector{names: names, acc: acc, open: map[kvKey]*kvCopy{}, copies: map[int64]*kvCopy{}}
	k.events = mem.Spool()
	return k
}

func (k *Collector) Add(p *source.Parsed[*Events]) error {
	a := k.acc
	name := k.names[p.Batch.File].Name
	p.Account(a, name)
	for _, bad := range p.Records.bad {
		a.Read++
		a.Drop(source.CodeBadRecord, 1, source.Place{File: name, Line: bad.line}, "KV event %s", bad.what)
	}
	for i := range p.Records.kv {
		k.names[p.Batch.File].Gave++
		if err := k.event(&p.Records.kv[i], name); err != nil {
			return err
		}
	}
	return a.Err
}

func (k *Collector) event(ev *trace.KVEvent, name string) error {
	k.acc.Read++
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
	k.buf.Data, k.buf.Keys, k.buf.Ends = k.buf.Data[:0], k.buf.Keys[:0], k.buf.Ends[:0]
	k.buf.Add(k.n, eventCodec.Append(k.buf.Data, ev))
	k.n++
	return k.events.Add(&k.buf)
}

// Write streams the events that mine accepts into their table.
func (k *Collector) Write(w *table.Writer[trace.KVEvent], mine func(*trace.KVEvent) bool) error {
	rd, err := k.events.Read()
	if err != nil {
		return err
	}
	str := source.NewInterner()
	for {
		seq, ok := rd.Peek()
		if !ok {
			return nil
		}
		var ev trace.KVEvent
		if err := rd.Next(func(_ int64, row []byte) error { return eventCodec.Decode(row, &ev, str.Get) }); err != nil {
			return err
		}
		if c := k.copies[seq]; c != nil {
			ev.Copies = c.n
			if ev.Success.OK {
				ev.Success.V = c.success
			}
		}
		if !mine(&ev) {
			continue
		}
		if err := w.Append(ev); err != nil {
			return err
		}
	}
}
