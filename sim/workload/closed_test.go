package workload_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/internal/testkit/recordings"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// TestRealClosedLoopsAreRecognised: every closed phase of the recorded runs is
// told from every open one by its sends alone, and its clients are counted.
func TestRealClosedLoopsAreRecognised(t *testing.T) { realClosedLoopsAreRecognised(t) }

// TestEvalRealClosedLoopsAreRecognised: the same of all runs.
func TestEvalRealClosedLoopsAreRecognised(t *testing.T) {
	repo.NeedEval(t)
	realClosedLoopsAreRecognised(t)
}

func realClosedLoopsAreRecognised(t *testing.T) {
	t.Helper()
	for _, r := range recordedRuns(t, recordings.RealSet) {
		for _, p := range r.dep.Phases {
			if p.Name == deploy.WarmupPhase {
				continue
			}
			w, err := workload.FromRun(r.run, r.dep, workload.RunOptions{Phase: p.Name})
			if err != nil {
				t.Errorf("%s %s: %v", r.id, p.Name, err)
				continue
			}
			c := w.Concurrency(r.run)
			t.Logf("%-14s %-12s %4d requests, %3d at once, plateau %.2f, think p90 %6.1f ms, between sends %6.1f ms: closed %t",
				r.id, p.Name, len(w.Requests), c.Clients, c.PlateauShare, c.ThinkP90/1e6, c.MeanGap/1e6, c.IsClosed())
			if len(w.Requests) == c.Clients {
				continue // nobody sent twice
			}
			if c.IsClosed() != (p.Load == deploy.LoadClosed) {
				t.Errorf("%s %s: closed %t, recorded as %s", r.id, p.Name, c.IsClosed(), p.Load)
			}
		}
	}
}

