// Package predict estimates latencies and throughput of a vLLM server that was never measured or
// traced: zero-shot prediction from the library of kernel times.
//
// A [Question] names a model, a GPU, the arguments of vllm serve and a load.
// [Question.Predict] builds the deployment, adds up the measured kernels of its steps
// (package library), simulates the load with these step times (packages simulate and sim)
// and returns a [Prediction]: latencies, throughput, what limits the server, and how far
// the figures can be trusted. [Question.Plan] returns the step operator by operator
// without a simulation. [Question.Sweep] and [All] ask many questions. With [Targets]
// the highest load that meets them is searched for.
//
// Latencies are in milliseconds, rates per second, throughput in output tokens per second
// and GPU.
package predict

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/simulate"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Prediction is the answer to one question, or the reason why there is none.
type Prediction struct {
	Model        string          `json:"model"`
	Hardware     string          `json:"hardware"`
	TP           int64           `json:"tensor_parallel_size"`
	DP           int64           `json:"data_parallel_size"`
	GPUs         int64           `json:"gpus"`
	EP           bool            `json:"enable_expert_parallel,omitempty"`
	Version      string          `json:"vllm_version"`
	MaxNumSeqs   int64           `json:"max_num_seqs"`
	TokenBudget  int64           `json:"max_num_batched_tokens"`
	KVBytes      float64         `json:"bytes_per_kv"` // of one cached value
	InputTokens  int64           `json:"input_tokens"`
	OutputTokens int64           `json:"output_tokens"`
	Concurrency  int             `json:"concurrency,omitempty"`
	RateRPS      float64         `json:"rate_rps,omitempty"`
	LatencyModel string          `json:"latency_model,omitempty"`
	Trust        *simulate.Trust `json:"trust,omitempty"`

	// Of the steady state: means over simulations with different seeds, whose first and last requests are not measured.
	TTFT         Figures    `json:"ttft"`
	TTFTParts    []TTFTPart `json:"ttft_parts,omitempty"` // of its mean; none without kernel tables
	TPOT         Figures    `json:"tpot"`                 // mean gap of a request
	ITL          Figures    `json:"itl"`                  // every gap
	E2E          Figures    `json:"e2e"`
	RequestsPerS float64    `json:"requests_per_sec"`
	TokensPerS   float64    `json:"output_tokens_per_sec_per_gpu"`
	// 95 % intervals over seeds
	RequestsInterval [2]float64 `json:"requests_per_sec_interval"`
	TokensInterval   [2]float64 `json:"output_tokens_per_sec_per_gpu_interval"`
	Saturated        bool       `json:"saturated"`                     // more is offered than the server can do
	Met              *bool      `json:"met,omitempty"`                 // whether the load that is asked meets the targets; nil: none asked
	MetSurely        *bool      `json:"met_at_stated_error,omitempty"` // whether it also does with times longer by the stated error
	Missed           string     `json:"missed,omitempty"`              // the first target that it misses
	Bound            bool       `json:"upper_bound,omitempty"`         // no kernel tables: the datasheet's roofline, which no server reaches
	Start            *Start     `json:"start,omitempty"`               // of an idle server, on request

	KVTokens    int64           `json:"kv_cache_tokens"`       // room in the cache of one engine
	KVPeakShare float64         `json:"kv_cache_peak_share"`   // most blocks used at once over all, in [0, 1]
	LimitedBy   string          `json:"limited_by,omitempty"`  // see limit
	Shares      []Share         `json:"step_shares,omitempty"` // of step time, by kind of work
	MaxLoad     *MaxLoad        `json:"max_load,omitempty"`    // nil: no targets asked
	Warnings    []trace.Finding `json:"warnings,omitempty"`
	Refused     string          `json:"refused,omitempty"` // why there is no answer
	Hint        string          `json:"hint,omitempty"`

	// FittedLen is the --max-model-len without which vLLM does not start; 0: it does.
	FittedLen int64 `json:"-"`
	// Step is the plan of a step, operator by operator; nil where steps take the roofline's time.
	Step *library.Step `json:"-"`
	// DecodeStep is a decode step in the middle of the load, which the command prints operator by operator.
	DecodeStep library.Batch `json:"-"`

	options    simulate.Options
	simulation *simulate.Simulation
}

