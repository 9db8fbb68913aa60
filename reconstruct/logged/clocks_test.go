package logged

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// decoding returns a filler of n passes of one decode that take elapsedUs and end cadenceUs apart, from an offset on, with
// stamps rounded down to steps.
func decoding(t *testing.T, n int, elapsedUs float64, cadenceUs, offsetUs, stepNs int64, change func(*deploy.Deployment)) *filler {
	t.Helper()
	its := make([]trace.Iteration, n)
	for i := range its {
		ns := (cadenceUs*int64(i+1) + offsetUs) * 1000
		its[i] = trace.Iteration{Index: int64(i), Form: trace.IterationLog, GenerationReqs: 1, GenerationTokens: 1, ElapsedUs: elapsedUs}
		if stepNs > 0 {
			its[i].StampNs, its[i].StampStepNs = trace.Some(ns/stepNs*stepNs), trace.Some(stepNs)
		}
	}
	dep := deployment(t, change)
	space, err := features.New(features.DefaultVersion(dep), dep)
	if err != nil {
		t.Fatal(err)
	}
	return &filler{run: &trace.Run{ID: "r", Iterations: its}, dep: dep, space: space, out: &trace.Aggregate{}, passes: passesOf(its, dep, false)}
}

// TestWhichTimesAreSteps: the resolution of the stamps, whether the engine is synchronous, and times that no such engine can
// have, decide what the time of a step is.
func TestWhichTimesAreSteps(t *testing.T) {
	const ms = 1_000_000
	sync, async := asynchronous(false), asynchronous(true)
	short := func(n int) func(f *filler) {
		return func(f *filler) {
			for i := range n {
				f.passes[i].it.ElapsedUs = 1
			}
		}
	}
	none := func(*filler) {}
	for _, c := range []struct {
		name      string
		elapsedUs float64
		cadenceUs int64
		stepNs    int64
		dep       func(*deploy.Deployment)
		change    func(f *filler)
		time      string
		isSync    bool
		isCoarse  bool
		refused   string
	}{
		{"stamps to a ms", 50_000, 60_000, ms, sync, none, timeCadence, true, false, ""},
		{"coarser than a ms", 50_000, 60_000, ms + 1, sync, none, timeElapsed, true, false, ""},
		{"a fiftieth of a pass", 40_000, 50_000, ms, sync, none, timeCadence, true, false, ""},
		{"more than a fiftieth", 40_000, 49_000, ms, sync, none, timeElapsed, true, true, ""},
		{"more than a fiftieth, asynchronous", 40_000, 49_000, ms, async, none, timeCadence, false, true, ""},
		{"9 of 10 have stamps", 40_000, 60_000, ms, sync, func(f *filler) { f.passes[4].it.StampNs.OK, f.passes[9].it.StampNs.OK = false, false }, timeCadence, true, false, ""},
		{"fewer have stamps", 40_000, 60_000, ms, sync, func(f *filler) {
			f.passes[4].it.StampNs.OK, f.passes[9].it.StampNs.OK, f.passes[11].it.StampNs.OK = false, false, false
		}, timeElapsed, true, false, ""},
		{"sums up to 101.9 % of the time", 49_930, 49_000, ms, sync, none, timeElapsed, true, true, ""},
		{"sums up to 102.1 % of the time", 50_030, 49_000, ms, sync, none, timeCadence, false, true, ""},
		{"a tenth lies below the weights' time", 40_000, 49_000, ms, sync, short(2), timeElapsed, true, true, ""},
		{"more lie below", 40_000, 49_000, ms, sync, short(3), timeCadence, false, true, ""},
		{"whole seconds, asynchronous", 200_000, 250_000, 1e9, async, none, timeTicks, false, false,
			"run r: elapsed is no step time: scheduling is asynchronous by run.yaml or by its version's default; stamps in whole seconds leave 4 s of busy time between ticks, want 300"},
		{"no stamps", 200_000, 250_000, 0, sync, none, timeElapsed, true, false, ""},
		{"no stamps, asynchronous", 200_000, 250_000, 0, async, none, "", false, false, "run r: elapsed is no step time: scheduling is asynchronous by run.yaml or by its version's default"},
		{"no stamps, nothing stated", 200_000, 250_000, 0, func(d *deploy.Deployment) {
			d.Engine.AsyncScheduling = trace.Opt[bool]{}
			d.Engine.VLLMVersion = "0.11.0"
		}, none, "", false, false, "run r: elapsed is no step time: nothing shows that the engine is synchronous"},
		{"the device's own times", 200_000, 250_000, 0, async, func(f *filler) { f.passes[0].it.Form = trace.IterationTensorRT }, timeElapsed, true, false, ""},
	} {
		f := decoding(t, 20, c.elapsedUs, c.cadenceUs, 0, c.stepNs, c.dep)
		c.change(f)
		a := f.auditTimes()
		why := ""
		if a.refused != nil {
			why = a.refused.Msg
		}
		if a.time != c.time || a.figures.Time != c.time || a.sync != c.isSync || a.coarse != c.isCoarse || why != c.refused {
			t.Errorf("%s: got %s, synchronous %t, coarse %t, %q; want %s, %t, %t, %q", c.name, a.time, a.sync, a.coarse, why, c.time, c.isSync, c.isCoarse, c.refused)
		}
		if c.stepNs == 1e9 && !strings.HasSuffix(a.refused.Hint, "or record 75 times as long") {
			t.Errorf("%s: got the hint %q", c.name, a.refused.Hint)
		}
	}
	f := decoding(t, 1200, 200_000, 250_000, 0, 1e9, async)
	if a := f.auditTimes(); a.refused == nil || !strings.Contains(a.refused.Msg, "leave 299 s") {
		t.Errorf("299 s between ticks: got %+v", a)
	}
	f = decoding(t, 1204, 200_000, 250_000, 0, 1e9, async)
	if a := f.auditTimes(); a.refused != nil || a.time != timeTicks {
		t.Errorf("300 s between ticks: got %+v", a)
	}
}

