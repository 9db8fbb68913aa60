package rows

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// builder chooses the source of every step.
type builder struct {
	s        *Steps
	why      []Reason // per step, why the journeys do not tell
	journeys bool     // the run has core spans
	totals   bool     // steps without requests may use their totals (spec#summary-steps)
	starts   []int32  // by summary: prompts that began, see promptStarts; nil without chunked prefill
	cv2      float64
	hasCV2   bool
	reaches  []model.Reach // of the model's attention beside the full one
	buf      []trace.Member
	other    []trace.Member
	moved    []transfers // still to come
	checked  int
	wrong    []int64 // rich steps whose reconstruction differs
}

func newBuilder(s *Steps) *builder {
	b := &builder{s: s, moved: sumTransfers(s.Run.KVEvents), why: s.plan.verdicts(), journeys: len(s.plan.lives) > 0}
	rate := s.Dep.Tracing.JourneySampleRate
	b.totals = !b.journeys || rate.OK && rate.V < 1
	b.cv2, b.hasCV2 = s.seen.cv2, s.seen.hasCV2
	b.reaches = s.Dep.Reaches()
	if b.totals && s.Dep.Engine.ChunkedPrefill {
		b.starts = promptStarts(s.Run.Steps, s.Dep)
	}
	return b
}

// fill sets tag, reason and sums of every step.
func (b *builder) fill() error {
	w := sweep{p: b.s.plan}
	snaps, err := openSnapshots(b.s.Run)
	if err != nil {
		return err
	}
	b.s.all = make([]Step, len(b.why))
	for k := range b.why {
		id := b.s.First + int64(k)
		st := &b.s.all[k]
		st.ID, st.Recorded = id, b.s.plan.summary[k]
		b.buf = w.at(id, b.buf[:0])
		b.source(st, snaps.at(id), b.why[k])
		// joins the KV events (spec#transfers)
		for ; len(b.moved) > 0 && b.moved[0].step <= st.ID; b.moved = b.moved[1:] {
			if t := b.moved[0]; t.step == st.ID && st.Known() {
				st.In.TransferBlocks = float64(t.out)
				st.In.CPUResidentReadBlocks = float64(t.in)
			}
		}
	}
	return snaps.close()
}

// source fills one step: snapshots win, then journeys, then totals.
func (b *builder) source(st *Step, snaps []trace.Snapshot, why Reason) {
	var rec *trace.Step
	if st.Recorded >= 0 {
		rec = &b.s.Run.Steps[st.Recorded]
	}
	if !b.journeys {
		why = noRequests
	}
	switch {
	case b.s.Run.Aggregate != nil:
		b.total(st)
	case rec != nil && isComplete(rec, snaps):
		b.crossCheck(st.ID, snaps, why)
		st.Tag, st.In = TagRich, b.rich(rec, snaps)
	case b.s.Version == features.V10:
		b.source10(st, rec)
	case why == "":
		st.Tag, st.In = TagJourney, sum11(b.buf, b.reaches)
	case rec != nil && b.totals:
		b.source11(st, rec)
	default:
		st.Reason = why
	}
	if st.Known() {
		st.In.RunningDepth = float64(len(b.buf))
		if rec != nil {
			st.In.RunningDepth = float64(rec.RunningDepth)
		}
	}
}

// total takes the sums of a pass that an unmodified engine logged. 1.0 has no
// input for them.
func (b *builder) total(st *Step) {
	a := b.s.Run.Aggregate
	k := st.ID - a.First
	switch {
	case k < 0 || k >= int64(len(a.Totals)):
		st.Reason = noRequests
	case !a.Totals[k].Known:
		st.Reason = recomputedTotals
	case b.s.Version == features.V10:
		st.Reason = chunkedNoSnapshots
	default:
		st.Tag, st.In, st.NoStart = tagAggregate, Input(&a.Totals[k]), a.Totals[k].NoStart
	}
}

func (b *builder) rich(rec *trace.Step, snaps []trace.Snapshot) features.StepInput {
	if b.s.Version == features.V10 {
		return rich10(rec, snaps)
	}
	b.other = snapshotMembers(snaps, b.other[:0])
	return sum11(b.other, b.reaches)
}

