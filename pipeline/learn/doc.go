// Package learn makes coefficients from what requests experienced, when nobody
// traced the steps: a client's timings, stock spans, or the means of a few load
// levels (spec#request-level).
//
// For a known schedule every time a request shows is a linear function of the
// coefficients, so one replay gives residuals and exact derivatives. From there:
//
//	prior.go   what is believed before: the library, or the roofline; a first estimate
//	           without any replay: measured times say who decoded when, and a regression
//	           says what that cost
//	newton.go  Gauss-Newton through the simulator to the likeliest
//	           coefficients, given the prior and the requests; a derivative-free
//	           polish of the learned directions, kept only if requests held out
//	           agree; what the data show, in words, and what they do not
//	repeat.go  the bias of the equations, and intervals: recordings simulated as
//	           the server would make them
//	load.go    loads, also of a benchmark whose means alone are known; the whole of it,
//	           and coefficients as a fit
//
// It is pure.
package learn
