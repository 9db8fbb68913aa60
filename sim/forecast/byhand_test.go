package forecast

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// fields is a step time in which each field of a batch has a weight of its own.
type fields struct{}

func (fields) StepUs(b *sim.Batch) (float64, error) {
	return 1 + 1e1*float64(b.DecodeReqs) + 1e3*float64(b.PrefillReqs) + 1e5*float64(b.PrefillTokens) + 1e9*float64(b.Running), nil
}

// refusing is a model that knows no step, or none with prompts.
type refusing struct{ prompts bool }

var errRefused = errors.New("no such step")

func (m refusing) StepUs(b *sim.Batch) (float64, error) {
	if m.prompts && b.PrefillReqs == 0 {
		return 7, nil
	}
	return 0, errRefused
}

// blocksSeen is a step time that shows the KV of the decodes.
type blocksSeen struct{ tokens, blocks *int64 }

func (s blocksSeen) StepUs(b *sim.Batch) (float64, error) {
	*s.tokens, *s.blocks = b.DecodeContext-b.DecodeReqs, b.DecodeBlocks
	return -5, nil
}

func TestStepsByHand(t *testing.T) {
	e := NewWith(fields{}, llama8b())
	for name, c := range map[string]struct {
		decodes, n, m int64
		want          float64
	}{
		"decodes":               {3, 0, 0, 1 + 30 + 3e9},
		"prompts":               {0, 2, 5, 1 + 2e3 + 5e5 + 2e9},
		"both":                  {3, 2, 5, 1 + 30 + 2e3 + 5e5 + 5e9},
		"more prompts than":     {0, 5, 2, 1 + 2e3 + 2e5 + 2e9},
		"no number of prompts":  {0, 0, 4, 1 + 1e3 + 4e5 + 1e9},
		"one token":             {0, 1, 1, 1 + 1e3 + 1e5 + 1e9},
		"prompts without token": {1, 3, 0, 1 + 10 + 1e9},
	} {
		if got, err := e.StepUs(c.decodes, 100, c.n, c.m); err != nil || got != c.want {
			t.Errorf("%s: got %g, %v, want %g", name, got, err, c.want)
		}
	}
	// The last block of the decodes counts as whole, and no step takes less than a microsecond.
	var tokens, blocks int64
	e = NewWith(blocksSeen{&tokens, &blocks}, llama8b())
	for n, want := range map[int64]int64{0: 0, 1: 1, 16: 1, 17: 2, 33: 3} {
		if us, _ := e.StepUs(2, n, 0, 0); us != 1 || tokens != n || blocks != want {
			t.Errorf("%d tokens: got %g us, %d tokens in %d blocks, want %d", n, us, tokens, blocks, want)
		}
	}
	d := llama8b()
	d.Engine.MaxNumBatchedTokens = 100
	d.Engine.MaxNumSeqs = 10
	for decodes, want := range map[int64][2]int64{0: {100, 10}, 9: {91, 1}, 10: {90, 0}, 11: {89, 0}, 99: {1, 0}, 100: {1, 0}} {
		if n, m := NewWith(hand{}, d).Room(decodes); n != want[0] || m != want[1] {
			t.Errorf("room beside %d decodes: got %d tokens and %d requests, want %v", decodes, n, m, want)
		}
	}
}

// seenQueue is a delay that keeps the queue it was asked for.
type seenQueue struct {
	q  *sim.Queue
	us float64
}

func (s seenQueue) DelayUs(q *sim.Queue) (float64, error) {
	*s.q = *q
	return s.us, nil
}

