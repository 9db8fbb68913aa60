// Package sim is a deterministic discrete-event model of one vLLM V1 engine:
// requests, a deployment and a latency model in, per-request timings out. It
// is pure: no clock, no I/O, no global randomness; the same input gives the
// same bytes.
//
// Run keeps every result, Stream none; an Engine lets a caller drive it, or
// several of them, request by request. A Collector reduces a run to numbers, request by request,
// so that no run has to be kept.
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
//
// # Parts
//
// The KV cache is blocks as counts, and with prefix
// caching also as identities with reference counts, content hashes and an
// eviction order.
//
// Models say how long a step executes and how long a request is outside the engine: sums
// over a batch in, microseconds out. A model keeps scratch space: one per run, or per
// goroutine.
//
//	batch.go     a step as sums over its sequences
//	model.go     a step time, a delay, a recorded timeline, and what they come from: a coefficient
//	             set through the trainer's features, the forms BLIS reads, the roofline, a trace
//	noise.go     noise and drift; coefficients drawn from their covariance
//
// A replay judges a candidate set of coefficients by replaying measured
// requests: how far the simulated times are from the measured ones, and, for
// linear latency models, the normal equations of the step that brings them
// nearer.
//
// # Objective of a replay
//
// The mean of Huber(log simulated - log measured) over TTFT, span (first to last
// token) and E2E of every request that has them, plus half the sum of |log ratio|
// of their 50, 90 and 99 % quantiles. It is relative, so that short requests
// count as much as long ones, and it sees distributions as well as pairs. What a
// replay does not finish counts as wrong by a factor of 100 and never drops out.
// Every pair adds to it and nothing takes away, so a losing candidate is stopped
// as soon as the pairs seen so far exceed the bound.
//
// # Twins of a replay
//
// A replay is a step function of the coefficients. Twins are the same requests
// sent a little earlier or later; their mean is smoother, and their spread is how
// near any coefficients can come. The jitter of a request depends on the seed, the
// twin and the request alone, so that all candidates meet the same draws.
//
// # Dumps
//
// A [Dump] writes a simulated run as a trace dump in the wire schema of
// the tracing fork of vLLM: OTLP JSON lines of API spans, core
// spans with journey events and step spans with summaries and snapshots, and
// KV-event lines. Sampling coins, span closure, the event limit per span, the
// labels of phases and the step numbers are the producer's, so what extract
// reads from the dump is the simulated run.
//
// # Clocks of a dump
//
// Simulated time 0 is DumpOptions.MonotonicNs and DumpOptions.WallNs. Inside one
// simulated microsecond the producer's order is kept by nanoseconds: tokens and
// finishes of the step that ended, then QUEUED of the requests picked up, then
// the start of the next step; SCHEDULED and PREEMPTED follow inside
// [step.ts_start_ns, step.ts_end_ns], whose length is the scheduler's CPU time
// and not the step's.
package sim
