package forecast

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// llama8b is the shared one with a smaller step.
func llama8b() *deploy.Deployment {
	d := testkit.Llama8B()
	d.Engine.MaxNumBatchedTokens = 2048
	return d
}

func poisson(rng *rand.Rand, n int, perSecond float64) []sim.Request {
	reqs := make([]sim.Request, n)
	at := 0.0
	for i := range reqs {
		at += rng.ExpFloat64() / perSecond * 1e6
		reqs[i] = sim.Request{ArrivalUs: int64(at), PromptTokens: clamp(math.Exp(5.7+rng.NormFloat64()), 4, 4000),
			OutputTokens: clamp(math.Exp(4.8+0.8*rng.NormFloat64()), 1, 1000), MaxTokens: 1024}
	}
	return reqs
}

func clamp(x float64, lo, hi int64) int64 { return min(hi, max(lo, int64(x))) }

// formed is a step: when it was formed, its prompt tokens, and whose prompts end
// in it.
type formed struct {
	startUs, endUs, tokens int64
	ends                   []int
}

// requests are those whose prompt ends in the step and who have no token yet.
func (f *formed) requests(first map[int]bool) (n int64) {
	for _, i := range f.ends {
		if !first[i] {
			n++
		}
	}
	return n
}

// onlooker judges every request at its arrival, from what the engine showed
// until then.
type onlooker struct {
	engine     *Engine
	coming     bool
	reqs       []sim.Request
	last, prev formed // steps formed last and before
	free       int64
	computed   map[int]int64 // prompt tokens computed when the running step ends
	first      map[int]bool
	done       map[int]bool
	arrived    []int
	finished   []float64
	all        []int     // requests in the order of their arrivals
	ttft, tpot []float64 // by request
	fail       func(error)
}

func (o *onlooker) Step(s *sim.StepView) {
	o.prev, o.free = o.last, s.FreeBlocks
	o.last = formed{startUs: s.StartUs, endUs: s.EndUs}
	for _, m := range s.Members {
		o.computed[m.Request] = m.Computed + m.New
		if m.Computed < m.Prompt {
			o.last.tokens += m.New
			if m.Computed+m.New >= m.Prompt {
				o.last.ends = append(o.last.ends, m.Request)
			}
		}
	}
}

func (o *onlooker) Event(e *sim.Event) {
	switch e.Kind {
	case sim.Arrived:
		s := o.state(e.AtUs)
		r := Request{PromptTokens: o.reqs[e.Request].PromptTokens}
		x, err := o.engine.TTFT(&s, &r)
		if err != nil {
			o.fail(err)
		}
		o.ttft[e.Request] = x.Us
		if o.tpot[e.Request], err = o.engine.TPOTUs(&s, &r, o.ttft[e.Request]); err != nil {
			o.fail(err)
		}
		o.arrived = append(o.arrived, e.Request)
		o.all = append(o.all, e.Request)
	case sim.FirstToken:
		o.first[e.Request] = true
	case sim.Finished:
		o.done[e.Request] = true
		o.finished = append(o.finished, float64(e.OutputTokens))
	}
}

func (o *onlooker) state(at int64) State {
	s := State{SinceStepUs: float64(at - o.last.startUs), FreeBlocks: o.free}
	o.arrived = slices.DeleteFunc(o.arrived, func(i int) bool { return o.done[i] })
	for _, i := range o.arrived {
		switch left := o.reqs[i].PromptTokens - o.computed[i]; {
		case o.first[i]:
			s.Decodes++
			s.DecodeTokens += o.computed[i]
		case left > 0:
			s.AheadRequests++
			s.AheadTokens += left
		}
	}
	running := &o.last
	if o.engine.async && o.prev.endUs > at {
		running = &o.prev
		if s.NextRequests = o.last.requests(o.first); s.NextRequests > 0 || o.last.ends == nil {
			s.NextTokens = o.last.tokens
		}
	}
	if s.StepRequests = running.requests(o.first); s.StepRequests > 0 || running.ends == nil {
		s.StepTokens = running.tokens
	}
	const windowUs = 10_000_000
	for k := len(o.all) - 1; k >= 0 && o.reqs[o.all[k]].ArrivalUs > at-windowUs; k-- {
		s.PrefillPerS += float64(o.reqs[o.all[k]].PromptTokens) / math.Min(windowUs, float64(at)) * 1e6
		s.PromptsPerS += 1 / math.Min(windowUs, float64(at)) * 1e6
	}
	if o.coming {
		s.ComingPerS = s.PrefillPerS
		s.ComingPrompt = s.PrefillPerS / s.PromptsPerS
	}
	recent := o.finished[max(0, len(o.finished)-512):]
	for _, n := range recent {
		s.OutputTokens += n / float64(len(recent))
	}
	return s
}