// source10 is the source of 1.0 without snapshots (spec#frozen-sourcing): totals where chunking is off, and empty
// steps, which have nothing to be chunked.
func (b *builder) source10(st *Step, rec *trace.Step) {
	switch {
	case rec == nil:
		st.Reason = noRequests
	case b.s.Dep.Engine.ChunkedPrefill && rec.ScheduledTokens > 0:
		st.Reason = chunkedNoSnapshots
	default:
		st.Tag, st.In = TagSummary, summary10(rec, b.s.Dep, b.cv2)
	}
}

func (b *builder) source11(st *Step, rec *trace.Step) {
	whole := b.starts != nil && b.starts[st.Recorded] != unknownStarts
	if whole {
		rec = new(relabelled(*rec, b.starts[st.Recorded]))
	}
	in, why := summary11(rec, b.s.Dep, b.cv2, whole)
	if why != "" {
		st.Reason = why
		return
	}
	st.Tag, st.In = TagSummary, in
}

// crossCheck compares the reconstruction of a step with its snapshots.
func (b *builder) crossCheck(id int64, snaps []trace.Snapshot, why Reason) {
	if from, to := b.s.askedIDs(); why != "" || id < from || id >= to {
		return
	}
	b.checked++
	b.other = snapshotMembers(snaps, b.other[:0])
	if !sameMembers(b.buf, b.other) {
		b.wrong = append(b.wrong, id)
	}
}

// Refused10 says why spec 1.0 cannot read the run: chunked prefill without any
// complete snapshot (spec#frozen-sourcing). Nil where it can.
func (s *Steps) Refused10() error {
	if len(s.Run.Steps) == 0 || !s.Dep.Engine.ChunkedPrefill || s.Quality.FromSnapshots > 0 {
		return nil
	}
	return trace.Errorf(codeChunkedNoSnapshots, "run %s: spec 1.0 with chunked prefill: got no complete step snapshots, want some",
		s.Run.ID).WithHint("record with --step-tracing-rich-subsample-rate 1.0, or use --spec 1.1")
}

// Fill gives a run that has iterations and no step summaries the steps those
// tell; any other run stays as it is. A run whose times are refused keeps no
// steps and says why in its Aggregate. Errors: a deployment that the features
// refuse.
func Fill(run *trace.Run, dep *deploy.Deployment) error {
	if len(run.Iterations) == 0 || len(run.Steps) > 0 {
		return nil
	}
	drafts := dep.Engine.SpeculativeDecoding
	dep = dep.WithoutDrafts()
	space, err := features.New(features.DefaultVersion(dep), dep)
	if err != nil {
		return err
	}
	f := &filler{run: run, dep: dep, space: space, out: &trace.Aggregate{Drafts: drafts}}
	run.Aggregate = f.out
	f.passes = passesOf(run.Iterations, dep, drafts)
	f.recovered = run.Iterations[0].Form == trace.IterationChunks
	f.labels()
	f.fill()
	return nil
}

// filler makes the steps of one run.
type filler struct {
	run       *trace.Run
	dep       *deploy.Deployment
	space     *features.Space
	passes    []pass
	out       *trace.Aggregate
	recovered bool // steps recovered from clients' chunks: their clock, every sum known
	found     []occupant
}

func (f *filler) fill() {
	if f.refuse(f.refusal()) {
		return
	}
	a := f.audit()
	f.out.Audit = a.figures
	if f.refuse(a.refused) {
		return
	}
	f.clock(&a)
	f.align(&a)
	f.others()
	if f.contexts(); !f.refuse(f.uncounted()) {
		f.steps(&a)
	}
}

// refuse notes why the run has no step times; false for no reason.
func (f *filler) refuse(why *trace.Error) bool {
	if why != nil {
		f.out.Refused = why
	}
	return why != nil
}

func (f *filler) finding(code trace.Code, format string, args ...any) {
	f.out.Findings = append(f.out.Findings, trace.Findingf(code, f.run.ID+": "+format, args...))
}

// allPasses says how the engine writes every pass.
func (f *filler) allPasses() string {
	if f.passes[0].it.Form == trace.IterationSGLang {
		return "start SGLang with --decode-log-interval 1 and keep precise stamps (SGLANG_LOG_MS=1, docker logs --timestamps)"
	}
	return "set DYN_FPM_MODE=full (with --fpm-trace or DYN_FPM_TRACE=1)"
}

