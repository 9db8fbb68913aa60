package validate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

func some[T any](v T) trace.Opt[T] { return trace.Some(v) }

// TestMetricsByHand states every figure of a comparison of four recorded with five simulated times.
func TestMetricsByHand(t *testing.T) {
	real := []float64{10, 30, 20, 40}
	simulated := []float64{11, 44, 22, 66, 33}
	m := Compare(real, simulated, false)
	k := stat.KolmogorovSmirnov(real, simulated)
	for name, v := range map[string][2]float64{
		"D": {m.KSD, 0.4}, "p": {m.PAsymptotic, k.PAsymptotic}, "n": {float64(m.NReal), 4}, "m": {float64(m.NSim), 5}, "at": {m.DAtMs, 40}, "quantile": {m.DAtQuantile, m.DRealCDF}, "real CDF": {m.DRealCDF, 1},
		"simulated CDF": {m.DSimCDF, 0.6}, "Wasserstein": {m.WassersteinMs, stat.Wasserstein(real, simulated)}, "halves": {*m.RealVsRealD, 0.5}, "p50": {m.RealMs.P50, 25}, "p90": {m.RealMs.P90, 37}, "p99": {m.RealMs.P99, 39.7},
		"mean": {m.RealMs.Mean, 25}, "simulated p50": {m.SimMs.P50, 33}, "simulated p90": {m.SimMs.P90, 57.2}, "simulated p99": {m.SimMs.P99, 65.12}, "simulated mean": {m.SimMs.Mean, 35.2},
		"median": {m.MedianRelErr, 0.32}, "beyond": {*m.BeyondD, stat.DistanceBeyond(stat.Sorted(real), stat.Sorted(simulated), 0.05)},
	} {
		if !near(v[0], v[1]) {
			t.Errorf("%s: got %g, want %g", name, v[0], v[1])
		}
	}
	if m.MedianRelErrPaired != nil || m.PairedErr != nil {
		t.Error("times of other requests are paired")
	}
	if distanceOfHalves(real[:3]) != nil || distanceOfHalves(real) == nil {
		t.Error("three times have halves, or four have none")
	}
	if got := medianPairedError([]float64{0, 10, 20, -1}, []float64{5, 11, 16, 5}); !near(got, 0.15) {
		t.Errorf("got a median error of %g of 0.1 and 0.2", got)
	}
	if got := medianPairedError([]float64{0}, []float64{5}); !math.IsNaN(got) {
		t.Errorf("nothing above 0: got %g", got)
	}
	// Ten ratios of 1.1 of which the smallest and the largest tenth do not count.
	var a, b []float64
	for i := range 10 {
		a = append(a, 10)
		b = append(b, []float64{1, 99, 11, 11, 11, 11, 11, 11, 11, 11}[i])
	}
	if got := pairedError(a, b); !near(got.Value, 0.1) {
		t.Errorf("got %+v, want 0.1", got)
	}
	if got := pairedError([]float64{0, 5}, []float64{5, 0}); got != nil && !math.IsNaN(got.Value) {
		t.Errorf("no pairs: got %+v", got)
	}
	// Curves: the first, the last and evenly between.
	if got := ecdf([]float64{3, 1, 2}); !reflect.DeepEqual(got, [][2]float64{{1, 0.33333}, {2, 0.66667}, {3, 1}}) {
		t.Errorf("got %v", got)
	}
	var long []float64
	for i := range 239 {
		long = append(long, float64(i))
	}
	if got := ecdf(long); len(got) != 120 || got[1] != [2]float64{2, 0.012552} || got[119] != [2]float64{238, 1} {
		t.Errorf("got %d points, %v", len(got), got[1])
	}
	if got := quantilePairs([]float64{1, 2, 3, 4}, []float64{10, 30}); !reflect.DeepEqual(got, [][2]float64{{1.75, 15}, {3.25, 25}}) {
		t.Errorf("got %v", got)
	}
	if got := quantilePairs(long, long); len(got) != 60 {
		t.Errorf("got %d points", len(got))
	}
	// Two noisy replays: their distances from both together, as if there were 99.
	var shaped result.Metric
	noisy := [][]float64{{10, 20}, {20, 30}}
	compareShapes(&shaped, []float64{10, 40}, noisy)
	if plain := math.Min(1, 0.25*chanceFactor(2)); !near(*shaped.ChanceKSD, plain) || !near(*shaped.ChanceBeyondD, plain) || !near(*shaped.BeyondD, stat.DistanceBeyond([]float64{10, 40}, []float64{10, 20, 20, 30}, 0.05)) {
		t.Errorf("got %g, %g and %g", *shaped.ChanceKSD, *shaped.ChanceBeyondD, *shaped.BeyondD)
	}
	shaped = result.Metric{}
	compareShapes(&shaped, nil, noisy)
	if compareShapes(&shaped, []float64{1}, nil); shaped.BeyondD != nil {
		t.Error("nothing is compared")
	}
}

// TestGapsByHand: the time between steps counts once for each decode of the step that was executing.
func TestGapsByHand(t *testing.T) {
	steps := []stepMark{newStepMark(1, 0, 1, 3), newStepMark(2, 10e6, 1, 1), newStepMark(3, 30e6, 1, 2), newStepMark(5, 60e6, 1, 9), newStepMark(6, 100e6, 0, 9), newStepMark(7, 150e6, 1, -1), newStepMark(8, 210e6, 1, 1)}
	for _, c := range []struct {
		lag  int
		from int64
		want []float64
	}{{0, 0, []float64{10, 10, 10, 20, 40, 40, 40, 40, 40, 40, 40, 40, 40}}, {1, 0, []float64{20, 20, 20, 60, 60, 60, 60, 60, 60, 60, 60, 60}}, {0, 10e6, []float64{20, 40, 40, 40, 40, 40, 40, 40, 40, 40}}, {0, 10e6 + 1, []float64{40, 40, 40, 40, 40, 40, 40, 40, 40}},
		{2, 0, []float64{60, 60, 60, 60, 60, 60, 60, 60, 60}}} {
		if got := tokenGaps(steps, c.lag, c.from); !slices.Equal(got, c.want) {
			t.Errorf("lag %d from %d: got %v, want %v", c.lag, c.from, got, c.want)
		}
	}
	run := &trace.Run{Steps: []trace.Step{{ID: 4, TsStartNs: 77, RunningDepth: 5, NumDecodeReqs: 6}}}
	for _, c := range []struct {
		fromNs, toNs int64
		want         []stepMark
	}{{77, 78, []stepMark{newStepMark(4, 77, 5, 6)}}, {78, 80, nil}, {0, 77, nil}} {
		if got := recordedMarks(run, &deploy.Phase{StartNs: c.fromNs, EndNs: c.toNs}); !slices.Equal(got, c.want) {
			t.Errorf("from %d to %d: got %v, want %v", c.fromNs, c.toNs, got, c.want)
		}
	}
	log := &markLog{originNs: 5}
	if log.Step(&sim.StepView{Batch: sim.Batch{StepID: 3, StartUs: 7, Running: 8}, LabelledDecodeReqs: 9}); !slices.Equal(log.marks, []stepMark{newStepMark(3, 7005, 8, 9)}) {
		t.Errorf("got %v", log.marks)
	}
}

