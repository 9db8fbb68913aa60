package validate

// This file rebuilds the requests that left no journey from what the step summaries count beyond the
// recorded ones, so that a replay has the load that the server had.

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Limits beyond which the unrecorded requests are not rebuilt.
const (
	mostHoles    = 0.01 // of the steps, those in which requests waited
	mostUnfitted = 0.02 // of the running requests and of the prompt tokens that steps count
)

// addUnrecorded returns the recorded requests with those of a run that left no journey, in order of
// arrival. The finding has their number, or the reason why they cannot be rebuilt.
func addUnrecorded(run *trace.Run, recorded []Request, async bool) ([]Request, []trace.Finding) {
	rebuilt, reason := unrecordedRequests(run, async)
	if reason != "" {
		return recorded, []trace.Finding{trace.Findingf(NoReplay,
			"run %s: journeys are sampled and the other requests cannot be rebuilt: %s", run.ID, reason)}
	}
	all := append(slices.Clone(recorded), rebuilt...)
	stat.SortStable(all, func(a, b Request) int { return cmp.Compare(a.ArrivalNs, b.ArrivalNs) })
	return all, []trace.Finding{trace.Findingf(ReplayAssumes,
		"run %s: %d of %d replayed requests left no journey and were rebuilt from what the steps count; they are not compared", run.ID,
		len(rebuilt), len(all))}
}

// unrecordedRequests returns the requests whose journeys were not sampled, rebuilt from what the
// steps count (spec#unrecorded): how many start and end in each step beyond the recorded ones, and
// how many prompt tokens those that start compute. Steps do not show which of them ends; the one
// that started first is chosen, which leaves the load unchanged. A request arrived in the middle of
// the step before its first, less the time that recorded ones took from arrival to there. The
// reason is empty unless steps are missing, requests waited (then a start is no arrival) or were
// preempted, or the rebuilt load is not the counted one.
func unrecordedRequests(run *trace.Run, async bool) (out []Request, reason string) {
	r := newRebuild(run, async)
	if reason := r.whyImpossible(); reason != "" {
		return nil, reason
	}
	for i := range run.Steps {
		r.walkStep(i)
	}
	for _, k := range r.running { // still running at the end of the recording
		r.endRequest(k, len(run.Steps)-1+r.endDelay)
	}
	if reason := r.whyUnfitted(); reason != "" {
		return nil, reason
	}
	return r.out, ""
}

// rebuild walks the steps of a run. A position is the index of a step in run.Steps.
type rebuild struct {
	run      *trace.Run
	endDelay int // steps between the last token of a request and the step that counts its end

	// Recorded requests, by position of a step.
	starts       map[int]int
	ends         map[int]int
	promptTokens map[int]int64 // computed by those that start there
	firstDecodes map[int]int   // async: first decodes, of one token each, which the step counts as prefill

	beforeNs int64 // from arrival to the pick-up, median of recorded requests

	// What was counted so far and is not yet assigned to a request.
	openTokens int64 // prompt tokens; negative: those of recorded requests are counted in later steps
	openEnds   int   // ends; negative: counted in later steps

	out     []Request
	running []int // of out, oldest first
	first   []int // by index in out: position of its first step

	countedRunning, countedTokens   float64 // that the steps count
	unfittedRunning, unfittedTokens float64 // of those, not explained by the requests
	runningNow                      int     // recorded and rebuilt
}

// newRebuild counts the starts and ends that the recorded requests do not explain.
func newRebuild(run *trace.Run, async bool) *rebuild {
	r := &rebuild{
		run:          run,
		endDelay:     1,
		starts:       map[int]int{},
		ends:         map[int]int{},
		promptTokens: map[int]int64{},
		firstDecodes: map[int]int{},
	}
	if async {
		r.endDelay = 2
	}
	firstID := int64(0)
	if len(run.Steps) > 0 {
		firstID = run.Steps[0].ID
	}
	var beforeNs []float64
	for i := range run.Requests {
		request := &run.Requests[i]
		if !request.CoreID.OK || !request.ScheduledStep.OK || !request.PromptTokens.OK {
			continue
		}
		first := int(request.ScheduledStep.V - firstID)
		r.starts[first]++
		r.promptTokens[first] += max(0, request.PromptTokens.V-request.CachedTokens.Or(0))
		if request.FinishedStep.OK {
			r.ends[int(request.FinishedStep.V-firstID)+r.endDelay]++
		}
		if async && request.FirstTokenStep.OK {
			r.firstDecodes[int(request.FirstTokenStep.V-firstID)+1]++
		}
		if request.ArrivedNs.OK && first >= 0 && first < len(run.Steps) {
			beforeNs = append(beforeNs, float64(r.pickUpNs(first)-request.ArrivedNs.V))
		}
	}
	if len(beforeNs) > 0 {
		r.beforeNs = int64(stat.Median(beforeNs))
	}
	return r
}

