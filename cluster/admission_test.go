package cluster

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/forecast"
	"github.com/blis-train/blis-train/trace"
)

// eight is a view of eight instances of one depth each, 512 tokens matched everywhere.
func eight(depth int64) *View {
	v := &View{BlockSize: 16, Ledger: newLedger(8, 100), Match: make([]int64, 8)}
	for i := range 8 {
		v.Match[i] = 32
		v.Snapshots = append(v.Snapshots, snapshot{
			QueueDepth:  depth,
			BatchSize:   100,
			FreeBlocks:  500,
			TotalBlocks: 1000,
		})
	}
	return v
}

var priorities = map[string]int{"critical": 4, "standard": 3, "batch": -1, "sheddable": -2, "background": -3}

func requestOfClass(name string) *Request {
	return &Request{
		ClassName:    name,
		Priority:     priorities[name],
		PromptTokens: 768,
		Blocks:       48,
		SLOTTFTUs:    300_000,
	}
}

func publishedSeed(variant string) *Seed {
	return &Seed{
		Variant:  variant,
		Headroom: 1,
		StepUs:   7000,
		Beta0:    6910.42,
		Beta1:    17.67,
		BudgetUs: map[string]float64{"critical": 200_000, "standard": 500_000, "sheddable": 300_000},
	}
}

// The published estimate and both its rules. 768 tokens with 512 matched cost
// 6910.42 + 17.67*256 = 11433.94 us, and each waiting request 7000 us.
func TestPredictiveSeed(t *testing.T) {
	for k, c := range []struct {
		variant, class string
		depth          int64
		change         func(*Seed, *View, *Request)
		estimate       float64
		admit          bool
	}{
		{"b", "sheddable", 41, nil, 298_433.94, true},
		{"b", "sheddable", 42, nil, 305_433.94, false},
		{"b", "standard", 42, nil, 305_433.94, true},
		{"b", "standard", 69, nil, 494_433.94, true},
		{"b", "standard", 70, nil, 501_433.94, false},
		{"b", "critical", 1000, nil, math.NaN(), true}, // no estimate
		{"a", "sheddable", 41, nil, 298_433.94, true},
		{"a", "sheddable", 42, nil, 305_433.94, false},
		{"a", "standard", 70, nil, 501_433.94, true}, // up to twice its budget
		{"a", "standard", 141, nil, 998_433.94, true},
		{"a", "standard", 142, nil, 1_005_433.94, false},
		{"a", "critical", 1000, nil, 7_011_433.94, true}, // with an estimate
		{"b", "sheddable", 42, func(s *Seed, _ *View, _ *Request) { s.Headroom = 1.1 }, 305_433.94, true},
		{"b", "sheddable", 41, func(s *Seed, _ *View, _ *Request) { s.Headroom = 0.9 }, 298_433.94, false},
		{"b", "sheddable", 42, func(s *Seed, _ *View, _ *Request) { s.StepUs = 5600 }, 246_633.94, true},
		{"b", "sheddable", 42, func(_ *Seed, v *View, _ *Request) { v.Snapshots[3].QueueDepth = 0 }, 11_433.94, true},
		{"b", "sheddable", 41, func(_ *Seed, v *View, _ *Request) { clear(v.Match) }, 307_480.98, false}, // 768 tokens
		{"b", "sheddable", 41, func(s *Seed, v *View, _ *Request) { clear(v.Match); s.AdmitUnmatched = true }, 307_480.98,
			true},
		{"b", "sheddable", 41, func(_ *Seed, v *View, _ *Request) { v.Match[7] = 100 }, 293_910.42, true}, // never below 0 tokens
		{"b", "sheddable", 0, func(_ *Seed, _ *View, r *Request) { r.PromptTokens = 512 + 16_588 }, 300_020.38, false},
		{"b", "batch", 42, nil, 305_433.94, true}, // no budget
	} {
		s := publishedSeed(c.variant)
		v := eight(c.depth)
		r := requestOfClass(c.class)
		if c.change != nil {
			c.change(s, v, r)
		}
		d, err := s.Decide(r, v, 0)
		if err != nil || d.Admit != c.admit || stat.Round(d.PredictedUs, 10) != stat.Round(c.estimate, 10) &&
			!(math.IsNaN(d.PredictedUs) && math.IsNaN(c.estimate)) {
			t.Errorf("%d: %s %s at depth %d: got %v, %.2f us, %v, want %v, %.2f us", k, c.variant, c.class, c.depth, d.Admit, d.PredictedUs,
				err, c.admit, c.estimate)
		}
	}
}

