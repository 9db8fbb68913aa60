// Package features turns one step, or one request's view of the queue, into the physics-normalised
// feature vector of docs/spec.md. It is pure: immutable configuration and input in, numbers out. The
// trainer and the simulator call the same functions, so a coefficient means the same in both. A
// [Version] selects the vector: 1.0 (frozen, errors included), 1.1 (corrected), 1.2 (more step slots),
// 1.3 (sums over layers), or experimental (1.3 and the terms that are being tried).
//
//	sp, err := features.New(features.V11, dep)   // derived constants, deployment checked
//	in := sp.Sum(chunks)                         // a batch as sums
//	hits, err := sp.Beta(&in, x)                 // x []float64, len(sp.BetaFeatures())
//	hits, err := sp.Alpha(&q, x)                 // hits: the slots that reached their bound
//	ema = features.EMA(ema, gamma, numPreempted, runningDepth)
//
// # What a slot is
//
// [BetaFeatures] and [AlphaFeatures] list the slots of a version: the files version10.go to
// version13.go hold one Go list each. A [Feature] carries name, kind, unit, sign, penalty, bound,
// formula, one sentence for people and its function, so that the fit, the artifact, the report and
// `blis-train features` need no table of their own. Time-like slots are seconds at peak rates: a
// coefficient of 1e6 us/s is exactly the roofline, 1.67e6 is 60 % efficiency. All others are
// dimensionless and their coefficients are microseconds.
//
// The functions of one family of slots share a file (step_terms.go, queue_terms.go, slots12.go, layers.go).
// The doc comment of each has the formula, its unit, its source, what bounds it and what it
// omits. Tests check every stated bound and evaluate every formula as text against the function.
// A new feature is one file, one line in list.go and one test; the lengths of all vectors follow
// from the lists.
//
// # What it promises and refuses
//
// Beta and Alpha allocate nothing unless they fail. Contradictory, negative,
// NaN or infinite inputs are errors with a code, never values. A value above
// its bound is clipped and its slot named: training drops such a row,
// prediction warns.
package features
