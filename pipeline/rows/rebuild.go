package rows

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// maxStepRange bounds the dense step array, stepsPerSummary and fewSteps what it may be beside
// the steps that were recorded: a wider range of ids is damage (spec#cost-limits).
const (
	maxStepRange    = 1 << 23
	stepsPerSummary = 256
	fewSteps        = 1 << 12
	maxLoggedSteps  = 1 << 25
)

// Rebuild finds out what ran in every step of the run, as far as its tables
// tell. Run of the result is the run without events, which no row needs.
// Codes: unknown_spec_version, bad_step_ids,
// and in 1.0 chunked_without_snapshots (spec#frozen-sourcing).
func Rebuild(run *trace.Run, dep *deploy.Deployment, v features.Version) (*Steps, error) {
	if err := features.CheckVersion(v); err != nil {
		return nil, err
	}
	less := *sorted(run)
	less.Events = nil
	if err := checkIDs(&less); err != nil {
		return nil, err
	}
	seen, err := surveyOf(&less)
	if err != nil {
		return nil, err
	}
	s := &Steps{Run: &less, Dep: dep, Version: v, Config: dep.Config(), seen: seen}
	return s, s.fill()
}

// As is the same run under another version.
func (s *Steps) As(v features.Version) (*Steps, error) {
	if err := features.CheckVersion(v); err != nil {
		return nil, err
	}
	out := &Steps{Run: s.Run, Dep: s.Dep, Version: v, Config: s.Config, seen: s.seen}
	return out, out.fill()
}

// fill rebuilds the batches.
func (s *Steps) fill() error {
	if a := s.Run.Aggregate; a != nil {
		s.Findings = append(s.Findings, a.Findings...)
	}
	n := len(s.Run.Steps)
	if n == 0 {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: no step summaries: no beta rows, and the preemption average is 0",
			s.Run.ID))
		return nil
	}
	reader := &lifeReader{async: s.Dep.Engine.IsAsync(), caching: s.Dep.Engine.PrefixCaching, last: s.Run.Steps[n-1].ID, seen: s.seen.first}
	lives := reader.lives(s.Run.Requests)
	first, last := s.stepRange(lives)
	s.First = first
	if n := members(lives, first, last); n > mostMembers {
		return trace.Errorf(codeBadStepIDs, "run %s: steps of requests: got %d together in steps %d..%d, want at most %d", s.Run.ID, n, first,
			last, mostMembers)
	}
	s.plan = newPlan(lives, first, last, s, s.lost(first, last))
	b := newBuilder(s)
	if err := b.fill(); err != nil {
		return err
	}
	s.count(b)
	s.plan.release()
	if s.Version == features.V10 {
		return s.Refused10()
	}
	return nil
}

// sorted returns the run with steps and snapshots in id order, as extraction
// writes them; others are sorted into a copy.
func sorted(run *trace.Run) *trace.Run {
	byID := func(a, b trace.Step) int { return int(min(1, max(-1, a.ID-b.ID))) }
	byStep := func(a, b trace.Snapshot) int { return int(min(1, max(-1, a.StepID-b.StepID))) }
	if slices.IsSortedFunc(run.Steps, byID) && slices.IsSortedFunc(run.Snapshots, byStep) {
		return run
	}
	c := *run
	c.Steps, c.Snapshots = slices.Clone(run.Steps), slices.Clone(run.Snapshots)
	slices.SortStableFunc(c.Steps, byID)
	slices.SortStableFunc(c.Snapshots, byStep)
	return &c
}

// checkIDs refuses step ids that are too far apart or equal.
func checkIDs(run *trace.Run) error {
	if len(run.Steps) == 0 {
		return nil
	}
	lo := run.Steps[0].ID
	hi := run.Steps[len(run.Steps)-1].ID
	limit := min(maxStepRange, max(fewSteps, stepsPerSummary*int64(len(run.Steps))))
	if run.Aggregate != nil { // their ids are ours, one a logged pass
		limit = maxLoggedSteps
	}
	if hi-lo >= limit || hi-lo < 0 {
		return trace.Errorf(codeBadStepIDs, "run %s: step ids: got %d..%d in %d summaries, want a range below %d", run.ID, lo, hi,
			len(run.Steps), limit)
	}
	for i := 1; i < len(run.Steps); i++ {
		if run.Steps[i].ID == run.Steps[i-1].ID {
			return trace.Errorf(codeBadStepIDs, "run %s: step %d: got two summaries, want one", run.ID, run.Steps[i].ID).
				WithHint("blis-train extract --split-engines")
		}
	}
	return nil
}