// Figures summarize one latency in ms; nil where no request has it.
type Figures struct {
	Mean *float64 `json:"mean_ms"`
	P50  *float64 `json:"p50_ms"`
	P90  *float64 `json:"p90_ms"`
	P95  *float64 `json:"p95_ms"`
	P99  *float64 `json:"p99_ms"`
}

// Start is what the first requests experience: the first one of each client, sent together, or the arrivals
// of the first seconds.
type Start struct {
	Requests int     `json:"requests"`
	TTFT     Figures `json:"ttft"`
	E2E      Figures `json:"e2e"`
}

// Predict returns the answer to the question. Codes: those of deploy, library and sim.
func (q *Question) Predict(ctx context.Context) (*Prediction, error) {
	d, findings, err := q.Deployment()
	if err != nil {
		return nil, err
	}
	return q.predictOn(ctx, d, findings)
}

// All returns the answers to the questions in their order; it computes several at a time. A
// question that cannot be answered becomes a Prediction with Refused set.
func All(ctx context.Context, questions []Question, workers int) ([]*Prediction, error) {
	out := make([]*Prediction, len(questions))
	err := par.Try(ctx, workers, len(questions), func(i int) error {
		q := &questions[i]
		d, findings, err := q.Deployment()
		if err == nil {
			out[i], err = q.predictOn(ctx, d, findings)
		}
		if err != nil {
			out[i] = q.refusal(d, err)
		}
		return ctx.Err()
	}, nil)
	return out, err
}

// Plan returns the plan of a step of this batch, operator by operator, and simulates nothing. A batch
// that the engine never forms is an error. Codes: bad_sim_config; no_kernel_tables for a GPU without
// measured kernels, whose steps have no operators; those of deploy and library.
func (q *Question) Plan(ctx context.Context, batch []trace.Chunk) (*Prediction, error) {
	d, findings, err := q.Deployment()
	if err != nil {
		return nil, err
	}
	ofBatch := *q
	ofBatch.Concurrency = len(batch)
	ofBatch.RateRPS = 0
	p, err := ofBatch.prepare(ctx, d, findings)
	if err != nil {
		return nil, err
	}
	if p.Step == nil {
		return nil, trace.Hinted(p.simulation.NoTables, "") // its own hint names a flag of simulate
	}
	if err := checkBatch(d, batch); err != nil {
		return nil, err
	}
	return p, nil
}

// checkBatch returns an error for a batch that the engine never forms: more requests or tokens than
// its limits, or contexts beyond the model's or the KV cache.
//
// The blocks of a context are counted as the simulator counts them (model.KVUnits). Where all layers are alike, a unit
// is one block. A model with layers of several kinds has a block table for each group of them: a unit then takes
// units.Blocks blocks, one for each group with full attention, and the blocks of attention windows and recurrent
// states are units besides (Side). fitCache counts with RequestBlocks instead, which adds a whole step of tokens to each
// window: it states the cache's size in tokens as vLLM logs it.
func checkBatch(d *deploy.Deployment, batch []trace.Chunk) error {
	e := &d.Engine
	var tokens, blocks int64
	units := d.KVUnits()
	for _, c := range batch {
		tokens += c.New
		length := c.Computed + c.New
		blocks += ((length+units.Block-1)/units.Block + units.Side(length)) * units.Blocks
		if longest := d.MaxModelLen(); longest.OK && length > longest.V {
			return trace.Errorf(sim.CodeBadConfig, "--step: got a context of %d tokens, want at most %d, the longest of the model", length, longest.V)
		}
	}
	room, _, err := d.KVBlocks()
	switch {
	case err != nil:
		return err
	case int64(len(batch)) > e.MaxNumSeqs:
		return trace.Errorf(sim.CodeBadConfig, "--step: got %d requests, want at most max_num_seqs, %d", len(batch), e.MaxNumSeqs).
			WithHint("raise --max-num-seqs in --vllm")
	case tokens > e.MaxNumBatchedTokens:
		return trace.Errorf(sim.CodeBadConfig, "--step: got %d tokens, want at most max_num_batched_tokens, %d", tokens, e.MaxNumBatchedTokens).
			WithHint("raise --max-num-batched-tokens in --vllm")
	case blocks > room:
		return trace.Errorf(sim.CodeBadConfig, "--step: got contexts of %d KV blocks, want at most the %d of the cache", blocks, room).
			WithHint("ask for fewer requests or shorter contexts, or raise --tp")
	}
	return nil
}

