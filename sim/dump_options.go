package sim

// This file has the options of a dump.

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// DumpOptions are the settings of the simulated tracing: sampling, limits and clocks.
type DumpOptions struct {
	JourneyRate     float64 // share of API requests with spans, 0..1
	StepRate        float64 // share of steps with a BATCH_SUMMARY, 0..1
	RichRate        float64 // share of these steps with REQUEST_SNAPSHOTs too, 0..1
	ClosureInterval int64   // schedule() calls per step span, >= 1
	EventLimit      int64   // most events of a span, beyond which the oldest is dropped; >= 1
	Chat            bool    // requests use /v1/chat/completions instead of /v1/completions
	Seed            int64
	MonotonicNs     int64 // CLOCK_MONOTONIC at simulated time 0
	WallNs          int64 // wall clock at simulated time 0
	ServiceName     string
	// The CPU time of schedule(), which is only the length of the recorded interval
	// [step.ts_start_ns, step.ts_end_ns]: that of an empty queue, and more for each running request.
	ScheduleNs, ScheduleSeqNs int64
}

// DefaultDumpOptions returns the tracing settings of the deployment. Settings that it does not
// state are such that nothing is dropped.
func DefaultDumpOptions(d *deploy.Deployment) DumpOptions {
	t := &d.Tracing
	return DumpOptions{
		JourneyRate: t.JourneySampleRate.Or(1), StepRate: t.StepSampleRate.Or(1), RichRate: t.RichSubsampleRate.Or(1),
		ClosureInterval: t.ClosureInterval.Or(100), EventLimit: t.EventCountLimit.Or(100000), Chat: t.API == "chat",
		Seed:        1,
		MonotonicNs: 100_000_000_000_000, WallNs: 1_776_100_000_000_000_000, ServiceName: "vllm-simulated",
		ScheduleNs: 60_000, ScheduleSeqNs: 1500,
	}
}

// Check returns an error for values out of range.
func (o *DumpOptions) Check() error {
	for _, r := range []float64{o.JourneyRate, o.StepRate, o.RichRate} {
		if !(r >= 0 && r <= 1) {
			return trace.Errorf(CodeBadConfig, "sampling rate: got %g, want in 0..1", r)
		}
	}
	if o.ClosureInterval < 1 || o.EventLimit < 1 || o.MonotonicNs <= 0 || o.WallNs <= 0 || o.ScheduleNs < 0 ||
		o.ScheduleSeqNs < 0 {
		return trace.Errorf(CodeBadConfig,
			"closure interval %d, event limit %d, clocks %d and %d ns, scheduler time %d + %d ns: want >= 1, >= "+
				"1, > 0, > 0, >= 0", o.ClosureInterval, o.EventLimit, o.MonotonicNs, o.WallNs, o.ScheduleNs,
			o.ScheduleSeqNs)
	}
	return nil
}
