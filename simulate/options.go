package simulate

// This file has the options of a simulation, and checks them.

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// defaultRequests is the number of requests of a drawn load if none is given.
const defaultRequests = 1000

// Options are the options of a simulation. Either Workload, or the lengths InputTokens and
// OutputTokens of a drawn load (a point), must be set.
type Options struct {
	Library      string   // file of kernel tables made by library build; "": the embedded tables
	Coefficients string   // coefficient file, or LibraryWord, see usesSet; "": none, or LibraryWord if Model is physics
	Deployment   string   // run.yaml, or the folder that contains it
	Set          []string // overrides of run.yaml, "key.path=value"
	Out          string   // output folder

	Model              string   // auto, tables, physics, roofline, blackbox, trained-physics or linear3
	Alpha, Beta        string   // comma-separated coefficients of the models blackbox, trained-physics and linear3
	OverheadUs         *float64 // constant time from the API to the engine's queue; nil: the coefficients'
	EgressUs           *float64 // constant time from the last token to the departure; nil: the coefficients'
	Noise              string   // none or residual
	Async              string   // auto, on or off
	KVBlocks           int64    // KV blocks on the GPU; 0: the deployment's, or an estimate from its memory
	ExpertImbalance    float64  // tokens for the experts of the busiest data-parallel rank over the mean; 0: 1
	EPLBPauseMs        float64  // duration of every rebalancing of experts
	Seed               int64
	Replications       int
	SampleCoefficients bool   // draw those of each replication from the covariance
	Workers            int    // 0: all cores; never changes a result
	EmitOTLP           string // file for a trace dump; "": none, as of the next two
	EventLog           string // file for events and steps as text
	EmitKVEvents       string // file for the KV events of the dump
	Format             string // blis: also write results in BLIS's form; "": requests.parquet only
	Force              bool   // accept a folder that contains foreign files
	Special            bool   // read pipes and devices given as files
	Transfers          bool   // engines transfer KV blocks to each other, even if run.yaml does not state it

	Workload       string  // file or folder of a run
	Phase          string  // phase of a recorded run; "": all
	RateScale      float64 // multiplies arrival rates
	MaxRequests    int     // 0: all
	Concurrency    int     // clients of a closed loop; 0: open arrivals
	ThinkMs        float64 // from an answer to the client's next request
	RampS          float64 // time over which the clients of a closed loop start
	SessionMode    string  // of sessions in a trace: fixed or closed-loop
	ThinkDist      string  // think times of rounds; "": ThinkMs, or those of the trace
	MaxConcurrency int     // limit on requests in flight; 0: none
	InputTokens    int64   // prompt of every request of a point
	OutputTokens   int64   // output of every request of a point
	RangeRatio     float64 // R: lengths are uniform in 1-R to 1+R times the mean
	Requests       int     // number of requests of a point
	RateRPS        float64 // arrival rate of a point; 0: all arrive at once

	GPU *library.GPU // kernel tables; nil: the embedded ones

	Progress trace.Progress
	Say      func(sentence string) // called with a sentence on where step times come from; may be nil
}

// LatencyModels are the values of --latency-model.
var LatencyModels = []string{ModelAuto, ModelTables, ModelPhysics, ModelRoofline, "blackbox", "trained-physics", "linear3"}

// DefaultOptions returns the defaults of the command line. Out, Deployment and the workload have none.
func DefaultOptions() Options {
	return Options{
		Model:        ModelAuto,
		Noise:        "none",
		Async:        "auto",
		Seed:         1,
		Replications: 1,
		RateScale:    1,
		Requests:     defaultRequests,
		SessionMode:  sessionsFixed,
	}
}

