package sim

import "strconv"

// Attributes and events as OTLP JSON: 64-bit integers are strings, wall stamps
// are strings, doubles are numbers.

type buffer []byte

func (b *buffer) raw(s string) { *b = append(*b, s...) }

func (b *buffer) num(n int64) { *b = strconv.AppendInt(*b, n, 10) }

func (b *buffer) quoted(s string) { *b = strconv.AppendQuote(*b, s) }

func (b *buffer) key(name string) {
	if n := len(*b); n > 0 && (*b)[n-1] == '}' {
		b.raw(",")
	}
	b.raw(`{"key":"`)
	b.raw(name)
	b.raw(`","value":{"`)
}

func (b *buffer) int(name string, v int64) {
	b.key(name)
	b.raw(`intValue":"`)
	b.num(v)
	b.raw(`"}}`)
}

func (b *buffer) text(name, v string) {
	b.key(name)
	b.raw(`stringValue":`)
	b.quoted(v)
	b.raw(`}}`)
}

func (b *buffer) double(name string, v float64) {
	b.key(name)
	b.raw(`doubleValue":`)
	*b = strconv.AppendFloat(*b, v, 'g', -1, 64)
	b.raw(`}}`)
}

// event starts an event; the attributes and "]}" follow.
func (b *buffer) event(wallNs int64, name string) {
	b.raw(`{"timeUnixNano":"`)
	b.num(wallNs)
	b.raw(`","name":"`)
	b.raw(name)
	b.raw(`","attributes":[`)
}

func (b *buffer) end() { b.raw(`]}`) }
