package source

// Lines are what a decoder finds in a batch of lines.
type Lines[T any] struct {
	Rows   []T
	Bad    []BadLine
	Other  int64           // lines that hold nothing of use
	line   func(*T) *int64 `packed:"-"`
	before struct {
		rows, bad int
		other     int64
	}
}

// BadLine is a record that could not be read whole.
type BadLine struct {
	Line int64
	What string
}

// Mark notes where a message begins.
func (l *Lines[T]) Mark() {
	l.before.rows, l.before.bad, l.before.other = len(l.Rows), len(l.Bad), l.Other
}

// Undo forgets what a broken message gave.
func (l *Lines[T]) Undo() {
	l.Rows, l.Bad, l.Other = l.Rows[:l.before.rows], l.Bad[:l.before.bad], l.before.other
}

// Keep gives what a message gave its line.
func (l *Lines[T]) Keep(line int64) {
	for i := l.before.rows; i < len(l.Rows); i++ {
		*l.line(&l.Rows[i]) = line
	}
	for i := l.before.bad; i < len(l.Bad); i++ {
		l.Bad[i].Line = line
	}
}

// Number makes lines count from the file's start: so many stand before the batch.
func (l *Lines[T]) Number(before int64) {
	for i := range l.Rows {
		*l.line(&l.Rows[i]) += before
	}
	for i := range l.Bad {
		l.Bad[i].Line += before
	}
}

// LineDecoder is the part of a [Decoder] that those of lines share; it finds the line of a row.
type LineDecoder[T any] func(*T) *int64

// Records is what a batch gives.
func (d LineDecoder[T]) Records() *Lines[T] { return &Lines[T]{line: d} }

// Message refuses what is no line.
func (LineDecoder[T]) Message([]byte, *Lines[T]) *Error {
	return &Error{Msg: "got a length-prefixed message, want lines of text"}
}
