package pairing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// simulatedLog writes the iterations that vLLM would log, and when each request's chunks came.
type simulatedLog struct {
	its         []trace.Iteration
	ends        []int64 // us, of them
	first, last []int64 // us, by request; 0: none
	begun       []bool
	index       int64
}

func (l *simulatedLog) Step(v *sim.StepView) {
	if v.LabelledPrefillReqs+v.LabelledDecodeReqs == 0 {
		return
	}
	stamp, hits := v.EndUs*1000, int64(0)
	for _, m := range v.Members {
		if m.New > 0 && !l.begun[m.Request] {
			l.begun[m.Request] = true
			hits += m.Computed
		}
	}
	l.its = append(l.its, trace.Iteration{Index: l.index, Form: trace.IterationLog, StampNs: trace.Some(stamp / 1e9 * 1e9),
		StampStepNs: trace.Some(int64(1e9)), StampWall: true, ElapsedUs: float64(v.EndUs - v.StartUs), Line: int64(len(l.its) + 1),
		ContextReqs: v.LabelledPrefillReqs, ContextTokens: v.LabelledPrefillTokens, ContextKVTokens: trace.Some(hits), // as SGLang's
		GenerationReqs: v.LabelledDecodeReqs, GenerationTokens: v.LabelledDecodeTokens})
	l.ends = append(l.ends, v.EndUs)
	l.index++
	for _, m := range v.Members {
		if m.New > 0 && m.Computed+m.New >= m.Prompt {
			if l.first[m.Request] == 0 {
				l.first[m.Request] = v.EndUs
			}
			l.last[m.Request] = v.EndUs
		}
	}
}

func (l *simulatedLog) Event(*sim.Event) {}

// noisySteps takes a constant and a little for each token, with noise.
type noisySteps struct{ rng *rand.Rand }

func (s *noisySteps) StepUs(b *sim.Batch) (float64, error) {
	return float64(3000+12*b.PrefillTokens+150*b.DecodeReqs) * math.Exp(0.15*s.rng.NormFloat64()), nil
}

// planted is a load of which everything is known: the rows a client wrote, the engine's
// passes, and what the cache gave.
type planted struct {
	rows  []trace.ObservedRequest
	its   []trace.Iteration
	ends  []int64 // us
	hits  []int64
	rules Rules
	res   *sim.Result
	async bool
}

// plant simulates a random load: lengths spread or all alike, shared prefixes or
// conversations, open or closed loops, budgets that fill up or do not.
func plant(t *testing.T, seed uint64) planted {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 39))
	pick := func(values ...int64) int64 { return values[rng.IntN(len(values))] }
	block := pick(16, 32, 128)
	dep := &deploy.Deployment{TP: 1, PP: 1, DP: 1}
	dep.Engine = vllm.Engine{VLLMVersion: "0.15.1", MaxNumSeqs: pick(8, 32, 256), MaxNumBatchedTokens: pick(256, 512, 1024, 8192),
		ChunkedPrefill: true, PrefixCaching: true, BlockSize: block, KVBlocksGPU: trace.Some(int64(1 << 16)),
		AsyncScheduling: trace.Some(rng.IntN(3) == 0), SchedulingPolicy: "fcfs"}
	n := 40 + rng.IntN(80)
	alike := rng.IntN(4) == 0
	groups := 1 + rng.IntN(4)
	prefix := pick(0, 40, 200, 320, 700)
	rate := math.Exp(rng.Float64()*4) * 2
	reqs, at := make([]sim.Request, n), 0.0
	for i := range reqs {
		own := int64(120)
		if !alike {
			own = int64(math.Max(3, 120*math.Exp(0.8*rng.NormFloat64())))
		}
		if at += rng.ExpFloat64() / rate; rng.IntN(12) == 0 {
			at += 3
		}
		out := int64(1 + rng.IntN(40))
		if alike {
			out = 16
		}
		reqs[i] = sim.Request{ID: fmt.Sprint(i), ArrivalUs: int64(1e6 * at), PromptTokens: prefix + own, OutputTokens: out,
			Group: uint64(1 + rng.IntN(groups)), GroupTokens: prefix}
		if prefix == 0 {
			reqs[i].Group = 0
		}
	}
	cfg := sim.DefaultConfig(dep, &noisySteps{rng})
	log := &simulatedLog{first: make([]int64, n), last: make([]int64, n), begun: make([]bool, n)}
	res, err := sim.Run(cfg, reqs, log)
	if err != nil {
		t.Fatal(err)
	}
	p := planted{its: log.its, ends: log.ends, res: res, async: dep.Engine.IsAsync(),
		rules: Rules{Block: block, Budget: dep.Engine.MaxNumBatchedTokens, Chunked: true, Caching: true}}
	const ahead = int64(7_123_456_789_000) // the client's clock is another
	for i := range reqs {
		r := trace.ObservedRequest{ID: reqs[i].ID, SendNs: trace.Some(reqs[i].ArrivalUs*1000 + ahead), Success: trace.Some(true),
			PromptTokens: trace.Some(reqs[i].PromptTokens), OutputTokens: trace.Some(reqs[i].OutputTokens)}
		late := func() int64 { return 300_000 + int64(200_000*rng.ExpFloat64()) }
		r.FirstChunkNs = trace.Some(log.first[i]*1000 + ahead + late())
		r.LastChunkNs = trace.Some(max(r.FirstChunkNs.V, log.last[i]*1000+ahead+late()))
		p.rows = append(p.rows, r)
		p.hits = append(p.hits, res.Requests[i].CachedTokens)
	}
	return p
}

