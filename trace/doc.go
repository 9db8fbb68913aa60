// Package trace has the types of a recorded vLLM run. It imports the standard library only, so that
// every other package can use them.
//
// Start with [Run], one engine run in memory. It has the rows of these tables:
//
//	[Request]          a request as the API process and the scheduler saw it
//	[JourneyEvent]     an event in the life of a request: queued, scheduled, first token, preempted, finished
//	[Step]             one iteration of the scheduler
//	[Snapshot]         the state of one request in one step
//	[KVEvent]          blocks of the KV cache stored, moved or removed
//	[ObservedRequest]  a request as its client saw it
//	[Iteration]        one pass of an engine as unmodified vLLM, SGLang or TensorRT-LLM logs it
//	[LoadPoint]        the means that a benchmark printed of one load level
//
// The struct tags of these types are the schema of the tables on disk (package trace/table) and the
// limits of their values ([Ranges]). [BoundOverheads] bounds what happens to a request before the
// engine's queue.
//
// The package also has what messages of all packages have in common: [Error] and [SyntaxError] with
// their codes and hints, [Finding], and [Opt] for values that may be unknown.
//
// # Clocks and units
//
// Recorded stamps are int64 nanoseconds of the producer's CLOCK_MONOTONIC and
// end in Ns; wall-clock stamps end in WallNs and are never subtracted from
// monotonic ones. Durations and targets are float64 microseconds and end in Us.
// The simulator counts int64 microseconds. Unknown is the zero [Opt], never
// 0 or -1.
//
// # Glossary: which stamps are subtracted
//
//	TTFT       time to first token        FIRST_TOKEN - ARRIVED
//	E2E        end to end                 DEPARTED - ARRIVED
//	ITL        inter-token latency        (FINISHED - FIRST_TOKEN) / (output tokens - 1), one value per request
//	ITL gap    time between two tokens    differences of the end of consecutive producing steps (printed, ungated)
//	TPOT       time per output token      the same number as ITL above; the word clients use
//	overhead   what a simulator adds before the engine's input queue; bounded by
//	           [max(0, P - ARRIVED), QUEUED - ARRIVED] with P the start of the last step before QUEUED
//	ingress    QUEUED - ARRIVED           overhead plus the rest of the running step (QUEUED is a pick-up stamp)
//	queueing delay SCHEDULED - QUEUED         first SCHEDULED only
//	admission  SCHEDULED - ARRIVED        the whole wait before the first schedule
//	egress     DEPARTED - FINISHED
//	cadence    ts_start(s+1) - ts_start(s) of adjacent steps of one engine run
//
// A step is one engine iteration, also called a pass where an engine's log records it. A chunk is the
// prompt tokens of one request run in one step. A batch is the chunks of one step. Cached tokens are
// prompt tokens served from the prefix cache. A fork trace is one of vLLM with the journey tracing
// patch, whose spans have events; a stock trace is one of unmodified vLLM.
package trace
