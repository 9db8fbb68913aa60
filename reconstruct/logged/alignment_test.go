package logged

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// prompting returns a filler of passes that end at these times in ms, each of one prompt of 100 tokens that took 10 ms.
func prompting(t *testing.T, endsMs ...int64) *filler {
	t.Helper()
	its := make([]trace.Iteration, len(endsMs))
	for i := range its {
		its[i] = trace.Iteration{Index: int64(i), ContextReqs: 1, ContextTokens: 100, ElapsedUs: 10_000}
	}
	f := filling(t, its...)
	for i, ms := range endsMs {
		p := &f.passes[i]
		p.startNs, p.endNs, p.hasStart, p.hasEnd = (ms-10)*1e6, ms*1e6, true, true
	}
	return f
}

// answer is a request of 100 prompt tokens and two of output whose first chunk comes at a time in ms.
func answer(firstMs int64) trace.ObservedRequest {
	some := trace.Some[int64]
	return trace.ObservedRequest{PromptTokens: some(100), OutputTokens: some(2), FirstChunkNs: some(firstMs * 1e6), LastChunkNs: some((firstMs + 20) * 1e6)}
}

// TestClocksOfClients: passes whose first chunks come 7 s later, at times that no other offset explains.
func TestClocksOfClients(t *testing.T) {
	ends := []int64{1000, 3100, 7300, 12_700, 20_900, 33_500}
	const offset = 7000
	answers := func(ms ...int64) (out []trace.ObservedRequest) {
		for _, at := range ms {
			out = append(out, answer(at+offset))
		}
		return out
	}
	f := prompting(t, ends...)
	f.run.Observed = answers(ends...)
	f.alignClients(&timeAudit{time: timeCadence})
	if f.out.OffsetNs != trace.Some(int64(offset*1e6)) || f.out.Apart != "" || len(f.requests) != 6 || f.passes[2].endNs != (7300+offset)*1e6 {
		t.Errorf("got %v, %q, the third pass at %d", f.out.OffsetNs, f.out.Apart, f.passes[2].endNs)
	}
	// Chunks that come 59 ms apart agree, and the median of the votes is the offset.
	f = prompting(t, ends...)
	f.run.Observed = answers(1000, 3110, 7320, 12_730, 20_940, 33_559)
	if f.alignClients(&timeAudit{time: timeCadence}); f.out.OffsetNs != trace.Some(int64((offset+30)*1e6)) {
		t.Errorf("chunks of other delays: got %v, %q", f.out.OffsetNs, f.out.Apart)
	}
	// Fewer than half of the passes agree: of 6 with 36 votes over 65 s, two, less what is by chance.
	f = prompting(t, ends...)
	f.run.Observed = answers(1000, 3100, 8000, 14_100, 23_900, 32_300)
	f.alignClients(&timeAudit{time: timeCadence})
	if want := "6 requests of clients: 33 % of the passes with one prompt agree on an offset of the clocks, want 50 %"; f.out.Apart != want || f.out.OffsetNs.OK || f.requests != nil ||
		len(f.out.Findings) != 1 || f.out.Findings[0].Message != "r: "+want || f.out.Findings[0].Code != codeFilledIn {
		t.Errorf("got %v, %q, %v", f.out.OffsetNs, f.out.Apart, f.out.Findings)
	}
	// Four passes are too few to vote, and passes of several prompts, of a cut one or of other lengths have no vote.
	for name, change := range map[string]func(f *filler){
		"several": func(f *filler) { f.passes[0].prefills, f.passes[1].prefills = 2, 2 }, "cut": func(f *filler) { f.passes[0].cutPrompts, f.passes[1].cutPrompts = 1, 1 },
		"no end": func(f *filler) { f.passes[0].hasEnd, f.passes[1].hasEnd = false, false }, "other lengths": func(f *filler) { f.passes[0].prefillTokens, f.passes[1].prefillTokens = 101, 99 },
	} {
		f = prompting(t, ends...)
		f.run.Observed = answers(ends...)
		change(f)
		if f.alignClients(&timeAudit{time: timeCadence}); f.out.OffsetNs.OK || f.out.Apart != "6 requests of clients: 0 % of the passes with one prompt agree on an offset of the clocks, want 50 %" {
			t.Errorf("%s: got %v, %q", name, f.out.OffsetNs, f.out.Apart)
		}
	}
	// Requests whose pass is known vote for it alone, even where another offset fits the times better.
	f = prompting(t, ends...)
	f.run.Observed = answers(ends...)
	for i := range f.run.Observed {
		f.run.Observed[i].Iteration = trace.Some(int64(i))
		f.run.Observed[i].FirstChunkNs.V += int64(i%2) * 20e6
	}
	if f.alignClients(&timeAudit{time: timeCadence}); f.out.OffsetNs != trace.Some(int64((offset+20)*1e6)) {
		t.Errorf("known passes: got %v, %q", f.out.OffsetNs, f.out.Apart)
	}
	if got := f.requests[1].ended; got.V != 1 || !got.OK {
		t.Errorf("got %v", got)
	}
	// If they are few, all first chunks vote.
	f = prompting(t, ends...)
	f.run.Observed = answers(ends...)
	f.run.Observed[5].Iteration = trace.Some(int64(0))
	if f.alignClients(&timeAudit{time: timeCadence}); f.out.OffsetNs != trace.Some(int64(offset*1e6)) {
		t.Errorf("one known pass: got %v, %q", f.out.OffsetNs, f.out.Apart)
	}
	// Whole seconds: two stretches that are 300 ms apart from each other are shifted each by its own votes.
	f = prompting(t, ends...)
	for i := range f.passes {
		f.passes[i].follows = i%3 != 0
	}
	f.run.Observed = answers(1000, 3100, 7300, 13_000, 21_200, 33_800)
	f.alignClients(&timeAudit{time: timeTicks})
	if got, want := endsOf(f), []float64{8000, 10_100, 14_300, 20_000, 28_200, 40_800}; !slices.Equal(got, want) || f.passes[1].tickNs != offset*1e6 {
		t.Errorf("whole seconds: got %v, want %v", got, want)
	}
}