// TestTimeBetweenPasses: what elapsed does not include, from stamps, from whole seconds and from clients.
func TestTimeBetweenPasses(t *testing.T) {
	near := func(name string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-6*math.Abs(want) {
			t.Errorf("%s: got %.10g, want %.10g", name, got, want)
		}
	}
	// 20 gaps of 100 to 2000 us: without two at each end, 1050 us in the mean.
	f := decoding(t, 21, 0, 10_000, 0, 1000, nil)
	for i := range f.passes {
		f.passes[i].it.ElapsedUs = 10_000 - 100*float64(i)
	}
	var out trace.TimeAudit
	near("precise stamps", f.gapConstant(true, true, &out), 1050)
	near("precise stamps, of the run", out.ConstantUs.V, 1050)
	near("precise stamps, of a pass", f.passes[3].constantUs, 1050)
	near("elapsed of the time", out.SumOverWall.V, (20*10_000-21_000)/200_000.0)
	// Longer than the time between the stamps: the constant is not below 0.
	f = decoding(t, 21, 10_500, 10_000, 0, 1000, nil)
	out = trace.TimeAudit{}
	if got := f.gapConstant(true, true, &out); got != 0 || out.ConstantUs.V != -500 || f.passes[2].constantUs != 0 || math.Abs(out.SumOverWall.V-1.05) > 1e-9 {
		t.Errorf("longer than the time: got %g, %+v", got, out)
	}
	// Passes of 250 ms, of which 200 are elapsed, stamped in whole seconds.
	f = decoding(t, 40, 200_000, 250_000, 100_000, 1e9, nil)
	out = trace.TimeAudit{}
	near("whole seconds", f.gapConstant(false, true, &out), 50_000)
	near("whole seconds, of a pass", f.passes[39].constantUs, 50_000)
	near("whole seconds, elapsed of the time", out.SumOverWall.V, 0.8)
	if s := f.secondsBetweenTicks(); s != 9 {
		t.Errorf("got %g s between ticks, want 9: from 1 to 10", s)
	}
	f = decoding(t, 40, 260_000, 250_000, 100_000, 1e9, nil)
	out = trace.TimeAudit{}
	if got := f.gapConstant(false, true, &out); got != 0 || math.Abs(out.ConstantUs.V+10_000) > 1e-6 || math.Abs(out.SumOverWall.V-1.04) > 1e-9 {
		t.Errorf("longer than whole seconds: got %g, %+v", got, out)
	}
	// Two blocks of 25 s, of passes with 50 and 150 ms between them.
	f = decoding(t, 101, 200_000, 250_000, 100_000, 1e9, nil)
	g := decoding(t, 101, 100_000, 250_000, 40_100_000, 1e9, nil)
	g.passes[0].follows, g.passes[0].next = false, false
	f.passes = append(f.passes, g.passes...)
	near("two blocks", f.gapConstant(false, true, &trace.TimeAudit{}), 100_000)
	near("the first", f.passes[100].constantUs, 50_000)
	near("the second", f.passes[101].constantUs, 150_000)
	// Clients: 100 decodes of 30 ms and 98 tokens after the first of each answer in 3430 ms.
	some := trace.Some[int64]
	of := func(tokens int64) (*filler, *trace.TimeAudit) {
		f := decoding(t, 100, 30_000, 0, 0, 0, nil)
		f.run.Observed = []trace.ObservedRequest{{FirstChunkNs: some(1000), LastChunkNs: some(3_430_001_000), OutputTokens: some(tokens - 1)}, {FirstChunkNs: some(5), LastChunkNs: some(5), OutputTokens: some(3)},
			{FirstChunkNs: some(1), LastChunkNs: some(9), OutputTokens: trace.Opt[int64]{V: 9}}}
		return f, &trace.TimeAudit{}
	}
	f, a := of(98)
	near("clients", f.gapConstant(false, false, a), 4300)
	near("clients, of a pass", f.passes[99].constantUs, 4300)
	near("clients, elapsed of the time", a.SumOverWall.V, 3000.0/3430)
	for tokens, want := range map[int64]bool{97: false, 102: true, 103: false} {
		if f, a = of(tokens); (f.gapConstant(false, false, a) > 0) != want || a.ConstantUs.OK != want || a.SumOverWall.OK != want {
			t.Errorf("%d tokens of 100 decodes: got %+v", tokens, a)
		}
	}
}

