package rows

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// job is one request of the toy engine.
type job struct {
	id              string
	arrive          int64 // first step that may schedule it
	prompt, cached  int64
	outputs         int64
	stopsByEOS      bool
	abortAfter      int64 // outputs processed when the client leaves; 0 = never
	preempted       bool  // claim a preemption in the journey (the toy never preempts)
	computed        int64
	s, t, e         int64
	seen            int64 // output tokens processed so far
	pending         int64 // output tokens produced and not yet processed
	finished, stale bool
}

// toy is the scheduler in ten slow obvious rules: the
// dumb twin of the reconstruction. It runs jobs and records what vLLM would.
type toy struct {
	budget   int64
	async    bool
	chunking bool
	running  []*job
	truth    map[int64][]trace.Member
	run      *trace.Run
}

func (y *toy) play(jobs []*job) {
	y.truth, y.run = make(map[int64][]trace.Member), &trace.Run{ID: "toy"}
	waiting := slices.Clone(jobs)
	for step := int64(1); len(waiting)+len(y.running) > 0; step++ {
		y.step(step, &waiting)
	}
	for _, j := range jobs {
		y.run.Requests = append(y.run.Requests, y.journey(j))
	}
}

func (y *toy) step(step int64, waiting *[]*job) {
	budget := y.budget
	sum := trace.Step{ID: step, TsStartNs: step * 20e6, TsEndNs: step*20e6 + 1e5, DurationUs: 100, BlocksTotal: 1000, BlocksFree: 500,
		KVUsage: 0.5}
	var ran []*job
	schedule := func(j *job, n int64) {
		c := trace.Chunk{Computed: j.computed, Prompt: j.prompt, New: n}
		y.truth[step] = append(y.truth[step], trace.Member{CoreID: j.id, Chunk: c})
		budget -= n
		sum.ScheduledTokens += n
		if j.seen == 0 {
			sum.NumPrefillReqs++
			sum.PrefillTokens += n
		} else {
			sum.NumDecodeReqs++
			sum.DecodeTokens += n
		}
		ran = append(ran, j)
	}
	for _, j := range y.running {
		if n := y.want(j, budget); n > 0 {
			schedule(j, n)
		}
	}
	for len(*waiting) > 0 && (*waiting)[0].arrive <= step {
		j := (*waiting)[0]
		n := y.want(j, budget)
		if n <= 0 || !y.chunking && n < j.prompt-j.computed {
			break
		}
		j.s = step
		schedule(j, n)
		y.running, *waiting = append(y.running, j), (*waiting)[1:]
	}
	y.snap(step, ran, &sum)
	y.run.Steps = append(y.run.Steps, sum)
	y.process(step, ran)
}

// want is how many tokens a job asks for: one for a decode unless it has
// reached its cap, else the rest of its prompt.
func (y *toy) want(j *job, budget int64) int64 {
	if j.computed >= j.prompt {
		made := j.computed - j.prompt + 1
		if made >= j.outputs && !j.stopsByEOS {
			return 0
		}
		return min(1, budget)
	}
	if !y.chunking {
		return j.prompt - j.computed
	}
	return min(j.prompt-j.computed, budget)
}

func (y *toy) snap(step int64, ran []*job, sum *trace.Step) {
	sum.RunningDepth = int64(len(y.running))
	for _, j := range y.running {
		s := trace.Snapshot{StepID: step, CoreID: j.id, Phase: "DECODE", PromptTokens: j.prompt, ComputedTokens: j.computed,
			OutputTokens: j.seen, EffectivePromptLen: trace.Some(j.prompt - j.cached)}
		if j.seen == 0 {
			s.Phase = "PREFILL"
		}
		for _, m := range y.truth[step] {
			if m.CoreID == j.id {
				s.ScheduledTokens = m.New
			}
		}
		y.run.Snapshots = append(y.run.Snapshots, s)
	}
	for _, j := range ran {
		for _, m := range y.truth[step] {
			if m.CoreID == j.id {
				j.computed += m.New
			}
		}
		if j.computed >= j.prompt && j.t == 0 {
			j.t = step
		}
	}
}

// process takes outputs: those of this step, or under asynchronous
// scheduling those of the step before.
func (y *toy) process(step int64, ran []*job) {
	for _, j := range y.running {
		ready := j.pending
		j.pending = 0
		if j.t > 0 && slices.Contains(ran, j) {
			j.pending = 1
		}
		last := step - 1
		if !y.async {
			ready, j.pending, last = j.pending, 0, step
		}
		if j.abortAfter > 0 && j.seen >= j.abortAfter {
			j.e, j.finished, j.stale = step, true, true // the abort is handled before the step's output
			continue
		}
		j.seen += ready
		if ready > 0 && j.seen == j.outputs {
			j.e, j.finished = last, true
		}
	}
	y.running = slices.DeleteFunc(y.running, func(j *job) bool { return j.finished })
}

func (y *toy) journey(j *job) trace.Request {
	r := trace.Request{Source: trace.SourceFork, CoreID: trace.Some(j.id), APIID: trace.Some(j.id), APISpanID: trace.Some("span-" + j.id),
		PromptTokens: trace.Some(j.prompt), OutputTokens: trace.Some(j.seen), Preemptions: trace.Some(int64(0)),
		ArrivedNs: trace.Some(j.s*20e6 - 5e6), QueuedNs: trace.Some(j.s*20e6 - 1e5), QueuedStep: trace.Some(j.s - 1),
		ScheduledNs: trace.Some(j.s*20e6 + 1e4), ScheduledStep: trace.Some(j.s),
		FirstTokenNs: trace.Some(j.t*20e6 + 19e6), FirstTokenStep: trace.Some(j.t),
		FinishedNs: trace.Some(j.e*20e6 + 19e6), FinishedStep: trace.Some(j.e), FinishStatus: trace.Some(trace.FinishLength)}
	switch {
	case j.stale:
		r.FinishStatus = trace.Some(trace.FinishAborted)
		r.AbortedNs = r.FinishedNs
	case j.stopsByEOS:
		r.FinishStatus = trace.Some(trace.FinishStopped)
	}
	if !j.stale {
		r.DepartedNs = trace.Some(r.FinishedNs.V + 1e6)
	}
	if j.preempted {
		r.Preemptions = trace.Some(int64(1))
	}
	return r
}

// jobs draws a workload that mixes chunked and short prompts, cache hits, EOS
// and length finishes, and aborts.
func jobs(r *rand.Rand, n int, budget int64, chunking bool) []*job {
	var out []*job
	step := int64(1)
	for i := range n {
		j := &job{id: fmt.Sprintf("r%03d", i), arrive: step, prompt: 1 + r.Int64N(3*budget), outputs: 1 + r.Int64N(30),
			stopsByEOS: r.IntN(2) == 0}
		if !chunking {
			j.prompt = 1 + r.Int64N(budget/2)
		}
		if r.IntN(3) == 0 {
			j.cached = r.Int64N(j.prompt)
		}
		if r.IntN(8) == 0 && j.outputs > 3 {
			j.abortAfter = 1 + r.Int64N(j.outputs-2)
		}
		j.computed = j.cached
		step += r.Int64N(6)
		out = append(out, j)
	}
	return out
}

func toyDeployment(y *toy) *deploy.Deployment {
	d := testDeployment()
	d.Engine.MaxNumBatchedTokens, d.Engine.ChunkedPrefill, d.Engine.PrefixCaching = y.budget, y.chunking, true
	d.Engine.AsyncScheduling = trace.Some(y.async)
	return d
}
