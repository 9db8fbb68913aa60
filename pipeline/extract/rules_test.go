package extract

import (
	"math"
	"reflect"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/trace"
)

// TestBlocksOfSnapshots: 33 tokens fill three blocks of 16, and a fourth may be reserved.
func TestBlocksOfSnapshots(t *testing.T) {
	for _, c := range []struct {
		computed, scheduled, blocks, size int64
		want                              bool
	}{
		{32, 1, 2, 16, false}, {32, 1, 3, 16, true}, {32, 1, 4, 16, true}, {32, 1, 5, 16, false},
		{31, 1, 2, 16, true}, {31, 1, 1, 16, false}, {32, 0, 2, 16, true},
	} {
		s := &trace.Snapshot{ComputedTokens: c.computed, ScheduledTokens: c.scheduled, BlocksAllocated: c.blocks}
		if got := needsBlocks(s, c.size); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	// Of 20 snapshots with 320 tokens in 20 blocks of 16 all fit 16, and none the stated 32; those of one block count nowhere.
	of := func(odd int, stated int64) int64 {
		f := &blockFits{}
		f.addSnapshot(&trace.Snapshot{ComputedTokens: 900, BlocksAllocated: 1}, stated)
		for i := range 20 {
			s := &trace.Snapshot{ComputedTokens: 320, BlocksAllocated: 20}
			if i < odd {
				s.BlocksAllocated = 10
			}
			f.addSnapshot(s, stated)
		}
		if f.seen != 20 {
			t.Errorf("got %d snapshots of two blocks or more, want 20", f.seen)
		}
		return f.contradiction()
	}
	for _, c := range []struct {
		odd    int
		stated int64
		want   int64
	}{{0, 16, 0}, {0, 32, 16}, {1, 32, 16}, {2, 32, 0}, {9, 32, 0}, {20, 16, 32}} {
		if got := of(c.odd, c.stated); got != c.want {
			t.Errorf("%d of 20 snapshots have blocks of 32, %d stated: got a contradiction by %d, want %d", c.odd, c.stated, got, c.want)
		}
	}
	if got := (&blockFits{seen: 20, fitsStated: 10, fits: [len(blockSizes)]int64{1: 20}}).contradiction(); got != 0 {
		t.Errorf("half fit the stated size: got %d", got)
	}
}

// TestStretchesJoin: what follows by its sequence number, or by its steps where neither has one, is one stretch.
func TestStretchesJoin(t *testing.T) {
	s := func(firstStep, lastStep, firstSeq, lastSeq int64) stretch {
		return stretch{firstStep: firstStep, lastStep: lastStep, firstSeq: firstSeq, lastSeq: lastSeq}
	}
	for _, c := range []struct {
		a, b            stretch
		meets, precedes bool
	}{
		{s(1, 5, 1, 2), s(6, 9, 3, 3), true, true},
		{s(1, 5, 1, 2), s(6, 9, 4, 4), false, true},
		{s(1, 5, 1, 2), s(6, 9, 2, 2), false, false},
		{s(1, 5, 1, 2), s(5, 9, 3, 3), true, true}, // a step whose events two spans share
		{s(1, 5, 1, 2), s(4, 9, 3, 3), true, false},
		{s(1, 5, 0, 0), s(6, 9, 0, 0), true, true},
		{s(1, 5, 0, 0), s(7, 9, 0, 0), false, true},
		{s(1, 5, 0, 0), s(6, 9, 3, 3), false, true},
		{s(1, 5, 2, 2), s(6, 9, 0, 0), false, true},
	} {
		if meets, precedes := c.a.meets(&c.b), c.a.mayPrecede(&c.b); meets != c.meets || precedes != c.precedes {
			t.Errorf("%+v, %+v: got meets %v, may precede %v", c.a, c.b, meets, precedes)
		}
	}
	for _, c := range []struct {
		to, from int64
		want     bool
	}{{0, 5, true}, {5, 0, true}, {5, 5, true}, {5, 6, true}, {6, 5, false}} {
		if got := (&stretch{toNs: c.to}).isEarlier(&stretch{fromNs: c.from}); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	var list []stretch
	for _, p := range []stretch{
		{firstStep: 1, lastStep: 3, fromNs: 10, toNs: 30, endNs: 35}, {firstStep: 7, lastStep: 9, fromNs: 70, toNs: 90, endNs: 95},
		{firstStep: 20, lastStep: 20}, {firstStep: 4, lastStep: 6, fromNs: 40, toNs: 60, endNs: 65},
	} {
		list = insertStretch(list, p)
	}
	want := stretch{firstStep: 1, lastStep: 9, fromNs: 10, toNs: 90, endNs: 95}
	if len(list) != 2 || list[0] != want || list[1].firstStep != 20 {
		t.Errorf("got %+v, want %+v and step 20", list, want)
	}
	if got := placeAfter([]stretch{{firstStep: 1}, {firstStep: 5}, {firstStep: 5}, {firstStep: 8}}, &stretch{firstStep: 5}); got != 3 {
		t.Errorf("got place %d, want that after all of step 5", got)
	}
}

func TestFitsOfSpans(t *testing.T) {
	list := []stretch{
		{firstStep: 1, lastStep: 10, firstSeq: 1, lastSeq: 4, fromNs: 100, toNs: 190, endNs: 200},
		{firstStep: 30, lastStep: 40, firstSeq: 9, lastSeq: 9, fromNs: 500, toNs: 600, endNs: 610},
	}
	for _, c := range []struct {
		name string
		p    stretch
		want fit
		ok   bool
	}{
		{"directly behind", stretch{firstStep: 11, lastStep: 12, firstSeq: 5, lastSeq: 5, fromNs: 210, toNs: 220}, fit{gapNs: 20}, true},
		{"two spans are missing", stretch{firstStep: 15, lastStep: 16, firstSeq: 7, lastSeq: 7, fromNs: 210, toNs: 220}, fit{gap: 2, gapNs: 20}, true},
		{"four steps are missing", stretch{firstStep: 15, lastStep: 16, fromNs: 210, toNs: 220}, fit{gap: 4, gapNs: 20}, true},
		{"as the other ends", stretch{firstStep: 11, lastStep: 12, firstSeq: 5, lastSeq: 5, fromNs: 200, toNs: 220}, fit{gapNs: 10}, true},
		{"before the other ends", stretch{firstStep: 11, lastStep: 12, firstSeq: 5, lastSeq: 5, fromNs: 195, toNs: 220}, fit{gapNs: 5, overlaps: true}, true},
		{"out of time, and next", stretch{firstStep: 11, lastStep: 12, firstSeq: 5, lastSeq: 5, fromNs: 180, toNs: 220},
			fit{gapNs: -10, overlaps: true, outOfTime: true}, true},
		{"out of time", stretch{firstStep: 15, lastStep: 16, firstSeq: 7, lastSeq: 7, fromNs: 180, toNs: 220},
			fit{gap: 2, gapNs: -10, overlaps: true, outOfTime: true}, false},
		{"later than the next", stretch{firstStep: 15, lastStep: 16, firstSeq: 7, lastSeq: 7, fromNs: 510, toNs: 520},
			fit{gap: 2, gapNs: 320, outOfTime: true}, false},
		{"its number is taken", stretch{firstStep: 15, lastStep: 16, firstSeq: 4, lastSeq: 4}, fit{gap: 3, gapNs: math.MaxInt64}, false},
		{"its steps reach into the next", stretch{firstStep: 15, lastStep: 31, firstSeq: 7, lastSeq: 7},
			fit{gap: 2, gapNs: math.MaxInt64}, false},
		{"after all, no stamps", stretch{firstStep: 41, lastStep: 42, firstSeq: 12, lastSeq: 12}, fit{gap: 2, gapNs: math.MaxInt64}, true},
	} {
		if got, ok := fitOf(list, &c.p); got != c.want || ok != c.ok {
			t.Errorf("%s: got %+v %v, want %+v %v", c.name, got, ok, c.want, c.ok)
		}
	}
	if got, ok := fitOf(nil, &stretch{firstStep: 9, lastStep: 9, firstSeq: 3, lastSeq: 3}); !ok || got != (fit{gap: 2, gapNs: math.MaxInt64}) {
		t.Errorf("the first span of an engine: got %+v %v", got, ok)
	}
	for step, gap := range map[int64]int64{9: 8, 1: 0, 0: 0} {
		if got, ok := fitOf(nil, &stretch{firstStep: step, lastStep: 9}); !ok || got != (fit{gap: gap, gapNs: math.MaxInt64}) {
			t.Errorf("the first span without a number, from step %d: got %+v %v", step, got, ok)
		}
	}
	// From the best to the worst.
	order := []fit{{gapNs: 1}, {gapNs: 2}, {gap: 1, gapNs: 1}, {overlaps: true}, {outOfTime: true}}
	for i := range order {
		for j := range order {
			if got := order[i].betterThan(order[j]); got != (i < j) {
				t.Errorf("%+v before %+v: got %v", order[i], order[j], got)
			}
		}
	}
}

// TestPassesWithAnEncoder: passes of 10 ms each; an encoder ran in the third, of number 12.
func TestPassesWithAnEncoder(t *testing.T) {
	p := &passTimes{}
	for i := range int64(6) {
		it := &trace.Iteration{Index: 10 + i, ElapsedUs: 10e3}
		if i == 2 {
			it.EncoderInputs = trace.Some(int64(1))
		}
		p.addPass(it)
	}
	for _, c := range []struct {
		pass, output int64
		ttftUs       float64
		want         bool
	}{
		{11, 1, 10e3, false}, {11, 2, 10e3, true}, {12, 1, 1e3, true}, {13, 1, 10e3, false}, {13, 1, 10_001, true}, {13, 9, 10e3, false},
		{14, 1, 20e3, false}, {14, 1, 20_001, true}, {10, 0, 1e3, false}, {10, 3, 1e3, true}, {99, 1, 1e3, true}, // a pass that is not known
	} {
		r := &trace.ObservedRequest{Iteration: trace.Some(c.pass), OutputTokens: trace.Some(c.output), TTFTUs: trace.Some(c.ttftUs)}
		if got := p.sawEncoder(r); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestAnswersWithFewerChunks(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *trace.ObservedRequest)
		want   bool
	}{
		{"nine of ten", func(r *trace.ObservedRequest) {}, true},
		{"no chunks recorded", func(r *trace.ObservedRequest) { r.Chunks = trace.Opt[int64]{} }, true},
		{"ten", func(r *trace.ObservedRequest) { r.Chunks.V = 10 }, false},
		{"failed", func(r *trace.ObservedRequest) { r.Success.V = false }, false},
		{"two answers", func(r *trace.ObservedRequest) { r.N = trace.Some(int64(2)) }, false},
		{"no TTFT", func(r *trace.ObservedRequest) { r.TTFTUs.OK = false }, false},
		{"no E2E", func(r *trace.ObservedRequest) { r.E2EUs.OK = false }, false},
		{"one token", func(r *trace.ObservedRequest) { r.OutputTokens.V, r.Chunks.V = 1, 0 }, false},
		{"shown from the first on", func(r *trace.ObservedRequest) { r.VisibleUs = trace.Some(100.0) }, true},
		{"shown later", func(r *trace.ObservedRequest) { r.VisibleUs = trace.Some(101.0) }, false},
	} {
		r := &trace.ObservedRequest{Success: trace.Some(true), TTFTUs: trace.Some(100.0), E2EUs: trace.Some(900.0), OutputTokens: trace.Some(int64(10)),
			Chunks: trace.Some(int64(9))}
		if c.change(r); hasFewerChunks(r) != c.want {
			t.Errorf("%s: got %v", c.name, !c.want)
		}
	}
}

// TestLoadsInPhases: phases of 100 ns that begin at 0, 200 and 400; files of 60 ns that are 1000 ns ahead.
func TestLoadsInPhases(t *testing.T) {
	phases := []deploy.Phase{{Name: "a", StartNs: 0, EndNs: 100}, {Name: "b", StartNs: 200, EndNs: 300}, {Name: "c", StartNs: 400, EndNs: 500}}
	loads := []clients.Load{{Name: "run-a", StartNs: 1020, EndNs: 1080}, {Name: "run-b", StartNs: 1220, EndNs: 1280}, {Name: "x", StartNs: 1420, EndNs: 1480}}
	none := []int{-1, -1, -1}
	for _, want := range []phaseFit{
		{0, none, 0, 0}, {-1000, []int{0, 1, 2}, 3, 2}, {-1020, []int{0, 1, 2}, 3, 2}, {-1021, none, 0, 0}, {-980, []int{0, 1, 2}, 3, 2}, {-979, none, 0, 0},
		{-800, []int{1, 2, -1}, 2, 0}, {-1200, []int{-1, 0, 1}, 2, 0},
	} {
		if got := fitPhases(loads, phases, want.offsetNs); !reflect.DeepEqual(got, want) {
			t.Errorf("offset %d: got %+v, want %+v", want.offsetNs, got, want)
		}
	}
	if got := fitPhases([]clients.Load{loads[0], loads[0]}, phases, -1000); got.inside != 1 {
		t.Errorf("two loads in one phase: got %d, want 1", got.inside)
	}
	if lo, hi := offsetRange(loads, phases, fitPhases(loads, phases, -1000)); lo != -1020 || hi != -980 {
		t.Errorf("got offsets %d to %d, want -1020 to -980", lo, hi)
	}
	order := []phaseFit{{5, nil, 2, 1}, {-6, nil, 2, 1}, {0, nil, 2, 0}, {0, nil, 1, 1}}
	for i := range order {
		for j := range order {
			if got := order[i].betterThan(order[j]); got != (i < j) {
				t.Errorf("%+v before %+v: got %v", order[i], order[j], got)
			}
		}
	}
}

func TestShareThatAcceptsTheLoss(t *testing.T) {
	for frac, want := range map[float64]float64{0.001: 0.01, 0.014: 0.02, 0.5: 0.51, 0.999: 1} {
		if got := roundUp(frac); math.Abs(got-want) > 1e-12 || got < frac {
			t.Errorf("%g: got %g, want %g", frac, got, want)
		}
	}
}
