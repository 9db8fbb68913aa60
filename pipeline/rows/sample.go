package rows

// Part says which rows of a sample judge.
type ScorePart uint8

// The parts.
const (
	HoldOut  ScorePart = iota // the last rows of each phase, which trained nothing
	Training                  // the others
	Whole                     // all: the run trained nothing
)

// Sample is the rows of one run with what is predicted of them.
type Sample struct {
	Table *Table
	Pred  []float64 // us, one per row
	Beta  []float64 // the coefficients behind Pred on the run's device; step times only
	Part  ScorePart
}

// Judges reports whether row i judges the predictions.
func (s *Sample) Judges(i int) bool {
	return s.Part == Whole || s.Table.HoldOut[i] == (s.Part == HoldOut)
}

// trained reports whether row i may tell the best constant.
func (s *Sample) trained(i int) bool { return s.Part == Whole || !s.Table.HoldOut[i] }

// each visits the judged rows.
func (s *Sample) each(visit func(i int)) {
	for i := range s.Table.Kept {
		if s.Judges(i) {
			visit(i)
		}
	}
}
