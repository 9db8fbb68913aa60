package identity

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// wanted is what a test states of a reading. A reading that could not be made has no figures and a reason.
type wanted struct {
	checked, violated int
	largest           float64
	broken            bool
	text              string // in the sentence, or in the reason
}

func (w wanted) compare(t *testing.T, name string, got reading) {
	t.Helper()
	text := got.sentence
	if got.checked == 0 {
		text = got.why
	}
	if got.checked != w.checked || got.violated != w.violated || !(math.Abs(got.largest-w.largest) <= 1e-6*math.Max(1, math.Abs(w.largest))) ||
		got.broken != w.broken || !strings.Contains(text, w.text) {
		t.Errorf("%s: got %+v, want %+v", name, got, w)
	}
}

// emptyFacts are those of a run without records on an 8B model.
func emptyFacts() *facts {
	return &facts{run: &trace.Run{}, dep: testkit.Llama8B()}
}

// level is a load level of 4 clients at 2 requests/s: 1000 ms to the first token and 100 more of 10 ms, so 2 s.
func level(change func(p *trace.LoadPoint)) trace.LoadPoint {
	p := trace.LoadPoint{Clients: trace.Some(int64(4)), RateRPS: trace.Some(2.0), PromptTokens: 1000, OutputTokens: 101, TTFTMs: trace.Some(1000.0), TPOTMs: 10,
		E2EMs: trace.Some(2000.0)}
	if change != nil {
		change(&p)
	}
	return p
}

// TestLevelReadings: sums of times, Little's law and doubles of load levels at their limits.
func TestLevelReadings(t *testing.T) {
	e2e := func(ms float64) func(p *trace.LoadPoint) {
		return func(p *trace.LoadPoint) { p.E2EMs.V = ms }
	}
	rate := func(rps float64) func(p *trace.LoadPoint) {
		return func(p *trace.LoadPoint) { p.RateRPS.V = rps }
	}
	whole := func(p *trace.LoadPoint) { p.TPOTMs = 2000.0 / 101 }
	none := func(p *trace.LoadPoint) { p.E2EMs.OK, p.TTFTMs.OK = false, false }
	for _, c := range []struct {
		name    string
		read    func(*facts) reading
		changes []func(p *trace.LoadPoint)
		want    wanted
	}{
		{"sums that are right", levelSums, []func(*trace.LoadPoint){nil, nil}, wanted{checked: 2}},
		{"one of five off by more than a tenth", levelSums, []func(*trace.LoadPoint){e2e(2300), nil, nil, nil, nil}, wanted{5, 1, math.Log(2300.0 / 2000), false, "in 1 of 5"}},
		{"two of five off", levelSums, []func(*trace.LoadPoint){e2e(2300), e2e(1000), nil, nil, nil}, wanted{5, 2, math.Ln2, true, "by a factor of up to 2:"}},
		{"just within a tenth", levelSums, []func(*trace.LoadPoint){e2e(2000 * math.Exp(0.0999))}, wanted{1, 0, 0.0999, false, ""}},
		{"just beyond", levelSums, []func(*trace.LoadPoint){e2e(2000 * math.Exp(-0.1001))}, wanted{1, 1, 0.1001, true, ""}},
		{"times over all tokens", levelSums, []func(*trace.LoadPoint){whole, whole, whole, nil}, wanted{4, 3, math.Log((1000 + 100*2000.0/101) / 2000), true, "E2E is not TTFT plus"}},
		{"times over all tokens in all", levelSums, []func(*trace.LoadPoint){whole, whole, whole}, wanted{3, 3, math.Log((1000 + 100*2000.0/101) / 2000), true, "it includes the time to the first"}},
		{"without E2E", levelSums, []func(*trace.LoadPoint){none}, wanted{text: "no load level has TTFT and E2E"}},

		{"four clients at two a second", levelLoad, []func(*trace.LoadPoint){nil}, wanted{checked: 1}},
		{"15 % more", levelLoad, []func(*trace.LoadPoint){rate(2.299)}, wanted{1, 0, math.Log(1.1495), false, ""}},
		{"beyond 15 %", levelLoad, []func(*trace.LoadPoint){rate(2.301)}, wanted{1, 1, math.Log(1.1505), true, "in 1 of 1"}},
		{"30 % less", levelLoad, []func(*trace.LoadPoint){rate(1.401)}, wanted{1, 0, -math.Log(0.7005), false, ""}},
		{"beyond 30 %", levelLoad, []func(*trace.LoadPoint){rate(1.399), nil}, wanted{2, 1, -math.Log(0.6995), false, "in 1 of 2"}},
		{"most of them", levelLoad, []func(*trace.LoadPoint){rate(1), rate(4), nil}, wanted{3, 2, math.Ln2, true, "by a factor of up to 2:"}},
		{"E2E from TTFT", levelLoad, []func(*trace.LoadPoint){func(p *trace.LoadPoint) { p.E2EMs.OK = false }}, wanted{checked: 1}},
		{"two ranks, no rate, no clients, no times", levelLoad, []func(*trace.LoadPoint){func(p *trace.LoadPoint) { p.DP = trace.Some(int64(2)) },
			func(p *trace.LoadPoint) { p.RateRPS.OK = false }, func(p *trace.LoadPoint) { p.Clients.OK = false }, none, rate(0)}, wanted{text: "no load level states"}},

		{"three that differ", levelsDiffer, []func(*trace.LoadPoint){nil, rate(3), func(p *trace.LoadPoint) { p.Clients.V = 5 }}, wanted{checked: 3}},
		{"doubles to five digits, in other places", levelsDiffer, []func(*trace.LoadPoint){nil, func(p *trace.LoadPoint) { p.TTFTMs.V, p.Line, p.File, p.Name = 1000.004, 7, "x", "y" }, rate(3)},
			wanted{3, 1, 1, true, "1 of 3 load levels"}},
		{"in the fifth digit", levelsDiffer, []func(*trace.LoadPoint){nil, func(p *trace.LoadPoint) { p.TTFTMs.V = 1000.1 }}, wanted{checked: 2}},
		{"one alone", levelsDiffer, []func(*trace.LoadPoint){nil}, wanted{text: "fewer than two load levels"}},
		{"levels without prices", priorOfLevels, nil, wanted{text: "no load levels"}},
	} {
		f := emptyFacts()
		for _, change := range c.changes {
			f.run.Points = append(f.run.Points, level(change))
		}
		c.want.compare(t, c.name, c.read(f))
	}
	open := level(func(p *trace.LoadPoint) { p.RateRPS.OK, p.Clients.OK, p.OfferedRPS = false, false, trace.Some(7.0) })
	closed := level(func(p *trace.LoadPoint) { p.RateRPS.OK = false })
	for _, c := range []struct{ got, want float64 }{
		{levelRate(&open), 7}, {levelRate(&closed), 2}, {inFlight(&closed), 2}, {inFlight(&open), 7}, {inFlight(&trace.LoadPoint{}), 1},
	} {
		if c.got != c.want {
			t.Errorf("got %g, want %g", c.got, c.want)
		}
	}
}

