package source

import (
	"fmt"

	"github.com/blis-train/blis-train/trace"
)

// blockBytes is how much of a file is read at once, and the least size of a
// batch of lines: what one worker parses at a time.
const blockBytes = 1 << 20

// batch is a piece of one input that a worker can parse alone: whole lines, or
// whole messages.
type batch struct {
	File    int32
	form    form
	data    []byte
	skipped int64   // lines of the file that no batch holds, before this one
	ends    []int   // end of each message in data (proto, framed)
	offset  int64   // of data in the decompressed stream
	faults  []fault // what the reader could not hand over
	lost    int64   // lines or messages that are faults only
	maxLine int64   // bytes of a line
	passed  int64   // bytes of a line that is a fault only
	read    int64   // bytes of the file consumed so far
	link    hashLink
	isLong  bool // it holds the one place for long lines
}

// longBytes is where a line or message is long: one of them at a time is in
// memory, however many workers there are.
const longBytes = 8 << 20

// fault is a place in an input that could not be read.
type fault struct {
	code      trace.Code
	line      int64 // line or message, from 1 within the batch until it is numbered
	col       int64
	offset    int64
	bytes     int64 // lost
	msg       string
	byMessage bool  // line counts messages
	isLast    bool  // the framing is lost with it
	more      int64 // faults of the same words and length behind it
}

func (f *fault) Error() string { return f.msg }

// orNil is the batch, nil when it is empty.
func (b *batch) orNil() *batch {
	if len(b.ends) == 0 {
		return nil
	}
	return b
}

// lose adds a message that could not be read.
func (b *batch) lose(f fault) {
	f.line, f.byMessage = int64(len(b.ends))+1, true
	b.faults = append(b.faults, f)
	b.lost++
}

// tooLong is the fault of a line of more than limit bytes.
func tooLong(line, offset, bytes, limit int64) fault {
	return fault{code: CodeOverLimit, line: line, offset: offset, bytes: bytes,
		msg: fmt.Sprintf("line of more than %d bytes (--max-line)", limit)}
}

func (b *batch) hash() { b.link.finish() }
