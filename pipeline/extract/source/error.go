package source

// MaxDepth bounds the nesting of skipped JSON and protobuf values. Real dumps
// nest to about 12.
const MaxDepth = 512

// Error is a fault inside one message: what, at which byte of it.
type Error struct {
	At  int // offset in the message
	Msg string
}

func (e *Error) Error() string { return e.Msg }
