//go:build !amd64

package ridge

// sumProducts is the sum of x*y, in the order of lanes.
func sumProducts(x, y []float64) float64 { return lanes(x, y) }
