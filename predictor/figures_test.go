package predictor

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// rowsOf is a run whose rows have these TTFTs, ms, decided a second apart and answered half a second later.
func rowsOf(id, config string, ttftMs ...float64) *runRows {
	r := &runRows{ID: id, Config: config}
	for i, ms := range ttftMs {
		at := int64(i) * 1e9
		r.Rows = append(r.Rows, Row{DecisionNs: at, DepartedNs: trace.Some(at + 5e8), TTFTMs: ms, TPOTMs: trace.Some(ms / 10), E2EMs: trace.Some(ms * 10), InputTokenLength: int64(i)})
	}
	return r
}

// fixed predicts the same for every row.
type fixed float64

func (f fixed) Predict(*trainingColumns, int) float64 { return float64(f) }

// TestScoresOfConstants: errors of predictions of 12 ms for rows of 10 and 20, against the best constant of the rows or that of
// the training rows.
func TestScoresOfConstants(t *testing.T) {
	ms := append(slices.Repeat([]float64{10}, 30), slices.Repeat([]float64{20}, 10)...)
	a := gatherRows([]*runRows{rowsOf("r", "c", ms...)}, targetTTFT, featuresLLMD)
	test := make([]int, 40)
	for i := range test {
		test[i] = i
	}
	j := &judged{models: map[string]model{nameTrees: fixed(12)}, reason: map[string]string{namePhysics: "none"}}
	o := a.outcomeOf(test, j, 15)
	for i := range test {
		if o.consts[i] != 10 || o.y[i] != ms[i] || o.pred[nameTrees][i] != 12 {
			t.Fatalf("row %d: got a constant of %g ms for %g, and %g", i, o.consts[i], o.y[i], o.pred[nameTrees][i])
		}
	}
	s := o.score(nameTrees, 1)
	// 0.2 of thirty, 0.4 of ten; (40*12 - 500)/500; sums of |12 - y| over those of y.
	for name, v := range map[string][2]float64{"MAPE": {*s.MAPE, 0.25}, "constant": {*s.MAPEConst, 0.125}, "bias": {*s.Bias, -0.04}, "WAPE": {*s.WAPE, 140.0 / 500}, "median": {*s.MedianAPE, 0.2}, "P95": {*s.P95APE, 0.4},
		"above": {float64(s.AboveMaxRows), 10}, "above, MAPE": {*s.AboveMaxMAPE, 0.4}, "rows": {float64(s.Rows), 40}} {
		if !near9(v[0], v[1]) {
			t.Errorf("%s: got %g, want %g", name, v[0], v[1])
		}
	}
	if s := o.score(namePhysics, 1); s.Reason != "none" || s.MAPE != nil || s.Rows != 0 {
		t.Errorf("no physics: got %+v", s)
	}
	if s := o.score(nameGated, 1); s.Reason != "" || s.MAPE != nil {
		t.Errorf("no model: got %+v", s)
	}
	j.early = test[25:]
	if o := a.outcomeOf(test, j, 15); o.consts[0] != 20 {
		t.Errorf("got a constant of %g ms, want the median of the training rows", o.consts[0])
	}
	doc := newScores()
	j.upper = map[string]func(int) float64{nameTrees: func(int) float64 { return 15 }}
	j.early = test[:30]
	a.scoreTarget(doc, targetTTFT, j, test, 1)
	if h := doc.HoldOut[0]; len(doc.HoldOut) != 1 || h.Scope != scopeAll || h.Target != targetTTFT || h.Train != 30 || h.Test != 40 || *h.AboveMax != 0.25 || h.Reason != "" {
		t.Errorf("got %+v", doc.HoldOut)
	}
	if m := doc.Models[0]; len(doc.Models) != len(scored) || m.Model != nameTrees || m.Scope != scopeAll || m.Target != targetTTFT || *m.Coverage != 0.75 || m.CoverageBand[0] >= 0.75 || m.CoverageBand[1] <= 0.75 {
		t.Errorf("got %+v", doc.Models[0])
	}
	doc = newScores()
	if a.scoreTarget(doc, targetTTFT, j, test[:29], 1); len(doc.Models) != 0 || doc.HoldOut[0].Reason != "29 rows, want 30" {
		t.Errorf("29 rows: got %+v", doc.HoldOut)
	}
	for n, want := range map[int]int{499: 1, 500: 2} {
		runs := []*runRows{{Config: "a", Rows: make([]Row, n)}, {Config: "b"}}
		if got := scopes(runs); len(got) != want {
			t.Errorf("%d rows of a configuration: got scopes %v", n, got)
		}
	}
	if got := scopes([]*runRows{{Config: "a", Rows: make([]Row, 900)}}); !slices.Equal(got, []string{scopeAll}) {
		t.Errorf("one configuration: got scopes %v", got)
	}
	if got := wilson(0.5, 100); math.Abs(got[0]-0.40383) > 1e-5 || math.Abs(got[1]-0.59617) > 1e-5 {
		t.Errorf("half of 100: got %v", got)
	}
	if got := wilson(1, 10); got[1] != 1 || math.Abs(got[0]-0.72246) > 1e-5 {
		t.Errorf("ten of ten: got %v", got)
	}
	if share, _ := coverageOf([]float64{1, 2, 3, 4}, []float64{1, 1, math.NaN(), 9}); !near9(share, 2.0/3) {
		t.Errorf("got a coverage of %g", share)
	}
	few := &testOutcome{blocks: 4}
	if lo, hi, ok := few.interval(nil, 1); ok || lo != 0 || hi != 0 {
		t.Errorf("four blocks: got %g to %g, %v, want no interval", lo, hi, ok)
	}
	five := &testOutcome{blocks: 5, block: []int{0, 1, 2, 3, 4}}
	if lo, hi, ok := five.interval([]float64{7, 7, 7, 7, 7}, 1); !ok || lo != 7 || hi != 7 {
		t.Errorf("five equal blocks: got %g to %g, %v", lo, hi, ok)
	}
	// A draw of five blocks leaves four certain ones out with a probability of 0.2^5 and one certain one with 0.8^5.
	nan := math.NaN()
	for _, c := range []struct {
		v    []float64
		want bool
	}{{[]float64{7, 7, 7, 7, nan}, true}, {[]float64{7, nan, nan, nan, nan}, true}, {[]float64{nan, nan, nan, nan, nan}, false}} {
		want := 0.0
		if c.want {
			want = 7
		}
		if lo, hi, ok := five.interval(c.v, 1); ok != c.want || lo != want || hi != want {
			t.Errorf("%v: got %g to %g, %v", c.v, lo, hi, ok)
		}
	}
}

