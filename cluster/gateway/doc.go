// Package gateway is what stands before several engines: what it may know, which
// requests it lets in, and where it sends them. It is pure and no engine reaches it:
// engines live in package cluster, which imports this one, so no policy can read an
// engine's hidden state or the length of an answer that is still to come.
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
package gateway

import "github.com/blis-train/blis-train/trace"

// CodeBadSpec is a cluster, a policy or a routing that is impossible.
const CodeBadSpec trace.Code = "bad_cluster_spec"

// Codes describes this package's codes.
var Codes = []trace.CodeEntry{{Code: CodeBadSpec, Kind: "error",
	Meaning: "cluster.yaml or a cluster flag says something impossible of the engines, the admission or the routing",
	Action:  "correct the named field; docs/clusters.md lists them"}}
