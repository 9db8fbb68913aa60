// Package workload makes requests for the simulator: from an extracted run,
// from generators, and from the public formats Mooncake, Azure and TraceV2. It
// reads io.Readers and knows no paths.
package workload
