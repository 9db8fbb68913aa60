package trace

// Progress tells a caller how far long work has come: done of total in unit
// ("B", "fits", "runs", …); total 0 means unknown. A nil Progress is silent.
// It may be called from several goroutines.
type Progress func(stage string, done, total int64, unit string)

// Report calls p unless it is nil.
func (p Progress) Report(stage string, done, total int64, unit string) {
	if p != nil {
		p(stage, done, total, unit)
	}
}
