package otlp

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/blis-train/blis-train/pipeline/extract/scan"
)

// Field numbers of the OTLP messages (opentelemetry/proto/trace/v1).
const (
	fTracesResourceSpans = 1
	fResource            = 1
	fScopeSpans          = 2
	fOldScopeSpans       = 1000 // for a time, instrumentation_library_spans; receivers move them to field 2
	fScope               = 1
	fSpans               = 2
	fScopeName           = 1
	fSpanTraceID         = 1
	fSpanSpanID          = 2
	fSpanParentID        = 4
	fSpanName            = 5
	fSpanStart           = 7
	fSpanEnd             = 8
	fSpanAttributes      = 9
	fSpanEvents          = 11
	fSpanDroppedEvents   = 12
	fEventTime           = 1
	fEventName           = 2
	fEventAttributes     = 3
	fPairKey             = 1
	fPairValue           = 2
	fValueString         = 1
	fValueBool           = 2
	fValueInt            = 3
	fValueDouble         = 4
	fValueArray          = 5
	fValueList           = 6
	fValueStrindex       = 8 // a reference into a table of strings
	fValueBytes          = 7
)

// msgKind names the messages whose form is checked apart from reading them.
type msgKind uint8

const (
	kindTraces msgKind = iota + 1
	kindResource
	kindScope
	kindLink
	kindStatus
	kindPair
	kindAny
	kindArray
	kindList
	kindEvent
	kindSpan
	kindScopeSpans
	kindResourceSpans
	kindEntity
)

// wireForm is how a field that nobody reads is written.
type wireForm struct {
	wire  int
	inner msgKind // of the message inside
	size  int     // of an id, when there is one
}

// known lists the fields of each message.
var known = map[msgKind]map[int]wireForm{
	kindResource: {1: {wire: scan.WireBytes, inner: kindPair}, 2: {wire: scan.WireVarint}, 3: {wire: scan.WireBytes, inner: kindEntity}},
	kindEntity:   {1: {wire: scan.WireBytes}, 2: {wire: scan.WireBytes}, 3: {wire: scan.WireBytes}, 4: {wire: scan.WireBytes}},
	kindScope: {1: {wire: scan.WireBytes}, 2: {wire: scan.WireBytes}, 3: {wire: scan.WireBytes, inner: kindPair},
		4: {wire: scan.WireVarint}},
	kindLink: {1: {wire: scan.WireBytes, size: 16}, 2: {wire: scan.WireBytes, size: 8}, 3: {wire: scan.WireBytes},
		4: {wire: scan.WireBytes, inner: kindPair},
		5: {wire: scan.WireVarint}, 6: {wire: scan.WireFixed32}},
	kindStatus: {2: {wire: scan.WireBytes}, 3: {wire: scan.WireVarint}},
	kindPair:   {1: {wire: scan.WireBytes}, 2: {wire: scan.WireBytes, inner: kindAny}, 3: {wire: scan.WireVarint}},
	kindAny: {1: {wire: scan.WireBytes}, 2: {wire: scan.WireVarint}, 3: {wire: scan.WireVarint}, 4: {wire: scan.WireFixed64},
		5: {wire: scan.WireBytes, inner: kindArray},
		6: {wire: scan.WireBytes, inner: kindList}, 7: {wire: scan.WireBytes}, 8: {wire: scan.WireVarint}},
	kindArray: {1: {wire: scan.WireBytes, inner: kindAny}},
	kindList:  {1: {wire: scan.WireBytes, inner: kindPair}},
	kindEvent: {1: {wire: scan.WireFixed64}, 2: {wire: scan.WireBytes}, 3: {wire: scan.WireBytes, inner: kindPair},
		4: {wire: scan.WireVarint}},
	kindSpan: {1: {wire: scan.WireBytes, size: 16}, 2: {wire: scan.WireBytes, size: 8}, 3: {wire: scan.WireBytes},
		4: {wire: scan.WireBytes, size: 8}, 5: {wire: scan.WireBytes},
		6: {wire: scan.WireVarint}, 7: {wire: scan.WireFixed64}, 8: {wire: scan.WireFixed64}, 9: {wire: scan.WireBytes, inner: kindPair},
		10: {wire: scan.WireVarint},
		11: {wire: scan.WireBytes, inner: kindEvent}, 12: {wire: scan.WireVarint}, 13: {wire: scan.WireBytes, inner: kindLink},
		14: {wire: scan.WireVarint},
		15: {wire: scan.WireBytes, inner: kindStatus}, 16: {wire: scan.WireFixed32}},
	kindScopeSpans: {1: {wire: scan.WireBytes, inner: kindScope}, 2: {wire: scan.WireBytes, inner: kindSpan}, 3: {wire: scan.WireBytes}},
	kindResourceSpans: {1: {wire: scan.WireBytes, inner: kindResource}, 2: {wire: scan.WireBytes, inner: kindScopeSpans},
		3:              {wire: scan.WireBytes},
		fOldScopeSpans: {wire: scan.WireBytes, inner: kindScopeSpans}},
	kindTraces: {1: {wire: scan.WireBytes, inner: kindResourceSpans}},
}

