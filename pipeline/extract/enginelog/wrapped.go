package enginelog

// This file takes a log line out of the JSON that a collector or logger put around it.

import (
	"bytes"
	"slices"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// Members of the JSON that collectors and loggers put around a line: the text, and its stamp.
var (
	textMembers  = []string{"log", "MESSAGE", "message", "msg"}
	stampMembers = []string{"time", "__REALTIME_TIMESTAMP", "asctime", "timestamp", "ts", "@timestamp"}
)

// unwrap returns the text of a log line and its stamp from the JSON around it: Docker's json-file
// ({"log","stream","time"}), journald's JSON or vLLM's own JSON logging. A line that is not such an
// object is returned unchanged.
func unwrap(line []byte) (text []byte, written stamp) {
	trimmed := bytes.TrimLeft(line, " \t\ufeff")
	if len(trimmed) == 0 || trimmed[0] != '{' {
		return line, stamp{}
	}
	text = line
	c := source.Cursor{B: trimmed}
	for key := range c.Members {
		switch name := string(key); {
		case slices.Contains(textMembers, name):
			if message := readMessage(&c); formOf(message) != nil { // an object may have several of them
				text = message
			}
		case slices.Contains(stampMembers, name):
			written = written.finer(readStamp(&c))
		default:
			c.Skip(0)
		}
	}
	return text, written
}

// readMessage returns a message: a string, or the bytes in an array, which journald writes if the
// message has escape sequences.
func readMessage(c *source.Cursor) []byte {
	switch c.Peek() {
	case '"':
		text, _ := c.Str()
		return bytes.Clone(text)
	case '[':
		c.Take('[')
		var out []byte
		for first := true; c.More(']', &first); {
			v, ok := c.Int64()
			if !ok || v < 0 || v > 255 {
				return nil
			}
			out = append(out, byte(v))
		}
		return out
	}
	c.Skip(0)
	return nil
}

// readStamp returns a stamp that is written as a string or a number.
func readStamp(c *source.Cursor) stamp {
	switch ch := c.Peek(); {
	case ch == '"':
		text, _ := c.Str()
		return parseStamp(text)
	case ch == '-' || ch-'0' <= 9:
		number, _ := c.Number()
		return parseStamp(number)
	}
	c.Skip(0)
	return stamp{}
}
