package source

// Format is one form of file among those that a package reads. R is the type of its reader, and
// a package lists its formats in one slice.
type Format[R any] struct {
	Name string // as docs/formats.md and errors list it

	// Sniff reports whether a file is of this form, by its beginning without leading space.
	Sniff func(head []byte) bool

	// IsGuess marks a form whose beginning proves little. It is tried only for files that
	// somebody named as being of this kind, never for files that lie in a run folder.
	IsGuess bool

	Read R
}

// FormatOf returns the first of formats whose Sniff accepts the beginning of a file, guesses
// included; nil for none.
func FormatOf[R any](formats []Format[R], head []byte) *Format[R] {
	for i := range formats {
		if formats[i].Sniff(head) {
			return &formats[i]
		}
	}
	return nil
}

// IsProven reports whether the beginning of a file proves that it has one of formats.
func IsProven[R any](formats []Format[R], head []byte) bool {
	for i := range formats {
		if !formats[i].IsGuess && formats[i].Sniff(head) {
			return true
		}
	}
	return false
}