// fixed estimates the same for every instance but one.
type fixed struct {
	us    float64
	other float64 // of instance 3, 0: the same

	byClass bool
}

func (f fixed) TTFT(_ *Request, _ *View, i int) (estimate, error) {
	us := f.us
	if i == 3 && f.other > 0 {
		us = f.other
	}
	return estimate{TTFT: forecast.TTFT{Us: us, LikelyUs: us}, Queued: true, ByClass: f.byClass}, nil
}

// Gates by hand.
func TestGates(t *testing.T) {
	thresholds := map[string]float64{"sheddable": 10, "standard": 20, "critical": 0}
	uneven := func(v *View) { v.Snapshots[0].QueueDepth = 50 }
	full := func(v *View) {
		for i := range v.Snapshots {
			v.Snapshots[i].FreeBlocks = 150 // 0.85 of it in use
		}
	}
	for k, c := range []struct {
		p      Policy
		class  string
		depth  int64
		change func(*View)
		admit  bool
	}{
		{Always{}, "background", 1000, nil, true},
		{&sloGated{Signal: maxQueueDepth, Thresholds: thresholds}, "sheddable", 10, nil, true},
		{&sloGated{Signal: maxQueueDepth, Thresholds: thresholds}, "sheddable", 11, nil, false},
		{&sloGated{Signal: maxQueueDepth, Thresholds: thresholds}, "standard", 11, nil, true},
		{&sloGated{Signal: maxQueueDepth, Thresholds: thresholds}, "critical", 99, nil, true},
		{&sloGated{Signal: maxQueueDepth, Thresholds: thresholds}, "batch", 99, nil, true},
		{&sloGated{Signal: maxQueueDepth, Thresholds: thresholds}, "sheddable", 5, uneven, false},
		{&sloGated{Signal: meanQueueDepth, Thresholds: thresholds}, "sheddable", 4, uneven, true}, // 78/8
		{&sloGated{Signal: meanQueueDepth, Thresholds: thresholds}, "sheddable", 5, uneven, false},
		{&sloGated{Signal: meanEffectiveLoad, Thresholds: thresholds}, "standard", 1, nil, false},
		{&gaieLegacy{Queue: 5, KV: 0.8}, "sheddable", 4, nil, true}, // max(0.8, 0.625)
		{&gaieLegacy{Queue: 5, KV: 0.8}, "sheddable", 5, nil, false},
		{&gaieLegacy{Queue: 5, KV: 0.8}, "batch", 0, full, false},
		{&gaieLegacy{Queue: 5, KV: 0.8}, "standard", 500, full, true},
		{&gaieLegacy{Queue: 5, KV: 0.8}, "batch", 0, func(v *View) { v.Snapshots = nil }, false},
		{&probabilistic{Queue: 5, KV: 0.8, K: 300, Power: 5}, "sheddable", 5, nil, false},
		{&probabilistic{Queue: 5, KV: 0.8, K: 300, Power: 5}, "standard", 50, nil, true},
		{&probabilistic{Queue: 5, KV: 0.8, K: 1e-9, Power: 5}, "sheddable", 1, nil, true},
		{&randomMatched{Rates: map[string][]float64{"sheddable": {1}}}, "sheddable", 0, nil, false},
		{&randomMatched{Rates: map[string][]float64{"sheddable": {0}}}, "sheddable", 0, nil, true},
		{&randomMatched{Rates: map[string][]float64{"sheddable": {1}}}, "standard", 0, nil, true},
		{&randomMatched{Rates: map[string][]float64{"sheddable": {1}}}, "sheddable", 0, func(v *View) { v.NowUs = 1_000_000 },
			true},
		{&latencySLO{Estimate: fixed{us: 300_001}}, "sheddable", 5, nil, false},
		{&latencySLO{Estimate: fixed{us: 300_000}}, "sheddable", 5, nil, true},
		{&latencySLO{Estimate: fixed{us: 400_000, other: 200_000}}, "sheddable", 5, nil, true}, // one meets it
		{&latencySLO{Estimate: fixed{us: 300_001}}, "standard", 5, nil, true},
		{&latencySLO{Estimate: fixed{us: 300_001}}, "sheddable", 5, func(v *View) { v.Snapshots[2].BatchSize = 0 }, true},
		{&latencySLO{Estimate: fixed{us: 300_001}}, "sheddable", 5, func(v *View) { v.Snapshots[2].FreeBlocks = 981 }, true},
		{&latencySLO{Estimate: fixed{us: math.NaN()}}, "sheddable", 5, nil, true},
		{&predictive{Estimate: fixed{us: 300_000}}, "sheddable", 5, nil, true},
		{&predictive{Estimate: fixed{us: 300_001}}, "sheddable", 5, nil, false},
		{&predictive{Estimate: fixed{us: 300_001}}, "critical", 5, nil, true},
		{&predictive{Estimate: fixed{us: 200_000}, Prior: func(float64) float64 { return 1.6 }}, "standard", 5, nil, false},
		{&predictive{Estimate: fixed{us: 400_000, other: 200_000}}, "standard", 5, nil, false},
		{&predictive{Estimate: fixed{us: 400_000, other: 200_000}, Best: true}, "standard", 5, nil, true},
	} {
		v := eight(c.depth)
		if c.change != nil {
			c.change(v)
		}
		d, err := c.p.Decide(requestOfClass(c.class), v, 0)
		if err != nil || d.Admit != c.admit || d.Admit == (d.Reason != "") {
			t.Errorf("%d: %T %s: got %+v, %v, want %v", k, c.p, c.class, d, err, c.admit)
		}
	}
}

