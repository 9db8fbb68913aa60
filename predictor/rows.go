package predictor

import (
	"context"
	"math"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// RowsFile is the account of the rows of an output folder.
const RowsFile = folder.PredictorRows

// RowsCommand is the `command` of predictor_rows.json.
func RowsCommand(o Options) string { return option.Command("predictor rows", o.Flags()) }

// MakeRows makes the rows of every run of an output folder and writes them to
// tables/run=<id> of dest, each run's table as soon as it is made.
func MakeRows(ctx context.Context, out, dest string, ext *result.Extract, o Options, h result.Header, workers int) (*RowsDocument, error) {
	doc := &RowsDocument{Header: h, Options: o, Runs: make([]runAccount, len(ext.Runs)), Warnings: []trace.Finding{}}
	doc.Inputs = ext.Inputs
	err := par.Try(ctx, workers, len(ext.Runs), func(i int) error {
		r := &ext.Runs[i]
		run, err := table.Read(table.RunDir(out, r.ID), table.Requests, table.JourneyEvents, table.Steps, table.ObservedRequests)
		if err != nil {
			return err
		}
		src := source{Run: run, Deployment: r.Deployment}
		var reason string
		if reason, src.Saturated = rows.JudgeLoad(run, r.Deployment); reason != "" {
			src.Saturated = []rows.Span{{StartNs: math.MinInt64, EndNs: math.MaxInt64}}
		}
		made, err := Build(src, o)
		if err != nil {
			return err
		}
		doc.Runs[i] = predictorRun(r, made)
		return writePredictorRows(table.RunDir(dest, r.ID), made.Rows)
	}, func(int) {})
	return doc, err
}

// writePredictorRows replaces the table of rows; without rows there is none.
func writePredictorRows(dir string, list []Row) error {
	if err := os.Remove(filepath.Join(dir, Table+"."+string(table.Parquet))); err != nil && !os.IsNotExist(err) {
		return err
	}
	if len(list) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return table.Write(dir, Table, table.Parquet, list)
}

func predictorRun(r *result.ExtractRun, made *Result) runAccount {
	out := runAccount{ID: r.ID, Config: r.Deployment.Config(), Requests: made.Requests, Rows: len(made.Rows),
		Dropped: map[string]int{}, Agreement: made.Agreement, Warnings: append([]trace.Finding{}, made.Warnings...)}
	for reason, n := range made.Dropped {
		out.Dropped[string(reason)] = n
	}
	var gaps []float64
	for i := range made.Rows {
		if a, b := made.Rows[i].PrefixScoreIndex, made.Rows[i].PrefixScoreActual; a.OK && b.OK {
			gaps = append(gaps, math.Abs(a.V-b.V))
		}
	}
	if len(gaps) > 0 {
		out.PrefixGap = new(stat.Sum(gaps, func(g float64) float64 { return g / float64(len(gaps)) }))
	}
	return out
}

// readPredictorRows reads the rows of one run.
func readPredictorRows(out, id string) ([]Row, error) {
	c, err := table.Open[Row](table.RunDir(out, id), Table)
	if err != nil {
		return nil, err
	}
	return c.All()
}

// Table is the name of the table of rows in a run's folder.
const Table = "predictor_rows"

// Row is one request at its decision time. The first fourteen numbers carry the
// names and the order of llm-d's latency predictor; what they hold there and here
// is stated in docs/predictor.md.
type Row struct {
	RequestID  string             `col:"request_id" doc:"internal request id (API id of a stock span, the client's id of a client file)"`
	DecisionNs int64              `col:"decision_ns" unit:"ns" doc:"decision time: arrival at the API"`
	Phase      trace.Opt[string]  `col:"phase" doc:"phase of run.yaml that holds the arrival"`
	Stage      trace.Opt[int64]   `col:"stage" doc:"load stage of the run, counted from 0 in time; null when it cannot be told"`
	State      string             `col:"state" doc:"step or journey: where waiting and running come from"`
	StateAgeUs trace.Opt[float64] `col:"state_age_us" unit:"us" doc:"decision minus start of the last recorded step; null without one"`

	IsQueued              int64   `col:"is_queued" doc:"1 when requests wait, else 0"`
	KVCachePercentage     float64 `col:"kv_cache_percentage" doc:"KV cache in use, 0..1 (a ratio despite the name)"`
	InputTokenLength      int64   `col:"input_token_length" unit:"tokens" doc:"prompt, cached tokens included"`
	NumRequestWaiting     int64   `col:"num_request_waiting" unit:"requests" doc:"requests in the engine's waiting queue"`
	NumRequestRunning     int64   `col:"num_request_running" unit:"requests" doc:"running_engine, or running_inflight with --features llmd"`
	PrefillTokensInFlight int64   `col:"prefill_tokens_in_flight" unit:"tokens" doc:"uncached prompt tokens of other requests that arrived and have no first token"`
	DecodeTokensInFlight  int64   `col:"decode_tokens_in_flight" unit:"tokens" doc:"decode_tokens_resident, or 0 with --features llmd"`
	EncoderMatchedSize    int64   `col:"encoder_matched_size" doc:"0: text only"`
	EncoderInputSize      int64   `col:"encoder_input_size" doc:"0: text only"`
	PrefixCacheScore      float64 `col:"prefix_cache_score" doc:"prefix_score_index or prefix_score_actual, as asked for"`
	EffectiveInputTokens  float64 `col:"effective_input_tokens" unit:"tokens" doc:"(1 - prefix_cache_score) * input_token_length"`
	PrefillScoreBucket    int64   `col:"prefill_score_bucket" doc:"min(3, floor(4 * prefix_cache_score))"`
	PodTypeCat            string  `col:"pod_type_cat" doc:"empty: one engine does prefill and decode"`
	NumTokensGenerated    int64   `col:"num_tokens_generated" unit:"tokens" doc:"0 at the decision"`

	RunningEngine          int64              `col:"running_engine" unit:"requests" doc:"requests in the engine's running batch"`
	RunningInflight        int64              `col:"running_inflight" unit:"requests" doc:"other requests that arrived and have not departed"`
	OwnUncachedTokens      int64              `col:"own_uncached_tokens" unit:"tokens" doc:"prompt tokens expected to be computed, at least 1"`
	TokensWaitingAhead     int64              `col:"tokens_waiting_ahead" unit:"tokens" doc:"prompt tokens to compute before the request's own, beyond the running step"`
	RequestsAhead          int64              `col:"requests_ahead" unit:"requests" doc:"requests those belong to"`
	StepPrefillTokens      int64              `col:"step_prefill_tokens" unit:"tokens" doc:"prompt tokens of the running step"`
	StepPrefillRequests    int64              `col:"step_prefill_requests" unit:"requests" doc:"requests whose prompt ends in the running step"`
	NextPrefillTokens      int64              `col:"next_step_prefill_tokens" unit:"tokens" doc:"asynchronous scheduling: prompt tokens of the step formed behind the running one"`
	NextPrefillRequests    int64              `col:"next_step_prefill_requests" unit:"requests" doc:"requests whose prompt ends in that step"`
	DecodeBatch            int64              `col:"decode_batch" unit:"requests" doc:"requests past their first token"`
	DecodeTokensResident   int64              `col:"decode_tokens_resident" unit:"tokens" doc:"prompt and output so far of those"`
	MeanContext            float64            `col:"mean_context" unit:"tokens" doc:"decode_tokens_resident / decode_batch, 0 without one"`
	FreeBlocks             int64              `col:"free_blocks" unit:"blocks" doc:"free KV blocks"`
	SinceStepUs            trace.Opt[float64] `col:"since_step_us" unit:"us" doc:"since the last step started; null unless every step is recorded"`
	BetterClassTokensAhead int64              `col:"better_class_tokens_ahead" unit:"tokens" doc:"of prefill_tokens_in_flight, those of better priority"`
	RecentTokensPerS       float64            `col:"recent_prompt_tokens_per_s" unit:"tokens/s" doc:"uncached prompt tokens of other requests that arrived in the last 20 s"`
	RecentPromptsPerS      float64            `col:"recent_prompts_per_s" unit:"1/s" doc:"other requests that arrived in the last 20 s"`
	MeanOutputTokens       trace.Opt[float64] `col:"mean_output_tokens" unit:"tokens" doc:"mean output of the last 512 finished requests; null before the first"`

	PrefixScoreIndex  trace.Opt[float64] `col:"prefix_score_index" doc:"share of the prompt found in an index of cached blocks at the decision, in whole blocks"`
	PrefixScoreActual trace.Opt[float64] `col:"prefix_score_actual" doc:"share of the prompt cached at first admission, in whole blocks; known only after the decision"`

	TTFTMs       float64            `col:"ttft_ms" unit:"ms" doc:"first token - arrival; 0 where --target e2e knows none"`
	TPOTMs       trace.Opt[float64] `col:"tpot_ms" unit:"ms" doc:"(last token - first token) / (output tokens - 1); null below two"`
	E2EMs        trace.Opt[float64] `col:"e2e_ms" unit:"ms" doc:"departure - arrival; null when the departure is not recorded"`
	OutputTokens trace.Opt[int64]   `col:"output_tokens" unit:"tokens" doc:"tokens produced"`
	DepartedNs   trace.Opt[int64]   `col:"departed_ns" unit:"ns" doc:"departure; the last recorded stamp without one"`
	EndWaiting   trace.Opt[int64]   `col:"end_num_request_waiting" unit:"requests" doc:"waiting requests when the last token came: what llm-d pairs with TPOT"`
	EndRunning   trace.Opt[int64]   `col:"end_num_request_running" unit:"requests" doc:"running requests then"`
	EndKV        trace.Opt[float64] `col:"end_kv_cache_percentage" doc:"KV cache in use then"`
}

// Feature is one column of a row as models see it.
type Feature struct {
	forest.Column // what training saw of it is not known yet
	Integer       bool
	of            func(*Row) float64 // the column's value; NaN when unknown
}

// The columns of llm-d's models, in their order (llm-d-latency-predictor 04e44cd,
// training/training_server.py), and what the traces offer beside them.
var (
	llmdTTFT = []string{"is_queued", "kv_cache_percentage", "input_token_length", "num_request_waiting", "num_request_running",
		"prefill_tokens_in_flight", "decode_tokens_in_flight", "encoder_matched_size", "encoder_input_size", "prefix_cache_score",
		"effective_input_tokens", "prefill_score_bucket", "pod_type_cat"}
	llmdTPOT = []string{"is_queued", "kv_cache_percentage", "input_token_length", "num_request_waiting", "num_request_running",
		"prefill_tokens_in_flight", "decode_tokens_in_flight", "num_tokens_generated", "pod_type_cat"}
	extra = []string{"own_uncached_tokens", "tokens_waiting_ahead", "requests_ahead", "step_prefill_tokens", "step_prefill_requests",
		"next_step_prefill_tokens", "next_step_prefill_requests", "decode_batch",
		"mean_context", "free_blocks", "since_step_us", "better_class_tokens_ahead", "recent_prompt_tokens_per_s", "recent_prompts_per_s",
		"mean_output_tokens"}
)

// categories are the columns that llm-d's models hold as pandas categories.
var categories = map[string]bool{"prefill_score_bucket": true, "pod_type_cat": true}

// featuresOf are the columns of a target's models.
func featuresOf(tpot bool, features string) []Feature {
	names := llmdTTFT
	if tpot {
		names = llmdTPOT
	}
	if features == featuresFull {
		names = slices.Concat(names, extra)
	}
	return stat.Map(names, feature)
}

// feature reads a column's description and place off the struct of a row.
func feature(name string) Feature {
	t := reflect.TypeFor[Row]()
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		if tag.Get("col") != name {
			continue
		}
		f := Feature{Column: forest.Column{Name: name, Unit: tag.Get("unit"), Definition: tag.Get("doc"), IsCategory: categories[name]},
			Integer: t.Field(i).Type.Kind() == reflect.Int64}
		switch reflect.Zero(t.Field(i).Type).Interface().(type) {
		case int64:
			f.of = func(r *Row) float64 { return float64(reflect.ValueOf(r).Elem().Field(i).Int()) }
		case float64:
			f.of = func(r *Row) float64 { return reflect.ValueOf(r).Elem().Field(i).Float() }
		case trace.Opt[float64]:
			f.of = func(r *Row) float64 {
				return reflect.ValueOf(r).Elem().Field(i).Interface().(trace.Opt[float64]).Or(math.NaN())
			}
		default: // pod_type_cat: one engine does everything
			f.of = func(*Row) float64 { return 0 }
		}
		return f
	}
	panic("predictor: no column " + name)
}