// errorsOf are the median absolute and the mean signed relative error.
func errorsOf(pred, truth []float64) (medianAPE, bias float64) {
	var ape []float64
	var sum, total float64
	for i := range pred {
		ape = append(ape, math.Abs(pred[i]/truth[i]-1))
		sum += pred[i] - truth[i]
		total += truth[i]
	}
	slices.Sort(ape)
	return ape[len(ape)/2], sum / total
}

// watch simulates requests and returns estimates and outcomes; with coming the
// estimates expect further arrivals.
func watch(t testing.TB, d *deploy.Deployment, reqs []sim.Request, coming bool) (ttft, tpot [2][]float64) {
	t.Helper()
	overhead := sim.Const(800)
	set := testkit.Planted()
	e, err := New(set, d)
	if err != nil {
		t.Fatal(err)
	}
	e.SetOverhead(overhead)
	o := &onlooker{engine: e, reqs: reqs, coming: coming, computed: map[int]int64{}, first: map[int]bool{}, done: map[int]bool{},
		ttft: make([]float64, len(reqs)), tpot: make([]float64, len(reqs)), fail: func(err error) { t.Fatal(err) }}
	steps, _ := sim.NewPhysics(set, d)
	cfg := sim.DefaultConfig(d, steps)
	cfg.Overhead = overhead
	res, err := sim.Run(cfg, reqs, o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range res.Requests {
		if v, ok := res.Requests[i].TTFTUs(); ok {
			ttft[0], ttft[1] = append(ttft[0], o.ttft[i]), append(ttft[1], v)
		}
		if v, ok := res.Requests[i].ITLUs(); ok {
			tpot[0], tpot[1] = append(tpot[0], o.tpot[i]), append(tpot[1], v)
		}
	}
	return ttft, tpot
}

// On a simulated engine with the same coefficients, first come first served and
// without noise, the median error of TTFT is at most 5 % wherever the engine keeps
// up, and its bias at most 3 % when the arrivals still to come are expected.
func TestTTFTOnSimulatedEngine(t *testing.T) {
	for _, c := range []struct {
		name        string
		rate        float64
		set         func(d *deploy.Deployment)
		ape, coming float64 // most median errors, without and with what is still to come
		bias        float64 // most bias with it
	}{
		{"low", 2, nil, 0.01, 0.01, 0.03},
		{"medium", 12, nil, 0.01, 0.05, 0.03},
		{"high", 30, nil, 0.01, 0.05, 0.03},
		{"async", 12, func(d *deploy.Deployment) { d.Engine.AsyncScheduling = trace.Some(true) }, 0.01, 0.05, 0.03},
		{"async high", 30, func(d *deploy.Deployment) { d.Engine.AsyncScheduling = trace.Some(true) }, 0.01, 0.05, 0.03},
		{"no chunks", 12, func(d *deploy.Deployment) {
			d.Engine.ChunkedPrefill = false
			d.Engine.MaxNumBatchedTokens = 4096
		}, 0.01, 0.05, 0.03},
		{"small budget", 12, func(d *deploy.Deployment) { d.Engine.MaxNumBatchedTokens = 512 }, 0.01, 0.05, 0.03},
		{"few seats", 12, func(d *deploy.Deployment) { d.Engine.MaxNumSeqs = 16 }, 0.15, 0.15, 0.10},                       // waits of minutes
		{"few blocks", 12, func(d *deploy.Deployment) { d.Engine.KVBlocksGPU = trace.Some(int64(500)) }, 0.30, 0.30, 0.25}, // and preemption
	} {
		d := llama8b()
		if c.set != nil {
			c.set(d)
		}
		ttft, tpot := watch(t, d, poisson(rand.New(rand.NewPCG(1, 1)), 3000, c.rate), false)
		ape, bias := errorsOf(ttft[0], ttft[1])
		later, _ := watch(t, d, poisson(rand.New(rand.NewPCG(1, 1)), 3000, c.rate), true)
		apeLater, biasLater := errorsOf(later[0], later[1])
		apeTPOT, biasTPOT := errorsOf(tpot[0], tpot[1])
		t.Logf("%-12s TTFT median APE %.3f, bias %+.3f; with arrivals to come %.3f, %+.3f; TPOT %.3f, %+.3f",
			c.name, ape, bias, apeLater, biasLater, apeTPOT, biasTPOT)
		if ape > c.ape || apeLater > c.coming || math.Abs(biasLater) > c.bias {
			t.Errorf("%s: got median APE %.3f and %.3f, bias %+.3f, want at most %g, %g, %g",
				c.name, ape, apeLater, biasLater, c.ape, c.coming, c.bias)
		}
	}
}

// By hand, with step times of 1000 + 10 per prompt token + 100 per decode: each
// case says which steps pass.
func TestTTFTByHand(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name     string
		s        State
		r        Request
		change   func(d *deploy.Deployment)
		overhead float64
		want     float64
	}{
		{"idle: its own step", State{FreeBlocks: -1}, Request{100, 0}, nil, 0, 2000},
		{"idle, overhead", State{FreeBlocks: -1}, Request{100, 0}, nil, 300, 2300},
		{"cached tokens are not computed", State{FreeBlocks: -1}, Request{100, 64}, nil, 0, 1360},
		{"a fully cached prompt computes one token", State{FreeBlocks: -1}, Request{100, 100}, nil, 0, 1010},
		{"the running step ends first", State{Decodes: 2, SinceStepUs: 500, FreeBlocks: -1}, Request{100, 0}, nil, 0, 700 + 2200},
		{"half a step when unknown", State{Decodes: 2, SinceStepUs: nan, FreeBlocks: -1}, Request{100, 0}, nil, 0, 600 + 2200},
		{"a late step ends now", State{Decodes: 2, SinceStepUs: 5000, FreeBlocks: -1}, Request{100, 0}, nil, 0, 2200},
		{"missed by its overhead", State{Decodes: 2, SinceStepUs: 500, FreeBlocks: -1}, Request{100, 0}, nil, 900, 700 + 1200 + 2200},
		{"whose prompt ends becomes a decode", State{StepTokens: 50, StepRequests: 1, FreeBlocks: -1}, Request{100, 0}, nil, 0, 1500 + 2100},
		{"work ahead", State{Decodes: 1, AheadTokens: 200, AheadRequests: 2, FreeBlocks: -1}, Request{100, 0}, nil, 0, 1100 + 4100},
		{"more requests ahead than tokens", State{AheadTokens: 2, AheadRequests: 3, FreeBlocks: -1}, Request{100, 0}, nil, 0, 2020},
		{"budget: two steps", State{AheadTokens: 200, AheadRequests: 1, FreeBlocks: -1}, Request{100, 0},
			func(d *deploy.Deployment) { d.Engine.MaxNumBatchedTokens = 250 }, 0, 1000 + 2500 + 1000 + 500 + 100},
		{"no chunks", State{AheadTokens: 200, AheadRequests: 1, FreeBlocks: -1}, Request{100, 0},
			func(d *deploy.Deployment) {
				d.Engine.MaxNumBatchedTokens = 250
				d.Engine.ChunkedPrefill = false
			}, 0, 3000 + 2100},
		{"asynchronous: one step more", State{Decodes: 2, SinceStepUs: 500, FreeBlocks: -1}, Request{100, 0},
			func(d *deploy.Deployment) { d.Engine.AsyncScheduling = trace.Some(true) }, 0, 700 + 1200 + 2200},
		{"a prompt in each", State{StepTokens: 50, StepRequests: 1, NextTokens: 20, NextRequests: 1, FreeBlocks: -1}, Request{100, 0},
			func(d *deploy.Deployment) { d.Engine.AsyncScheduling = trace.Some(true) }, 0, 1500 + 1300 + 2200},
		{"7 tokens of better classes leave room for 93 of 100", State{Decodes: 2, SinceStepUs: 500, BetterPerS: 10_000, BetterPrompt: 7,
			FreeBlocks: -1}, Request{100, 0}, func(d *deploy.Deployment) { d.Engine.MaxNumBatchedTokens = 102 }, 0, 700 + 2200 + 1370},
		{"they join where there is room", State{Decodes: 2, SinceStepUs: 500, BetterPerS: 10_000, FreeBlocks: -1}, Request{100, 0}, nil, 0,
			700 + 2200},
		{"who waits behind joins", State{Decodes: 2, SinceStepUs: 500, BehindTokens: 50, FreeBlocks: -1}, Request{100, 0}, nil, 0,
			700 + 2700},
		{"7 tokens that come, no size known", State{Decodes: 2, SinceStepUs: 500, ComingPerS: 10_000, FreeBlocks: -1}, Request{100, 0}, nil, 0,
			700 + 2270},
		{"7 tokens in prompts of 20: 0.35 expected, so a quarter of it", State{Decodes: 2, SinceStepUs: 500, ComingPerS: 10_000,
			ComingPrompt: 20, FreeBlocks: -1}, Request{100, 0}, nil, 0, 700 + 2210},
		{"700 tokens in prompts of 10: something comes", State{Decodes: 2, SinceStepUs: 500, ComingPerS: 1e6, ComingPrompt: 10, FreeBlocks: -1},
			Request{100, 0}, nil, 0, 700 + 9200},
		{"seats: one leaves in ten steps", State{Decodes: 2, SinceStepUs: 1200, OutputTokens: 20, FreeBlocks: -1}, Request{100, 0},
			func(d *deploy.Deployment) { d.Engine.MaxNumSeqs = 2 }, 0, 0},
	} {
		d := llama8b()
		if c.change != nil {
			c.change(d)
		}
		e := NewWith(hand{}, d)
		e.SetOverhead(sim.Const(c.overhead))
		x, err := e.TTFT(&c.s, &c.r)
		if err != nil {
			t.Fatal(err)
		}
		got := x.Us
		if c.want == 0 { // the seat comes free after 1/(2/20) steps of about 1200
			if got < 10*1000+2000 || got > 14*1200+2200 {
				t.Errorf("%s: got %g us, want about twelve steps", c.name, got)
			}
			continue
		}
		if math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: got %g us, want %g", c.name, got, c.want)
		}
	}
}

