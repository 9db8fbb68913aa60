package extract

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/otlp/otlptest"
	"github.com/blis-train/blis-train/trace"
)

// TestClientRequestsFollowTheirEngine: of a dump of two engines each engine run has the client requests
// that it served; those that no engine knows stay with the first, so none is lost.
func TestClientRequestsFollowTheirEngine(t *testing.T) {
	request := func(id, core string) trace.ObservedRequest {
		r := trace.ObservedRequest{ID: id}
		if core != "" {
			r.CoreID = trace.Some(core)
		}
		return r
	}
	c := &collector{
		cores:    []core{{engine: 0}, {engine: 1}, {engine: 1}},
		byID:     map[digest]int32{digestID("x"): 0, digestID("y"): 1, digestID("z"): 2},
		observed: []trace.ObservedRequest{request("a", "x"), request("b", "y"), request("c", ""), request("d", "z")},
	}
	for _, test := range []struct {
		engines int
		of      int32
		want    string
	}{
		{0, 0, "abcd"},
		{1, 0, "abcd"},
		{2, 0, "ac"},
		{2, 1, "bd"},
	} {
		c.engines = make([]*engine, test.engines)
		got := ""
		for _, r := range c.observedOf(test.of) {
			got += r.ID
		}
		if got != test.want {
			t.Errorf("%d engines: engine %d has the requests %q, want %q", test.engines, test.of, got, test.want)
		}
	}
}

// TestSpansWithoutCoreFollowTheirEngine: an API span whose core span is lost is in the engine run of the core span
// before it in the file.
func TestSpansWithoutCoreFollowTheirEngine(t *testing.T) {
	alone := func(n, atNs int64) string {
		return otlptest.Line("e", otlptest.API(n, fmt.Sprintf("cmpl-%d", n), atNs, atNs+1e7))
	}
	lines := lifeOfEngine(3, 1, 1e9, 2e7)
	lines = append(lines, alone(50, 2e9))
	lines = append(lines, lifeOfEngine(3, 11, 9e9, 2e7)...)
	lines = append(lines, alone(60, 10e9), alone(61, 11e9))
	_, runs, err := dumpRun(t, []string{writeDump(t, "traces.json", []byte(strings.Join(lines, "\n")))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, run := range runs {
		got = append(got, len(run.Requests))
	}
	if want := []int{4, 5}; !slices.Equal(got, want) {
		t.Errorf("requests of the engine runs: got %v, want %v", got, want)
	}
}

// TestClockOfEachBoot: where the monotonic clock begins anew between two engine runs, each has its own offset of the clocks,
// which is constant, and no warning.
func TestClockOfEachBoot(t *testing.T) {
	const laterS = 100_000
	lines := lifeOfEngine(6, 1, 1e9, 2e7)
	for _, line := range lifeOfEngine(6, 11, 9e9, 2e7) {
		lines = append(lines, strings.ReplaceAll(line, `"1771362`, `"1771462`)) // the wall clock alone goes on by laterS
	}
	doc, runs, err := dumpRun(t, []string{writeDump(t, "traces.json", []byte(strings.Join(lines, "\n")))}, nil)
	if err != nil || len(runs) != 2 {
		t.Fatalf("got %d runs, %v", len(runs), err)
	}
	first, second := doc.Runs[0].Clock, doc.Runs[1].Clock
	if first.SpreadNs != trace.Some[int64](0) || second.SpreadNs != first.SpreadNs || second.OffsetNs.V-first.OffsetNs.V != laterS*1e9 {
		t.Errorf("got %+v and %+v, want no spread and %d s between the offsets", first, second, laterS)
	}
	for _, r := range doc.Runs {
		for _, w := range r.Warnings {
			if w.Code == codeClockOffset {
				t.Errorf("got %v", w)
			}
		}
	}
}