// refusal returns a prediction with the reason why the question has no answer; d is nil where the
// deployment could not be built.
func (q *Question) refusal(d *deploy.Deployment, err error) *Prediction {
	p := &Prediction{
		Model:        q.Model,
		Hardware:     q.Hardware,
		InputTokens:  q.InputTokens,
		OutputTokens: q.OutputTokens,
		Concurrency:  q.Concurrency,
		RateRPS:      q.RateRPS,
		Refused:      err.Error(),
		Hint:         trace.HintOf(err),
	}
	if d != nil {
		p.describeServer(d)
	}
	return p
}

// describeServer sets the fields that describe the deployment.
func (p *Prediction) describeServer(d *deploy.Deployment) {
	p.Model = d.Model.ID
	p.Hardware = d.Hardware.Name
	p.TP = d.TP
	p.DP = d.DP
	p.GPUs = d.GPUs()
	p.EP = d.Engine.ExpertParallel
}

// lengthSpread is by how much simulated lengths differ, as those of benchmarks whose answers stop a little
// early. With equal lengths all requests of a closed loop would march in step.
const lengthSpread = 1.0 / perSpread

// perSpread is how many tokens a length has for each by which it may differ.
const perSpread = 50

// prepare returns a prediction with its deployment, step times and warnings, before anything is
// simulated.
func (q *Question) prepare(ctx context.Context, d *deploy.Deployment, findings []trace.Finding) (*Prediction, error) {
	p := &Prediction{options: simulate.DefaultOptions()}
	p.options.InputTokens = q.InputTokens
	p.options.OutputTokens = q.OutputTokens
	p.options.RangeRatio = lengthSpread
	p.options.GPU = q.GPU
	p.options.Concurrency = q.Concurrency
	p.options.RateRPS = q.RateRPS
	s, err := simulate.For(ctx, d, &p.options)
	if err != nil {
		return nil, err
	}
	if blocks, isEstimated, err := d.KVBlocks(); err == nil && (!isEstimated || d.Engine.Extra["kv_cache_memory_bytes"] != nil) {
		if err := d.CheckKVBlocks(blocks); err != nil {
			return nil, err
		}
	}
	p.describeServer(d)
	p.Version = d.Engine.VLLMVersion
	p.MaxNumSeqs = d.Engine.MaxNumSeqs
	p.TokenBudget = d.Engine.MaxNumBatchedTokens
	p.KVBytes = d.Model.BytesPerKV
	p.InputTokens = q.InputTokens
	p.OutputTokens = q.OutputTokens
	p.Concurrency = q.Concurrency
	p.RateRPS = q.RateRPS
	p.LatencyModel = s.LatencyModel
	p.Trust = s.Trust
	p.Step = s.Step
	p.Bound = s.Step == nil
	p.simulation = s
	simulated := rankFindings(d)
	timed := *d
	timed.Sums = s.LatencyModel == simulate.ModelTables
	for _, f := range slices.Concat(findings, d.NotModelled(), timed.Estimates()) {
		if f.Code == vllm.UnsupportedEngine || slices.Contains(simulated, f) || slices.Contains(p.Warnings, f) {
			continue
		}
		p.Warnings = append(p.Warnings, f)
	}
	return p, nil
}

// rankFindings returns the warnings that the steps of several data-parallel ranks are not modelled, which are not true
// here: all ranks are simulated.
func rankFindings(d *deploy.Deployment) []trace.Finding {
	ranks := func(key string) any {
		if key == "data_parallel_size" {
			return d.DP
		}
		return nil
	}
	// Warnings from the arguments of vllm serve alone do not know whether the model has experts.
	return slices.Concat(vllm.Findings(ranks, false), vllm.Findings(ranks, true))
}