// fakePrice takes 1 us at least and 2 us at most for each token, and 10 us for each sequence.
func fakePrice(b *library.Batch) priorTime {
	us := b.Tokens + 10*b.Sequences
	return priorTime{leastUs: us, mostUs: 2 * us}
}

// TestPriorTimes: the ratio of a measured time to the nearer end of a prediction, and the predictions of batches.
func TestPriorTimes(t *testing.T) {
	p := priorTime{leastUs: 100, mostUs: 200}
	f := emptyFacts()
	f.price = fakePrice
	f.dep.Engine.MaxNumSeqs = 8
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"below", p.ratio(50), 0.5}, {"at the least", p.ratio(100), 1}, {"between", p.ratio(150), 1}, {"at the most", p.ratio(200), 1}, {"above", p.ratio(300), 1.5},
		{"of two values that reach in", p.ratioOf(50, 100), 1}, {"of two values below", p.ratioOf(50, 80), 0.8}, {"of two values above", p.ratioOf(250, 300), 1.25},
		{"sum, least", p.plus(priorTime{1, 2}).leastUs, 101}, {"sum, most", p.plus(priorTime{1, 2}).mostUs, 202},
		{"4 decodes", f.decodeTime(4, 100).leastUs, 44}, {"less than one decode", f.decodeTime(0.5, 100).leastUs, 11}, {"more than max_num_seqs", f.decodeTime(9, 100).mostUs, 176},
		{"a prompt", f.prefillTime(100).leastUs, 110}, {"an empty prompt", f.prefillTime(0).leastUs, 11}, {"a prompt and 4 decodes", f.mixedTime(100, 4, 50).leastUs, 154},
		{"what a prompt adds", f.promptBeside(100, 4, 50).leastUs, 110}, {"fold change", foldChange(0.25), 4}, {"fold change above", foldChange(3), 3}, {"fold change at 0", foldChange(0), math.Inf(1)},
		// 10 us of prompts in 100 us, at most 20: the 300 us between tokens are 240 to 270 of decodes, predicted as 100 to 200.
		{"decode beside prompts", (&priorTime{10, 20}).decodeRatio(300, 0.01, 0.01, p), 1.2},
		{"prompts take at most 80 %", (&priorTime{10, 20}).decodeRatio(300, 1, 1, p), 0.6},
	} {
		if math.Abs(c.got-c.want) > 1e-9 && c.got != c.want {
			t.Errorf("%s: got %g, want %g", c.name, c.got, c.want)
		}
	}
}

// TestPriorReading: the medians of two regimes at their limits of 1.5 and 5 times, either way.
func TestPriorReading(t *testing.T) {
	many := func(v float64, n int) (out []float64) {
		for range n {
			out = append(out, v)
		}
		return out
	}
	f := emptyFacts()
	for _, c := range []struct {
		name   string
		a, b   []float64
		want   wanted
		effect string
	}{
		{"as predicted", many(1, 20), many(1, 20), wanted{40, 0, 1, false, ""}, result.IdentityNamed},
		{"at 1.5", many(1.5, 20), many(0.9, 5), wanted{20, 0, 1.5, false, ""}, result.IdentityNamed},
		{"above 1.5", many(1.51, 20), many(1, 20), wanted{40, 20, 1.51, true, "a take 1.51 times what"}, result.IdentityNamed},
		{"below 1/1.5", many(0.66, 20), many(2, 21), wanted{41, 41, 2, true, "a take 0.66 times and b take 2 times what"}, result.IdentityNamed},
		{"at 5", many(5, 20), nil, wanted{20, 20, 5, true, ""}, result.IdentityNamed},
		{"above 5", many(5.01, 20), nil, wanted{20, 20, 5.01, true, ""}, result.IdentityFails},
		{"too few", many(9, 19), many(9, 19), wanted{text: "fewer than 20 comparable times"}, ""},
	} {
		got := f.priorReading("step", 20, []regimeRatios{{"a", c.a}, {"b", c.b}})
		c.want.compare(t, c.name, got)
		if got.effect != c.effect {
			t.Errorf("%s: got the effect %q, want %q", c.name, got.effect, c.effect)
		}
	}
	early := f.requestReading("request", 20, many(1, 20), many(0.25, 20))
	wanted{40, 20, 0.25, true, "first tokens come in 0.25 times what the prompts' kernels take on H100 (median of 20 requests)"}.compare(t, "early first tokens", early)
	late := f.requestReading("request", 20, many(1, 20), many(9, 20))
	wanted{40, 0, 1, false, ""}.compare(t, "late first tokens", late)
	both := f.requestReading("request", 20, many(3, 20), many(0.25, 20))
	wanted{40, 40, 0.25, true, "tokens after the first take 3 times and first tokens take 0.25 times"}.compare(t, "both", both)
}

// TestPriorOfRequests: requests of 100 prompt tokens and 9 output tokens that decode alone. By the fake prices a decode takes
// 11 to 22 us and the prompt 110 to 220; one prompt comes each 1,000 us. So of 33 us between tokens 25.7 to 29.4 are decodes.
func TestPriorOfRequests(t *testing.T) {
	make20 := func(ttft, itl float64) *facts {
		f := emptyFacts()
		f.price = fakePrice
		f.dep.Engine.SpeculativeDecoding = false
		for i := range 20 {
			f.loads = append(f.loads, clientRequest{sentUs: float64(1000 * i), ttftUs: ttft, e2eUs: ttft + 8*itl, prompt: 100, output: 9, itlUs: itl, decoding: 1})
		}
		return f
	}
	span := 19_000.0 + 150 + 8*33
	if got := make20(150, 33).loadSpanUs(); got != span {
		t.Errorf("got a span of %g us, want %g", got, span)
	}
	busy := math.Min(0.8, 2000/span/100*220)
	wanted{40, 0, math.Max(1, 33*(1-busy)/22), false, ""}.compare(t, "near", priorOfRequests(make20(150, 33)))
	span = 19_000.0 + 150 + 8*60
	wanted{40, 20, 60 * (1 - 2000/span/100*220) / 22, true, "tokens after the first take 2.1"}.compare(t, "slow decodes", priorOfRequests(make20(150, 60)))
	wanted{40, 20, 0.5, true, "first tokens come in 0.5 times"}.compare(t, "early", priorOfRequests(make20(55, 20)))
	f := make20(150, 33) // of two answers without a usable ITL, too short or not known, the first tokens count alone
	for _, l := range []clientRequest{{output: 7, itlUs: 900}, {output: 9}} {
		l.sentUs, l.ttftUs, l.e2eUs, l.prompt, l.decoding = 5000, 150, 150+8*33, 100, 1
		f.loads = append(f.loads, l)
	}
	if r := priorOfRequests(f); r.checked != 42 || r.broken {
		t.Errorf("two answers without ITL: got %+v", r)
	}
	f = make20(150, 33)
	f.loads = f.loads[:19]
	wanted{text: "fewer than 20 comparable times"}.compare(t, "19 requests", priorOfRequests(f))
	f.loads = nil
	wanted{text: "no requests with times"}.compare(t, "no requests", priorOfRequests(f))
	f.price = nil
	wanted{text: "the library has no kernel tables of H100"}.compare(t, "no tables", priorOfRequests(f))
}