// generated are n requests of fixed lengths, 10 ms apart.
func generated(t *testing.T, n int) *workload.Workload {
	t.Helper()
	g := workload.Generator{Requests: n, Arrivals: workload.ArrivalSpec{Kind: "constant", RateRPS: 100},
		Prompt: workload.LengthSpec{Kind: "constant", Value: 20}, Output: workload.LengthSpec{Kind: "uniform", Min: 1, Max: 30}}
	w, err := g.Generate(1)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// inFlight runs the workload and returns the most requests in flight at once,
// and the shortest time between an answer and the next send.
func inFlight(t *testing.T, w *workload.Workload) (most int, restUs int64) {
	t.Helper()
	n, answered := 0, int64(-1)
	restUs = 1 << 60
	count := func(e *sim.Event) {
		switch e.Kind {
		case sim.Arrived:
			n++
			most = max(most, n)
			if answered >= 0 {
				restUs = min(restUs, e.AtUs-answered)
			}
		case sim.Departed:
			n--
			answered = e.AtUs
		}
	}
	cfg := sim.DefaultConfig(testkit.Small(400), &sim.Blackbox{Beta: []float64{1000, 10, 5}})
	if _, err := sim.Run(cfg, w.Requests, events(count)); err != nil {
		t.Fatal(err)
	}
	return most, restUs
}

type events func(*sim.Event)

func (events) Step(*sim.StepView)   {}
func (f events) Event(e *sim.Event) { f(e) }

// A closed loop never has more requests in flight than clients, and always as
// many while requests last; its clients think; a cap on arrivals holds them back
// and sends none early.
func TestLoopsKeepTheirClients(t *testing.T) {
	w := generated(t, 60)
	if err := w.Close(workload.Loop{Clients: 7, ThinkUs: 2500, RampUs: 70_000}); err != nil {
		t.Fatal(err)
	}
	if w.Requests[6].ArrivalUs != 60_000 || w.Requests[6].Queued || !w.Requests[7].Queued {
		t.Errorf("ramp: %+v, then %+v", w.Requests[6], w.Requests[7])
	}
	if most, _ := inFlight(t, w); most != 7 {
		t.Errorf("%d in flight, want 7", most)
	}
	alone := generated(t, 20)
	if err := alone.Close(workload.Loop{Clients: 1, ThinkUs: 2500}); err != nil {
		t.Fatal(err)
	}
	if most, rest := inFlight(t, alone); most != 1 || rest != 2500 {
		t.Errorf("%d in flight, %d us of thought, want 1 and 2500", most, rest)
	}
	capped := generated(t, 60)
	planned := generated(t, 60)
	if err := capped.Close(workload.Loop{Clients: 2, KeepArrivals: true}); err != nil {
		t.Fatal(err)
	}
	if most, _ := inFlight(t, capped); most != 2 {
		t.Errorf("%d in flight under a cap of 2", most)
	}
	res, err := sim.Run(sim.DefaultConfig(testkit.Small(400), &sim.Blackbox{Beta: []float64{1000, 10, 5}}), capped.Requests, nil)
	if err != nil {
		t.Fatal(err)
	}
	late := 0
	for i := range res.Requests {
		switch at := res.Requests[i].ArrivalUs; {
		case at < planned.Requests[i].ArrivalUs:
			t.Errorf("request %d is sent at %d us, planned for %d", i, at, planned.Requests[i].ArrivalUs)
		case at > planned.Requests[i].ArrivalUs:
			late++
		}
	}
	if late == 0 {
		t.Error("the cap held nobody back")
	}
	for _, bad := range []workload.Loop{{}, {Clients: 1, ThinkUs: -1}, {Clients: 1, RampUs: -1}} {
		if generated(t, 3).Close(bad) == nil {
			t.Errorf("%+v: got no error", bad)
		}
	}
}

// A point is its lengths and its load: a closed loop at a concurrency, Poisson
// arrivals at a rate, or both with the concurrency as a cap.
func TestPoints(t *testing.T) {
	p := workload.Point{Requests: 50, InputTokens: 100, OutputTokens: 10, Concurrency: 4}
	w, err := p.Workload(1)
	if err != nil {
		t.Fatal(err)
	}
	if q := w.Requests[9]; q.PromptTokens != 100 || q.OutputTokens != 10 || !q.Queued || w.Requests[3].Queued {
		t.Errorf("%+v", q)
	}
	if most, _ := inFlight(t, w); most != 4 {
		t.Errorf("%d in flight, want 4", most)
	}
	p.RateRPS, p.RangeRatio = 50, 0.5
	if w, err = p.Workload(1); err != nil || w.Requests[9].ArrivalUs == 0 {
		t.Errorf("%v, %+v: want a planned arrival", err, w.Requests[9])
	}
	for _, q := range w.Requests {
		if q.PromptTokens < 50 || q.PromptTokens > 150 || q.OutputTokens < 5 || q.OutputTokens > 15 {
			t.Errorf("lengths %d and %d, want within half", q.PromptTokens, q.OutputTokens)
		}
	}
	for _, bad := range []workload.Point{{}, {Requests: 1, InputTokens: 1}, {Requests: 1, InputTokens: 1, OutputTokens: 1, RangeRatio: 1}} {
		if _, err := bad.Workload(1); err == nil {
			t.Errorf("%+v: got no error", bad)
		}
	}
}

// allowance is what a replay of a recording need not have as recorded.
type allowance struct {
	summaries, events float64 // least shares that must be as recorded
	why               string
}

// allowances are those of recordings that cannot be replayed exactly. All others must be.
var allowances = map[string]allowance{
	"b200-qwen2.5-14b-tp2": {0, 0.996, "journeys sampled at 0.5: half of the requests are unknown, the schedule cannot be replayed"},
	"h100-llama-2-70b-tp4": {0.998, 1, "snapshots on 10 % of the steps: the cached tokens of a few requests, whose prompts took several steps, " +
		"are unknown and replayed as 0"},
}

// emulatedTier is the recording whose CPU tier is not vLLM's: data/composed is an emulation. It frees the blocks of a finished
// request at once and completes each store (BlockStored) with its own copy. The connector of vLLM 0.15.1 keeps the blocks for
// the copies, and completes the stores of a request when that has finished or is preempted (update_connector_output(),
// build_connector_meta()). TestOracle of package sim compares the simulator with that. Here it does as the emulation.
const (
	emulatedTier    = "h100-codellama-34b-tp2"
	emulatedTierWhy = "the emulation frees a finished request's blocks, and completes each store, at once; vLLM's connector later: " +
		"replayed with FreeStored"
)

// TestTeacherForced replays every recorded run with the recorded step times
// and pick-ups: batches, step ids of events, step totals and stamps must be the
// recorded ones (differences are counted and explained).
func TestTeacherForced(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	forceSteps(t)
}

// TestEvalTeacherForced: the same of all runs of the real vLLM, and of the composed ones.
func TestEvalTeacherForced(t *testing.T) {
	repo.NeedEval(t)
	forceSteps(t)
}

func forceSteps(t *testing.T) {
	t.Helper()
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "run\tforced\tsteps\tbatches\tidentical\tsummaries\tidentical\tevents\tin step\t"+
		"SCHEDULED\tin [start, end]\ttokens\twithin 200 us\tcopies\tidentical\tnote")
	for _, set := range repo.Sets(recordings.RealSet, "composed") {
		for _, r := range recordedRuns(t, set) {
			v := teacherForced(t, r)
			v.print(tw, r)
			v.require(t, r)
		}
	}
	tw.Flush()
}

