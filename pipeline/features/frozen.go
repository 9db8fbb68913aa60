package features

// bound10 is 1.0's one clamp (spec#frozen-guards).
const bound10 = 100

// boundS is the upper bound of a time-like feature in 1.1 (spec#bounds): one hour.
const boundS = 3600

// frozen makes the 1.0 form of a slot: same name, the frozen formula, the frozen clamp. Kind, sign
// and penalty belong to the recipe of 1.1 (spec#recipe) and are carried along for fits that cross
// the two.
func (f Feature) frozen(formula string) Feature {
	f.Bound = bound10
	f.Formula = formula
	f.beta, f.alpha = nil, nil
	return f
}

func (f Feature) withBeta(fn func(*Space, *StepInput) float64) Feature {
	f.beta = fn
	return f
}

func (f Feature) withAlpha(fn func(*Space, *QueueInput) float64) Feature {
	f.alpha = fn
	return f
}

// withKind changes the kind where 1.0 measures something else in the slot.
func (f Feature) withKind(k Kind) Feature {
	f.Kind = k
	return f
}