// refusal is what makes every pass of the recording useless for a fit.
func (f *filler) refusal() *trace.Error {
	sampled := 0
	several := 0
	decoding := 0
	for i := range f.passes {
		it := f.passes[i].it
		if it.Sampled {
			sampled++
		}
		if it.GenerationReqs > 0 {
			decoding++
			if it.GenerationTokens > it.GenerationReqs {
				several++
			}
		}
	}
	switch {
	case sampled > 0:
		return trace.Errorf(codeNoStepTimes, "run %s: %d of %d records are samples, one of several passes", f.run.ID, sampled, len(f.passes)).
			WithHint(f.allPasses())
	case several*2 > decoding && !f.out.Drafts:
		return trace.Errorf(codeNoStepTimes, "run %s: %d of %d passes with decodes have more tokens than requests: speculative decoding",
			f.run.ID, several, decoding).WithHint("write vllm.speculative_config into run.yaml, as the server was started with it")
	}
	if several > 0 && !f.out.Drafts {
		f.finding(codeFilledIn, "%d passes recompute preempted requests: they are left out of identification", several)
	}
	return nil
}

// each calls f for every per-row column, with its width in values.
func (t *Table) each(f func(c column)) {
	f(col[float64]{&t.X, t.P})
	for _, s := range []*[]float64{&t.Y, &t.Lo, &t.Hi, &t.Steps, &t.Factor, &t.FloorUs, &t.Batch, &t.Context} {
		f(col[float64]{s, 1})
	}
	for _, s := range []*[]bool{&t.Exact, &t.HoldOut} {
		f(col[bool]{s, 1})
	}
	for _, s := range []*[]int64{&t.TimeNs, &t.FirstStep, &t.LastStep} {
		f(col[int64]{s, 1})
	}
	f(col[Regime]{&t.Regime, 1})
	f(col[Tag]{&t.Tag, 1})
	f(col[int32]{&t.Phase, 1})
	f(col[StressSet]{&t.Sets, 1})
	f(col[string]{&t.ID, 1})
	for v := range t.Variants {
		for k := range t.Variants[v].Values {
			f(col[float64]{&t.Variants[v].Values[k], 1})
		}
	}
}

// reserve allocates columns for n rows.
func (t *Table) reserve(n int, slim bool) {
	t.X = make([]float64, 0, n*t.P)
	for _, s := range []*[]float64{&t.Y, &t.Steps, &t.Factor, &t.FloorUs, &t.Batch, &t.Context} {
		*s = make([]float64, 0, n)
	}
	t.TimeNs = make([]int64, 0, n)
	if !slim {
		t.FirstStep = make([]int64, 0, n)
		t.LastStep = make([]int64, 0, n)
	}
	t.Regime = make([]Regime, 0, n)
	t.Tag = make([]Tag, 0, n)
	t.Phase = make([]int32, 0, n)
	t.HoldOut = make([]bool, 0, n)
	t.Sets = make([]StressSet, 0, n)
}

// column is one per-row column of a table; a nil column stays nil.
type column interface {
	permute(order []int) // the rows of order, in a new column
	join(behind column)  // of the same kind
}

type col[T any] struct {
	s *[]T
	w int
}

func (c col[T]) join(behind column) { *c.s = append(*c.s, *behind.(col[T]).s...) }

// copyOf is a table whose columns may be replaced; their values are shared.
func (t *Table) copyOf() *Table {
	c := *t
	c.Dropped, c.Hits = slices.Clone(t.Dropped), slices.Clone(t.Hits)
	c.Min, c.Max, c.Findings = slices.Clone(t.Min), slices.Clone(t.Max), slices.Clone(t.Findings)
	c.Variants = slices.Clone(t.Variants)
	for v := range c.Variants {
		c.Variants[v].Values = slices.Clone(t.Variants[v].Values)
	}
	return &c
}

// sortByTime brings rows into time order, ties as they came. Requests are
// ordered by arrival already, except those without one.
func (b *alphaBuilder) sortByTime() {
	t := b.t
	if slices.IsSorted(t.TimeNs) {
		return
	}
	order := make([]int, t.Kept)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(t.TimeNs[i], t.TimeNs[j]) })
	t.pick(order)
}

