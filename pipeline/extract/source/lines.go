package source

// Lines are the records that a decoder finds in a batch of lines, for decoders that make rows of one
// type. It implements what Stream asks of records.
type Lines[T any] struct {
	Rows   []T
	Bad    []BadLine
	Other  int64           // lines without a record
	line   func(*T) *int64 `packed:"-"` // the field of a row that holds its line
	before struct {        // the lengths at the last Mark
		rows, bad int
		other     int64
	}
}

// BadLine is a record that could not be read whole.
type BadLine struct {
	Line int64
	What string
}

// Mark begins a message.
func (l *Lines[T]) Mark() {
	l.before.rows = len(l.Rows)
	l.before.bad = len(l.Bad)
	l.before.other = l.Other
}

// Undo forgets the records of a message that turned out to be broken.
func (l *Lines[T]) Undo() {
	l.Rows = l.Rows[:l.before.rows]
	l.Bad = l.Bad[:l.before.bad]
	l.Other = l.before.other
}

// Keep sets the line of the records of a message.
func (l *Lines[T]) Keep(line int64) {
	for i := l.before.rows; i < len(l.Rows); i++ {
		*l.line(&l.Rows[i]) = line
	}
	for i := l.before.bad; i < len(l.Bad); i++ {
		l.Bad[i].Line = line
	}
}

// Number makes lines count from the start of the file, in which before lines precede the batch.
func (l *Lines[T]) Number(before int64) {
	for i := range l.Rows {
		*l.line(&l.Rows[i]) += before
	}
	for i := range l.Bad {
		l.Bad[i].Line += before
	}
}

// LineDecoder is the part of a [Decoder] that all decoders of lines share. It returns the field of a
// row that holds its line.
type LineDecoder[T any] func(*T) *int64

// Records makes the records of one batch.
func (d LineDecoder[T]) Records() *Lines[T] { return &Lines[T]{line: d} }

// Message refuses binary messages.
func (LineDecoder[T]) Message([]byte, *Lines[T]) *Error {
	return &Error{Msg: "got a length-prefixed message, want lines of text"}
}