type recording struct {
	run *trace.Run
	dep *deploy.Deployment
	id  string
}

// recordedRuns are the runs of a data set of the shared folder. They must not be changed.
func recordedRuns(t *testing.T, set string) []recording {
	t.Helper()
	var out []recording
	for _, r := range recordings.Shared(t, set) {
		out = append(out, recording{run: r.Run, dep: r.Deployment, id: r.Run.ID})
	}
	return out
}

// replayed is what the simulator did, by step and by request.
type replayed struct {
	w      *workload.Forced
	batch  map[int64]map[string]trace.Chunk
	totals map[int64]totals
	events map[string][]sim.Event
	copies map[tierCopy]int // how often each was said
}

// tierCopy is a KV event about a request: blocks that shall be copied to or from the CPU tier, or are.
type tierCopy struct {
	kind, id     string
	step, blocks int64
	toCPU        bool // of a transfer
}

func (r *replayed) KV(ev *sim.KVEvent) {
	if ev.Request >= 0 {
		r.copies[tierCopy{string(ev.Kind), r.w.Requests[ev.Request].ID, ev.Step, ev.Blocks, ev.ToCPU}]++
	}
}

// totals are the comparable numbers of a step summary.
type totals struct{ running, waiting, prefillReqs, decodeReqs, prefill, decode, finished, preempted, free int64 }

func (r *replayed) Step(v *sim.StepView) {
	b := map[string]trace.Chunk{}
	for _, m := range v.Members {
		b[r.w.Requests[m.Request].ID] = trace.Chunk{Computed: m.Computed, Prompt: m.Prompt, New: m.New}
	}
	r.batch[v.StepID] = b
	r.totals[v.StepID] = totals{v.Running, v.Waiting, v.LabelledPrefillReqs, v.LabelledDecodeReqs,
		v.LabelledPrefillTokens, v.LabelledDecodeTokens, v.Finished, v.Preempted, v.FreeBlocks}
}

func (r *replayed) Event(e *sim.Event) {
	switch e.Kind {
	case sim.Queued, sim.Scheduled, sim.FirstToken, sim.Preempted, sim.Finished:
		id := r.w.Requests[e.Request].ID
		r.events[id] = append(r.events[id], *e)
	}
}