// endsOf are the ends of all passes, ms.
func endsOf(f *filler) (out []float64) {
	for i := range f.passes {
		out = append(out, float64(f.passes[i].endNs)/1e6)
	}
	return out
}

// TestEndsFromElapsed: passes of 250 ms laid end to end. A tick is taken to come in the middle of a pass, so that passes
// which end 100 ms after each quarter of a second are laid 125 ms after it.
func TestEndsFromElapsed(t *testing.T) {
	made := func(n int, stepNs int64) *filler {
		f := decoding(t, n, 200_000, 250_000, 100_000, stepNs, nil)
		for i := range f.passes {
			f.passes[i].constantUs = 50_000
		}
		return f
	}
	f := made(9, 1e9)
	f.layEndToEnd()
	if got := endsOf(f); !slices.Equal(got, []float64{375, 625, 875, 1125, 1375, 1625, 1875, 2125, 2375}) || !f.passes[8].hasEnd {
		t.Errorf("whole seconds: got %v", got)
	}
	// Passes of 280 ms: the three ticks give 20, 180 and 60 ms, 86.7 ms in the mean.
	f = decoding(t, 11, 230_000, 280_000, 100_000, 1e9, nil)
	for i := range f.passes {
		f.passes[i].constantUs = 50_000
	}
	if f.layEndToEnd(); f.passes[0].endNs != 366_666_666 || f.passes[10].endNs != 3_166_666_666 {
		t.Errorf("three ticks: got %v", endsOf(f))
	}
	f = made(3, 1e9) // no tick: the stamps of 0 s bound the start between -250 and 250 ms
	if f.layEndToEnd(); !slices.Equal(endsOf(f), []float64{250, 500, 750}) {
		t.Errorf("no tick: got %v", endsOf(f))
	}
	f = made(3, 0)
	if f.layEndToEnd(); !slices.Equal(endsOf(f), []float64{250, 500, 750}) {
		t.Errorf("no stamps: got %v", endsOf(f))
	}
	f = made(3, 1e6) // in the middle of the stamps' resolution
	if f.layEndToEnd(); !slices.Equal(endsOf(f), []float64{350.5, 600.5, 850.5}) {
		t.Errorf("precise: got %v", endsOf(f))
	}
	// A stretch without stamps begins a second after the one before; one with stamps not before its end.
	for stepNs, want := range map[int64][]float64{0: {250, 500, 1750, 2000}, 1e9: {250, 500, 750, 1000}} {
		f = made(4, 0)
		f.passes[2].follows = false
		for i := 2; stepNs > 0 && i < 4; i++ {
			f.passes[i].it.StampNs, f.passes[i].it.StampStepNs = trace.Some(int64(0)), trace.Some(stepNs)
		}
		if f.layEndToEnd(); !slices.Equal(endsOf(f), want) {
			t.Errorf("the second stretch, stamps to %d ns: got %v, want %v", stepNs, endsOf(f), want)
		}
	}
	z := stretchOrigin{index: []int{2, 6}, ticks: []float64{1, 1}, smooth: []float64{10, 30}}
	for i, want := range map[int]float64{0: 10, 2: 10, 3: 15, 4: 20, 6: 30, 9: 30} {
		if got := z.originFor(i, 0); got != want {
			t.Errorf("pass %d: got the origin %g, want %g", i, got, want)
		}
	}
	// Without ticks: the middle of what the stamps allow, else a second after the stretch before, else 0.
	inf := math.Inf(1)
	for _, c := range []struct {
		lo, hi float64
		free   int64
		want   float64
	}{{100, 300, 7, 200}, {-inf, inf, 7, 7 + 1e9}, {-inf, inf, math.MinInt64, 0}} {
		z := stretchOrigin{lo: c.lo, hi: c.hi}
		if got := z.originFor(3, c.free); got != c.want {
			t.Errorf("no ticks, bounds %g to %g, free at %d ns: got the origin %g, want %g", c.lo, c.hi, c.free, got, c.want)
		}
	}
	z = stretchOrigin{}
	for k := range 20 {
		z.index = append(z.index, k)
		z.ticks = append(z.ticks, float64(k))
	}
	for i, want := range map[int]float64{0: 4, 1: 4.5, 10: 10, 19: 15} { // 8 neighbours on either side
		if got := z.originFor(i, 0); got != want {
			t.Errorf("tick %d: got the origin %g, want %g", i, got, want)
		}
	}
}