// TestShiftsDoNotOverlap: the second stretch does not begin before the first has ended.
func TestShiftsDoNotOverlap(t *testing.T) {
	f := prompting(t, 1000, 1005)
	f.passes[1].constantUs = 2000
	f.shiftPasses(&ballot{}, 500e6)
	if got := endsOf(f); !slices.Equal(got, []float64{1500, 1512}) {
		t.Errorf("got %v", got)
	}
	for _, c := range []struct {
		votes  []int64
		window int64
		middle int64
		n      int
	}{
		{nil, 5, 0, 0}, {[]int64{3}, 5, 3, 1}, {[]int64{1, 6, 7, 8, 12}, 5, 7, 3}, {[]int64{1, 6, 12, 13, 18}, 5, 6, 2}, {[]int64{1, 2, 3, 50, 51, 52, 53}, 5, 52, 4},
	} {
		if middle, n := densestWindow(c.votes, c.window); middle != c.middle || n != c.n {
			t.Errorf("%v: got %d of %d, want %d of %d", c.votes, middle, n, c.middle, c.n)
		}
	}
}

// TestAnswersInOnePiece: the last token came from the last pass before the chunk, the first as many passes before as the answer
// has tokens.
func TestAnswersInOnePiece(t *testing.T) {
	for _, c := range []struct {
		name    string
		request clientRequest
		ended   trace.Opt[int64]
		firstMs int64
	}{
		{"in the middle of a pass", clientRequest{whole: true, output: 2, lastNs: 395e6}, trace.Some(int64(2)), 300},
		{"before the middle", clientRequest{whole: true, output: 2, lastNs: 394e6}, trace.Some(int64(1)), 200},
		{"from the first pass on", clientRequest{whole: true, output: 4, lastNs: 395e6}, trace.Some(int64(0)), 100},
		{"more tokens than passes", clientRequest{whole: true, output: 5, lastNs: 395e6}, trace.Opt[int64]{}, 0},
		{"its pass is known", clientRequest{whole: true, output: 2, lastNs: 395e6, ended: trace.Some(int64(1))}, trace.Some(int64(1)), 200},
		{"its pass is lost", clientRequest{whole: true, output: 2, lastNs: 395e6, ended: trace.Some(int64(9))}, trace.Some(int64(9)), 0},
		{"streamed", clientRequest{output: 2, lastNs: 395e6, firstNs: 7e6}, trace.Opt[int64]{}, 7},
	} {
		f := prompting(t, 100, 200, 300, 400)
		f.requests = []clientRequest{c.request}
		for i := range f.passes {
			f.passes[i].startNs = f.passes[i].endNs - 10e6
			f.passes[i].it.Index = int64(i)
		}
		f.placeWholeAnswers()
		if o := f.requests[0]; o.ended != c.ended || o.firstNs != c.firstMs*1e6 {
			t.Errorf("%s: got pass %v, first token at %d, want %v at %d ms", c.name, o.ended, o.firstNs, c.ended, c.firstMs)
		}
	}
	p := pass{it: &trace.Iteration{ElapsedUs: 300}, startNs: 100, endNs: 500, hasStart: true}
	if p.middle() != 300 {
		t.Errorf("got %d", p.middle())
	}
	p.hasStart, p.endNs = false, 500_000
	if p.middle() != 350_000 {
		t.Errorf("no start: got %d", p.middle())
	}
}