// verdict is one row of the table: counts of what was compared and what agreed.
type verdict struct {
	byStep                bool
	batches, sameBatches  int
	steps, sameTotals     int
	events, inStep        int
	scheduled, inInterval int
	stamps, near          int
	copies, sameCopies    int
	first                 []string // first differences
}

func (v *verdict) differ(format string, args ...any) {
	if len(v.first) < 3 {
		v.first = append(v.first, fmt.Sprintf(format, args...))
	}
}

func teacherForced(t *testing.T, r recording) verdict {
	t.Helper()
	w, err := workload.ForceLater(r.run, r.dep)
	if err != nil {
		t.Fatal(err)
	}
	w.Under(r.dep.Engine.IsAsync())
	cfg := sim.DefaultConfig(r.dep, w.Timeline)
	cfg.FreeStored = r.id == emulatedTier
	got := &replayed{w: w, batch: map[int64]map[string]trace.Chunk{}, totals: map[int64]totals{}, events: map[string][]sim.Event{},
		copies: map[tierCopy]int{}}
	if _, err := sim.Run(cfg, w.Requests, got); err != nil {
		t.Fatal(err)
	}
	v := verdict{byStep: w.Timeline.Start == nil}
	v.compareBatches(r.run, got)
	shared := slices.ContainsFunc(w.Requests, func(q sim.Request) bool { return q.CachedTokens.V > 0 })
	v.compareTotals(r.run, got, shared)
	v.compareEvents(r.run, got)
	v.compareCopies(r.run, got)
	return v
}

func (v *verdict) compareBatches(run *trace.Run, got *replayed) {
	batch := map[int64]map[string]trace.Chunk{}
	for i := range run.Steps {
		if s := &run.Steps[i]; s.NumSnapshots == s.RunningDepth && s.NumSnapshots > 0 {
			batch[s.ID] = map[string]trace.Chunk{}
		}
	}
	for i := range run.Snapshots {
		s := &run.Snapshots[i]
		if b := batch[s.StepID]; b != nil {
			b[s.CoreID] = trace.Chunk{Computed: s.ComputedTokens, Prompt: s.PromptTokens, New: s.ScheduledTokens}
		}
	}
	for i := range run.Steps {
		id := run.Steps[i].ID
		want, ok := batch[id]
		if !ok {
			continue
		}
		v.batches++
		if sameBatch(want, got.batch[id]) {
			v.sameBatches++
		} else {
			v.differ("step %d: batch %v, replayed %v", id, want, got.batch[id])
		}
	}
}

func sameBatch(a, b map[string]trace.Chunk) bool {
	if len(a) != len(b) {
		return false
	}
	for id, c := range a {
		if b[id] != c {
			return false
		}
	}
	return true
}

// compareTotals leaves free blocks out where cached tokens were taken from the
// recording: nothing says which requests share the blocks, so each holds its own.
func (v *verdict) compareTotals(run *trace.Run, got *replayed, shared bool) {
	for i := range run.Steps {
		s := &run.Steps[i]
		want := totals{int64(s.RunningDepth), int64(s.WaitingDepth), int64(s.NumPrefillReqs), int64(s.NumDecodeReqs),
			int64(s.PrefillTokens), int64(s.DecodeTokens), int64(s.NumFinished), int64(s.NumPreempted), s.BlocksFree}
		v.steps++
		if shared {
			want.free = got.totals[s.ID].free
		}
		if got.totals[s.ID] == want {
			v.sameTotals++
		} else {
			v.differ("step %d: totals %+v, replayed %+v", s.ID, want, got.totals[s.ID])
		}
	}
}

