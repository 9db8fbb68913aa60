package sim

// This file has the configuration of a simulated engine, and checks it.

import (
	"errors"
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Config is the configuration of one engine and its latency models. DefaultConfig sets the
// defaults; zero values of other fields mean what their comments state.
type Config struct {
	Deployment *deploy.Deployment
	Latency    Model
	Overhead   Delay // from the arrival at the API to the engine's input queue; nil = 0
	Egress     Delay // from the last token in the engine to the client; nil = 0
	Async      bool  // asynchronous scheduling

	Noise *Noise       // nil = none
	Drift []DriftPoint // factor on step times by simulated time, sorted; empty = 1
	Seed  int64

	GammaEMA float64 // weight of the latest step in the average share of preempted requests, in (0, 1]; default 0.3

	EmptyStepUs int64 // time of a step without tokens, at least 1; default 200
	IdleSleepUs int64 // pause of vLLM after a step that executed nothing while requests wait; default 1000
	// StepGapUs is the time from the end of a step's execution to the next schedule(). The default
	// is 0, because measured step times contain it.
	StepGapUs int64
	// ScheduleUs is the CPU time of schedule(), after which an idle asynchronous engine schedules
	// its second step; default 100.
	ScheduleUs int64
	StopUs     int64   // stop the clock here, 0 = run until all have left
	TokenUs    float64 // time outside the engine in TTFT and every token gap (a2 of BLIS's models)
	// TokenGaps collects the token gaps of all requests in Result.Gaps; with RequestGaps, quantiles of each
	// request's are computed too.
	TokenGaps   bool
	RequestGaps bool
	Gradient    bool // compute derivatives of each request's latencies; needs linear latency models
	// Restarts makes the derivatives of simulated times start again at each request that finds the
	// queue empty. Without it they start again only when the engine is idle. They are then exact as
	// long as a change of coefficients does not change the schedule, but in a busy period of
	// minutes every change of a useful size does. With Restarts they approximate the effect of such
	// changes.
	Restarts bool
	// FreeStored simulates a CPU tier that some emulations of vLLM have. The blocks of a finished
	// request come free at once, even while they are copied to the tier, and a chunk may be loaded or
	// evicted as soon as its own copy is done. vLLM's connector keeps the blocks for a step or more,
	// and before 0.22 the chunks of a request are complete when it has finished or is preempted.
	FreeStored bool
	KVBlocks   int64 // GPU blocks without the null block; 0 = the deployment's, stated or estimated

	// Load returns when the KV blocks of a number of tokens of request i, requested at nowUs, have
	// arrived from another server. If it is nil, they arrive Request.LoadUs after the request.
	Load func(i int, nowUs, tokens int64) (atUs int64)
	// Ranks makes Run simulate all engines of a data-parallel deployment, and not one of them.
	Ranks           bool
	ExpertImbalance float64 // tokens of the busiest rank's experts divided by the mean; >= 1, or 0 for 1
	EPLBPauseUs     int64   // pause for each rebalancing of experts (enable_eplb)

	Done <-chan struct{} // when closed, the run ends soon with context.Canceled; may be nil
}

// Defaults of Config.
const (
	defaultEmptyStepUs = 200
	defaultIdleSleepUs = 1000
	defaultScheduleUs  = 100
)

// DefaultConfig returns the default configuration for a deployment and a step-time model, without
// delays outside the engine.
func DefaultConfig(d *deploy.Deployment, step Model) Config {
	return Config{
		Deployment: d, Latency: step, Async: d.Engine.IsAsync(), Seed: 1, GammaEMA: features.DefaultGamma,
		EmptyStepUs: defaultEmptyStepUs, IdleSleepUs: defaultIdleSleepUs, ScheduleUs: defaultScheduleUs,
	}
}

// Apply sets the step-time model and the delays that belong to it.
func (c *Config) Apply(p Parts) {
	c.Latency = p.Step
	c.Overhead = p.Overhead
	c.Egress = p.Egress
	c.TokenUs = p.TokenUs
}

// Codes of this package.
const (
	CodeBadConfig      trace.Code = "bad_sim_config"
	codePromptTooLong  trace.Code = "prompt_exceeds_max_model_len"
	codePromptNoBudget trace.Code = "prompt_exceeds_token_budget"
	codeNeverFits      trace.Code = "never_fits_kv_cache"
	codeQueueFull      trace.Code = "queue_full"
	codeClipped        trace.Code = "clipped_predictions"
	CodeBadPrediction  trace.Code = "bad_prediction"
)

// Check returns an error for values out of range and for combinations that the simulator does not
// support.
func (c *Config) Check() error {
	if c.Deployment == nil || c.Latency == nil {
		return trace.Errorf(CodeBadConfig, "deployment and latency model: got nil, want both")
	}
	e := &c.Deployment.Engine
	switch {
	case e.MaxNumSeqs < 1:
		return trace.Errorf(CodeBadConfig, "max_num_seqs: got %d, want >= 1", e.MaxNumSeqs)
	case e.MaxNumBatchedTokens < 1:
		return trace.Errorf(CodeBadConfig, "max_num_batched_tokens: got %d, want >= 1", e.MaxNumBatchedTokens).
			WithHint("set --max-num-batched-tokens")
	case e.BlockSize < 1:
		return trace.Errorf(CodeBadConfig, "block_size: got %d tokens, want >= 1", e.BlockSize)
	case e.LongPrefillThreshold < 0:
		return trace.Errorf(CodeBadConfig, "long_prefill_token_threshold: got %d tokens, want >= 0",
			e.LongPrefillThreshold)
	case e.SchedulingPolicy != "" && e.SchedulingPolicy != "fcfs" && e.SchedulingPolicy != "priority":
		return trace.Errorf(CodeBadConfig, "scheduling_policy: got %q, want fcfs or priority", e.SchedulingPolicy)
	case !(c.GammaEMA > 0 && c.GammaEMA <= 1):
		return trace.Errorf(CodeBadConfig, "gamma_ema: got %g, want in (0, 1]", c.GammaEMA)
	case c.KVBlocks > vllm.MaxKVBlocks:
		return trace.Errorf(CodeBadConfig, "KV blocks: got %d, want at most %d", c.KVBlocks, vllm.MaxKVBlocks)
	case c.EmptyStepUs < 1 || c.IdleSleepUs < 0 || c.StepGapUs < 0 || c.StopUs < 0 || c.KVBlocks < 0:
		return trace.Errorf(CodeBadConfig,
			"times and blocks: got empty step %d us, idle sleep %d us, step gap %d us, stop %d us, %d blocks, "+
				"want >= 1, >= 0, >= 0, >= 0, >= 0", c.EmptyStepUs, c.IdleSleepUs, c.StepGapUs, c.StopUs, c.KVBlocks)
	case c.ExpertImbalance != 0 && !(c.ExpertImbalance >= 1 && c.ExpertImbalance <= 1e6) || c.EPLBPauseUs < 0 ||
		c.EPLBPauseUs > LatestUs:
		return trace.Errorf(CodeBadConfig,
			"experts: got imbalance %g and a pause of %d us, want >= 1 (max/mean) and >= 0",
			c.ExpertImbalance, c.EPLBPauseUs)
	case c.Ranks && (c.Gradient || c.Deployment.PP > 1 || c.Deployment.DP < 2):
		return trace.Errorf(CodeBadConfig,
			"data_parallel_size %d, pipeline_parallel_size %d: got derivatives or stages, want ranks alone",
			c.Deployment.DP, c.Deployment.PP)
	case math.IsNaN(c.TokenUs) || math.IsInf(c.TokenUs, 0) || c.TokenUs < 0:
		return trace.Errorf(CodeBadConfig, "time per output token: got %g us, want finite and >= 0", c.TokenUs)
	}
	for i, p := range c.Drift {
		if !(p.Factor > 0) || math.IsInf(p.Factor, 0) || i > 0 && p.FromUs <= c.Drift[i-1].FromUs {
			return trace.Errorf(CodeBadConfig,
				"drift point %d: got from %d us factor %g, want increasing times and factors > 0",
				i, p.FromUs, p.Factor)
		}
	}
	if c.Noise != nil {
		return c.Noise.checkQuantiles()
	}
	return nil
}

// kvBlocks returns the number of GPU KV blocks, not counting the null block that vLLM reserves:
// Config.KVBlocks, or the number the deployment states, or as many as its memory has room for.
func kvBlocks(cfg *Config) (int64, error) {
	if cfg.KVBlocks > 0 {
		return cfg.KVBlocks, nil
	}
	n, _, err := cfg.Deployment.KVBlocks()
	var coded *trace.Error
	if errors.As(err, &coded) {
		return 0, trace.Errorf(CodeBadConfig, "%s", coded.Msg).WithHint(coded.Hint)
	}
	return n, err
}
