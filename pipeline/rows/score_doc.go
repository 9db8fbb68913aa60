// Package score says how far predictions are from training rows, in the form of
// the documents. fit.json and validation.json print what it returns, so that one
// name is one figure in both.
//
// What comes in are samples: the rows of one run with what is predicted of them
// and which of them judge it. Samples of one configuration make a group: they
// share the best constant, made from the rows that trained, and the noise floor,
// made from the nearest rows of the group. A run that the coefficients never saw
// is a group of its own.
//
//	judge  := score.NewSteps(groups, true, workers) // step times
//	errors := judge.Errors(nil)                     // all judged rows
//	cells  := judge.Cells(sample)                   // by regime and stress set
//	delays := score.NewDelays(groups)               // an alpha target
//
// Rows are visited in the order of the groups, so nothing depends on the number
// of workers.
package rows