// TestIdleByHand: delays of journeys, of stock spans and of a log, of requests that were alone.
func TestIdleByHand(t *testing.T) {
	journey := func(at, before, stays, after int64) trace.Request {
		return trace.Request{CoreID: some("r"), ArrivedNs: some(at), QueuedNs: some(at + before), FinishedNs: some(at + stays), DepartedNs: some(at + stays + after)}
	}
	stock := trace.Request{Source: trace.SourceStock, StockTTFTUs: some(900.), StockQueueUs: some(100.), StockPrefillUs: some(300.), StockE2EUs: some(2000.), StockInferUs: some(1200.)}
	if before, after, ok := delaysAround(&stock); before != 500 || after != 200 || !ok {
		t.Errorf("got %g and %g, %v", before, after, ok)
	}
	for _, lose := range []func(r *trace.Request){func(r *trace.Request) { r.StockTTFTUs.OK = false }, func(r *trace.Request) { r.StockQueueUs.OK = false }, func(r *trace.Request) { r.StockPrefillUs.OK = false },
		func(r *trace.Request) { r.StockE2EUs.OK = false }, func(r *trace.Request) { r.StockInferUs.OK = false }} {
		r := stock
		lose(&r)
		if _, _, ok := delaysAround(&r); ok {
			t.Errorf("%+v has delays", r)
		}
	}
	one := journey(1000, 2000, 50_000, 3000)
	if before, after, ok := delaysAround(&one); !near(before, 2) || !near(after, 3) || !ok {
		t.Errorf("got %g and %g, %v", before, after, ok)
	}
	half := one
	if half.DepartedNs.OK = false; true {
		if _, _, ok := delaysAround(&half); ok {
			t.Error("a request that never departed has an egress")
		}
	}
	run := &trace.Run{Requests: []trace.Request{journey(0, 2000, 50_000, 3000), journey(53_000, 4000, 50_000, 7000), journey(100_000, 90_000, 50_000, 90_000)}}
	if d, ok := measureIdle(run); !ok || !near(d.OverheadUs, 3) || !near(d.EgressUs, 5) {
		t.Errorf("got %+v, %v, want the medians of the first two", d, ok)
	}
	run.Requests = append(run.Requests, journey(0, 8000, 1, 1)) // with the first
	if d, ok := measureIdle(run); !ok || !near(d.OverheadUs, 4) || !near(d.EgressUs, 7) {
		t.Errorf("two at once: got %+v, %v", d, ok)
	}
	run.Aggregate = &trace.Aggregate{DelaysUs: []float64{9, 1, 5}}
	if d, ok := measureIdle(run); !ok || d != (idleDelays{OverheadUs: 5}) {
		t.Errorf("of a log: got %+v", d)
	}
}

// TestDriftByHand: the factors of blocks, what follows them, and what is found.
func TestDriftByHand(t *testing.T) {
	d := &drift{OriginNs: 100, BlockNs: 10, Points: []result.DriftPoint{{StartS: 0, Factor: 1.2, Rows: 5}, {StartS: 2 * 10 / nsPerS, Factor: 0.8, Rows: 5}}}
	if d.fillFactors(4); !slices.Equal(d.factors, []float64{1.2, 1.2, 0.8, 0.8}) || d.median != 1 {
		t.Errorf("got %v, median %g", d.factors, d.median)
	}
	for ns, want := range map[int64]float64{0: 1.2, 100: 1.2, 119: 1.2, 120: 0.8, 139: 0.8, 1000: 0.8} {
		if got := d.At(ns); got != want {
			t.Errorf("at %d: got %g", ns, got)
		}
	}
	d.median = 0.5
	if got := d.follow(10, 120); got != 16 {
		t.Errorf("got %g", got)
	}
	if got := (&drift{}).follow(10, 120); got != 10 {
		t.Errorf("got %g", got)
	}
	for _, c := range []struct {
		factors  []float64
		farthest float64
		swing    float64
		finds    bool
	}{{[]float64{0.9, 1.1}, 0.9, 1.1 / 0.9, false}, {[]float64{1.1}, 1.1, 1, false}, {[]float64{0.9}, 0.9, 1, false}, {[]float64{1.11, 1}, 1.11, 1.11, true}, {[]float64{1, 0.89}, 0.89, 1 / 0.89, true}, {nil, 1, 1, false}} {
		d := &drift{BlockNs: 20e9}
		for _, f := range c.factors {
			d.Points = append(d.Points, result.DriftPoint{Factor: f})
		}
		far, ok := d.farthest()
		if found := d.finding("r"); far != c.farthest || ok != (c.factors != nil) || !near(d.swing(), c.swing) || (len(found) == 1) != c.finds || c.finds && !strings.Contains(found[0].Message, fmt.Sprintf("reaches %.2f in a 20-second block, want 0.9-1.1", far)) {
			t.Errorf("%v: got %g, %g, %v", c.factors, far, d.swing(), found)
		}
	}
	r := &stepRatios{}
	for i := range int64(9) {
		r.add(i, 1)
	}
	if d := r.curve(5); len(d.Points) != 1 || d.Points[0].Rows != 5 || len(d.factors) != 2 {
		t.Errorf("a block of four rows: got %+v", d)
	}
	r.add(9, 3)
	r.add(9, 0)
	if d := r.curve(5); len(d.Points) != 2 || d.Points[1].StartS != 5/nsPerS || d.Points[1].Factor != 1 || d.Points[1].Rows != 6 || !near(d.logError(r), math.Log(3)) {
		t.Errorf("got %+v, %g", d, d.logError(r))
	}
}

