// Package features turns one step, or one request's view of the queue, into
// the physics-normalised feature vector of design 01, versions 1.0 (frozen
// text, errors included) and 1.1 (corrected). It is pure: immutable
// configuration and input in, numbers out; the trainer and the simulator call
// the same functions.
//
// The API other rooms use:
//
//	sp, err := features.New(features.V11, dep)   // derived constants, checked (K-4, K-5)
//	hits, err := sp.Beta(&in, x)                 // x []float64, len(sp.BetaFeatures())
//	hits, err := sp.Alpha(&q, x)                 // hits: bit s-1 set when slot s hit its bound
//	features.BetaFeatures(v), AlphaFeatures(v)   // []Feature: name, unit, kind, sign, penalty, bound, doc
//	features.Sum(v, chunks)                      // []trace.Chunk -> StepInput sums (S-3 or S-9's chunk part)
//	features.EMA(prev, gamma, numPreempted, runningDepth)
//
// Beta and Alpha allocate nothing.
package features