// row makes the row of the i-th request, whose state is that at t.
func (b *builder) row(i int, t int64) (Row, reason) {
	l := &b.lives[i]
	if reason := b.refuse(l); reason != "" {
		return Row{}, reason
	}
	r := Row{RequestID: l.id, DecisionNs: l.arrived.V, Phase: l.phase, Stage: b.stages[i], InputTokenLength: l.prompt.V,
		OutputTokens: l.output, DepartedNs: l.departed}
	if reason := b.engineState(&r, t); reason != "" {
		return Row{}, reason
	}
	if reason := b.prefix(&r, i); reason != "" {
		return Row{}, reason
	}
	b.named(&r)
	b.targets(&r, l)
	return r, ""
}

// refuse names the first reason for which a request is no row, as far as its own
// records say.
func (b *builder) refuse(l *life) reason {
	switch {
	case l.reason != "":
		return l.reason
	case b.isWarmUp(l):
		return warmUp
	case !b.o.KeepSaturated && inside(b.src.Saturated, l.arrived.V):
		return saturated
	case !b.complete:
		return incompleteJourneys
	}
	return ""
}

func (b *builder) isWarmUp(l *life) bool {
	if p := b.src.Deployment.PhaseAt(l.arrived.V); p != nil {
		return p.Name == deploy.WarmupPhase
	}
	return l.arrived.V < b.warmUpNs
}