// 10,000 tokens at once, then 1,000 a second.
func TestTokenBucket(t *testing.T) {
	b := &tokenBucket{Capacity: 2000, RefillPerS: 1000}
	v := eight(0)
	for k, c := range []struct {
		at    int64
		admit bool
	}{{0, true}, {0, true}, {0, false}, {303_000, false}, {304_000, true}, {305_000, false}, {60_000_000, true}, {60_000_000, true},
		{60_000_000, false}} {
		v.NowUs = c.at
		if d, _ := b.Decide(requestOfClass("standard"), v, 0); d.Admit != c.admit {
			t.Errorf("%d: at %d us: got %v, want %v", k, c.at, d.Admit, c.admit)
		}
	}
}

// Quantiles of the last 512 ratios are those of a sorted list of them.
func TestRatios(t *testing.T) {
	var s ratios
	var all []float64
	rng := rand.New(rand.NewPCG(1, 1))
	for k := range 2000 {
		x := math.Round(20*rng.Float64()) / 10 // many equal ones
		s.addRatio(x)
		all = append(all, x)
		last := stat.Sorted(all[max(0, len(all)-512):])
		if !slices.Equal(last, s.sorted) {
			t.Fatalf("after %d: got %d ratios, want the last %d", k+1, len(s.sorted), len(last))
		}
	}
	if got := s.quantile(0.9); got != s.sorted[461] { // ceil(513*0.9) = 462nd
		t.Errorf("got %g, want the 462nd of 512", got)
	}
}

// Until thirty first tokens were seen the prior holds; then what was seen, by whether
// others were ahead: of all classes, and once a class has thirty of its own, of it.
func TestCalibrationLearns(t *testing.T) {
	p := &predictive{Estimate: fixed{us: 100_000}}
	r, v := requestOfClass("standard"), eight(0)
	for k := range 60 {
		d, _ := p.Decide(r, v, 0)
		if want := k < 30; d.Admit != want { // it takes four times as long as estimated
			t.Fatalf("request %d: got %v, want %v (%+v)", k, d.Admit, want, d)
		}
		p.Seen(r, eight(0), &d, 0, 0, 400_000)
	}
	other := requestOfClass("sheddable")
	other.Class = 1
	for k := range 60 {
		d, _ := p.Decide(other, v, 0)
		if want := k >= 30; d.Admit != want { // its own are as quick as estimated
			t.Fatalf("request %d of another class: got %v, want %v (%+v)", k, d.Admit, want, d)
		}
		p.Seen(other, eight(0), &d, 0, 0, 100_000)
	}
	if d, _ := p.Decide(r, v, 0); d.Admit {
		t.Error("a class forgot its own")
	}
}