// stepRange is every step that a summary or a journey speaks of, as long as it
// is near the recorded ones.
func (s *Steps) stepRange(lives []life) (first, last int64) {
	lo := s.Run.Steps[0].ID
	hi := s.Run.Steps[len(s.Run.Steps)-1].ID
	const margin = 4096
	first, last = lo, hi
	for i := range lives {
		if f := lives[i].first(); f >= lo-margin {
			first = min(first, f)
		}
		if l := lives[i].last(); l <= hi+margin {
			last = max(last, l)
		}
	}
	return first, last
}

// asked are the summaries the run is asked about: all, but of a slice.
func (s *Steps) asked() (from, to int) {
	of := s.Run.Slice
	if of == nil {
		return 0, len(s.Run.Steps)
	}
	at := func(ns int64) int {
		return sort.Search(len(s.Run.Steps), func(k int) bool { return s.Run.Steps[k].TsStartNs >= ns })
	}
	return at(of.FromNs), at(of.ToNs)
}

// askedIDs are the same steps and those between them, by id.
func (s *Steps) askedIDs() (from, to int64) {
	from, to = s.First, s.First+int64(s.Len())
	lo, hi := s.asked()
	if lo > 0 {
		from = s.Run.Steps[lo].ID
	}
	if hi < len(s.Run.Steps) {
		to = s.Run.Steps[hi].ID
	}
	return from, to
}

// lost lists the steps in which a request may be missing from the journeys:
// all of them when journeys are sampled or a snapshot shows an unknown request,
// else the lifetimes of API spans without a core span and of core spans without
// an API span (whatever lost the one may have lost others).
func (s *Steps) lost(first, last int64) []Span {
	everything := []Span{{first, last + 1}}
	if rate := s.Dep.Tracing.JourneySampleRate; rate.OK && rate.V < 1 {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: journeys are sampled at %g", s.Run.ID, rate.V))
		return everything
	}
	if n := s.seen.unknown; n > 0 {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: %d requests in the snapshots have no core span", s.Run.ID, n))
		return everything
	}
	var spans []Span
	for i := range s.Run.Requests {
		if span, ok := s.missing(&s.Run.Requests[i], last); ok {
			spans = append(spans, span)
		}
	}
	if len(spans) > 0 {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: %d spans lack their API or core partner", s.Run.ID, len(spans)))
	}
	return spans
}

// missing is the range of steps [StartNs, EndNs) (step ids, not ns) in which a
// request without its partner span may have run.
func (s *Steps) missing(r *trace.Request, last int64) (Span, bool) {
	if r.Source != trace.SourceFork || r.CoreID.OK && r.APIID.OK {
		return Span{}, false
	}
	if r.CoreID.OK {
		return Span{r.QueuedStep.Or(s.First), r.FinishedStep.Or(last) + 2}, true
	}
	if !r.ArrivedNs.OK {
		return Span{s.First, last + 1}, true
	}
	m := s.Run.Steps
	from, to := m[0].ID, last+1
	if k := lastStart(m, r.ArrivedNs.V); k >= 0 {
		from = m[k].ID
	}
	if end := r.DepartedNs.Or(r.AbortedNs.V); r.DepartedNs.OK || r.AbortedNs.OK {
		if k := lastStart(m, end); k+1 < len(m) {
			to = m[k+1].ID + 1
		}
	}
	return Span{from, to}, true
}

// lastStart is the index of the last step with ts_start <= ns, ties included;
// -1 when there is none. Steps are in id order, and so are their stamps.
func lastStart(steps []trace.Step, ns int64) int {
	return sort.Search(len(steps), func(k int) bool { return steps[k].TsStartNs > ns }) - 1
}