func inside(spans []rows.Span, ns int64) bool {
	return slices.ContainsFunc(spans, func(s rows.Span) bool { return ns >= s.StartNs && ns < s.EndNs })
}

// engineState fills what the engine is doing at t.
func (b *builder) engineState(r *Row, t int64) reason {
	c := b.counts
	st, at := b.steps.last(t)
	if st != nil {
		r.StateAgeUs = trace.Some(float64(r.DecisionNs-st.TsStartNs) / 1000)
	}
	fresh := st != nil && b.steps.isFresh(st, t)
	r.State = stateJourney
	r.NumRequestWaiting = c.in[waiting]
	r.RunningEngine = c.in[running]
	if b.o.State == stateStep {
		switch {
		case st == nil:
			return noState
		case !fresh:
			return staleState
		}
		r.State = stateStep
		r.NumRequestWaiting = st.WaitingDepth
		r.RunningEngine = st.RunningDepth
	}
	if fresh && b.steps.complete {
		b.compare(st, t)
	}
	tokens, ok := c.decodeTokens(t)
	if !ok {
		return noPace
	}
	r.DecodeBatch = c.decodes
	r.DecodeTokensResident = int64(tokens)
	if c.decodes > 0 {
		r.MeanContext = tokens / float64(c.decodes)
	}
	if reason := b.kv(r, st, tokens); reason != "" {
		return reason
	}
	p := c.prefillNow(at, b.src.Deployment.Engine.MaxNumBatchedTokens)
	r.StepPrefillTokens = p.now
	r.StepPrefillRequests = p.ending
	r.NextPrefillTokens = p.next
	r.NextPrefillRequests = p.nextEnding
	r.TokensWaitingAhead = c.ahead + p.left
	r.RequestsAhead = c.aheadRequests + p.leftRequests
	if b.steps.complete {
		r.SinceStepUs = r.StateAgeUs
	}
	r.RunningInflight = c.inflight
	r.PrefillTokensInFlight = c.noFirst
	r.RecentTokensPerS, r.RecentPromptsPerS = c.recent(t)
	r.MeanOutputTokens = c.meanOutput()
	return ""
}

