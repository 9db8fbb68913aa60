package trace

import (
	"math"
	"slices"
	"testing"
)

// journey is a request with a stamp of its own for every event.
func journey() Request {
	return Request{
		Source:       SourceFork,
		ArrivedNs:    Some[int64](1_000_000),
		QueuedNs:     Some[int64](3_000_000),
		ScheduledNs:  Some[int64](4_000_000),
		FirstTokenNs: Some[int64](11_500_000),
		FinishedNs:   Some[int64](40_000_000),
		DepartedNs:   Some[int64](41_250_000),
		StartWallNs:  Some[int64](900_000_000),
	}
}

// stockSpan is a request of unmodified vLLM, which states durations.
func stockSpan() Request {
	return Request{
		Source:      SourceStock,
		StartWallNs: Some[int64](5_000),
		StockTTFTUs: Some(7_300.0),
		StockE2EUs:  Some(21.5),
	}
}

// none is an unknown stamp.
var none Opt[int64]

func TestTimesOfRequests(t *testing.T) {
	type times struct {
		ttftMs, e2eMs         float64
		arrivalNs, departedNs int64
		cameNs                int64
	}
	const unknown = -1
	for _, c := range []struct {
		name string
		edit func(r *Request)
		want times
	}{
		{"journey", func(*Request) {}, times{10.5, 40.25, 1_000_000, 41_250_000, 1_000_000}},
		{"journey that failed", func(r *Request) { r.Success = Some(false) }, times{10.5, unknown, 1_000_000, 41_250_000, 1_000_000}},
		{"journey that succeeded", func(r *Request) { r.Success = Some(true) }, times{10.5, 40.25, 1_000_000, 41_250_000, 1_000_000}},
		{"without ARRIVED", func(r *Request) { r.ArrivedNs = none }, times{unknown, unknown, 3_000_000, 41_250_000, 3_000_000}},
		{"without DEPARTED", func(r *Request) { r.DepartedNs = none }, times{10.5, unknown, 1_000_000, 40_000_000, 1_000_000}},
		{"aborted", func(r *Request) {
			r.DepartedNs, r.FinishedNs, r.AbortedNs = none, none, Some[int64](30_000_000)
		}, times{10.5, unknown, 1_000_000, 30_000_000, 1_000_000}},
		{"without an end", func(r *Request) { r.DepartedNs, r.FinishedNs = none, none }, times{10.5, unknown, 1_000_000, unknown, 1_000_000}},
		{"without FIRST_TOKEN", func(r *Request) { r.FirstTokenNs = none }, times{unknown, 40.25, 1_000_000, 41_250_000, 1_000_000}},
		{"without ARRIVED and QUEUED", func(r *Request) { r.ArrivedNs, r.QueuedNs = none, none },
			times{unknown, unknown, unknown, 41_250_000, math.MaxInt64 - 1}},
		{"stock span", func(r *Request) { *r = stockSpan() }, times{7.3, 0.0215, 5_000, 26_500, math.MaxInt64 - 1}},
		{"stock span without times", func(r *Request) { *r = Request{Source: SourceStock, StartWallNs: Some[int64](5_000)} },
			times{unknown, unknown, 5_000, unknown, math.MaxInt64 - 1}},
		{"stock span without a start", func(r *Request) { *r = stockSpan(); r.StartWallNs = none },
			times{7.3, 0.0215, unknown, unknown, math.MaxInt64 - 1}},
	} {
		r := journey()
		c.edit(&r)
		var got times
		var ok bool
		if got.ttftMs, ok = r.TTFTMs(); !ok {
			got.ttftMs = unknown
		}
		if got.e2eMs, ok = r.E2EMs(); !ok {
			got.e2eMs = unknown
		}
		if got.arrivalNs, ok = r.ArrivalNs(); !ok {
			got.arrivalNs = unknown
		}
		if got.departedNs, ok = r.DepartureNs(); !ok {
			got.departedNs = unknown
		}
		got.cameNs = r.CameNs()
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestOutcomesOfRequests(t *testing.T) {
	for _, c := range []struct {
		name            string
		success         Opt[bool]
		reason, status  Opt[string]
		failed, aborted bool
	}{
		{"no end", Opt[bool]{}, Some("client_disconnect"), Some(FinishAborted), false, false},
		{"success", Some(true), Opt[string]{}, Some(FinishAborted), false, false},
		{"the client left", Some(false), Some("client_disconnect"), Opt[string]{}, false, true},
		{"the server aborted", Some(false), Some("timeout"), Some(FinishAborted), true, false},
		{"aborted without a reason", Some(false), Opt[string]{}, Some(FinishAborted), false, true},
		{"error", Some(false), Opt[string]{}, Some(FinishError), true, false},
		{"nothing known of a failure", Some(false), Opt[string]{}, Opt[string]{}, true, false},
	} {
		r := Request{Success: c.success, AbortReason: c.reason, FinishStatus: c.status}
		if r.Failed() != c.failed || r.ClientAborted() != c.aborted {
			t.Errorf("%s: got failed %t, aborted %t, want %t, %t", c.name, r.Failed(), r.ClientAborted(), c.failed, c.aborted)
		}
	}
}

func TestRunsBackwards(t *testing.T) {
	r := journey()
	if r.RunsBackwards() {
		t.Error("events in order: got backwards")
	}
	r.QueuedNs = r.ArrivedNs
	if r.RunsBackwards() {
		t.Error("two events at one time: got backwards")
	}
	stamps := []*Opt[int64]{&r.ArrivedNs, &r.QueuedNs, &r.ScheduledNs, &r.FirstTokenNs, &r.FinishedNs, &r.DepartedNs}
	for i, stamp := range stamps[1:] {
		old := *stamp
		*stamp = Some(stamps[i].V - 1)
		if !r.RunsBackwards() {
			t.Errorf("event %d is 1 ns before the one before it: got in order", i+1)
		}
		*stamp = none
		if r.RunsBackwards() {
			t.Errorf("without event %d: got backwards", i+1)
		}
		*stamp = old
	}
}

func TestPartsOfARun(t *testing.T) {
	whole := Run{}
	part := Run{Slice: &Slice{FromNs: 100, ToNs: 200}}
	for ns, want := range map[int64]bool{99: false, 100: true, 199: true, 200: false} {
		q := &Request{ArrivedNs: Some(ns)}
		if part.Asks(ns) != want || part.AsksFor(q) != want {
			t.Errorf("%d ns: got %t and %t, want %t", ns, part.Asks(ns), part.AsksFor(q), want)
		}
		if !whole.Asks(ns) || !whole.AsksFor(q) {
			t.Errorf("%d ns of a whole run: got false", ns)
		}
	}
	if part.Slice.IsFirst() || !(&Slice{FromNs: math.MinInt64}).IsFirst() {
		t.Error("the first slice is the one that includes everything earlier")
	}
}

func TestSnapshotsInMemory(t *testing.T) {
	r := Run{Snapshots: []Snapshot{{StepID: 3}, {StepID: 5}, {StepID: 8}}}
	var ids []int64
	if err := r.EachSnapshot(func(s *Snapshot) { ids = append(ids, s.StepID) }); err != nil || !slices.Equal(ids, []int64{3, 5, 8}) {
		t.Errorf("got steps %v, %v", ids, err)
	}
	stored := &Run{Snapshots: []Snapshot{{StepID: 9}}}
	r.Stored = stored.OpenSnapshots
	ids = nil
	if err := r.EachSnapshot(func(s *Snapshot) { ids = append(ids, s.StepID) }); err != nil || !slices.Equal(ids, []int64{9}) {
		t.Errorf("stored: got steps %v, %v", ids, err)
	}
}

func TestIsDecode(t *testing.T) {
	for c, want := range map[Chunk]bool{
		{Computed: 10, Prompt: 10, New: 1}: true,
		{Computed: 11, Prompt: 10, New: 1}: true,
		{Computed: 9, Prompt: 10, New: 1}:  false, // last token of the prompt
		{Computed: 10, Prompt: 10, New: 2}: false, // recompute or drafted tokens
	} {
		if c.IsDecode() != want {
			t.Errorf("%+v: got %t, want %t", c, c.IsDecode(), want)
		}
	}
}

// TestBoundOverheads has one request for each reason why a bound is or is not exact.
func TestBoundOverheads(t *testing.T) {
	ns := func(us int64) Opt[int64] { return Some(us * 1000) }
	stamps := []OverheadStamps{
		{ns(100), ns(130), ns(300)}, // the engine is idle: exact
		{ns(200), ns(240), ns(600)}, // while the first runs: it waited since the step at 220 at the earliest
		{ns(210), ns(215), ns(600)}, // arrived after the step at 150 began
		{ns(690), ns(700), ns(800)}, // no step since the last FINISHED
		{ns(805), ns(820), ns(990)}, // the step at 810 is idle
		{ns(895), ns(900), ns(950)}, // two requests at once
		{ns(890), ns(900), ns(950)},
		{none, ns(1000), ns(1100)}, // no ARRIVED
		{ns(50), none, none},       // no QUEUED
		{ns(1210), ns(1205), ns(1300)},
		// Arrived during the last step of the one before, and picked up right after it.
		{ns(1250), ns(1301), ns(1400)},
		{ns(1400), ns(1410), ns(1500)}, // arrived when the one before finished
	}
	steps := []Step{
		{TsStartNs: 150_000, RunningDepth: 1},
		{TsStartNs: 220_000, RunningDepth: 2},
		{TsStartNs: 810_000},
		{TsStartNs: 1_200_000, WaitingDepth: 1},
	}
	marks := func(yield func(StepMark) bool) {
		for i := range steps {
			if !yield(steps[i].Mark()) {
				return
			}
		}
	}
	bounds := func(complete bool) []OverheadBound {
		return BoundOverheads(len(stamps), func(i int) OverheadStamps { return stamps[i] }, marks, complete)
	}
	want := []OverheadBound{
		{30, 30, true, true},
		{20, 40, false, true},
		{0, 5, false, true},
		{10, 10, true, true},
		{15, 15, true, true},
		{0, 5, false, true},
		{0, 10, false, true},
		{},
		{},
		{0, -5, false, true},
		{0, 51, false, true},
		{10, 10, true, true},
	}
	if got := bounds(true); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for i := range want {
		if want[i].Exact {
			want[i].Exact = false
			want[i].LoUs = 0
		}
	}
	want[4].LoUs = 5 // the step at 810 began 5 us after ARRIVED
	if got := bounds(false); !slices.Equal(got, want) {
		t.Errorf("with journeys missing: got  %v\nwant %v", got, want)
	}
}