// TestMeasuredLatencies: the targets of a row from stamps, and the state when its last token came.
func TestMeasuredLatencies(t *testing.T) {
	some := trace.Some[int64]
	b := &rowBuilder{steps: &recordedSteps{list: []trace.Step{{TsStartNs: 5e6, WaitingDepth: 3, RunningDepth: 4, KVUsage: 0.5}}}}
	row := func(l requestLife) (r Row) {
		b.fillTargets(&r, &l)
		return r
	}
	full := row(requestLife{arrived: some(1e6), first: some(4e6), finished: some(10e6), departed: some(11e6), output: some(4)})
	if full.TTFTMs != 3 || full.TPOTMs != trace.Some(2.0) || full.E2EMs != trace.Some(10.0) || full.EndWaiting.V != 3 || full.EndRunning.V != 4 || full.EndKV.V != 0.5 {
		t.Errorf("got %+v", full)
	}
	instant := row(requestLife{arrived: some(1e6), first: some(1e6), finished: some(1e6), departed: some(1e6), output: some(2)})
	if instant.TTFTMs != 0 || !instant.TPOTMs.OK || !instant.E2EMs.OK || instant.E2EMs.V != 0 || instant.EndKV.OK {
		t.Errorf("all at once: got %+v", instant)
	}
	backwards := row(requestLife{arrived: some(5e6), first: some(4e6), departed: some(4e6), output: some(1)})
	if backwards.TPOTMs.OK || backwards.E2EMs.OK || backwards.EndKV.OK {
		t.Errorf("backwards: got %+v", backwards)
	}
	for _, c := range []struct {
		waiting  int64
		kv       float64
		score    float64
		features string
		running  int64
		bucket   int
	}{{0, 0, 0, featuresFull, 5, 0}, {1, 0.049, 0.24, featuresFull, 5, 1 * 80}, {2, 0.05, 0.25, featuresLLMD, 9, 1*80 + 4 + 1}, {5, 1, 0.5, featuresFull, 5, 2*80 + 19*4 + 2}, {11, 0.5, 1, featuresFull, 5, 4*80 + 10*4 + 3}} {
		b.o.Features = c.features
		r := Row{NumRequestWaiting: c.waiting, KVCachePercentage: c.kv, PrefixCacheScore: c.score, RunningEngine: 5, RunningInflight: 9, DecodeTokensResident: 70, InputTokenLength: 80}
		b.fillDerived(&r)
		queued, tokens := int64(0), int64(70)
		if c.waiting > 0 {
			queued = 1
		}
		if c.features == featuresLLMD {
			tokens = 0
		}
		if r.IsQueued != queued || r.NumRequestRunning != c.running || r.DecodeTokensInFlight != tokens || r.EffectiveInputTokens != 80*(1-c.score) || Bucket(&r) != c.bucket {
			t.Errorf("%+v: got %+v in bucket %d", c, r, Bucket(&r))
		}
	}
}

// TestStepCounterByHand: the step in progress, recorded or extrapolated at the pace of the second before, for at most 250 ms.
func TestStepCounterByHand(t *testing.T) {
	run := &trace.Run{Steps: []trace.Step{{ID: 10, TsStartNs: 1e9, PrefillTokens: 3, RunningDepth: 1}, {ID: 14, TsStartNs: 14e8, PrefillTokens: 4}}}
	s := newRecordedSteps(run, 1, 1)
	if s.complete || !slices.Equal(s.prefill, []int64{0, 3, 7}) || s.lag != 1 {
		t.Errorf("got %+v", s)
	}
	for ns, want := range map[int64]float64{1e9 - 1: -1, 1e9: 10, 12e8: 10, 14e8: 14, 15e8: 15, 14e8 + 25e7: 16.5, 99e8: 16.5} {
		got, ok := s.counterAt(ns)
		if ok != (want >= 0) || ok && !near9(got, want) {
			t.Errorf("%d ns: got step %g, %v, want %g", ns, got, ok, want)
		}
	}
	for ns, want := range map[int64]int{1e9 - 1: -1, 1e9: 0, 14e8 - 1: 0, 14e8: 1, 99e8: 1} {
		if _, i := s.lastBy(ns); i != want {
			t.Errorf("%d ns: got step %d, want %d", ns, i, want)
		}
	}
	for ns, want := range map[int64]bool{1e9 + 25e7: true, 1e9 + 25e7 + 1: false} {
		if got := s.isFresh(&run.Steps[0], ns); got != want {
			t.Errorf("%d ns: got fresh %v", ns, got)
		}
	}
	if !s.isFresh(&run.Steps[1], 99e8) {
		t.Error("an idle engine changes")
	}
	run.Steps[1].ID = 11
	whole := newRecordedSteps(run, 1, 0)
	if got, _ := whole.counterAt(99e8); !whole.complete || got != 11 || !whole.isFresh(&run.Steps[0], 99e8) {
		t.Errorf("every step: got %g, %+v", got, whole)
	}
	if newRecordedSteps(run, 0.5, 0).complete || newRecordedSteps(&trace.Run{}, 1, 0).complete {
		t.Error("sampled steps, or none, are complete")
	}
	// Events of requests fill the gap; a counter never falls.
	run.Steps[1].ID = 14
	run.Events = []trace.JourneyEvent{{TsNs: trace.Some(int64(12e8)), Step: trace.Some(int64(13))}, {TsNs: trace.Some(int64(13e8)), Step: trace.Some(int64(12))}, {TsNs: trace.Some(int64(13e8))}}
	s = newRecordedSteps(run, 1, 0)
	if len(s.anchors) != 4 || s.anchors[1] != (stepAnchor{12e8, 13}) || s.anchors[2] != (stepAnchor{13e8, 13}) {
		t.Errorf("got %v", s.anchors)
	}
}

