package coeff

// Regimes of a step: what kind of sequences it runs. Coefficient sets have residual quantiles for each.
const (
	RegimeDecode  = "decode"  // decodes alone
	RegimeMixed   = "mixed"   // both
	RegimePrefill = "prefill" // prefills alone
)