// TestEndsBetweenTicks: ticks at the passes 1, 5 and 7; between two ticks passes are spaced evenly.
func TestEndsBetweenTicks(t *testing.T) {
	f := decoding(t, 9, 1, 1, 0, 0, nil)
	for i, second := range []int64{0, 1, 1, 1, 1, 2, 2, 3, 3} {
		f.passes[i].it.StampNs = trace.Some(second*1e9 + 500)
	}
	f.placeBetweenTicks()
	want := []float64{0, 1125, 1375, 1625, 1875, 2250, 2750, 0, 0}
	if got := endsOf(f); !slices.Equal(got, want) || f.passes[0].hasEnd || f.passes[7].hasEnd || !f.passes[6].hasEnd || f.passes[5].tickNs != 2e9 {
		t.Errorf("got %v, want %v", got, want)
	}
	f.passes[3].it.StampNs.OK = false
	f.passes[5].next = false
	f.markTicks()
	var ticks []int
	for i := range f.passes {
		if f.passes[i].tick {
			ticks = append(ticks, i)
		}
	}
	if !slices.Equal(ticks, []int{1, 7}) {
		t.Errorf("got ticks at %v: a pass behind lost records has none", ticks)
	}
	f.passes[3].follows = false
	var stretches [][2]int
	f.eachBusyStretch(func(from, to int) { stretches = append(stretches, [2]int{from, to}) })
	if !slices.Equal(stretches, [][2]int{{0, 3}, {3, 9}}) {
		t.Errorf("got stretches %v", stretches)
	}
}