// count fills Quality and the findings that follow from it.
func (s *Steps) count(b *builder) {
	if s.Dep.Engine.CPUOffloading && len(s.Run.KVEvents) == 0 {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: CPU offloading is on and no KV events were recorded", s.Run.ID))
	}
	q := &s.Quality
	approximatePrefill := false
	from, to := s.askedIDs()
	for id := from; id < to; id++ {
		k := int(id - s.First)
		st := &s.all[k]
		if st.Recorded < 0 {
			s.countUnrecorded(st)
			continue
		}
		q.Recorded++
		switch st.Tag {
		case TagRich:
			q.FromSnapshots++
		case TagJourney:
			q.Reconstructed++
		case TagSummary, tagAggregate:
			q.Approximate++
			approximatePrefill = approximatePrefill || st.In.PrefillTokens > 0
		default:
			q.Unknown++
		}
		if b.journeys && b.why[k] == contradicted {
			q.Contradictions++
		}
		if b.journeys && b.why[k] == "" {
			q.FromJourneys++
		}
	}
	q.Known, q.KnownShare = q.Recorded-q.Unknown, result.Share(q.Recorded-q.Unknown, q.Recorded)
	q.CrossChecked = b.checked
	q.CrossWrong = len(b.wrong)
	s.Wrong = b.wrong
	s.qualityFindings(approximatePrefill && !b.hasCV2)
}

func (s *Steps) countUnrecorded(st *Step) {
	if first, last := s.Run.Steps[0].ID, s.Run.Steps[len(s.Run.Steps)-1].ID; st.ID < first || st.ID > last {
		return
	}
	s.Quality.Unrecorded++
	if st.Known() {
		s.Quality.Rebuilt++
	}
}

func (s *Steps) qualityFindings(noLengths bool) {
	q := &s.Quality
	if q.Unrecorded > 0 {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: %d of %d steps are recorded; the preemption average sees only those",
			s.Run.ID, q.Recorded, q.Recorded+q.Unrecorded))
	}
	if q.Approximate > 0 {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: %d of %d steps and idle times are approximated from batch totals",
			s.Run.ID, q.Approximate, q.Recorded))
	}
	if q.Approximate > 0 && features.Layered(s.Version) && len(s.Dep.Reaches()) > 0 {
		s.Findings = append(s.Findings, trace.Findingf(codeWindowSums, "%s: of %d of %d steps sums alone are known: what attention within "+
			"windows, chunks or an index reads is exact only where all requests of a step are shorter, or all longer, than it reaches",
			s.Run.ID, q.Approximate, q.Recorded))
	}
	if noLengths && s.Run.Aggregate == nil {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: no prompt lengths in snapshots; equal prompts are assumed",
			s.Run.ID))
	}
}

// Coverage says which kinds of steps a run holds.
type Coverage struct {
	PrefillTokens result.Histogram // tokens per step, steps with prefill
	DecodeBatch   result.Histogram // decodes per step, steps with decodes
	Context       result.Histogram // tokens in KV per decode
	KVUsage       result.Histogram // share of GPU blocks, recorded steps
	// Heavy counts steps with more than 64 prefill tokens: without enough of
	// them the prefill cost is not identifiable.
	Heavy    int
	Findings []trace.Finding
}

// scarce is how many steps of a kind make it present.
const scarce = 20

// powers counts in bins with the edges 0, 1, 2, 4 .. largest.
func powers(name, unit string, largest float64) result.Histogram {
	edges := []float64{0}
	for lo := 1.0; lo < largest; lo *= 2 {
		edges = append(edges, lo)
	}
	return result.Histogram{Name: name, Unit: unit, Edges: edges, Counts: make([]int, len(edges))}
}

func tenths(name string) result.Histogram {
	h := result.Histogram{Name: name, Unit: "1", Counts: make([]int, 10)}
	for i := range 10 {
		h.Edges = append(h.Edges, float64(i)/10)
	}
	return h
}

// countIn adds one value to a histogram.
func countIn(h *result.Histogram, v float64) {
	for i := len(h.Edges) - 1; i >= 0; i-- {
		if v >= h.Edges[i] {
			h.Counts[i]++
			h.Rows++
			return
		}
	}
}