// A group that is always predicted to miss gets its share through the floor, within
// the budget of tokens, and a new group its first requests.
func TestFloor(t *testing.T) {
	run := func(budget float64) (floor, cold int) {
		p := &predictive{
			Estimate:   fixed{us: 400_000},
			StandardUs: 500_000,
			Floor:      &Floor{Share: 0.2, BudgetShare: budget},
		}
		v := eight(0)
		c := v.Ledger.Class("sheddable", -2)
		for k := range 100 { // the ledger sees 100,000 tokens a second
			r := &Request{Index: k, Class: c, PromptTokens: 100}
			v.Ledger.Sent(r, 0, int64(k)*1000, 0)
			v.Ledger.FirstToken(k, 0, int64(k)*1000)
		}
		for k := range 100 {
			v.NowUs = 100_000 + int64(k)*10_000
			r := requestOfClass("sheddable")
			r.Prefix = 77
			d, _ := p.Decide(r, v, 0)
			switch d.Reason {
			case reasonFloor:
				floor++
			case reasonColdStart:
				cold++
			}
		}
		return floor, cold
	}
	if floor, cold := run(1); floor != 20 || cold != 5 {
		t.Errorf("with room: got %d by the floor, %d by the cold start, want 20 and 5", floor, cold)
	}
	if floor, cold := run(0); floor != 0 || cold != 0 {
		t.Errorf("without budget: got %d and %d, want none", floor, cold)
	}
	if floor, cold := run(0.05); floor+cold < 1 || floor+cold > 20 {
		t.Errorf("with 5 %%: got %d and %d", floor, cold)
	}
}

// Where engines go by priority the floor rests when three it let in missed without a hit between,
// then tries one at a time; first come first served it goes on.
func TestFloorRests(t *testing.T) {
	run := func(byClass bool, tookUs int64) (admitted int) {
		p := &predictive{Estimate: fixed{us: 400_000, byClass: byClass}, Floor: &Floor{Share: 1, BudgetShare: 1}}
		v := eight(0)
		c := v.Ledger.Class("sheddable", -2)
		for k := range 50 { // one a second, whose first token comes before the next
			v.NowUs = int64(k+1) * 1_000_000
			v.Ledger.Sent(&Request{Index: k, Class: c, PromptTokens: 10_000}, 0, v.NowUs, 0)
			v.Ledger.FirstToken(k, 0, v.NowUs)
			r := requestOfClass("sheddable")
			if d, _ := p.Decide(r, v, 0); d.Admit {
				admitted++
				p.Seen(r, v, &d, 0, v.NowUs+tookUs, tookUs)
			}
		}
		return admitted
	}
	for _, c := range []struct {
		byClass bool
		tookUs  int64
		want    int
	}{{true, 250_000, 50}, {true, 350_000, 5}, {false, 350_000, 50}} {
		if got := run(c.byClass, c.tookUs); got != c.want {
			t.Errorf("by class %v, %d us: got %d admitted, want %d", c.byClass, c.tookUs, got, c.want)
		}
	}
}

func TestPoliciesRefused(t *testing.T) {
	gated := defaultAdmission("slo-gated")
	seed := defaultAdmission("predictive-seed")
	gated.Signal, seed.Variant = "depth", "c"
	if gated.checkParameters() == nil || seed.checkParameters() == nil {
		t.Error("got no error")
	}
}

// capacityPerS is what eight engines of published sustain, requests a second.
const capacityPerS = 1000

