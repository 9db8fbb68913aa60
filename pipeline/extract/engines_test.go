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