// kv fills the use of the KV cache: the last step's where every step is recorded
// or step state was asked for, else (and before the first step) rebuilt from
// resident tokens.
func (b *builder) kv(r *Row, st *trace.Step, decodeTokens float64) reason {
	if st != nil && (b.o.State == stateStep || b.steps.complete) {
		r.KVCachePercentage = st.KVUsage
		r.FreeBlocks = st.BlocksFree
		return ""
	}
	if b.blocks == 0 {
		return noKVState
	}
	r.FreeBlocks = max(0, b.blocks-b.residentBlocks(decodeTokens))
	r.KVCachePercentage = 1 - float64(r.FreeBlocks)/float64(b.blocks)
	return ""
}

// residentBlocks are the blocks of running requests: whole prompts while they are
// computed, half a block each on average for the last one of a decode, and none for
// what came from the cache (the blocks of a shared prefix are few and count once).
func (b *builder) residentBlocks(decodeTokens float64) int64 {
	size := float64(b.src.Deployment.Engine.BlockSize)
	c := b.counts
	blocks := math.Ceil((decodeTokens-float64(c.decodeCached))/size) + math.Floor(float64(c.decodes)/2)
	for _, i := range c.prefilling {
		blocks += math.Ceil(float64(c.lives[i].prompt.V-c.cachedOf(int(i))) / size)
	}
	return int64(blocks)
}