// TestCountDecoding: one request decodes from 10 to 30, another from 20 to 40: each is alone half of its time.
func TestCountDecoding(t *testing.T) {
	f := emptyFacts()
	for _, c := range [][3]int64{{0, 10, 30}, {5, 15, 35}, {100, 5, 5}} {
		f.run.Observed = append(f.run.Observed, trace.ObservedRequest{SendNs: trace.Some(1000 * (c[0] + 1_000_000)), TTFTUs: trace.Some(float64(c[1])), E2EUs: trace.Some(float64(c[2])),
			PromptTokens: trace.Some(int64(50)), OutputTokens: trace.Some(int64(11)), CachedTokens: trace.Some(int64(16))})
	}
	failed := f.run.Observed[0]
	failed.Success = trace.Some(false)
	two := f.run.Observed[0]
	two.N = trace.Some(int64(2))
	f.run.Observed = append(f.run.Observed, failed, two)
	f.listRequests()
	if len(f.loads) != 3 {
		t.Fatalf("got %d requests", len(f.loads))
	}
	for i, want := range []clientRequest{
		{sentUs: 1_000_000, ttftUs: 10, e2eUs: 30, prompt: 50, output: 11, cached: 16, knowsCached: true, itlUs: 2, decoding: 1.5},
		{sentUs: 1_000_005, ttftUs: 15, e2eUs: 35, prompt: 50, output: 11, cached: 16, knowsCached: true, itlUs: 2, decoding: 1.5},
		{sentUs: 1_000_100, ttftUs: 5, e2eUs: 5, prompt: 50, output: 11, cached: 16, knowsCached: true, decoding: 1, isAlone: true},
	} {
		if f.loads[i] != want {
			t.Errorf("got %+v, want %+v", f.loads[i], want)
		}
	}
	stock := emptyFacts()
	stock.run.Requests = []trace.Request{{Source: trace.SourceStock, StartWallNs: trace.Some(int64(7e9)), StockTTFTUs: trace.Some(10.0), StockE2EUs: trace.Some(40.0),
		PromptTokens: trace.Some(int64(5)), OutputTokens: trace.Some(int64(4))}, {Source: trace.SourceFork, StartWallNs: trace.Some(int64(7e9))}}
	stock.listRequests()
	if len(stock.loads) != 1 || stock.loads[0] != (clientRequest{sentUs: 7e6, ttftUs: 10, e2eUs: 40, prompt: 5, output: 4, itlUs: 10, decoding: 1, isAlone: true}) {
		t.Errorf("got %+v", stock.loads)
	}
}