// ignored checks the wire form of a field nobody reads.
func ignored(f *scan.Fields, v scan.Field, kind msgKind) *scan.Error {
	checkField(f, &v, kind, 0)
	return f.Err
}

// checkField checks one field of a message of the kind; unknown ones are free.
func checkField(f *scan.Fields, v *scan.Field, kind msgKind, depth int) {
	k, ok := known[kind][v.Number]
	if !ok || !f.Is(v, k.wire) {
		return
	}
	if k.inner != 0 {
		f.Adopt(checkAny(*v, k.inner, depth))
	}
	if k.size > 0 && len(v.Data) > 0 && len(v.Data) != k.size {
		f.Fail("got an id of %d bytes, want %d", len(v.Data), k.size)
	}
}

// checkAny checks the wire form of a message nobody reads.
func checkAny(msg scan.Field, kind msgKind, depth int) *scan.Error {
	if depth > scan.MaxDepth {
		return &scan.Error{At: msg.At, Msg: fmt.Sprintf("got values nested deeper than %d", scan.MaxDepth)}
	}
	f := msg.Walk()
	var v scan.Field
	for f.Next(&v) {
		checkField(&f, &v, kind, depth+1)
	}
	return f.Err
}

// jsonForm is how a value is written in OTLP/JSON.
type jsonForm uint8

const (
	formText jsonForm = iota + 1
	formBool
	formInt32 // numbers may be quoted
	formInt64
	formUint32
	formDouble
	formBase64
	formSpanID // hexadecimal digits
	formTraceID
	formSpanKind // a number or a name
	formStatusCode
	formMessage
	formMessages
	formTexts
)

// jsonField is the form of a field that is checked but not read.
type jsonField struct {
	form  jsonForm
	inner msgKind // of messages
}

// spanKinds and statusCodes are the enum names of OTLP.
var (
	spanKinds = map[string]bool{"SPAN_KIND_UNSPECIFIED": true, "SPAN_KIND_INTERNAL": true, "SPAN_KIND_SERVER": true,
		"SPAN_KIND_CLIENT": true, "SPAN_KIND_PRODUCER": true, "SPAN_KIND_CONSUMER": true}
	statusCodes = map[string]bool{"STATUS_CODE_UNSET": true, "STATUS_CODE_OK": true, "STATUS_CODE_ERROR": true}
)

// jsonForms lists the fields of each message that no reader reads, under both
// spellings.
var jsonForms = map[msgKind]map[string]jsonField{
	kindResourceSpans: {"schemaUrl": {form: formText}, "schema_url": {form: formText}},
	kindScopeSpans:    {"schemaUrl": {form: formText}, "schema_url": {form: formText}},
	kindResource: {
		"attributes": {formMessages, kindPair}, "droppedAttributesCount": {form: formUint32}, "dropped_attributes_count": {form: formUint32},
		"entityRefs": {formMessages, kindEntity}, "entity_refs": {formMessages, kindEntity},
	},
	kindEntity: {
		"schemaUrl": {form: formText}, "schema_url": {form: formText}, "type": {form: formText}, "idKeys": {form: formTexts},
		"id_keys":         {form: formTexts},
		"descriptionKeys": {form: formTexts}, "description_keys": {form: formTexts},
	},
	kindScope: {
		"name": {form: formText}, "version": {form: formText}, "attributes": {formMessages, kindPair},
		"droppedAttributesCount": {form: formUint32}, "dropped_attributes_count": {form: formUint32},
	},
	kindSpan: {
		"traceState": {form: formText}, "trace_state": {form: formText}, "flags": {form: formUint32}, "kind": {form: formSpanKind},
		"droppedAttributesCount": {form: formUint32}, "dropped_attributes_count": {form: formUint32}, "links": {formMessages, kindLink},
		"droppedLinksCount": {form: formUint32}, "dropped_links_count": {form: formUint32}, "status": {formMessage, kindStatus},
	},
	kindEvent: {"droppedAttributesCount": {form: formUint32}, "dropped_attributes_count": {form: formUint32}},
	kindLink: {
		"traceId": {form: formTraceID}, "trace_id": {form: formTraceID}, "spanId": {form: formSpanID}, "span_id": {form: formSpanID},
		"traceState": {form: formText}, "trace_state": {form: formText}, "attributes": {formMessages, kindPair},
		"droppedAttributesCount": {form: formUint32}, "dropped_attributes_count": {form: formUint32}, "flags": {form: formUint32},
	},
	kindStatus: {"message": {form: formText}, "code": {form: formStatusCode}},
	kindPair: {"key": {form: formText}, "value": {formMessage, kindAny}, "keyStrindex": {form: formInt32},
		"key_strindex": {form: formInt32}},
	kindAny: {
		"stringValue": {form: formText}, "string_value": {form: formText}, "boolValue": {form: formBool}, "bool_value": {form: formBool},
		"intValue": {form: formInt64}, "int_value": {form: formInt64}, "doubleValue": {form: formDouble}, "double_value": {form: formDouble},
		"arrayValue": {formMessage, kindArray}, "array_value": {formMessage, kindArray},
		"kvlistValue": {formMessage, kindList}, "kvlist_value": {formMessage, kindList},
		"bytesValue": {form: formBase64}, "bytes_value": {form: formBase64},
		"stringValueStrindex": {form: formInt32}, "string_value_strindex": {form: formInt32},
	},
	kindArray: {"values": {formMessages, kindAny}},
	kindList:  {"values": {formMessages, kindPair}},
}