// hand is a step time for sums in the head. Like any model it refuses a prompt
// without tokens.
type hand struct{}

func (hand) StepUs(b *sim.Batch) (float64, error) {
	if b.PrefillTokens < b.PrefillReqs {
		return 0, fmt.Errorf("got %d tokens for %d prompts", b.PrefillTokens, b.PrefillReqs)
	}
	return 1000 + 10*float64(b.PrefillTokens) + 100*float64(b.DecodeReqs), nil
}

// TPOT is a step of the decodes and the request. 10 prompt tokens a ms cost 100 us
// of it: T = 1300 + T/10. 20 ms of waiting leave 200 of them, 2000/0.9 us more over
// 100 tokens. Above 100 tokens a ms every step is full, or as full as seats allow.
func TestTPOTByHand(t *testing.T) {
	e := NewWith(hand{}, llama8b())
	for _, c := range []struct {
		s    State
		ttft float64
		want float64
	}{
		{State{FreeBlocks: -1}, 0, 1100},
		{State{Decodes: 2, FreeBlocks: -1}, 0, 1300},
		{State{Decodes: 1, StepRequests: 1, AheadRequests: 1, AheadTokens: 10, FreeBlocks: -1}, 0, 1400},
		{State{Decodes: 2, AheadRequests: 4, AheadTokens: 400, FreeBlocks: 14}, 0, 1500}, // blocks for two of four
		{State{Decodes: 300, FreeBlocks: -1}, 0, 1000 + 25600},
		{State{Decodes: 2, PrefillPerS: 10_000, PromptsPerS: 100, FreeBlocks: -1}, 0, 1300 / 0.9},
		{State{Decodes: 2, PrefillPerS: 10_000, PromptsPerS: 100, OutputTokens: 101, FreeBlocks: -1}, 20_000, 1300/0.9 + 2000/0.9/100},
		{State{Decodes: 2, PrefillPerS: 10_000, PromptsPerS: 100, OutputTokens: 101, FreeBlocks: -1}, 1e9, 1300 + 1000},
		{State{Decodes: 2, PrefillPerS: 100_000, PromptsPerS: 1000, FreeBlocks: -1}, 0, 1300 + 10*2045},
		{State{Decodes: 2, PrefillPerS: 60_000, PromptsPerS: 600, OutputTokens: 512, FreeBlocks: -1}, 0, 1300 + 0.5*1000},
	} {
		got, err := e.TPOTUs(&c.s, &Request{PromptTokens: 10}, c.ttft)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%+v: got %g us, want %g", c.s, got, c.want)
		}
	}
}