// permute puts value order[i] at place i.
func (c col[T]) permute(order []int) {
	if *c.s == nil {
		return
	}
	out := make([]T, 0, len(order)*c.w)
	for _, i := range order {
		out = append(out, (*c.s)[i*c.w:(i+1)*c.w]...)
	}
	*c.s = out
}

// Sourcing of spec 1.0 (spec#frozen-sourcing), to the letter: counts and labels as recorded,
// output tokens added to the context a second time, allocated blocks as read
// blocks. Known errors stay.

// totals10 are the fields that come from the summary in every context.
func totals10(s *trace.Step) features.StepInput {
	return features.StepInput{
		PrefillTokens:   float64(s.PrefillTokens),
		DecodeTokens:    float64(s.DecodeTokens),
		ScheduledTokens: float64(s.ScheduledTokens),
		NumPrefillReqs:  float64(s.NumPrefillReqs),
		NumDecodeReqs:   float64(s.NumDecodeReqs),
		RunningDepth:    float64(s.RunningDepth),
	}
}

// rich10 adds the sums over snapshots, split by recorded label.
func rich10(s *trace.Step, snaps []trace.Snapshot) features.StepInput {
	in := totals10(s)
	for i := range snaps {
		q := &snaps[i]
		switch {
		case q.ScheduledTokens == 0:
		case q.Phase == "PREFILL":
			in.SumPrefillAttnWork += float64((q.ComputedTokens + q.ScheduledTokens) * q.ScheduledTokens)
		default:
			in.DecodeContextTokens += float64(q.ComputedTokens + q.OutputTokens)
			in.SumDecodeKVBlocks += float64(q.BlocksAllocated)
		}
	}
	return in
}

// summary10 approximates the sums from totals; chunked prefill must be off.
func summary10(s *trace.Step, d *deploy.Deployment, cv2 float64) features.StepInput {
	in := totals10(s)
	in.SumPrefillAttnWork = nonRichPrefillWork10(s.PrefillTokens, s.NumPrefillReqs, cv2)
	in.DecodeContextTokens = nonRichDecodeContext10(s.KVUsage, s.BlocksTotal, d.Engine.BlockSize, s.NumDecodeReqs, s.RunningDepth)
	in.SumDecodeKVBlocks = float64(s.BlocksTotal - s.BlocksFree)
	return in
}

// nonRichPrefillWork10 is P^2/np*(1+cv2) (spec#frozen-sourcing), 0 without prefill requests.
func nonRichPrefillWork10(prefillTokens, prefillReqs int64, cv2 float64) float64 {
	if prefillReqs == 0 {
		return 0
	}
	p := float64(prefillTokens)
	return p * p / float64(prefillReqs) * (1 + cv2)
}

// nonRichDecodeContext10 is usage*total*block_size*nd/max(1,running) (spec#frozen-sourcing).
func nonRichDecodeContext10(usage float64, totalBlocks, blockSize, decodeReqs, running int64) float64 {
	return usage * float64(totalBlocks) * float64(blockSize) * float64(decodeReqs) / float64(max(1, running))
}

// prefixHit10 is cached_blocks/max(1, allocated+cached), wrong on purpose: cached
// blocks are among the allocated ones (spec#err-cached-blocks).
func prefixHit10(cachedBlocks, allocatedBlocks int64) float64 {
	return float64(cachedBlocks) / float64(max(1, allocatedBlocks+cachedBlocks))
}

// sum11 adds up the members of a step (spec#step-sums), and within the reaches of unlike layers (spec#model-reach).
func sum11(members []trace.Member, reaches []model.Reach) features.StepInput {
	var in features.StepInput
	if len(reaches) > 0 {
		in.Reached = &features.Reached{}
	}
	for i := range members {
		c := members[i].Chunk
		if in.Add(features.V11, c); in.Reached != nil {
			in.Reached.Add(reaches, c.IsDecode(), c.Computed, c.New, 1)
		}
	}
	return in
}

