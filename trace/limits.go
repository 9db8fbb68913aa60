package trace

// This file has the legal values of the columns of the tables.

import (
	"fmt"
	"math"
	"reflect"
	"unsafe"
)

// Range is an interval of legal values, both ends included. A value that is not finite is never in it.
type Range struct{ From, To float64 }

// day is 24 h in ns.
const day = 24 * 3600e9

// unitRange has the limits of values by the unit of their column (spec#value-limits).
var unitRange = map[string]Range{
	"tokens":   {0, 1 << 24},
	"requests": {0, 1 << 24},
	"blocks":   {0, 1 << 32},
	"us":       {0, day / 1e3},
	"ms":       {0, day / 1e6},
	"ns":       {0, 1 << 62},
	"s":        {0, 1 << 32},
	"1/s":      {0, 1 << 24},
	"tokens^2": {0, 1 << 48},
}

// columnRange has the limits of columns without a unit, and of those that may be above the limit of
// their unit: sums over a batch, and numbers of tokens that were asked for but need not have run.
// It precedes unitRange.
var columnRange = func() map[string]Range {
	ranges := map[string]Range{
		"kv_usage_ratio":        {0, 1},
		"status":                {0, 999}, // HTTP
		"max_tokens":            {0, 1 << 32},
		"decode_max_tokens":     {0, 1 << 32},
		"asked_tokens":          {0, 1 << 32},
		"context_kv_tokens":     {0, 1 << 40},
		"decode_kv_tokens":      {0, 1 << 40},
		"queued_context_tokens": {0, 1 << 40},
	}
	for _, name := range []string{
		"step_id", "step", "queued_step", "scheduled_step", "first_token_step", "finished_step", "iteration", "span_sequence",
	} {
		ranges[name] = Range{0, 1 << 53} // counters of the engine: integers that a float64 has exactly
	}
	for _, name := range []string{
		"num_preemptions", "preemptions", "n", "chunks", "copies", "encoder_inputs", "dp_rank", "turn",
	} {
		ranges[name] = Range{0, 1 << 24}
	}
	return ranges
}()

// RangeOf returns the range of legal values of a column of the tables, by its name or else by its
// unit. ok is false for a column without limits.
func RangeOf(column, unit string) (r Range, ok bool) {
	if r, ok = columnRange[column]; ok {
		return r, true
	}
	r, ok = unitRange[unit]
	return r, ok
}

// Check returns a message that describes how the value v of the column name is outside of the
// range; "" for a value inside. The ends of int64 are what [Int] returns for numbers that it cannot
// convert.
func (r Range) Check(name string, v float64) string {
	switch {
	case v >= r.From && v <= r.To:
		return ""
	case v == math.MinInt64 || v == math.MaxInt64 || math.IsNaN(v):
		return fmt.Sprintf("%s: got no number, or one beyond 64 bits, want %.10g to %.10g, whole if a count", name,
			r.From, r.To)
	}
	return fmt.Sprintf("%s: got %.10g, want %.10g to %.10g", name, v, r.From, r.To)
}

// Int returns v rounded to an integer. A number beyond int64 gives the nearer end of int64, and NaN
// the lower end; both are outside every range. Go does not define the result of such a conversion.
func Int(v float64) int64 {
	switch v = math.Round(v); {
	case v >= -math.MinInt64:
		return math.MaxInt64
	case v > math.MinInt64:
		return int64(v)
	}
	return math.MinInt64
}

// Count returns a number of things as an integer. For a number that is not whole it returns the
// lower end of int64, which is outside every range.
func Count(v float64) int64 {
	if v != math.Trunc(v) {
		return math.MinInt64
	}
	return Int(v)
}

// Ns returns a time in us as whole ns, truncated towards zero, with the limits of [Int].
func Ns(us float64) int64 { return Int(math.Trunc(us * 1000)) }

// Ranges checks that the numbers in rows of type T, the row type of one table, are within their
// limits.
type Ranges[T any] struct{ fields []rangedField }

// rangedField is a numeric column in the struct of a row.
type rangedField struct {
	name   string
	offset uintptr
	known  uintptr // offset of the flag OK of an Opt; 0 for a column that is always known
	kind   reflect.Kind
	Range
}

// RangesOf returns the ranges of the columns of T, which it finds by the tags `col` and `unit`.
func RangesOf[T any]() *Ranges[T] {
	out := &Ranges[T]{}
	t := reflect.TypeFor[T]()
	for i := range t.NumField() {
		f := t.Field(i)
		r, ok := RangeOf(f.Tag.Get("col"), f.Tag.Get("unit"))
		if !ok {
			continue
		}
		c := rangedField{name: f.Tag.Get("col"), offset: f.Offset, kind: f.Type.Kind(), Range: r}
		if f.Type.Kind() == reflect.Struct { // an Opt
			flag, _ := f.Type.FieldByName("OK")
			c.known = f.Offset + flag.Offset
			c.kind = f.Type.Field(0).Type.Kind()
		}
		out.fields = append(out.fields, c)
	}
	return out
}

// Check returns a message about the first value of the row outside of its range; "" if there is
// none.
func (s *Ranges[T]) Check(row *T) string {
	p := unsafe.Pointer(row)
	for i := range s.fields {
		f := &s.fields[i]
		if f.known != 0 && !*(*bool)(unsafe.Add(p, f.known)) {
			continue
		}
		at := unsafe.Add(p, f.offset)
		switch f.kind {
		case reflect.Int64:
			if v := *(*int64)(at); float64(v) < f.From || float64(v) > f.To {
				return f.Range.Check(f.name, float64(v))
			}
		case reflect.Int32:
			if v := *(*int32)(at); float64(v) < f.From || float64(v) > f.To {
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