// Check returns an error for the first option that is missing or out of range.
func (o *Options) Check() error {
	if o.Deployment == "" {
		return option.Misusef("simulate: missing --deployment run.yaml")
	}
	err := o.checkLoad()
	if o.Format != "" && o.Format != "blis" {
		err = errors.Join(err, option.Misusef("--format: got %q, want blis", o.Format))
	}
	if err != nil {
		return err
	}
	bad := func(us *float64) bool { return us != nil && !(*us >= 0 && *us < 1e9) }
	switch physics := o.usesSet(); {
	case o.Out == "":
		return option.Misusef("missing -o OUT")
	case o.Replications < 1 || o.Replications > 100_000:
		return option.Misusef("--replications: got %d, want 1 to 100000", o.Replications)
	case o.Noise != "none" && o.Noise != "residual":
		return option.Misusef("--noise: got %q, want residual or none", o.Noise)
	case o.Async != "auto" && o.Async != "on" && o.Async != "off":
		return option.Misusef("--async: got %q, want auto, on or off", o.Async)
	case !slices.Contains(LatencyModels, o.Model):
		return option.Misusef("--latency-model: got %q, want auto, tables, physics, roofline, blackbox, trained-physics or linear3", o.Model)
	case !physics && o.Noise == "residual" && o.Coefficients == "":
		return option.Misusef("simulate: --noise residual needs --coefficients")
	case o.Library != "" && (physics || o.Model != ModelAuto && o.Model != ModelTables):
		return option.Misusef("--library: goes with --latency-model tables only, without --coefficients")
	case !physics && o.SampleCoefficients:
		return option.Misusef("--sample-coefficients: goes with --latency-model physics only")
	case !physics && o.Coefficients != "" && o.Noise != "residual" && !(o.Coefficients == LibraryWord && o.Model == ModelAuto):
		return option.Misusef("--coefficients: goes with --latency-model physics or --noise residual only")
	case o.Alpha != "" && o.Model != "blackbox" && o.Model != "trained-physics":
		return option.Misusef("--alpha-coeffs: goes with --latency-model blackbox or trained-physics only")
	case o.Beta != "" && (physics || slices.Contains([]string{ModelAuto, ModelTables, ModelRoofline}, o.Model)):
		return option.Misusef("--beta-coeffs: goes with --latency-model blackbox, trained-physics or linear3 only")
	case o.EmitKVEvents != "" && o.EmitOTLP == "":
		return option.Misusef("--emit-kv-events: goes with --emit-otlp FILE only")
	case o.ExpertImbalance != 0 && !(o.ExpertImbalance >= 1 && o.ExpertImbalance <= 1e6):
		return option.Misusef("--expert-imbalance: got %g, want 1 (even) or more", o.ExpertImbalance)
	case !(o.EPLBPauseMs >= 0 && o.EPLBPauseMs < 1e9):
		return option.Misusef("--eplb-pause-ms: got %g ms, want >= 0 and < 1e9", o.EPLBPauseMs)
	case o.KVBlocks < 0:
		return option.Misusef("--kv-blocks: got %d, want >= 0", o.KVBlocks)
	case bad(o.OverheadUs):
		return option.Misusef("--overhead-us: got %g us, want >= 0 and < 1e9", *o.OverheadUs)
	case bad(o.EgressUs):
		return option.Misusef("--egress-us: got %g us, want >= 0 and < 1e9", *o.EgressUs)
	}
	return nil
}

// checkCoefficients returns an error if the latency model takes another number of alpha or beta coefficients, or none
// with such a value. The lines of blackbox may fall.
func (o *Options) checkCoefficients(alpha, beta []float64) error {
	of := func(name string, values []float64, least, most int) error {
		got := len(values)
		if got >= least && got <= most {
			isWrong := func(v float64) bool {
				return math.IsInf(v, 0) || v < 0 && (name == "alpha-coeffs" || o.Model != "blackbox")
			}
			if i := slices.IndexFunc(values, isWrong); i >= 0 {
				unit := " us"
				if name == "beta-coeffs" && o.Model == "trained-physics" { // factors
					unit = ""
				}
				return option.Misusef("--%s: got %g%s, want finite and >= 0", name, values[i], unit)
			}
			return nil
		}
		wanted := strconv.Itoa(least)
		if most > least {
			wanted += fmt.Sprintf(" to %d", most)
		}
		return option.Misusef("--%s: got %d values, want %s with --latency-model %s", name, got, wanted, o.Model)
	}
	switch o.Model {
	case "linear3":
		return of("beta-coeffs", beta, 3, 3)
	case "blackbox":
		return cmp.Or(of("beta-coeffs", beta, 3, 3), of("alpha-coeffs", alpha, 3, 3))
	case "trained-physics":
		return cmp.Or(of("beta-coeffs", beta, features.LeastBetas, len(features.TrainedPhysicsBeta())), of("alpha-coeffs", alpha, 3, 3))
	}
	return nil
}

// Latency models that have a name in documents.
const (
	ModelAuto     = "auto"
	ModelTables   = "tables"
	ModelPhysics  = "physics"
	ModelRoofline = "roofline"
)

// usesSet reports whether step times come from a coefficient set. The library's own are terms fitted to the kernel
// tables; the tables themselves serve unless the terms are asked for: by --latency-model physics, or for noise and samples. So a
// prediction and a simulation of one deployment have one time of a step.
func (o *Options) usesSet() bool {
	if o.Coefficients == LibraryWord && o.Noise == "none" && !o.SampleCoefficients {
		return o.Model == ModelPhysics
	}
	return o.Model == ModelPhysics || o.Model == ModelAuto && o.Coefficients != ""
}

