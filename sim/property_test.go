package sim

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// cases is how many random workloads each property sees: 150 in go test, 10,000
// with BLIS_TRAIN_EVAL=1.
func cases(t *testing.T) int {
	n := 150
	if repo.Eval() {
		n = 10000
	}
	if testing.Short() {
		n = 50
	}
	t.Logf("%d random workloads (BLIS_TRAIN_EVAL=1 for 10000)", n)
	return n
}

// randomCase draws an engine and a workload: every policy, knob and outcome,
// tight and roomy, alone and together.
func randomCase(seed uint64) (Config, []Request) {
	rng := rand.New(rand.NewPCG(seed, 7))
	pick := func(v ...int64) int64 { return v[rng.IntN(len(v))] }
	d := testkit.Small(pick(8, 12, 20, 60, 400), func(e *vllm.Engine) {
		e.MaxNumSeqs, e.BlockSize = pick(1, 2, 4, 8, 16), pick(1, 2, 4, 16)
		e.MaxNumBatchedTokens = pick(8, 16, 64, 256)
		e.ChunkedPrefill, e.PrefixCaching = rng.IntN(4) > 0, rng.IntN(2) == 0
		e.MaxModelLen = trace.Some(pick(40, 100, 400))
		e.SchedulingPolicy = []string{"fcfs", "priority"}[rng.IntN(2)]
		e.LongPrefillThreshold = pick(0, 0, 5)
		if rng.IntN(3) == 0 {
			e.CPUOffloading, e.KVBlocksCPU = true, pick(4, 40)
		}
	})
	cfg := DefaultConfig(d, &Blackbox{Beta: []float64{float64(pick(1, 50, 1000)), 3, 2}})
	cfg.Async = rng.IntN(2) == 0
	cfg.Seed, cfg.TokenGaps, cfg.RequestGaps = int64(seed), true, true
	cfg.Overhead, cfg.Egress = Const(pick(0, 7, 300)), Const(pick(0, 11))
	if rng.IntN(3) == 0 {
		q := []Quantile{{0.1, 0.5}, {0.5, 1}, {0.9, 3}}
		cfg.Noise = &Noise{Decode: q, Prefill: q}
		cfg.Drift = []DriftPoint{{100, 1.5}, {5000, 0.7}}
	}
	n := 1 + rng.IntN(40)
	reqs := make([]Request, n)
	at := int64(0)
	for i := range reqs {
		at += pick(0, 0, 1, 30, 500, 20000)
		r := Request{
			ID: fmt.Sprintf("r%02d", i), ArrivalUs: at, PromptTokens: 1 + rng.Int64N(90), OutputTokens: 1 + rng.Int64N(60),
			Priority: pick(0, 0, 1, 2),
		}
		r.MaxTokens = r.OutputTokens + pick(0, 0, 5)
		if rng.IntN(2) == 0 {
			r.Group, r.GroupTokens = uint64(1+rng.IntN(3)), rng.Int64N(r.PromptTokens+1)
		} else if rng.IntN(2) == 0 {
			r.HashTokens = pick(2, 8, 32)
			for k := int64(0); k*r.HashTokens < r.PromptTokens; k++ {
				r.Hashes = append(r.Hashes, uint64(k)<<8+uint64(rng.IntN(2)))
			}
		}
		if rng.IntN(8) == 0 {
			r.AbortAtUs, r.AbortKind = trace.Some(at+rng.Int64N(30000)), []Outcome{OutcomeAborted, OutcomeTimedOut, OutcomeFinished}[rng.IntN(3)]
		}
		if i > 0 && rng.IntN(6) == 0 {
			r.After, r.ThinkUs = 1+rng.IntN(i), rng.Int64N(1000)
		}
		reqs[i] = r
	}
	return cfg, reqs
}

