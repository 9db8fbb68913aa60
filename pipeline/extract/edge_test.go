package extract

import (
	"math"
	"strconv"

	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/scan"
)

// edgeParser finds key-value pairs with a scalar value anywhere in a message,
// through the cursor and the field walker the readers are made of.
type edgeParser struct{ out *edge }

func (p edgeParser) Records() *otlp.Message { return new(otlp.Message) }

func (p edgeParser) Line(text []byte, _ *otlp.Message) *scan.Error {
	r := scan.Cursor{B: text}
	for r.Err == nil && r.Peek() != 0 {
		p.anyJSON(&r)
	}
	return r.Err
}

func (p edgeParser) anyJSON(r *scan.Cursor) {
	switch r.Peek() {
	case '[':
		r.I++
		for first := true; r.More(']', &first); {
			p.anyJSON(r)
		}
	case '{':
		p.object(r)
	default:
		r.Skip(0)
	}
}

func (p edgeParser) object(r *scan.Cursor) {
	key := ""
	r.Take('{')
	for first := true; r.More('}', &first); {
		k, ok := r.Key()
		if !ok {
			return
		}
		r.Space()
		switch {
		case string(k) == "key" && r.Peek() == '"':
			v, _ := r.Str()
			key = string(v)
		case string(k) == "value" && r.Peek() == '{':
			p.value(r, key)
		default:
			p.anyJSON(r)
		}
	}
}

func (p edgeParser) value(r *scan.Cursor, key string) {
	r.Take('{')
	for first := true; r.More('}', &first); {
		k, ok := r.Key()
		if !ok {
			return
		}
		r.Space()
		switch string(k) {
		case "intValue":
			v, _ := r.Int64()
			p.out.ints[key] = strconv.FormatInt(v, 10)
		case "doubleValue":
			p.out.floats[key], _ = r.Float()
		case "stringValue":
			v, _ := r.Str()
			p.out.strs[key] = string(v)
		default:
			p.anyJSON(r)
		}
	}
}

func (p edgeParser) Message(data []byte, _ *otlp.Message) *scan.Error {
	p.pairs(scan.Fields{B: data}, []int{1, 2, 2, 9}) // TracesData, ResourceSpans, ScopeSpans, Span.attributes
	return nil
}

func (p edgeParser) pairs(f scan.Fields, path []int) {
	var v scan.Field
	for f.Next(&v) {
		if v.Number != path[0] || v.Wire != scan.WireBytes {
			continue
		}
		if len(path) > 1 {
			p.pairs(v.Walk(), path[1:])
			continue
		}
		p.pair(v.Walk())
	}
}

func (p edgeParser) pair(f scan.Fields) {
	key, value := "", scan.Fields{}
	var v scan.Field
	for f.Next(&v) {
		if v.Number == 1 { // key
			key = string(v.Data)
		} else {
			value = v.Walk()
		}
	}
	for value.Next(&v) {
		switch v.Number {
		case 3:
			p.out.ints[key] = strconv.FormatInt(int64(v.Num), 10)
		case 4:
			p.out.floats[key] = math.Float64frombits(v.Num)
		case 1:
			p.out.strs[key] = string(v.Data)
		}
	}
}
