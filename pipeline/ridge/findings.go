package ridge

// Finding codes and error codes of this package. The caller owns their words.
const (
	TooFewRows           = "too_few_rows"           // a run has fewer rows than blocks
	LambdaAtEdge         = "lambda_at_edge"         // the chosen lambda is the first or last of the grid
	IntervalNotConverged = "interval_not_converged" // 10,000 passes without a certificate
	CertificateFailed    = "certificate_failed"     // the gradient at the answer is not that of a minimum
)

// Finding is a coded warning that does not stop a fit.
type Finding struct {
	Code    string
	Message string
	Config  int32 // configuration it is about, -1: none
	Run     int32 // run it is about, -1: none
}

// Error is a coded failure.
type Error struct {
	Code string
	Msg  string
}

// Error returns the code and the message.
func (e *Error) Error() string { return "ridge: " + e.Code + ": " + e.Msg }
