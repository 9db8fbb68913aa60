// Package workload makes requests for the simulator: from an extracted run,
// from generators, and from the public formats Mooncake, Weka, Azure, TraceV2 and the
// workload specification of BLIS. It reads io.Readers and knows no paths.
package workload
