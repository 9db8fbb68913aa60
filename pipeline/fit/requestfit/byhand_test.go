package requestfit

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// twoRequests returns the load of two requests. The first is sent at 0, has its tokens from 1 to 5 ms, one every ms,
// and a prompt of 100; the second is sent at 1 ms, has them from 3 to 9 ms, one every 2 ms, and a prompt of 50.
func twoRequests(t *testing.T) *Load {
	d := h100(t)
	d.Engine.MaxNumSeqs = 2
	return &Load{
		Deployment: d,
		Requests:   []sim.Request{{PromptTokens: 100, OutputTokens: 5}, {PromptTokens: 50, OutputTokens: 4}},
		SentUs:     []int64{0, 1000},
		Seen:       []sim.Measured{{TTFTUs: 1000, SpanUs: 4000, E2EUs: 5200}, {TTFTUs: 2000, SpanUs: 6000, E2EUs: 8300}},
		Stamps:     []sim.Measured{{TTFTUs: 1000, SpanUs: 4000}, {TTFTUs: 2000, SpanUs: 6000}},
	}
}

func occupancyOf(t *testing.T, l *Load) *occupancy {
	t.Helper()
	m, err := newModel(Roofline(l.Deployment), l.Deployment)
	if err != nil {
		t.Fatal(err)
	}
	o, err := newOccupancy(l, m)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestWhoDecodedWhen: contexts grow from the prompt and a token, 100+1 and 50+1, by 1 and by 1/2 token a ms.
func TestWhoDecodedWhen(t *testing.T) {
	o := occupancyOf(t, twoRequests(t))
	type part struct {
		from, to float64
		decodes  int64
		context  float64
	}
	var got []part
	for _, s := range o.stretches {
		got = append(got, part{s.fromUs, s.toUs, s.decodes, s.context})
	}
	want := []part{{1000, 3000, 1, 102}, {3000, 5000, 2, 104 + 51.5}, {5000, 9000, 1, 53}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for us, n := range map[float64]int64{999: 0, 1000: 0, 1001: 1, 3000: 1, 3001: 2, 5000: 2, 9000: 1, 9001: 0} {
		if got, _ := o.decodingAt(us); got != n {
			t.Errorf("%g us: got %d decoding just before, want %d", us, got, n)
		}
	}
	if !slices.Equal(o.stepEndsUs, []float64{1000, 3000}) {
		t.Errorf("prompts ended at %v, want the first tokens", o.stepEndsUs)
	}
}

// TestFirstTokensOfOneStep: less than 0.4 of the median gap apart (1000 us), prompts were of one step. A budget of 120
// tokens needs two steps for 150, and one of 75 or 50 two and three full ones.
func TestFirstTokensOfOneStep(t *testing.T) {
	for _, c := range []struct {
		apartUs float64
		budget  int64
		want    string
	}{
		{400, 8192, "[2]"}, {401, 8192, "[1 1]"}, {0, 120, "[0 2]"}, {0, 149, "[0 2]"}, {0, 150, "[2]"}, {0, 75, "[0 2]"}, {0, 50, "[0 0 2]"},
	} {
		l := twoRequests(t)
		l.SentUs[1] = 0
		l.Stamps[1] = sim.Measured{TTFTUs: 1000 + c.apartUs, SpanUs: 3000}
		l.Deployment.Engine.MaxNumBatchedTokens = c.budget
		l.Deployment.Engine.ChunkedPrefill = true
		var got []int
		for _, s := range occupancyOf(t, l).steps {
			got = append(got, s.firstTokens)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%g us apart, budget %d: got steps with %v first tokens, want %s", c.apartUs, c.budget, got, c.want)
		}
	}
}

// TestStepsOfASpan: the step with a prompt takes 400 + 50*10 us of the first stretch's 2000. The other 1100 us are
// decode steps of 410 us, and the next 2000 us of 420.
func TestStepsOfASpan(t *testing.T) {
	o := &occupancy{
		load:       twoRequests(t),
		steps:      []prefill{{endUs: 3000, x: []float64{1, 50}, firstTokens: 1}},
		stepEndsUs: []float64{3000},
		stretches: []stretch{
			{fromUs: 1000, toUs: 3000, x: []float64{1, 1}}, {fromUs: 3000, toUs: 5000, x: []float64{1, 2}}, {fromUs: 5000, toUs: 9000, x: []float64{1, 1}}},
	}
	s := o.cumulativeSums([]float64{400, 10})
	n := []float64{1100.0 / 410, 2000.0 / 420, 4000.0 / 410}
	for k, want := range []float64{0, n[0], n[0] + n[1], n[0] + n[1] + n[2]} {
		if math.Abs(s.stretchN[k]-want) > 1e-9 {
			t.Errorf("until stretch %d: got %g steps, want %g", k, s.stretchN[k], want)
		}
	}
	x := make([]float64, 2)
	s.sumSpan(o, 0, x)
	// 4 tokens after the first: one of the step with a prompt, three of the average decode step.
	if want := 50 + 3*(n[0]+2*n[1])/(n[0]+n[1]); math.Abs(x[0]-4) > 1e-9 || math.Abs(x[1]-want) > 1e-9 {
		t.Errorf("got %v, want 4 and %g", x, want)
	}
	// A prompt that takes longer than the stretch leaves 2 % of it.
	if s = o.cumulativeSums([]float64{400, 50}); math.Abs(s.stretchN[1]-0.02*2000/450) > 1e-9 {
		t.Errorf("got %g steps, want 2 %% of 2000 us at 450 us", s.stretchN[1])
	}
	// Three steps with prompts for one token count as one.
	o.load.Requests[0].OutputTokens = 2
	for range 2 {
		o.steps = append(o.steps, o.steps[0])
		o.stepEndsUs = append(o.stepEndsUs, 3000)
	}
	s = o.cumulativeSums([]float64{400, 0})
	if s.sumSpan(o, 0, x); math.Abs(x[0]-1) > 1e-9 || math.Abs(x[1]-50) > 1e-9 {
		t.Errorf("got %v, want 1 and 50", x)
	}
}

func TestRequestsThatMetNoPrompt(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(l *Load)
		enters float64
		want   bool
		steps  float64 // of the stretch that runs, which are added to the step of the prompt
	}{
		{"nothing runs", nil, 1000, true, 0},
		{"half a step that runs", nil, 1500, true, 0.5},
		{"asynchronous: one more", func(l *Load) { l.Deployment.Engine.AsyncScheduling = trace.Some(true) }, 1500, true, 1.5},
		{"sent before another first token", func(l *Load) { l.SentUs[1], l.Stamps[1].TTFTUs = 999, 2001 }, 1500, false, 0},
		{"a closed loop sends at the end of a step", func(l *Load) { l.Requests[1].After = 1 }, 1500, false, 0},
		{"and nothing runs", func(l *Load) { l.Requests[1].After = 1 }, 1000, true, 0},
		{"max_num_seqs is full", func(l *Load) { l.Deployment.Engine.MaxNumSeqs = 1 }, 1500, false, 0},
		{"no first token", func(l *Load) { l.Stamps[1].TTFTUs = 0 }, 1500, false, 0},
	} {
		l := twoRequests(t)
		l.Deployment.Engine.AsyncScheduling = trace.Some(false)
		o := occupancyOf(t, l)
		if c.change != nil {
			c.change(l)
		}
		x := make([]float64, o.m.columns.step)
		if got := o.metNoPrompt(1, c.enters, x); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
		if !c.want {
			continue
		}
		for j := range x {
			if want := o.steps[1].x[j] + c.steps*o.stretches[0].x[j]; math.Abs(x[j]-want) > 1e-9 {
				t.Errorf("%s: feature %d: got %g, want %g", c.name, j, x[j], want)
			}
		}
	}
}

// TestCachedPromptTokens: blocks of 16; of a prompt at least one token is computed.
func TestCachedPromptTokens(t *testing.T) {
	some := func(v int64) trace.Opt[int64] { return trace.Some(v) }
	for _, c := range []struct {
		name    string
		caching bool
		seen    []uint64
		r       sim.Request
		want    int64
	}{
		{"recorded", false, nil, sim.Request{PromptTokens: 100, CachedTokens: some(50)}, 48},
		{"recorded as none", true, []uint64{7}, sim.Request{PromptTokens: 100, Group: 7, GroupTokens: 64, CachedTokens: some(0)}, 0},
		{"a whole prompt", false, nil, sim.Request{PromptTokens: 64, CachedTokens: some(64)}, 48},
		{"a group seen before", true, []uint64{7}, sim.Request{PromptTokens: 100, Group: 7, GroupTokens: 70}, 64},
		{"not seen", true, []uint64{8}, sim.Request{PromptTokens: 100, Group: 7, GroupTokens: 70}, 0},
		{"caching is off", false, []uint64{7}, sim.Request{PromptTokens: 100, Group: 7, GroupTokens: 70}, 0},
		{"two of three blocks", true, []uint64{1, 2}, sim.Request{PromptTokens: 100, Hashes: []uint64{1, 2, 3}, HashTokens: 32}, 64},
		{"the first is not there", true, []uint64{2, 3}, sim.Request{PromptTokens: 100, Hashes: []uint64{1, 2, 3}, HashTokens: 32}, 0},
	} {
		l := twoRequests(t)
		l.Deployment.Engine.PrefixCaching = c.caching
		l.Deployment.Engine.BlockSize = 16
		o := &occupancy{load: l, computed: map[uint64]bool{}}
		for _, h := range c.seen {
			o.computed[h] = true
		}
		if got := o.cachedTokens(&c.r); got != c.want {
			t.Errorf("%s: got %d tokens, want %d", c.name, got, c.want)
		}
		if c.caching && !c.r.CachedTokens.OK && c.r.Group == 0 && !o.computed[3] {
			t.Errorf("%s: the prompt's blocks are not kept for the next", c.name)
		}
	}
}

// TestPartsOfALoad: requests are sent at 0, 100, 200, 300 and 400 us. Half of that time has three of them, and what
// was sent while those ran shares their steps.
func TestPartsOfALoad(t *testing.T) {
	l := &Load{}
	for i := range int64(5) {
		l.Requests = append(l.Requests, sim.Request{OutputTokens: 2})
		l.SentUs = append(l.SentUs, 100*i)
		l.Seen = append(l.Seen, sim.Measured{TTFTUs: 50, SpanUs: 20, E2EUs: 80})
	}
	l.Seen[1] = sim.Measured{TTFTUs: 150, SpanUs: 50, E2EUs: 210} // until 310 us
	measured := func(l *Load) (out []bool) {
		for i := range l.Seen {
			out = append(out, isMeasured(&l.Seen[i]))
		}
		return out
	}
	before := l.Before(0.5)
	if got, want := measured(before), []bool{true, true, true, false}; !slices.Equal(got, want) || before.later != 1 || len(before.SentUs) != 4 {
		t.Errorf("before: got %v, %d later, want %v and 1", got, before.later, want)
	}
	if got, want := measured(l.Later(0.5)), []bool{false, false, false, true, true}; !slices.Equal(got, want) {
		t.Errorf("later: got %v, want %v", got, want)
	}
	for share, want := range map[float64]int{0: 1, 0.24: 1, 0.25: 2, 0.99: 4, 1: 5} {
		if got := l.sentIn(share); got != want {
			t.Errorf("the first %g: got %d requests, want %d", share, got, want)
		}
	}
	if got, want := l.last(1), 300.0; got != want {
		t.Errorf("last token: got %g us, want %g", got, want)
	}
	l.Requests[1].OutputTokens = 1
	if got, want := l.last(1), 250.0; got != want {
		t.Errorf("last token of one: got %g us, want %g", got, want)
	}
}

// TestWhatRequestsMet: one request decodes from 1 to 5 ms, the other from 3 to 9 ms.
func TestWhatRequestsMet(t *testing.T) {
	l := twoRequests(t)
	d := newDecodeCounts(l)
	for us, want := range map[float64][2]float64{
		500: {0, 0}, 1000: {0, 0}, 3000: {2000, 1}, 4000: {4000, 2}, 5000: {6000, 2}, 9000: {10_000, 1},
	} {
		if area, running := d.until(us); area != want[0] || float64(running) != want[1] {
			t.Errorf("%g us: got %g us of decodes and %d running, want %v", us, area, running, want)
		}
	}
	want := []experience{
		{running: 6000.0 / 4000, context: 102.5, prompt: 100, decodes: true},
		{running: 8000.0 / 6000, context: 52, prompt: 50, decodes: true},
	}
	if got := experiencesOf(l); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	l.Seen[0] = sim.Measured{}
	l.Stamps[1].SpanUs = 0
	l.SentUs[1] = 4000
	if got, want := experiencesOf(l), []experience{{runningAtSend: 1, context: 52, prompt: 50}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// Of load levels by Little's law: 2 requests/s of 500 ms + 100 x 10 ms are 3 requests.
	some := trace.Some[float64]
	points := []trace.LoadPoint{
		{Clients: trace.Some(int64(8)), PromptTokens: 400, OutputTokens: 100},
		{RateRPS: some(2), TTFTMs: some(500), TPOTMs: 10, PromptTokens: 400, OutputTokens: 100},
		{OfferedRPS: some(2), E2EMs: some(4000), PromptTokens: 400, OutputTokens: 100},
		{OfferedRPS: some(0.1), E2EMs: some(1000), PromptTokens: 400, OutputTokens: 100},
	}
	levels := experiencesOfLevels(points)
	for i, want := range [][2]float64{{8, 7}, {3, 2}, {8, 7}, {1, 0.1 - 1}} {
		e := levels[i]
		if math.Abs(e.running-want[0]) > 1e-9 || math.Abs(e.runningAtSend-want[1]) > 1e-9 || e.context != 450 || e.prompt != 400 || !e.decodes {
			t.Errorf("level %d: got %+v, want %g running, %g when sent, context 450", i, e, want[0], want[1])
		}
	}
}

// TestDirectionsThatLevelsShow: what is one below each limit shows nothing.
func TestDirectionsThatLevelsShow(t *testing.T) {
	d := h100(t)
	d.Engine.MaxNumSeqs = 100
	level := func(clients int64, prompt float64) trace.LoadPoint {
		return trace.LoadPoint{Clients: trace.Some(clients), PromptTokens: prompt, OutputTokens: 2}
	}
	for _, c := range []struct {
		direction string
		points    []trace.LoadPoint
		shown     bool
	}{
		{"per-step constant (weights, layers, step)", []trace.LoadPoint{level(4, 100)}, true},
		{"per-step constant (weights, layers, step)", []trace.LoadPoint{level(5, 100)}, false},
		{"prefill attention", []trace.LoadPoint{level(5, 4096)}, true}, // 4 run when the request is sent
		{"prefill attention", []trace.LoadPoint{level(5, 4095)}, false},
		{"prefill attention", []trace.LoadPoint{level(6, 4096)}, false},
		{"delay of a token, apart from the per-step constant", []trace.LoadPoint{level(70, 1)}, true},
		{"delay of a token, apart from the per-step constant", []trace.LoadPoint{level(69, 1)}, false},
		{"overhead, apart from the rest of the running step", []trace.LoadPoint{level(1, 1)}, false}, // of means never
	} {
		for _, got := range learnable(&trace.Run{Points: c.points}, d) {
			if got.Direction == c.direction && (got.Shown != c.shown || c.shown == (got.Adds != "")) {
				t.Errorf("%s of %+v: got %+v, want %v", c.direction, c.points, got, c.shown)
			}
		}
	}
	for _, c := range []struct {
		values []float64
		shown  bool
		got    string
	}{
		{[]float64{30, 10}, false, "11 to 29"}, {[]float64{10, 40}, true, "11.5 to 38.5"}, {[]float64{0, 0, 3.3}, false, "0 to 2.97"}, {nil, false, "none"},
	} {
		if got := shownBySpread("x", "y", c.values, 3, "more"); got.Shown != c.shown || got.Got != c.got {
			t.Errorf("%v: got %+v, want %v %q", c.values, got, c.shown, c.got)
		}
	}
	if got := shownBySpread("x", "y", []float64{10, 30, 30, 30, 30, 30, 30, 30, 30, 10, 10, 10}, 3, ""); !got.Shown {
		t.Errorf("three times the least: got %+v", got)
	}
}

func TestTiers(t *testing.T) {
	run := &trace.Run{}
	for _, step := range []struct {
		want string
		add  func()
	}{
		{"", func() {}},
		{TierPoints, func() { run.Points = make([]trace.LoadPoint, 1) }},
		{TierRequests, func() { run.Observed = make([]trace.ObservedRequest, 1) }},
		{TierSpans, func() { run.Requests = make([]trace.Request, 1) }},
		{TierSteps, func() { run.Iterations = make([]trace.Iteration, 1) }},
		{TierChunks, func() { run.Iterations[0].Form = trace.IterationChunks }},
	} {
		if step.add(); tierOf(run) != step.want {
			t.Errorf("got %q, want %q", tierOf(run), step.want)
		}
	}
	if got := tierOf(&trace.Run{Steps: make([]trace.Step, 1)}); got != TierSteps {
		t.Errorf("got %q, want %q", got, TierSteps)
	}
}

// TestLoadOfClients: of two requests 1.5 ms apart, times are us since the first.
func TestLoadOfClients(t *testing.T) {
	run := &trace.Run{ID: "r"}
	for _, ns := range []int64{5e9, 5e9 + 1_500_000} {
		run.Observed = append(run.Observed, trace.ObservedRequest{
			ID: fmt.Sprint(ns), SendNs: trace.Some(ns), FirstChunkNs: trace.Some(ns + 20e6), LastChunkNs: trace.Some(ns + 60e6), TTFTUs: trace.Some(20e3),
			E2EUs: trace.Some(60e3), PromptTokens: trace.Some(int64(100)), OutputTokens: trace.Some(int64(5)), Success: trace.Some(true),
		})
	}
	loads, _ := LoadsOf(run, h100(t), true, nil)
	if len(loads) != 1 {
		t.Fatalf("got %d loads, want 1", len(loads))
	}
	l := loads[0]
	if !slices.Equal(l.SentUs, []int64{0, 1500}) || l.OriginNs != 5e9 || l.Tier != TierRequests || len(l.Requests) != 2 {
		t.Errorf("got %+v, want requests at 0 and 1500 us from 5 s on", l)
	}
	for i, m := range l.Seen {
		if m.TTFTUs != 20e3 || m.SpanUs != 40e3 || m.E2EUs != 60e3 {
			t.Errorf("request %d: got %+v, want 20, 40 and 60 ms", i, m)
		}
	}
	if loads, _ := LoadsOf(&trace.Run{ID: "r"}, h100(t), true, nil); len(loads) != 0 {
		t.Errorf("of nothing: got %d loads", len(loads))
	}
}

func TestSimulatedTimesReplaceMeasuredOnes(t *testing.T) {
	simulated := &sim.Measured{TTFTUs: 1, SpanUs: 2, E2EUs: 3}
	for _, c := range []struct{ measured, want sim.Measured }{
		{sim.Measured{TTFTUs: 9}, sim.Measured{TTFTUs: 1}},
		{sim.Measured{SpanUs: 9}, sim.Measured{SpanUs: 2}},
		{sim.Measured{E2EUs: 9}, sim.Measured{E2EUs: 3}},
		{sim.Measured{}, sim.Measured{}},
	} {
		if got := replaceTimes(c.measured, simulated); got != c.want {
			t.Errorf("%+v: got %+v, want %+v", c.measured, got, c.want)
		}
	}
}

func TestRooflinePrior(t *testing.T) {
	want := map[string][2]float64{
		"bias": {1000, 3000}, "weight_load_hidden": {0, 5e5}, "activation_traffic": {0, 5e5}, "prefill_decode_mix": {0, 0}, // the last is a ratio
		"decode_attention": {1e6, 1.5e6}, "batch_utilization": {0, 0},
	}
	for _, v := range []features.Version{features.V12, features.V13} {
		for _, f := range features.BetaFeatures(v) {
			w, isKnown := want[f.Name]
			mean, sd := rooflineOf(f)
			if isKnown && (mean != w[0] || sd != w[1]) {
				t.Errorf("%s %s: got %g and %g, want %v", v, f.Name, mean, sd, w)
			}
		}
	}
	p := Roofline(h100(t))
	for j := range p.Set.Beta {
		for k, v := range p.Set.Covariance[j] {
			_, sd := rooflineOf(features.BetaFeatures(p.Set.SpecVersion)[j])
			if want := map[bool]float64{true: sd * sd}[j == k]; v != want {
				t.Errorf("covariance %d %d: got %g, want %g", j, k, v, want)
			}
		}
	}
}

// TestCachedShareOfLevels: a level that states 100 of 400 tokens has a quarter of every prompt in the cache.
func TestCachedShareOfLevels(t *testing.T) {
	p := &Level{}
	if got := p.cachedOf(100); got.OK {
		t.Errorf("not stated: got %v", got)
	}
	p.InputTokens = 400
	p.CachedTokens = trace.Some(100.0)
	wants := map[int64]int64{200: 50, 7: 2, 1: 0} // 1.75 tokens are 2
	for prompt, want := range wants {
		if got := p.cachedOf(prompt); got != trace.Some(want) {
			t.Errorf("%d tokens: got %v, want %d", prompt, got, want)
		}
	}
	p.CachedTokens = trace.Some(400.0)
	if got := p.cachedOf(200); got != trace.Some(int64(199)) {
		t.Errorf("all of 200: got %v, want 199", got)
	}
}

func TestGainWithinChanceIsNamed(t *testing.T) {
	for high, want := range map[float64]int{-1e-9: 0, 0: 1, 0.1: 1} {
		if got := (Gain{Learned: 0.1, Prior: 0.2, Low: -0.3, High: high}).Findings(); len(got) != want {
			t.Errorf("up to %g: got %v, want %d findings", high, got, want)
		}
	}
	var p pairs
	p.add(2000, 3000)
	p.add(0, 3000)
	p.add(2000, 0)
	p.add(math.NaN(), 1)
	if !slices.Equal(p.measured, []float64{2}) || !slices.Equal(p.simulated, []float64{3}) {
		t.Errorf("got %+v, want 2 and 3 ms", p)
	}
}