// runChecked runs with a check of the whole state after every change.
func runChecked(t *testing.T, cfg Config, reqs []Request, obs Observer, check func(e *Engine, when string)) *Result {
	t.Helper()
	all := make([]RequestResult, len(reqs))
	d, err := newDriver(cfg, reqs, obs, func(i int, r *RequestResult) bool {
		if all[i].Outcome != "" {
			t.Errorf("request %d left twice", i)
		}
		all[i] = *r
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	engines := []*Engine{}
	switch s := d.Server.(type) {
	case *Engine:
		engines = append(engines, s)
	case *allRanks:
		engines = s.engines
	}
	changes := 0
	for _, e := range engines {
		e.check = func(when string) {
			if changes++; changes > 200_000 {
				t.Fatalf("the run does not end: %d running, %d waiting, %d parked, %d leaving, free %d of %d: %+v",
					len(e.running), e.numWaiting(), len(e.transfers.parked), len(e.transfers.leaving), e.pool.Free, e.pool.Total, cfg.Deployment.Engine)
			}
			if check != nil {
				check(e, when)
			}
		}
	}
	res, err := d.run()
	if err != nil {
		t.Fatal(err)
	}
	res.Requests = all
	return res
}

// forAll runs f on every random case and stops at the first failure.
func forAll(t *testing.T, f func(t *testing.T, seed uint64, cfg Config, reqs []Request)) {
	for seed := range uint64(cases(t)) {
		cfg, reqs := randomCase(seed)
		f(t, seed, cfg, reqs)
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, cfg.Deployment.Engine)
		}
	}
}

// Conservation: a request that has arrived is on its way, in the input queue,
// waiting, running or gone, at every step, and each leaves once.
func TestConservation(t *testing.T) {
	forAll(t, func(t *testing.T, seed uint64, cfg Config, reqs []Request) {
		count := &countEvents{}
		res := runChecked(t, cfg, reqs, count, func(e *Engine, when string) {
			visits, inside := 0, 0
			for _, v := range e.visits {
				if v == nil {
					continue
				}
				visits++
				if v.s != nil {
					inside++
				}
			}
			if want := len(e.inbox) + e.waiting.len() + len(e.running) + len(e.skipped); inside != want {
				t.Errorf("%s: %d requests inside, queues hold %d", when, inside, want)
			}
			if count.arrived-count.departed != visits {
				t.Errorf("%s: %d arrived, %d departed, %d on their way", when, count.arrived, count.departed, visits)
			}
		})
		for i := range res.Requests {
			if res.Requests[i].Outcome == OutcomeUnfinished {
				t.Errorf("request %d never left", i)
			}
		}
	})
}

// countEvents counts requests that came and went.
type countEvents struct{ arrived, departed int }

func (c *countEvents) Step(*StepView) {}
func (c *countEvents) Event(e *Event) {
	switch e.Kind {
	case Arrived:
		c.arrived++
	case Departed:
		c.departed++
	}
}

// Blocks: allocated + free = total after every change, all free at the end,
// every reference is held by somebody.
func TestBlocksConserved(t *testing.T) {
	forAll(t, func(t *testing.T, seed uint64, cfg Config, reqs []Request) {
		var last *Engine
		runChecked(t, cfg, reqs, nil, func(e *Engine, when string) {
			last = e
			checkBlocks(t, e, when)
		})
		if last != nil && last.pool.Free != last.pool.Total {
			t.Errorf("%d of %d blocks free at the end", last.pool.Free, last.pool.Total)
		}
	})
}

func checkBlocks(t *testing.T, e *Engine, when string) {
	t.Helper()
	var held []*held
	for _, v := range e.visits {
		if v != nil && v.s != nil {
			held = append(held, &v.s.held)
		}
	}
	for i := range e.frees.waiting {
		held = append(held, &e.frees.waiting[i].held)
	}
	for _, s := range e.transfers.leaving {
		held = append(held, &s.held)
	}
	if err := e.pool.Check(held); err != nil {
		t.Errorf("%s: %v", when, err)
	}
}

