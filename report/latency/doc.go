// Package latency writes the page of a race of latency predictors from its
// document; no arithmetic of its own.
package latency
