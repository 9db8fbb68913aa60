package source

import (
	"fmt"

	"github.com/blis-train/blis-train/trace"
)

// This file has the batch, the unit in which workers read and parse an input, and its faults.

// blockBytes is the number of bytes that are read at once, and the size from which a batch is
// complete.
const blockBytes = 1 << 20

// batch is a piece of one input that a worker can parse without the rest: whole lines or whole
// messages.
type batch struct {
	File     int32 // place of the file among the inputs
	form     form
	data     []byte
	skipped  int64    // lines since the previous batch that are in no batch
	unbroken int      // bytes at the start of data that are known to have no newline (formLines)
	ends     []int    // offset in data of the end of each message (formProto, formFramed)
	offset   int64    // of data in the decompressed stream
	faults   []fault  // places that the reader could not read
	lost     int64    // lines or messages that are not in data, only in faults
	maxLine  int64    // limit of the bytes of a line
	passed   int64    // bytes of a line that was too long and is not in data
	read     int64    // bytes of the file consumed so far
	link     hashLink // this batch's share in hashing the file
	isLong   bool     // it has more than longBytes, and no other such batch may be read before it is done
}

// longBytes is the size from which a line or message counts as long. Only one long batch at a time
// is in memory, so that the number of workers does not multiply the longest line.
const longBytes = 8 << 20

// fault is a place of an input that could not be read.
type fault struct {
	code      trace.Code
	line      int64 // line or message, counted from 1 within the batch until Number was called
	col       int64
	offset    int64 // in the decompressed stream
	bytes     int64 // number of bytes lost
	msg       string
	byMessage bool  // line counts messages
	isLast    bool  // nothing after it can be read, because the framing is lost
	more      int64 // further faults with the same message and size
}

// Error returns the message.
func (f *fault) Error() string { return f.msg }

// orNil returns the batch, or nil for one without messages.
func (b *batch) orNil() *batch {
	if len(b.ends) == 0 {
		return nil
	}
	return b
}

// lose adds the fault of a message that could not be read.
func (b *batch) lose(f fault) {
	f.line = int64(len(b.ends)) + 1
	f.byMessage = true
	b.faults = append(b.faults, f)
	b.lost++
}

// lineTooLong returns the fault of a line of more than limit bytes.
func lineTooLong(line, offset, bytes, limit int64) fault {
	return fault{code: CodeOverLimit, line: line, offset: offset, bytes: bytes,
		msg: fmt.Sprintf("line of more than %d bytes (--max-line)", limit)}
}