// Budgets: tokens per step <= max_num_batched_tokens, sequences <= max_num_seqs,
// and the sums of a step are those of its members.
func TestBudgetsAndSums(t *testing.T) {
	forAll(t, func(t *testing.T, seed uint64, cfg Config, reqs []Request) {
		eng := cfg.Deployment.Engine
		runChecked(t, cfg, reqs, stepFunc(func(v *StepView) {
			if v.Tokens() > eng.MaxNumBatchedTokens || v.Running > eng.MaxNumSeqs || int64(len(v.Members)) != v.Running {
				t.Errorf("step %d: %d tokens, %d running, %d members", v.StepID, v.Tokens(), v.Running, len(v.Members))
			}
			if want := sumsOf(v); want != sumsIn(v.Batch) {
				t.Errorf("step %d: sums %+v, members say %+v", v.StepID, sumsIn(v.Batch), want)
			}
			if v.EndUs < v.StartUs+1 {
				t.Errorf("step %d lasts %d us", v.StepID, v.EndUs-v.StartUs)
			}
		}), nil)
	})
}

type sums struct{ prefill, decode, preqs, dreqs, causal, work, twice, ctx, kv int64 }

func sumsIn(b Batch) sums {
	return sums{b.PrefillTokens, b.DecodeTokens, b.PrefillReqs, b.DecodeReqs, b.CausalWork, b.PrefillAttnWork, b.PromptAttnTwice,
		b.DecodeContext, b.KVRead}
}

func sumsOf(v *StepView) (s sums) {
	for _, m := range v.Members {
		c := m.Computed
		p := m.Prompt
		n := m.New
		switch {
		case n == 0:
			continue
		case c >= p && n == 1:
			s.decode++
			s.dreqs++
			s.ctx += c + 1
		default:
			s.prefill += n
			s.preqs++
			s.work += (c + n) * n
			for k := range n {
				s.causal += c + k + 1
			}
			if c < p {
				s.twice += n * (2*p + n)
			}
		}
		s.kv += c + n
	}
	return s
}

type stepFunc func(*StepView)

func (f stepFunc) Step(v *StepView) { f(v) }
func (stepFunc) Event(*Event)       {}

// log is an observer that writes everything down, one line each.
type log struct {
	b      strings.Builder
	lastUs int64
	back   bool
}

func (l *log) Step(v *StepView) {
	fmt.Fprintf(&l.b, "step %d at %d to %d: %d+%d tokens, running %d waiting %d preempted %d free %d\n",
		v.StepID, v.StartUs, v.EndUs, v.PrefillTokens, v.DecodeTokens, v.Running, v.Waiting, v.Preempted, v.FreeBlocks)
	l.tick(v.StartUs)
}

func (l *log) Event(e *Event) {
	fmt.Fprintf(&l.b, "%d %s %d step %d out %d\n", e.AtUs, e.Kind, e.Request, e.Step, e.OutputTokens)
	l.tick(e.AtUs)
}

func (l *log) tick(us int64) {
	l.back = l.back || us < l.lastUs
	l.lastUs = us
}

// Clock never goes back; same seed and inputs: byte-identical event log and results.
func TestClockAndDeterminism(t *testing.T) {
	forAll(t, func(t *testing.T, seed uint64, cfg Config, reqs []Request) {
		var a, b log
		ra := runChecked(t, cfg, reqs, &a, nil)
		rb := runChecked(t, cfg, reqs, &b, nil)
		if a.back {
			t.Errorf("the clock went back:\n%s", a.b.String())
		}
		if a.b.String() != b.b.String() || !reflect.DeepEqual(ra, rb) {
			t.Error("two runs differ")
		}
		silent := runChecked(t, cfg, reqs, nil, nil)
		if !reflect.DeepEqual(ra.Requests, silent.Requests) {
			t.Error("watching changes the results")
		}
	})
}

