package source

// HeadBytes is how much of the beginning of a file is read to recognise its form.
const HeadBytes = 1 << 15

// Format is one form of file that a package can read. R is the type of the function that reads it.
// A package lists its formats in one slice.
type Format[R any] struct {
	Name string // the name in docs/formats.md and in errors

	// Sniff reports whether a file has this form. head is its beginning without leading space.
	Sniff func(head []byte) bool

	// IsGuess marks a form that the beginning of a file does not prove. It is tried only for files
	// that the user named as files of this kind, not for files found in a run folder.
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