func TestOverheadByHand(t *testing.T) {
	d := llama8b()
	d.Engine.KVBlocksGPU = trace.Some[int64](900)
	e := NewWith(hand{}, d)
	s := State{Decodes: 3, StepRequests: 4, NextRequests: 5, AheadRequests: 6, FreeBlocks: 70}
	r := Request{PromptTokens: 200, CachedTokens: 63}
	if us, err := e.OverheadUs(&s, &r); us != 0 || err != nil {
		t.Errorf("no overhead: got %g, %v", us, err)
	}
	var q sim.Queue
	e.SetOverhead(seenQueue{&q, 12.5})
	us, err := e.OverheadUs(&s, &r)
	if want := (sim.Queue{Running: 12, Waiting: 6, FreeBlocks: 70, TotalBlocks: 900, PromptTokens: 200, CachedBlocks: 3}); q != want || us != 12.5 || err != nil {
		t.Errorf("got %g us of %+v, want 12.5 of %+v", us, q, want)
	}
	s.FreeBlocks = -1
	e.SetOverhead(seenQueue{&q, -3})
	if us, _ := e.OverheadUs(&s, &r); us != 0 || q.FreeBlocks != 0 {
		t.Errorf("got %g us with %d blocks, want 0 and 0", us, q.FreeBlocks)
	}
}

// TestNewTakesTheOverhead: a coefficient set's overhead is added, and a set without one has none.
func TestNewTakesTheOverhead(t *testing.T) {
	set := testkit.Planted()
	d := llama8b()
	e, err := New(set, d)
	if err != nil {
		t.Fatal(err)
	}
	if (e.overhead != nil) != (set.AlphaModel(coeff.Overhead) != nil) {
		t.Errorf("got the overhead %v", e.overhead)
	}
	steps, err := sim.NewPhysics(set, d)
	if err != nil {
		t.Fatal(err)
	}
	var b sim.Batch
	b.AddPrefill(0, 100, 100)
	b.Running = 1
	want, err := steps.StepUs(&b)
	if got, err2 := e.StepUs(0, 0, 1, 100); err != nil || err2 != nil || got != want {
		t.Errorf("got a step of %g us, %v, want %g", got, err2, want)
	}
	broken := *set
	broken.SpecVersion = "0.0"
	if _, err := New(&broken, d); err == nil {
		t.Error("coefficients of an unknown version are taken")
	}
}

// TestErrorsOfAModel: no estimate is made of a step that the model refuses.
func TestErrorsOfAModel(t *testing.T) {
	for name, c := range map[string]struct {
		steps sim.Model
		s     State
	}{
		"the running step": {refusing{}, State{Decodes: 2}},
		"its own step":     {refusing{prompts: true}, State{Decodes: 2, FreeBlocks: -1}},
		"joined by others": {refusing{prompts: true}, State{ComingPerS: 10, ComingPrompt: 1000, BehindTokens: 5, Decodes: 1, FreeBlocks: -1}},
	} {
		e := NewWith(c.steps, llama8b())
		if x, err := e.TTFT(&c.s, &Request{PromptTokens: 10}); !errors.Is(err, errRefused) || x != (TTFT{}) {
			t.Errorf("TTFT, %s: got %+v, %v", name, x, err)
		}
	}
	e := NewWith(refusing{prompts: true}, llama8b())
	if us, err := e.TPOTUs(&State{Decodes: 2, PrefillPerS: 10, PromptsPerS: 1, FreeBlocks: -1}, &Request{PromptTokens: 10}, 0); !errors.Is(err, errRefused) || us != 0 {
		t.Errorf("TPOT: got %g, %v", us, err)
	}
	if us, err := e.TPOTUs(&State{Decodes: 2, PrefillPerS: 10, FreeBlocks: -1}, &Request{PromptTokens: 10}, 0); err != nil || us != 7 {
		t.Errorf("TPOT without arrivals: got %g, %v, want a step of the decodes", us, err)
	}
	if us, err := e.TPOTUs(&State{Decodes: 2, PromptsPerS: 10, FreeBlocks: -1}, &Request{PromptTokens: 10}, 0); err != nil || us != 7 {
		t.Errorf("TPOT of prompts without tokens: got %g, %v, want a step of the decodes", us, err)
	}
	if _, err := NewWith(refusing{}, llama8b()).TPOTUs(&State{FreeBlocks: -1, PrefillPerS: 10, PromptsPerS: 1}, &Request{PromptTokens: 10}, 0); !errors.Is(err, errRefused) {
		t.Errorf("TPOT: got %v", err)
	}
}

