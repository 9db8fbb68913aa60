package extract

import (
	"fmt"
	"strconv"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// kvParser reads lines of KV-cache events: positional arrays
// [ts, events, data_parallel_rank, scheduler_step], three elements in older
// dumps (design/02 section 3).
type kvParser struct{}

func (kvParser) proto([]byte, *builder, *message) *parseError {
	return &parseError{msg: "got a length-prefixed message, want JSON lines"}
}

func (kvParser) json(text []byte, b *builder, out *message) *parseError {
	r := kvReader{cursor: cursor{b: text}, builder: b, out: out}
	r.line()
	if r.ws(); r.err == nil && r.i < len(r.b) {
		r.unexpected("the end of the line")
	}
	return r.err
}

// badKV is a KV event that does not fit its class.
type badKV struct {
	line int64
	what string
}

type kvReader struct {
	cursor
	*builder
	out *message
}

func (r *kvReader) line() {
	if !r.take('[') {
		return
	}
	from := len(r.out.kv)
	var ts float64
	var rank trace.Opt[int64]
	for i, first := 0, true; r.more(']', &first); i++ {
		switch i {
		case 0:
			ts, _ = r.float()
		case 1:
			r.events()
		case 2:
			rank = r.optInt()
		default:
			r.skip(0)
		}
	}
	for i := range r.out.kv[from:] {
		r.out.kv[from+i].WallS, r.out.kv[from+i].DPRank = ts, rank
	}
}

func (r *kvReader) events() {
	if r.null() || !r.take('[') {
		return
	}
	for first := true; r.more(']', &first); {
		r.ws()
		start := r.i
		ev, ok := r.kvEvent()
		if r.err != nil {
			return
		}
		if !ok {
			r.out.bad = append(r.out.bad, badKV{what: fmt.Sprintf("%.80q", r.b[start:r.i])})
			continue
		}
		r.out.kv = append(r.out.kv, ev)
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
	if !r.take('[') {
		return ev, false
	}
	for first := true; r.more(']', &first); {
		if len(args) == 3 && ev.Kind == "BlockStored" { // token ids
			args = append(args, kvArg{kind: 'l'})
			r.skip(0)
			continue
		}
		if len(args) == 0 && ev.Kind == "" {
			r.ws()
			tag, ok := r.str()
			if !ok {
				return ev, false
			}
			ev.Kind = r.intern(tag)
			args = append(args, kvArg{kind: 's'})
			continue
		}
		args = append(args, r.arg())
	}
	return ev, r.err == nil && len(args) > 0 && fillKV(&ev, args[1:])
}

func (r *kvReader) arg() kvArg {
	switch ch := r.peek(); {
	case ch == '"':
		v, _ := r.str()
		return kvArg{kind: 's', str: r.intern(v)}
	case ch == 't' || ch == 'f':
		r.skip(0)
		return kvArg{kind: 'b', num: map[byte]int64{'t': 1}[ch]}
	case ch == 'n':
		r.skip(0)
		return kvArg{kind: 'n'}
	case ch == '[':
		return kvArg{kind: 'l', list: r.hashes()}
	case ch == '{':
		r.skip(0)
		return kvArg{kind: 'o'}
	}
	raw, ok := r.number()
	if !ok {
		return kvArg{}
	}
	if v, err := strconv.ParseInt(text(raw), 10, 64); err == nil {
		return kvArg{kind: 'i', num: v, str: string(raw)}
	}
	return kvArg{kind: 'f', str: string(raw)} // beyond int64: a block hash
}

// hashes reads a list of block hashes: unsigned 64-bit numbers (kept as their
// digits, they exceed 2^53) or base64 text.
func (r *kvReader) hashes() []string {
	var out []string
	r.take('[')
	for first := true; r.more(']', &first); {
		switch ch := r.peek(); {
		case ch == '"':
			v, _ := r.str()
			out = append(out, string(v))
		case ch == '-' || ch-'0' <= 9:
			v, _ := r.number()
			out = append(out, string(v))
		default:
			r.skip(0)
			out = append(out, "")
		}
	}
	return out
}

func (r *kvReader) optInt() trace.Opt[int64] {
	if r.null() {
		return trace.Opt[int64]{}
	}
	v, _ := r.int64()
	return trace.Some(v)
}

// kvFields spells the fields of each event class after the tag
// (design/02 section 3): h hashes, p parent hash, t token ids, z block size,
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

// kvCollector merges the copies of TP workers and keeps the events in order.
type kvCollector struct {
	names  []input
	acc    *account
	events *spool
	codec  *table.Codec[trace.KVEvent]
	open   map[kvKey]*kvCopy
	copies map[int64]*kvCopy // by sequence number of the first copy
	n      int64
	buf    packed
}

// kvKey is what the copies of one transfer share (01 S-11).
type kvKey struct {
	kind, request, src, dst string
	id, blocks, step        int64
}

type kvCopy struct {
	n       int64
	success bool
}

func newKVCollector(names []input, acc *account, mem *memory) *kvCollector {
	k := &kvCollector{names: names, acc: acc, codec: table.NewCodec[trace.KVEvent](), open: map[kvKey]*kvCopy{}, copies: map[int64]*kvCopy{}}
	k.events = mem.spool()
	return k
}

func (k *kvCollector) add(p *parsed) error {
	a := k.acc
	name := k.names[p.batch.file].name
	a.take(p, name)
	for _, bad := range p.msg.bad {
		a.read++
		a.drop(CodeBadEvent, 1, place{file: name, line: bad.line}, "KV event %s", bad.what)
	}
	for i := range p.msg.kv {
		if err := k.event(&p.msg.kv[i], name); err != nil {
			return err
		}
	}
	return a.err
}

func (k *kvCollector) event(ev *trace.KVEvent, name string) error {
	k.acc.read++
	if ev.Kind == "TransferInitiated" || ev.Kind == "TransferCompleted" {
		key := kvKey{ev.Kind, ev.RequestID.V, ev.SrcMedium.V, ev.DstMedium.V, ev.TransferID.V, ev.BlockCount.V, ev.Step.V}
		if c, ok := k.open[key]; ok {
			c.n++
			c.success = c.success && ev.Success.V
			k.acc.drop(CodeWorkerCopy, 1, place{file: name, line: ev.Line}, "%s of transfer %d", ev.Kind, ev.TransferID.V)
			return nil
		}
		c := &kvCopy{1, ev.Success.V}
		k.open[key] = c
		k.copies[k.n] = c
	}
	k.acc.keep(1)
	k.buf.data, k.buf.keys, k.buf.ends = k.buf.data[:0], k.buf.keys[:0], k.buf.ends[:0]
	k.buf.add(k.n, k.codec.Append(k.buf.data, ev))
	k.n++
	return k.events.add(&k.buf)
}

// write streams the events that mine accepts into their table.
func (k *kvCollector) write(w *table.Writer[trace.KVEvent], mine func(*trace.KVEvent) bool) error {
	rd, err := k.events.read()
	if err != nil {
		return err
	}
	str := newInterner()
	for {
		seq, ok := rd.peek()
		if !ok {
			return nil
		}
		var ev trace.KVEvent
		if err := rd.next(func(_ int64, row []byte) error { return k.codec.Decode(row, &ev, str.get) }); err != nil {
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

// interner shares equal strings up to a bound.
type interner struct{ m map[string]string }

func newInterner() *interner { return &interner{map[string]string{}} }

func (s *interner) get(b []byte) string {
	if v, ok := s.m[string(b)]; ok {
		return v
	}
	if len(s.m) >= 1<<16 {
		clear(s.m)
	}
	v := string(b)
	s.m[v] = v
	return v
}
