package sim

import "github.com/blis-train/blis-train/trace"

// Result is one simulated run.
type Result struct {
	Requests        []RequestResult // in workload order
	Steps           int64           // schedule() calls, empty ones included
	EmptySteps      int64
	ScheduledTokens int64
	PrefillTokens   int64 // computed, recomputation included
	DecodeTokens    int64
	WastedTokens    int64 // scheduled for requests that had already stopped
	Preemptions     int64
	HitTokens       int64 // prompt tokens served from the prefix cache, first admissions
	LookedUpTokens  int64 // prompt tokens of first admissions
	StoredBlocks    int64 // GPU->CPU
	LoadedBlocks    int64 // CPU->GPU
	ClippedSteps    int64
	ClippedDelays   int64
	BusyUs          int64 // sum of execution times
	EndUs           int64 // last event
	PeakRunning     int64
	PeakWaiting     int64
	PeakBlocks      int64
	Extrapolated    uint64 // slots (bit s-1) that hit their bound in a prediction
	Gaps            *Quantiles
	Findings        []trace.Finding
}
