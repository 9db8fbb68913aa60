package predictor

import (
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

func near9(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// TestScoreIntervals: of a share p among n rows Wilson's interval is (p + z^2/2n -+ z*sqrt(p(1-p)/n + z^2/4n^2))/(1 + z^2/n).
func TestScoreIntervals(t *testing.T) {
	const z2 = 1.959963984540054 * 1.959963984540054
	// Of 100 rows half: the centre is 1/2, and half the width z/2/sqrt(n + z^2).
	half := math.Sqrt(z2) / 2 / math.Sqrt(100+z2)
	if got := wilson(0.5, 100); !near9(got[0], 0.5-half) || !near9(got[1], 0.5+half) {
		t.Errorf("got %v, want 0.5 +- %g", got, half)
	}
	// All of 10: from 1/(1 + z^2/10) to 1.
	if got := wilson(1, 10); !near9(got[0], 1/(1+z2/10)) || got[1] != 1 {
		t.Errorf("got %v, want %g to 1", got, 1/(1+z2/10))
	}
	if got := wilson(0, 10); got[0] != 0 || !near9(got[1], z2/10/(1+z2/10)) {
		t.Errorf("got %v, want 0 to %g", got, z2/10/(1+z2/10))
	}
	if got := msToUs([]float64{1.5, 0}); !slices.Equal(got, []float64{1500, 0}) {
		t.Errorf("got %v us, want 1500 and 0", got)
	}
	o := &testOutcome{y: []float64{10, 20}}
	if got := o.apes([]float64{9, 25}); !near9(got[0], 0.1) || !near9(got[1], 0.25) {
		t.Errorf("got errors %v, want 0.1 and 0.25", got)
	}
}

// TestBlocksOfTestRows: of 100 rows of a run blocks have twice the root, 20; of 9 there is one.
func TestBlocksOfTestRows(t *testing.T) {
	a := &rowSet{}
	o := &testOutcome{}
	for i := range 109 {
		a.samples = append(a.samples, sample{run: i / 100})
		o.rows = append(o.rows, i)
	}
	a.setBlocks(o)
	counts := map[int]int{}
	for _, b := range o.block {
		counts[b]++
	}
	if o.blocks != 6 || counts[0] != 20 || counts[4] != 20 || counts[5] != 9 || !slices.IsSorted(o.block) {
		t.Errorf("got %d blocks of %v rows, want five of 20 and one of 9", o.blocks, counts)
	}
	// Equal values have no spread; fewer than five blocks no interval; NaN counts nowhere.
	v := slices.Repeat([]float64{3}, 109)
	v[7] = math.NaN()
	if lo, hi, ok := o.interval(v, 1); !ok || lo != 3 || hi != 3 {
		t.Errorf("got %g to %g, %v, want 3", lo, hi, ok)
	}
	o.blocks = 4
	if _, _, ok := o.interval(v, 1); ok {
		t.Error("four blocks give an interval")
	}
}

func TestFloorsOfScores(t *testing.T) {
	v := func(x float64) *float64 { return &x }
	models := []modelScore{{}, {}, {}}
	models[0].MAPE, models[0].MAPEFloor = v(0.3), v(0.25)
	models[1].MAPE, models[1].MAPEFloor = v(0.2), v(0.25)
	models[2].MAPE = v(0.4)
	lowerFloors(models)
	if *models[0].MAPEFloor != 0.2 || *models[1].MAPEFloor != 0.2 || models[2].MAPEFloor != nil {
		t.Errorf("got floors %v, %v, %v, want the 0.2 that was reached", *models[0].MAPEFloor, *models[1].MAPEFloor, models[2].MAPEFloor)
	}
	models[1].MAPE = v(0.9)
	models[0].MAPEFloor, models[1].MAPEFloor = v(0.25), v(0.25)
	if lowerFloors(models); *models[0].MAPEFloor != 0.25 {
		t.Errorf("got %g, want the floor that no model reached", *models[0].MAPEFloor)
	}
}

func TestSharedPrefixOptions(t *testing.T) {
	for _, c := range []struct {
		text, runs string
		tokens     int64
		isGood     bool
	}{
		{"0", "*", 0, true}, {"512", "*", 512, true}, {"a*=64", "a*", 64, true}, {"a=b=64", "a=b", 64, true},
		{"-1", "", 0, false}, {"a*=", "", 0, false}, {"[=64", "", 0, false}, {"x", "", 0, false},
	} {
		runs, tokens, err := parseShare(c.text)
		if runs != c.runs || tokens != c.tokens || (err == nil) != c.isGood {
			t.Errorf("%q: got %q, %d, %v", c.text, runs, tokens, err)
		}
	}
}

// TestStampsOfStockSpans: a span from 1 s on has 5 ms before the queue, 10 ms of queue, 20 of prefill and 50 of decode.
func TestStampsOfStockSpans(t *testing.T) {
	us := trace.Some[float64]
	whole := trace.Request{StartWallNs: trace.Some(int64(1e9)), StockTTFTUs: us(35e3), StockQueueUs: us(10e3), StockPrefillUs: us(20e3),
		StockDecodeUs: us(50e3), StockE2EUs: us(90e3), EndWallNs: trace.Some(int64(1_095_000_000))}
	at := func(ms int64) trace.Opt[int64] { return trace.Some(int64(1e9) + ms*1e6) }
	none := trace.Opt[int64]{}
	for _, c := range []struct {
		name                                         string
		change                                       func(r *trace.Request)
		queued, scheduled, first, finished, departed trace.Opt[int64]
	}{
		{"whole", func(r *trace.Request) {}, at(5), at(15), at(35), at(85), at(90)},
		{"no queue", func(r *trace.Request) { r.StockQueueUs.OK = false }, none, none, at(35), at(85), at(90)},
		{"no prefill", func(r *trace.Request) { r.StockPrefillUs.OK = false }, none, none, at(35), at(85), at(90)},
		{"no decode", func(r *trace.Request) { r.StockDecodeUs.OK = false }, at(5), at(15), at(35), none, at(90)},
		{"no E2E", func(r *trace.Request) { r.StockE2EUs.OK = false }, at(5), at(15), at(35), at(85), at(95)},
		{"no end", func(r *trace.Request) { r.StockE2EUs.OK, r.EndWallNs.OK = false, false }, at(5), at(15), at(35), at(85), at(85)},
	} {
		r := whole
		c.change(&r)
		l := &requestLife{}
		l.stockStamps(&r)
		for name, v := range map[string][2]trace.Opt[int64]{
			"queued": {l.queued, c.queued}, "scheduled": {l.scheduled, c.scheduled}, "first": {l.first, c.first}, "finished": {l.finished, c.finished},
			"departed": {l.departed, c.departed},
		} {
			if v[0].OK != v[1].OK || v[0].OK && v[0].V != v[1].V {
				t.Errorf("%s, %s: got %v, want %v", c.name, name, v[0], v[1])
			}
		}
	}
}

func TestWeightsHaveMeanOne(t *testing.T) {
	if got := scaleToMeanOne([]float64{1, 2, 3}, 3); !near9(got[0], 0.5) || got[1] != 1 || !near9(got[2], 1.5) {
		t.Errorf("got %v, want 0.5, 1 and 1.5", got)
	}
	if got := scaleToMeanOne(nil, 2); !slices.Equal(got, []float64{1, 1}) {
		t.Errorf("got %v, want equal weights", got)
	}
}

// TestFreshSteps: a recorded step describes the engine for a time, or while it is idle, or if every step is recorded.
func TestFreshSteps(t *testing.T) {
	s := &recordedSteps{list: []trace.Step{{TsStartNs: 100}, {TsStartNs: 200}}}
	for ns, want := range map[int64]int{99: -1, 100: 0, 199: 0, 200: 1, 999: 1} {
		if _, i := s.lastBy(ns); i != want {
			t.Errorf("%d ns: got step %d, want %d", ns, i, want)
		}
	}
	for _, c := range []struct {
		complete         bool
		running, waiting int64
		ns               int64
		want             bool
	}{
		{false, 1, 0, 100 + 250_000_000, true}, {false, 1, 0, 101 + 250_000_000, false}, {false, 0, 1, 101 + 250_000_000, false}, {false, 0, 0, 101 + 250_000_000, true},
		{true, 1, 1, 101 + 250_000_000, true},
	} {
		s.complete = c.complete
		if got := s.isFresh(&trace.Step{TsStartNs: 100, RunningDepth: int32(c.running), WaitingDepth: int32(c.waiting)}, c.ns); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}
