package ridge

import "gonum.org/v1/gonum/floats"

// sumProducts is the sum of x*y, in the order of lanes.
func sumProducts(x, y []float64) float64 { return floats.Dot(x, y) }