// TestStepsOfARun: a step for each pass, an empty one where the engine was idle and at the end, and unknown ones for lost
// records.
func TestStepsOfARun(t *testing.T) {
	made := func() *filler {
		f := decoding(t, 5, 10, 100, 0, 1, nil)
		f.passes[3].it.Index, f.passes[4].it.Index = 5, 6 // two records are lost
		f.dep.Engine.KVBlocksGPU = trace.Some(int64(100))
		for i := range f.passes {
			p := &f.passes[i]
			p.startNs, p.endNs, p.hasStart, p.hasEnd = int64(1000*i), int64(1000*i+900), i != 1, true
		}
		f.passes[1].idle = true
		return f
	}
	show := func(f *filler) (steps, totals []string) {
		for _, s := range f.run.Steps {
			steps = append(steps, fmt.Sprint(s.ID, s.TsStartNs, int64(s.RunningDepth), s.BlocksFree))
		}
		for _, s := range f.out.Totals {
			totals = append(totals, fmt.Sprint(s.Known, s.Decode, s.NoStart))
		}
		return steps, totals
	}
	f := made()
	f.makeSteps(&timeAudit{time: timeCadence})
	steps, totals := show(f)
	if want := []string{"1 0 1 100", "2 900 0 0", "3 1000 1 100", "4 2000 1 100", "7 3000 1 100", "8 4000 1 100", "9 4900 0 0"}; !slices.Equal(steps, want) || f.out.First != 1 {
		t.Errorf("got steps %q, want %q", steps, want)
	}
	if want := []string{"true 1 false", "true 0 false", "true 1 true", "true 1 false", "false 0 false", "false 0 false", "true 1 false", "true 1 false", "true 0 false"}; !slices.Equal(totals, want) {
		t.Errorf("got totals %q, want %q", totals, want)
	}
	f = made()
	f.passes[4].hasEnd = false
	f.makeSteps(&timeAudit{time: timeCadence})
	if steps, _ := show(f); steps[len(steps)-1] != "7 3000 1 100" {
		t.Errorf("no end: got %q", steps)
	}
	// 21 passes, with a tick at every tenth: each second tick gives a row of 20 passes.
	f = decoding(t, 61, 10, 100, 0, 1, nil)
	for i := 10; i < 61; i += 10 {
		f.passes[i].tick, f.passes[i].tickNs = true, int64(i)*1e9
	}
	f.makeSteps(&timeAudit{time: timeTicks})
	steps = nil
	for _, s := range f.run.Steps {
		steps = append(steps, fmt.Sprint(s.ID, s.TsStartNs/1e9, s.TsEndNs/1e9))
	}
	if want := []string{"21 20 20", "41 40 40", "61 60 60"}; !slices.Equal(steps, want) || len(f.out.Totals) != 61 || f.out.Totals[20].NoStart || !f.out.Totals[10].NoStart {
		t.Errorf("ticks: got %q, want %q", steps, want)
	}
}

// TestWhichLine: elapsed follows the prompt tokens of the own line, of the one before or of the one before that.
func TestWhichLine(t *testing.T) {
	made := func(lag, every int) *filler {
		f := decoding(t, 243, 0, 100, 0, 1, nil)
		for i := range f.passes {
			p := &f.passes[i]
			if i%every == 0 {
				p.prefills, p.prefillTokens = 1, int64(65+i*i%401)
			}
			if i >= lag {
				p.it.ElapsedUs = 1000 + 10*float64(f.passes[i-lag].prefillTokens)
			}
		}
		return f
	}
	for lag := range 3 {
		var out trace.TimeAudit
		got, conclusive := made(lag, 3).elapsedLag(&out)
		if got != lag || !conclusive || len(out.LagErrors) != 3 || out.LagErrors[lag] > 1e-6 || out.LagErrors[(lag+1)%3] < 0.1 {
			t.Errorf("%d lines before: got %d, conclusive %t, errors %v", lag, got, conclusive, out.LagErrors)
		}
	}
	// A prompt is near three passes.
	count := func(change func(f *filler)) bool {
		f := made(1, 400)
		change(f)
		for i := 1; i < len(f.passes); i++ {
			f.passes[i].it.ElapsedUs = 1000 + 10*float64(f.passes[i-1].prefillTokens)
		}
		_, conclusive := f.elapsedLag(&trace.TimeAudit{})
		return conclusive
	}
	prompts := func(n int, tokens int64) func(f *filler) {
		return func(f *filler) {
			for k := range n {
				f.passes[10+30*k].prefills, f.passes[10+30*k].prefillTokens = 1, tokens+int64(k*k)
			}
		}
	}
	if count(prompts(6, 100)) || !count(prompts(7, 100)) || count(prompts(7, 64-36)) {
		t.Error("18 passes near a prompt of more than 64 tokens are too few, 21 are enough")
	}
	if !count(prompts(7, 2048-36)) || count(prompts(7, 2049)) {
		t.Error("prompts beyond the budget do not count")
	}
	if count(func(f *filler) { prompts(7, 100)(f); f.passes[11].it.Dummy = true }) {
		t.Error("a pass without load is no evidence")
	}
	short := made(1, 3)
	short.passes = short.passes[:82]
	if _, conclusive := short.elapsedLag(&trace.TimeAudit{}); conclusive {
		t.Error("79 passes are enough")
	}
	short = made(1, 3)
	short.passes = short.passes[:83]
	if _, conclusive := short.elapsedLag(&trace.TimeAudit{}); !conclusive {
		t.Error("80 passes are too few")
	}
}