// TestContextsOfClients: two requests of 100 and 50 prompt tokens, each in the passes between its first and its last chunk.
func TestContextsOfClients(t *testing.T) {
	made := func(decodes ...int64) *filler {
		ends := []int64{100, 110, 120, 130, 140}
		f := prompting(t, ends...)
		for i := range f.passes {
			f.passes[i].decodes, f.passes[i].prefills, f.passes[i].prefillTokens = decodes[i], 0, 0
		}
		f.requests = []clientRequest{{prompt: 100, output: 4, firstNs: 101e6, lastNs: 130e6, each: 1}, {prompt: 50, output: 3, firstNs: 111e6, lastNs: 131e6, each: 1}}
		return f
	}
	contexts := func(f *filler) (out []float64) {
		for i := range f.passes {
			out = append(out, f.passes[i].decodeContext)
		}
		return out
	}
	f := made(0, 1, 2, 2, 0)
	if !f.contextsFromClients() || !slices.Equal(contexts(f), []float64{0, 101, 102 + 51, 103 + 52, 0}) || f.out.ClientShare.V != 1 || f.out.Apart != "" {
		t.Errorf("got %v, %v", contexts(f), f.out)
	}
	// With drafts a decode has three tokens; passes that are known need no times.
	f = made(0, 1, 2, 2, 0)
	f.requests[0].each = 3
	f.requests[1].ended, f.requests[1].firstNs, f.requests[1].lastNs = trace.Some(int64(1)), 110e6, 110e6
	if !f.contextsFromClients() || !slices.Equal(contexts(f), []float64{0, 103, 106 + 51, 109 + 52, 0}) {
		t.Errorf("drafts: got %v", contexts(f))
	}
	// Three decodes where two requests run are one off, which is within the tolerance: three times their mean.
	f = made(0, 1, 3, 2, 0)
	if !f.contextsFromClients() || !slices.Equal(contexts(f), []float64{0, 101, 153 * 3 / 2.0, 155, 0}) {
		t.Errorf("one more decode: got %v", contexts(f))
	}
	// Where no request is known to run, a pass has the mean of the one before.
	f = made(0, 1, 2, 2, 3)
	f.passes = append(f.passes, f.passes[2], f.passes[2]) // of which both agree
	f.passes[5].it, f.passes[6].it = &trace.Iteration{Index: 5}, &trace.Iteration{Index: 6}
	f.passes = slices.Delete(f.passes, 5, 7)
	if f.contextsFromClients() {
		t.Errorf("three of four passes are enough: got %v", contexts(f))
	}
	want := "the requests of clients explain the decodes of 75 % of the passes, want 80 %"
	if f.out.Apart != want || f.out.ClientShare.V != 0.75 || len(f.out.Findings) != 1 || f.out.Findings[0].Message != "r: "+want {
		t.Errorf("got %+v", f.out)
	}
	// Of ten decodes eight requests are a fifth off, seven are more.
	for n, want := range map[int]bool{8: true, 7: false} {
		f = made(0, 0, 0, 10, 0)
		f.requests = nil
		for range n {
			f.requests = append(f.requests, clientRequest{prompt: 10, output: 9, firstNs: 101e6, lastNs: 900e6, each: 1})
		}
		if f.contextsFromClients() != want {
			t.Errorf("%d of 10: got %t", n, !want)
		}
	}
}

