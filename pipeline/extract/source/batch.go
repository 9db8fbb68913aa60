package source

import (
	"fmt"

	"github.com/blis-train/blis-train/trace"
)

// blockBytes is the amount of a file that is read at once, and the least size of a batch of lines.
const blockBytes = 1 << 20

// batch is a piece of one input that a worker can parse alone: whole lines, or whole messages.
type batch struct {
	File    int32 // place of the file among the inputs
	form    form
	data    []byte
	skipped int64   // lines of the file that are in no batch, since the batch before
	ends    []int   // end of each message in data (formProto, formFramed)
	offset  int64   // of data in the decompressed stream
	faults  []fault // places that the reader could not read
	lost    int64   // lines or messages of which there is only a fault
	maxLine int64   // limit of the bytes of a line
	passed  int64   // bytes of a line that is too long, of which there is only a fault
	read    int64   // bytes of the file consumed so far
	link    hashLink
	isLong  bool // it occupies the one place for long lines
}

// longBytes is the size from which a line or message is long. Only one long line at a time is in
// memory, whatever the number of workers.
const longBytes = 8 << 20

// fault is a place in an input that could not be read.
type fault struct {
	code      trace.Code
	line      int64 // line or message, counted from 1 within the batch until Number was called
	col       int64
	offset    int64 // in the decompressed stream
	bytes     int64 // lost
	msg       string
	byMessage bool  // line counts messages
	isLast    bool  // the framing is lost with it, so nothing after it can be read
	more      int64 // further faults with the same message and size
}

func (f *fault) Error() string { return f.msg }

// orNil returns the batch, or nil for one without messages.
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

// lineTooLong is the fault of a line of more than limit bytes.
func lineTooLong(line, offset, bytes, limit int64) fault {
	return fault{code: CodeOverLimit, line: line, offset: offset, bytes: bytes,
		msg: fmt.Sprintf("line of more than %d bytes (--max-line)", limit)}
}
