package result

// Kinds of a Change.
const (
	ChangeVerdict = "verdict" // of a purpose
	ChangeGate    = "gate"
	ChangeTerm    = "coefficient"
)

// Changes are the differences between a validation and an older one. The report and the terminal show them;
// there is no document with them.
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
	// Was and Is are verdicts: pass, fail and the like; empty for coefficients.
	Was, Is string
	P       *float64 // of a coefficient: two-sided, of no change; nil: unknown
}
