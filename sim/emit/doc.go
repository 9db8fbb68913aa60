// Package emit writes a simulated run as a trace dump in the wire schema of
// the tracing fork of vLLM: OTLP JSON lines of API spans, core
// spans with journey events and step spans with summaries and snapshots, and
// KV-event lines. Sampling coins, span closure, the event limit per span, the
// labels of phases and the step numbers are the producer's, so what extract
// reads from the dump is the simulated run.
//
// # Clocks
//
// Simulated time 0 is Options.MonotonicNs and Options.WallNs. Inside one
// simulated microsecond the producer's order is kept by nanoseconds: tokens and
// finishes of the step that ended, then QUEUED of the requests picked up, then
// the start of the next step; SCHEDULED and PREEMPTED follow inside
// [step.ts_start_ns, step.ts_end_ns], whose length is the scheduler's CPU time
// and not the step's.
package emit