// TestLossReadings: what is lost of each stream, just at 2 % (5 % of step summaries) and just above.
func TestLossReadings(t *testing.T) {
	for _, c := range []struct {
		name string
		read func(*facts) reading
		make func(f *facts)
		want wanted
	}{
		{"whole files", filesWhole, func(f *facts) { f.Findings = []trace.Finding{{Code: "other", Message: "x"}} }, wanted{checked: 1}},
		{"a cut file", filesWhole, func(f *facts) { f.Findings = []trace.Finding{{Code: source.CodeCut, Message: "it is cut"}} }, wanted{1, 1, 1, true, "it is cut"}},
		{"95 of 100 steps", stepsComplete, func(f *facts) { f.run.Steps = stepsWithout(100, 5) }, wanted{100, 5, 0.05, false, "95 of 100 step ids have a summary, where step_tracing_sample_rate 1 gives about 100: about 5 %"}},
		{"94 of 100 steps", stepsComplete, func(f *facts) { f.run.Steps = stepsWithout(100, 6) }, wanted{100, 6, 0.06, true, "about 6 %"}},
		{"half of the steps sampled", stepsComplete, func(f *facts) { f.run.Steps, f.dep.Tracing.StepSampleRate = stepsWithout(100, 50), trace.Some(0.5) }, wanted{50, 0, 0, false, ""}},
		{"28 of 50 sampled steps", stepsComplete, func(f *facts) { f.run.Steps, f.dep.Tracing.StepSampleRate = stepsWithout(100, 72), trace.Some(0.5) }, wanted{35, 7, 0.2, true, ""}}, // 50 - 28 - 3 x 5
		{"one step", stepsComplete, func(f *facts) { f.run.Steps = stepsWithout(1, 0) }, wanted{text: "fewer than two step ids"}},
		{"one of 50 steps", stepsComplete, func(f *facts) {
			f.run.Steps = stepsWithout(1, 0)
			f.run.Requests = []trace.Request{{ScheduledStep: trace.Some(int64(1)), FinishedStep: trace.Some(int64(50))}}
		}, wanted{50, 49, 0.98, true, "1 of 50 step ids have a summary"}},
		{"1 of 50 without API span", apiSpansComplete, func(f *facts) { f.run.Requests = spans(49, 1, 0, 0) }, wanted{50, 1, 0.02, false, "1 of 50 requests"}},
		{"2 of 50 without API span", apiSpansComplete, func(f *facts) { f.run.Requests = spans(48, 2, 0, 0) }, wanted{50, 2, 0.04, true, "2 of 50 requests"}},
		{"no API spans", apiSpansComplete, func(f *facts) { f.run.Requests = spans(0, 5, 0, 0) }, wanted{text: "no API spans"}},
		{"no core spans", apiSpansComplete, func(f *facts) { f.run.Requests = spans(0, 0, 5, 0) }, wanted{text: "no core spans"}},
		{"2 of 50 without core span", coreSpansComplete, func(f *facts) { f.run.Requests = spans(48, 0, 2, 0) }, wanted{50, 2, 0.04, true, "2 of 50 API spans"}},
		{"2 of 50 that the client gave up", coreSpansComplete, func(f *facts) { f.run.Requests = spans(48, 0, 0, 2) }, wanted{50, 0, 0, false, ""}},
		{"passes without gaps", passesComplete, func(f *facts) { f.run.Iterations = passes(100, 7) }, wanted{100, 0, 0, false, ""}},
		{"2 of 100 passes missing", passesComplete, func(f *facts) { f.run.Iterations = passes(98, 7, 2) }, wanted{100, 2, 0.02, false, "2 numbers of logged passes are missing among 100"}},
		{"3 of 100 passes missing", passesComplete, func(f *facts) { f.run.Iterations = passes(97, 7, 1, 2) }, wanted{100, 3, 0.03, true, "3 numbers"}},
		{"sampled passes", passesComplete, func(f *facts) {
			f.run.Iterations = passes(3, 7)
			for i := range f.run.Iterations {
				f.run.Iterations[i].Sampled = true
			}
		}, wanted{text: "no passes that are numbered"}},
		{"numbered clients", clientsComplete, func(f *facts) { f.run.Observed = clients(0, 1, 2, 3) }, wanted{4, 0, 0, false, ""}},
		{"2 of 6 clients missing", clientsComplete, func(f *facts) { f.run.Observed = clients(0, 1, 4, 5) }, wanted{6, 2, 1.0 / 3, true, "about 2 requests of the server, or of the numbered requests, are not among the 4"}},
		{"numbers far apart", clientsComplete, func(f *facts) { f.run.Observed = clients(0, 8) }, wanted{2, 0, 0, false, ""}},
		{"numbers just near", clientsComplete, func(f *facts) { f.run.Observed = clients(0, 7) }, wanted{8, 6, 0.75, true, ""}},
		{"requests of the server alone", clientsComplete, func(f *facts) {
			f.run.Observed = clients(0, 1, 2)
			f.run.Observed[0].CoreID = trace.Some("c")
			f.run.Requests = spans(4, 0, 0, 0)
		}, wanted{6, 3, 0.5, true, ""}},
		{"no clients", clientsComplete, func(f *facts) {}, wanted{text: "no requests of clients"}},
		{"KV events whose parents were stored", kvEventsComplete, func(f *facts) { f.run.KVEvents = kv("a", "", "b", "a", "c", "b") }, wanted{2, 0, 0, false, ""}},
		{"an unknown parent", kvEventsComplete, func(f *facts) { f.run.KVEvents = kv("a", "", "b", "a", "c", "x") }, wanted{2, 1, 0.5, true, "1 of 2 stored blocks"}},
		{"no parents", kvEventsComplete, func(f *facts) { f.run.KVEvents = kv("a", "") }, wanted{text: "no stored block names its parent"}},
		{"no KV events", kvEventsComplete, func(f *facts) {}, wanted{text: "no KV events"}},
		{"whole journeys", eventsComplete, func(f *facts) { f.run.Requests = spans(50, 0, 0, 0) }, wanted{50, 0, 0, false, ""}},
		{"dropped events", eventsComplete, func(f *facts) {
			f.run.Requests = spans(50, 0, 0, 0)
			f.run.Requests[0].DroppedEvents = 1
			f.run.Requests[1].ScheduledNs = trace.Some(int64(1)) // and not queued
		}, wanted{50, 2, 0.04, true, "2 of 50 journeys lost events"}},
	} {
		f := emptyFacts()
		c.make(f)
		c.want.compare(t, c.name, c.read(f))
	}
	for id, want := range map[string]string{"req-17": "req- 17 true", "17": " 17 true", "req": "req 0 false", "a1234567890": "a 1234567890 false"} {
		prefix, n, ok := numbered(id)
		if got := fmt.Sprint(prefix, " ", n, " ", ok); got != want {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
}

// TestWhollyLostStreams: a stream of which nothing is there was lost if run.yaml states a rate for it, of which sampling explains no
// gap so large, or if another stream shows that it was written. Otherwise nobody recorded it.
func TestWhollyLostStreams(t *testing.T) {
	rates := func(f *facts, rate float64) {
		r := trace.Some(rate)
		f.dep.Tracing.StepSampleRate, f.dep.Tracing.JourneySampleRate, f.dep.Tracing.RichSubsampleRate = r, r, r
	}
	journeys := func(f *facts) { // of steps 1 to 1000, with API spans
		f.run.Requests = spans(50, 0, 0, 0)
		f.run.Requests[0].ScheduledStep, f.run.Requests[0].FinishedStep = trace.Some(int64(1)), trace.Some(int64(1000))
	}
	steps := func(f *facts) { // in which 100 requests ended
		f.run.Steps = stepsWithout(1000, 0)
		for i := range f.run.Steps {
			f.run.Steps[i].RunningDepth = 1
		}
		f.run.Steps[999].NumFinished = 100
	}
	api := func(f *facts) { f.run.Requests = spans(0, 0, 50, 0) }
	core := func(f *facts) { f.run.Requests = spans(0, 50, 0, 0) }
	stock := func(f *facts) { f.run.Requests = spans(0, 0, 0, 0) }
	ofClients := func(f *facts) { f.run.Observed = []trace.ObservedRequest{{OutputTokens: trace.Some(int64(300))}} }
	orphans := func(f *facts) { f.snapshot.orphanSteps = 80 }
	lost := func(n int, text string) wanted { return wanted{n, n, 1, true, text} }
	none := func(text string) wanted { return wanted{text: text} }
	const noRate = -1
	for _, c := range []struct {
		name string
		read func(*facts) reading
		make func(*facts)
		rate float64
		want wanted
	}{
		{"steps beside journeys", stepsComplete, journeys, 1, lost(1000, "all step summaries were lost, at least 1000, where run.yaml states step_tracing_sample_rate 1")},
		{"a tenth of the steps", stepsComplete, journeys, 0.1, lost(71, "")}, // 100 - 3 x 9.49
		{"few steps of many", stepsComplete, journeys, 0.005, none("no step summaries, and too little else to expect one at a rate of 0.005")},
		{"steps at rate 0", stepsComplete, journeys, 0, none("no step summaries")},
		{"steps at no rate", stepsComplete, journeys, noRate, none("no step summaries")},
		{"steps of snapshots", stepsComplete, orphans, noRate, lost(80, "all step summaries were lost, at least 80, although there are snapshots")},
		{"steps beside clients of journeys", stepsComplete, func(f *facts) { api(f); ofClients(f) }, 1, lost(300, "")},
		{"steps of clients alone", stepsComplete, ofClients, 1, none("no step summaries, nor anything else that a server with journeys and step tracing writes")},
		{"steps of unmodified vLLM", stepsComplete, stock, 1, none("no step summaries, nor anything else")},
		{"steps that were not published", stepsComplete, func(f *facts) { journeys(f); f.dep.Tracing.Published = "journeys only" }, 1,
			none("no step summaries: run.yaml states that journeys only were published")},
		{"journeys beside steps", journeysComplete, steps, 1, lost(100, "all journeys were lost, at least 100")},
		{"journeys at rate 0", journeysComplete, steps, 0, none("no journeys")},
		{"journeys at no rate", journeysComplete, steps, noRate, none("no journeys")},
		{"journeys beside API spans", coreSpansComplete, api, 1, lost(50, "all journeys were lost, at least 50, where run.yaml states journey_tracing_sample_rate 1")},
		{"journeys beside API spans, sampled", coreSpansComplete, api, 0.5, lost(14, "")}, // 25 - 3 x 3.54
		{"few journeys of API spans", coreSpansComplete, api, 0.01, none("no journeys, and too little else to expect one at a rate of 0.01")},
		{"journeys beside API spans, at no rate", coreSpansComplete, api, noRate, lost(50, "although there are API spans")},
		{"API spans", apiSpansComplete, core, 1, lost(50, "all API spans were lost, at least 50")},
		{"API spans of sampled journeys", apiSpansComplete, core, 0.1, lost(50, "")},
		{"API spans at no rate", apiSpansComplete, core, noRate, none("no API spans")},
		{"snapshots", snapshotsComplete, steps, 0.1, lost(62, "all snapshots were lost, at least 62, where run.yaml states step_tracing_rich_subsample_rate 0.1")}, // 100 - 4 x 9.49
		{"snapshots at rate 0", snapshotsComplete, steps, 0, none("no snapshots")},
		{"snapshots at no rate", snapshotsComplete, steps, noRate, none("no snapshots")},
		{"snapshots of idle steps", snapshotsComplete, func(f *facts) { f.run.Steps = stepsWithout(1000, 0) }, 1, none("no snapshots, and too little else to expect one at a rate of 1")},
	} {
		f := emptyFacts()
		c.make(f)
		if c.rate != noRate {
			rates(f, c.rate)
		}
		c.want.compare(t, c.name, c.read(f))
	}
}

// stepsWithout returns steps 1 to n without `lost` of them, evenly spread and never the first or last.
func stepsWithout(n, lost int) (out []trace.Step) {
	for i := 1; i <= n; i++ {
		if i > 1 && i <= lost+1 && i < n {
			continue
		}
		out = append(out, trace.Step{ID: int64(i)})
	}
	return out
}

// spans returns requests: both spans, core spans alone, API spans alone, and API spans that the client gave up.
func spans(both, core, api, aborted int) (out []trace.Request) {
	for i := range both + core + api + aborted {
		var q trace.Request
		if i < both+core {
			q.CoreID = trace.Some(fmt.Sprint("c", i))
		}
		if i < both || i >= both+core {
			q.APIID = trace.Some(fmt.Sprint("a", i))
		}
		if i >= both+core+api {
			q.AbortedNs = trace.Some(int64(1))
		}
		out = append(out, q)
	}
	return append(out, trace.Request{Source: trace.SourceStock, CoreID: trace.Some("s")})
}

// passes returns n passes from an index, with gaps.
func passes(n int, from int64, gaps ...int64) (out []trace.Iteration) {
	for i := range n {
		if i > 0 && i <= len(gaps) {
			from += gaps[i-1]
		}
		out = append(out, trace.Iteration{Form: trace.IterationLog, Index: from})
		from++
	}
	return out
}

// clients returns requests of clients with these numbers.
func clients(numbers ...int) (out []trace.ObservedRequest) {
	for _, n := range numbers {
		out = append(out, trace.ObservedRequest{ID: fmt.Sprint("req-", n)})
	}
	return out
}

// kv returns events that store a block after its parent, in pairs.
func kv(pairs ...string) (out []trace.KVEvent) {
	out = append(out, trace.KVEvent{Kind: "AllBlocksCleared"})
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, trace.KVEvent{Kind: "BlockStored", Hashes: []string{pairs[i]}, Parent: trace.Some(pairs[i+1])})
	}
	return out
}

