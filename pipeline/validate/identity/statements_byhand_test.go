package identity

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// TestJourneysBySteps: which journeys wait in a step, and of which the steps are not certain. An asynchronous engine may
// count one a step longer.
func TestJourneysBySteps(t *testing.T) {
	some := trace.Some[int64]
	journey := func(change func(*trace.Request)) trace.Request {
		q := trace.Request{CoreID: trace.Some("c"), QueuedStep: some(2), ScheduledStep: some(5), FirstTokenStep: some(5), FinishedStep: some(7), PromptTokens: some(10), OutputTokens: some(3)}
		change(&q)
		return q
	}
	counted := func(change func(*trace.Request)) *facts {
		f := emptyFacts()
		for id := range int64(10) {
			f.run.Steps = append(f.run.Steps, trace.Step{ID: id + 1})
		}
		f.run.Requests = []trace.Request{journey(change)}
		f.countJourneys()
		return f
	}
	plain := counted(func(*trace.Request) {})
	if want := []int32{0, 0, 1, 1, 0, 0, 0, 0, 0, 0}; !reflect.DeepEqual(plain.waiting, want) || !reflect.DeepEqual(plain.maybe, make([]int32, 10)) {
		t.Errorf("got waiting %v, maybe %v", plain.waiting, plain.maybe)
	}
	certain := []int32{0, 1, 1, 1, 1, 1, 1, 1, 1, 0} // from queued to two steps after the end
	toEnd := []int32{0, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	for name, c := range map[string]struct {
		change func(*trace.Request)
		maybe  []int32
	}{
		"preempted":     {func(q *trace.Request) { q.Preemptions = some(1) }, certain},
		"lost events":   {func(q *trace.Request) { q.DroppedEvents = 1 }, certain},
		"aborted":       {func(q *trace.Request) { q.FinishStatus = trace.Some(trace.FinishAborted) }, certain},
		"not scheduled": {func(q *trace.Request) { q.ScheduledStep.OK = false }, certain},
		"not ended":     {func(q *trace.Request) { q.FinishedStep.OK = false }, toEnd},
	} {
		if got := counted(c.change); !reflect.DeepEqual(got.maybe, c.maybe) || !reflect.DeepEqual(got.waiting, make([]int32, 10)) {
			t.Errorf("%s: got maybe %v, waiting %v", name, got.maybe, got.waiting)
		}
	}
	for name, change := range map[string]func(*trace.Request){"no journey": func(q *trace.Request) { q.CoreID.OK = false }, "not queued": func(q *trace.Request) { q.QueuedStep.OK = false }} {
		if got := counted(change); !reflect.DeepEqual(got.maybe, make([]int32, 10)) || !reflect.DeepEqual(got.waiting, make([]int32, 10)) {
			t.Errorf("%s: got maybe %v, waiting %v", name, got.maybe, got.waiting)
		}
	}
}

// TestClocksOfStreams: wall clocks a minute apart, and stamps that are rounded to a fifth of what they measure.
func TestClocksOfStreams(t *testing.T) {
	some := trace.Some[int64]
	apart := func(offsetNs int64) *facts {
		f := emptyFacts()
		for i := range int64(3) {
			f.run.Steps = append(f.run.Steps, trace.Step{TsEndNs: i * 1e9, WallNs: i*1e9 + 100e9})
			f.run.Requests = append(f.run.Requests, trace.Request{ArrivedNs: some(i * 1e9), StartWallNs: some(i*1e9 + 100e9 + offsetNs)})
		}
		f.run.Requests = append(f.run.Requests, trace.Request{Source: trace.SourceStock, ArrivedNs: some(0), StartWallNs: some(900e9)}, trace.Request{ArrivedNs: some(0)})
		return f
	}
	wanted{6, 0, 60, false, ""}.compare(t, "a minute", wallClocks(apart(60e9)))
	wanted{6, 3, 60.5, true, "the wall clock of API spans is 60.5 s from that of the steps"}.compare(t, "more", wallClocks(apart(60_500_000_000)))
	wanted{6, 3, 61, true, ""}.compare(t, "before", wallClocks(apart(-61e9)))
	none := apart(0)
	none.run.Steps = nil
	wanted{text: "not both streams have stamps of both clocks"}.compare(t, "no steps", wallClocks(none))

	rounded := func(roundNs, ttftNs int64, stream string) *facts {
		f := emptyFacts()
		for i := range int64(60) {
			at := roundNs * (3*i + i%3) // multiples of roundNs
			exact := i*100e6 + i*i*1000
			q := trace.Request{ArrivedNs: some(exact), QueuedNs: some(exact)}
			q.FirstTokenNs = some(exact + ttftNs)
			switch stream {
			case "api":
				q.ArrivedNs = some(at)
				q.QueuedNs = trace.Opt[int64]{}
				q.FirstTokenNs = some(at + ttftNs)
			case "engine":
				q.FirstTokenNs = some(at)
				q.QueuedNs = some(at - ttftNs)
				q.ArrivedNs = trace.Opt[int64]{}
			}
			f.run.Requests = append(f.run.Requests, q)
		}
		return f
	}
	wanted{60, 0, 0.2, false, ""}.compare(t, "arrivals of a fifth", requestRounding(rounded(10e6, 50e6, "api")))
	wanted{60, 60, 10. / 49, true, "the stamps of API spans are all multiples of 10 ms and measure times of 49 ms on average"}.compare(t, "arrivals of more", requestRounding(rounded(10e6, 49e6, "api")))
	wanted{60, 60, 10. / 49, true, "the stamps of journeys are all multiples of 10 ms"}.compare(t, "first tokens of more", requestRounding(rounded(10e6, 49e6, "engine")))
	wanted{120, 0, 0, false, ""}.compare(t, "exact", requestRounding(rounded(10e6, 1e6, "")))
	few := rounded(10e6, 49e6, "api")
	few.run.Requests = few.run.Requests[:49]
	wanted{text: "fewer than 50 stamps of one kind"}.compare(t, "few", requestRounding(few))
	steps := emptyFacts()
	for i := range int64(60) {
		steps.run.Steps = append(steps.run.Steps, trace.Step{ID: i, TsStartNs: i*40e6 + 10e6*(i%2), RunningDepth: 1})
	}
	// Steps of 50 and 30 ms: 40.17 on average, of which 10 ms are a quarter.
	wanted{60, 60, 10 / (float64(59*40+10) / 59), true, "the stamps of 60 steps are all multiples of 10 ms"}.compare(t, "steps", stepRounding(steps))
	for i := range steps.run.Steps {
		steps.run.Steps[i].TsStartNs += int64(i) * 1001
	}
	wanted{60, 0, 0, false, ""}.compare(t, "exact steps", stepRounding(steps))
	wanted{text: "no step summaries"}.compare(t, "no steps", stepRounding(emptyFacts()))
}

// TestChunksHaveAReason: a prompt in several chunks begins in a step of at least nine tenths of the budget.
func TestChunksHaveAReason(t *testing.T) {
	some := trace.Some[int64]
	with := func(used int64, isChunked bool) *facts {
		f := emptyFacts()
		f.dep.Engine.MaxNumBatchedTokens = 100
		f.dep.Engine.ChunkedPrefill = isChunked
		for id := range int64(8) {
			f.run.Steps = append(f.run.Steps, trace.Step{ID: 10 + id, ScheduledTokens: int32(used)})
		}
		q := func(scheduled, first int64) trace.Request {
			return trace.Request{ScheduledStep: some(scheduled), FirstTokenStep: some(first)}
		}
		f.run.Requests = []trace.Request{
			q(10, 10), q(11, 12), q(12, 14), q(17, 18), // one in a chunk, three in several
			q(9, 11), q(18, 20), // outside the summaries
			{ScheduledStep: some(13), FirstTokenStep: some(15), Preemptions: some(1)}, {ScheduledStep: some(13)},
		}
		return f
	}
	wanted{3, 0, 0, false, ""}.compare(t, "a full step", chunkReason(with(90, true)))
	wanted{3, 3, 0.11, true, "3 of 3 prompts in several chunks began in a step with tokens left of max_num_batched_tokens 100"}.compare(t, "not full", chunkReason(with(89, true)))
	wanted{3, 3, 0.1, true, ""}.compare(t, "no chunks by run.yaml", chunkReason(with(90, false)))
	few := with(89, true)
	few.run.Requests = few.run.Requests[:3]
	wanted{text: "2 prompts ran in several chunks, want 3"}.compare(t, "few", chunkReason(few))
	other := with(89, true)
	other.dep.Engine.Extra = map[string]any{"enable_lora": true}
	wanted{text: "enable_lora makes chunks of prompts too"}.compare(t, "another reason", chunkReason(other))
	// A threshold cuts the prompts that are longer than it, less what is cached; the others need a reason.
	for _, c := range []struct {
		prompt, cached int64
		want           wanted
	}{
		{prompt: 61, want: wanted{text: "long_prefill_token_threshold 60 cuts 3 prompts in chunks too"}},
		{prompt: 60, want: wanted{3, 3, 0.11, true, ""}},
		{prompt: 61, cached: 1, want: wanted{3, 3, 0.11, true, ""}},
	} {
		long := with(89, true)
		long.dep.Engine.LongPrefillThreshold = 60
		for i := range long.run.Requests {
			long.run.Requests[i].PromptTokens, long.run.Requests[i].CachedTokens = some(c.prompt), some(c.cached)
		}
		c.want.compare(t, fmt.Sprint(c.prompt, " tokens over a threshold"), chunkReason(long))
	}
	scheduled := with(60, true)
	scheduled.dep.Engine.Extra = map[string]any{"max_num_scheduled_tokens": 60}
	wanted{3, 0, 0, false, ""}.compare(t, "full by max_num_scheduled_tokens", chunkReason(scheduled))
	half := with(89, true)
	for _, k := range []int{1, 2} {
		half.run.Steps[k].ScheduledTokens = 95
	}
	wanted{3, 1, 0.11, false, ""}.compare(t, "one of three", chunkReason(half))
}

// TestWaitingHasAReason: a step that leaves requests waiting has one of its limits reached.
func TestWaitingHasAReason(t *testing.T) {
	with := func(change func(s *trace.Step)) *facts {
		f := emptyFacts()
		f.dep.Engine.MaxNumSeqs, f.dep.Engine.MaxNumBatchedTokens, f.dep.Engine.ChunkedPrefill, f.dep.Engine.BlockSize = 8, 100, true, 16
		f.run.Requests = []trace.Request{{PromptTokens: trace.Some(int64(64))}, {}} // 4 blocks, one more, and a fiftieth of 100
		for range 20 {
			s := trace.Step{WaitingDepth: 3, ScheduledTokens: 99, RunningDepth: 7, BlocksFree: 7, BlocksTotal: 100}
			change(&s)
			f.run.Steps = append(f.run.Steps, s)
		}
		f.waiting, f.maybe = make([]int32, 20), make([]int32, 20)
		return f
	}
	wanted{20, 20, 3, true, "20 of 20 steps that leave requests waiting run fewer than max_num_seqs 8 requests and max_num_batched_tokens 100 tokens"}.compare(t, "room for all", waitingReason(with(func(*trace.Step) {})))
	for name, change := range map[string]func(*trace.Step){
		"requests": func(s *trace.Step) { s.RunningDepth = 8 }, "tokens": func(s *trace.Step) { s.ScheduledTokens = 100 }, "blocks": func(s *trace.Step) { s.BlocksFree = 6 },
	} {
		wanted{20, 0, 0, false, ""}.compare(t, "no room for "+name, waitingReason(with(change)))
	}
	for key, most := range map[string]int{"max_num_active_seqs": 7, "max_num_scheduled_tokens": 99} {
		f := with(func(*trace.Step) {})
		f.dep.Engine.VLLMVersion, f.dep.Engine.Extra = "0.31.0", map[string]any{key: most}
		f.dep.Engine.MaxNumSeqs *= 10
		f.dep.Engine.MaxNumBatchedTokens *= 10
		wanted{20, 0, 0, false, ""}.compare(t, "no room by "+key, waitingReason(f))
		wanted{20, 0, 0, false, ""}.compare(t, "within "+key, limits(f))
		f.dep.Engine.Extra[key] = most - 1
		wanted{20, 20, float64(most) / float64(most-1), true, fmt.Sprintf("20 of 20 steps run more than %s %d of run.yaml allows", key, most-1)}.compare(t, "over "+key, limits(f))
		f.dep.Engine.Extra[key] = most + 1
		wanted{20, 20, 3, true, fmt.Sprintf("%s %d", key, most+1)}.compare(t, "room by "+key, waitingReason(f))
	}
	// A threshold cuts prompts and another policy changes their order: neither keeps one waiting.
	policy := with(func(*trace.Step) {})
	policy.dep.Engine.SchedulingPolicy, policy.dep.Engine.LongPrefillThreshold = "priority", 10
	wanted{20, 20, 3, true, ""}.compare(t, "priorities", waitingReason(policy))
	whole := with(func(*trace.Step) {})
	whole.dep.Engine.ChunkedPrefill = false
	wanted{20, 0, 0, false, ""}.compare(t, "no room for a whole prompt", waitingReason(whole))
	for n, broken := range map[int]bool{2: false, 3: true} {
		f := with(func(s *trace.Step) { s.RunningDepth = 8 })
		for i := range n {
			f.run.Steps[i].RunningDepth = 7
		}
		wanted{20, n, 3, broken, ""}.compare(t, fmt.Sprint(n, " of 20"), waitingReason(f))
	}
	few := with(func(*trace.Step) {})
	few.run.Steps = few.run.Steps[:10]
	wanted{10, 10, 3, true, ""}.compare(t, "ten steps", waitingReason(few))
	few.run.Steps = few.run.Steps[:9]
	wanted{text: "9 steps leave requests waiting, want 10"}.compare(t, "nine steps", waitingReason(few))
	idle := with(func(s *trace.Step) { s.WaitingDepth = 0 })
	wanted{text: "0 steps leave requests waiting, want 10"}.compare(t, "none waits", waitingReason(idle))
	offloading := with(func(*trace.Step) {})
	offloading.dep.Engine.CPUOffloading = true
	wanted{text: "requests also wait for blocks that come from the CPU"}.compare(t, "a CPU tier", waitingReason(offloading))
	unknown := with(func(*trace.Step) {})
	unknown.run.Requests = nil
	wanted{text: "no prompt lengths"}.compare(t, "no prompts", waitingReason(unknown))
}

// TestStepTimesAgainstTheirWork: steps below the floor, whose times do not go with it, and the batches that are compared with the library.
func TestStepTimesAgainstTheirWork(t *testing.T) {
	with := func(n int, of func(i int) batchTime) *facts {
		f := emptyFacts()
		at := int64(0)
		for i := range n {
			b := of(i)
			b.at = i
			f.batches = append(f.batches, b)
			f.run.Steps = append(f.run.Steps, trace.Step{ID: int64(i), TsStartNs: at})
			at += int64(1000 * b.us)
		}
		f.run.Steps = append(f.run.Steps, trace.Step{ID: int64(n), TsStartNs: at})
		return f
	}
	// An asynchronous engine is up to two steps ahead: the longest of three neighbours counts.
	short := func(every int) *facts {
		return with(100, func(i int) batchTime {
			b := batchTime{us: 80, floorUs: 100}
			if i%10 < every {
				b.us = 79
			}
			return b
		})
	}
	wanted{100, 0, 0.8, false, ""}.compare(t, "two in ten are short", stepFloor(short(2)))
	wanted{100, 10, 0.8, true, "10 of 100 steps are shorter than reading their weights"}.compare(t, "three in a row are", stepFloor(short(3)))
	five := with(100, func(i int) batchTime {
		if i >= 50 && i < 57 {
			return batchTime{us: 79, floorUs: 100}
		}
		return batchTime{us: 80, floorUs: 100}
	})
	wanted{100, 5, 0.8, false, ""}.compare(t, "5 %", stepFloor(five))
	// An asynchronous engine schedules two short steps at once and waits. The second has no known batch, so that only the
	// recorded steps show for how long; the last two steps have not both successors.
	pairs := with(20, func(i int) batchTime { return batchTime{us: 200 * float64(i%2), floorUs: 100} })
	pairs.async = true
	pairs.batches = slices.DeleteFunc(pairs.batches, func(b batchTime) bool { return b.at%2 == 1 })
	wanted{9, 0, 2, false, ""}.compare(t, "pairs of steps", stepFloor(pairs))
	for i := range pairs.run.Steps {
		pairs.run.Steps[i].ID = int64(2 * i)
	}
	wanted{text: "no step of the asynchronous engine with its two successors"}.compare(t, "sampled steps", stepFloor(pairs))
	wanted{text: "the datasheet has no bandwidth"}.compare(t, "no floor", stepFloor(with(5, func(int) batchTime { return batchTime{us: 1} })))
	wanted{text: "no step with a known batch"}.compare(t, "no batch", stepFloor(emptyFacts()))

	work := func(n int, us func(i int) float64) *facts {
		return with(n, func(i int) batchTime { return batchTime{us: us(i), floorUs: 100 + float64(i*37%200)} })
	}
	if got := stepWork(work(250, func(i int) float64 { return 500 + float64(i*37%200) })); got.broken || got.checked != 250 || got.largest > 1e-9 {
		t.Errorf("times that go with the work: got %+v", got)
	}
	if got := stepWork(work(250, func(i int) float64 { return 500 + float64((i-2+200)*37%200) })); got.broken {
		t.Errorf("times of the step two before: got %+v", got)
	}
	if got := stepWork(work(250, func(i int) float64 { return float64(i * i % 97) })); !got.broken || got.violated != 250 || !(got.largest > 1-0.15) {
		t.Errorf("times of other steps: got %+v", got)
	}
	wanted{text: "fewer than 200 steps"}.compare(t, "few", stepWork(work(199, func(i int) float64 { return 1 })))
	wanted{text: "all steps have about the same work"}.compare(t, "one work", stepWork(with(250, func(i int) batchTime { return batchTime{us: 1, floorUs: 100 + float64(i%50)} })))

	// Decodes among decodes, and stretches of six steps of which prompts have more than 60 %.
	priced := func(promptUs float64) *facts {
		return with(12, func(i int) batchTime {
			b := batchTime{us: 30, prior: priorTime{10, 10}}
			if i >= 6 && i < 9 {
				b.prefill = true
				b.prior = priorTime{promptUs / 2, promptUs}
			}
			return b
		})
	}
	decode, prompt := priced(15).priorRatios() // 45 of 75
	if len(decode) != 3 || decode[0] != 3 || len(prompt) != 0 {
		t.Errorf("got %v, %v, want steps 2 to 4, and no stretch of prompts", decode, prompt)
	}
	if _, prompt = priced(15.1).priorRatios(); len(prompt) != 1 || math.Abs(prompt[0]-180/75.3) > 1e-9 {
		t.Errorf("got %v, want the second stretch", prompt)
	}
	torn := priced(30)
	torn.batches[11].at++
	if _, prompt = torn.priorRatios(); len(prompt) != 0 {
		t.Errorf("a missing step: got %v", prompt)
	}
}

// TestRequestFloorByHand: times of one token against reading the weights once.
func TestRequestFloorByHand(t *testing.T) {
	d := emptyFacts().dep
	space, err := features.New(features.DefaultVersion(d), d)
	if err != nil {
		t.Fatal(err)
	}
	const context = 1000 + 20/2
	decode := space.Roofline(&features.StepInput{ScheduledTokens: 1, DecodeTokens: 1, NumDecodeReqs: 1, NumSampledSeqs: 1, DecodeContextTokens: context, KVReadTokens: context})
	gapUs := 1e6 * math.Max(decode.LinearS, decode.WeightS+decode.KVS)
	token := space.Roofline(&features.StepInput{ScheduledTokens: 1, PrefillTokens: 1, NumPrefillReqs: 1, NumSampledSeqs: 1})
	firstUs := 1e6 * math.Max(token.LinearS, token.WeightS)
	prompt := space.Roofline(&features.StepInput{ScheduledTokens: 1000, PrefillTokens: 1000, NumPrefillReqs: 1, NumSampledSeqs: 1})
	promptUs := 1e6 * math.Max(prompt.LinearS, prompt.WeightS)
	with := func(change func(i int, l *clientRequest)) *facts {
		f := emptyFacts()
		for i := range 60 {
			l := clientRequest{prompt: 1000, output: 20, ttftUs: 5 * promptUs, itlUs: 2 * gapUs, knowsCached: true}
			change(i, &l)
			f.loads = append(f.loads, l)
		}
		return f
	}
	wanted{120, 0, 2, false, ""}.compare(t, "twice the floor", requestFloor(with(func(int, *clientRequest) {})))
	wanted{120, 0, 0.81, false, ""}.compare(t, "just above", requestFloor(with(func(_ int, l *clientRequest) { l.itlUs = 0.81 * gapUs })))
	wanted{120, 120, 0.79, true, "tokens after the first take 0.79 times what one request alone takes"}.compare(t, "just below", requestFloor(with(func(_ int, l *clientRequest) { l.itlUs = 0.79 * gapUs })))
	wanted{120, 120, 0.5, true, "first tokens take 0.5 times"}.compare(t, "first tokens", requestFloor(with(func(_ int, l *clientRequest) { l.ttftUs = 0.5 * promptUs })))
	part := func(n int, change func(l *clientRequest)) reading {
		return requestFloor(with(func(i int, l *clientRequest) {
			if i < n {
				change(l)
			}
		}))
	}
	below := func(l *clientRequest) { l.itlUs = 0.79 * gapUs }
	wanted{120, 0, 2, false, ""}.compare(t, "four of them", part(4, below))
	wanted{120, 5, 2, true, "5 of 60 times between tokens are shorter than"}.compare(t, "five of them", part(5, below))
	wanted{120, 5, 2, true, "5 of 60 first tokens are shorter than"}.compare(t, "five first tokens", part(5, func(l *clientRequest) { l.ttftUs = 0.79 * firstUs }))
	wanted{120, 0, 2, false, ""}.compare(t, "just above", part(5, func(l *clientRequest) { l.ttftUs = 0.81 * firstUs }))
	wanted{120, 0, 2, false, ""}.compare(t, "short answers", part(5, func(l *clientRequest) {
		l.output = 7
		l.itlUs = 0.7 * gapUs
	}))
	wanted{60, 0, 2, false, ""}.compare(t, "not known what was cached", requestFloor(with(func(_ int, l *clientRequest) {
		l.knowsCached = false
		l.ttftUs = 0.9 * firstUs
	})))
	wanted{text: "fewer than 20 requests or load levels"}.compare(t, "few", requestFloor(with(func(i int, l *clientRequest) {
		if i >= 19 {
			l.itlUs = 0
		}
	})))
}

// TestCountsOfStreams: finished requests and preemptions, blocks of snapshots, names of models and repeated requests.
func TestCountsOfStreams(t *testing.T) {
	var r reading
	r.compareCounts("things, others %d", 103, 100)
	if r.broken {
		t.Errorf("three more: got %+v", r)
	}
	if r.compareCounts("things, others %d", 96, 100); !r.broken || r.violated != 4 || r.largest != -4 || r.sentence != "steps count 96 things, others 100: one of the two is wrong" {
		t.Errorf("four fewer: got %+v", r)
	}
	r = reading{}
	if r.compareCounts("x %d", 1020, 1000); r.broken {
		t.Errorf("2 %%: got %+v", r)
	}
	if r.compareCounts("x %d", 1021, 1000); !r.broken || r.violated != 21 {
		t.Errorf("more than 2 %%: got %+v", r)
	}
	f := emptyFacts()
	f.dep.Engine.BlockSize = 16
	f.snapshot = snapshotCounts{blocks: 100, blocksOff: 2, worstOff: 5}
	wanted{100, 2, 5, false, ""}.compare(t, "2 % of the snapshots", blocksOfContext(f))
	f.snapshot.blocksOff = 3
	wanted{100, 3, 5, true, "3 of 100 snapshots hold other blocks than ceil(tokens / 16), by up to 5"}.compare(t, "3 %", blocksOfContext(f))
	f.snapshot.blocks = 0
	wanted{text: "no snapshots"}.compare(t, "none", blocksOfContext(f))
	// 100 running requests in the steps with snapshots: 97 have one.
	f.snapshot = snapshotCounts{steps: 10, depth: 100, rows: 97}
	wanted{100, 3, 0.03, true, "about 3 % of the snapshots"}.compare(t, "lost in steps", snapshotsComplete(f))
	f.snapshot.rows = 98
	wanted{100, 2, 0.02, false, ""}.compare(t, "2 %", snapshotsComplete(f))
	// Half of 400 busy steps should have some: 200 less 4 deviations of 10; 150 are 10 too few.
	f.snapshot = snapshotCounts{steps: 150, depth: 1000, rows: 1000}
	f.dep.Tracing.RichSubsampleRate = trace.Some(0.5)
	for i := range 500 {
		s := trace.Step{RunningDepth: 1}
		if i >= 400 {
			s.RunningDepth = 0
		}
		f.run.Steps = append(f.run.Steps, s)
	}
	wanted{1000, 50, 0.05, true, "about 5 % of the snapshots"}.compare(t, "lost steps", snapshotsComplete(f))
	f.snapshot.steps = 160
	wanted{1000, 0, 0, false, ""}.compare(t, "within chance", snapshotsComplete(f))
	wanted{text: "no snapshots"}.compare(t, "none", snapshotsComplete(emptyFacts()))

	named := func(names ...string) *facts {
		f := emptyFacts()
		f.dep.Model.ID = "meta-llama/Llama-3.1-8B"
		f.run.Requests = append(f.run.Requests, trace.Request{}, trace.Request{Model: trace.Some("")})
		for _, n := range names {
			f.run.Requests = append(f.run.Requests, trace.Request{Model: trace.Some(n)})
		}
		return f
	}
	wanted{2, 0, 0, false, ""}.compare(t, "of another owner", modelNames(named("Llama-3.1-8B", "other/llama_3.1_8b-instruct")))
	wanted{4, 1, 0.25, true, `1 of 4 spans name the model "Qwen3-8B", run.yaml names "meta-llama/Llama-3.1-8B"`}.compare(t, "another", modelNames(named("Llama-3.1-8B", "Llama-3.1-8B", "Llama-3.1-8B", "Qwen3-8B")))
	wanted{text: "no span names a model"}.compare(t, "none", modelNames(named()))

	twice := func(n int, change func(l *clientRequest)) *facts {
		f := emptyFacts()
		for i := range 100 {
			l := clientRequest{sentUs: float64(i) * 1e6, prompt: 10, output: 20, ttftUs: 1000.5 + float64(i), e2eUs: 9000.5 + float64(i)}
			if i < n {
				l.ttftUs, l.e2eUs = 1000.5+99, 9000.5+99
				change(&l)
			}
			f.loads = append(f.loads, l)
		}
		return f
	}
	same := func(*clientRequest) {}
	wanted{100, 1, 0.01, false, ""}.compare(t, "one in a hundred", clientsDiffer(twice(1, same)))
	wanted{100, 2, 0.02, true, "2 of 100 requests have the lengths and times of another one"}.compare(t, "two", clientsDiffer(twice(2, same)))
	for name, change := range map[string]func(l *clientRequest){"prompt": func(l *clientRequest) { l.prompt += l.sentUs }, "output": func(l *clientRequest) { l.output += l.sentUs }, "TTFT": func(l *clientRequest) { l.ttftUs += l.sentUs + 0.1 }, "E2E": func(l *clientRequest) { l.e2eUs += l.sentUs + 0.1 }} {
		own := twice(3, func(l *clientRequest) {
			if l.sentUs > 0 {
				change(l)
			}
		})
		if got := clientsDiffer(own); got.violated > 1 {
			t.Errorf("another %s: got %+v", name, got)
		}
	}
	oneToken := twice(2, func(l *clientRequest) { l.output = 1 })
	for i := range oneToken.loads {
		oneToken.loads[i].sentUs = float64(i) + 0.5
	}
	if got := clientsDiffer(oneToken); got.broken || got.violated != 0 {
		t.Errorf("answers of one token at other times: got %+v", got)
	}
	wanted{text: "no times finer than 1 ms"}.compare(t, "whole ms", clientsDiffer(twice(100, func(l *clientRequest) { l.ttftUs, l.e2eUs = 1000, 9000 })))
}

// TestPromptsBesideDecodesByHand: a request decodes from 100 to 1100 us in steps of 20 us. The first token of a prompt of
// 500 tokens came with its own, that of one of 300 tokens at 600 us, and that of one of 700 tokens after its end.
func TestPromptsBesideDecodesByHand(t *testing.T) {
	f := emptyFacts()
	own := clientRequest{sentUs: 0, ttftUs: 100, e2eUs: 1100, itlUs: 20, prompt: 200, cached: 150}
	f.loads = []clientRequest{
		{sentUs: 1000, ttftUs: 101, prompt: 700},
		own,
		{sentUs: 90, ttftUs: 20, prompt: 500}, // at 110 us, where half of a step has passed
		{sentUs: 500, ttftUs: 100, prompt: 400, cached: 100},
	}
	beside := f.newComputedPrompts()
	for us, want := range map[float64]float64{99: 0, 100: 50, 110: 550, 600: 850, 1100: 850, 1101: 1550} {
		if got := beside.tokensUpTo(us); got != want {
			t.Errorf("up to %g us: got %g tokens, want %g", us, got, want)
		}
	}
	if got, want := beside.tokensPerUs(&own), 300/990.; math.Abs(got-want) > 1e-12 {
		t.Errorf("got %g tokens in a us, want %g", got, want)
	}
	if got := beside.tokensPerUs(&clientRequest{sentUs: 5, ttftUs: 7, e2eUs: 7}); got != 0 {
		t.Errorf("without a time of decodes: got %g tokens in a us, want 0", got)
	}
}

// TestOtherReasonsAreFlags: a key with a field of vllm.Engine is never in Extra, where the list is looked up, and one that
// vLLM does not have is never given.
func TestOtherReasonsAreFlags(t *testing.T) {
	flags := map[string]bool{}
	for _, version := range []string{"0.8.0", "0.10.0", "0.25.0", "0.33.0"} {
		for _, name := range vllm.Flags(version) {
			flags[name] = true
		}
	}
	withField := map[string]bool{}
	for _, setting := range (&vllm.Stated{}).Settings() {
		withField[setting.Name] = true
	}
	for _, key := range append(slices.Clone(otherReasonsToWait), scheduledTokens) {
		if !flags[key] || withField[key] {
			t.Errorf("%s: a flag %v, with a field of its own %v", key, flags[key], withField[key])
		}
	}
}