// Coverage counts the run's busy steps and names the regimes it lacks.
func (s *Steps) Coverage() Coverage {
	c := Coverage{
		PrefillTokens: powers("prefill_tokens", "tokens", 32768),
		DecodeBatch:   powers("decode_batch", "requests", 1024),
		Context:       powers("context_tokens", "tokens", 131072),
		KVUsage:       tenths("kv_usage"),
	}
	var decode, mixed, prefill int
	for k := range s.all {
		st := &s.all[k]
		if st.Recorded >= 0 && isBusy(&s.Run.Steps[st.Recorded]) {
			countIn(&c.KVUsage, s.Run.Steps[st.Recorded].KVUsage)
		}
		if !st.Known() || st.In.ScheduledTokens == 0 {
			continue
		}
		hasPrefill := st.In.PrefillTokens > 0
		hasDecode := st.In.DecodeTokens > 0
		switch {
		case hasPrefill && hasDecode:
			mixed++
		case hasPrefill:
			prefill++
		default:
			decode++
		}
		if hasPrefill {
			countIn(&c.PrefillTokens, st.In.PrefillTokens)
		}
		if hasDecode {
			countIn(&c.DecodeBatch, st.In.NumDecodeReqs)
			countIn(&c.Context, st.In.DecodeContextTokens/st.In.NumDecodeReqs)
		}
		if st.In.PrefillTokens > evidenceTokens {
			c.Heavy++
		}
	}
	c.absent(s.Run.ID, decode, mixed, prefill)
	return c
}

func (c *Coverage) absent(run string, decode, mixed, prefill int) {
	for _, k := range []struct {
		n    int
		what string
	}{
		{decode, "pure-decode steps"},
		{mixed, "steps that mix prefill and decode"},
		{prefill, "pure-prefill steps"},
		{c.Heavy, "steps with more than 64 prefill tokens (prefill cost is not identifiable)"},
	} {
		if k.n < scarce {
			c.Findings = append(c.Findings, trace.Findingf(codeRegimeAbsent, "%s: %d %s, want at least %d", run, k.n, k.what, scarce))
		}
	}
}

// Ranges are the smallest and largest per-step values of every feature over
// the training rows of the tables (spec#training-range); 0, 0 for a slot without any.
func Ranges(tables []*Table) (lo, hi []float64) {
	if len(tables) == 0 {
		return nil, nil
	}
	p := tables[0].P
	lo = filled(p, math.Inf(1))
	hi = filled(p, math.Inf(-1))
	for _, t := range tables {
		for j := range p {
			lo[j], hi[j] = math.Min(lo[j], t.Min[j]), math.Max(hi[j], t.Max[j])
		}
	}
	for j := range p {
		if lo[j] > hi[j] {
			lo[j], hi[j] = 0, 0
		}
	}
	return lo, hi
}

// Sizes of the figures: they bound a report whatever the number of rows.
const (
	binsPerDecade = 12
	maxBands      = 20
	minBandRows   = 5
	figureDigits  = 5
)

// Figures aggregate the judged rows: predicted against measured, residuals against
// batch, context and time, and what each term contributes to a mean step.
func (s *StepErrors) Figures(terms []string) *result.FitFigures {
	f := &result.FitFigures{PredVsMeasured: []result.Bin2D{}, Residuals: []result.ResidualBand{}, Contributions: []result.Contribution{}}
	f.PredVsMeasured = append(f.PredVsMeasured, s.bins()...)
	for _, axis := range []struct {
		name string
		of   func(t *Table, i int32) float64
	}{
		{"batch", func(t *Table, i int32) float64 { return t.Batch[i] }},
		{"context", func(t *Table, i int32) float64 { return t.Context[i] }},
		{"time", func(t *Table, i int32) float64 { return float64(t.TimeNs[i]-t.TimeNs[0]) / 1e9 }},
	} {
		for r := Decode; r <= Mixed; r++ {
			f.Residuals = append(f.Residuals, s.bands(axis.name, r, axis.of)...)
		}
	}
	for r := Decode; r <= Mixed; r++ {
		f.Contributions = append(f.Contributions, s.contributions(r, terms)...)
	}
	return f
}

// of visits the judged rows of one regime.
func (s *StepErrors) of(r Regime, visit func(sample *Sample, k int, row int32)) {
	for k, ref := range s.refs {
		if sample := s.samples[ref.sample]; sample.Table.Regime[ref.row] == r {
			visit(sample, k, ref.row)
		}
	}
}