// summary11 approximates a step from its totals (spec#summary-steps): pure-decode steps,
// or prefill of prompts that are whole: with chunked prefill off, or where the steps
// around show it. The code says why it cannot.
func summary11(s *trace.Step, d *deploy.Deployment, cv2 float64, whole bool) (features.StepInput, Reason) {
	if s.PrefillTokens > 0 && d.Engine.ChunkedPrefill && !whole {
		return features.StepInput{}, chunkedTotals
	}
	if s.DecodeTokens != s.NumDecodeReqs {
		return features.StepInput{}, recomputedTotals
	}
	reqs := s.NumPrefillReqs + s.NumDecodeReqs
	in := features.StepInput{
		PrefillTokens:       float64(s.PrefillTokens),
		DecodeTokens:        float64(s.DecodeTokens),
		ScheduledTokens:     float64(s.ScheduledTokens),
		NumPrefillReqs:      float64(s.NumPrefillReqs),
		NumDecodeReqs:       float64(s.NumDecodeReqs),
		NumSampledSeqs:      float64(reqs),
		PrefillCausalWork:   CausalFromTotals(float64(s.PrefillTokens), float64(s.NumPrefillReqs), cv2),
		DecodeContextTokens: contextFromBlocks(s, d.Engine.BlockSize),
	}
	in.KVReadTokens = in.DecodeContextTokens + in.PrefillTokens
	return in, ""
}

// unknownStarts marks a step of which totals do not tell how many prompts began in it.
const unknownStarts = -1

// promptStarts counts, from totals alone, the prompts that begin and end their prefill in
// each recorded step (spec#summary-steps). A prompt is in pieces only where a step fills
// its token budget. An asynchronous engine counts the first decode of each as a prefill of
// one token, so a step after one that began some holds as many of those.
func promptStarts(steps []trace.Step, d *deploy.Deployment) []int32 {
	starts := make([]int32, len(steps))
	full := func(s *trace.Step) bool {
		return s.ScheduledTokens >= d.Engine.MaxNumBatchedTokens || s.NumPreempted > 0
	}
	var s, before *trace.Step
	for i := range starts {
		before, s = s, &steps[i]
		if s.NumPrefillReqs == 0 {
			continue
		}
		starts[i] = unknownStarts
		if i == 0 || before.ID+1 != s.ID || full(s) || full(before) || d.Engine.LongPrefillThreshold > 0 {
			continue
		}
		first := int64(0)
		if d.Engine.IsAsync() {
			first = int64(starts[i-1])
		}
		if n := s.NumPrefillReqs - first; first >= 0 && (n > 0 && s.PrefillTokens-first >= n || n == 0 && s.PrefillTokens == first) {
			starts[i] = int32(n)
		}
	}
	return starts
}

// relabelled counts the first decodes that an asynchronous engine calls prefills as decodes.
func relabelled(s trace.Step, starts int32) trace.Step {
	first := s.NumPrefillReqs - int64(starts)
	s.NumPrefillReqs = int64(starts)
	s.PrefillTokens = s.PrefillTokens - first
	s.NumDecodeReqs += first
	s.DecodeTokens += first
	return s
}

// contextFromBlocks is max(nd, max(0, used*block_size - (np+nd)(block_size-1)/2)
// - prefill_tokens) for nd > 0: half a block of every sequence is empty on
// average.
func contextFromBlocks(s *trace.Step, blockSize int64) float64 {
	if s.NumDecodeReqs == 0 {
		return 0
	}
	used := float64((s.BlocksTotal - s.BlocksFree) * blockSize)
	held := used - float64((s.NumPrefillReqs+s.NumDecodeReqs)*(blockSize-1))/2
	return math.Max(float64(s.NumDecodeReqs), math.Max(0, held)-float64(s.PrefillTokens))
}

// squaredVariation is the population variance over the squared mean; 0 for no
// values or a zero mean.
func squaredVariation(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	mean := stat.Sum(v, func(x float64) float64 { return x }) / float64(len(v))
	if mean == 0 {
		return 0
	}
	squares := stat.Sum(v, func(x float64) float64 { return (x - mean) * (x - mean) })
	return squares / float64(len(v)) / (mean * mean)
}

// prefixHit11 is 1 - effective_prompt_len/num_prompt_tokens, or where the key is
// absent (full hit) min(1, computed/prompt) (spec#prefix-hits).
func prefixHit11(s *trace.Snapshot) float64 {
	if s.PromptTokens < 1 {
		return 0
	}
	if s.EffectivePromptLen.OK {
		return 1 - float64(s.EffectivePromptLen.V)/float64(s.PromptTokens)
	}
	return math.Min(1, float64(s.ComputedTokens)/float64(s.PromptTokens))
}
