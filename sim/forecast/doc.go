// Package predict estimates the TTFT and the TPOT of a request from the state of
// one vLLM engine at the moment somebody has to decide: physics with the
// coefficients of a file, no parameter of its own, no clock and no I/O.
//
// # TTFT: a short rollout
//
// The estimate plays the scheduler forward on sums instead of requests:
//
//  1. The request reaches the engine's input queue after the overhead of the
//     coefficient file and is seen at the next scheduling boundary.
//  2. The running step ends first: its predicted time minus what has passed of it
//     (half of it when unknown).
//  3. Every further step serves the decodes, then prompt tokens ahead of the
//     request, then its own, within max_num_batched_tokens, and lasts what the
//     coefficient file says of that batch. After maxSteps steps the rest is linear.
//  4. Where seats (max_num_seqs) or KV blocks are short, requests ahead and the
//     request itself are admitted as decodes leave: at the rates the caller expects
//     at their ages, else decodes / mean output length per step.
//  5. With asynchronous scheduling a step is formed while the one before executes:
//     two steps are under way, and the request joins the third.
//  6. Better classes still to come are served first wherever a step has no room for
//     all; otherwise they join the request's step, as do others that wait behind it
//     or come meanwhile.
//
// # TPOT: a balance
//
// A token takes as long as a step: the decodes and the request itself, plus the
// prompts that are computed beside them at the recent rate of arrivals, plus those
// that arrived while the request waited for its first token.
//
// Unknown inputs are stated as such (see State); nothing unknown counts as 0.
package forecast