// TestPassReadings: the sum of elapsed times against the time between stamps, and which tokens times go with.
func TestPassReadings(t *testing.T) {
	busy := func(elapsedMs float64, wallMs int64, n int) *facts {
		f := emptyFacts()
		f.run.Aggregate = &trace.Aggregate{}
		for i := range n {
			f.run.Iterations = append(f.run.Iterations, trace.Iteration{Form: trace.IterationLog, Index: int64(i), ElapsedUs: elapsedMs * 1000, StampNs: trace.Some(int64(i) * wallMs * 1e6)})
		}
		return f
	}
	wanted{101, 0, 101.0 / 100 * 0.5, false, ""}.compare(t, "half busy", passTimes(busy(50, 100, 101)))
	wanted{101, 0, 1.0403, false, ""}.compare(t, "4 % more", passTimes(busy(103, 100, 101)))
	wanted{101, 101, 1.0605, true, "the elapsed times of 101 passes add up to 1.06 times"}.compare(t, "6 % more", passTimes(busy(105, 100, 101)))
	wanted{text: "the passes have no elapsed times"}.compare(t, "less than 5 s", passTimes(busy(50, 49, 101)))
	wanted{text: "the passes have no elapsed times"}.compare(t, "no elapsed times", passTimes(busy(0, 100, 101)))
	wanted{text: "no logged passes"}.compare(t, "no passes", passTimes(emptyFacts()))
	f := busy(50, 100, 101)
	for ratio, broken := range map[float64]bool{1.04: false, 1.06: true, 0.51: false, 0.49: true} {
		f.run.Aggregate.Audit.SumOverWall = trace.Some(ratio)
		if got := passTimes(f); got.broken != broken || got.largest != ratio || got.checked != 101 {
			t.Errorf("audited at %g: got %+v", ratio, got)
		}
	}

	order := func(n int, shift int) *facts {
		f := emptyFacts()
		for i := range n {
			f.run.Iterations = append(f.run.Iterations, trace.Iteration{Form: trace.IterationLog, ContextTokens: int64(1 + i*37%101), GenerationTokens: 1, ElapsedUs: float64((i + shift) * 37 % 101)})
		}
		return f
	}
	if got := passOrder(order(60, 0)); got.broken || got.checked != 60 {
		t.Errorf("in order: got %+v", got)
	}
	if got := passOrder(order(60, 1)); !got.broken || got.violated != 60 || !strings.Contains(got.sentence, "the elapsed time goes with the tokens of the pass after (rank correlation 1.00") {
		t.Errorf("shifted by one: got %+v", got)
	}
	if got := passOrder(order(60, -1+101)); !got.broken || !strings.Contains(got.sentence, "of the pass before") {
		t.Errorf("shifted back by one: got %+v", got)
	}
	wanted{text: "fewer than 50 logged passes"}.compare(t, "49 passes", passOrder(order(49, 0)))
	if got := ranks([]float64{5, 1, 5, 3}); fmt.Sprint(got) != "[1 -1.5 1 -0.5]" {
		t.Errorf("got %v", got)
	}
	if correlation([]float64{1, 1}, []float64{1, 2}) != 0 || math.Abs(correlation([]float64{1, 2, 3}, []float64{2, 4, 6})-1) > 1e-12 {
		t.Error("a constant column has no correlation")
	}
}