// TestQueueStateByHand: rates of arrivals, tokens of decodes, mean outputs and the division of prompts by step.
func TestQueueStateByHand(t *testing.T) {
	lives := make([]requestLife, 5)
	for i := range lives {
		lives[i].arrived = trace.Some(int64(100e9 + int64(i)*10e9))
		lives[i].prompt = trace.Some(int64(100 * (i + 1)))
	}
	steps := &recordedSteps{}
	c := newQueueState(lives, steps)
	for i := range lives {
		c.uncached[i] = int64(100 * (i + 1))
		c.arrivals = append(c.arrivals, event{at: lives[i].arrived.V, kind: evArrived, life: int32(i)})
	}
	for ns, want := range map[int64][2]float64{
		140e9:          {(400 + 500) / 20., 2 / 20.}, // those at 130 and 140, not the one 20 s before
		140e9 - 1:      {(200*0 + 300 + 400 + 500) / 20., 3 / 20.},
		100e9 + 2e9:    {1500 / 2., 5 / 2.},
		100e9 + 0.25e9: {1500, 5},
		160e9:          {0, 0},
	} {
		tokens, prompts := c.recentArrivalRates(ns)
		if ns < 130e9 || ns == 140e9-1 { // arrivals after ns are not in the list then
			continue
		}
		if !near9(tokens, want[0]) || !near9(prompts, want[1]) {
			t.Errorf("%d ns: got %g tokens and %g prompts a second, want %v", ns, tokens, prompts, want)
		}
	}
	c.arrivals = c.arrivals[:1]
	if tokens, prompts := c.recentArrivalRates(100e9 + 2e9); !near9(tokens, 50) || !near9(prompts, 0.5) {
		t.Errorf("two seconds: got %g and %g", tokens, prompts)
	}
	if tokens, prompts := c.recentArrivalRates(100e9 + 25e7); tokens != 100 || prompts != 1 {
		t.Errorf("a quarter of a second: got %g and %g, want those of a second", tokens, prompts)
	}
	if got := c.meanOutput(); got.OK {
		t.Errorf("nothing finished: got %g", got.V)
	}
	for i := range 513 {
		l := requestLife{output: trace.Some(int64(10)), first: trace.Some(int64(0))}
		if i == 0 {
			l.output.V = 1000
		}
		c.learnFinished(&l, 9e6)
		if i == 0 {
			if got := c.meanOutput(); got.V != 1000 || !near9(c.pace[0], 9e6/999) {
				t.Errorf("one: got a mean of %g and a pace of %g", got.V, c.pace[0])
			}
		}
	}
	if got := c.meanOutput(); got.V != 10 {
		t.Errorf("the first is too old: got a mean of %g", got.V)
	}
	c.learnFinished(&requestLife{output: trace.Some(int64(1)), first: trace.Some(int64(0))}, 5)
	if len(c.pace) != 513 {
		t.Error("one token has no pace")
	}

	d := newQueueState(lives, steps)
	if tokens, ok := d.decodeTokens(5); tokens != 0 || !ok {
		t.Errorf("no decodes: got %g, %v", tokens, ok)
	}
	d.decodes, d.decodePrompt = 2, 300
	if _, ok := d.decodeTokens(5); ok {
		t.Error("tokens without a pace")
	}
	d.stepNs = []float64{2e6}
	d.decodeNs = 10e6 // first tokens at 4 and 6 ms
	if tokens, ok := d.decodeTokens(d.base + 14e6); !ok || !near9(tokens, 300+2+(28e6-10e6)/2e6) {
		t.Errorf("by time: got %g, %v", tokens, ok)
	}
	d.pace = []float64{9e6}
	if tokens, _ := d.decodeTokens(d.base + 14e6); !near9(tokens, 300+2+2) {
		t.Errorf("by the pace of finished requests: got %g", tokens)
	}
	d.steps = &recordedSteps{complete: true, lag: 1, anchors: []stepAnchor{{0, 20}}}
	d.decodeSteps = 24 // first tokens in 11 and 13
	if tokens, _ := d.decodeTokens(d.base); !near9(tokens, 300+2*19-24) {
		t.Errorf("by steps: got %g", tokens)
	}
	d.decodeSteps = 38
	if tokens, _ := d.decodeTokens(d.base); tokens != 302 {
		t.Errorf("got %g, want a token for each at least", tokens)
	}

	p := newQueueState(lives, steps)
	copy(p.uncached, []int64{100, 200, 300})
	if got := p.prefillNow(-1, 250); got != (scheduledPrefill{}) {
		t.Errorf("none: got %+v", got)
	}
	p.prefilling = []int32{0, 1}
	for budget, want := range map[int64]scheduledPrefill{250: {now: 250, ending: 1, left: 50, leftRequests: 1}, 300: {now: 300, ending: 2}, 1000: {now: 300, ending: 2}} {
		if got := p.prefillNow(3, budget); got != want {
			t.Errorf("a budget of %d: got %+v, want %+v", budget, got, want)
		}
	}
	// Every step is recorded: 120 tokens in the last step, 60 in the one before.
	p.steps = &recordedSteps{complete: true, list: []trace.Step{{ID: 5}, {ID: 6, PrefillTokens: 60}, {ID: 7, PrefillTokens: 120}}, prefill: []int64{0, 0, 60, 180}}
	p.lives[0].scheduledStep, p.lives[1].scheduledStep = trace.Some(int64(6)), trace.Some(int64(7))
	if got, want := p.prefillNow(2, 0), (scheduledPrefill{now: 120, ending: 1, left: 120, leftRequests: 1}); got != want {
		t.Errorf("synchronous: got %+v, want %+v", got, want)
	}
	p.steps.lag = 1
	if got, want := p.prefillNow(2, 0), (scheduledPrefill{now: 60, next: 120, nextEnding: 1, left: 120, leftRequests: 1}); got != want {
		t.Errorf("asynchronous: got %+v, want %+v", got, want)
	}
	if got := p.computedBefore(2); got != 60 {
		t.Errorf("got %d tokens before the last step", got)
	}
	if got := p.computedBefore(1); got != 0 {
		t.Errorf("got %d tokens before the request was scheduled", got)
	}
	p.firstTokens = []event{{life: 2}}
	p.lives[2].scheduledStep, p.lives[2].firstStep = trace.Some(int64(6)), trace.Some(int64(6))
	p.uncached[2] = 25
	if got := p.computedBefore(2); got != 35 {
		t.Errorf("got %d tokens, want them without a request that has its first token", got)
	}
	p.lives[2].firstStep.V = 5
	if got := p.computedBefore(2); got != 60 {
		t.Errorf("got %d tokens, want those since the first was scheduled", got)
	}
}