// predictOn returns the answer to the question for its deployment.
func (q *Question) predictOn(ctx context.Context, d *deploy.Deployment, findings []trace.Finding) (*Prediction, error) {
	p, err := q.prepare(ctx, d, findings)
	if err != nil {
		return nil, err
	}
	if err := q.fitCache(p, d); err != nil {
		return nil, err
	}
	load := q.load()
	load.Longest = d.LongestSequence().V
	warmUpS, err := p.WarmUpS(&load, p.options.Seed)
	if err != nil {
		return nil, err
	}
	if err := p.simulateLoad(&load, warmUpS, &q.SLO); err != nil {
		return nil, err
	}
	if q.Start {
		if err := p.simulateStart(&load, warmUpS); err != nil {
			return nil, err
		}
	}
	if len(q.SLO.Limits) > 0 {
		p.MaxLoad, err = p.searchMaxLoad(&load, warmUpS, &q.SLO)
	}
	return p, err
}

// load returns the load of the question.
func (q *Question) load() Load {
	return Load{RateRPS: q.RateRPS, Clients: q.Concurrency, InputTokens: q.InputTokens, OutputTokens: q.OutputTokens}
}

// fitCache computes the size of the KV cache, and returns an error for a request that does not fit
// into it or exceeds the model's longest sequence. Where the longest sequence does not fit, it is shortened.
func (q *Question) fitCache(p *Prediction, d *deploy.Deployment) error {
	tokens := p.InputTokens + p.OutputTokens
	if longest := d.MaxModelLen(); longest.OK && tokens > longest.V {
		return trace.Errorf(sim.CodeBadConfig, "--input-len, --output-len: got %s tokens together, want at most %s, the longest of "+
			"the model", trace.Thousands(tokens), trace.Thousands(longest.V)).WithHint("ask for fewer, or raise --max-model-len where --vllm has it")
	}
	blocks, isEstimated, err := d.KVBlocks()
	if err != nil {
		return hintAtMemory(err, d, tokens)
	}
	size := d.Engine.BlockSize
	p.options.KVBlocks = blocks
	p.KVTokens = blocks * size
	pool, ok := d.Model.Layers().KVPool(d.Parallel(), size)
	if ok && len(pool.Groups) > 1 {
		// Layers of windows and states draw blocks of their own from the pool. vLLM logs the
		// cache as so many requests of max_model_len; here it is in requests of this length.
		perRequest := max(1, pool.RequestBlocks(tokens, d.Engine.MaxNumBatchedTokens))
		p.KVTokens = blocks * ((tokens + size - 1) / size) / perRequest * size
	}
	if p.KVTokens < tokens {
		err := trace.Errorf(deploy.BadHardware, "KV cache: got room for %s tokens, want %s and %s of one request",
			trace.Thousands(p.KVTokens), trace.Thousands(p.InputTokens), trace.Thousands(p.OutputTokens))
		return hintAtMemory(&deploy.NoRoomError{Err: err}, d, tokens)
	}
	if ok && isEstimated { // stated blocks are those of a server that started
		return q.fitLongest(p, d, func(n int64) int64 { return pool.RequestBlocks(n, d.Engine.MaxNumBatchedTokens) })
	}
	return nil
}

// fitLongest shortens max_model_len to whole blocks that fit into the KV cache, with a warning, because vLLM does not start
// without room for one request of it (vllm/v1/core/kv_cache_utils.py: _check_enough_kv_cache_memory()). A value that
// the question states is an error instead. blocksOf returns the blocks that a request of so many tokens needs.
func (q *Question) fitLongest(p *Prediction, d *deploy.Deployment, blocksOf func(tokens int64) int64) error {
	longest := d.MaxModelLen()
	if !longest.OK || deploy.HoldsRequest(p.options.KVBlocks, blocksOf(longest.V)) {
		return nil
	}
	size := d.Engine.BlockSize
	fits := size * int64(sort.Search(int(longest.V/size), func(i int) bool { return blocksOf(int64(i+1)*size) > p.options.KVBlocks }))
	if d.Engine.MaxModelLen.OK {
		return trace.Errorf(deploy.BadHardware, "max_model_len: got %d, want at most %d: vLLM does not start without room for one such request in the KV cache",
			longest.V, fits).WithHint("lower --max-model-len, or raise --tp")
	}
	d.Engine.MaxModelLen = trace.Some(fits)
	isAuto := func(word string) bool { return strings.HasPrefix(vllm.FlagName(word), "max_model_len") }
	if slices.ContainsFunc(deploy.FlagsOf(q.CommandLine()), isAuto) { // vLLM shortens it itself
		return nil
	}
	p.FittedLen = fits
	p.Warnings = append(p.Warnings, trace.Findingf(lengthFitted, "%s on %d x %s: vLLM does not start without --max-model-len %d, which is taken: the KV cache "+
		"has no room for a request of the model's %d tokens", p.Model, p.GPUs, p.Hardware, fits, longest.V))
	return nil
}