// TestClientReadings: tokens of clients against journeys and against passes, answers that come at once, and steps of outputs.
func TestClientReadings(t *testing.T) {
	some := trace.Some[int64]
	joined := func(client, server int64) *facts {
		f := emptyFacts()
		f.run.Requests = []trace.Request{{CoreID: trace.Some("c"), PromptTokens: some(100), OutputTokens: some(server)}}
		f.run.Observed = []trace.ObservedRequest{{CoreID: trace.Some("c"), PromptTokens: some(100), OutputTokens: some(client)}}
		return f
	}
	wanted{1, 0, 0, false, ""}.compare(t, "7 tokens more of 100", clientTokens(joined(107, 100)))
	wanted{1, 1, 8, true, "1 of 1 requests have other prompt or output tokens in the client's file than by the server, by up to 8"}.compare(t, "8 more", clientTokens(joined(108, 100)))
	sums := func(prompt, output, context, generated int64) *facts {
		f := emptyFacts()
		f.run.Observed = []trace.ObservedRequest{{PromptTokens: some(prompt), OutputTokens: some(output)}}
		f.run.Iterations = []trace.Iteration{{Form: trace.IterationLog, Index: 1, ContextTokens: context}, {Form: trace.IterationLog, Index: 2, GenerationTokens: generated}}
		return f
	}
	wanted{1, 0, 1.1, false, ""}.compare(t, "a tenth more output", clientTokens(sums(100, 111, 100, 100)))
	wanted{1, 1, 1.11, true, "111 output tokens after the first, the passes of the log made 100"}.compare(t, "11 % more output", clientTokens(sums(100, 112, 100, 100)))
	wanted{1, 1, 1.2, true, "120 prompt tokens that were not cached, the passes of the log computed 100"}.compare(t, "a fifth more prompt", clientTokens(sums(120, 101, 100, 100)))
	wanted{text: "no journeys, spans or complete passes"}.compare(t, "no output", clientTokens(sums(100, 1, 100, 100)))
	cached := sums(120, 101, 100, 100)
	cached.run.Observed[0].CachedTokens = some(20)
	wanted{1, 0, 1, false, ""}.compare(t, "20 of them cached", clientTokens(cached))

	for at, broken := range map[int]bool{1: false, 2: true} {
		f := emptyFacts()
		for i := range 10 {
			o := trace.ObservedRequest{TTFTUs: trace.Some(5.0), E2EUs: trace.Some(9.0), OutputTokens: some(8)}
			if i < at {
				o.TTFTUs.V = 9
			}
			f.run.Observed = append(f.run.Observed, o, trace.ObservedRequest{TTFTUs: trace.Some(9.0), E2EUs: trace.Some(9.0), OutputTokens: some(7)})
		}
		wanted{10, at, float64(at) / 10, broken, fmt.Sprintf("%d of 10 answers of 8 tokens and more come at once", at)}.compare(t, "at once", clientStreams(f))
	}
	f := emptyFacts()
	for i := range 4 {
		f.run.Requests = append(f.run.Requests, trace.Request{FirstTokenStep: some(10), FinishedStep: some(20), OutputTokens: some(int64(11 + i))})
	}
	wanted{4, 1, 3, true, "1 of 4 journeys have other output tokens than steps between their first and last token, by up to 3"}.compare(t, "output steps", outputSteps(f))
	f.run.Requests = nil
	wanted{text: "no journey states"}.compare(t, "no journeys", outputSteps(f))
}

// TestMemoryReadings: the blocks of a run against the memory that the device leaves, and another description that gives them.
func TestMemoryReadings(t *testing.T) {
	d := testkit.Llama8B()
	h, _ := deploy.Datasheet("H100")
	d.Hardware = h
	fits, err := d.EstimateKVBlocks()
	if err != nil {
		t.Fatal(err)
	}
	two := *d
	two.TP = 2
	double, err := two.EstimateKVBlocks()
	if err != nil {
		t.Fatal(err)
	}
	of := func(blocks int64) *facts {
		own := *d
		own.Engine.KVBlocksGPU = trace.Some(blocks)
		return &facts{run: &trace.Run{}, dep: &own}
	}
	near := func(share float64) int64 { return int64(math.Round(share * float64(fits))) }
	ratio := func(blocks int64) float64 { return float64(blocks) / float64(fits) }
	wanted{1, 0, 1, false, ""}.compare(t, "what fits", poolOfMemory(of(fits)))
	wanted{1, 0, ratio(near(1.149)), false, ""}.compare(t, "15 % more", poolOfMemory(of(near(1.149))))
	wanted{1, 1, ratio(near(1.151)), true, "gpu_memory_utilization in run.yaml is wrong"}.compare(t, "beyond 15 %", poolOfMemory(of(near(1.151))))
	wanted{text: "their number may have been set by hand"}.compare(t, "a fifth", poolOfMemory(of(near(0.2))))
	wanted{1, 1, ratio(double), true, "tensor_parallel_size in run.yaml may be wrong: 2 gives this size"}.compare(t, "that of tp 2", poolOfMemory(of(double)))
	byHand := of(near(3))
	byHand.dep.Engine.Extra = map[string]any{"kv_cache_memory_bytes": 1e9}
	wanted{text: "run.yaml sets kv_cache_memory_bytes"}.compare(t, "set in run.yaml", poolOfMemory(byHand))
	contradicted := of(near(3))
	contradicted.Findings = []trace.Finding{{Code: source.CodeRunContradicted, Setting: "vllm.block_size"}}
	wanted{text: "run.yaml states other blocks than the files"}.compare(t, "contradicted", poolOfMemory(contradicted))
	wanted{text: "run.yaml states other blocks than the files"}.compare(t, "contradicted", memory(contradicted))
	wanted{text: "the size of the KV cache"}.compare(t, "no blocks", memory(of(0)))
	if got := memory(of(fits)); got.broken || math.Abs(got.largest-1) > 1e-9 {
		t.Errorf("what fits: got %+v", got)
	}
	if got := memory(of(2 * fits)); !got.broken || got.violated != 1 || got.largest < 1.5 {
		t.Errorf("twice what fits: got %+v", got)
	}
	for bytes, broken := range map[float64]bool{2: false, 1: true, 1.99: true, 0: false, 4: false} {
		f := of(1)
		f.dep.Model.BytesPerActivation = bytes
		if got := computeType(f); got.broken != broken || got.largest != bytes || got.checked != 1 {
			t.Errorf("%g bytes: got %+v", bytes, got)
		}
	}
	some := trace.Some[int64]
	pool := of(100)
	for i := range 3 {
		pool.run.Steps = append(pool.run.Steps, trace.Step{BlocksTotal: 99 + int64(i)*2, BlocksFree: 50, RunningDepth: 1, KVUsage: 1 - 50/float64(99+i*2)})
	}
	wanted{3, 1, 3, true, "1 of 3 steps have another kv_blocks_total than the 100 of run.yaml, by up to 3"}.compare(t, "sizes of the pool", poolSize(pool))
	wanted{3, 0, 0, false, ""}.compare(t, "used blocks", usedBlocks(pool))
	// A request of max_model_len, 64 tokens of 16, takes 4 blocks, one more ahead and
	// two of slack: seven requests and two more blocks may use 51. Three of them run.
	pool.dep.Engine.MaxModelLen = some(64)
	for i := range pool.run.Steps {
		pool.run.Steps[i].RunningDepth = 3
		pool.run.Steps[i].WaitingDepth = 4
	}
	wanted{3, 1, 32, true, "more blocks are in use than requests of max_model_len tokens take"}.compare(t, "more blocks than requests take", usedBlocks(pool))
	pool.dep.Engine.CPUOffloading = true
	wanted{3, 0, 0, false, ""}.compare(t, "blocks that are being copied to the CPU", usedBlocks(pool))
	pool.dep.Engine.CPUOffloading = false
	pool.dep.Engine.MaxModelLen = some(8192)
	pool.run.Steps[0].KVUsage += 0.0101
	wanted{3, 1, 0.9999, true, "kv_usage_ratio is not 1 - free / total"}.compare(t, "another usage", usedBlocks(pool))
	pool.run.Steps[0].KVUsage -= 0.0101
	pool.run.Steps[0].ScheduledTokens, pool.run.Steps[0].NumDecodeReqs = 1, 52
	wanted{3, 1, 3, true, "fewer blocks are in use than requests run"}.compare(t, "more requests than blocks", usedBlocks(pool))
}

