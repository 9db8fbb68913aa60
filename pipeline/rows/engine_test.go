package rows

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
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
	y.truth = make(map[int64][]trace.Member)
	y.run = &trace.Run{ID: "toy"}
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
		sum.ScheduledTokens += int32(n)
		if j.seen == 0 {
			sum.NumPrefillReqs++
			sum.PrefillTokens += int32(n)
		} else {
			sum.NumDecodeReqs++
			sum.DecodeTokens += int32(n)
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
		y.running = append(y.running, j)
		*waiting = (*waiting)[1:]
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
	sum.RunningDepth = int32(int64(len(y.running)))
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
			ready = j.pending
			j.pending = 0
			last = step
		}
		if j.abortAfter > 0 && j.seen >= j.abortAfter {
			j.e = step
			j.finished = true
			j.stale = true // the abort is handled before the step's output
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
	d.Engine.MaxNumBatchedTokens = y.budget
	d.Engine.ChunkedPrefill = y.chunking
	d.Engine.PrefixCaching = true
	d.Engine.AsyncScheduling = trace.Some(y.async)
	return d
}

// longRun is n steps of about 30 concurrent requests: one arrives every 7 steps
// with a prompt of 300 tokens and leaves after 200 outputs.
func longRun(n int64) *trace.Run {
	run := &trace.Run{ID: "long"}
	prefill := make([]int64, n+1)
	decode := make([]int64, n+1)
	for s := int64(1); s+200 < n; s += 7 {
		id := fmt.Sprintf("r%d", s)
		at := s * 20 * ms
		r := request(id, at-ms, at+200*20*ms)
		r.ScheduledStep, r.FirstTokenStep, r.FinishedStep = trace.Some(s), trace.Some(s), trace.Some(s+199)
		r.PromptTokens, r.OutputTokens = trace.Some(int64(300)), trace.Some(int64(200))
		r.FinishStatus = trace.Some(trace.FinishLength)
		run.Requests = append(run.Requests, r)
		prefill[s]++
		for u := s + 1; u <= s+199; u++ {
			decode[u]++
		}
	}
	for id := int64(1); id <= n-200; id++ {
		run.Steps = append(run.Steps, trace.Step{ID: id, TsStartNs: id * 20 * ms, DurationUs: 200, RunningDepth: int32(prefill[id] + decode[id]),
			NumPrefillReqs: int32(prefill[id]), NumDecodeReqs: int32(decode[id]), PrefillTokens: int32(300 * prefill[id]), DecodeTokens: int32(decode[id]),
			ScheduledTokens: int32(300*prefill[id] + decode[id]), BlocksTotal: 4000, BlocksFree: 2000, KVUsage: 0.5})
	}
	return run
}

func BenchmarkRebuild(b *testing.B) {
	for _, n := range []int64{100_000, 1_000_000} {
		run, d := longRun(n), testDeployment()
		b.Run(fmt.Sprintf("%dsteps", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s, err := Rebuild(run, d, features.V11)
				if err != nil || s.Quality.Reconstructed != len(run.Steps) {
					b.Fatalf("%v %+v", err, s.Quality)
				}
			}
			b.ReportMetric(float64(len(run.Steps))*float64(b.N)/b.Elapsed().Seconds(), "steps/s")
		})
	}
}

func BenchmarkRows(b *testing.B) {
	run, d := longRun(1_000_000), testDeployment()
	s, err := Rebuild(run, d, features.V11)
	if err != nil {
		b.Fatal(err)
	}
	sp, err := features.New(features.V11, d)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("beta", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if t, err := s.Beta(sp, Options{Lag: 1}); err != nil || t.Kept < 990_000 {
				b.Fatal(err, t.Kept, t.Dropped)
			}
		}
		b.ReportMetric(float64(len(run.Steps))*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	})
	b.Run("alpha", func(b *testing.B) {
		for b.Loop() {
			if t, err := s.Alpha(sp, Options{}); err != nil || t.Kept < 100_000 {
				b.Fatal(err, t.Kept)
			}
		}
		b.ReportMetric(float64(len(run.Requests))*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	})
}
