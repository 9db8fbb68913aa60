// Package queueing holds the queueing models by which autoscalers of LLM
// servers size replicas, one closed form for all of them, and the sizing and
// allocation built on it. It is pure: numbers in, numbers out.
//
// # What goes in
//
// A [Params] says how long an engine iteration takes, a [Shape] how long
// requests are on average, a [Server] how many fit. Times are in milliseconds,
// rates in requests per second, as the autoscalers state them.
//
// # The model
//
// An engine with N seats and a waiting room of Q is a birth-death chain with
// arrivals at rate lambda and departures at rate n/tau(n) from n <= N requests
// in service, N/tau(N) above. A [Flavour] says what tau(n), the time in service
// at concurrency n, and the latencies derived from it are:
//
//	wva-4p      workload-variant-autoscaler v0.0.1 to v0.4.2: prefill gamma +
//	            delta*k*n, decode alpha + beta*n
//	wva-3p      its successor from 2026-02, and queue-analysis v0.2 to v0.6
//	inferno-3p  llm-inferno's queue-analysis from v0.7: prefill in chunks, a
//	            request's own work counted once
//	corrected   ours: inferno-3p plus the rest of the running step that an
//	            arrival waits for, the API overhead, m-1 token gaps, the spread
//	            of lengths and the KV cache
//
// docs/queueing.md says which consumer reads which, with the commits.
//
// # What comes out
//
// [Model.Solve] gives throughput, waits, concurrency, TTFT and ITL at a rate; it
// is exact for the chain, allocates nothing, takes O(N + log Q) and has an
// answer above capacity too, where requests are blocked. [Model.Size] gives the
// largest rate that meets targets, [Allocate] replicas for a fleet.
//
// # What is refused
//
// Parameters, lengths and limits that no server can have, by name and value;
// targets that the smallest load already misses.
package autoscale