// TestStagesOfLoads: phases without the warm-up, stated numbers of requests, and windows by thirds of their rates.
func TestStagesOfLoads(t *testing.T) {
	lives := func(seconds ...float64) (out []requestLife) {
		for _, s := range seconds {
			out = append(out, requestLife{arrived: trace.Some(int64(s * 1e9))})
		}
		return out
	}
	text := func(stages []trace.Opt[int64]) (out string) {
		for _, s := range stages {
			if s.OK {
				out += fmt.Sprint(s.V)
			} else {
				out += "-"
			}
		}
		return out
	}
	phases := &deploy.Deployment{Phases: []deploy.Phase{{Name: deploy.WarmupPhase, StartNs: 0, EndNs: 2e9}, {Name: "a", StartNs: 2e9, EndNs: 4e9}, {Name: "b", StartNs: 4e9, EndNs: 6e9}}}
	if got := text(stagesOf(lives(1, 2, 3.9, 4, 6), phases)); got != "-001-" {
		t.Errorf("phases: got %s", got)
	}
	stated := &deploy.Deployment{Workload: map[string]any{"stage_requests": []any{2, 0, 1}}}
	if got := text(stagesOf(lives(1, 2, 3, 4), stated)); got != "0022" {
		t.Errorf("stated: got %s", got)
	}
	stated.Workload["stage_requests"] = []any{2}
	if got := text(stagesOf(lives(1, 2, 3, 4), stated)); got != "0000" {
		t.Errorf("one stage: got %s", got)
	}
	if got := text(stagesOf(append([]requestLife{{}}, lives(1)...), &deploy.Deployment{})); got != "-0" {
		t.Errorf("an unknown arrival: got %s", got)
	}
	if got := text(stagesOf(make([]requestLife, 2), &deploy.Deployment{})); got != "--" {
		t.Errorf("unknown arrivals: got %s", got)
	}
	// Nine windows of a second: three with 1, 10 and 40 arrivals each.
	var at []float64
	for w := range 9 {
		for k := range []int{1, 10, 40}[w%3] {
			at = append(at, float64(w)+0.5+0.01*float64(k))
		}
	}
	at[len(at)-1] = 9.4 // the windows are a ninth of the span of 8.9 s and a little more
	got := text(stagesOf(lives(at...), &deploy.Deployment{}))
	for stage, want := range map[string]int{"0": 3, "1": 30, "2": 120} {
		if n := strings.Count(got, stage); n < want-3 || n > want+3 {
			t.Errorf("got %d requests in stage %s, want about %d", n, stage, want)
		}
	}
}

