// Package admission decides which requests a gateway lets in. It is pure: a policy
// reads a gateway.View and nothing else.
//
//	always-admit, token-bucket                   no prediction, no state of engines
//	slo-gated, gaie-legacy, probabilistic        thresholds on scraped metrics
//	latency-slo                                  llm-d's rule on predicted TTFT
//	predictive-seed                              a queue-length estimate, as it was published
//	predictive                                   a rollout with calibrated coefficients (spec#admission-predictive)
//	random-matched                               a control: another run's reject rates, by chance
package admission
