package identity

import (
	"fmt"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// servedBy is a run of 100 requests that one server answered one after the other: one second apart, 100 ms to the first token and
// 10 more of 10 ms, each with its chunks, and the passes that made its tokens. change is applied to each request.
func servedBy(change func(i int, o *trace.ObservedRequest)) *facts {
	f := emptyFacts()
	f.dep.Engine.PrefixCaching = false
	for i := range 100 {
		sendNs := int64(i+1) * 1e9
		o := trace.ObservedRequest{
			ID:           fmt.Sprintf("r-%d", i),
			SendNs:       trace.Some(sendNs),
			FirstChunkNs: trace.Some(sendNs + 100e6),
			TTFTUs:       trace.Some(100e3),
			E2EUs:        trace.Some(200e3),
			PromptTokens: trace.Some[int64](500),
			OutputTokens: trace.Some[int64](11),
			Chunks:       trace.Some[int64](11),
			Iteration:    trace.Some(int64(11 * i)),
		}
		for k := range int64(11) {
			it := trace.Iteration{Index: int64(11*i) + k, ElapsedUs: 9_500, GenerationReqs: 1, GenerationTokens: 1, StampNs: trace.Some(sendNs + 100e6 + k*10e6)}
			if k == 0 {
				it = trace.Iteration{Index: int64(11 * i), ElapsedUs: 90_000, ContextReqs: 1, ContextTokens: 500, StampNs: trace.Some(sendNs + 100e6)}
			} else {
				o.ChunkGapsUs = append(o.ChunkGapsUs, 10e3)
			}
			f.run.Iterations = append(f.run.Iterations, it)
		}
		if change != nil {
			change(i, &o)
		}
		f.run.Observed = append(f.run.Observed, o)
	}
	f.listRequests()
	return f
}

// TestParts: a tenth of the requests that differs from the rest is named by what differs, and one in a hundred is not.
func TestParts(t *testing.T) {
	tenth := func(change func(o *trace.ObservedRequest)) func(int, *trace.ObservedRequest) {
		return func(i int, o *trace.ObservedRequest) {
			if i%10 == 4 {
				change(o)
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(int, *trace.ObservedRequest)
		broken string // names of the readings that are, and a word of the first one's sentence
		want   string
	}{
		{"as served", nil, "", ""},
		{"one of them", func(i int, o *trace.ObservedRequest) {
			if i == 4 {
				o.TTFTUs.V, o.E2EUs.V = 9e6, 9.1e6
			}
		}, "", ""},
		{"first tokens 9 s later", tenth(func(o *trace.ObservedRequest) { o.TTFTUs.V += 9e6; o.E2EUs.V += 9e6 }), "turns", "after at least 3 requests"},
		{"E2E x10", tenth(func(o *trace.ObservedRequest) { o.E2EUs.V *= 10 }), "units chunks passes", "a part of the times"},
		{"outputs x10", tenth(func(o *trace.ObservedRequest) { o.OutputTokens.V *= 10 }), "units chunks passes", "a part of the times"},
		{"outputs of 1", tenth(func(o *trace.ObservedRequest) { o.OutputTokens.V = 1 }), "units chunks", "have one token"},
		{"gaps in s", tenth(func(o *trace.ObservedRequest) {
			for k := range o.ChunkGapsUs {
				o.ChunkGapsUs[k] /= 1e6
			}
		}), "chunks", "do not add up"},
		{"chunks lost", tenth(func(o *trace.ObservedRequest) { o.Chunks.V = 3 }), "chunks", "other numbers of chunks"},
		{"TTFT / 10", tenth(func(o *trace.ObservedRequest) { o.TTFTUs.V /= 10; o.E2EUs.V -= 90e3 }), "passes", "in less time than its pass"},
		{"clock a minute late from half-way", func(i int, o *trace.ObservedRequest) {
			if i >= 40 {
				o.SendNs.V += 60e9
				o.FirstChunkNs.V += 60e9
			}
		}, "passes", "more than 3 s from their pass"},
		{"clock a minute early from half-way", func(i int, o *trace.ObservedRequest) {
			if i >= 50 {
				o.SendNs.V -= 60e9
				o.FirstChunkNs.V -= 60e9
			}
		}, "clock passes", "goes back by up to 59 s"},
		{"two clocks", func(i int, o *trace.ObservedRequest) {
			if i%2 == 0 {
				o.SendNs.V -= 3600e9
			}
		}, "clock", "goes back by up to 3599 s"},
		{"no order", func(i int, o *trace.ObservedRequest) { o.ID = fmt.Sprintf("r-%d", (i*i*7+i*37)%1009) }, "", ""},
		{"all times in s", func(_ int, o *trace.ObservedRequest) { o.TTFTUs.V /= 1e6; o.E2EUs.V /= 1e6 }, "chunks passes", "do not add up"},
	} {
		f := servedBy(c.change)
		var broken []string
		sentence := ""
		for _, read := range []struct {
			name string
			of   func(*facts) reading
		}{{"clock", clientClock}, {"turns", clientTurns}, {"units", clientUnits}, {"chunks", clientChunks}, {"passes", answerPasses}, {"sums", clientSums}} {
			if r := read.of(f); r.broken {
				broken = append(broken, read.name)
				if sentence == "" {
					sentence = r.sentence
				}
			}
		}
		if got := strings.Join(broken, " "); got != c.broken || !strings.Contains(sentence, c.want) {
			t.Errorf("%s: got %q, %q, want %q, %q", c.name, got, sentence, c.broken, c.want)
		}
	}
}

// TestPartsNotLookedFor: where the server has several queues or drafts, or too few requests are known, nothing is compared.
func TestPartsNotLookedFor(t *testing.T) {
	few := servedBy(nil)
	few.loads = few.loads[:20]
	few.run.Observed = few.run.Observed[:20]
	two := servedBy(nil)
	two.dep.DP = 2
	drafts := servedBy(nil)
	drafts.run.Aggregate = &trace.Aggregate{Drafts: true}
	priority := servedBy(nil)
	priority.dep.Engine.SchedulingPolicy = "priority"
	ahead := servedBy(nil)
	ahead.async = true
	for _, c := range []struct {
		got  reading
		want string
	}{
		{clientTurns(few), "fewer than 50 requests"}, {clientTurns(two), "several engines"}, {clientTurns(priority), "scheduling_policy priority changes the order"}, {answerPasses(ahead), "asynchronous engine"},
		{clientClock(few), "fewer than 50 requests"}, {clientChunks(few), "fewer than 50 answers"}, {answerPasses(few), "fewer than 50 requests whose pass"},
		{answerPasses(drafts), "drafted tokens"}, {clientSums(few), "fewer than 100 requests"}, {passUnits(emptyFacts()), "fewer than 200 logged passes"},
	} {
		if c.got.broken || !strings.Contains(c.got.why, c.want) {
			t.Errorf("got %+v, want %q", c.got, c.want)
		}
	}
}

// TestPassUnits: of 1,100 passes a tenth in another unit is named, and one in fifty is not.
func TestPassUnits(t *testing.T) {
	for _, c := range []struct {
		every  int
		factor float64
		want   bool
	}{{50, 10, false}, {10, 10, true}, {10, 0.1, true}, {10, 2.9, false}, {1, 10, false}} {
		f := servedBy(nil)
		for i := range f.run.Iterations {
			if i%c.every == 0 {
				f.run.Iterations[i].ElapsedUs *= c.factor
			}
		}
		if r := passUnits(f); r.broken != c.want || r.checked != 600 {
			t.Errorf("%+v: got %+v", c, r)
		}
	}
}

// TestClientSums: where requests have about one TPOT and wait for different times, E2E without the wait, and with it
// twice, is seen.
func TestClientSums(t *testing.T) {
	for _, c := range []struct {
		times float64
		want  string
	}{{0, ""}, {-1, "lacks the time"}, {1, "twice"}} {
		f := servedBy(func(i int, o *trace.ObservedRequest) {
			o.TTFTUs.V += 4e3 * float64(i*29%100)
			o.E2EUs.V = 1e6 + 100*float64(i%7) + (1+c.times)*o.TTFTUs.V
		})
		r := clientSums(f)
		if r.broken != (c.want != "") || c.want != "" && !strings.Contains(r.sentence, c.want) {
			t.Errorf("%g: got %+v, want %q", c.times, r, c.want)
		}
	}
}

// TestScheduledOutside: a request is scheduled between the beginning and the end of schedule() of its step.
func TestScheduledOutside(t *testing.T) {
	for _, c := range []struct {
		byNs int64
		want bool
	}{{0, false}, {1_400_000, false}, {1_600_000, true}, {-1_100_000, true}} {
		f := emptyFacts()
		for i := range int64(60) {
			f.run.Steps = append(f.run.Steps, trace.Step{ID: i, TsStartNs: i * 10e6, TsEndNs: i*10e6 + 500_000, DurationUs: 500})
			f.run.Requests = append(f.run.Requests, trace.Request{ScheduledStep: trace.Some(i), ScheduledNs: trace.Some(i*10e6 + c.byNs)})
		}
		if r := stepOrder(f); r.broken != c.want || c.want && !strings.Contains(r.sentence, "outside of schedule()") {
			t.Errorf("%d ns: got %+v", c.byNs, r)
		}
	}
}
