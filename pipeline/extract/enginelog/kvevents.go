package enginelog

// This file decodes KV cache events: one line for each batch that the engine published, with events as
// positional lists whose first element names their kind (spec#wire-kv-lines;
// vllm/distributed/kv_events.py).

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// kvEvents are the KV events of one batch of lines.
type kvEvents = source.Lines[trace.KVEvent]

// kvDecoder reads lines of KV cache events: positional arrays
// [ts, events, data_parallel_rank, scheduler_step], of three elements in older dumps
// (spec#wire-kv-lines).
type kvDecoder struct {
	source.LineDecoder[trace.KVEvent]
	names *files.Interner
}

// NewKVDecoder returns a decoder of lines of KV cache events.
func NewKVDecoder() source.Decoder[*kvEvents] {
	return &kvDecoder{
		LineDecoder: func(e *trace.KVEvent) *int64 { return &e.Line },
		names:       files.NewInterner(),
	}
}

// Line reads the events of one line into out. It returns the first fault.
func (d *kvDecoder) Line(text []byte, out *kvEvents) *source.Error {
	r := kvReader{Cursor: source.Cursor{B: text}, names: d.names, out: out}
	r.readLine()
	r.Space()
	if r.Err == nil && r.I < len(r.B) {
		r.Unexpected("the end of the line")
	}
	return r.Err
}

// IsKVEvents reports whether a file, of which head is the beginning, has KV events: its first line is a batch whose first
// event has one of their tags.
func IsKVEvents(head []byte) bool {
	c := source.Cursor{B: head}
	if c.Peek() != '[' || !c.Take('[') {
		return false
	}
	c.Space()
	if _, isTime := c.Number(); !isTime || c.Peek() != ',' || !c.Take(',') || !c.Take('[') || !c.Take('[') {
		return false
	}
	c.Space()
	tag, ok := c.Str()
	_, isKnown := kvEventFields[string(tag)]
	return ok && isKnown
}

// kvReader reads one line.
type kvReader struct {
	source.Cursor
	names *files.Interner
	out   *kvEvents
}

// readLine reads the events of one line.
func (r *kvReader) readLine() {
	if !r.Take('[') {
		return
	}
	from := len(r.out.Rows)
	var wallS float64
	var rank trace.Opt[int64]
	// [wall seconds, events, data_parallel_rank, scheduler_step]; the events have steps of their own.
	for i, first := 0, true; r.More(']', &first); i++ {
		switch i {
		case 0:
			wallS, _ = r.Float()
		case 1:
			r.readEvents()
		case 2:
			rank = r.readRank()
		default:
			r.Skip(0)
		}
	}
	for i := range r.out.Rows[from:] {
		ev := &r.out.Rows[from+i]
		ev.WallS = wallS
		ev.DPRank = rank
	}
}

// readRank returns the data-parallel rank; unknown for null.
func (r *kvReader) readRank() trace.Opt[int64] {
	if r.Null() {
		return trace.Opt[int64]{}
	}
	v, _ := r.Int64()
	return trace.Some(v)
}