// published is an engine with the step times of the published blackbox and noise.
func published() sim.Config {
	d := testkit.Llama8B()
	d.Engine.PrefixCaching = true
	d.Engine.MaxNumBatchedTokens = 2048
	d.Engine.SchedulingPolicy = "priority"
	d.Engine.KVBlocksGPU = trace.Some(int64(20_000))
	cfg := sim.DefaultConfig(d, &sim.Blackbox{Beta: []float64{6910.42, 17.67, 2.84}})
	q := []sim.Quantile{{Q: 0.05, Ratio: 0.9}, {Q: 0.5, Ratio: 1}, {Q: 0.95, Ratio: 1.15}}
	cfg.Noise = &sim.Noise{Decode: q, Prefill: q, Mixed: q}
	return cfg
}

var targets = map[string]target{"critical": {TTFTUs: 200_000}, "standard": {TTFTUs: 500_000}, "sheddable": {TTFTUs: 300_000}}

// classed is some seconds of arrivals, 512 of about 768 prompt tokens in common.
func classed(perSecond, seconds float64, draw uint64) []sim.Request {
	rng := rand.New(rand.NewPCG(1, draw))
	var reqs []sim.Request
	for at := 0.0; at < seconds*1e6; at += rng.ExpFloat64() / perSecond * 1e6 {
		r := sim.Request{
			ArrivalUs:    int64(at),
			PromptTokens: 640 + rng.Int64N(256),
			OutputTokens: 64 + rng.Int64N(128),
			Group:        1,
			GroupTokens:  512,
			SLOClass:     []string{"critical", "standard", "sheddable"}[rng.IntN(3)],
		}
		r.SLOTTFTUs = int64(targets[r.SLOClass].TTFTUs)
		reqs = append(reqs, r)
	}
	return reqs
}

// gated runs requests on eight engines behind predictive.
func gated(t *testing.T, reqs []sim.Request, fromS float64, floor *Floor) *Goodput {
	t.Helper()
	e := published()
	c := plain(slices.Repeat([]sim.Config{e}, 8))
	c.RefreshUs = 50_000
	c.Scheduler = priorityFCFS
	c.Routing.Policy = Weighted
	c.Routing.Scorers = "pa:4,qde:3"
	engine := forecast.NewWith(e.Latency, e.Deployment)
	c.Policy = &predictive{Floor: floor,
		Estimate: &Rollout{Engines: slices.Repeat([]*forecast.Engine{engine}, 8), ByPriority: true}}
	res, err := Run(c, reqs)
	if err != nil {
		t.Fatal(err)
	}
	return goodputOf(res.Records, targets, window{FromUs: int64(fromS * 1e6), ToUs: math.MaxInt64})
}

// Of the requests that predictive lets in by its rule, a class's tolerated share and two
// points at most miss their targets (and what chance adds to so few, 99.5 %): 5 % of
// standard, 10 % of sheddable, with the floor and without, below capacity and at twice of
// it, in a first second. What the floor lets in is predicted
// to miss, and does; it costs at most a point of goodput.
func TestGateKeepsItsWord(t *testing.T) { keepsItsWord(t, 0, 1, 1, 0.01) }

// The same while seats fill, when all answers are young and nobody leaves, and after; the
// floor's cost in the mean of six draws of arrivals.
func TestEvalGateKeepsItsWord(t *testing.T) {
	repo.NeedEval(t)
	keepsItsWord(t, 0, 6, 6, 0.013)
	keepsItsWord(t, 4, 10, 6, 0.01)
}

