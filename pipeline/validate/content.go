package validate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// Content tells a replay which prompt tokens a recorded request found in the prefix cache or
// shares with others: it fills CachedTokens, Group, Hashes or the like. Nil means no two
// prompts share any.
type Content func(o *Request, r *sim.Request)

// Shared is what is known about shared prompts, request by request.
type Shared struct {
	Content  Content
	Findings []trace.Finding
	unknown  func(o *Request) bool // nothing says what it shares, and nothing was assumed
}

// sharedGroup is the content group of requests that share what the options say; the client's
// own groups follow it.
const sharedGroup = 1

// ContentOf tells what the requests obs of a run share, best source first: the engine's own
// journeys, the cached tokens of the client's row (usage, or found from the passes), the
// prefix group that the client names. All others share their first sharedPrefix tokens;
// 0: nothing, and that is said.
func ContentOf(run *trace.Run, dep *deploy.Deployment, obs []Request, sharedPrefix int64) Shared {
	if !dep.Engine.PrefixCaching {
		return Shared{}
	}
	var s Shared
	engine := map[string]*sim.Request{}
	if w, err := workload.FromRun(run, dep, workload.RunOptions{}); err == nil {
		for i := range w.Requests {
			engine[w.Requests[i].ID] = &w.Requests[i]
		}
		for _, n := range w.Notes {
			if n.Code == workload.CodePrefixUnknown {
				s.Findings = append(s.Findings, trace.Findingf(ReplayAssumes, "run %s: %s", run.ID, n.Message))
			}
		}
	}
	groups := map[string]uint64{}
	journey := func(o *Request) *sim.Request {
		if o.Row != nil && o.Row.CoreID.OK {
			return engine[o.Row.CoreID.V]
		}
		return engine[o.ID]
	}
	s.unknown = func(o *Request) bool {
		return sharedPrefix == 0 && journey(o) == nil && (o.Row == nil || !o.Row.CachedTokens.OK && !o.Row.PrefixGroup.OK)
	}
	s.Content = func(o *Request, r *sim.Request) {
		row := o.Row
		from := journey(o)
		switch {
		case from != nil:
			r.Group = from.Group
			r.GroupTokens = from.GroupTokens
			r.Hashes = from.Hashes
			r.HashTokens = from.HashTokens
			r.CachedTokens = from.CachedTokens
		case row != nil && row.CachedTokens.OK:
			r.CachedTokens = trace.Some(min(row.CachedTokens.V, r.PromptTokens))
		}
		switch {
		case r.Group != 0 || len(r.Hashes) > 0:
		case row != nil && row.PrefixGroup.OK:
			if groups[row.PrefixGroup.V] == 0 {
				groups[row.PrefixGroup.V] = uint64(len(groups) + sharedGroup + 1)
			}
			r.Group = groups[row.PrefixGroup.V]
			r.GroupTokens = min(row.PrefixTokens.V, r.PromptTokens)
		case from == nil && !r.CachedTokens.OK && sharedPrefix > 0:
			r.Group = sharedGroup
			r.GroupTokens = min(sharedPrefix, r.PromptTokens)
		}
	}
	s.assumed(run, obs, sharedPrefix, journey)
	return s
}

// assumed says what stands for what nobody recorded.
func (s *Shared) assumed(run *trace.Run, obs []Request, sharedPrefix int64, journey func(*Request) *sim.Request) {
	unknown := 0
	shares := 0
	assumed := 0
	for i := range obs {
		o := &obs[i]
		switch {
		case s.unknown(o):
			unknown++
		case journey(o) != nil:
		case o.Row != nil && (o.Row.CachedTokens.OK || o.Row.PrefixGroup.OK):
			if o.Row.CachedMin.V != o.Row.CachedMax.V {
				shares++
			}
		default:
			assumed++
		}
	}
	say := func(n int, format string, args ...any) {
		if n > 0 {
			s.Findings = append(s.Findings, trace.Findingf(ReplayAssumes, "run %s: "+format, append([]any{run.ID}, args...)...))
		}
	}
	say(shares, "the cached tokens of %d of %d prompts are shares of what passes, counters or hit rates say of several", shares, len(obs))
	say(assumed, "%d of %d requests are taken to share their first %d prompt tokens", assumed, len(obs), sharedPrefix)
	say(unknown, "prefix caching is on and nothing says what %d of %d requests share; replayed uncached: %s", unknown, len(obs), tellsCached)
}