// bins count rows in log-log cells of measured and predicted time per step, by
// regime, measured, predicted.
func (s *StepErrors) bins() []result.Bin2D {
	var out []result.Bin2D
	bin := func(us float64) int { return int(math.Floor(math.Log10(us) * binsPerDecade)) }
	centre := func(bin int) float64 { return math.Pow(10, (float64(bin)+0.5)/binsPerDecade) }
	for r := Decode; r <= Mixed; r++ {
		count := map[[2]int]int{}
		s.of(r, func(sample *Sample, k int, row int32) {
			y := s.rows.Y[k] / sample.Table.Steps[row]
			p := s.rows.Pred[k] / sample.Table.Steps[row]
			if y > 0 && p > 0 {
				count[[2]int{bin(y), bin(p)}]++
			}
		})
		for _, k := range slices.SortedFunc(maps.Keys(count), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
			out = append(out, result.Bin2D{Regime: r.String(), X: centre(k[0]), Y: centre(k[1]), N: count[k]})
		}
	}
	return out
}

// bands are quantiles of (prediction - y)/y along one quantity.
func (s *StepErrors) bands(against string, r Regime, of func(t *Table, i int32) float64) []result.ResidualBand {
	var x, residual []float64
	s.of(r, func(sample *Sample, k int, row int32) {
		if y := s.rows.Y[k]; y > 0 {
			x = append(x, of(sample.Table, row))
			residual = append(residual, (s.rows.Pred[k]-y)/y)
		}
	})
	short := func(v float64) float64 { return stat.Round(v, figureDigits) }
	var out []result.ResidualBand
	for _, b := range stat.Bands(x, residual, maxBands, minBandRows) {
		out = append(out, result.ResidualBand{
			Against: against, Regime: r.String(), X: short(b.X), P10: short(b.P10), P50: short(b.P50), P90: short(b.P90), N: b.N,
		})
	}
	return out
}

// contributions are the mean us per engine step of each term; terms that
// contribute nothing are left out.
func (s *StepErrors) contributions(r Regime, terms []string) []result.Contribution {
	sum := make([]float64, len(terms))
	var steps float64
	s.of(r, func(sample *Sample, _ int, row int32) {
		steps += sample.Table.Steps[row]
		for j, x := range sample.Table.Row(int(row)) {
			sum[j] += x * sample.Beta[j]
		}
	})
	var out []result.Contribution
	for j, v := range sum {
		if v != 0 {
			out = append(out, result.Contribution{Regime: r.String(), Name: terms[j], MeanUs: v / steps})
		}
	}
	return out
}

// This file runs the five checks for an overloaded server on the phases of
// a run.

// LoadVerdicts is the verdict on one run and on each of its phases. Phases are in
// run.yaml's order without the warm-up; a run without phases has one, unnamed.
type LoadVerdicts struct {
	Run    LoadVerdict
	Phases []PhaseVerdict
}

// LoadVerdict holds the five checks of one stretch of time.
type LoadVerdict struct {
	Saturated bool
	Checks    []result.SaturationCheck
}

// PhaseVerdict is the verdict on [StartNs, EndNs) of the monotonic clock.
type PhaseVerdict struct {
	Name           string
	Load           string
	StartNs, EndNs int64
	Requests       int // that arrive in it
	Steps          int // that start in it
	LoadVerdict
}

// Hits lists the names of the checks over their threshold.
func (v LoadVerdict) Hits() []string {
	hits := []string{}
	for _, c := range v.Checks {
		if c.Hit {
			hits = append(hits, c.Name)
		}
	}
	return hits
}

// Phase returns the verdict on the named phase, or on the run when there is none.
func (s *LoadVerdicts) Phase(name string) LoadVerdict {
	for _, p := range s.Phases {
		if p.Name == name {
			return p.LoadVerdict
		}
	}
	return s.Run
}

// Spans are the saturated open phases.
func (s *LoadVerdicts) Spans() []Span {
	var out []Span
	for _, p := range s.Phases {
		if p.Saturated && p.Load != deploy.LoadClosed {
			out = append(out, Span{StartNs: p.StartNs, EndNs: p.EndNs})
		}
	}
	return out
}

// JudgeLoad is the reason for which a run is left out of a fit, empty for none, and
// the saturated spans of one that is kept.
func JudgeLoad(run *trace.Run, dep *deploy.Deployment) (reason string, spans []Span) {
	s := VerdictsOf(run, dep)
	if s.Run.Saturated {
		return HitText(s.Run.Checks), nil
	}
	return "", s.Spans()
}

