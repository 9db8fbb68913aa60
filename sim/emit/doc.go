// Package emit writes a simulated run as a trace dump in the wire schema of
// the tracing fork of vLLM: OTLP JSON lines of journeys, steps, snapshots and
// API spans, and KV-event lines, with the producer's sampling, event limits,
// clocks and step numbers. What extract reads from it is the simulated run.
package emit
