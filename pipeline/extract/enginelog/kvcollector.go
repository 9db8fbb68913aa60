package enginelog

import (
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// This file collects the KV events of a run until they can be divided among engine runs.

// KVCollector keeps the KV events of a run in their order, sorted in bounded memory, and joins the
// copies that tensor-parallel workers write of one transfer (spec#wire-kv-copies).
type KVCollector struct {
	names  []source.Input
	acc    *source.Account
	events *source.Sorter[trace.KVEvent] // by their number, which is their order
	kept   int64                         // number of events so far, without copies
	open   map[kvTransfer]*kvCopies      // transfers so far
	copies map[int64]*kvCopies           // the same, by the number of the event that was kept
}

// kvTransfer is the values that the copies of one transfer share. They do not share success.
type kvTransfer struct {
	kind, request, src, dst string
	id, blocks, step        int64
}

// kvCopies are the copies of one transfer.
type kvCopies struct {
	n         int64 // number of them
	isSuccess bool  // all of them succeeded
}

// NewKVCollector returns a collector for the events of files with these names.
func NewKVCollector(names []source.Input, acc *source.Account, mem *source.Memory) *KVCollector {
	return &KVCollector{
		names:  names,
		acc:    acc,
		events: source.NewSorter[trace.KVEvent](mem),
		open:   map[kvTransfer]*kvCopies{},
		copies: map[int64]*kvCopies{},
	}
}

// Add adds the events of one batch of lines.
func (k *KVCollector) Add(p *source.Parsed[*kvEvents]) error {
	in := &k.names[p.Batch.File]
	p.Account(k.acc, in.Name)
	for _, bad := range p.Records.Bad {
		k.acc.Read++
		at := source.Place{File: in.Name, Line: bad.Line}
		k.acc.Drop(source.CodeBadRecord, 1, at, "KV event %s", bad.What)
	}
	for i := range p.Records.Rows {
		in.Gave++
		if err := k.addEvent(&p.Records.Rows[i], in.Name); err != nil {
			return err
		}
	}
	return k.acc.Err
}

// kvRanges are the limits of what KV events state (spec#value-limits).
var kvRanges = trace.RangesOf[trace.KVEvent]()

// addEvent keeps one event, or drops it if it is invalid or a copy.
func (k *KVCollector) addEvent(ev *trace.KVEvent, file string) error {
	k.acc.Read++
	at := source.Place{File: file, Line: ev.Line}
	if why := kvRanges.Check(ev); why != "" {
		k.acc.Drop(source.CodeBadRecord, 1, at, "%s: %s", ev.Kind, why)
		return nil
	}
	if ev.Kind == kindTransferInitiated || ev.Kind == kindTransferCompleted {
		transfer := kvTransfer{
			kind:    ev.Kind,
			request: ev.RequestID.V,
			src:     ev.SrcMedium.V,
			dst:     ev.DstMedium.V,
			id:      ev.TransferID.V,
			blocks:  ev.BlockCount.V,
			step:    ev.Step.V,
		}
		if c, ok := k.open[transfer]; ok {
			c.n++
			c.isSuccess = c.isSuccess && ev.Success.V
			k.acc.Drop(source.CodeDuplicate, 1, at, "%s of transfer %d", ev.Kind, ev.TransferID.V)
			return nil
		}
		c := &kvCopies{n: 1, isSuccess: ev.Success.V}
		k.open[transfer] = c
		k.copies[k.kept] = c
	}
	k.acc.Keep(1)
	number := k.kept
	k.kept++
	return k.events.Put(number, ev)
}

// Write writes the events that mine accepts, those of one engine run, into their table. Transfers have the
// number of their copies, and succeeded if all copies did, which is known only after the last event.
func (k *KVCollector) Write(w *table.Writer[trace.KVEvent], mine func(*trace.KVEvent) bool) error {
	return k.events.Rows(func(number int64, ev *trace.KVEvent) error {
		if c := k.copies[number]; c != nil {
			ev.Copies = c.n
			if ev.Success.OK {
				ev.Success.V = c.isSuccess
			}
		}
		if !mine(ev) {
			return nil
		}
		return w.Append(*ev)
	})
}
