// Package gateway is what stands before several engines: what it may know, and
// where it sends a request. It is pure and imports no engine, so no policy can
// read an engine's hidden state or the length of an answer that is still to come.
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
// Policies of admission are in sim/admission; engines join in sim/cluster.
package gateway
