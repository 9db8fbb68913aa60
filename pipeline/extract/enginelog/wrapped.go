package enginelog

import (
	"bytes"
	"slices"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// Members of the JSON that collectors and loggers put around a line.
var (
	textMembers  = []string{"log", "MESSAGE", "message", "msg"}
	stampMembers = []string{"time", "__REALTIME_TIMESTAMP", "asctime", "timestamp", "ts", "@timestamp"}
)

// unwrap is the text of a line and the stamp beside it: of Docker's json-file
// ({"log","stream","time"}), journald's JSON and vLLM's own JSON logging; a line
// that is no JSON object is its own text.
func unwrap(line []byte) ([]byte, stamp) {
	trimmed := bytes.TrimLeft(line, " \t\ufeff")
	if len(trimmed) == 0 || trimmed[0] != '{' {
		return line, stamp{}
	}
	c := source.Cursor{B: trimmed}
	var text []byte
	var at stamp
	for key := range c.Members {
		switch name := string(key); {
		case slices.Contains(textMembers, name):
			if got := messageOf(&c); formOf(got) != nil {
				text = got
			}
		case slices.Contains(stampMembers, name):
			at = at.better(stampOf(&c))
		default:
			c.Skip(0)
		}
	}
	if text == nil {
		return line, at
	}
	return text, at
}

// messageOf reads a message: a string, or the bytes of one in an array, which
// journald writes when it holds escape sequences.
func messageOf(c *source.Cursor) []byte {
	if c.Peek() == '"' {
		v, _ := c.Str()
		return bytes.Clone(v)
	}
	if c.Peek() != '[' {
		c.Skip(0)
		return nil
	}
	var out []byte
	c.Take('[')
	for first := true; c.More(']', &first); {
		v, ok := c.Int64()
		if !ok || v < 0 || v > 255 {
			return nil
		}
		out = append(out, byte(v))
	}
	return out
}

func stampOf(c *source.Cursor) stamp {
	switch ch := c.Peek(); {
	case ch == '"':
		v, _ := c.Str()
		return parseStamp(v)
	case ch == '-' || ch-'0' <= 9:
		v, _ := c.Number()
		return parseStamp(v)
	}
	c.Skip(0)
	return stamp{}
}
