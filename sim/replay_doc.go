// Package replay judges a candidate set of coefficients by replaying measured
// requests: how far the simulated times are from the measured ones, and, for
// linear latency models, the normal equations of the step that brings them
// nearer.
//
// # Objective
//
// The mean of Huber(log simulated - log measured) over TTFT, span (first to last
// token) and E2E of every request that has them, plus half the sum of |log ratio|
// of their 50, 90 and 99 % quantiles. It is relative, so that short requests
// count as much as long ones, and it sees distributions as well as pairs. What a
// replay does not finish counts as wrong by a factor of 100 and never drops out.
// Every pair adds to it and nothing takes away, so a losing candidate is stopped
// as soon as the pairs seen so far exceed the bound.
//
// # Twins
//
// A replay is a step function of the coefficients. Twins are the same requests
// sent a little earlier or later; their mean is smoother, and their spread is how
// near any coefficients can come. The jitter of a request depends on the seed, the
// twin and the request alone, so that all candidates meet the same draws.
//
// It is pure.
package sim