// lengthFitted is the code of the warning that max_model_len is shortened.
const lengthFitted trace.Code = "max_model_len_fitted"

// hintAtMemory adds to an error about too little memory the number of GPUs that has room for the model and so many
// tokens. Another error stays as it is.
func hintAtMemory(err error, d *deploy.Deployment, tokens int64) error {
	if _, isNoRoom := errors.AsType[*deploy.NoRoomError](err); !isNoRoom { // layers that share no pool, for example
		return err
	}
	for wider := *d; wider.TP <= 8; {
		wider.TP *= 2
		blocks, _, noRoom := wider.KVBlocks()
		if noRoom == nil && wider.CheckTables() == nil && blocks*d.Engine.BlockSize >= tokens {
			return trace.Hinted(err, fmt.Sprintf("raise --tp to %d", wider.TP))
		}
	}
	return trace.Hinted(err, "take a GPU with more memory, or weights of fewer bits")
}

// How much is simulated.
const (
	replications  = 4    // seeds
	leastOfLoop   = 100  // measured requests of a closed loop, per seed; two of each client if that is more
	arrivalsOfS   = 15   // seconds of arrivals that are measured, per seed, but
	leastArrivals = 400  // at least so many requests, and
	mostArrivals  = 1250 // at most so many
)

// simulateLoad simulates the load of the question and fills in the results.
func (p *Prediction) simulateLoad(load *Load, warmUpS float64, targets *Targets) error {
	var breakdown *stepBreakdown
	if p.Step != nil {
		breakdown = newStepBreakdown(p.Step, p.Hardware)
	}
	measured := max(leastOfLoop, 2*load.Clients)
	if load.Clients == 0 {
		measured = int(min(mostArrivals, max(leastArrivals, arrivalsOfS*load.RateRPS)))
	}
	var parts requestParts
	var samples []*Sample
	var engines []*sim.Result
	tokens := int64(0)
	steady := p.SteadyState(*load, 1, warmUpS, measured)
	for k := int64(0); k < replications; {
		stretch, err := steady.Stretch(p.options.Seed+k, 1)
		if err != nil {
			return err
		}
		if breakdown != nil {
			breakdown.divides = k == 0
			breakdown.prompts = newStepParts(p.Step)
		}
		s, res, err := p.serve(stretch, p.options.Seed+k, breakdown)
		if err != nil {
			return err
		}
		// The first seed shows whether the server was in its steady state; if not, it is simulated again.
		if k == 0 && steady.Lengthen(s) {
			continue
		}
		k++
		if breakdown != nil && p.DP == 1 {
			breakdown.prompts.addRequests(stretch, res, &parts)
		}
		samples = append(samples, s)
		engines = append(engines, res)
		for i := range res.Requests {
			tokens += res.Requests[i].OutputTokens
		}
	}
	for metric, to := range map[string]*Figures{TTFT: &p.TTFT, TPOT: &p.TPOT, ITL: &p.ITL, E2E: &p.E2E} {
		*to = figuresOf(samples, metric)
	}
	gpus := float64(p.GPUs)
	rate := ValueOf(samples, func(s *Sample) float64 { return float64(s.Served) / s.ServedS })
	output := ValueOf(samples, func(s *Sample) float64 { return float64(s.Tokens) / s.ServedS / gpus })
	rate, output = load.NoMoreThanArrives(rate, output)
	p.RequestsPerS = rate.Value
	p.RequestsInterval = [2]float64{rate.Low, rate.High}
	p.TokensPerS = output.Value
	p.TokensInterval = [2]float64{output.Low, output.High}
	p.Saturated = Broken(samples, &Targets{}) == brokenSaturated
	if len(targets.Limits) > 0 {
		p.Missed = Broken(samples, targets)
		p.Met = new(p.Missed == "")
	}
	if p.Step != nil {
		p.TTFTParts = parts.ranged(p)
	}
	// A saturated server widens the stated error, so this comes before StatedErrors.
	total := sim.Totals(engines)
	if p.Saturated || total.Preemptions > 0 {
		p.simulation.MarkSaturated()
		p.Trust = p.simulation.Trust
	}
	if len(targets.Limits) > 0 {
		tight := targets.Tightened(p.StatedErrors(samples))
		p.MetSurely = new(!p.Bound && Broken(samples, &tight) == "")
	}
	p.KVPeakShare = float64(total.PeakBlocks*p.simulation.Deployment.KVUnits().Blocks) / float64(p.options.KVBlocks)
	p.Shares = breakdown.shares()
	p.LimitedBy = p.limit(total)
	// A decode step of as many requests as the mean step had, half way through their answers.
	decodes := math.Max(1, math.Round(float64(tokens)/float64(max(1, total.Steps))))
	p.DecodeStep = library.Batch{
		Tokens:        decodes,
		Sequences:     decodes,
		Decodes:       decodes,
		DecodeContext: decodes * float64(p.InputTokens+p.OutputTokens/2),
	}
	return nil
}

