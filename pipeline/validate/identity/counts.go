package identity

// This file compares counts of requests and tokens between the streams of a run. A reading (identity.go)
// has what was compared, how much of it contradicts, and a sentence.

import (
	"fmt"
	"math"
	"strings"

	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// snapshotCounts are what the snapshots of a run add up to, by step.
type snapshotCounts struct {
	steps     int     // steps with a summary that have a snapshot
	complete  int     // of these, steps with a snapshot of every running request
	rows      int64   // snapshots in those steps
	depth     int64   // running requests of those steps
	tokens    int64   // steps whose complete snapshots add up to other tokens than the summary
	progress  int     // snapshots of one request in adjacent snapshots of it
	jumps     int     // of these, where computed tokens are not those before and what was scheduled
	compared  int     // snapshots of requests with a journey
	unlike    int     // of these, with another prompt or more computed tokens than the request had
	blocks    int     // snapshots whose blocks were compared with their tokens
	blocksOff int     // of these, with other blocks
	worstOff  float64 // by so many blocks at most
	usedSteps int     // steps whose used blocks were compared with those of complete snapshots
	usedOff   int     // of these, with other used blocks
	worstUsed float64 // by so many blocks at most

	orphanSteps int64 // steps with snapshots and no summary
}

// lastSeen is the last snapshot of a request: its step, the tokens computed before the step and scheduled
// in it, and the preemptions so far.
type lastSeen struct {
	step, computed, scheduled, preemptions int64
}

// stepSums are sums over the snapshots of one step.
type stepSums struct {
	rows      int64 // snapshots
	scheduled int64 // tokens
	allocated int64 // blocks of all requests; those that requests share count for each
	largest   int64 // blocks of the request that has most
}

// snapshotWalk reads the snapshots of a run once, in the order of steps, and counts them.
type snapshotWalk struct {
	*facts
	counts   *snapshotCounts
	journeys map[string]*trace.Request // by core id
	seen     map[string]*lastSeen      // by core id
	isPlain  bool                      // see hasPlainBlocks

	at     int      // index in run.Steps of the step whose snapshots are read; -1: none yet
	sums   stepSums // of the snapshots of that step so far
	next   int      // index in run.Steps of the first step that can have the next snapshot
	orphan int64    // id of the last step with snapshots and no summary
}

// countSnapshots walks the snapshots once.
func (f *facts) countSnapshots() error {
	w := snapshotWalk{
		facts:    f,
		counts:   &f.snapshot,
		journeys: map[string]*trace.Request{},
		seen:     map[string]*lastSeen{},
		isPlain:  f.hasPlainBlocks(),
		at:       -1,
	}
	for i := range f.run.Requests {
		if request := &f.run.Requests[i]; request.CoreID.OK {
			w.journeys[request.CoreID.V] = request
		}
	}
	err := f.run.EachSnapshot(w.count)
	w.finishStep()
	return err
}

// count counts a snapshot.
func (w *snapshotWalk) count(snapshot *trace.Snapshot) {
	if snapshot.Orphan {
		if w.counts.orphanSteps == 0 || snapshot.StepID != w.orphan {
			w.counts.orphanSteps++
			w.orphan = snapshot.StepID
		}
		return
	}
	steps := w.run.Steps
	for w.next < len(steps) && steps[w.next].ID < snapshot.StepID {
		w.next++
	}
	if w.next == len(steps) || steps[w.next].ID != snapshot.StepID {
		return
	}
	if w.next != w.at {
		w.finishStep()
		w.at = w.next
		w.sums = stepSums{}
	}
	w.sums.rows++
	w.sums.scheduled += snapshot.ScheduledTokens
	w.sums.allocated += snapshot.BlocksAllocated
	w.sums.largest = max(w.sums.largest, snapshot.BlocksAllocated)
	w.compareBlocks(snapshot)
	w.compareJourney(snapshot)
	w.compareBefore(snapshot)
}

// finishStep compares the step whose snapshots were just read with their sums. It can be compared only if every running
// request has a snapshot.
func (w *snapshotWalk) finishStep() {
	if w.at < 0 {
		return
	}
	step := &w.run.Steps[w.at]
	sums := &w.sums
	w.counts.steps++
	w.counts.rows += sums.rows
	w.counts.depth += int64(step.RunningDepth)
	if sums.rows != int64(step.RunningDepth) {
		return
	}
	w.counts.complete++
	if sums.scheduled != int64(step.ScheduledTokens) {
		w.counts.tokens++
	}
	used := step.BlocksTotal - step.BlocksFree
	w.counts.usedSteps++
	off := 0.0
	switch {
	case used < sums.largest: // shared blocks are counted once; each request has its own at least
		off = float64(sums.largest - used)
	case !w.dep.Engine.CPUOffloading && used > sums.allocated+blockSlack*sums.rows+blockSlack:
		off = float64(used - sums.allocated)
	case !w.dep.Engine.PrefixCaching && used < sums.allocated-blockSlack*sums.rows-blockSlack:
		off = float64(sums.allocated - used)
	}
	if off > 0 {
		w.counts.usedOff++
		w.counts.worstUsed = math.Max(w.counts.worstUsed, off)
	}
}

// compareBlocks compares the blocks of a request with its tokens: it has those of its tokens and a few that the engine
// reserves ahead.
func (w *snapshotWalk) compareBlocks(snapshot *trace.Snapshot) {
	size := w.dep.Engine.BlockSize
	if !w.isPlain || size <= 0 || snapshot.ScheduledTokens <= 0 {
		return
	}
	w.counts.blocks++
	want := (snapshot.ComputedTokens + snapshot.ScheduledTokens + size - 1) / size
	if over := snapshot.BlocksAllocated - want; over < 0 || over > w.lookaheadBlocks() {
		w.counts.blocksOff++
		w.counts.worstOff = math.Max(w.counts.worstOff, math.Abs(float64(over)))
	}
}

// compareJourney compares the prompt and the computed tokens of a snapshot with those of the request's journey.
func (w *snapshotWalk) compareJourney(snapshot *trace.Snapshot) {
	journey := w.journeys[snapshot.CoreID]
	if journey == nil || !journey.PromptTokens.OK {
		return
	}
	w.counts.compared++
	most := journey.PromptTokens.V + journey.OutputTokens.Or(math.MaxInt32) + w.lookaheadTokens() + 1
	if snapshot.PromptTokens != journey.PromptTokens.V || snapshot.ComputedTokens < 0 || snapshot.ComputedTokens > most {
		w.counts.unlike++
	}
}

// compareBefore compares a snapshot with the one before it of the same request.
func (w *snapshotWalk) compareBefore(snapshot *trace.Snapshot) {
	before := w.seen[snapshot.CoreID]
	switch {
	case before == nil:
		before = &lastSeen{}
		w.seen[strings.Clone(snapshot.CoreID)] = before // CoreID shares the memory of a whole page of rows
	case before.preemptions != snapshot.Preemptions: // its tokens are computed again
	case snapshot.StepID == before.step: // recorded twice
		w.counts.progress++
		w.counts.jumps++
	case snapshot.StepID > before.step:
		w.counts.progress++
		w.counts.jumps += w.jumped(before, snapshot)
	}
	*before = lastSeen{
		step:        snapshot.StepID,
		computed:    snapshot.ComputedTokens,
		scheduled:   snapshot.ScheduledTokens,
		preemptions: snapshot.Preemptions,
	}
}

// jumped returns 1 if a snapshot has other computed tokens than follow from the snapshot before and
// from what ran since, else 0.
func (f *facts) jumped(before *lastSeen, q *trace.Snapshot) int {
	least := before.computed + before.scheduled
	if f.speculates() {
		least = before.computed // drafted tokens that were refused are computed again
	}
	isNext := q.StepID == before.step+1 && !f.speculates()
	if q.ComputedTokens < least || isNext && q.ComputedTokens != least {
		return 1
	}
	return 0
}

// speculates reports whether steps verify drafted tokens, by run.yaml or by the log.
func (f *facts) speculates() bool {
	if f.run.Aggregate != nil && f.run.Aggregate.Drafts {
		return true
	}
	s, err := f.dep.Engine.Speculation()
	return err == nil && s != nil
}

// lookaheadTokens returns the tokens that a request may have blocks for beyond those scheduled.
func (f *facts) lookaheadTokens() int64 {
	s, err := f.dep.Engine.Speculation()
	if err != nil || s == nil {
		return 0
	}
	return s.Tokens + s.Lookahead()
}

// Tolerances of counts.
const (
	mostOffSteps   = 0.02 // share of steps, snapshots or requests that may contradict
	mostSeveral    = 0.01 // share of steps whose decodes may have several tokens
	mostMiscounted = 3    // finished requests, or preemptions, by which the counts of steps and journeys may differ
)

// share returns the part of a whole, 0 without one.
func share(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// stepTokens compares the token counts within each step summary. largest is in tokens of a step.
func stepTokens(f *facts) reading {
	if f.run.Aggregate != nil {
		return f.passTokens()
	}
	var r reading
	several := 0          // steps with more decode tokens than decodes
	preempted := int64(0) // requests that compute their tokens again
	for i := range f.run.Steps {
		s := &f.run.Steps[i]
		r.checked++
		off := math.Abs(float64(s.ScheduledTokens - s.PrefillTokens - s.DecodeTokens))
		ranNothing := s.ScheduledTokens == 0 && s.NumPrefillReqs+s.NumDecodeReqs > 0
		tooFew := s.PrefillTokens < s.NumPrefillReqs || s.DecodeTokens < s.NumDecodeReqs
		tooMany := s.NumPrefillReqs+s.NumDecodeReqs > s.RunningDepth
		preempted += int64(s.NumPreempted)
		if s.DecodeTokens > s.NumDecodeReqs {
			several++
		}
		if off > 0 || ranNothing || tooFew || tooMany {
			r.violated++
		}
		r.largest = math.Max(r.largest, off)
	}
	r.broken = float64(r.violated) > mostOffSteps*float64(r.checked)
	r.sentence = fmt.Sprintf("%d of %d step summaries contradict themselves: scheduled tokens are not prefill plus decode tokens (by up to %.0f), "+
		"or more requests run than are running", r.violated, r.checked, r.largest)
	if !r.broken && !f.speculates() && preempted == 0 && float64(several) > mostSeveral*float64(r.checked) {
		r.broken = true
		r.violated = several
		r.sentence = fmt.Sprintf("in %d of %d step summaries requests decode more than one token each without drafts: prefill and decode are mixed up, or "+
			"run.yaml has no speculative_config", several, r.checked)
	}
	return r
}

// mostResumed is the share of logged passes in which a preempted request may compute its tokens again, which vLLM counts
// as those of a decode.
const mostResumed = 0.1

// passTokens compares the decodes of each logged pass with their tokens. largest is in tokens of a pass.
func (f *facts) passTokens() reading {
	if f.speculates() || f.run.Aggregate.Drafts {
		return notChecked("passes verify drafted tokens")
	}
	var r reading
	mixed, mixedOff := 0, 0 // passes that have prompts too
	for i := range f.run.Iterations {
		it := &f.run.Iterations[i]
		if it.Form != trace.IterationLog || it.GenerationReqs == 0 && it.GenerationTokens == 0 {
			continue
		}
		r.checked++
		if it.ContextReqs > 0 {
			mixed++
		}
		if off := math.Abs(float64(it.GenerationTokens - it.GenerationReqs)); off > 0 {
			r.violated++
			r.largest = math.Max(r.largest, off)
			if it.ContextReqs > 0 {
				mixedOff++
			}
		}
	}
	if r.checked < fewestPriced {
		return notChecked("fewer than %d logged passes of vLLM with decodes", fewestPriced)
	}
	r.broken = float64(r.violated) > mostResumed*float64(r.checked) || mixed >= fewestPriced && 2*mixedOff > mixed
	r.sentence = fmt.Sprintf("in %d of %d logged passes the decodes have other than one token each without drafts, by up to %.0f: prefill and decode are mixed "+
		"up, or run.yaml has no speculative_config", r.violated, r.checked, r.largest)
	return r
}

// journeyTokens compares the tokens of each step with those by which the journeys in it advanced, if as many journeys
// run as the step counts (others are lost, which another identity counts). largest is in tokens of a step.
func journeyTokens(f *facts) reading {
	if len(f.lives) == 0 || len(f.run.Steps) == 0 {
		return notChecked("no journeys beside step summaries")
	}
	if f.isSampled() {
		return notChecked("journeys are sampled")
	}
	if f.speculates() {
		return notChecked("steps verify drafted tokens: a step makes more than one of each request")
	}
	steps := f.run.Steps
	if len(steps) > mostRebuilt {
		return f.countedContradictions()
	}
	first := steps[0].ID
	last := steps[len(steps)-1].ID
	batches := reconstruct.FromJourneys(f.lives, reconstruct.Recording{
		Engine:    &f.dep.Engine,
		First:     first,
		Last:      last,
		Summaries: steps,
	})
	reasons := batches.Reasons() // by step: why its batch is not known; Known: it is
	walk := batches.Walk()
	var members []trace.Member
	var r reading
	var counted, off float64 // tokens: that the steps count, and by which journeys differ
	for k := range steps {
		s := &steps[k]
		members = walk.AppendMembers(members[:0], s.ID)
		why := reasons[s.ID-first]
		if why != reconstruct.Known && why != reconstruct.Contradicted || f.maybe[k] > 0 || int64(f.running[k]) != int64(s.RunningDepth) {
			continue
		}
		r.checked++
		counted += float64(s.ScheduledTokens)
		if why == reconstruct.Known {
			continue
		}
		tokens := int64(0)
		for i := range members {
			tokens += members[i].New
		}
		d := math.Abs(float64(tokens - int64(s.ScheduledTokens)))
		off += d
		r.largest = math.Max(r.largest, d)
		r.violated++
	}
	r.broken = float64(r.violated) > mostOffSteps*float64(r.checked)
	r.sentence = fmt.Sprintf("%d of %d steps count other tokens than the journeys in them advanced (%.3g %% of all tokens): steps and journeys "+
		"are not of one run, or one of them was changed", r.violated, r.checked, 100*off/math.Max(1, counted))
	return r
}

// mostRebuilt is how many steps are rebuilt a second time, in addition to those of the rows.
const mostRebuilt = 1 << 20

// countedContradictions returns a reading of the contradictions that the rebuilding of the rows
// counted, for recordings too long to rebuild twice. It cannot distinguish a lost journey from a
// wrong one.
func (f *facts) countedContradictions() reading {
	if f.Steps == nil {
		return notChecked("the batches were not rebuilt")
	}
	if journeysComplete(f).broken {
		return notChecked("journeys were lost")
	}
	q := &f.Steps.Quality
	r := reading{checked: q.FromJourneys + q.Contradictions, violated: q.Contradictions}
	r.largest = share(r.violated, r.checked)
	r.broken = float64(r.violated) > mostOffSteps*float64(r.checked)
	r.sentence = fmt.Sprintf("%d of %d steps count other tokens than the journeys in them advanced: steps and journeys are not of one run, or one of "+
		"them was changed", r.violated, r.checked)
	return r
}

// isSampled reports whether only a part of the requests has a journey.
func (f *facts) isSampled() bool {
	rate := f.dep.Tracing.JourneySampleRate
	return rate.OK && rate.V < 1
}

// runningDepth compares the running requests that steps count with the journeys that run in them. Fewer journeys than
// requests are a loss, which journeysComplete counts; more contradict the steps. largest is in requests.
func runningDepth(f *facts) reading {
	if len(f.lives) == 0 || len(f.run.Steps) == 0 || f.run.Aggregate != nil {
		return notChecked("no journeys beside step summaries")
	}
	var r reading
	for k := range f.run.Steps {
		s := &f.run.Steps[k]
		if f.maybe[k] > 0 {
			continue
		}
		r.checked++
		// A request that ended is counted until the engine has processed its last token.
		over := float64(f.running[k]) - float64(s.RunningDepth)
		if over > 0 {
			r.violated++
			r.largest = math.Max(r.largest, over)
		}
	}
	r.broken = float64(r.violated) > mostOffSteps*float64(r.checked)
	r.sentence = fmt.Sprintf("in %d of %d steps more journeys run than requests are running, by up to %.0f: running_depth is wrong, or steps and "+
		"journeys are not of one run", r.violated, r.checked, r.largest)
	return r
}

// waitingDepth compares the waiting requests that steps count with the journeys that are queued and not yet scheduled.
// largest is in requests.
func waitingDepth(f *facts) reading {
	if len(f.lives) == 0 || len(f.run.Steps) == 0 || f.run.Aggregate != nil {
		return notChecked("no journeys beside step summaries")
	}
	var r reading
	var counted, known float64
	for k := range f.run.Steps {
		s := &f.run.Steps[k]
		if f.maybe[k] > 0 {
			continue
		}
		r.checked++
		off := math.Abs(float64(f.waiting[k]) - float64(s.WaitingDepth))
		if f.isSampled() {
			off = math.Max(0, float64(f.waiting[k])-float64(s.WaitingDepth))
		}
		counted += float64(s.WaitingDepth)
		known += float64(f.waiting[k])
		if off > 0 {
			r.violated++
			r.largest = math.Max(r.largest, off)
		}
	}
	r.broken = float64(r.violated) > mostOffSteps*float64(r.checked)
	r.sentence = fmt.Sprintf("in %d of %d steps waiting_depth differs from the journeys that are queued and not yet scheduled, by up to %.0f "+
		"(mean %.4g against %.4g)", r.violated, r.checked, r.largest, counted/math.Max(1, float64(r.checked)), known/math.Max(1, float64(r.checked)))
	return r
}

// finishedCounts compares the requests that steps count as finished and as preempted with the journeys that finished
// and with their preemptions. violated and largest are by how many the two differ. Where more requests finished than journeys,
// journeys were lost, which leaves verdicts open.
func finishedCounts(f *facts) reading {
	if len(f.lives) == 0 || len(f.run.Steps) == 0 || f.run.Aggregate != nil {
		return notChecked("no journeys beside step summaries")
	}
	if f.isSampled() {
		return notChecked("journeys are sampled")
	}
	steps := f.run.Steps
	var counted, preempted int64
	for i := range steps {
		counted += int64(steps[i].NumFinished)
		preempted += int64(steps[i].NumPreempted)
	}
	var finished, interrupted int64
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		interrupted += q.Preemptions.V
		if q.CoreID.OK && q.FinishedNs.OK {
			finished++
		}
	}
	if lost := f.stepIDs() - int64(len(steps)); lost > 0 {
		return notChecked("%d steps have no summary, and may have counted some", lost)
	}
	r := reading{checked: int(finished)}
	r.compareCounts("finished requests where %d journeys finished", counted, finished)
	if r.broken && counted > finished { // of requests with short answers most may be lost without a mark in running_depth
		r.effect = result.IdentityUndecided
	}
	if !r.broken {
		r.compareCounts("preemptions where journeys have %d", preempted, interrupted)
	}
	return r
}

// compareCounts adds to the reading a comparison of what steps count with what journeys have.
func (r *reading) compareCounts(what string, counted, known int64) {
	over := counted - known
	if float64(max(over, -over)) <= math.Max(mostMiscounted, mostOffSteps*float64(known)) {
		return
	}
	r.violated = int(max(over, -over))
	r.largest = float64(over)
	r.broken = true
	r.sentence = fmt.Sprintf("steps count %d "+what+": one of the two is wrong", counted, known)
}

// snapshotTokens compares complete snapshots with the summary of their step. largest is the share of such steps that
// differ.
func snapshotTokens(f *facts) reading {
	c := &f.snapshot
	if c.complete == 0 {
		return notChecked("no step has a snapshot of every running request")
	}
	r := reading{checked: c.complete, violated: int(c.tokens)}
	r.largest = share(r.violated, r.checked)
	r.broken = float64(r.violated) > mostOffSteps*float64(r.checked)
	r.sentence = fmt.Sprintf("in %d of %d steps the snapshots of all running requests add up to other tokens than the summary",
		r.violated, r.checked)
	return r
}

// snapshotProgress compares the computed tokens of a snapshot with those of the one before plus what ran. largest is
// the share of the pairs that differ.
func snapshotProgress(f *facts) reading {
	c := &f.snapshot
	if c.progress == 0 {
		return notChecked("no request has two snapshots")
	}
	r := reading{checked: c.progress, violated: c.jumps}
	r.largest = share(r.violated, r.checked)
	r.broken = float64(r.violated) > mostOffSteps*float64(r.checked)
	r.sentence = fmt.Sprintf("in %d of %d pairs of snapshots of a request the computed tokens are not those before plus what was scheduled, or both are of one step",
		r.violated, r.checked)
	return r
}

// snapshotRequests compares the snapshots of a request with its journey: the prompt, and computed tokens within the
// tokens of the request. largest is the share of the snapshots that differ.
func snapshotRequests(f *facts) reading {
	c := &f.snapshot
	if c.compared == 0 {
		return notChecked("no request has both a journey and a snapshot")
	}
	r := reading{checked: c.compared, violated: c.unlike}
	r.largest = share(r.violated, r.checked)
	r.broken = float64(r.violated) > mostOffSteps*float64(r.checked)
	r.sentence = fmt.Sprintf("%d of %d snapshots have another prompt length than the journey, or more computed tokens than the request had",
		r.violated, r.checked)
	return r
}

// cachedTokens compares the cached tokens of a request with its prompt, and with the prefix cache. largest is by how
// many tokens the cached ones are more.
func cachedTokens(f *facts) reading {
	var r reading
	without := 0
	count := func(cached, prompt trace.Opt[int64]) {
		if !cached.OK || !prompt.OK {
			return
		}
		r.checked++
		over := float64(cached.V - prompt.V)
		isOff := cached.V > 0 && !f.dep.Engine.PrefixCaching
		if isOff {
			without++
		}
		// The last token of a prompt is always computed.
		if over >= 0 && prompt.V > 0 || cached.V < 0 || isOff {
			r.violated++
			r.largest = math.Max(r.largest, over)
		}
	}
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		if q.Preemptions.Or(0) == 0 {
			count(q.CachedTokens, q.PromptTokens)
		}
	}
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		count(o.CachedTokens, o.PromptTokens)
	}
	r.broken = float64(r.violated) > mostOffSteps*float64(r.checked)
	r.sentence = fmt.Sprintf("%d of %d requests have as many cached tokens as prompt tokens, or more", r.violated, r.checked)
	if without > 0 {
		r.sentence = fmt.Sprintf("%d of %d requests have cached tokens, and run.yaml says enable_prefix_caching false", without, r.checked)
	}
	return r
}

