package result

// This file lists what changed since an older validation.

// Kinds of a Change.
const (
	ChangeVerdict = "verdict" // of a purpose
	ChangeGate    = "gate"
	ChangeTerm    = "coefficient"
)

// Changes are the differences between a validation and an older one. They are shown by the report
// and on the terminal, and are in no document.
type Changes struct {
	Against string   // the file or folder compared with
	Rows    []Change // verdicts, gates and coefficients that changed, the most important first
	Same    int      // figures in both that did not change
	Notes   []string // what could not be compared, and why
}

// Change is one figure before and after.
type Change struct {
	Kind, Name, Scope string
	Unit              string // of a coefficient
	Old, New          *float64
	// Was and Is are the verdicts before and after; empty for coefficients.
	Was, Is string
	P       *float64 // of a coefficient: two-sided p-value of the change; nil: unknown
}
