package clients

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// answers returns n requests that are answered after 100 ms with 11 tokens until 600 ms, each then changed.
func answers(n int, change func(i int, r *trace.ObservedRequest)) *Reader {
	c := &Reader{Acc: source.NewAccount(nil)}
	for i := range n {
		r := trace.ObservedRequest{
			SendNs: trace.Some(int64(i) * 1e9), Success: trace.Some(true),
			TTFTUs: trace.Some(100e3), E2EUs: trace.Some(600e3), PromptTokens: trace.Some(int64(50)), OutputTokens: trace.Some(int64(11)),
		}
		r.FirstChunkNs = trace.Some(r.SendNs.V + 100e6)
		r.LastChunkNs = trace.Some(r.SendNs.V + 600e6)
		if change != nil {
			change(i, &r)
		}
		c.Requests = append(c.Requests, r)
	}
	return c
}

func messages(c *Reader) string {
	var out []string
	for _, f := range c.Findings {
		out = append(out, f.Message)
	}
	return strings.Join(out, "\n")
}

func withoutTTFT(c *Reader) (n int) {
	for i := range c.Requests {
		if !c.Requests[i].TTFTUs.OK {
			n++
		}
	}
	return n
}

// TestChunksAgainstTokens: four of five answers with a chunk too many are a habit, three are none; from 1.6 stamps a
// token on they are no chunks; from more than 1.02 on the tokens are too few.
func TestChunksAgainstTokens(t *testing.T) {
	chunks := func(of ...int64) func(int, *trace.ObservedRequest) {
		return func(i int, r *trace.ObservedRequest) {
			r.OutputTokens = trace.Some(int64(100))
			r.Chunks = trace.Some(of[i])
			r.ChunkGapsUs = []float64{9, 8, 7}
		}
	}
	for _, c := range []struct {
		name           string
		of             []int64
		chunks, tokens int64 // of the first answer afterwards; 0: unknown
		want           string
	}{
		{"four answers", []int64{101, 101, 101, 101}, 101, 100, ""},
		{"four of five", []int64{101, 101, 101, 101, 100}, 100, 100,
			"4 of 5 answers have one chunk more than tokens; the one without a token is not used"},
		{"three of five", []int64{101, 101, 101, 100, 100}, 101, 100, ""},
		{"1.6 stamps", []int64{160, 160, 160, 160, 160}, 0, 100, "5 answers have 1.60 stamps a token: they are not chunks and are not used"},
		{"1.59 stamps", []int64{159, 159, 159, 159, 159}, 159, 159,
			"5 answers have 795 chunks and 500 tokens, 37 % too few: no chunk is without a token, so chunks count"},
		{"1.02", []int64{110, 100, 100, 100, 100}, 110, 100, ""},
		{"1.022", []int64{111, 100, 100, 100, 100}, 111, 111,
			"5 answers have 511 chunks and 500 tokens, 2 % too few: no chunk is without a token, so chunks count"},
	} {
		r := answers(len(c.of), chunks(c.of...))
		r.compareChunksWithTokens()
		first := &r.Requests[0]
		if got := messages(r); got != c.want || first.Chunks.V != c.chunks || first.OutputTokens.V != c.tokens {
			t.Errorf("%s: got %q, %d chunks, %d tokens, want %q, %d, %d", c.name, got, first.Chunks.V, first.OutputTokens.V, c.want, c.chunks, c.tokens)
		}
		if noChunks := c.chunks == 0; noChunks != (first.ChunkGapsUs == nil) {
			t.Errorf("%s: got gaps %v", c.name, first.ChunkGapsUs)
		}
	}
}

