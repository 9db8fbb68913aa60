package otlp

import (
	"math"
	"strconv"

	"github.com/blis-train/blis-train/pipeline/extract/scan"
)

// protoReader is the fast OTLP/protobuf reader: it walks the bytes and never
// builds the message. The collector writes fields in descending order, so a
// scope's name and an event's name come after what they name; both are looked
// up first.
type protoReader struct {
	*builder
	out *Message
}

// parseProto reads one TracesData message.
func parseProto(data []byte, b *builder, out *Message) *scan.Error {
	r := protoReader{builder: b, out: out}
	f := scan.Fields{B: data}
	var v scan.Field
	for f.Next(&v) {
		if v.Number == fTracesResourceSpans && f.Is(&v, scan.WireBytes) {
			f.Adopt(r.resourceSpans(v))
		}
	}
	return f.Err
}

func (r *protoReader) resourceSpans(msg scan.Field) *scan.Error {
	from := len(r.out.Spans)
	var id identity
	f := msg.Walk()
	var v scan.Field
	for f.Next(&v) {
		switch v.Number {
		case fResource:
			if f.Is(&v, scan.WireBytes) {
				f.Adopt(checkAny(v, kindResource, 0))
				protoIdentity(v, &id)
			}
		case fScopeSpans:
			if f.Is(&v, scan.WireBytes) {
				f.Adopt(r.scopeSpans(v))
			}
		default:
			f.Adopt(ignored(&f, v, kindResourceSpans))
		}
	}
	resource := id.hash()
	for _, s := range r.out.Spans[from:] {
		s.Resource = resource
	}
	return f.Err
}

// protoIdentity collects what identifies the process of a resource; its form
// has been checked.
func protoIdentity(resource scan.Field, id *identity) {
	f := resource.Walk()
	var v, w scan.Field
	for f.Next(&v) {
		if v.Number != 1 {
			continue
		}
		key := ""
		var value anyValue
		pair := v.Walk()
		for pair.Next(&w) {
			switch w.Number {
			case fPairKey:
				key = string(w.Data)
			case fPairValue:
				value.read(w)
			}
		}
		switch value.kind {
		case anyText:
			id.set(key, value.text)
		case anyInt:
			id.set(key, strconv.AppendInt(nil, value.num, 10))
		}
	}
}

func (r *protoReader) scopeSpans(msg scan.Field) *scan.Error {
	scope := ""
	f := msg.Walk()
	var v scan.Field
	for f.Next(&v) {
		if v.Number == fScope && f.Is(&v, scan.WireBytes) {
			f.Adopt(checkAny(v, kindScope, 0))
			in := v.Walk()
			var w scan.Field
			for in.Next(&w) {
				if w.Number == fScopeName && in.Is(&w, scan.WireBytes) {
					scope = r.intern(w.Data)
				}
			}
		}
	}
	if f.Err != nil {
		return f.Err
	}
	f = msg.Walk()
	for f.Next(&v) {
		switch v.Number {
		case fSpans:
			if f.Is(&v, scan.WireBytes) {
				f.Adopt(r.span(v, scope))
			}
		case fScope:
		default:
			f.Adopt(ignored(&f, v, kindScopeSpans))
		}
	}
	return f.Err
}

func (r *protoReader) span(msg scan.Field, scope string) *scan.Error {
	r.begin()
	s := r.cur
	name := ""
	var start, end uint64
	f := msg.Walk()
	var v scan.Field
	for f.Next(&v) {
		switch v.Number {
		case fSpanTraceID:
			f.ID(&v, s.TraceID[:])
		case fSpanSpanID:
			f.ID(&v, s.SpanID[:])
		case fSpanParentID:
			f.ID(&v, s.Parent[:])
		case fSpanName:
			if f.Is(&v, scan.WireBytes) {
				name = r.intern(v.Data)
			}
		case fSpanStart:
			f.Is(&v, scan.WireFixed64)
			start = v.Num
		case fSpanEnd:
			f.Is(&v, scan.WireFixed64)
			end = v.Num
		case fSpanDroppedEvents:
			f.Is(&v, scan.WireVarint)
			s.DroppedEvents = int64(uint32(v.Num))
		case fSpanAttributes:
			if f.Is(&v, scan.WireBytes) {
				f.Adopt(readPair(v, &r.sp))
			}
		case fSpanEvents:
			if f.Is(&v, scan.WireBytes) {
				f.Adopt(r.spanEvent(v))
			}
		default:
			f.Adopt(ignored(&f, v, kindSpan))
		}
	}
	if f.Err != nil {
		return f.Err
	}
	s.StartNs, s.EndNs = r.time(start, true), r.time(end, true)
	s = r.end(scope, name)
	s.Hash = hashOf(msg.Data)
	r.out.Spans = append(r.out.Spans, s)
	return nil
}

func (r *protoReader) spanEvent(msg scan.Field) *scan.Error {
	var name []byte
	var wall uint64
	f := msg.Walk()
	var v scan.Field
	for f.Next(&v) {
		switch v.Number {
		case fEventTime:
			f.Is(&v, scan.WireFixed64)
			wall = v.Num
		case fEventName:
			if f.Is(&v, scan.WireBytes) {
				name = v.Data
			}
		}
	}
	r.ev.reset(noSlot)
	if e, ok := eventByName[string(name)]; ok {
		r.ev.next = firstSlot[e]
	}
	if f.Err != nil {
		return f.Err
	}
	f = msg.Walk()
	for f.Next(&v) {
		switch v.Number {
		case fEventAttributes:
			if f.Is(&v, scan.WireBytes) {
				f.Adopt(readPair(v, &r.ev))
			}
		case fEventTime, fEventName:
		default:
			f.Adopt(ignored(&f, v, kindEvent))
		}
	}
	if f.Err == nil {
		r.event(name, r.time(wall, true))
	}
	return f.Err
}

// readPair reads one KeyValue into a. A value that is written in several
// pieces is merged, as protobuf wants it.
func readPair(msg scan.Field, a *attrs) *scan.Error {
	var key, v scan.Field
	var value anyValue
	f := msg.Walk()
	for f.Next(&v) {
		switch v.Number {
		case fPairKey:
			if f.Is(&v, scan.WireBytes) {
				key = v
			}
		case fPairValue:
			if f.Is(&v, scan.WireBytes) {
				f.Adopt(value.read(v))
			}
		default:
			f.Adopt(ignored(&f, v, kindPair))
		}
	}
	if f.Err == nil {
		a.store(a.find(key.Data), &value)
	}
	return f.Err
}

// read decodes an AnyValue; the last of several values counts.
func (out *anyValue) read(msg scan.Field) *scan.Error {
	f := msg.Walk()
	var v scan.Field
	for f.Next(&v) {
		switch v.Number {
		case fValueInt:
			f.Is(&v, scan.WireVarint)
			*out = anyValue{kind: anyInt, num: int64(v.Num)}
		case fValueDouble:
			f.Is(&v, scan.WireFixed64)
			*out = anyValue{kind: anyFloat, float: math.Float64frombits(v.Num)}
		case fValueString:
			f.Is(&v, scan.WireBytes)
			*out = anyValue{kind: anyText, text: v.Data}
		case fValueBool, fValueBytes, fValueArray, fValueList:
			*out = anyValue{kind: anyOther}
			f.Adopt(ignored(&f, v, kindAny))
		case fValueStrindex:
			*out = anyValue{} // an index into a table that traces do not have
			f.Adopt(ignored(&f, v, kindAny))
		}
	}
	return f.Err
}
