// Package coeff holds the noun Set: named coefficients with unit, spec version, provenance and
// uncertainty (spec#artifact), with a strict [Load], an exact [Set.Save] and the one predictor that
// teacher-forced validation and the simulator both use.
//
// A coefficient means what its name says. Position alone never decides: on
// load, lengths, names, order and units are compared with the slots of the
// file's spec version, and every way to be wrong has a code of its own. A
// delay that contains a wait cannot be marked as one to replay, because a
// simulator that produces the wait would count it twice.
//
// A [Predictor] is a Set bound to one model. It is the place where a
// prediction is clipped and counted (a step lasts at least 1 us, a delay is
// never negative) and where a user learns, once per slot, that a feature lies
// beyond 1.5 times its training maximum, that a term was never learned, or that
// a feature was bounded.
//
// The file format is docs/coefficients.md, its JSON schema
// docs/schema/coefficients.schema.json; the example of [Load] is a simulator's
// inner loop.
package coeff