// TestDecodesLeaveByHand states what a step does to the decodes: of 8 with 160 tokens a quarter leaves.
func TestDecodesLeaveByHand(t *testing.T) {
	x := rollout{Engine: NewWith(hand{}, llama8b()), decodes: 8, tokens: 160, freeSeqs: 1, blocks: 10, leaving: 0.25, blocksOfOne: 3,
		windows: []float64{0.25, 0.5}, windowSteps: 2, windowLeft: 2}
	type state struct{ decodes, tokens, seqs, blocks, leaving float64 }
	for i, want := range []state{
		{6, 160 + 8 - 40, 3, 10 + 6 - 0.5, 0.25},
		{4.5, 128 + 6 - 32, 4.5, 15.5 + 4.5 - 0.375, 0.5},
		{2.25, 102 + 4.5 - 51, 6.75, 19.625 + 6.75 - 0.28125, 0.5},
		{1.125, 55.5 + 2.25 - 27.75, 7.875, 26.09375 + 3.375 - 0.140625, 0.5},
	} {
		x.dropFinished()
		if got := (state{x.decodes, x.tokens, x.freeSeqs, x.blocks, x.leaving}); got != want {
			t.Errorf("step %d: got %+v, want %+v", i+1, got, want)
		}
	}
	if len(x.windows) != 1 || x.windowLeft != 0 {
		t.Errorf("got %d windows, %d steps left", len(x.windows), x.windowLeft)
	}
}