// compare counts how often step and journey state agree.
func (b *builder) compare(st *trace.Step, t int64) {
	a := &b.out.Agreement
	a.Rows++
	switch {
	case st.WaitingDepth == b.counts.in[waiting] && st.RunningDepth == b.counts.in[running]:
		a.Equal++
	case t <= st.TsEndNs:
		a.Inside++
	case b.changedSince(st):
		a.Between++
	default:
		a.Other++
	}
}

// changedSince reports whether a request was picked up or finished after the step
// was formed: the next step will know.
func (b *builder) changedSince(st *trace.Step) bool {
	for i := range b.lives {
		l := &b.lives[i]
		if l.queued.OK && l.queued.V > st.TsEndNs && b.counts.status[i] == waiting || l.finished.OK && l.finished.V > st.TsStartNs &&
			b.counts.status[i] == gone {
			return true
		}
	}
	return false
}

// prefix fills what is known of the request's own prompt.
func (b *builder) prefix(r *Row, i int) reason {
	l := &b.lives[i]
	r.PrefixScoreIndex = l.index
	r.PrefixScoreActual = l.actual
	switch {
	case !l.score.OK && b.o.PrefixScore == prefixActual:
		return noCachedTokens
	case !l.score.OK:
		return noBlockHashes
	}
	r.PrefixCacheScore = l.score.V
	r.OwnUncachedTokens = b.counts.uncached[i]
	for priority, tokens := range b.counts.byPriority {
		if priority < l.priority {
			r.BetterClassTokensAhead += tokens
		}
	}
	return ""
}

// named fills the columns that follow from others.
func (b *builder) named(r *Row) {
	r.NumRequestRunning = r.RunningEngine
	r.DecodeTokensInFlight = r.DecodeTokensResident
	if b.o.Features == featuresLLMD {
		r.NumRequestRunning = r.RunningInflight
		r.DecodeTokensInFlight = 0
	}
	if r.NumRequestWaiting > 0 {
		r.IsQueued = 1
	}
	r.EffectiveInputTokens = (1 - r.PrefixCacheScore) * float64(r.InputTokenLength)
	r.PrefillScoreBucket = scoreBucket(r.PrefixCacheScore)
}

// scoreBucket is min(3, floor(4 * score)) of a score in [0, 1].
func scoreBucket(score float64) int64 { return min(3, int64(4*score)) }