// TestTheEmptyChunk: that of the shorter gap goes, with its time.
func TestTheEmptyChunk(t *testing.T) {
	for _, c := range []struct {
		gaps, want      []float64
		ttftUs, e2eUs   float64
		firstNs, lastNs int64
	}{
		{[]float64{5e3, 20e3, 30e3}, []float64{20e3, 30e3}, 105e3, 600e3, 105e6, 600e6},
		{[]float64{30e3, 20e3, 5e3}, []float64{30e3, 20e3}, 100e3, 595e3, 100e6, 595e6},
		{[]float64{7e3, 7e3}, []float64{7e3}, 100e3, 593e3, 100e6, 593e6},
		{[]float64{7e3}, []float64{}, 100e3, 593e3, 100e6, 593e6},
		{nil, nil, 100e3, 600e3, 100e6, 600e6},
	} {
		r := &answers(1, nil).Requests[0]
		r.Chunks = trace.Some(int64(len(c.gaps) + 1))
		r.ChunkGapsUs = slices.Clone(c.gaps)
		dropEmptyChunk(r)
		if !slices.Equal(r.ChunkGapsUs, c.want) || r.TTFTUs.V != c.ttftUs || r.E2EUs.V != c.e2eUs || r.FirstChunkNs.V != c.firstNs ||
			r.LastChunkNs.V != c.lastNs || r.Chunks.V != int64(len(c.gaps)) {
			t.Errorf("%v: got %v, %+v", c.gaps, r.ChunkGapsUs, r)
		}
	}
}

// dense returns a deployment that reads 32 GB of weights at 3.2 TB/s: 10 ms a token at most speed, so 5 ms to 10 s.
func dense(t *testing.T) *deploy.Deployment {
	t.Helper()
	d := &deploy.Deployment{TP: 1, Hardware: deploy.Hardware{BwPeakTBs: 3.2}, Engine: vllm.Engine{MaxNumSeqs: 64, BlockSize: 16}}
	d.Model = model.Model{NumLayers: 32, HiddenSize: 4096, HeadDim: 128, NumHeads: 32, NumKVHeads: 8, NumMLPProj: 3,
		IntermediateSize: 14336, VocabSize: 128_256, BytesPerWeight: 2, BytesPerLMHead: 2}
	d.Hardware.BwPeakTBs = d.Model.WeightBytes() / 1e10 // of 1e6 B/us
	if got, ok := d.TokenTimes(); !ok || got != (deploy.TokenTimes{ReadUs: 1e4, LeastUs: 5e3, MostUs: 1e7}) {
		t.Fatalf("got %+v, want 5 ms to 10 s", got)
	}
	return d
}

func TestTimesOfAnotherUnit(t *testing.T) {
	d := dense(t)
	for _, c := range []struct {
		n      int
		itlUs  float64
		tokens int64
		want   string
	}{
		{5, 5e3, 11, ""}, {5, 1e7, 11, ""}, {4, 4999, 11, ""}, {5, 4999, 1, ""},
		{5, 4990, 11, "a token takes 4.99 ms in the median, want 5 to 1e+04: reading the weights takes 10; the times are of another unit"},
		{5, 1.1e7, 11, "a token takes 1.1e+04 ms in the median, want 5 to 1e+04: reading the weights takes 10; the times are of another unit"},
	} {
		r := answers(c.n, func(_ int, r *trace.ObservedRequest) {
			r.OutputTokens = trace.Some(c.tokens)
			r.E2EUs = trace.Some(r.TTFTUs.V + 10*c.itlUs)
		})
		if r.checkTimeUnit(d); messages(r) != c.want {
			t.Errorf("%d answers of %g us a token: got %q, want %q", c.n, c.itlUs, messages(r), c.want)
		}
	}
}

