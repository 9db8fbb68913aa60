// Package track estimates the parameters of a queueing model from what a server
// did, window by window. It is pure: samples in, estimates out.
//
//	window.go   requests -> windows: rate, lengths, mean TTFT and ITL with standard errors
//	batch.go    windows -> parameters: robust least squares in log parameters
//	identify.go what the windows cannot tell apart, in words, and the sweep that would
//	filter.go   the extended Kalman filter both trackers share
//	replica.go  the autoscalers' online tuner, bug for bug
//	robust.go   ours: measured noise, log state, iterated update, a gate that opens
//	sliding.go  a refit over the last windows
//	summary.go  how consistent a filter's run was
//
// # What a window can say
//
// Each window gives two numbers, the means of TTFT and ITL, for three or four
// parameters. At one operating point (rate, prompt and output length fixed) the
// two numbers stay the same whatever the number of windows, so one direction of
// the parameters is never seen. [Fit] says which one in words, holds it at
// physical values when it is given some, and refuses without ([NoWindows]).
//
// # What is promised
//
// Every window is kept or dropped for a counted reason. The same windows give
// the same numbers. Nothing panics above capacity, where the autoscalers' own
// code returns nothing.
package autoscale