// textReader walks OTLP/JSON.
type textReader struct{ scan.Cursor }

// unread checks the value of a field that nobody reads and reports whether the
// message has that field: a known one has OTLP's form, an unknown one is any
// JSON, and null is the default of each.
func (c *textReader) unread(kind msgKind, key []byte, depth int) bool {
	f, known := jsonForms[kind][string(key)]
	if !known || c.Peek() == 'n' {
		c.Skip(depth)
		return known
	}
	switch f.form {
	case formMessage:
		c.checkMessage(f.inner, depth+1)
	case formMessages:
		c.checkList(depth, func() { c.checkMessage(f.inner, depth+1) })
	case formTexts:
		c.checkList(depth, func() { c.Str() })
	default:
		c.checkScalar(f.form)
	}
	return true
}

func (c *textReader) checkMessage(kind msgKind, depth int) {
	if depth > scan.MaxDepth {
		c.Fail("got values nested deeper than %d", scan.MaxDepth)
		return
	}
	if c.Null() || !c.Take('{') {
		return
	}
	for first := true; c.More('}', &first); {
		k, ok := c.Key()
		if !ok {
			return
		}
		c.unread(kind, k, depth)
	}
}

func (c *textReader) checkList(depth int, element func()) {
	if !c.Take('[') {
		return
	}
	for first := true; c.More(']', &first); {
		if c.Peek() == 'n' {
			c.Skip(depth)
			continue
		}
		element()
	}
}

func (c *textReader) checkScalar(form jsonForm) {
	switch form {
	case formText:
		c.Str()
	case formBool:
		if ch := c.Peek(); ch != 't' && ch != 'f' {
			c.Unexpected("true or false")
			return
		}
		c.Skip(0)
	case formInt32:
		c.int32()
	case formInt64:
		c.Int64()
	case formUint32:
		c.uint32()
	case formDouble:
		c.Float()
	case formBase64:
		c.base64()
	case formSpanID:
		c.hex(8)
	case formTraceID:
		c.hex(16)
	case formSpanKind:
		c.enum(spanKinds)
	case formStatusCode:
		c.enum(statusCodes)
	}
}

// uint32 reads a count.
func (c *textReader) uint32() (int64, bool) {
	c.Space()
	at := c.I
	raw, ok := c.Scalar("a count")
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseUint(scan.Text(raw), 10, 32)
	if err != nil {
		c.I = at
		return 0, c.Fail("got %.40q, want a count of 32 bits", raw)
	}
	return int64(v), true
}

func (c *textReader) int32() bool {
	c.Space()
	at := c.I
	raw, ok := c.Scalar("an integer")
	if !ok {
		return false
	}
	if _, err := strconv.ParseInt(scan.Text(raw), 10, 32); err != nil {
		c.I = at
		return c.Fail("got %.40q, want an integer of 32 bits", raw)
	}
	return true
}

// enum reads a number, or one of the names.
func (c *textReader) enum(names map[string]bool) bool {
	if c.Peek() != '"' {
		return c.int32()
	}
	at := c.I
	v, ok := c.Str()
	if ok && !names[string(v)] {
		c.I = at
		return c.Fail("got the unknown name %.40q", v)
	}
	return ok
}

func (c *textReader) base64() bool {
	c.Space()
	at := c.I
	v, ok := c.Str()
	if !ok {
		return false
	}
	if _, err := base64.StdEncoding.Decode(make([]byte, base64.StdEncoding.DecodedLen(len(v))), v); err != nil {
		c.I = at
		return c.Fail("got %.40q, want base64", v)
	}
	return true
}

// hex checks an id of n bytes; an empty string is none.
func (c *textReader) hex(n int) bool {
	c.Space()
	at := c.I
	v, ok := c.Str()
	if !ok || len(v) == 0 {
		return ok
	}
	if _, err := hex.Decode(make([]byte, len(v)), v); err != nil || len(v) != 2*n {
		c.I = at
		return c.Fail("got the id %.40q, want %d hexadecimal digits", v, 2*n)
	}
	return true
}