// TestImpossibleTimes: below 5 ms neither a first token nor the next can be. Where most are, over the whole answer too,
// the unit is wrong and nothing is dropped.
func TestImpossibleTimes(t *testing.T) {
	d := dense(t)
	for _, c := range []struct {
		name          string
		ttftUs, itlUs float64 // of the first two of ten answers
		dropped       int
		want          string
	}{
		{"possible", 5e3, 5e3, 0, ""},
		{"TTFT", 4999, 5e3, 2, "2 of 10 answers have a TTFT, and 0 an ITL, below 5 ms, which is half of reading the weights once: a first chunk " +
			"without a token, or tokens that came together; their TTFT and ITL are not used"},
		{"ITL", 5e3, 4999, 2, "0 of 10 answers have a TTFT, and 2 an ITL, below 5 ms, which is half of reading the weights once: a first chunk " +
			"without a token, or tokens that came together; their TTFT and ITL are not used"},
	} {
		r := answers(10, func(i int, r *trace.ObservedRequest) {
			if i < 2 {
				r.TTFTUs = trace.Some(c.ttftUs)
				r.E2EUs = trace.Some(c.ttftUs + 10*c.itlUs)
			}
		})
		if r.dropImpossible(d); messages(r) != c.want || withoutTTFT(r) != c.dropped {
			t.Errorf("%s: got %q, %d dropped, want %q, %d", c.name, messages(r), withoutTTFT(r), c.want, c.dropped)
		}
	}
	for shortE2E, dropped := range map[int]int{5: 6, 6: 0} { // of ten answers, of which six have a short TTFT
		r := answers(10, func(i int, r *trace.ObservedRequest) {
			if i < 6 {
				r.TTFTUs = trace.Some(1e3)
			}
			if i < shortE2E {
				r.E2EUs = trace.Some(54_999.0) // 11 tokens take 55 ms
			}
		})
		if r.dropImpossible(d); withoutTTFT(r) != dropped {
			t.Errorf("%d answers are too quick as a whole: got %d dropped, want %d", shortE2E, withoutTTFT(r), dropped)
		}
	}
}

// TestFirstChunkBehindTheServers: ten steps of 40 ms after the first token. Two steps and 5 ms are no lag.
func TestFirstChunkBehindTheServers(t *testing.T) {
	for ttftUs, dropped := range map[float64]int{200e3 + 85e3: 0, 200e3 + 85_001: 1} {
		r := answers(1, func(_ int, r *trace.ObservedRequest) {
			r.ServerGenUs = trace.Some(400e3) // from 200 ms on
			r.TTFTUs = trace.Some(ttftUs)
		})
		if r.dropStatedLate(); withoutTTFT(r) != dropped || len(r.Findings) != dropped {
			t.Errorf("first chunk after %g us: got %d dropped, want %d", ttftUs, withoutTTFT(r), dropped)
		}
	}
	for name, change := range map[string]func(r *trace.ObservedRequest){
		"one token":                  func(r *trace.ObservedRequest) { r.OutputTokens = trace.Some(int64(1)) },
		"no E2E":                     func(r *trace.ObservedRequest) { r.E2EUs = trace.Opt[float64]{} },
		"two answers of one request": func(r *trace.ObservedRequest) { r.N = trace.Some(int64(2)) },
	} {
		r := answers(1, func(_ int, r *trace.ObservedRequest) {
			r.ServerGenUs = trace.Some(400e3)
			r.TTFTUs = trace.Some(500e3)
			change(r)
		})
		if r.dropStatedLate(); withoutTTFT(r) != 0 {
			t.Errorf("%s: the first token is dropped", name)
		}
	}
}

// TestReasoningNotShown: of 11 tokens 4 are reasoning, so 7 are shown.
func TestReasoningNotShown(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(r *trace.ObservedRequest)
		dropped int
	}{
		{"7 chunks", func(r *trace.ObservedRequest) {}, 1},
		{"6 chunks", func(r *trace.ObservedRequest) { r.Chunks.V = 6 }, 1},
		{"8 chunks", func(r *trace.ObservedRequest) { r.Chunks.V = 8 }, 1},
		{"5 chunks", func(r *trace.ObservedRequest) { r.Chunks.V = 5 }, 0},
		{"9 chunks", func(r *trace.ObservedRequest) { r.Chunks.V = 9 }, 0},
		{"the first is stated as shown", func(r *trace.ObservedRequest) { r.VisibleUs, r.Chunks.V = trace.Some(100e3), 2 }, 1},
		{"and more than are shown", func(r *trace.ObservedRequest) { r.VisibleUs, r.Chunks.V = trace.Some(100e3), 8 }, 0},
		{"the first is stated as hidden", func(r *trace.ObservedRequest) { r.VisibleUs = trace.Some(100_001.0) }, 0},
		{"no reasoning", func(r *trace.ObservedRequest) { r.Reasoning.V, r.Chunks.V = 0, 11 }, 0},
		{"one token is shown", func(r *trace.ObservedRequest) { r.Reasoning.V, r.Chunks.V = 10, 1 }, 1},
		{"none is shown", func(r *trace.ObservedRequest) { r.Reasoning.V, r.Chunks.V = 11, 1 }, 0},
		{"failed", func(r *trace.ObservedRequest) { r.Success.V = false }, 0},
	} {
		r := answers(1, func(_ int, r *trace.ObservedRequest) {
			r.Reasoning = trace.Some(int64(4))
			r.Chunks = trace.Some(int64(7))
			c.change(r)
		})
		if r.dropStatedHidden(); withoutTTFT(r) != c.dropped || len(r.Findings) != c.dropped {
			t.Errorf("%s: got %d dropped, %q, want %d", c.name, withoutTTFT(r), messages(r), c.dropped)
		}
	}
}

