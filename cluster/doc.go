// Package cluster simulates several engines behind one gateway on one clock: a request arrives, is
// admitted or rejected, is routed, and reaches an engine. cluster.go is the event loop, spec.go reads
// cluster.yaml, policy.go and gate.go hold admission, route.go and llmd.go routing, goodput.go the
// results as users see them. The same input gives the same bytes.
//
// Events are ordered by time; at the same time arrivals come before admissions before routing before
// engines, then by sequence. Random draws are keyed by seed, stream and request, so that no decision
// shifts a later draw. The engines are those of package sim: a single instance gives the log of sim.Run.
//
// An experiment (experiment.go) runs a closed set of configurations on the same requests, seed by seed,
// and decides for each published statement whether the data confirm it, refute it, leave it open or
// cannot test it (spec#experiment).
//
// # What a policy may read
//
// A policy gets a [Request] and a [View] and nothing else, so it cannot read an engine's hidden state or
// the length of an answer that is still to come. The exception is the control policy clairvoyant
// (predictive.go).
//
//   - Snapshots: the metrics of each instance as of its last scrape.
//   - The ledger: what the gateway saw itself, always up to date. Of each unfinished request it sent:
//     class, time, prompt, expected cached tokens, and whether the first token came; of each class the
//     output lengths of finished requests.
//   - The index: which prompt blocks each instance probably has.
//   - The request: class, priority, prompt, content, target. It has no output length.
//
// # Admission
//
//	always-admit, token-bucket                   no prediction, no state of engines
//	slo-gated, gaie-legacy, probabilistic        thresholds on scraped metrics
//	latency-slo                                  llm-d's rule on predicted TTFT
//	predictive-seed                              the queue-length estimate of the publication
//	predictive                                   a rollout with calibrated coefficients (spec#admission-predictive)
//	random-matched                               a control: rejects at random, at another run's rates
package cluster
