package sim

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

func close9(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// TestConfigByHand: values at the ends of their ranges pass, the next ones are errors that name what is wrong.
func TestConfigByHand(t *testing.T) {
	good := func() Config { return DefaultConfig(testkit.Small(10), &Blackbox{}) }
	c := good()
	if c.Seed != 1 || c.GammaEMA != 0.3 || c.EmptyStepUs != 200 || c.IdleSleepUs != 1000 || c.ScheduleUs != 100 || c.Overhead != nil || c.StepGapUs != 0 {
		t.Errorf("got the defaults %+v", c)
	}
	for _, w := range []struct {
		want   string
		change func(c *Config)
	}{
		{"", func(*Config) {}},
		{"deployment and latency model", func(c *Config) { c.Latency = nil }},
		{"deployment and latency model", func(c *Config) { c.Deployment = nil }},
		{"max_num_seqs", func(c *Config) { c.Deployment.Engine.MaxNumSeqs = 0 }},
		{"", func(c *Config) { c.Deployment.Engine.MaxNumSeqs = 1 }},
		{"max_num_batched_tokens", func(c *Config) { c.Deployment.Engine.MaxNumBatchedTokens = 0 }},
		{"", func(c *Config) { c.Deployment.Engine.MaxNumBatchedTokens = 1 }},
		{"block_size", func(c *Config) { c.Deployment.Engine.BlockSize = 0 }},
		{"", func(c *Config) { c.Deployment.Engine.BlockSize = 1 }},
		{"long_prefill", func(c *Config) { c.Deployment.Engine.LongPrefillThreshold = -1 }},
		{"scheduling_policy", func(c *Config) { c.Deployment.Engine.SchedulingPolicy = "x" }},
		{"", func(c *Config) { c.Deployment.Engine.SchedulingPolicy = "" }},
		{"", func(c *Config) { c.Deployment.Engine.SchedulingPolicy = "priority" }},
		{"gamma_ema", func(c *Config) { c.GammaEMA = 0 }},
		{"gamma_ema", func(c *Config) { c.GammaEMA = 1.001 }},
		{"", func(c *Config) { c.GammaEMA = 1 }},
		{"KV blocks: got", func(c *Config) { c.KVBlocks = vllm.MaxKVBlocks + 1 }},
		{"", func(c *Config) { c.KVBlocks = vllm.MaxKVBlocks }},
		{"times and blocks", func(c *Config) { c.KVBlocks = -1 }},
		{"times and blocks", func(c *Config) { c.EmptyStepUs = 0 }},
		{"times and blocks", func(c *Config) { c.IdleSleepUs = -1 }},
		{"times and blocks", func(c *Config) { c.StepGapUs = -1 }},
		{"times and blocks", func(c *Config) { c.StopUs = -1 }},
		{"", func(c *Config) { c.EmptyStepUs, c.IdleSleepUs, c.StepGapUs, c.StopUs = 1, 0, 0, 0 }},
		{"experts", func(c *Config) { c.ExpertImbalance = 0.99 }},
		{"experts", func(c *Config) { c.ExpertImbalance = 1e6 + 1 }},
		{"", func(c *Config) { c.ExpertImbalance = 1 }},
		{"", func(c *Config) { c.ExpertImbalance = 1e6 }},
		{"experts", func(c *Config) { c.EPLBPauseUs = -1 }},
		{"experts", func(c *Config) { c.EPLBPauseUs = LatestUs + 1 }},
		{"", func(c *Config) { c.EPLBPauseUs = LatestUs }},
		{"data_parallel_size", func(c *Config) { c.Ranks = true; c.Deployment.DP = 1 }},
		{"", func(c *Config) { c.Ranks = true; c.Deployment.DP = 2 }},
		{"data_parallel_size", func(c *Config) { c.Ranks = true; c.Deployment.DP = 2; c.Gradient = true }},
		{"data_parallel_size", func(c *Config) { c.Ranks = true; c.Deployment.DP = 2; c.Deployment.PP = 2 }},
		{"time per output token", func(c *Config) { c.TokenUs = -1 }},
		{"time per output token", func(c *Config) { c.TokenUs = math.NaN() }},
		{"time per output token", func(c *Config) { c.TokenUs = math.Inf(1) }},
		{"", func(c *Config) { c.Drift = []DriftPoint{{0, 2}, {1, 0.5}} }},
		{"drift point 1", func(c *Config) { c.Drift = []DriftPoint{{1, 2}, {1, 0.5}} }},
		{"drift point 0", func(c *Config) { c.Drift = []DriftPoint{{0, 0}} }},
		{"drift point 0", func(c *Config) { c.Drift = []DriftPoint{{0, math.Inf(1)}} }},
		{"noise decode quantile 1", func(c *Config) { c.Noise = &Noise{Decode: []Quantile{{0.5, 1}, {0.5, 2}}} }},
		{"noise prefill quantile 0", func(c *Config) { c.Noise = &Noise{Prefill: []Quantile{{-0.1, 1}}} }},
		{"noise mixed quantile 1", func(c *Config) { c.Noise = &Noise{Mixed: []Quantile{{0, 2}, {1, 1}}} }},
		{"noise mixed quantile 0", func(c *Config) { c.Noise = &Noise{Mixed: []Quantile{{0, 0}}} }},
		{"", func(c *Config) { c.Noise = &Noise{Mixed: []Quantile{{0, 1}, {1, 1}}} }},
	} {
		c := good()
		w.change(&c)
		if err := c.Check(); (err == nil) != (w.want == "") || err != nil && !strings.Contains(err.Error(), w.want) {
			t.Errorf("got %v, want %q", err, w.want)
		}
	}
	c = good()
	c.Apply(Parts{Step: &Blackbox{Beta: []float64{7}}, Overhead: Const(3), Egress: Const(4), TokenUs: 5})
	if c.Latency.(*Blackbox).Beta[0] != 7 || c.Overhead != Const(3) || c.Egress != Const(4) || c.TokenUs != 5 {
		t.Errorf("got %+v", c)
	}
	d := DefaultDumpOptions(testkit.Small(10))
	if d.JourneyRate != 1 || d.StepRate != 1 || d.RichRate != 1 || d.ClosureInterval != 100 || d.EventLimit != 100_000 || d.Chat || d.Seed != 1 || d.MonotonicNs != 1e14 || d.WallNs != 17761e14 || d.ScheduleNs != 60_000 || d.ScheduleSeqNs != 1500 {
		t.Errorf("got the options of a dump %+v", d)
	}
	for i, w := range []struct {
		ok     bool
		change func(o *DumpOptions)
	}{
		{true, func(o *DumpOptions) { o.JourneyRate, o.StepRate, o.RichRate = 0, 0, 0 }}, {false, func(o *DumpOptions) { o.JourneyRate = 1.01 }}, {false, func(o *DumpOptions) { o.StepRate = -0.01 }}, {false, func(o *DumpOptions) { o.RichRate = math.NaN() }},
		{true, func(o *DumpOptions) {
			o.ClosureInterval, o.EventLimit, o.MonotonicNs, o.WallNs, o.ScheduleNs, o.ScheduleSeqNs = 1, 1, 1, 1, 0, 0
		}},
		{false, func(o *DumpOptions) { o.ClosureInterval = 0 }}, {false, func(o *DumpOptions) { o.EventLimit = 0 }}, {false, func(o *DumpOptions) { o.MonotonicNs = 0 }}, {false, func(o *DumpOptions) { o.WallNs = 0 }}, {false, func(o *DumpOptions) { o.ScheduleNs = -1 }},
		{false, func(o *DumpOptions) { o.ScheduleSeqNs = -1 }},
	} {
		o := d
		w.change(&o)
		if err := o.Check(); (err == nil) != w.ok {
			t.Errorf("case %d: got %v", i, err)
		}
	}
}

// TestRequestsByHand: values of a request at the ends of their ranges.
func TestRequestsByHand(t *testing.T) {
	for _, w := range []struct {
		want   string
		change func(r *Request)
	}{
		{"", func(*Request) {}},
		{"0 prompt", func(r *Request) { r.PromptTokens = 0 }},
		{"0 output", func(r *Request) { r.OutputTokens = 0 }},
		{"-1 max tokens", func(r *Request) { r.MaxTokens = -1 }},
		{"", func(r *Request) { r.PromptTokens, r.OutputTokens, r.MaxTokens = 1, 1, 1 }},
		{"beyond", func(r *Request) { r.ArrivalUs = LatestUs + 1 }},
		{"beyond", func(r *Request) { r.ThinkUs = LatestUs + 1 }},
		{"", func(r *Request) { r.ArrivalUs, r.ThinkUs = LatestUs, LatestUs }},
		{"arrival -1 us", func(r *Request) { r.ArrivalUs = -1 }},
		{"think time -1 us", func(r *Request) { r.ThinkUs = -1 }},
		{"enqueue 4 us", func(r *Request) { r.ArrivalUs, r.EnqueueUs = 5, trace.Some[int64](4) }},
		{"", func(r *Request) { r.ArrivalUs, r.EnqueueUs = 5, trace.Some[int64](5) }},
		{"1 content ids of 0 tokens", func(r *Request) { r.Hashes = []uint64{1} }},
		{"", func(r *Request) { r.Hashes, r.HashTokens = []uint64{1}, 1 }},
		{"-1 cached tokens", func(r *Request) { r.CachedTokens = trace.Some[int64](-1) }},
		{"8 cached tokens", func(r *Request) { r.CachedTokens = trace.Some[int64](8) }},
		{"", func(r *Request) { r.CachedTokens = trace.Some[int64](7) }},
		{"after -1", func(r *Request) { r.After = -1 }},
		{"after 5", func(r *Request) { r.After = 5 }},
		{"after 3", func(r *Request) { r.After = 3 }},
		{"", func(r *Request) { r.After = 4 }},
		{"loop -1", func(r *Request) { r.Loop = -1 }},
		{"loop 0", func(r *Request) { r.Queued = true }},
		{"loop 1 after 1", func(r *Request) { r.Queued, r.Loop, r.After = true, 1, 1 }},
		{"", func(r *Request) { r.Queued, r.Loop = true, 1 }},
		{"with -1", func(r *Request) { r.With = -1 }},
		{"with 5", func(r *Request) { r.With = 5 }},
		{"with 3", func(r *Request) { r.With = 3 }},
		{"with 1 after 1", func(r *Request) { r.With, r.After = 1, 1 }},
		{"with 1 after 0 loop 1", func(r *Request) { r.With, r.Loop = 1, 1 }},
		{"", func(r *Request) { r.With = 4 }},
		{"abort outcome", func(r *Request) { r.AbortAtUs = trace.Some[int64](4) }},
		{"abort outcome", func(r *Request) { r.AbortAfterUs, r.AbortKind = trace.Some[int64](4), OutcomeRejected }},
		{"", func(r *Request) { r.AbortAfterUs, r.AbortKind = trace.Some[int64](4), OutcomeTimedOut }},
	} {
		r := Request{ID: "a", PromptTokens: 7, OutputTokens: 3}
		w.change(&r)
		if err := r.checkRequest(2, 4); (err == nil) != (w.want == "") || err != nil && (!strings.Contains(err.Error(), w.want) || !strings.Contains(err.Error(), `request 2 ("a"): got `)) {
			t.Errorf("got %v, want %q", err, w.want)
		}
	}
	for v, want := range map[float64]int64{-1: -1, -0.6: 0, 0: 0, 0.49: 0, 0.5: 1, 7.5: 8, 1e16: LatestUs + 1, 1e16 - 2: 1e16 - 2, 1e300: LatestUs + 1} {
		if got := ToUs(v); got != want {
			t.Errorf("%g us: got %d", v, got)
		}
	}
	if got := ToUs(math.NaN()); got != LatestUs+1 {
		t.Errorf("got %d", got)
	}
	for us, want := range map[float64]int64{-0.5: 0, 0.49: 0, 0.5: 1, 2.5: 3} {
		if got := roundUs(us); got != want {
			t.Errorf("%g us: got %d", us, got)
		}
	}
}

// TestTotalsByHand: every count of two engines is summed, peaks are the largest and busy time is the mean.
func TestTotalsByHand(t *testing.T) {
	engine := func(by int64) *Result {
		r := &Result{EndUs: 100 * by, PeakRunning: 200 * by, PeakWaiting: 300 * by, PeakBlocks: 400 * by, Gaps: stat.NewHistogram(), Findings: []trace.Finding{{Message: fmt.Sprint(by)}}}
		for k, to := range r.counts() {
			*to = by * int64(k+1)
		}
		r.Gaps.Add(1, by)
		return r
	}
	got := Totals([]*Result{engine(1), engine(4), {}})
	for k, v := range got.counts() {
		want := 5 * int64(k+1)
		if v == &got.BusyUs {
			want /= 3
		}
		if *v != want {
			t.Errorf("count %d: got %d, want %d", k, *v, want)
		}
	}
	if len(got.counts()) != 22 || got.EndUs != 400 || got.PeakRunning != 800 || got.PeakWaiting != 1200 || got.PeakBlocks != 1600 || got.Gaps.N() != 5 || len(got.Findings) != 2 {
		t.Errorf("got %+v", got)
	}
	if got := Totals(nil); got.Gaps != nil || got.BusyUs != 0 {
		t.Errorf("of none: got %+v", got)
	}
}

// TestBatchesByHand: every sum over a prompt's chunk, a decode and a decode with drafts, and what models read of them.
func TestBatchesByHand(t *testing.T) {
	var b Batch
	b.Add(100, 130, 20, 9, 1) // a chunk behind 100 of 130 tokens
	b.Add(200, 150, 1, 13, 1) // a decode
	b.AddVerify(300, 4, 19, 1)
	want := Batch{PrefillTokens: 20, DecodeTokens: 5, PrefillReqs: 1, DecodeReqs: 2, CausalWork: 20*100 + 210, PrefillAttnWork: 120 * 20, PromptAttnTwice: 20 * (260 + 20), PromptTokens: 20,
		DecodeContext: 201 + 4*300 + 10, PastPrompt: 500, KVRead: 120 + 201 + 304, DecodeBlocks: 32, DraftTokens: 3, PrefillContext: 100, LongestDecode: 300}
	if !reflect.DeepEqual(b, want) {
		t.Errorf("got\n%+v, want\n%+v", b, want)
	}
	if b.Tokens() != 25 || b.PrefillPairs(0) != b.CausalWork {
		t.Errorf("got %d tokens", b.Tokens())
	}
	again := b
	again.Add(100, 130, 20, 9, -1)
	again.Add(200, 150, 1, 13, -1)
	if again.AddVerify(300, 4, 19, -1); !reflect.DeepEqual(again, Batch{LongestDecode: 300}) {
		t.Errorf("without them: got %+v", again)
	}
	var past Batch // a prompt that is computed again beyond its own tokens
	if past.Add(150, 130, 8, 0, 1); past.PastPrompt != 150 || past.PromptTokens != 0 || past.PromptAttnTwice != 0 || past.PrefillTokens != 8 {
		t.Errorf("got %+v", past)
	}
	var sums Batch
	if sums.AddDecodes(3, 600, 40); !reflect.DeepEqual(sums, Batch{KVRead: 603, DecodeTokens: 3, DecodeReqs: 3, DecodeContext: 603, PastPrompt: 600, DecodeBlocks: 40}) {
		t.Errorf("got %+v", sums)
	}
	if got, want := b.Kernels(), (library.Batch{Tokens: 25, Sequences: 3, Decodes: 2, DecodeContext: 1409, Prefills: 1, LongestDecode: 300, PrefillTokens: 20, PrefillPairs: 2210}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	b.Among = &features.Group{Padded: 32, Tokens: 128, Imbalance: 1.5}
	if got := b.Kernels(); got.Run != 32 || got.All != 128 || got.Imbalance != 1.5 {
		t.Errorf("got %+v", got)
	}
	b.Running, b.PreemptionEMA, b.StoreBlocks, b.LoadBlocks = 41, 0.25, 42, 43
	var in features.StepInput
	FillStepInput(features.V11, &b, &in)
	if want := (features.StepInput{PrefillTokens: 20, DecodeTokens: 5, ScheduledTokens: 25, NumPrefillReqs: 1, NumDecodeReqs: 2, DecodeContextTokens: 1411, RunningDepth: 41, PreemptionEMA: 0.25, TransferBlocks: 42, CPUResidentReadBlocks: 43,
		NumSampledSeqs: 6, PrefillCausalWork: 2210, KVReadTokens: 625, PrefillContext: 100}); in != want {
		t.Errorf("got\n%+v, want\n%+v", in, want)
	}
	FillStepInput(features.V10, &b, &in)
	if in.SumPrefillAttnWork != 2400 || in.SumDecodeKVBlocks != 32 || in.NumSampledSeqs != 0 || in.KVReadTokens != 0 {
		t.Errorf("version 1.0: got %+v", in)
	}
	windowed := NewBatch([]model.Reach{{Window: 50}})
	windowed.AddPrefill(0, 100, 100)
	if windowed.reached == nil || windowed.PrefillPairs(0) >= windowed.CausalWork {
		t.Errorf("within a window: got %d of %d pairs", windowed.PrefillPairs(0), windowed.CausalWork)
	}
}

// TestPaddingByHand: an admission with one token left is padded with three drafts, waits if they pass the budget, and before 0.30
// if they pass max_model_len.
func TestPaddingByHand(t *testing.T) {
	sp := &speculation{Speculation: &vllm.Speculation{Tokens: 3}}
	for _, c := range []struct {
		alone            bool
		computed, budget int64
		others           bool
		want             int64
		wait             bool
	}{
		{false, 10, 4, true, 4, false}, {false, 10, 3, true, 4, true}, {false, 11, 4, true, 4, true}, {false, 11, 3, false, 1, false},
		{true, 9, 4, true, 4, false}, {true, 9, 3, true, 4, true}, {true, 10, 4, true, 1, false}, {true, 9, 4, false, 4, false}, {true, 0, 4, false, 1, false}, {true, 0, 4, true, 4, false},
	} {
		sp.padsAlone = c.alone
		if n, wait := sp.padDecode(c.computed, c.budget, 14, c.others); n != c.want || wait != c.wait {
			t.Errorf("%+v: got %d, %v", c, n, wait)
		}
	}
}

// TestSeedsOfAnEngine: the noise of steps is that of the engine's seed.
func TestSeedsOfAnEngine(t *testing.T) {
	draw := func(seed int64) float64 {
		cfg := DefaultConfig(testkit.Small(10), &Blackbox{})
		cfg.Seed = seed
		e, err := NewEngine(cfg, nil, Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		return e.rng.Float64()
	}
	if draw(1) != draw(1) || draw(1) == draw(2) {
		t.Errorf("got %g and %g with one seed, %g with another", draw(1), draw(1), draw(2))
	}
}

// TestNoiseByHand: ratios between quantiles, and factors of a drift.
func TestNoiseByHand(t *testing.T) {
	q := []Quantile{{0.2, 1}, {0.6, 3}, {0.8, 4}}
	for u, want := range map[float64]float64{0: 1, 0.2: 1, 0.4: 2, 0.6: 3, 0.7: 3.5, 0.8: 4, 0.9: 4} {
		if got := RatioAt(q, u); !close9(got, want) {
			t.Errorf("at %g: got %g", u, got)
		}
	}
	if RatioAt(nil, 0.5) != 1 || (&Noise{}).draw(nil, coeff.RegimeDecode) != 1 {
		t.Error("no quantiles are a ratio of 1")
	}
	d := newDriftCursor([]DriftPoint{{10, 2}, {20, 3}, {20, 4}})
	for _, w := range [][2]float64{{0, 1}, {9, 1}, {10, 2}, {19, 2}, {20, 4}, {99, 4}} {
		if got := d.factorAt(int64(w[0])); got != w[1] {
			t.Errorf("at %g us: got %g", w[0], got)
		}
	}
	set := testkit.Planted()
	set.Residuals = map[string][][2]float64{"decode": {{0, 9}, {0.1, 1}, {0.9, 2}, {1, 99}}, "prefill": {{0, 3}, {1, 4}}, "other": {{0.5, 1}}}
	if got := NoiseOf(set); !reflect.DeepEqual(got, &Noise{Decode: []Quantile{{0.1, 1}, {0.9, 2}}, Prefill: []Quantile{{0, 3}, {1, 4}}}) {
		t.Errorf("got %+v", got)
	}
	set.Residuals = nil
	if NoiseOf(set) != nil {
		t.Error("no residuals are noise")
	}
	g := &gapLog{histogram: stat.NewHistogram(), tokenUs: 1}
	for _, w := range []struct {
		n        int32
		p50, p99 float64
	}{{1, 0.002, 0.002}, {2, 0.002, 0.003}, {100, 0.051, 0.1}, {101, 0.052, 0.101}, {200, 0.101, 0.199}} {
		s := &seq{}
		for i := range w.n {
			s.gaps = append(s.gaps, (i*37)%w.n+1)
		}
		if p50, p99 := g.quantiles(s); !close9(p50.V, w.p50) || !close9(p99.V, w.p99) || !p50.OK {
			t.Errorf("%d gaps: got %g and %g ms, want %g and %g", w.n, p50.V, p99.V, w.p50, w.p99)
		}
	}
	if p50, _ := g.quantiles(&seq{}); p50.OK {
		t.Error("no gaps have a median")
	}
	s := &seq{}
	g.add(s, 5)
	g.add(s, 5)
	if g.add(s, 7); g.histogram.N() != 2 {
		t.Errorf("got %d gaps before the series ends", g.histogram.N())
	}
	if g.flush(); g.histogram.N() != 3 || !close9(g.histogram.Mean(), (6+6+8)/3.) {
		t.Errorf("got %d gaps, mean %g", g.histogram.N(), g.histogram.Mean())
	}
	if g.forget(s); g.histogram.N() != 0 {
		t.Errorf("got %d gaps after they are forgotten", g.histogram.N())
	}
	twins := Twins([]Request{{ArrivalUs: 1000, EnqueueUs: trace.Some[int64](1100), AbortAtUs: trace.Some[int64](1200)}, {ArrivalUs: 3}, {After: 1}, {Queued: true}, {With: 1}}, 2, 50, 1)
	by := twins[0][0].ArrivalUs - 1000
	if by == 0 || by < -50 || by > 50 || twins[1][0].ArrivalUs != 1000-by || twins[0][0].EnqueueUs.V != 1100+by || twins[1][0].AbortAtUs.V != 1200-by {
		t.Errorf("got %+v", twins)
	}
	for k := range twins {
		if twins[k][1].ArrivalUs < 0 || twins[k][2].ArrivalUs != 0 || twins[k][3].ArrivalUs != 0 || twins[k][4].ArrivalUs != 0 {
			t.Errorf("got %+v", twins[k])
		}
	}
}

// TestMeansByHand: means over measured requests that finished, and of their derivatives.
func TestMeansByHand(t *testing.T) {
	us := trace.Some[int64]
	m := &Means{TTFTBy: make([]float64, 1), TPOTBy: make([]float64, 1)}
	m.Add(&RequestResult{ArrivalUs: 1000, FirstTokenUs: us(4000), FinishedUs: us(10_000), OutputTokens: 4, Outcome: OutcomeFinished,
		Gradient: &gradient{TTFT: Derivative{By: []float64{5000}}, Span: Derivative{By: []float64{9000}}}})
	if m.Add(&RequestResult{ArrivalUs: 1000, FirstTokenUs: us(4000), OutputTokens: 4}); m.Requests != 1 || m.TTFTMs != 3 || m.TPOTMs != 2 || m.TTFTBy[0] != 5 || m.TPOTBy[0] != 3 {
		t.Errorf("got %+v", m)
	}
	cfg := DefaultConfig(testkit.Small(100), &Blackbox{Beta: []float64{2000, 0, 0}})
	reqs := []Request{{PromptTokens: 4, OutputTokens: 3}, {ArrivalUs: 500, PromptTokens: 4, OutputTokens: 2}, {ArrivalUs: 90_000, PromptTokens: 4, OutputTokens: 2, Unmeasured: true}}
	got, err := MeansOf(cfg, reqs)
	if err != nil || got.Requests != 2 || got.TTFTMs != (2+3.5)/2 || got.TPOTMs != 2 || got.Preemptions != 0 || got.TTFTBy != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	small := DefaultConfig(testkit.Small(10), &Blackbox{Beta: []float64{2000, 0, 0}})
	busy := []Request{{PromptTokens: 14, OutputTokens: 12}, {PromptTokens: 14, OutputTokens: 12}}
	res, err := Run(small, busy, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := MeansOf(small, busy); err != nil || got.Steps != res.Steps || got.Preemptions != res.Preemptions || got.Preemptions == 0 {
		t.Errorf("got %+v, %v, want %d preemptions in %d steps", got, err, res.Preemptions, res.Steps)
	}
	cfg.Gradient, cfg.Latency = true, failingSteps{}
	if got, err := MeansOf(cfg, reqs); err == nil || got != nil {
		t.Errorf("a model without features: got %+v, %v", got, err)
	}
	cfg.Gradient = false
	if _, err := MeansOf(cfg, reqs); !errors.Is(err, errNoStep) {
		t.Errorf("got %v", err)
	}
	cfg.Latency, cfg.Overhead = &Blackbox{Beta: []float64{1, 0, 0}}, failingSteps{}
	if _, err := Run(cfg, reqs, nil); !errors.Is(err, errNoStep) {
		t.Errorf("got %v", err)
	}
	for want, d := range map[string]Delay{"got 2e+18 us": Const(2e18), "got NaN us": Const(math.NaN())} {
		cfg.Overhead = d
		if _, err := Run(cfg, reqs[1:2], nil); err == nil || !strings.Contains(err.Error(), want) || trace.CodeOf(err) != CodeBadPrediction {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	cfg.Overhead = Const(-5)
	if res, err := Run(cfg, reqs[:1], nil); err != nil || res.ClippedDelays != 1 || res.Requests[0].EnqueuedUs.V != 0 {
		t.Errorf("a negative delay: got %+v, %v", res, err)
	}
}

var errNoStep = errors.New("no step")

// failingSteps knows no times.
type failingSteps struct{}

func (failingSteps) StepUs(*Batch) (float64, error)  { return 0, errNoStep }
func (failingSteps) DelayUs(*Queue) (float64, error) { return 0, errNoStep }

// TestTiersByHand: tokens of a chunk, bytes of a token on a GPU and the time of a block's copy.
func TestTiersByHand(t *testing.T) {
	d := testkit.Small(10)
	d.TP = 2
	d.Model = model.Model{NumLayers: 3, NumKVHeads: 4, HeadDim: 5, BytesPerKV: 2}
	d.Hardware.PCIeBandwidthGBs, d.Hardware.PCIeEfficiency = 10, 0.5
	e := &Engine{cfg: Config{Deployment: d}}
	e.blockSize = 16
	c := newCPUTier(e)
	if c.tokenBytes != 2*3*4*5*2/2 || c.chunkTokens != 16*c.set.Blocks || !close9(c.blockUs, 16*120/5000.) {
		t.Errorf("got %g bytes of a token, chunks of %d tokens, %g us a block", c.tokenBytes, c.chunkTokens, c.blockUs)
	}
	d.TP, d.Hardware.PCIeEfficiency = 8, 0 // more GPUs than KV heads: each has one
	if c := newCPUTier(e); c.tokenBytes != 2*3*8*5*2/8 || c.blockUs != 0 {
		t.Errorf("got %g bytes, %g us", c.tokenBytes, c.blockUs)
	}
	for _, w := range []struct{ rank, next, want int64 }{{0, 5 << 32, 1<<40 + 5}, {3<<40 + 77, 9 << 32, 4<<40 + 9}} {
		if got := lfuRank(&tierChunk{rank: w.rank}, w.next); got != w.want {
			t.Errorf("got %d, want %d", got, w.want)
		}
	}
	pipe := &Engine{stageFree: []int64{10, 50, 0}}
	pipe.pp = 3
	if end := pipe.throughStages(5, 31); end != 71 || !slices.Equal(pipe.stageFree, []int64{20, 60, 70}) {
		t.Errorf("got %d, %v", end, pipe.stageFree)
	}
	for _, w := range []struct {
		async bool
		pp    int64
		v2    bool
		want  int64
	}{{false, 1, true, 1}, {true, 1, false, 2}, {true, 2, false, 2}, {true, 2, true, 3}, {true, 1, true, 2}, {false, 3, false, 3}} {
		e := &Engine{cfg: Config{Deployment: testkit.Small(10), Async: w.async}}
		e.pp = w.pp
		e.rules.ModelRunnerV2 = w.v2
		e.rules.DeferredFrees = true
		if e.setDepth(); e.depth != w.want || e.frees.on {
			t.Errorf("%+v: got %d steps", w, e.depth)
		}
		e.cfg.Deployment.Engine.CPUOffloading = true
		if e.setDepth(); e.frees.on != (w.want > 1) {
			t.Errorf("%+v: frees wait %v", w, e.frees.on)
		}
		e.cfg.Deployment.Engine.Extra = vllm.Values{"kv_transfer_config": map[string]any{"kv_role": "kv_producer"}}
		if e.setDepth(); e.frees.on {
			t.Errorf("%+v: the frees of a producer wait", w)
		}
	}
	for blocks, want := range map[int64]int{0: 16, 8: 16, 9: 32, 16: 32, 17: 64} {
		if got := len(newIndex(blocks)); got != want {
			t.Errorf("%d blocks: got %d places", blocks, got)
		}
	}
	x := newIndex(8)
	known := make([]content, 8)
	for b := range int32(8) {
		known[b].hash = uint64(16*b + 3) // all have the same place
		x.insert(known[b].hash, b)
	}
	if &x.withRoom(known)[0] != &x[0] {
		t.Error("an index with room is copied")
	}
	known = append(known, content{hash: 100})
	wide := x.withRoom(known)
	if len(wide) != 32 || wide.find(known, 16*5+3) != 5 || wide.find(known, 100) != none {
		t.Errorf("got %d places", len(wide))
	}
	x.remove(known, 16*2+3)
	for b := range int32(8) {
		want := b
		if b == 2 {
			want = none
		}
		if got := x.find(known, uint64(16*b+3)); got != want {
			t.Errorf("block %d: got %d", b, got)
		}
	}
	x.remove(known, known[7].hash)
	known[7].hash = known[4].hash
	if x.replace(known, 16*4+3, 7); x.find(known, 16*4+3) != 7 {
		t.Error("a hash was not given another block")
	}
}

// TestDumpByHand compares every value of the spans of a chat with two tokens, of a request that is too long and of one whose
// client leaves, and of a step span of two.
func TestDumpByHand(t *testing.T) {
	for name, chat := range map[string]bool{"chat": true, "completions": false} {
		d := testkit.Small(100)
		reqs := []Request{{ID: "one", ArrivalUs: 7, PromptTokens: 20, OutputTokens: 3, MaxTokens: 9}, {ArrivalUs: 500, PromptTokens: 1 << 40, OutputTokens: 1},
			{ID: "gone", ArrivalUs: 2500, PromptTokens: 5, OutputTokens: 50, AbortAtUs: trace.Some[int64](6000), AbortKind: OutcomeAborted}}
		o := DefaultDumpOptions(d)
		o.Chat, o.ClosureInterval = chat, 2
		var spans, kv bytes.Buffer
		dump, err := NewDump(&spans, &kv, d, reqs, o)
		if err != nil {
			t.Fatal(err)
		}
		res, err := Run(DefaultConfig(d, &Blackbox{Beta: []float64{2000, 1, 0}}), reqs, dump)
		if err != nil {
			t.Fatal(err)
		}
		if err := dump.Close(res.Steps); err != nil {
			t.Fatal(err)
		}
		var lines []any
		for _, line := range strings.Split(strings.TrimSpace(spans.String()), "\n") {
			var v any
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, v)
		}
		testkit.Document(t, "dump_"+name, lines)
	}
}

// TestKVLinesByHand: the fields of each KV event.
func TestKVLinesByHand(t *testing.T) {
	d := &deploy.Deployment{TP: 2}
	d.Engine.BlockSize = 2
	d.Engine.PrefixCaching = true
	var out, kv bytes.Buffer
	o := DefaultDumpOptions(d)
	p, err := NewDump(&out, &kv, d, []Request{{ID: "r"}}, o)
	if err != nil {
		t.Fatal(err)
	}
	line := func(events ...KVEvent) string {
		kv.Reset()
		for i := range events {
			p.KV(&events[i])
		}
		p.KV(&KVEvent{Kind: published, AtUs: 1_500_000})
		p.kv.out.Flush()
		return strings.TrimSpace(kv.String())
	}
	core := p.CoreID(0)
	token := func(hash uint64, i uint64) uint64 { return mix(hash, i) % 30000 }
	var raw []byte
	for w := range uint64(4) {
		for shift := 56; shift >= 0; shift -= 8 {
			raw = append(raw, byte(mix(9, w)>>shift))
		}
	}
	for want, events := range map[string][]KVEvent{
		"": nil,
		fmt.Sprintf(`["BlockStored",[7,8],null,[%d,%d,%d,%d],2,null,"GPU",null]`, token(7, 0), token(7, 1), token(8, 2), token(8, 3)): {{Kind: blockStored, Hashes: []uint64{7, 8}, Blocks: 2}},
		fmt.Sprintf(`["BlockStored",["%s"],5,[],2,null,"CPU",null]`, base64.StdEncoding.EncodeToString(raw)):                          {{Kind: blockStored, Hashes: []uint64{9}, Blocks: 1, CPU: true, Parent: 5, HasParent: true}},
		`["BlockRemoved",[7],"GPU"]`: {{Kind: blockRemoved, Hashes: []uint64{7}}},
		fmt.Sprintf(`["CacheLoadCommitted","%s","CPU",3,4],["CacheStoreCommitted","%s","GPU",5,6]`, core, core): {{Kind: cacheLoadCommitted, CPU: true, Blocks: 3, Step: 4}, {Kind: cacheStored, Blocks: 5, Step: 6}},
		`["CacheEviction","CPU",3,"lru",4,null]`: {{Kind: cacheEviction, CPU: true, Blocks: 3, Step: 4}},
		fmt.Sprintf(`["TransferInitiated",9,"%s","GPU","CPU",3,4],["TransferInitiated",9,"%s","GPU","CPU",3,4]`, core, core):           {{Kind: transferInitiated, Transfer: 9, ToCPU: true, Blocks: 3, Step: 4}},
		fmt.Sprintf(`["TransferCompleted",9,"%s","CPU","GPU",3,true,4],["TransferCompleted",9,"%s","CPU","GPU",3,true,4]`, core, core): {{Kind: transferCompleted, Transfer: 9, Blocks: 3, Step: 4}},
	} {
		if want != "" {
			want = "[1776100001.500000,[" + want + "],0,null]"
		}
		if got := line(events...); got != want {
			t.Errorf("got\n%s, want\n%s", got, want)
		}
	}
}

// TestScoresByHand: one request that finishes, with TTFT 200, a span of 300 and E2E of 500 us, against measured times.
func TestScoresByHand(t *testing.T) {
	us := trace.Some[int64]
	done := RequestResult{ArrivalUs: 2500, EnqueuedUs: us(2500), FirstTokenUs: us(2700), FinishedUs: us(3000), DepartedUs: us(3000), OutputTokens: 4, Outcome: OutcomeFinished}
	if m := done.Measured(); !close9(m.TTFTUs, 200) || !close9(m.SpanUs, 300) || !close9(m.E2EUs, 500) {
		t.Fatalf("got %+v", m)
	}
	lost := done
	lost.Outcome = OutcomeUnfinished
	if m := lost.Measured(); !math.IsNaN(m.TTFTUs) || !math.IsNaN(m.SpanUs) || !math.IsNaN(m.E2EUs) {
		t.Errorf("not finished: got %+v", m)
	}
	one := done
	one.OutputTokens = 1
	if m := one.Measured(); !math.IsNaN(m.SpanUs) || !close9(m.TTFTUs, 200) {
		t.Errorf("one token: got %+v", m)
	}
	for x, want := range map[float64]float64{0: 0, 0.3: 0.045, -0.2: 0.02, 1.3: 0.345, -1.3: 0.345} {
		if got := huber(x); !close9(got, want) {
			t.Errorf("huber of %g: got %g, want %g", x, got, want)
		}
	}
	if got := Pull(100, 100*math.Exp(0.6)); !close9(got, 0.5) {
		t.Errorf("twice beyond the bend: got %g", got)
	}
	if got := Pull(100, 100*math.Exp(-0.29)); got != 1 {
		t.Errorf("before the bend: got %g", got)
	}
	new2 := func(seen ...Measured) *evaluation {
		return &evaluation{seen: seen, score: &Score{Pairs: 2}}
	}
	e := new2(Measured{TTFTUs: 100, SpanUs: 0, E2EUs: 500}, Measured{E2EUs: 7})
	if !e.left(0, &done) || !close9(e.score.Paired, huber(math.Ln2)/2) || !slices.Equal(e.simulated[0], []float64{200}) || len(e.simulated[1]) != 0 || !slices.Equal(e.simulated[2], []float64{500}) {
		t.Errorf("got %+v, simulated %v", e.score, e.simulated)
	}
	if e.left(1, &lost); !close9(e.score.Paired, huber(math.Ln2)/2+huber(4.605170185988)/2) || !math.IsInf(e.simulated[2][1], 1) || len(e.simulated[0]) != 1 {
		t.Errorf("one is missing: got %+v, simulated %v", e.score, e.simulated)
	}
	for bound, goesOn := range map[float64]bool{0: true, -1: true, huber(math.Ln2)/2 + 1e-9: true, huber(math.Ln2)/2 - 1e-9: false} {
		e := new2(Measured{TTFTUs: 100})
		if e.Bound = bound; e.left(0, &done) != goesOn {
			t.Errorf("a bound of %g: goes on %v", bound, !goesOn)
		}
	}
	// Derivatives of two columns in blocks of 1 ms: the request came in the third.
	for name, c := range map[string]struct {
		theta   []float64
		outcome Outcome
		target  float64 // of TTFT
		rows    int64
	}{"a change": {nil, OutcomeFinished, 100 - 50, 1}, "coefficients": {[]float64{3, 4}, OutcomeFinished, 100 - 50 + 3*2 + 4*5, 1}, "unfinished": {nil, OutcomeUnfinished, 0, 0}} {
		e := new2(Measured{TTFTUs: 100})
		e.BlockUs, e.Theta = 1000, c.theta
		r := done
		r.Outcome = c.outcome
		r.Gradient = &gradient{TTFT: Derivative{50, []float64{2, 5}}}
		e.left(0, &r)
		if c.rows == 0 {
			if len(e.score.Blocks) != 0 {
				t.Errorf("%s: got %d blocks", name, len(e.score.Blocks))
			}
			continue
		}
		if len(e.score.Blocks) != 3 || e.score.Blocks[0] != nil || e.score.Blocks[1] != nil {
			t.Fatalf("%s: got %v", name, e.score.Blocks)
		}
		w := 0.3 / math.Ln2 / (200 * 200)
		if g := e.score.Blocks[2]; g.N != c.rows || !close9(g.W*1e6, w*1e6) || !close9(g.B[0], w*2*c.target) || !close9(g.B[1], w*5*c.target) || !close9(g.Q, w*c.target*c.target) {
			t.Errorf("%s: got %+v, want a weight of %g and the target %g", name, g, w, c.target)
		}
	}
	e = &evaluation{measured: [metrics][]float64{{100, 300}, nil, {100}}, simulated: [metrics][]float64{{600, 200}, nil, {math.Inf(1)}}}
	if got, want := e.quantiles(), 0.5*(3*math.Ln2+3*4.605170185988); !close9(got, want) {
		t.Errorf("twice the times, and none: got %g, want %g", got, want)
	}
	e = &evaluation{measured: [metrics][]float64{{1}}, simulated: [metrics][]float64{{99}}}
	if got, want := e.quantiles(), 1.5*math.Log(99); !close9(got, want) {
		t.Errorf("99 times: got %g, want %g", got, want)
	}
	for name, c := range map[string]struct {
		seen []Measured
		want string
	}{
		"another number": {make([]Measured, 2), "measured requests: got 2 for 1, want one each"}, "no time": {make([]Measured, 1), "measured requests: got no time of 1 requests, want at least one"},
	} {
		if _, err := assess(Config{}, make([]Request, 1), c.seen, Options{}); err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// TestNeedsEscape: the characters between ' ' and '~' are written as they are, except quotes, backslashes and <, > and &.
func TestNeedsEscape(t *testing.T) {
	for c := range 256 {
		want := c < 0x20 || c > 0x7e || strings.IndexByte("\"\\<>&", byte(c)) >= 0
		if got := needsEscape("a" + string([]byte{byte(c)}) + "b"); got != want {
			t.Errorf("%#x: got %v", c, got)
		}
	}
	if needsEscape("") {
		t.Error("an empty text needs escapes")
	}
}

// TestPublishedLoads: a rank with 6 of 8 blocks free uses a quarter; loads are published at multiples of 100 ms.
func TestPublishedLoads(t *testing.T) {
	rank := func(total, free int64) *Engine { return &Engine{pool: &pool{Total: total, Free: free}} }
	b := &balancer{publishedUs: -1, servers: []apiServer{{first: 1, counts: make([]rankCounts, 2)}}}
	ranks := []*Engine{rank(1, 1), rank(8, 6), rank(0, 0)}
	b.publish(ranks, 99_999)
	if c := b.servers[0].counts; c[0] != (rankCounts{kvUsage: 0.25}) || c[1].kvUsage != 1 || b.publishedUs != 0 {
		t.Errorf("got %+v at %d us", c, b.publishedUs)
	}
	ranks[1].pool.Free = 2
	if b.publish(ranks, 99_999); b.servers[0].counts[0].kvUsage != 0.25 {
		t.Error("published twice within 100 ms")
	}
	if b.publish(ranks, 100_000); b.servers[0].counts[0].kvUsage != 0.75 || b.publishedUs != 100_000 {
		t.Errorf("got %+v at %d us", b.servers[0].counts, b.publishedUs)
	}
}

// TestEngineOfASet: the smoothing constant is that of the set, and a target that it does not have is no delay.
func TestEngineOfASet(t *testing.T) {
	set := testkit.Planted()
	set.Gamma = 0.7
	d := testkit.Llama8B()
	cfg, err := EngineOf(d, set)
	if err != nil || cfg.GammaEMA != 0.7 || cfg.Latency == nil || cfg.Overhead == nil || cfg.Egress == nil {
		t.Fatalf("got %+v, %v", cfg, err)
	}
	set.Alpha = nil
	cfg, err = EngineOf(d, set)
	if err != nil || cfg.Overhead != Const(0) || cfg.Egress != Const(0) {
		t.Errorf("without delays: got %v and %v, %v", cfg.Overhead, cfg.Egress, err)
	}
}
