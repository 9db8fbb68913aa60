package ridge

// lanes is the sum of x*y, four sums of every fourth product added at the end: the order
// of gonum's kernel on amd64, so that every architecture sums alike.
func lanes(x, y []float64) float64 {
	y = y[:len(x)]
	var a, b, c, d float64
	i := 0
	for ; i+4 <= len(x); i += 4 {
		a += x[i] * y[i]
		b += x[i+1] * y[i+1]
		c += x[i+2] * y[i+2]
		d += x[i+3] * y[i+3]
	}
	for ; i < len(x); i++ {
		a += x[i] * y[i]
	}
	return (a + c) + (b + d)
}
