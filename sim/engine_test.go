package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/trace"
)

func TestOneRequest(t *testing.T) {
	cfg := DefaultConfig(testkit.Small(100), &Blackbox{Beta: []float64{1000, 10, 100}})
	cfg.Overhead, cfg.Egress = Const(300), Const(50)
	res, err := Run(cfg, []Request{{ID: "a", ArrivalUs: 10, PromptTokens: 20, OutputTokens: 3}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := res.Requests[0]
	first := int64(310 + 1200)
	last := int64(310 + 1200 + 2*1100)
	if r.QueuedUs.V != 310 || r.ScheduledUs.V != 310 || r.FirstTokenUs.V != first || r.FinishedUs.V != last || r.DepartedUs.V != last+50 {
		t.Errorf("%+v", r)
	}
	if res.Steps != 4 || res.EmptySteps != 1 {
		t.Errorf("steps %d, empty %d, want 4 and 1: the empty step after the last finish", res.Steps, res.EmptySteps)
	}
}

// mixed is n requests at the given rate: log-normal prompts around 300 tokens,
// outputs around 120, every fourth with a shared prefix.
func mixed(n int, perSecond float64) []Request {
	rng := rand.New(rand.NewPCG(1, 2))
	reqs := make([]Request, n)
	at := 0.0
	for i := range reqs {
		at += rng.ExpFloat64() / perSecond * 1e6
		reqs[i] = Request{
			ArrivalUs: int64(at), PromptTokens: clamp(math.Exp(5.7+rng.NormFloat64()), 4, 4000),
			OutputTokens: clamp(math.Exp(4.8+0.8*rng.NormFloat64()), 1, 1000), MaxTokens: 1024,
		}
		if i%4 == 0 {
			reqs[i].Group = uint64(1 + i%64)
			reqs[i].GroupTokens = min(128, reqs[i].PromptTokens)
		}
	}
	return reqs
}

func clamp(x float64, lo, hi int64) int64 { return min(hi, max(lo, int64(x))) }

func benchSteps(b *testing.B, rate float64, mutate func(*Config)) {
	const n = 100_000
	reqs := mixed(n, rate)
	set := testkit.Planted()
	b.ReportAllocs()
	var steps, tokens, peak int64
	for b.Loop() {
		d := testkit.Llama8B()
		m, err := NewPhysics(set, d)
		if err != nil {
			b.Fatal(err)
		}
		cfg := DefaultConfig(d, m)
		if mutate != nil {
			mutate(&cfg)
		}
		res, err := Run(cfg, reqs, nil)
		if err != nil {
			b.Fatal(err)
		}
		steps = res.Steps
		tokens = res.ScheduledTokens
		peak = res.PeakRunning
	}
	sec := b.Elapsed().Seconds() / float64(b.N)
	b.ReportMetric(float64(steps)/sec, "steps/s")
	b.ReportMetric(float64(n)/sec, "requests/s")
	b.ReportMetric(float64(tokens)/float64(steps), "tokens/step")
	b.ReportMetric(float64(peak), "peak_running")
}

// BenchmarkSimSteps: 100,000 mixed requests through the 1.1 physics at three loads.
func BenchmarkSimSteps(b *testing.B) {
	b.Run("low", func(b *testing.B) { benchSteps(b, 5, nil) })
	b.Run("medium", func(b *testing.B) { benchSteps(b, 25, nil) })
	b.Run("high", func(b *testing.B) { benchSteps(b, 40, nil) })
	b.Run("medium/prefix", func(b *testing.B) {
		benchSteps(b, 25, func(c *Config) { c.Deployment.Engine.PrefixCaching = true })
	})
	b.Run("medium/gradient", func(b *testing.B) {
		benchSteps(b, 25, func(c *Config) { c.Gradient, c.Restarts = true, true })
	})
	b.Run("medium/async", func(b *testing.B) { benchSteps(b, 25, func(c *Config) { c.Async = true }) })
}

// The steady path and the memory of failed admissions give what the general
// path gives, request by request.
func TestSteadyPathIsExact(t *testing.T) {
	steady := 0
	compare := func(t *testing.T, seed uint64, cfg Config, reqs []Request) {
		cfg.Deployment.Engine.CPUOffloading = false
		fast := runChecked(t, cfg, reqs, nil, func(e *Engine, when string) {
			if when == "schedule" && e.cur == nil && e.batch.Tokens() > 0 {
				steady++
			}
			checkBlocks(t, e, when)
		})
		all := make([]RequestResult, len(reqs))
		d, err := newDriver(cfg, reqs, nil, func(i int, r *RequestResult) bool {
			all[i] = *r
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		d.Server.(*Engine).quick = false
		d.Server.(*Engine).memo = false
		slow, err := d.run()
		if err != nil {
			t.Fatal(err)
		}
		if slow.Requests = all; !reflect.DeepEqual(fast, slow) {
			t.Errorf("seed %d: the steady path differs", seed)
		}
	}
	forAll(t, compare)
	// Requests whose KV comes from another server, or goes to one. Some never end: loads that have arrived may wait for ever
	// behind a request that preempts itself again and again.
	forAll(t, func(t *testing.T, seed uint64, cfg Config, reqs []Request) {
		cfg.StopUs = 3_000_000
		rng := rand.New(rand.NewPCG(seed, 8))
		for i := range reqs {
			reqs[i].RemotePrefill = rng.IntN(3) == 0
			reqs[i].RemoteDecode = !reqs[i].RemotePrefill && rng.IntN(6) == 0
			reqs[i].LoadUs, reqs[i].SendUs = rng.Int64N(3000), rng.Int64N(3000)
		}
		compare(t, seed, cfg, reqs)
	})
	// Without chunked prefill, a request fails by its blocks and then, once those that it has cached are evicted, by
	// the budget.
	cfg, reqs := randomCase(5682)
	compare(t, 5682, cfg, reqs)
	if steady == 0 {
		t.Error("no steady step was taken")
	}
	t.Logf("%d steady steps", steady)
}

// A step allocates nothing, whatever path it takes: 10,000 more steps cost no allocation.
func TestNoAllocationPerStep(t *testing.T) {
	allocs := func(caching, async bool, tokens int64) float64 {
		d := testkit.Llama8B()
		d.Engine.PrefixCaching = caching
		d.Engine.MaxModelLen = trace.Opt[int64]{}
		m, err := NewPhysics(testkit.Planted(), d)
		if err != nil {
			t.Fatal(err)
		}
		cfg := DefaultConfig(d, m)
		cfg.Async = async
		reqs := []Request{{PromptTokens: 100, OutputTokens: tokens}, {PromptTokens: 200, OutputTokens: tokens / 2}}
		return testing.AllocsPerRun(1, func() {
			if _, err := Run(cfg, reqs, nil); err != nil {
				t.Fatal(err)
			}
		})
	}
	for _, c := range []struct {
		caching, async bool
		slack          float64 // growth of tables with the blocks registered, logarithmic
	}{{false, false, 2}, {false, true, 2}, {true, false, 60}, {true, true, 60}} {
		short := allocs(c.caching, c.async, 100)
		long := allocs(c.caching, c.async, 10100)
		if long-short > c.slack {
			t.Errorf("caching %t async %t: %g allocations for 100 tokens, %g for 10,100", c.caching, c.async, short, long)
		}
	}
}

// A closed channel ends a run that would take for ever.
func TestRunEndsWhenDone(t *testing.T) {
	done := make(chan struct{})
	close(done)
	cfg := DefaultConfig(testkit.Small(1000), &Blackbox{Beta: []float64{100, 0, 0}})
	cfg.Done = done
	cfg.Deployment.Engine.MaxModelLen.V = 1 << 40
	cfg.KVBlocks = 1 << 24
	_, err := Run(cfg, []Request{{ID: "a", PromptTokens: 10, OutputTokens: 1 << 27}}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// recording is an Observer that keeps when steps began and ended.

type recording struct{ start, end []int64 }

// Step notes the step's times.
func (r *recording) Step(v *StepView) {
	r.start = append(r.start, v.StartUs)
	r.end = append(r.end, v.EndUs)
}

// Event is ignored.
func (r *recording) Event(*Event) {}

// Timeline is the recording as a latency model.
func (r *recording) Timeline() *Recorded {
	return &Recorded{First: 1, Start: r.start, End: r.end}
}

// Check verifies the pool against everything that is held of it: allocated +
// free = total, every reference has a holder, the queue has every free block, and what the index finds has the content it was asked for.
func (p *pool) Check(held []*held) error {
	sum, holders := int64(0), make(map[int32]int32)
	if p.log.on { // no block has an identity yet
		for _, h := range held {
			sum += h.N
		}
		if sum+p.Free != p.Total {
			return fmt.Errorf("%d blocks held + %d free, want %d", sum, p.Free, p.Total)
		}
		return nil
	}
	for _, h := range held {
		p.identify(h)
		sum += h.N
		for _, b := range h.IDs {
			holders[b]++
		}
		if p.Caching && int64(len(h.IDs)) != h.N {
			return fmt.Errorf("a request holds %d blocks and %d identities", h.N, len(h.IDs))
		}
	}
	if p.Caching {
		sum = int64(len(holders))
	}
	if sum+p.Free != p.Total {
		return fmt.Errorf("%d blocks held + %d free, want %d", sum, p.Free, p.Total)
	}
	if !p.Caching {
		return nil
	}
	listed, free := 0, int64(0)
	for b := range p.blocks {
		at := &p.blocks[b]
		if holders[int32(b)] != at.ref {
			return fmt.Errorf("block %d has %d references, %d holders", b, at.ref, holders[int32(b)])
		}
		if at.listed {
			listed++
		}
	}
	for i := p.head; i != p.tail; i++ {
		switch b := p.queue[i&uint64(len(p.queue)-1)]; b {
		case none:
		case unused:
			free += p.Total - int64(len(p.blocks))
		default:
			free++
			if p.blocks[b].ref != 0 {
				return fmt.Errorf("block %d is held and queued for eviction", b)
			}
		}
	}
	if free != p.Free {
		return fmt.Errorf("%d blocks queued for eviction, counted %d", free, p.Free)
	}
	return p.checkIndex(listed)
}

func (p *pool) checkIndex(listed int) error {
	for _, first := range p.index {
		if first == none {
			continue
		}
		hash := p.content[first].hash
		if p.index.find(p.content, hash) != first {
			return fmt.Errorf("block %d is in the index and not found", first)
		}
		for b := first; b != none; b = p.content[b].dup {
			listed--
			if !p.blocks[b].hashed || !p.blocks[b].listed || p.content[b].hash != hash {
				return fmt.Errorf("block %d is listed under a hash it does not have", b)
			}
		}
	}
	if listed != 0 {
		return fmt.Errorf("%d listed blocks are not in the index", listed)
	}
	return nil
}

// twin is the pool written down slowly: the free list as a list, content as a
// list of blocks by hash in the order they became findable.
type twin struct {
	free   []int32
	refs   map[int32]int
	byHash map[uint64][]int32
	hash   map[int32]uint64
}

func (w *twin) take() int32 {
	b := w.free[0]
	w.free = w.free[1:]
	w.refs[b] = 1
	if h, ok := w.hash[b]; ok {
		w.byHash[h] = slices.DeleteFunc(w.byHash[h], func(x int32) bool { return x == b })
		delete(w.hash, b)
	}
	return b
}

func (w *twin) drop(ids []int32) {
	for _, b := range slices.Backward(ids) {
		if w.refs[b]--; w.refs[b] == 0 {
			w.free = append(w.free, b)
		}
	}
}

// TestPoolAgainstSlowTwin: random requests that share content come and go; the
// pool hands out, finds and forgets the blocks its slow twin does.
func TestPoolAgainstSlowTwin(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		total := 4 + rng.Int64N(40)
		p := newPool(total, true)
		w := &twin{refs: map[int32]int{}, byHash: map[uint64][]int32{}, hash: map[int32]uint64{}}
		for b := range int32(total) {
			w.free = append(w.free, b)
		}
		live := map[int]*held{}
		for i := range 300 {
			if keys := slices.Sorted(maps.Keys(live)); len(keys) > 0 && rng.IntN(2) == 0 {
				k := keys[rng.IntN(len(keys))]
				w.drop(live[k].IDs)
				p.Drop(live[k])
				delete(live, k)
				continue
			}
			c := Content{PromptTokens: 4 * (1 + rng.Int64N(8)), Group: uint64(rng.IntN(4)), GroupTokens: 4 * rng.Int64N(6), Own: uint64(i)}
			if h := admit(p, w, &c); h != nil {
				live[i] = h
			}
			if err := p.Check(slices.Collect(maps.Values(live))); err != nil {
				t.Fatalf("seed %d, request %d: %v", seed, i, err)
			}
			for _, h := range live {
				for _, b := range h.IDs {
					if w.refs[b] == 0 {
						t.Fatalf("seed %d, request %d: block %d is held and the twin's is free", seed, i, b)
					}
				}
			}
		}
	}
}

// TestLoggedPoolIsThePool: a pool that puts off which blocks are taken has, whenever it is asked, the state
// of one that never did, and so has its clone.
func TestLoggedPoolIsThePool(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		total := 6 + rng.Int64N(60)
		plain, logged := newPool(total, true), newPool(total, true)
		plain.UnhashedFirst = seed%2 == 0
		logged.UnhashedFirst = plain.UnhashedFirst
		logged.startLog()
		var a, b [8]held // what requests hold of each pool
		asked := int(rng.Int64N(200))
		for n := range 200 {
			if n == asked {
				if seed%3 == 0 {
					logged = logged.Clone()
					for k := range b {
						b[k] = b[k].clone()
					}
				}
				logged.Lookup(1)
			}
			k := rng.IntN(len(a))
			switch more := rng.Int64N(6); {
			case rng.IntN(4) == 0:
				plain.Drop(&a[k])
				logged.Drop(&b[k])
			case more <= plain.Free:
				want := a[k].N + more
				plain.Grow(&a[k], want)
				logged.Grow(&b[k], want)
				full := rng.Int64N(want + 1)
				plain.RegisterOwn(&a[k], full)
				logged.RegisterOwn(&b[k], full)
			}
			if plain.Free != logged.Free || plain.Misses != logged.Misses || plain.Gains != logged.Gains {
				t.Fatalf("seed %d, change %d: got %d free, %d taken, %d gains, want %d, %d, %d", seed, n,
					logged.Free, logged.Misses, logged.Gains, plain.Free, plain.Misses, plain.Gains)
			}
			for i := range b {
				if !logged.log.on {
					logged.identify(&b[i])
					if a[i].N != b[i].N || a[i].Registered != b[i].Registered || !slices.Equal(a[i].IDs, b[i].IDs) {
						t.Fatalf("seed %d, change %d: request %d holds %+v, want %+v", seed, n, i, b[i], a[i])
					}
				}
			}
		}
		if logged.log.on || !slices.Equal(plain.blocks, logged.blocks) || plain.head != logged.head || plain.tail != logged.tail ||
			!slices.Equal(plain.queue, logged.queue) {
			t.Errorf("seed %d: got %+v, want %+v", seed, logged, plain)
		}
	}
}

// TestLogEnds: a long log is replayed by itself.
func TestLogEnds(t *testing.T) {
	p := newPool(10, true)
	p.startLog()
	var h held
	for range 1 << 17 / 2 {
		if !p.log.on {
			t.Fatal("the log ended early")
		}
		p.Grow(&h, 3)
		p.Drop(&h)
	}
	p.Grow(&h, 2)
	if p.log.on || len(h.IDs) != 2 || p.Free != 8 || p.Misses != 3*1<<17/2+2 {
		t.Errorf("got %+v of %d free after %d blocks, log on: %v", h, p.Free, p.Misses, p.log.on)
	}
}

// admit looks the content up, takes what is missing and registers it; nil when
// it does not fit, or when pool and twin disagree on a block's number.
func admit(p *pool, w *twin, c *Content) *held {
	blocks := c.PromptTokens / 4
	var hits []int32
	missing := blocks
	for b := range blocks {
		hash, _ := c.Block(b, 4)
		found, ok := p.Lookup(hash)
		if slow := w.byHash[hash]; ok != (len(slow) > 0) || ok && slow[0] != found {
			panic("the index and its twin differ")
		}
		if !ok {
			break
		}
		hits = append(hits, found)
		if p.InUse(found) {
			missing--
		}
	}
	if missing > p.Free {
		return nil
	}
	h := &held{}
	p.Share(h, hits)
	for _, b := range hits {
		if w.refs[b] == 0 {
			w.free = slices.DeleteFunc(w.free, func(x int32) bool { return x == b })
		}
		w.refs[b]++
	}
	p.Grow(h, blocks)
	for b := int64(len(hits)); b < blocks; b++ {
		if id := w.take(); id != h.IDs[b] {
			panic("the free list and its twin differ")
		}
		hash, own := c.Block(b, 4)
		p.Register(h, hash, own)
		if !own {
			w.byHash[hash] = append(w.byHash[hash], h.IDs[b])
			w.hash[h.IDs[b]] = hash
		}
	}
	return h
}

// TestContentIsSharedExactlyWhereItIs: equal hashes up to where two prompts are
// known to be equal, and no further.
func TestContentIsSharedExactlyWhereItIs(t *testing.T) {
	same := func(a, b Content, block int64) bool {
		x, _ := a.Block(block, 16)
		y, _ := b.Block(block, 16)
		return x == y
	}
	group := func(own uint64, tokens int64) Content {
		return Content{PromptTokens: 100, Group: 7, GroupTokens: tokens, Own: own}
	}
	if !same(group(1, 64), group(2, 48), 2) || same(group(1, 64), group(2, 48), 3) {
		t.Error("groups: want blocks 0 to 2 shared and block 3 not")
	}
	spans := func(own uint64, ids ...uint64) Content {
		return Content{PromptTokens: 100, Hashes: ids, HashTokens: 32, Own: own}
	}
	if !same(spans(1, 5, 6), spans(2, 5, 9), 1) || same(spans(1, 5, 6), spans(2, 5, 9), 2) || same(spans(1, 4, 6), spans(2, 5, 6), 2) {
		t.Error("spans: want what follows a different span to differ")
	}
	if _, own := (&Content{PromptTokens: 20, Group: 1, GroupTokens: 64, Own: 3}).Block(1, 16); !own {
		t.Error("a block beyond the prompt is nobody else's")
	}
}

// TestSharedBlocksComeFirst: the leading blocks that others may have are those
// that are not the request's own.
func TestSharedBlocksComeFirst(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		c := Content{PromptTokens: 1 + rng.Int64N(100), Own: 1}
		if rng.IntN(2) == 0 {
			c.Group, c.GroupTokens = 1, rng.Int64N(120)
		}
		if rng.IntN(2) == 0 {
			c.Hashes, c.HashTokens = make([]uint64, rng.IntN(8)), 1+rng.Int64N(32)
		}
		shared := c.Shared(16)
		for b := range int64(8) {
			if _, own := c.Block(b, 16); own != (b >= shared) {
				t.Fatalf("%+v: block %d: own %t, shared blocks %d", c, b, own, shared)
			}
		}
	}
}

// TestRecordedHitsShareBlocks: two prompts of 20 blocks of 4 tokens share their first 16 blocks, of which the recording states
// 15 and a half as cached. Of 30 blocks the second can run beside the first only where the cache's blocks are shared.
func TestRecordedHitsShareBlocks(t *testing.T) {
	for group, wantUs := range map[uint64]int64{0: 9, 1: 2} { // when the second request is scheduled, in steps: after the end of the first, or beside it
		cfg := DefaultConfig(testkit.Small(30), &Blackbox{Beta: []float64{1000, 0, 0}})
		cfg.Deployment.Engine.PrefixCaching = true
		var reqs []Request
		for i := range 2 {
			reqs = append(reqs, Request{ArrivalUs: int64(i) * 1500, PromptTokens: 80, OutputTokens: 8, Group: group, GroupTokens: 64,
				CachedTokens: trace.Some(int64(62 * i))})
		}
		res, err := Run(cfg, reqs, nil)
		if err != nil {
			t.Fatal(err)
		}
		second := res.Requests[1]
		if second.ScheduledUs.V != 1000*wantUs || second.CachedTokens != 62 {
			t.Errorf("group %d: the second request is scheduled at %d us with %d cached tokens, want %d and 62",
				group, second.ScheduledUs.V, second.CachedTokens, 1000*wantUs)
		}
	}
}
