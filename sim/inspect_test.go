package sim

import (
	"math"
	"reflect"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// TestInsideByHand: what a metrics page shows of two requests, of which one runs, and of a third that is on its way.
func TestInsideByHand(t *testing.T) {
	cfg := DefaultConfig(testkit.Small(100, func(e *vllm.Engine) {
		e.MaxNumSeqs = 1
		e.MaxNumBatchedTokens = 16
		e.BlockSize = 16
		e.ChunkedPrefill = true
		e.PrefixCaching = false
		e.AsyncScheduling = trace.Some(false)
	}), &Blackbox{Beta: []float64{1000, 0, 0}})
	left := map[int]int64{}
	e, err := NewEngine(cfg, nil, Hooks{Left: func(i int, atUs int64, _ *RequestResult) { left[i] = atUs }})
	if err != nil {
		t.Fatal(err)
	}
	if in := e.Inside(); in != (inside{FreeBlocks: in.TotalBlocks, TotalBlocks: in.TotalBlocks, StepStartUs: -1}) || in.TotalBlocks < 90 {
		t.Errorf("idle: got %+v", in)
	}
	total := e.Inside().TotalBlocks
	reqs := []Request{{ID: "a", PromptTokens: 24, OutputTokens: 4, Priority: 5}, {ID: "b", ArrivalUs: 10, PromptTokens: 8, OutputTokens: 2}, {ID: "c", ArrivalUs: 20, PromptTokens: 9, OutputTokens: 2}}
	for i := range reqs {
		if err := e.RunTo(reqs[i].ArrivalUs); err != nil {
			t.Fatal(err)
		}
		if err := e.Arrive(i, &reqs[i], reqs[i].ArrivalUs); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.RunTo(500); err != nil {
		t.Fatal(err)
	}
	// The step that began at 0 computes 16 of 24 tokens; b and c wait for its end.
	if in := e.Inside(); in.Running != 1 || in.Waiting != 2 || in.StepStartUs != 0 || in.TotalBlocks != total || in.FreeBlocks != total-1 {
		t.Errorf("in the first step: got %+v", in)
	}
	works := func() (out []Work) {
		e.Each(func(w Work) { out = append(out, w) })
		return out
	}
	want := []Work{{Computed: 16, Prompt: 24, InStep: 16, Remaining: 4, Priority: 5, Running: true}, {Prompt: 8, Remaining: 2}, {Prompt: 9, Remaining: 2}}
	if got := works(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := e.RunTo(2500); err != nil {
		t.Fatal(err)
	}
	// The third step decodes after 8 more tokens of the prompt and the first token.
	got := works()
	if len(got) != 3 || got[0].Outputs != 1 || got[0].Remaining != 3 || got[0].Computed != 25 || !got[0].Running || got[1].Running {
		t.Errorf("got %+v", got)
	}
	if err := e.RunTo(math.MaxInt64); err != nil {
		t.Fatal(err)
	}
	if len(left) != 3 || len(works()) != 0 || e.Inside().FreeBlocks != total || e.RankOf(1) != 0 {
		t.Errorf("at the end: got %v, %+v", left, e.Inside())
	}
}

// TestCloneRunsOn: a copy of a running engine goes on as the engine does, and leaves it alone; what it cannot have is not copied.
func TestCloneRunsOn(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"synchronous": func(*Config) {}, "asynchronous": func(c *Config) { c.Async = true },
		"noise":    func(c *Config) { c.Noise = &Noise{Decode: []Quantile{{Q: 0.1, Ratio: 0.9}, {Q: 0.9, Ratio: 1.2}}} },
		"priority": func(c *Config) { c.Deployment.Engine.SchedulingPolicy = "priority" },
		"delays":   func(c *Config) { c.Overhead, c.Egress = Const(3000), Const(500) },
	} {
		cfg := DefaultConfig(testkit.Small(300, func(e *vllm.Engine) { e.MaxNumSeqs = 16 }), &Blackbox{Beta: []float64{4000, 20, 100}})
		change(&cfg)
		reqs := mixed(120, 40)
		for i := range reqs {
			reqs[i].PromptTokens = min(reqs[i].PromptTokens, 900)
			reqs[i].GroupTokens = min(reqs[i].GroupTokens, reqs[i].PromptTokens)
			reqs[i].OutputTokens = min(reqs[i].OutputTokens, 150)
			reqs[i].MaxTokens = 150
			reqs[i].Priority = int64(i % 3)
		}
		results := func() (map[int]RequestResult, Hooks) {
			into := map[int]RequestResult{}
			return into, Hooks{Left: func(i int, _ int64, r *RequestResult) { into[i] = *r }}
		}
		ours, hooks := results()
		e, err := NewEngine(cfg, nil, hooks)
		if err != nil {
			t.Fatal(err)
		}
		for i := range reqs[:80] {
			if err := e.RunTo(reqs[i].ArrivalUs); err != nil {
				t.Fatal(err)
			}
			if err := e.Arrive(i, &reqs[i], reqs[i].ArrivalUs); err != nil {
				t.Fatal(err)
			}
		}
		if !e.CanClone() {
			t.Fatalf("%s: cannot be copied", name)
		}
		before := e.Inside()
		copied, hooks := results()
		c := e.Clone(hooks)
		rest := func(x *Engine) {
			for i := 80; i < len(reqs); i++ {
				if err := x.RunTo(reqs[i].ArrivalUs); err != nil {
					t.Fatal(err)
				}
				if err := x.Arrive(i, &reqs[i], reqs[i].ArrivalUs); err != nil {
					t.Fatal(err)
				}
			}
			if err := x.RunTo(math.MaxInt64); err != nil {
				t.Fatal(err)
			}
		}
		rest(c)
		if after := e.Inside(); after != before {
			t.Errorf("%s: the copy changed the engine from %+v to %+v", name, before, after)
		}
		done := len(ours)
		rest(e)
		if len(copied) != len(reqs)-done || len(copied) < 45 {
			t.Fatalf("%s: %d requests left the copy, %d the engine of %d", name, len(copied), len(ours), len(reqs))
		}
		preemptions := int64(0)
		for i, r := range copied {
			preemptions += r.Preemptions
			if !reflect.DeepEqual(r, ours[i]) {
				t.Fatalf("%s: request %d: the copy has %+v, the engine %+v", name, i, r, ours[i])
			}
		}
		if preemptions == 0 {
			t.Errorf("%s: no request was preempted", name)
		}
	}
	e := &Engine{}
	for name, change := range map[string]func(*Engine){"derivatives": func(e *Engine) { e.grad = &clocks{} }, "ranks": func(e *Engine) { e.rank = &rank{} }} {
		own := *e
		if change(&own); own.CanClone() || !e.CanClone() {
			t.Errorf("%s: can be copied", name)
		}
	}
}

// TestWatchedBlocks: a content of several ranks is reported with the first rank that has it and with the last that loses it.
func TestWatchedBlocks(t *testing.T) {
	cfg := DefaultConfig(testkit.Small(100, func(e *vllm.Engine) { e.PrefixCaching = true }), &Blackbox{Beta: []float64{1000, 1, 1}})
	cfg = ranked(cfg, 2, "0.24.0")
	r, err := newRanks(cfg, nil, Hooks{Left: func(int, int64, *RequestResult) {}})
	if err != nil {
		t.Fatal(err)
	}
	type event struct {
		hash   uint64
		stored bool
	}
	var got []event
	r.Watch(func(_ int64, hash uint64, stored bool) { got = append(got, event{hash, stored}) })
	changed := func(rank int, hash uint64, stored bool) { r.engines[rank].pool.Watch(hash, stored) }
	changed(0, 7, true)
	changed(1, 7, true)
	changed(1, 8, true)
	changed(0, 7, false)
	changed(1, 7, false)
	if want := []event{{7, true}, {8, true}, {7, false}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	in := r.Inside()
	if one := r.engines[0].Inside(); in.TotalBlocks != 2*one.TotalBlocks || in.FreeBlocks != in.TotalBlocks || in.StepStartUs != -1 || in.Running != 0 {
		t.Errorf("got %+v of twice %+v", in, one)
	}
	request := Request{ID: "a", PromptTokens: 33, OutputTokens: 2, Group: 3, GroupTokens: 32}
	if err := r.Arrive(0, &request, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.RunTo(500); err != nil {
		t.Fatal(err)
	}
	rank := r.RankOf(0)
	if in := r.Inside(); in.Running != 1 || r.engines[rank].Inside().Running != 1 || in.StepStartUs != 0 || in.FreeBlocks >= in.TotalBlocks {
		t.Errorf("got %+v, on rank %d", in, rank)
	}
	hashes := request.BlockHashes(0, 16, []uint64{1})
	if len(hashes) != 3 || hashes[0] != 1 || hashes[1] == hashes[2] {
		t.Errorf("got %v, want two blocks of the group's 32 tokens behind the first", hashes)
	}
}

// TestTimesOfDrafters: a drafter takes part in steps that sample a token, an exchange in those among ranks.
func TestTimesOfDrafters(t *testing.T) {
	m := &drafting{Model: &Blackbox{Beta: []float64{1000, 0, 0}}, us: 70}
	for _, c := range []struct {
		b    Batch
		want float64
	}{{Batch{}, 1000}, {Batch{DecodeReqs: 1}, 1070}, {Batch{PrefillReqs: 1}, 1070}} {
		if us, err := m.StepUs(&c.b); err != nil || us != c.want {
			t.Errorf("%+v: got %g us, %v, want %g", c.b, us, err, c.want)
		}
	}
	d := testkit.Small(10)
	if plain := Model(m.Model); WithDrafter(plain, d) != plain || WithExchange(plain, d) != plain {
		t.Error("a model without a drafter and without ranks was wrapped")
	}
	if m.Warnings() != nil {
		t.Errorf("got warnings %v", m.Warnings())
	}
}
