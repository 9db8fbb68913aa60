package enginelog

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// kvDecoder reads lines of KV-cache events: positional arrays
// [ts, events, data_parallel_rank, scheduler_step], three elements in older
// dumps (spec#wire-kv-lines).
type kvDecoder struct {
	source.LineDecoder[trace.KVEvent]
	text *files.Interner
}

// NewKVDecoder reads lines of KV-cache events.
func NewKVDecoder() source.Decoder[*kvEvents] {
	return &kvDecoder{func(e *trace.KVEvent) *int64 { return &e.Line }, files.NewInterner()}
}

func (d *kvDecoder) Line(text []byte, out *kvEvents) *source.Error {
	r := kvReader{Cursor: source.Cursor{B: text}, Interner: d.text, out: out}
	r.Line()
	if r.Space(); r.Err == nil && r.I < len(r.B) {
		r.Unexpected("the end of the line")
	}
	return r.Err
}

// kvEvents are the KV events of one batch.
type kvEvents = source.Lines[trace.KVEvent]

type kvReader struct {
	source.Cursor
	*files.Interner
	out *kvEvents
}

func (r *kvReader) Line() {
	if !r.Take('[') {
		return
	}
	from := len(r.out.Rows)
	var ts float64
	var rank trace.Opt[int64]
	for i, first := 0, true; r.More(']', &first); i++ {
		switch i {
		case 0:
			ts, _ = r.Float()
		case 1:
			r.events()
		case 2:
			rank = r.optInt()
		default:
			r.Skip(0)
		}
	}
	for i := range r.out.Rows[from:] {
		r.out.Rows[from+i].WallS = ts
		r.out.Rows[from+i].DPRank = rank
	}
}

func (r *kvReader) events() {
	if r.Null() || !r.Take('[') {
		return
	}
	for first := true; r.More(']', &first); {
		r.Space()
		start := r.I
		ev, ok := r.kvEvent()
		if r.Err != nil {
			return
		}
		if !ok {
			r.out.Bad = append(r.out.Bad, source.BadLine{What: fmt.Sprintf("%.80q", r.B[start:r.I])})
			continue
		}
		r.out.Rows = append(r.out.Rows, ev)
	}
}

// kvArg is one positional field of a KV event.
type kvArg struct {
	kind byte // n null, i integer, s string, b bool, l list, f other number
	num  int64
	str  string
	list []string
}

// kvEvent reads [tag, field...]; ok is false when the fields do not fit the tag.
func (r *kvReader) kvEvent() (trace.KVEvent, bool) {
	var ev trace.KVEvent
	var args []kvArg
	if !r.Take('[') {
		return ev, false
	}
	for first := true; r.More(']', &first); {
		if len(args) == 3 && ev.Kind == "BlockStored" { // token ids
			args = append(args, kvArg{kind: 'l'})
			r.Skip(0)
			continue
		}
		if len(args) == 0 && ev.Kind == "" {
			r.Space()
			tag, ok := r.Str()
			if !ok {
				return ev, false
			}
			ev.Kind = r.Get(tag)
			args = append(args, kvArg{kind: 's'})
			continue
		}
		args = append(args, r.arg())
	}
	return ev, r.Err == nil && len(args) > 0 && fillKV(&ev, args[1:])
}

func (r *kvReader) arg() kvArg {
	switch ch := r.Peek(); {
	case ch == '"':
		v, _ := r.Str()
		return kvArg{kind: 's', str: r.Get(v)}
	case ch == 't' || ch == 'f':
		r.Skip(0)
		return kvArg{kind: 'b', num: map[byte]int64{'t': 1}[ch]}
	case ch == 'n':
		r.Skip(0)
		return kvArg{kind: 'n'}
	case ch == '[':
		if list, whole := r.hashes(); whole {
			return kvArg{kind: 'l', list: list}
		}
		return kvArg{kind: 'o'}
	case ch == '{':
		r.Skip(0)
		return kvArg{kind: 'o'}
	}
	raw, ok := r.Number()
	if !ok {
		return kvArg{}
	}
	if v, err := strconv.ParseInt(source.Text(raw), 10, 64); err == nil {
		return kvArg{kind: 'i', num: v, str: string(raw)}
	}
	return kvArg{kind: 'f', str: string(raw)} // beyond int64: a block hash
}

