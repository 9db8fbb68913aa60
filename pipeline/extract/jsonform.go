package extract

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"
)

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
		"schemaUrl": {form: formText}, "schema_url": {form: formText}, "type": {form: formText}, "idKeys": {form: formTexts}, "id_keys": {form: formTexts},
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
	kindPair:   {"key": {form: formText}, "value": {formMessage, kindAny}, "keyStrindex": {form: formInt32}, "key_strindex": {form: formInt32}},
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

// unread checks the value of a field that nobody reads and reports whether the
// message has that field: a known one has OTLP's form, an unknown one is any
// JSON, and null is the default of each.
func (c *cursor) unread(kind msgKind, key []byte, depth int) bool {
	f, known := jsonForms[kind][string(key)]
	if !known || c.peek() == 'n' {
		c.skip(depth)
		return known
	}
	switch f.form {
	case formMessage:
		c.checkMessage(f.inner, depth+1)
	case formMessages:
		c.checkList(depth, func() { c.checkMessage(f.inner, depth+1) })
	case formTexts:
		c.checkList(depth, func() { c.str() })
	default:
		c.checkScalar(f.form)
	}
	return true
}

func (c *cursor) checkMessage(kind msgKind, depth int) {
	if depth > maxDepth {
		c.fail("got values nested deeper than %d", maxDepth)
		return
	}
	if c.null() || !c.take('{') {
		return
	}
	for first := true; c.more('}', &first); {
		k, ok := c.key()
		if !ok {
			return
		}
		c.unread(kind, k, depth)
	}
}

func (c *cursor) checkList(depth int, element func()) {
	if !c.take('[') {
		return
	}
	for first := true; c.more(']', &first); {
		if c.peek() == 'n' {
			c.skip(depth)
			continue
		}
		element()
	}
}

func (c *cursor) checkScalar(form jsonForm) {
	switch form {
	case formText:
		c.str()
	case formBool:
		if ch := c.peek(); ch != 't' && ch != 'f' {
			c.unexpected("true or false")
			return
		}
		c.skip(0)
	case formInt32:
		c.int32()
	case formInt64:
		c.int64()
	case formUint32:
		c.uint32()
	case formDouble:
		c.float()
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
func (c *cursor) uint32() (int64, bool) {
	c.ws()
	at := c.i
	raw, ok := c.scalar("a count")
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseUint(text(raw), 10, 32)
	if err != nil {
		c.i = at
		return 0, c.fail("got %.40q, want a count of 32 bits", raw)
	}
	return int64(v), true
}

func (c *cursor) int32() bool {
	c.ws()
	at := c.i
	raw, ok := c.scalar("an integer")
	if !ok {
		return false
	}
	if _, err := strconv.ParseInt(text(raw), 10, 32); err != nil {
		c.i = at
		return c.fail("got %.40q, want an integer of 32 bits", raw)
	}
	return true
}

// enum reads a number, or one of the names.
func (c *cursor) enum(names map[string]bool) bool {
	if c.peek() != '"' {
		return c.int32()
	}
	at := c.i
	v, ok := c.str()
	if ok && !names[string(v)] {
		c.i = at
		return c.fail("got the unknown name %.40q", v)
	}
	return ok
}

func (c *cursor) base64() bool {
	c.ws()
	at := c.i
	v, ok := c.str()
	if !ok {
		return false
	}
	if _, err := base64.StdEncoding.Decode(make([]byte, base64.StdEncoding.DecodedLen(len(v))), v); err != nil {
		c.i = at
		return c.fail("got %.40q, want base64", v)
	}
	return true
}

// hex checks an id of n bytes; an empty string is none.
func (c *cursor) hex(n int) bool {
	c.ws()
	at := c.i
	v, ok := c.str()
	if !ok || len(v) == 0 {
		return ok
	}
	if _, err := hex.Decode(make([]byte, len(v)), v); err != nil || len(v) != 2*n {
		c.i = at
		return c.fail("got the id %.40q, want %d hexadecimal digits", v, 2*n)
	}
	return true
}