// figuresOf returns the statistics of a metric; nil where they are infinite because requests got no answer, or where
// there are no values.
func figuresOf(samples []*Sample, metric string) (out Figures) {
	for _, f := range []struct {
		quantile float64
		to       **float64
	}{{0, &out.Mean}, {0.5, &out.P50}, {0.9, &out.P90}, {0.95, &out.P95}, {0.99, &out.P99}} {
		v := ValueOf(samples, func(s *Sample) float64 { return s.Figure(metric, f.quantile) }).Value
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			*f.to = &v
		}
	}
	return out
}

// simulateStart simulates the first requests of an idle server.
func (p *Prediction) simulateStart(load *Load, warmUpS float64) error {
	stretch, err := load.Start(p.options.Seed, warmUpS)
	if err != nil {
		return err
	}
	s, _, err := p.serve(stretch, p.options.Seed, nil)
	if err != nil {
		return err
	}
	only := []*Sample{s}
	p.Start = &Start{Requests: len(s.TTFT), TTFT: figuresOf(only, TTFT), E2E: figuresOf(only, E2E)}
	return nil
}

// limit returns for people the resource because of which the load is not served faster: the KV cache if requests were
// preempted or waited beside a full one, else the batch if requests waited beside a full batch, else the arrivals if
// the engine idled a tenth of the time; otherwise what the largest share of the steps is spent on.
func (p *Prediction) limit(s *sim.Result) string {
	busyShare := math.Min(1, float64(s.BusyUs)/float64(max(1, s.EndUs)))
	switch {
	case s.Preemptions > 0 || p.KVPeakShare > 0.97 && s.PeakWaiting > 0:
		return fmt.Sprintf("KV cache (%s tokens, %s preemptions)", trace.Thousands(p.KVTokens), trace.Thousands(s.Preemptions))
	case s.PeakWaiting > 0 && s.PeakRunning >= p.MaxNumSeqs:
		return fmt.Sprintf("batch limit (max_num_seqs %d)", p.MaxNumSeqs)
	case p.RateRPS > 0 && busyShare < 0.9:
		return fmt.Sprintf("arrivals (the engine idles %.0f %% of the time)", 100*(1-busyShare))
	case len(p.Shares) == 0:
		return ""
	}
	top := slices.MaxFunc(p.Shares, func(a, b Share) int { return cmp.Compare(a.Share, b.Share) })
	return fmt.Sprintf("%s (%s takes %.0f %% of the steps)", resourceOf(top.Name), top.Name, 100*top.Share)
}
