package validate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

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
	r.running, r.from = append(r.running, len(r.out)), append(r.from, i)
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
	slices.SortStableFunc(all, func(a, b Request) int { return cmp.Compare(a.ArrivalNs, b.ArrivalNs) })
	return all, []trace.Finding{trace.Findingf(ReplayAssumes,
		"run %s: %d of %d replayed requests left no journey and were rebuilt from what the steps count; they are not compared", run.ID,
		len(unrecorded), len(all))}
}
