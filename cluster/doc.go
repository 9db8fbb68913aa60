// Package cluster is several engines behind one gateway, on one clock: a request
// arrives, is admitted or not, is routed, and reaches an engine; what users got out
// of it (goodput.go), cluster.yaml (spec.go) and simulate with one (simulate.go). The
// same input gives the same bytes.
//
// Events are ordered by time, then arrival before admission before routing before
// engines, then by sequence. Random draws are keyed by seed, stream and request, so
// that no decision shifts a later draw. What policies may read is in cluster/gateway;
// the engines are sim's, unchanged: one instance alone gives the log of sim.Run.
package cluster