// TestRoomByHand: a prompt needs a place and whole blocks.
func TestRoomByHand(t *testing.T) {
	for name, c := range map[string]struct {
		seqs, blocks float64
		hasAllKV     bool
		tokens       int64
		want         bool
	}{
		"just":                      {1, 2, false, 32, true},
		"a token more":              {1, 2, false, 33, false},
		"by rounding":               {1 - 1e-10, 2 - 1e-10, false, 32, true},
		"no place by a little":      {1 - 1e-8, 2, false, 32, false},
		"no block by a little":      {1, 2 - 1e-8, false, 32, false},
		"no place":                  {0.5, 2, true, 32, false},
		"blocks unknown":            {1, -1, true, 1000, true},
		"exactly the rounding, seq": {1 - 1e-9, 2, false, 32, true},
		"exactly the rounding":      {1, 2 - 1e-9, false, 32, true},
	} {
		x := rollout{Engine: NewWith(hand{}, llama8b()), freeSeqs: c.seqs, blocks: c.blocks, hasAllKV: c.hasAllKV}
		if got := x.fits(c.tokens); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	for tokens, blocks := range map[int64]float64{1: 1, 16: 1, 17: 2} {
		x := rollout{Engine: NewWith(hand{}, llama8b()), freeSeqs: 5, blocks: 10}
		if x.admitPrompt(tokens); x.freeSeqs != 4 || x.blocks != 10-blocks {
			t.Errorf("%d tokens: got %g places and %g blocks left", tokens, x.freeSeqs, x.blocks)
		}
	}
	for v, want := range map[float64]int64{0: 0, 0.49: 0, 0.5: 1, 1.49: 1, 7: 7} {
		if got := round(v); got != want {
			t.Errorf("%g: got %d", v, got)
		}
	}
	for threshold, want := range map[int64]int64{0: 100, 1: 1, 99: 99, 101: 100} {
		d := llama8b()
		d.Engine.LongPrefillThreshold = threshold
		x := rollout{Engine: NewWith(hand{}, d)}
		if got := x.capPrefill(100); got != want {
			t.Errorf("threshold %d: got %d", threshold, got)
		}
	}
}

// TestCappedMeanByHand: the mean of min(X, limit) of a normal X, from its density: at limit = mean it is sd/sqrt(2 pi) below.
func TestCappedMeanByHand(t *testing.T) {
	for name, c := range map[string]struct{ mean, sd, limit, want float64 }{
		"sharp":               {5, 0, 7, 5},
		"sharp, capped":       {9, 0, 7, 7},
		"at the mean":         {50, 3, 50, 50 - 3/math.Sqrt(2*math.Pi)},
		"no cap":              {50, 3, 500, 50},
		"far below":           {50, 3, 5, 5},
		"one deviation above": {50, 3, 53, 50*0.8413447460685429 - 3*0.24197072451914337 + 53*0.15865525393145707},
		"below 0":             {0, 3, 0, 0},
	} {
		if got := meanCapped(c.mean, c.sd, c.limit); !near(got, c.want) {
			t.Errorf("%s: got %g, want %g", name, got, c.want)
		}
	}
}

// TestOvertakingByHand: 1000 tokens per s of better classes in prompts of 7 are 2 whole requests after 20 ms.
func TestOvertakingByHand(t *testing.T) {
	for name, c := range map[string]struct {
		nowUs, overtook float64
		ahead, requests int64
		seqs            float64
		budget          int64
		want            [3]int64 // tokens ahead, their requests, tokens that overtook
	}{
		"room for all":           {20_000, 0, 10, 1, 9, 124, [3]int64{10, 1, 0}},
		"a token too many":       {20_000, 0, 10, 1, 9, 123, [3]int64{24, 3, 14}},
		"just as many places":    {20_000, 0, 10, 1, 4, 124, [3]int64{10, 1, 0}},
		"one place too few":      {20_000, 0, 10, 1, 3.9, 124, [3]int64{24, 3, 14}},
		"one of them has passed": {20_000, 7, 10, 1, 9, 0, [3]int64{17, 2, 14}},
		"both have":              {20_000, 14, 10, 1, 9, 0, [3]int64{10, 1, 14}},
		"less than one":          {6_999, 0, 10, 1, 9, 0, [3]int64{10, 1, 0}},
		"exactly one":            {7_000, 0, 10, 1, 9, 0, [3]int64{17, 2, 7}},
	} {
		x := rollout{Engine: NewWith(hand{}, llama8b()), now: c.nowUs, betterPerS: 1000, betterPrompt: 7, own: 100, ahead: c.ahead, requests: c.requests,
			freeSeqs: c.seqs, overtook: c.overtook}
		x.overtake(c.budget)
		if got := [3]int64{x.ahead, x.requests, int64(x.overtook)}; got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	// The time counts at which a step is formed: with asynchronous scheduling the start of the one before.
	for _, c := range []struct {
		async, inStep  bool
		start, now     float64
		formed, queued float64 // the latest time that joins
	}{{false, true, 3, 5, 5, 5}, {true, false, 3, 5, 5, 5}, {true, true, 3, 5, 3, 3}, {true, true, -3, 5, 0, -3}, {false, true, 3, -5, 0, -5}} {
		x := rollout{Engine: &Engine{async: c.async}, inStep: c.inStep, stepStart: c.start, now: c.now, queuedUs: c.queued}
		if got := x.formedUs(); got != c.formed {
			t.Errorf("%+v: formed at %g", c, got)
		}
		if !x.joins() {
			t.Errorf("%+v: does not join", c)
		}
		if x.queuedUs++; x.joins() {
			t.Errorf("%+v: joins a microsecond later", c)
		}
	}
}

// TestJoiningPromptsByHand: what waits behind the request fills the step first; of the prompts that are expected after 10 ms
// the mean joins, less where none is the likelier case and more where one is certain.
func TestJoiningPromptsByHand(t *testing.T) {
	for name, c := range map[string]struct {
		behind, room     int64
		perS, of         float64
		want, wantChunks int64
		isLikelyAlone    bool
	}{
		"nothing":                       {0, 100, 0, 0, 0, 0, false},
		"behind it":                     {30, 100, 0, 0, 30, 1, false},
		"behind it, more than room":     {130, 100, 900, 0, 100, 1, false},
		"of unknown lengths":            {0, 100, 900, 0, 9, 1, false},
		"of a token":                    {0, 100, 198, 1, 2, 1, false},            // 1.98/(1 - exp(-1.98)) = 2.30
		"half a prompt":                 {0, 10_000, 50_000, 1000, 38, 1, true},   // 500*(1 - 0.5/ln 2)^2 = 38.8
		"two prompts":                   {0, 100_000, 20_000, 100, 231, 1, false}, // 200/(1 - exp(-2)) = 231.3
		"behind it and one that is cut": {90, 100, 9e9, 100, 100, 2, false},
	} {
		x := rollout{Engine: NewWith(hand{}, llama8b()), now: 10_000, comingPerS: c.perS, comingPrompt: c.of, behind: c.behind}
		err := x.joinOthers(c.room)
		if err != nil || x.batch.PrefillTokens != c.want || x.batch.PrefillReqs != c.wantChunks || x.likelyUs > 0 != c.isLikelyAlone {
			t.Errorf("%s: got %d tokens in %d chunks, %g us alone, %v", name, x.batch.PrefillTokens, x.batch.PrefillReqs, x.likelyUs, err)
		}
	}
}

// TestExtrapolationByHand: 32 steps of 1000 us have passed, and what is left takes as many more of them as tokens, places or
// blocks need.
func TestExtrapolationByHand(t *testing.T) {
	for name, c := range map[string]struct {
		change func(x *rollout)
		steps  float64
	}{
		"nothing left":              {func(x *rollout) { x.own = 0 }, 0},
		"tokens":                    {func(*rollout) {}, (300.0 + 60) / 90},
		"a full budget":             {func(x *rollout) { x.decodes = 200 }, 360},
		"better classes":            {func(x *rollout) { x.betterPerS = 45_000 }, 360.0 / 90 / 0.5}, // 45 tokens in a step of 1 ms
		"better classes take all":   {func(x *rollout) { x.betterPerS = 1e9 }, 360.0 / 90 * 10},
		"places":                    {func(x *rollout) { x.freeSeqs = 1; x.leaving = 0.01 }, (3.0 - 1) / 0.1},
		"just enough places":        {func(x *rollout) { x.freeSeqs = 3; x.leaving = 0.01 }, 4},
		"places by windows":         {func(x *rollout) { x.freeSeqs = 1; x.windows = []float64{0.01, 0.03} }, (3.0 - 1) / 0.2},
		"places, better classes":    {func(x *rollout) { x.freeSeqs = 1; x.leaving = 0.01; x.betterPerS = 500 }, (3.0 - 1) / 0.1 / 0.5}, // 0.5 tokens, 0.05 requests a step
		"nobody leaves":             {func(x *rollout) { x.freeSeqs = 1 }, 64},
		"blocks":                    {func(x *rollout) { x.hasAllKV = false; x.leaving = 0.1; x.blocks = 4 }, (360.0/16 + 1.5 - 4) / (3 - 10.0/16)},
		"enough blocks":             {func(x *rollout) { x.hasAllKV = false; x.leaving = 0.1; x.blocks = 24 }, 4},
		"blocks that never free up": {func(x *rollout) { x.hasAllKV = false; x.blocks = 4 }, 4},
	} {
		d := llama8b()
		d.Engine.MaxNumBatchedTokens = 100
		x := rollout{Engine: NewWith(hand{}, d), now: 37_000, decodes: 10, tokens: 500, freeSeqs: 50, hasAllKV: true, ahead: 300, own: 60, requests: 2,
			betterPrompt: 10, blocksOfOne: 3}
		c.change(&x)
		x.extrapolate(5_000)
		if want := 37_000 + 1000*c.steps; !near(x.now, want) || x.own != 0 {
			t.Errorf("%s: got %g us and %d tokens, want %g", name, x.now, x.own, want)
		}
	}
}

// TestLongWaitsByHand: prompts ahead that fill 40 steps take 32 that are played and 8 more of them.
func TestLongWaitsByHand(t *testing.T) {
	d := llama8b()
	d.Engine.MaxNumBatchedTokens = 100
	e := NewWith(hand{}, d)
	x, err := e.TTFT(&State{AheadTokens: 3950, AheadRequests: 1, FreeBlocks: -1}, &Request{PromptTokens: 50})
	if err != nil || !near(x.Us, 40*2000) || x.LikelyUs != x.Us {
		t.Errorf("got %+v, %v, want 40 steps of 2000 us", x, err)
	}
}

// TestTTFTPartsByHand: more states with step times of 1000 + 10 per prompt token + 100 per decode.
func TestTTFTPartsByHand(t *testing.T) {
	for _, c := range []struct {
		name       string
		s          State
		r          Request
		change     func(d *deploy.Deployment)
		us, likely float64
	}{
		{"likely: nothing joins", State{Decodes: 2, SinceStepUs: 500, ComingPerS: 10_000, ComingPrompt: 20, FreeBlocks: -1}, Request{100, 0}, nil, 700 + 2210, 700 + 2200},
		{"likely: something joins", State{Decodes: 2, SinceStepUs: 500, ComingPerS: 1e6, ComingPrompt: 10, FreeBlocks: -1}, Request{100, 0}, nil, 700 + 9200, 700 + 9200},
		{"behind, as far as there is room", State{BehindTokens: 500, FreeBlocks: -1}, Request{100, 0},
			func(d *deploy.Deployment) { d.Engine.MaxNumBatchedTokens = 130 }, 2300, 2300},
		{"long prompts in parts", State{FreeBlocks: -1}, Request{100, 0}, func(d *deploy.Deployment) { d.Engine.LongPrefillThreshold = 40 },
			1400 + 1400 + 1200, 1400 + 1400 + 1200},
		{"long prompts ahead in parts", State{AheadTokens: 100, AheadRequests: 1, FreeBlocks: -1}, Request{10, 0}, func(d *deploy.Deployment) { d.Engine.LongPrefillThreshold = 40 },
			1400 + 1400 + 1000 + 200 + 100, 1400 + 1400 + 1000 + 200 + 100},
		{"a full budget of decodes", State{Decodes: 2, SinceStepUs: 1200, FreeBlocks: -1}, Request{10, 0}, func(d *deploy.Deployment) { d.Engine.MaxNumBatchedTokens = 3 },
			9*1210 + 1210, 9*1210 + 1210},
	} {
		d := llama8b()
		if c.change != nil {
			c.change(d)
		}
		x, err := NewWith(hand{}, d).TTFT(&c.s, &c.r)
		if err != nil || !near(x.Us, c.us) || !near(x.LikelyUs, c.likely) {
			t.Errorf("%s: got %+v, %v, want %g and %g", c.name, x, err, c.us, c.likely)
		}
	}
}

// TestTPOTPartsByHand: blocks of the requests ahead, whole prompts and a full server.
func TestTPOTPartsByHand(t *testing.T) {
	e := NewWith(hand{}, llama8b())
	for name, c := range map[string]struct {
		s    State
		want int64
	}{
		"none ahead":              {State{FreeBlocks: 5}, 0},
		"blocks unknown":          {State{AheadRequests: 7, AheadTokens: 700, FreeBlocks: -1}, 7},
		"none free":               {State{AheadRequests: 7, AheadTokens: 700}, 0},
		"7 blocks for each":       {State{AheadRequests: 7, AheadTokens: 700, FreeBlocks: 20}, 2},
		"7 for each of three":     {State{AheadRequests: 7, AheadTokens: 700, FreeBlocks: 21}, 3},
		"one block at least":      {State{AheadRequests: 7, AheadTokens: 0, FreeBlocks: 5}, 5},
		"whole blocks":            {State{AheadRequests: 2, AheadTokens: 32, FreeBlocks: 1}, 1},
		"more blocks than needed": {State{AheadRequests: 2, AheadTokens: 34, FreeBlocks: 99}, 2},
		"one, of two blocks":      {State{AheadRequests: 1, AheadTokens: 17, FreeBlocks: 1}, 0},
	} {
		if got := e.admittedAhead(&c.s); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
	whole := llama8b()
	whole.Engine.ChunkedPrefill = false
	whole.Engine.MaxNumBatchedTokens = 1003
	// Prompts of 100 whole beside 3 decodes: at most 1000 - 50 tokens in a step. They come as fast as they can be computed.
	s := State{Decodes: 2, PrefillPerS: 100_000, PromptsPerS: 1000, FreeBlocks: -1}
	if got, err := NewWith(hand{}, whole).TPOTUs(&s, &Request{PromptTokens: 10}, 0); err != nil || got != 1300+9500 {
		t.Errorf("whole prompts: got %g, %v, want a step of 950 tokens", got, err)
	}
	whole.Engine.ChunkedPrefill = true
	if got, err := NewWith(hand{}, whole).TPOTUs(&s, &Request{PromptTokens: 10}, 0); err != nil || got != 1300+10_000 {
		t.Errorf("parts of prompts: got %g, %v, want a step of 1000 tokens", got, err)
	}
	// The tokens of the decodes: their own, those of the steps, the prompt, half an output, and those of who is admitted of those ahead.
	var tokens, blocks int64
	seen := NewWith(blocksSeen{&tokens, &blocks}, llama8b())
	s = State{Decodes: 2, DecodeTokens: 1000, StepTokens: 200, NextTokens: 30, OutputTokens: 15, AheadRequests: 4, AheadTokens: 400, FreeBlocks: 14}
	if _, err := seen.TPOTUs(&s, &Request{PromptTokens: 5}, 0); err != nil || tokens != 1000+200+30+5+7+200 {
		t.Errorf("got %d tokens, %v", tokens, err)
	}
	// Every prompt token costs 10 us: of 10,000 per s 0.1 of all time. After a first token that took 20 ms the 50 gaps share the
	// tokens that came meanwhile.
	s = State{Decodes: 2, PrefillPerS: 10_000, PromptsPerS: 100, OutputTokens: 51, FreeBlocks: -1}
	if got, err := e.TPOTUs(&s, &Request{PromptTokens: 10}, 20_000); err != nil || !near(got, 1300/0.9+0.01*20_000/0.9*10/50) {
		t.Errorf("got %g, %v", got, err)
	}
	// With one token there is no gap to share them.
	s.OutputTokens = 1
	if got, err := e.TPOTUs(&s, &Request{PromptTokens: 10}, 20_000); err != nil || !near(got, 1300/0.9) {
		t.Errorf("one token: got %g, %v", got, err)
	}
}

// TestRunningStepByHand: what is known of the decision after the running step.
func TestRunningStepByHand(t *testing.T) {
	for name, c := range map[string]struct {
		s     State
		async bool
		want  string // start of the step before, boundary, in a step, decodes
	}{
		"idle":               {State{}, false, "0 0 false 0"},
		"decodes":            {State{Decodes: 2, SinceStepUs: 200}, false, "-200 1000 true 2"},
		"a step of prompts":  {State{StepTokens: 5, StepRequests: 1, SinceStepUs: 50}, false, "-50 1000 true 1"},
		"a formed one":       {State{NextTokens: 5, NextRequests: 1, SinceStepUs: 0}, true, "1000 2050 true 1"},
		"both":               {State{Decodes: 1, StepTokens: 5, StepRequests: 1, NextTokens: 7, NextRequests: 2, SinceStepUs: 150}, true, "1000 2270 true 4"},
		"not of synchronous": {State{NextTokens: 5, NextRequests: 1, SinceStepUs: 400}, false, "-400 600 true 0"},
	} {
		x := rollout{Engine: NewWith(hand{}, llama8b()), decodes: float64(c.s.Decodes)}
		x.async = c.async
		if err := x.finishStep(&c.s); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(x.stepStart, x.now, x.inStep, x.decodes); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
