package reconstruct

// Rules by which a lag is found (spec#lag): by how many steps execution is behind scheduling, or by how many lines a
// logged time is behind its batch. The lag with the smallest error counts if this error is clearly the smallest.
const (
	Lags      = 3   // that are tried: 0, 1 and 2
	LagMargin = 0.8 // the smallest error must be at most this times the second smallest
	LagRows   = 20  // steps with prefill that an error needs
)