// VerdictsOf runs the five checks on every phase. The run shows the checks of its
// worst open phase (most hits, then the first) and is saturated when all of its
// open phases are; otherwise only those spans are. A closed loop holds the load
// at what the server can do, so it cannot overrun it: its checks are shown and
// decide nothing. Without an open phase the whole run is checked.
func VerdictsOf(run *trace.Run, dep *deploy.Deployment) *LoadVerdicts {
	s := &LoadVerdicts{}
	worst, all := -1, true
	for i, p := range PhasesOf(run, dep) {
		w := windowOf(run, p)
		v := fiveChecks(w)
		s.Phases = append(s.Phases, PhaseVerdict{p.Name, p.Load, p.StartNs, p.EndNs, len(w.requests), w.steps, v})
		if p.Load == deploy.LoadClosed {
			continue
		}
		all = all && v.Saturated
		if worst < 0 || len(v.Hits()) > len(s.Phases[worst].Hits()) {
			worst = i
		}
	}
	if worst < 0 {
		s.Run = fiveChecks(windowOf(run, wholeRun()))
		return s
	}
	s.Run = s.Phases[worst].LoadVerdict
	s.Run.Saturated = all
	return s
}

// PhasesOf are the deployment's phases but the warm-up, or the whole run.
func PhasesOf(run *trace.Run, dep *deploy.Deployment) []deploy.Phase {
	var out []deploy.Phase
	for _, p := range dep.Phases {
		if p.Name != deploy.WarmupPhase {
			if p.Load == "" {
				p.Load = deploy.LoadOpen
			}
			out = append(out, p)
		}
	}
	if len(dep.Phases) == 0 {
		out = []deploy.Phase{wholeRun()}
	}
	return out
}

// wholeRun is an unnamed open phase that holds every stamp.
func wholeRun() deploy.Phase {
	const all = int64(1) << 62
	return deploy.Phase{StartNs: -all, EndNs: all, Load: deploy.LoadOpen}
}

// window is what a stretch of time holds: requests in order of arrival and the number of steps.
type window struct {
	requests []*trace.Request
	steps    int // recorded
}

func windowOf(run *trace.Run, p deploy.Phase) window {
	var w window
	for i := range run.Requests {
		r := &run.Requests[i]
		if at, ok := r.ArrivalNs(); ok && at >= p.StartNs && at < p.EndNs {
			w.requests = append(w.requests, r)
		}
	}
	slices.SortStableFunc(w.requests, func(a, b *trace.Request) int {
		x, _ := a.ArrivalNs()
		y, _ := b.ArrivalNs()
		return cmp.Compare(x, y)
	})
	for i := range run.Steps {
		if s := &run.Steps[i]; s.TsStartNs >= p.StartNs && s.TsStartNs < p.EndNs {
			w.steps++
		}
	}
	return w
}

// fiveChecks runs the five checks on the requests of a window.
func fiveChecks(w window) LoadVerdict {
	arrivals := make([]stat.Arrival, len(w.requests))
	for i, r := range w.requests {
		at, _ := r.ArrivalNs()
		left, hasLeft := r.DepartureNs()
		ttft, hasTTFT := r.TTFTMs()
		e2e, hasE2E := r.E2EMs()
		arrivals[i] = stat.Arrival{
			At: float64(at), Left: orNaN(float64(left), hasLeft), TTFT: orNaN(ttft, hasTTFT), E2E: orNaN(e2e, hasE2E),
			Ended: r.Success.OK, Failed: r.Failed(), Engine: r.CoreID.OK, Preempted: r.Preemptions.Or(0) > 0,
		}
	}
	checks, saturated := stat.Saturation(arrivals)
	v := LoadVerdict{Saturated: saturated}
	for _, c := range checks {
		v.Checks = append(v.Checks, result.SaturationCheck{Name: c.Name, Value: result.OrNull(c.Value), Threshold: c.Limit, Hit: c.Hit,
			Doc: c.Doc})
	}
	return v
}

func orNaN(v float64, ok bool) float64 {
	if !ok {
		return math.NaN()
	}
	return v
}

// HitText lists the checks that hit with value and threshold.
func HitText(checks []result.SaturationCheck) string {
	hits := stat.Map(stat.Filter(checks, func(c result.SaturationCheck) bool { return c.Hit }), func(c result.SaturationCheck) string {
		return fmt.Sprintf("%s %.2f > %.2f", c.Name, *c.Value, c.Threshold)
	})
	return strings.Join(hits, ", ")
}