// TestPromptsOfClients: the work of prompts that ran whole, with hits in the prefix cache, and of one that the budget cut.
func TestPromptsOfClients(t *testing.T) {
	of := func(prompt, done int64) clientRequest { return clientRequest{prompt: prompt, done: done} }
	for _, c := range []struct {
		name             string
		prefills, tokens int64
		requests         []clientRequest
		ended            int
		work, context    float64
		done             int64 // of the request behind those that ended
	}{
		{"two whole", 2, 30, []clientRequest{of(10, 0), of(20, 0)}, 2, 55 + 210, 0, 0},
		{"one has 4 tokens before", 2, 26, []clientRequest{of(10, 4), of(20, 0)}, 2, 6*4 + 21 + 210, 4, 0},
		{"10 of 30 tokens are hits, in proportion", 2, 20, []clientRequest{of(10, 0), of(20, 0)}, 2, 7*3 + 28 + 14*6 + 105, 3 + 6, 0},
		{"more tokens than the prompts have", 2, 31, []clientRequest{of(10, 0), of(20, 0)}, 2, -1, -1, 0},
		{"the second is cut", 2, 15, []clientRequest{of(10, 0), of(20, 0)}, 1, 55 + 15, 0, 5},
		{"the second is cut again", 2, 15, []clientRequest{of(10, 0), of(20, 8)}, 1, 55 + 5*8 + 15, 8, 13},
		{"cut, with nothing left", 2, 10, []clientRequest{of(10, 0), of(20, 0)}, 1, -1, -1, 0},
		{"cut, with all that is left", 2, 30, []clientRequest{of(10, 0), of(20, 0)}, 1, -1, -1, 0},
		{"cut, without a next request", 2, 15, []clientRequest{of(10, 0)}, 1, -1, -1, 0},
		{"three prompts, one known", 3, 15, []clientRequest{of(10, 0), of(20, 0)}, 1, -1, -1, 0},
		{"no prompt", 0, 0, []clientRequest{of(10, 0)}, 0, -1, -1, 0},
	} {
		f := filling(t, trace.Iteration{})
		f.requests = c.requests
		p := &pass{it: &trace.Iteration{}, prefills: c.prefills, prefillTokens: c.tokens, causalWork: -1, prefillContext: -1}
		var ended []*clientRequest
		for i := range c.ended {
			ended = append(ended, &f.requests[i])
		}
		f.fillChunks(p, ended, c.ended)
		if p.causalWork != c.work || p.prefillContext != c.context {
			t.Errorf("%s: got work %g and context %g, want %g and %g", c.name, p.causalWork, p.prefillContext, c.work, c.context)
		}
		if c.ended < len(f.requests) && c.done > 0 && f.requests[c.ended].done != c.done {
			t.Errorf("%s: got %d tokens of the cut prompt, want %d", c.name, f.requests[c.ended].done, c.done)
		}
	}
}

// TestLineOfFirstChunks: first chunks follow the end of the next pass more closely than that of their own.
func TestLineOfFirstChunks(t *testing.T) {
	made := func(n int, lateMs func(k int64) int64) *filler {
		f := decoding(t, n+1, 0, 0, 0, 0, nil)
		for i := range f.passes {
			p := &f.passes[i]
			p.hasEnd, p.endNs = true, int64(100*i+i*i)*1e6
			if i < n {
				f.requests = append(f.requests, clientRequest{ended: trace.Some(p.it.Index), firstNs: int64(100*(i+1)+(i+1)*(i+1))*1e6 + lateMs(int64(i))*1e6})
			}
		}
		return f
	}
	if d := made(6, func(int64) int64 { return 4 }).findDelayLag(); d.lag != 1 || d.lateNs != -4_000_000 {
		t.Errorf("got %+v, want one pass later, 4 ms", d)
	}
	if d := made(4, func(int64) int64 { return 4 }).findDelayLag(); d.lag != 0 || d.lateNs != 0 {
		t.Errorf("four requests: got %+v", d)
	}
	if d := made(5, func(int64) int64 { return 4 }).findDelayLag(); d.lag != 1 {
		t.Errorf("five requests: got %+v", d)
	}
	if d := made(6, func(k int64) int64 { return k % 3 * 30 }).findDelayLag(); d.lag != 0 {
		t.Errorf("scattered: got %+v", d)
	}
	if got := medianDeviation([]float64{1}); got != 0 || !math.IsNaN(medianDeviation(nil)) {
		t.Error(fmt.Sprint(got, medianDeviation(nil)))
	}
}