// TestScatterByHand: ratios of single steps to prediction times drift.
func TestScatterByHand(t *testing.T) {
	table := &rows.Table{}
	var pred []float64
	add := func(ns int64, regime rows.Regime, steps float64, y, p float64) {
		table.Kept++
		table.TimeNs = append(table.TimeNs, ns)
		table.Regime = append(table.Regime, regime)
		table.Steps = append(table.Steps, steps)
		table.Y = append(table.Y, y)
		pred = append(pred, p)
	}
	for i := range 10 {
		add(int64(i), rows.Decode, 1, 100, 50)
	}
	for i := range 9 {
		add(int64(i), rows.Prefill, 1, 100, 50)
	}
	add(3, rows.Prefill, 2, 100, 50)
	add(1000, rows.Prefill, 1, 100, 50)
	s := stepScatterOf(table, pred, &drift{}, 0, 1000)
	if s == nil || s.rows != 2*10-1 || len(s.classes[rows.Decode]) == 0 || s.classes[rows.Prefill] != nil || s.classes[rows.Mixed] != nil {
		t.Fatalf("got %+v", s)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	if got := s.draw(rng, rows.Decode, 7); got != 2 {
		t.Errorf("a decode: got %g", got)
	}
	if got := s.draw(rng, rows.Prefill, 7); got != 1 {
		t.Errorf("a regime with too few rows: got %g", got)
	}
	if stepScatterOf(table, pred, &drift{}, 1, 1000) != nil {
		t.Error("one decode fewer is enough")
	}
	if s := stepScatterOf(table, pred, &drift{}, 0, 1001); s.rows != 2*10 {
		t.Errorf("the end of the span: got %d rows", s.rows)
	}
	slow := &drift{BlockNs: 1, factors: []float64{4}}
	if got := stepScatterOf(table, pred, slow, 0, 1000).draw(rng, rows.Decode, 7); got != 0.5 {
		t.Errorf("on a machine 4 times as slow: got %g", got)
	}
	two := &stepScatter{}
	two.classes[rows.Decode] = []scatterClass{{topUs: 10, ratios: []float64{2}}, {topUs: 20, ratios: []float64{3}}}
	for us, want := range map[float64]float64{5: 2, 10: 2, 11: 3, 99: 3} {
		if got := two.draw(rng, rows.Decode, us); got != want {
			t.Errorf("a step of %g us: got %g", us, got)
		}
	}
	parts := &scatter{cutNs: 5, before: two, after: s}
	if parts.at(4) != two || parts.at(5) != s {
		t.Error("the part before the cut ends elsewhere")
	}
	classes := scatterClasses([]float64{3, 1, 2, 4}, []float64{30, 10, 20, 40})
	if len(classes) != 1 || classes[0].topUs != 4 || !slices.Equal(classes[0].ratios, []float64{10, 20, 30, 40}) {
		t.Errorf("got %+v", classes)
	}
	var predicted, ratio []float64
	for i := range 2 * 20 {
		predicted = append(predicted, float64(i))
		ratio = append(ratio, []float64{2, 8}[i/20])
	}
	classes = scatterClasses(predicted, ratio)
	if len(classes) != 2 || classes[0].topUs != 19 || !near(classes[0].ratios[0], 5) || !near(classes[1].ratios[0], 5) {
		t.Errorf("two classes about the median of both: got %d, %+v", len(classes), classes[0].topUs)
	}
	if scatterOf(table, pred, &drift{}, 1, 2, 3) != nil {
		t.Error("a phase without rows scatters")
	}
	for kind, want := range map[string]rows.Regime{"decode": rows.Decode, "prefill": rows.Prefill, "mixed": rows.Mixed} {
		var b sim.Batch
		if kind != "prefill" {
			b.AddDecodes(1, 10, 1)
		}
		if kind != "decode" {
			b.AddPrefill(0, 5, 5)
		}
		if got := regimeOf(&b); got != want {
			t.Errorf("%s: got %v", kind, got)
		}
	}
	if cleaningRecipe("x", features.V10) != "x" || cleaningRecipe("", features.V10) != rows.Frozen || cleaningRecipe("", features.V11) != rows.Relative {
		t.Error("got another recipe")
	}
}

// TestCausesByHand: which of some candidates is the cause, and what is said of the others.
func TestCausesByHand(t *testing.T) {
	of := func(share, all, left float64) *candidate {
		return &candidate{change: "c", share: share, shareAll: all, left: left}
	}
	for want, c := range map[string]*candidate{
		"":                       of(0.25, 0.10, 0.99),
		"too little":             of(0.25-1e-9, 1, 0),
		"a constant leaves less": of(1, 1, 1),
		fmt.Sprintf("over all rows, training too, it removes %.0f %%", 0.0): of(1, 0, 0),
		"x": {excluded: "x", share: 1, shareAll: 1},
	} {
		if got := c.whyNot(1); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	plain, better := of(0.6, 1, 0), of(0.7, 1, 0)
	curve := of(0.7+0.05/2, 1, 0)
	curve.cause = result.CauseMachineDrift
	device := of(0.7+2*0.05, 1, 0)
	device.cause = result.CauseHardware
	if curve.handicap() != 0.05 || device.handicap() != 0.05 || plain.handicap() != 0 {
		t.Error("got other handicaps")
	}
	for _, c := range []struct {
		tried []*candidate
		want  *candidate
	}{{[]*candidate{nil, plain, better}, better}, {[]*candidate{better, curve}, better}, {[]*candidate{curve, better}, better}, {[]*candidate{better, device}, device}, {[]*candidate{{excluded: "x", share: 9}, plain}, plain}, {[]*candidate{nil}, nil}} {
		if got := bestCandidate(c.tried, 1); got != c.want {
			t.Errorf("got %+v, want %+v", got, c.want)
		}
	}
	small := of(0.25/2, 0, 0)
	small.change = "small"
	excluded := of(0.9, 1, 0)
	excluded.change, excluded.excluded = "big", "it cannot be"
	if got, want := describeTried([]*candidate{nil, small, excluded}, 1), fmt.Sprintf(": small %.0f %%; big 90 %% (it cannot be)", 100*0.25/2); !strings.HasSuffix(got, want) {
		t.Errorf("got %s", got)
	}
	for bias, want := range map[float64]string{-0.25: "25 % too short", 0: "0 % too long", 0.5: "50 % too long"} {
		if got := biasText(bias); got != want {
			t.Errorf("got %s", got)
		}
	}
	for f, want := range map[float64]bool{1000: true, 0.001: true, 1001: false, 0.000999: false, 1: true} {
		if isDeviceFactor(f) != want {
			t.Errorf("a factor of %g: want possible %v", f, want)
		}
	}
	entry := func(id string, requests int, plain, followed float64) result.ValidationRun {
		v := result.ValidationRun{}
		v.ID = id
		v.Requests = requests
		v.Metrics = &result.Metrics{E2E: &result.Metric{WassersteinMs: plain}}
		v.MetricsDrift = &result.Metrics{E2E: &result.Metric{WassersteinMs: followed}}
		return v
	}
	s := &scope{runs: []*judgedRun{{id: "a"}, {id: "b"}}}
	for _, c := range []struct {
		runs []result.ValidationRun
		want bool
	}{{[]result.ValidationRun{entry("a", 1, 5, 6)}, true}, {[]result.ValidationRun{entry("a", 1, 5, 5)}, false}, {[]result.ValidationRun{entry("a", 1, 5, 8), entry("b", 3, 8, 7)}, false}, {[]result.ValidationRun{entry("a", 1, 5, 8), entry("b", 2, 8, 7)}, true},
		{[]result.ValidationRun{entry("c", 1, 5, 6)}, false}, {[]result.ValidationRun{{}}, false}} {
		if got := isDriftFarther(&result.Validation{Runs: c.runs}, s); got != c.want {
			t.Errorf("%+v: got %v", c.runs, got)
		}
	}
	s.runs[0].drift = &drift{Points: []result.DriftPoint{{Factor: 1}, {Factor: 1.2}}}
	s.runs[1].drift = &drift{Points: []result.DriftPoint{{Factor: 0.5}, {Factor: 1}}}
	if far, swing := s.largestDrift(); far != 0.5 || swing != 2 {
		t.Errorf("got %g, %g", far, swing)
	}
}

// TestRequestsByHand: every field of a request, from spans and from a client's row, and what makes it none.
func TestRequestsByHand(t *testing.T) {
	span := trace.Request{CoreID: some("core"), APIID: some("api"), ArrivedNs: some[int64](1e6), QueuedNs: some[int64](2e6), FirstTokenNs: some[int64](5e6), FinishedNs: some[int64](11e6), DepartedNs: some[int64](12e6),
		PromptTokens: some[int64](7), OutputTokens: some[int64](4), MaxTokens: some[int64](9), Success: some(true)}
	got, ok := spanRequest(&span)
	want := Request{ID: "core", ArrivalNs: 1e6, Prompt: 7, Output: 4, MaxTokens: 9, TTFTMs: got.TTFTMs, ITLMs: some(2.), E2EMs: some(11.), EndNs: some[int64](11e6)}
	if !ok || !reflect.DeepEqual(got, want) || !got.TTFTMs.OK || !near(got.TTFTMs.V, 4) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for name, c := range map[string]struct {
		change func(r *trace.Request)
		ok     bool
		check  func(o *Request) bool
	}{
		"one token":          {func(r *trace.Request) { r.PromptTokens.V = 1 }, true, func(o *Request) bool { return o.Prompt == 1 }},
		"no token":           {func(r *trace.Request) { r.PromptTokens.V = 0 }, false, nil},
		"prompt unknown":     {func(r *trace.Request) { r.PromptTokens.OK = false }, false, nil},
		"never in an engine": {func(r *trace.Request) { r.CoreID.OK = false }, false, nil},
		"several samples":    {func(r *trace.Request) { r.N = some[int64](2) }, true, func(o *Request) bool { return o.Group == "api" }},
		"one sample":         {func(r *trace.Request) { r.N = some[int64](1) }, true, func(o *Request) bool { return o.Group == "" }},
		"unfinished":         {func(r *trace.Request) { r.Success.OK = false }, true, func(o *Request) bool { return o.Excluded == excludedUnfinished }},
		"failed":             {func(r *trace.Request) { r.Success.V = false }, true, func(o *Request) bool { return o.Excluded == excludedFailed }},
		"aborted": {func(r *trace.Request) { r.FinishedNs.OK = false; r.AbortedNs = some[int64](8e6) }, true,
			func(o *Request) bool { return o.EndNs.V == 8e6 }},
		"departed alone": {func(r *trace.Request) { r.FinishedNs.OK = false }, true, func(o *Request) bool { return o.EndNs.V == 12e6 }},
	} {
		r := span
		c.change(&r)
		if o, ok := spanRequest(&r); ok != c.ok || ok && !c.check(&o) {
			t.Errorf("%s: got %+v, %v", name, o, ok)
		}
	}
	for tokens, want := range map[int64]float64{1: 0, 2: 6, 4: 2} {
		r := span
		r.OutputTokens.V = tokens
		if ms, ok := itlMs(&r); ok != (want > 0) || ok && !near(ms, want) {
			t.Errorf("%d tokens: got %g, %v", tokens, ms, ok)
		}
	}
	stock := trace.Request{Source: trace.SourceStock, OutputTokens: some[int64](4), StockDecodeUs: some(9000.)}
	if ms, ok := itlMs(&stock); !ok || !near(ms, 3) {
		t.Errorf("a stock span: got %g, %v", ms, ok)
	}
	run := &trace.Run{ID: "r", Requests: []trace.Request{span}, Steps: []trace.Step{{ID: 1, TsStartNs: 0, RunningDepth: 1}, {ID: 2, TsStartNs: 600_000, RunningDepth: 1}, {ID: 4, TsStartNs: 9e6, RunningDepth: 0}, {ID: 5, TsStartNs: 99e6}}}
	run.Requests[0].ArrivedNs.OK = false
	found, findings := Requests(run)
	if len(found) != 1 || found[0].ArrivalNs != 1_700_000 || !near(found[0].TTFTMs.V, 3.3) || len(findings) != 1 || !strings.Contains(findings[0].Message, "run r: 1 of 1 requests have no ARRIVED; QUEUED minus half a step (0.3 ms) was taken") {
		t.Errorf("got %+v, %v", found, findings)
	}
	if got := halfStepNs(run); got != 300_000 {
		t.Errorf("got half a step of %d ns", got)
	}
	// A client's row.
	row := trace.ObservedRequest{ID: "c", SendNs: some[int64](1e6), FirstChunkNs: some[int64](4e6), LastChunkNs: some[int64](10e6), EndNs: some[int64](10e6), PromptTokens: some[int64](7), OutputTokens: some[int64](5), AskedTokens: some[int64](6), Success: some(true)}
	for name, c := range map[string]struct {
		change func(r *trace.ObservedRequest)
		want   []Request
	}{
		"whole":     {func(*trace.ObservedRequest) {}, []Request{{ID: "c", ArrivalNs: 1e6, Prompt: 7, Output: 5, MaxTokens: 6, TTFTMs: some(3.), ITLMs: some(1.5), E2EMs: some(9.)}}},
		"failed":    {func(r *trace.ObservedRequest) { r.Success.V = false }, []Request{{ID: "c", ArrivalNs: 1e6, Prompt: 7, Output: 5, MaxTokens: 6, Excluded: excludedFailed, EndNs: row.EndNs, TTFTMs: some(3.), ITLMs: some(1.5), E2EMs: some(9.)}}},
		"aborted":   {func(r *trace.ObservedRequest) { r.Success.V = false; r.Aborted = some(true) }, []Request{{ID: "c", ArrivalNs: 1e6, Prompt: 7, Output: 5, MaxTokens: 6, Excluded: excludedAborted, EndNs: row.EndNs, TTFTMs: some(3.), ITLMs: some(1.5), E2EMs: some(9.)}}},
		"load":      {func(r *trace.ObservedRequest) { r.LoadOnly = some(true) }, []Request{{ID: "c", ArrivalNs: 1e6, Prompt: 7, Output: 5, MaxTokens: 6, Excluded: excludedUnknownLoad, TTFTMs: some(3.), ITLMs: some(1.5), E2EMs: some(9.)}}},
		"uncounted": {func(r *trace.ObservedRequest) { r.OutputTokens.OK = false; r.Chunks = some[int64](4) }, []Request{{ID: "c", ArrivalNs: 1e6, Prompt: 7, Output: 4, MaxTokens: 6, Excluded: excludedUncounted, TTFTMs: some(3.), ITLMs: some(2.), E2EMs: some(9.)}}},
		"no chunks": {func(r *trace.ObservedRequest) { r.OutputTokens.OK = false }, []Request{{ID: "c", ArrivalNs: 1e6, Prompt: 7, Output: 6, MaxTokens: 6, Excluded: excludedUncounted, TTFTMs: some(3.), ITLMs: some(1.2), E2EMs: some(9.)}}},
		"no send":   {func(r *trace.ObservedRequest) { r.SendNs.OK = false }, nil},
		"no size":   {func(r *trace.ObservedRequest) { r.PromptTokens.V = 0 }, nil},
		"two answers": {func(r *trace.ObservedRequest) { r.N = some[int64](2) }, []Request{{ID: "c#0", Group: "c", ArrivalNs: 1e6, Prompt: 7, Output: 2, MaxTokens: 6, TTFTMs: some(3.), ITLMs: some(6.), E2EMs: some(9.)},
			{ID: "c#1", Group: "c", ArrivalNs: 1e6, Prompt: 7, Output: 2, MaxTokens: 6, TTFTMs: some(3.), ITLMs: some(6.), E2EMs: some(9.)}}},
	} {
		r := row
		c.change(&r)
		got, findings := clientRequests(&trace.Run{Observed: []trace.ObservedRequest{r}})
		if told := hasCode(findings, ReplayAssumes); told == r.OutputTokens.OK {
			t.Errorf("%s: got the findings %v", name, findings)
		}
		for i := range got {
			got[i].Row = nil
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got\n%+v, want\n%+v", name, got, c.want)
		}
	}
	wall := func(send, queued int64) trace.ObservedRequest {
		return trace.ObservedRequest{SendWallNs: some(send), QueuedNs: some(queued)}
	}
	stamped := wall(0, -99)
	stamped.SendNs = some[int64](1)
	if offset, ok := engineOffsetNs(&trace.Run{Observed: []trace.ObservedRequest{wall(100, 7), wall(200, 105), {SendWallNs: some[int64](9)}, {QueuedNs: some[int64](9)}, stamped}}); offset != -95 && offset != -93 || !ok {
		t.Errorf("got %d, %v", offset, ok)
	}
	if offset, _ := engineOffsetNs(&trace.Run{Observed: []trace.ObservedRequest{wall(100, 7), wall(200, 105)}}); offset != -95 {
		t.Errorf("got %d, want the smallest", offset)
	}
	requests := []Request{{Group: "g", EndNs: some[int64](5), E2EMs: some(1.)}, {Group: "g", EndNs: some[int64](9), E2EMs: some(2.)}, {Group: "g", EndNs: some[int64](9), E2EMs: some(3.)}, {E2EMs: some(4.)}}
	if leaveE2EToLastSample(requests); requests[0].E2EMs.OK || !requests[1].E2EMs.OK || requests[2].E2EMs.OK || !requests[3].E2EMs.OK {
		t.Errorf("got %+v", requests)
	}
}

// TestLoadsByHand: what requests met. Request a is in flight from 0 to 10 ms, b from 4 to 6, and c comes at 8 and never ends.
func TestLoadsByHand(t *testing.T) {
	recorded := []Request{{ArrivalNs: 0, Prompt: 100, E2EMs: some(10.)}, {ArrivalNs: 4e6, Prompt: 30, E2EMs: some(2.)}, {ArrivalNs: 8e6, Prompt: 7}}
	got := loadsOf(recorded)
	for i, want := range []metLoad{{1.2, 137 / 0.01}, {2, 30 / 0.002}, {1, 7e9}} {
		if !near(got[i].inFlight, want.inFlight) || !near(got[i].promptTokens, want.promptTokens) {
			t.Errorf("request %d: got %+v, want %+v", i, got[i], want)
		}
	}
	if got := scatterOfLogs([]float64{1, -1, 3, 1}); got != 3 {
		t.Errorf("got %g", got)
	}
	var list []float64
	for range 19 {
		list = append(list, 2)
	}
	if got := scatterOfLogs(append(list, 99)); got != 4 {
		t.Errorf("without the largest of twenty: got %g", got)
	}
	p := &replayedPhase{recorded: recorded}
	points := p.alikeRequests()
	if len(points) != 3 || len(points[0]) != 3 { // outputs are alike
		t.Errorf("got %v", points)
	}
	// Client calls: samples of one call together, to the whole microsecond.
	calls := callsOf([]Request{{Group: "g", ArrivalNs: 20, EndNs: some[int64](90)}, {ArrivalNs: 10, E2EMs: some(0.0015)}, {Group: "g", ArrivalNs: 15, EndNs: some[int64](95)}, {ArrivalNs: 30}})
	if len(calls) != 3 || calls[0].SentNs != 10 || calls[0].EndNs != 1010 || calls[1].SentNs != 15 || calls[1].EndNs != 95 || !slices.Equal(calls[1].Samples, []int{0, 2}) || calls[2].EndNs != 1<<62 || !slices.Equal(calls[2].Samples, []int{3}) {
		t.Errorf("got %+v", calls)
	}
}

// TestCapacityByHand: two clients whose answers take 90 and 110 ms, with pauses of 10, recorded; 50 ms simulated.
func TestCapacityByHand(t *testing.T) {
	p := &replayedPhase{clients: 2, requests: []sim.Request{{}, {Queued: true, ThinkUs: 10_000}, {Queued: true, ThinkUs: 10_000}, {Queued: true, ThinkUs: 10_000}, {Queued: true, ThinkUs: 10_000}}}
	s := &sample{request: byKind[[]int]{kindE2E: {0, 1, 2, 3, 4}}, real: byKind[[]float64]{kindE2E: {999, 90, 110, 999, 999}}, sim: byKind[[]float64]{kindE2E: {999, 50, 50, 999, 999}}}
	c := p.capacity(s)
	if c == nil || c.Clients != 2 || !near(c.RecordedRPS, 2000./110) || !near(c.SimulatedRPS, 2000./60) || !near(c.Err.Value, 110./60-1) {
		t.Fatalf("got %+v", c)
	}
	// A request of 90 ms recorded and 40 ms simulated moves the ratio of 110/60 by 110/60 * (100/110 - 50/60) = 5/36, one of 110 and 60 ms by
	// as much downwards.
	long := &replayedPhase{clients: 1}
	of := &sample{}
	var moves []float64
	for i := range 80 {
		long.requests = append(long.requests, sim.Request{Queued: true, ThinkUs: 10_000})
		of.request[kindE2E] = append(of.request[kindE2E], i)
		off := 10.0
		if i/8%2 == 0 {
			off = -10
		}
		of.real[kindE2E] = append(of.real[kindE2E], 100+off)
		of.sim[kindE2E] = append(of.sim[kindE2E], 50+off)
		moves = append(moves, -off/10*5/36)
	}
	long.requests = append(long.requests, sim.Request{Queued: true, ThinkUs: 10_000})
	c = long.capacity(of)
	_, lo, hi := stat.TrimmedMean(moves, 0)
	if !(hi > 0.01) || !near(c.Err.Value, 110./60-1) || !near(*c.Err.Lo, 110./60-1+lo) || !near(*c.Err.Hi, 110./60-1+hi) {
		t.Errorf("got %g in %g to %g, want %g %+g to %+g", c.Err.Value, *c.Err.Lo, *c.Err.Hi, 110./60-1, lo, hi)
	}
	p.clients = 0
	if p.capacity(s) != nil {
		t.Error("a load without clients has a capacity")
	}
	p.clients = 4
	if p.capacity(s) != nil {
		t.Error("no request was sent while all were busy")
	}
}

// TestSharesByHand: what is assumed of prompts, and which sources contradict each other.
func TestSharesByHand(t *testing.T) {
	for _, c := range []struct {
		share  float64
		prompt int64
		want   trace.Opt[int64]
	}{{0.5, 100, some[int64](50)}, {1, 101, some[int64](100)}, {0, 101, trace.Opt[int64]{}}} {
		if got := estimatedTokens(&result.CachedShare{Share: c.share}, c.prompt); got != c.want {
			t.Errorf("%+v: got %+v", c, got)
		}
	}
	if estimatedTokens(nil, 5).OK {
		t.Error("tokens of no estimate")
	}
	phase := &deploy.Phase{StartNs: 10, EndNs: 20}
	requests := func(uncounted, counted int) []Request {
		var out []Request
		for i := range uncounted + counted {
			row := &trace.ObservedRequest{LastChunkNs: some[int64](1)}
			if i < uncounted {
				row.N = some[int64](2)
			}
			out = append(out, Request{ArrivalNs: 10, Row: row})
		}
		return append(out, Request{ArrivalNs: 9, Row: &trace.ObservedRequest{N: some[int64](2), LastChunkNs: some[int64](1)}}, Request{ArrivalNs: 20, Row: &trace.ObservedRequest{N: some[int64](2), LastChunkNs: some[int64](1)}}, Request{ArrivalNs: 15})
	}
	n := int(math.Round(1 / trace.MostGuessed))
	for _, c := range []struct {
		a                  *trace.Aggregate
		uncounted, counted int
		want               string
	}{{nil, 5, 0, ""}, {&trace.Aggregate{}, 1, n - 1, ""}, {&trace.Aggregate{}, 1, n - 2, fmt.Sprintf("1 of %d requests", n-1)}, {&trace.Aggregate{Others: trace.MostGuessed}, 0, 9, ""}, {&trace.Aggregate{Others: 0.5}, 0, 9, "no client's result shows 50 % of the decodes"}} {
		if got := whyUncounted(c.a, requests(c.uncounted, c.counted), phase); (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%d of %d: got %q, want %q", c.uncounted, c.uncounted+c.counted, got, c.want)
		}
	}
	s := &Shared{sources: []sharingSource{sharingUnknown, sharingUnknown, sharingStated, sharingStated, sharingCounted, sharingTraced}, unsure: make([]bool, 6)}
	list := make([]Request, 6)
	list[4].Row = &trace.ObservedRequest{CachedMin: some[int64](1), CachedMax: some[int64](2)}
	tokens := map[*Request]int64{&list[2]: 0, &list[3]: 40}
	s.noteAssumptions(&trace.Run{ID: "r"}, list, func(o *Request) trace.Opt[int64] { return some(tokens[o]) })
	var texts []string
	for _, f := range s.Findings {
		texts = append(texts, f.Message)
	}
	for i, want := range []string{"run r: the cached tokens of 1 of 6 prompts are shares", "run r: 1 of 6 prompts share nothing, as stated", "run r: 1 of 6 prompts share their first 40 tokens, as stated", "run r: prefix caching is on and nothing states what 2 of 6 prompts share; replayed uncached"} {
		if i >= len(texts) || !strings.HasPrefix(texts[i], want) {
			t.Errorf("finding %d: got %q, want %q", i, texts, want)
		}
	}
	list[4].Row.CachedMax = list[4].Row.CachedMin
	s.Findings = nil
	s.estimate = &result.CachedShare{Share: 0.25}
	s.sources = s.sources[1:]
	if s.noteAssumptions(&trace.Run{ID: "r"}, list[1:], func(o *Request) trace.Opt[int64] { return some(tokens[o]) }); len(s.Findings) != 3 ||
		!strings.HasPrefix(s.Findings[2].Message, "run r: prefix caching is on and nothing states what 1 of 5 prompts share: "+s.estimate.String()) {
		t.Errorf("one prompt with an estimate: got %v", s.Findings)
	}
	s.Findings = nil
	s.sources = append([]sharingSource{sharingUnknown}, s.sources...)
	s.sources = s.sources[2:]
	if s.noteAssumptions(&trace.Run{ID: "r"}, list[2:], func(o *Request) trace.Opt[int64] { return some(tokens[o]) }); len(s.Findings) != 2 {
		t.Errorf("got %v", s.Findings)
	}
}

// TestLevelsByHand: levels without a prediction count as far off; few levels have no chance.
func TestLevelsByHand(t *testing.T) {
	p := testkit.Ptr
	levels := []result.LevelHoldout{{Name: "a", TTFTMs: p(10.0), PredictedTTFTMs: p(11.0), TPOTMs: 5, PredictedTPOTMs: p(4.0)}, {Name: "b", TTFTMs: p(20.0), TPOTMs: 0, PredictedTPOTMs: p(4.0)}, {Name: "c", PredictedTTFTMs: p(1.0), TPOTMs: 8, PredictedTPOTMs: p(9.0)}}
	m := compareLevelMetric(levels, levelTTFT, 0.04, 1)
	if m.NReal != 2 || !near(m.SimMs.Mean, (11+100*20)/2.0) || m.ChanceMedian != nil {
		t.Errorf("got %+v", m)
	}
	if got := worstLevel(levels, levelTTFT); got != "a, +10 %" {
		t.Errorf("got %s", got)
	}
	if got := worstLevel(levels, levelTPOT); got != "a, -20 %" {
		t.Errorf("got %s", got)
	}
	if got := worstLevel(levels[1:2], levelTTFT); got != "none was predicted" {
		t.Errorf("got %s", got)
	}
	var many []result.LevelHoldout
	for range 5 {
		many = append(many, levels[0])
	}
	if m := compareLevelMetric(many, levelTTFT, 0.04, 1); m.ChanceMedian == nil || !(*m.ChanceMedian > 0.03 && *m.ChanceMedian < 0.2) {
		t.Errorf("got %+v", m.ChanceMedian)
	}
	for form, want := range map[string]string{"": "iterations in vLLM's log", trace.IterationFPM: "forward-pass metrics", trace.IterationSGLang: "batches in SGLang's log", trace.IterationTensorRT: "iterations in TensorRT-LLM's log", "x": "iterations in the log of x"} {
		if got := passesName(form); got != want {
			t.Errorf("%s: got %s", form, got)
		}
	}
	for n, want := range map[int]string{0: "", 3: "3 x"} {
		if got := countOf(n, "x"); got != want {
			t.Errorf("got %q", got)
		}
	}
	set := &coeff.Set{SpecVersion: features.V11, Beta: []coeff.Coefficient{{Value: 10}}}
	table := &rows.Table{}
	for i, y := range []float64{10, 20, 8, 99} {
		table.Kept++
		table.Y = append(table.Y, y)
		table.Regime = append(table.Regime, []rows.Regime{rows.Prefill, rows.Mixed, rows.Decode, rows.Prefill}[i])
		table.Steps = append(table.Steps, []float64{1, 1, 1, 2}[i])
	}
	table.P = 1
	table.X = []float64{1, 1, 1, 1}
	if mape, n := prefillMAPE(table, set); n != 2 || !near(mape, 0.25) {
		t.Errorf("got %g of %d rows, want 0 and a half of two", mape, n)
	}
}

// TestInspectionByHand: why a run cannot be fitted, and which of its figures need attention, just at and just beyond each limit.
func TestInspectionByHand(t *testing.T) {
	p := testkit.Ptr
	good := func(change func(r *result.InspectRun)) *result.InspectRun {
		r := &result.InspectRun{ID: "r"}
		r.Requests.Total, r.Steps.Recorded, r.Steps.Known = 5, 9, 9
		change(r)
		return r
	}
	noTimes := trace.Errorf("x", "no times").WithHint("record them")
	for name, c := range map[string]struct {
		r       *result.InspectRun
		noTimes *trace.Error
		points  int
		learns  bool
		want    string
	}{
		"good":           {good(func(r *result.InspectRun) {}), nil, 0, false, ""},
		"empty":          {&result.InspectRun{ID: "r"}, nil, 0, true, "run r is empty: it holds neither requests nor steps"},
		"points alone":   {&result.InspectRun{ID: "r"}, nil, 1, true, ""},
		"observed alone": {good(func(r *result.InspectRun) { r.Requests.Total, r.Steps.Recorded, r.Requests.Observed = 0, 0, 1 }), nil, 0, true, ""},
		"no step times":  {good(func(r *result.InspectRun) { r.Saturated = true }), noTimes, 0, false, "run r: x: no times; record them"},
		"saturated":      {good(func(r *result.InspectRun) { r.Saturated = true }), nil, 0, true, "run r is saturated: requests pile up in the system"},
		"no steps":       {good(func(r *result.InspectRun) { r.Steps.Recorded = 0 }), nil, 0, false, "run r holds no step summaries, so no step time can be fitted"},
		"steps or not":   {good(func(r *result.InspectRun) { r.Steps.Recorded = 0 }), nil, 0, true, ""},
		"below the floor": {good(func(r *result.InspectRun) {
			r.Audit = &result.TargetAudit{CadenceUsP50: p(99.4), PhysicalFloorUs: p(100.4)}
		}), nil, 0, true, "run r has a median step cadence of 99 us, below the 100 us that reading the weights once takes"},
		"at the floor": {good(func(r *result.InspectRun) {
			r.Audit = &result.TargetAudit{CadenceUsP50: p(100), PhysicalFloorUs: p(100)}
		}), nil, 0, true, ""},
		"no known step": {good(func(r *result.InspectRun) { r.Steps.Known = 0 }), nil, 0, true, "run r has no step whose batch is known, so no row can be built"},
	} {
		if got := unfitReason(c.r, c.noTimes, c.points, c.learns); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	var got []string
	for _, f := range inspectFindings(good(func(r *result.InspectRun) {
		r.Losses = result.InspectLosses{DroppedSpanEvents: 1, OrphanSnapshots: 2, AdjacentShare: p(0.49)}
		r.Clocks = result.InspectClocks{NegativeIntervals: 1, OffsetSpreadMs: p(100.6)}
		r.Requests.Engine, r.Requests.APIUnlinked, r.Requests.StopStringEnds = 100, 6, 1
	})) {
		got = append(got, f.Message)
	}
	want := []string{
		"run r: 1 span events were dropped while recording, 2 snapshots lost their step", "run r: 49 % of the recorded steps have a recorded successor, want >= 50 %", "run r: 1 requests have stamps that run backwards",
		"run r: wall minus monotonic clock spreads over 101 ms, want <= 100 ms", "run r: 6 of 100 core spans have no API span", "run r: 1 requests were ended by a stop string and count as successes",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := inspectFindings(good(func(r *result.InspectRun) {
		r.Losses.AdjacentShare, r.Clocks.OffsetSpreadMs, r.Requests.Engine, r.Requests.APIUnlinked = p(0.5), p(100), 100, 5
	})); len(got) != 0 {
		t.Errorf("at the limits: got %v", got)
	}

	// Offsets of 1 s and 3 s of steps, 5 s of events.
	run := &trace.Run{Steps: []trace.Step{{WallNs: 11e9, TsEndNs: 10e9}, {WallNs: 23e9, TsEndNs: 20e9}}, Events: []trace.JourneyEvent{{WallNs: 15e9, TsNs: some(int64(10e9))}, {WallNs: 99e9}},
		Requests: []trace.Request{{QueuedNs: some(int64(9)), ScheduledNs: some(int64(8))}, {QueuedNs: some(int64(8)), ScheduledNs: some(int64(9))}}}
	if c := compareClocks(run); !near(*c.OffsetS, 2) || !near(*c.OffsetSpreadMs, 1800) || c.NegativeIntervals != 1 || c.Engines != 1 {
		t.Errorf("steps: got %g s, %g ms, %+v", *c.OffsetS, *c.OffsetSpreadMs, c)
	}
	run.Steps = nil
	if c := compareClocks(run); !near(*c.OffsetS, 5) || *c.OffsetSpreadMs != 0 {
		t.Errorf("events: got %g s, %g ms", *c.OffsetS, *c.OffsetSpreadMs)
	}
	if c := compareClocks(&trace.Run{}); c.OffsetS != nil || c.OffsetSpreadMs != nil || c.Engines != 0 {
		t.Errorf("nothing: got %+v", c)
	}
	if got := phaseSpanS(run, rows.PhaseVerdict{Name: "p", StartNs: 2e9, EndNs: 4.5e9}); !near(got, 2.5) {
		t.Errorf("a phase: got %g s", got)
	}
	if got := phaseSpanS(&trace.Run{}, rows.PhaseVerdict{}); got != 0 {
		t.Errorf("an empty run: got %g s", got)
	}
	phase := &deploy.Phase{StartNs: 100, EndNs: 200}
	if got := newPhase([]Request{{ArrivalNs: 99}, {ArrivalNs: 200}}, phase, nil); len(got.recorded) != 0 || len(got.findings) != 1 || got.findings[0].Message != "no request arrives in the phase" {
		t.Errorf("beside the phase: got %+v", got)
	}
	r := &residuals{y: []float64{10, 20, 0.5, 100}, us: []float64{-1, 4, 0.25, 0}, weight: []float64{1, 1, 1, 5}}
	if got := r.meanError(); !near(got, (0.1+0.2+0.25)/4) {
		t.Errorf("got a mean error of %g", got)
	}
	if got := r.constantLoss(); !near(got, 90+80+99.5) {
		t.Errorf("got a loss of %g", got)
	}
	if got := medianPairedError([]float64{10, 0, -1, 0.5}, []float64{12, 5, 5, 0.6}); !near(got, 0.2) {
		t.Errorf("got a paired error of %g, want those of positive times", got)
	}
	if got := medianPairedError([]float64{0}, []float64{1}); !math.IsNaN(got) {
		t.Errorf("no pair: got %g", got)
	}
}

// TestLoadsFromCPUMemory: with CPU offloading a replay of prompts with cached tokens is judged where KV events say which of them
// were loaded.
func TestLoadsFromCPUMemory(t *testing.T) {
	transfer := trace.KVEvent{Kind: "TransferInitiated", SrcMedium: trace.Some("GPU"), DstMedium: trace.Some("CPU")}
	for _, c := range []struct {
		name      string
		offloads  bool
		events    []trace.KVEvent
		cached    int // requests of 100
		isUnknown bool
	}{
		{"no offloading", false, nil, 90, false},
		{"no events", true, nil, 90, true},
		{"events of the GPU alone", true, []trace.KVEvent{{Kind: "BlockStored", SrcMedium: trace.Some("GPU")}}, 90, true},
		{"transfers", true, []trace.KVEvent{transfer}, 90, false},
		{"nothing cached", true, nil, 0, false},
		{"little cached", true, nil, 1, false},
	} {
		dep := &deploy.Deployment{}
		dep.Engine.CPUOffloading = c.offloads
		requests := make([]sim.Request, 100)
		for i := range c.cached {
			requests[i].CachedTokens = trace.Some[int64](32)
		}
		why := whyLoadsUnknown(&trace.Run{KVEvents: c.events}, dep, requests)
		const want = "cpu_offloading: the recording does not say which blocks came from CPU memory, and 90 of 100 prompts"
		if strings.HasPrefix(why, want) != c.isUnknown || (why == "") == c.isUnknown {
			t.Errorf("%s: got %q", c.name, why)
		}
	}
}