// TestModelsByName: which use the physics, what a share of a forest predicts, and the best share of three.
func TestModelsByName(t *testing.T) {
	for name, want := range map[string]bool{nameTrees: false, nameGated: false, namePhysics: true, nameResidual: true} {
		if usesPhysics(name) != want {
			t.Errorf("%s: got %v", name, !want)
		}
	}
	f := &forest.Forest{Base: 2, Trees: []forest.Tree{{{Feature: 0, Value: 5}, {Feature: forest.Leaf, Value: 4}, {Feature: forest.Leaf, Value: 8}}}}
	half := scaleForest(f, 0.5)
	if half.Base != 1 || half.Trees[0][0].Value != 5 || half.Trees[0][1].Value != 2 || half.Trees[0][2].Value != 4 || f.Trees[0][1].Value != 4 {
		t.Errorf("got %+v", half)
	}
	if none := scaleForest(f, 0); none.Base != 0 || len(none.Trees) != 0 {
		t.Errorf("got %+v", none)
	}
	// A forest that multiplies the physics by 4: measured times are 1, 2 and 4 times the physics.
	residual, err := loadBoosted(&forest.Forest{Base: math.Log(4), Trees: []forest.Tree{}}, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	for times, want := range map[float64]float64{1: 0, 2: 0.5, 4: 1} {
		table := &trainingColumns{X: [][]float64{{0, 0}}, Y: []float64{10 * times, 30 * times}, Physics: []float64{10, 30}}
		if got := residual.bestShare(table, []int{0, 1}, []float64{1, 1}); got != want {
			t.Errorf("%g times the physics: got a share of %g, want %g", times, got, want)
		}
		if got := residual.Predict(table, 1); math.Abs(got/120-1) > 1e-6 /* leaves are float32 */ {
			t.Errorf("got %g ms, want four times the physics", got)
		}
	}
	if _, err := newModel(nameTrees, nil, nil, nil, boostOptions{}); err == nil || err.Error() != "model trees: got no training rows" {
		t.Errorf("no rows: got %v", err)
	}
	if m, err := newModel(namePhysics, &trainingColumns{}, []int{0}, nil, boostOptions{}); err != nil || m.Predict(&trainingColumns{Physics: []float64{0, 7}}, 1) != 7 {
		t.Errorf("physics: got %v, %v", m, err)
	}
	c := newConstant(&trainingColumns{Y: []float64{1, 2, 3, 10, 20, 99}, Run: []int32{0, 0, 0, 1, 1, 1}}, []int{0, 1, 2, 3, 4})
	other := &trainingColumns{Run: []int32{0, 1, 7}}
	if c.Predict(other, 0) != 2 || c.Predict(other, 1) != 10 || c.Predict(other, 2) != 3 {
		t.Errorf("got %+v", c)
	}
	target := &forest.Target{Columns: make([]forest.Column, 1), Trees: &forest.Forest{Base: 1}}
	held, err := modelsOf(target)
	if err != nil || held[nameTrees] == nil || held[nameGated].(*gated).Idle != held[nameGated].(*gated).Queued || held[namePhysics] == nil || held[nameResidual] != nil {
		t.Errorf("got %v, %v", held, err)
	}
	target.Idle, target.Queued, target.Residual = &forest.Forest{Base: 2}, &forest.Forest{Base: 3}, &forest.Forest{Base: 4}
	held, err = modelsOf(target)
	if err != nil {
		t.Fatal(err)
	}
	row := &trainingColumns{X: [][]float64{{0, 0}}, Waiting: []int64{0, 1}, Physics: []float64{10, 10}}
	for name, want := range map[string][2]float64{nameTrees: {math.E, math.E}, nameGated: {math.Exp(2), math.Exp(3)}, nameResidual: {10 * math.Exp(4), 10 * math.Exp(4)}} {
		for i := range want {
			if got := held[name].Predict(row, i); !near9(got, want[i]) {
				t.Errorf("%s, row %d: got %g ms, want %g", name, i, got, want[i])
			}
		}
	}
}

// TestGrowingByHand: the start, gradients, leaves and splits of a tree over four rows of one column.
func TestGrowingByHand(t *testing.T) {
	b := &booster{m: &matrix{rows: 4}, y: []float64{1, 2, 3, 10}, w: []float64{1, 1, 1, 3}, margin: []float64{2, 2, 2, 2}}
	if got := b.startValue(); got != 6 {
		t.Errorf("got a mean of %g", got)
	}
	for i, want := range []float64{1, 0, -1, -24} {
		if got := b.gradient(i); got != want {
			t.Errorf("row %d: got a gradient of %g, want %g", i, got, want)
		}
	}
	b.o.Quantile = 0.25
	if got := b.startValue(); got != 2 {
		t.Errorf("got a quantile of %g", got)
	}
	for i, want := range []float64{0.75, 0.75, -0.25, -0.75} {
		if got := b.gradient(i); got != want {
			t.Errorf("row %d: got a gradient of %g, want %g", i, got, want)
		}
	}
	for q, want := range map[float64]float64{0: 1, 1.0 / 6: 1, 0.17: 2, 0.5: 3, 0.51: 10, 1: 10} {
		if got := quantile([]weighted{{10, 3}, {1, 1}, {3, 1}, {2, 1}}, q); got != want {
			t.Errorf("quantile %g: got %g, want %g", q, got, want)
		}
	}
	if got := quantile([]weighted{{4, 1}, {5, math.NaN()}}, 1); got != 5 {
		t.Errorf("weights that are none: got %g, want the last value", got)
	}
	g := &grower{booster: b, rows: []int32{0, 1, 2, 3}, inBag: make([]bool, 4)}
	if got := g.value(&node{lo: 2, hi: 4}); got != 1 {
		t.Errorf("a leaf of 3 and 10 about 2: got %g, want the least difference", got)
	}
	b.o = boostOptions{Lambda: 1, Alpha: 2, MinChild: 1, Rate: 0.5, RowFrac: 1}
	if got := g.value(&node{sum: gradientSum{-10, 3}}); got != 2 {
		t.Errorf("got %g, want (10 - 2)/(3 + 1)", got)
	}
	if got := g.value(&node{sum: gradientSum{-10, -1}}); got != 0 {
		t.Errorf("no weight: got %g", got)
	}
	if got := g.leaf(&node{lo: 1, hi: 3, sum: gradientSum{-10, 3}}); got != 1 || !slices.Equal(b.margin, []float64{2, 3, 3, 2}) {
		t.Errorf("got %g and margins %v", got, b.margin)
	}
	for v, want := range map[float64]float64{3: 1, 2: 0, -2: 0, -3: -1, 0: 0} {
		if got := softThreshold(v, 2); got != want {
			t.Errorf("%g: got %g, want %g", v, got, want)
		}
	}
	// Bins with gradients 4, -1 and -9 of weights 2, 1 and 3.
	g.offset, g.columns = []int{0, 3}, []int{0}
	n := &node{sum: gradientSum{-6, 6}, hist: []gradientSum{{4, 2}, {-1, 1}, {-9, 3}}}
	score := func(g, h float64) float64 { return math.Pow(softThreshold(g, 2), 2) / (h + 1) }
	best := g.bestSplitOf(n)
	if want := score(4, 2) + score(-10, 4) - score(-6, 6); best.bin != 0 || !near9(best.gain, want) || best.left != (gradientSum{4, 2}) {
		t.Errorf("got %+v, want a gain of %g after the first bin", best, want)
	}
	b.o.MinChild = 3
	if best := g.bestSplitOf(n); best.bin != 1 {
		t.Errorf("children of 3: got %+v", best)
	}
	if b.o.MinChild = 3.5; g.bestSplitOf(n).gain != 0 {
		t.Error("children of less than the least weight")
	}
	for share, want := range map[float64]int{0.01: 1, 0.5: 4, 1: 8, 0.7: 6} {
		if got := drawColumns(8, share, 1, 2); len(got) != want || !slices.IsSorted(got) {
			t.Errorf("a share of %g: got columns %v", share, got)
		}
	}
}

// TestRowsForTraining: rows by the time of their decision and departure, the limit of a bucket, and estimates of a target.
func TestRowsForTraining(t *testing.T) {
	run := rowsOf("r", "c", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	run.Rows[2].DepartedNs.V = 8e9 // when the test begins
	run.Rows[3].DepartedNs.OK = false
	run.Rows[4].TTFTMs = 0
	a := gatherRows([]*runRows{run}, targetTTFT, featuresLLMD)
	train, test, dropped := a.byTime()
	if !slices.Equal(train, []int{0, 1, 4, 5, 6}) || !slices.Equal(test, []int{7, 8}) || dropped != 2 {
		t.Errorf("got %v and %v, %d dropped", train, test, dropped)
	}
	for target, want := range map[string]float64{targetTTFT: 2, targetTPOT: 0.2, targetE2E: 20} {
		if got := targetOf(&run.Rows[1], target); got != want {
			t.Errorf("%s: got %g ms", target, got)
		}
	}
	if got := targetOf(&Row{}, targetE2E); got != 0 {
		t.Errorf("unknown: got %g", got)
	}
	estimated := make([]float64, 10)
	estimated[0], estimated[9] = 7, 8
	a.setPhysics([]estimates{{targetTTFT: estimated}}, targetTTFT)
	if p := a.table.Physics; p[0] != 7 || p[8] != 8 || !math.IsNaN(p[1]) {
		t.Errorf("got estimates %v", p)
	}
	o := DefaultTrainOptions()
	for text, want := range map[string]int{"12": 12, "none": 0, "auto": 500} {
		o.BucketRows = text
		if got, err := o.rowsPerBucket(a.table, train); got != want || err != nil {
			t.Errorf("%s: got %d, %v", text, got, err)
		}
	}
	rows, w := stratified(a.table, train, 0, weightsNatural, 1)
	if !slices.Equal(rows, train) || !slices.Equal(w, []float64{1, 1, 1, 1, 1}) {
		t.Errorf("no limit: got %v with weights %v", rows, w)
	}
	for weights, want := range map[string]float64{weightsNatural: 2.5, weightsFlat: 1, weightsSqrt: math.Sqrt(2.5)} {
		rows, w := stratified(a.table, train, 2, weights, 1)
		if len(rows) != 2 || !slices.IsSorted(rows) || !near9(w[0], want) || !near9(w[1], want) {
			t.Errorf("two of five, %s: got %v with weights %v, want %g", weights, rows, w, want)
		}
	}
	made := &RowsDocument{}
	made.Options.Features, made.Options.Target = featuresLLMD, TargetE2E
	for name, c := range map[string]struct {
		of    *Coefficients
		refit bool
	}{"none": {nil, false}, "a set": {&Coefficients{}, false}, "a fit": {&Coefficients{Fit: &result.Fit{}}, true}} {
		o := DefaultTrainOptions()
		withPhysics(&o, &Inputs{Rows: made, Physics: c.of}, nil)
		if o.isRefit != c.refit || (o.physics != nil) != (c.of != nil) || o.features != featuresLLMD || !slices.Equal(o.targets, []string{targetE2E}) {
			t.Errorf("%s: got %+v", name, o)
		}
	}
	columns := columnsFor(&trainingColumns{Features: make([]Feature, 2), X: [][]float64{{5, 1, math.NaN(), -9}, {math.NaN(), math.NaN(), math.NaN(), 1}}}, []int{0, 1, 2})
	if columns[0].Min != 1 || columns[0].Max != 5 || columns[1].Min != 0 || columns[1].Max != 0 {
		t.Errorf("got %+v", columns)
	}
}

// TestStateOfAForecast: each column of a row in its place.
func TestStateOfAForecast(t *testing.T) {
	r := &Row{DecodeBatch: 1, DecodeTokensResident: 2, StepPrefillTokens: 3, StepPrefillRequests: 4, NextPrefillTokens: 5, NextPrefillRequests: 6, SinceStepUs: trace.Some(7.0), TokensWaitingAhead: 8, RequestsAhead: 9,
		FreeBlocks: 10, MeanOutputTokens: trace.Some(11.0), RecentTokensPerS: 12, RecentPromptsPerS: 13, InputTokenLength: 20, OwnUncachedTokens: 14}
	s, q := stateOf(r)
	if s.Decodes != 1 || s.DecodeTokens != 2 || s.StepTokens != 3 || s.StepRequests != 4 || s.NextTokens != 5 || s.NextRequests != 6 || s.SinceStepUs != 7 || s.AheadTokens != 8 || s.AheadRequests != 9 || s.FreeBlocks != 10 ||
		s.OutputTokens != 11 || s.PrefillPerS != 12 || s.PromptsPerS != 13 || q.PromptTokens != 20 || q.CachedTokens != 6 {
		t.Errorf("got %+v, %+v", s, q)
	}
	r.SinceStepUs.OK, r.OwnUncachedTokens = false, 25
	if s, q := stateOf(r); !math.IsNaN(s.SinceStepUs) || q.CachedTokens != 0 {
		t.Errorf("got %+v, %+v", s, q)
	}
	for _, c := range []struct {
		at, decision, t int64
		kind            eventKind
		want            bool
	}{{4, 5, 5, evArrived, true}, {5, 5, 5, evArrived, false}, {5, 6, 5, evArrived, true}, {5, 5, 5, evFirst, true}, {6, 9, 5, evFirst, false}} {
		if got := isObservable(event{at: c.at, kind: c.kind}, c.t, c.decision); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	// Without a warm-up phase the first steps are the warm-up, with one its arrivals.
	run := &trace.Run{}
	for i := range 20 {
		run.Steps = append(run.Steps, trace.Step{ID: int64(i), TsStartNs: int64(100 + i)})
	}
	d := engine()
	for name, c := range map[string]struct {
		steps  int
		phases []deploy.Phase
		want   int64
	}{"many": {20, nil, 100 + rows.WarmUpSteps}, "few": {3, nil, 102}, "one": {1, nil, 100}, "none": {0, nil, math.MinInt64}, "a warm-up phase": {20, []deploy.Phase{{Name: deploy.WarmupPhase}}, math.MinInt64}, "phases": {20, []deploy.Phase{{Name: "a"}}, 100 + rows.WarmUpSteps}} {
		own := *run
		own.Steps = run.Steps[:c.steps]
		dep := *d
		dep.Phases = c.phases
		if b := newRowBuilder(source{Run: &own, Deployment: &dep}, DefaultOptions()); b.warmUpNs != c.want {
			t.Errorf("%s: got a warm-up until %d, want %d", name, b.warmUpNs, c.want)
		}
	}
	for evaluate, want := range map[bool]string{false: "TRAINED", true: "JUDGED"} {
		s := newScores()
		s.Options.Evaluate = evaluate
		page, _, err := Page(s)
		if err != nil || !strings.Contains(string(page), want) || strings.Contains(string(page), map[bool]string{true: "TRAINED", false: "JUDGED"}[evaluate]) {
			t.Errorf("evaluated %v: got no page with %s, %v", evaluate, want, err)
		}
	}
}

// TestPartsOfARow: whether a request is warm-up, how states agree, what the requests' records give, and the blocks of prompts.
func TestPartsOfARow(t *testing.T) {
	some := trace.Some[int64]
	d := testkit.Small(1000)
	d.Engine.PrefixCaching = true
	b := &rowBuilder{src: source{Run: &trace.Run{}, Deployment: d}, out: &Result{}, warmUpNs: 100, counts: &queueState{}}
	for at, want := range map[int64]bool{99: true, 100: false} {
		if got := b.isWarmUp(&requestLife{arrived: some(at)}); got != want {
			t.Errorf("an arrival at %d ns: got warm-up %v", at, got)
		}
	}
	d.Phases = []deploy.Phase{{Name: deploy.WarmupPhase, StartNs: 100, EndNs: 200}, {Name: "load", StartNs: 0, EndNs: 100}}
	for at, want := range map[int64]bool{99: false, 100: true, 199: true, 200: false} {
		if got := b.isWarmUp(&requestLife{arrived: some(at)}); got != want {
			t.Errorf("an arrival at %d ns beside phases: got warm-up %v", at, got)
		}
	}
	d.Phases = nil
	for _, c := range []struct {
		why      reason
		at       int64
		complete bool
		keep     bool
		want     reason
	}{{"", 500, true, false, ""}, {aborted, 50, true, false, aborted}, {"", 50, true, false, warmUp}, {"", 305, true, false, saturated}, {"", 305, true, true, ""}, {"", 500, false, false, incompleteJourneys}} {
		b.src.Saturated = []rows.Span{{StartNs: 300, EndNs: 310}}
		b.complete, b.o.KeepSaturated = c.complete, c.keep
		if got := b.refusedReason(&requestLife{reason: c.why, arrived: some(c.at)}); got != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
	}

	// A step from 1000 to 1100 ns that counts 2 waiting and 3 running requests.
	st := &trace.Step{TsStartNs: 1000, TsEndNs: 1100, WaitingDepth: 2, RunningDepth: 3}
	for _, c := range []struct {
		name             string
		waiting, running int64
		at               int64
		status           queueStatus
		life             requestLife
		want             stateAgreement
	}{
		{"equal", 2, 3, 5000, waiting, requestLife{queued: some(2000)}, stateAgreement{Rows: 1, Equal: 1}},
		{"other requests wait, inside", 1, 3, 1100, waiting, requestLife{queued: some(2000)}, stateAgreement{Rows: 1, Inside: 1}},
		{"other requests run, queued later", 2, 4, 1101, waiting, requestLife{queued: some(1101)}, stateAgreement{Rows: 1, Between: 1}},
		{"queued before its end", 2, 4, 1101, waiting, requestLife{queued: some(1100)}, stateAgreement{Rows: 1, Other: 1}},
		{"queued at an unknown time", 2, 4, 1101, waiting, requestLife{finished: some(9000)}, stateAgreement{Rows: 1, Other: 1}},
		{"finished since", 2, 4, 1101, gone, requestLife{finished: some(1001), queued: some(9000)}, stateAgreement{Rows: 1, Between: 1}},
		{"finished before", 2, 4, 1101, gone, requestLife{finished: some(1000)}, stateAgreement{Rows: 1, Other: 1}},
		{"runs", 2, 4, 1101, running, requestLife{queued: some(9000), finished: some(9000)}, stateAgreement{Rows: 1, Other: 1}},
	} {
		b.out = &Result{}
		b.lives = []requestLife{c.life}
		b.counts = &queueState{status: []queueStatus{c.status}}
		b.counts.inStatus[waiting], b.counts.inStatus[running] = c.waiting, c.running
		if b.compareStates(st, c.at); b.out.Agreement != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, b.out.Agreement, c.want)
		}
	}

	// Times of a request that arrived at 1 ms, made its tokens from 3 to 13 ms and departed at 21 ms.
	b.steps = newRecordedSteps(&trace.Run{Steps: []trace.Step{{ID: 1, TsStartNs: 13e6, WaitingDepth: 4, RunningDepth: 5, KVUsage: 0.5}}}, 1, 0)
	for _, c := range []struct {
		name      string
		change    func(l *requestLife)
		tpot, e2e trace.Opt[float64]
		ends      trace.Opt[int64]
	}{
		{"eleven tokens", func(*requestLife) {}, trace.Some(1.0), trace.Some(20.0), some(4)},
		{"two", func(l *requestLife) { l.output.V = 2 }, trace.Some(10.0), trace.Some(20.0), some(4)},
		{"one", func(l *requestLife) { l.output.V = 1 }, trace.Opt[float64]{}, trace.Some(20.0), some(4)},
		{"unknown", func(l *requestLife) { l.output.OK = false }, trace.Opt[float64]{}, trace.Some(20.0), some(4)},
		{"departed at once", func(l *requestLife) { l.departed.V = 1e6 }, trace.Some(1.0), trace.Some(0.0), some(4)},
		{"finished before the step", func(l *requestLife) { l.finished.V = 12e6 }, trace.Some(0.9), trace.Some(20.0), trace.Opt[int64]{}},
	} {
		l := requestLife{arrived: some(1e6), first: some(3e6), finished: some(13e6), departed: some(21e6), output: some(11)}
		c.change(&l)
		var r Row
		b.fillTargets(&r, &l)
		if r.TTFTMs != 2 || r.TPOTMs.OK != c.tpot.OK || c.tpot.OK && !near9(r.TPOTMs.V, c.tpot.V) || r.E2EMs != c.e2e || r.EndWaiting != c.ends {
			t.Errorf("%s: got %+v", c.name, r)
		}
	}
	var r Row
	b.fillTargets(&r, &requestLife{arrived: some(2e6), departed: some(1e6)})
	if r.E2EMs.OK || r.TPOTMs.OK || r.EndRunning.OK {
		t.Errorf("a stamp that runs back: got %+v", r)
	}

	// Blocks of 4 tokens. A group that states 10 tokens shares 2 blocks; one that does not shares as many as it was seen to.
	x := newBlockIndex(d)
	if x.blockSize != 4 || x.capacity != 1000 {
		t.Errorf("got %+v", x)
	}
	stated := &requestLife{prompt: some(18), group: "a", groupTokens: some(10)}
	open := &requestLife{prompt: some(18), group: "b"}
	own := &requestLife{prompt: some(18)}
	x.insertPrompt(0, stated, some(100))
	x.insertPrompt(1, open, trace.Opt[int64]{})
	x.insertPrompt(2, own, some(100))
	for _, c := range []struct {
		name string
		i    int
		l    *requestLife
		want float64
	}{
		{"stated", 5, stated, 8.0 / 18}, {"itself again", 0, stated, 16.0 / 18}, {"not seen yet", 5, open, 0}, {"another one", 5, own, 0}, {"the same", 2, own, 16.0 / 18},
		{"whole blocks", 2, &requestLife{prompt: some(16)}, 12.0 / 16},
	} {
		if got := x.cachedShare(c.i, c.l); !near9(got, c.want) {
			t.Errorf("%s: got a share of %g, want %g", c.name, got, c.want)
		}
	}
	x.insertPrompt(3, open, some(11))
	if got := x.cachedShare(6, open); !near9(got, 8.0/18) || x.learned["b"] != 2 || x.learned[""] != 0 {
		t.Errorf("two blocks seen: got a share of %g and %v", got, x.learned)
	}
	x.insertPrompt(4, open, some(7))
	if x.learned["b"] != 2 || x.learned["a"] != 25 {
		t.Errorf("fewer seen: got %v", x.learned)
	}
	x.capacity = int64(x.order.Len())
	x.insertPrompt(9, &requestLife{prompt: some(4)}, trace.Opt[int64]{})
	if int64(x.order.Len()) != x.capacity || len(x.at) != x.order.Len() {
		t.Errorf("a full index: got %d blocks of %d", x.order.Len(), x.capacity)
	}
	for _, c := range []struct {
		l       requestLife
		caching bool
		want    trace.Opt[float64]
	}{
		{requestLife{prompt: some(18), cached: some(11)}, true, trace.Some(8.0 / 18)}, {requestLife{prompt: some(18), cached: some(11)}, false, trace.Some(0.0)},
		{requestLife{prompt: some(18)}, true, trace.Opt[float64]{}}, {requestLife{cached: some(11)}, true, trace.Opt[float64]{}},
		{requestLife{prompt: some(0), cached: some(11)}, true, trace.Opt[float64]{}}, {requestLife{prompt: some(1), cached: some(0)}, true, trace.Some(0.0)},
	} {
		if got := actualScore(&c.l, 4, c.caching); got != c.want {
			t.Errorf("%+v: got a score of %v, want %v", c.l, got, c.want)
		}
	}
	// The index is that of 5 us before the arrival.
	b.o.StalenessUs = 5
	b.o.PrefixScore = ""
	b.lives = []requestLife{{arrived: some(1000), prompt: some(8), group: "g", groupTokens: some(8)}, {arrived: some(14_999), prompt: some(8), group: "g", groupTokens: some(8)},
		{arrived: some(15_000), prompt: some(8), group: "g", groupTokens: some(8)}, {arrived: some(16_000)}}
	b.events = []event{{kind: evArrived, at: 1000, life: 0}, {kind: evScheduled, at: 10_000, life: 0}}
	b.counts = &queueState{uncached: make([]int64, 4)}
	b.scorePrefixes()
	if got, want := b.counts.uncached, []int64{8, 8, 4, 0}; !slices.Equal(got, want) || b.lives[3].index.OK {
		t.Errorf("got %v tokens to compute, want %v", got, want)
	}
	for _, c := range []struct {
		e           event
		t, decision int64
		want        bool
	}{{event{at: 9}, 10, 10, true}, {event{at: 10, kind: evArrived}, 10, 10, false}, {event{at: 10, kind: evArrived}, 10, 11, true}, {event{at: 10, kind: evScheduled}, 10, 10, true}, {event{at: 11, kind: evScheduled}, 10, 20, false}} {
		if got := isObservable(c.e, c.t, c.decision); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	// Anchors of one step, and of one time, give no pace.
	for _, anchors := range [][]stepAnchor{{{100, 7}, {200, 7}}, {{200, 5}, {200, 7}}} {
		s := &recordedSteps{anchors: anchors}
		if got, ok := s.counterAt(1000); !ok || got != 7 {
			t.Errorf("%v: got step %g, want 7", anchors, got)
		}
	}
	columns := &trainingColumns{Waiting: []int64{0, 0, 1, 1}, Prefix: []float64{0.49, 0.5, 0.49, 0.5}}
	for i := range 4 {
		if got := columns.queueGroup(i); got != i || columns.IsQueued(i) != (i >= 2) {
			t.Errorf("row %d: got group %d", i, got)
		}
	}
}