// find pairs and returns how many rows are exact; wrong ones fail the test.
func (p *planted) find(t *testing.T, what string) (exact, bounded int) {
	t.Helper()
	for i := range p.rows {
		r := &p.rows[i]
		r.CachedTokens = trace.Opt[int64]{}
		r.CachedSource = trace.Opt[string]{}
		r.CachedMin = trace.Opt[int64]{}
		r.CachedMax = trace.Opt[int64]{}
		r.Iteration = trace.Opt[int64]{}
	}
	g, err := Pair(p.rows, p.rules, 1, func(add func(int, *trace.Iteration)) error {
		for i := range p.its {
			add(0, &p.its[i])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	g.Fill()
	for i := range p.rows {
		r := &p.rows[i]
		if !r.CachedMin.OK {
			continue
		}
		if h := p.hits[i]; h < r.CachedMin.V || h > r.CachedMax.V {
			t.Errorf("%s: request %d: %d cached tokens, found %d to %d (%s)", what, i, h, r.CachedMin.V, r.CachedMax.V, r.CachedSource.V)
		}
		if r.CachedSource.V == trace.CachedExact {
			exact++
		} else {
			bounded++
		}
	}
	return exact, bounded
}

// TestPairingIsNeverWrong: on simulated loads whose hits are known, what is called exact is
// right and bounds contain the hits, with whole logs and with lost lines, failed and foreign
// requests; with whole logs all prompts have hits or bounds.
func TestPairingIsNeverWrong(t *testing.T) { pairingIsNeverWrong(t, 30) }

// TestEvalPairingIsNeverWrong: the same of more loads.
func TestEvalPairingIsNeverWrong(t *testing.T) {
	repo.NeedEval(t)
	pairingIsNeverWrong(t, 1000)
}

// damages are what broken can do to a load.
var damages = []string{"lost line", "lost lines", "log begins late", "log ends early", "failed request", "another client",
	"tenth failed", "tenth missing", "fifth failed", "sglang"}

// damaged is a load with something missing, for which the random numbers depend on both.
func (p planted) damaged(load uint64, kind string) planted {
	return p.broken(rand.New(rand.NewPCG(load, uint64(len(kind)))), kind)
}

// TestOpenPairings: loads in which one assignment of prompts to passes was taken for the only one. The log may count a first
// decode as a prompt because a prompt beside it ended with its first token (231, 1712); a prompt of another client ran in
// the same passes as the only one known (292, 345, 405, 484, 840, 963); no cut prompt waits while others decode (2046); the first
// pass is of another client or of a failed request (830, 1111, 1383); blocks say nothing of prompts of one length (1310); the
// clocks agree with other passes too (639, 2064).
func TestOpenPairings(t *testing.T) {
	for _, c := range []struct {
		load uint64
		kind string // of damage
	}{
		{231, ""}, {231, "tenth missing"}, {1712, ""}, {292, "tenth missing"}, {345, "tenth missing"},
		{405, "tenth missing"}, {484, "tenth missing"}, {840, "tenth missing"}, {963, "another client"}, {2046, "tenth missing"},
		{830, "tenth missing"}, {1111, "tenth failed"}, {1383, "tenth missing"}, {1310, "log begins late"},
		{639, "tenth missing"}, {2064, "tenth missing"},
	} {
		p := plant(t, c.load)
		if c.kind != "" {
			p = p.damaged(c.load, c.kind)
		}
		p.find(t, fmt.Sprintf("load %d, %s", c.load, c.kind))
	}
}

func pairingIsNeverWrong(t *testing.T, loads uint64) {
	t.Helper()
	exact := 0
	told := 0
	all := 0
	kinds := map[string][2]int{}
	for seed := range loads {
		p := plant(t, seed)
		e, b := p.find(t, fmt.Sprintf("load %d", seed))
		if e+b < len(p.rows) {
			t.Logf("load %d: %d exact and %d bounded of %d", seed, e, b, len(p.rows))
		}
		exact += e
		told = told + e + b
		all += len(p.rows)
		for _, kind := range damages {
			q := p.damaged(seed, kind)
			e, b := q.find(t, fmt.Sprintf("load %d, %s", seed, kind))
			n := kinds[kind]
			kinds[kind] = [2]int{n[0] + e + b, n[1] + len(q.rows)}
		}
	}
	t.Logf("%d of %d exact, %d told; told and all with damage: %v", exact, all, told, kinds)
	if n := kinds["sglang"]; n[0] < n[1]*9/10 {
		t.Errorf("of %d requests in SGLang's passes, which count hits, %d are told, want nine of ten", n[1], n[0])
	}
	if told < all*95/100 || exact < all/2 {
		t.Errorf("of %d requests with whole logs %d are exact and %d told, want half and 95 %%", all, exact, told)
	}
}

// broken is the load with something missing.
func (p planted) broken(rng *rand.Rand, kind string) planted {
	p.its, p.rows, p.hits = slices.Clone(p.its), slices.Clone(p.rows), slices.Clone(p.hits)
	at := rng.IntN(len(p.its))
	who := rng.IntN(len(p.rows))
	switch kind {
	case "sglang": // pages of one token; the passes count hits
		p.rules.Block = 1
		for i := range p.its {
			p.its[i].Form = trace.IterationSGLang
		}
	case "lost line":
		p.its = slices.Delete(p.its, at, at+1)
	case "lost lines":
		p.its = slices.Delete(p.its, at, min(len(p.its), at+1+rng.IntN(60)))
	case "log begins late":
		p.its = p.its[at/2:]
	case "log ends early":
		p.its = p.its[:len(p.its)-at/2]
	case "failed request":
		p.rows[who].Success = trace.Some(false)
		p.rows[who].FirstChunkNs = trace.Opt[int64]{}
	case "tenth failed", "fifth failed":
		share := map[string]float64{"tenth failed": 0.1, "fifth failed": 0.2}[kind]
		for i := range p.rows {
			if rng.Float64() < share {
				p.rows[i].Success = trace.Some(false)
				p.rows[i].FirstChunkNs = trace.Opt[int64]{}
			}
		}
	case "tenth missing":
		for i := len(p.rows) - 1; i >= 0; i-- {
			if rng.Float64() < 0.1 {
				p.rows = slices.Delete(p.rows, i, i+1)
				p.hits = slices.Delete(p.hits, i, i+1)
			}
		}
	case "another client":
		p.rows, p.hits = slices.Delete(p.rows, who, who+1), slices.Delete(p.hits, who, who+1)
	}
	return p
}

// TestHitRates: where nothing else is known of any prompt, logged hit rates give the hits of all: none where all rates are 0,
// else the last rate of one engine is that of up to 1000 requests.
func TestHitRates(t *testing.T) {
	rates := func(list ...any) (out []enginelog.Statistics) {
		for i := 0; i < len(list); i += 2 {
			share, _ := list[i+1].(float64)
			out = append(out, enginelog.Statistics{Engine: list[i].(string), HitFrac: share})
		}
		return out
	}
	shortage := func(usage float64, list ...float64) (out []enginelog.Statistics) {
		for i, share := range list {
			line := enginelog.Statistics{Engine: "0", HitFrac: share, PromptRate: 9, KVUsage: 0.2}
			if i == 1 || i >= 4 {
				line.KVUsage, line.Waiting = usage, 3
			}
			if i == 1 && len(list) > 2 {
				line.Waiting = 0
			}
			out = append(out, line)
		}
		return out
	}
	of := func(n int) *Pairing {
		g := &Pairing{rules: Rules{Block: 16, Caching: true}, rows: make([]trace.ObservedRequest, n)}
		for i := range g.rows {
			g.rows[i].PromptTokens, g.rows[i].FirstChunkNs = trace.Some(int64(100)), trace.Some(int64(i))
		}
		return g
	}
	for name, c := range map[string]struct {
		n     int
		rates []enginelog.Statistics
		sum   int64
		told  bool
		says  string
	}{
		"none":    {10, nil, 0, false, ""},
		"zero":    {5000, rates("0", 0, "1", 0), 0, true, "taken for all"},
		"one":     {1000, rates("0", 0.9, "0", 0.25), 25008, true, "taken for all"},
		"many":    {1001, rates("0", 0.25), 0, false, "last 1000 requests"},
		"engines": {10, rates("0", 0.25, "1", 0.25), 0, false, "last 1000 requests"},
		"more":    {10, rates("0", 0.99), 0, false, "more than these prompts"},
		// From the fifth line on requests wait, and the rates are of look-ups.
		"blocks are short":     {100, shortage(0.7, 0, 0, 0, 0, 0.4, 0.3), 0, true, "the last 0.0 % (30.0 % after requests had waited for blocks"},
		"short, with sharing":  {100, shortage(0.7, 0.2, 0.25, 0.25, 0.25, 0.6, 0.5), 2496, true, "the last 25.0 % (50.0 % after"},
		"hits after it":        {100, append(shortage(0.7, 0, 0, 0, 0, 0.4), rates("0", 0.1, "0", 0.25)...), 2496, true, "the last 25.0 %, are taken for all"},
		"short from the start": {100, shortage(0.7, 0.1, 0.2)[1:], 0, false, "are not used"},
		"waiting with room":    {100, shortage(0.4, 0, 0, 0, 0, 0.4, 0.25), 2496, true, "the last 25.0 %, are taken for all"},
	} {
		g := of(c.n)
		var said string
		for _, f := range g.Rate(c.rates) {
			said += f.Message
		}
		sum, told := int64(0), true
		for i := range g.rows {
			r := &g.rows[i]
			sum += r.CachedTokens.V
			told = told && r.CachedTokens.OK
			known := r.KnowsCached()
			if r.CachedTokens.V%16 != 0 || c.sum == 0 && c.told && !known || c.sum > 0 && r.CachedTokens.V > 0 && known {
				t.Errorf("%s: row %d has %+v", name, i, r.CachedTokens)
			}
		}
		if sum != c.sum || told != c.told || !strings.Contains(said, c.says) || (c.says == "") != (said == "") {
			t.Errorf("%s: got %d tokens, told %v, %q; want %+v", name, sum, told, said, c)
		}
	}
}

// TestStatedPrefixDividesHitRate: the prefix that the client's file states is the hits of every prompt but the first,
// where the logged rate agrees to within a twentieth of the prompts' tokens; else hits are in proportion to prompts.
func TestStatedPrefixDividesHitRate(t *testing.T) {
	const n = 40 // prompts of 100 and 300 tokens, 8000 together; 39 prefixes of 64 are 31.2 % of them
	for _, c := range []struct {
		rate          float64
		short, long   int64 // hits of the second and the third prompt
		source        string
		othersUnknown bool // the file states nothing of the last prompt
	}{
		{rate: 0.312, short: 64, long: 64, source: trace.CachedGroup},
		{rate: 0.263, short: 64, long: 64, source: trace.CachedGroup},
		{rate: 0.361, short: 64, long: 64, source: trace.CachedGroup},
		{rate: 0.26, short: 16, long: 64, source: trace.CachedCounter}, // 0.261 of 100 and of 300, whole blocks
		{rate: 0.363, short: 32, long: 96, source: trace.CachedCounter},
		{rate: 0.312, short: 16, long: 80, source: trace.CachedCounter, othersUnknown: true},
	} {
		g := &Pairing{rules: Rules{Block: 16, Caching: true}, rows: make([]trace.ObservedRequest, n)}
		for i := range g.rows {
			g.rows[i] = trace.ObservedRequest{
				PromptTokens: trace.Some(int64(100 + i%2*200)),
				FirstChunkNs: trace.Some(int64(i)),
				PrefixGroup:  trace.Some("data set"),
				PrefixTokens: trace.Some(int64(64)),
			}
		}
		if c.othersUnknown {
			g.rows[n-1].PrefixGroup = trace.Opt[string]{}
			g.rows[n-1].PrefixTokens = trace.Opt[int64]{}
		}
		g.Rate([]enginelog.Statistics{{Engine: "0", HitFrac: c.rate}})
		short, long := &g.rows[n/2], &g.rows[n/2+1]
		if short.CachedTokens.V != c.short || long.CachedTokens.V != c.long || short.CachedSource.V != c.source {
			t.Errorf("rate %g: got %d and %d cached tokens from %s, want %d and %d from %s", c.rate,
				short.CachedTokens.V, long.CachedTokens.V, short.CachedSource.V, c.short, c.long, c.source)
		}
		if first := g.rows[0].CachedTokens.V; c.source == trace.CachedGroup && first != 0 {
			t.Errorf("rate %g: the first prompt has %d cached tokens, want 0", c.rate, first)
		}
	}
}

// TestPreemptionIsNamed: tokens that passes computed again and the server's counter are reported, each only where there are
// some; drafted tokens are not computed again.
func TestPreemptionIsNamed(t *testing.T) {
	for want, c := range map[string]struct {
		tokens int64
		count  int64
		drafts bool
	}{
		"": {tokens: 2}, "passes computed 38 tokens once more; ": {tokens: 40}, "x.prom counts 3; ": {tokens: 40, count: 3, drafts: true},
		"preemption: passes computed 1 tokens once more, x.prom counts 4; ": {tokens: 3, count: 4},
	} {
		g := &Pairing{rules: Rules{Speculative: c.drafts}, log: newPassLog(Rules{}, 1, false)}
		g.log.addPass(0, &trace.Iteration{GenerationReqs: 2, GenerationTokens: c.tokens})
		got := fmt.Sprint(g.Preempted([]enginelog.Counters{{Name: "w.prom"}, {Name: "x.prom", Preempted: c.count}}))
		if !strings.Contains(got, want) || (want == "") != (got == "[]") {
			t.Errorf("got %s, want %q", got, want)
		}
	}
}

// TestPairingOfTwoEngines: of two engines behind one port, each with prefixes of its own, a request that is given to an engine is
// given to the one that served it, and its cached tokens lie within the bounds.
func TestPairingOfTwoEngines(t *testing.T) { pairingOfTwoEngines(t, 200) }

// TestEvalPairingOfTwoEngines: the same of more loads.
func TestEvalPairingOfTwoEngines(t *testing.T) {
	repo.NeedEval(t)
	pairingOfTwoEngines(t, 2000)
}

func pairingOfTwoEngines(t *testing.T, loads uint64) {
	t.Helper()
	type kind struct {
		rules Rules
		async bool
	}
	byRules := map[kind]planted{}
	given := 0
	all := 0
	for seed := range loads {
		q := plant(t, 1000+seed)
		of := kind{q.rules, q.async}
		p, ok := byRules[of]
		if byRules[of] = q; !ok {
			continue
		}
		delete(byRules, of)
		both := planted{rules: p.rules, rows: slices.Concat(p.rows, q.rows), hits: slices.Concat(p.hits, q.hits)}
		g, err := Pair(both.rows, both.rules, 2, func(add func(int, *trace.Iteration)) error {
			for i, k := 0, 0; i < len(p.its) || k < len(q.its); {
				if k == len(q.its) || i < len(p.its) && p.ends[i] <= q.ends[k] {
					add(0, &p.its[i])
					i++
				} else {
					add(1, &q.its[k])
					k++
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		g.Fill()
		for i := range both.rows {
			r, engine := &both.rows[i], int64(1)
			if i >= len(p.rows) {
				engine = 2
			}
			if all++; r.Engine.OK {
				given++
				if r.Engine.V != engine {
					t.Errorf("load %d: request %d is given to engine %d, want %d", seed, i, r.Engine.V, engine)
				}
			}
			if h := both.hits[i]; r.CachedMin.OK && (h < r.CachedMin.V || h > r.CachedMax.V) {
				t.Errorf("load %d: request %d: %d cached tokens, found %d to %d", seed, i, h, r.CachedMin.V, r.CachedMax.V)
			}
		}
	}
	t.Logf("%d of %d requests are given to an engine", given, all)
	if given == 0 {
		t.Error("no request is given to an engine")
	}
}

// TestPairingByLengths: the engine of prompts of one length follows from their outputs, by the passes after which requests leave.
// An engine that plans ahead runs one more pass for an answer that stopped. A request whose end the log lacks does not change what
// is known of those before it, although prompts in several passes could have their first part in the cache. Chunks that a client
// read late are taken in the order of sends.
func TestPairingByLengths(t *testing.T) {
	type request struct{ tokens, out, firstMs, engine int64 }
	for name, c := range map[string]struct {
		passes   []string // engine: context requests, context tokens, generation requests
		requests []request
		ahead    bool
		told     int
	}{
		"two engines": {[]string{"0: 1 100 0", "1: 1 100 0", "0: 0 0 1", "1: 0 0 1", "1: 0 0 1", "0: 1 100 0", "1: 0 0 1", "0: 0 0 1"},
			[]request{{100, 2, 1, 1}, {100, 4, 2, 2}, {100, 2, 5, 1}}, false, 3},
		"equal answers": {[]string{"0: 1 100 0", "1: 1 100 0", "0: 0 0 1", "1: 0 0 1"}, []request{{100, 2, 1, 1}, {100, 2, 2, 2}}, false, 0},
		"late client":   {[]string{"0: 1 100 0", "0: 1 50 1", "0: 0 0 2"}, []request{{100, 3, 3, 0}, {50, 2, 3, 0}}, false, 2},
		"stopped":       {[]string{"0: 1 100 0", "0: 0 0 1", "0: 0 0 1", "0: 0 0 1"}, []request{{100, 3, 1, 1}}, true, 1},
		"cut log": {[]string{"0: 1 512 0", "0: 1 512 0", "0: 1 100 0", "0: 0 0 1", "0: 0 0 1", "0: 1 512 0", "0: 1 212 0", "0: 0 0 1",
			"0: 1 512 0", "0: 1 512 0", "0: 1 58 0", "0: 0 0 1", "0: 0 0 1", "0: 0 0 1", "0: 1 512 0"},
			[]request{{1124, 3, 3, 0}, {724, 2, 7, 0}, {1082, 4, 11, 0}, {1300, 6, 40, 0}}, false, 3},
	} {
		var rows []trace.ObservedRequest
		for i, r := range c.requests {
			at := r.firstMs*1e6 - int64(1000*i)
			rows = append(rows, trace.ObservedRequest{ID: fmt.Sprint(i), SendNs: trace.Some(max(1, r.firstMs*1e6-3e6) + int64(i)),
				Success: trace.Some(true), PromptTokens: trace.Some(r.tokens), OutputTokens: trace.Some(r.out), FirstChunkNs: trace.Some(at),
				LastChunkNs: trace.Some(at + 500_000*(r.out-1))})
		}
		rules := Rules{Block: 16, Budget: 512, Chunked: true, Caching: true, Ahead: c.ahead}
		engines := 1
		if strings.HasPrefix(c.passes[1], "1") {
			engines = 2
		}
		g, err := Pair(rows, rules, engines, func(add func(int, *trace.Iteration)) error {
			index := map[int]int64{}
			for _, line := range c.passes {
				var e int
				var it trace.Iteration
				if _, err := fmt.Sscanf(line, "%d: %d %d %d", &e, &it.ContextReqs, &it.ContextTokens, &it.GenerationReqs); err != nil {
					return err
				}
				it.Index = index[e]
				it.Form = trace.IterationLog
				it.GenerationTokens = it.GenerationReqs
				it.ElapsedUs = 1000
				index[e]++
				add(e, &it)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		g.Fill()
		told := 0
		for i, r := range rows {
			if !r.CachedTokens.OK {
				continue
			}
			if told++; engines > 1 && r.Engine.V != c.requests[i].engine || r.CachedTokens.V != 0 {
				t.Errorf("%s: request %d: %d cached tokens at engine %d", name, i, r.CachedTokens.V, r.Engine.V)
			}
		}
		if told != c.told {
			t.Errorf("%s: %d requests are told, want %d", name, told, c.told)
		}
	}
}