const tellsCached = "keep /metrics before and after each load, log the iterations (--enable-logging-iteration-details), have the " +
	"client keep usage (--enable-prompt-tokens-details), or set the key shared-prefix-tokens"

// undecided says why the replay of a phase cannot be judged for want of cached tokens.
func (s *Shared) undecided(obs []Request, p *deploy.Phase) string {
	if s.unknown == nil {
		return ""
	}
	n, all := 0, 0
	for i := range obs {
		if o := &obs[i]; o.ArrivalNs >= p.StartNs && o.ArrivalNs < p.EndNs {
			all++
			if s.unknown(o) || o.Row != nil && o.Row.CachedTokens.OK && !o.Row.KnowsCached() {
				n++
			}
		}
	}
	if float64(n) <= trace.MostGuessed*float64(all) {
		return ""
	}
	return fmt.Sprintf("nobody recorded what %d of %d prompts found in the prefix cache: %s", n, all, tellsCached)
}

// uncounted says why the load that a log's passes ran is not that of the clients' results.
func uncounted(a *trace.Aggregate, obs []Request, p *deploy.Phase) string {
	n, all := 0, 0
	for i := range obs {
		if o := &obs[i]; o.Row != nil && o.ArrivalNs >= p.StartNs && o.ArrivalNs < p.EndNs {
			if all++; o.Row.Uncounted() && o.Row.LastChunkNs.OK {
				n++
			}
		}
	}
	switch {
	case a == nil:
	case float64(n) > trace.MostGuessed*float64(all):
		return fmt.Sprintf("%d of %d requests have several answers or were left early, and nothing says when the engine ran them: let clients "+
			"ask for one answer each, to its end", n, all)
	case a.Others > trace.MostGuessed:
		return fmt.Sprintf("no client's result shows %.0f %% of the decodes that ran: keep the results of every client", 100*a.Others)
	}
	return ""
}

// Run is cut in three, so that runs may be judged by many processes: StoreSteps of each,
// OutlierLimits of them all, StoreReplay of each, and Run on what those two wrote.

// Files of a stored run: what is no table, the tables, the replay.
const (
	storedSteps  = "steps.json"
	storedTables = "steps.bin"
	storedReplay = "replay.json"
)

// replayed are the entries of a run and, by scope of a gate, what its requests waited for.
type replayed struct {
	Entries []result.ValidationRun `json:"entries"`
	Starved map[string]starved     `json:"starved"`
}

// StoreSteps makes the rows of one run as Run does and writes them to a folder that
// Source.Steps may name.
func StoreSteps(ctx context.Context, set *coeff.Set, fit *result.Fit, src Source, o Options, dir string) error {
	j, err := newJob(ctx, set, fit, []Source{src}, o)
	if err == nil {
		err = j.each(ctx, "steps", j.loadSteps)
	}
	if err != nil {
		return err
	}
	t := j.all[0]
	err = files.WriteJSON(filepath.Join(dir, storedSteps), t.stored)
	if err != nil || t.beta == nil {
		return err
	}
	w, err := rows.CreateTables(filepath.Join(dir, storedTables))
	if err != nil {
		return err
	}
	for _, t := range append([]*rows.Table{t.beta}, t.alpha...) {
		err = errors.Join(err, w.Encode(t))
	}
	return errors.Join(err, w.Close())
}

func restoreSteps(src *Source, set *coeff.Set) (*judgedRun, error) {
	t := &judgedRun{id: src.ID, informs: src.Informs, training: src.Training}
	if err := files.ReadJSON(filepath.Join(src.Steps, storedSteps), &t.stored); err != nil {
		return nil, err
	}
	t.under(set)
	path := filepath.Join(src.Steps, storedTables)
	if _, err := os.Stat(path); os.IsNotExist(err) {
		return t, nil
	}
	_, err := rows.RestoreTables(path, func(i int, table *rows.Table) {
		if i == 0 {
			t.beta = table
		} else {
			t.alpha = append(t.alpha, table)
		}
	})
	return t, err
}

