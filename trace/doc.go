// Package trace holds the nouns of a recorded vLLM run: requests, journey
// events, scheduler steps, snapshots, KV-cache events and what clients saw. It
// imports the standard library only, so every other package can speak of them.
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
//	queue wait SCHEDULED - QUEUED         first SCHEDULED only
//	admission  SCHEDULED - ARRIVED        the whole wait before the first schedule
//	egress     DEPARTED - FINISHED
//	cadence    ts_start(s+1) - ts_start(s) of adjacent steps of one engine run
//
// A step is one engine iteration. A chunk is the prompt tokens of one request
// run in one step. A batch is the chunks of one step. Cached tokens are prompt
// tokens served from the prefix cache.
package trace