// limits compares what ran in a step with the limits of the scheduler. largest is how many times the limit a step has.
func limits(f *facts) reading {
	mostSeqs, mostTokens := f.mostSeqs(), f.mostTokens()
	var r reading
	what := ""
	for i := range f.run.Steps {
		s := &f.run.Steps[i]
		r.checked++
		over := 0.0
		if mostSeqs.most > 0 && int64(s.RunningDepth) > mostSeqs.most {
			over = float64(s.RunningDepth) / float64(mostSeqs.most)
			what = mostSeqs.String()
		}
		if mostTokens.most > 0 && int64(s.ScheduledTokens) > mostTokens.most {
			over = math.Max(over, float64(s.ScheduledTokens)/float64(mostTokens.most))
			what = mostTokens.String()
		}
		if over > 0 {
			r.violated++
			r.largest = math.Max(r.largest, over)
		}
	}
	if r.violated == 0 && f.dep.Engine.LongPrefillThreshold > 0 {
		return f.prefillThreshold(r)
	}
	r.broken = r.violated > 0
	r.sentence = fmt.Sprintf("%d of %d steps run more than %s of run.yaml allows, up to %.3g times", r.violated, r.checked, what, r.largest)
	return r
}

// prefillThreshold adds to the reading whether a step computed more than long_prefill_token_threshold tokens of a prompt: the
// steps of a prompt times the threshold are its tokens that were not cached, or more.
func (f *facts) prefillThreshold(r reading) reading {
	threshold := f.dep.Engine.LongPrefillThreshold
	n := 0
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		if !q.ScheduledStep.OK || !q.FirstTokenStep.OK || !q.PromptTokens.OK || !q.CachedTokens.OK {
			continue
		}
		n++
		steps := q.FirstTokenStep.V - q.ScheduledStep.V + 1
		if tokens := q.PromptTokens.V - q.CachedTokens.V; tokens > steps*threshold {
			r.violated++
			r.largest = math.Max(r.largest, float64(tokens)/float64(steps*threshold))
		}
	}
	r.broken = r.violated > 0
	r.sentence = fmt.Sprintf("%d of %d prompts were computed in fewer steps than long_prefill_token_threshold %d of run.yaml allows, up to %.3g times as "+
		"fast", r.violated, n, threshold, r.largest)
	return r
}