// OutlierLimits are those over all runs, whose steps are stored.
func OutlierLimits(ctx context.Context, set *coeff.Set, fit *result.Fit, sources []Source, o Options) ([]Limits, error) {
	j, err := newJob(ctx, set, fit, sources, o)
	if err == nil {
		err = j.each(ctx, "limits", func(i int) error {
			if err := j.loadSteps(i); err != nil || j.all[i].beta == nil {
				return err
			}
			for _, t := range append([]*rows.Table{j.all[i].beta}, j.all[i].alpha...) {
				*t = rows.Table{Config: t.Config, Target: t.Target, Kept: t.Kept, Y: t.Y, Steps: t.Steps, Regime: t.Regime} // limits are of times
			}
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	return j.limits(), nil
}

// StoreReplay replays one run, whose steps are stored, as Run does and writes the result to
// a folder that Source.Replay may name; limits are those of all runs.
func StoreReplay(ctx context.Context, set *coeff.Set, fit *result.Fit, src Source, o Options, limits []Limits, dir string) error {
	j, err := newJob(ctx, set, fit, []Source{src}, o)
	if err == nil {
		err = j.each(ctx, "steps", j.loadSteps)
	}
	if err == nil {
		err = j.clean(limits)
	}
	if err == nil {
		err = j.each(ctx, "replay", func(i int) error { return j.replay(ctx, i) })
	}
	if err != nil {
		return err
	}
	return files.WriteJSON(filepath.Join(dir, storedReplay), replayed{j.entries[0], j.all[0].starved})
}

func restoreReplay(dir string) ([]result.ValidationRun, map[string]starved, error) {
	var r replayed
	err := files.ReadJSON(filepath.Join(dir, storedReplay), &r)
	return r.Entries, r.Starved, err
}

// What one flag more would add to a recording.
const (
	addLog     = "--enable-logging-iteration-details (vLLM 0.14 or newer): batches and step times of an unmodified server"
	addClients = "vllm bench serve --save-result --save-detailed: contexts of decodes, and a replay that is judged"
	addUsage   = "--enable-prompt-tokens-details and a client that keeps the usage: cached tokens of every request"
)

// sourcesOf says which sources a recording holds, what each teaches, and what one flag more would
// add; sources that are missing stand there where they would teach more than is there.
func sourcesOf(run *trace.Run, dep *deploy.Deployment, in *result.ExtractRun) []result.InspectSource {
	if in == nil {
		return nil
	}
	var out []result.InspectSource
	ranks, servers := dep.Balanced()
	add := func(source, got, teaches, adds string) {
		out = append(out, result.InspectSource{Source: source, Found: got != "", Got: got, Teaches: teaches, Adds: adds})
	}
	count := func(n int, what string) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprintf("%d %s", n, what)
	}
	fork := int(in.Requests.Engine)
	steps := int(in.Steps.Summaries)
	if fork+steps > 0 {
		adds := ""
		if steps == 0 {
			adds = "--step-tracing-enabled: the time and the batch of every step"
		}
		add("spans of the tracing fork", fmt.Sprintf("%d requests, %d steps", fork, steps), "waits, batches and step times", adds)
	}
	if got := count(int(in.Requests.Stock), "requests"); got != "" {
		add("spans of unmodified vLLM", got, "queue, prefill and decode times of each request", "")
	}
	switch {
	case len(run.Iterations) > 0 && run.Iterations[0].Form != trace.IterationChunks:
		out = append(out, passesOf(run))
	case steps == 0:
		adds := addLog
		if servers > 1 {
			adds += "; also --api-server-count 1: of several API servers, as many as data-parallel ranks unless told, none writes them"
		}
		add("log of the engine's passes", "", "step times by batch", adds)
	}
	requests, single := 0, 0
	for i := range run.Observed {
		if requests++; run.Observed[i].ChunkGapsUs != nil {
			single++
		}
	}
	adds := ""
	switch {
	case ranks > 1 && len(run.Iterations) > 0 && run.Iterations[0].Form == trace.IterationLog:
		adds = "--data-parallel-external-lb and a client for each rank: which of the engines served a request"
	case requests == 0 && fork == 0:
		adds = addClients
	case requests > 0 && single == 0:
		adds = "vllm bench serve --save-detailed: the times of single tokens"
	}
	if requests > 0 || adds != "" {
		add("results of clients", count(requests, "requests"), "TTFT, ITL and E2E of each request, and who was decoding", adds)
	}
	if got := count(len(run.Points), "load levels"); got != "" {
		add("load levels", got, "mean TTFT and TPOT by load", addClients)
	}
	files := stat.Count(in.Files, func(f result.ExtractFile) bool { return f.Kind == "metrics" })
	adds = ""
	if files == 0 && len(run.Iterations) > 0 {
		adds = "curl HOST:PORT/metrics > run/NAME.prom before and after each load: what the counters say of cached tokens"
	}
	if files > 0 || adds != "" {
		add("answers of /metrics", count(files, "files"), "sums that lengths and cached tokens are checked by, and load levels", adds)
	}
	if s, ok := cachedSource(in, requests); ok {
		out = append(out, s)
	}
	if got := count(len(run.KVEvents), "events"); got != "" {
		add("KV events", got, "blocks that were stored, evicted and moved", "")
	}
	return out
}

// passesOf is what the passes of a log or of forward-pass metrics teach.
func passesOf(run *trace.Run) result.InspectSource {
	a, form := run.Aggregate, run.Iterations[0].Form
	s := result.InspectSource{Found: true, Got: fmt.Sprintf("%d passes", len(run.Iterations)), Teaches: "batches, and no step times"}
	s.Source = map[string]string{"": "iterations in vLLM's log", trace.IterationLog: "iterations in vLLM's log",
		trace.IterationFPM: "forward-pass metrics", trace.IterationSGLang: "batches in SGLang's log",
		trace.IterationTensorRT: "iterations in TensorRT-LLM's log"}[form]
	if s.Source == "" {
		s.Source = "iterations in the log of " + form
	}
	drafted := stat.Sum(run.Iterations, func(x trace.Iteration) int64 { return x.GenerationTokens - x.GenerationReqs })
	if drafted > 0 && form == trace.IterationLog {
		s.Got += fmt.Sprintf(", %d drafted tokens", drafted)
	}
	switch {
	case a == nil:
	case a.Refused != nil:
		s.Adds = a.Refused.Hint
	default:
		times, contexts := timeSources(a)
		if s.Teaches = times + " and " + contexts; a.Audit.Time != "cadence" {
			s.Adds = "docker logs --timestamps (kubectl logs --timestamps): the time of every step"
		}
	}
	return s
}

// timeSources says in words where step times and contexts of passes come from.
func timeSources(a *trace.Aggregate) (times, contexts string) {
	times = map[string]string{
		"cadence": "step times from the stamps of its lines", "elapsed": "step times from the logged elapsed time",
		"ticks": "sums of step times between whole seconds", "": "no step times",
	}[a.Audit.Time]
	contexts = map[string]string{
		"trace": "the KV-read term from the trace's own sums", "client": "the KV-read term from the clients' requests",
		"kv_usage": "the KV-read term from the KV usage, roughly", trace.ContextsMean: "the KV-read term merged with the per-decode term",
		"": "no KV-read term",
	}[a.Contexts]
	return times, contexts
}

// cachedSource is what is known of the prefix cache.
func cachedSource(in *result.ExtractRun, requests int) (s result.InspectSource, ok bool) {
	var sum result.CachedTokens
	for _, p := range in.CachedTokens {
		sum.Requests += p.Requests
		sum.HitTokens += p.HitTokens
		sum.PromptTokens += p.PromptTokens
		sum.Exact += p.Exact
		sum.Usage += p.Usage
		sum.Bounded += p.Bounded
		sum.Unpaired += p.Unpaired
	}
	s = result.InspectSource{Source: "cached tokens", Teaches: "prompts cost what was computed of them"}
	known := sum.Exact + sum.Usage + sum.Bounded
	if known == 0 && (requests+int(in.Requests.Stock) == 0 || in.Requests.Engine > 0) {
		return s, false
	}
	if s.Found = known > 0; s.Found {
		s.Got = fmt.Sprintf("%d of %d prompt tokens; of %d requests %d by usage, %d exactly, %d within bounds", sum.HitTokens, sum.PromptTokens,
			sum.Requests, sum.Usage, sum.Exact, sum.Bounded)
	}
	if sum.Bounded+sum.Unpaired > 0 || !s.Found {
		s.Adds = addUsage
	}
	return s, true
}

// excludedUnrecorded are requests that left no journey: they load the replay.
const excludedUnrecorded = "unrecorded"

const (
	mostHoles    = 0.01 // of the step ids, and of the steps with a queue
	mostUnfitted = 0.02 // of the running requests and of the prompt tokens that steps count
)

// unrecorded rebuilds the requests whose journeys were not sampled from what the steps count
// (spec#unrecorded): how many start and end in each step beyond the recorded ones, and how
// many prompt tokens those that start compute. Which of them ends is not told; the one that
// started first is taken, which leaves the load as it was. A request arrived in the middle
// of the step before its first, and as long before that as the recorded ones did. The reason is empty unless steps are
// missing, requests waited (then a start is no arrival) or were preempted, or the rebuilt
// load is not the counted one.
func unrecorded(run *trace.Run, async bool) (out []Request, reason string) {
	r := newRebuild(run, async)
	if reason := r.refuse(); reason != "" {
		return nil, reason
	}
	for i := range run.Steps {
		r.step(i)
	}
	for _, k := range r.running {
		r.end(k, len(run.Steps)-1+r.behind)
	}
	if reason := r.unfitted(); reason != "" {
		return nil, reason
	}
	return r.out, ""
}

// rebuild walks the steps of a run.
type rebuild struct {
	run       *trace.Run
	behind    int         // steps between the last token of a request and the step that counts its end
	starts    map[int]int // by position of a step: recorded requests
	ends      map[int]int
	prompts   map[int]int64 // tokens they compute
	firsts    map[int]int   // async: decodes of one token that count as prefill there
	beforeNs  int64         // from arrival to the pick-up
	openTok   int64         // prompt tokens not accounted for so far; negative: recorded ones spread over steps
	openEnd   int           // ends counted before their request's own; negative: later
	running   []int         // of out, oldest first
	from      []int         // position of each one's first step
	out       []Request
	counted   [2]float64 // running requests and prompt tokens that the steps count
	accounted [2]float64 // of those, off by
	now       int        // running now, recorded and rebuilt
}

func newRebuild(run *trace.Run, async bool) *rebuild {
	r := &rebuild{run: run, behind: 1, starts: map[int]int{}, ends: map[int]int{}, prompts: map[int]int64{}, firsts: map[int]int{}}
	if async {
		r.behind = 2
	}
	first := int64(0)
	if len(run.Steps) > 0 {
		first = run.Steps[0].ID
	}
	var before []float64
	for i := range run.Requests {
		q := &run.Requests[i]
		if !q.CoreID.OK || !q.ScheduledStep.OK || !q.PromptTokens.OK {
			continue
		}
		at := int(q.ScheduledStep.V - first)
		r.starts[at]++
		r.prompts[at] += max(0, q.PromptTokens.V-q.CachedTokens.Or(0))
		if q.FinishedStep.OK {
			r.ends[int(q.FinishedStep.V-first)+r.behind]++
		}
		if async && q.FirstTokenStep.OK {
			r.firsts[int(q.FirstTokenStep.V-first)+1]++
		}
		if q.ArrivedNs.OK && at >= 0 && at < len(run.Steps) {
			before = append(before, float64(r.pickUpNs(at)-q.ArrivedNs.V))
		}
	}
	if len(before) > 0 {
		r.beforeNs = int64(stat.Median(before))
	}
	return r
}

// pickUpNs is when the engine took in, on average, a request whose first step is at i: in the
// middle of the step before, at once when nothing ran.
func (r *rebuild) pickUpNs(i int) int64 {
	at := r.run.Steps[i].TsStartNs
	if i == 0 || r.run.Steps[i-1].RunningDepth == 0 {
		return at
	}
	return at - (at-r.run.Steps[i-1].TsStartNs)/2
}

// refuse says why steps do not tell who started when.
func (r *rebuild) refuse() string {
	steps := r.run.Steps
	if len(steps) == 0 {
		return "no steps are recorded"
	}
	waiting, preempted := 0, int64(0)
	for i := range steps {
		if steps[i].WaitingDepth > 0 {
			waiting++
		}
		preempted += steps[i].NumPreempted
	}
	n := float64(len(steps))
	switch span := float64(steps[len(steps)-1].ID - steps[0].ID + 1); {
	case span-n > 0:
		return fmt.Sprintf("%.0f of %.0f steps are not recorded", span-n, span)
	case float64(waiting) > mostHoles*n:
		return fmt.Sprintf("requests waited in %d of %.0f steps", waiting, n)
	case preempted > 0:
		return fmt.Sprintf("%d requests were preempted", preempted)
	}
	return ""
}

// step reads one step: what began, what it computed of prompts, what ended.
func (r *rebuild) step(i int) {
	s := &r.run.Steps[i]
	before := int64(0)
	if i > 0 {
		before = r.run.Steps[i-1].RunningDepth
	}
	r.openEnd += int(s.NumFinished) - r.ends[i]
	for ; r.openEnd > 0 && len(r.running) > 0; r.openEnd-- {
		r.end(r.running[0], i)
		r.running = r.running[1:]
	}
	born := max(0, int(s.RunningDepth-before+s.NumFinished)-r.starts[i])
	r.openTok += s.PrefillTokens - r.prompts[i] - int64(r.firsts[i])
	for k := range born {
		share := max(1, r.openTok/int64(born-k))
		r.openTok -= share
		r.begin(i, share)
	}
	if last := len(r.out) - 1; born == 0 && r.openTok > 0 && last >= 0 { // a prompt in several pieces
		r.out[last].Prompt += r.openTok
		r.openTok = 0
	}
	r.now += r.starts[i] + born - int(s.NumFinished)
	r.counted[0] += float64(s.RunningDepth)
	r.accounted[0] += math.Abs(float64(s.RunningDepth - int64(r.now)))
	r.counted[1] += float64(s.PrefillTokens)
}

func (r *rebuild) begin(i int, prompt int64) {
	at := r.pickUpNs(i) - r.beforeNs
	r.running = append(r.running, len(r.out))
	r.from = append(r.from, i)
	r.out = append(r.out, Request{ID: fmt.Sprintf("unrecorded-%d", len(r.out)+1), ArrivalNs: at, Prompt: prompt, Excluded: excludedUnrecorded})
	if r.behind > 1 {
		r.firsts[i+1]++
	}
}

// end gives a request that the step at position i counts out its output tokens: one a step
// from its first.
func (r *rebuild) end(k, i int) {
	r.out[k].Output = int64(max(1, i-r.behind-r.from[k]+1))
	r.out[k].MaxTokens = r.out[k].Output
}

// unfitted says how far the rebuilt load is from the counted one, when that is far.
func (r *rebuild) unfitted() string {
	r.accounted[1] = math.Abs(float64(r.openTok))
	for k, what := range []string{"running requests", "prompt tokens"} {
		if off := r.accounted[k] / math.Max(1, r.counted[k]); off > mostUnfitted {
			return fmt.Sprintf("%.1f %% of the %s that steps count find no request", 100*off, what)
		}
	}
	return ""
}

// withUnrecorded adds the requests of a run that left no journey to the recorded ones, in
// order of arrival, and says how many there are or why that cannot be told.
func withUnrecorded(run *trace.Run, recorded []Request, async bool) ([]Request, []trace.Finding) {
	unrecorded, reason := unrecorded(run, async)
	if reason != "" {
		return recorded, []trace.Finding{trace.Findingf(NoReplay,
			"run %s: journeys are sampled and the other requests cannot be rebuilt: %s", run.ID, reason)}
	}
	all := append(slices.Clone(recorded), unrecorded...)
	stat.SortStable(all, func(a, b Request) int { return cmp.Compare(a.ArrivalNs, b.ArrivalNs) })
	return all, []trace.Finding{trace.Findingf(ReplayAssumes,
		"run %s: %d of %d replayed requests left no journey and were rebuilt from what the steps count; they are not compared", run.ID,
		len(unrecorded), len(all))}
}
