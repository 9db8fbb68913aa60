// Package cluster is several engines behind one gateway, on one clock: a request
// arrives, is admitted or not, is routed, and reaches an engine; what users got out
// of it (goodput.go), cluster.yaml (spec.go) and simulate with one (simulate.go). The
// same input gives the same bytes.
//
// Events are ordered by time, then arrival before admission before routing before
// engines, then by sequence. Random draws are keyed by seed, stream and request, so
// that no decision shifts a later draw. The engines are sim's, unchanged: one instance
// alone gives the log of sim.Run.
//
// An experiment (experiment.go) runs a closed set of configurations on the same
// requests, seed by seed, and says which published statements the data confirm, refute,
// leave open, or cannot test (spec#experiment).
//
// A policy gets a [Request] and a [View] and nothing else, so none can read an engine's
// hidden state or the length of an answer that is still to come; policy clairvoyant, a
// control, is the exception (predictive.go).
//
// # What a policy may read
//
//   - Snapshots: the metrics of each instance as of its last scrape.
//   - The ledger: what the gateway saw itself, always fresh. Of each request it
//     sent and that is unfinished: class, time, prompt, expected cached tokens,
//     whether the first token came; of each class the output lengths of finished
//     requests.
//   - The index: which prompt blocks each instance probably has.
//   - The request: class, priority, prompt, content, target. It has no output length.
//
// # Admission
//
//	always-admit, token-bucket                   no prediction, no state of engines
//	slo-gated, gaie-legacy, probabilistic        thresholds on scraped metrics
//	latency-slo                                  llm-d's rule on predicted TTFT
//	predictive-seed                              a queue-length estimate, as it was published
//	predictive                                   a rollout with calibrated coefficients (spec#admission-predictive)
//	random-matched                               a control: another run's reject rates, by chance
package cluster
