package sim

import (
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// flatStep is a model of a step of 10 ms.
type flatStep struct{}

func (flatStep) StepUs(*Batch) (float64, error) { return 10_000, nil }
func (flatStep) Features() []float64            { return nil }

// TestConfigRanges: every value of a configuration at the end of its range, and just beyond.
func TestConfigRanges(t *testing.T) {
	if err := (&Config{}).Check(); err == nil {
		t.Error("a configuration without deployment was accepted")
	}
	for _, c := range []struct {
		name   string
		change func(c *Config)
		want   string // "": it is accepted
	}{
		{"as it is", func(c *Config) {}, ""},
		{"no model", func(c *Config) { c.Latency = nil }, "got nil, want both"},
		{"no sequences", func(c *Config) { c.Deployment.Engine.MaxNumSeqs = 0 }, "max_num_seqs: got 0"}, {"one sequence", func(c *Config) { c.Deployment.Engine.MaxNumSeqs = 1 }, ""},
		{"no tokens", func(c *Config) { c.Deployment.Engine.MaxNumBatchedTokens = 0 }, "max_num_batched_tokens: got 0"}, {"no block", func(c *Config) { c.Deployment.Engine.BlockSize = 0 }, "block_size: got 0"},
		{"threshold", func(c *Config) { c.Deployment.Engine.LongPrefillThreshold = -1 }, "long_prefill_token_threshold: got -1"}, {"policy", func(c *Config) { c.Deployment.Engine.SchedulingPolicy = "x" }, `scheduling_policy: got "x"`},
		{"priority", func(c *Config) { c.Deployment.Engine.SchedulingPolicy = "priority" }, ""}, {"no policy", func(c *Config) { c.Deployment.Engine.SchedulingPolicy = "" }, ""},
		{"gamma 0", func(c *Config) { c.GammaEMA = 0 }, "gamma_ema: got 0"}, {"gamma 1", func(c *Config) { c.GammaEMA = 1 }, ""}, {"gamma above", func(c *Config) { c.GammaEMA = 1.01 }, "gamma_ema: got 1.01"},
		{"most blocks", func(c *Config) { c.KVBlocks = vllm.MaxKVBlocks }, ""}, {"too many blocks", func(c *Config) { c.KVBlocks = vllm.MaxKVBlocks + 1 }, "KV blocks: got"}, {"negative blocks", func(c *Config) { c.KVBlocks = -1 }, "-1 blocks"},
		{"empty step", func(c *Config) { c.EmptyStepUs = 0 }, "empty step 0 us"}, {"empty step of 1", func(c *Config) { c.EmptyStepUs = 1 }, ""}, {"sleep", func(c *Config) { c.IdleSleepUs = -1 }, "idle sleep -1 us"}, {"no sleep", func(c *Config) { c.IdleSleepUs = 0 }, ""},
		{"gap", func(c *Config) { c.StepGapUs = -1 }, "step gap -1 us"}, {"stop", func(c *Config) { c.StopUs = -1 }, "stop -1 us"},
		{"imbalance 1", func(c *Config) { c.ExpertImbalance = 1 }, ""}, {"imbalance below", func(c *Config) { c.ExpertImbalance = 0.99 }, "imbalance 0.99"}, {"largest imbalance", func(c *Config) { c.ExpertImbalance = 1_000_000 }, ""},
		{"imbalance above", func(c *Config) { c.ExpertImbalance = 1_000_001 }, "imbalance 1.000001e+06"}, {"pause", func(c *Config) { c.EPLBPauseUs = -1 }, "a pause of -1 us"}, {"longest pause", func(c *Config) { c.EPLBPauseUs = LatestUs }, ""},
		{"pause above", func(c *Config) { c.EPLBPauseUs = LatestUs + 1 }, "experts: got"}, {"one rank", func(c *Config) { c.Ranks = true }, "data_parallel_size 1"}, {"two ranks", func(c *Config) { c.Ranks, c.Deployment.DP = true, 2 }, ""},
		{"stages", func(c *Config) { c.Ranks, c.Deployment.DP, c.Deployment.PP = true, 2, 2 }, "pipeline_parallel_size 2"}, {"derivatives", func(c *Config) { c.Ranks, c.Deployment.DP, c.Gradient = true, 2, true }, "got derivatives or stages"},
		{"token time", func(c *Config) { c.TokenUs = -0.1 }, "time per output token: got -0.1 us"}, {"NaN", func(c *Config) { c.TokenUs = math.NaN() }, "time per output token"},
		{"drift", func(c *Config) { c.Drift = []DriftPoint{{FromUs: 5, Factor: 1}, {FromUs: 6, Factor: 2}} }, ""}, {"drift back", func(c *Config) { c.Drift = []DriftPoint{{FromUs: 5, Factor: 1}, {FromUs: 5, Factor: 2}} }, "drift point 1: got from 5 us"},
		{"drift of 0", func(c *Config) { c.Drift = []DriftPoint{{FromUs: 5}} }, "drift point 0"},
	} {
		cfg := DefaultConfig(testkit.Small(100), flatStep{})
		c.change(&cfg)
		err := cfg.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// TestRequestRanges: every value of a request at the end of its range, and just beyond. It is the second of four.
func TestRequestRanges(t *testing.T) {
	some := trace.Some[int64]
	for _, c := range []struct {
		name   string
		change func(r *Request)
		want   string
	}{
		{"as it is", func(r *Request) {}, ""},
		{"no prompt", func(r *Request) { r.PromptTokens = 0 }, "0 prompt, 5 output"}, {"no output", func(r *Request) { r.OutputTokens = 0 }, "10 prompt, 0 output"}, {"max tokens", func(r *Request) { r.MaxTokens = -1 }, "-1 max tokens"},
		{"latest", func(r *Request) { r.ArrivalUs = LatestUs }, ""}, {"too late", func(r *Request) { r.ArrivalUs = LatestUs + 1 }, "an arrival or think time beyond"}, {"long think", func(r *Request) { r.ThinkUs = LatestUs + 1 }, "beyond"},
		{"early", func(r *Request) { r.ArrivalUs = -1 }, "arrival -1 us"}, {"think", func(r *Request) { r.ThinkUs = -1 }, "think time -1 us"}, {"enqueued early", func(r *Request) { r.ArrivalUs, r.EnqueueUs = 5, some(4) }, "enqueue 4 us"},
		{"enqueued at once", func(r *Request) { r.ArrivalUs, r.EnqueueUs = 5, some(5) }, ""}, {"hashes", func(r *Request) { r.Hashes = []uint64{1} }, "1 content ids of 0 tokens"}, {"hashes of 1", func(r *Request) { r.Hashes, r.HashTokens = []uint64{1}, 1 }, ""},
		{"all cached", func(r *Request) { r.CachedTokens = some(10) }, ""}, {"more cached", func(r *Request) { r.CachedTokens = some(11) }, "11 cached tokens"}, {"negative cached", func(r *Request) { r.CachedTokens = some(-1) }, "-1 cached tokens"},
		{"after the last", func(r *Request) { r.After = 4 }, ""}, {"after none", func(r *Request) { r.After = 5 }, "after 5"}, {"after itself", func(r *Request) { r.After = 2 }, "after 2"}, {"after -1", func(r *Request) { r.After = -1 }, "after -1"},
		{"loop", func(r *Request) { r.Loop = -1 }, "loop -1"}, {"queued alone", func(r *Request) { r.Queued = true }, "loop 0 after 0"}, {"queued in a loop", func(r *Request) { r.Queued, r.Loop = true, 1 }, ""},
		{"queued after", func(r *Request) { r.Queued, r.Loop, r.After = true, 1, 1 }, "loop 1 after 1"}, {"with", func(r *Request) { r.With = 4 }, ""}, {"with itself", func(r *Request) { r.With = 2 }, "with 2"}, {"with none", func(r *Request) { r.With = 5 }, "with 5"},
		{"with in a loop", func(r *Request) { r.With, r.Loop = 1, 1 }, "with 1 after 0 loop 1"}, {"abort", func(r *Request) { r.AbortAtUs = some(5) }, `abort outcome ""`}, {"abort later", func(r *Request) { r.AbortAfterUs, r.AbortKind = some(5), OutcomeTimedOut }, ""},
	} {
		r := Request{ID: "x", PromptTokens: 10, OutputTokens: 5}
		c.change(&r)
		err := r.checkRequest(1, 4)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `request 1 ("x"): got `)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	for v, want := range map[float64]int64{0: 0, 0.49: 0, 0.5: 1, 1e16 - 10: 1e16 - 10, 1e16: LatestUs + 1, math.Inf(1): LatestUs + 1, -1: -1, -0.5: 0, -7: -1} {
		if got := ToUs(v); got != want {
			t.Errorf("%g: got %d, want %d", v, got, want)
		}
	}
	if ToUs(math.NaN()) != LatestUs+1 || IsClosedLoop([]Request{{}}) || !IsClosedLoop([]Request{{}, {Loop: 1}}) {
		t.Error("NaN is beyond all times; a loop closes the load")
	}
}

// TestTimesOfAResult: a request that arrives at 1 ms, is queued at 2, scheduled at 4, has its first token at 10 and its last
// of 5 at 50 ms and departs at 51, with 100 us for each token: TTFT 9.1, gaps 10.1, E2E 50.5 ms.
func TestTimesOfAResult(t *testing.T) {
	some := trace.Some[int64]
	full := func() *RequestResult {
		return &RequestResult{ArrivalUs: 1000, QueuedUs: some(2000), ScheduledUs: some(4000), FirstTokenUs: some(10_000), FinishedUs: some(50_000), DepartedUs: some(51_000), OutputTokens: 5, TokenUs: 100, Outcome: OutcomeFinished}
	}
	r := full().Timed()
	if r.QueueWaitMs.V != 2 || r.TTFTMs.V != 9.1 || math.Abs(r.ITLMs.V-10.1) > 1e-12 || r.E2EMs.V != 50.5 {
		t.Errorf("got %+v", r)
	}
	none := (&RequestResult{ArrivalUs: 1000, OutputTokens: 5}).Timed()
	if none.QueueWaitMs.OK || none.TTFTMs.OK || none.ITLMs.OK || none.E2EMs.OK {
		t.Errorf("got %+v", none)
	}
	one := full()
	one.OutputTokens = 1
	aborted := full()
	aborted.Outcome = OutcomeAborted
	if _, ok := one.ITLUs(); ok {
		t.Error("one token has no gap")
	}
	if _, ok := aborted.E2EUs(); ok {
		t.Error("an aborted request has no E2E")
	}
	for _, c := range []struct {
		name    string
		q       Request
		r       *RequestResult
		met, ok bool
	}{
		{"no targets", Request{}, full(), false, false}, {"TTFT at the target", Request{SLOTTFTUs: 9100}, full(), true, true}, {"TTFT above", Request{SLOTTFTUs: 9099}, full(), false, true}, {"E2E at", Request{SLOE2EUs: 50_500}, full(), true, true},
		{"E2E above", Request{SLOE2EUs: 50_499}, full(), false, true}, {"gaps at", Request{SLOITLUs: 10_100}, full(), true, true}, {"gaps above", Request{SLOITLUs: 10_099}, full(), false, true}, {"one token", Request{SLOITLUs: 1}, one, true, true},
		{"not finished", Request{SLOTTFTUs: 1e9}, aborted, false, true},
	} {
		c.r.Judge(&c.q)
		if c.r.SLOMet.V != c.met || c.r.SLOMet.OK != c.ok {
			t.Errorf("%s: got %+v", c.name, c.r.SLOMet)
		}
	}
	var m Means
	m.Add(full())
	m.Add(one)
	if m.Requests != 1 || m.TTFTMs != 9.1 || math.Abs(m.TPOTMs-10.1) > 1e-12 {
		t.Errorf("got %+v", m)
	}
}

// TestMeansOf: two requests on an idle engine with steps of 10 ms, one after the other: TTFT 10 ms and gaps of 10 ms.
func TestMeansOf(t *testing.T) {
	cfg := DefaultConfig(testkit.Small(100), flatStep{})
	cfg.Async, cfg.Overhead, cfg.Egress = false, Const(0), Const(0)
	m, err := MeansOf(cfg, []Request{{ID: "a", PromptTokens: 8, OutputTokens: 3}, {ID: "b", PromptTokens: 8, OutputTokens: 5, ArrivalUs: 1_000_000}})
	if err != nil || m.Requests != 2 || m.TTFTMs != 10 || m.TPOTMs != 10 || m.Steps != 10 || m.Preemptions != 0 || m.TTFTBy != nil {
		t.Errorf("got %+v and %v", m, err)
	}
	if _, err := MeansOf(cfg, []Request{{ID: "a"}}); err == nil {
		t.Error("a request without tokens was simulated")
	}
	var order []int
	next := InOrder(4, func(i int, r *RequestResult) bool { order = append(order, i); return r.ID != "stop" })
	for _, i := range []int{2, 1, 0, 3} {
		next(i, &RequestResult{ID: "x"})
	}
	if len(order) != 4 || order[0] != 0 || order[3] != 3 {
		t.Errorf("got the order %v", order)
	}
	if next = InOrder(2, func(int, *RequestResult) bool { return false }); next(0, &RequestResult{}) {
		t.Error("the function may stop the simulation")
	}
}

// TestBatchSums: two decodes behind 100 and 200 tokens and a chunk of 30 tokens behind 10 of a prompt of 40, and the same
// without one of them.
func TestBatchSums(t *testing.T) {
	b := NewBatch(nil)
	b.Add(100, 50, 1, 7, 1)
	b.Add(200, 50, 1, 13, 1)
	b.AddPrefill(10, 40, 30)
	want := Batch{DecodeTokens: 2, DecodeReqs: 2, DecodeContext: 302, DecodeBlocks: 20, PastPrompt: 300, PrefillTokens: 30, PrefillReqs: 1, PrefillContext: 10, KVRead: 101 + 201 + 40,
		CausalWork: 30*10 + 30*31/2, PrefillAttnWork: 40 * 30, PromptTokens: 30, PromptAttnTwice: 30 * (80 + 30)}
	compare := func(name string, want Batch) {
		t.Helper()
		got := *b
		got.reaches, got.reached = nil, nil
		if got.Tokens() != want.Tokens() || got.KVRead != want.KVRead || got.DecodeContext != want.DecodeContext || got.DecodeBlocks != want.DecodeBlocks || got.PastPrompt != want.PastPrompt || got.PrefillReqs != want.PrefillReqs ||
			got.PrefillContext != want.PrefillContext || got.CausalWork != want.CausalWork || got.PrefillAttnWork != want.PrefillAttnWork || got.PromptTokens != want.PromptTokens || got.PromptAttnTwice != want.PromptAttnTwice || got.DecodeReqs != want.DecodeReqs {
			t.Errorf("%s: got %+v\nwant %+v", name, got, want)
		}
	}
	compare("all", want)
	if b.PrefillPairs(0) != 765 {
		t.Errorf("got %d pairs", b.PrefillPairs(0))
	}
	k := b.Kernels()
	if k != (library.Batch{Tokens: 32, Sequences: 3, Decodes: 2, DecodeContext: 300, LongestDecode: 200, Prefills: 1, PrefillTokens: 30, PrefillPairs: 765}) {
		t.Errorf("got %+v", k)
	}
	b.Among = &features.Group{Padded: 40, Tokens: 50, Imbalance: 1.5}
	if k = b.Kernels(); k.Run != 40 || k.All != 50 || k.Imbalance != 1.5 {
		t.Errorf("got %+v", k)
	}
	b.Add(100, 50, 1, 7, -1)
	want.DecodeTokens, want.DecodeReqs, want.DecodeContext, want.DecodeBlocks, want.PastPrompt, want.KVRead = 1, 1, 201, 13, 200, 201+40
	compare("without the first", want)
	b.Add(45, 40, 6, 0, 1) // recomputed behind a prompt of 40
	want.PrefillTokens, want.PrefillReqs, want.PrefillContext, want.KVRead, want.CausalWork, want.PrefillAttnWork, want.PastPrompt = 36, 2, 55, 201+40+51, 765+6*45+21, 1200+51*6, 245
	compare("with a recomputation", want)
	b.AddVerify(300, 4, 19, 1)
	want.DecodeTokens, want.DecodeReqs, want.DecodeContext, want.DecodeBlocks, want.PastPrompt, want.KVRead = 5, 2, 201+4*300+10, 32, 545, 201+40+51+304
	compare("with a verified draft", want)
	if b.DraftTokens != 3 {
		t.Errorf("got %d draft tokens", b.DraftTokens)
	}
}
