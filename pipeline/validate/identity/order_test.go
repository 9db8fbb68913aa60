package identity

import (
	"fmt"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// at returns a known stamp in us.
func at(us int64) trace.Opt[int64] { return trace.Some(us * 1000) }

// TestOrderReadings: stamps that run backwards by the tolerance and by more, between processes, within steps and within
// clients.
func TestOrderReadings(t *testing.T) {
	requests := func(n int, change func(i int, q *trace.Request)) *facts {
		f := emptyFacts()
		for i := range n {
			q := trace.Request{CoreID: trace.Some(fmt.Sprint("c", i)), ArrivedNs: at(1_000_000), QueuedNs: at(1_002_000), ScheduledNs: at(1_005_000), FirstTokenNs: at(1_020_000), FinishedNs: at(1_050_000),
				DepartedNs: at(1_051_000)}
			change(i, &q)
			f.run.Requests = append(f.run.Requests, q)
		}
		return f
	}
	first := func(change func(q *trace.Request)) func(int, *trace.Request) {
		return func(i int, q *trace.Request) {
			if i < 1 {
				change(q)
			}
		}
	}
	for _, c := range []struct {
		name string
		read func(*facts) reading
		f    *facts
		want wanted
	}{
		{"in order", engineOrder, requests(50, func(int, *trace.Request) {}), wanted{50, 0, 0, false, ""}},
		{"1 ms back", engineOrder, requests(50, first(func(q *trace.Request) { q.QueuedNs = at(999_000) })), wanted{50, 0, 1, false, ""}},
		{"1.5 ms back", engineOrder, requests(50, first(func(q *trace.Request) { q.QueuedNs = at(998_500) })), wanted{50, 1, 1.5, true, "in 1 of 50 requests a later event has the earlier stamp, by up to 1.5 ms"}},
		{"1 of 100", engineOrder, requests(100, first(func(q *trace.Request) { q.QueuedNs = at(998_500) })), wanted{100, 1, 1.5, false, ""}},
		{"an event far back", engineOrder, requests(50, first(func(q *trace.Request) { q.FinishedNs = at(1_015_000) })), wanted{50, 1, 5, true, ""}},
		{"one stamp", engineOrder, requests(50, func(_ int, q *trace.Request) { *q = trace.Request{ArrivedNs: at(1)} }), wanted{}},
		{"departs too early", departures, requests(50, first(func(q *trace.Request) { q.DepartedNs = at(1_040_000) })), wanted{50, 1, 10, true, "the response departs before the engine finished"}},
		{"aborted", departures, requests(50, first(func(q *trace.Request) { q.DepartedNs, q.FinishStatus = at(1), trace.Some(trace.FinishAborted) })), wanted{49, 0, 0, false, ""}},
		{"short delays", apiDelays, requests(20, func(int, *trace.Request) {}), wanted{40, 0, 0.002, false, ""}},
		{"19 requests", apiDelays, requests(19, func(int, *trace.Request) {}), wanted{}},
		{"0.25 s before the queue", apiDelays, requests(20, func(_ int, q *trace.Request) { q.QueuedNs = at(1_250_000) }), wanted{40, 0, 0.25, false, ""}},
		{"0.3 s before the queue", apiDelays, requests(20, func(_ int, q *trace.Request) { q.QueuedNs = at(1_300_000) }), wanted{40, 20, 0.3, true, "each of 20 requests takes at least 0.3 s to be queued after its arrival"}},
		{"0.4 s behind the engine", apiDelays, requests(20, func(_ int, q *trace.Request) { q.DepartedNs = at(1_450_000) }), wanted{40, 20, 0.4, true, "0.4 s to depart after its last token"}},
	} {
		c.want.compare(t, c.name, c.read(c.f))
	}

	steps := emptyFacts()
	for i := range int64(10) {
		steps.run.Steps = append(steps.run.Steps, trace.Step{ID: 100 + i, TsStartNs: i * 10e6, TsEndNs: i*10e6 + 1e6})
	}
	// An event of step 104, which begins at 40 ms: from 20 ms before step 103 to 20 ms after the end of step 106.
	for us, over := range map[int64]float64{10_000: 0, 9_000: 1, 81_000: 0, 83_000: 2} {
		steps.run.Requests = []trace.Request{{FinishedStep: trace.Some(int64(104)), FinishedNs: at(us)}, {FinishedStep: trace.Some(int64(100)), FinishedNs: at(0)}, {FirstTokenStep: trace.Some(int64(108)), FirstTokenNs: at(0)}}
		want := wanted{1, 0, 0, false, ""}
		if over > 0 {
			want = wanted{1, 1, over, true, fmt.Sprintf("1 of 1 events of journeys are not at the time of the step that they name, by up to %g ms", over)}
		}
		want.compare(t, fmt.Sprint("an event at ", us), stepOrder(steps))
	}
	wanted{10, 0, 0, false, ""}.compare(t, "steps in order", stepStamps(steps))
	steps.run.Steps[3].TsEndNs = steps.run.Steps[3].TsStartNs - 3e6
	wanted{10, 1, 3, true, "1 of 10 steps end before they begin"}.compare(t, "a step that ends 3 ms before it begins", stepStamps(steps))
	steps.run.Steps[3].TsEndNs, steps.run.Steps[7].TsStartNs = 31e6, 60e6
	steps.run.Steps[7].TsEndNs = 61e6
	wanted{10, 1, 1e-6, true, ""}.compare(t, "a step that begins with the one before", stepStamps(steps))
	steps.async = true
	wanted{10, 1, 1e-6, true, ""}.compare(t, "the same step twice", stepStamps(steps))
	for i := range steps.run.Steps {
		steps.run.Steps[i].BlocksFree = int64(i)
	}
	wanted{10, 0, 0, false, ""}.compare(t, "two steps of an asynchronous engine at once", stepStamps(steps))
	wanted{text: "no step summaries"}.compare(t, "no steps", stepStamps(emptyFacts()))

	observed := func(change func(o *trace.ObservedRequest)) *facts {
		f := emptyFacts()
		o := trace.ObservedRequest{CoreID: trace.Some("c0"), SendNs: at(0), FirstChunkNs: at(30_000), LastChunkNs: at(60_000), EndNs: at(60_000), TTFTUs: trace.Some(30_000.0), E2EUs: trace.Some(60_000.0)}
		change(&o)
		f.run.Observed = []trace.ObservedRequest{o}
		f.run.Requests = requests(1, func(int, *trace.Request) {}).run.Requests
		return f
	}
	for _, c := range []struct {
		name   string
		read   func(*facts) reading
		change func(o *trace.ObservedRequest)
		want   wanted
	}{
		{"in order", clientOrder, func(o *trace.ObservedRequest) {}, wanted{1, 0, 0, false, ""}},
		{"a first chunk 4 ms before the request", clientOrder, func(o *trace.ObservedRequest) { o.FirstChunkNs = at(-4000) }, wanted{1, 1, 4, true, "by up to 4 ms"}},
		{"1 us back", clientOrder, func(o *trace.ObservedRequest) { o.EndNs = at(59_999) }, wanted{1, 0, 0.001, false, ""}},
		{"2 us back", clientOrder, func(o *trace.ObservedRequest) { o.EndNs = at(59_998) }, wanted{1, 1, 0.002, true, ""}},
		{"TTFT above E2E", clientOrder, func(o *trace.ObservedRequest) { o.TTFTUs = trace.Some(70_000.0) }, wanted{1, 1, 10, true, ""}},
		{"TTFT of 0", clientOrder, func(o *trace.ObservedRequest) { o.TTFTUs = trace.Some(0.0) }, wanted{1, 1, 0, true, "or TTFT is 0"}},
		{"engine stamps back", clientOrder, func(o *trace.ObservedRequest) { o.QueuedNs, o.ScheduledNs = at(7000), at(1000) }, wanted{1, 1, 6, true, ""}},
		{"nothing known", clientOrder, func(o *trace.ObservedRequest) { *o = trace.ObservedRequest{SendNs: at(1)} }, wanted{}},
		// The server takes 50 ms, of which 20 to the first token.
		{"encloses the server", clientEncloses, func(o *trace.ObservedRequest) {}, wanted{1, 0, 0, false, ""}},
		{"2 ms less than the server", clientEncloses, func(o *trace.ObservedRequest) { o.E2EUs = trace.Some(48_000.0) }, wanted{1, 0, 2, false, ""}},
		{"2.1 ms less", clientEncloses, func(o *trace.ObservedRequest) { o.E2EUs = trace.Some(47_900.0) }, wanted{1, 1, 2.1, true, "1 of 1 requests took the client less time than the engine, by up to 2.1 ms, and 0 over"}},
		{"a first token 3 ms before the server's", clientEncloses, func(o *trace.ObservedRequest) { o.TTFTUs = trace.Some(17_000.0) }, wanted{1, 1, 3, true, ""}},
		{"three times and a second", clientEncloses, func(o *trace.ObservedRequest) { o.E2EUs = trace.Some(1_150_000.0) }, wanted{1, 0, 0, false, ""}},
		{"longer than that", clientEncloses, func(o *trace.ObservedRequest) { o.E2EUs = trace.Some(1_150_001.0) }, wanted{1, 1, 0, true, "and 1 over three times as long"}},
	} {
		c.want.compare(t, c.name, c.read(observed(c.change)))
	}
}

// TestLimitReadings: requests against max_model_len, steps that leave requests waiting with room, and prompts in chunks.
func TestLimitReadings(t *testing.T) {
	some := trace.Some[int64]
	f := emptyFacts()
	f.dep.Engine.MaxModelLen = some(1000)
	// 1,000 tokens, two more and 5 % more are within the tolerance: 1,052.
	for tokens, over := range map[int64]bool{1000: false, 1052: false, 1053: true} {
		f.run.Requests = []trace.Request{{PromptTokens: some(tokens - 100), OutputTokens: some(100)}}
		f.run.Observed = []trace.ObservedRequest{{PromptTokens: some(tokens - 100), OutputTokens: some(200), N: some(2)}, {PromptTokens: some(9000), Success: trace.Some(false)}}
		want := wanted{2, 0, float64(tokens) / 1000, false, ""}
		if over {
			want = wanted{2, 2, 1.053, true, "2 of 2 requests have more prompt and output tokens than max_model_len 1000, up to 1.05 times"}
		}
		want.compare(t, fmt.Sprint(tokens, " tokens"), modelLen(f))
	}

	chunks := func(n int, scheduled int64) *facts {
		f := emptyFacts()
		f.dep.Engine.MaxNumBatchedTokens, f.dep.Engine.ChunkedPrefill = 1000, true
		for i := range int64(20) {
			f.run.Steps = append(f.run.Steps, trace.Step{ID: 1 + i, ScheduledTokens: int32(scheduled)})
		}
		f.run.Requests = []trace.Request{{ScheduledStep: some(1), FirstTokenStep: some(1)}}
		for range n {
			f.run.Requests = append(f.run.Requests, trace.Request{ScheduledStep: some(3), FirstTokenStep: some(5)})
		}
		return f
	}
	wanted{3, 0, 0, false, ""}.compare(t, "full steps", chunkReason(chunks(3, 900)))
	wanted{3, 3, 0.101, true, "3 of 3 prompts in several chunks began in a step with tokens left of max_num_batched_tokens 1000"}.compare(t, "steps with room", chunkReason(chunks(3, 899)))
	wanted{text: "2 prompts ran in several chunks, want 3"}.compare(t, "two prompts", chunkReason(chunks(2, 899)))
	whole := chunks(3, 1000)
	whole.dep.Engine.ChunkedPrefill = false
	wanted{3, 3, 0, true, ""}.compare(t, "chunks without chunked prefill", chunkReason(whole))
	whole.dep.Engine.Extra = map[string]any{"watermark": 0.1}
	wanted{text: "watermark makes chunks of prompts too"}.compare(t, "another reason", chunkReason(whole))
}
