package simulate

// This file has the command-line flags of a simulation.

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/option"
)

// Flags returns the options as flags. simulation.json records those that differ from their defaults and
// can change a result.
func (o *Options) Flags() []cli.Flag {
	return slices.Concat(o.inputFlags(), o.engineFlags(), o.outputFlags(), o.loadFlags())
}

// inputFlags returns the flags that name input files.
func (o *Options) inputFlags() []cli.Flag {
	return []cli.Flag{
		option.RecordedBase(&cli.StringFlag{Name: "coefficients", Destination: &o.Coefficients, Value: o.Coefficients,
			Usage: "coefficient `FILE|library` of latency model physics (default: none, steps take the sums of the GPU's measured kernels)"}),
		option.RecordedBase(&cli.StringFlag{Name: "library", Destination: &o.Library, Value: o.Library,
			Usage: "kernel tables of library build, `FILE`, in place of the embedded ones"}),
		option.RecordedBase(&cli.StringFlag{Name: "deployment", Destination: &o.Deployment, Value: o.Deployment,
			Usage: "the server: run.yaml `FILE` or run folder"}),
		option.RecordedBase(&cli.StringFlag{Name: "workload", Destination: &o.Workload, Value: o.Workload,
			Usage: "the requests that arrive, `FILE|RUNDIR`; or give --input-len and --output-len"}),
		option.RecordedAs(o.setValues, &cli.GenericFlag{Name: "set", Value: option.Settings(&o.Set),
			Usage: "set a field of run.yaml: `KEY.PATH=VALUE` (repeatable)"}),
	}
}

// setValues records all overrides of run.yaml as one value.
func (o *Options) setValues() []string {
	if len(o.Set) == 0 {
		return nil
	}
	return []string{strings.Join(o.Set, ",")}
}

// engineFlags returns the flags about the engine and its latency model.
func (o *Options) engineFlags() []cli.Flag {
	return []cli.Flag{
		option.RecordedUnless(ModelAuto, &cli.StringFlag{Name: "latency-model", Destination: &o.Model, Value: o.Model,
			Usage: "step-time `MODEL`: auto (physics with --coefficients, else tables, roofline where the GPU has none), " +
				"tables, physics, roofline, blackbox, trained-physics or linear3"}),
		option.Recorded(&cli.StringFlag{Name: "alpha-coeffs", Destination: &o.Alpha, Value: o.Alpha,
			Usage: "comma-separated `A0,A1,A2` of blackbox and trained-physics, us; of an exported A0 without the wait for async " +
				"scheduling that the file states"}),
		option.Recorded(&cli.StringFlag{Name: "beta-coeffs", Destination: &o.Beta, Value: o.Beta,
			Usage: "comma-separated `BETAS` of blackbox (3), trained-physics (7 to 11) and linear3 " +
				"(us, us per token computed, us per KV token read)"}),
		option.Recorded(&cli.GenericFlag{Name: "overhead-us", Value: option.Optional(&o.OverheadUs), DefaultText: "the coefficients",
			Usage: "constant overhead of a request in `US` in place of the overhead coefficients"}),
		option.Recorded(&cli.GenericFlag{Name: "egress-us", Value: option.Optional(&o.EgressUs), DefaultText: "the coefficients",
			Usage: "constant egress delay of a request in `US` in place of the egress coefficients"}),
		option.RecordedUnless("none", &cli.StringFlag{Name: "noise", Destination: &o.Noise, Value: o.Noise,
			Usage: "`KIND` of noise: residual multiplies step times by ratios drawn from the residuals in the coefficient file; or none"}),
		option.RecordedUnless("auto", &cli.StringFlag{Name: "async", Destination: &o.Async, Value: o.Async,
			Usage: "asynchronous scheduling, `MODE`: auto (as the deployment has it), on or off"}),
		option.RecordedUnless("0", &cli.Int64Flag{Name: "kv-blocks", Destination: &o.KVBlocks, Value: o.KVBlocks,
			Usage: "`N` GPU KV blocks; 0: the deployment's, or as many as its memory holds"}),
		option.RecordedUnless("0", &cli.Float64Flag{Name: "expert-imbalance", Destination: &o.ExpertImbalance, Value: o.ExpertImbalance,
			Usage: "tokens of the busiest data-parallel rank's experts over the mean of all ranks, `X` >= 1; 0: 1"}),
		option.RecordedUnless("0", &cli.Float64Flag{Name: "eplb-pause-ms", Destination: &o.EPLBPauseMs, Value: o.EPLBPauseMs,
			Usage: "`MS` that every rebalancing of experts takes (enable_eplb)"}),
		option.RecordedUnless("1", &cli.Int64Flag{Name: "seed", Destination: &o.Seed, Value: o.Seed,
			Usage: "`SEED` of generated requests, noise and draws"}),
		option.RecordedUnless("1", &cli.IntFlag{Name: "replications", Destination: &o.Replications, Value: o.Replications,
			Usage: "simulate `N` times with seeds SEED, SEED+1, ..., and print intervals"}),
		option.Recorded(&cli.BoolFlag{Name: "sample-coefficients", Destination: &o.SampleCoefficients, Value: o.SampleCoefficients,
			Usage: "draw the coefficients of each replication from the covariance in the coefficient file"}),
		&cli.IntFlag{Name: "workers", Destination: &o.Workers, Value: o.Workers,
			Usage: "`N` replications at a time; 0: every core"},
	}
}

