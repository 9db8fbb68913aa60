package extract

import (
	"math"
	"strconv"
)

// edgeParser finds key-value pairs with a scalar value anywhere in a message,
// through the cursor and the field walker the readers are made of.
type edgeParser struct{ out *edge }

func (p edgeParser) json(text []byte, b *builder, _ *message) *parseError {
	r := jsonReader{cursor: cursor{b: text}, builder: b, out: &message{}}
	for r.err == nil && r.peek() != 0 {
		p.anyJSON(&r)
	}
	return r.err
}

func (p edgeParser) anyJSON(r *jsonReader) {
	switch r.peek() {
	case '[':
		r.i++
		for first := true; r.more(']', &first); {
			p.anyJSON(r)
		}
	case '{':
		p.object(r)
	default:
		r.skip(0)
	}
}

func (p edgeParser) object(r *jsonReader) {
	key := ""
	r.take('{')
	for first := true; r.more('}', &first); {
		k, ok := r.key()
		if !ok {
			return
		}
		r.ws()
		switch {
		case string(k) == "key" && r.peek() == '"':
			v, _ := r.str()
			key = string(v)
		case string(k) == "value" && r.peek() == '{':
			p.value(r, key)
		default:
			p.anyJSON(r)
		}
	}
}

func (p edgeParser) value(r *jsonReader, key string) {
	r.take('{')
	for first := true; r.more('}', &first); {
		k, ok := r.key()
		if !ok {
			return
		}
		r.ws()
		switch string(k) {
		case "intValue":
			v, _ := r.int64()
			p.out.ints[key] = strconv.FormatInt(v, 10)
		case "doubleValue":
			p.out.floats[key], _ = r.float()
		case "stringValue":
			v, _ := r.str()
			p.out.strs[key] = string(v)
		default:
			p.anyJSON(r)
		}
	}
}

func (p edgeParser) proto(data []byte, _ *builder, _ *message) *parseError {
	p.pairs(fields{b: data}, []int{1, 2, 2, 9}) // TracesData, ResourceSpans, ScopeSpans, Span.attributes
	return nil
}

func (p edgeParser) pairs(f fields, path []int) {
	var v field
	for f.next(&v) {
		if v.number != path[0] || v.wire != wireBytes {
			continue
		}
		if len(path) > 1 {
			p.pairs(v.walk(), path[1:])
			continue
		}
		p.pair(v.walk())
	}
}

func (p edgeParser) pair(f fields) {
	key, value := "", fields{}
	var v field
	for f.next(&v) {
		if v.number == fPairKey {
			key = string(v.data)
		} else {
			value = v.walk()
		}
	}
	for value.next(&v) {
		switch v.number {
		case fValueInt:
			p.out.ints[key] = strconv.FormatInt(int64(v.num), 10)
		case fValueDouble:
			p.out.floats[key] = math.Float64frombits(v.num)
		case fValueString:
			p.out.strs[key] = string(v.data)
		}
	}
}
