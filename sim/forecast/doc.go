// Package forecast estimates the TTFT and the TPOT of a request from the state of one vLLM engine
// at the moment a router has to decide: from the step times of a latency model, with no parameter
// of its own, no clock and no I/O. (Zero-shot predictions of servers are in library/predict,
// trained predictors in package predictor.)
//
// An [Engine] is made once for a deployment ([New], [NewWith]). For each decision the caller fills
// a [State] and a [Request] and calls [Engine.TTFT] and [Engine.TPOTUs]. What is not known is stated
// as unknown in the State; nothing unknown counts as 0. Times are in us.
//
// # TTFT: a short rollout
//
// The estimate plays the scheduler forward on sums instead of requests:
//
//  1. The request reaches the engine's input queue after the overhead of the latency model and is
//     picked up at the next scheduling boundary.
//  2. The running step ends first: its predicted time minus the part that has passed, half of it
//     where that is unknown.
//  3. Every further step computes the decodes, then prompt tokens ahead of the request, then its
//     own, within max_num_batched_tokens, and takes the time that the model predicts for that
//     batch. After maxSteps steps the rest is linear.
//  4. Where max_num_seqs or KV blocks do not suffice, requests ahead and the request itself are
//     admitted as decodes leave: at the rates that the caller expects, else decodes / mean output
//     length per step.
//  5. With asynchronous scheduling a step is formed while the one before executes: two steps are
//     under way, and the request joins the third.
//  6. Requests of better classes that are still to come are served first wherever a step has no
//     room for all. Otherwise they join the request's step, as do requests that wait behind it or
//     arrive meanwhile.
//
// # TPOT: a balance
//
// A token takes as long as a step: of the decodes and the request itself, plus the prompts that
// are computed in the same steps at the recent rate of arrivals, plus the prompts that arrived
// while the request waited for its first token.
package forecast