func keepsItsWord(t *testing.T, fromS, toS float64, draws int, floorCosts float64) {
	for _, rho := range []float64{0.9, 1.1, 1.5, 2.1} {
		var with, without *Goodput // of the first draw
		cost := 0.0
		for draw := range draws {
			reqs := classed(rho*capacityPerS, toS, uint64(draw+1))
			a := gated(t, reqs, fromS, &Floor{Share: 0.2, BudgetShare: 0.05})
			b := gated(t, reqs, fromS, nil)
			if cost += (b.All.Goodput() - a.All.Goodput()) / float64(draws); draw == 0 {
				with, without = a, b
			}
		}
		t.Logf("%g to %g s, rho %.1f: goodput %.3f, without floor %.3f; the floor costs %.4f in the mean of %d draws", fromS, toS, rho,
			with.All.Goodput(), without.All.Goodput(), cost, draws)
		if cost > floorCosts {
			t.Errorf("%g to %g s, rho %.1f: the floor costs %.4f of goodput, want at most %g", fromS, toS, rho, cost, floorCosts)
		}
		for _, run := range []*Goodput{with, without} {
			for i := range run.Classes {
				c := &run.Classes[i]
				limit := map[string]float64{"critical": 1, "standard": 0.05 + 0.02, "sheddable": 0.10 + 0.02}[c.Name]
				most := limit + 2.58*math.Sqrt(limit*(1-limit)/float64(max(1, c.RuleJudged)))
				t.Logf("  %-9s admitted %5d of %5d, missed %.3f, floor apart %.3f", c.Name, c.Admitted, c.Arrived, c.MissShare(),
					c.RuleMissShare())
				if c.RuleJudged > 20 && c.RuleMissShare() > most {
					t.Errorf("%g to %g s, rho %.1f: %s: %.3f of %d missed, want at most %.2f", fromS, toS, rho, c.Name, c.RuleMissShare(),
						c.RuleJudged, most)
				}
			}
		}
	}
}

// Of eight answers that began together four ended with 40 tokens: their age, 32 to 48, is
// where the other four are, halfway on average, so 4 of 4 + 4/2 end there. Four that begin now
// do not end for two windows.
func TestLeavingByHand(t *testing.T) {
	l := newLedger(2, 12)
	class := l.Class("standard", 3)
	begin := func(from, to int) {
		for k := from; k < to; k++ {
			l.Sent(&Request{Index: k, Class: class, PromptTokens: 100}, 1, 0, 0)
			l.FirstToken(k, 1, 0)
		}
	}
	l.Stepped(1) // nobody's token shows it
	begin(0, 8)
	for range 40 {
		l.Stepped(1)
	}
	if got := l.Leaving(1); got != nil {
		t.Errorf("nobody has ended: got %g", got)
	}
	for k := range 4 {
		l.Left(k, 1, 0, 40, true)
	}
	begin(8, 12)
	if got := l.Leaving(0); got != nil {
		t.Errorf("an idle instance: got %g", got)
	}
	got := l.Leaving(1)
	for w, want := range []float64{4 * 2. / 3 / 8, 4. / 3 * 2 / 3 / (4./3 + 4)} {
		if math.Abs(got[w]-want/16) > 1e-12 {
			t.Errorf("window %d: got %g, want %g", w, got[w], want/16)
		}
	}
}

// TestReasonText: an admission carries its estimate and its budget, a rejection its code.
func TestReasonText(t *testing.T) {
	cases := []struct {
		d    Decision
		want string
	}{
		{admit(), ""},
		{reject(reasonTokens), "insufficient_tokens"},
		{Decision{Admit: true, BoundUs: 41_234, BudgetUs: 50_000}, "estimate 41.2 ms, budget 50.0 ms"},
		{Decision{Admit: true, BoundUs: 41_234}, "estimate 41.2 ms, no budget"},
		{Decision{Admit: true, Reason: reasonFloor, BoundUs: 80_000, BudgetUs: 50_000}, "floor: estimate 80.0 ms, budget 50.0 ms"},
		{Decision{Reason: reasonPredicted, BoundUs: 80_000, BudgetUs: 50_000}, "predicted_miss"},
	}
	for _, c := range cases {
		if got := reasonText(&c.d); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.d, got, c.want)
		}
	}
	r := requestOfClass("standard")
	for _, p := range []Policy{&predictive{Estimate: fixed{us: 1000}}, &Seed{Headroom: 1, BudgetUs: map[string]float64{"standard": float64(r.SLOTTFTUs)}}} {
		if d, err := p.Decide(r, eight(0), 0); err != nil || !d.Admit || d.BudgetUs != float64(r.SLOTTFTUs) {
			t.Errorf("%T: got %+v, %v, want a budget of %d us", p, d, err, r.SLOTTFTUs)
		}
	}
}
