package trace

// This file has the type of values that may be unknown.

import (
	"bytes"
	"encoding/json"
)

// Opt is a value that may be unknown. The zero Opt is unknown, and null in files.
type Opt[T any] struct {
	V  T    // the zero T if it is unknown
	OK bool // V is known
}

// Some returns a known value.
func Some[T any](v T) Opt[T] { return Opt[T]{V: v, OK: true} }

// Or returns the value, or def if it is unknown.
func (o Opt[T]) Or(def T) T {
	if o.OK {
		return o.V
	}
	return def
}

// MarshalJSON returns the JSON of the value, or null if it is unknown.
func (o Opt[T]) MarshalJSON() ([]byte, error) {
	if !o.OK {
		return []byte("null"), nil
	}
	return json.Marshal(o.V)
}

// UnmarshalJSON sets the value from JSON. It reads null as unknown.
func (o *Opt[T]) UnmarshalJSON(b []byte) error {
	if bytes.Equal(bytes.TrimSpace(b), []byte("null")) {
		*o = Opt[T]{}
		return nil
	}
	o.OK = true
	return json.Unmarshal(b, &o.V)
}

// MarshalYAML returns the value, or nil (null) if it is unknown.
func (o Opt[T]) MarshalYAML() (any, error) {
	if !o.OK {
		return nil, nil
	}
	return o.V, nil
}