// targets fills what happened.
func (b *builder) targets(r *Row, l *life) {
	ms := func(from, to trace.Opt[int64]) trace.Opt[float64] {
		return trace.Opt[float64]{V: float64(to.V-from.V) / 1e6, OK: from.OK && to.OK && to.V >= from.V}
	}
	r.TTFTMs = ms(l.arrived, l.first).V
	r.E2EMs = ms(l.arrived, l.departed)
	if n := l.output; n.OK && n.V > 1 {
		r.TPOTMs = ms(l.first, l.finished)
		r.TPOTMs.V /= float64(n.V - 1)
	}
	if !l.finished.OK {
		return
	}
	if st, _ := b.steps.last(l.finished.V); st != nil {
		r.EndWaiting, r.EndRunning, r.EndKV = trace.Some(st.WaitingDepth), trace.Some(st.RunningDepth), trace.Some(st.KVUsage)
	}
}

// Choices of Options.
const (
	TargetToken = "token"
	TargetE2E   = "e2e"

	featuresLLMD = "llmd"
	featuresFull = "full"

	stateAuto    = "auto"
	stateStep    = "step"
	stateJourney = "journey"

	prefixIndex  = "index"
	prefixActual = "actual"
)

// Options decide what rows hold.
type Options struct {
	Target      string `json:"target"`       // token: TTFT and TPOT; e2e: the whole answer, of servers that do not stream
	Features    string `json:"features"`     // llmd or full: what two of llm-d's columns mean
	State       string `json:"state"`        // auto, step or journey
	StalenessUs int64  `json:"staleness_us"` // age of what is observable at the decision, >= 0
	PrefixScore string `json:"prefix_score"` // index or actual
	// Shared are the first prompt tokens that requests share where nothing records it: RUNGLOB=TOKENS each.
	Shared        []string `json:"shared_prefix_tokens"`
	KeepSaturated bool     `json:"keep_saturated"` // requests that arrived while the run was saturated
}

// DefaultOptions are everything the traces offer, nothing stale, an index.
func DefaultOptions() Options {
	return Options{Target: TargetToken, Features: featuresFull, State: stateAuto, PrefixScore: prefixIndex, Shared: []string{}}
}

// Check names the first option out of bounds.
func (o *Options) Check() error {
	for _, of := range []struct {
		name, got string
		want      []string
	}{{"target", o.Target, []string{TargetToken, TargetE2E}}, {"features", o.Features, []string{featuresLLMD, featuresFull}},
		{"state", o.State, []string{stateAuto, stateStep, stateJourney}}, {"prefix-score", o.PrefixScore, []string{prefixIndex, prefixActual}}} {
		if !slices.Contains(of.want, of.got) {
			return option.Misusef("--%s: got %q, want %s", of.name, of.got, trace.OneOf(of.want))
		}
	}
	if o.StalenessUs < 0 {
		return option.Misusef("--staleness-us: got %d us, want >= 0", o.StalenessUs)
	}
	for _, text := range o.Shared {
		if _, _, err := parseShare(text); err != nil {
			return err
		}
	}
	return nil
}

// parseShare reads TOKENS or RUNGLOB=TOKENS: which runs, and how many first prompt tokens their requests share.
func parseShare(text string) (runs string, tokens int64, err error) {
	runs, number := "*", text
	if i := strings.LastIndex(text, "="); i >= 0 {
		runs, number = text[:i], text[i+1:]
	}
	tokens, err = strconv.ParseInt(number, 10, 64)
	if _, bad := path.Match(runs, ""); err != nil || bad != nil || tokens < 0 {
		return "", 0, option.Misusef("--shared-prefix-tokens: got %q, want TOKENS or RUNGLOB=TOKENS with tokens >= 0", text)
	}
	return runs, tokens, nil
}

// source is one recorded run.
type source struct {
	Run        *trace.Run
	Deployment *deploy.Deployment
	Saturated  []rows.Span // requests that arrived inside are dropped as saturated
}

// Result is what a run gave.
type Result struct {
	Rows      []Row
	Requests  int            // rows + sum of drops
	Dropped   map[reason]int // by reason
	Agreement stateAgreement
	Warnings  []trace.Finding
}

// Build makes the rows of a run.
func Build(src source, o Options) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	b := newBuilder(src, o)
	b.scores()
	b.sweep()
	return b.out, nil
}