// TestTokensThatNobodyCounted: TTFT grows by half a step of 10 ms for each token of the answer, or by a bit less.
func TestTokensThatNobodyCounted(t *testing.T) {
	for _, c := range []struct {
		n       int
		slopeUs float64
		dropped int
	}{
		{20, 5001, 20}, {20, 4990, 0}, {19, 5001, 0},
	} {
		r := answers(c.n, func(i int, r *trace.ObservedRequest) {
			tokens := int64(5 + 7*(i%5))
			r.OutputTokens = trace.Some(tokens)
			r.TTFTUs = trace.Some(20e3 + c.slopeUs*float64(tokens))
			r.E2EUs = trace.Some(r.TTFTUs.V + 10e3*float64(tokens-1))
		})
		r.dropUncounted()
		if withoutTTFT(r) != c.dropped {
			t.Errorf("%d answers, %g us a token: got %d dropped, want %d", c.n, c.slopeUs, withoutTTFT(r), c.dropped)
		}
		if first := &r.Requests[0]; c.dropped > 0 && (first.E2EUs.OK || first.OutputTokens.OK || !first.LoadOnly.V) {
			t.Errorf("what is left of an answer: %+v", first)
		}
		if c.dropped > 0 && !strings.Contains(messages(r), "TTFT of 20 answers grows by 0.5 steps for each token") {
			t.Errorf("got %q", messages(r))
		}
	}
	noise := answers(20, func(i int, r *trace.ObservedRequest) {
		tokens := int64(5 + 7*(i%5))
		r.OutputTokens = trace.Some(tokens)
		r.TTFTUs = trace.Some(20e3 + 6e3*float64(tokens) + 150e3*float64(i/5%2))
		r.E2EUs = trace.Some(r.TTFTUs.V + 10e3*float64(tokens-1))
	})
	if noise.dropUncounted(); withoutTTFT(noise) != 0 {
		t.Error("TTFT that varies for another reason counts as that of tokens that nobody counted")
	}
}

// TestWarmUpOfATrace: ids 0 to 3 are the warm-up. Where the file has half of them they are known; where not, what was
// sent in the time of the longest answer, 600 ms from the first send on, is.
func TestWarmUpOfATrace(t *testing.T) {
	for _, c := range []struct {
		name   string
		ids    []string
		gapNs  int64
		warmUp int
		marked string
		want   string
	}{
		{"two of four", []string{"2", "3", "4", "5"}, 1e9, 4, "xx--",
			"s: warm_up_requests is 4, and the file has 2 of them; they are load and compared with nothing"},
		{"one of four", []string{"3", "4", "5", "6"}, 300e6, 4, "xx--",
			"s: 4 requests of the warm-up are not in the file but were in the server; the longest answer took 0.6 s, so the 2 of 4 requests sent in " +
				"that time are load and compared with nothing"},
		{"none is stated", []string{"0", "1", "2", "3"}, 1e9, 0, "----", ""},
	} {
		r := answers(4, func(i int, r *trace.ObservedRequest) {
			r.ID = c.ids[i]
			r.SendNs = trace.Some(5e9 + int64(i)*c.gapNs)
		})
		f := &traceFile{stem: "s", to: 4}
		f.header.WarmUpRequests = c.warmUp
		r.markWarmUp(f)
		got := ""
		for i := range r.Requests {
			if r.Requests[i].LoadOnly.V {
				got += "x"
			} else {
				got += "-"
			}
		}
		if got != c.marked || messages(r) != c.want {
			t.Errorf("%s: got %s %q, want %s %q", c.name, got, messages(r), c.marked, c.want)
		}
	}
}

