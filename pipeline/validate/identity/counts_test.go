package identity

import (
	"testing"

	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// ofSteps are the facts of n equal steps, of which the first odd ones are changed. Two of 100 may contradict.
func ofSteps(n, odd int, step trace.Step, change func(s *trace.Step)) *facts {
	f := emptyFacts()
	for i := range n {
		s := step
		s.ID = int64(i + 1)
		if i < odd {
			change(&s)
		}
		f.run.Steps = append(f.run.Steps, s)
	}
	return f
}

func TestStepCountReadings(t *testing.T) {
	step := trace.Step{ScheduledTokens: 35, PrefillTokens: 30, NumPrefillReqs: 3, DecodeTokens: 5, NumDecodeReqs: 5, RunningDepth: 8}
	for _, c := range []struct {
		name    string
		odd     int
		change  func(s *trace.Step)
		largest float64
	}{
		{"tokens do not add up", 3, func(s *trace.Step) { s.ScheduledTokens = 39 }, 4},
		{"fewer than they should", 3, func(s *trace.Step) { s.ScheduledTokens = 30 }, 5},
		{"more requests than run", 3, func(s *trace.Step) { s.RunningDepth = 7 }, 0},
		{"a prompt without a token", 3, func(s *trace.Step) { s.NumPrefillReqs, s.PrefillTokens, s.ScheduledTokens = 3, 2, 7 }, 0},
		{"a decode without a token", 3, func(s *trace.Step) { s.DecodeTokens, s.ScheduledTokens = 4, 34 }, 0},
		{"requests in an empty step", 3, func(s *trace.Step) { s.ScheduledTokens, s.PrefillTokens, s.DecodeTokens = 0, 0, 0 }, 0},
	} {
		wanted{100, 3, c.largest, true, "3 of 100 step summaries contradict themselves"}.compare(t, c.name, stepTokens(ofSteps(100, c.odd, step, c.change)))
		wanted{100, 2, c.largest, false, ""}.compare(t, c.name+", two of 100", stepTokens(ofSteps(100, 2, step, c.change)))
	}
	several := func(s *trace.Step) { s.DecodeTokens, s.ScheduledTokens = 6, 36 }
	wanted{100, 2, 0, true, "in 2 of 100 step summaries requests decode more than one token each without drafts"}.
		compare(t, "two decode tokens of a request", stepTokens(ofSteps(100, 2, step, several)))
	wanted{100, 0, 0, false, ""}.compare(t, "in one of 100 steps", stepTokens(ofSteps(100, 1, step, several)))
	wanted{100, 0, 0, false, ""}.compare(t, "after a preemption", stepTokens(ofSteps(100, 2, step, func(s *trace.Step) {
		several(s)
		s.NumPreempted = 1
	})))
	f := ofSteps(3, 0, step, nil)
	f.run.Aggregate = &trace.Aggregate{}
	wanted{text: "fewer than 20 logged passes of vLLM with decodes"}.compare(t, "a log", stepTokens(f))
}

func TestUsedBlockReadings(t *testing.T) {
	step := trace.Step{ScheduledTokens: 8, NumDecodeReqs: 8, RunningDepth: 8, BlocksTotal: 1000, BlocksFree: 900, KVUsage: 0.1}
	for _, c := range []struct {
		name    string
		change  func(s *trace.Step)
		largest float64
		broken  bool
		text    string
	}{
		{"off by a hundredth", func(s *trace.Step) { s.KVUsage = 0.1099 }, 0, false, ""},
		{"by more", func(s *trace.Step) { s.KVUsage = 0.111 }, 11, true, "kv_usage_ratio is not 1 - free / total"},
		{"more free than there are", func(s *trace.Step) { s.BlocksFree, s.KVUsage = 1001, -0.001 }, 0, true, "kv_usage_ratio"},
		{"a block each", func(s *trace.Step) { s.BlocksFree, s.KVUsage = 992, 0.008 }, 0, false, ""},
		{"fewer", func(s *trace.Step) { s.BlocksFree, s.KVUsage = 993, 0.007 }, 1, true, "fewer blocks are in use than requests run"},
		{"nothing ran", func(s *trace.Step) { s.ScheduledTokens, s.BlocksFree, s.KVUsage = 0, 993, 0.007 }, 0, false, ""},
		{"no total", func(s *trace.Step) { s.BlocksTotal = 0 }, 0, false, ""},
	} {
		f := ofSteps(100, 3, step, c.change)
		f.dep.Engine.PrefixCaching = false
		want := wanted{100, 0, c.largest, c.broken, c.text}
		if c.broken {
			want.violated = 3
		}
		if c.name == "no total" {
			want.checked = 97
		}
		want.compare(t, c.name, usedBlocks(f))
	}
	// 160 tokens at most are 10 blocks, of 8 requests 80, and the slack of 2 is once a request and once a step.
	for used, broken := range map[int64]bool{8*12 + 2: false, 8*12 + 3: true} {
		s := step
		s.BlocksFree = 1000 - used
		s.KVUsage = float64(used) / 1000
		f := ofSteps(100, 0, s, nil)
		f.dep.Engine.PrefixCaching = false
		f.dep.Engine.BlockSize = 16
		f.dep.Engine.MaxModelLen = trace.Some(int64(160))
		want := wanted{checked: 100}
		if broken {
			want = wanted{100, 100, float64(used - 96), true, "more blocks are in use than requests of max_model_len tokens take"}
		}
		if got := usedBlocks(f); f.lookaheadBlocks() == 0 {
			want.compare(t, "longest requests", got)
		}
	}
	f := emptyFacts()
	wanted{text: "no step summaries"}.compare(t, "no steps", usedBlocks(f))
}

// TestDepthReadings: journeys that run or wait in steps against their depths of 4 and 2.
func TestDepthReadings(t *testing.T) {
	of := func(odd int, running, waiting int32) *facts {
		f := ofSteps(100, 0, trace.Step{RunningDepth: 4, WaitingDepth: 2}, nil)
		f.lives = make([]reconstruct.Life, 1)
		for i := range 100 {
			r, w := int32(4), int32(2)
			if i < odd {
				r, w = running, waiting
			}
			f.running = append(f.running, r)
			f.waiting = append(f.waiting, w)
			f.maybe = append(f.maybe, 0)
		}
		return f
	}
	wanted{100, 3, 2, true, "in 3 of 100 steps more journeys run than requests are running, by up to 2"}.compare(t, "two more run", runningDepth(of(3, 6, 2)))
	wanted{100, 2, 2, false, ""}.compare(t, "in two of 100", runningDepth(of(2, 6, 2)))
	wanted{100, 0, 0, false, ""}.compare(t, "fewer are lost", runningDepth(of(3, 1, 2)))
	wanted{100, 3, 1, true, "in 3 of 100 steps waiting_depth differs from the journeys that are queued and not yet scheduled, by up to 1 (mean 2 against 1.97)"}.
		compare(t, "one fewer waits", waitingDepth(of(3, 4, 1)))
	sampled := of(3, 4, 1)
	sampled.dep.Tracing.JourneySampleRate = trace.Some(0.5)
	wanted{100, 0, 0, false, ""}.compare(t, "journeys are sampled", waitingDepth(sampled))
	more := of(3, 4, 5)
	more.dep.Tracing.JourneySampleRate = trace.Some(0.5)
	wanted{100, 3, 3, true, "by up to 3"}.compare(t, "sampled and more", waitingDepth(more))
	unknown := of(3, 6, 1)
	for i := range 3 {
		unknown.maybe[i] = 1
	}
	wanted{97, 0, 0, false, ""}.compare(t, "damaged journeys", runningDepth(unknown))
	wanted{97, 0, 0, false, ""}.compare(t, "damaged journeys", waitingDepth(unknown))
	none := of(3, 6, 2)
	none.lives = nil
	wanted{text: "no journeys beside step summaries"}.compare(t, "no journeys", runningDepth(none))
	wanted{text: "no journeys beside step summaries"}.compare(t, "no journeys", waitingDepth(none))
}

// TestThresholdReadings: 100 tokens of a prompt that were not cached, in 3 steps of 32 and 4.
func TestThresholdReadings(t *testing.T) {
	some := trace.Some[int64]
	f := emptyFacts()
	f.dep.Engine.LongPrefillThreshold = 32
	f.run.Requests = []trace.Request{
		{ScheduledStep: some(5), FirstTokenStep: some(8), PromptTokens: some(150), CachedTokens: some(50)},
		{ScheduledStep: some(5), FirstTokenStep: some(7), PromptTokens: some(96), CachedTokens: some(0)},
		{ScheduledStep: some(5), FirstTokenStep: some(5), PromptTokens: some(999)},
	}
	if got := f.prefillThreshold(reading{}); got.broken || got.violated != 0 {
		t.Errorf("96 tokens in 3 steps: got %+v", got)
	}
	f.run.Requests[0].FirstTokenStep = some(7)
	got := f.prefillThreshold(reading{})
	wanted{0, 1, 100.0 / 96, true, ""}.compare(t, "100 tokens in 3 steps", got)
	if want := "1 of 2 prompts were computed in fewer steps than long_prefill_token_threshold 32 of run.yaml allows, up to 1.04 times as fast"; got.sentence != want {
		t.Errorf("got %q, want %q", got.sentence, want)
	}
}

// TestDraftReadings: 250 journeys of two steps after the first, where drafts are verified: 500 steps, of 1.01 tokens at most.
func TestDraftReadings(t *testing.T) {
	some := trace.Some[int64]
	of := func(n int, more int) *facts {
		f := emptyFacts()
		f.dep.Engine.Extra = map[string]any{"speculative_config": map[string]any{"method": "eagle3", "num_speculative_tokens": 3}}
		for i := range n {
			tokens := int64(3)
			if i < more {
				tokens++
			}
			f.run.Requests = append(f.run.Requests, trace.Request{FirstTokenStep: some(10), FinishedStep: some(12), OutputTokens: some(tokens)})
		}
		return f
	}
	if f := of(1, 0); !f.speculates() {
		t.Fatal("drafts are verified")
	}
	wanted{250, 250, 1.01, true, "250 journeys have 1.01 output tokens a step: no draft was accepted"}.compare(t, "one of a hundred", outputSteps(of(250, 5)))
	wanted{250, 250, 1.012, false, ""}.compare(t, "more", outputSteps(of(250, 6)))
	wanted{249, 249, 1, false, ""}.compare(t, "fewer steps", outputSteps(of(249, 0)))
	if got := outputSteps(of(250, 0)); got.effect != result.IdentityNamed {
		t.Errorf("got effect %v", got.effect)
	}
}

// TestSpanReadings: a span of 2 s with 0.5 s of queue, 0.5 of prefill and 1 of decode. Times may be a tenth and 50 ms longer
// than what contains them.
func TestSpanReadings(t *testing.T) {
	us := trace.Some[float64]
	some := trace.Some[int64]
	span := func(change func(q *trace.Request)) *facts {
		f := emptyFacts()
		q := trace.Request{Source: trace.SourceStock, StartWallNs: some(5e9), EndWallNs: some(7e9), StockE2EUs: us(2e6), StockTTFTUs: us(1e6),
			StockQueueUs: us(0.5e6), StockPrefillUs: us(0.5e6), StockDecodeUs: us(1e6), StockInferUs: us(1.5e6)}
		change(&q)
		f.run.Requests = []trace.Request{q, {}}
		return f
	}
	for _, c := range []struct {
		name    string
		change  func(q *trace.Request)
		largest float64 // ms
		text    string
	}{
		{"consistent", func(q *trace.Request) {}, 0, ""},
		{"E2E 250 ms longer than the span", func(q *trace.Request) { q.StockE2EUs.V = 2.25e6 }, 0, ""},
		{"E2E 251 ms longer", func(q *trace.Request) { q.StockE2EUs.V = 2.251e6 }, 1, "E2E is longer than the span"},
		{"the span is longer", func(q *trace.Request) { q.EndWallNs.V = 7.251e9 }, 1, "the span is longer than E2E"},
		{"TTFT", func(q *trace.Request) { q.StockTTFTUs.V = 2.252e6 }, 2, "TTFT is longer than E2E"},
		{"queue", func(q *trace.Request) { q.StockQueueUs.V = 0.653e6 }, 3, "queue and prefill are longer than TTFT"},
		{"inference", func(q *trace.Request) { q.StockInferUs.V = 1.704e6 }, 4, "inference is longer than prefill and decode"},
		{"decode", func(q *trace.Request) { q.StockDecodeUs.V = 1.205e6 }, 5, "prefill and decode are longer than inference"},
		{"no inference", func(q *trace.Request) { q.StockDecodeUs.V, q.StockInferUs.OK = 1.9e6, false }, 0, ""},
	} {
		want := wanted{1, 0, 0, false, ""}
		if c.largest > 0 {
			want = wanted{1, 1, c.largest, true, c.text}
		}
		want.compare(t, c.name, spanSums(span(c.change)))
	}
}

// TestUnitReadings: of 100 requests with 10 ms between tokens up to two may have a time beyond 50 times that.
func TestUnitReadings(t *testing.T) {
	of := func(n, odd int, us float64) *facts {
		f := emptyFacts()
		for i := range n {
			l := clientRequest{itlUs: 10e3, output: 8}
			if i < odd {
				l.itlUs = us
			}
			f.loads = append(f.loads, l)
		}
		f.loads = append(f.loads, clientRequest{itlUs: 1, output: 7})
		return f
	}
	wanted{100, 0, 50, false, ""}.compare(t, "50 times", clientUnits(of(100, 3, 500e3)))
	wanted{100, 3, 51, true, "in 3 of 100 requests the TPOT is over 50 times or below 1/50 of the median 10 ms"}.compare(t, "51 times", clientUnits(of(100, 3, 510e3)))
	wanted{100, 3, 1000, true, ""}.compare(t, "a thousandth", clientUnits(of(100, 3, 10)))
	wanted{100, 2, 51, false, ""}.compare(t, "two of 100", clientUnits(of(100, 2, 510e3)))
	wanted{text: "fewer than 20 requests"}.compare(t, "19 requests", clientUnits(of(19, 0, 0)))
}

// TestDelayReadings: 20 requests of which each waits a quarter of a second before its queue, or after its last token.
func TestDelayReadings(t *testing.T) {
	of := func(n int, queuedNs, departedNs int64) *facts {
		f := emptyFacts()
		for i := range int64(n) {
			at := 1e9 * (i + 1)
			f.run.Requests = append(f.run.Requests, trace.Request{ArrivedNs: trace.Some(at), QueuedNs: trace.Some(at + queuedNs + i), FinishedNs: trace.Some(at),
				DepartedNs: trace.Some(at + departedNs + i)})
		}
		return f
	}
	wanted{40, 0, 0.25, false, ""}.compare(t, "at the limit", apiDelays(of(20, 250e6, 1e6)))
	wanted{40, 20, 0.251, true, "each of 20 requests takes at least 0.251 s to be queued after its arrival"}.compare(t, "queued later", apiDelays(of(20, 251e6, 1e6)))
	wanted{40, 20, 0.3, true, "each of 20 requests takes at least 0.3 s to depart after its last token"}.compare(t, "departs later", apiDelays(of(20, 1e6, 300e6)))
	wanted{}.compare(t, "19 requests", apiDelays(of(19, 300e6, 300e6)))
}

// TestRoundingReadings: stamps that are multiples of a fifth of what they measure, and of more.
func TestRoundingReadings(t *testing.T) {
	of := func(n int, multiple int64) roundedTimes {
		r := roundedTimes{what: "the stamps", unitUs: 100_000}
		for i := range int64(n) {
			r.us = append(r.us, 7+multiple*i*(i+3)/2) // differences 2, 3, 4 ... times the multiple
		}
		return r
	}
	wanted{50, 0, 0.2, false, ""}.compare(t, "a fifth", compareRounding([]roundedTimes{of(50, 20_000)}))
	wanted{50, 50, 0.21, true, "the stamps are all multiples of 21 ms and measure times of 100 ms on average"}.compare(t, "more", compareRounding([]roundedTimes{of(50, 21_000)}))
	wanted{100, 50, 0.3, true, "multiples of 30 ms"}.compare(t, "the worst of two", compareRounding([]roundedTimes{of(50, 30_000), of(50, 21_000)}))
	wanted{text: "fewer than 50 stamps of one kind"}.compare(t, "49", compareRounding([]roundedTimes{of(49, 30_000)}))
	none := of(50, 30_000)
	none.unitUs = 0
	wanted{text: "fewer than 50 stamps"}.compare(t, "nothing to compare with", compareRounding([]roundedTimes{none}))
	single := of(50, 1)
	if got := single.roundedUs(); got != 0 {
		t.Errorf("multiples of 1 us: got %g", got)
	}
	equal := of(50, 0)
	if got := equal.roundedUs(); got != 0 {
		t.Errorf("all stamps equal: got %g", got)
	}
	// A load that is sent at a constant rate or in equal bursts is on a grid and not rounded; bursts of other sizes, and
	// steps that begin together, are.
	paced := func(together ...int) roundedTimes {
		var r roundedTimes
		for i := range 60 {
			for range together[i%len(together)] {
				r.us = append(r.us, int64(i)*125_000)
			}
		}
		return r
	}
	for name, c := range map[string]struct {
		sizes  []int
		isStep bool
		want   float64
	}{
		"a constant rate":       {[]int{1}, false, 0},
		"bursts of 40":          {[]int{40}, false, 0},
		"sizes of rounding":     {[]int{3, 5, 4, 4, 6}, false, 125_000},
		"equal steps":           {[]int{1}, true, 0},
		"two steps on each":     {[]int{2}, true, 125_000},
		"one burst in 10 other": {[]int{4, 4, 4, 4, 4, 4, 4, 4, 4, 5}, false, 0},
		"two in 10 other":       {[]int{4, 4, 4, 4, 4, 4, 4, 4, 6, 5}, false, 125_000},
	} {
		stamps := paced(c.sizes...)
		stamps.isStep = c.isStep
		if got := stamps.roundedUs(); got != c.want {
			t.Errorf("%s: got %g us, want %g", name, got, c.want)
		}
	}
	equal.isTime = true
	if got := equal.roundedUs(); got != 7 {
		t.Errorf("all times equal: got %g, want 7", got)
	}
}

// TestClockReadings: 5 s by one clock and 5.25 or 5.26 by the other.
func TestClockReadings(t *testing.T) {
	of := func(monoNs, wallNs int64) *facts {
		f := emptyFacts()
		f.run.Steps = []trace.Step{{TsEndNs: 9e9, WallNs: 1e18}, {TsEndNs: 9e9 + monoNs, WallNs: 1e18 + wallNs}, {TsEndNs: 99e9}}
		return f
	}
	wanted{2, 0, 1.048, false, ""}.compare(t, "less than a twentieth", clockRates(of(5.24e9, 5e9)))
	wanted{2, 1, 1.052, true, "the run takes 5.26 s by its monotonic stamps and 5 s by the wall clock (1.05 times)"}.compare(t, "more", clockRates(of(5.26e9, 5e9)))
	wanted{2, 1, 0.9, true, ""}.compare(t, "less", clockRates(of(4.5e9, 5e9)))
	wanted{text: "the run is shorter than 5 s"}.compare(t, "a short run", clockRates(of(4.99e9, 1e9)))
	f := of(5e9, 5e9)
	f.run.Steps = f.run.Steps[1:]
	wanted{text: "no stream has stamps of both clocks"}.compare(t, "one stamp", clockRates(f))
	f.run.Steps = nil
	for i := range int64(3) {
		f.run.Requests = append(f.run.Requests, trace.Request{ArrivedNs: trace.Some(i * 4e9), StartWallNs: trace.Some(1e18 + i*2e9)})
	}
	f.run.Requests = append(f.run.Requests, trace.Request{Source: trace.SourceStock, ArrivedNs: trace.Some(int64(99e9)), StartWallNs: trace.Some(int64(1e18))})
	wanted{3, 1, 2, true, ""}.compare(t, "arrivals", clockRates(f))
}

// TestPassTimeReadings: elapsed times that add up to so many times the busy time.
func TestPassTimeReadings(t *testing.T) {
	for sum, want := range map[float64]struct {
		broken, named bool
	}{1.05: {}, 1.06: {true, false}, 0.5: {}, 0.49: {true, true}, 0.11: {true, true}, 0.09: {true, false}} {
		f := emptyFacts()
		f.run.Iterations = make([]trace.Iteration, 7)
		f.run.Aggregate = &trace.Aggregate{}
		f.run.Aggregate.Audit.SumOverWall = trace.Some(sum)
		w := wanted{7, 0, sum, want.broken, ""}
		if want.broken {
			w.violated = 7
		}
		got := passTimes(f)
		w.compare(t, "passes", got)
		if (got.effect == result.IdentityNamed) != want.named {
			t.Errorf("%g times: got effect %v", sum, got.effect)
		}
	}
	wanted{text: "no logged passes"}.compare(t, "no log", passTimes(emptyFacts()))
}

// TestClientLimitReadings: with max_num_seqs 10 up to 1.1 times as many and two more may be between their tokens: 13.
func TestClientLimitReadings(t *testing.T) {
	of := func(n int) *facts {
		f := emptyFacts()
		f.dep.Engine.MaxNumSeqs = 10
		f.dep.DP = 1
		for range n {
			f.loads = append(f.loads, clientRequest{sentUs: 0, ttftUs: 1e6, e2eUs: 3e6, prompt: 10, output: 10})
		}
		return f
	}
	wanted{13, 0, 0, false, ""}.compare(t, "13 at once", clientLimits(of(13)))
	wanted{14, 14, 1.4, true, "up to 14 requests are between their first and last token at once, max_num_seqs in run.yaml is 10"}.compare(t, "14 at once", clientLimits(of(14)))
	two := of(14)
	two.dep.DP = 2
	wanted{14, 0, 0, false, ""}.compare(t, "two engines", clientLimits(two))
	later := of(14)
	for i := range 7 {
		later.loads[i].sentUs = 2e6 // first tokens as the others end
	}
	wanted{14, 0, 0, false, ""}.compare(t, "one after another", clientLimits(later))
	wanted{text: "no requests with times"}.compare(t, "no loads", clientLimits(of(0)))
}