// readEvents reads a list of events. One whose fields do not fit its tag is counted as bad.
func (r *kvReader) readEvents() {
	if r.Null() || !r.Take('[') {
		return
	}
	for first := true; r.More(']', &first); {
		r.Space()
		start := r.I
		ev, ok := r.readEvent()
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

// tokenIDs is the place of the token ids among the fields of BlockStored. They are skipped, because
// they may be long and no table needs them.
const tokenIDs = 2

// readEvent returns the event in a list [tag, field...]. ok is false if the fields do not fit the
// tag.
func (r *kvReader) readEvent() (ev trace.KVEvent, ok bool) {
	if !r.Take('[') {
		return ev, false
	}
	var fields []kvField
	hasTag := false
	for first := true; r.More(']', &first); {
		switch {
		case !hasTag:
			r.Space()
			tag, ok := r.Str()
			if !ok {
				return ev, false
			}
			ev.Kind = r.names.Get(tag)
			hasTag = true
		case ev.Kind == kindStored && len(fields) == tokenIDs:
			r.Skip(0)
			fields = append(fields, kvField{})
		default:
			fields = append(fields, r.readField())
		}
	}
	return ev, r.Err == nil && hasTag && setKVFields(&ev, fields)
}

// kvType is the JSON type of a field.
type kvType uint8

const (
	kvOther kvType = iota
	kvNull
	kvInteger
	kvNumber // beyond int64: a block hash
	kvString
	kvBool
	kvList // of hashes
)

// kvField is one positional field of an event.
type kvField struct {
	kind   kvType
	number int64
	isTrue bool
	text   string // of strings and numbers
	list   []string
}

// readField returns one positional field.
func (r *kvReader) readField() kvField {
	switch ch := r.Peek(); ch {
	case '"':
		v, _ := r.Str()
		return kvField{kind: kvString, text: r.names.Get(v)}
	case 't', 'f':
		r.Skip(0)
		return kvField{kind: kvBool, isTrue: ch == 't'}
	case 'n':
		r.Skip(0)
		return kvField{kind: kvNull}
	case '[':
		if list, ok := r.readHashes(); ok {
			return kvField{kind: kvList, list: list}
		}
		return kvField{}
	case '{':
		r.Skip(0)
		return kvField{}
	}
	digits, ok := r.Number()
	if !ok {
		return kvField{}
	}
	if v, err := strconv.ParseInt(source.Text(digits), 10, 64); err == nil {
		return kvField{kind: kvInteger, number: v, text: string(digits)}
	}
	return kvField{kind: kvNumber, text: string(digits)}
}

// readHashes returns a list of block hashes: base64 text, or unsigned 64-bit numbers, which exceed
// 2^53 and are returned as their digits. ok is false if the list contains anything else.
func (r *kvReader) readHashes() (out []string, ok bool) {
	ok = true
	r.Take('[')
	for first := true; r.More(']', &first); {
		switch ch := r.Peek(); {
		case ch == '"':
			v, _ := r.Str()
			out = append(out, string(v))
		case ch == '-' || ch-'0' <= 9:
			v, _ := r.Number()
			unsigned := strings.TrimPrefix(string(v), "-")
			ok = ok && digits([]byte(unsigned)) == len(unsigned)
			out = append(out, string(v))
		default:
			r.Skip(0)
			ok = false
		}
	}
	return out, ok
}

// Tags of events with rules of their own.
const (
	kindStored            = "BlockStored"
	kindRemoved           = "BlockRemoved"
	kindTransferInitiated = "TransferInitiated"
	kindTransferCompleted = "TransferCompleted"
)

// kvSetter sets a value of an event from a field and reports whether the field has its type. A nil
// setter is a field that is not read.
type kvSetter func(ev *trace.KVEvent, f kvField) bool

// kvEventFields are the fields of each event behind its tag, in order (spec#wire-kv-lines). nil is a field
// that is not read: of BlockStored the token ids, the LoRA id and the LoRA name; of CacheEviction the
// reason; of remote transfers the connector and both ranks.
var kvEventFields = map[string][]kvSetter{
	kindStored:                {setHashes, setParent, nil, setBlockSize, nil, setMedium, nil},
	kindRemoved:               {setHashes, setMedium},
	"AllBlocksCleared":        {},
	"CacheLoadCommitted":      {setRequest, setMedium, setBlockCount, setStep},
	"CacheStoreCommitted":     {setRequest, setMedium, setBlockCount, setStep},
	"CacheEviction":           {setMedium, setBlockCount, nil, setStep, setHashes},
	kindTransferInitiated:     {setTransfer, setRequest, setMedium, setDestination, setBlockCount, setStep},
	kindTransferCompleted:     {setTransfer, setRequest, setMedium, setDestination, setBlockCount, setSuccess, setStep},
	"RemoteTransferInitiated": {setTransfer, setRequest, nil, nil, nil, setBlockCount},
	"RemoteTransferCompleted": {setTransfer, setRequest, nil, nil, nil, setBlockCount, setSuccess},
}

// setKVFields sets an event's values and reports whether the fields fit its tag. Fields at the end
// may be absent in dumps of older versions.
func setKVFields(ev *trace.KVEvent, fields []kvField) bool {
	setters, isKnown := kvEventFields[ev.Kind]
	if !isKnown || len(setters) > 0 && len(fields) == 0 {
		return false
	}
	ev.Copies = 1 // KVCollector counts more
	for i, f := range fields {
		if i >= len(setters) || setters[i] == nil || f.kind == kvNull {
			continue
		}
		if !setters[i](ev, f) {
			return false
		}
	}
	if ev.Kind == kindStored || ev.Kind == kindRemoved {
		ev.BlockCount = trace.Some(int64(len(ev.Hashes)))
	}
	return true
}

// setHashes and the functions below set one field of an event. They report whether the value has
// the right type.
func setHashes(ev *trace.KVEvent, f kvField) bool {
	ev.Hashes = f.list
	return f.kind == kvList
}

// setParent sets the hash of the block before.
func setParent(ev *trace.KVEvent, f kvField) bool {
	ev.Parent = trace.Some(f.text)
	return f.kind == kvString || f.kind == kvInteger || f.kind == kvNumber
}

// setSuccess sets whether a transfer succeeded.
func setSuccess(ev *trace.KVEvent, f kvField) bool {
	ev.Success = trace.Some(f.isTrue)
	return f.kind == kvBool
}

// setBlockSize sets the block size in tokens.
func setBlockSize(ev *trace.KVEvent, f kvField) bool { return setInteger(&ev.BlockSize, f) }

// setBlockCount sets the number of blocks.
func setBlockCount(ev *trace.KVEvent, f kvField) bool { return setInteger(&ev.BlockCount, f) }

// setStep sets the step.
func setStep(ev *trace.KVEvent, f kvField) bool { return setInteger(&ev.Step, f) }

// setTransfer sets the id of the transfer.
func setTransfer(ev *trace.KVEvent, f kvField) bool { return setInteger(&ev.TransferID, f) }

// setRequest sets the id of the request.
func setRequest(ev *trace.KVEvent, f kvField) bool { return setText(&ev.RequestID, f) }

// setMedium sets where the blocks are (GPU, CPU), or the source of a transfer.
func setMedium(ev *trace.KVEvent, f kvField) bool { return setText(&ev.SrcMedium, f) }

// setDestination sets the destination of a transfer.
func setDestination(ev *trace.KVEvent, f kvField) bool { return setText(&ev.DstMedium, f) }

// setInteger sets an integer.
func setInteger(to *trace.Opt[int64], f kvField) bool {
	*to = trace.Some(f.number)
	return f.kind == kvInteger
}

// setText sets a text.
func setText(to *trace.Opt[string], f kvField) bool {
	*to = trace.Some(f.text)
	return f.kind == kvString
}