// Causality: arrival <= enqueued <= queued <= scheduled <= first token <= finished <= departed,
// a finished request has exactly its tokens, and TTFT + sum of gaps = end.
func TestCausalityAndTokens(t *testing.T) {
	forAll(t, func(t *testing.T, seed uint64, cfg Config, reqs []Request) {
		gapSum := map[int]int64{}
		last := map[int]int64{}
		obs := &tokenLog{first: map[int]int64{}, finish: map[int]int64{}}
		res := runChecked(t, cfg, reqs, obs, func(e *Engine, when string) {
			for i, v := range e.visits {
				if v == nil || v.s == nil {
					continue
				}
				if s := v.s; s.first {
					sum := int64(0)
					for _, g := range s.gaps {
						sum += int64(g)
					}
					gapSum[i], last[i] = sum, s.lastToken
					if obs.first[i]+sum != s.lastToken {
						t.Errorf("request %d: first token %d + gaps %d, last token %d", i, obs.first[i], sum, s.lastToken)
					}
				}
			}
		})
		limit := cfg.Deployment.Engine.MaxModelLen.V
		for i := range res.Requests {
			r := &res.Requests[i]
			at := r.ArrivalUs
			for _, stamp := range []trace.Opt[int64]{r.EnqueuedUs, r.QueuedUs, r.ScheduledUs, r.FirstTokenUs, r.FinishedUs, r.DepartedUs} {
				if stamp.OK && stamp.V < at {
					t.Errorf("request %d: a stamp goes back: %+v", i, r)
				}
				if stamp.OK {
					at = stamp.V
				}
			}
			want := min(reqs[i].OutputTokens, limit-reqs[i].PromptTokens)
			if r.FinishStatus == trace.FinishStopped || r.FinishStatus == trace.FinishLength {
				if r.OutputTokens != want || r.Outcome != OutcomeFinished {
					t.Errorf("request %d: %d tokens, want %d: %+v", i, r.OutputTokens, want, r)
				}
			}
		}
	})
}

type tokenLog struct{ first, finish map[int]int64 }

func (l *tokenLog) Step(*StepView) {}
func (l *tokenLog) Event(e *Event) {
	switch e.Kind {
	case FirstToken:
		l.first[e.Request] = e.AtUs
	case Finished:
		l.finish[e.Request] = e.AtUs
	}
}

// Work conserving: a step without tokens leaves nobody who could have run, and
// the engine is never idle while requests are in its input queue.
func TestWorkConserving(t *testing.T) {
	forAll(t, func(t *testing.T, seed uint64, cfg Config, reqs []Request) {
		runChecked(t, cfg, reqs, nil, func(e *Engine, when string) {
			if when != "schedule" || e.batch.Tokens() > 0 {
				return
			}
			for _, s := range e.running {
				if e.tokensFor(s, e.budget) > 0 && e.batch.Preempted == 0 {
					t.Errorf("step %d is empty and request %d wants tokens", e.step, s.idx)
				}
			}
			if e.waiting.len() > 0 && e.batch.Preempted == 0 && int64(len(e.running)) < e.maxSeqs {
				s := e.waiting.peek()
				if e.connector != nil {
					return
				}
				hits := e.findHits(s)
				computed := int64(len(hits)) * e.blockSize
				need := ceilDiv(computed+min(s.tokens()-computed, e.budget), e.blockSize) - int64(len(hits))
				for _, b := range hits {
					if !e.pool.InUse(b) { // taking it out of the free list costs a free block
						need++
					}
				}
				if need <= e.pool.Free && (e.chunked || s.tokens() <= e.budget) && e.longPrefill == 0 {
					t.Errorf("step %d is empty and request %d fits: needs %d of %d blocks", e.step, s.idx, need, e.pool.Free)
				}
			}
		})
	})
}

