package trace

import (
	"fmt"
	"math"
	"reflect"
	"unsafe"
)

// Range is what a value may be, both ends included; one that is not finite is never in it.
type Range struct{ From, To float64 }

// day is 24 h in ns.
const day = 24 * 3600e9

// The limits of values that are read (spec#value-limits): by the unit of their column, and by the
// name of columns that have none, or that hold sums, or what was asked for and never ran.
var (
	unitRange = map[string]Range{"tokens": {0, 1 << 24}, "requests": {0, 1 << 24}, "blocks": {0, 1 << 32}, "us": {0, day / 1e3},
		"ms": {0, day / 1e6}, "ns": {0, 1 << 62}, "s": {0, 1 << 32}, "1/s": {0, 1 << 24}, "tokens^2": {0, 1 << 48}}
	count = Range{0, 1 << 24}
	step  = Range{0, 1 << 53}

	columnRange = map[string]Range{"step_id": step, "step": step, "queued_step": step, "scheduled_step": step, "first_token_step": step,
		"finished_step": step, "iteration": step, "span_sequence": step, "kv_usage_ratio": {0, 1}, "num_preemptions": count, "preemptions": count,
		"n": count, "status": {0, 999}, "chunks": count, "copies": count, "encoder_inputs": count, "dp_rank": count, "turn": count,
		"max_tokens": {0, 1 << 32}, "decode_max_tokens": {0, 1 << 32}, "asked_tokens": {0, 1 << 32}, "context_kv_tokens": {0, 1 << 40},
		"decode_kv_tokens": {0, 1 << 40}, "queued_context_tokens": {0, 1 << 40}}
)

// RangeOf is the range of a column of the tables; ok is false where any number will do.
func RangeOf(column, unit string) (r Range, ok bool) {
	if r, ok = columnRange[column]; !ok {
		r, ok = unitRange[unit]
	}
	return r, ok
}

// Check says in words how a value is outside; "" where it is not. The ends of int64 stand for
// what [Int] could not hold.
func (r Range) Check(name string, v float64) string {
	switch {
	case v >= r.From && v <= r.To:
		return ""
	case v == math.MinInt64 || v == math.MaxInt64 || math.IsNaN(v):
		return fmt.Sprintf("%s: got no number, or one beyond 64 bits, want %.10g to %.10g, whole if a count", name, r.From, r.To)
	}
	return fmt.Sprintf("%s: got %.10g, want %.10g to %.10g", name, v, r.From, r.To)
}

// Int is a float rounded to an integer. What none can hold becomes the end of int64 on its side,
// NaN the lower one; both are outside every range. Go leaves such conversions to the machine.
func Int(v float64) int64 {
	switch v = math.Round(v); {
	case v >= -math.MinInt64:
		return math.MaxInt64
	case v > math.MinInt64:
		return int64(v)
	}
	return math.MinInt64
}

// Count is a number of things: what is no whole number is outside every range.
func Count(v float64) int64 {
	if v != math.Trunc(v) {
		return math.MinInt64
	}
	return Int(v)
}

// Ns is a time in us as whole ns, cut towards zero, with the bounds of [Int].
func Ns(us float64) int64 { return Int(math.Trunc(us * 1000)) }

// Ranges finds values of rows of a table that no recording can hold.
type Ranges[T any] struct{ fields []ranged }

// ranged is a numeric column of rows in memory; known is the offset of its flag, 0 for none.
type ranged struct {
	name      string
	at, known uintptr
	kind      reflect.Kind
	Range
}

// RangesOf are the ranges of T's columns, by their tags.
func RangesOf[T any]() *Ranges[T] {
	out := &Ranges[T]{}
	t := reflect.TypeFor[T]()
	for i := range t.NumField() {
		f := t.Field(i)
		r, ok := RangeOf(f.Tag.Get("col"), f.Tag.Get("unit"))
		if !ok {
			continue
		}
		c := ranged{name: f.Tag.Get("col"), at: f.Offset, kind: f.Type.Kind(), Range: r}
		if flag, isOpt := (reflect.StructField{}), f.Type.Kind() == reflect.Struct; isOpt {
			flag, _ = f.Type.FieldByName("OK")
			c.known, c.kind = f.Offset+flag.Offset, f.Type.Field(0).Type.Kind()
		}
		out.fields = append(out.fields, c)
	}
	return out
}

// Check says in words which value of the row is outside its range first; "" where none is.
func (s *Ranges[T]) Check(row *T) string {
	p := unsafe.Pointer(row)
	for i := range s.fields {
		f := &s.fields[i]
		if f.known != 0 && !*(*bool)(unsafe.Add(p, f.known)) {
			continue
		}
		switch at := unsafe.Add(p, f.at); f.kind {
		case reflect.Int64:
			if v := *(*int64)(at); float64(v) < f.From || float64(v) > f.To {
				return f.Range.Check(f.name, float64(v))
			}
		case reflect.Float64:
			if v := *(*float64)(at); !(v >= f.From && v <= f.To) {
				return f.Range.Check(f.name, v)
			}
		case reflect.Slice:
			for _, v := range *(*[]float64)(at) {
				if why := f.Range.Check(f.name, v); why != "" {
					return why
				}
			}
		}
	}
	return ""
}
