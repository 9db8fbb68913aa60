// Package scaler writes the files of autoscalers: one writer for each, whether the numbers
// come from a physics fit (fit.json) or from a queueing calibration (queue.json).
//
//	forms.go     the files as their readers define them
//	readers.go   which version of which reader takes which file
//	queue.go     queue.json -> any of the files
//	tuner.go     the forms of online tuners
//
// In goes a result.Queue, out come bytes and a line that says who reads them. What is
// refused: a version of the reader that no longer takes the file, a flavour that is not the
// reader's, a server without parameters, and forms that lack what they must have; each says
// why. docs/contracts/autoscaler.yaml is the contract the forms are tested against.
package scaler