// compareEvents compares the events of each request in order: kinds, step ids
// and, where times were forced, stamps.
func (v *verdict) compareEvents(run *trace.Run, got *replayed) {
	ends := map[int64][2]int64{}
	for i := range run.Steps {
		ends[run.Steps[i].ID] = [2]int64{run.Steps[i].TsStartNs, run.Steps[i].TsEndNs}
	}
	next := map[string]int{}
	for i := range run.Events {
		e := &run.Events[i]
		list := got.events[e.CoreID]
		k := next[e.CoreID]
		next[e.CoreID]++
		v.events++
		if k >= len(list) || string(list[k].Kind) != e.Kind || !e.Step.OK || list[k].Step != e.Step.V {
			v.differ("%s: %s in step %d, replayed %v", e.CoreID, e.Kind, e.Step.V, list)
			continue
		}
		v.inStep++
		if !v.byStep && e.TsNs.OK {
			v.compareStamp(e, &list[k], ends, got.w)
		}
	}
}

func (v *verdict) compareStamp(e *trace.JourneyEvent, s *sim.Event, ends map[int64][2]int64, w *workload.Forced) {
	at := w.BaseNs + s.AtUs*1000
	switch e.Kind {
	case string(sim.Scheduled):
		v.scheduled++
		if b := ends[s.Step]; b[0] <= at && at <= b[1] {
			v.inInterval++
		} else {
			v.differ("%s: SCHEDULED in step %d at %d ns, recorded step [%d, %d], stamp %d", e.CoreID, s.Step, at, b[0], b[1], e.TsNs.V)
		}
	case string(sim.FirstToken), string(sim.Finished):
		v.stamps++
		end := w.Timeline.End[s.Step-1]
		if s.FinishStatus == trace.FinishAborted || max(s.AtUs-end, end-s.AtUs) <= 200 {
			v.near++
		} else {
			v.differ("%s: %s of step %d at %d us, recorded end %d us", e.CoreID, e.Kind, s.Step, s.AtUs, end)
		}
	}
}

// compareCopies compares the KV events that name a request.
func (v *verdict) compareCopies(run *trace.Run, got *replayed) {
	for i := range run.KVEvents {
		e := &run.KVEvents[i]
		if !e.RequestID.OK {
			continue
		}
		v.copies++
		c := tierCopy{e.Kind, e.RequestID.V, e.Step.V, e.BlockCount.V, e.DstMedium.V == "CPU"}
		if got.copies[c] > 0 {
			got.copies[c]--
			v.sameCopies++
		} else {
			v.differ("%+v: not replayed", c)
		}
	}
}

func (v *verdict) print(tw *tabwriter.Writer, r recording) {
	forced, note := "by time", allowances[r.id].why
	if r.id == emulatedTier {
		note = emulatedTierWhy
	}
	if v.byStep {
		forced = "by step"
		note = "step summaries are missing, so their times are: pick-ups and step ids are forced, stamps are not compared"
	}
	fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%s\t%d\t%s\t%d\t%s\t%d\t%s\t%d\t%s\t%d\t%s\t%s\n", r.id, forced, len(r.run.Steps),
		v.batches, percent(v.sameBatches, v.batches), v.steps, percent(v.sameTotals, v.steps),
		v.events, percent(v.inStep, v.events), v.scheduled, percent(v.inInterval, v.scheduled), v.stamps, percent(v.near, v.stamps),
		v.copies, percent(v.sameCopies, v.copies), note)
}

func percent(a, b int) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(a)/float64(b))
}

// require: everything is as recorded, but for what the recording is allowed.
func (v *verdict) require(t *testing.T, r recording) {
	t.Helper()
	least, isAllowed := allowances[r.id]
	if !isAllowed {
		least = allowance{summaries: 1, events: 1}
	}
	enough := float64(v.sameTotals) >= least.summaries*float64(v.steps) && float64(v.inStep) >= least.events*float64(v.events)
	if !enough || v.sameBatches != v.batches || v.inInterval != v.scheduled || v.near != v.stamps || v.sameCopies != v.copies {
		t.Errorf("%s: differences\n%s", r.id, strings.Join(v.first, "\n"))
	}
}