// No policy reads a request's true output length: two runs that differ in the
// length of one request are identical until the shorter one stops.
func TestOutputLengthIsNotRead(t *testing.T) {
	forAll(t, func(t *testing.T, seed uint64, cfg Config, reqs []Request) {
		i := int(seed) % len(reqs)
		longer := append([]Request(nil), reqs...)
		longer[i].MaxTokens = reqs[i].MaxTokens + 20
		shorter := append([]Request(nil), longer...)
		longer[i].OutputTokens += 10
		var a, b log
		short := runChecked(t, cfg, shorter, &a, nil)
		runChecked(t, cfg, longer, &b, nil)
		end := short.Requests[i].FinishedUs
		if !end.OK {
			return
		}
		x := until(a.b.String(), end.V)
		y := until(b.b.String(), end.V)
		if x != y {
			t.Errorf("request %d: the logs differ before it stops at %d us", i, end.V)
		}
	})
}

// until keeps the event lines before the given time.
func until(text string, us int64) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		var at int64
		if strings.HasPrefix(line, "step ") {
			var id int64
			fmt.Sscanf(line, "step %d at %d", &id, &at)
		} else {
			fmt.Sscanf(line, "%d", &at)
		}
		if at < us {
			out.WriteString(line)
		}
	}
	return out.String()
}

// Run -> export -> replay: with the recorded step times and pick-ups the
// results are the same, noise and drift included in the recording.
func TestReplayOfARecording(t *testing.T) {
	forAll(t, func(t *testing.T, seed uint64, cfg Config, reqs []Request) {
		rec := &recording{}
		first := runChecked(t, cfg, reqs, rec, nil)
		if tiedLoop(first, reqs) {
			return
		}
		replay := cfg
		replay.Latency = rec.Timeline()
		replay.Noise = nil
		replay.Drift = nil
		again := append([]Request(nil), reqs...)
		for i := range again {
			if r := &first.Requests[i]; r.EnqueuedUs.OK {
				again[i].After = 0
				again[i].ArrivalUs = r.ArrivalUs
				again[i].EnqueueUs = r.EnqueuedUs
			}
		}
		second := runChecked(t, replay, again, nil, nil)
		if !reflect.DeepEqual(first.Requests, second.Requests) {
			for i := range first.Requests {
				if !reflect.DeepEqual(first.Requests[i], second.Requests[i]) {
					t.Errorf("request %d:\n%+v\n%+v", i, first.Requests[i], second.Requests[i])
					return
				}
			}
		}
	})
}

// tiedLoop reports whether a closed-loop request reached the input queue in the
// same microsecond as another one: a recording does not say who was first.
func tiedLoop(res *Result, reqs []Request) bool {
	at := map[int64]int{}
	for i := range res.Requests {
		if r := &res.Requests[i]; r.EnqueuedUs.OK {
			at[r.EnqueuedUs.V]++
		}
	}
	for i := range reqs {
		if reqs[i].After > 0 && at[res.Requests[i].EnqueuedUs.V] > 1 {
			return true
		}
	}
	return false
}

// Metamorphic: shifting all arrivals shifts all stamps.
func TestShiftedArrivals(t *testing.T) {
	forAll(t, func(t *testing.T, seed uint64, cfg Config, reqs []Request) {
		const shift = 1_000_003
		cfg.Drift = nil
		moved := append([]Request(nil), reqs...)
		for i := range moved {
			moved[i].ArrivalUs += shift
			if moved[i].AbortAtUs.OK {
				moved[i].AbortAtUs.V += shift
			}
		}
		a := runChecked(t, cfg, reqs, nil, nil)
		b := runChecked(t, cfg, moved, nil, nil)
		for i := range a.Requests {
			x, y := &a.Requests[i], &b.Requests[i]
			if x.Outcome != y.Outcome || x.DepartedUs.OK != y.DepartedUs.OK || x.DepartedUs.OK && x.DepartedUs.V+shift != y.DepartedUs.V {
				t.Errorf("request %d: %+v and %+v", i, x, y)
				return
			}
		}
	})
}