// pickUpNs returns when the engine took in, on average, a request whose first step is at i: in the
// middle of the step before, or at once when nothing ran.
func (r *rebuild) pickUpNs(i int) int64 {
	startNs := r.run.Steps[i].TsStartNs
	if i == 0 || r.run.Steps[i-1].RunningDepth == 0 {
		return startNs
	}
	return startNs - (startNs-r.run.Steps[i-1].TsStartNs)/2
}

// whyImpossible returns why the steps do not show which requests started when; "" if they do.
func (r *rebuild) whyImpossible() string {
	steps := r.run.Steps
	if len(steps) == 0 {
		return "no steps are recorded"
	}
	waiting, preempted := 0, int64(0)
	for i := range steps {
		if steps[i].WaitingDepth > 0 {
			waiting++
		}
		preempted += int64(steps[i].NumPreempted)
	}
	n := float64(len(steps))
	ids := float64(steps[len(steps)-1].ID - steps[0].ID + 1)
	switch {
	case ids > n:
		return fmt.Sprintf("%.0f of %.0f steps are not recorded", ids-n, ids)
	case float64(waiting) > mostHoles*n:
		return fmt.Sprintf("requests waited in %d of %.0f steps", waiting, n)
	case preempted > 0:
		return fmt.Sprintf("%d requests were preempted", preempted)
	}
	return ""
}

// walkStep reads one step: which requests ended, which began, what prompt tokens it computed.
func (r *rebuild) walkStep(i int) {
	step := &r.run.Steps[i]
	runningBefore := int64(0)
	if i > 0 {
		runningBefore = int64(r.run.Steps[i-1].RunningDepth)
	}
	// Ends that no recorded request explains are given to the rebuilt requests that started first.
	r.openEnds += int(step.NumFinished) - r.ends[i]
	for r.openEnds > 0 && len(r.running) > 0 {
		r.endRequest(r.running[0], i)
		r.running = r.running[1:]
		r.openEnds--
	}
	// The same for starts: the running requests grew by those that started less those that ended.
	begun := max(0, int(int64(step.RunningDepth)-runningBefore+int64(step.NumFinished))-r.starts[i])
	r.openTokens += int64(step.PrefillTokens) - r.promptTokens[i] - int64(r.firstDecodes[i])
	for k := range begun {
		// The prompt tokens of the step, less those of recorded requests, are divided evenly.
		share := max(1, r.openTokens/int64(begun-k))
		r.openTokens -= share
		r.beginRequest(i, share)
	}
	if last := len(r.out) - 1; begun == 0 && r.openTokens > 0 && last >= 0 { // a later chunk of its prompt
		r.out[last].Prompt += r.openTokens
		r.openTokens = 0
	}
	// Keep what the rebuilt load misses, which whyUnfitted compares with its limit.
	r.runningNow += r.starts[i] + begun - int(step.NumFinished)
	r.countedRunning += float64(step.RunningDepth)
	r.unfittedRunning += math.Abs(float64(int64(step.RunningDepth) - int64(r.runningNow)))
	r.countedTokens += float64(step.PrefillTokens)
}

// beginRequest adds a request whose first step is at i.
func (r *rebuild) beginRequest(i int, promptTokens int64) {
	r.running = append(r.running, len(r.out))
	r.first = append(r.first, i)
	r.out = append(r.out, Request{
		ID:        fmt.Sprintf("unrecorded-%d", len(r.out)+1),
		ArrivalNs: r.pickUpNs(i) - r.beforeNs,
		Prompt:    promptTokens,
		Excluded:  excludedUnrecorded,
	})
	if r.endDelay > 1 {
		r.firstDecodes[i+1]++
	}
}

// endRequest gives request k, which ends in the step at position i, its output tokens: one for each
// step from its first.
func (r *rebuild) endRequest(k, i int) {
	tokens := int64(max(1, i-r.endDelay-r.first[k]+1))
	r.out[k].Output = tokens
	r.out[k].MaxTokens = tokens
}

// whyUnfitted returns how far the rebuilt load is from the counted one where that is too far;
// empty: it is near enough.
func (r *rebuild) whyUnfitted() string {
	r.unfittedTokens = math.Abs(float64(r.openTokens))
	for _, count := range []struct {
		what              string
		unfitted, counted float64
	}{
		{what: "running requests", unfitted: r.unfittedRunning, counted: r.countedRunning},
		{what: "prompt tokens", unfitted: r.unfittedTokens, counted: r.countedTokens},
	} {
		if off := count.unfitted / math.Max(1, count.counted); off > mostUnfitted {
			return fmt.Sprintf("%.1f %% of the %s that steps count find no request", 100*off, count.what)
		}
	}
	return ""
}