// builder builds the rows of one run.
type builder struct {
	src      source
	o        Options
	lives    []life
	complete bool
	steps    *steps
	counts   *counts
	events   []event
	warmUpNs int64 // arrivals before it are warm-up
	blocks   int64 // KV blocks, 0 unknown
	stages   []trace.Opt[int64]
	out      *Result
}

func newBuilder(src source, o Options) *builder {
	d := src.Deployment
	b := &builder{src: src, o: o, out: &Result{Dropped: map[reason]int{}}}
	b.lives, b.complete, b.out.Warnings = livesOf(src.Run, d.Tracing.JourneySampleRate.Or(1), o.Target == TargetE2E)
	b.steps = newSteps(src.Run, d.Tracing.StepSampleRate.Or(1), d.Engine.IsAsync())
	b.counts = newCounts(b.lives, b.steps)
	b.events = eventsOf(b.lives)
	b.out.Requests = len(b.lives)
	b.blocks, _, _ = d.KVBlocks()
	b.stages = stagesOf(b.lives, d)
	b.warmUpNs = math.MinInt64
	const warmUpSteps = 10
	if n := len(src.Run.Steps); n > 0 && len(openPhases(d)) == len(d.Phases) {
		b.warmUpNs = src.Run.Steps[min(warmUpSteps, n-1)].TsStartNs
	}
	return b
}

// scores says for every request what share of its prompt is expected in the
// cache, and how many tokens that leaves to compute.
func (b *builder) scores() {
	d := b.src.Deployment
	if d.Engine.PrefixCaching && b.shareOut() {
		b.replayIndex()
	}
	for i := range b.lives {
		l := &b.lives[i]
		l.actual = actualScore(l, d.Engine.BlockSize, d.Engine.PrefixCaching)
		if !d.Engine.PrefixCaching {
			l.index = trace.Some(0.0)
		}
		l.score = l.index
		if b.o.PrefixScore == prefixActual {
			l.score = l.actual
		}
		if l.prompt.OK {
			b.counts.uncached[i] = max(1, l.prompt.V-int64(math.Round(l.score.V*float64(l.prompt.V))))
		}
	}
}

// replayIndex scores every request by the blocks that requests scheduled before
// its decision left.
func (b *builder) replayIndex() {
	x := newIndex(b.src.Deployment)
	at := 0
	for i := range b.lives {
		l := &b.lives[i]
		until := l.arrived.V - b.o.StalenessUs*1000
		for ; at < len(b.events) && b.events[at].at <= until; at++ {
			if e := b.events[at]; e.kind == evScheduled && b.lives[e.life].prompt.OK {
				x.scheduled(int(e.life), &b.lives[e.life], b.lives[e.life].cached)
			}
		}
		if l.arrived.OK && l.prompt.OK && l.prompt.V > 0 {
			l.index = trace.Some(x.match(i, l))
		}
	}
}

// shareOut gives requests without a prefix group what --shared-prefix-tokens
// states; false when nothing says what requests share.
func (b *builder) shareOut() bool {
	for i := range b.lives {
		if b.lives[i].group != "" {
			return true // the client said so for all its requests: those without a group share nothing
		}
	}
	for _, text := range b.o.Shared {
		runs, tokens, err := parseShare(text)
		if ok, _ := path.Match(runs, b.src.Run.ID); err != nil || !ok {
			continue
		}
		for i := range b.lives {
			b.lives[i].group, b.lives[i].groupTokens = "shared", trace.Some(tokens)
		}
		return true
	}
	return false
}

// sweep walks through time and judges every request at its decision.
func (b *builder) sweep() {
	at := 0
	for i := range b.lives {
		l := &b.lives[i]
		t := l.arrived.V - b.o.StalenessUs*1000
		for ; at < len(b.events) && before(b.events[at], t, l.arrived.V); at++ {
			b.counts.apply(b.events[at])
		}
		row, reason := b.row(i, t)
		if reason != "" {
			b.out.Dropped[reason]++
			continue
		}
		b.out.Rows = append(b.out.Rows, row)
	}
}

// before reports whether an event is observable: not later than t, and arrivals
// earlier than the decision itself.
func before(e event, t, decision int64) bool {
	return e.at < t || e.at == t && (e.kind != evArrived || t < decision)
}
