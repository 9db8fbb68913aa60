package draw

import (
	"math"
)

// MaxCurve is the most points one line may have.
const MaxCurve = 240

// Sparse keeps at most maxCurve points, the first and the last among them.
func Sparse(xy [][2]float64) [][2]float64 {
	if len(xy) <= MaxCurve {
		return xy
	}
	out := make([][2]float64, 0, MaxCurve)
	for i := range MaxCurve {
		out = append(out, xy[i*(len(xy)-1)/(MaxCurve-1)])
	}
	return out
}

// Span is the smallest and largest finite value seen.
type Span struct {
	Lo, Hi float64
	Ok     bool
}

func (s *Span) Take(vs ...float64) {
	for _, v := range vs {
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0):
		case !s.Ok:
			s.Lo, s.Hi, s.Ok = v, v, true
		default:
			s.Lo, s.Hi = math.Min(s.Lo, v), math.Max(s.Hi, v)
		}
	}
}

// TakePositive is take for log axes.
func (s *Span) TakePositive(vs ...float64) {
	for _, v := range vs {
		if v > 0 {
			s.Take(v)
		}
	}
}