// How the sessions of a trace are sent, as blis replay names it.
const (
	sessionsFixed  = "fixed"
	sessionsClosed = "closed-loop"
)

// closesSessions reports whether a round of a session is sent only after the answer to the round
// before.
func (o *Options) closesSessions() bool { return o.SessionMode == sessionsClosed }

// think returns the function that draws the think times of closed-loop sessions, us; nil if they
// are those of the trace.
func (o *Options) think(seed int64) (func() int64, error) {
	switch us := sim.ToUs(o.ThinkMs * 1e3); {
	case o.ThinkDist != "":
		return workload.ThinkTime(o.ThinkDist, seed)
	case us > 0:
		return func() int64 { return us }, nil
	}
	return nil, nil
}

// checkLoad returns an error for the first invalid option of the workload.
func (o *Options) checkLoad() error {
	point := o.InputTokens != 0 || o.OutputTokens != 0
	switch {
	case o.Workload == "" && !point:
		return option.Misusef("simulate: missing --workload FILE or RUNDIR, or --input-len and --output-len")
	case o.Workload != "" && point:
		return option.Misusef("simulate: --workload and --input-len: got both, want one")
	case point && (o.InputTokens < 1 || o.OutputTokens < 1):
		return option.Misusef("--input-len, --output-len: got %d and %d, want both >= 1", o.InputTokens, o.OutputTokens)
	case !(o.RateScale > 0) || math.IsInf(o.RateScale, 0):
		return option.Misusef("--rate-scale: got %g, want a finite number > 0", o.RateScale)
	case !(o.RateRPS >= 0) || math.IsInf(o.RateRPS, 0):
		return option.Misusef("--request-rate: got %g per second, want a finite number >= 0", o.RateRPS)
	case !(o.RangeRatio >= 0 && o.RangeRatio < 1):
		return option.Misusef("--random-range-ratio: got %g, want >= 0 and < 1", o.RangeRatio)
	case o.MaxRequests < 0:
		return option.Misusef("--max-requests: got %d, want >= 0", o.MaxRequests)
	case o.Requests < 1 || o.Requests > workload.MaxGenerated:
		return option.Misusef("--num-prompts: got %d, want 1 to %d", o.Requests, workload.MaxGenerated)
	case !(o.ThinkMs >= 0) || !(o.RampS >= 0) || math.IsInf(o.ThinkMs+o.RampS, 0):
		return option.Misusef("--think-time-ms, --ramp-s: got %g ms and %g s, want finite numbers >= 0", o.ThinkMs, o.RampS)
	case o.Phase != "" && point:
		return option.Misusef("--phase: goes with a recorded run as --workload only")
	case o.Concurrency < 0 || o.MaxConcurrency < 0 || o.Concurrency > 0 && o.MaxConcurrency > 0:
		return option.Misusef("--concurrency, --max-concurrency: got %d and %d, want one of them >= 1", o.Concurrency, o.MaxConcurrency)
	case o.Concurrency > 0 && o.RateRPS != 0:
		return option.Misusef("--request-rate, --concurrency: got %g per second and %d clients, want one of them", o.RateRPS, o.Concurrency)
	case o.Concurrency > 0 && o.RateScale != 1:
		return option.Misusef("--rate-scale: got %g with --concurrency %d, want it with open arrivals only", o.RateScale, o.Concurrency)
	case o.SessionMode != "" && o.SessionMode != sessionsFixed && !o.closesSessions():
		return option.Misusef("--session-mode: got %q, want %s or %s", o.SessionMode, sessionsFixed, sessionsClosed)
	case o.closesSessions() && (o.Concurrency > 0 || o.MaxConcurrency > 0):
		return option.Misusef("--session-mode %s: got --concurrency too, want one closed loop", sessionsClosed)
	case o.ThinkDist != "" && (o.ThinkMs != 0 || !o.closesSessions()):
		return option.Misusef("--think-time-dist: got %q, want it with --session-mode %s and without --think-time-ms",
			o.ThinkDist, sessionsClosed)
	case o.Concurrency == 0 && (o.RampS != 0 || o.ThinkMs != 0 && !o.closesSessions()):
		return option.Misusef("--think-time-ms, --ramp-s: got no closed loop, want --concurrency N with them")
	case !point && o.RangeRatio != 0:
		return option.Misusef("--random-range-ratio: got no --input-len, want it with it")
	case !point && o.Requests != defaultRequests:
		return option.Misusef("--num-prompts: got no --input-len, want it with it")
	case !point && o.RateRPS != 0:
		return option.Misusef("--request-rate: got no --input-len, want it with it")
	}
	if _, err := o.think(0); err != nil {
		return option.Misusef("--think-time-dist: %v", err)
	}
	return nil
}
