// Package sim is a deterministic discrete-event model of one vLLM V1 engine:
// requests, a deployment and a latency model in, per-request timings out. It
// is pure: no clock, no I/O, no global randomness; the same input gives the
// same bytes.
//
// Run keeps every result, Stream none; an Engine lets a caller drive it, or
// several of them, request by request. How long a step takes is asked of a model
// of sim/latency, the KV cache is sim/kv's, and sim/summary reduces a run to
// numbers.
//
// # One engine iteration
//
//  1. At a scheduling boundary the engine drains its input queue: every request
//     whose API overhead has passed is stamped QUEUED now, not when it arrived.
//  2. schedule(): running requests first, in order (a decode asks for one
//     token, an unfinished prefill for the rest of its prompt, capped by the
//     token budget and long_prefill_token_threshold). When blocks run out the
//     last running request (fcfs) or the lowest priority one is preempted,
//     freed, and put at the head of the waiting queue to be recomputed. New
//     requests are admitted only in a step that preempted nobody: prefix-cache
//     lookup, then blocks for the chunk, within max_num_seqs and the budget;
//     without chunked prefill a prompt must fit the rest of the budget whole.
//  3. The latency model says how long the step executes, from sums over its
//     batch that the engine keeps while it schedules (no per-step allocation).
//  4. update: each sequence that reached its last known token yields exactly one
//     token; finished requests free their blocks in reverse order.
//
// With asynchronous scheduling steps 2 of iteration s+1 run when step s-1 ends,
// so a request that stops by itself is noticed one step late and costs a wasted
// token, a request that reaches its max_tokens is held back unscheduled, and
// blocks of decoded tokens enter the prefix cache one update later.
//
// A step that schedules nothing follows the last finish before an idle period,
// as in vLLM, and counts in the step ids.
//
// # What is refused
//
// A request that can never be scheduled is rejected with a reason instead of
// blocking the queue for ever. The output length is used for one thing: to
// answer "stop now" when a token arrives; no policy reads it.
package sim
