// Package latency holds the models of how long a step executes and how long a
// request is outside the engine: sums over a batch in, microseconds out. The
// simulator drives its clock with them and predict asks them what a step would
// take; neither knows which model answers.
//
//	batch.go     a step as sums over its sequences
//	model.go     the interfaces: a step time, a delay, a recorded timeline
//	physics.go   a coefficient set through the trainer's features
//	basis.go     trained-physics and blackbox, the forms BLIS reads
//	roofline.go  the analytic model: nothing is fitted
//	recorded.go  the times of a trace, teacher-forced
//	draw.go      coefficients drawn from their covariance
//
// It is pure. A model keeps scratch space: one per run, or per goroutine.
package sim
