package source

// This file has what all decoders of plain lines share.

// Lines is the records in one batch of lines, for decoders that make rows of one type. Its methods
// are those that Stream requires of records.
type Lines[T any] struct {
	Rows   []T
	Bad    []BadLine
	Other  int64           // number of lines without a record
	line   func(*T) *int64 `packed:"-"` // the field of a row that holds its line
	before struct {        // lengths before the current message, to which Undo returns
		rows, bad int
		other     int64
	}
}

// BadLine is a record that is damaged.
type BadLine struct {
	Line int64
	What string
}

// Mark is called before each message.
func (l *Lines[T]) Mark() {
	l.before.rows = len(l.Rows)
	l.before.bad = len(l.Bad)
	l.before.other = l.Other
}

// Undo removes the records of the current message, because it turned out to be broken.
func (l *Lines[T]) Undo() {
	l.Rows = l.Rows[:l.before.rows]
	l.Bad = l.Bad[:l.before.bad]
	l.Other = l.before.other
}

// Keep sets the line of the records of the current message.
func (l *Lines[T]) Keep(line int64) {
	for i := l.before.rows; i < len(l.Rows); i++ {
		*l.line(&l.Rows[i]) = line
	}
	for i := l.before.bad; i < len(l.Bad); i++ {
		l.Bad[i].Line = line
	}
}

// Number makes lines count from the start of the file. before is the number of lines of the file
// before the batch.
func (l *Lines[T]) Number(before int64) {
	for i := range l.Rows {
		*l.line(&l.Rows[i]) += before
	}
	for i := range l.Bad {
		l.Bad[i].Line += before
	}
}

// LineDecoder has the methods that all [Decoder]s of lines share. The function returns the field of
// a row in which its line number is stored.
type LineDecoder[T any] func(*T) *int64

// Records returns an empty list for the records of one batch.
func (d LineDecoder[T]) Records() *Lines[T] { return &Lines[T]{line: d} }

// Message returns an error: these files have no binary messages.
func (LineDecoder[T]) Message([]byte, *Lines[T]) *Error {
	return &Error{Msg: "got a length-prefixed message, want lines of text"}
}