// cheaper is a step time that falls when a prompt is in the step, as indicators of
// a hand-made coefficient file can make it.
type cheaper struct{}

func (cheaper) StepUs(b *sim.Batch) (float64, error) {
	if b.PrefillTokens > 0 {
		return 1000 + 100*float64(b.DecodeReqs), nil
	}
	return 2000 + 100*float64(b.DecodeReqs), nil
}

// 10 tokens of each prompt save 1000 us once in 100 ms: T = 2300 - T/100.
func TestTPOTWhenPromptsShortenAStep(t *testing.T) {
	e := NewWith(cheaper{}, llama8b())
	got, err := e.TPOTUs(&State{Decodes: 2, PrefillPerS: 100, PromptsPerS: 10, FreeBlocks: -1}, &Request{PromptTokens: 10}, 0)
	if want := 2300 / 1.01; err != nil || math.Abs(got-want) > 1e-9 {
		t.Errorf("got %g us, %v, want %g", got, err, want)
	}
}

// BenchmarkEstimate is TTFT and TPOT for one instance with a queue.
func BenchmarkEstimate(b *testing.B) {
	e, err := New(testkit.Planted(), llama8b())
	if err != nil {
		b.Fatal(err)
	}
	s := State{Decodes: 60, DecodeTokens: 30_000, StepTokens: 400, StepRequests: 2, SinceStepUs: 3000, AheadTokens: 9000, AheadRequests: 12,
		FreeBlocks: 20_000, OutputTokens: 150, PrefillPerS: 8000}
	r := Request{PromptTokens: 700, CachedTokens: 128}
	b.ReportAllocs()
	for b.Loop() {
		ttft, err := e.TTFT(&s, &r)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.TPOTUs(&s, &r, ttft.Us); err != nil {
			b.Fatal(err)
		}
	}
}

// TestNoEmptyPrompts: where the cache left fewer tokens than requests ahead and no
// block is free, no step holds a prompt without tokens.
func TestNoEmptyPrompts(t *testing.T) {
	e := NewWith(hand{}, llama8b())
	s := State{Decodes: 1, DecodeTokens: 100, AheadTokens: 1, AheadRequests: 2, OutputTokens: 10}
	if got, err := e.TTFT(&s, &Request{PromptTokens: 100}); err != nil || got.Us < 2000 {
		t.Errorf("got %+v us, %v", got, err)
	}
}