func TestLevelsThatContradictThemselves(t *testing.T) {
	level := func(change func(l *Level)) string {
		// 100 ms and 100 more tokens of 9 ms are 1 s; at 8 a second 8 are in flight.
		l := &Level{ITLMs: 9, TTFTMeanMs: 100, OutputTokens: 101, PromptTokens: 50, E2EMs: 1000, RateRPS: 8, Clients: 8, Requests: 1000}
		change(l)
		why, _, _ := strings.Cut(l.contradiction(), ":")
		return why
	}
	for _, c := range []struct {
		name   string
		change func(l *Level)
		want   string
	}{
		{"consistent", func(l *Level) {}, ""},
		{"least ITL", func(l *Level) { l.ITLMs, l.E2EMs, l.RateRPS = 0.01, 0, 0 }, ""},
		{"below it", func(l *Level) { l.ITLMs, l.E2EMs, l.RateRPS = 0.00999, 0, 0 }, "ITL"},
		{"largest ITL", func(l *Level) { l.ITLMs, l.E2EMs, l.RateRPS = 5000, 0, 0 }, ""},
		{"above it", func(l *Level) { l.ITLMs, l.E2EMs, l.RateRPS = 5001, 0, 0 }, "ITL"},
		{"least E2E", func(l *Level) { l.E2EMs, l.RateRPS = 100, 0 }, ""},
		{"below it", func(l *Level) { l.E2EMs, l.RateRPS = 99.9, 0 }, "E2E"},
		{"largest E2E", func(l *Level) { l.E2EMs, l.RateRPS = 10_000, 0 }, ""},
		{"above it", func(l *Level) { l.E2EMs, l.RateRPS = 10_001, 0 }, "E2E"},
		{"without E2E, by tokens", func(l *Level) { l.E2EMs = 0 }, ""},
		{"by the median TTFT", func(l *Level) { l.TTFTMeanMs, l.TTFTMedianMs, l.E2EMs = 0, 100, 0 }, ""},
		{"1.25 a client", func(l *Level) { l.RateRPS = 10 }, ""},
		{"more", func(l *Level) { l.RateRPS = 10.01 }, "clients"},
		{"0.6 a client", func(l *Level) { l.RateRPS = 4.8 }, ""},
		{"less", func(l *Level) { l.RateRPS = 4.79 }, "clients"},
		{"of 40 requests, five a client", func(l *Level) { l.RateRPS, l.Requests = 4.79, 40 }, "clients"},
		{"of 39", func(l *Level) { l.RateRPS, l.Requests = 4.79, 39 }, ""},
		{"of 29 of one client", func(l *Level) { l.RateRPS, l.Requests, l.Clients = 0.5, 29, 1 }, ""},
		{"of 30 of one client", func(l *Level) { l.RateRPS, l.Requests, l.Clients = 0.5, 30, 1 }, "clients"},
		{"no rate", func(l *Level) { l.RateRPS = 0 }, ""},
		{"0.6 of those in flight", func(l *Level) { l.Clients, l.Concurrency, l.RateRPS = 0, 10, 6 }, ""},
		{"less", func(l *Level) { l.Clients, l.Concurrency, l.RateRPS = 0, 10, 5.99 }, "requests in flight"},
		{"1.6 of them", func(l *Level) { l.Clients, l.Concurrency, l.RateRPS = 0, 5, 8 }, ""},
		{"more", func(l *Level) { l.Clients, l.Concurrency, l.RateRPS = 0, 5, 8.01 }, "requests in flight"},
		{"of 29 requests", func(l *Level) { l.Clients, l.Concurrency, l.RateRPS, l.Requests = 0, 5, 8.01, 29 }, ""},
	} {
		if got := level(c.change); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestLevelBetweenTwoAnswers: 20 requests in 4 s, each of 2 s to the last and 50 ms to the first of 100 tokens.
func TestLevelBetweenTwoAnswers(t *testing.T) {
	answer := func(name string, atNs int64, requests float64, stamped bool) *enginelog.Snapshot {
		var b strings.Builder
		for m, each := range map[string]float64{"time_to_first_token_seconds": 0.05, "inter_token_latency_seconds": 0.02,
			"e2e_request_latency_seconds": 2, "request_prompt_tokens": 300, "request_generation_tokens": 100} {
			fmt.Fprintf(&b, "vllm:%s_count{engine=\"0\"} %g\nvllm:%s_sum{engine=\"0\"} %g\n", m, requests, m, each*requests)
		}
		fmt.Fprintf(&b, "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"0.06\"} %g\n", requests)
		b.WriteString("vllm:num_requests_running{engine=\"0\"} 10\n")
		s, err := enginelog.ReadSnapshot([]byte(b.String()), name, atNs)
		if err != nil {
			t.Fatal(err)
		}
		s.IsStamped = stamped
		return s
	}
	read := func(requests float64, ns int64, stamped bool) (*Level, string) {
		f := newLevelFile()
		f.addAnswers([]*enginelog.Snapshot{answer("a", 1e9, 7, stamped), answer("b", 1e9+ns, 7+requests, stamped)})
		text := ""
		for _, m := range f.Findings {
			text += m.Message
		}
		if len(f.Levels) == 0 {
			return nil, text
		}
		return &f.Levels[0], text
	}
	l, why := read(20, 4e9, true)
	if l == nil {
		t.Fatal("got no level: ", why)
	}
	if l.Requests != 20 || l.RateRPS != 5 || l.Concurrency != 10 || l.Strategy != "metrics@5" || l.Sweep != "metrics, engine 0" {
		t.Errorf("got %+v, want 20 requests at 5 a second, 10 in flight", l)
	}
	for name, v := range map[string][2]float64{
		"prompt": {l.PromptTokens, 300}, "output": {l.OutputTokens, 100}, "TTFT": {l.TTFTMeanMs, 50}, "median of the bucket from 0 to 60 ms": {l.TTFTMedianMs, 30}, "ITL": {l.ITLMs, 20},
	} {
		if d := v[0] - v[1]; d > 1e-9 || d < -1e-9 {
			t.Errorf("%s: got %g, want %g", name, v[0], v[1])
		}
	}
	for _, c := range []struct {
		name     string
		requests float64
		ns       int64
		stamped  bool
		want     bool
	}{
		{"ten requests", 10, 4e9, true, true},
		{"nine", 9, 4e9, true, false},
		{"no time", 20, 0, true, false},
		{"a server that started again", -1, 4e9, true, false},
		{"files as far apart as the work, 10 in flight of 10", 20, 4e9, false, true},
		{"too near, 40 of 10", 20, 1e9, false, false},
		{"too far, 4 of 10", 20, 10e9, false, false},
	} {
		if l, why := read(c.requests, c.ns, c.stamped); (l != nil) != c.want {
			t.Errorf("%s: got %+v %q", c.name, l, why)
		}
	}
}

// TestRepeatedFiles: three requests that equal those of another file are a copy, two may be by chance.
func TestRepeatedFiles(t *testing.T) {
	for _, c := range []struct {
		name   string
		n      int
		change func(r *trace.ObservedRequest)
		kept   int
	}{
		{"three", 3, nil, 3},
		{"two", 2, nil, 4},
		{"another TTFT", 3, func(r *trace.ObservedRequest) { r.TTFTUs.V++ }, 6},
		{"another E2E", 3, func(r *trace.ObservedRequest) { r.E2EUs.V++ }, 6},
		{"another send", 3, func(r *trace.ObservedRequest) { r.SendNs.V++ }, 6},
		{"another prompt", 3, func(r *trace.ObservedRequest) { r.PromptTokens.V++ }, 6},
		{"another output", 3, func(r *trace.ObservedRequest) { r.OutputTokens.V++ }, 6},
		{"another client", 3, func(r *trace.ObservedRequest) { r.Source = "other" }, 6},
		{"no times", 3, func(r *trace.ObservedRequest) { r.TTFTUs = trace.Opt[float64]{} }, 6},
	} {
		r := answers(2*c.n, func(i int, r *trace.ObservedRequest) {
			r.SendNs.V = int64(i%c.n) * 1e9
			if i == 2*c.n-1 && c.change != nil {
				c.change(r)
			}
		})
		r.Loads = []Load{{file: "a"}, {file: "b"}}
		r.requestFiles = []requestFile{{"a", 0, c.n}, {"b", c.n, 2 * c.n}}
		r.Acc.Keep(int64(2 * c.n))
		r.dropRepeatedFiles()
		loads := 2
		if c.kept == c.n {
			loads = 1
		}
		if len(r.Requests) != c.kept || len(r.Loads) != loads || r.requestFiles[1].to != c.kept {
			t.Errorf("%s: got %d requests, %d loads, want %d, %d", c.name, len(r.Requests), len(r.Loads), c.kept, loads)
		}
	}
}

func TestTimeOfALoad(t *testing.T) {
	l := &Load{}
	for _, r := range []trace.ObservedRequest{
		{}, {SendNs: trace.Some(int64(50)), LastChunkNs: trace.Some(int64(90))}, {SendNs: trace.Some(int64(20)), LastChunkNs: trace.Some(int64(70))},
		{SendNs: trace.Some(int64(60))},
	} {
		l.extend(&r)
	}
	if l.StartNs != 20 || l.EndNs != 91 {
		t.Errorf("got %d to %d ns, want 20 to 91", l.StartNs, l.EndNs)
	}
	for _, c := range []struct{ others, file, want string }{
		{"a/x.json", "a/x.json", "x"}, {"b/x.json", "a/x.json", "a-x"}, {"b/y.json", "a/x.json", "x"}, {"b/x.jsonl.zst", "a/x.json.gz", "a-x"},
	} {
		r := &Reader{Names: []source.Input{{Name: c.others}}}
		if got := r.newLoad(c.file).Name; got != c.want {
			t.Errorf("%s beside %s: got %q, want %q", c.file, c.others, got, c.want)
		}
	}
	r := &Reader{Loads: []Load{{Name: "x", file: "a/x.json"}}}
	for file, want := range map[string]string{"a/x.json": "x", "a/x.jsonl.zst": "x.jsonl", "a/y.jsonl": "y"} {
		if got := r.newLoad(file).Name; got != want {
			t.Errorf("%s after a load x of a/x.json: got %q, want %q", file, got, want)
		}
	}
}

// TestServerOfAHeader: what the header and run.yaml both state and differently is named.
func TestServerOfAHeader(t *testing.T) {
	for _, c := range []struct{ header, run int64 }{{8, 8}, {0, 8}, {8, 0}, {8, 4}} {
		r := answers(0, nil)
		f := &traceFile{stem: "s"}
		f.header.Server.MaxNumSeqs = c.header
		d := &deploy.Deployment{Engine: vllm.Engine{MaxNumSeqs: c.run, AsyncScheduling: trace.Some(true), KVBlocksGPU: trace.Some(int64(9))}}
		r.compareHeader(f, d)
		want := ""
		if c.header == 8 && c.run == 4 {
			want = "s: the header states max_num_seqs 8, run.yaml 4"
		}
		if messages(r) != want || want != "" && r.Findings[0].Setting != "vllm.max_num_seqs" {
			t.Errorf("%+v: got %+v, want %q", c, r.Findings, want)
		}
	}
	r := answers(0, nil)
	f := &traceFile{stem: "s"}
	f.header.Server.Type = "vllm"
	f.header.Server.Model = "m"
	r.compareHeader(f, &deploy.Deployment{Engine: vllm.Engine{KVBlocksGPU: trace.Some(int64(9)), MaxModelLen: trace.Some(int64(9))}})
	if want := `s: the header names the server "vllm" and the model "m"; neither it nor run.yaml states async_scheduling true, by version`; messages(r) != want {
		t.Errorf("got %q, want %q", messages(r), want)
	}
}