// outputFlags returns the flags about the files that are written.
func (o *Options) outputFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "emit-otlp", Destination: &o.EmitOTLP, Value: o.EmitOTLP,
			Usage: "also write the simulated run as a trace dump to `FILE` (OTLP, JSON lines)"},
		&cli.StringFlag{Name: "emit-kv-events", Destination: &o.EmitKVEvents, Value: o.EmitKVEvents,
			Usage: "also write KV events to `FILE` (with prefix caching and --emit-otlp only)"},
		&cli.StringFlag{Name: "format", Destination: &o.Format, Value: o.Format,
			Usage: "also write the requests in `FORMAT`: blis (" + blisFile + ", for blis calibrate)"},
		&cli.StringFlag{Name: "event-log", Destination: &o.EventLog, Value: o.EventLog,
			Usage: "also write every event and step as text to `FILE`"},
		&cli.BoolFlag{Name: "force", Destination: &o.Force, Value: o.Force,
			Usage: "accept an output folder that holds files of other programs"},
	}
}

// loadFlags returns the flags about the workload.
func (o *Options) loadFlags() []cli.Flag {
	return []cli.Flag{
		option.Recorded(&cli.StringFlag{Name: "phase", Destination: &o.Phase, Value: o.Phase,
			Usage: "use only the phase `NAME` of a recorded run; a closed one is replayed as a closed loop"}),
		option.RecordedUnless("1", &cli.Float64Flag{Name: "rate-scale", Destination: &o.RateScale, Value: o.RateScale,
			Usage: "multiply arrival rates by `FACTOR`"}),
		option.RecordedUnless("0", &cli.IntFlag{Name: "max-requests", Destination: &o.MaxRequests, Value: o.MaxRequests,
			Usage: "use the first `N` requests; 0: all"}),
		option.RecordedUnless("0", &cli.IntFlag{Name: "concurrency", Destination: &o.Concurrency, Value: o.Concurrency,
			Usage: "closed loop: `N` clients, each sends its next request when its last one is answered"}),
		option.RecordedUnless("0", &cli.Float64Flag{Name: "think-time-ms", Destination: &o.ThinkMs, Value: o.ThinkMs,
			Usage: "`MS` between an answer and the client's next request (closed loop)"}),
		option.RecordedUnless(sessionsFixed, &cli.StringFlag{Name: "session-mode", Destination: &o.SessionMode, Value: o.SessionMode,
			Usage: "`MODE` in which a trace's sessions are sent: fixed (at their recorded times), or closed-loop (each round when " +
				"the one before it is answered)"}),
		option.Recorded(&cli.StringFlag{Name: "think-time-dist", Destination: &o.ThinkDist, Value: o.ThinkDist,
			Usage: "`DIST` of think times of closed-loop sessions, such as constant:value=500ms or " +
				"lognormal:mu=2.0,sigma=0.6,min=3s,max=30s, in place of the trace's"}),
		option.RecordedUnless("0", &cli.Float64Flag{Name: "ramp-s", Destination: &o.RampS, Value: o.RampS,
			Usage: "start the clients evenly over `S` seconds (closed loop)"}),
		option.RecordedUnless("0", &cli.IntFlag{Name: "max-concurrency", Destination: &o.MaxConcurrency, Value: o.MaxConcurrency,
			Usage: "hold arrivals back while `N` requests are in flight; 0: never"}),
		option.RecordedUnless("0", &cli.Int64Flag{Name: "input-len", Destination: &o.InputTokens, Value: o.InputTokens,
			Usage: "prompt `TOKENS` of every request, in place of --workload"}),
		option.RecordedUnless("0", &cli.Int64Flag{Name: "output-len", Destination: &o.OutputTokens, Value: o.OutputTokens,
			Usage: "output `TOKENS` of every request"}),
		option.RecordedUnless("0", &cli.Float64Flag{Name: "random-range-ratio", Destination: &o.RangeRatio, Value: o.RangeRatio,
			Usage: "draw both lengths evenly from 1-R to 1+R times --input-len and --output-len, `R`"}),
		option.RecordedUnless("1000", &cli.IntFlag{Name: "num-prompts", Destination: &o.Requests, Value: o.Requests,
			Usage: "send `N` requests of --input-len"}),
		option.RecordedUnless("0", &cli.Float64Flag{Name: "request-rate", Aliases: []string{"rate"}, Destination: &o.RateRPS, Value: o.RateRPS,
			Usage: "Poisson arrivals of requests of --input-len, `RPS` per second; 0: all at once"}),
	}
}
