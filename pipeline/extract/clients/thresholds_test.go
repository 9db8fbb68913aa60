package clients

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// TestLevelsAtTheLimits: 100 prompt and 101 output tokens, TTFT 100 ms and 100 gaps of 39 ms: 4 s a request. Each limit is
// met just so, and then not.
func TestLevelsAtTheLimits(t *testing.T) {
	good := Level{RateRPS: 2, Clients: 8, Requests: 400, PromptTokens: 100, OutputTokens: 101, TTFTMeanMs: 100, ITLMs: 39}
	for _, c := range []struct {
		name   string
		change func(l *Level)
		want   string
	}{
		{"as it is", func(*Level) {}, ""},
		{"the least ITL", func(l *Level) { *l = Level{ITLMs: 0.01} }, ""},
		{"less", func(l *Level) { *l = Level{ITLMs: 0.0099} }, "ITL: got 0.0099 ms, want 0.01 to 5000; is it in another unit?"},
		{"the most ITL", func(l *Level) { *l = Level{ITLMs: 5000} }, ""},
		{"more", func(l *Level) { *l = Level{ITLMs: 5001} }, "ITL: got 5001 ms, want 0.01 to 5000; is it in another unit?"},
		{"a tenth of E2E", func(l *Level) { l.E2EMs, l.RateRPS = 401, 0 }, ""},
		{"less than a tenth", func(l *Level) { l.E2EMs, l.RateRPS = 399, 0 }, "E2E: got 399 ms, want about TTFT + (output - 1) x ITL = 4000 ms; is one in another unit?"},
		{"ten times E2E", func(l *Level) { l.E2EMs, l.RateRPS = 40_000, 0 }, ""},
		{"more than ten times", func(l *Level) { l.E2EMs, l.RateRPS = 40_010, 0 }, "E2E: got 4.001e+04 ms"},
		{"a median TTFT", func(l *Level) { l.TTFTMeanMs, l.TTFTMedianMs, l.E2EMs, l.RateRPS = 0, 100, 401, 0 }, ""},
		{"8 of 6.4 clients", func(l *Level) { l.RateRPS = 2.5 }, ""},
		{"more than a closed loop has", func(l *Level) { l.RateRPS = 2.51 }, "clients: got 8, want about requests/s x latency = 10.04 (Little's law)"},
		{"60 %", func(l *Level) { l.RateRPS = 1.2001 }, ""},
		{"less than 60 %", func(l *Level) { l.RateRPS = 1.19 }, "clients: got 8, want about requests/s x latency = 4.76"},
		{"less, of 39 requests", func(l *Level) { l.RateRPS, l.Requests = 1.19, 39 }, ""},
		{"less, of 40 requests: five a client", func(l *Level) { l.RateRPS, l.Requests = 1.19, 40 }, "clients: got 8"},
		{"less, of 29 requests of two clients", func(l *Level) { l.RateRPS, l.Clients, l.Requests = 0.29, 2, 29 }, ""},
		{"less, of 30 requests of two clients", func(l *Level) { l.RateRPS, l.Clients, l.Requests = 0.29, 2, 30 }, "clients: got 2"},
		{"by E2E", func(l *Level) { l.E2EMs, l.RateRPS = 8000, 1.25 }, ""},
		{"more by E2E", func(l *Level) { l.E2EMs, l.RateRPS = 8000, 1.26 }, "clients: got 8, want about requests/s x latency = 10.08"},
		{"in flight", func(l *Level) { l.Clients, l.Concurrency = 0, 5.01 }, ""},
		{"more in flight", func(l *Level) { l.Clients, l.Concurrency = 0, 4.99 }, "requests in flight: got 4.99, want about requests/s x latency = 8 (Little's law)"},
		{"fewer in flight", func(l *Level) { l.Clients, l.Concurrency = 0, 13.4 }, "requests in flight: got 13.4"},
		{"fewer in flight, of 29 requests", func(l *Level) { l.Clients, l.Concurrency, l.Requests = 0, 13.4, 29 }, ""},
		{"no rate", func(l *Level) { l.Clients, l.RateRPS = 1, 0 }, ""},
	} {
		l := good
		c.change(&l)
		if got := l.contradiction(); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestFallingTTFT: of five levels of one shape, the first of which is not compared, TTFT falls in two of six pairs.
func TestFallingTTFT(t *testing.T) {
	made := func(ttfts ...float64) *LevelFile {
		f := &LevelFile{Dropped: map[trace.Code]int{}}
		for i, ttft := range ttfts {
			f.Levels = append(f.Levels, Level{Clients: 1 << i, PromptTokens: 100, OutputTokens: 10, TTFTMeanMs: ttft, ITLMs: 1, Line: int64(i + 2), Sweep: "s"})
		}
		return f
	}
	for _, c := range []struct {
		name  string
		f     *LevelFile
		pairs string
	}{
		{"two of six", made(1, 100, 151, 200, 100), "2 of 6"},
		{"by no more than a third", made(1, 100, 150, 200, 100), ""},
		{"one of six", made(1, 100, 149, 200, 100), ""},
		{"only below the lowest load", made(900, 100, 149, 150, 200), ""},
		{"four levels", made(1, 100, 151, 100), ""},
		{"three of 15", made(1, 30, 60, 100, 100, 200, 66), "3 of 15"},
		{"two of 15, which chance may do", made(1, 30, 60, 98, 101, 40, 200), ""},
	} {
		n := len(c.f.Levels)
		c.f.dropFalling()
		var got []string
		for _, finding := range c.f.Findings {
			got = append(got, finding.Message)
		}
		if c.pairs == "" {
			if len(c.f.Levels) != n || len(got) != 0 {
				t.Errorf("%s: got %q", c.name, got)
			}
			continue
		}
		want := "s:2: TTFT falls by a third or more while the load grows in " + c.pairs + " pairs of levels; is a column in another order?"
		if len(c.f.Levels) != 0 || len(got) != n || got[0] != want || c.f.Dropped[source.CodeBadRecord] != n {
			t.Errorf("%s: kept %d, got %q, want %q", c.name, len(c.f.Levels), got, want)
		}
	}
	// Loads nearer than 1.3 times are not compared, and other shapes are other levels.
	f := made(1, 100, 151, 200, 100)
	for i := range f.Levels {
		f.Levels[i].Clients = 100 + 10*i
	}
	if f.dropFalling(); len(f.Levels) != 5 {
		t.Errorf("near loads: got %v", f.Findings)
	}
	f = made(1, 100, 151, 200, 100)
	f.Levels[4].PromptTokens = 111
	if f.dropFalling(); len(f.Levels) != 5 {
		t.Errorf("other prompts: got %v", f.Findings)
	}
	for _, c := range []struct {
		l    Level
		want float64
	}{{Level{Clients: 7, OfferedRPS: 3, RateRPS: 2}, 7}, {Level{OfferedRPS: 3, RateRPS: 2}, 3}, {Level{RateRPS: 2}, 2}} {
		if got := c.l.load(); got != c.want {
			t.Errorf("%+v: got the load %g", c.l, got)
		}
	}
}

// TestLoadsAtTheLimits: n requests that are sent evenly and take lengthS each, against the rate and the limit that a file
// states.
func TestLoadsAtTheLimits(t *testing.T) {
	even := func(n int, apartS, lengthS float64) (out []sentRequest) {
		for i := range n {
			out = append(out, sentRequest{float64(i) * apartS, lengthS})
		}
		return out
	}
	base := offeredLoad{rateKey: "rate", limitKey: "limit", sends: even(101, 0.25, 0.1)} // 4 a second, one in flight
	for _, c := range []struct {
		name   string
		change func(o *offeredLoad)
		want   string
	}{
		{"as asked", func(o *offeredLoad) { o.rate = 4 }, ""},
		// 1 + 0.1 + 5 / sqrt(101) = 1.5975.
		{"faster than chance", func(o *offeredLoad) { o.rate = 2.49 }, "rate states 2.49 requests a second, its 101 requests were sent at 4"},
		{"as fast as chance", func(o *offeredLoad) { o.rate = 2.51 }, ""},
		{"slower than chance", func(o *offeredLoad) { o.rate = 6.4 }, "rate states 6.4 requests a second, its 101 requests were sent at 4"},
		{"as slow as chance", func(o *offeredLoad) { o.rate = 6.38 }, ""},
		// 1 + 0.1 + 5 / sqrt(101 * 100) = 1.1498; a client may be slower by half.
		{"less bursty, faster", func(o *offeredLoad) { o.rate, o.burstiness = 3.47, 100 }, "rate states 3.47"},
		{"less bursty, as fast as chance", func(o *offeredLoad) { o.rate, o.burstiness = 3.49, 100 }, ""},
		{"less bursty, a slow client", func(o *offeredLoad) { o.rate, o.burstiness = 5.99, 100 }, ""},
		{"less bursty, slower", func(o *offeredLoad) { o.rate, o.burstiness = 6.01, 100 }, "rate states 6.01"},
		{"no burstiness", func(o *offeredLoad) { o.rate, o.burstiness = 2.51, math.NaN() }, ""},
		{"a ramp", func(o *offeredLoad) { o.rate, o.isRampUp = 40, true }, ""},
		{"no rate", func(o *offeredLoad) { o.rate = math.Inf(1) }, ""},
		{"19 requests", func(o *offeredLoad) { o.rate, o.sends = 40, o.sends[:19] }, ""},
		{"20 requests", func(o *offeredLoad) { o.rate, o.sends = 40, o.sends[:20] }, "rate states 40 requests a second, its 20 requests were sent at 4"},
		{"an unknown time", func(o *offeredLoad) { o.rate, o.sends = 40, append(slices.Clone(o.sends), sentRequest{math.NaN(), 1}) }, ""},
		{"all at once", func(o *offeredLoad) { o.rate, o.sends = 40, even(30, 0, 1) }, ""},
		// 20 in flight of a limit of 18: 1.05 * 18 + 1 = 19.9.
		{"more than the limit", func(o *offeredLoad) { o.limit, o.sends = 18, even(101, 0.05, 0.99) }, "limit states 18 requests at once, its 101 requests are up to 20"},
		{"within the limit", func(o *offeredLoad) { o.limit, o.sends = 19, even(101, 0.05, 0.99) }, ""},
		{"less than half of the limit", func(o *offeredLoad) { o.limit, o.sends = 41, even(101, 0.05, 0.99) }, "limit states 41 requests at once, its 101 requests are up to 20"},
		{"half of the limit", func(o *offeredLoad) { o.limit, o.sends = 40, even(101, 0.05, 0.99) }, ""},
		{"less than half, at a rate", func(o *offeredLoad) { o.limit, o.rate, o.sends = 41, 20, even(101, 0.05, 0.99) }, ""},
		{"fewer requests than twice the limit", func(o *offeredLoad) { o.limit, o.sends = 51, even(101, 0.05, 0.99) }, ""},
		{"a limit of three", func(o *offeredLoad) { o.limit, o.sends = 3, even(101, 0.05, 0.01) }, ""},
		{"a limit of four", func(o *offeredLoad) { o.limit, o.sends = 4, even(101, 0.05, 0.02) }, "limit states 4 requests at once, its 101 requests are up to 1"},
		{"of requests that are over at once", func(o *offeredLoad) { o.limit, o.sends = 4, even(101, 0.05, 0.019) }, ""},
		{"a rate that the limit holds back", func(o *offeredLoad) { o.limit, o.rate, o.sends = 20, 100, even(101, 0.05, 0.99) }, ""},
		{"a rate that the limit holds back, and faster", func(o *offeredLoad) { o.limit, o.rate, o.sends = 20, 10, even(101, 0.05, 0.99) }, "rate states 10 requests a second"},
		{"a rate that it does not", func(o *offeredLoad) { o.limit, o.rate, o.sends = 21, 100, even(101, 0.05, 0.99) }, "rate states 100"},
	} {
		o := base
		c.change(&o)
		texts, isFast := o.unlike()
		if got := strings.Join(texts, "; "); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if want := strings.Contains(c.name, "faster"); isFast != want {
			t.Errorf("%s: got faster %t, want %t", c.name, isFast, want)
		}
	}
	if got := mostInFlight([]sentRequest{{0, 2}, {1, 1}, {2, 1}, {2, 0}, {1.5, math.NaN()}}); got != 2 {
		t.Errorf("got %g in flight, want 2: one that ends as another begins is over", got)
	}
	some := trace.Some[int64]
	sends := sendsOf([]trace.ObservedRequest{{SendNs: some(1_500_000_000), E2EUs: trace.Some(250_000.0)}, {SendNs: some(5)}, {E2EUs: trace.Some(1.0)}})
	if !slices.Equal(sends, []sentRequest{{1.5, 0.25}}) {
		t.Errorf("got %v", sends)
	}
}

// TestStatedFigures: a total that differs by 2 % of the larger is the same; what a program that did not compute it writes is
// none; figures of requests that the tool derives may be others in 3 of 100.
func TestStatedFigures(t *testing.T) {
	for _, c := range []struct {
		t             statedTotal
		want          string
		isPlaceholder bool
	}{
		{statedTotal{"k", "tokens", 100, 98, 0.02, 1}, "", false},
		{statedTotal{"k", "tokens", 100, 97.9, 0.02, 1}, "k states 100 tokens, its requests have 97.9", false},
		{statedTotal{"k", "tokens", 98, 100, 0.02, 1}, "", false},
		{statedTotal{"k", "ms", 0.1, 0.2, 0.02, 1e3}, "k states 100 ms, its requests have 200", false},
		{statedTotal{"k", "ms", 0.001, 0.2, 0.02, 1e3}, "k states 1 ms, its requests have 200", true},
		{statedTotal{"k", "s", 1, 2, 0.02, 0}, "k states 1 s, its requests have 2", true},
		{statedTotal{"k", "s", 0, 2, 0.02, 1}, "k states 0 s, its requests have 2", true},
		{statedTotal{"k", "s", -4, 2, 0.02, 1}, "k states -4 s, its requests have 2", true},
		{statedTotal{"k", "s", math.NaN(), 2, 0.02, 1}, "", false},
		{statedTotal{"k", "s", 2, math.NaN(), 0.02, 1}, "", false},
	} {
		if got := c.t.unlike(); got != c.want || c.want != "" && c.t.isPlaceholder() != c.isPlaceholder {
			t.Errorf("%+v: got %q, placeholder %t, want %q, %t", c.t, got, c.t.isPlaceholder(), c.want, c.isPlaceholder)
		}
	}
	for _, c := range []struct {
		others, all int
		want        bool
	}{{4, 4, false}, {5, 5, true}, {5, 166, true}, {5, 167, false}} {
		var s requestSums
		for i := range c.all {
			of := 98.0
			if i < c.others {
				of = 97.9
			}
			s.derive(fmt.Sprint("request ", i), []derivedFigure{{"a", 0, 5}, {"b", 5, 0}, {"c", 100, of}})
		}
		want := fmt.Sprintf("in %d of %d requests figures that the tool derives are not those of the others, first in request 0: c states 100, its other figures give 97.9", c.others, c.all)
		if got := s.contradictions(); (len(got) == 1) != c.want || c.want && got[0] != want {
			t.Errorf("%d of %d: got %q", c.others, c.all, got)
		}
	}
	var s requestSums
	s.add(10, 3, 0.5, math.NaN())
	s.add(20, 4, math.NaN(), 2)
	if s.requests != 2 || s.prompts != 30 || s.outputs != 7 || s.ttftS != 0.5 || s.ttfts != 1 || s.endS != 2 || s.ends != 1 {
		t.Errorf("got %+v", s)
	}
	if !math.IsNaN(mean(3, 0)) || mean(3, 2) != 1.5 || !math.IsNaN(numberOr("x")) || numberOr(2.5) != 2.5 {
		t.Error("the mean of nothing is not known")
	}
	for _, c := range []struct {
		client, run string
		want        bool
	}{{"Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct", false}, {"Qwen3-32B", "meta-llama/Llama-3.1-8B", true}, {"served", "Llama-3.1-8B", false}, {"m7", "", false}} {
		if got := namesOtherModel(c.client, c.run); got != c.want {
			t.Errorf("%s of %s: got %t", c.client, c.run, got)
		}
	}
}

// TestLimitsInFlight: a client keeps four requests in flight in 20 of 100 sends, each right after an answer.
func TestLimitsInFlight(t *testing.T) {
	// Requests of 1 s: three are sent at once, then a fourth; each of `after` more follows the end of one, lateMs later.
	made := func(most, after int, lateMs int64, alone int) *Reader {
		r := &Reader{Acc: source.NewAccount(nil)}
		add := func(ms, endMs int64) {
			r.Requests = append(r.Requests, trace.ObservedRequest{SendNs: trace.Some(ms * 1e6), LastChunkNs: trace.Some(endMs * 1e6)})
		}
		for i := range alone {
			add(int64(100_000+2000*i), int64(100_000+2000*i+1000))
		}
		for i := range most - 1 {
			add(1, int64(60_000+i)) // they run through
		}
		for i := range after {
			at := 10 + int64(i)*(1000+lateMs)
			add(at, at+1000)
		}
		return r
	}
	for _, c := range []struct {
		name   string
		r      *Reader
		capped bool
	}{
		{"four", made(4, 20, 1, 77), true}, {"three", made(3, 20, 1, 77), false}, {"19 sends at the limit", made(4, 19, 1, 77), false},
		{"20 of 400", made(4, 20, 1, 377), true}, {"20 of 401", made(4, 20, 1, 378), false}, {"late answers", made(4, 20, 500, 77), false},
		{"27 of 30: nine in ten", made(4, 27, 1, 0), true}, {"28 of 31: more", made(4, 28, 1, 0), false},
	} {
		c.r.findCap()
		got := messages(c.r)
		if (got != "") != c.capped {
			t.Errorf("%s: got %q", c.name, got)
		}
		if c.name == "four" && !strings.HasPrefix(got, "the client kept at most 4 requests in flight, and sent 20 of 100 requests at that limit: ") {
			t.Errorf("got %q", got)
		}
	}
}

// TestTokensInTheCache: two requests of 90 prompt tokens with 20 more by their end: 220 tokens, 13.75 blocks of 16.
func TestTokensInTheCache(t *testing.T) {
	for blocks, want := range map[int64]string{13: "2 requests were between first and last token at once, with 220 tokens in 14 KV blocks of 16; run.yaml gives the engine 13: it preempted some, or has more", 14: ""} {
		c := &Reader{Acc: source.NewAccount(nil)}
		for range 2 {
			c.Requests = append(c.Requests, trace.ObservedRequest{SendNs: trace.Some(int64(1000)), TTFTUs: trace.Some(5.0), E2EUs: trace.Some(505.0), PromptTokens: trace.Some(int64(90)), OutputTokens: trace.Some(int64(20))})
		}
		dep := &deploy.Deployment{TP: 1, Engine: vllm.Engine{BlockSize: 16, KVBlocksGPU: trace.Some(blocks)}}
		if c.checkKVBlocks(dep); messages(c) != want {
			t.Errorf("%d blocks: got %q, want %q", blocks, messages(c), want)
		}
	}
}

// TestColumnsOfATrace: columns that are missing and columns that are not known are named.
func TestColumnsOfATrace(t *testing.T) {
	for want, f := range map[string]*traceFile{
		"": {stem: "s"}, "s: lacks a, b, which count as unknown": {stem: "s", missingColumns: []string{"a", "b"}},
		"s: lacks a, which count as unknown; has c, which are not known and not read": {stem: "s", missingColumns: []string{"a"}, unknownColumns: []string{"c"}},
	} {
		c := &Reader{Acc: source.NewAccount(nil)}
		if c.reportColumns(f); messages(c) != want {
			t.Errorf("got %q, want %q", messages(c), want)
		}
	}
}