// hashes reads a list of block hashes: unsigned 64-bit numbers (kept as their
// digits, they exceed 2^53) or base64 text.
func (r *kvReader) hashes() (out []string, whole bool) {
	whole = true
	r.Take('[')
	for first := true; r.More(']', &first); {
		switch ch := r.Peek(); {
		case ch == '"':
			v, _ := r.Str()
			out = append(out, string(v))
		case ch == '-' || ch-'0' <= 9:
			v, _ := r.Number()
			count := strings.TrimPrefix(string(v), "-")
			whole = whole && digits([]byte(count)) == len(count)
			out = append(out, string(v))
		default:
			r.Skip(0)
			whole = false
		}
	}
	return out, whole
}

func (r *kvReader) optInt() trace.Opt[int64] {
	if r.Null() {
		return trace.Opt[int64]{}
	}
	v, _ := r.Int64()
	return trace.Some(v)
}

// kvFields spells the fields of each event class after the tag
// (spec#wire-kv-lines): h hashes, p parent hash, t token ids, z block size,
// m medium, s step, r request id, c block count, x transfer id, d destination
// medium, u success, - ignored.
var kvFields = map[string]string{
	"BlockStored": "hptz-m-", "BlockRemoved": "hm", "AllBlocksCleared": "",
	"CacheLoadCommitted": "rmcs", "CacheStoreCommitted": "rmcs", "CacheEviction": "mc-sh",
	"TransferInitiated": "xrmdcs", "TransferCompleted": "xrmdcus",
	"RemoteTransferInitiated": "xr---c", "RemoteTransferCompleted": "xr---cu",
}

// fillKV fills ev from its positional fields and reports whether they fit.
// Trailing fields may be missing in dumps of older versions.
func fillKV(ev *trace.KVEvent, args []kvArg) bool {
	form, ok := kvFields[ev.Kind]
	if !ok {
		return false
	}
	ev.Copies = 1
	for i, a := range args {
		if i >= len(form) || a.kind == 'n' {
			continue
		}
		if !setKV(ev, form[i], a) {
			return false
		}
	}
	if form != "" && len(args) == 0 {
		return false
	}
	if ev.Kind == "BlockStored" || ev.Kind == "BlockRemoved" {
		ev.BlockCount = trace.Some(int64(len(ev.Hashes)))
	}
	return true
}

func setKV(ev *trace.KVEvent, what byte, a kvArg) bool {
	switch what {
	case 'h':
		ev.Hashes = a.list
		return a.kind == 'l'
	case 'p':
		ev.Parent = trace.Some(a.str)
		return a.kind == 's' || a.kind == 'i' || a.kind == 'f'
	case 'z':
		return setInt(&ev.BlockSize, a)
	case 's':
		return setInt(&ev.Step, a)
	case 'c':
		return setInt(&ev.BlockCount, a)
	case 'x':
		return setInt(&ev.TransferID, a)
	case 'r':
		return setStr(&ev.RequestID, a)
	case 'm':
		return setStr(&ev.SrcMedium, a)
	case 'd':
		return setStr(&ev.DstMedium, a)
	case 'u':
		ev.Success = trace.Some(a.num == 1)
		return a.kind == 'b'
	}
	return true
}

func setInt(dst *trace.Opt[int64], a kvArg) bool {
	*dst = trace.Some(a.num)
	return a.kind == 'i'
}

func setStr(dst *trace.Opt[string], a kvArg) bool {
	*dst = trace.Some(a.str)
	return a.kind == 's'
}

// KVCollector merges the copies of TP workers and keeps the events in order.
type KVCollector struct {
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

func NewKVCollector(names []source.Input, acc *source.Account, mem *source.Memory) *KVCollector {
	return &KVCollector{names: names, acc: acc, events: source.NewSorter[trace.KVEvent](mem), open: map[kvKey]*kvCopy{},
		copies: map[int64]*kvCopy{}}
}

func (k *KVCollector) Add(p *source.Parsed[*kvEvents]) error {
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

func (k *KVCollector) event(ev *trace.KVEvent, name string) error {
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
func (k *KVCollector) Write(w *table.Writer[trace.KVEvent], mine func(*trace.KVEvent) bool) error {
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