// TestFoundOfClients: findings about the file of a client violate the identity of their code.
func TestFoundOfClients(t *testing.T) {
	run := &trace.Run{Observed: make([]trace.ObservedRequest, 7)}
	f := &facts{run: run, Evidence: Evidence{Findings: []trace.Finding{
		{Code: source.CodeClientTotals, Message: "a"}, {Code: source.CodeClientTotals, Message: "b"}, {Code: source.CodeCut, Message: "c"},
	}}}
	wanted{7, 2, 2, true, "a; b"}.compare(t, "totals", clientTotals(f))
	wanted{7, 0, 0, false, ""}.compare(t, "load", clientLoads(f))
	for _, c := range []struct{ code, effect trace.Code }{{source.CodeClientLoad, ""}, {source.CodeClientRate, result.IdentityUndecided}} {
		f.Findings = append(f.Findings, trace.Finding{Code: c.code, Message: string(c.code)})
		if r := clientLoads(f); !r.broken || r.effect != string(c.effect) || r.sentence != string(c.code) {
			t.Errorf("%s: got %+v, want effect %q", c.code, r, c.effect)
		}
	}
	wanted{text: "no requests of clients"}.compare(t, "no clients", clientTotals(&facts{run: &trace.Run{}}))
}

// TestTimesDiffer: a time that requests of different lengths share, sent at different times, was cut off or replaced.
func TestTimesDiffer(t *testing.T) {
	with := func(n int, change func(i int, l *clientRequest)) *facts {
		f := emptyFacts()
		for i := range n {
			l := clientRequest{sentUs: float64(i), ttftUs: 1e4 + 0.25 + 10.5*float64(i), e2eUs: 1e5 + 0.25 + 10.25*float64(i), prompt: float64(10 + i%9), output: float64(20 + i%8)}
			change(i, &l)
			f.loads = append(f.loads, l)
		}
		return f
	}
	cut := func(most float64) func(int, *clientRequest) {
		return func(_ int, l *clientRequest) { l.e2eUs = math.Min(l.e2eUs, most) }
	}
	wanted{200, 0, 0, false, ""}.compare(t, "all differ", timesEqual(with(100, func(int, *clientRequest) {})))
	// The last six of a hundred have one time; with the sixth the fifth of lengths is there.
	wanted{200, 6, 0.06, true, "6 of 100 requests of different lengths that were sent at different times have the same time of the whole request, 100.964 ms"}.
		compare(t, "six are cut off", timesEqual(with(100, cut(1e5+10.25*94+0.125))))
	wanted{200, 0, 0, false, ""}.compare(t, "four are cut off", timesEqual(with(100, cut(1e5+10.25*96+0.125))))
	wanted{800, 0, 0, false, ""}.compare(t, "2 % are cut off", timesEqual(with(400, cut(1e5+10.25*392+0.125))))
	wanted{200, 0, 0, false, ""}.compare(t, "sent together", timesEqual(with(100, func(i int, l *clientRequest) {
		l.sentUs = float64(i / 50)
		l.ttftUs = 1e4 + 0.5 + float64(i/50)
	})))
	wanted{200, 0, 0, false, ""}.compare(t, "equal requests", timesEqual(with(100, func(_ int, l *clientRequest) {
		l.prompt = 10
		l.ttftUs = 1e4 + 0.5
	})))
	wanted{text: "no times finer than 1 ms"}.compare(t, "whole ms", timesEqual(with(100, func(_ int, l *clientRequest) { l.ttftUs, l.e2eUs = 1e4, 1e5 })))
}

// TestStepStampsOfTwoEngines: a step that begins a second before the one before is of another engine, and schedule() of a step ends
// before that of the next one begins.
func TestStepStampsOfTwoEngines(t *testing.T) {
	with := func(change func(i int, s *trace.Step)) *facts {
		f := &facts{run: &trace.Run{}}
		for i := range int64(200) {
			s := trace.Step{ID: 7 + i, TsStartNs: 5e9 + i*10e6, TsEndNs: 5e9 + i*10e6 + 9e6, DurationUs: 9_000}
			change(int(i), &s)
			f.run.Steps = append(f.run.Steps, s)
		}
		return f
	}
	wanted{200, 0, 0, false, ""}.compare(t, "one after the other", stepStamps(with(func(int, *trace.Step) {})))
	back := func(byNs int64) *facts {
		return with(func(i int, s *trace.Step) {
			if i >= 100 {
				s.TsStartNs -= byNs
				s.TsEndNs -= byNs
			}
		})
	}
	if got := stepStamps(back(1_010_000_001)); !got.broken || got.violated < 1 || math.Abs(got.largest-1008) > 1e-3 {
		t.Errorf("two engines: got %+v", got)
	}
	wanted{200, 2, 19, false, ""}.compare(t, "a small step back", stepStamps(with(func(i int, s *trace.Step) {
		if i == 100 {
			s.TsStartNs -= 20e6
		}
	})))
	long := func(every int, endNs int64) *facts {
		return with(func(i int, s *trace.Step) {
			if i%every == 0 {
				s.TsEndNs = s.TsStartNs + endNs
				s.DurationUs = 0
			}
		})
	}
	wanted{200, 0, 0, false, ""}.compare(t, "within the slack", stepStamps(long(2, 11e6)))
	wanted{200, 100, 1e3*3 - 11, true, "100 of 200 steps end before they begin or after the next one began"}.compare(t, "another unit", stepStamps(long(2, 3e9)))
	wanted{200, 200, 8.991 - 1, true, "have another duration"}.compare(t, "durations in ms", stepStamps(with(func(_ int, s *trace.Step) { s.DurationUs = 9 })))
	wanted{200, 0, 0, false, ""}.compare(t, "durations rounded", stepStamps(with(func(_ int, s *trace.Step) { s.DurationUs = 8_100 })))
}

