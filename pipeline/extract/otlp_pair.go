package extract

import "math"

// attributes reads a list of key-value pairs into a. Pairs written the way
// every exporter writes them take the short path.
func (r *jsonReader) attributes(a *attrs) {
	if r.Null() || !r.Take('[') {
		return
	}
	for first := true; r.More(']', &first); {
		if !r.quickRun(a) {
			r.pair(a)
		}
	}
}

// pair reads one key-value pair in any legal form.
func (r *jsonReader) pair(a *attrs) {
	s, valueAt, keyed := noSlot, -1, false
	var seen uint32
	for k := range r.Members {
		once(&seen, k, &a.bad)
		switch string(k) {
		case "key":
			r.Space()
			if v, ok := r.Str(); ok {
				s, keyed = a.find(v), true
			}
		case "value":
			if !keyed {
				r.Space()
				valueAt = r.I
				r.Skip(0)
				continue
			}
			r.value(a, s)
		default:
			r.Skip(0)
		}
	}
	if valueAt >= 0 && r.Err == nil {
		end := r.I
		r.I = valueAt
		r.value(a, s)
		r.I = end
	}
}

// value reads an AnyValue into slot s; the last of several kinds of value counts.
func (r *jsonReader) value(a *attrs, s slot) {
	is, num, text := wantNothing, int64(0), []byte(nil)
	var seen uint32
	for k := range r.MembersOrNull {
		if r.Peek() == 'n' {
			r.Word("null")
			continue
		}
		once(&seen, k, &a.bad)
		switch string(k) {
		case "intValue", "int_value":
			at := r.I
			if n, ok := r.Int64(); ok {
				is, num, text = wantInt, n, nil
			} else if s < numSlots && r.Err.At == at {
				r.Err.Msg = attrKeys[s].key + ": " + r.Err.Msg
			}
		case "doubleValue", "double_value":
			f, _ := r.Float()
			is, num, text = wantFloat, int64(math.Float64bits(f)), nil
		case "stringValue", "string_value":
			t, _ := r.Str()
			is, num, text = wantText, 0, t
		default:
			r.Skip(0)
			if isValue(k) {
				is = wantOther
				if string(k) == "stringValueStrindex" || string(k) == "string_value_strindex" {
					is = wantNothing // an index into a table that traces do not have
				}
			}
		}
	}
	if r.Err == nil {
		a.store(s, is, num, text)
	}
}

// isValue reports that a key is one of the values of an AnyValue that no table needs.
func isValue(key []byte) bool {
	switch string(key) {
	case "boolValue", "bool_value", "arrayValue", "array_value", "kvlistValue", "kvlist_value", "bytesValue", "bytes_value",
		"stringValueStrindex", "string_value_strindex":
		return true
	}
	return false
}
