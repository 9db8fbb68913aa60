// Package formats writes the files of autoscalers, whether the numbers come from a
// physics fit (fit.json) or from a queueing calibration (queue.json).
//
//	writers.go    the formats, their options, and what each makes of which document
//	forms.go      the files as their readers define them
//	readers.go    which version of which reader takes which file
//	calibration.go, tuner.go  queue.json -> files
//	wva.go, inferno.go, linear.go, accelerator.go  fit.json -> files
//
// What is refused: a version of the reader that no longer takes the file, a flavour that
// is not the reader's, a server without parameters, and forms that lack what they must
// have; each says why. docs/contracts/autoscaler.yaml is the contract the forms are tested against.
package autoscale