// TestPassTokens: without drafts the decodes of a logged pass have one token each.
func TestPassTokens(t *testing.T) {
	with := func(change func(i int, it *trace.Iteration)) *facts {
		f := &facts{run: &trace.Run{Aggregate: &trace.Aggregate{}}, dep: &deploy.Deployment{}}
		for i := range 400 {
			it := trace.Iteration{Form: trace.IterationLog, GenerationReqs: 3, GenerationTokens: 3}
			if i%20 == 0 {
				it.ContextReqs, it.ContextTokens = 1, 50
			}
			change(i, &it)
			f.run.Iterations = append(f.run.Iterations, it)
		}
		return f
	}
	mixed := func(i int, it *trace.Iteration) {
		it.GenerationTokens += it.ContextTokens
		it.GenerationReqs += it.ContextReqs
	}
	wanted{400, 0, 0, false, ""}.compare(t, "one token each", stepTokens(with(func(int, *trace.Iteration) {})))
	wanted{400, 20, 49, true, "in 20 of 400 logged passes the decodes have other than one token each"}.compare(t, "with the prompts", stepTokens(with(mixed)))
	wanted{400, 40, 1, false, ""}.compare(t, "resumed", stepTokens(with(func(i int, it *trace.Iteration) {
		if i%10 == 1 {
			it.GenerationTokens++
		}
	})))
	wanted{400, 400, 3, true, "in 400 of 400"}.compare(t, "drafts", stepTokens(with(func(_ int, it *trace.Iteration) { it.GenerationTokens *= 2 })))
	drafts := with(mixed)
	drafts.run.Aggregate.Drafts = true
	wanted{text: "passes verify drafted tokens"}.compare(t, "stated drafts", stepTokens(drafts))
	other := with(func(_ int, it *trace.Iteration) { it.Form = trace.IterationTensorRT })
	wanted{text: "fewer than 20 logged passes of vLLM"}.compare(t, "another engine", stepTokens(other))
}

// TestAloneUntilFirstToken: on an idle server a first token waits for its prompt alone, so that less is allowed for the rest.
func TestAloneUntilFirstToken(t *testing.T) {
	loads := []clientRequest{{sentUs: 10, ttftUs: 5, e2eUs: 20}, {sentUs: 0, ttftUs: 2, e2eUs: 10}, {sentUs: 14, ttftUs: 2, e2eUs: 3}, {sentUs: 40, ttftUs: 5, e2eUs: 9}}
	findAlone(loads)
	for i, want := range []bool{false, true, false, true} {
		if loads[i].isAlone != want {
			t.Errorf("request %d: alone %v, want %v", i, loads[i].isAlone, want)
		}
	}
	with := func(gapUs, moreUs float64) *facts {
		f := &facts{run: &trace.Run{}, dep: &deploy.Deployment{}, price: func(*library.Batch) priorTime { return priorTime{900, 1000} }}
		for i := range 30 {
			f.loads = append(f.loads, clientRequest{sentUs: gapUs * float64(i), ttftUs: 1000 + moreUs, e2eUs: 2000 + moreUs, prompt: 10, output: 5})
		}
		findAlone(f.loads)
		return f
	}
	for _, c := range []struct {
		gapUs, moreUs float64
		broken        bool
	}{{1e6, 240e3, false}, {1e6, 260e3, true}, {10, 260e3, false}, {10, 490e3, false}, {10, 510e3, true}} {
		if got := clientDelays(with(c.gapUs, c.moreUs)); got.broken != c.broken || got.checked != 30 || math.Abs(got.largest-c.moreUs/1e6) > 1e-9 {
			t.Errorf("%+v: got %+v", c, got)
		}
	}
}

// TestPromptsOfLog: clients with all output tokens of a log have its prompt tokens too.
func TestPromptsOfLog(t *testing.T) {
	with := func(prompt, output int64) *facts {
		f := &facts{run: &trace.Run{Aggregate: &trace.Aggregate{}}, dep: &deploy.Deployment{}}
		for i := range 50 {
			f.run.Iterations = append(f.run.Iterations, trace.Iteration{Index: int64(i), Form: trace.IterationLog, ContextReqs: 1, ContextTokens: 100,
				GenerationReqs: 20, GenerationTokens: 20})
			f.run.Observed = append(f.run.Observed, trace.ObservedRequest{PromptTokens: trace.Some(prompt), OutputTokens: trace.Some(output)})
		}
		return f
	}
	wanted{50, 0, 1, false, ""}.compare(t, "all of both", clientTokens(with(100, 21)))
	wanted{50, 0, 1, false, ""}.compare(t, "within the tolerance", clientTokens(with(85, 21)))
	wanted{50, 50, 0.84, true, "the requests of the client have 4200 prompt tokens, the passes of the log computed 5000"}.compare(t, "words", clientTokens(with(84, 21)))
	wanted{50, 0, 0.95, false, ""}.compare(t, "other requests in the log", clientTokens(with(84, 20)))
}

// TestDecodesOfASample: of a sample of steps, a decode of which neighbours are not recorded counts where nearly all steps are
// decodes.
func TestDecodesOfASample(t *testing.T) {
	// facts of so many decodes and steps with prompts; each step has no other within distance. A decode takes 20 us of 10.
	of := func(decodes, prompts, distance int) *facts {
		f := emptyFacts()
		for i := range decodes + prompts {
			f.batches = append(f.batches, batchTime{at: i * distance, us: 20, prior: priorTime{10, 10}, prefill: i >= decodes})
		}
		return f
	}
	for _, c := range []struct {
		what string
		f    *facts
		want int // decodes that count
	}{
		{"a sample", of(100, 25, 10), 100},
		{"too few", of(99, 0, 10), 0},
		{"too many prompts", of(100, 26, 10), 0},
		{"all recorded", of(100, 0, 1), 97},
		{"few of them among decodes", of(22, 200, 1), 19},
	} {
		decode, prompt := c.f.priorRatios()
		if len(decode) != c.want || len(decode) > 0 && stat.Median(decode) != 2 {
			t.Errorf("%s: got %d decodes and %d prompts, want %d decodes at twice the time", c.what, len(decode), len(prompt), c.want)
		}
	}
}

// TestTimesOfOneKind: times that another device explains fail if they are shorter and of two kinds; of one kind they leave the
// verdict open, and longer ones of one kind are only named.
func TestTimesOfOneKind(t *testing.T) {
	for _, c := range []struct {
		kinds   int
		largest float64
		effect  string
	}{
		{2, 0.5, result.IdentityFails},
		{1, 0.5, result.IdentityUndecided},
		{2, 2, result.IdentityUndecided},
		{1, 2, result.IdentityNamed},
	} {
		f := onH100()
		f.dep.Hardware, _ = deploy.Datasheet("A100")
		r := reading{checked: 40, violated: 40, kinds: c.kinds, largest: c.largest, broken: true, effect: result.IdentityNamed}
		onlyOnH100 := func(f *facts) reading {
			if f.dep.Hardware.Name == "H100-SXM-80GB" {
				return reading{checked: 40, kinds: c.kinds, largest: 1.1}
			}
			return reading{checked: 40, kinds: c.kinds, largest: 3, broken: true}
		}
		f.weighPrior(&r, onlyOnH100, priorNamed)
		if r.effect != c.effect {
			t.Errorf("%d kinds, %g times: got %q (%s), want %q", c.kinds, c.largest, r.effect, r.sentence, c.effect)
		}
	}
}
