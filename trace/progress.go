package trace

// Progress is a function that long work calls to show how far it is: done of total in unit ("B",
// "fits", "runs", ...) are finished. A total of 0 is unknown. It may be called from several
// goroutines. A nil Progress is not called.
type Progress func(stage string, done, total int64, unit string)

// Report calls p unless it is nil.
func (p Progress) Report(stage string, done, total int64, unit string) {
	if p != nil {
		p(stage, done, total, unit)
	}
}
