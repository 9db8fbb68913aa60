package cluster

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

func close9(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// served returns a request that instance 0 served: it came, was scheduled, had its first token and finished at these
// times, us.
func served(arrival, scheduled, first, finished int64) record {
	r := record{}
	r.ArrivalUs = arrival
	r.DecidedUs = arrival
	r.ScheduledUs = trace.Some(scheduled)
	r.FirstTokenUs = trace.Some(first)
	r.FinishedUs = trace.Some(finished)
	return r
}

func TestTargetsAreMicroseconds(t *testing.T) {
	s := &Spec{Targets: map[string]targetSpec{"a": {TTFTMs: 1.5, ITLMs: 2.5, E2EMs: 3.5}}}
	if got, want := s.ByClass()["a"], (target{TTFTUs: 1500, ITLUs: 2500, E2EUs: 3500}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	reqs := []sim.Request{{SLOClass: "a"}, {SLOClass: "b", SLOTTFTUs: 7}}
	got := s.TakeTargets(reqs)
	if q := got[0]; q.SLOTTFTUs != 1500 || q.SLOITLUs != 2500 || q.SLOE2EUs != 3500 {
		t.Errorf("got %+v, want targets of 1500, 2500 and 3500 us", q)
	}
	if got[1].SLOTTFTUs != 7 || reqs[0].SLOTTFTUs != 0 {
		t.Errorf("got %+v, and the requests before %+v", got[1], reqs[0])
	}
	p := &preset{WarmupS: 1.5, Seconds: 4}
	if w := p.window(); w != (window{FromUs: 1_500_000, ToUs: 4_000_000}) {
		t.Errorf("got the window %+v, want 1.5 to 4 s", w)
	}
}

// TestRejectRatesBySecond: second 0 has one of two rejected, second 2 one of one; second 1 has no decision.
func TestRejectRatesBySecond(t *testing.T) {
	at := func(us int64, instance int, class string) record {
		return record{DecidedUs: us, Instance: instance, Class: class}
	}
	got := rejectRates([]record{at(0, 0, "a"), at(999_999, -1, "a"), at(2_000_000, -1, "a"), at(1_000_000, 3, "b")})
	want := map[string][]float64{"a": {0.5, 0, 1}, "b": {0, 0}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWorstInstanceByHand(t *testing.T) {
	on := func(instance int, arrival, first int64) record {
		r := served(arrival, first, first, first)
		r.Instance = instance
		return r
	}
	w := window{FromUs: 1000, ToUs: 2000}
	recs := []record{
		on(0, 1000, 4000), on(0, 1500, 5500), // 3 and 4 ms
		on(1, 1999, 4999),                                             // 3 ms
		on(1, 2000, 99_000), on(1, 999, 99_000), on(-1, 1500, 99_000), // outside, or rejected
	}
	if got, want := worstInstance(recs, w), 3+0.99; !close9(got, want) {
		t.Errorf("got %g ms, want %g", got, want)
	}
	if got := worstInstance(nil, w); !math.IsNaN(got) {
		t.Errorf("got %g of nothing", got)
	}
	// Instance 0 serves two at a time and, as one leaves when another comes, never three; instance 1 serves one.
	inUse := []record{served(0, 10, 11, 30), served(0, 20, 21, 40), served(0, 30, 31, 50), served(0, 60, 61, 70)}
	other := served(0, 10, 11, 20)
	other.Instance = 1
	waiting := record{Instance: 1}
	rejected := served(0, 10, 11, 20)
	rejected.Instance = -1
	inUse = append(inUse, other, waiting, rejected)
	if got, want := seatsInUse(inUse, 2, 4), (2.0/4+1.0/4)/2; got != want {
		t.Errorf("got %g of the places in use, want %g", got, want)
	}
}

// TestPairedContrastByHand: differences 1, 2 and 3 have the mean 2 and the standard error 1/sqrt(3); with two degrees of
// freedom the 95 % interval is 4.303 of those wide.
func TestPairedContrastByHand(t *testing.T) {
	nan := math.NaN()
	c := pairedContrast("x", "y", "k", []float64{101, 102, nan, 103}, []float64{100, 100, 5, 100})
	half := stat.StudentT(0.975, 2) / math.Sqrt(3)
	if c.A != "x" || c.B != "y" || c.Figure != "k" || c.N != 3 || !close9(*c.Effect, 2) || !close9(*c.Lo, 2-half) || !close9(*c.Hi, 2+half) {
		t.Errorf("got %+v, want 2 +- %g of 3", c, half)
	}
	// The 90 % interval reaches to 2 + 2.920/sqrt(3) = 3.686: within 5 % of a mean of 100, not of 70.
	if !*c.Same {
		t.Error("differences of 2 % are not called the same within 5 %")
	}
	if c := pairedContrast("x", "y", "k", []float64{71, 72, 73}, []float64{70, 70, 70}); *c.Same {
		t.Error("an interval up to 3.69 of 70 is called the same within 5 %")
	}
	if c := pairedContrast("x", "y", "k", []float64{-101, -102, -103}, []float64{-100, -100, -100}); !*c.Same {
		t.Error("the margin of a negative mean is negative")
	}
	if c := pairedContrast("x", "y", "k", []float64{69, 68, 67}, []float64{70, 70, 70}); *c.Same {
		t.Error("an interval down to -3.69 of 70 is called the same within 5 %")
	}
	if c := pairedContrast("x", "y", "k", []float64{nan}, []float64{1}); c.N != 0 || c.Effect != nil || c.Same != nil {
		t.Errorf("no seed: got %+v", c)
	}
	if c := pairedContrast("x", "y", "k", []float64{2}, []float64{1}); c.N != 1 || c.Same != nil || *c.Effect != 1 {
		t.Errorf("one seed: got %+v", c)
	}
}

// TestFairnessByHand: of three groups with goodput 1, 1/2 and 0 Jain's index is 1.5^2 / (3 * 1.25).
func TestFairnessByHand(t *testing.T) {
	of := func(good ...[2]int) float64 {
		var recs []*record
		for group, g := range good {
			for k := range g[1] {
				r := served(0, 1, 2, 3)
				r.Group = uint64(group)
				r.Instance = 0
				r.Outcome = sim.OutcomeFinished
				if k >= g[0] {
					r.Outcome = ""
					r.Instance = -1
					r.FinishedUs = trace.Opt[int64]{}
					r.FirstTokenUs = trace.Opt[int64]{}
				}
				recs = append(recs, &r)
			}
		}
		out := &Goodput{}
		out.fairness(recs, map[string]target{"": {TTFTUs: 1e9}})
		return out.Jain
	}
	if got, want := of([2]int{4, 4}, [2]int{1, 2}, [2]int{0, 9}), 1.5*1.5/(3*1.25); !close9(got, want) {
		t.Errorf("got %g, want %g", got, want)
	}
	if got := of([2]int{1, 1}, [2]int{5, 5}); got != 1 {
		t.Errorf("equal groups: got %g, want 1", got)
	}
	if got := of([2]int{0, 1}); !math.IsNaN(got) {
		t.Errorf("nothing good: got %g", got)
	}
}

// TestOutputRateByHand: a window of 1 s; tokens are spread from the first token to the end.
func TestOutputRateByHand(t *testing.T) {
	out := func(first, finished, tokens int64) record {
		r := served(0, 0, first, finished)
		r.OutputTokens = tokens
		return r
	}
	unfinished := out(0, 0, 999)
	unfinished.FinishedUs = trace.Opt[int64]{}
	w := window{FromUs: 1_000_000, ToUs: 2_000_000}
	recs := []record{
		out(1_000_000, 1_500_000, 10), // all within
		out(500_000, 1_500_000, 20),   // half
		out(1_750_000, 2_750_000, 40), // a quarter
		out(0, 900_000, 80),           // before
		out(1_000_000, 1_000_000, 3),  // one token at the start
		out(2_000_000, 2_000_000, 5),  // one at the end, which is outside
		unfinished,
	}
	if got, want := outputPerS(recs, w), 10+10+10+3.0; got != want {
		t.Errorf("got %g tokens/s, want %g", got, want)
	}
	recs[0].ArrivalUs = 3_000_000
	if got, want := outputPerS(recs[:1], window{FromUs: 1_000_000, ToUs: math.MaxInt64}), 10/2.0; got != want {
		t.Errorf("an open window of 2 s: got %g tokens/s, want %g", got, want)
	}
}

func TestRanksOfGroups(t *testing.T) {
	l := &load{Groups: 3, Prefix: [2]int64{256, 4096}}
	// Weights 1, 1/2 and 1/3 of 11/6: 6/11, 3/11 and 2/11.
	for u, want := range map[float64]int{0: 0, 5.99 / 11: 0, 6.01 / 11: 1, 8.99 / 11: 1, 9.01 / 11: 2, 0.9999: 2, 1: 2} {
		if got := l.zipf(u); got != want {
			t.Errorf("%g: got rank %d, want %d", u, got, want)
		}
	}
	sizes := map[int64]bool{}
	for rank := range 50 {
		n := l.prefixOf(rank)
		if n%16 != 0 || n < 256 || n > 4096 || n != l.prefixOf(rank) {
			t.Errorf("rank %d: got %d tokens, want whole blocks from 256 to 4096", rank, n)
		}
		sizes[n] = true
	}
	if len(sizes) < 30 {
		t.Errorf("got %d lengths of 50 groups", len(sizes))
	}
	l.Prefix = [2]int64{300, 300}
	if got := l.prefixOf(1); got != 300 {
		t.Errorf("got %d tokens, want 300", got)
	}
}

// TestLogImprovementByHand: at the best value so far the expected improvement is sd/sqrt(2 pi). Far below, it is
// that of Mills' ratio.
func TestLogImprovementByHand(t *testing.T) {
	if got, want := logImprovement(5, 2, 5), math.Log(2/math.Sqrt(2*math.Pi)); !close9(got, want) {
		t.Errorf("got %g, want %g", got, want)
	}
	// One standard deviation above: phi(1) + Phi(1) = 0.24197 + 0.84134.
	if got, want := logImprovement(7, 2, 5), math.Log(2*(0.24197072451914337+0.8413447460685429)); !close9(got, want) {
		t.Errorf("got %g, want %g", got, want)
	}
	// On both sides of six standard deviations below, it rises as Phi/(phi + u*Phi), the derivative, does.
	lo, hi := logImprovement(-6.0001, 1, 0), logImprovement(-5.9999, 1, 0)
	slope := normalBelow(-6) / math.Exp(logImprovement(-6, 1, 0))
	if math.Abs((hi-lo)/0.0002-slope) > 1e-3*slope {
		t.Errorf("got %.6f and %.6f around -6, want a slope of %g", lo, hi, slope)
	}
	// Ten below: phi(10)/(1 + x*k) lies between the asymptote's first and second term, 1/100*(1 - 3/100) and 1/100.
	base := math.Log(3) - 50 - math.Log(2*math.Pi)/2 - 2*math.Log(10)
	if got := logImprovement(-30, 3, 0); got <= base+math.Log(0.97) || got >= base+math.Log(0.9715) {
		t.Errorf("got %g, want %g to %g", got, base+math.Log(0.97), base+math.Log(0.9715))
	}
	if got := normalBelow(0); got != 0.5 {
		t.Errorf("got %g below the mean", got)
	}
}

// TestScrapesAreDue: four instances every 1000 us, 250 us after one another.
func TestScrapesAreDue(t *testing.T) {
	c := &cluster{engines: make([]sim.Server, 4), cfg: &Config{}}
	c.cfg.RefreshUs = 1000
	for _, x := range []struct {
		instance   int
		scrape     string
		atUs, want int64
	}{
		{0, "", 0, 0}, {0, "", 999, 0}, {0, "", 1000, 1000}, {1, "", 249, -1}, {1, "", 250, 250}, {3, "", 1749, 750}, {3, "", 1750, 1750},
		{3, "aligned", 999, 0}, {3, "aligned", 2000, 2000},
	} {
		c.cfg.Scrape = x.scrape
		if got := c.scrapeDue(x.instance, x.atUs); got != x.want {
			t.Errorf("%+v: got %d us", x, got)
		}
	}
	c.cfg.RefreshUs = 0
	if got := c.scrapeDue(0, 5); got != -1 {
		t.Errorf("every state is fresh: got a scrape at %d us", got)
	}
}

func TestLimitsOfAConfig(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(c *Config)
		isGood bool
	}{
		{"defaults", func(c *Config) {}, true},
		{"refresh", func(c *Config) { c.RefreshUs = -1 }, false},
		{"admission", func(c *Config) { c.AdmissionUs = -1 }, false},
		{"routing", func(c *Config) { c.RoutingUs = -1 }, false},
		{"event delay", func(c *Config) { c.Routing.EventDelayUs = -1 }, false},
		{"index blocks", func(c *Config) { c.Routing.IndexBlocks = -1 }, false},
		{"index update", func(c *Config) { c.Routing.IndexUpdate = "never" }, false},
		{"scheduler", func(c *Config) { c.Scheduler = "lifo" }, false},
		{"most age weight", func(c *Config) { c.AgeWeight = 1 }, true},
		{"more", func(c *Config) { c.AgeWeight = 1.01 }, false},
		{"less than none", func(c *Config) { c.AgeWeight = -0.01 }, false},
		{"no number", func(c *Config) { c.AgeWeight = math.NaN() }, false},
		{"all in the shadow", func(c *Config) { c.ShadowShare = 1 }, true},
		{"more", func(c *Config) { c.ShadowShare = 1.01 }, false},
		{"less than none", func(c *Config) { c.ShadowShare = -0.01 }, false},
	} {
		cfg := &Config{}
		cfg.Routing.IndexUpdate = OnRoute
		if c.change(cfg); (cfg.checkConfig() == nil) != c.isGood {
			t.Errorf("%s: got %v", c.name, cfg.checkConfig())
		}
	}
}

// TestLimitsOfASpec: each limit of cluster.yaml, at it and beyond it.
func TestLimitsOfASpec(t *testing.T) {
	classes := func(change func(*Spec)) error {
		s := defaultSpec()
		s.Instances.Groups = []group{{Count: 2}}
		change(&s)
		return s.Check()
	}
	roles := func(roles ...string) func(*Spec) {
		return func(s *Spec) {
			s.Instances.Groups = nil
			for _, r := range roles {
				s.Instances.Groups = append(s.Instances.Groups, group{Count: 1, Role: r})
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*Spec)
		want   string // "": good
	}{
		"defaults":               {func(s *Spec) {}, ""},
		"aligned":                {func(s *Spec) { s.Scrape = "aligned" }, ""},
		"scrape":                 {func(s *Spec) { s.Scrape = "often" }, "scrape: got"},
		"retry":                  {func(s *Spec) { s.Retry.Kind = "again" }, "retry: got"},
		"two tries":              {func(s *Spec) { s.Retry = retrySpec{Kind: "backoff", Tries: 2} }, ""},
		"one try":                {func(s *Spec) { s.Retry = retrySpec{Kind: "backoff", Tries: 1} }, "retry.tries: got 1"},
		"100 tries":              {func(s *Spec) { s.Retry = retrySpec{Kind: "backoff", Tries: 100} }, ""},
		"101 tries":              {func(s *Spec) { s.Retry = retrySpec{Kind: "backoff", Tries: 101} }, "retry.tries: got 101"},
		"one try without":        {func(s *Spec) { s.Retry = retrySpec{Kind: "none", Tries: 1} }, ""},
		"no group":               {func(s *Spec) { s.Instances.Groups = nil }, "instances: got none"},
		"an empty group":         {func(s *Spec) { s.Instances.Groups = []group{{Count: 1}, {Count: 0}} }, "instances: got 0"},
		"most instances":         {func(s *Spec) { s.Instances.Groups = []group{{Count: 63}, {Count: 1}} }, ""},
		"one more":               {func(s *Spec) { s.Instances.Groups = []group{{Count: 64}, {Count: 1}} }, "at most"},
		"priorities":             {func(s *Spec) { s.Priorities = map[string]int{"a": -100, "b": 100} }, ""},
		"low priority":           {func(s *Spec) { s.Priorities = map[string]int{"a": -101} }, "priorities.a: got -101"},
		"high priority":          {func(s *Spec) { s.Priorities = map[string]int{"a": 101} }, "priorities.a: got 101"},
		"targets":                {func(s *Spec) { s.Targets = map[string]targetSpec{"a": {}} }, ""},
		"ttft":                   {func(s *Spec) { s.Targets = map[string]targetSpec{"a": {TTFTMs: -1}} }, "goodput_slo_targets.a"},
		"itl":                    {func(s *Spec) { s.Targets = map[string]targetSpec{"a": {ITLMs: -1}} }, "goodput_slo_targets.a"},
		"e2e":                    {func(s *Spec) { s.Targets = map[string]targetSpec{"a": {E2EMs: math.NaN()}} }, "goodput_slo_targets.a"},
		"one predictor":          {func(s *Spec) { s.Routing.Policy, s.Admission.Predictor, s.Routing.Predictor = LLMD, "a", "a" }, ""},
		"that of admission":      {func(s *Spec) { s.Admission.Predictor = "a" }, ""},
		"two predictors":         {func(s *Spec) { s.Admission.Predictor, s.Routing.Predictor = "a", "b" }, "predictor: got a for admission and b"},
		"the most bandwidth":     {func(s *Spec) { s.Transfer.BandwidthGBs = 1e9 }, ""},
		"more":                   {func(s *Spec) { s.Transfer.BandwidthGBs = 1.01e9 }, "transfer: got"},
		"no bandwidth":           {func(s *Spec) { s.Transfer.BandwidthGBs = 0 }, "transfer: got"},
		"no latency":             {func(s *Spec) { s.Transfer.LatencyUs, s.Transfer.ProxyUs = 0, 0 }, ""},
		"negative latency":       {func(s *Spec) { s.Transfer.LatencyUs = -1 }, "transfer: got"},
		"negative proxy":         {func(s *Spec) { s.Transfer.ProxyUs = -1 }, "transfer: got"},
		"the longest latency":    {func(s *Spec) { s.Transfer.LatencyUs, s.Transfer.ProxyUs = sim.LatestUs, sim.LatestUs }, ""},
		"a longer one":           {func(s *Spec) { s.Transfer.LatencyUs = sim.LatestUs + 1 }, "transfer: got"},
		"a longer proxy":         {func(s *Spec) { s.Transfer.ProxyUs = sim.LatestUs + 1 }, "transfer: got"},
		"prefill and decode":     {roles(rolePrefill, roleDecode), ""},
		"prefill alone":          {roles(rolePrefill), "want prefill and decode instances and no others"},
		"decode alone":           {roles(roleDecode), "want prefill and decode instances and no others"},
		"and one of both":        {roles(rolePrefill, roleDecode, ""), "want prefill and decode instances and no others"},
		"another role":           {roles("router"), "instances[0].role: got \"router\""},
		"policy":                 {func(s *Spec) { s.Admission.Policy = "any" }, "admission policy: got"},
		"capacity":               {func(s *Spec) { s.Admission.Capacity = 1 }, ""},
		"a smaller capacity":     {func(s *Spec) { s.Admission.Capacity = 0.99 }, "admission.capacity: got 0.99"},
		"an endless capacity":    {func(s *Spec) { s.Admission.Capacity = math.Inf(1) }, "admission.capacity"},
		"refill":                 {func(s *Spec) { s.Admission.Refill = 1e-9 }, ""},
		"a smaller refill":       {func(s *Spec) { s.Admission.Refill = 0.9e-9 }, "admission.refill"},
		"queue depth":            {func(s *Spec) { s.Admission.QueueThreshold = 0 }, "admission.queue_depth_threshold"},
		"KV usage":               {func(s *Spec) { s.Admission.KVThreshold = 0 }, "admission.kv_threshold"},
		"none of these":          {func(s *Spec) { s.Admission.K, s.Admission.Power, s.Admission.Headroom, s.Admission.StepMs = 0, 0, 0, 0 }, ""},
		"k":                      {func(s *Spec) { s.Admission.K = -1 }, "admission.k"},
		"power":                  {func(s *Spec) { s.Admission.Power = -1 }, "admission.power"},
		"headroom":               {func(s *Spec) { s.Admission.Headroom = -1 }, "admission.headroom"},
		"step":                   {func(s *Spec) { s.Admission.StepMs = -1 }, "admission.step_ms"},
		"beta0":                  {func(s *Spec) { s.Admission.Beta0 = -1 }, "admission.beta0"},
		"beta1":                  {func(s *Spec) { s.Admission.Beta1 = math.NaN() }, "admission.beta1"},
		"the best":               {func(s *Spec) { s.Admission.PredictOn = "best" }, ""},
		"predict on":             {func(s *Spec) { s.Admission.PredictOn = "any" }, "admission.predict_on"},
		"no floor":               {func(s *Spec) { s.Admission.Floor = num(0) }, ""},
		"all on the floor":       {func(s *Spec) { s.Admission.Floor = num(1) }, ""},
		"more than all":          {func(s *Spec) { s.Admission.Floor = num(1.01) }, "admission.floor"},
		"less than none":         {func(s *Spec) { s.Admission.Floor = num(-0.01) }, "admission.floor"},
		"eps":                    {func(s *Spec) { s.Admission.Eps = map[string]float64{"a": 0.999} }, ""},
		"eps of all":             {func(s *Spec) { s.Admission.Eps = map[string]float64{"a": 1} }, "admission.eps.a"},
		"no eps":                 {func(s *Spec) { s.Admission.Eps = map[string]float64{"a": 0} }, "admission.eps.a"},
		"signal":                 {func(s *Spec) { s.Admission.Policy = "slo-gated" }, "slo-gated signal"},
		"a signal":               {func(s *Spec) { s.Admission.Policy, s.Admission.Signal = "slo-gated", maxQueueDepth }, ""},
		"variant":                {func(s *Spec) { s.Admission.Policy, s.Admission.Variant = "predictive-seed", "c" }, "variant: got"},
		"variant a":              {func(s *Spec) { s.Admission.Policy, s.Admission.Variant = "predictive-seed", "a" }, ""},
		"variant of another one": {func(s *Spec) { s.Admission.Variant = "c" }, ""},
	} {
		err := classes(c.change)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// TestTargetsAreMet: a request meets targets that its times equal, and none that they exceed.
func TestTargetsAreMet(t *testing.T) {
	r := served(0, 10, 100, 500)
	r.Outcome = sim.OutcomeFinished
	r.DepartedUs = trace.Some[int64](500)
	r.OutputTokens = 5 // 100 us each after the first
	for _, c := range []struct {
		of   target
		want bool
	}{
		{target{}, true}, {target{TTFTUs: 100, ITLUs: 100, E2EUs: 500}, true}, {target{TTFTUs: 99}, false}, {target{ITLUs: 99}, false}, {target{E2EUs: 499}, false},
	} {
		if got := c.of.Meets(&r); got != c.want {
			t.Errorf("%+v: got %v", c.of, got)
		}
	}
	one := r
	one.OutputTokens = 1
	one.FinishedUs = one.FirstTokenUs
	if !(target{ITLUs: 1}).Meets(&one) {
		t.Error("an answer of one token misses a target for the others")
	}
	one.Outcome = sim.OutcomeAborted
	if (target{}).Meets(&one) {
		t.Error("an aborted request meets its targets")
	}
}

// TestFollowers: requests that wait for another one's answer, or come with it, need all servers on one clock.
func TestFollowers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*sim.Request)
		want   bool
	}{
		"none": {func(*sim.Request) {}, false}, "after": {func(r *sim.Request) { r.After = 1 }, true}, "loop": {func(r *sim.Request) { r.Loop = 1 }, true}, "with": {func(r *sim.Request) { r.With = 1 }, true},
	} {
		reqs := make([]sim.Request, 3)
		c.change(&reqs[1])
		if got := followsAnswers(reqs); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// TestPrioritiesOfClasses: the priorities of classes by default and in cluster.yaml, and what vLLM gets for them.
func TestPrioritiesOfClasses(t *testing.T) {
	c := &Config{}
	for class, want := range map[string]int{"critical": 4, "standard": 3, "batch": -1, "sheddable": -2, "background": -3, "": 3, "other": 3} {
		if got := c.priority(class); got != want {
			t.Errorf("%q: got %d, want %d", class, got, want)
		}
	}
	if got := c.enginePriority(4, 99); got != 0 {
		t.Errorf("the most important class: got %d", got)
	}
	if got := c.enginePriority(-2, 99); got != 6 {
		t.Errorf("sheddable: got %d", got)
	}
	c.Priorities = map[string]int{"critical": 1, "vip": 9}
	if c.priority("critical") != 1 || c.priority("standard") != 3 || c.enginePriority(9, 0) != 0 || c.enginePriority(1, 0) != 8 {
		t.Error("the priorities of cluster.yaml are not used")
	}
	// With an age weight of 0.001 a us a priority of one more is worth 1 ms of waiting.
	c.AgeWeight = 0.001
	if got := c.enginePriority(0, 500_000) - c.enginePriority(3, 500_000); got != 3000 {
		t.Errorf("three priorities: got %d us", got)
	}
	if got := c.enginePriority(-100, 7); got != 7 {
		t.Errorf("the least priority: got %d", got)
	}
}

// TestDecisionsByHand: what decisions.parquet states of an admitted request, and of a rejected one that a copy of an engine served.
func TestDecisionsByHand(t *testing.T) {
	admitted := record{RequestResult: sim.RequestResult{ID: "a", ArrivalUs: 11}, Class: "standard", Priority: -2, Instance: 3, Prefill: trace.Some[int64](4), Tries: 5, DecidedUs: 6,
		Decision: Decision{Admit: true, Reason: "floor", PredictedUs: 7000, BoundUs: 8000, BudgetUs: 9000}, Expected: 10, Potential: 12}
	want := decisionRow{ID: "a", ArrivalUs: 11, DecidedUs: 6, Tries: 5, SLOClass: "standard", Priority: -2, Admitted: true, Reason: "floor: estimate 8.0 ms, budget 9.0 ms", Instance: trace.Some[int64](3),
		PrefillInstance: trace.Some[int64](4), PredictedTTFTMs: trace.Some(7.0), BoundTTFTMs: trace.Some(8.0), ExpectedTokens: 10, PotentialTokens: 12}
	if got := rowOfDecision(&admitted); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	rejected := record{RequestResult: sim.RequestResult{ID: "b"}, Instance: -1, Prefill: trace.Some[int64](4), Tries: 1, Decision: Decision{Reason: "predicted", PredictedUs: math.NaN(), BoundUs: 8000}, Shadow: trace.Some[int64](13_000)}
	got := rowOfDecision(&rejected)
	got.PredictedTTFTMs.V = 0
	if want := (decisionRow{ID: "b", Tries: 1, Reason: "predicted", BoundTTFTMs: trace.Some(8.0), ShadowTTFTMs: trace.Some(13.0)}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestUnusedSettings: classes that no request is of, and a transfer between instances without roles, are named; keys that
// a group of instances does not have are errors.
func TestUnusedSettings(t *testing.T) {
	requests := []sim.Request{{SLOClass: "standard"}, {SLOClass: "critical"}, {}}
	for text, want := range map[string][]string{
		"instances: 2": nil,
		"goodput_slo_targets: {critical: {ttft_ms: 5}}":                                                 nil,
		"goodput_slo_targets: {critcal: {ttft_ms: 5}}":                                                  {"goodput_slo_targets.critcal: no request is of this class, they are of critical, standard"},
		"priorities: {gold: 5, standard: 1}":                                                            {"priorities.gold: no request is of this class, they are of critical, standard"},
		"admission: {policy: slo-gated, signal: max-queue-depth, thresholds: {nosuch: 16}}":             {"admission.thresholds.nosuch: no request is of this class, they are of critical, standard"},
		"admission: {policy: predictive, eps: {shed: 0.5}}":                                             {"admission.eps.shed: no request is of this class, they are of critical, standard"},
		"admission: predictive-seed":                                                                    nil,
		"admission: {policy: predictive-seed, budget_ms: {gold: 5}}":                                    {"admission.budget_ms.gold: no request is of this class, they are of critical, standard"},
		"transfer: {latency_us: 7}":                                                                     {"transfer: no instance has a role (prefill or decode), so nothing is transferred"},
		"{transfer: {latency_us: 7}, instances: [{count: 1, role: prefill}, {count: 1, role: decode}]}": nil,
	} {
		s, err := parseSpec([]byte(text), "cluster.yaml")
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var got []string
		for _, f := range s.unused(requests) {
			got = append(got, f.Message)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	s, err := parseSpec([]byte("routing: least-loaded"), "cluster.yaml")
	if want := (Routing{Policy: "least-loaded", IndexUpdate: OnRoute, EventDelayUs: 50_000}); err != nil || s.Routing.Policy != want.Policy || s.Routing.IndexUpdate != want.IndexUpdate || s.Routing.EventDelayUs != want.EventDelayUs {
		t.Errorf("a routing policy by its name: got %+v and %v", s, err)
	}
	for text, want := range map[string]string{
		"instances: [{count: 1, rol: prefill}]":                                               `unknown key "rol"`,
		"admission: {policy: slo-gated, signal: max-queue-depth, thresholds: {standard: -3}}": "admission.thresholds.standard: got -3, want finite and >= 0",
	} {
		if _, err := parseSpec([]byte(text), "cluster.yaml"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
