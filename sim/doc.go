// Package sim simulates one vLLM V1 engine as discrete events: requests, a deployment and a
// latency model go in, the timings of each request come out. It is pure: no clock, no I/O, no
// global randomness. The same input gives the same bytes.
//
// [Run] simulates a workload and keeps every result, [Stream] hands each result on and keeps
// none, [StreamDrawn] does not even keep the requests. An [Engine], or any [Server], lets a caller
// drive one or several engines request by request. Times are in us of simulated time, sizes in tokens or KV blocks.
//
// # One engine iteration
//
//  1. At a scheduling boundary the engine picks up its input queue: every request whose API
//     overhead has passed is stamped QUEUED now, not when it arrived.
//  2. schedule(): running requests first, in order. A decode asks for one token, an unfinished
//     prefill for the rest of its prompt, capped by the token budget and
//     long_prefill_token_threshold. When blocks run out the last running request (fcfs) or the
//     one of lowest priority is preempted, freed, and put at the head of the waiting queue to be
//     recomputed. Requests are admitted only in a step without a preemption: prefix-cache lookup,
//     then blocks for the first chunk, within max_num_seqs and the budget. Without chunked prefill
//     a prompt must fit the rest of the budget whole.
//  3. The latency model predicts how long the step executes, from sums over its batch that the
//     engine keeps while it schedules, so that a step allocates nothing.
//  4. update: each sequence that reached its last known token gets exactly one token; finished
//     requests free their blocks in reverse order.
//
// With asynchronous scheduling steps 2 of iteration s+1 run when step s-1 ends. So a request that
// stops by itself is noticed one step late and costs a wasted token, a request that reaches its
// max_tokens is not scheduled again, and blocks of decoded tokens enter the prefix cache one
// update later.
//
// As in vLLM, a step that schedules nothing follows the last finish before an idle period, and
// counts in the step ids.
//
// A request that can never be scheduled is rejected with a reason instead of blocking the queue
// for ever. The output length of a request is used only to stop it when that many tokens have
// arrived; no policy reads it.
//
// # Files
//
// An engine, in the order of a request's way:
//
//	config.go, limits.go     Config, and what the deployment and its release allow
//	engine.go                Engine: the loop over iterations and events
//	intake.go                from the API to the waiting queue, and back to the API
//	schedule.go, preempt.go  vLLM's schedule(), as sums over a Batch (batch.go)
//	prefix.go, pool.go       the prefix cache and the KV blocks (poollog.go: blocks that are counted first)
//	execute.go, update.go    the step's time, and its result
//	steady.go                a short cut for steps in which every request decodes
//
// Parts that not every deployment has:
//
//	connector.go, offload.go, lmcache.go  KV offloading to CPU memory
//	transfers.go             prefill and decode on different servers; frees that wait for a step
//	speculation.go           speculative decoding
//	ranks.go, lockstep.go, balancer.go    data parallelism
//	cadence.go               prefill_schedule_interval
//	gradient.go              derivatives of latencies by the coefficients
//
// Latency models, which predict a step's time from its batch and a request's delay outside the
// engine. They keep scratch space: use one per run, or per goroutine.
//
//	model.go                 the interfaces
//	coefficients.go          a coefficient set, through the trainer's features
//	tables.go                measured kernels; the roofline
//	lists.go                 the models that BLIS reads from bare lists of coefficients
//	recorded.go              a recorded run, teacher-forced
//	addons.go, noise.go      a drafter, exchange between ranks; noise, drift, drawn coefficients
//
// What sees or compares a run:
//
//	observer.go, eventlog.go, kvlog.go    events and steps as they happen
//	dump*.go                 a run as a trace dump of the tracing fork of vLLM
//	replay.go, twins.go, means.go         the objective of a fit by replay
//
// # Objective of a replay
//
// A replay scores a candidate set of coefficients by replaying measured requests. Its objective
// is the mean of Huber(log simulated - log measured) over TTFT, span (first to last token) and
// E2E of every request that has them, plus half the sum of |log ratio| of their 50, 90 and 99 %
// quantiles. It is relative, so that short requests count as much as long ones, and it compares
// distributions as well as pairs. What a replay does not finish counts as wrong by a factor of
// 100. Every pair adds to the objective, so a candidate is stopped as soon as the pairs so far
// exceed the bound. For linear latency models a replay also gives the normal equations of the
// step that brings the simulated times nearer to the measured ones.
//
// The objective is a step function of the coefficients. Twins are the same requests sent a
// little earlier or later; their mean is smoother, and their spread is how near any coefficients
// can come. The jitter of a request depends on the seed, the twin and the request alone, so that
// all candidates are compared on the same draws.
//
// # Dumps
//
// A [Dump] writes a simulated run in the wire schema of the tracing fork of vLLM: OTLP JSON lines
// of API spans, core spans with journey events and step spans with summaries and snapshots, and
// KV-event lines. Sampling coins, span closure, the event limit per span, the labels of phases
// and the step numbers are the producer's, so that extract reads the simulated run from it.
//
// Simulated time 0 is DumpOptions.MonotonicNs and DumpOptions.WallNs. Inside one simulated
// microsecond the producer's order is kept by nanoseconds: tokens and finishes of the step that
// ended, then QUEUED of the requests picked up, then the start of the next step; SCHEDULED and
// PREEMPTED follow inside [step.ts_start_ns, step.ts_end_ns], whose length is the scheduler's CPU
// time and not the step's.
package sim
